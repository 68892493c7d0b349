"""What the tests of PGVectorStore and QdrantVectorStore check, as cases of the contract, on every store.

docs/stores.md has the table: each behaviour, and where it differs here on purpose.
"""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from rag_app.domain.errors import InvalidInput
from rag_app.domain.scope import Scope
from rag_app.retrieval.store import ScopedStore
from tests.stores.conftest import DIMENSION, SPEC, STORES, Stores, chunk, opened, vector

FRUIT = {
    "quince": ("The quince jelly of the garden.", 0.9, {"stylist": 1}),
    "medlar": ("Medlars are eaten soft.", 0.2, {"author": "Rosa"}),
    "sloe": ("Gin of sloes, and sloes in gin.", 0.1, {"tags": ["hedge", "wild"]}),
    "rowan": ("Rowan jelly for the roast.", -0.3, {"author": "Sorbus", "stylist": 3}),
}


@pytest.fixture
async def shop(stores: Stores, org: UUID, scope: Scope) -> tuple[ScopedStore, dict[str, TextNode]]:
    """Four chunks, a source each, and one of another organization that is nearer than all of them."""
    nodes = {name: chunk(org, text, vector(near), **meta) for name, (text, near, meta) in FRUIT.items()}  # type: ignore[arg-type]
    await stores(scope).async_add([*nodes.values()])
    other = uuid4()
    await stores(Scope(frozenset({other}))).async_add(
        [chunk(other, "jelly gin", vector(0.99), author="Rosa", stylist=1)]
    )
    return stores(scope), nodes


def where(*conditions: tuple[str, Any, str]) -> MetadataFilters:
    return MetadataFilters(
        filters=[
            MetadataFilter(key=key, value=value, operator=FilterOperator(operator))
            for key, value, operator in conditions
        ]
    )


Shop = tuple[ScopedStore, dict[str, TextNode]]


async def names(shop: Shop, text: str = "", mode: str = "default", k: int = 10, filters: Any = None) -> list[str]:
    store, nodes = shop
    found = await store.aquery(
        VectorStoreQuery(vector(0.9), k, query_str=text, mode=VectorStoreQueryMode(mode), filters=filters)
    )
    known = {node.node_id: name for name, node in nodes.items()}
    return [known[id_] for id_ in found.ids or []]


async def test_the_nearest_alone_and_all_in_order(shop: Shop) -> None:
    assert await names(shop, k=1) == ["quince"]
    assert await names(shop) == ["quince", "medlar", "sloe", "rowan"]


FILTERS: list[tuple[tuple[str, Any, str], list[str]]] = [
    (("author", "Rosa", "=="), ["medlar"]),
    (("author", ["Rosa", "Nobody"], "in"), ["medlar"]),
    (("author", ["Rosa"], "in"), ["medlar"]),
    (("author", ["Rosa", "Sorbus"], "in"), ["medlar", "rowan"]),
    (("tags", "hedge", "contains"), ["sloe"]),
    (("stylist", [1, 2], "in"), ["quince"]),
    (("stylist", ["3"], "in"), ["rowan"]),
    (("stylist", 999, "=="), []),
    (("stylist", 1, ">"), ["rowan"]),
]


async def test_filters_and_their_types(shop: Shop) -> None:
    for condition, expected in FILTERS:
        for mode in ("default", "hybrid"):
            assert sorted(await names(shop, "jelly", mode, filters=where(condition))) == sorted(expected), condition


async def test_words_of_a_sentence_are_found_best_first(shop: Shop) -> None:
    assert await names(shop, "which of these is in the gin?", "sparse") == ["sloe"]
    assert await names(shop, "is there a jelly of quinces?", "text_search") == ["quince", "rowan"]


async def test_hybrid_has_what_either_leg_has_once(shop: Shop) -> None:
    """Upstream returns the legs one after the other; here they are fused."""
    assert sorted(await names(shop, "sloes", "hybrid")) == ["medlar", "quince", "rowan", "sloe"]
    assert (await names(shop, "quince", "hybrid", k=2))[0] == "quince"
    assert await names(shop, "gin", "hybrid", filters=where(("author", "Rosa", "=="))) == ["medlar"]


async def test_hybrid_without_words_is_by_meaning(shop: Shop) -> None:
    """Upstream raises."""
    assert await names(shop, "", "hybrid") == await names(shop)


IDS_AND_FILTERS: list[tuple[list[str], MetadataFilters | None, list[str]]] = [
    (["quince", "medlar"], None, ["quince", "medlar"]),
    (["medlar", "sloe"], where(("author", "Rosa", "==")), ["medlar"]),
    (["sloe"], where(("author", "Rosa", "==")), []),
    (["quince", "medlar"], where(("stylist", 999, "==")), []),
]


async def test_nodes_by_their_ids_and_filters_at_once(shop: Shop) -> None:
    """Upstream's Qdrant store returns the union of both."""
    store, nodes = shop
    for asked, filters, expected in IDS_AND_FILTERS:
        found = await store.aget_nodes([nodes[each].node_id for each in asked], filters)
        assert [node.node_id for node in found] == [nodes[each].node_id for each in expected], asked
    with pytest.raises(InvalidInput):
        await store.aget_nodes(filters=where(("author", "Rosa", "==")))


async def test_deleting_nothing_somebody_unknown_and_several(shop: Shop) -> None:
    store, nodes = shop
    await store.write([], replacing=[])
    await store.adelete(str(uuid4()))
    assert len(await names(shop)) == 4
    await store.write([], replacing=[UUID(nodes[each].metadata["source_id"]) for each in ("quince", "medlar")])
    assert await names(shop) == ["sloe", "rowan"]
    assert await store.aget_nodes([nodes["quince"].node_id]) == []


async def test_embeddings_come_back_with_their_nodes(shop: Shop) -> None:
    store, nodes = shop
    found = await store.export([UUID(node.metadata["source_id"]) for node in nodes.values()])
    assert {node.node_id: node.embedding for node in found} == {
        node.node_id: pytest.approx(node.embedding, abs=1e-6) for node in nodes.values()
    }


async def test_blocking_calls_are_refused(shop: Shop) -> None:
    store, nodes = shop
    with pytest.raises(NotImplementedError, match="async"):
        store.query(VectorStoreQuery(vector(0.9)))
    with pytest.raises(NotImplementedError, match="async"):
        store.add([*nodes.values()])


@pytest.mark.parametrize("kind", [each for each in STORES if each != "qdrant-server"])
async def test_generations_do_not_mix_and_one_is_emptied_alone(
    kind: str, database_urls: tuple[str, str], tmp_path: Path, org: UUID, scope: Scope
) -> None:
    async with opened(kind, SPEC, DIMENSION, database_urls, tmp_path) as stores:
        backend: Any = stores(scope).client
        for name in ("g_things_one", "g_things_two"):
            await backend.create(database_urls[0], SPEC, name, DIMENSION)
            await backend.scoped(SPEC, name, scope).async_add([chunk(org, name, vector(0.5))])
        for name in ("g_things_one", "g_things_two"):
            found = await backend.scoped(SPEC, name, scope).aquery(VectorStoreQuery(vector(0.5), 10))
            assert [node.get_content() for node in found.nodes] == [name]
        await backend.create(database_urls[0], SPEC, "g_things_one", DIMENSION)
        assert await backend.scoped(SPEC, "g_things_one", scope).count() == 0
        assert await backend.scoped(SPEC, "g_things_two", scope).count() == 1
        for name in ("g_things_one", "g_things_two"):
            await backend.drop(database_urls[0], name)
