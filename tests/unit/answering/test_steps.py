"""Questions over records that take two queries."""

from typing import Any

import pytest

from rag_app.answering.records.planning import read_question
from rag_app.answering.records.steps import (
    MEAN,
    Way,
    may_take_steps,
    mean_conditions,
    mean_query,
    part_counted,
    read_steps,
    share_of_all,
    with_mean,
)
from rag_app.retrieval.filters import GT
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import find_period
from rag_app.retrieval.records import Aggregate, NamedValue
from tests.unit.answering.test_planning import BOATS, TODAY, VALUES


def steps(text: str) -> Any:
    assert may_take_steps(text)
    return read_steps(text, BOATS, VALUES, find_period(text, TODAY), TODAY)


def conditions(plan: Any) -> list[tuple[str, object]]:
    return [(each.key, each.value) for each in plan.query.filters if each.key not in ("source_type", "date")]


def test_a_share_is_a_part_of_a_whole() -> None:
    found = steps("What percentage of Ada's trips were from the north pier?")
    assert found.way is Way.SHARE
    assert conditions(found.plans[0]) == [("skipper", "Ada Holm"), ("harbour", "north pier")]
    assert conditions(found.plans[1]) == [("skipper", "Ada Holm")]


def test_a_part_is_a_share_and_may_leave_something_out() -> None:
    found = steps("What part of Ada's trips has a catch above 40?")
    assert found.way is Way.SHARE
    assert conditions(found.plans[0]) == [("catch", 40), ("skipper", "Ada Holm")]
    assert conditions(found.plans[1]) == [("skipper", "Ada Holm")]
    found = steps("What percentage of our trips were from the north pier? Without Ada's.")
    assert {each for each, _ in conditions(found.plans[0])} == {"skipper", "harbour"}
    assert [each for each, _ in conditions(found.plans[1])] == ["skipper"]


def test_several_numbers_and_two_lists_are_told_together() -> None:
    found = steps("How many trips were Ada's, how many were Bo's, and how many from the north pier?")
    assert found.way is Way.BOTH and len(found.plans) == 3
    assert [conditions(each) for each in found.plans] == [
        [("skipper", "Ada Holm")], [("skipper", "Bo Lind")], [("harbour", "north pier")],
    ]  # fmt: skip
    found = steps("Which trips were Ada's, and which were from the north pier?")
    assert found.way is Way.BOTH and found.plans[0].is_list
    assert [conditions(each) for each in found.plans] == [
        [("skipper", "Ada Holm")], [("harbour", "north pier")],
    ]  # fmt: skip
    assert steps("Which trips were Ada's and which is the fullest?") is None


def test_a_share_without_a_verb_is_one_of_all_records() -> None:
    found = steps("share of trips with Ada in January")
    assert conditions(found.plans[0]) == [("skipper", "Ada Holm")] and conditions(found.plans[1]) == []
    assert found.plans[0].period is not None and len(found.plans[1].query.filters) == 3  # the kind and the days


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("What share of the trips failed?", "how many trips failed"),
        ("What percentage of our trips have failed, in percent?", "how many our trips have failed"),
        ("What part of all trips failed?", "how many trips failed"),
        ("What share of Ada's trips have failed?", ""),  # which are the whole
        ("What share of Ada's failed?", ""),
        ("What share of the trips of each harbour failed?", ""),
        ("How did the share of trips that failed change?", ""),
    ],
)
def test_the_part_of_a_share_is_a_number(text: str, counted: str) -> None:
    assert part_counted(text, BOATS) == counted


def test_a_number_for_one_condition_is_a_share_of_all() -> None:
    one, two, dated = (
        read_question(text, BOATS, VALUES, find_period(text, TODAY), TODAY).plan
        for text in (
            "How many trips were Ada's?",
            "How many trips were Ada's from the north pier?",
            "How many trips were Ada's in March?",
        )
    )
    assert one and two and dated
    found = share_of_all(one)
    assert found is not None and [conditions(each) for each in found.plans] == [[("skipper", "Ada Holm")], []]
    assert share_of_all(two) is share_of_all(dated) is None


@pytest.mark.parametrize(
    "text",
    [
        "Which trips had more catch than the average?",
        "trips with an above-average catch",
        "Which trips were fuller than average?",
    ],
)
def test_more_than_the_mean_waits_for_it(text: str) -> None:
    found = steps(text)
    assert found.way is Way.MEAN
    (waiting,) = mean_conditions(found.plans[0].query.filters)
    assert (waiting.key, waiting.operator, waiting.value) == ("catch", GT, MEAN)
    assert (mean_query(found.plans[0]).aggregate, mean_query(found.plans[0]).of) == (Aggregate.AVERAGE, "catch")
    known = with_mean(found.plans[0], 12.345, BOATS)
    assert ("catch", 12.345) in conditions(known) and known.conditions == ("catch above 12.35, the average",)


def test_what_is_named_is_set_against_the_mean_of_all() -> None:
    found = steps("Is the catch of Ada's trip higher than average?")
    assert found.way is Way.MEAN and mean_query(found.plans[0]).filters == found.plans[0].everything.filters
    known = with_mean(found.plans[0], 12.345, BOATS)
    assert known.bound is not None and known.bound.value == 12.345 and known.bound in known.query.filters
    text = "Is the catch of Ada's trip from the north pier higher than average?"
    assert read_steps(text, BOATS, VALUES, None, TODAY) is None, "the average of which others"


def test_several_of_one_are_set_against_the_mean_by_theirs() -> None:
    known = with_mean(steps("Is Ada's catch higher than average?").plans[0], 12.345, BOATS)
    assert (known.query.aggregate, known.query.of) == (Aggregate.AVERAGE, "catch")
    assert conditions(known) == [("skipper", "Ada Holm")] and known.conditions == ("skipper Ada Holm",)
    assert known.bound is not None and known.bound.value == 12.345


def test_records_and_what_they_come_to() -> None:
    found = steps("Which trips did Ada make, and how much fish in total?")
    assert found.way is Way.BOTH and conditions(found.plans[0]) == conditions(found.plans[1]) == [
        ("skipper", "Ada Holm")
    ]
    assert found.plans[0].is_list and found.plans[1].query.aggregate is Aggregate.SUM
    found = steps("How many trips did Ada make, and what did they land together?")
    assert [each.query.aggregate for each in found.plans] == [Aggregate.COUNT, Aggregate.SUM]
    assert conditions(found.plans[1]) == [("skipper", "Ada Holm")], "of what was counted, wherever it was landed"


def test_a_change_in_percent_is_one_of_the_first() -> None:
    found = steps("How many percent more did Ada's trips haul than Bo's?")
    assert found.way is Way.CHANGE, "so much more than the other"
    assert [conditions(each) for each in found.plans] == [
        [("skipper", "Bo Lind")],
        [("skipper", "Ada Holm")],
    ]


def test_a_difference_of_two_values() -> None:
    found = steps("How much more did Ada's trips haul than Bo's?")
    assert found.way is Way.DIFFERENCE
    assert [conditions(each) for each in found.plans] == [
        [("skipper", "Ada Holm")],
        [("skipper", "Bo Lind")],
    ]
    assert found.plans[0].query.aggregate is Aggregate.SUM


@pytest.mark.parametrize(
    "text",
    [
        "How far apart are Ada and Bo in fish?",
        "By how many kilos is Ada's catch above Bo's?",
        "By how many fish is Ada ahead of Bo?",
        "How much fish is Ada behind Bo?",
        "How far behind Bo is Ada in fish?",
        "How far ahead of Ada is Bo in trips?",
    ],
)
def test_a_difference_is_asked_for_in_other_words(text: str) -> None:
    found = steps(text)
    assert {each for plan in found.plans for each in conditions(plan)} == {
        ("skipper", "Ada Holm"),
        ("skipper", "Bo Lind"),
    }


def test_ones_own_records_are_set_against_those_that_are_named() -> None:
    found = steps("How many fish is Ada ahead of our trips?")
    assert (conditions(found.plans[0]), found.plans[0].query.own) == ([("skipper", "Ada Holm")], False)
    assert (conditions(found.plans[1]), found.plans[1].query.own) == ([], True)


@pytest.mark.parametrize(("of", "measured"), [("fish", "catch"), ("trips", None)])
def test_we_are_those_of_ones_own(of: str, measured: str | None) -> None:
    found = steps(f"How far behind Ada are we in {of}?")
    assert (conditions(found.plans[0]), found.plans[0].query.of) == ([("skipper", "Ada Holm")], measured)
    assert (conditions(found.plans[1]), found.plans[1].query.own) == ([], True)
    assert steps("How far behind Ada are we?") is None, "nobody knows in what"


def test_a_change_of_the_only_figure_need_not_name_it() -> None:
    spec = IndexSpec.model_validate(
        {
            "name": "levels", "source_types": ("level",), "default_source_type": "level",
            "fields": {"river": {"type": "keyword", "words": ["river"]}, "level": {"type": "number", "words": ["level"]}},
            "records": {"level": {"words": ["reading"], "source_types": ["level"], "every": "month", "figures": ["level"]}},
        }
    )  # fmt: skip
    turns = read_question("level of the Elbe month by month", spec, [NamedValue("river", "Elbe")], None, TODAY).plan
    assert turns is not None
    assert (turns.query.order, turns.query.descending, turns.query.group) == ("date", False, None)
    text = "How much did the Elbe gain from January 2025 to March 2025?"
    found = read_steps(text, spec, [NamedValue("river", "Elbe")], find_period(text, TODAY), TODAY)
    assert found is not None and len(found.plans) == 2
    assert [each.query.of for each in found.plans] == ["level", "level"]


def test_a_share_of_what_they_are_worth_is_none_of_their_number() -> None:
    found = steps("What share of the value of our trips was Ada's?")
    assert found is None or found.plans[0].query.aggregate is Aggregate.SUM


def test_a_difference_of_numbers_of_records() -> None:
    found = steps("How many more trips did Ada make than Bo?")
    assert found.plans[0].query.aggregate is Aggregate.COUNT and found.plans[1].query.aggregate is Aggregate.COUNT


def test_a_difference_of_the_largest_and_the_smallest() -> None:
    found = steps("gap between the fullest and the emptiest trip")
    assert [(each.query.order, each.query.descending) for each in found.plans] == [
        ("catch", True),
        ("catch", False),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "How many trips were from the north pier and how many from the south pier?",
        "How many trips were from the north pier, and how many trips from the south pier?",
    ],
)
def test_two_numbers(text: str) -> None:
    found = steps(text)
    assert (found.way, found.plans[0].query.aggregate) == (Way.BOTH, Aggregate.COUNT)
    assert [conditions(each) for each in found.plans] == [
        [("harbour", "north pier")],
        [("harbour", "south pier")],
    ]


def test_two_lists() -> None:
    found = steps("Show me my trips and notes")
    assert (found.way, found.plans[0].kind, found.plans[1].kind) == (Way.BOTH, "trip", "note")
    assert found.plans[0].query.own and found.plans[1].query.own


@pytest.mark.parametrize(
    "text", ["the emptiest and the fullest trip", "Which trip was the emptiest, and which the fullest?"]
)
def test_both_ends_of_an_order(text: str) -> None:
    found = steps(text)
    assert (found.way, found.plans[0].query.order, found.plans[1].query.order) == (Way.BOTH, "catch", "catch")
    assert [each.query.descending for each in found.plans] == [False, True], "in the order of the words"


def test_so_many_a_day() -> None:
    found = steps("On average, how many trips a day were there from 5 to 10 January 2026?")
    assert (found.way, found.number, found.grain) == (Way.RATE, 6, "day")


@pytest.mark.parametrize(
    "text",
    [
        "What percentage of Ada's trips were profitable?",  # not a word of the index
        "What percentage of trips?",
        "the difference between Ada and the north pier",
        "On average, how many trips a week from 5 to 10 January 2026?",  # no whole weeks
        "Which trips were more expensive than average?",
    ],
)
def test_what_is_not_understood_is_no_query(text: str) -> None:
    assert steps(text) is None


def test_a_field_without_words_goes_by_its_name() -> None:
    spec = IndexSpec.model_validate(
        {
            "name": "weather",
            "source_types": ("row",),
            "default_source_type": "row",
            "fields": {"temp": {"type": "number", "high": ["warmest"]}, "town": "keyword"},
            "records": {"row": {"words": ["row"], "source_types": ["row"]}},
        }
    )
    towns = [NamedValue("town", "Riva"), NamedValue("town", "Sorn")]
    found = read_steps("How much warmer is Riva than Sorn on average?", spec, towns, None, TODAY)
    assert found is None or len(found.plans) == 2
