"""What keeps organizations apart in a store of foreign code, and what makes up for what it cannot do."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter
from sqlalchemy import event

from rag_app.database.session import Database
from rag_app.domain.answer import Mode
from rag_app.domain.errors import Misconfigured, StoreFailed
from rag_app.domain.filters import Filters
from rag_app.domain.scope import Scope
from rag_app.retrieval.filters import check_filters, condition, none_of, or_missing
from rag_app.retrieval.store import Search
from rag_app.stores import llamaindex
from rag_app.stores.class_file import Builder, read_class_file
from rag_app.stores.llamaindex import LlamaIndexBackend, LlamaIndexStore
from tests.stores.conftest import ADAPTED, DIMENSION, SPEC, Stores, chunk, declare, opened, vector
from tests.stores.shelf_store import EVERYTHING, ShelfStore
from tests.stores.test_contract import HOSTILE, QUERY, texts

adapted = pytest.mark.parametrize("stores", ADAPTED, indirect=True)
ANN, NORTH = UUID(int=0xC), UUID(int=0xD)


def asked(filters: Filters = (), k: int = 50) -> Search:
    return Search(QUERY, "word", check_filters(filters, SPEC), Mode.DENSE, k)


async def fill(stores: Stores, mine: UUID, theirs: UUID) -> dict[UUID, str]:
    """Chunks by id: of two organizations, for everybody, for Ann, of a site."""
    private: dict[str, Any] = {"private_to": str(ANN), "owner_id": str(ANN)}
    nodes = {
        "mine": chunk(mine, "word mine", vector(0.5)),
        "north": chunk(mine, "word north", vector(0.4), site_id=str(NORTH)),
        "ann's": chunk(mine, "word ann's", vector(0.3), **private),
        "theirs": chunk(theirs, "word theirs", vector(0.9), author="Eve", tags=["red"]),
        "their ann's": chunk(theirs, "word their ann's", vector(0.8), **private),
    }
    for org in (mine, theirs):
        await stores(Scope(frozenset({org}))).async_add([n for n in nodes.values() if n.metadata["org_id"] == str(org)])
    return {UUID(node.node_id): name for name, node in nodes.items()}


SEEN: list[tuple[UUID | None, UUID | None, set[str]]] = [
    (None, None, {"mine", "north"}),
    (ANN, None, {"mine", "north", "ann's"}),
    (uuid4(), None, {"mine", "north"}),
    (ANN, NORTH, {"north"}),
]


@adapted
async def test_the_filter_alone_keeps_organizations_apart(stores: Stores) -> None:
    """What the store itself proposes, before PostgreSQL is asked."""
    mine, theirs = uuid4(), uuid4()
    names = await fill(stores, mine, theirs)
    hostile = [condition("author", "==", each) for each in HOSTILE]
    for user, site, expected in SEEN:
        store: Any = stores(Scope(frozenset({mine}), user, site))
        assert {names[each] for each in await store.propose(asked(), 50)} == expected
        foreign = condition("org_id", "==", str(theirs))
        groups = [*map(or_missing, [*hostile, foreign]), none_of([foreign])]
        filters: Filters = (*hostile, foreign, *groups)
        for each in filters:
            assert {names[id_] for id_ in await store.propose(asked((each,)), 50)} <= expected, each


@adapted
async def test_postgresql_alone_keeps_organizations_apart(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is told nothing of scope and filters, and so proposes everything."""
    mine, theirs = uuid4(), uuid4()
    names = await fill(stores, mine, theirs)
    monkeypatch.setattr(llamaindex, "scope_conditions", lambda scope, abilities: [[]])
    monkeypatch.setattr(llamaindex, "filter_conditions", lambda filters, spec, abilities: [])
    for user, site, expected in SEEN:
        store: Any = stores(Scope(frozenset({mine}), user, site))
        assert {*await store.propose(asked(), 50)} >= {*names}
        for mode in ("default", "hybrid", "text_search"):
            assert {each.removeprefix("word ") for each in await texts(store, "word", mode=mode)} == expected
        eve = condition("author", "==", "Eve")
        assert await texts(store, filters=(eve,)) == []


async def test_the_ledger_alone_takes_out_what_it_does_not_show(database_urls: tuple[str, str], tmp_path: Path) -> None:
    async with opened("llamaindex-chroma", SPEC, DIMENSION, database_urls, tmp_path) as stores:
        org = uuid4()
        seen, hidden = chunk(org, "seen", vector(0.5)), chunk(org, "hidden", vector(0.6))
        store: Any = stores(Scope(frozenset({org})))
        await store.async_add([seen, hidden])

        async def visible(scope: Scope, generation: str, sources: Sequence[UUID]) -> set[UUID]:
            return {UUID(seen.metadata["source_id"])} & {*sources}

        store.backend.visible = visible
        for mode in ("default", "hybrid", "text_search"):
            assert await texts(store, "seen hidden", mode=mode) == ["seen"]


@pytest.mark.foreign_stores
@pytest.mark.parametrize("stores", ["llamaindex-postgres"], indirect=True)
async def test_no_text_of_a_filter_reaches_the_sql_of_pgvectorstore(stores: Stores, org: UUID) -> None:
    """Which pastes values. What it leaks when it is asked directly is in test_against_upstream."""
    store: Any = stores(Scope(frozenset({org}), ANN))
    await store.async_add([chunk(org, value, vector(0.1), author=value) for value in HOSTILE])
    stock, said = store.backend._stores[store.generation], list[str]()
    event.listen(stock._engine, "before_cursor_execute", lambda conn, cursor, statement, *rest: said.append(statement))
    for value in HOSTILE:
        for operator, values in (("==", value), ("in", (value, "Ann"))):
            found = await texts(store, filters=(condition("author", operator, values),))
            assert found == [value]
    assert len(said) >= 2 * len(HOSTILE)
    assert not [each for each in said for value in HOSTILE if len(value) > 4 and value in each]
    assert (await store.backend.abilities(store.generation)).pastes


@pytest.mark.foreign_stores
@pytest.mark.parametrize("compared", [0, 10_000])
async def test_rows_that_a_filtered_graph_loses_are_made_up_for_or_told(
    database_urls: tuple[str, str], tmp_path: Path, org: UUID, compared: int, caplog: pytest.LogCaptureFixture
) -> None:
    """PGVectorStore with HNSW filters the few rows that its walk met: here those of another organization, all nearer."""
    graph = "[arguments.hnsw_kwargs]\nhnsw_m = 4\nhnsw_ef_construction = 16\nhnsw_ef_search = 10\n"
    graph += '[arguments.create_engine_kwargs.connect_args]\noptions = "-c enable_seqscan=off -c enable_sort=off"\n'
    file, crowd = declare("postgres", tmp_path, database_urls[0], compared), uuid4()
    file.write_text(file.read_text("utf-8") + graph, "utf-8")
    async with opened(file, SPEC, DIMENSION, database_urls, tmp_path) as stores:
        theirs, store = stores(Scope(frozenset({crowd}))), stores(Scope(frozenset({org})))
        await theirs.async_add([chunk(crowd, "theirs", vector(0.9, at / 2000)) for at in range(400)])
        await store.async_add([chunk(org, f"{at}", vector(-0.1 * at)) for at in range(5)])
        found = await store.best(asked(k=5))
        told = [node.metadata.get("incomplete") for _, node in found]
        if compared:
            assert [node.get_content() for _, node in found] == ["0", "1", "2", "3", "4"] and not any(told)
        else:
            lost = f"found {len(found)} of 5 chunks" in caplog.text
            assert lost and len(found) < 5 and all(told), (
                "if the graph loses none any more, docs/stores.md wants another look"
            )


def test_only_uuids_and_numbers_are_sent() -> None:
    for value in ["x' OR '1'='1", "en", float("nan"), float("inf"), str(uuid4()).upper().replace("-", ""), ["en"]]:
        with pytest.raises(ValueError):
            llamaindex._check_condition(MetadataFilter(key="x_lang", value=value, operator=FilterOperator.EQ))
    with pytest.raises(ValueError, match="no field"):
        llamaindex._check_condition(MetadataFilter(key="x' OR '1'='1", value=str(uuid4())))


Shelf = Callable[..., AbstractAsyncContextManager[LlamaIndexBackend]]


@pytest.fixture
def shelf(database_urls: tuple[str, str], tmp_path: Path) -> Shelf:
    """The store of shelf_store.py behind a file; `lacks` names what it cannot do."""

    @asynccontextmanager
    async def open_shelf(*lacks: str, extra: str = "", arguments: str = "") -> AsyncIterator[LlamaIndexBackend]:
        file = tmp_path / "shelf.toml"
        can = [each for each in EVERYTHING if each not in lacks]
        file.write_text(
            f'class = "tests.stores.shelf_store.ShelfStore"\n{extra}\n[arguments]\nshelf = "{{generation}}"\n'
            f"can = {can}\n{arguments}\n",
            "utf-8",
        )

        async def visible(scope: Scope, generation: str, sources: Sequence[UUID]) -> set[UUID]:
            return set(sources)

        database = Database(database_urls[1])
        backend = LlamaIndexBackend(database, visible, read_class_file(file))
        try:
            yield backend
        finally:
            await backend.close()
            await database.close()

    return open_shelf


async def made(backend: LlamaIndexBackend, owner_url: str, scope: Scope) -> LlamaIndexStore:
    generation = f"g_shelf_{uuid4().hex[:12]}"
    await backend.create(owner_url, SPEC, generation, DIMENSION)
    return backend.scoped(SPEC, generation, scope)


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        (["filter"], "cannot keep organizations apart"),
        (["and"], "two conditions together"),
        (["nearest"], "nearest vector"),
        (["delete", "delete_nodes"], "what is deleted would stay"),
    ],
)
async def test_a_store_that_cannot_be_made_up_for_is_refused(
    shelf: Shelf, database_urls: tuple[str, str], scope: Scope, lacks: list[str], why: str
) -> None:
    async with shelf(*lacks) as backend:
        with pytest.raises(Misconfigured, match=why):
            await made(backend, database_urls[0], scope)


async def test_what_a_store_lacks_is_found_out_told_and_made_up_for(
    shelf: Shelf, database_urls: tuple[str, str], org: UUID
) -> None:
    scope = Scope(frozenset({org, uuid4()}), ANN)
    async with shelf("in", "ranges", "delete_nodes", extra="compared = 0") as backend:
        store = await made(backend, database_urls[0], scope)
        said = await backend.limits(store.generation)
        assert "`in`" in said and "ranges" in said and "one node a call" in said and "pastes" not in said
        source = uuid4()
        nodes = [
            chunk(org, f"{at}", vector(0.9 - at / 10), stylist=at, author=f"a{at % 2}", private_to=str(ANN))
            for at in range(6)
        ]
        await store.write([*nodes, chunk(org, "gone", vector(0.95), source=source)])
        await store.write([], replacing=[source])
        assert "gone" not in [node.get_content() for node in ShelfStore.shelves[store.generation].values()]
        assert len(ShelfStore.shelves[store.generation]) == 7  # and the one that says it is there
        assert await texts(store, k=3) == ["0", "1", "2"]
        assert await texts(store, filters=(condition("stylist", ">", 3),)) == ["4", "5"]
        assert await texts(store, filters=(condition("author", "in", ("a1", "b")),)) == ["1", "3", "5"]
        assert all(len(query.filters.filters) for query in ShelfStore.asked[-4:] if query.filters)


@pytest.mark.parametrize(("compared", "expected"), [(0, 2), (100, 5)])
async def test_never_fewer_than_there_are_in_silence(
    shelf: Shelf, database_urls: tuple[str, str], org: UUID, scope: Scope, caplog: pytest.LogCaptureFixture,
    compared: int, expected: int,
) -> None:  # fmt: skip
    """A store that returns two rows, whatever it is asked for."""
    async with shelf(extra=f"compared = {compared}", arguments="most = 3") as backend:
        store = await made(backend, database_urls[0], scope)
        await store.async_add([chunk(org, f"word {at}", vector(0.9 - at / 10)) for at in range(5)])
        backend._stores[store.generation].__dict__["most"] = 2
        ShelfStore.asked.clear()
        with caplog.at_level(logging.WARNING):
            found = await store.best(asked(k=5))
        assert [node.get_content() for _, node in found] == [f"word {at}" for at in range(expected)]
        assert [query.similarity_top_k for query in ShelfStore.asked] == [10, 20, 40, 80]
        cut_short = expected < 5
        assert all(node.metadata.get("incomplete", False) is cut_short for _, node in found)
        assert ("found 2 of 5" in caplog.text) is cut_short
        ShelfStore.asked.clear()
        assert len(await store.best(asked(k=1))) == 1 and len(ShelfStore.asked) == 1


async def test_a_score_of_the_stores_own_is_not_shown(
    shelf: Shelf, database_urls: tuple[str, str], org: UUID, scope: Scope
) -> None:
    async with shelf() as backend:
        store = await made(backend, database_urls[0], scope)
        await store.async_add([chunk(org, "far", [3.0, *[0.0] * 6, 4.0]), chunk(org, "near", [9.0, *[0.0] * 7])])
        found = await store.best(asked())
        assert [(node.get_content(), round(each.cosine, 6)) for each, node in found] == [("near", 1.0), ("far", 0.6)]


async def test_a_generation_is_there_until_it_is_dropped(
    shelf: Shelf, database_urls: tuple[str, str], org: UUID, scope: Scope
) -> None:
    async with shelf() as backend:
        store = await made(backend, database_urls[0], scope)
        assert await backend.holds(store.generation)
        await store.async_add([chunk(org, "word", vector(0.5))])
    async with shelf() as backend:  # another process: what the probe found is with the generation
        again = backend.scoped(SPEC, store.generation, scope)
        assert (await backend.abilities(store.generation)).among
        assert await texts(again) == ["word"]
        (kept,) = await again.export(list(await again.sources()))
        assert kept.embedding == pytest.approx(vector(0.5))
        ShelfStore.shelves.clear()  # lost, as after the restore of a backup
        assert not await backend.holds(store.generation)
        assert await texts(again) == ["word"], "PostgreSQL compares what there is"
        await backend.drop(database_urls[0], store.generation)
        assert not await backend.holds(store.generation)


async def test_secrets_are_references_and_are_never_said(
    shelf: Shelf, database_urls: tuple[str, str], scope: Scope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Misconfigured, match=r"arguments\.password is a secret") as refused:
        async with shelf(arguments='password = "wrong"'):
            pass
    assert "wrong" not in str(refused.value)
    (tmp_path / "key").write_text("wrong\n", "utf-8")
    monkeypatch.setenv("SHELF_KEY", "wrong")
    for reference in ("env = 'SHELF_KEY'", f"file = '{tmp_path / 'key'}'"):
        async with shelf(arguments=f"password = {{ {reference} }}") as backend:
            with pytest.raises(StoreFailed) as failed:
                await made(backend, database_urls[0], scope)
            assert "ConnectionError: cannot sign in with ***" in str(failed.value) and "wrong" not in str(failed.value)
            assert failed.value.__cause__ is None and failed.value.__suppress_context__
    monkeypatch.delenv("SHELF_KEY")
    async with shelf(arguments="password = { env = 'SHELF_KEY' }") as backend:
        with pytest.raises(Misconfigured, match="SHELF_KEY is not set"):
            await made(backend, database_urls[0], scope)


async def test_a_call_that_takes_too_long_is_a_failure_of_the_store(
    shelf: Shelf, database_urls: tuple[str, str], scope: Scope
) -> None:
    async with shelf(extra="seconds = 0.01", arguments="slow = 0.2") as backend:
        with pytest.raises(StoreFailed, match=r"took longer than 0.01 s"):
            await made(backend, database_urls[0], scope)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (
            'class = "os.system"\n[arguments]\nx = "{generation}"',
            "class os.system is not a subclass of llama_index.core.vector_stores.types.BasePydanticVectorStore",
        ),
        ('class = "no.such.Store"\n[arguments]\nx = "{generation}"', "is it on PYTHONPATH?"),
        ('class = "rm -rf /"\n[arguments]\nx = "{generation}"', "class: String should match"),
        ('class = "a.B"\ncolour = "red"\n[arguments]\nx = "{generation}"', "colour: Extra inputs"),
        ('class = "a.B"\n[arguments]\nx = "always"', "no argument contains {generation}"),
        ('class = "a.B"\n[arguments]\nurl = "https://ann:pw@db/{generation}"', "arguments.url is a secret"),
        ("class = ", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, written: str, why: str) -> None:
    file = tmp_path / "store.toml"
    file.write_text(written, "utf-8")
    with pytest.raises(Misconfigured) as error:
        Builder(read_class_file(file)).open("g", 8)
    assert why in str(error.value) and "pw" not in str(error.value)


def test_a_store_of_ones_own_stands_in_a_file_beside_the_declaration(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from tests.stores.shelf_store import ShelfStore as Mine", "utf-8")
    file = tmp_path / "store.toml"
    file.write_text('class = "own.py:Mine"\n[arguments]\nshelf = "of {generation}"', "utf-8")
    builder = Builder(read_class_file(file))
    assert isinstance(store := builder.open("g_1", 8), ShelfStore) and store.shelf == "of g_1"
    assert builder.made == {}


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    for path, why in ((None, "RAG_VECTOR_STORE_FILE"), (tmp_path / "none.toml", "cannot be read")):
        with pytest.raises(Misconfigured, match=why):
            read_class_file(path)


async def test_files_of_the_documentation_open_what_they_say(database_urls: tuple[str, str], tmp_path: Path) -> None:
    """docs/stores.md and the stores of the tests declare the same."""
    page = (Path(__file__).parents[2] / "docs" / "stores.md").read_text("utf-8")
    for store in ("chroma", "postgres", "qdrant"):
        declared = read_class_file(declare(store, tmp_path, database_urls[0]))
        assert declared.class_path in page
