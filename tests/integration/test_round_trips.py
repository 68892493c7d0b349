"""How often one request asks PostgreSQL and waits: counted on the wire, since a time says nothing on another machine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import make_url

from rag_app.access.limits import Leases, RateLimiter
from rag_app.access.people import Keys, People
from rag_app.application import open_application
from rag_app.database.session import Database
from rag_app.database.urls import DatabaseUrls
from rag_app.domain.answer import Mode, Question
from rag_app.domain.errors import StoreFailed
from rag_app.settings import Settings
from rag_app.surfaces.lexybrain import threads
from tests.conftest import NewOrganization
from tests.integration.lexybrain import BOX, KEYWORD, chatting, citing


class Wire:
    """Between a client and PostgreSQL: counts the messages after which the client waits (Sync, and simple queries), and
    keeps the statements that are executed, BEGIN and COMMIT among them."""

    def __init__(self, host: str, port: int) -> None:
        self.waits = 0
        self.statements: list[str] = []
        self._there = host, port
        self._open: set[asyncio.StreamWriter] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(*self._there)
        self._open |= {writer, to_server}
        back = asyncio.create_task(self._pass_on(from_server, writer))
        prepared: dict[bytes, str] = {}
        try:
            length = await reader.readexactly(4)  # the first message has no type
            to_server.write(length + await reader.readexactly(int.from_bytes(length) - 4))
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
                self.waits += head[:1] in (b"S", b"Q")
                self._note(head[:1], body.split(b"\0"), prepared)
                to_server.write(head + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            to_server.close()
            await back

    def _note(self, kind: bytes, parts: list[bytes], prepared: dict[bytes, str]) -> None:
        match kind:
            case b"P":  # Parse: a name, and its statement
                prepared[parts[0]] = " ".join(parts[1].decode().split())
            case b"B":  # Bind: a portal, and the name of a statement, which is then executed
                self.statements.append(prepared[parts[1]])
            case b"Q":
                self.statements.append(parts[0].decode())

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()


@pytest.fixture
async def wired(database_urls: tuple[str, str]) -> AsyncIterator[tuple[Wire, str]]:
    """A wire, and the application's URL by way of it."""
    url = make_url(database_urls[1])
    wire = Wire(url.host or "", url.port or 5432)
    server = await asyncio.start_server(wire.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    through = url.set(host="127.0.0.1", port=port, query={**url.query, "ssl": "disable"})
    yield wire, through.render_as_string(hide_password=False)
    server.close()


@pytest.fixture
async def database(wired: tuple[Wire, str]) -> AsyncIterator[Database]:
    database = Database(wired[1])
    yield database
    await database.close()


@asynccontextmanager
async def counting(wire: Wire) -> AsyncIterator[Callable[[], int]]:
    before = wire.waits
    yield lambda: wire.waits - before


async def test_whoever_asks_is_known_and_counted_in_one_round_trip_each(
    wired: tuple[Wire, str], database: Database, organization: NewOrganization
) -> None:
    people, limiter, leases, keys = People(database), RateLimiter(database), Leases(database), Keys(database)
    user, theirs = await people.create_user(f"user {uuid4().hex}"), await organization()
    await people.add_member(theirs, user)
    _, key = await keys.create(theirs, "a key")
    for _ in range(2):  # the first time statements are prepared, in as many round trips more
        lease = await leases.take("somebody", 10**6)
        assert lease is not None
        for ask in (
            lambda: people.principal(str(user.id)), lambda: people.principal("nobody we know"),
            lambda: keys.principal(key), lambda: limiter.hit("somebody", 10),
            lambda lease=lease: leases.extend(lease, "somebody", 10**6), lambda lease=lease: leases.give_back(lease),
        ):  # fmt: skip
            async with counting(wired[0]) as waits:
                await ask()
            first = waits()
            async with counting(wired[0]) as waits:
                await ask()
            assert waits() == 1 <= first


async def test_a_search_takes_few_round_trips(
    wired: tuple[Wire, str], database_urls: tuple[str, str], organization: NewOrganization,
    monkeypatch: pytest.MonkeyPatch, tmp_path: object,
) -> None:  # fmt: skip
    for name, value in {
        "RAG_DATABASE_URL": wired[1], "RAG_DATABASE_OWNER_URL": database_urls[0], "RAG_VECTOR_STORE": "postgres",
        "RAG_HOME": str(tmp_path), "RAG_JWT_SECRET": "a secret of the tests, long enough for HS256",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    async with open_application(Settings(), DatabaseUrls(wired[1], database_urls[0], private=True)) as application:
        user = await application.people.create_user(f"user {uuid4().hex}")
        await application.people.add_member(await organization(), user)
        scope = (await application.people.principal(str(user.id))).scope()
        for mode in Mode:
            question = Question("What is it about?", mode=mode)
            for _ in range(3):
                await application.pipeline.search("org_knowledge", question, scope)
            async with counting(wired[0]) as waits:
                await application.pipeline.search("org_knowledge", question, scope)
            assert waits() == 1, mode


async def test_a_message_of_a_conversation_takes_few_statements(
    wired: tuple[Wire, str], database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """BEGIN, COMMIT and who asks are counted, too, and two that look for other spellings of what was found without
    certainty."""
    wire, through = wired
    monkeypatch.setattr(threads, "_KEEP_S", 600.0)  # one more statement each second that an answer takes

    def converse() -> Mapping[str, list[str]]:
        asked = dict[str, list[str]]()
        with chatting((database_urls[0], through), default_store, qdrant_folder, tmp_path) as chat:
            chat.model.script[:] = [citing(KEYWORD, "The demand index is 58 {}.")]
            thread = chat.post(BOX)["threadId"]
            for name, said in {"new": {}, "known": {"threadId": thread}, "again": {"threadId": thread}}.items():
                wire.statements.clear()
                assert chat.post(BOX, **said)["sources"]
                asked[name] = list(wire.statements)
        return asked

    most = (
        25 if default_store == "postgres" else 30
    )  # beside other stores, each of a model's three searches asks for words, texts and versions one after the other
    for name, statements in (await asyncio.to_thread(converse)).items():
        assert len(statements) <= most, f"{name}: {len(statements)}\n" + "\n".join(statements)


async def test_a_connection_that_breaks_off_is_a_store_that_failed_and_is_not_used_again(
    wired: tuple[Wire, str], database: Database, database_urls: tuple[str, str]
) -> None:
    beside = Database(database_urls[1], pool_size=1)
    sleeps = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(20)%' AND pid <> pg_backend_pid() AND wait_event = 'PgSleep'"
    for _ in range(3):
        assert await database.fetch("SELECT $1::int AS one", 1) == [(1,)]
        asking = asyncio.create_task(database.fetch("SELECT pg_sleep(20)"))
        while await beside.fetch(sleeps) == [(0,)]:
            await asyncio.sleep(0.01)
        wired[0].cut()
        with pytest.raises(StoreFailed):
            await asking
    await beside.close()


async def test_what_is_cancelled_leaves_no_connection_behind_that_answers_late(database: Database) -> None:
    for number in range(12):  # more than the pool holds
        asking = asyncio.create_task(database.fetch("SELECT pg_sleep(20), $1::int", number))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await database.fetch("SELECT $1::int AS number", number) == [(number,)]
