"""Jobs: files that were handed over become sources, whoever dies, in turns that are fair, and only their owners see them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings import MockEmbedding
from sqlalchemy import text

from rag_app.access.roles import Role
from rag_app.application import Application
from rag_app.database.session import Database
from rag_app.documents import jobs as slices, worker
from rag_app.documents.jobs import JobInfo
from rag_app.documents.metadata import Target
from rag_app.documents.uploads import Limits, OrganizationFull, Upload, UploadedDocument
from rag_app.domain.errors import EmbeddingFailed, InvalidInput, NotFound
from rag_app.domain.rows import RowsRule
from rag_app.domain.scope import Scope
from rag_app.domain.source import Visibility
from rag_app.retrieval.embedding import embed_texts
from tests.conftest import SEVERAL, NewOrganization
from tests.integration.conftest import INDEX, ON_DEFAULT, Forking
from tests.integration.forking import IMPATIENT
from tests.integration.stopping import stopped
from tests.integration.test_ingestion import TOPICS, contents
from tests.waiting import PATIENCE

pytestmark = ON_DEFAULT


class AsleepEmbedding(MockEmbedding):
    """A model that does not answer."""

    async def _aget_text_embedding(self, text: str) -> list[float]:
        raise RuntimeError("is asleep")


def uploads(number: int, first: int = 0) -> list[Upload]:
    return [
        Upload(file_name=f"note-{n:03}.md", text=f"The {TOPICS[n % 8]} has {n} doors.")
        for n in range(first, first + number)
    ]


def sender(org: UUID, user: UUID) -> Scope:
    return Scope(frozenset({org}), user)


async def join(application: Application, user: UUID, *orgs: UUID) -> None:
    for org in orgs:
        await application.people.add_member(
            await application.people.organization(org), await application.people.user(user)
        )
        await application.roles.grant(org, user, Role.WRITE)


@pytest.fixture
async def user(application: Application, org: UUID) -> UUID:
    made = (await application.people.create_user(f"jobs-{uuid4()}")).id
    await join(application, made, org)
    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is thought to be gone after a moment; so it is by those that `forking` starts."""
    for name, seconds in IMPATIENT.items():
        monkeypatch.setattr(worker, name, seconds)


@pytest.fixture
def small(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of four files, too."""
    monkeypatch.setattr(slices, "_SLICE_FILES", 4)


@asynccontextmanager
async def working(application: Application, take_turn: worker.TakeTurn | None = None) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.work(application.urls.app, take_turn or application.take_turn))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(ready: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await ready():
            await asyncio.sleep(0.05)


async def ended(application: Application, *found: JobInfo) -> list[JobInfo]:
    async def over() -> bool:
        now[:] = [
            await application.jobs.get(Scope(frozenset({each.organization})), each.id, operator=True) for each in found
        ]
        return all(each.is_finished for each in now)

    now: list[JobInfo] = []
    await until(over)
    return now


async def test_files_become_sources_and_what_fails_says_why(
    application: Application, org: UUID, user: UUID, small: None, tmp_path: Path
) -> None:
    scope = Scope(frozenset({org}), user)
    for name, content in {"noise": b"\0\1\2", "up": b"# Up\n\nText.", "hours": b"The museum opens at nine."}.items():
        (tmp_path / name).write_bytes(content)
    named = Upload(
        external_id="opening",
        file=tmp_path / "hours",
        file_name="hours.txt",
        title="Opening hours",
        metadata={"author": "Ann"},
    )
    others = [
        Upload(file=tmp_path / "noise", file_name="noise.bin"),
        Upload(file=tmp_path / "up", file_name="../up.md"),
    ]
    sent = [*uploads(5), *others, named]
    job = await application.jobs.begin(sender(org, user), INDEX, Target(org), sent)
    assert (job.state, job.files, job.done, job.failed) == ("waiting", 8, 0, 0)
    async with working(application):
        (done,) = await ended(application, job)
    assert (done.state, done.done, done.failed, done.error) == ("done", 7, 1, None)
    files = await application.jobs.files(scope, job.id)
    assert [each.name for each in files] == [each.name for each in sent]
    (failed,) = await application.jobs.files(scope, job.id, state="failed")
    assert failed.name == "noise.bin" and failed.position == 5
    assert failed.reason and failed.problems == [failed.reason]
    held = await contents(application, org)
    assert set(held) == {*(f"note-{n:03}.md" for n in range(5)), "../up.md", "opening"}
    sources = {each.external_id: each async for each in application.ledger.list(scope, INDEX)}
    assert (sources["opening"].title, sources["opening"].metadata["author"]) == ("Opening hours", "Ann")
    async with application.database.session() as session:
        left = await session.scalar(
            text("SELECT count(*) FROM procrastinate_jobs WHERE queueing_lock = :job"), {"job": str(org)}
        )
    assert left == 0

    again = await application.jobs.retry(scope, job.id)
    assert (again.state, again.failed) == ("waiting", 0)
    async with working(application):
        (done,) = await ended(application, again)
    assert (done.done, done.failed) == (7, 1)


async def test_a_file_that_was_read_in_part_is_done_and_not_retried(
    application: Application, org: UUID, user: UUID, small: None, tmp_path: Path
) -> None:
    scope, rows = sender(org, user), RowsRule(key=("no",), date=("sold",), text="Item {no} was sold.")
    (tmp_path / "table").write_text("no,sold\n1,2026-01-05\n2,soon\n")
    (tmp_path / "lines").write_text('{"id": "first", "text": "The pool opens at six."}\nno JSON\n')
    sent = [
        Upload(file=tmp_path / "table", file_name="sales.csv", rows=rows),
        Upload(file=tmp_path / "lines", file_name="notes.jsonl"),
    ]
    job = await application.jobs.begin(scope, INDEX, Target(org), sent)
    async with working(application):
        (done,) = await ended(application, job)
    assert (done.state, done.done, done.failed) == ("done", 2, 0)
    assert set(await contents(application, org)) == {"sales.csv#1", "sales.csv#2", "first"}
    files = await application.jobs.files(scope, job.id)
    assert [(each.state, each.reason, len(each.problems)) for each in files] == [("done", None, 1)] * 2
    assert "left out" in files[0].problems[0] and "line 2" in files[1].problems[0]
    with pytest.raises(InvalidInput, match="no file of the job has failed"):
        await application.jobs.retry(scope, job.id)


async def test_only_its_user_sees_a_job(
    application: Application, database: Database, org: UUID, user: UUID, organization: NewOrganization
) -> None:
    other, theirs = (await application.people.create_user(f"jobs-{uuid4()}")).id, (await organization()).id
    private = Target(org, owner_id=user, visibility=Visibility.USER)
    job = await application.jobs.begin(sender(org, user), INDEX, private, [Upload(external_id="secret", text="Ours.")])
    for scope in (Scope(frozenset({org}), other), Scope(frozenset({theirs}), user), Scope(frozenset({org}))):
        with pytest.raises(NotFound):
            await application.jobs.get(scope, job.id)
        with pytest.raises(NotFound):
            await application.jobs.files(scope, job.id)
        with pytest.raises(NotFound):
            await application.jobs.cancel(scope, job.id)
        assert await application.jobs.page(scope, 10) == ([], None)
        async with database.scoped(scope) as session:  # the policies alone
            seen = text("SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM job_files)")
            assert await session.scalar(seen) == 0
    async with database.session() as session:
        queued = await session.execute(
            text("SELECT * FROM procrastinate_jobs WHERE queueing_lock = :org"), {"org": str(org)}
        )
        (row,) = queued.mappings().all()
    assert row["args"] == {"org": str(org)} and "secret" not in str(dict(row))
    cancelled = await application.jobs.cancel(Scope(frozenset({org}), user), job.id)
    assert cancelled.state == "cancelled"
    with pytest.raises(InvalidInput, match="nothing to cancel"):
        await application.jobs.cancel(Scope(frozenset({org}), user), job.id)
    async with working(application):
        assert await contents(application, org) == {}
    with pytest.raises(InvalidInput, match="more than once"):
        await application.jobs.begin(sender(org, user), INDEX, Target(org), [*uploads(1), *uploads(1)])


async def test_what_was_under_way_when_a_job_was_cancelled_is_counted(
    application: Application, small: None, org: UUID, user: UUID
) -> None:
    scope = sender(org, user)
    job = await application.jobs.begin(scope, INDEX, Target(org), uploads(10))
    taken = await application.jobs.take(org)
    assert taken is not None and [*taken.files] == [0, 1, 2, 3]
    assert (await application.jobs.cancel(scope, job.id)).state == "cancelled"
    await application.jobs.record(org, job.id, {**dict.fromkeys(range(3), ("done", None)), 3: ("failed", "encrypted")})
    told = await application.jobs.get(scope, job.id)
    assert (told.state, told.done, told.failed) == ("cancelled", 3, 1)
    states = [each.state for each in await application.jobs.files(scope, job.id)]
    assert states == ["done"] * 3 + ["failed"] + ["cancelled"] * 6
    assert await application.jobs.take(org) is None, "no more of it is taken"
    again = await application.jobs.retry(scope, job.id)
    assert (again.state, again.done, again.failed) == ("waiting", 3, 0)
    second = await application.jobs.take(org)
    assert second is not None and [*second.files] == [3, 4, 5, 6], "what is done is not sent again"
    await application.jobs.record(
        org, job.id, dict.fromkeys(taken.files, ("done", None))
    )  # a worker that was thought to be gone
    assert (await application.jobs.get(scope, job.id)).done == 4, "each file is counted once"
    async with working(application):
        (done,) = await ended(application, again)
    assert (done.state, done.done, done.failed) == ("done", 10, 0)


async def test_organizations_take_turns(
    application: Application, org: UUID, user: UUID, organization: NewOrganization, small: None
) -> None:
    other = (await organization()).id
    await join(application, user, other)
    many = await application.jobs.begin(sender(org, user), INDEX, Target(org), uploads(20))
    few = await application.jobs.begin(sender(other, user), INDEX, Target(other), uploads(8))
    second = await application.jobs.begin(sender(org, user), INDEX, Target(org), uploads(4, first=100))
    turns: list[UUID] = []

    async def take_turn(org_id: UUID) -> None:
        turns.append(org_id)
        await application.take_turn(org_id)

    async with working(application, take_turn):
        done = await ended(application, many, few, second)
    assert [(each.done, each.failed) for each in done] == [(20, 0), (8, 0), (4, 0)]
    assert turns[:4] == [org, other, org, other], "however many jobs there are"
    assert turns[4:8] == [org] * 4


async def test_a_turn_that_fails_is_taken_again_and_given_up_in_the_end(
    application: Application, org: UUID, user: UUID, small: None
) -> None:
    job = await application.jobs.begin(sender(org, user), INDEX, Target(org), uploads(6))
    model, failures = application.embedder, iter([True, False, True, True, False])

    async def sometimes(org_id: UUID) -> None:
        await turn(org_id, asleep=next(failures, False))

    async def turn(org_id: UUID, asleep: bool = True) -> None:
        application.embedder = AsleepEmbedding(embed_dim=1, model_name=model.model_name) if asleep else model
        try:
            await application.take_turn(org_id)
        finally:
            application.embedder = model

    async with working(application, sometimes):
        (done,) = await ended(application, job)
    assert (done.state, done.done, done.error) == ("done", 6, None)

    job = await application.jobs.begin(sender(org, user), INDEX, Target(org), uploads(2, first=50))
    with pytest.raises(EmbeddingFailed):
        await turn(org)
    tried = await application.jobs.get(Scope(frozenset({org}), user), job.id)
    assert (tried.state, tried.error) == ("running", None), "it is tried again"
    async with working(application, turn):
        (done,) = await ended(application, job)
    assert (done.state, done.done) == ("failed", 0)
    assert done.error and "is asleep" in done.error
    again = await application.jobs.retry(Scope(frozenset({org}), user), job.id)
    async with working(application):
        (done,) = await ended(application, again)
    assert (done.state, done.done) == ("done", 2)


async def test_a_worker_stops_though_its_sweep_swallows_a_cancellation(
    application: Application, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, swallowed = asyncio.Event(), asyncio.Event()

    async def sweep(*_: object) -> None:
        while True:
            try:
                await asyncio.sleep(0.05)
                started.set()
            except asyncio.CancelledError:
                if swallowed.is_set():
                    raise
                swallowed.set()

    monkeypatch.setattr(worker, "_sweep", sweep)
    async with working(application):
        await started.wait()
    assert swallowed.is_set()


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_waiting_job_stops_where_its_sender_may_not_write_any_more(
    application: Application, org: UUID, user: UUID, leaves: bool
) -> None:
    job = await application.jobs.begin(sender(org, user), INDEX, Target(org), uploads(2))
    if leaves:
        await application.people.remove_member(
            await application.people.organization(org), await application.people.user(user)
        )
    else:
        await application.roles.grant(org, user, Role.READ)
    async with working(application):
        (done,) = await ended(application, job)
    assert (done.state, done.done) == ("failed", 0) and await contents(application, org) == {}
    assert (
        done.error and f"requires the role write in {INDEX}, and you have {'none' if leaves else 'read'}" in done.error
    )
    await join(application, user, org)
    again = await application.jobs.retry(sender(org, user), job.id)
    async with working(application):
        (done,) = await ended(application, again)
    assert (done.state, done.done, done.error) == ("done", 2, None)


async def test_a_waiting_job_stops_where_its_key_is_revoked(application: Application, org: UUID) -> None:
    made, key = await application.keys.create(await application.people.organization(org), "loads", None)
    principal = await application.keys.principal(key)
    assert principal.user is not None
    await application.roles.grant(org, principal.user, Role.WRITE)
    job = await application.jobs.begin(sender(org, principal.user), INDEX, Target(org), uploads(2))
    await application.keys.revoke(str(made.id))
    async with working(application):
        (done,) = await ended(application, job)
    assert (done.state, done.done) == ("failed", 0) and await contents(application, org) == {}
    assert done.error == "The API key that sent this job has been revoked"


async def test_uploads_at_once_do_not_take_the_same_room(
    application: Application, org: UUID, user: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def held(embedder: BaseEmbedding, texts: Sequence[str], dimension: int | None = None) -> list[list[float]]:
        begun.set()
        await go_on.wait()
        return await embed_texts(embedder, texts, dimension)

    async def waits() -> bool:
        there = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        waiting = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND {there}"
        async with application.database.session() as session:
            return begun.is_set() or bool(await session.scalar(text(waiting)))

    def upload(n: int) -> asyncio.Task[list[UploadedDocument]]:
        spec = application.indexes[INDEX]
        return asyncio.create_task(application.uploads.ingest(spec, Target(org), uploads(1, n), sender(org, user)))

    monkeypatch.setattr(application.uploads, "_limits", Limits(sources=1))
    monkeypatch.setattr("rag_app.documents.ingest.embed_texts", held)
    first = upload(1)
    await until(waits)
    begun.clear()
    second = upload(2)
    await until(waits)
    go_on.set()
    with pytest.raises(OrganizationFull):
        await second
    assert [each.status for each in await first] == ["added"]


@SEVERAL
async def test_a_worker_is_killed_anywhere_and_another_one_ends_the_job(
    application: Application, database_urls: tuple[str, str], org: UUID, user: UUID, organization: NewOrganization,
    forking: Forking, impatient: None, tmp_path: Path,
) -> None:  # fmt: skip
    undisturbed = (await organization()).id
    await join(application, user, undisturbed)
    job = await application.jobs.begin(sender(org, user), INDEX, Target(org), uploads(200))
    same = await application.jobs.begin(sender(undisturbed, user), INDEX, Target(undisturbed), uploads(200))
    for state, ready in (("ready", 0), ("writing", 0), ("ready", 128)):
        process = forking.start(["worker"], tmp_path)
        async with stopped(database_urls[0], org, state, ready, process.kill):
            pass
        process.wait()
    async with working(application):
        done = await ended(application, job, same)
    assert [(each.state, each.done, each.failed) for each in done] == [("done", 200, 0)] * 2
    held = await contents(application, org)
    assert held == await contents(application, undisturbed) and len(held) == 200
