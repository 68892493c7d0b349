"""Ranked retrieval against judgments, by the standard definitions; the figures are trec_eval's.

A ranking is a sequence of document names, best first, each once; `grades` maps the judged documents of a query to
whole numbers. A document is relevant from grade 1 on; one that is not judged is not. `k` is at least 1, and may be
larger than the ranking. All values are between 0 and 1.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from rag_app.domain import InvalidInput

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
