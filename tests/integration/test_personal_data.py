"""A user's data, told and erased: looked for afterwards in every table and at every point of Qdrant.

A deployment of its own, with a source in each generation there is: a retired and an active one in PostgreSQL, and a copy
in Qdrant.
"""

import asyncio
import io
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest
import typer
from msgspec.structs import replace
from qdrant_client import QdrantClient

from rag_app.application import Application
from rag_app.console import cli, users
from rag_app.database.private import PrivatePostgres
from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger
from rag_app.documents.metadata import Target, add_version
from rag_app.domain.errors import NotFound
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.domain.source import Source, Visibility, source_id
from rag_app.stores.postgres import PostgresStore
from rag_app.stores.qdrant import QdrantStore
from rag_app.surfaces.administration.indexing import Indexing
from rag_app.surfaces.administration.personal import Personal
from tests.conftest import NewPostgres
from tests.integration.lexybrain import RAG, models_file
from tests.integration.service import bearer, configured, prepare, served, without_limits
from tests.integration.test_api_end_to_end import variables
from tests.scripted_model import Reply, ScriptedModel
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(600)  # a deployment of its own, searched through many times
INDEX = "marketplace"
STEPS: dict[str, tuple[Any, str]] = {
    "marked": (SourceLedger, "mark_deleting"),
    "out of PostgreSQL": (PostgresStore, "write"),
    "out of Qdrant": (QdrantStore, "write"),
    "forgotten": (SourceLedger, "forget"),
    "disowned": (Personal, "disown"),
    "builds forgotten": (SourceLedger, "forget_builds"),
    "user": (Personal, "_erase"),
}
"""What a process dies after, in the middle of erasing somebody."""
NAMES = ["ada", "bob", "busy", "failing", "left", "asked", *(f"step{number}" for number in range(len(STEPS)))]


@dataclass(frozen=True)
class Person:
    """`word` stands in all that is theirs alone, `shared` in what others see."""

    id: UUID
    name: str
    subject: str
    word: str
    shared: str
    private: tuple[UUID, ...]
    team: tuple[UUID, ...]

    @property
    def needles(self) -> list[str]:
        return [str(self.id), self.name, self.subject, self.word, *map(str, self.private)]


@dataclass(frozen=True)
class World:
    client: httpx.Client
    model: ScriptedModel
    superuser: str
    app_url: str
    folder: Path
    org: UUID
    root: UUID
    key: str
    people: dict[str, Person]

    def say(self, who: Person, text: str, **rest: Any) -> dict[str, Any]:
        response = self.client.post(RAG, json={"message": text, **rest}, headers=bearer(who.subject))
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def found(self, needles: Sequence[str]) -> dict[str, list[str]]:
        """Rows of all tables, and points of all collections, that have one of these anywhere in them."""
        return {**asyncio.run(rows_with(self.superuser, needles)), **points_with(self.folder / "qdrant", needles)}


async def rows_with(url: str, needles: Sequence[str]) -> dict[str, list[str]]:
    """Every column of every table as text, whoever may read it; also what PostgreSQL notes down of columns' values."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
            " ORDER BY 1"
        )
        names = [row["name"] for row in tables]
        assert {"users", "rag_messages", "audit_events", "g_marketplace_1_chunks", "g_marketplace_2_chunks"} <= {*names}
        await connection.execute("VACUUM (ANALYZE)")  # as autovacuum does in a while
        found = {}
        # of what stays it may note values down, too
        for name in [*names, "(SELECT * FROM pg_statistic WHERE starelid <> 'audit_events'::regclass)"]:
            rows = await connection.fetch(
                f"SELECT each::text AS row FROM {name} each WHERE EXISTS"
                " (SELECT FROM unnest($1::text[]) needle WHERE position(lower(needle) IN lower(each::text)) > 0)",
                list(needles),
            )
            if rows:
                found[name] = sorted(row["row"] for row in rows)
        return found
    finally:
        await connection.close()


def points_with(folder: Path, needles: Sequence[str]) -> dict[str, list[str]]:
    client = QdrantClient(path=str(folder))
    try:
        found = {}
        for collection in client.get_collections().collections:
            points, after = client.scroll(collection.name, limit=10_000, with_payload=True, with_vectors=True)
            assert after is None
            texts = [f"{point.id} {json.dumps(point.payload, sort_keys=True)} {point.vector}" for point in points]
            if rows := sorted(text for text in texts if any(each.lower() in text.lower() for each in needles)):
                found[f"qdrant {collection.name}"] = rows
        return found
    finally:
        client.close()


async def person(application: Application, org: UUID, folder: Path, name: str) -> Person:
    people, mark = application.people, uuid4().hex[:10]
    user = await people.create_user(f"{name}.{mark}@people.example", plan="growth", subject=f"idp|{name}|{mark}")
    await people.add_member(await people.organization(org), user)
    word, shared = f"zq{name}{mark}", f"vy{name}{mark}"
    ids = {}
    for visibility, owner_org, text in (
        (Visibility.USER, org, f"The drawer code of {word} is 4711. Only {word} knows it."),
        (Visibility.TEAM, org, f"The {shared} shelf holds 12 boxes."),
        (Visibility.GLOBAL, PUBLIC_ORGANIZATION, f"Everybody knows that {shared} is open on Sunday."),
    ):
        marked = word if visibility is Visibility.USER else shared
        file = folder / f"{marked}-{visibility}.jsonl"
        record = {"id": f"{marked}-{visibility}", "title": f"Note of {marked}", "text": text}
        file.write_text(json.dumps(record) + "\n", "utf-8")
        ingestor = await application.ingestor(application.indexes[INDEX], Target(owner_org, None, user.id, visibility))
        assert not (await ingestor.ingest([file], base=folder)).failed
        ids[visibility] = source_id(owner_org, INDEX, str(record["id"]))
    return Person(
        user.id, user.name, f"idp|{name}|{mark}", word, shared, (ids[Visibility.USER],),
        (ids[Visibility.TEAM], ids[Visibility.GLOBAL]),
    )  # fmt: skip


@pytest.fixture(scope="module")
def world(new_database: NewPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    server: PrivatePostgres = new_database()
    folder = tmp_path_factory.mktemp("personal")
    superuser = server.superuser_url.replace("+asyncpg", "")

    async def fill(application: Application) -> tuple[UUID, UUID, str, dict[str, Person]]:
        application.indexes = {INDEX: application.indexes[INDEX]}
        await application.build_missing()
        organization = await application.people.create_organization("org", "Org")
        people = {name: await person(application, organization.id, folder, name) for name in NAMES}
        root = await application.people.create_user("root")
        await application.people.set_role(root, "admin")
        _, key = await application.keys.create(organization, "walk")
        indexing = Indexing(application)
        await indexing.rebuild(INDEX, switch=True, begin=lambda *_: lambda built: None)
        moved = await indexing.move(INDEX, "qdrant", begin=lambda *_: lambda built: None)
        assert not moved.built.failed and not moved.differing_sources
        return organization.id, root.id, key, people

    with ExitStack() as stack:
        model = stack.enter_context(ScriptedModel(Reply("The drawer code is 4711 [Source 1].")))
        environment = {
            **variables((server.owner_url, server.app_url), "postgres", folder, folder / "qdrant"),
            "RAG_MODELS_FILE": str(models_file(folder, model.url)),
            "TEST_MODEL_KEY": "sk-test",
            "RAG_LLM_BACKOFF": "0",
            "RAG_LLM_UNAVAILABLE_WAIT": "0",
        }
        patch = stack.enter_context(configured(environment))
        without_limits(patch)
        org, root, key, people = prepare(fill)
        client = stack.enter_context(served())
        yield World(client, model, superuser, server.app_url, folder, org, root, key, people)


@pytest.fixture(autouse=True)
def _as_scripted(world: World) -> None:
    world.model.script[:] = [Reply("The drawer code is 4711 [Source 1].")]
    world.model.requests.clear()


OTHERWISE = """
    INSERT INTO index_roles (org_id, user_id, index_name, role) SELECT '{org}', '{user}', '*', 'write';
    INSERT INTO page_sessions (digest, user_id, expires_at) SELECT 'digest of {word}', '{user}', now();
    INSERT INTO sign_in_codes (digest, user_id, expires_at) SELECT 'digest of a code of {word}', '{user}', now();
    INSERT INTO idempotency_keys (org_id, user_id, key, fingerprint, response)
        SELECT '{org}', '{user}', 'key {word}', '', '{{"ids": ["{word}"]}}';
    INSERT INTO originals (source_id, org_id, version, sha256, bytes, file_name)
        SELECT id, org_id, version, '{digest}', 1, '{word}.txt' FROM sources WHERE id = '{private}';
    INSERT INTO jobs (id, org_id, user_id, index_name, state, target, files, ended_at)
        SELECT '{job}', '{org}', '{user}', 'marketplace', 'done', '{{}}', 1, now();
    INSERT INTO job_files (job_id, position, org_id, name, document, content, bytes, state)
        SELECT '{job}', 0, '{org}', '{word}.txt', '{{}}', 'text of {word}', 1, 'done';
    INSERT INTO feedback_settlements (id, feedback_id, resolution, note, settled_by)
        SELECT gen_random_uuid(), id, 'noted', 'seen: {word}', '{root}' FROM rag_feedback WHERE user_id = '{user}';
"""  # what comes by other ways: uploads, the pages, an administrator


def live(world: World, who: Person) -> str:
    """Fill every table with something of theirs; their thread."""
    assert world.client.put("/api/lexybrain/consent", json={"training": True}, headers=bearer(who.subject)).is_success
    asked = world.say(who, f"What is the drawer code of {who.word}?", capability="general_chat")
    assert asked["sources"][0]["label"] == f"Note of {who.word}"
    thread: str = asked["threadId"]
    world.say(who, f"And who knows it, {who.word}?", threadId=thread)
    rated = world.client.post(
        f"/api/lexybrain/messages/{asked['messageId']}/feedback",
        json={"rating": "negative", "comment": f"{who.word} says no", "expectedSourceId": str(who.team[0])},
        headers=bearer(who.subject),
    )
    assert rated.status_code == 200, rated.text
    world.model.script[:] = [Reply(status=500)]
    assert world.say(who, f"What is the drawer code of {who.word}?", capability="general_chat")["flags"][
        "fallbackToGeneric"
    ]
    world.model.script[:] = [Reply("The drawer code is 4711 [Source 1].")]
    read = world.client.get(f"/api/lexybrain/threads/{thread}", headers=bearer(world.root))
    assert read.status_code == 200, "and an administrator has seen it"
    ids = {"org": world.org, "user": who.id, "root": world.root, "private": who.private[0], "job": uuid4()}
    digest = sha256(who.word.encode()).hexdigest()
    original = world.folder / "originals" / str(world.org) / digest[:2] / digest
    original.parent.mkdir(parents=True, exist_ok=True)
    original.write_text(who.word, "utf-8")
    for statement in OTHERWISE.format(**ids, word=who.word, digest=digest).split(";\n")[:-1]:
        asyncio.run(fetch(world, statement))
    wait_for(lambda: len(world.found([who.word]).get("lexybrain_requests", ())) == 2)
    return thread


def everywhere(found: dict[str, list[str]]) -> set[str]:
    """Tables and collections; samples of columns aside, which ANALYZE does not replace where a table has become empty."""
    return {re.sub(r"^(g_marketplace_[0-9]+)_.*", r"\1", name) for name in found if "pg_statistic" not in name}


def fingerprint(found: dict[str, list[str]]) -> str:
    """Of rows and points; which values PostgreSQL notes down depends on what else there is."""
    told = {name: rows for name, rows in found.items() if "pg_statistic" not in name}
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def test_nothing_of_an_erased_user_is_left_but_what_the_documentation_says(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    ada, bob = world.people["ada"], world.people["bob"]
    thread, his = live(world, ada), live(world, bob)
    counted = "INSERT INTO rate_windows (key, times, let_in) VALUES ($1, '{0}', true)"  # nobody is, in this database
    for who in (ada, bob):
        asyncio.run(fetch(world, counted, f"lexybrain:{who.id}"))
    before = world.found(ada.needles)
    assert everywhere(before) >= {
        "users", "memberships", "rag_threads", "rag_messages", "rag_feedback", "judgments", "lexybrain_requests",
        "lexybrain_responses", "usage_counters", "ai_usage_events", "ai_failures", "rate_windows", "sources",
        "source_builds", "audit_events", "g_marketplace_1", "g_marketplace_2", "qdrant g_marketplace_1", "index_roles",
        "page_sessions", "sign_in_codes", "idempotency_keys", "originals", "jobs", "job_files", "feedback_settlements",
    }, "or nothing would be shown by finding nothing"  # fmt: skip
    others = world.found(bob.needles)
    events = asyncio.run(fetch(world, "SELECT count(*), sum(tokens_out) FROM ai_usage_events"))
    ids = [str(row["id"]) for row in asyncio.run(fetch(
        world, "SELECT m.id FROM rag_messages m JOIN rag_threads t ON t.id = m.thread_id WHERE t.user_id = $1"
        " UNION SELECT id FROM rag_threads WHERE user_id = $1 UNION SELECT id FROM rag_feedback WHERE user_id = $1"
        " UNION SELECT id FROM lexybrain_requests WHERE user_id = $1", ada.id,
    ))]  # fmt: skip
    assert thread in ids and len(ids) > 8

    assert erase_user(ada.name)
    told = capsys.readouterr().out
    assert told == (
        f"{ada.name} ({ada.id}) is erased, with 1 private sources\n2 shared sources stay and have no owner now\n"
    )
    assert not [
        each for each in (world.folder / "originals").rglob("*") if each.is_file() and each.read_text() == ada.word
    ]
    left = world.found([*ada.needles, *ids])
    assert everywhere(left) == {"audit_events"}, left
    assert all(str(ada.id) in row for row in left["audit_events"]), (
        "the bare id, of what was done by them and about them"
    )
    assert world.found([ada.name, ada.subject, ada.word, *map(str, ada.private)]) == {}
    assert sum("threads.read" in row for row in left["audit_events"]) == 1

    shared = world.found([ada.shared])
    assert {"sources", "g_marketplace_1_qdrant_chunks"} <= shared.keys() and "g_marketplace_2_chunks" in shared
    assert len(shared["sources"]) == 2, "what others see is there for them"
    assert asyncio.run(fetch(world, "SELECT count(*), sum(tokens_out) FROM ai_usage_events")) == events
    assert fingerprint(world.found(bob.needles)) == fingerprint(others), "and of nobody else anything has changed"
    assert world.client.get(f"/api/lexybrain/threads/{his}", headers=bearer(bob.subject)).status_code == 200
    with pytest.raises(NotFound):
        erase_user(ada.name)
    looked = world.say(bob, f"How many boxes are on the {ada.shared} shelf?", capability="general_chat")
    assert f"Note of {ada.shared}" in {each["label"] for each in looked["sources"]}, "shared sources are still found"


def erase_user(name: str) -> bool:
    """Whether the command left nothing to be done elsewhere."""
    try:
        users.erase(name, yes=True)
    except typer.Exit:
        return False
    return True


async def fetch(world: World, statement: str, *values: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(world.superuser)
    try:
        rows: list[asyncpg.Record] = await connection.fetch(statement, *values)
        return rows
    finally:
        await connection.close()


@pytest.mark.parametrize("number", range(len(STEPS)), ids=list(STEPS))
def test_killed_in_the_middle_it_is_done_by_the_same_command_again(
    world: World, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = world.people[f"step{number}"]
    world.say(who, f"What is the drawer code of {who.word}?", capability="general_chat")
    holder, name = [*STEPS.values()][number]
    done: Callable[..., Any] = getattr(holder, name)

    class PowerCut(BaseException):
        pass

    async def then_die(*arguments: Any, **options: Any) -> Any:
        await done(*arguments, **options)
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(holder, name, then_die)
        with pytest.raises(PowerCut):
            erase_user(who.name)
    if name != "_erase":
        assert everywhere(world.found(who.needles)) >= {"users", "rag_messages"}, "the user goes last"
        assert erase_user(who.name)
    left = world.found(who.needles)
    assert everywhere(left) <= {"audit_events"}, left
    shared = world.found([who.shared])
    assert len(shared["sources"]) == 2 and len(shared["g_marketplace_1_qdrant_chunks"]) == 2
    assert len(shared["g_marketplace_2_chunks"]) == 2
    fitting = asyncio.run(fetch(
        world, "SELECT b.version = s.version AND b.state = 'ready' AND b.chunks = 1 AS fits FROM sources s"
        " JOIN source_builds b ON b.source_id = s.id WHERE s.id = ANY($1)", list(who.team),
    ))  # fmt: skip
    assert [row["fits"] for row in fitting] == [True] * 4, "both stores have both, as they are now"


def test_what_is_nobodys_any_more_is_what_an_ingest_without_an_owner_makes(world: World) -> None:
    """The same files again cost nothing: the version is the one that they have."""
    who = world.people["asked"]
    assert erase_user(who.name)

    async def look(database: Database) -> list[tuple[Source, Source]]:
        ledger, found = SourceLedger(database), []
        for each, org in zip(who.team, (world.org, PUBLIC_ORGANIZATION), strict=True):
            scope = Scope(frozenset({org}))
            source = await ledger.get(scope, each)
            found.append((source, add_version(replace(source, owner_id=None), await ledger.content(scope, each))))
        return found

    async def opened() -> list[tuple[Source, Source]]:
        database = Database(world.app_url, pool_size=1)
        try:
            return await look(database)
        finally:
            await database.close()

    for kept, made in asyncio.run(opened()):
        assert kept.owner_id is None and kept == made


def test_a_turn_under_way_leaves_nothing_behind(world: World, caplog: pytest.LogCaptureFixture) -> None:
    who = world.people["busy"]
    answers = threading.Event()
    world.model.script[:] = [Reply("The drawer code is 4711 [Source 1].", go_on=answers)]
    told: list[dict[str, Any]] = []
    asking = threading.Thread(
        target=lambda: told.append(world.say(who, f"What is the drawer code of {who.word}?", capability="general_chat"))
    )
    asking.start()
    wait_for(lambda: world.model.requests)
    assert erase_user(who.name)
    answers.set()
    asking.join()
    assert told[0]["answer"] == "The drawer code is 4711 [Source 1].", "who waits for it gets it"
    assert everywhere(world.found(who.needles)) <= {"audit_events"}
    assert world.found([told[0]["threadId"], told[0]["messageId"]]) == {}
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_turn_that_fails_under_way_leaves_nothing_behind(world: World, caplog: pytest.LogCaptureFixture) -> None:
    who = world.people["failing"]
    answers = threading.Event()
    world.model.script[:] = [Reply(status=500, go_on=answers)]
    asking = threading.Thread(
        target=lambda: world.client.post(
            RAG, json={"message": "What is the market like?", "capability": "general_chat"}, headers=bearer(who.subject)
        )
    )
    asking.start()
    wait_for(lambda: world.model.requests)
    assert erase_user(who.name)
    answers.set()
    asking.join()
    assert everywhere(world.found(who.needles)) <= {"audit_events"}
    assert not [record for record in caplog.records if "could not be given back" in record.getMessage()]


def test_a_store_that_is_not_configured_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    who = world.people["left"]
    with monkeypatch.context() as patch:
        patch.delenv("QDRANT_PATH")
        patch.setenv("RAG_HOME", str(tmp_path))
        assert not erase_user(who.name)
    told = capsys.readouterr().err
    assert "qdrant is not configured here" in told and "g_marketplace_1" in told
    assert all(str(each) in told for each in (*who.private, *who.team))
    assert everywhere(world.found(who.needles)) <= {"audit_events", "qdrant g_marketplace_1"}


def test_an_export_has_it_all_and_nothing_of_others(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bob = world.people["bob"]
    if not asyncio.run(fetch(world, "SELECT 1 FROM rag_threads WHERE user_id = $1", bob.id)):
        live(world, bob)
    file = tmp_path / "bob.json"
    users.export(bob.name, file)
    told = json.loads(file.read_text("utf-8"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert told["account"]["id"] == str(bob.id) and told["account"]["subject"] == bob.subject
    assert told["account"]["training_consent_since"]
    assert [each["organization"] for each in told["memberships"]] == ["org"]
    said = [message for thread in told["threads"] for message in thread["messages"]]
    assert {"user", "assistant"} == {message["role"] for message in said}
    assert any(bob.word in message["content"] for message in said)
    assert told["feedback"][0]["comment"] == f"{bob.word} says no" and told["judgments"][0]["feedback_id"]
    (kept,) = asyncio.run(fetch(world, "SELECT count(*) FROM lexybrain_requests WHERE user_id = $1", bob.id))
    assert len(told["training"]) == kept["count"] >= 2 and told["training"][0]["prompt"][0]["role"] == "system"
    assert told["usage"][0]["used"] >= 2 and len(told["usage_events"]) >= 2 and told["failures"]
    private = {each["visibility"]: each["passages"] for each in told["sources"]}
    assert bob.word in json.dumps(private["user"]) and private["team"] is None and private["global"] is None
    assert [(each["index"], each["role"]) for each in told["roles"]] == [("*", "write")]
    assert len(told["sessions"]) == 1 and told["sessions"][0].keys() == {
        "created_at", "seen_at", "expires_at", "groups", "by_provider"
    }  # fmt: skip
    assert [each["original"] for each in told["sources"] if each["visibility"] == "user"] == [f"{bob.word}.txt"]
    assert told["jobs"][0]["files"][0]["name"] == f"{bob.word}.txt" and told["idempotency_keys"][0]["response"]
    assert told["settlements"] == []
    actions = [each["action"] for each in told["audit"]]
    assert actions.count("training.consent") == 1 and "threads.read" in actions
    whole = file.read_text("utf-8")
    assert not [other.word for name, other in world.people.items() if name != "bob" and other.word in whole]
    assert "messages" not in told and "digest" not in whole and "text of" not in whole
    assert bob.name in capsys.readouterr().err
    users.export("root", file)
    settled = json.loads(file.read_text("utf-8"))["settlements"]
    assert {each["resolution"] for each in settled} == {"noted"} and f"seen: {bob.word}" in str(settled)
    with pytest.raises(NotFound):
        users.export("nobody", None)


def test_the_service_user_of_a_key_goes_with_its_key(world: World, tmp_path: Path) -> None:
    (row,) = asyncio.run(fetch(world, "SELECT u.name, u.id FROM users u JOIN api_keys k ON k.user_id = u.id"))
    headers = {"x-api-key": world.key}
    assert world.client.post(RAG, json={"message": "What is open on Sunday?"}, headers=headers).status_code == 200
    file = tmp_path / "key.json"
    users.export(row["name"], file)
    (key,) = json.loads(file.read_text("utf-8"))["keys"]
    assert key.keys() == {
        "id", "name", "beginning", "organization", "indexes", "created_at", "last_used_at", "revoked_at"
    }  # fmt: skip
    assert world.key not in file.read_text("utf-8") and sha256(world.key.encode()).hexdigest() not in file.read_text()
    assert erase_user(row["name"])
    assert world.client.post(RAG, json={"message": "Hello?"}, headers=headers).status_code == 401
    assert everywhere(world.found([str(row["id"]), key["id"]])) <= {"audit_events"}


def test_it_asks_first(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["rag-app", "users", "erase", world.people["bob"].name])
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1 and "nothing is erased" in capsys.readouterr().err
    assert asyncio.run(fetch(world, "SELECT 1 FROM users WHERE id = $1", world.people["bob"].id))


@pytest.fixture(scope="module", autouse=True)
def _tidied(world: World) -> Iterator[None]:
    yield
    shutil.rmtree(world.folder / "qdrant", ignore_errors=True)
