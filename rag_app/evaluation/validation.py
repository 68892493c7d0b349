"""Measures ranked results: the metrics, and which results of a single query are relevant.

The figures of rankings are trec_eval's, by the standard definitions. A ranking is a sequence of document names, best first,
each once; `grades` maps the judged documents of a query to whole numbers. A document is relevant from grade 1 on; one that
is not judged is not. `k` is at least 1, and may be larger than the ranking. All values are between 0 and 1.

A result is relevant if it is an expected chunk, if it overlaps a passage judged to answer the query, or, without such
knowledge, if its score is high enough for an answer. A judged passage is still found after its source is split anew.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from msgspec import Struct

from rag_app.documents.ledger import Passages
from rag_app.domain import Hit, InvalidInput, uuid_in

AskedItem = TypeVar("AskedItem")
FoundItem = TypeVar("FoundItem")

Span = tuple[int, int]
"""`start <= character < end` in a source's content: its passages' texts, joined by a blank line."""
JudgedPassage = tuple[UUID, Span | None]
"""A source, and what of it answers; None: all of it."""
_SEPARATOR_LENGTH = len("\n\n")

CUTS = (5, 10)
"""The k of precision and recall that are always given."""
DEPTH = max(CUTS)
"""So many results are needed at least."""


class Relevance(Struct, frozen=True):
    """`found`: for each result, best first, the wanted items in it; a result with any is relevant.

    `wanted`: the number of different items to find, None if unknown.
    """

    found: Sequence[Collection[Hashable]]
    wanted: int | None


def judge_by_chunks(hits: Sequence[Hit], chunks: Collection[str]) -> Relevance:
    """Relevance by expected chunk ids. A text that is not a chunk id is wanted and never found."""
    wanted = {canonical(each) for each in chunks}
    return Relevance([{str(hit.chunk_id)} & wanted for hit in hits], len(wanted))


def relevance_by_passages(
    hits: Sequence[Hit], passages: Collection[JudgedPassage], contents: Mapping[UUID, Passages]
) -> Relevance:
    """Relevance by judged passages; `contents` are those of the hits' sources.

    A chunk contains a passage of its source if they share at least half of the shorter one. A passage in several
    chunks makes each of them relevant, and counts once.
    """
    wanted = set(passages)
    sources = {source for source, _ in wanted}
    found = []
    for hit in hits:
        span = locate(hit, contents.get(hit.source_id, ())) if hit.source_id in sources else None
        found.append(
            {
                (source, judged_span)
                for source, judged_span in wanted
                if source == hit.source_id
                and (judged_span is None or (span is not None and overlap(span, judged_span)))
            }
        )
    return Relevance(found, len(wanted))


def relevance_by_score(hits: Sequence[Hit], answer_from: float) -> Relevance:
    """Relevance by score: results with at least this cosine (-1..1)."""
    return Relevance([{hit.chunk_id} if hit.score >= answer_from else () for hit in hits], None)


class MetricValues(Struct, frozen=True):
    """By the definitions of `rag_app.evaluation.validation`: 0..1, the mappings by cut-off k.

    `reciprocal_rank`, `hit_rate` and `relevant` (their number) cover the requested results; recall is None if the
    number of items to find is unknown.
    """

    precision: Mapping[int, float]
    recall: Mapping[int, float | None]
    reciprocal_rank: float
    hit_rate: float
    relevant: int


def measure(relevance: Relevance, top_k: int) -> MetricValues:
    """The figures at 5, 10 and `top_k`.

    >>> figures = measure(Relevance([{"a"}, (), {"b"}], 4), 2)
    >>> figures.precision, figures.recall, figures.reciprocal_rank, figures.relevant
    ({2: 0.5, 5: 0.4, 10: 0.2}, {2: 0.25, 5: 0.5, 10: 0.5}, 1.0, 1)
    """
    ranked = [str(place) for place in range(len(relevance.found))]
    grades = {place: int(bool(found)) for place, found in zip(ranked, relevance.found, strict=True)}
    cuts = sorted({*CUTS, top_k})
    return MetricValues(
        precision={k: precision(ranked, grades, k) for k in cuts},
        recall={
            k: len(set().union(*relevance.found[:k])) / relevance.wanted if relevance.wanted else None for k in cuts
        },
        reciprocal_rank=reciprocal_rank(ranked, grades, top_k),
        hit_rate=hit_rate(ranked, grades, top_k),
        relevant=sum(grades[place] for place in ranked[:top_k]),
    )


async def ask_all(
    queries: Iterable[AskedItem], search: Callable[[AskedItem], Awaitable[FoundItem]], concurrency: int = 4
) -> list[FoundItem]:
    """The results of `search` for each query, in order; `concurrency` queries run at a time.

    An error of `search` ends the others.
    """
    found: dict[int, FoundItem] = {}
    waiting = iter(enumerate(queries))

    async def ask() -> None:
        for place, query in waiting:
            found[place] = await search(query)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(ask())
    except ExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return [found[place] for place in sorted(found)]


def canonical(chunk: str) -> str:
    """A chunk's id in the notation of results; any other text unchanged.

    >>> canonical("6F2D0E5C-58F3-4C0E-9A53-3B1D8C6F7A10"), canonical("chunk_abc123")
    ('6f2d0e5c-58f3-4c0e-9a53-3b1d8c6f7a10', 'chunk_abc123')
    """
    return str(uuid_in(chunk) or chunk)


def locate(chunk: Hit, content: Passages) -> Span | None:
    """The span of the chunk in its source's content; None if it is not there (any more).

    Chunks are cut out of one passage each, white space at their ends aside. Of equal texts in one section the first
    is taken.

    >>> chunk = Hit(UUID(int=1), UUID(int=2), UUID(int=3), "We open at nine.", 0.5, "Hours", "doc", "en", 0)
    >>> locate(chunk, [{"text": "Hours."}, {"text": "Hello. We open at nine."}])
    (15, 31)
    """
    start = 0
    for passage in content:
        text = str(passage["text"])
        if (passage.get("section"), passage.get("page")) == (chunk.section, chunk.page):
            at = text.find(chunk.text)
            if at >= 0:
                return start + at, start + at + len(chunk.text)
        start += len(text) + _SEPARATOR_LENGTH
    return None


def overlap(one: Span, other: Span) -> bool:
    """Whether they share at least half of the shorter one.

    >>> overlap((0, 100), (90, 110)), overlap((0, 100), (91, 111))
    (True, False)
    """
    return 2 * (min(one[1], other[1]) - max(one[0], other[0])) >= min(one[1] - one[0], other[1] - other[0])


Grades = Mapping[str, int]


def ndcg(ranked: Sequence[str], grades: Grades, k: int) -> float:
    """Normalized discounted cumulative gain (Järvelin & Kekäläinen, TOIS 2002), as trec_eval's ndcg_cut.

    DCG = sum of grade / log2(rank + 1) over the first k ranks, divided by that of the best possible order. The gain is
    the grade itself, not 2^grade - 1; a negative grade gains nothing. 0 without relevant documents.

    >>> round(ndcg(["b", "a"], {"a": 2, "b": 1}, 10), 4)  # (1 + 2/log2(3)) / (2 + 1/log2(3))
    0.8597
    """
    ideal = _dcg(sorted(grades.values(), reverse=True)[:k])
    return _dcg([grades.get(name, 0) for name in ranked[:k]]) / ideal if ideal else 0.0


def _dcg(gains: Sequence[int]) -> float:
    return sum(max(gain, 0) / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def precision(ranked: Sequence[str], grades: Grades, k: int) -> float:
    """Relevant documents among the first k, divided by k however short the ranking is (trec_eval's P).

    >>> precision(["a", "x"], {"a": 1}, 5)
    0.2
    """
    return _count_relevant(ranked, grades, k) / k


def recall(ranked: Sequence[str], grades: Grades, k: int) -> float:
    """Relevant documents among the first k, divided by all relevant ones; 0 without any (trec_eval's recall).

    >>> recall(["a", "x"], {"a": 1, "b": 3, "x": 0}, 5)
    0.5
    """
    relevant = sum(grade >= 1 for grade in grades.values())
    return _count_relevant(ranked, grades, k) / relevant if relevant else 0.0


def hit_rate(ranked: Sequence[str], grades: Grades, k: int) -> float:
    """1 where a relevant document is among the first k, else 0 (trec_eval's success).

    >>> hit_rate(["x", "a"], {"a": 1}, 1), hit_rate(["x", "a"], {"a": 1}, 2)
    (0.0, 1.0)
    """
    return float(_count_relevant(ranked, grades, k) > 0)


def reciprocal_rank(ranked: Sequence[str], grades: Grades, k: int) -> float:
    """1 / rank of the first relevant document; 0 where there is none, or none among the first k.

    Its mean is the MRR (Voorhees, TREC-8 QA track, 1999), trec_eval's recip_rank of a ranking that is cut there.

    >>> reciprocal_rank(["x", "a"], {"a": 1}, 2), reciprocal_rank(["x", "a"], {"a": 1}, 1)
    (0.5, 0.0)
    """
    return next((1 / rank for rank, name in enumerate(ranked[:k], 1) if grades.get(name, 0) >= 1), 0.0)


def _count_relevant(ranked: Sequence[str], grades: Grades, k: int) -> int:
    return sum(grades.get(name, 0) >= 1 for name in ranked[:k])


class Scores(Struct, frozen=True):
    """Means over `queries` judged queries; the mappings are by cut-off k. Reports print `mrr` at 10 as MRR@10."""

    queries: int
    ndcg: Mapping[int, float]
    precision: Mapping[int, float]
    recall: Mapping[int, float]
    hit_rate: Mapping[int, float]
    mrr: Mapping[int, float]


def evaluate_run(run: Mapping[str, Sequence[str]], qrels: Mapping[str, Grades], ks: Sequence[int] = (5, 10)) -> Scores:
    """Score the rankings of a run, by query id, against judgments, by query id and document name.

    Every judged query counts (trec_eval -c): with nothing but 0s where the run has no ranking for it or no document
    is relevant. Queries of the run without judgments do not count. Raises InvalidInput where nothing is judged.

    >>> evaluate_run({"q": ["x", "a"]}, {"q": {"a": 1}, "r": {"b": 1}}).mrr[10]
    0.25
    """
    judged = {query: grades for query, grades in qrels.items() if grades}
    if not judged:
        raise InvalidInput("judgments", None, "no query has a judged document, so there is nothing to measure against")

    def mean(metric: Callable[[Sequence[str], Grades, int], float], k: int) -> float:
        return math.fsum(metric(run.get(query, ()), grades, k) for query, grades in judged.items()) / len(judged)

    return Scores(
        queries=len(judged),
        ndcg={k: mean(ndcg, k) for k in ks},
        precision={k: mean(precision, k) for k in ks},
        recall={k: mean(recall, k) for k in ks},
        hit_rate={k: mean(hit_rate, k) for k in ks},
        mrr={k: mean(reciprocal_rank, k) for k in ks},
    )
