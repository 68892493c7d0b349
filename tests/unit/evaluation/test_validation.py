"""Relevance by expected chunks, judged passages and scores; the figures against trec_eval."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytrec_eval

from rag_app.domain.answer import Hit
from rag_app.domain.errors import EmbeddingFailed
from rag_app.evaluation.validation import (
    Relevance,
    ask_all,
    judge_by_chunks,
    measure,
    relevance_by_passages,
    relevance_by_score,
)


def hit(chunk: UUID, score: float = 0.5, source: UUID | None = None, text: str = "") -> Hit:
    return Hit(chunk, source or uuid4(), UUID(int=1), text, score, "Title", "doc", "en", 0)


@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_trec_eval(seed: int) -> None:
    """Empty, short and long rankings; chunks expected that are not found, that are not there, that are named twice."""
    rng = random.Random(seed)
    ids = [UUID(int=rng.getrandbits(128)) for _ in range(60)]
    qrels: dict[str, dict[str, int]] = {}
    runs: dict[int, dict[str, dict[str, float]]] = {}
    ours: dict[tuple[str, int], Any] = {}
    for n in range(30):
        wanted = [str(each) for each in rng.sample(ids, rng.randint(1, 30))] + ["no chunk"] * rng.randint(0, 2)
        qrels[f"q{n}"] = dict.fromkeys(wanted, 1)
        ranking = rng.sample(ids, rng.choice([0, 1, 4, 10, 50]))
        for k in (1, 3, 10, 50):
            runs.setdefault(k, {})[f"q{n}"] = {
                str(each): 1 / place for place, each in enumerate(ranking[: max(k, 10)], 1)
            }
            ours[f"q{n}", k] = measure(judge_by_chunks([hit(each) for each in ranking[: max(k, 10)]], wanted), k)
    for k, run in runs.items():
        cuts = ",".join(map(str, sorted({k, 5, 10})))
        theirs = pytrec_eval.RelevanceEvaluator(qrels, {f"P.{cuts}", f"recall.{cuts}", f"success.{k}"}).evaluate(run)
        first = {query: dict(list(found.items())[:k]) for query, found in run.items()}
        ranks = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", "num_rel_ret"}).evaluate(first)
        for query in qrels:
            figures = ours[query, k]
            if not run[query]:
                assert not any([*figures.precision.values(), *figures.recall.values(), figures.relevant])
                continue
            for cut in {k, 5, 10}:
                assert figures.precision[cut] == pytest.approx(theirs[query][f"P_{cut}"], abs=1e-9)
                assert figures.recall[cut] == pytest.approx(theirs[query][f"recall_{cut}"], abs=1e-9)
            assert figures.hit_rate == theirs[query][f"success_{k}"]
            assert figures.reciprocal_rank == pytest.approx(ranks[query]["recip_rank"], abs=1e-9)
            assert figures.relevant == ranks[query]["num_rel_ret"]


def test_a_passage_that_two_chunks_bring_is_found_once_and_both_are_relevant() -> None:
    source = uuid4()
    contents = {source: [{"text": "one two three four", "section": None, "page": None}]}
    hits = [hit(uuid4(), source=source, text=text) for text in ("one two", "two three", "four")] + [hit(uuid4())]
    figures = measure(
        relevance_by_passages(hits, [(source, (4, 13)), (source, (4, 13)), (source, (14, 18))], contents), 2
    )
    assert figures.precision == {2: 0.5, 5: 0.4, 10: 0.2}
    assert figures.recall == {2: 0.5, 5: 1.0, 10: 1.0}
    assert figures.reciprocal_rank == 0.5


def test_a_chunk_that_cannot_be_located_counts_where_the_whole_source_is_judged() -> None:
    source, stale = uuid4(), uuid4()
    hits = [hit(uuid4(), source=source, text="gone"), hit(uuid4(), source=stale, text="gone")]
    relevance = relevance_by_passages(hits, [(source, None), (stale, (0, 4))], {stale: [{"text": "anew"}]})
    assert [bool(found) for found in relevance.found] == [True, False]


def test_a_score_at_the_threshold_is_relevant_and_recall_is_unknown() -> None:
    figures = measure(relevance_by_score([hit(uuid4(), score) for score in (0.43, 0.44, 0.9)], 0.44), 3)
    assert figures.relevant == 2 and set(figures.recall.values()) == {None}


def test_nothing_found() -> None:
    figures = measure(Relevance([], 3), 5)
    assert figures.precision == figures.recall == {5: 0.0, 10: 0.0}
    assert (figures.reciprocal_rank, figures.hit_rate, figures.relevant) == (0.0, 0.0, 0)


async def test_as_many_at_once_as_allowed_and_in_order() -> None:
    under_way, most = 0, 0

    async def search(query: str) -> Sequence[Hit]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (int(query) % 3))
        under_way -= 1
        return [hit(UUID(int=int(query)))]

    found = await ask_all([str(n) for n in range(20)], search, concurrency=4)
    assert [hits[0].chunk_id.int for hits in found] == list(range(20)) and most == 4


async def test_a_failure_ends_the_others() -> None:
    asked: list[str] = []

    async def search(query: str) -> Sequence[Hit]:
        asked.append(query)
        await asyncio.sleep(0)
        if query == "2":
            raise EmbeddingFailed("away")
        return []

    with pytest.raises(EmbeddingFailed, match="away"):
        await ask_all([str(n) for n in range(100)], search)
    assert len(asked) < 20
