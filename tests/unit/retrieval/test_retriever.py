"""Filters that give way, sources that are named, and one embedding for all of it."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from llama_index.core.schema import QueryBundle
from msgspec.structs import replace

from rag_app.domain.answer import Hit, Mode, Question
from rag_app.domain.errors import EmbeddingFailed, StoreFailed
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.retrieval.embedders import build_embedder
from rag_app.retrieval.embedding import embed_query
from rag_app.retrieval.filters import condition, or_missing
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.retriever import ChunkRetriever
from tests.scripted_model import Reply, ScriptedModel
from tests.unit.answering.hits import hit
from tests.unit.retrieval.shelf import Counted, Shelf, opening

SPEC = IndexSpec(name="things", source_types=("faq", "call"), default_source_type="faq", fields={"market": "keyword"})
ETSY, CALLS = or_missing(condition("market", "==", "etsy")), condition("source_type", "==", "call")


class Shop:
    """A retriever over these hits. `found` is what it retrieves, by text; `asked` how often the store was asked."""

    def __init__(self, *hits: Hit, **options: Any) -> None:
        self.backend: dict[str, Any] = {"hits": hits, "asked": []}
        store = Shelf(spec=SPEC, generation="g1", scope=Scope(frozenset({PUBLIC_ORGANIZATION})), backend=self.backend)
        self.embedder = Counted(embed_dim=3)
        self.retriever = ChunkRetriever(opening(store), self.embedder, Question("", **({"mode": Mode.DENSE} | options)))

    async def found(self) -> list[str]:
        return [each.node.get_content() for each in await self.retriever.aretrieve("What now?")]

    @property
    def asked(self) -> int:
        return len(self.backend["asked"])


def market(name: str, score: float, where: str | None) -> Hit:
    return hit(name, score=score, metadata={"market": where} if where else {})


ETSY_2, AMAZON, NOWHERE, ETSY_1 = (
    market("e2", 0.5, "etsy"), market("a", 0.9, "amazon"), market("n", 0.7, None), market("e1", 0.8, "etsy"),
)  # fmt: skip
ALL = (ETSY_2, AMAZON, NOWHERE, ETSY_1)


@pytest.mark.parametrize(
    ("enough", "found", "asked"),
    [(1, ["e1", "n", "e2"], 1), (3, ["e1", "n", "e2"], 1), (4, ["a", "e1", "n", "e2"], 2), (99, ["a", "e1", "n", "e2"], 2)],
)  # fmt: skip
async def test_what_is_preferred_gives_way_where_it_leaves_too_little(
    enough: int, found: list[str], asked: int
) -> None:
    shop = Shop(*ALL, preferred=(ETSY,), enough=enough)
    assert await shop.found() == found
    assert (shop.asked, shop.embedder.embedded) == (asked, ["What now?"])


async def test_what_is_demanded_never_gives_way() -> None:
    shop = Shop(*ALL, filters=(ETSY,), preferred=(CALLS,), enough=5)
    assert await shop.found() == ["e1", "n", "e2"] and shop.asked == 2
    shop = Shop(*ALL, filters=(CALLS,), enough=5)
    assert await shop.found() == [] and shop.asked == 1  # nothing preferred: nothing to ask again for


async def test_named_sources_come_first_whatever_filters_say_and_once() -> None:
    shop = Shop(*ALL, filters=(ETSY,), sources=(AMAZON.source_id, ETSY_2.source_id, uuid4()), mode=Mode.HYBRID)
    assert await shop.found() == ["a", "e2", "e1", "n"]
    assert shop.embedder.embedded == ["What now?"]
    named = shop.backend["asked"][0]
    assert [each.key for each in named[0]] == ["source_id"] and named[1] is Mode.DENSE


async def test_a_long_source_does_not_crowd_out_the_others() -> None:
    long, short, last = uuid4(), uuid4(), uuid4()
    chunks = [hit(f"long {n}", source=long, position=n, score=0.9 - n / 1000) for n in range(40)]
    shop = Shop(
        *chunks, hit("short", source=short, score=0.1), hit("last", source=last, score=-0.5), top_k=5,
        sources=(long, short, last, uuid4()),
    )  # fmt: skip
    found = await shop.found()
    assert found[0] == "long 0" and found[-2:] == ["short", "last"] and len(found) == 7
    assert shop.asked == 3  # the long one; the others, which are less than asked for; what was searched


async def test_more_of_the_sources_that_were_found_is_their_neighbours_first_within_filters() -> None:
    long, other = uuid4(), uuid4()
    chunks = [hit(f"{n}", source=long, position=n, score=0.9 - n / 100, metadata={"market": "etsy"}) for n in range(9)]
    chunks[4] = replace(chunks[4], metadata={"market": "amazon"})
    shop = Shop(*chunks, hit("other", source=other, score=0.95), filters=(ETSY,), top_k=1)
    found = await shop.retriever.aretrieve("What now?")
    assert [node.node.get_content() for node in found] == ["other"]
    nothing = await shop.retriever.further("What now?", found)
    assert nothing == []
    there = [
        node for node in await Shop(*chunks).retriever.aretrieve("What now?") if node.node.metadata["position"] == 5
    ]
    more = await shop.retriever.further("What now?", there)
    assert [node.node.get_content() for node in more] == ["6", "0", "1", "2", "3", "7", "8"]
    assert [node.score for node in more][:2] == [pytest.approx(0.84), pytest.approx(0.9)]
    assert shop.embedder.embedded == ["What now?"]


async def test_a_query_with_its_vector_is_not_embedded() -> None:
    shop = Shop(*ALL, preferred=(ETSY,), enough=9, sources=(AMAZON.source_id,))
    await shop.retriever.aretrieve(QueryBundle("What now?", embedding=[1.0, 0.0, 0.0]))
    assert shop.embedder.embedded == [] and shop.asked == 3


async def test_what_cannot_be_reached_says_so_when_asked() -> None:
    with pytest.raises(StoreFailed, match="gone"):
        await ChunkRetriever(opening(StoreFailed("gone")), Counted(embed_dim=3), Question("")).aretrieve("?")
    assert isinstance(ETSY_1.source_id, UUID)


async def test_a_vector_of_another_length_is_the_embedder_s_fault() -> None:
    shop = Shop(hit("Here."))
    retriever = ChunkRetriever(shop.retriever._open_store, shop.embedder, Question(""), dimension=384)
    with pytest.raises(EmbeddingFailed, match="answered with 3 dimensions, not 384"):
        await retriever.aretrieve("What now?")
    assert shop.asked == 0


async def test_a_failing_embedder_is_asked_twice() -> None:
    """By the SDK, which knows what Retry-After says; LlamaIndex would multiply that."""
    with ScriptedModel(Reply(status=500)) as server:
        embedder = build_embedder("openai", "some-model", server.url, "key")
        with pytest.raises(EmbeddingFailed):
            await embed_query(embedder, "What now?")
        assert len(server.requests) == 2
