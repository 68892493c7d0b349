"""What is PostgreSQL's alone: connections that keep nothing, plans that are kept, the two ways to the nearest."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from secrets import token_hex
from uuid import UUID, uuid4

import asyncpg
import numpy as np
import pytest
from llama_index.core.schema import TextNode

from rag_app.database.migrate import upgrade
from rag_app.database.session import Database
from rag_app.domain.answer import Mode
from rag_app.domain.errors import StoreFailed
from rag_app.domain.scope import Scope
from rag_app.retrieval.filters import condition
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.store import ScopedStore, Search
from rag_app.stores import postgres, postgres_tables, signs
from rag_app.stores.postgres import PostgresBackend
from rag_app.stores.postgres_tables import Method, Query
from rag_app.stores.signs import SignMemory, Signs
from tests.conftest import MIGRATIONS, NewPostgres
from tests.migrating import downgrade
from tests.stores.conftest import SPEC, chunk

WIDE = 384
SETTINGS = "current_setting('rag.organizations', true), current_setting('rag.user', true), current_setting('rag.operator', true)"


def graph_from(monkeypatch: pytest.MonkeyPatch, chunks: int) -> None:
    """Organizations with more chunks are in the graph."""
    for module in (postgres, postgres_tables):
        monkeypatch.setattr(module, "GRAPHED", chunks)


def random_chunks(org: UUID, count: int, *, dimension: int = WIDE, topic: float = 0.0) -> list[TextNode]:
    """Unit vectors; with a `topic` all of them lean to the same side. Every tenth is by Ann."""
    vectors = np.random.default_rng(3).normal(size=(count, dimension)) / dimension**0.5
    vectors += topic * np.eye(dimension)[0] + topic * np.full(dimension, dimension**-0.5)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [
        chunk(org, f"chunk {n}", vector.tolist(), author="Bob" if n % 10 else "Ann", position=n)
        for n, vector in enumerate(vectors)
    ]


class Opened:
    """One connection, so that everything that is left on it is found by the next."""

    def __init__(self, backend: PostgresBackend, generation: str) -> None:
        self.backend, self.generation = backend, generation

    def of(self, scope: Scope) -> ScopedStore:
        return self.backend.scoped(SPEC, self.generation, scope)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("method", Method)
def test_a_statement_that_is_kept_is_the_one_that_would_be_written(mode: Mode, method: Method) -> None:
    """With the values of each search, whatever was asked before it."""
    table = f"g_things_{uuid4().hex[:12]}"
    for number, filters in ((3, ()), (4, ()), (5, (condition("author", "==", "Ann"),)), (6, ())):
        scope = Scope(frozenset({uuid4()}), user=uuid4())
        asked = Search([float(number)] * WIDE, f"text {number}", filters, mode, number, 1000 * number)
        kept, written = (Query(SPEC, scope, table, f"{table}_vectors", ["en", f"x{number}"]) for _ in range(2))
        statements = kept.best(asked, method), written._write_best(asked, method)
        assert (statements[0], kept.values) == (statements[1], written.values)


@pytest.fixture
async def opened(database_urls: tuple[str, str]) -> AsyncIterator[Opened]:
    backend, generation = PostgresBackend(Database(database_urls[1], pool_size=1)), f"g_things_{uuid4().hex[:12]}"
    await backend.create(database_urls[0], SPEC, generation, WIDE)
    yield Opened(backend, generation)
    await backend.close()


async def left_behind(backend: PostgresBackend) -> list[str | None]:
    """What the next user of the connection finds."""
    async with backend.database.driver() as connection:
        assert not connection.is_in_transaction()
        tenant = await connection.fetchrow(f"SELECT {SETTINGS}")
        changed = await connection.fetch(
            "SELECT name FROM pg_settings WHERE name = ANY('{plan_cache_mode,enable_seqscan,enable_sort,jit}') "
            " AND setting NOT IN ('force_generic_plan', 'off')"
        )
    return [*filter(None, tenant), *(row["name"] for row in changed)]


async def test_a_connection_carries_nobody_over(opened: Opened) -> None:
    """After a search, an error of PostgreSQL, an error of ours, and cancellation at any moment."""
    org, user = uuid4(), uuid4()
    scope = Scope(frozenset({org}), user)
    await opened.of(scope).write(random_chunks(org, 30))
    assert await left_behind(opened.backend) == []
    assert len(await opened.of(scope).search(Search([1.0] * WIDE, "chunk", (), Mode.HYBRID, 5))) == 5
    assert await left_behind(opened.backend) == []
    with pytest.raises(StoreFailed, match="division"):
        async with opened.backend.transaction(scope) as connection:
            await connection.fetch("SELECT 1 / 0")
    assert await left_behind(opened.backend) == []
    with pytest.raises(LookupError):
        async with opened.backend.transaction(scope):
            raise LookupError
    assert await left_behind(opened.backend) == []
    for milliseconds in (0, 0.2, 0.5, 1, 2, 4, 8):
        asking = asyncio.create_task(opened.of(scope).search(Search([1.0] * WIDE, "chunk", (), Mode.HYBRID, 5)))
        await asyncio.sleep(milliseconds / 1000)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await left_behind(opened.backend) == [], milliseconds
    stranger = opened.of(Scope(frozenset({uuid4()})))
    assert await stranger.search(Search([1.0] * WIDE, "chunk", (), Mode.HYBRID, 5)) == []


async def test_a_search_is_planned_once_a_connection(opened: Opened) -> None:
    orgs = [uuid4() for _ in range(3)]
    for org in orgs:
        await opened.of(Scope(frozenset({org}))).write(random_chunks(org, 5))
    for org in orgs:
        for mode in Mode:
            for top_k in (1, 3):
                found = await opened.of(Scope(frozenset({org}))).search(Search([1.0] * WIDE, "chunk", (), mode, top_k))
                assert len(found) == top_k
    async with opened.backend.database.driver() as connection:
        prepared = await connection.fetch(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE $1 AND NOT statement LIKE '%INSERT%'",
            f"%{opened.generation}\\_vectors v%",
        )
    # the first search of each organization counts its chunks, by a statement of its own
    assert sorted(tuple(row) for row in prepared) == [(3, 0), (3, 0), (6, 0), (6, 0)]


@pytest.mark.parametrize(
    ("topic", "way"),
    [
        (0.0, "by the graph"),
        (0.5, "by sign"),
        pytest.param(0.0, "by sign", marks=pytest.mark.thorough),
        pytest.param(0.5, "by the graph", marks=pytest.mark.thorough),
    ],
)
async def test_what_is_not_exact_is_nearly_so(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, topic: float, way: str
) -> None:
    """And never short: of the ten best at least 95 % here, all rows where a filter leaves few, true cosines."""
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 0)
    monkeypatch.setattr(postgres_tables, "_LARGE", 0)
    graph_from(monkeypatch, 0 if way == "by the graph" else 10**9)
    org = uuid4()
    store, nodes = opened.of(Scope(frozenset({org}))), random_chunks(org, 1500, topic=topic)
    await store.write(nodes)
    vectors = np.array([node.embedding for node in nodes])
    right = 0
    for question in range(20):
        query = (vectors[question] + np.random.default_rng(question).normal(size=WIDE) / WIDE**0.5).tolist()
        found = await store.search(Search(query, "", (), Mode.DENSE, 10))
        cosines = vectors @ query / np.linalg.norm(query)
        best = {nodes[each].node_id for each in np.argsort(-cosines)[:10]}
        assert len(found) == 10
        assert [each.score for each in found] == pytest.approx(
            sorted((each.score or 0 for each in found), reverse=True)
        )
        right += len(best & {each.node.node_id for each in found})
        assert found[0].score == pytest.approx(max(cosines), abs=1e-3)
    assert right >= 0.95 * 200
    ann = (condition("author", "==", "Ann"),)
    assert len(await store.search(Search([1.0] * WIDE, "", ann, Mode.DENSE, 1500))) == 150
    assert len(await store.search(Search([1.0] * WIDE, "", (), Mode.DENSE, 1500))) == 1500
    assert len(await store.search(Search([1.0] * WIDE, "chunk", (), Mode.HYBRID, 100))) == 100
    assert await store.search(Search([1.0] * WIDE, "", (), Mode.DENSE, 0)) == []


async def test_large_organizations_are_searched_by_sign_and_small_ones_exactly(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told apart by what is taken away: without signs the one finds nothing, and the other what it did."""
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 20 * WIDE)
    small, large = uuid4(), uuid4()
    source = uuid4()
    await opened.of(Scope(frozenset({small}))).write(random_chunks(small, 20))
    await opened.of(Scope(frozenset({large}))).write(random_chunks(large, 20))
    extra = [chunk(large, "one more", [1.0] * WIDE, source=source)]
    await opened.of(Scope(frozenset({large}))).write(extra)

    async def found(*orgs: UUID) -> int:
        return len(await opened.of(Scope(frozenset(orgs))).search(Search([1.0] * WIDE, "", (), Mode.DENSE, 50)))

    assert (await found(small), await found(large), await found(small, large)) == (20, 21, 41)
    async with opened.backend.transaction(Scope(frozenset({small, large}))) as connection:
        await connection.execute(f"DELETE FROM {opened.generation}_signs")
    assert (await found(small), await found(large), await found(small, large)) == (20, 0, 0)
    await opened.of(Scope(frozenset({large}))).adelete(str(source))
    assert await found(large) == 20


async def test_what_another_process_wrote_is_found_at_once(
    opened: Opened, database_urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though for some seconds a search goes by the size that the organization had."""
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 20 * WIDE)
    scope, source = Scope(frozenset({uuid4()})), uuid4()
    (org,) = scope.organizations
    other = PostgresBackend(Database(database_urls[1], pool_size=1))

    async def found() -> int:
        return len(await opened.of(scope).search(Search([1.0] * WIDE, "", (), Mode.DENSE, 50)))

    try:
        there = other.scoped(SPEC, opened.generation, scope)
        await opened.of(scope).write(random_chunks(org, 15))
        assert await found() == 15
        await there.write([chunk(org, f"more {n}", [1.0] * WIDE, source=source, position=n) for n in range(10)])
        assert await found() == 25
        opened.backend.sizes.clear()
        assert await found() == 25  # by sign
        await there.adelete(str(source))
        assert await found() == 15
    finally:
        await other.close()


@pytest.mark.parametrize("mode", [Mode.DENSE, Mode.HYBRID])
async def test_remembered_signs_find_what_a_scan_finds(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """To the last bit: with signs that are shared by several chunks where the selection ends, and with private chunks."""
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 0)
    monkeypatch.setattr(postgres_tables, "_MOST", 40)
    org, user = uuid4(), uuid4()
    nodes, alike = random_chunks(org, 300), np.eye(WIDE)[0] - 0.1
    nodes += [chunk(org, f"alike {n}", (alike * (1 + n)).tolist(), position=n) for n in range(60)]
    mine = [chunk(org, f"mine {n}", [1.0] * n + [-1.0] * (WIDE - n), private_to=str(user)) for n in range(90, 99)]
    await opened.of(Scope(frozenset({org}))).write([*nodes, *mine])
    questions = [[1.0] * 95 + [-1.0] * (WIDE - 95), alike.tolist(), *(nodes[n].embedding or [] for n in range(5))]

    async def find_all() -> list[list[tuple[str, float | None]]]:
        found = []
        for scope in (Scope(frozenset({org})), Scope(frozenset({org}), user)):
            for question in questions:
                for top_k in (1, 10, 30):
                    nodes = await opened.of(scope).search(Search(question, "chunk alike 7", (), mode, top_k))
                    found.append([(each.node.node_id, each.score) for each in nodes])
        return found

    with monkeypatch.context() as without:
        without.setattr(signs, "_USES_BEFORE_CACHING", 10**9)
        scanned = await find_all()
    key = (opened.generation, frozenset({org}))
    assert opened.backend.signs.get(key) is None
    monkeypatch.setattr(signs, "_USES_BEFORE_CACHING", 1)
    opened.backend.signs.forget(key)
    assert await find_all() == scanned
    assert opened.backend.signs.get(key) is not None


async def test_remembered_signs_are_forgotten_when_another_process_writes(
    opened: Opened, database_urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same search finds what was written; what was taken out is not found."""
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 0)
    monkeypatch.setattr(signs, "_USES_BEFORE_CACHING", 1)
    org, source = uuid4(), uuid4()
    scope, key = Scope(frozenset({org})), (opened.generation, frozenset({org}))
    other = PostgresBackend(Database(database_urls[1], pool_size=1))

    async def search() -> list[str]:
        found = await opened.of(scope).search(Search([1.0] * WIDE, "", (), Mode.DENSE, 3))
        return [each.node.get_content() for each in found]

    try:
        there = other.scoped(SPEC, opened.generation, scope)
        await opened.of(scope).write(random_chunks(org, 30))
        assert await search() == await search()
        first = opened.backend.signs.get(key)
        await there.write([chunk(org, "the nearest", [1.0] * WIDE, source=source)])
        assert opened.backend.signs.get(key) is first is not None
        assert (await search())[0] == "the nearest"
        assert opened.backend.signs.get(key) is None
        assert (await search())[0] == "the nearest"
        assert opened.backend.signs.get(key) is not first
        await there.adelete(str(source))
        assert len(await search()) == 3 and "the nearest" not in await search()
    finally:
        await other.close()


async def test_remembered_signs_only_propose(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of chunks of another organization, or of another user, are looked up under the scope and not found."""
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 0)
    monkeypatch.setattr(signs, "_USES_BEFORE_CACHING", 1)
    org, neighbour, user = uuid4(), uuid4(), uuid4()
    mine, theirs = Scope(frozenset({org})), Scope(frozenset({neighbour}))
    await opened.of(mine).write([chunk(org, "mine", [1.0] * WIDE)])
    await opened.of(mine).write([chunk(org, "private", [1.0] * WIDE, private_to=str(user))])
    await opened.of(theirs).write([chunk(neighbour, "theirs", [1.0] * WIDE)])

    async def search(scope: Scope) -> list[str]:
        found = await opened.of(scope).search(Search([1.0] * WIDE, "", (), Mode.DENSE, 9))
        return sorted(each.node.get_content() for each in found)

    for scope in (mine, theirs, mine, theirs):
        await search(scope)
    memory, key = opened.backend.signs, (opened.generation, mine.organizations)
    known = memory.get(key)
    assert known is not None
    async with opened.backend.transaction(Scope(mine.organizations | theirs.organizations)) as connection:
        rows = await connection.fetch(
            f"SELECT int8send(no) AS no, bit_send(signs) AS signs FROM {opened.generation}_signs"
        )
    assert len(rows) == 3
    memory.keep(key, Signs(known.version, *(b"".join(row[name] for row in rows) for name in ("no", "signs"))))
    assert await search(mine) == ["mine"]
    assert memory.get(key) is not None
    assert {*await search(Scope(mine.organizations, user))} == {"mine", "private"}


def test_signs_that_were_asked_for_least_recently_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    each = Signs("1", bytes(8), bytes(4 + WIDE // 8))
    monkeypatch.setattr(signs, "MOST_BYTES", 2 * each.size)
    memory = SignMemory()
    for key in ("a", "b"):
        memory.keep(key, each)
    memory.get("a")
    memory.keep("c", each)
    assert [key for key in "abc" if memory.get(key)] == ["a", "c"]


async def test_the_graph_is_for_whoever_has_much_of_the_index_and_scans_help_where_it_leads_elsewhere(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told apart by what is taken away: without signs only the graph finds anything here."""
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 0)
    monkeypatch.setattr(postgres_tables, "_LARGE", 9)
    graph_from(monkeypatch, 0)
    monkeypatch.setattr(postgres, "_PLANS", f"{postgres._PLANS}; SET hnsw.ef_search = 10; SET hnsw.max_scan_tuples = 1")
    most, few = (Scope(frozenset({uuid4()})) for _ in range(2))
    (near,), (far,) = most.organizations, few.organizations
    question = [1.0] + [0.0] * (WIDE - 1)
    await opened.of(most).write(random_chunks(near, 200, topic=2.0))
    await opened.of(few).write([chunk(far, f"far {n}", [-1.0, n / 100] + [0.0] * (WIDE - 2)) for n in range(50)])

    async def found(scope: Scope, top_k: int = 5) -> int:
        return len(await opened.of(scope).search(Search(question, "", (), Mode.DENSE, top_k)))

    ann = (condition("author", "==", "Ann"),)
    # the second has 50 of 250, so a walk is tried: it sees ten of the first, stops, and the scan finds all there are
    assert (await found(most), await found(few), await found(few, 50)) == (5, 5, 50)
    monkeypatch.setattr(postgres_tables, "_LARGE", 11)  # 50 * 50 is not above 11 * 250, the chunks of the graph
    assert await found(few, 50) == 50
    async with opened.backend.transaction(Scope(most.organizations | few.organizations)) as connection:
        await connection.execute(f"DELETE FROM {opened.generation}_signs")
    assert (await found(most), await found(few)) == (5, 0)
    assert await opened.of(most).search(Search(question, "", ann, Mode.DENSE, 5)) == []  # a filter: by sign
    assert len(await opened.of(most).search(Search(question, "chunk", (), Mode.HYBRID, 5))) == 5


async def test_an_organization_that_becomes_large_comes_into_the_graph_with_its_writes(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three chunks for each that is written. Until it is whole the signs are scanned; a neighbour stays outside."""
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 0)
    monkeypatch.setattr(postgres_tables, "_LARGE", 0)
    graph_from(monkeypatch, 100)
    org, other, user = uuid4(), uuid4(), uuid4()
    scope = Scope(frozenset({org}))
    store, nodes = opened.of(scope), random_chunks(org, 150)
    source = uuid4()
    nodes += [chunk(org, "hers", [1.0] * WIDE, source=source, private_to=str(user), owner_id=str(user))]

    async def in_graph() -> tuple[int, int]:
        async with opened.backend.transaction(Scope(frozenset({org, other}))) as connection:
            return tuple(
                await connection.fetchrow(
                    f"SELECT (SELECT count(*) FROM {opened.generation}_graph), chunks FROM {opened.generation}_totals"
                )
            )

    async def found(user: UUID | None = None) -> list[str]:
        asked = Search([1.0] * WIDE, "", (), Mode.DENSE, 20)
        return [node.node.node_id for node in await opened.of(Scope(frozenset({org}), user)).search(asked)]

    await opened.of(Scope(frozenset({other}))).write(random_chunks(other, 100))
    counts = []
    for start, end in ((0, 90), (90, 110), (110, 130), (130, 151)):
        await store.write(nodes[start:end])
        counts.append(await in_graph())
        assert len(await found()) == 20
    assert counts == [(0, 0), (60, 60), (120, 120), (151, 151)]
    scanned = await found(), await found(user)
    assert nodes[-1].node_id in scanned[1] and nodes[-1].node_id not in scanned[0]
    async with opened.backend.transaction(scope) as connection:
        await connection.execute(f"DELETE FROM {opened.generation}_signs")
    walked = await found(), await found(user)
    assert [*map(set, walked)] == [*map(set, scanned)]
    await store.write([], replacing=[source])
    assert await in_graph() == (150, 150)
    assert await found(user) == await found() == walked[0]


async def test_keywords_of_any_length_are_kept_and_found(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no index of PostgreSQL takes one of 5,000 random bytes."""
    org, names = uuid4(), [token_hex(length // 2) for length in (400, 402, 5000)]
    await opened.of(Scope(frozenset({org}))).write([chunk(org, each, [1.0] * WIDE, author=each) for each in names])
    for exact in (10**9, 0):
        monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", exact)
        for filters, found in (
            *((condition("author", "==", each), {each}) for each in names),
            (condition("author", "in", tuple(names)), set(names)),
            (condition("author", "in", tuple(names[:1])), set(names[:1])),
            (condition("author", "==", names[2][:400]), set[str]()),
        ):
            nodes = await opened.of(Scope(frozenset({org}))).search(Search([1.0] * WIDE, "", (filters,), Mode.DENSE, 9))
            assert {each.node.get_content() for each in nodes} == found


@pytest.mark.parametrize("dimension", [3, 1999, 3072, 4001])
async def test_any_dimension(database_urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch, dimension: int) -> None:
    backend, generation, org = PostgresBackend(Database(database_urls[1])), f"g_things_{uuid4().hex[:12]}", uuid4()
    graph_from(monkeypatch, 0)
    await backend.create(database_urls[0], SPEC, generation, dimension)
    try:
        store, nodes = (
            backend.scoped(SPEC, generation, Scope(frozenset({org}))),
            random_chunks(org, 40, dimension=dimension),
        )
        await store.write(nodes)
        for exact, large in ((10**9, 0), (0, 10**9), (0, 0)):
            monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", exact)
            monkeypatch.setattr(postgres_tables, "_LARGE", large)
            found = await store.search(Search(nodes[7].embedding or [], "", (), Mode.DENSE, 10))
            assert found[0].node.node_id == nodes[7].node_id and found[0].score == pytest.approx(1, abs=1e-3)
            assert len({each.node.node_id for each in found}) == 10
    finally:
        await backend.drop(database_urls[0], generation)
        await backend.close()


async def test_generations_from_before_signs_and_graphs_get_them(
    new_database: NewPostgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = new_database()
    backend, generation, org = PostgresBackend(Database(server.app_url)), "g_things_1", uuid4()
    await backend.create(server.owner_url, SPEC, generation, WIDE)
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 0)
    store, source = backend.scoped(SPEC, generation, Scope(frozenset({org}))), uuid4()
    await store.write([*random_chunks(org, 20), chunk(org, "extra", [1.0] * WIDE, source=source)])
    before = await tables(server.owner_url, generation)
    answers = await store.candidates(Search([1.0] * WIDE, "", (), Mode.DENSE, 50))
    await backend.close()
    downgrade(server.owner_url, MIGRATIONS, "0007")
    assert "g_things_1_signs" not in await tables(server.owner_url, generation)
    upgrade(server.owner_url, server.app_url, MIGRATIONS)
    assert await tables(server.owner_url, generation) == before
    backend = PostgresBackend(Database(server.app_url))
    store = backend.scoped(SPEC, generation, Scope(frozenset({org})))
    assert by_id(await store.candidates(Search([1.0] * WIDE, "", (), Mode.DENSE, 50))) == by_id(answers)
    await store.adelete(str(source))
    assert await store.candidates(Search([1.0] * WIDE, "", (), Mode.DENSE, 50)) != answers
    assert len(await store.candidates(Search([1.0] * WIDE, "", (), Mode.DENSE, 50))) == 20
    await backend.close()


def by_id(candidates: list[Candidate]) -> dict[UUID, float]:
    return {each.id: each.cosine for each in candidates}


async def tables(owner_url: str, generation: str) -> dict[str, set[str]]:
    """Of each table its columns, indexes and policies, and whether row-level security is forced."""
    owner = await asyncpg.connect(owner_url.replace("+asyncpg", ""))
    try:
        found = await owner.fetch(
            """
            SELECT relname, array_agg(attname || ' ' || format_type(atttypid, atttypmod) || attnotnull) AS columns,
                ARRAY(SELECT indexdef FROM pg_indexes WHERE tablename = relname) AS indexes,
                ARRAY(SELECT qual FROM pg_policies WHERE tablename = relname) AS policies,
                relrowsecurity::text || relforcerowsecurity::text || coalesce(relacl::text, '') AS guarded
            FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
            WHERE relkind = 'r' AND starts_with(relname, $1) GROUP BY pg_class.oid
            """,
            f"{generation}_",
        )
    finally:
        await owner.close()
    return {row["relname"]: {*row["columns"], *row["indexes"], *row["policies"], row["guarded"]} for row in found}


async def test_the_graph_of_a_generation_that_is_loaded_is_built_at_the_end(
    opened: Opened, database_urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_tables, "_EXACT_NUMBERS", 0)
    monkeypatch.setattr(postgres_tables, "_LARGE", 0)
    graph_from(monkeypatch, 0)
    backend, generation, scope = opened.backend, opened.generation, Scope(frozenset({uuid4()}))
    (org,) = scope.organizations
    assert await backend.is_loaded(generation)
    await backend.begin_load(database_urls[0], generation)
    assert not await backend.is_loaded(generation)
    await backend.begin_load(database_urls[0], generation)  # of a command that was killed
    await opened.of(scope).write(random_chunks(org, 100))
    await backend.finish_load(database_urls[0], generation)
    assert await backend.is_loaded(generation)
    async with backend.transaction(scope) as connection:
        await connection.execute(f"DELETE FROM {generation}_signs")
    found = await opened.of(scope).search(Search([1.0] * WIDE, "", (), Mode.DENSE, 5))
    assert len(found) == 5  # by the graph: there is nothing else
