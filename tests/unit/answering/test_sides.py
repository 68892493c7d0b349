"""Two sides of a question, each with days of its own."""

from datetime import date

import pytest

from rag_app.answering.records.planning import read_question
from rag_app.answering.records.sides import share_words, split_sides
from rag_app.retrieval.filters import fields_of
from tests.unit.answering.test_planning import BOATS, TODAY, VALUES


def sides_of(text: str) -> list[tuple[str, str, str]]:
    """The words of both sides, their days, and whom they name."""
    found = (share_words(*pair, BOATS, VALUES) for pair in split_sides(text, TODAY))
    return [(" ".join(each.text.split()), each.period.label, each.name) for each in next(filter(None, found), ())]


def test_each_side_has_its_days_and_its_name() -> None:
    assert sides_of("Did Ada catch more in May 2025 than Bo Lind in June 2025?") == [
        ("Did Ada catch more in", "May 2025", "Ada"),
        ("Did Bo Lind catch more in", "June 2025", "Bo Lind"),
    ]


def test_one_record_is_set_apart_from_another_by_its_days() -> None:
    asked = "How much fuller was Ada Holm's trip in December than the one in January?"
    assert [each[1:] for each in sides_of(asked)] == [("December 2025", ""), ("January 2026", "")]


@pytest.mark.parametrize(
    "text",
    [
        "Did Ada catch more in May 2025 than all storms in June 2025?",
        "Did Ada catch more in May 2025 than Bo or Ada in June 2025?",
        "Did Ada catch more in May 2025 than the north pier in June 2025?",
        "Did Ada catch more in May 2025 than most trips in June 2025?",
        "Did Ada catch more than Bo in June 2025?",
    ],
)
def test_what_says_anything_else_is_no_side(text: str) -> None:
    assert sides_of(text) == []


def test_both_sides_are_read_with_their_own_days() -> None:
    (pair,) = split_sides("Did Ada make more trips in May 2025 than Bo in June 2025?", TODAY)
    for side in share_words(*pair, BOATS, VALUES):
        plan = read_question(side.text, BOATS, VALUES, side.period, TODAY, comparing=True).plan
        assert plan is not None and {"skipper", "date"} <= fields_of(plan.query.filters)
        assert plan.contest is not None and plan.contest.claims and plan.period == side.period


def test_a_weekday_of_one_side_is_none_of_the_other() -> None:
    def read(text: str) -> object:
        return read_question(text, BOATS, VALUES, None, date(2026, 1, 14)).plan

    assert read("Did Ada make more trips than Bo on Mondays?") is not None
    assert read("Did Ada make more trips on Mondays than Bo on Tuesdays?") is None
