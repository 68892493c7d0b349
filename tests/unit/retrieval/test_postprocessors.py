from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, strategies as st
from llama_index.core.postprocessor import LongContextReorder
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, TextNode

from rag_app.domain import Question, Scope
from rag_app.retrieval.postprocessors import (
    GuardedPostprocessor,
    Step,
    cut_below,
    deduplicate,
    keep_at_most,
    keep_best_sources,
    lift,
    lift_matches,
    places_of,
    postprocessors_for,
    put_first,
    rank_alerts,
    rank_by_opportunity,
    rank_by_owner,
    rank_by_sales,
    step,
)

PUBLIC, TEAM, ANN = uuid4(), uuid4(), uuid4()


def node(
    name: str, score: float, *, source: str | UUID = "s", org: UUID = TEAM, owner: UUID | None = None,
    source_type: str = "doc", **metadata: object,
) -> NodeWithScore:  # fmt: skip
    meta = {"source_id": str(source), "org_id": str(org), "source_type": source_type, "title": name, **metadata}
    meta |= {"owner_id": str(owner)} if owner else {}
    return NodeWithScore(node=TextNode(text=name, metadata=meta), score=score)


def names(nodes: list[NodeWithScore]) -> list[str]:
    return [each.node.get_content() for each in nodes]


async def test_cutoff_looks_at_the_cosine_and_keeps_the_order() -> None:
    nodes = [node("b", 0.4), node("a", 0.9), node("c", 0.39), node("d", -0.1)]
    assert names(await step(cut_below, threshold=0.4).apostprocess_nodes(nodes)) == ["b", "a"]
    assert names(await step(cut_below, threshold=-1).apostprocess_nodes(nodes)) == ["b", "a", "c", "d"]


async def test_deduplication_keeps_the_first_of_each_source() -> None:
    nodes = [
        node("a1", 0.9, source="a"),
        node("b1", 0.8, source="b"),
        node("a2", 0.7, source="a"),
        node("a3", 0.6, source="a"),
    ]
    assert names(await step(deduplicate).apostprocess_nodes(nodes)) == ["a1", "b1"]
    assert names(await step(deduplicate, keep=2).apostprocess_nodes(nodes)) == ["a1", "b1", "a2"]


def rescored(nodes: list[NodeWithScore]) -> list[NodeWithScore]:
    return [NodeWithScore(node=each.node, score=-rank) for rank, each in enumerate(reversed(nodes))]


@pytest.mark.parametrize(
    ("own", "kept", "shown"),
    [
        ((LongContextReorder(),), "ab", "ba"),
        ((Step(choose=lambda nodes: nodes[::-1]),), "ab", "ba"),
        ((Step(choose=lambda nodes: nodes),), "ab", "ab"),
        ((Step(choose=rescored),), "dc", "dc"),
        ((Step(choose=lambda nodes: nodes[:0:-1]),), "dc", "dc"),
        ((Step(choose=rescored), Step(choose=lambda nodes: nodes[::-1])), "dc", "cd"),
        ((LongContextReorder(), Step(choose=lambda nodes: nodes[1:])), "ac", "ca"),
        ((LongContextReorder(), Step(choose=lambda nodes: 1 / 0)), "ab", "ba"),
    ],
)  # fmt: skip
async def test_a_mere_order_of_somebodys_own_does_not_choose(
    own: list[BaseNodePostprocessor], kept: str, shown: str
) -> None:
    nodes = [node(name, score, source=name) for name, score in (("a", 0.9), ("b", 0.8), ("c", 0.7), ("d", 0.6))]
    guarded = [GuardedPostprocessor(inner=each, seconds=60) for each in own]
    steps = postprocessors_for(Question("?", top_k=2), Scope(frozenset({TEAM})), own=guarded)
    for each in steps:
        nodes = await each.apostprocess_nodes(nodes)
    places = places_of(steps)
    in_places = sorted(nodes, key=lambda each: places[each.node.node_id]) if places else nodes
    assert ("".join(names(nodes)), "".join(names(in_places))) == (kept, shown)
    assert all(each.score == {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}[each.node.get_content()] for each in nodes)


async def test_owner_then_team_then_public_among_the_good_ones() -> None:
    nodes = [
        node("public", 0.9, org=PUBLIC), node("team", 0.88), node("mine", 0.85, owner=ANN),
        node("mine, but far", 0.5, owner=ANN), node("other's", 0.86, owner=uuid4()),
    ]  # fmt: skip
    prefer = step(lift, rank=partial(rank_by_owner, user=ANN, public=PUBLIC))
    assert names(await prefer.apostprocess_nodes(nodes)) == ["mine", "team", "other's", "public", "mine, but far"]
    nobody = step(lift, rank=partial(rank_by_owner, user=None, public=PUBLIC))
    assert names(await nobody.apostprocess_nodes(nodes))[0] == "team"
    assert await prefer.apostprocess_nodes([]) == []


async def test_high_opportunity_first_then_what_has_none() -> None:
    """The scores of the sample keywords: 46, 20 and 41."""
    nodes = [
        node("trend", 0.8),
        node("moissanite", 0.79, demand_index=91, competition_score=78),
        node("half", 0.78, demand_index=99),
        node("vintage", 0.77, demand_index=85, competition_score=46),
        node("box", 0.76, demand_index=58.0, competition_score=29),
        node("yes", 0.76, demand_index=True, competition_score=False),
        node("far", 0.69, demand_index=100, competition_score=0),
    ]
    found = names(await step(lift, rank=rank_by_opportunity).apostprocess_nodes(nodes))
    assert found == ["vintage", "box", "moissanite", "trend", "half", "yes", "far"]


async def test_ones_own_first_then_what_sells() -> None:
    nodes = [
        node("unsold", 0.8), node("little", 0.79, sales=3), node("much", 0.78, sales=48900),
        node("mine", 0.77, sales=1, owner=ANN), node("mine, unsold", 0.76, owner=ANN), node("far", 0.6, sales=10**9),
    ]  # fmt: skip
    found = names(await step(lift, rank=partial(rank_by_sales, user=ANN)).apostprocess_nodes(nodes))
    assert found == ["mine", "mine, unsold", "much", "little", "unsold", "far"]
    assert names(await step(lift, rank=partial(rank_by_sales, user=None)).apostprocess_nodes(nodes))[:3] == [
        "much",
        "little",
        "mine",
    ]


@pytest.mark.parametrize(
    ("text", "terms", "first"),
    [
        ("Why is velvet ring tray growing?", (), "tray"),
        ("Why are Velvet  Ring-Trays growing?", (), "tray"),  # a plural s, case and blanks do not matter
        ("Why is it growing?", ("VELVET RING TRAY",), "tray"),
        ("Why is velvet ring trayful growing?", (), "ring sizer"),  # no whole words: as it was
        ("Is the ring sizer worth it?", (), "ring sizer"),  # a title
        ("Why is proposal ring tray growing?", (), "tray"),  # related
        ("Why?", ("proposal",), "ring sizer"),  # a term is the whole of it
        ("", (), "ring sizer"),
        ("(.*)[", ("(.*)[", "", "?"), "ring sizer"),
    ],
)
async def test_an_exact_match_first(text: str, terms: tuple[str, ...], first: str) -> None:
    nodes = [
        node("ring sizer", 0.8),
        node("blank", 0.79, term="", related_terms=["", "?"]),
        node("tray", 0.75, term="velvet ring tray", related_terms=["proposal ring tray"]),
    ]
    assert names(await lift_matches(text, terms).apostprocess_nodes(nodes))[0] == first


async def test_exact_then_related_then_similar() -> None:
    nodes = [
        node("other", 0.8), node("related", 0.75, related_terms=["linen apron"]),
        node("history", 0.72, term="linen apron"), node("keyword", 0.74, term="linen apron"),
        node("far", 0.6, term="linen apron"),
    ]  # fmt: skip
    found = names(await lift_matches("why linen apron").apostprocess_nodes(nodes))
    assert found == ["keyword", "history", "far", "related", "other"]


async def test_alerts_of_the_user_then_of_the_team_then_rules() -> None:
    nodes = [
        node("page", 0.8, owner=ANN), node("rule", 0.79, source_type="risk_rule", org=PUBLIC),
        node("team's", 0.78, source_type="alert"), node("bob's", 0.77, source_type="alert", owner=uuid4()),
        node("mine", 0.76, source_type="alert", owner=ANN), node("public", 0.75, source_type="alert", org=PUBLIC),
        node("far", 0.6, source_type="alert", owner=ANN),
    ]  # fmt: skip
    found = names(
        await step(lift, rank=partial(rank_alerts, user=ANN, public=PUBLIC), within=0.4).apostprocess_nodes(nodes)
    )
    assert found == ["mine", "far", "team's", "bob's", "public", "rule", "page"]


A, B, C, D = (uuid4() for _ in range(4))


async def test_what_was_named_comes_first_and_is_cut_last() -> None:
    nodes = [
        node("a", 0.9, source=A, source_type="keyword"), node("b", 0.8, source=B, source_type="keyword"),
        node("doc", 0.7, source=C), node("d", -0.2, source=D, source_type="keyword"),
        node("d2", -0.3, source=D, source_type="keyword"),
    ]  # fmt: skip
    named = await step(put_first, sources=frozenset({D, uuid4()})).apostprocess_nodes(nodes)
    assert names(named) == ["d", "d2", "a", "b", "doc"]
    assert names(await step(keep_at_most, limits={"keyword": 2}).apostprocess_nodes(named)) == ["d", "d2", "a", "doc"]
    assert names(await step(keep_at_most, limits={"keyword": 0, "doc": 5}).apostprocess_nodes(named)) == ["doc"]
    assert names(await step(keep_at_most, limits={}).apostprocess_nodes(named)) == names(named)


async def test_the_best_sources_with_their_best_chunks() -> None:
    nodes = [
        node("a1", 0.9, source=A), node("a2", 0.89, source=A), node("b1", 0.88, source=B), node("a3", 0.87, source=A),
        node("c1", 0.85, source=C, owner=ANN), node("d1", 0.1, source=D),
    ]  # fmt: skip

    async def kept(top_k: int, **more: object) -> list[str]:
        return names(await step(keep_best_sources, top_k=top_k, chunks=2, **more).apostprocess_nodes(nodes))

    assert await kept(2) == ["a1", "a2", "b1"]
    assert await kept(9) == ["a1", "a2", "b1", "c1", "d1"]
    assert await kept(2, user=ANN) == ["a1", "a2", "c1"]  # one's own is always there, where it is relevant
    assert await kept(2, user=ANN, within=0.01) == ["a1", "a2", "b1"]
    assert await kept(2, user=ANN, named=frozenset({D})) == ["c1", "d1"]
    assert await kept(1, user=ANN, named=frozenset({D})) == ["d1"]


STRATEGIES = [
    step(lift, rank=rank_by_opportunity), step(lift, rank=partial(rank_by_sales, user=ANN)), lift_matches("one two", ("three",)),
    step(lift, rank=partial(rank_alerts, user=ANN, public=PUBLIC), within=0.4), step(lift, rank=partial(rank_by_owner, user=ANN, public=PUBLIC)), step(put_first, sources=frozenset({A})),
]  # fmt: skip


@given(
    st.sampled_from(STRATEGIES),
    st.lists(
        st.builds(
            lambda score, org, owner, kind, metadata: node(
                "x", score, source=A, org=org, owner=owner, source_type=kind, **metadata
            ),
            st.sampled_from([-0.2, 0.5, 0.55, 0.6, 0.9]),
            st.sampled_from([PUBLIC, TEAM]),
            st.sampled_from([None, ANN]),
            st.sampled_from(["alert", "risk_rule", "doc"]),
            st.fixed_dictionaries(
                {},
                optional={
                    "sales": st.integers(-9, 9), "demand_index": st.floats(0, 100), "competition_score": st.just(5),
                    "term": st.sampled_from(["one", "three", ""]), "related_terms": st.just(["two"]),
                },
            ),
        ),
        max_size=12,
    ),
)  # fmt: skip
def test_an_order_loses_nothing_and_lifts_nothing_far_over_the_good(strategy: Step, nodes: list[NodeWithScore]) -> None:
    chosen: Any = strategy.choose
    ordered = strategy.postprocess_nodes(nodes)
    assert sorted(map(id, ordered)) == sorted(map(id, nodes))
    near = [
        (each.score or 0) >= max((n.score or 0 for n in nodes), default=0) - chosen.keywords.get("within", 0.1)
        for each in ordered
    ]
    assert chosen.func is put_first or near == sorted(near, reverse=True)
    assert strategy.postprocess_nodes(ordered) == ordered
