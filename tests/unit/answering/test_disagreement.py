"""Two sources that state different values of one fact: the answer says so, and does not where they agree."""

import json
from pathlib import Path

import pytest

from rag_app.answering.context import build_context
from rag_app.answering.disagreement import disagree
from rag_app.answering.extractive import ExtractiveSynthesizer
from rag_app.domain.answer import Question
from rag_app.retrieval.embedding import MiniLM
from tests.unit.answering.hits import hit

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "answers" / "disagreements.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize(("differ", "right"), [(True, 51), (False, 51)])
async def test_most_pairs_are_told_apart(differ: bool, right: int) -> None:
    """Floors below what was measured, of 53 each; there is hardly a false alarm."""
    synthesizer, told = ExtractiveSynthesizer(MiniLM()), 0
    pairs = [pair for pair in PAIRS if pair["disagree"] is differ]
    for pair in pairs:
        titles = pair.get("titles", ["Notes", "Handbook"])
        hits = [hit(pair[side], score=0.6, title=title) for side, title in zip(("one", "other"), titles, strict=True)]
        context = build_context([*hits, hit("It was mild.", score=0.2, title="Diary")], max_tokens=900, max_sources=5)
        text = (await synthesizer.write(Question(pair["question"]), context)).text
        told += text.startswith("Sources disagree: ") is differ
        if text.startswith("Sources disagree: "):
            assert all(pair[side].rstrip(".") in text for side in ("one", "other"))
    assert len(pairs) == 53 and told >= right


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The week had 31 calls.", "The week had 31 calls, most of them on Monday."),
        ("In 2025 it cost 40 dollars.", "In 2026 it cost 45 dollars."),
        ("It takes 90 minutes.", "It takes 1.5 hours."),
        ("", "Nothing."),
    ],
)
def test_what_is_no_disagreement(one: str, other: str) -> None:
    assert not disagree(one, other) and not disagree(other, one)
