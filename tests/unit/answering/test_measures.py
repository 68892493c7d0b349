"""Figures in other units and words than the index has them, years that bound, and shares, over tables of years and of weights."""

from datetime import date
from typing import Any

import pytest
from llama_index.core.vector_stores.types import MetadataFilter

from rag_app.answering.records.measures import say_figures
from rag_app.answering.records.planning import read_question
from rag_app.answering.records.steps import Way, read_steps
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import find_periods
from rag_app.retrieval.records import Aggregate, NamedValue

HARVESTS = IndexSpec.model_validate(
    {
        "name": "harvests",
        "source_types": ("harvest",),
        "default_source_type": "harvest",
        "dated_types": (),
        "fields": {
            "year": {"type": "integer", "words": ["year"]},
            "fruit": {"type": "keyword", "words": ["fruit"]},
            "region": {"type": "keyword", "words": ["region"]},
            "code": {"type": "keyword", "words": ["code"]},
            "crop": {"type": "integer", "words": ["crop", "yield"], "unit": "kg", "adds_up": True},
            "growers": {"type": "integer", "words": ["growers"], "unit": "people", "adds_up": True},
            "sugar": {"type": "number", "words": ["sugar"], "unit": "g", "high": ["highest", "sweetest"], "low": ["lowest"]},
        },
        "records": {"harvest": {"words": ["harvest"], "source_types": ["harvest"], "by": "crop"}},
    }
)  # fmt: skip
VALUES = [
    NamedValue("fruit", "Plum"),
    NamedValue("fruit", "Pear"),
    NamedValue("region", "North"),
    NamedValue("code", "PER"),
]


def read(text: str) -> Any:
    plan = read_question(say_figures(text, HARVESTS), HARVESTS, VALUES, None).plan
    return plan and plan.query


def filters(text: str) -> Any:
    found: Any = read(text).filters
    return [(each.key, each.operator.value, each.value) for each in found if isinstance(each, MetadataFilter)][1:]


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("harvests with a crop over 2 thousand", [("crop", ">", 2000)]),
        (
            "how many harvests have a crop between 1 and 2 million kg",
            [("crop", ">=", 1000000), ("crop", "<=", 2000000)],
        ),
        ("how many harvests have a crop over 1.5 million", [("crop", ">", 1500000)]),
        ("total crop of plums since 2010", [("year", ">=", 2010), ("fruit", "==", "Plum")]),
        ("total crop from 2010 to 2014", [("year", ">=", 2010), ("year", "<=", 2014)]),
        ("average crop of pears before 2005", [("year", "<", 2005), ("fruit", "==", "Pear")]),
        ("total crop of plums 2010 to 2014", [("year", ">=", 2010), ("year", "<=", 2014), ("fruit", "==", "Plum")]),
        ("total crop in the 1990s", [("year", ">=", 1990), ("year", "<=", 1999)]),
        ("lowest crop of pears after 2012", [("year", ">", 2012), ("fruit", "==", "Pear")]),
    ],
)
def test_bounds_are_those_of_the_field(text: str, bounds: list[tuple[str, str, object]]) -> None:
    assert filters(text) == bounds


@pytest.mark.parametrize(
    ("text", "aggregate", "of", "group"),
    [
        ("which region has the most people", Aggregate.SUM, "growers", "region"),
        ("crop per region", Aggregate.SUM, "crop", "region"),  # and not of the code PER
    ],
)
def test_groups_by_a_figure(text: str, aggregate: Aggregate, of: str, group: str) -> None:
    query = read(text)
    assert (query.aggregate, query.of, query.group, filters(text)) == (aggregate, of, group, [])


def test_the_highest_of_a_figure_that_is_named_is_no_other_one() -> None:
    assert [read(text).order for text in ("the harvest with the highest crop", "the sweetest harvest")] == [
        "crop",
        "sugar",
    ]


def test_a_year_is_nothing_to_measure() -> None:
    assert read("which year had the most plums") is None or read("which year had the most plums").order != "year"


@pytest.mark.parametrize(
    "text", ["share of plum harvests per region", "what is the share of plums?", "the plum share of the north"]
)
def test_a_share_that_may_be_another_is_none(text: str) -> None:
    assert read_steps(text, HARVESTS, VALUES, None, None) is None


def test_a_share_of_what_is_counted() -> None:
    steps = read_steps("what percentage of the harvests are plums?", HARVESTS, VALUES, None, None)
    assert steps is not None and steps.way is Way.SHARE


RECORDED = IndexSpec.model_validate(
    {
        "name": "recorded",
        "source_types": ("town",),
        "default_source_type": "town",
        "dated_types": (),
        "fields": {"year": "integer", "town": "keyword", "pop": "integer", "life_expect": "number", "net_budget": "integer", "net_area": "number"},
        "records": {"town": {"words": ["town"], "source_types": ["town"]}},
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("the town with the highest population", "pop"),
        ("the lowest life expectancy in 1955", "life_expect"),
        ("the largest budget", "net_budget"),
        ("the largest net", None),  # of which
        ("the largest pop concert", None),
    ],
)
def test_a_name_that_is_cut_short_is_said_in_full(text: str, field: str | None) -> None:
    plan = read_question(text, RECORDED, [], None).plan
    assert (plan and plan.query.order) == field


def test_years_are_values_and_groups_where_there_are_no_dates() -> None:
    for text in ("which year had the largest average crop", "average crop per year"):
        query = read(text)
        assert (query.aggregate, query.of, query.group) == (Aggregate.AVERAGE, "crop", "year")
    years = find_periods("was the average crop higher in 2012 or in 2013?", date(2026, 1, 14))
    plans = [
        read_question("was the average crop higher?", HARVESTS, VALUES, each, comparing=True).plan for each in years
    ]
    assert [
        (each.key, each.operator.value, each.value)
        for plan in plans
        if plan is not None
        for each in plan.query.filters
        if isinstance(each, MetadataFilter) and each.key == "year"
    ] == [("year", "==", 2012), ("year", "==", 2013)]


def test_so_many_groups_are_ranked_by_their_mean() -> None:
    query = read("which three regions had the largest average crop")
    assert (query.aggregate, query.group, query.limit) == (Aggregate.AVERAGE, "region", 3)


OATS = IndexSpec.model_validate(
    {
        "name": "oats",
        "source_types": ("oat",),
        "default_source_type": "oat",
        "dated_types": (),
        "fields": {"year": "integer", "site": "keyword", "yield": {"type": "number", "best": "high"}},
        "records": {"oat": {"words": ["oat", "harvest"], "source_types": ["oat"], "by": "yield"}},
    }
)


@pytest.mark.parametrize(
    ("text", "aggregate", "of"),
    [
        ("what was the total harvest in 1931", Aggregate.SUM, "yield"),
        ("total harvests in 1931", Aggregate.COUNT, None),
        ("which site did worst on average", Aggregate.AVERAGE, "yield"),
        ("which site has the most harvests", Aggregate.COUNT, None),
    ],
)
def test_the_only_figure_of_a_table_is_meant(text: str, aggregate: Aggregate, of: str | None) -> None:
    plan = read_question(say_figures(text, OATS), OATS, [], None).plan
    assert plan is not None and (plan.query.aggregate, plan.query.of) == (aggregate, of)


@pytest.mark.parametrize(
    "text", ["which site gave the least", "which site was best over two years", "which site came last in 1931"]
)
def test_what_may_be_of_no_figure_is_not_understood(text: str) -> None:
    assert read_question(say_figures(text, OATS), OATS, [], None).plan is None
