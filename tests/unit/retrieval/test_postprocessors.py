from uuid import UUID, uuid4

from llama_index.core.schema import NodeWithScore, TextNode

from rag_app.retrieval.postprocessors import DeduplicateBySource, OwnerPreference, SimilarityCutoff

PUBLIC, TEAM, ANN = uuid4(), uuid4(), uuid4()


def node(name: str, score: float, *, source: str = "s", org: UUID = TEAM, owner: UUID | None = None) -> NodeWithScore:
    meta = {"source_id": source, "org_id": str(org), **({"owner_id": str(owner)} if owner else {})}
    return NodeWithScore(node=TextNode(text=name, metadata=meta), score=score)


def names(nodes: list[NodeWithScore]) -> list[str]:
    return [each.node.get_content() for each in nodes]


async def test_cutoff_looks_at_the_cosine_and_keeps_the_order() -> None:
    nodes = [node("b", 0.4), node("a", 0.9), node("c", 0.39), node("d", -0.1)]
    assert names(await SimilarityCutoff(threshold=0.4).apostprocess_nodes(nodes)) == ["b", "a"]
    assert names(await SimilarityCutoff(threshold=-1).apostprocess_nodes(nodes)) == ["b", "a", "c", "d"]


async def test_deduplication_keeps_the_first_of_each_source() -> None:
    nodes = [
        node("a1", 0.9, source="a"),
        node("b1", 0.8, source="b"),
        node("a2", 0.7, source="a"),
        node("a3", 0.6, source="a"),
    ]
    assert names(await DeduplicateBySource().apostprocess_nodes(nodes)) == ["a1", "b1"]
    assert names(await DeduplicateBySource(keep=2).apostprocess_nodes(nodes)) == ["a1", "b1", "a2"]


async def test_owner_then_team_then_public_among_the_good_ones() -> None:
    nodes = [
        node("public", 0.9, org=PUBLIC), node("team", 0.88), node("mine", 0.85, owner=ANN),
        node("mine, but far", 0.5, owner=ANN), node("other's", 0.86, owner=uuid4()),
    ]  # fmt: skip
    prefer = OwnerPreference(user=ANN, public=PUBLIC)
    assert names(await prefer.apostprocess_nodes(nodes)) == ["mine", "team", "other's", "public", "mine, but far"]
    nobody = OwnerPreference(user=None, public=PUBLIC)
    assert names(await nobody.apostprocess_nodes(nodes))[0] == "team"
    assert await prefer.apostprocess_nodes([]) == []
