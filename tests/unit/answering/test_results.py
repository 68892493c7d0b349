"""Figures that an answer works out, sentences that later ones carry, and sentences that state nothing."""

import pytest

from rag_app.answering.citations import pieces_of
from rag_app.answering.context import ContextBlock
from rag_app.answering.verification.bars import LEAST, Doubt, least_odds
from rag_app.answering.verification.kinds import Kind, kind_of
from rag_app.answering.verification.verdict import Ground, Verification

RATES = """| Pass | Adult | Child |
|---|---|---|
| Day | 23 | 11 |
| Week | 118 | 56 |

| Crop | Sown | Picked |
|---|---|---|
| Beans | 410 | 388 |
| Leeks | 265 | 239 |
| Kale | 190 | 171 |

A kayak costs 14 an hour. Guests from abroad pay double the day rate. A passport must be handed in 12 days before the trip.
The jetty was mended for 3,400 euros. The fee for winter storage is 37 a month.
"""


def kept(said: str, question: str) -> str:
    verification = Verification(Ground([ContextBlock(1, "\nTitle: Rates", RATES)], question))
    verification.read(pieces_of(said, 1))
    verification.end()
    return verification.text


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            "What do two adults and a child pay for a day?",
            "Day passes come to 57: 46 for the adults and 11 for the child [Source 1].",
        ),
        ("What do 17 adults pay for a day?", "Day passes for 17 adults would cost 391 [Source 1]."),
        ("What did you sow in all?", "Beans, leeks and kale were sown 865 times in all [Source 1]."),
        ("How much is storage for a year?", "Winter storage would cost 444 for a year [Source 1]."),
        (
            "Our trip is on 20 May.",
            "For a trip on 20 May, hand in the passport by 8 May, 12 days before the trip [Source 1].",
        ),
        (
            "What is a day for a guest from abroad?",
            "Guests from abroad pay double the day rate of 23, that is 46 [Source 1].",
        ),
    ],
)
def test_a_figure_that_is_worked_out_passes(question: str, said: str) -> None:
    assert kept(said, question) == said


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What do two adults and a child pay for a day?", "Day passes come to 59 [Source 1]."),
        ("What do 17 adults pay for a day?", "Day passes for 17 adults would cost 389 [Source 1]."),
        ("What did you sow in all?", "Beans, leeks and kale were sown 871 times in all [Source 1]."),
        ("How much is storage for a year?", "Winter storage would cost 452 for a year [Source 1]."),
        ("Our trip is on 20 May.", "For a trip on 20 May, hand in the passport by 10 May [Source 1]."),
        ("What did the jetty cost?", "The jetty was mended for 3,402 euros [Source 1]."),
    ],
)
def test_a_figure_that_is_not_worked_out_is_left_out(question: str, said: str) -> None:
    assert kept(said, question) == ""


def test_a_sum_is_carried_by_its_parts() -> None:
    said = "You would pay 129:\n- week pass: 118 [Source 1]\n- day pass for a child: 11 [Source 1]"
    assert kept(said, "A week for me and a day for my child?") == said
    wrong = said.replace("129", "139")
    assert "139" not in kept(wrong, "A week for me and a day for my child?")


def test_an_unsupported_sentence_carries_no_sum() -> None:
    assert kept("You would pay 930. The boat costs 620 and the guide 310 [Source 1].", "What would I pay?") == ""


@pytest.mark.parametrize(
    "text",
    [
        "I hope the move goes well.",
        "Thank you for asking about the choir.",
        "All the best for your exam.",
        "My condolences to you and yours.",
        "Have fun on the river!",
        "Good luck with the interview.",
    ],
)
def test_a_wish_states_nothing(text: str) -> None:
    assert kind_of(text) is Kind.CONNECTION


@pytest.mark.parametrize(
    "text",
    [
        "I hope you know, the owner was sentenced.",
        "Have a look: they are bankrupt.",
        "Congratulations are due because they won.",
    ],
)
def test_a_wish_with_a_statement_is_a_claim(text: str) -> None:
    assert kind_of(text) is Kind.CLAIM


def test_an_admission_may_end_in_advice() -> None:
    said = "The notice does not spell out whether pets are allowed, so it is best to ask the warden."
    assert kept(said, "May I bring my pet?") == said


def test_a_doubt_without_a_bar_is_a_veto() -> None:
    assert least_odds([Doubt.NONE]) == LEAST[Doubt.NONE] and least_odds([Doubt.NONE, Doubt.QUOTATION]) == float("inf")
