"""Questions over records as queries: over an index that the rules know nothing of but its declared words."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from llama_index.core.vector_stores.types import MetadataFilter

from rag_app.answering.leaning import without_opening
from rag_app.answering.records.asking import may_ask, ranks_kind, words_left
from rag_app.answering.records.finder import RecordFinder
from rag_app.answering.records.following import (
    asks_of_those,
    carry,
    follow,
    goes_on_alone,
    is_whole,
    move_to_time,
    questions_before,
)
from rag_app.answering.records.hours import read_hours
from rag_app.answering.records.planning import read_question, respell
from rag_app.answering.records.plans import Plan
from rag_app.domain import FieldType, Question
from rag_app.domain.resources import resource_folder
from rag_app.retrieval.index import IndexSpec, load_indexes
from rag_app.retrieval.periods import find_period, find_periods, means_part
from rag_app.retrieval.records import Aggregate, Grain, NamedValue, Record, RecordResult
from rag_app.retrieval.spelling import other_english, spellings

TODAY = date(2026, 1, 14)
LOGS = IndexSpec.model_validate(
    {
        "name": "logs", "source_types": ("trip",), "default_source_type": "trip",
        "fields": {
            "skipper": {"type": "keyword", "words": ["skipper", "customer"]},
            "catch": {"type": "number", "words": ["catch"]},
        },
        "records": {"trip": {"words": ["trip"], "source_types": ["trip"]}},
    }
)  # fmt: skip
BOATS = IndexSpec.model_validate(
    {
        "name": "boats",
        "source_types": ("trip", "note"),
        "default_source_type": "trip",
        "fields": {
            "skipper": {"type": "keyword", "words": ["skipper"], "kind": "trip"},
            "harbour": {"type": "keyword", "words": ["harbour"]},
            "skipper_id": {"type": "integer", "words": ["skipper"], "kind": "trip"},
            "catch": {
                "type": "number", "words": ["catch", "fish"], "unit": "kilos", "adds_up": True, "kind": "trip",
                "totals": ["haul"], "earned": ["land"], "earned_of": {"harbour": "north pier"}, "high": ["fullest", "most plentiful"], "low": ["emptiest"], "best": "high", "values": {">0": ["lucky"]},
            },
            "ours": {"type": "boolean", "own": True, "values": {"false": ["foreign"]}},
        },
        "records": {
            "trip": {"words": ["trip", "voyage"], "source_types": ["trip"], "by": "catch"},
            "note": {"words": ["note"], "source_types": ["note"]},
        },
    }
)  # fmt: skip
VALUES = [
    NamedValue("skipper", "Ada Holm"), NamedValue("skipper", "Bo Lind"), NamedValue("harbour", "north pier"), NamedValue("harbour", "south pier"),
    NamedValue("harbour", "old main ferry quay"),
]  # fmt: skip
CY = NamedValue("skipper", "Cy Moor")


def read(text: str, values: list[NamedValue] = VALUES) -> Any:
    return read_question(text, BOATS, values, find_period(text, TODAY), TODAY).plan


def read_after(way: Callable[..., Question | None], before: str, text: str) -> Any:
    """The plan of a question that goes on with the one before it, in one of the two ways."""
    asked, after = (Question(each, period=find_period(each, TODAY)) for each in (before, without_opening(text)))
    said = way(asked, after, BOATS, VALUES)
    assert said is not None
    plan = read_question(said.text, BOATS, VALUES, said.period, TODAY).plan
    assert plan is not None
    return plan


def filters(text: str, values: list[NamedValue] = VALUES) -> list[tuple[str, str, object]]:
    return stated(read(text, values))


def stated(plan: Plan) -> list[tuple[str, str, object]]:
    found = plan.query.filters
    return [
        (each.key, each.operator.value, each.value)
        for each in found
        if isinstance(each, MetadataFilter) and each.key not in ("source_type", "date")
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("How many trips did Ada Holm make?", {"aggregate": Aggregate.COUNT}),
        ("which trips did Ada hav", {"limit": 12}),
        ("total catch of our trips", {"aggregate": Aggregate.SUM, "of": "catch", "own": True}),
        ("How much fish was that last week?", {"aggregate": Aggregate.SUM, "of": "catch"}),
        ("What is the average catch?", {"aggregate": Aggregate.AVERAGE, "of": "catch"}),
        ("Which trip was the fullest?", {"order": "catch", "descending": True, "limit": 1}),
        ("What was our worst trip?", {"order": "catch", "descending": False, "limit": 1, "own": True}),
        ("the 3 fullest trips", {"order": "catch", "limit": 3}),
        ("the latest trip from the north pier", {"order": "date", "descending": True, "limit": 1}),
        ("Which skipper made the most trips?", {"aggregate": Aggregate.COUNT, "group": "skipper", "limit": 1}),
        ("Which skipper has the most fish?", {"aggregate": Aggregate.SUM, "of": "catch", "group": "skipper"}),
        ("trips per month", {"aggregate": Aggregate.COUNT, "group": "date", "grain": Grain.MONTH, "order": "date"}),
        (
            "Which harbour has the lowest average catch?",
            {"aggregate": Aggregate.AVERAGE, "group": "harbour", "descending": False, "limit": 1},
        ),
        ("the trip with the lowest catch", {"order": "catch", "descending": False, "limit": 1}),
        ("average catch by harbour", {"aggregate": Aggregate.AVERAGE, "of": "catch", "group": "harbour"}),
        ("How many trips were on a Sunday?", {"aggregate": Aggregate.COUNT, "weekdays": (7,)}),
        (
            "Which weekday has the most trips?",
            {"aggregate": Aggregate.COUNT, "group": "date", "grain": Grain.WEEKDAY, "limit": 1},
        ),
        ("fish by day of the week", {"aggregate": Aggregate.SUM, "of": "catch", "grain": Grain.WEEKDAY}),
        (
            "Do we make more trips on Mondays or Fridays?",
            {"aggregate": Aggregate.COUNT, "group": "date", "grain": Grain.WEEKDAY, "weekdays": (1, 5)},
        ),
        ("Are there more trips on Friday than on Saturday?", {"grain": Grain.WEEKDAY, "weekdays": (5, 6)}),
        ("lucky trips", {"order": "catch", "descending": True}),
        ("Welche trips sind lucky am meisten?", {"order": "catch", "descending": True}),
        ("Which of these trips is fuller?", {"order": "catch", "descending": True}),
        ("Which trip had less fish?", {"order": "catch", "descending": False, "limit": 1}),
        ("Which trip was worse?", {"order": "catch", "descending": False, "limit": 1}),
        ("Which skipper made more trips?", {"aggregate": Aggregate.COUNT, "group": "skipper", "limit": 1}),
        ("How many fish did our trips catch?", {"aggregate": Aggregate.SUM, "of": "catch", "own": True}),
        ("the most plentiful trips", {"order": "catch", "limit": 5}),
        ("What's the total for Ada's trips?", {"aggregate": Aggregate.SUM, "of": "catch"}),
        ("total trips", {"aggregate": Aggregate.COUNT}),
        ("How did we do last week, in kilos altogether?", {"aggregate": Aggregate.SUM, "of": "catch"}),
        ("What did Ada haul in January?", {"aggregate": Aggregate.SUM, "of": "catch"}),
        (
            "Can you tell me who was the busiest skipper?",
            {"aggregate": Aggregate.COUNT, "group": "skipper", "limit": 1},
        ),
        ("Which day had the most trips?", {"aggregate": Aggregate.COUNT, "group": "date", "grain": Grain.DAY}),
        ("Which trip was the most plentiful one?", {"order": "catch", "descending": True, "limit": 1}),
        ("Ada's next trip", {"order": "date", "descending": False, "limit": 1}),
        ("Which trip is next after 20 January?", {"order": "date", "descending": False, "limit": 1}),
        ("Put our trips in order of their catch, highest first", {"order": "catch", "descending": True, "limit": 12}),
        (
            "Compare the skippers: the average catch of what each did at the north pier",
            {"aggregate": Aggregate.AVERAGE, "of": "catch", "group": "skipper"},
        ),
        ("How much fish this week, all told?", {"aggregate": Aggregate.SUM, "of": "catch"}),
        ("Wie viele trips hatten wir im Januar?", {"aggregate": Aggregate.COUNT}),
        ("catch per month", {"aggregate": Aggregate.SUM, "of": "catch", "group": "date", "grain": Grain.MONTH}),
        ("Who was out yesterday?", {"limit": 12}),
        ("How many kilograms came in in January?", {"aggregate": Aggregate.SUM, "of": "catch"}),
        ("top plentiful trip", {"order": "catch", "limit": 1}),
        ("How many trips has Ada had or will have?", {"aggregate": Aggregate.COUNT}),
        ("How much have we had this month?", {"aggregate": Aggregate.SUM, "of": "catch"}),
        ("trips newest first", {"order": "date", "descending": True, "limit": 12}),
        ("What is the average catch per lucky trip?", {"aggregate": Aggregate.AVERAGE, "of": "catch", "group": None}),
        (
            "Which skippers have a catch of more than 90 kilos in total?",
            {"aggregate": Aggregate.SUM, "of": "catch", "group": "skipper", "limit": 50, "descending": True},
        ),
        ("our 3 trips with the most fish", {"order": "catch", "descending": True, "limit": 3, "own": True}),
        ("the lowest catch of all the trips", {"order": "catch", "descending": False, "limit": 1}),
        ("How much fish did our trips catch?", {"aggregate": Aggregate.SUM, "of": "catch", "own": True}),
        ("Which skippers were out in January?", {"aggregate": Aggregate.COUNT, "group": "skipper", "limit": 24}),
        ("Which skippers had trips from the north pier?", {"aggregate": Aggregate.COUNT, "group": "skipper"}),
        ("At which harbours were trips over 20 kilos?", {"aggregate": Aggregate.COUNT, "group": "harbour"}),
        ("Which months had lucky trips?", {"group": "date", "grain": Grain.MONTH, "order": "date"}),
        ("Which harbours had Ada or Bo?", {"group": "harbour"}),
        ("Which harbours had Ada and Bo?", {"group": None, "aggregate": None}),
        ("Which skipper was out in January?", {"group": None, "aggregate": None}),
        ("trips per skipper, the fewest at the top", {"aggregate": Aggregate.COUNT, "descending": False, "limit": 24}),
        ("catch by skipper, fullest first", {"aggregate": Aggregate.SUM, "group": "skipper", "descending": True}),
        ("average catch by harbour, lowest on top", {"aggregate": Aggregate.AVERAGE, "descending": False, "limit": 24}),
        ("which harbour is fullest on average", {"aggregate": Aggregate.AVERAGE, "group": "harbour", "limit": 1}),
        ("trips a week", {"aggregate": Aggregate.COUNT, "group": "date", "grain": Grain.WEEK}),
        ("trips skippers made, by harbour", {"aggregate": Aggregate.COUNT, "group": "harbour"}),
        ("Is Ada's catch higher than Bo's?", {"aggregate": Aggregate.SUM, "group": "skipper", "descending": True}),
        ("Does Ada make fewer trips than Bo?", {"aggregate": Aggregate.COUNT, "group": "skipper", "descending": False}),
        ("total catch, leaving Ada out", {"aggregate": Aggregate.SUM, "of": "catch"}),
        ("total catch 2024", {"aggregate": Aggregate.SUM, "of": "catch"}),
        ("Which trip was the fullest, and who was it?", {"order": "catch", "limit": 1}),
        ("How much fish has Ada had up to now?", {"aggregate": Aggregate.SUM, "of": "catch"}),
        ("the catch of our Ada and our Bo added together", {"aggregate": Aggregate.SUM}),
        ("Which harbour or harbours had the most trips?", {"group": "harbour", "limit": 1}),
        ("total of trips", {"aggregate": Aggregate.COUNT}),
        (
            "On average, who has more fish, Ada or Bo?",
            {"aggregate": Aggregate.AVERAGE, "of": "catch", "group": "skipper", "limit": 2},
        ),
        ("Who has more fish altogether, Ada or Bo?", {"aggregate": Aggregate.SUM, "group": "skipper", "limit": 2}),
        ("value of our trips", {"aggregate": Aggregate.SUM, "of": "catch"}),
        ("Is Ada's trip fuller than Bo's?", {"aggregate": Aggregate.AVERAGE, "of": "catch", "group": "skipper"}),
        ("trips from before 2024", {"limit": 12}),
        ("Which trip was the fullest, and what harbour did it leave from?", {"order": "catch", "limit": 1}),
    ],
)
def test_a_question_becomes_a_query(text: str, wanted: dict[str, object]) -> None:
    query = read(text).query
    assert {name: getattr(query, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Ada's trips", [("skipper", "==", "Ada Holm")]),
        ("trips with more than 20 kilos", [("catch", ">", 20.0)]),
        ("trips of skipper 7", [("skipper_id", "==", 7)]),
        ("How many pier trips are there?", [("harbour", "in", ["north pier", "south pier"])]),
        ("foreign trips", [("ours", "==", False)]),
        ("our foreign trips", [("ours", "==", False)]),
        ("trips between 20 and 40 kilos", [("catch", ">=", 20.0), ("catch", "<=", 40.0)]),
        ("trips with 20 kilos or more", [("catch", ">=", 20.0)]),
        ("trips from Ada or Bo", [("skipper", "in", ["Ada Holm", "Bo Lind"])]),
        ("How many trips were not with Ada?", [("skipper", "!=", "Ada Holm")]),
        ("trips from the main quay", [("harbour", "==", "old main ferry quay")]),
        ("trips fuller than 20", [("catch", ">", 20.0)]),
        ("trips emptier than 20 kilos", [("catch", "<", 20.0)]),
        ("trips with more than 20 kg", [("catch", ">", 20.0)]),
        ("trips with a catch under -5", [("catch", "<", -5.0)]),
        ("trips with a catch below minus five", [("catch", "<", -5.0)]),
        ("trips over 20 and under 40 kilos", [("catch", ">", 20.0), ("catch", "<", 40.0)]),
        ("trips that are not ours", [("ours", "==", False)]),
        ("trips that don't belong to us", [("ours", "==", False)]),
        ("How many fish, leaving Ada out?", [("skipper", "!=", "Ada Holm")]),
        ("trips that werent with Ada", [("skipper", "!=", "Ada Holm")]),
        ("trips with a catch of 20 kilos of fish or more", [("catch", ">=", 20.0)]),
        ("trips with no more than 2000 kilos", [("catch", "<=", 2000.0)]),
        ("trips with Ada, and what harbour did they leave from?", [("skipper", "==", "Ada Holm")]),
    ],
)
def test_conditions_come_from_values_and_figures(text: str, wanted: list[tuple[str, str, object]]) -> None:
    assert filters(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "How many trips did Cara make?",  # nobody the scope knows
        "How many trips did not catch anything?",
        "How many trips had more than 20?",  # of what
        "Which trips and notes are there?",
        "trips with a catch over 20 but by Ada",
        "How many trips did Ada make for Bo?",
        "trips between 2 and 3 years",
        "How many trips are within one metre?",
        "How many trips took more than 3 days?",
        "the average and the total catch",
        "the fullest and the latest trip",
        "What does the harbour master say about trips in fog?",
        "trips",
        "Why was the fullest trip so late?",
        "How many trips are over 20 metres?",
        "trips with Ada or without fish",
        "How many trips on average?",
        "kilos per month",  # no number of trips
        "How does a skipper catch the most fish?",
        "Where is the best harbour?",
        "What does catch mean?",
        "trips fuller than the one before",
        "which trips were lucky the least",
        "trips fuller than 20 miles",
        "How many trips a second?",
        "the second trip",
        "Which skippers make more trips than Ada and Bo?",
        "Did more than Ada make trips with Bo?",
        "How many trips at the end of January?",
        "How many trips in early January 2026?",
        "How many fish of Ada's were sent back?",
        "How many days do I have to return fish of Ada's?",
        "When do we make up our minds about Ada's trips, and who does that?",
        "Which skippers did we send money back to, and how much did each get?",
        "What did we note about the trips of Ada?",
        "How many passengers complained about Ada?",
        "How many trips could Ada take home under 20 kilos?",
        "Which of our trips fell through?",
        "Which trips of Ada's are flagged?",
        "How many trips are far from the north pier?",
    ],
)
def test_what_is_not_wholly_understood_goes_the_words_way(text: str) -> None:
    assert read(text) is None


def test_nothing_is_a_figure() -> None:
    assert ("catch", "==", 0.0) in filters("How many trips have a catch of 0?")


def test_the_second_one_is_ordered_as_the_first() -> None:
    first, second = read("the fullest trip"), read("the second fullest trip")
    assert (second.query, second.place, first.place) == (first.query, 2, 1)


GOODS = IndexSpec.model_validate(
    {
        "name": "goods", "source_types": ("good",), "default_source_type": "good",
        "fields": {"sort": {"type": "keyword", "words": ["sort"]}, "marks": {"type": "tags", "words": ["marked"]}},
        "records": {"good": {"words": ["good"], "source_types": ["good"]}},
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("which goods are marked desk?", [("marks", "contains", "desk")]),
        ("which goods are desks?", [("sort", "==", "desks")]),
        ("which goods marked desk are not of the sort desks?", [("sort", "!=", "desks"), ("marks", "contains", "desk")]),
        ("goods that are marked oak, without being desks", [("sort", "!=", "desks"), ("marks", "contains", "oak")]),
        ("which goods are marked desk but not marked oak?", None),  # no filter says that a tag is not there
        ("which goods are desks and not desks?", None),
    ],
)  # fmt: skip
def test_what_is_denied_beside_what_is_named_is_a_condition(
    text: str, wanted: list[tuple[str, str, object]] | None
) -> None:
    values = [NamedValue("sort", "desks"), NamedValue("marks", "desk"), NamedValue("marks", "oak")]
    plan = read_question(text, GOODS, values, None, TODAY).plan
    assert (plan and sorted(stated(plan), reverse=True)) == wanted


@pytest.mark.parametrize("text", ["our number two trip by fish", "Which of our trips comes second by catch?"])
def test_a_place_may_be_one_in_the_order_of_a_figure(text: str) -> None:
    plan = read(text)
    assert (plan.query.order, plan.query.descending, plan.query.limit, plan.place) == ("catch", True, 1, 2)


def test_the_number_of_ones_own_is_a_place_before_one_of_them() -> None:
    assert read("our three trips by fish").query.limit > 1
    assert read("the number three fullest trip").place == 3


def test_the_worst_of_what_is_good_is_the_lowest() -> None:
    assert not read("Which trip was the poorest fullest one?").query.descending


def test_values_are_listed() -> None:
    for text in "Which skippers are there?", "What kinds of skipper have you got?":
        plan = read(text)
        assert (plan.query.aggregate, plan.query.group, plan.distinct) == (Aggregate.COUNT, "skipper", True)


def test_more_of_a_kind_is_their_number() -> None:
    query = read("Who made more trips, Ada or Bo?").query
    assert (query.aggregate, query.of, query.group, query.limit) == (Aggregate.COUNT, None, "skipper", 2)


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("average catch in the week nearest to 5 January 2026", ("week", "nearest")),
        ("How many trips in the week with 5 January 2026?", ("week",)),
        ("Whose boots made the most fish?", ("whose", "boots")),
        ("Who made the most fish?", ("who",)),
    ],
)
def test_what_a_query_would_leave_out_is_named(text: str, unknown: tuple[str, ...]) -> None:
    reading = read_question(text, BOATS, VALUES, find_period(text, TODAY), TODAY)
    assert (reading.plan, reading.unknown, reading.limits) == (None, unknown, True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("How many of Ada's have found a buyer?", ("buyer",)),
        ("Is Ada free on Friday?", ("Ada",)),
        ("Is Ada free?", None),
        ("How many of Ada's were sent back?", ("sent",)),
    ],
)
def test_a_text_needs_the_words_that_are_asked_about(text: str, wanted: tuple[str, ...] | None) -> None:
    """How many nets were sold, or that Bo is free, is no answer."""
    question, none = Question(text, period=find_period(text, TODAY)), cast(Any, None)
    finder = RecordFinder(question, LOGS, none, none, None, 5, None, ())
    finder._known[text, question.period] = VALUES
    reading = read_question(text, LOGS, VALUES, question.period, TODAY)
    told = finder._explain_unread(reading, text)
    assert (told and told.unknown) == wanted


@pytest.mark.parametrize(
    ("text", "last", "ends"),
    [
        ("how much fish will there be next year?", date(2026, 1, 12), True),
        ("how many will we catch in March?", date(2026, 1, 12), True),
        ("how many trips in 2027", date(2026, 1, 12), True),
        ("how many trips in 2027", date(2026, 2, 1), False),
        ("how many trips last year", date(2026, 1, 12), False),
        ("who moves house in 2027?", date(2026, 1, 12), False),
    ],
)
def test_rows_that_end_before_a_period_say_nothing_of_it(text: str, last: date, ends: bool) -> None:
    trips = BOATS.model_dump() | {
        "source_types": ("trip",),
        "records": {"trip": BOATS.records["trip"].model_dump()},
        "rows": ({"files": "trips.csv", "source_type": "trip"},),
    }
    spec, none = IndexSpec.model_validate(trips), cast(Any, None)
    question = Question(text, period=find_period(text, TODAY), today=TODAY)
    finder = RecordFinder(question, spec, none, none, None, 5, None, ())
    newest = datetime(last.year, last.month, last.day, tzinfo=UTC).timestamp()
    finder._store = cast(Any, SimpleNamespace(find_records=lambda query: None))
    work, told = finder._explain_future(), None
    try:
        next(work)
        while True:
            work.send(RecordResult(rows=(Record((uuid4(),), newest),), total=1))
    except StopIteration as done:
        told = done.value
    assert (told is not None and told.text.startswith(f"The records end on {last.day} ")) == ends


def test_a_few_words_go_on_with_something() -> None:
    assert goes_on_alone(Question("and Bo?"), BOATS) and not goes_on_alone(Question("Bo?"), BOATS)
    assert not goes_on_alone(Question("and how many trips did Bo make?"), BOATS), "it may be asked alone"
    assert goes_on_alone(Question("Bo, please"), BOATS) and not goes_on_alone(Question("Bo, please"), BOATS, first=True)


def test_those_of_all_organizations_are_ones_own() -> None:
    assert read("How many trips do all companies have?").everybody
    assert not read("How many trips do we have?").everybody


def test_words_alike_are_understood_where_the_index_has_one_of_them() -> None:
    done = [NamedValue("harbour", "done")]
    assert "done" in words_left("finished trips", BOATS, None)
    assert [each.value for each in read("finished trips", done).query.filters if each.key == "harbour"] == ["done"]
    assert read("finished trips", []) is None


def test_a_name_that_two_fields_have_is_nobodys() -> None:
    both = [NamedValue("skipper", "Ada Holm"), NamedValue("harbour", "Ada Holm")]
    assert read("How many trips did Ada Holm make?", both) is None
    assert read("How many trips did Ada make?", both) is None


def test_words_of_the_index_and_of_values_are_put_right() -> None:
    text = "wich skiper made the most tripps"
    unknown = read_question(text, BOATS, [], None).unknown
    spelled = respell(text, {word: spellings(word) for word in unknown}, BOATS, [])
    assert spelled == "which skipper made the most trips"


def test_a_value_is_likelier_than_a_word_that_says_nothing() -> None:
    values = [NamedValue("harbour", "booked")]
    assert respell("harbour bookd", {"bookd": spellings("bookd")}, BOATS, values) == "harbour booked"
    assert respell("harbour bookd", {"bookd": spellings("bookd")}, BOATS, []) == "harbour book"


def test_values_are_looked_up_for_few_words_of_a_question_about_records() -> None:
    assert "ada" in words_left("How many trips did Ada make?", BOATS, None)
    assert words_left("one two three four five six seven unknown words about quite other subjects", BOATS, None) == ()


def test_what_no_field_is_called_is_missing() -> None:
    reading = read_question("How many passengers did Ada rescue?", BOATS, VALUES, None)
    assert (reading.missing, reading.kind) == ("", None), "two places that are not understood"
    reading = read_question("How many passengers were on Ada's trips?", BOATS, VALUES, None)
    assert (reading.plan, reading.missing, reading.kind) == (None, "passengers", "trip")
    for text in "Rank our trips by passengers", "What passengers did Ada get?":
        assert read_question(text, BOATS, VALUES, None).missing == "passengers"


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("trips that were not lucky", [("catch", "<=", 0.0)]),
        ("trips with a catch over 20 but under 40", [("catch", ">", 20.0), ("catch", "<", 40.0)]),
        ("all trips but Ada's", [("skipper", "!=", "Ada Holm")]),
        ("trips that have nothing to do with Ada", [("skipper", "!=", "Ada Holm")]),
        ("average catch of our trips, Ada left out", [("skipper", "!=", "Ada Holm")]),
        ("Which trips are by Ada?", [("skipper", "==", "Ada Holm")]),
        ("trips between 20 and 30", [("catch", ">=", 20.0), ("catch", "<=", 30.0)]),
        ("trips with a catch of more than 5 kilos", [("catch", ">", 5.0)]),
    ],
)
def test_conditions_in_other_words(text: str, conditions: list[tuple[str, str, object]]) -> None:
    assert filters(text) == conditions


def test_different_values_and_days_are_counted() -> None:
    skippers = read("How many skippers made trips in January?")
    assert (skippers.query.group, skippers.distinct) == ("skipper", True)
    catches = read("How many different catches are there?")
    assert (catches.query.group, catches.distinct) == ("catch", True)
    days = read("On how many days in January was there at least one trip?")
    assert (days.query.group, days.query.grain, days.distinct) == ("date", Grain.DAY, True)
    assert read("How many skipper trips in January?").query.group is None, "the second of two nouns is counted"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Is Ada's catch higher than Bo's?", ("more", True)),
        ("Does Ada make fewer trips than Bo?", ("less", True)),
        ("Did Ada or Bo catch more fish?", ("more", False)),
        ("Who made more trips, Ada or Bo?", ("more", False)),
        ("Is Ada's catch much higher than Bo's?", ("more", False)),
        ("Is Ada's catch better than Bo's?", ("more", True)),
        ("Is Ada's catch worse than Bo's?", ("less", True)),
        ("Are there more trips by Ada than by Bo?", ("more", True)),
        ("Did Ada and Bo make the same number of trips?", ("same", True)),
        ("Does Ada catch as much fish as Bo?", ("same", False)),
        ("Are Ada's and Bo's catch equal?", ("same", True)),
        ("Was a trip of Ada as plentiful as a trip of Bo?", ("same", False)),
        ("Which of the two has more catch, Ada or Bo?", ("more", False)),
        ("Who has less fish, an Ada skipper or a Bo skipper?", ("less", False)),
        ("Did Ada or Bo catch more, and how much?", ("more", False)),
        ("Of Ada and Bo, who made more trips?", ("more", False)),
        ("Hat Ada mehr trips als Bo?", ("more", True)),
    ],
)
def test_what_is_set_against_each_other_is_told_which_way(text: str, wanted: tuple[str, bool]) -> None:
    plan = read(text)
    assert (plan.contest.sides, plan.contest.way, plan.contest.claims) == (("Ada Holm", "Bo Lind"), *wanted)
    assert plan.query.descending is (wanted[0] != "less")


@pytest.mark.parametrize(
    "text",
    [
        "Isn't Ada's catch higher than Bo's?",
        "Does Ada catch at least as much fish as Bo?",
        "Does Ada catch twice as much fish as Bo?",
        "How many trips did Ada and Bo make on the same day?",
        "Did Ada make more trips than Bo and Ada together?",
        "trips of Ada and Bo with the same catch",
    ],
)
def test_what_is_compared_otherwise_has_no_verdict(text: str) -> None:
    plan = read(text)
    assert plan is None or plan.contest is None


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("Did Ada's trip catch more than 30 kilos?", True),
        ("Does Ada have a catch above 30?", True),
        ("Does Ada have a catch slightly above 30?", False),
        ("Which of Ada's trips had a catch above 30?", False),
        ("Did we have trips with a catch above 30?", False),
    ],
)
def test_a_bound_on_what_is_named_is_asked_to_be_kept_or_not(text: str, bounded: bool) -> None:
    assert (read(text).bound is not None) is bounded


@pytest.mark.parametrize(
    ("text", "wanted", "bound"),
    [
        ("Has Ada more than 5 trips?", (Aggregate.COUNT, None), ("", ">=", 6)),
        ("Did Ada make fewer than three trips?", (Aggregate.COUNT, None), ("", "<=", 2)),
        ("Did Ada make at least three lucky trips?", (Aggregate.COUNT, None), ("", ">=", 3)),
        ("Do we have more than 5 trips with more than 30 kilos?", (Aggregate.COUNT, None), ("", ">=", 6)),
        ("Is the average catch of Ada above 30?", (Aggregate.AVERAGE, "catch"), ("catch", ">", 30)),
        ("Is Ada's haul below 100?", (Aggregate.SUM, "catch"), ("catch", "<", 100)),
        ("Did Ada catch more than 90 kilos in total?", (Aggregate.SUM, "catch"), ("catch", ">", 90)),
    ],
)
def test_a_number_or_a_total_is_asked_to_keep_to_a_bound(
    text: str, wanted: tuple[object, object], bound: tuple[str, str, float]
) -> None:
    plan = read(text)
    assert (plan.query.aggregate, plan.query.of) == wanted
    assert (plan.bound.key, plan.bound.operator.value, plan.bound.value) == bound
    assert plan.bound not in plan.query.filters


@pytest.mark.parametrize(
    "text",
    [
        "Did any skipper catch more than 90 kilos in total?",
        "Has every skipper more than 2 trips?",
        "Has Ada slightly more than 5 trips?",
        "Is the average catch of each skipper above 30 kilos?",
        "Is the haul of the trips above 30 kilos more than 90 kilos?",
        "Has somebody other than Ada more than 2 trips?",
    ],
)
def test_a_bound_on_the_totals_of_several_is_not_understood(text: str) -> None:
    assert read(text) is None


def test_two_days_of_a_week_are_no_weekdays() -> None:
    assert read("How many trips on Monday or Tuesday?") is None
    assert read("How many trips on a Monday or Tuesday?").query.weekdays == (1, 2)


def test_a_bound_may_be_of_one_or_of_all_together() -> None:
    assert read("Did Ada catch more than 30 kilos?").together
    assert not read("Did Ada make a trip above 30 kilos?").together


@pytest.mark.parametrize(
    ("text", "aggregate"),
    [
        ("Did Ada make trips, and if so how many?", Aggregate.COUNT),
        ("Are there trips above 30 kilos? If so, how many?", Aggregate.COUNT),
        ("Did Ada make any trips, and if so which?", None),
        ("Were there trips on 12 January 2026, and if yes, who made them?", None),
    ],
)
def test_if_so_goes_on_with_the_same(text: str, aggregate: object) -> None:
    assert read(text).query.aggregate is aggregate


def test_a_comparison_is_one_figure_for_each_period() -> None:
    def compared(text: str) -> Any:
        periods = find_periods(text, TODAY)
        assert len(periods) == 2
        return [read_question(text, BOATS, VALUES, each, TODAY, comparing=True).plan for each in periods]

    first, second = compared("Did we catch more in 2024 or in 2025?")
    assert (first.query.aggregate, first.query.of) == (Aggregate.SUM, "catch")
    assert (first.period.label, second.period.label) == ("2024", "2025")
    assert compared("Were there more trips in May 2025 than in June 2025?")[0].query.aggregate is Aggregate.COUNT
    assert compared("average catch in 2024 as against 2025")[0].query.aggregate is Aggregate.AVERAGE
    assert compared("Was it luckier in 2024 or in 2025?")[0].query.aggregate is Aggregate.COUNT
    assert compared("Was it nicer in 2024 or in 2025?") == [None, None], "a word is not understood"
    assert read("Did we catch more fish?") is None, "more than what"


def test_a_ranking_by_no_field_is_answered_by_no_text() -> None:
    assert read_question("Which of our trips had the best weather score?", BOATS, VALUES, None).limits
    assert read_question("Which skipper is the longest?", BOATS, VALUES, None).plan is None
    assert read_question("Catch of Ada Smith?", BOATS, VALUES, None).another
    assert not read_question("Catch of Ada Holm for dinner?", BOATS, VALUES, None).another
    assert not read_question("How many passengers were on Ada's trips?", BOATS, VALUES, None).limits


def test_a_day_without_a_year_may_be_of_another_one() -> None:
    period = find_period("trips on 10 February", date(2026, 12, 20))
    plan = read_question("trips on 10 February", BOATS, VALUES, period, TODAY).plan
    assert plan is not None
    assert [each.period and each.period.label for each in plan.years] == [
        f"10 February {year}" for year in (2027, 2026, 2025, 2024, 2023)
    ]


@pytest.mark.parametrize(
    ("before", "text", "alone"),
    [
        ("Which trip was the fullest?", "and the second?", "Which trip was the second fullest?"),
        ("Which trip was the fullest?", "and the second fullest one?", "Which trip was the second fullest?"),
        ("Which trip was the fullest?", "And the emptiest?", "Which trip was the emptiest?"),
        ("Which trip was the second fullest?", "And the emptiest?", "Which trip was the emptiest?"),
        ("How many trips did Ada make last week?", "What about Bo?", "How many trips did Bo make last week?"),
        ("trips with a catch of 5 kilos", "and with 7?", "trips with a catch of 7 kilos"),
        ("How many trips had more than 5 kilos?", "and more than 7 kilos?", "How many trips had more than 7 kilos?"),
        ("What did Ada's trips come to?", "and Bo's?", "What did Bo's trips come to?"),
        ("How many trips did Ada make last week?", "and yesterday?", "How many trips did Ada make yesterday?"),
        ("How many trips were there?", "and in January?", "How many trips were there in January?"),
        ("What is our fullest trip?", "and the worst?", "What is our emptiest trip?"),
    ],
)
def test_a_follow_up_takes_the_place_of_what_was_said_before(before: str, text: str, alone: str) -> None:
    merged, wanted = read_after(follow, before, text), read(alone)
    assert (merged.query, merged.place) == (wanted.query, wanted.place)


@pytest.mark.parametrize(
    ("before", "text", "alone"),
    [
        ("the trip with the lowest catch", "and what was its catch?", "the trip with the lowest catch"),
        ("the trip with the lowest catch", "when was that?", "the trip with the lowest catch"),
        ("Who was out on trips on 3 January 2026?", "how much did he catch?", "how much catch trips on 3 January 2026"),
        (
            "How many trips in January 2026?",
            "how many of these trips are by Ada?",
            "How many trips by Ada in January 2026?",
        ),
        (
            "How much catch in January 2026?",
            "Which trip of that month had the most?",
            "Which trip had the most catch in January 2026?",
        ),
    ],
)
def test_what_was_put_first_is_asked_for_more(before: str, text: str, alone: str) -> None:
    assert read_after(carry, before, text).query == read(alone).query


def test_again_is_on_another_day() -> None:
    before = "How many trips did Ada make on 3 January 2026?"
    plan = read_after(carry, before, "when is she out again?")
    assert plan.period.label == "since 4 January 2026"


def test_how_many_pieces_is_the_figure_of_a_kind_that_is_named() -> None:
    query = read("Without Ada, how many pieces did our trips catch?").query
    assert (query.aggregate, query.of) == (Aggregate.SUM, "catch")


def test_whether_one_is_the_first_is_asked_of_all() -> None:
    plan = read("Is Ada our skipper with the most trips?")
    assert plan.conditions == () and plan.query.group == "skipper"


def test_a_word_behind_a_value_says_what_it_is() -> None:
    titles = [
        NamedValue("source_id", "1", "North pier jetty", "note", frozenset(), frozenset({"north", "pier", "jetty"}))
    ]
    assert read("How many trips in the north pier jetty?", [*VALUES, *titles]) is not None
    assert read("How many trips in the north pier crane?", [*VALUES, *titles]) is None


def test_a_field_that_holds_or_not_is_a_condition_by_its_name() -> None:
    spec = BOATS.model_copy(update={"fields": {**BOATS.fields, "insured": FieldType.BOOLEAN}})
    plan = read_question("How many trips are insured?", spec, VALUES, None).plan
    assert plan is not None and plan.conditions == ("insured yes",)
    plan = read_question("How many trips are not insured?", spec, VALUES, None).plan
    assert plan is not None and plan.conditions == ("not insured",)


def test_those_of_a_ranking_are_what_it_put_first() -> None:
    trip = BOATS.records["trip"].model_copy(update={"sentence": ("{title}: {catch} kilos",)})
    spec = BOATS.model_copy(update={"records": {**BOATS.records, "trip": trip}})
    said = carry(Question("our fullest trip"), Question("how many fish of those did we have?"), spec, VALUES)
    assert said is not None and said.text == "our fullest trip"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("Which trips are on Friday?", True),
        ("Who is booked on Friday?", True),
        ("and on Friday?", False),
        ("Which are on Friday?", False),
        ("Who was with her on Friday?", False),
        ("Who is booked?", False),
    ],
)
def test_a_question_of_few_words_may_say_all_itself(text: str, whole: bool) -> None:
    assert is_whole(Question(text, period=find_period(text, TODAY)), BOATS) is whole


@pytest.mark.parametrize(
    "text", ["and why?", "how is that?", "What about the crew?", "and how many of them?", "thanks"]
)
def test_what_says_anything_else_is_no_follow_up(text: str) -> None:
    assert follow(Question("Which trip was the fullest?"), Question(without_opening(text)), BOATS, VALUES) is None


def test_of_groups_with_one_record_each_none_has_the_most() -> None:
    plan = read("Which skipper made the most trips?")
    counts = [
        RecordResult(tuple(Record((), group=str(n), value=each) for n, each in enumerate(of)))
        for of in ((1, 1), (2, 2), (1,))
    ]
    assert plan is not None and [plan.finds_no_best(each) for each in counts] == [True, False, False]


def test_the_question_before_is_the_one_that_is_looked_for_with_it() -> None:
    assert questions_before(Question("and last week?", searched="Hello. Which trip?\nand last week?")) == (
        "Which trip?",
        "Hello.",
    )
    assert questions_before(Question("and last week?")) == ()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("the fullest trip of each skipper", {"order": "catch", "group": "skipper", "aggregate": None}),
        (
            "Who is our fullest skipper by catch?",
            {"aggregate": Aggregate.SUM, "of": "catch", "group": "skipper", "limit": 1},
        ),
        ("the top 2 skippers by number of trips", {"aggregate": Aggregate.COUNT, "group": "skipper", "limit": 2}),
        (
            "Which skipper had the most fish per trip?",
            {"aggregate": Aggregate.AVERAGE, "of": "catch", "group": "skipper"},
        ),
        ("Which harbour had the most trips of a skipper?", {"aggregate": Aggregate.COUNT, "group": "harbour"}),
        ("How many 20 kilo trips did Ada make?", {"aggregate": Aggregate.COUNT, "of": None}),
        ("How many from the north pier had a skipper?", {"aggregate": Aggregate.COUNT, "group": None}),
        ("Is Ada our skipper with the most trips?", {"aggregate": Aggregate.COUNT, "group": "skipper", "limit": 1}),
        ("How many skippers are called Ada?", {"aggregate": Aggregate.COUNT, "group": "skipper"}),
        ("Who are our skippers?", {"aggregate": Aggregate.COUNT, "group": "skipper"}),
        ("lowest catch per harbour", {"order": "catch", "group": "harbour", "aggregate": None, "descending": False}),
        ("Which skippers made at least two trips?", {"aggregate": Aggregate.COUNT, "group": "skipper", "least": 2}),
        ("Which skippers went out more than once on trips?", {"group": "skipper", "least": 2, "most": 0}),
        ("Which skippers made only one trip?", {"group": "skipper", "least": 1, "most": 1}),
        ("How many different catch values did our trips have?", {"aggregate": Aggregate.COUNT, "group": "catch"}),
        ("How many trips with Ada, notes aside?", {"aggregate": Aggregate.COUNT}),
        ("mean catch over the north pier trips", {"aggregate": Aggregate.AVERAGE, "of": "catch", "group": None}),
        ("What is the average trip value of Ada?", {"aggregate": Aggregate.AVERAGE, "of": "catch"}),
        ("the most in one go, in kilos", {"order": "catch", "descending": True, "limit": 1, "group": None}),
        ("How many trips did Ada make, those from the north pier included?", {"aggregate": Aggregate.COUNT}),
    ],
)
def test_forms_of_groups(text: str, wanted: dict[str, object]) -> None:
    query = read(text).query
    assert {name: getattr(query, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("How many trips did Ada make, those from the north pier included?", [("skipper", "==", "Ada Holm")]),
        ("trips under 20 for catch", [("catch", "<", 20.0)]),
        ("trips not from the harbour north pier", [("harbour", "!=", "north pier")]),
        ("all trips on your website without Ada", [("skipper", "!=", "Ada Holm")]),
        ("trips with no catch at all", [("catch", "==", 0.0)]),
        ("all trips in our book without Ada", [("skipper", "!=", "Ada Holm")]),
    ],
)
def test_forms_of_conditions(text: str, wanted: list[tuple[str, str, object]]) -> None:
    assert filters(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "What percentage of Ada's trips were lucky?",  # "of Ada's" leaves nobody out
        "the difference between Ada's and Bo's trips",
        "catch by month and skipper",
        "Which skippers made more trips than Ada?",
    ],
)
def test_one_query_does_not_say_it(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(("word", "descending"), [("more", True), ("less", False)])
def test_one_of_two_values_has_more(word: str, descending: bool) -> None:
    query = read(f"Did Ada or Bo have {word} catch?").query
    assert (query.aggregate, query.of, query.group) == (Aggregate.SUM, "catch", "skipper")
    assert (query.order, query.descending, query.limit) == (None, descending, 2)
    assert filters(f"Did Ada or Bo have {word} catch?") == [("skipper", "in", ["Ada Holm", "Bo Lind"])]


def test_the_last_time_is_not_to_come() -> None:
    plan = read("When was Ada's last trip?")
    assert plan.period.end == TODAY and plan.period.start is None
    assert read("Ada's latest trip").period is None


def test_a_year_before_its_records_is_a_period() -> None:
    assert read("the average catch of a 2024 trip").period.label == "2024"


@pytest.mark.parametrize(
    ("text", "asked"),
    [("What are the top trips to the islands?", True), ("Which trips have the most fish abroad?", False)],
)
def test_the_top_ones_of_a_kind_are_told_from_the_one_with_the_most(text: str, asked: bool) -> None:
    assert ranks_kind(text, BOATS) is asked


@pytest.mark.parametrize(
    "text", ["How pricey are our listings on average?", "Wie teuer sind unsere Listings im Schnitt?"]
)
def test_how_expensive_asks_for_the_price(text: str) -> None:
    """And not for the figure that listings go by, their sales."""
    plan = read_question(text, load_indexes(resource_folder("indexes"))["marketplace"], [], None).plan
    assert plan is not None
    assert (plan.query.aggregate, plan.query.of, plan.query.own) == (Aggregate.AVERAGE, "price", True)


def test_what_something_is_the_best_by_is_no_group() -> None:
    marketplace = load_indexes(resource_folder("indexes"))["marketplace"]
    plan = read_question("our bestseller by number sold, which one is it", marketplace, [], None).plan
    assert plan is not None
    assert (plan.query.order, plan.query.descending, plan.query.group) == ("sales", True, None)


@pytest.mark.parametrize(
    ("text", "may_be"),
    [
        ("what was the fish from Ada", True),
        ("what is the fish of our trips to the north pier", True),
        ("trips with more than 20 kilos of fish", False),
        ("the fullest trips", False),
        ("trips of Ada", False),
    ],
)
def test_a_list_with_one_figure_that_adds_up_may_be_a_total(text: str, may_be: bool) -> None:
    plan = read(text)
    assert plan.may_be_total(BOATS) == may_be
    if may_be:
        assert (plan.total.query.aggregate, plan.total.query.of) == (Aggregate.SUM, "catch")
        assert plan.total.query.filters == plan.query.filters


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("trips except Ada's and Bo's", [("skipper", "!=", "Ada Holm"), ("skipper", "!=", "Bo Lind")]),
        ("trips that were not by Ada or Bo", [("skipper", "!=", "Ada Holm"), ("skipper", "!=", "Bo Lind")]),
        (
            "trips that are neither Ada's nor from the north pier",
            [("skipper", "!=", "Ada Holm"), ("harbour", "!=", "north pier")],
        ),
        ("trips of somebody other than Ada", [("skipper", "!=", "Ada Holm")]),
        ("Which trips are of anyone but Bo?", [("skipper", "!=", "Bo Lind")]),
        ("What trips are there besides Ada's?", [("skipper", "!=", "Ada Holm")]),
        ("what else do the trips show apart from Ada's", [("skipper", "!=", "Ada Holm")]),
        ("trips of Ada, not counting the north pier", [("skipper", "==", "Ada Holm"), ("harbour", "!=", "north pier")]),
        (
            "trips not counting Ada's, Bo's and Cy's",
            [("skipper", "!=", each) for each in ("Ada Holm", "Bo Lind", "Cy Moor")],
        ),
        (
            "trips that are not Ada's, Bo's or Cy's",
            [("skipper", "!=", each) for each in ("Ada Holm", "Bo Lind", "Cy Moor")],
        ),
        ("Which skippers are there besides Ada and Bo?", [("skipper", "!=", "Ada Holm"), ("skipper", "!=", "Bo Lind")]),
    ],
)
def test_all_that_is_left_out_is_left_out(text: str, wanted: list[tuple[str, str, object]]) -> None:
    assert filters(text, [*VALUES, CY]) == wanted


def test_an_exception_is_worth_reading() -> None:
    assert may_ask("What is there besides those of Ada?", BOATS) and may_ask("Who is busier, Ada or Bo?", BOATS)
    assert not may_ask("What is there without Ada?", BOATS)


@pytest.mark.parametrize("text", ["", "?", "this week", "in January?"])
def test_no_words_but_days_are_read(text: str) -> None:
    plan = read_question(text, LOGS, [], find_period(text, TODAY), TODAY).plan
    assert plan is None or (plan.is_list and plan.period is not None)
    assert read_question(text, BOATS, [], find_period(text, TODAY), TODAY).plan is None


def test_what_people_say_is_told_by_texts() -> None:
    for text in ("What did skippers like?", "Which complaints did we get?", "what do the skippers want"):
        assert not may_ask(text, LOGS), text
    for text in (
        "What did skippers catch?",
        "What trips did skippers like?",
        "How many complaints did we get from skippers?",
    ):
        assert may_ask(text, LOGS), text


def test_the_others_of_a_field_are_listed() -> None:
    query = read("Which skippers are there besides Ada?").query
    assert (query.aggregate, query.group) == (Aggregate.COUNT, "skipper")


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("Who made more trips, Ada, Bo or Cy?", 3),
        ("Who is busier, Ada, Bo or Cy?", 3),
        ("Which is the busiest of Ada, Bo and Cy?", 3),
        ("Who has the fewest trips: Ada or Bo?", 2),
        ("Which of Ada, Bo and Cy has the most fish?", 3),
    ],
)
def test_one_of_several_is_compared_with_all_of_them(text: str, sides: int) -> None:
    """One of which nothing is recorded has the fewest: the sides are known beside the groups that are found."""
    plan = read(text, [*VALUES, CY])
    assert len(plan.contest.sides) == plan.query.limit == sides
    assert plan.query.group == "skipper"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Ada, Bo, Cy: who has the fewest trips?", {"aggregate": Aggregate.COUNT, "descending": False, "limit": 3}),
        ("Ada, Bo or Cy: who was busier?", {"aggregate": Aggregate.COUNT, "descending": True, "limit": 3}),
        ("Ada or Bo who had more fish?", {"aggregate": Aggregate.SUM, "of": "catch", "limit": 2}),
        ("Ada Holm and Bo Lind: which of them made more trips?", {"aggregate": Aggregate.COUNT, "limit": 2}),
        ("Did we see more Ada Holm or more Bo Lind?", {"aggregate": Aggregate.COUNT, "limit": 2}),
        ("fewer Ada Holm or Bo Lind?", {"aggregate": Aggregate.COUNT, "descending": False, "limit": 2}),
    ],
)
def test_names_may_stand_before_what_is_asked_of_them(text: str, wanted: dict[str, object]) -> None:
    assert may_ask(text, BOATS)
    plan = read(text, [*VALUES, CY])
    assert plan is not None and plan.contest is not None and plan.query.group == "skipper", text
    assert {name: getattr(plan.query, name) for name in wanted} == wanted


def test_days_from_one_to_another_may_be_of_an_earlier_year() -> None:
    plan = read("How many trips came in between 10 and 20 June?")
    assert [each.period.label for each in plan.years] == [f"10 to 20 June {year}" for year in (2025, 2024, 2023, 2022)]
    assert len([*read("How many trips came in between 10 and 20 June 2025?").years]) == 1


def test_nothing_is_a_figure_of_what_is_called_so() -> None:
    stock = IndexSpec.model_validate(
        {
            "name": "stock",
            "source_types": ("item",),
            "default_source_type": "item",
            "fields": {
                "quantity": {"type": "integer", "words": ["quantity"], "adds_up": True},
                "reorder_level": {"type": "integer", "words": ["reorder level"]},
                "weight": {"type": "number", "words": ["weight"]},
            },
            "records": {"item": {"words": ["item"], "source_types": ["item"]}},
        }
    )
    for text, name, value in (
        ("How many items have a quantity of 0?", "quantity", 0),
        ("items with a quantity of nought", "quantity", 0),
        ("How many items have a reorder level of 25?", "reorder_level", 25),
        ("How many items had 2.9 weight?", "weight", 2.9),
    ):
        plan = read_question(text, stock, (), None, TODAY).plan
        assert plan is not None, text
        assert stated(plan) == [(name, "==", value)], text


@pytest.mark.parametrize(
    "text",
    [
        "Which skippers never had a trip from the north pier?",
        "Which skippers haven't had one from the north pier?",
        "Which skipper has no trip from the north pier?",
        "Which skippers had no north pier trip?",
    ],
)
def test_who_never_had_one_is_a_group_without_it(text: str) -> None:
    plan = read(text)
    assert plan is not None and plan.never is not None, text
    assert (plan.query.group, plan.query.limit, plan.never.value) == ("skipper", 50, "north pier")
    assert plan.conditions == ("harbour never north pier",) and len(plan.query.filters) == 1


def test_who_never_had_one_is_not_read_where_nobody_is_called() -> None:
    assert read("Who never had a trip from the north pier?") is None


def test_all_are_to_keep_to_what_yes_or_no_is_asked_of() -> None:
    paid = IndexSpec.model_validate(
        {
            "name": "bills",
            "source_types": ("bill",),
            "default_source_type": "bill",
            "fields": {
                "customer": {"type": "keyword", "words": ["customer"]},
                "paid": {"type": "boolean", "values": {"true": ["paid"], "false": ["unpaid"]}},
                "urgent": {"type": "boolean", "values": {"true": ["urgent"]}},
            },
            "records": {"bill": {"words": ["bill"], "source_types": ["bill"]}},
        }
    )
    values = [NamedValue("customer", "Ada Holm")]

    def every(text: str) -> object:
        plan = read_question(text, paid, values, None, TODAY).plan
        assert plan is not None and plan.whether, text
        return plan.every and plan.every.key

    assert every("Has Ada Holm paid all her bills?") == every("Are all of Ada Holm's bills paid?") == "paid"
    assert every("Has Ada Holm paid?") == every("Is Ada Holm's bill paid?") == "paid"
    assert every("Has Ada Holm paid a bill?") is None
    assert every("Did Ada Holm get all of the urgent bills?") is None, "which of them she got is asked"
    assert every("Has Ada Holm paid her bills?") is None


def test_un_is_the_opposite_of_what_holds_or_not() -> None:
    fields = {"shipped": {"type": "boolean"}, "paid": {"type": "boolean", "values": {"true": ["paid"]}}}
    spec = IndexSpec.model_validate(
        {
            "name": "orders", "source_types": ("order",), "default_source_type": "order", "fields": fields,
            "records": {"order": {"words": ["order"], "source_types": ["order"]}},
        }
    )  # fmt: skip
    for word in fields:
        plan = read_question(f"how many un{word} orders are there?", spec, [], None, TODAY).plan
        assert plan is not None and stated(plan) == [(word, "==", False)]


def test_days_that_are_to_come_are_ahead() -> None:
    assert read("how many trips will we have in March 2027?").ahead and not read("how many trips in May 2025?").ahead


def test_a_bound_of_totals_is_told() -> None:
    plan = read("Which skippers have a catch of more than 90 kilos in total?")
    assert plan.bound.value == 90 and plan.conditions == ("total catch above 90",) and stated(plan) == []


def test_a_question_may_be_of_names_alone() -> None:
    for text in ("Was Ada ever there?", "Who is tripping with Ada?", "more cats or dogs?"):
        assert may_ask(text, BOATS), text
    assert not may_ask("Was Ada there?", BOATS)


STOCK = IndexSpec.model_validate(
    {
        "name": "stock",
        "source_types": ("item",),
        "default_source_type": "item",
        "fields": {
            "item": "keyword",
            "quantity": {"type": "integer", "words": ["quantity", "in stock"], "unit": "pieces", "adds_up": True},
            "reorder_level": {"type": "integer", "words": ["reorder level"]},
            "worth": {"type": "number", "unit": "euros", "adds_up": True, "totals": ["revenue"]},
        },
        "records": {"item": {"words": ["article"], "source_types": ["item"]}},
    }
)
HINGES = [NamedValue("item", "steel hinge"), NamedValue("item", "oak hook")]


@pytest.mark.parametrize(
    ("text", "aggregate", "of", "conditions"),
    [
        ("How many articles are out of stock?", Aggregate.COUNT, None, [("quantity", "==", 0)]),
        ("What is sold out?", None, None, [("quantity", "==", 0)]),
        ("How many articles are in stock?", Aggregate.COUNT, None, [("quantity", ">", 0)]),
        ("How many steel hinges do we have?", Aggregate.SUM, "quantity", [("item", "==", "steel hinge")]),
        ("How many steel hinges are in stock?", Aggregate.SUM, "quantity", [("item", "==", "steel hinge")]),
        ("How many articles of steel hinges do we have?", Aggregate.COUNT, None, [("item", "==", "steel hinge")]),
        ("How much did the steel hinges bring in?", Aggregate.SUM, "worth", [("item", "==", "steel hinge")]),
        ("How many articles were brought in?", Aggregate.COUNT, None, []),
        ("How much was spent on steel hinges?", Aggregate.SUM, "worth", [("item", "==", "steel hinge")]),
    ],
)
def test_pieces_are_no_rows(
    text: str, aggregate: object, of: object, conditions: list[tuple[str, str, object]]
) -> None:
    plan = read_question(text, STOCK, HINGES, None, TODAY).plan
    assert plan is not None, text
    assert (plan.query.aggregate, plan.query.of) == (aggregate, of)
    assert stated(plan) == conditions


def test_more_of_one_thing_is_more_pieces_of_it() -> None:
    plan = read_question("Do we have more steel hinges or more oak hooks?", STOCK, HINGES, None, TODAY).plan
    assert plan is not None and (plan.query.aggregate, plan.query.of) == (Aggregate.SUM, "quantity")


@pytest.mark.parametrize("text", ["Ada, Bo: who has more?", "Who has more, Ada or Bo?", "three or more trips or Ada?"])
def test_nobody_knows_what_there_is_more_of(text: str) -> None:
    assert read(text) is None


def test_three_may_have_the_same() -> None:
    contest = read("Did Ada, Bo and Cy make the same number of trips?", [*VALUES, CY]).contest
    assert (len(contest.sides), contest.way, contest.claims) == (3, "same", True)


def test_several_are_counted_together() -> None:
    query = read("How many trips did Ada, Bo and Cy make?", [*VALUES, CY]).query
    assert query.filters[-1].value == ["Ada Holm", "Bo Lind", "Cy Moor"]
    mai = NamedValue("skipper", "Mai Berg")  # which no word of another language is taken for
    query = read("How much fish did Ada, Mai and Bo land altogether?", [*VALUES, mai]).query
    assert query.filters[1].value == ["Ada Holm", "Mai Berg", "Bo Lind"]


@pytest.mark.parametrize(
    "text",
    [
        "trips that were not by Ada and Bo",
        "How many trips has Ada Lind made?",
        "all trips except Ada, Bo",
        "Leaving out Ada, Bo and Cy made how many trips?",
        "trips except the north pier ones of Ada",
        "Who had the most trips with Ada or Bo?",
        "What else did Ada catch?",
        "trips of Lind, Ada",
    ],
)
def test_what_may_be_meant_otherwise_is_no_query(text: str) -> None:
    """A mere "not" with "and" may deny one of the two; halves of two names are the name of neither; a list may end before
    its last name."""
    assert read_question(text, BOATS, [*VALUES, CY], None).plan is None


def test_a_word_before_a_kind_may_be_its_theme() -> None:
    reading = read_question("the newest regatta trips", BOATS, VALUES, None)
    assert (reading.plan, reading.theme) == (None, ("regatta",))
    plan = read_question("the newest regatta trips", BOATS, VALUES, None, theme=reading.theme).plan
    assert plan is not None
    narrowed = plan.narrow_to(reading.theme, {"1", "2"})
    assert narrowed.conditions[-1] == "“regatta” in title or text" and not narrowed.names_record
    assert not read_question("the newest trips at the regatta", BOATS, VALUES, None).theme


def test_what_is_included_is_no_contradiction() -> None:
    assert read("All trips by Ada, including those by Bo") is None
    assert read("How many trips, even if those by Bo count?").query.aggregate is Aggregate.COUNT


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("How many of those have a catch over 5?", True),
        ("Which of them is the fullest?", True),
        ("Which trips are ours, and which of them is the fullest?", False),
        ("Which of these is fuller, the first or the last?", False),
        ("How many of those who sailed came back?", False),
    ],
)
def test_some_of_what_was_named_before(text: str, back: bool) -> None:
    assert asks_of_those(text, BOATS, first=False) is back


def test_these_are_all_where_nothing_was_asked_before() -> None:
    text = "How many of these trips have a catch over 5?"
    assert (asks_of_those(text, BOATS, first=True), asks_of_those(text, BOATS, first=False)) == (False, True)
    assert asks_of_those("How many trips were on that day?", BOATS, first=True)


def test_what_was_earned_is_of_what_is_done() -> None:
    assert filters("How much did Ada land in all?") == [("skipper", "==", "Ada Holm"), ("harbour", "==", "north pier")]
    assert filters("Ada's haul") == [("skipper", "==", "Ada Holm")]
    assert filters("How much did Ada land at the south pier?")[-1] == ("harbour", "==", "south pier")


@pytest.mark.parametrize(
    "text", ["How many trips did Ada make? List them.", "how many trips did Ada make, and which ones?"]
)
def test_what_was_counted_is_listed(text: str) -> None:
    query = read(text).query
    assert (query.aggregate, query.limit) == (None, 12)
    assert filters(text) == [("skipper", "==", "Ada Holm")]


def test_a_sum_is_not_listed() -> None:
    assert getattr(read("What is the total catch of Ada? List them."), "query", None) in (
        None,
        read("total catch of Ada").query,
    )


@pytest.mark.parametrize(
    "text", ["How many trips are sold out?", "how many trips are on backorder", "Which trips have we run out of?"]
)
def test_what_nothing_is_had_of_is_no_figure(text: str) -> None:
    assert read(text) is None


LOTS = IndexSpec.model_validate(
    {
        "name": "lots",
        "source_types": ("lot",),
        "default_source_type": "lot",
        "dated_types": (),
        "fields": {
            "grower": {"type": "keyword", "words": ["grower"], "kind": "lot"},
            "maker": {"type": "keyword", "words": ["winemaker", "made by"], "kind": "lot"},
            "oak": {"type": "keyword", "words": ["oak"], "kind": "lot"},
            "vintage": {"type": "integer", "words": ["vintage", "year"], "kind": "lot"},
            "points": {"type": "integer", "words": ["score"], "best": "high", "kind": "lot"},
            "price": {"type": "number", "words": ["price"], "unit": "pounds", "kind": "lot"},
            "bottles": {"type": "integer", "words": ["bottles"], "unit": "bottles", "adds_up": True, "kind": "lot"},
        },
        "records": {"lot": {"words": ["lot"], "source_types": ["lot"], "by": "points"}},
    }
)
ROLES = [
    NamedValue("grower", "Eva Voss"), NamedValue("maker", "Eva Voss"), NamedValue("grower", "Marc Tis"), NamedValue("oak", "Old Forest"),
    NamedValue("grower", "Bo Lind"), NamedValue("oak", "kept for after the long winter"),
]  # fmt: skip


def plan_of_lots(text: str) -> Any:
    return read_question(text, LOTS, ROLES, None, TODAY).plan


def stated_of_lots(text: str) -> tuple[list[tuple[str, str, object]], tuple[str, ...]]:
    plan = plan_of_lots(text)
    assert plan is not None, text
    named = (each for each in plan.query.filters if isinstance(each, MetadataFilter) and each.key != "source_type")
    return [(each.key, each.operator.value, each.value) for each in named], plan.query.having


@pytest.mark.parametrize(
    ("text", "wanted", "having"),
    [
        ("How many lots have a score?", [], ("points",)),
        ("how many lots have been scored?", [], ("points",)),
        ("lots with an oak", [], ("oak",)),
        ("total bottles of lots with oak", [], ("oak",)),
        ("how many lots have a price", [("price", ">", 0)], ("price",)),
        ("how many lots have no score yet?", [("points", "is_empty", None)], ()),
        ("lots without an oak", [("oak", "is_empty", None)], ()),
        ("how many lots haven't been scored", [("points", "is_empty", None)], ()),
        ("lots with a price under 10", [("price", "<", 10.0)], ()),
        ("how many lots with a score of 90", [("points", "==", 90)], ()),
        ("how many lots did Eva Voss make", [("maker", "==", "Eva Voss")], ()),
        ("how many lots were made by Eva Voss", [("maker", "==", "Eva Voss")], ()),
        ("how many lots were grown by Eva Voss", [("grower", "==", "Eva Voss")], ()),
        ("average score of Eva Voss as the grower", [("grower", "==", "Eva Voss")], ()),
        ("how many bottles of 2022 are there", [("vintage", "==", 2022)], ()),
        ("how many lots of vintage 2021 or 2022", [("vintage", "in", [2021, 2022])], ()),
        ("lots with over 2000 bottles", [("bottles", ">", 2000)], ()),
        ("how many lots have a score over 90 and a price", [("points", ">", 90), ("price", ">", 0)], ("price",)),
        ("how many scored lots are there", [], ("points",)),
        ("lots without bottles", [("bottles", "==", 0)], ()),
        ("lots over 12 pounds but under 13", [("price", ">", 12.0), ("price", "<", 13.0)], ()),
    ],
)
def test_what_fields_make_of_words(text: str, wanted: list[tuple[str, str, object]], having: tuple[str, ...]) -> None:
    assert stated_of_lots(text) == (wanted, having)


@pytest.mark.parametrize(
    "text",
    [
        "how many lots of Eva Voss",  # in which role
        "how many lots did Marc Tis make",  # a grower
        "who has the most lots",  # nobody knows whose they are
        "how many old lots under 12 pounds",  # none of the Old Forest
        "how much do the lots still have to pay",
        "which lots do we have in oak",  # which oak
        "average price with and without an oak",
        "lots grown and made by Eva Voss",
        "how many lots after the harvest",  # no part of the note
    ],
)
def test_what_fields_leave_open_is_no_query(text: str) -> None:
    assert plan_of_lots(text) is None


def test_who_did_most_and_who_is_rated_worst_are_groups() -> None:
    made, rated = plan_of_lots("who made the most lots"), plan_of_lots("which winemaker has the worst average score")
    assert (made.query.group, made.query.aggregate) == ("maker", Aggregate.COUNT)
    assert (rated.query.group, rated.query.descending, rated.query.limit) == ("maker", False, 1)
    assert plan_of_lots("which year has the most lots").query.group == "vintage"
    each = plan_of_lots("average price of Marc Tis and of Bo Lind")
    assert (each.query.group, each.query.aggregate) == ("grower", Aggregate.AVERAGE)


VISITS = IndexSpec.model_validate(
    {
        "name": "visits",
        "source_types": ("visit",),
        "default_source_type": "visit",
        "fields": {
            "owner": {"type": "keyword", "words": ["owner", "customer"], "kind": "visit"},
            "pet": {"type": "keyword", "words": ["pet"], "kind": "visit"},
            "species": {"type": "keyword", "words": ["species"], "kind": "visit"},
            "time": {"type": "keyword", "words": ["time"]},
            "fee": {"type": "number", "words": ["fee", "owe"], "unit": "pounds", "adds_up": True, "kind": "visit"},
            "status": {"type": "keyword", "words": ["status"], "kind": "visit", "values": {"paid": ["paid"]}},
            "insured": {"type": "boolean", "words": ["insurance"], "values": {"false": ["uninsured"]}, "kind": "visit"},
            "paid_on": {"type": "time", "words": ["paid on", "payment date"], "kind": "visit"},
            "follow_up": {"type": "time", "words": ["follow-up"], "kind": "visit"},
        },
        "records": {"visit": {"words": ["visit"], "source_types": ["visit"]}},
    }
)
OWNERS = [NamedValue("owner", "Ada Holm"), NamedValue("species", "cat"), NamedValue("species", "dog")]


def plan_of_visits(text: str) -> Any:
    return read_question(text, VISITS, OWNERS, find_period(text, TODAY), TODAY).plan


@pytest.mark.parametrize(
    ("text", "dated", "having"),
    [
        ("How many visits in December?", None, ()),
        ("follow-ups in December", "follow_up", ("follow_up",)),
        ("how many follow-ups do we have in December", "follow_up", ("follow_up",)),
        ("which follow-ups are due next week", "follow_up", ("follow_up",)),
        ("how many visits were paid in October", "paid_on", ()),
        ("visits paid by Ada Holm in October", "paid_on", ()),
        ("how many visits after today", None, ()),
        ("visits with a follow-up this month", None, ("follow_up",)),
    ],
)
def test_a_period_may_be_of_another_time_than_the_date(text: str, dated: str | None, having: tuple[str, ...]) -> None:
    plan = plan_of_visits(text)
    days = {each.key for each in plan.query.filters if each.operator.value in (">=", "<")}
    assert (plan.dated, plan.query.having, days) == (dated, having, {dated or "date"})
    assert not any(each.key == "status" for each in plan.query.filters)


def test_the_days_of_another_year_are_of_the_same_time() -> None:
    _, later = list(plan_of_visits("follow-ups in December").years)[:2]
    assert {each.key for each in later.query.filters} == {"source_type", "follow_up"}
    assert later.conditions == ("follow up December 2026",)


def test_times_are_no_field_and_things_of_somebody_no_visits() -> None:
    assert plan_of_visits("owners who came at least three times").query.least == 3
    assert (
        plan_of_visits("How many cats does Ada Holm have?") is plan_of_visits("how many cats does Ada Holm own") is None
    )
    months = plan_of_visits("follow-ups by month").query
    assert (months.group, months.order, months.grain) == ("follow_up", "follow_up", Grain.MONTH)
    assert (
        plan_of_visits("owners who owe more than 100 pounds") is plan_of_visits("how many owners owe something") is None
    )
    assert plan_of_visits("which owner owes most often") is None
    assert plan_of_visits("which owner has the largest fee").query.group is None
    assert [each.value for each in plan_of_visits("visits of those who had an insurance").query.filters][1:] == [True]
    paid = plan_of_visits("who was the last to pay")
    assert (paid.query.order, paid.dated, paid.times) == ("paid_on", "paid_on", ("paid_on",))
    owes, never = plan_of_visits("who owes the most?"), plan_of_visits("how many pets never had a cat")
    assert (owes.query.group, owes.query.of) == ("owner", "fee") and never.never is not None


def test_a_time_of_day_is_a_condition_of_its_own() -> None:
    told, hours = read_hours("How many trips did Ada make after 3 pm?", of_day=False) or ("", None)
    plan = read(told).narrow_to_hours(hours)
    assert (told, plan.query.hours, plan.conditions) == (
        "How many trips did Ada make?", (901, 1440), ("skipper Ada Holm", "a time after 15:00"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Who sails at half past nine?", (570, 571)),
        ("Who sails at half nine?", (570, 571)),
        ("trips before noon", (0, 720)),
        ("trips until 10:15", (0, 616)),
        ("anyone out from 2 to 4 p.m.?", (840, 961)),
        ("anyone out tomorrow afternoon?", (720, 1080)),
        ("who went out at 9 o'clock?", (540, 541)),
    ],
)
def test_times_of_day(text: str, wanted: tuple[int, int]) -> None:
    found = read_hours(text, of_day=False)
    assert found is not None and (found[1].first, found[1].last) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "trips after 3 May", "trips after three", "more than 10 at 5 pounds", "trips from 2010 to 2014", "before noon or after 3 pm",
        "trips from 2 to 4 kilos", "at the pier", "since 5 January", "the morning coat",
    ],
)  # fmt: skip
def test_what_is_no_time_of_day(text: str) -> None:
    assert read_hours(text, of_day=False) is None


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("our January takings", "January 2026"),
        ("What was the December revenue?", "December 2025"),
        ("Which trips start this week?", "12 to 18 January 2026"),
    ],
)
def test_a_month_before_what_is_earned_is_a_period(text: str, days: str) -> None:
    period = find_period(text, TODAY)
    assert period is not None and period.label == days and not means_part(text, period)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("What do Ada Holm's two trips come to altogether?", 2),
        ("the average catch of the three trips in January", 3),
        ("the average catch of our four pairs of trips", 4),
        ("the average catch of the trips", 0),
    ],
)
def test_the_number_of_what_is_measured_is_no_figure(text: str, number: int) -> None:
    plan = read(text)
    assert plan.number == number
    assert not [each for each in stated(plan) if each[0] == "catch"]


@pytest.mark.parametrize(
    "text",
    [
        "How many days were between Ada Holm's two trips?",
        "total catch of the three fullest trips",
        "total catch of 3 trips",
    ],
)
def test_a_number_of_records_is_no_bound_of_a_figure(text: str) -> None:
    assert read(text) is None


def test_who_had_neither_of_two_is_a_group_without_both() -> None:
    plan = read("Which skippers had neither the north pier nor the south pier in January?")
    assert plan is not None and plan.never is not None
    assert (plan.query.group, plan.never.value) == ("skipper", ["north pier", "south pier"])
    assert plan.conditions == ("harbour never north pier or south pier",)


@pytest.mark.parametrize(
    "text",
    ["Which trips were from the north pier, since when, and why?", "Which trips were from the north pier and why"],
)
def test_why_is_told_by_the_texts_of_what_is_listed(text: str) -> None:
    plan = read(text)
    assert plan is not None and plan.is_list and plan.texts
    assert stated(plan) == [("harbour", "==", "north pier")]
    assert read("How many trips were from the north pier, and why?") is None


def test_the_periods_of_a_comparison_may_be_set_against_each_other() -> None:
    text = "compare the haul, this week against last week"
    plans = [read_question(text, BOATS, VALUES, each, TODAY, comparing=True).plan for each in find_periods(text, TODAY)]
    assert [plan is not None and plan.query.of for plan in plans] == ["catch", "catch"]


def test_a_time_of_day_goes_on_with_a_question() -> None:
    before, text = (
        Question(each, period=find_period(each, TODAY)) for each in ("Which trips are today?", "before noon?")
    )
    said = move_to_time(before, text)
    assert said is not None and said.text == "Which trips are today before noon?"
    assert move_to_time(said, Question("after 3 pm")) is None
    assert move_to_time(before, Question("those before noon?")) is None


ALARMS = IndexSpec.model_validate(
    {
        "name": "alarms",
        "source_types": ("alarm",),
        "default_source_type": "alarm",
        "fields": {"weight": {"type": "keyword", "levels": ["low", "grave"], "high": ["gravest"], "low": ["lightest"]}},
        "records": {"alarm": {"words": ["alarm"], "source_types": ["alarm"]}},
    }
)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("Which alarm is the gravest?", ["grave", "low"]),
        ("the alarms with the lowest weight", ["low", "grave"]),
        ("how many alarms are there", ["how many"]),
    ],
)
def test_the_highest_level_that_there_is_is_asked_for(text: str, levels: list[str]) -> None:
    plan = read_question(text, ALARMS, [], None).plan
    assert plan is not None
    said = [each.conditions for each in plan.years]
    assert said == ([()] if levels == ["how many"] else [(f"weight {each}",) for each in levels])


def test_how_much_the_first_ones_have_is_of_all_that_are_equal() -> None:
    full, several = (read(text).query.limit for text in ("How full were the fullest trips?", "the fullest trips"))
    assert (full, several) == (1, 5)


def test_a_word_of_the_other_side_of_the_atlantic_is_known() -> None:
    colours = [NamedValue("harbour", "grey quay")]
    options = {word: dict.fromkeys(other_english(word), 0.0) for word in ("gray", "harbor")}
    assert respell("trips from the gray harbor", options, BOATS, colours) == "trips from the grey harbour"
