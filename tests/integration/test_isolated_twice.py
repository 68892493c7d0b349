"""Two lines keep what is not the asker's: the filter in every statement, and PostgreSQL's row-level security.

Each is taken away here, really, and the other has to hold: the filter is cut out of the SQL on its way to the server,
row-level security is switched off by the tables' owner. Therefore a database of its own. tests/integration/
test_isolation.py asks over HTTP and with Qdrant.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, ClassVar
from uuid import UUID, uuid4

import asyncpg
import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from sqlalchemy import text

from rag_app.access.people import People
from rag_app.database import session as session_module
from rag_app.database.session import Database
from rag_app.documents import ledger as sources
from rag_app.documents.generations import GenerationRegistry
from rag_app.documents.ledger import SourceLedger
from rag_app.domain.answer import Mode
from rag_app.domain.errors import StoreFailed
from rag_app.domain.scope import Scope
from rag_app.domain.source import Source, Visibility
from rag_app.retrieval.store import Search
from rag_app.stores import postgres, postgres_tables
from rag_app.stores.postgres import PostgresBackend
from tests.conftest import NewPostgres
from tests.stores.conftest import DIMENSION, SPEC, chunk, vector

MODES = [VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.HYBRID]
SETTINGS = ("rag.organizations", "rag.user", "rag.operator", "rag.administrator")
WITHOUT_SECURITY = {
    "api_keys", "audience_groups", "audiences", "group_members", "groups", "memberships", "page_sessions",
    "sign_in_codes", "sites",
}  # fmt: skip
"""They say who belongs where: read before it is known for whom, and by exact key."""


@pytest.fixture(scope="module")
def urls(new_database: NewPostgres) -> tuple[str, str]:
    """Of the owner and of the application's role."""
    server = new_database()
    return server.owner_url, server.app_url


class Watched(asyncpg.Connection):  # type: ignore[misc]
    """A connection that can be told to leave the filter on organization and reader out of what it sends."""

    unfiltered: ClassVar[bool] = False
    made: ClassVar[list["Watched"]] = []
    read: ClassVar[list[str]] = []
    """Statements on tables of a generation, as they were to be sent."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.made.append(self)

    def _sent(self, query: str) -> str:
        if re.search(r"\b(?:FROM|JOIN|USING|UPDATE) g_\w+", query):
            self.read.append(query)
        return _without_filter(query) if self.unfiltered else query

    async def fetch(self, query: str, *args: Any, **kwargs: Any) -> Any:
        return await super().fetch(self._sent(query), *args, **kwargs)

    async def fetchrow(self, query: str, *args: Any, **kwargs: Any) -> Any:
        return await super().fetchrow(self._sent(query), *args, **kwargs)

    async def fetchval(self, query: str, *args: Any, **kwargs: Any) -> Any:
        return await super().fetchval(self._sent(query), *args, **kwargs)

    async def execute(self, query: str, *args: Any, **kwargs: Any) -> Any:
        return await super().execute(self._sent(query), *args, **kwargs)

    async def prepare(self, query: str, **kwargs: Any) -> Any:
        return await super().prepare(self._sent(query), **kwargs)


_FILTER = re.compile(
    r"(?P<column>(?:\w+\.)?(?:org_id|private_to)) = (?:ANY ?\(\(?\$\d+(?:::uuid\[\])?\)?\)|\$\d+(?:::uuid)?)"
)


def _without_filter(query: str) -> str:
    """With conditions on organization and reader that are true of every row; their parameters stay.

    >>> _without_filter("WHERE v.org_id = ANY($1::uuid[]) AND no = $2")
    'WHERE (v.org_id IS NULL OR v.org_id IS NOT NULL OR v.org_id = ANY($1::uuid[])) AND no = $2'
    """
    return _FILTER.sub(
        lambda found: f"({found['column']} IS NULL OR {found['column']} IS NOT NULL OR {found[0]})", query
    )


class World:
    """Two organizations that hold the same, one chunk of it private; an intruder is a member of the first."""

    def __init__(self, backend: PostgresBackend, database: Database, owner_url: str) -> None:
        self.backend, self.database, self.owner_url = backend, database, owner_url
        self.ledger, self.prefix = SourceLedger(database), f"g_{SPEC.name}_{uuid4().hex[:12]}"
        self.chunks: dict[str, tuple[str, UUID]] = {}

    async def fill(self, organizations: int) -> None:
        people = People(self.database)
        self.somebody = (await people.create_user(f"u-{uuid4().hex}")).id
        self.generation = (
            await GenerationRegistry(self.database).create(f"i{uuid4().hex[:20]}", "postgres", "m", DIMENSION, {})
        ).id
        await self.backend.create(self.owner_url, SPEC, self.prefix, DIMENSION)
        self.orgs = [(await people.create_organization(f"o-{uuid4().hex}", "O")).id for _ in range(organizations)]
        for number, org in enumerate(self.orgs):
            for name, owner in ((f"team {number}", None), (f"private {number}", self.somebody)):
                visibility = Visibility.USER if owner else Visibility.TEAM
                source = Source(org, "things", name, name, "doc", "1", owner_id=owner, visibility=visibility)
                await self.ledger.begin([(source, [])], self.generation)
                await self.ledger.finish([(source, 1)], self.generation)
                private: dict[str, Any] = {"private_to": str(owner), "owner_id": str(owner)} if owner else {}
                node = chunk(org, name, vector(0.5), source=source.id, title="door code", **private)
                self.chunks[name] = node.node_id, source.id
                await self.store(org).async_add([node])

    def store(self, org: UUID, user: UUID | None = None) -> Any:
        return self.backend.scoped(SPEC, self.prefix, Scope(frozenset({org}), user))

    async def security(self, state: str) -> None:
        """Switch row-level security on or off, for the tables' owner, too, on all that this world reads."""
        connection = await asyncpg.connect(self.owner_url.replace("+asyncpg", ""))
        try:
            on, force = ("ENABLE", "FORCE") if state == "on" else ("DISABLE", "NO FORCE")
            for table in ["sources", "source_builds", *await self.tables(connection)]:
                await connection.execute(f"ALTER TABLE {table} {on} ROW LEVEL SECURITY, {force} ROW LEVEL SECURITY")
        finally:
            await connection.close()

    async def tables(self, connection: asyncpg.Connection) -> list[str]:
        """Those of the generation that say whose a row is."""
        rows = await connection.fetch(
            "SELECT DISTINCT table_name FROM information_schema.columns"
            " WHERE column_name = 'org_id' AND starts_with(table_name, $1) ORDER BY 1", f"{self.prefix}_",
        )  # fmt: skip
        assert len(rows) >= 3
        return [row["table_name"] for row in rows]

    async def seen(self, org: UUID, user: UUID) -> dict[str, set[str]]:
        """Everything that can be read, by a member of one organization who asks for everything."""
        store, scope = self.store(org, user), Scope(frozenset({org}), user)
        ids, sources_ = zip(*self.chunks.values(), strict=True)
        names = {source: name for name, (_, source) in self.chunks.items()}
        found: dict[str, set[str]] = {}
        for mode in MODES:
            query = VectorStoreQuery(vector(0.5), similarity_top_k=100, query_str="door code", mode=mode)
            found[mode.value] = {node.get_content() for node in (await store.aquery(query)).nodes}
        found["by id"] = {node.get_content() for node in await store.aget_nodes(list(ids))}
        found["ledger"] = {names[each] for each in await self.ledger.visible(scope, self.generation, list(sources_))}
        assert await store.count() == len(found["by id"])
        for node in await store.export(list(sources_)):  # the operator's: private chunks are among them
            found.setdefault("export", set()).add(node.get_content())
        found["sources"] = {names[each] for each in await store.sources()}
        return found


@pytest.fixture
async def world(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Over three connections each; with the lines of defence as they should be."""
    for name, value in {"unfiltered": False, "made": [], "read": []}.items():
        monkeypatch.setattr(Watched, name, value)
    database, connect = Database(urls[1], pool_size=3), session_module._connect

    def watched(dialect: Any, record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        return connect(dialect, record, arguments, {**options, "connection_class": Watched})

    with monkeypatch.context() as patch:
        patch.setattr(session_module, "_connect", watched)
        backend = PostgresBackend(database)
    built = World(backend, database, urls[0])
    yield built
    await built.security("on")
    await backend.close()
    await database.close()


@pytest.mark.parametrize("without", ["nothing", "filter", "security", "both"])
async def test_each_line_holds_alone_and_without_both_everything_is_open(
    world: World, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.fill(2)
    if without in ("security", "both"):
        await world.security("off")
    if without in ("filter", "both"):
        monkeypatch.setattr(Watched, "unfiltered", True)
        monkeypatch.setattr(sources, "visibility_conditions", lambda scope, operator=False: [])
    Watched.read.clear()
    seen = await world.seen(world.orgs[0], uuid4())
    for query in Watched.read:
        assert _FILTER.search(query), f"no filter that this test knows in: {query}"
    mine, operators = {"team 0"}, {"team 0", "private 0"}
    everything = {"team 0", "private 0", "team 1", "private 1"}
    for way, names in seen.items():
        expected = operators if way in ("export", "sources") else mine
        assert names == (everything if without == "both" else expected), way


@pytest.mark.parametrize("without", ["nothing", "filter", "security"])
async def test_each_line_alone_keeps_what_is_not_ones_own_from_being_replaced(
    world: World, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.fill(2)
    if without == "security":
        await world.security("off")
    monkeypatch.setattr(Watched, "unfiltered", without == "filter")
    mine, theirs = world.chunks["team 0"], world.chunks["team 1"]
    node = chunk(world.orgs[0], "new", vector(0.5), source=mine[1], position=1)
    await world.store(world.orgs[0]).write([node], replacing=[mine[1], theirs[1]])
    await world.store(world.orgs[0]).adelete(str(theirs[1]))
    assert {each.get_content() for each in await world.store(world.orgs[1]).export([theirs[1]])} == {"team 1"}
    assert {each.get_content() for each in await world.store(world.orgs[0]).export([mine[1]])} == {"new"}


async def test_without_a_tenant_nothing_is_there(
    world: World, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the application and for the tables' owner; and every table that says whose its rows are is such a one."""
    for module in (postgres, postgres_tables):
        monkeypatch.setattr(module, "GRAPHED", 0)  # the graph is one of the tables
    await world.fill(1)
    for url in urls:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            held = [
                row["table_name"]
                for row in await connection.fetch(
                    "SELECT relname AS table_name FROM pg_class WHERE relkind IN ('r', 'p') AND relrowsecurity"
                    " AND relforcerowsecurity AND relnamespace = 'public'::regnamespace"
                )
            ]
            owned = await connection.fetch(
                "SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public'"
                " AND column_name IN ('org_id', 'user_id', 'owner_id', 'private_to', 'actor_id')"
            )
            assert {row["table_name"] for row in owned} - set(held) == WITHOUT_SECURITY
            filled = {"sources", "source_builds", *await world.tables(connection)}
            assert filled <= set(held)
            for table in held:
                assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0, table
            async with connection.transaction():
                await connection.execute("SELECT set_config('rag.organizations', $1, true)", f"{{{world.orgs[0]}}}")
                for table in filled:
                    assert await connection.fetchval(f"SELECT count(*) FROM {table}") > 0, table
        finally:
            await connection.close()


async def test_no_connection_carries_a_tenant_over(world: World, urls: tuple[str, str]) -> None:
    """A thousand requests of twenty tenants at once, among them some that fail, are called off or lose their server."""
    await world.fill(20)
    chance, answered, ended = random.Random(11), 0, 0
    everything = [each for each, _ in world.chunks.values()], [each for _, each in world.chunks.values()]

    async def ask(number: int, kind: str) -> set[str]:
        org = world.orgs[number]
        user = chance.choice([None, world.somebody, uuid4()])
        store, scope = world.store(org, user), Scope(frozenset({org}), user)
        expected = {f"team {number}"} | ({f"private {number}"} if user == world.somebody else set())
        if kind == "ledger":
            visible = await world.ledger.visible(scope, world.generation, everything[1])
            found = {name for name, (_, source) in world.chunks.items() if source in visible}
        elif kind == "by id":
            found = {node.get_content() for node in await store.aget_nodes(everything[0])}
        elif kind == "operator":  # who may see what is private, in a transaction of its own
            expected, found = {f"team {number}", f"private {number}"}, set()
            found.update(node.get_content() for node in await store.export(everything[1]))
        elif kind == "failing":  # inside of the transaction, after the tenant was told
            with pytest.raises(StoreFailed):
                await store.candidates(Search([1.0], "door", (), Mode.DENSE, 5))
            return set()
        else:
            query = VectorStoreQuery(
                vector(0.5), similarity_top_k=100, query_str="door code", mode=VectorStoreQueryMode(kind)
            )
            found = {node.get_content() for node in (await store.aquery(query)).nodes}
        assert found == expected, (kind, number, user)
        return found

    async def request(number: int) -> None:
        nonlocal answered, ended
        kind = chance.choice([*(mode.value for mode in MODES), "by id", "ledger", "operator", "failing"])
        patience = chance.choice([None, None, None, chance.uniform(0, 0.05)])
        try:
            async with asyncio.timeout(patience):
                await ask(number, kind)
            answered += 1
        except (TimeoutError, StoreFailed):
            ended += 1

    async def saboteur() -> None:
        connection = await asyncpg.connect(urls[1].replace("+asyncpg", ""))
        for over in range(40, 1000, 40):
            while answered + ended < over:
                await asyncio.sleep(0.001)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE usename = current_user AND datname = current_database() AND pid <> pg_backend_pid()"
                " ORDER BY random() LIMIT 1"
            )
        await connection.close()

    sabotage = asyncio.create_task(saboteur())
    numbers = [number for number in range(20) for _ in range(50)]
    chance.shuffle(numbers)
    await asyncio.gather(*(request(number) for number in numbers))
    await sabotage
    assert answered + ended == 1000 and answered > 500 and ended > 50, (answered, ended)

    alive = [connection for connection in Watched.made if not connection.is_closed()]
    assert alive
    for connection in alive:
        assert not connection.is_in_transaction()
        for setting in SETTINGS:
            assert await connection.fetchval("SELECT current_setting($1, true)", setting) in (None, ""), setting
        for table in await world.tables(connection):
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0
    async with AsyncExitStack() as stack:
        for _ in range(3):
            session = await stack.enter_async_context(world.database.session())
            for setting in SETTINGS:
                assert await session.scalar(text("SELECT current_setting(:name, true)"), {"name": setting}) in (
                    None,
                    "",
                )
            assert await session.scalar(text("SELECT count(*) FROM sources")) == 0
