"""What the columns of tables are called, by the words of their names."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_app.answering.records.wording import roles_of, stems
from rag_app.documents import columns
from rag_app.documents.columns import call_columns
from rag_app.domain import FieldType

_ASKS_OTHERWISE = {"much", "year", "taken in"}  # "how high": the words of an index come first


def words_of_lexicon() -> Iterator[str]:
    table = tomllib.loads(Path(columns.__file__).with_name("columns.toml").read_text("utf-8"))
    for said in (*table["figures"].values(), *table["by_dimension"].values()):
        yield from said.split("|")[0].split(",")
    for said in (*table["called"].values(), *table["flags"].values()):
        yield from re.split("[|,]", said)


def test_no_word_for_a_column_asks_for_something_else() -> None:
    phrases = {phrase.strip() for phrase in words_of_lexicon()}
    assert len(phrases) > 200
    assert {each: roles for each in phrases if (roles := roles_of(stems(each)) - _ASKS_OTHERWISE)} == {}


@pytest.mark.parametrize(
    ("name", "kind", "words", "high", "low"),
    [
        ("girth_cm", FieldType.INTEGER, ["girth", "how big around", "thickness"], "thickest", "thinnest"),
        ("yr_founded", FieldType.INTEGER, ["year founded", "founded"], "newest", "oldest"),
        ("build_cost_eur", FieldType.NUMBER, ["build cost", "cost", "price"], "dearest", "cheapest"),
        ("wait_min", FieldType.INTEGER, ["wait", "how late"], "longest", "shortest"),
        ("emp_cnt", FieldType.INTEGER, ["employee count"], "", ""),
        ("unit_price", FieldType.NUMBER, ["unit price", "price"], "", ""),
        ("cond", FieldType.KEYWORD, ["condition", "state", "shape"], "", ""),
        ("island", FieldType.KEYWORD, [], "", ""),
        ("dist", FieldType.KEYWORD, ["district", "quarter"], "", ""),
        ("dist", FieldType.NUMBER, ["distance", "how far"], "farthest", "nearest"),
        ("Weekly rate (£)", FieldType.NUMBER, ["weekly rate", "rate"], "dearest", "cheapest"),
        ("Daily rate [€]", FieldType.NUMBER, ["daily rate", "rate"], "dearest", "cheapest"),
        ("Levy ($)", FieldType.NUMBER, ["levy"], "dearest", "cheapest"),
        ("Discount rate (%)", FieldType.NUMBER, ["discount rate", "rate"], "", ""),
        ("Deposit (£)", FieldType.NUMBER, ["deposit"], "", ""),
        ("first_name", FieldType.KEYWORD, [], "", ""),
        ("lname", FieldType.KEYWORD, ["last name"], "", ""),
        ("val_usd", FieldType.NUMBER, ["value", "worth"], "most valuable", "least valuable"),
        ("plt_yr", FieldType.INTEGER, ["planted year", "planted", "year planted"], "newest", "oldest"),
    ],
)
def test_a_column_is_called(name: str, kind: FieldType, words: list[str], high: str, low: str) -> None:
    called = call_columns({name: kind}, {name: ["1950", "1960"]}, dated=False)[name]
    assert called.words[: len(words)] == words and bool(called.words) is bool(words)
    assert ([*called.high, ""][0], [*called.low, ""][0]) == (high, low)


def test_a_word_of_two_columns_is_of_neither() -> None:
    kinds = dict.fromkeys(("fee", "cost", "length_m", "dur_h"), FieldType.NUMBER)
    called = call_columns(kinds, dict.fromkeys(kinds, ()), dated=True)
    assert "price" not in {*called["fee"].words, *called["cost"].words}
    assert called["length_m"].high == called["dur_h"].high == []


@pytest.mark.parametrize(
    ("columns", "dearest"),
    [
        (("Deposit (£)", "Weekly rate (£)", "Insurance (£)"), "Weekly rate (£)"),
        (("Insurance (£)", "Fee (£)", "Hourly rate (£)"), "Fee (£)"),
        (("Insurance (£)", "Height (m)"), "Insurance (£)"),
        (("Insurance (£)", "Cleaning (£)"), None),
    ],
)
def test_the_dearest_is_that_of_a_price_or_of_a_rate(columns: tuple[str, ...], dearest: str | None) -> None:
    kinds = dict.fromkeys(columns, FieldType.NUMBER)
    called = call_columns(kinds, dict.fromkeys(kinds, ()), dated=True)
    ends = {name: ("dearest" in each.high, "cheapest" in each.low) for name, each in called.items()}
    assert ends == {name: (name == dearest, name == dearest) for name in columns}


def test_an_abbreviation_means_what_another_column_spells_out() -> None:
    kinds = {"sub_paid": FieldType.BOOLEAN, "Subscription (GBP)": FieldType.NUMBER}
    assert call_columns(kinds, dict.fromkeys(kinds, ()), dated=True)["sub_paid"].name == "subscription paid"
    kinds = {"sub_paid": FieldType.BOOLEAN, "Fee (GBP)": FieldType.NUMBER}
    assert call_columns(kinds, dict.fromkeys(kinds, ()), dated=True)["sub_paid"].name == "subscribed paid"


def test_codes_flags_places_and_people_are_told() -> None:
    kinds = dict.fromkeys(("sex", "inspector", "client", "depot"), FieldType.KEYWORD) | {"dep_ret": FieldType.BOOLEAN}
    values = {"sex": ["F", "M"], "inspector": ["Ada"], "client": ["Bo"], "depot": ["Hull"], "dep_ret": ["Y"]}
    called = call_columns(kinds, values, dated=True)
    assert "women" in called["sex"].values["F"] and "gents" in called["sex"].values["M"]
    assert called["dep_ret"].values == {"true": ["deposit returned"]}
    flags = dict.fromkeys(("pwr_ln", "mow_req", "default", "is_urgent"), FieldType.BOOLEAN)
    held = {name: each.values["true"] for name, each in call_columns(flags, dict.fromkeys(flags, ()), False).items()}
    assert held["pwr_ln"] == ["power line"] and "need mow" in held["mow_req"] and "defaulted" in held["default"]
    assert held["is_urgent"] == ["urgent"]
    assert [called[each].asked for each in ("client", "inspector", "depot")] == ["who", "", "where"]


def test_a_name_stands_for_what_is_called_so_and_what_is_for_something_or_has_it() -> None:
    words = dict.fromkeys(("tool_name", "repaired_by"), FieldType.KEYWORD)
    flags = dict.fromkeys(("orchestra_hired", "for_charity"), FieldType.BOOLEAN)
    called = call_columns(words | flags, dict.fromkeys(words | flags, ()), dated=True)
    assert {"tool", "kind of tool"} <= {*called["tool_name"].words} and called["repaired_by"].asked == "who"
    assert "with an orchestra" in called["orchestra_hired"].values["true"]
    assert "without an orchestra" in called["orchestra_hired"].values["false"]
    assert called["for_charity"].values == {"true": ["for charity", "charity"]}
