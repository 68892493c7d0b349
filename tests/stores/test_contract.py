"""What every vector store promises. A store is done when this passes on it."""

import asyncio
import math
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from msgspec.structs import replace

from rag_app.domain.answer import Mode
from rag_app.domain.errors import InvalidInput, UnknownField
from rag_app.domain.filters import Filters
from rag_app.domain.scope import Scope
from rag_app.domain.source import Source
from rag_app.retrieval.filters import all_of, check_filters, condition, none_of, or_missing
from rag_app.retrieval.fusion import rank
from rag_app.retrieval.store import ScopedStore, Search
from tests.stores.conftest import DIMENSION, SPEC, Stores, chunk, vector

QUERY = vector(1.0)


async def texts(
    store: ScopedStore, query: str = "", *, mode: str = "default", k: int = 10, filters: Filters = (),
    embedding: list[float] | None = None,
) -> list[str]:  # fmt: skip
    found = await store.aquery(
        VectorStoreQuery(
            query_embedding=embedding or QUERY, query_str=query, similarity_top_k=k,
            mode=VectorStoreQueryMode(mode), filters=all_of(filters) if filters else None,
        )
    )  # fmt: skip
    return [node.get_content() for node in found.nodes or []]


@pytest.mark.parametrize(
    "wrong", [None, [0.0] * DIMENSION, [math.nan, *vector(1.0)[1:]], [math.inf] * DIMENSION, [1e5] * DIMENSION]
)
async def test_what_has_no_direction_is_refused_and_nothing_is_written(
    stores: Stores, org: UUID, scope: Scope, wrong: list[float] | None
) -> None:
    store, bad = stores(scope), chunk(org, "bad", QUERY)
    bad.embedding = wrong
    with pytest.raises(InvalidInput, match="embedding"):
        await store.async_add([chunk(org, "good", QUERY), bad])
    assert await texts(store) == []


async def test_dense_order_and_score_is_the_cosine(stores: Stores, org: UUID, scope: Scope) -> None:
    store = stores(scope)
    cosines = [0.9, 0.5, 0.0, -0.8]
    await store.async_add([chunk(org, str(cosine), vector(cosine)) for cosine in cosines])
    found = await store.aquery(VectorStoreQuery(query_embedding=QUERY, similarity_top_k=10))
    assert [node.get_content() for node in found.nodes or []] == ["0.9", "0.5", "0.0", "-0.8"]
    assert found.similarities == pytest.approx(cosines, abs=1e-5)


async def test_top_k_bounds_the_result(stores: Stores, org: UUID, scope: Scope) -> None:
    store = stores(scope)
    await store.async_add([chunk(org, str(i), vector(i / 10)) for i in range(9)])
    assert await texts(store, k=3) == ["8", "7", "6"]


@pytest.mark.parametrize("mode", Mode)
async def test_the_best_are_the_first_of_the_ranking(stores: Stores, org: UUID, scope: Scope, mode: Mode) -> None:
    """Wherever a store ranks them: `ranked` says in which order, ties by id."""
    store = stores(scope)
    cosines, bodies = (
        [0.9, 0.3, 0.3, 0.3, -0.4, 0.1],
        ["fig", "apple", "apple", "pear", "apple apple apple", "plum fig"],
    )
    await store.async_add([chunk(org, body, vector(each)) for body, each in zip(bodies, cosines, strict=True)])
    for text in ("apple", "fig apple plum", "quince"):
        ranking = rank(await store.candidates(Search(QUERY, text, (), mode, 10)), mode, SPEC.fusion)
        for top_k in (1, 3, 10):
            best = await store.best(Search(QUERY, text, (), mode, top_k, 10))
            assert [candidate.id for candidate, _ in best] == [each.id for each in ranking[:top_k]]
            assert all(UUID(node.node_id) == candidate.id for candidate, node in best)
    await store.write(
        [],
        replacing=[UUID(n.metadata["source_id"]) for _, n in await store.best(Search(QUERY, "", (), Mode.DENSE, 9, 9))],
    )
    assert await store.best(Search(QUERY, "apple", (), mode, 10, 10)) == []


async def test_lexical_is_bm25_with_stemming_and_stop_words(stores: Stores, org: UUID, scope: Scope) -> None:
    store = stores(scope)
    bodies = [
        "the cat sat with the other cats of the house",
        "a dog and the garden gate of the house",
        "the house by the river is old and the house is cold",
        "nothing here at all",
    ]
    await store.async_add([chunk(org, body, vector(0.1)) for body in bodies])
    assert (await texts(store, "Where does the cat run?", mode="text_search"))[0] == bodies[0]
    assert await texts(store, "the of and", mode="text_search") == []
    found = await texts(store, "house", mode="text_search")
    assert found[0] == bodies[2] and set(found) == set(bodies[:3])


async def test_bm25_is_the_formula(stores: Stores, org: UUID, scope: Scope) -> None:
    store = stores(scope)
    bodies = ["apple apple pear plum", "apple plum plum", "cherry plum fig date grape", "fig"]
    nodes = [chunk(org, body, vector(0.1 * i)) for i, body in enumerate(bodies)]
    await store.async_add(nodes)
    found = await store.candidates(Search(QUERY, "apple figs apple", (), Mode.TEXT, 10))
    scores = {candidate.id: candidate.bm25 for candidate in found}

    average = sum(len(body.split()) for body in bodies) / len(bodies)

    def expected(body: str) -> float:
        words, rule, total = body.split(), SPEC.bm25, 0.0
        for term, repeats in (("apple", 2), ("fig", 1)):
            df = sum(term in other.split() for other in bodies)
            idf = math.log(1 + (len(bodies) - df + 0.5) / (df + 0.5))
            tf = words.count(term)
            norm = tf + rule.k1 * (1 - rule.b + rule.b * len(words) / average)
            total += repeats * idf * tf * (rule.k1 + 1) / norm
        return total

    assert scores == pytest.approx({UUID(n.node_id): expected(b) for n, b in zip(nodes, bodies, strict=True)}, abs=1e-4)


async def test_statistics_follow_replacement_and_deletion(stores: Stores, org: UUID, scope: Scope) -> None:
    """After any history the scores are those of a fresh store with the same chunks."""
    store, other = stores(scope), uuid4()
    source = uuid4()
    keep = [chunk(org, "apple pie", vector(0.3)), chunk(org, "pear pie", vector(0.2))]
    await store.async_add([*keep, chunk(org, "apple apple tart", vector(0.1), source=source)])
    await store.write([chunk(org, "plum tart", vector(0.1), source=source, version="2")], replacing=[source])
    await store.async_add([chunk(org, "apple juice", vector(0.5), source=other)])
    await store.adelete(str(other))
    found = await store.candidates(Search(QUERY, "apple", (), Mode.TEXT, 10))
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    norm = 1 + SPEC.bm25.k1 * (1 - SPEC.bm25.b + SPEC.bm25.b * 2 / 2)
    assert [c.bm25 for c in found] == pytest.approx([idf * (SPEC.bm25.k1 + 1) / norm], abs=1e-4)


async def test_terms_of_two_languages_do_not_mix(stores: Stores, org: UUID, scope: Scope) -> None:
    store = stores(scope)
    await store.async_add(
        [
            chunk(org, "Les horaires d'ouverture du magasin", vector(0.1), lang="fr"),
            chunk(org, "The opening hours of the shop", vector(0.1), lang="en"),
            chunk(org, "Die Öffnungszeiten unserer Läden", vector(0.1), lang="de"),
        ]
    )
    assert await texts(store, "horaire des magasins", mode="text_search") == ["Les horaires d'ouverture du magasin"]
    assert await texts(store, "opening hour", mode="text_search") == ["The opening hours of the shop"]
    assert await texts(store, "Öffnungszeiten", mode="text_search") == ["Die Öffnungszeiten unserer Läden"]


async def test_hybrid_finds_what_either_leg_finds_and_shows_cosines(stores: Stores, org: UUID, scope: Scope) -> None:
    store = stores(scope)
    await store.async_add(
        [
            chunk(org, "unrelated but near", vector(0.9)),
            chunk(org, "zebra crossing far away", vector(-0.5)),
            chunk(org, "zebra and rather near", vector(0.8)),
        ]
    )
    found = await store.aquery(
        VectorStoreQuery(query_embedding=QUERY, query_str="zebra", similarity_top_k=3, mode=VectorStoreQueryMode.HYBRID)
    )
    assert next(n.get_content() for n in found.nodes or []) == "zebra and rather near"
    assert sorted(found.similarities or []) == pytest.approx([-0.5, 0.8, 0.9], abs=1e-5)


async def test_empty_store_finds_nothing(stores: Stores, scope: Scope) -> None:
    for mode in ("default", "hybrid", "text_search"):
        assert await texts(stores(scope), "anything", mode=mode) == []


async def test_write_replaces_and_delete_removes(stores: Stores, org: UUID, scope: Scope) -> None:
    store, source = stores(scope), uuid4()
    await store.async_add([chunk(org, f"old {i}", vector(0.5), source=source, position=i) for i in range(3)])
    await store.async_add([chunk(org, "bystander", vector(0.1))])
    await store.write([chunk(org, "new 0", vector(0.5), source=source, version="2")], replacing=[source])
    assert await texts(store) == ["new 0", "bystander"]
    await store.adelete(str(source))
    assert await texts(store) == ["bystander"]
    assert await texts(store, "old new", mode="text_search") == []


async def test_adding_twice_is_adding_once(stores: Stores, org: UUID, scope: Scope) -> None:
    store, node = stores(scope), chunk(org, "only once", vector(0.5))
    await store.async_add([node])
    await store.async_add([node])
    assert await texts(store) == ["only once"]
    assert await texts(store, "once", mode="hybrid") == ["only once"]


async def test_get_returns_what_was_added(stores: Stores, org: UUID, scope: Scope) -> None:
    store = stores(scope)
    meta: dict[str, Any] = {
        "title": "T",
        "section": "S > s",
        "page": 3,
        "author": "Ann",
        "tags": ["a", "b"],
        "price": 1.5,
    }
    node = chunk(org, "body", vector(0.5), **meta)
    await store.async_add([node])
    (found,) = await store.aget_nodes([node.node_id, str(uuid4())])
    assert found.get_content() == "body" and found.metadata == node.metadata
    assert found.ref_doc_id == node.metadata["source_id"]


FILTER_CASES: list[tuple[Filters, set[str]]] = [
    ((condition("author", "==", "Ann"),), {"a"}),
    ((condition("author", "in", ("Ann", "Bob")),), {"a", "b"}),
    ((condition("stylist", "!=", 5),), {"b"}),
    ((condition("stylist", "nin", (5, 6)),), {"b"}),
    ((condition("tags", "all", ("red", "blue")),), {"b"}),
    ((condition("author", "==", "ann"),), set()),
    ((condition("source_type", "==", "email"),), {"b"}),
    ((condition("lang", "==", "fr"),), {"c"}),
    ((condition("stylist", "==", 5),), {"a"}),
    ((condition("stylist", "==", "5"),), {"a"}),
    ((condition("stylist", "in", (5, 7)),), {"a", "b"}),
    ((condition("stylist", ">", 5),), {"b"}),
    ((condition("stylist", ">=", 5), condition("stylist", "<=", 7)), {"a", "b"}),
    ((condition("stylist", "<", 7),), {"a"}),
    ((condition("price", "==", 9.99),), {"a"}),
    ((condition("price", "in", (9.99, 20)),), {"a", "b"}),
    ((condition("price", ">", 9.99),), {"b"}),
    ((condition("price", "<=", 20),), {"a", "b"}),
    ((condition("in_stock", "==", True),), {"a"}),
    ((condition("in_stock", "==", "false"),), {"b"}),
    ((condition("tags", "contains", "red"),), {"a", "b"}),
    ((condition("tags", "contains", "red"), condition("tags", "contains", "blue")), {"b"}),
    ((condition("ticket", "==", "AAAAAAAA-0000-0000-0000-000000000001"),), {"a"}),
    ((condition("date", ">=", "2026-01-15"),), {"a", "b"}),
    ((condition("date", "<=", "2026-01-15"),), {"a", "c"}),
    ((condition("date", "==", "2026-01-15"),), {"a"}),
    ((condition("date", ">", "2026-01-15"),), {"b"}),
    ((condition("date", "<", "2026-01-15T23:59:59.5Z"),), {"c"}),
    ((condition("due", ">=", "2026-03-01"),), {"b"}),
    ((condition("author", "==", "Ann"), condition("stylist", "==", 7)), set()),
]


@pytest.mark.parametrize("mode", ["default", "text_search", "hybrid"])
async def test_every_operator_on_every_type(stores: Stores, org: UUID, scope: Scope, mode: str) -> None:
    """A chunk without the field (c has hardly any) matches no condition on it."""
    store = stores(scope)
    await store.async_add(things(org))
    for filters, expected in FILTER_CASES:
        assert set(await texts(store, "word", mode=mode, filters=filters)) == expected, filters


def things(org: UUID) -> list[TextNode]:
    return [
        chunk(
            org, "a", vector(0.5), title="word", author="Ann", stylist=5, price=9.99, in_stock=True, tags=["red"],
            ticket="aaaaaaaa-0000-0000-0000-000000000001", date=1768521599.75,  # 2026-01-15T23:59:59.75Z
        ),
        chunk(
            org, "b", vector(0.4), title="word", author="Bob", stylist=7, price=20.0, in_stock=False,
            tags=["red", "blue"], source_type="email", date=1769000000.0, due=1772400000.0,
        ),
        chunk(org, "c", vector(0.3), title="word", lang="fr", date=1.0),
    ]  # fmt: skip


MISSING = {"ticket": {"b", "c"}, "due": {"a", "c"}} | {
    field: {"c"} for field in ("author", "stylist", "price", "in_stock", "tags")
}


@pytest.mark.parametrize("mode", ["default", "text_search", "hybrid"])
async def test_or_the_field_is_missing(stores: Stores, org: UUID, scope: Scope, mode: str) -> None:
    """What has the field is judged as ever, what has not passes; of two conditions each by itself."""
    store, undated = stores(scope), chunk(org, "d", vector(0.2), title="word", date=None, tags=[], author="")
    await store.async_add([*things(org), undated])
    for given, expected in FILTER_CASES:
        filters = [each for each in given if isinstance(each, MetadataFilter)]
        lenient = tuple(map(or_missing, filters))
        fields = {each.key for each in filters}
        without = {
            name
            for name, lacks in {
                "c": fields <= {field for field, missing in MISSING.items() if "c" in missing},
                "d": fields <= {*MISSING, "date"} - {"author"},  # an empty text is one; no tags are none
            }.items()
            if lacks
        }
        for name in "ab":
            missing = {field for field, missing in MISSING.items() if name in missing}
            others = [each for each in filters if each.key not in missing]
            if len(others) < len(filters) and not others:
                without.add(name)
        assert set(await texts(store, "word", mode=mode, filters=lenient)) == expected | without, lenient


async def test_some_conditions_may_be_missing_and_others_not(stores: Stores, org: UUID, scope: Scope) -> None:
    store, nodes = stores(scope), things(org)
    await store.async_add(nodes)
    ann = or_missing(condition("author", "==", "Ann"))
    assert await texts(store, filters=(ann,)) == ["a", "c"]
    assert await texts(store, filters=(ann, condition("lang", "==", "fr"))) == ["c"]
    assert await texts(store, filters=(ann, condition("stylist", ">", 4))) == ["a"]
    assert await texts(store, filters=(condition("author", "is_empty"),)) == ["c"]
    found = await store.aget_nodes([each.node_id for each in nodes], all_of(check_filters((ann,), SPEC)))
    assert [each.get_content() for each in found] == ["a", "c"]
    with pytest.raises(UnknownField):
        await texts(store, filters=(or_missing(condition("colour", "==", "red")),))
    with pytest.raises(InvalidInput):
        await texts(store, filters=(or_missing(condition("author", ">", "A")),))


@pytest.mark.parametrize("mode", ["default", "text_search", "hybrid"])
async def test_a_missing_field_opens_no_door(stores: Stores, org: UUID, mode: str) -> None:
    """Of another organization, private to another user or of another site: not seen, with the field or without."""
    other, ann, north = uuid4(), uuid4(), uuid4()
    await stores(Scope(frozenset({other}))).async_add([chunk(other, "word foreign", vector(0.9))])
    mine = [
        chunk(org, "word mine", vector(0.1), site_id=str(north)),
        chunk(org, "word ann's", vector(0.2), private_to=str(ann), owner_id=str(ann), site_id=str(north)),
        chunk(org, "word elsewhere", vector(0.3)),
    ]
    await stores(Scope(frozenset({org}))).async_add(mine)
    store = stores(Scope(frozenset({org}), uuid4(), north))
    for given in (
        condition("author", "==", "x' OR '1'='1"), condition("tags", "contains", "red"), condition("stylist", "<", 1),
        condition("due", ">=", "2026-01-01"), condition("in_stock", "==", True),
    ):  # fmt: skip
        lenient = or_missing(given)
        assert await texts(store, "word", mode=mode, filters=(lenient,)) == ["word mine"], given
    foreign = or_missing(condition("org_id", "==", str(other)))
    assert await texts(store, "word", mode=mode, filters=(foreign,)) == []


async def test_what_is_not_in_the_closed_set_is_refused(stores: Stores, scope: Scope) -> None:
    store = stores(scope)
    with pytest.raises(UnknownField, match=r"colour.*accepted: author, date, due"):
        await texts(store, filters=(condition("colour", "==", "red"),))
    for field, operator, value in [
        ("author", ">", "A"), ("tags", "==", "red"), ("stylist", "==", "five"),
        ("stylist", "==", 2**63), ("price", "==", "nan"), ("price", "<", "inf"),
        ("in_stock", "==", "maybe"), ("ticket", "==", "x"), ("date", ">", "soon"),
        ("author", "==", "a\0b"), ("author", "==", "\ud800"), ("author", "in", "Ann"),
    ]:  # fmt: skip
        with pytest.raises(InvalidInput):
            await texts(store, filters=(condition(field, operator, cast("str | int", value)),))
    words = MetadataFilters(filters=[MetadataFilter(key="lang", value="en", operator="text_match")])
    empty = MetadataFilters(filters=[])
    deep = none_of([none_of([none_of([none_of([condition("lang", "==", "en")])])])])
    for filters in (
        words,
        empty,
        MetadataFilters(filters=[words, empty]),
        deep,
        all_of([condition("lang", "==", "en")] * 51),
    ):
        with pytest.raises(InvalidInput):
            await store.aquery(VectorStoreQuery(query_embedding=QUERY, filters=filters))
    for mode in (VectorStoreQueryMode.MMR, VectorStoreQueryMode.SVM):
        with pytest.raises(InvalidInput, match="mode"):
            await store.aquery(VectorStoreQuery(query_embedding=QUERY, mode=mode))
    with pytest.raises(InvalidInput):
        await store.aquery(VectorStoreQuery(query_embedding=QUERY, doc_ids=["x"]))
    with pytest.raises(InvalidInput):
        await store.aquery(VectorStoreQuery(query_embedding=QUERY), qdrant_filters="anything")


HOSTILE = [
    "x' OR '1'='1", "'; DROP TABLE organizations; --", '"', "\\", "%", "_", "*", "$1", "{}", "NULL", "' OR 1=1 --",
    "en' UNION SELECT * FROM users --", "🦄", "A" * 5000, "\n", "${jndi}", "{{7*7}}", "0042", "1e10", "nan",
]  # fmt: skip


async def test_hostile_values_are_just_values(stores: Stores, org: UUID, scope: Scope) -> None:
    store, other = stores(scope), uuid4()
    await stores(Scope(frozenset({other}))).async_add([chunk(other, "secret", vector(0.9), author="Eve")])
    await store.async_add([chunk(org, value, vector(0.1), author=value) for value in HOSTILE])
    for value in HOSTILE:
        for mode in ("default", "hybrid", "text_search"):
            found = await texts(store, value, mode=mode, filters=(condition("author", "==", value),))
            assert set(found) <= {value}
        assert await texts(store, filters=(condition("author", "==", value),)) == [value]
        with pytest.raises(UnknownField):
            await texts(store, filters=(condition(value, "==", "x"),))
        assert "secret" not in await texts(store, value, mode="hybrid", k=100)


async def test_a_scope_sees_its_organizations_only(stores: Stores) -> None:
    a, b, c = uuid4(), uuid4(), uuid4()
    for org, text in ((a, "of a"), (b, "of b"), (c, "of c")):
        await stores(Scope(frozenset({org}))).async_add([chunk(org, text, vector(0.5))])
    assert await texts(stores(Scope(frozenset({a})))) == ["of a"]
    assert sorted(await texts(stores(Scope(frozenset({a, c}))))) == ["of a", "of c"]
    both = stores(Scope(frozenset({a, c})))
    for mode in ("default", "hybrid", "text_search"):
        assert await texts(both, "of", mode=mode, filters=(condition("org_id", "==", str(b)),)) == []
    assert sorted(await texts(both, filters=(condition("org_id", "==", str(c)),))) == ["of c"]


async def test_a_foreign_chunk_can_be_neither_got_nor_replaced_nor_deleted(stores: Stores, org: UUID) -> None:
    mine, theirs = uuid4(), stores(Scope(frozenset({org})))
    node = chunk(org, "theirs", vector(0.5))
    await theirs.async_add([node])
    intruder = stores(Scope(frozenset({mine})))
    assert await intruder.aget_nodes([node.node_id]) == []
    await intruder.adelete(node.metadata["source_id"])
    with pytest.raises(InvalidInput):
        await intruder.async_add([chunk(org, "forged", vector(0.9))])
    assert await texts(theirs) == ["theirs"]


async def test_private_chunks_and_sites(stores: Stores, org: UUID) -> None:
    ann, bob, north, south = uuid4(), uuid4(), uuid4(), uuid4()
    team = Scope(frozenset({org}))
    await stores(team).async_add(
        [
            chunk(org, "for everybody", vector(0.5), site_id=str(north)),
            chunk(org, "for ann", vector(0.4), private_to=str(ann), owner_id=str(ann), site_id=str(south)),
            chunk(org, "for bob", vector(0.3), private_to=str(bob), owner_id=str(bob)),
        ]
    )
    for mode in ("default", "hybrid", "text_search"):

        async def seen(user: UUID | None = None, site: UUID | None = None, mode: str = mode) -> set[str]:
            return set(await texts(stores(Scope(frozenset({org}), user, site)), "everybody ann bob", mode=mode))

        assert await seen() == {"for everybody"}
        assert await seen(ann) == {"for everybody", "for ann"}
        assert await seen(ann, south) == {"for ann"}
        assert await seen(bob, north) == {"for everybody"}
        assert await seen(uuid4()) == {"for everybody"}
        assert await seen(ann, uuid4()) == set()


async def test_words_are_put_right_by_what_the_scope_may_see(stores: Stores, org: UUID) -> None:
    ann, north, south, other = uuid4(), uuid4(), uuid4(), uuid4()
    team = Scope(frozenset({org}))
    await stores(Scope(frozenset({other}))).async_add([chunk(other, "A marimba.", vector(0.5))])
    await stores(team).async_add(
        [
            chunk(
                org, "The harpsichord of Harriet, and a clarinet; she blows it dry.", vector(0.5), site_id=str(north)
            ),
            chunk(org, "A bassoon.", vector(0.4), private_to=str(ann), owner_id=str(ann)),
            chunk(org, "Le hautbois.", vector(0.3), lang="fr", site_id=str(south)),
        ]
    )

    async def right(*words: str, user: UUID | None = None, site: UUID | None = None) -> dict[str, str]:
        return await stores(Scope(frozenset({org}), user, site)).respell(words)

    assert await right("hariet", "harpsicord") == {"hariet": "harriet", "harpsicord": "harpsichord"}
    assert await right("blowdry", "hautbios") == {"blowdry": "blow dry", "hautbios": "hautbois"}
    assert await right("clarinets", "zwibbel") == {}, "a form of a word that is there, and nothing like any"
    assert await right("marimbo") == {}, "another organization's word"
    assert await right("basoon") == {} and await right("basoon", user=uuid4()) == {}, "somebody's own word"
    assert await right("basoon", user=ann) == {"basoon": "bassoon"}
    assert await right("hariet", "hautbios", site=south) == {"hautbios": "hautbois"}
    assert await right() == {} == await right("%'; DROP", "\\", "")


async def test_a_count_is_of_what_the_scope_may_see(stores: Stores, org: UUID) -> None:
    ann, north, other, source = uuid4(), uuid4(), uuid4(), uuid4()
    await stores(Scope(frozenset({other}))).async_add([chunk(other, "foreign", vector(0.5))])
    assert await stores(Scope(frozenset({org}))).count() == 0
    await stores(Scope(frozenset({org}))).async_add(
        [
            *(chunk(org, f"part {i}", vector(0.1 * i), source=source, position=i) for i in range(3)),
            chunk(org, "for everybody", vector(0.5), site_id=str(north)),
            chunk(org, "for ann", vector(0.4), private_to=str(ann), owner_id=str(ann), site_id=str(north)),
        ]
    )
    team = stores(Scope(frozenset({org})))
    assert await team.count() == 4
    assert await stores(Scope(frozenset({org}), ann)).count() == 5
    assert await stores(Scope(frozenset({org, other}), ann)).count() == 6
    assert await stores(Scope(frozenset({org}), uuid4(), north)).count() == 1
    assert await stores(Scope(frozenset({org}), ann, north)).count() == 2
    assert await stores(Scope(frozenset({uuid4()}))).count() == 0
    await team.write([chunk(org, "whole", vector(0.1), source=source, version="2")], replacing=[source])
    assert await team.count() == 2
    await team.adelete(str(source))
    assert await team.count() == 1


async def test_concurrent_scopes_do_not_mix(stores: Stores) -> None:
    orgs = [uuid4() for _ in range(8)]
    for org in orgs:
        await stores(Scope(frozenset({org}))).async_add([chunk(org, f"{org} {i}", vector(0.1 * i)) for i in range(5)])

    async def ask(org: UUID) -> None:
        found = await texts(stores(Scope(frozenset({org}))), str(org), mode="hybrid", k=20)
        assert len(found) == 5 and all(text.startswith(str(org)) for text in found)

    await asyncio.gather(*(ask(org) for org in orgs * 8))


async def test_concurrent_writes_of_one_source_leave_one_version(stores: Stores, org: UUID, scope: Scope) -> None:
    source = uuid4()

    async def write(version: int) -> None:
        nodes = [
            chunk(org, f"v{version} {i}", vector(0.1), source=source, position=i, version=str(version))
            for i in range(3)
        ]
        await stores(scope).write(nodes, replacing=[source])

    await asyncio.gather(*(write(version) for version in range(6)))
    found = await texts(stores(scope), k=50)
    assert len(found) == 3 and len({text.split()[0] for text in found}) == 1


async def test_works_as_a_llamaindex_vector_store(stores: Stores, org: UUID, scope: Scope) -> None:
    store, stranger = stores(scope), uuid4()
    await stores(Scope(frozenset({stranger}))).async_add([chunk(stranger, "foreign", [DIMENSION**-0.5] * DIMENSION)])
    await store.async_add(
        [chunk(org, "english", vector(0.5)), chunk(org, "français", vector(0.5), lang="fr")],
    )
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(DIMENSION))
    filters = MetadataFilters(filters=[MetadataFilter(key="lang", value="fr")])
    nodes = await index.as_retriever(filters=filters, similarity_top_k=5).aretrieve("anything")
    assert [node.get_content() for node in nodes] == ["français"]
    nodes = await index.as_retriever(similarity_top_k=5, vector_store_query_mode="hybrid").aretrieve("anything")
    assert {node.get_content() for node in nodes} == {"english", "français"}


def test_checked_filters_are_idempotent() -> None:
    for filters, _ in FILTER_CASES:
        checked = check_filters(filters, SPEC)
        assert check_filters(checked, SPEC) == checked


async def test_a_chunk_is_told_where_its_source_stands_now(stores: Stores, org: UUID) -> None:
    other = uuid4()
    mine, theirs = (Source(each, "things", "a.csv#1", "", "doc", "1") for each in (org, other))
    old: dict[str, Any] = {"file_name": "a.csv", "row": 2, "sheet": "One", "untyped": {"note": None}}
    for source in (mine, theirs):
        node = chunk(source.org_id, "a row", vector(1.0), source=source.id, **old)
        await stores(Scope(frozenset({source.org_id}))).write([node])
    store = stores(Scope(frozenset({org})))
    await store.move([replace(each, file_name="b.csv", row=7) for each in (mine, theirs)])
    (moved,) = await store.export([mine.id, theirs.id])
    assert {key: moved.metadata.get(key) for key in old} == {
        "file_name": "b.csv",
        "row": 7,
        "sheet": None,
        "untyped": {"note": None},
    }
    (kept,) = await stores(Scope(frozenset({other}))).export([theirs.id])
    assert kept.metadata["row"] == 2
