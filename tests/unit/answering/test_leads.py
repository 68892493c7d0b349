"""What is told before a question."""

import pytest

from rag_app.answering.records.leads import without_lead
from rag_app.answering.records.rephrasing import say_plainly
from tests.unit.answering.test_planning import BOATS, TODAY, VALUES


@pytest.mark.parametrize(
    ("text", "proper"),
    [
        ("I'm doing the rota. Who has trips on Friday?", "Who has trips on Friday?"),
        ("Quick one - how many trips did Ada make?", "how many trips did Ada make?"),
        (
            "OK, new topic: how many trips did Ada make with those she likes?",
            "how many trips did Ada make with those she likes?",
        ),
        ("I'm after easy trips: which ones have a catch below 40?", "which trips have a catch below 40?"),
        ("I've got a gift to buy, show me our fullest trip", "show me our fullest trip"),
        ("I'm printing the plan for my class: which trip is the fullest?", "which trip is the fullest?"),
    ],
)
def test_what_names_nothing_is_left_out(text: str, proper: str) -> None:
    assert without_lead(text, BOATS, VALUES, TODAY)[0] == proper


@pytest.mark.parametrize(
    "text",
    [
        "I'm thinking of Ada: how many trips were there?",
        "I'm checking our trips: which is the fullest?",
        "I'm thinking of mackerel: which trip is the fullest?",
        "I'm after mackerel trips: which ones have a catch below 40?",
        "I'm after easy trips: how many of them are there?",
        "I'm at the end of January. How many trips were there?",
        "I was ill in January. How many trips did Ada make?",
        "I don't mean the north pier. How many trips were there?",
    ],
)
def test_what_may_limit_the_question_stays(text: str) -> None:
    assert without_lead(text, BOATS, VALUES, TODAY) == (text, None)


def test_days_that_are_told_before_count() -> None:
    text, period = without_lead("I'm looking at 2025: which month was the fullest?", BOATS, VALUES, TODAY)
    assert text == "which month was the fullest?" and period is not None and period.label == "2025"
    text, period = without_lead("I'm looking at 2024: how many trips in May?", BOATS, VALUES, TODAY)
    assert text == "how many trips in May?" and period is not None and period.label == "May 2024"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Taking the late ones out, how many trips?", "without the late ones, how many trips?"),
        ("Late ones included, how many trips are there?", "how many trips are there?"),
        ("How many trips, regardless of status?", "How many trips?"),
        ("Tell me whether we were late or not.", "Tell me whether we were late or not."),
        ("Is lunch included, and how many trips are there?", "Is lunch included, and how many trips are there?"),
        ("What happens if I skip a trip?", "What happens if I skip a trip?"),
        ("How many trips if we don't count Ada's?", "How many trips without Ada's?"),
        ("Which trips were late? The names will do.", "Which trips were late?"),
        ("How many trips went out in May?", "How many trips went out in May?"),
        ("the long trip vs the short one, what's the extra?", "how much more is the long trip than the short one?"),
        ("What is the extra for a cabin over a bunk?", "how much more is a cabin than a bunk?"),
        ("how many of our trips were late? percent", "what percentage of our trips were late"),
        ("Of all trips, what share was Ada's?", "what share of all trips was Ada's?"),
        ("the catch of all trips, leave out the late ones", "the catch of all trips without the late ones"),
        ("how many kilos is Ada below Bo?", "by how many kilos is Ada below Bo?"),
        ("How many trips were over in May?", "How many trips were over in May?"),
        ("a customer wants the cabin and a bunk, what's that come to?", "what do the cabin and a bunk come to?"),
        ("we want the cabin, what time is it open?", "we want the cabin, what time is it open?"),
        (
            "For one big party I need a cabin and a bunk. What do the two come to?",
            "what do a cabin and a bunk come to?",
        ),
        ("January at a glance: how many trips were late?", "in January, how many trips were late?"),
        (
            "how many points is the long and windy tour of Ada above ours?",
            "by how many points is the long and windy tour of Ada above ours?",
        ),
        ("By how many points does Ada exceed Bo?", "by how much is Ada above Bo?"),
        ("How many points lower is Ada than Bo?", "how much lower is Ada than Bo?"),
        ("Who was late, and who called it off?", "Who was late, and who called off?"),
        ("Which skippers take guests out for a trip?", "Which skippers take guests out for a trip?"),
    ],
)
def test_what_is_said_beside_a_question_is_left_out(text: str, plain: str) -> None:
    assert say_plainly(text) == plain
