"""Generations of an index: rebuilt beside the one that answers, switched to, gone back to, dropped; on both stores."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from sqlalchemy import text

from rag_app.application import Application, open_application
from rag_app.console.commands import _prepare_new
from rag_app.console.doctor import _calibration
from rag_app.console.indexes import _print_outcome
from rag_app.database.urls import DatabaseUrls
from rag_app.documents.metadata import Target
from rag_app.domain.answer import Mode, Question
from rag_app.domain.errors import InvalidInput, Misconfigured, NotFound, StoreFailed
from rag_app.domain.resources import resource_folder
from rag_app.domain.scope import Scope
from rag_app.domain.source import Visibility, source_id
from rag_app.retrieval.confidence import WORDS_ALONE
from rag_app.retrieval.embedding import MiniLM
from rag_app.retrieval.index import Chunking, IndexSpec, load_index
from rag_app.settings import Settings
from rag_app.surfaces.administration.indexing import Indexing
from tests.conftest import ON_DEFAULT_STORE, NewPostgres
from tests.integration.conftest import Command, Forking
from tests.integration.stopping import stopped, until_blocked
from tests.integration.test_ingestion import contents, write_corpus
from tests.waiting import PATIENCE

INDEX = "org_knowledge"
SPEC = load_index(resource_folder("indexes") / INDEX)
FINE = SPEC.model_copy(update={"chunking": Chunking(size=64, overlap=0)})
REBUILD = f"`rag-app indexes rebuild {INDEX} --switch`"


BY_DAY_ON_POSTGRES = pytest.mark.parametrize(
    "urls", ["postgres", pytest.param("qdrant", marks=pytest.mark.thorough)], indirect=True
)
"""The order of steps and the locks, which are PostgreSQL's for either store; a rebuild itself runs on both."""


@pytest.fixture(params=[ON_DEFAULT_STORE])
def urls(
    request: pytest.FixtureRequest, new_database: NewPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> DatabaseUrls:
    """A deployment of its own, on an empty database, with either vector store."""
    return deployed(new_database, request.param, tmp_path, monkeypatch)


def deployed(new_database: NewPostgres, store: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> DatabaseUrls:
    server = new_database()
    owner, app = server.owner_url, server.app_url
    for variable, value in {
        "RAG_DATABASE_URL": app, "RAG_DATABASE_OWNER_URL": owner, "RAG_VECTOR_STORE": store,
        "QDRANT_PATH": str(folder / "qdrant"), "RAG_HOME": str(folder / "home"),
        "RAG_JWT_SECRET": "a secret of the tests, long enough for HS256",
    }.items():  # fmt: skip
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("QDRANT_URL", raising=False)
    declare(monkeypatch, SPEC)
    return DatabaseUrls(app, owner, private=True)


def declare(monkeypatch: pytest.MonkeyPatch, spec: IndexSpec) -> None:
    """What index.toml says from now on, for applications that are yet to be made."""
    monkeypatch.setattr("rag_app.application._indexes", lambda settings: {INDEX: spec})


@asynccontextmanager
async def unchecked(urls: DatabaseUrls) -> AsyncIterator[Application]:
    """As the commands have it: what is configured need not fit what is stored."""
    application = Application(Settings(), urls)
    try:
        yield application
    finally:
        await application.close()


async def new_org(application: Application) -> UUID:
    return (await application.people.create_organization(f"org-{uuid4().hex[:12]}", "Org")).id


async def ingest(application: Application, org: UUID, folder: Path, **target: Any) -> None:
    ingestor = await application.ingestor(application.indexes[INDEX], Target(org, **target))
    assert not (await ingestor.ingest([folder], base=folder)).failed


async def rebuild(application: Application, *, switch: bool = False) -> Any:
    return await Indexing(application).rebuild(INDEX, switch=switch, begin=quietly)


def quietly(*_: object) -> Any:
    return lambda built: None


async def search(application: Application, org: UUID, words: str, user: UUID | None = None) -> set[str]:
    question = Question(words, top_k=30, mode=Mode.HYBRID)
    return {hit.text for hit in await application.pipeline.search(INDEX, question, Scope(frozenset({org}), user))}


async def states(application: Application) -> list[tuple[int, str, int]]:
    """Of each generation: its number, its state, the sources that stand in it."""
    return [(each.generation.number, str(each.generation.state), each.sources) for each in await holdings(application)]


async def holdings(application: Application) -> list[Any]:
    return await Indexing(application).read_contents()


async def reread(application: Application) -> None:
    """Let the application see a switch now, not in two seconds."""
    application.generations._active.clear()


async def test_a_rebuild_with_another_chunking_goes_on_beside_the_live_generation(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "docs", 12)
    async with open_application(Settings(), urls) as application:
        org, other = await new_org(application), await new_org(application)
        for each in (org, other):
            await ingest(application, each, tmp_path / "docs")
        before = await contents(application, org)

    declare(monkeypatch, FINE)
    with pytest.raises(
        Misconfigured, match=rf"other fields or chunking than .* restore the earlier index.toml, or run {REBUILD}"
    ):
        async with open_application(Settings(), urls):
            pass
    async with unchecked(urls) as application:
        outcome = await rebuild(application)
        assert (outcome.generation.number, outcome.generation.state, outcome.lacking) == (2, "building", 0)
        assert outcome.built.sources == 24 and outcome.built.chunks > 2 * sum(map(len, before.values()))
        assert await states(application) == [(1, "active", 24), (2, "building", 24)]
        assert await contents(application, org) == before
        switched = await Indexing(application).switch(INDEX, None)
        assert (switched.generation.number, switched.misfit) == (2, None)

    async with open_application(Settings(), urls) as application:
        assert await states(application) == [(1, "retired", 24), (2, "active", 24)]
        found, fresh = await contents(application, org), await new_org(application)
        await ingest(application, fresh, tmp_path / "docs")
        assert found == await contents(application, fresh) == await contents(application, other) != before
        with pytest.raises(InvalidInput, match=r"has no new generation; `rag-app indexes rebuild org_knowledge` makes"):
            await Indexing(application).switch(INDEX, None)
        with pytest.raises(NotFound, match="no generation of org_knowledge named '7'; there are: 1, 2"):
            await Indexing(application).switch(INDEX, 7)


async def test_a_generation_of_another_layout_is_named_with_the_command_and_built_anew(
    urls: DatabaseUrls, tmp_path: Path
) -> None:
    """As the release before left it: servers do not start, what is deleted goes, a rebuild brings the rest over."""
    write_corpus(tmp_path / "docs", 6)
    async with open_application(Settings(), urls) as application:
        org = await new_org(application)
        await ingest(application, org, tmp_path / "docs")
        before = await contents(application, org)
    owner = await asyncpg.connect(urls.owner.replace("+asyncpg", "") if urls.owner else None)
    await owner.execute("UPDATE generations SET settings = settings - 'layout'")
    await owner.close()
    with pytest.raises(Misconfigured, match=f"{INDEX} was built by another release.*{re.escape(REBUILD)}"):
        async with open_application(Settings(), urls):
            pass
    async with unchecked(urls) as application:
        problems = await application.problems()
        assert "another release" in problems[INDEX] and problems["database"] == "ok"
        ingestor = await application._ingestor(application.indexes[INDEX], Target(org))
        await ingestor.delete([source_id(org, INDEX, "doc-000.md")])
        outcome = await rebuild(application, switch=True)
        assert (outcome.generation.number, str(outcome.generation.state), outcome.lacking) == (2, "active", 0)
    async with open_application(Settings(), urls) as application:
        after = await contents(application, org)
        assert after == {name: chunks for name, chunks in before.items() if name != "doc-000.md"}


@BY_DAY_ON_POSTGRES
async def test_killed_anywhere_the_same_command_goes_on_where_it_was(
    urls: DatabaseUrls, forking: Forking, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "docs", 40)
    async with open_application(Settings(), urls) as application:
        org = await new_org(application)
        await ingest(application, org, tmp_path / "docs")
        before = await contents(application, org)

    line = ["indexes", "rebuild", INDEX, "--json"]

    async def ready(database: Any) -> dict[UUID, object]:
        async with database.scoped(Scope(frozenset({org})), operator=True) as session:
            rows = await session.execute(
                text(
                    "SELECT source_id, source_builds.updated_at FROM source_builds JOIN generations g"
                    " ON g.id = generation_id WHERE g.number = 2 AND source_builds.state = 'ready'"
                )
            )
            return {row[0]: row[1] for row in rows}

    async with unchecked(urls) as watcher:
        for moment in (0, 32):  # within the first batch, and within the second
            process = forking.start(line, tmp_path)
            async with stopped(urls.owner or "", org, "ready", moment, process.kill):
                pass
            process.wait()
            done = await ready(watcher.database)
            assert len(done) == moment
        last = forking.start(line, tmp_path)
        assert await asyncio.to_thread(last.wait) == 0, last.err
        told = json.loads(last.out)
        assert (told["generation"], told["state"], told["lacking"], told["failed"]) == (2, "building", 0, [])
        assert told["built"] == 40 - len(done)
        after = await ready(watcher.database)
        assert {key: after[key] for key in done} == done and len(after) == 40
    async with open_application(Settings(), urls) as application:
        await Indexing(application).switch(INDEX, 2)
        await reread(application)
        assert await contents(application, org) == before and len(before) == 40


class Gated(MiniLM):
    """The usual model; from the second batch of texts on it waits until it may go on."""

    _calls: int = 0
    _paused: Any = None
    _open: Any = None

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._paused, self._open = asyncio.Event(), asyncio.Event()

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._calls += 1
        if self._calls > 1:
            self._paused.set()
            await self._open.wait()
        return await super()._aget_text_embeddings(texts)


@BY_DAY_ON_POSTGRES
async def test_ingests_and_deletions_during_a_rebuild_reach_both_generations(
    urls: DatabaseUrls, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    write_corpus(docs, 60)
    async with open_application(Settings(), urls) as application:
        org, late = await new_org(application), await new_org(application)
        await ingest(application, org, docs)
        gated, usual = Gated(embed_batch_size=2048), application.embedder
        application.embedder = gated
        running = asyncio.create_task(rebuild(application, switch=True))
        await asyncio.wait_for(gated._paused.wait(), PATIENCE)
        application.embedder = usual
        with pytest.raises(Misconfigured, match=f"another command rebuilds, switches or drops .* {INDEX}: wait"):
            await rebuild(application)
        while (await states(application))[1][2] < 32:  # the first batch is complete in the new generation
            await asyncio.sleep(0.01)

        for number in range(0, 60, 3):  # some of them built already, some embedded just now, some still to come
            (docs / f"doc-{number:03}.md").write_text(
                f"# Changed {number}\n\nThe ferry number {number} sails.", "utf-8"
            )
        gone = [f"doc-{number:03}.md" for number in range(1, 60, 3)]
        for name in gone:
            (docs / name).unlink()
        (docs / "new.md").write_text("# New\n\nThe submarine dives.", "utf-8")
        await ingest(application, org, docs)
        await (await application.ingestor(SPEC, Target(org))).delete([source_id(org, INDEX, name) for name in gone])
        await ingest(application, late, docs)  # an organization that had nothing when the rebuild began
        expected = await contents(application, org)
        assert len(expected) == 41 and expected["new.md"] == ["The submarine dives."]

        gated._open.set()
        outcome = await running
        assert (outcome.generation.state, outcome.lacking, outcome.built.failed) == ("active", 0, [])
        await reread(application)
        assert await states(application) == [(1, "retired", 82), (2, "active", 82)]
        assert await contents(application, org) == await contents(application, late) == expected

        # and what is deleted now goes from the retired one, too
        await (await application.ingestor(SPEC, Target(late))).delete(
            [source_id(late, INDEX, name) for name in expected]
        )
        assert await states(application) == [(1, "retired", 41), (2, "active", 41)]
        for each in await application.generations.list():
            assert await application.backends.scoped(SPEC, each, Scope(frozenset({late}))).count() == 0
            assert await application.backends.scoped(SPEC, each, Scope(frozenset({org}))).count() > 0


@BY_DAY_ON_POSTGRES
async def test_a_switch_waits_for_whoever_writes_and_refuses_what_is_not_complete(
    urls: DatabaseUrls, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "docs", 3)
    async with open_application(Settings(), urls) as application:
        org, indexing = await new_org(application), Indexing(application)
        await ingest(application, org, tmp_path / "docs")
        stale = await application.ingestor(SPEC, Target(org))
        await rebuild(application)
        (tmp_path / "docs" / "doc-000.md").write_text("# New\n\nThe submarine dives.", "utf-8")
        async with application.ledger.lock_for_writing(org, INDEX):
            switching = asyncio.create_task(indexing.switch(INDEX, 2))
            await until_blocked(application.database)
            assert not switching.done()
            source = await application.ledger.get(Scope(frozenset({org})), source_id(org, INDEX, "doc-001.md"))
            await application.ledger.mark_deleting(org, [source.id])
            await application.ledger.forget(org, [source.id])
        assert (await switching).generation.state == "active"

        await indexing.switch(INDEX, 1)
        await reread(application)
        await ingest(application, org, tmp_path / "docs")
        with pytest.raises(
            InvalidInput, match=f"generation 2 of {INDEX} lacks the current version of 2 sources; {REBUILD}"
        ):
            await indexing.switch(INDEX, 2)
        assert [each[1] for each in await states(application)] == ["active", "retired"]

        # an ingest that began before a switch does not write where nobody looks any longer
        assert (await rebuild(application, switch=True)).generation.number == 3
        (tmp_path / "docs" / "doc-002.md").write_text("# Newer\n\nThe submarine surfaces.", "utf-8")
        with pytest.raises(Misconfigured, match="has been switched to another generation: run the command again"):
            await stale.ingest([tmp_path / "docs"], base=tmp_path / "docs")
        await reread(application)
        await ingest(application, org, tmp_path / "docs")
        assert "The submarine surfaces." in await search(application, org, "submarine")


@BY_DAY_ON_POSTGRES
async def test_searches_never_fail_nor_mix_while_generations_are_switched(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_app.application._GENERATION_SECONDS", 0.0)
    write_corpus(tmp_path / "docs", 8, paragraphs=2)
    async with open_application(Settings(), urls) as application:
        org, indexing = await new_org(application), Indexing(application)
        await ingest(application, org, tmp_path / "docs")
        texts = [{chunk for chunks in (await contents(application, org)).values() for chunk in chunks}]
        application.indexes = {INDEX: FINE}  # the command has another index.toml; the pipeline goes on with its own
        await rebuild(application, switch=True)
        texts.append({chunk for chunks in (await contents(application, org)).values() for chunk in chunks})
        assert not texts[0] & texts[1]
        seen = [0, 0]
        ended = asyncio.Event()

        async def ask() -> None:
            while not ended.is_set():
                found = await search(application, org, "lighthouse near the harbour")
                of = [bool(found) and found <= each for each in texts]
                assert of.count(True) == 1, found
                seen[of.index(True)] += 1

        async def switch() -> None:
            for number in (1, 2, 1, 2, 1):
                await indexing.switch(INDEX, number)
                before = seen[number - 1]
                while seen[number - 1] < before + 5:
                    await asyncio.sleep(0.01)
            ended.set()

        await asyncio.gather(ask(), ask(), ask(), switch())
        assert min(seen) >= 5


@BY_DAY_ON_POSTGRES
async def test_going_back_makes_up_for_what_came_since(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    write_corpus(docs, 4)
    async with open_application(Settings(), urls) as application:
        org = await new_org(application)
        await ingest(application, org, docs)
        with pytest.raises(InvalidInput, match="no previous generation"):
            await Indexing(application).roll_back(INDEX, force=False, begin=quietly)
    declare(monkeypatch, FINE)
    async with unchecked(urls) as application:
        await rebuild(application, switch=True)
        (docs / "doc-000.md").write_text("# New\n\nThe submarine dives.", "utf-8")
        (docs / "doc-001.md").unlink()
        await ingest(application, org, docs)
        await (await application.ingestor(FINE, Target(org))).delete([source_id(org, INDEX, "doc-001.md")])
        message = r"generation 1 of org_knowledge lacks the current version of 1 sources, .*/index.toml now declares: restore the earlier index.toml"
        with pytest.raises(InvalidInput, match=message):
            await Indexing(application).roll_back(INDEX, force=False, begin=quietly)
        assert await states(application) == [(1, "retired", 3), (2, "active", 3)]  # one as it was

    declare(monkeypatch, SPEC)
    async with unchecked(urls) as application:
        outcome = await Indexing(application).roll_back(INDEX, force=False, begin=quietly)
        assert (outcome.generation.number, outcome.built.sources, outcome.lacking) == (1, 1, 0)
    async with open_application(Settings(), urls) as application:
        fresh = await new_org(application)
        await ingest(application, fresh, docs)
        assert await contents(application, org) == await contents(application, fresh)
        assert "The submarine dives." in await search(application, org, "submarine")


async def test_going_back_by_force_leaves_out_what_changed_since(urls: DatabaseUrls, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("same", "changed", "hidden"):
        (docs / f"{name}.txt").write_text(f"The lighthouse is {name}.", "utf-8")
    async with open_application(Settings(), urls) as application:
        org = await new_org(application)
        ann = (await application.people.create_user(f"ann-{uuid4()}")).id
        await ingest(application, org, docs)
        await rebuild(application, switch=True)
        await reread(application)
        (docs / "changed.txt").write_text("The lighthouse is another one.", "utf-8")
        (docs / "new.txt").write_text("The lighthouse is new.", "utf-8")
        await ingest(application, org, docs)
        await ingest(application, org, docs / "hidden.txt", owner_id=ann, visibility=Visibility.USER)
        outcome = await Indexing(application).roll_back(INDEX, force=True, begin=quietly)
        await reread(application)
        assert (outcome.generation.number, outcome.lacking, outcome.built.sources) == (1, 3, 0)
        assert await search(application, org, "lighthouse", ann) == {"The lighthouse is same."}
        store = await application.backends.open(SPEC, Scope(frozenset({org})))
        assert await store.count() == 1
        await ingest(application, org, docs)  # `hidden` is everybody's again
        assert await search(application, org, "lighthouse") == {
            f"The lighthouse is {what}." for what in ("same", "another one", "new", "hidden")
        }


async def test_another_model_is_not_asked_for_vectors_of_this_one(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rag_app.application._GENERATION_SECONDS", 600.0
    )  # until `reread`, however long the rebuild takes
    write_corpus(tmp_path / "docs", 3)
    async with open_application(Settings(), urls) as application:
        org = await new_org(application)
        await ingest(application, org, tmp_path / "docs")
        usual = application.embedder
        application.embedder = MiniLM(model_name="another-model")
        with pytest.raises(
            Misconfigured, match=rf"was built with all-MiniLM.*: restore the earlier RAG_EMBEDDING, or run {REBUILD}"
        ):
            await application.start()
        assert (await rebuild(application, switch=True)).generation.embedding_model == "another-model"
        application.embedder = usual  # as a server that went on meanwhile
        assert await search(application, org, "lighthouse")  # from what it was built for, for a while
        await reread(application)
        with pytest.raises(StoreFailed, match=r"switched to generation 2 .*Restart it .* \(model another-model, 384"):
            await search(application, org, "lighthouse")
        assert (await application.readiness())["vector_store"] == "unavailable"
        with pytest.raises(Misconfigured, match="was built with another-model"):
            await application.ingestor(SPEC, Target(org))
        outcome = await Indexing(application).roll_back(INDEX, force=False, begin=quietly)
        assert (outcome.generation.number, outcome.misfit) == (1, None)
        await reread(application)
        assert await search(application, org, "lighthouse")
        assert (await application.readiness())["vector_store"] == "ok"
        assert "was built with another-model" in str((await Indexing(application).switch(INDEX, 2)).misfit)


async def test_what_cannot_be_built_is_named_and_nothing_is_switched(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "good.md").write_text("---\nauthor: 7\n---\nThe lighthouse.", "utf-8")
    (docs / "bad.md").write_text("---\nauthor: Ada\n---\nThe bakery.", "utf-8")
    async with open_application(Settings(), urls) as application:
        org = await new_org(application)
        await ingest(application, org, docs)
    declared = SPEC.model_validate({**SPEC.model_dump(), "fields": {**SPEC.fields, "author": "integer"}})
    declare(monkeypatch, declared)
    async with unchecked(urls) as application:
        outcome = await rebuild(application, switch=True)
        (failure,) = outcome.built.failed
        assert (failure.source.external_id, failure.reason) == (
            "bad.md",
            "author: must be a whole number of at most 64 bits, not 'Ada'",
        )
        assert (outcome.generation.state, outcome.lacking, outcome.built.sources) == ("building", 1, 1)
        with pytest.raises(InvalidInput, match="generation 2 of org_knowledge lacks the current version of 1 sources"):
            await Indexing(application).switch(INDEX, None)
        await (await application._ingestor(declared, Target(org))).delete([source_id(org, INDEX, "bad.md")])
        again = await rebuild(application, switch=True)
        assert (again.generation.number, again.generation.state, again.built.sources) == (2, "active", 0)
        await reread(application)
        assert await search(application, org, "lighthouse") == {"The lighthouse."}


async def test_a_dropped_generation_is_gone_but_for_its_row(urls: DatabaseUrls, tmp_path: Path) -> None:
    write_corpus(tmp_path / "docs", 2)
    async with open_application(Settings(), urls) as application:
        org, indexing = await new_org(application), Indexing(application)
        await ingest(application, org, tmp_path / "docs")
        first = await application.backends.active(SPEC)
        async with application.database.scoped(Scope(frozenset({org})), operator=True) as session:
            await session.execute(
                text(
                    "INSERT INTO validations (id, org_id, index_name, generation_id, top_k, report)"
                    " VALUES (:id, :org, :index, :generation, 5, '{}')"
                ),
                {"id": uuid4(), "org": org, "index": INDEX, "generation": first.id},
            )
        await rebuild(application, switch=True)
        await reread(application)
        for refused, message in (
            (2, "generation 2 of org_knowledge is active: switch to another one first"),
            (9, "there are: 1, 2"),
        ):
            with pytest.raises((InvalidInput, NotFound), match=message):
                await indexing.drop(INDEX, refused)
        for _ in range(2):  # safe to repeat
            assert (await indexing.drop(INDEX, 1)).state == "dropped"
        assert await states(application) == [(1, "dropped", 0), (2, "active", 2)]
        with pytest.raises(StoreFailed):
            await application.backends.scoped(SPEC, first, Scope(frozenset({org}))).count()
        with pytest.raises(InvalidInput, match="has been dropped"):
            await indexing.switch(INDEX, 1)
        with pytest.raises(InvalidInput, match="no previous generation"):
            await indexing.roll_back(INDEX, force=True, begin=quietly)
        assert len(await contents(application, org)) == 2
        assert (await rebuild(application)).generation.number == 3  # numbers are not used twice


async def test_a_fit_judges_every_generation_with_the_same_model_and_chunking(
    urls: DatabaseUrls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = WORDS_ALONE.model_copy(update={"answerable": 30})
    newer = WORDS_ALONE.model_copy(update={"answerable": 40})
    async with open_application(Settings(), urls) as application:
        org, other = await new_org(application), await new_org(application)
        organizations, scope = [org, other], Scope(frozenset({org}))
        await application.calibrations.keep((await application.backends.active(SPEC)).id, org, fit)
        second = (await rebuild(application, switch=True)).generation
        assert await application.fit_for(SPEC, scope, anew=True) == (fit, "organization")
        await application.calibrations.keep(second.id, org, newer)
        first = (await Indexing(application).roll_back(INDEX, force=False, begin=quietly)).generation
        assert (first.number, await application.fit_for(SPEC, scope, anew=True)) == (1, (newer, "organization"))
        assert await application.calibrations.list_lost(first, organizations) == set()
        assert (await application.fit_for(SPEC, Scope(frozenset({other}))))[1] != "organization"
    declare(monkeypatch, FINE)
    async with unchecked(urls) as application:
        slug = (await application.people.organization(org)).slug
        outcome = await rebuild(application)
        await _print_outcome(application, outcome, False)
        said = f"`rag-app calibrate --index {INDEX} --org ORG` fits them anew"
        assert f"calibrated with: {slug}\nOnce it answers, their answers are uncalibrated until {said}" in (
            capsys.readouterr().out
        )
        assert (await application.fit_for(FINE, scope, anew=True))[1] == "organization"
        await Indexing(application).switch(INDEX, None)
        await reread(application)
        assert (await application.fit_for(FINE, scope, anew=True))[1] != "organization"
        noted = await _calibration(application, INDEX)
        assert noted.endswith(f"; calibrated with another embedding model or chunking: {slug}: {said}")
        await application.calibrations.keep(outcome.generation.id, org, newer)
        assert await application.calibrations.list_lost(outcome.generation, organizations) == set()


# --- from the command line


@pytest.fixture
def deployment(new_database: NewPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    deployed(new_database, "postgres", tmp_path, monkeypatch)


def test_the_commands(deployment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rag: Command) -> None:
    write_corpus(tmp_path / "docs", 2)
    rag("db", "upgrade")
    rag("orgs", "create", "acme")
    rag("ingest", "docs", "--index", INDEX, "--org", "acme", "--base", "docs")
    model = "all-MiniLM-L6-v2-int8"
    (line,) = rag("indexes", "list").splitlines()
    assert re.fullmatch(
        rf"{INDEX}\tpostgres\t1\tactive\t{model} \(384\)\t254/20 tokens\t2 sources\t2 chunks\tcreated \d{{4}}-..-..",
        line,
    )

    declare(monkeypatch, FINE)
    refused = rag("search", "x", "-i", INDEX, "-o", "acme", status=1)
    assert refused.endswith(f"restore the earlier index.toml, or run {REBUILD}\n")
    built = rag("indexes", "rebuild", INDEX).splitlines()
    assert re.fullmatch(
        f"generation 2 of {INDEX} in postgres is building; 2 sources built, \\d+ chunks written", built[0]
    )
    assert built[1] == f"To search it, run `rag-app indexes switch {INDEX}`"
    assert rag("indexes", "switch", INDEX) == f"generation 2 of {INDEX} in postgres answers\n"
    assert "lighthouse" in rag("search", "lighthouse", "-i", INDEX, "-o", "acme")

    listed = json.loads(rag("indexes", "list", "--json"))
    assert [(each["generation"], each["state"], each["sources"]) for each in listed] == [
        (1, "retired", 2),
        (2, "active", 2),
    ]
    assert listed[1]["chunking"] == {"size": 64, "overlap": 0} and listed[1]["created"].endswith("+00:00")
    back = rag("indexes", "rollback", INDEX).splitlines()
    assert back[0] == f"generation 1 of {INDEX} in postgres answers"
    assert back[1].startswith(
        "A server with these settings will not start: the generation was built with other fields or chunk"
    )
    told = json.loads(rag("indexes", "rebuild", INDEX, "--switch", "--json"))
    assert {key: told[key] for key in ("generation", "state", "built", "lacking", "failed")} == {
        "generation": 3, "state": "active", "built": 2, "lacking": 0, "failed": [],
    }  # fmt: skip
    assert rag("indexes", "drop", INDEX, "2") == f"generation 2 of {INDEX} in postgres is dropped\n"
    for arguments, message in (
        (("drop", INDEX, "3"), f"generation 3 of {INDEX} is active: switch to another one first"),
        (("drop", "boook", "3"), "no index named 'boook'; there are: "),
        (("switch", INDEX), f"index {INDEX} has no new generation; `rag-app indexes rebuild {INDEX}` makes one"),
    ):
        assert message in rag("indexes", *arguments, status=1)
    monkeypatch.setenv("RAG_DATABASE_OWNER_URL", "")
    for arguments in (("rebuild", INDEX), ("drop", INDEX, "1")):
        assert "set RAG_DATABASE_OWNER_URL" in rag("indexes", *arguments, status=1)
    assert [each["state"] for each in json.loads(rag("indexes", "list", "--json"))] == ["retired", "dropped", "active"]


def test_a_question_to_one_index_does_not_wait_for_another(
    deployment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rag: Command
) -> None:
    def declared(other: IndexSpec) -> None:
        indexes = {"another": other.model_copy(update={"name": "another"}), INDEX: SPEC}
        monkeypatch.setattr("rag_app.application._indexes", lambda settings: indexes)

    declared(SPEC)
    write_corpus(tmp_path / "docs", 2)
    rag("db", "upgrade")
    rag("orgs", "create", "acme")
    rag("ingest", "docs", "--index", INDEX, "--org", "acme", "--base", "docs")
    declared(FINE)
    for place in (("-i", INDEX, "-o", "acme"), ()):
        assert "lighthouse" in rag("search", "lighthouse", *place)
    assert "index another was built with other fields" in rag("ask", "x", "-i", "another", "-o", "acme", status=1)


async def test_the_first_organization_in_a_private_database_has_its_indexes(urls: DatabaseUrls) -> None:
    """As `orgs create` begins one: `doctor` has nothing to complain of afterwards."""
    async with unchecked(urls) as application:
        assert (await application.problems())[INDEX].startswith(f"index {INDEX} has not been built")
        await _prepare_new(application)
        await reread(application)
        assert set((await application.problems()).values()) == {"ok"}


async def test_a_misfit_names_the_setting_that_names_the_model(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_application(Settings(), urls):
        pass
    file = tmp_path / "models.toml"
    file.write_text(
        '[embedding]\nclass = "llama_index.core.embeddings.MockEmbedding"\nmodel = "mine"\ndimension = 8\n'
        "[embedding.arguments]\nembed_dim = 8\n",
        "utf-8",
    )
    monkeypatch.setenv("RAG_MODELS_FILE", str(file))
    async with unchecked(urls) as application:
        said = (await application.problems())[INDEX]
    assert (
        f"name mine (8): restore the earlier [embedding] of RAG_MODELS_FILE ({file}), or RAG_EMBEDDING, or run" in said
    )
