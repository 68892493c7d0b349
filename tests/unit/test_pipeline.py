"""The way of a question: how many chunks are fetched, which are kept, what is counted, and what is logged."""

import logging
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from llama_index.core import MockEmbedding
from llama_index.core.schema import BaseNode, TextNode

from rag_app.answering.capabilities import capability_named
from rag_app.domain.answer import Answer, Delta, FoundHits, Mode, Question, Refusal
from rag_app.domain.errors import ModelFailed, NotFound
from rag_app.domain.filters import Filters
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.domain.source import Source
from rag_app.pipeline import Pipeline
from rag_app.retrieval.confidence import WORDS_ALONE, Basis, Fit
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.index import ConfidenceRule, IndexSpec
from rag_app.retrieval.store import ScopedStore, Search
from tests.unit.answering.hits import hit, node
from tests.unit.answering.test_stream import Speaks

SCOPE = Scope(frozenset({PUBLIC_ORGANIZATION}))
KNOWLEDGE, MARKET = "knowledge_answer", "market_chat"


async def words_alone(spec: IndexSpec, scope: Scope) -> tuple[Fit, Basis]:
    """What hits are judged by where nothing was fitted."""
    return WORDS_ALONE, "uncalibrated"


async def today_in_utc(scope: Scope) -> date:
    return datetime.now(UTC).date()


class Shelf(ScopedStore):
    """Chunks with their cosine and BM25, as they are given."""

    async def candidates(self, asked: Search) -> list[Candidate]:
        return list(self.backend["candidates"])

    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        self.backend["fetched"].append(len(ids))
        return {each: self.backend["nodes"][each] for each in ids}

    async def count(self) -> int:
        return len(self.backend["nodes"])

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        raise AssertionError("nothing is written here")

    async def move(self, sources: Sequence[Source]) -> None:
        raise AssertionError("nothing is written here")

    async def export(self, source_ids: Sequence[UUID]) -> list[TextNode]:
        raise AssertionError("nothing is moved from here")

    async def sources(self) -> set[UUID]:
        raise AssertionError("nothing is moved from here")


class Library:
    """A pipeline over chunks of these cosines and BM25 scores, all of different sources."""

    def __init__(
        self, *scores: tuple[float, float], says: Speaks | None = None, owners: Sequence[UUID | None] = ()
    ) -> None:
        hits = [
            hit(f"Chunk {number} waits.", score=cosine, owner_id=owner)
            for number, ((cosine, _), owner) in enumerate(zip(scores, [*owners, *[None] * len(scores)], strict=False))
        ]
        nodes = {each.chunk_id: node(each).node for each in hits}
        for each in hits:
            if each.owner_id:
                nodes[each.chunk_id].metadata["owner_id"] = str(each.owner_id)
        self.backend: dict[str, Any] = {
            "candidates": [Candidate(h.chunk_id, cosine, bm25) for h, (cosine, bm25) in zip(hits, scores, strict=True)],
            "nodes": nodes,
            "fetched": [],
        }
        rule = ConfidenceRule(signal="best", answer_from=0.45, high=0.7)
        names = [capability_named(each).index for each in (KNOWLEDGE, MARKET)]
        specs = {
            name: IndexSpec(name=name, source_types=("faq",), default_source_type="faq", confidence=rule)
            for name in names
        }

        async def open_store(spec: IndexSpec, scope: Scope) -> ScopedStore:
            return Shelf(spec=spec, generation="g1", scope=scope, backend=self.backend)

        self.pipeline = Pipeline(
            specs,
            open_store,
            MockEmbedding(embed_dim=3),
            lambda _: says or Speaks("So [Source 1]."),
            load_fit=words_alone,
            today=today_in_utc,
        )

    async def search(self, **asked: Any) -> list[float]:
        found = await self.pipeline.search("org_knowledge", Question("?", **asked), SCOPE)
        return [each.score for each in found]


SCORES = ((0.9, 0.0), (0.8, 1.0), (0.6, 9.0), (0.5, 0.0), (0.3, 8.0))


@pytest.mark.parametrize(
    ("asked", "fetched", "found"),
    [
        ({"top_k": 2}, 2, [0.9, 0.8]),
        ({"top_k": 2, "fetch": 4}, 4, [0.9, 0.8]),
        ({"top_k": 4, "fetch": 2}, 4, [0.9, 0.8, 0.6, 0.5]),
        ({"top_k": 4, "threshold": 0.55}, 4, [0.9, 0.8, 0.6]),
        ({"top_k": 2, "threshold": 0.55, "fetch": 5}, 5, [0.9, 0.8]),
        ({"top_k": 2, "threshold": 0.95, "fetch": 5}, 5, []),
    ],
)
async def test_more_is_fetched_then_cut_at_the_threshold_then_limited(
    asked: dict[str, Any], fetched: int, found: list[float]
) -> None:
    library = Library(*SCORES)
    assert await library.search(mode=Mode.DENSE, **asked) == found
    assert library.backend["fetched"] == [fetched]


async def test_the_order_of_the_mode_is_kept_and_a_threshold_makes_room_for_what_follows() -> None:
    library = Library(*SCORES)
    order = await library.search(top_k=5, mode=Mode.TEXT)
    assert order[:2] == [0.6, 0.3]
    assert await library.search(top_k=2, mode=Mode.TEXT) == [0.6, 0.3]
    assert await library.search(top_k=2, mode=Mode.TEXT, threshold=0.5) == [0.6]
    assert await library.search(top_k=2, mode=Mode.TEXT, threshold=0.5, fetch=5) == [0.6, 0.8]


@pytest.mark.parametrize(
    ("asked", "retrieved", "above", "hits"),
    [
        ({"top_k": 3}, 3, 3, 3),
        ({"top_k": 2, "fetch": 4}, 4, 4, 2),
        ({"top_k": 2, "fetch": 5, "threshold": 0.55}, 5, 3, 2),
        ({"top_k": 2, "fetch": 5, "threshold": 0.95}, 5, 0, 0),
    ],
)
async def test_an_answer_counts_what_was_retrieved_and_what_reached_the_threshold(
    asked: dict[str, Any], retrieved: int, above: int, hits: int
) -> None:
    library = Library(*SCORES)
    question = Question("?", mode=Mode.DENSE, **asked)
    answer = await library.pipeline.answer(KNOWLEDGE, question, SCOPE)
    *_, streamed = [event async for event in library.pipeline.stream(KNOWLEDGE, question, SCOPE)]
    for each in (answer, streamed):
        assert isinstance(each, Answer)
        assert (each.retrieved, each.above_threshold, len(each.hits)) == (retrieved, above, hits)
        assert each.refusal is (None if hits else Refusal.NOTHING_FOUND)


async def test_ones_own_is_preferred_among_all_that_was_fetched() -> None:
    me = uuid4()
    library = Library((0.9, 0), (0.88, 0), (0.86, 0), owners=[None, None, me])
    question = Question("?", top_k=1, fetch=3, mode=Mode.DENSE)
    answer = await library.pipeline.answer(MARKET, question, Scope(frozenset({PUBLIC_ORGANIZATION}), me))
    assert [each.score for each in answer.hits] == [0.86]


async def test_a_streamed_exchange_is_logged_once_as_any_other(caplog: pytest.LogCaptureFixture) -> None:
    library = Library(
        *SCORES,
        says=Speaks("Chunk 0 waits [Source 1]. ", "Chunk 1 waits [Source 2]. ", "Chunk ", "2 waits [Source 3]."),
    )
    question = Question("?", mode=Mode.DENSE)
    with caplog.at_level(logging.INFO, "rag_app.pipeline"):
        plain = await library.pipeline.answer(KNOWLEDGE, question, SCOPE)
        events = [event async for event in library.pipeline.stream(KNOWLEDGE, question, SCOPE)]
    assert [type(event) for event in events] == [FoundHits, Delta, Delta, Delta, Answer]
    assert "".join(event.text for event in events if isinstance(event, Delta)) == plain.text
    lines = [record.getMessage().rpartition(" ms=")[0] for record in caplog.records]
    assert lines == ["answered capability=knowledge_answer refused=False confidence=high citations=3 model=told"] * 2


async def test_a_stream_that_ended_early_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    says = Speaks("So it is [Source 1]. ", "Or not. ", "Who ", "knows?", error=ModelFailed("gone"))
    library = Library(*SCORES, says=says)
    with caplog.at_level(logging.INFO, "rag_app.pipeline"):
        left = library.pipeline.stream(KNOWLEDGE, Question("?", mode=Mode.DENSE), SCOPE)
        assert [type(await anext(left)) for _ in range(2)] == [FoundHits, Delta]
        await left.aclose()
        assert says.closed
        with pytest.raises(ModelFailed):
            [event async for event in library.pipeline.stream(KNOWLEDGE, Question("?", mode=Mode.DENSE), SCOPE)]
    lines = [record.getMessage().rpartition(" ms=")[0] for record in caplog.records]
    assert lines == ["unanswered capability=knowledge_answer"] * 2


async def test_what_cannot_be_asked_is_raised_before_anything_is_found() -> None:
    with pytest.raises(NotFound):
        await anext(Library(*SCORES).pipeline.stream("fortune_teller", Question("?"), SCOPE))
