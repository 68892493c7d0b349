"""Runs every question once and reports results, latencies and metrics, for people and for programs."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal
from uuid import UUID

import numpy as np
from msgspec import Struct

from rag_app.domain import PUBLIC_ORGANIZATION, Hit, JsonObject, Mode, source_id
from rag_app.evaluation.calibration import Answerability, answerability, calibrate
from rag_app.evaluation.judgments import JudgmentSet, Qrels, Query
from rag_app.evaluation.validation import Scores, ask_all, evaluate_run
from rag_app.retrieval.hits import signal
from rag_app.retrieval.index import ConfidenceRule

Search = Callable[[Query, int], Awaitable[Sequence[Hit]]]
"""The best chunks for a query, at most so many, best first, in the scope that the query is to be asked in."""

_JUDGED_HITS = 8  # as many as a capability asks for: a better score further down would not be seen there


class Run(Struct, frozen=True):
    """What retrieval returned, by query id.

    `rankings`: names of sources, best first, each once. `signals`: the cosine that confidence is judged by (-1..1).
    `latencies`: milliseconds from asking to hits.
    """

    rankings: dict[str, Sequence[str]]
    signals: dict[str, float]
    latencies: dict[str, float]

    def latency(self, percentile: float) -> float:
        """The latency below which `percentile` (0..100) per cent of the queries are, in milliseconds; 0 for an empty run."""
        return float(np.percentile(list(self.latencies.values()), percentile)) if self.latencies else 0.0


async def run_retrieval(
    queries: Iterable[Query],
    search: Search,
    names_of_judged_sources: Mapping[UUID, str],
    *,
    rule: ConfidenceRule,
    depth: int = 100,
    concurrency: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> Run:
    """Ask each query for `depth` chunks and merge them to sources, each at the rank of its best chunk.

    Sources are named by `names_of_judged_sources` (see the function of that name), all others by their id. `concurrency` queries
    (1 or more) are under way at a time; with more than one, latencies include their waiting for each other. `rule` says
    which signal is taken. `progress` is called with the number of queries done. What `search` raises ends the run.
    """
    run = Run({}, {}, {})

    async def ask(query: Query) -> None:
        started = time.perf_counter()
        hits = await search(query, depth)
        run.latencies[query.id] = (time.perf_counter() - started) * 1000
        run.rankings[query.id] = tuple(
            dict.fromkeys(names_of_judged_sources.get(h.source_id, str(h.source_id)) for h in hits)
        )
        run.signals[query.id] = signal(hits[:_JUDGED_HITS], rule)
        progress(len(run.rankings))

    await ask_all(queries, ask, concurrency)
    return run


def names_of_judged_sources(qrels: Qrels, index: str, organizations: Iterable[UUID]) -> dict[UUID, str]:
    """The judged external ids by source id, for sources of these organizations and of the public one.

    `index` is the index's name, not an alias. Where two organizations have a source of the same name, a judgment
    means both of them: within a scope they count as one.

    >>> names = names_of_judged_sources({"q": {"ch1.md": 1}}, "book", [UUID(int=7)])
    >>> names[source_id(UUID(int=7), "book", "ch1.md")], names[source_id(PUBLIC_ORGANIZATION, "book", "ch1.md")]
    ('ch1.md', 'ch1.md')
    """
    judged = {name for grades in qrels.values() for name in grades}
    return {source_id(org, index, name): name for org in {*organizations, PUBLIC_ORGANIZATION} for name in judged}


class Report(Struct, frozen=True):
    """`latency`: milliseconds, by percentile. `decides` is what chooses whether to answer: a "fit", or the index's "rule",
    which else is compared with for validation alone. `configured` is what the index's rule does, `calibrated` what the rule that fits these
    questions best would do (to them: others will do a little worse); both None without unanswerable questions."""

    index: str
    mode: Mode
    scores: Scores
    latency: Mapping[int, float]
    configured: Answerability | None = None
    calibrated: Answerability | None = None
    decides: Literal["fit", "rule"] = "fit"

    @property
    def metrics(self) -> dict[str, float]:
        """By the names that people know."""
        return {
            "nDCG@10": self.scores.ndcg[10],
            "P@5": self.scores.precision[5],
            "P@10": self.scores.precision[10],
            "R@5": self.scores.recall[5],
            "R@10": self.scores.recall[10],
            "MRR@10": self.scores.mrr[10],
            "hit rate@10": self.scores.hit_rate[10],
        }


def make_report(index: str, mode: Mode, run: Run, judgments: JudgmentSet, rule: ConfidenceRule) -> Report:
    """Score a run of all of the judgments' queries; `rule` is the one its signals were taken for.

    Raises InvalidInput where no query is judged.
    """
    with_answer = [run.signals[query] for query in judgments.answerable]
    without = [run.signals[query] for query in judgments.unanswerable]
    configured = calibrated = None
    if with_answer and without:
        fixed = rule.model_copy(update={"signal": rule.cosine})
        configured = answerability(with_answer, without, fixed)
        calibrated = answerability(with_answer, without, calibrate(with_answer, without, rule.cosine))
    return Report(
        index,
        mode,
        evaluate_run(run.rankings, judgments.qrels),
        {each: run.latency(each) for each in (50, 95)},
        configured,
        calibrated,
        "fit" if rule.signal == "fitted" else "rule",
    )


def report_to_json(report: Report) -> JsonObject:
    """Metrics and AUROC in 0..1, latencies in milliseconds, what is refused and accepted in per cent."""
    figures: JsonObject = {"index": report.index, "mode": str(report.mode), "queries": report.scores.queries}
    figures |= {name.replace(" ", "_"): round(value, 4) for name, value in report.metrics.items()}
    figures["latency_ms"] = {f"p{each}": round(value, 2) for each, value in report.latency.items()}
    if report.configured is not None and report.calibrated is not None:
        figures["answerability"] = {
            "answerable": report.configured.answerable,
            "unanswerable": report.configured.unanswerable,
            "auroc": round(report.configured.auroc, 4),
            "decides": report.decides,
            "configured": _rule_json(report.configured),
            "calibrated": _rule_json(report.calibrated),
        }
    return figures


def _rule_json(figures: Answerability) -> JsonObject:
    return {
        **figures.rule.model_dump(),
        "answerable_refused_percent": round(figures.answerable_refused, 2),
        "unanswerable_accepted_percent": round(figures.unanswerable_accepted, 2),
    }
