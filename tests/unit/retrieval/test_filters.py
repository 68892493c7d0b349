import json
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from rag_app.domain.errors import InvalidInput, UnknownField
from rag_app.retrieval.filters import all_of, any_of, check_filters, condition, none_of, parse_condition, parse_where
from rag_app.retrieval.index import IndexSpec
from tests.filters import holds

SPEC = IndexSpec(
    name="things", source_types=("doc",), default_source_type="doc",
    fields={"n": "integer", "x": "number", "ok": "boolean", "tags": "tags", "word": "keyword"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("lang=fr", condition("lang", "==", "fr")),
        (" lang == fr ", condition("lang", "==", "fr")),
        ("n>=5", condition("n", ">=", "5")),
        ("n < 5", condition("n", "<", "5")),
        ("lang in en, fr", condition("lang", "in", ("en", "fr"))),
        ("tags has urgent", condition("tags", "contains", "urgent")),
        ("word=a=b", condition("word", "==", "a=b")),
        ("word=", condition("word", "==", "")),
        ("word=Smith, John", condition("word", "==", "Smith, John")),
        ("word!=x", condition("word", "!=", "x")),
        ("word not in a,b", condition("word", "nin", ["a", "b"])),
        ("word nin a", condition("word", "nin", ["a"])),
        ("tags all a, b", condition("tags", "all", ["a", "b"])),
        ("tags any a", condition("tags", "any", ["a"])),
        ("word is empty", condition("word", "is_empty")),
        (" word  is_empty ", condition("word", "is_empty")),
    ],
)
def test_as_written_on_a_command_line(written: str, expected: MetadataFilter) -> None:
    assert parse_condition(written) == expected


@pytest.mark.parametrize("written", ["", "lang", "=fr", "lang~fr", "1=2", "lang has", "a b=c"])
def test_what_is_no_condition_is_refused(written: str) -> None:
    if written == "lang has":  # a field without a value is still a condition, on the empty text
        assert parse_condition(written) == condition("lang", "contains", "")
    else:
        with pytest.raises(InvalidInput, match="field=value"):
            parse_condition(written)


@given(
    st.text(max_size=30),
    st.sampled_from(FilterOperator),
    st.one_of(st.text(), st.integers(), st.floats(), st.booleans()),
)
def test_checking_refuses_or_types_whatever_comes(field: str, operator: FilterOperator, value: object) -> None:
    try:
        checked = check_filters((condition(field, operator, value),), SPEC)
    except InvalidInput:
        return
    assert field in SPEC.all_fields
    assert check_filters(checked, SPEC) == checked


WORD, EMPTY = condition("word", "==", "x"), condition("word", "is_empty")


@pytest.mark.parametrize("operator", ["==", "!=", ">", ">=", "<", "<="])
def test_a_whole_day_is_as_long_as_it_is(operator: str) -> None:
    (checked,) = check_filters((condition("date", operator, "2026-01-15"),), SPEC)
    start = 1768435200.0
    held = [holds(checked, {"date": at}) for at in (start - 1, start, start + 86399.5, start + 86400)]
    assert held == {
        "==": [False, True, True, False], "!=": [True, False, False, True],
        ">": [False, False, False, True], ">=": [False, True, True, True],
        "<": [True, False, False, False], "<=": [True, True, True, False],
    }[operator]  # fmt: skip


def nested(depth: int) -> MetadataFilters:
    return none_of([nested(depth - 1) if depth > 1 else WORD])


def test_a_filter_has_limits() -> None:
    for fine in (nested(3), any_of([WORD] * 50), condition("word", "in", ["x"] * 1000)):
        assert check_filters((fine,), SPEC)
    for wrong, problem in (
        (nested(4), "groups may be nested at most 3 deep"),
        (any_of([any_of([WORD] * 25), all_of([WORD] * 26)]), "must have at most 50 conditions, not 51"),
        (condition("word", "in", ["x"] * 1001), "from 1 to 1000 values"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            check_filters((wrong,), SPEC)
    assert check_filters((nested(3), *[WORD] * 60), SPEC)  # each for itself: what is added inside breaks no limit


@pytest.mark.parametrize("group", [all_of, any_of, none_of])
def test_a_group_with_nothing_in_it_is_refused(group: Callable[..., MetadataFilters]) -> None:
    for each in (group([]), all_of([WORD, group([])]), MetadataFilters(filters=[])):
        with pytest.raises(InvalidInput, match="at least one condition"):
            check_filters((each,), SPEC)


def test_llamaindexs_own_are_checked_as_they_are() -> None:
    said = MetadataFilters(
        filters=[
            MetadataFilter(key="lang", value="fr-CA"),
            MetadataFilters(
                filters=[
                    MetadataFilter(key="n", operator="nin", value=[5, 7]),
                    MetadataFilter(key="n", operator="is_empty", value=None),
                ],
                condition="or",
            ),
        ]
    )
    (checked,) = check_filters((said,), SPEC)
    assert checked == all_of(
        [condition("lang", "==", "fr"), any_of([condition("n", "nin", [5, 7]), condition("n", "is_empty")])]
    )


def test_what_comes_as_json_is_the_same() -> None:
    said = {
        "filters": [
            {"key": "ok", "value": True},
            {"filters": [{"key": "n", "operator": "any", "value": [5]}], "condition": "not"},
        ]
    }
    assert parse_where(said) == all_of([condition("ok", "==", True), none_of([condition("n", "any", [5])])])
    assert parse_condition(json.dumps(said)) == parse_where(said)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (None, "where: must be an object"),
        ([], "where: must be an object"),
        ({}, "where: must be an object"),
        ({"key": "lang", "value": "en"}, "where: must be an object"),
        ({"filters": []}, r"where.filters: must be a list of at least one"),
        ({"filters": {}}, r"where.filters: must be a list"),
        ({"filters": [[]]}, r"where.filters\[0\]: must be an object"),
        ({"filters": [{"key": "lang", "value": "en"}, {"key": 5}]}, r"where.filters\[1\]: must have a `key`"),
        ({"filters": [{"key": "lang", "operator": 5}]}, r"where.filters\[0\]: must have a `key`"),
        ({"filters": [{"key": "lang", "valeu": "en"}]}, r"where.filters\[0\].valeu: unknown field; accepted: key, operator, value"),
        ({"filters": [{"key": "lang", "value": "en"}], "condition": "xor"}, "where.condition: must be one of and, or, not"),
        ({"filters": [{"filters": [], "condition": "or"}]}, r"where.filters\[0\].filters: must be a list of at least one"),
    ],
)  # fmt: skip
def test_what_is_no_filter_is_refused_with_its_place(said: object, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        parse_where(said)


def test_a_filter_without_end_is_refused() -> None:
    said: dict[str, object] = {"filters": [{"key": "lang", "value": "en"}]}
    for _ in range(500):
        said = {"filters": [said]}
    with pytest.raises(InvalidInput, match="nested at most"):
        parse_where(said)
    with pytest.raises(InvalidInput):
        parse_condition("{" * 100_000)


def test_an_unknown_field_names_the_known_ones() -> None:
    with pytest.raises(UnknownField) as error:
        check_filters((condition("colour", "==", "red"),), SPEC)
    assert error.value.accepted == sorted(SPEC.all_fields)


def test_an_operator_may_be_written_as_text() -> None:
    plain = MetadataFilter(key="lang", value="en")
    plain.operator = "!="  # type: ignore[assignment]
    assert check_filters((plain,), SPEC) == (condition("lang", FilterOperator.NE, "en"),)
    for operator in ("~", "like' OR 1=1", "", "None"):
        with pytest.raises(InvalidInput, match="there is no operator"):
            check_filters((condition("lang", operator, "en"),), SPEC)
    with pytest.raises(InvalidInput, match="text_match cannot be used with a keyword field"):
        check_filters((condition("lang", "text_match", "en"),), SPEC)
