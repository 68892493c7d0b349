"""Questions about what is taken in, who pays it, and who comes again, over an index that tells what is done from what is booked."""

from datetime import date
from typing import Any

import pytest
from llama_index.core.vector_stores.types import MetadataFilter

from rag_app.answering.records.asking import figure_asked, may_ask
from rag_app.answering.records.planning import read_question
from rag_app.answering.records.steps import Way, read_steps
from rag_app.answering.records.wording import read_words
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import find_period
from rag_app.retrieval.records import Aggregate, Grain, NamedValue
from tests.unit.answering.test_planning import BOATS, TODAY, VALUES as BOAT_VALUES

HIRES = IndexSpec.model_validate(
    {
        "name": "hires",
        "source_types": ("hire", "bike", "part"),
        "default_source_type": "hire",
        "said": ["diary"],
        "fields": {
            "guest": {"type": "keyword", "words": ["customer", "guest"], "kind": "hire"},
            "clerk": {"type": "keyword", "words": ["clerk"], "kind": "hire"},
            "fee": {
                "type": "number", "words": ["fee", "price", "worth", "money"], "unit": "pounds", "adds_up": True, "kind": "hire",
                "totals": ["takings"], "earned": ["earn", "earned"], "earned_of": {"state": "done"},
            },
            "state": {"type": "keyword", "values": {"done": ["done"], "late": ["late"]}, "void": ["lost"]},
            "ready": {"type": "boolean", "values": {"true": ["in stock"], "false": ["out of stock"]}},
            "rides": {"type": "integer", "words": ["rides"], "kind": "bike", "high": ["bestseller"], "low": ["emptiest"], "best": "high"},
            "speed": {"type": "integer", "words": ["speed"], "kind": "bike"},
            "brand": {"type": "keyword", "words": ["brand"], "kind": "bike"},
        },
        "records": {
            "hire": {"words": ["hire"], "source_types": ["hire"]},
            "bike": {"words": ["bike"], "source_types": ["bike"], "by": "rides"},
            "part": {"words": ["part"], "source_types": ["part"]},
        },
    }
)  # fmt: skip
VALUES = [NamedValue("clerk", "Ada Holm"), NamedValue("clerk", "Bo Lind"), NamedValue("guest", "Cy Moor")]
DONE = ("state", "==", "done")
BOTH = ("clerk", "in", ["Ada Holm", "Bo Lind"])


def read(text: str) -> Any:
    return read_question(text, HIRES, VALUES, find_period(text, TODAY), TODAY).plan


def filters(text: str) -> list[tuple[str, str, object]]:
    return [
        (each.key, each.operator.value, each.value)
        for each in read(text).query.filters
        if isinstance(each, MetadataFilter) and each.key not in ("source_type", "date")
    ]


def test_what_each_took_is_bounded_as_a_whole() -> None:
    query = read("Which clerks took more than 90 pounds in January?").query
    assert (query.aggregate, query.of, query.group, query.limit) == (Aggregate.SUM, "fee", "clerk", 50)
    assert filters("Which clerks took more than 90 pounds in January?") == [DONE]
    assert read("Which customers have a fee of more than 90 pounds?").query.aggregate is not Aggregate.SUM


def test_what_brought_us_more_is_what_was_taken() -> None:
    query = read("Mondays or Fridays, which brought us more?").query
    assert (query.aggregate, query.of, query.grain) == (Aggregate.SUM, "fee", Grain.WEEKDAY)


@pytest.mark.parametrize(
    "text",
    [
        "what has Ada taken this month so far",
        "How much has Ada taken in January?",
        "how much money has Ada taken in January",
        "how much was taken by Ada?",
        "Was hat Ada diesen Monat eingenommen?",
        "Combien Ada a-t-elle encaissé en janvier ?",
        "How much did Ada earn in January?",
    ],
)
def test_what_is_taken_is_what_is_done(text: str) -> None:
    query = read(text).query
    assert (query.aggregate, query.of, query.group) == (Aggregate.SUM, "fee", None)
    assert filters(text) == [("clerk", "==", "Ada Holm"), DONE]


@pytest.mark.parametrize("text", ["What has Cy Moor taken?", "What hires has Ada taken?"])
def test_a_guest_takes_nothing_in(text: str) -> None:
    assert read(text).query.aggregate is None


@pytest.mark.parametrize(
    "text",
    [
        "do we make more with Ada or with Bo in January?",
        "do we earn more from Ada or from Bo?",
        "do we make more money with Ada or with Bo?",
        "Is Ada making more than Bo?",
        "Haben wir mit Ada oder mit Bo mehr verdient?",
        "Avec Ada ou avec Bo, on a gagné plus ?",
    ],
)
def test_with_whom_more_is_made(text: str) -> None:
    query = read(text).query
    assert (query.aggregate, query.of, query.group, query.limit) == (Aggregate.SUM, "fee", "clerk", 2)
    assert filters(text) == [BOTH, DONE]


@pytest.mark.parametrize(
    ("text", "of", "limit"),
    [
        ("which clerk has taken the most this month?", "fee", 1),
        ("what has each clerk taken this month?", "fee", 24),
        ("which clerk takes the most hires?", None, 1),
        ("which guest has made the most hires?", None, 1),
    ],
)
def test_who_takes_the_most(text: str, of: str | None, limit: int) -> None:
    query = read(text).query
    assert (query.of, query.limit) == (of, limit) and query.group in ("clerk", "guest")


def test_hires_that_are_taken_are_counted() -> None:
    query = read("how many hires did we take in January?").query
    assert (query.aggregate, query.of) == (Aggregate.COUNT, None)
    assert may_ask("do we make more with Ada or with Bo?", HIRES)


def test_nobody_knows_more_of_what_is_made() -> None:
    assert read_question("do we make more with Ada or with Bo?", BOATS, BOAT_VALUES, None).plan is None


def test_more_is_made_on_a_weekday_and_of_a_kind() -> None:
    query = read("do we make more on Fridays or on Saturdays?").query
    assert (query.of, query.grain) == ("fee", Grain.WEEKDAY)
    assert read("do we make more hires with Ada or with Bo?").query.aggregate is Aggregate.COUNT


@pytest.mark.parametrize(
    "text",
    ["What are the hires in January worth?", "what's the diary for January worth", "what is Friday's diary worth?"],
)
def test_what_records_are_worth_is_their_total(text: str) -> None:
    query = read(text).query
    assert (query.aggregate, query.of, query.filters[0].value) == (Aggregate.SUM, "fee", ["hire"])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("who is our biggest spender?", (Aggregate.SUM, "guest", 1)),
        ("the top 3 spenders in January", (Aggregate.SUM, "guest", 3)),
        ("our top spenders", (Aggregate.SUM, "guest", 5)),
        ("who's our biggest spender in a single hire?", (None, None, 1)),
    ],
)
def test_a_spender_is_who_paid(text: str, wanted: tuple[object, ...]) -> None:
    query = read(text).query
    assert (query.aggregate, query.group, query.limit) == wanted and query.descending
    assert filters(text) == [DONE] and "fee" in (query.of, query.order)


def test_an_average_spender_is_not_understood() -> None:
    assert read("average spender") is read("how many spenders in January?") is None


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("who are our repeat customers?", 2),
        ("how many returning guests do we have?", 2),
        ("got any repeat customers, people with at least two hires", 2),
        ("any regular customers, guests with more than two hires?", 3),
        ("Welche wiederkehrenden Kunden gibt es?", 2),
    ],
)
def test_who_comes_again_has_two_records_or_more(text: str, least: int) -> None:
    query = read(text).query
    assert (query.aggregate, query.group, query.least, query.most) == (Aggregate.COUNT, "guest", least, 0)


def test_what_those_spent_who_come_again_is_not_understood() -> None:
    assert read("what did our repeat customers spend?") is None


@pytest.mark.parametrize("text", ["When is Cy Moor back?", "Wann kommt Cy Moor wieder?", "Quand revient Cy Moor ?"])
def test_when_somebody_comes_again_asks_for_the_next_time(text: str) -> None:
    query = read(text).query
    assert (query.order, query.descending, query.limit) == ("date", False, 1) and may_ask(text, HIRES)


@pytest.mark.parametrize(
    "text", ["which of Ada's hires are yet to happen?", "Ada's hires that are still to take place"]
)
def test_what_is_yet_to_happen_is_to_come(text: str) -> None:
    plan = read(text)
    assert plan.period.start == TODAY and filters(text) == [("clerk", "==", "Ada Holm")]


def test_what_is_to_come_of_a_month_begins_today() -> None:
    period = read("hires that are still to come in January").period
    assert (period.start, period.end) == (TODAY, date(2026, 1, 31))


def test_nothing_but_what_is_to_come_is_asked_for() -> None:
    january = find_period("this month", TODAY)
    plan: Any = read_question("what's still to come", BOATS, BOAT_VALUES, january, TODAY).plan
    assert (plan.kind, plan.period.start, plan.period.end) == ("trip", TODAY, date(2026, 1, 31))


def test_how_much_came_in_is_what_was_taken() -> None:
    query = read("How much came in this week all told?").query
    assert (query.aggregate, query.of) == (Aggregate.SUM, "fee")
    assert read("how many guests came in this week?").query.aggregate is Aggregate.COUNT


def test_when_somebody_came_back_is_past() -> None:
    assert read("When did Cy Moor come back?").query.order is None


@pytest.mark.parametrize(
    ("text", "group", "descending"),
    [
        ("who was the very first customer for each of the clerks this year", "clerk", False),
        ("the latest guest of every clerk", "clerk", True),
    ],
)
def test_the_first_of_each_group_is_a_record(text: str, group: str, descending: bool) -> None:
    query = read(text).query
    assert (query.order, query.group, query.descending, query.aggregate) == ("date", group, descending, None)


@pytest.mark.parametrize(
    "text", ["how does the range split by brand, number of bikes in each", "How do our bikes break down by brand?"]
)
def test_how_records_split_asks_for_groups(text: str) -> None:
    query = read(text).query
    assert (query.aggregate, query.group) == (Aggregate.COUNT, "brand")


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("everything that's out of stock", False),
        ("Is anything of ours late rn?", True),
        ("have we anything late", True),
    ],
)
def test_records_of_any_kind_may_have_a_value(text: str, own: bool) -> None:
    plan = read(text)
    assert (plan.kind, plan.query.own, plan.query.aggregate) == (None, own, None)


def test_everything_is_of_any_kind() -> None:
    assert read("everything that's out of stock under 20 pounds").kind is None
    assert read("bikes that are out of stock").kind == "bike"


def test_a_word_that_may_be_two_values_is_unclear() -> None:
    settled = NamedValue("state", "resolved")
    assert filters("Welche hires sind erledigt?") == [DONE]
    assert read_question("Welche hires sind erledigt?", HIRES, [settled], None).plan is None


def test_a_top_seller_is_no_shop() -> None:
    assert [read(text).query.limit for text in ("our top seller", "our top sellers")] == [1, 5]
    assert read("our best and emptiest bike") is None


def test_what_one_is_more_than_another_is_the_price_of_one() -> None:
    for text, way in (
        ("how much more is Ada than Bo?", Aggregate.AVERAGE),
        ("how much more did Ada earn than Bo?", Aggregate.SUM),
    ):
        steps = read_steps(text, HIRES, VALUES, None, TODAY)
        assert steps is not None and (steps.way, steps.plans[0].query.aggregate) == (Way.DIFFERENCE, way)


def test_a_share_may_be_one_of_a_total() -> None:
    text = "What percentage of the takings in January came from Ada?"
    steps = read_steps(text, HIRES, VALUES, find_period(text, TODAY), TODAY)
    assert steps is not None and len(steps.plans) == 2 and steps.way is Way.SHARE
    part, whole = steps.plans[0].query, steps.plans[1].query
    assert (part.aggregate, part.of, whole.aggregate, whole.of) == (Aggregate.SUM, "fee", Aggregate.SUM, "fee")
    more = [each for each in part.filters if each not in whole.filters]
    assert [each.key for each in more if isinstance(each, MetadataFilter)] == ["clerk"]
    assert read_steps("What share of the speed is that of Ada?", HIRES, VALUES, None, TODAY) is None
    mixed = "What percentage of the takings did Ada earn?"  # of all that is booked, what is done
    assert read_steps(mixed, HIRES, VALUES, None, TODAY) is None


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("Who comes most often?", []),
        ("who came in the least in May", [DONE]),
        ("Who hires most often?", []),
        ("Who was late most often?", [("state", "==", "late")]),
    ],
)
def test_who_does_what_guests_do_most(text: str, of: list[tuple[str, str, object]]) -> None:
    query = read(text).query
    assert (query.aggregate, query.group, query.limit) == (Aggregate.COUNT, "guest", 1)
    assert filters(text) == of


def test_that_something_was_booked_is_no_state() -> None:
    spec = IndexSpec.model_validate(
        {
            "name": "diary",
            "source_types": ("visit",),
            "default_source_type": "visit",
            "fields": {
                "guest": {"type": "keyword", "words": ["customer"]},
                "service": {"type": "keyword", "words": ["service"]},
                "state": {"type": "keyword", "values": {"booked": ["still booked"]}},
            },
            "records": {"visit": {"words": ["visit"], "source_types": ["visit"]}},
        }
    )
    values = [NamedValue("service", "trim"), NamedValue("state", "booked")]
    for text, fields in (
        ("how often was a trim booked", ["service"]),
        ("who booked the most", []),
        ("how many trims are still booked", ["service", "state"]),
    ):
        plan = read_question(text, spec, values, None, TODAY).plan
        assert plan is not None
        found = [each.key for each in plan.query.filters if isinstance(each, MetadataFilter)]
        assert [key for key in found if key != "source_type"] == fields, text


def test_what_is_charged_for_what_happens_is_a_rule() -> None:
    assert read("What fee do we take for late?") is None
    assert filters("What was the fee for late hires?") == [("state", "==", "late")]


@pytest.mark.parametrize(
    ("text", "aggregate", "descending"),
    [
        ("who was busiest in January?", Aggregate.COUNT, True),
        ("who was the quietest?", Aggregate.COUNT, False),
        ("who earned the most?", Aggregate.SUM, True),
        ("Who brought in the least last week?", Aggregate.SUM, False),
    ],
)
def test_who_is_busy_or_earns_works_there(text: str, aggregate: Aggregate, descending: bool) -> None:
    query = read(text).query
    assert (query.aggregate, query.group, query.descending) == (aggregate, "clerk", descending)


@pytest.mark.parametrize("text", ["who earned us the most?", "who is the busiest?"])
def test_one_field_has_those_who_work_there(text: str) -> None:
    fields = {**HIRES.fields, "helper": HIRES.fields["clerk"]}
    words = {**HIRES.vocabulary, "helper": HIRES.vocabulary["clerk"]}
    spec = HIRES.model_copy(update={"fields": fields, "vocabulary": words})
    plan = read_question(text, spec, VALUES, None, TODAY).plan
    assert plan is None or plan.query.group is None


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("How much has Cy Moor spent?", TODAY),
        ("How much did Cy Moor spend in January?", TODAY),
        ("How much did Cy Moor spend in December?", date(2025, 12, 31)),
        ("How much will Cy Moor spend in January?", date(2026, 1, 31)),
    ],
)
def test_nobody_has_paid_for_what_is_to_come(text: str, until: date) -> None:
    plan = read(text)
    assert plan.query.aggregate is Aggregate.SUM
    assert plan.period is not None and plan.period.end == until


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("How many customers came last week?", [DONE]),
        ("which guests were here last week", [DONE]),
        ("how often did Cy Moor come?", [("guest", "==", "Cy Moor"), DONE]),
        ("how many customers came late?", [("state", "==", "late")]),
        ("how many customers had a hire last week?", []),
    ],
)
def test_who_came_had_what_is_done(text: str, wanted: list[tuple[str, str, object]]) -> None:
    assert filters(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("for which hires did we charge the customer nothing?", [("fee", "==", 0.0)]),
        ("which hires last week were free?", [("fee", "==", 0.0)]),
        ("were there any free hires last week?", [("fee", "==", 0.0)]),
    ],
)
def test_nothing_is_paid_for_what_is_free(text: str, wanted: list[tuple[str, str, object]]) -> None:
    assert filters(text) == wanted


def test_what_is_free_may_be_booked() -> None:
    assert read("Which hires are free?") is read("Are there any free hires?") is None


@pytest.mark.parametrize(
    "text",
    [
        "How many hires did Ada have, and what did they come to?",
        "how many hires are late and what are they worth together",
    ],
)
def test_a_number_and_what_it_comes_to_are_two_figures(text: str) -> None:
    steps = read_steps(text, HIRES, VALUES, None, TODAY)
    assert steps is not None and steps.way is Way.BOTH and len(steps.plans) == 2
    assert [each.query.aggregate for each in steps.plans] == [Aggregate.COUNT, Aggregate.SUM]
    assert steps.plans[0].query.filters == steps.plans[1].query.filters


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Which guest spent the most?", [("state", "!=", "lost")]),
        ("how many customers did Ada see last week?", [("clerk", "==", "Ada Holm"), DONE]),
        ("Who was the last guest that Ada looked after?", [("clerk", "==", "Ada Holm"), DONE]),
        ("What did we make last week?", [DONE]),
    ],
)
def test_what_was_missed_was_not_paid(text: str, wanted: list[tuple[str, str, object]]) -> None:
    assert filters(text) == wanted


def test_the_day_with_the_most_money_is_no_single_record() -> None:
    query = read("On which day did we have the most money?").query
    assert (query.aggregate, query.of, query.group, query.grain) == (Aggregate.SUM, "fee", "date", Grain.DAY)


@pytest.mark.parametrize(
    "text", ["How many first-time customers were there?", "how many of the last five hires were late?"]
)
def test_what_was_first_is_not_counted(text: str) -> None:
    assert read(text) is None


def test_what_came_in_is_no_single_record() -> None:
    reading = read_question("What did we earn from tandems?", HIRES, VALUES, None, TODAY)
    assert reading.plan is None and reading.limits and reading.unknown == ("tandems",)


@pytest.mark.parametrize(
    ("text", "asked"),
    [("What profit do we make on each hire?", "profit"), ("What fee do we take?", ""), ("What do we make?", "")],
)
def test_a_figure_that_no_field_has_is_named(text: str, asked: str) -> None:
    assert figure_asked(read_words(text, HIRES)) == asked


def test_only_once_may_stand_apart() -> None:
    query = read("which guests have only been in once").query
    assert (query.group, query.least, query.most) == ("guest", 1, 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What did we earn in January?", [DONE]),
        ("What did we earn in January, late ones included?", [("state", "in", ["done", "late"])]),
        ("What did we earn in January? The late ones count as well.", [("state", "in", ["done", "late"])]),
        ("What did we earn in January? Leave none out.", []),
        ("What did we earn in January, without exception?", []),
        ("How many hires did Ada have, late ones too?", [("clerk", "==", "Ada Holm")]),
        ("How many hires did Ada have? Count the late ones as well.", [("clerk", "==", "Ada Holm")]),
        ("Average fee of the hires of Ada, the late ones counted as zero?", [("clerk", "==", "Ada Holm")]),
        ("Wie viele hires hat Ada, die late mitgezählt?", [("clerk", "==", "Ada Holm")]),
        ("Which bikes are in stock? Include the ones that are out of stock.", []),
        ("Show me everything that is out of stock, parts too.", [("ready", "==", False)]),
        ("How many hires are there, only the late ones count?", [("state", "==", "late")]),
    ],
)
def test_what_counts_as_well_is_no_condition(text: str, found: list[tuple[str, str, object]]) -> None:
    assert filters(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "Which hires are done, including late ones?",
        "How many bikes do we have, parts too?",
    ],
)
def test_what_counts_as_well_and_may_be_something_else_is_no_query(text: str) -> None:
    assert read(text) is None
