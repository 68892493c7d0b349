"""A run: chunks merged to judged names, signals, latencies, bounded concurrency."""

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from hypothesis import given, strategies as st

from rag_app.domain.answer import Confidence, Hit
from rag_app.domain.errors import EmbeddingFailed
from rag_app.domain.scope import PUBLIC_ORGANIZATION
from rag_app.domain.source import source_id
from rag_app.evaluation.judgments import Query
from rag_app.evaluation.report import Run, names_of_judged_sources, run_retrieval
from rag_app.retrieval.hits import judge, signal
from rag_app.retrieval.index import ConfidenceRule

ORG = UUID(int=7)
RULE = ConfidenceRule()


def hit(source: UUID, score: float = 0.5) -> Hit:
    return Hit(
        chunk_id=uuid4(), source_id=source, org_id=ORG, text="", score=score, title="", source_type="chapter",
        lang="en", position=0,
    )  # fmt: skip


def queries(count: int) -> list[Query]:
    return [Query(id=str(n), text=f"question {n}") for n in range(count)]


async def test_chunks_become_sources_at_the_rank_of_their_best_chunk() -> None:
    own, public = source_id(ORG, "book", "own.md"), source_id(PUBLIC_ORGANIZATION, "book", "public.md")
    shadow, unjudged = source_id(PUBLIC_ORGANIZATION, "book", "own.md"), uuid4()
    names = names_of_judged_sources({"0": {"own.md": 1, "public.md": 0}}, "book", [ORG])
    asked = []

    async def search(query: Query, depth: int) -> Sequence[Hit]:
        asked.append((query.text, depth))
        return [hit(public), hit(unjudged, 0.7), hit(public, 0.9), hit(own), hit(shadow)]

    run = await run_retrieval(queries(1), search, names, rule=RULE, depth=33)
    assert asked == [("question 0", 33)]
    assert run.rankings == {"0": ("public.md", str(unjudged), "own.md")}
    assert run.signals == {"0": 0.9}


async def test_a_source_of_another_organization_is_not_the_judged_one() -> None:
    foreign = source_id(UUID(int=8), "book", "own.md")

    async def search(query: Query, depth: int) -> Sequence[Hit]:
        return [hit(foreign)]

    names = names_of_judged_sources({"0": {"own.md": 1}}, "book", [ORG])
    assert (await run_retrieval(queries(1), search, names, rule=RULE)).rankings == {"0": (str(foreign),)}


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_concurrency_is_bounded_and_used(concurrency: int) -> None:
    running, most = 0, 0
    steps: list[int] = []

    async def search(query: Query, depth: int) -> Sequence[Hit]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return []

    run = await run_retrieval(queries(10), search, {}, rule=RULE, concurrency=concurrency, progress=steps.append)
    assert most == concurrency
    assert steps == list(range(1, 11))
    assert run.rankings == {str(n): () for n in range(10)}
    assert run.latency(50) >= 9 and len(run.latencies) == 10


async def test_a_failure_is_raised_as_it_is_and_stops_the_others() -> None:
    stopped = []
    cause = OSError("no route")

    async def search(query: Query, depth: int) -> Sequence[Hit]:
        if query.id == "1":
            raise EmbeddingFailed("down") from cause
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            stopped.append(query.id)
            raise
        return []

    with pytest.raises(EmbeddingFailed, match="down") as failed:
        await run_retrieval(queries(5), search, {}, rule=RULE, concurrency=2)
    assert stopped == ["0"]
    assert failed.value.__cause__ is cause


def test_latency_percentiles() -> None:
    run = Run({}, {}, {str(n): float(n) for n in range(101)})
    assert (run.latency(50), run.latency(95)) == (50, 95)


@given(
    st.lists(st.floats(-1, 1), max_size=8),
    st.sampled_from(["best", "mean5"]),
    st.floats(-0.99, 1),
)
def test_the_signal_is_what_judge_looks_at(scores: list[float], kind: str, answer_from: float) -> None:
    rule = ConfidenceRule(signal=kind, answer_from=answer_from, high=1)
    hits = [hit(UUID(int=n), score) for n, score in enumerate(scores)]
    assert (signal(hits, rule) >= answer_from) == (judge(hits, rule) is not Confidence.LOW)
