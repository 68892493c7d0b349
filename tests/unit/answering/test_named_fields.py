"""What a question names of a table is used by its query, or there is none: tables of hires, of roofs, of milk rounds."""

from datetime import date
from typing import Any

import pytest
from llama_index.core.vector_stores.types import MetadataFilter

from rag_app.answering.records.planning import read_question
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import find_period
from rag_app.retrieval.records import Aggregate, NamedValue

TODAY = date(2026, 5, 14)


def _table(row: str, fields: dict[str, Any]) -> IndexSpec:
    return IndexSpec.model_validate(
        {
            "name": f"{row}s", "source_types": (row,), "default_source_type": row, "fields": fields,
            "records": {row: {"words": [row], "source_types": [row]}},
        }
    )  # fmt: skip


HIRES = _table(
    "hire",
    {
        "guide": {"type": "keyword", "asked": "who"},
        "boat_type": {"type": "keyword", "words": ["boat type", "boat", "kind of boat"]},
        "children": {"type": "integer", "adds_up": True},
        "dog": {"type": "boolean", "values": {"true": ["dog"]}},
        "deposit_eur": {"type": "number", "words": ["deposit"], "unit": "euros"},
        "price_eur": {"type": "number", "words": ["price"], "unit": "euros", "adds_up": True},
    },
)
ROOFS = _table(
    "survey",
    {
        "surveyor": {"type": "keyword", "asked": "who"},
        "district": {"type": "keyword"},
        "roof_area": {"type": "number", "unit": "m2"},
        "leaks": {"type": "integer", "adds_up": True},
        "broken_tiles": {"type": "integer", "words": ["broken tiles", "tiles"], "adds_up": True},
        "moss": {"type": "boolean", "values": {"true": ["moss"]}},
    },
)
ROUNDS = _table(
    "round",
    {
        "van": "keyword",
        "driver": {"type": "keyword", "asked": "who"},
        "milk": {"type": "number", "words": ["milk"], "unit": "litres", "adds_up": True},
        "eggs": {"type": "integer", "words": ["cartons of eggs", "eggs"], "adds_up": True},
        "ice": {"type": "number", "unit": "kilos"},
        "rating": "number",
    },
)
VALUES = [
    NamedValue("van", "V3"), NamedValue("driver", "Cleo"),
    NamedValue("guide", "Mara"), NamedValue("surveyor", "Pell"), NamedValue("district", "South"),
    NamedValue("boat_type", "family"),
]  # fmt: skip


def read(text: str, spec: IndexSpec) -> Any:
    return read_question(text, spec, VALUES, find_period(text, TODAY), TODAY).plan


def filters(plan: Any) -> set[tuple[str, str, object]]:
    found = (each for each in plan.query.filters if isinstance(each, MetadataFilter))
    return {(each.key, each.operator.value, each.value) for each in found if each.key not in ("source_type", "date")}


@pytest.mark.parametrize(
    ("spec", "text", "wanted"),
    [
        (HIRES, "How many hires brought children?", {("children", ">", 0)}),
        (HIRES, "How many of all the hires brought children along?", {("children", ">", 0)}),
        (HIRES, "How many of Mara's hires took children?", {("guide", "==", "Mara"), ("children", ">", 0)}),
        (HIRES, "How many hires had a dog with them?", {("dog", "==", True)}),
        (HIRES, "How many hires involved children and had a dog?", {("children", ">", 0), ("dog", "==", True)}),
        (HIRES, "total deposit of hires that brought children", {("children", ">", 0)}),
        (ROOFS, "How many surveys found leaks?", {("leaks", ">", 0)}),
        (ROOFS, "How many surveys in the South showed broken tiles?", {("district", "==", "South"), ("broken_tiles", ">", 0)}),
        (ROOFS, "the total roof area of surveys that revealed leaks", {("leaks", ">", 0)}),
    ],
)  # fmt: skip
def test_a_figure_behind_a_verb_is_there(spec: IndexSpec, text: str, wanted: set[tuple[str, str, object]]) -> None:
    plan = read(text, spec)
    assert plan is not None and plan.query.aggregate is not None
    assert filters(plan) == wanted


def test_records_are_listed_that_a_figure_is_there_of() -> None:
    listed, told = read("Which surveys found leaks?", ROOFS), read("show leaks of the surveys by Pell", ROOFS)
    assert listed.query.aggregate is None and filters(listed) == {("leaks", ">", 0)}
    assert told.query.aggregate is None and filters(told) == {("surveyor", "==", "Pell")}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (HIRES, "How many hires mention the deposit?"),
        (HIRES, "How many hires brought few children?"),
        (HIRES, "How many hires were for children?"),
        (HIRES, "How many hires and children were there?"),
        (HIRES, "What did the children of all hires cost in total?"),
        (ROOFS, "the average roof area where leaks were found"),
        (ROOFS, "How many surveys are about leaks?"),
        (ROOFS, "How many surveys did Pell do about moss?"),
    ],
)
def test_a_figure_that_no_query_uses_is_not_dropped(spec: IndexSpec, text: str) -> None:
    plan = read(text, spec)
    used = plan and {plan.query.of, *(name for name, _, _ in filters(plan))}
    assert plan is None or plan.query.aggregate is None or {"children", "leaks", "deposit_eur", "moss"} & used


@pytest.mark.parametrize(
    ("spec", "text", "aggregate", "of"),
    [
        (HIRES, "How many children did Mara guide?", Aggregate.SUM, "children"),
        (HIRES, "How many hires did Mara guide?", Aggregate.COUNT, None),
        (ROOFS, "How many leaks did Pell find?", Aggregate.SUM, "leaks"),
        (ROOFS, "the average roof area in the South", Aggregate.AVERAGE, "roof_area"),
    ],
)
def test_the_figure_that_is_asked_for_is_no_condition(
    spec: IndexSpec, text: str, aggregate: Aggregate, of: str | None
) -> None:
    plan = read(text, spec)
    assert (plan.query.aggregate, plan.query.of) == (aggregate, of)
    assert not {name for name, _, _ in filters(plan)} & {"children", "leaks"}


@pytest.mark.parametrize(
    ("spec", "text", "of"),
    [
        (ROUNDS, "litres for van V3", "milk"),
        (ROUNDS, "litres of milk from van V3", "milk"),
        (ROUNDS, "The milk of Cleo in March", "milk"),
        (ROUNDS, "cartons of eggs for Cleo", "eggs"),
        (ROUNDS, "kilos from van V3", "ice"),
        (ROOFS, "leaks in the South", "leaks"),
        (ROOFS, "broken tiles by Pell, district South", "broken_tiles"),
        (HIRES, "children with Mara in family boats", "children"),
    ],
)
def test_a_measure_with_a_condition_alone_is_a_total(spec: IndexSpec, text: str, of: str) -> None:
    plan = read(text, spec)
    assert (plan.query.aggregate, plan.query.of) == (Aggregate.SUM, of)
    assert filters(plan) or plan.period is not None


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (ROUNDS, "rounds of van V3 with their milk"),
        (ROUNDS, "show the milk of van V3"),
        (ROUNDS, "milk and eggs of van V3"),
        (ROUNDS, "ratings of Cleo"),
        (ROUNDS, "ice of Cleo"),
        (HIRES, "price for Mara"),
        (ROOFS, "leaks over 2 in the South"),
    ],
)
def test_a_measure_that_is_shown_is_no_total(spec: IndexSpec, text: str) -> None:
    plan = read(text, spec)
    assert plan is None or plan.query.aggregate is None


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("How many boats are there?", False),
        ("How many boats did Mara guide?", False),
        ("How many boat types are there?", True),
        ("How many kinds of boats are there?", True),
        ("How many different boats are there?", True),
        ("How many hires had family boats?", True),
        ("How many guides are there?", True),
        ("Which boats are there?", True),
    ],
)
def test_things_are_not_counted_by_their_sorts(text: str, counts: bool) -> None:
    assert (read(text, HIRES) is not None) == counts
