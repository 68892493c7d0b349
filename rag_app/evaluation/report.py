"""The figures of a run, for people and for programs."""

from dataclasses import dataclass
from typing import Any

from rag_app.domain.answer import Mode
from rag_app.evaluation.calibration import Answerability, answerability, calibrate
from rag_app.evaluation.judgments import Judgments
from rag_app.evaluation.metrics import Scores, evaluate_run
from rag_app.evaluation.run import Run
from rag_app.retrieval.index import ConfidenceRule


@dataclass(frozen=True, slots=True)
class Report:
    """Latencies in milliseconds. `configured` is what the index's rule does, `calibrated` what the rule that fits these
    questions best would do (to them: others will do a little worse); both None without unanswerable questions."""

    index: str
    mode: Mode
    scores: Scores
    latency_p50: float
    latency_p95: float
    configured: Answerability | None = None
    calibrated: Answerability | None = None


def make_report(index: str, mode: Mode, run: Run, judgments: Judgments, rule: ConfidenceRule) -> Report:
    """Score a run of all of the judgments' queries; `rule` is the one its signals were taken for.

    Raises InvalidInput where no query is judged.
    """
    scores = evaluate_run(run.rankings, judgments.qrels)
    with_answer = [run.signals[query] for query in judgments.answerable]
    without = [run.signals[query] for query in judgments.unanswerable]
    configured = calibrated = None
    if with_answer and without:
        configured = answerability(with_answer, without, rule)
        calibrated = answerability(with_answer, without, calibrate(with_answer, without, rule.signal))
    return Report(index, mode, scores, run.latency(50), run.latency(95), configured, calibrated)


def _metrics(scores: Scores) -> dict[str, float]:
    return {
        "nDCG@10": scores.ndcg[10],
        "P@5": scores.precision[5],
        "P@10": scores.precision[10],
        "R@5": scores.recall[5],
        "R@10": scores.recall[10],
        "MRR@10": scores.mrr[10],
        "hit rate@10": scores.hit_rate[10],
    }


def report_json(report: Report) -> dict[str, Any]:
    """Metrics and AUROC in 0..1, latencies in milliseconds, what is refused and accepted in per cent."""
    figures: dict[str, Any] = {"index": report.index, "mode": str(report.mode), "queries": report.scores.queries}
    figures |= {name.replace(" ", "_"): round(value, 4) for name, value in _metrics(report.scores).items()}
    figures["latency_ms"] = {"p50": round(report.latency_p50, 2), "p95": round(report.latency_p95, 2)}
    if report.configured is not None and report.calibrated is not None:
        figures["answerability"] = {
            "answerable": report.configured.answerable,
            "unanswerable": report.configured.unanswerable,
            "auroc": round(report.configured.auroc, 4),
            "configured": _rule_json(report.configured),
            "calibrated": _rule_json(report.calibrated),
        }
    return figures


def _rule_json(figures: Answerability) -> dict[str, Any]:
    return {
        **figures.rule.model_dump(),
        "answerable_refused_percent": round(figures.answerable_refused, 2),
        "unanswerable_accepted_percent": round(figures.unanswerable_accepted, 2),
    }


def report_text(report: Report) -> str:
    """A table for a terminal, at most 79 columns wide."""
    lines = [f"{report.index}: {report.scores.queries} judged queries, mode {report.mode}", ""]
    lines += [f"  {name:<12} {value:.4f}" for name, value in _metrics(report.scores).items()]
    lines += [f"  {'latency':<12} p50 {report.latency_p50:.1f} ms, p95 {report.latency_p95:.1f} ms"]
    if report.configured is not None and report.calibrated is not None:
        about = report.configured
        lines += [
            "",
            f"Answerability: {about.answerable} questions with an answer, {about.unanswerable} without; "
            f"AUROC {about.auroc:.3f}",
            "",
            f"  {'rule':<13} {'answer from':>11} {'high':>7} {'answerable':>14} {'unanswerable':>15}",
            f"  {'(' + about.rule.signal + ')':<13} {'':>11} {'':>7} {'refused':>14} {'accepted':>15}",
            _rule_line("as configured", report.configured),
            _rule_line("best fit", report.calibrated),
        ]
    return "\n".join(lines)


def _rule_line(name: str, figures: Answerability) -> str:
    return (
        f"  {name:<13} {figures.rule.answer_from:>11.4f} {figures.rule.high:>7.4f} "
        f"{figures.answerable_refused:>12.1f} % {figures.unanswerable_accepted:>13.1f} %"
    )
