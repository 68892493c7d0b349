"""The report: a table and its JSON."""

import json

import pytest

from rag_app.console.printing import render_text
from rag_app.domain.answer import Mode
from rag_app.evaluation.judgments import JudgmentSet, Query
from rag_app.evaluation.report import Run, make_report, report_to_json
from rag_app.retrieval.index import ConfidenceRule

ASKED = (Query(id="a", text="?"), Query(id="b", text="?"), Query(id="c", text="?", answerable=False))
QRELS = {"a": {"x": 1}, "b": {"x": 1, "y": 1}}
RUN = Run({"a": ["x", "y"], "b": ["z", "y"], "c": ["x"]}, {"a": 0.8, "b": 0.4, "c": 0.2}, {"a": 1.0, "b": 2, "c": 3})


def test_json() -> None:
    report = make_report("book", Mode.HYBRID, RUN, JudgmentSet(ASKED, QRELS), ConfidenceRule())
    # b: DCG 1/log2(3) of 1 + 1/log2(3)
    assert json.loads(json.dumps(report_to_json(report))) == {
        "index": "book", "mode": "hybrid", "queries": 2,
        "nDCG@10": 0.6934, "P@5": 0.2, "P@10": 0.1, "R@5": 0.75, "R@10": 0.75, "MRR@10": 0.75, "hit_rate@10": 1.0,
        "latency_ms": {"p50": 2.0, "p95": 2.9},
        "answerability": {
            "answerable": 2, "unanswerable": 1, "auroc": 1.0, "decides": "fit",
            "configured": {
                "signal": "best", "answer_from": 0.45, "high": 0.65,
                "answerable_refused_percent": 50.0, "unanswerable_accepted_percent": 0.0,
            },
            "calibrated": {
                "signal": "best", "answer_from": 0.3, "high": 0.3,
                "answerable_refused_percent": 0.0, "unanswerable_accepted_percent": 0.0,
            },
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "decides"),
    [
        (ConfidenceRule(), "Answers are not decided by this rule, but by a fit: `rag-app calibrate --try`."),
        (ConfidenceRule(signal="best"), "The rule as configured decides what is answered."),
    ],
)
def test_text(rule: ConfidenceRule, decides: str) -> None:
    text = render_text("report.txt", report=make_report("book", Mode.HYBRID, RUN, JudgmentSet(ASKED, QRELS), rule))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "book: 2 judged queries, mode hybrid"
    assert {"nDCG@10 0.6934", "MRR@10 0.7500", "hit rate@10 1.0000", "latency p50 2.0 ms, p95 2.9 ms"} <= set(lines)
    assert "Answerability: 2 questions with an answer, 1 without; AUROC 1.000" in lines
    assert lines.pop() == decides
    assert lines[-2:] == ["as configured 0.4500 0.6500 50.0 % 0.0 %", "best fit 0.3000 0.3000 0.0 % 0.0 %"]
    assert max(map(len, text.splitlines())) < 80


def test_without_unanswerable_questions_nothing_is_said_about_them() -> None:
    report = make_report("book", Mode.DENSE, RUN, JudgmentSet(ASKED[:2], QRELS), ConfidenceRule())
    assert "answerability" not in report_to_json(report)
    assert "nswerab" not in render_text("report.txt", report=report)
