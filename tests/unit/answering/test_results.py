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


YARD = """Repairs this year. Granted: 52,000 euros. Keel, paid: 7,300 euros. Mast, paid: 18,900 euros. Sails, paid: 8,700 euros.
Takings 27,300, outlay 24,100. The crane lifts 6 boats a day, 70 boats at 12.40 euros each. The slip costs 84 euros for 7 metres.
A berth in the yard is 13 a night, a mooring 4.50. Retirement is possible from 60, with a reduction of 3 percent for each year
before 67. Texts over 2,000 words are read twice.

| Team | Played | Won |
|---|---|---|
| Reds | 46 | 31 |
| Blues | 38 | 17 |
| Greens | 41 | 25 |
"""


def kept(said: str, question: str, source: str = RATES) -> str:
    verification = Verification(Ground([ContextBlock(1, "\nTitle: Rates", source)], question))
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


@pytest.mark.parametrize(
    ("question", "said", "right", "wrong"),
    [
        (
            "What is spent?",
            "So far 34,900 euros have been paid, which leaves 17,100 of the 52,000 granted [Source 1].",
            "34,900",
            "36,900",
        ),
        ("How did it end?", "The year ended with a surplus of 3,200 [Source 1].", "3,200", "3,300"),
        ("What did the crane cost?", "Lifting the 70 boats would cost 868 euros [Source 1].", "868", "878"),
        (
            "What is a metre of the slip?",
            "The slip works out at 12 euros for each metre [Source 1].",
            "12 euros",
            "15 euros",
        ),
        (
            "Six nights with a berth and a mooring?",
            "A berth and a mooring come to 105.00 in total [Source 1].",
            "105.00",
            "107.00",
        ),
        (
            "What is taken off if I retire at 63?",
            "Retiring at 63 is four years short of 67, so 12 percent are taken off [Source 1].",
            "12 percent",
            "13 percent",
        ),
        ("How many were won?", "Across the teams 73 of the 125 played were won [Source 1].", "73", "75"),
        ("What do I pay?", "Berth: 6 × 13 = 78 [Source 1].", "78", "84"),
        ("A skipper and 7 guests in the yard?", "Berths: 7 × 13 = 91 [Source 1].", "7 × 13", "7 × 12"),
    ],
)
def test_few_steps_lead_to_a_figure(question: str, said: str, right: str, wrong: str) -> None:
    assert kept(said, question, YARD) == said
    assert kept(said.replace(right, wrong), question, YARD) == ""


def test_a_total_is_of_the_last_figures_of_its_lines() -> None:
    said = (
        "You would pay 100.00:\n- berth: 6 × 13 = 78 [Source 1]\n- mooring: 4.50 [Source 1]\n- slip: 17.50 [Source 1]"
    )
    source = f"{YARD}\nThe slip is 17.50 for guests."
    assert kept(said, "Six nights in the yard?", source) == said
    assert "103" not in kept(said.replace("100.00", "103.00"), "Six nights in the yard?", source)


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
