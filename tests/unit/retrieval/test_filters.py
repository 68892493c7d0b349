from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from rag_app.domain.errors import InvalidInput, UnknownField
from rag_app.domain.filters import Condition, Operator
from rag_app.retrieval.filters import check_filters, from_llama, parse_condition
from rag_app.retrieval.index import IndexSpec
from tests.llama_filters import to_llama

SPEC = IndexSpec(
    name="things", source_types=("doc",), default_source_type="doc",
    fields={"n": "integer", "x": "number", "ok": "boolean", "tags": "tags", "word": "keyword"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("lang=fr", Condition("lang", Operator.EQ, "fr")),
        (" lang == fr ", Condition("lang", Operator.EQ, "fr")),
        ("n>=5", Condition("n", Operator.GTE, "5")),
        ("n < 5", Condition("n", Operator.LT, "5")),
        ("lang in en, fr", Condition("lang", Operator.IN, ("en", "fr"))),
        ("tags has urgent", Condition("tags", Operator.HAS, "urgent")),
        ("word=a=b", Condition("word", Operator.EQ, "a=b")),
        ("word=", Condition("word", Operator.EQ, "")),
        ("word=Smith, John", Condition("word", Operator.EQ, "Smith, John")),
    ],
)
def test_as_written_on_a_command_line(written: str, expected: Condition) -> None:
    assert parse_condition(written) == expected


@pytest.mark.parametrize("written", ["", "lang", "=fr", "lang~fr", "1=2", "lang has", "a b=c"])
def test_what_is_no_condition_is_refused(written: str) -> None:
    if written == "lang has":  # a field without a value is still a condition, on the empty text
        assert parse_condition(written).value == ""
    else:
        with pytest.raises(InvalidInput, match="field=value"):
            parse_condition(written)


@given(st.text(max_size=30), st.sampled_from(Operator), st.one_of(st.text(), st.integers(), st.floats(), st.booleans()))
def test_checking_refuses_or_types_whatever_comes(field: str, operator: Operator, value: object) -> None:
    try:
        checked = check_filters((Condition(field, operator, value),), SPEC)  # type: ignore[arg-type]
    except InvalidInput:
        return
    assert field in SPEC.all_fields
    assert check_filters(checked, SPEC) == checked


@given(
    st.sampled_from(["lang", "word", "n", "x", "ok", "tags", "date", "org_id"]),
    st.sampled_from(Operator),
    st.one_of(st.text(max_size=8), st.integers(), st.booleans(), st.tuples(st.text(max_size=4))),
    st.booleans(),
)
def test_through_llamaindex_and_back(field: str, operator: Operator, value: object, or_missing: bool) -> None:
    try:
        checked = check_filters((Condition(field, operator, value, or_missing),), SPEC)  # type: ignore[arg-type]
    except InvalidInput:
        return
    assert {each.or_missing for each in checked} == {or_missing}
    assert check_filters(from_llama(to_llama(checked)), SPEC) == checked


@pytest.mark.parametrize("operator", [Operator.EQ, Operator.GT, Operator.GTE, Operator.LT, Operator.LTE])
def test_a_whole_day_or_none_at_all(operator: Operator) -> None:
    """Both ends of the day let a chunk without a date pass."""
    plain, lenient = (check_filters((Condition("date", operator, "2026-01-15", each),), SPEC) for each in (False, True))
    assert lenient == tuple(replace(each, or_missing=True) for each in plain)


EMPTY = MetadataFilter(key="word", operator=FilterOperator.IS_EMPTY, value=None)
WORD = MetadataFilter(key="word", value="x")


@pytest.mark.parametrize(
    "filters",
    [
        [EMPTY],
        [MetadataFilters(filters=[WORD, EMPTY])],
        [MetadataFilters(filters=[WORD, EMPTY], condition=FilterCondition.NOT)],
        [MetadataFilters(filters=[EMPTY, WORD], condition=FilterCondition.OR)],
        [MetadataFilters(filters=[WORD], condition=FilterCondition.OR)],
        [MetadataFilters(filters=[WORD, WORD], condition=FilterCondition.OR)],
        [MetadataFilters(filters=[WORD, EMPTY, EMPTY], condition=FilterCondition.OR)],
        [MetadataFilters(filters=[EMPTY, EMPTY], condition=FilterCondition.OR)],
        [MetadataFilters(filters=[WORD, MetadataFilters(filters=[EMPTY])], condition=FilterCondition.OR)],
        [MetadataFilters(filters=[MetadataFilter(key="lang", value="en"), EMPTY], condition=FilterCondition.OR)],
        [MetadataFilters(
            filters=[WORD, MetadataFilter(key="word", operator=FilterOperator.IS_EMPTY, value="x")],
            condition=FilterCondition.OR,
        )],
        [MetadataFilters(filters=[MetadataFilter(key="word", operator=FilterOperator.NE, value="x"), EMPTY],
                         condition=FilterCondition.OR)],
    ],
)  # fmt: skip
def test_there_is_one_group_and_no_other(filters: list[MetadataFilter | MetadataFilters]) -> None:
    assert from_llama(MetadataFilters(filters=[MetadataFilters(filters=[WORD, EMPTY], condition=FilterCondition.OR)]))
    with pytest.raises(InvalidInput):
        from_llama(MetadataFilters(filters=filters))


@given(st.text(max_size=20))
def test_nobody_writes_it_on_a_command_line(written: str) -> None:
    assert not parse_condition(f"word=1{written}").or_missing


def test_an_unknown_field_names_the_known_ones() -> None:
    with pytest.raises(UnknownField) as error:
        check_filters((Condition("colour", Operator.EQ, "red"),), SPEC)
    assert error.value.accepted == sorted(SPEC.all_fields)


def test_an_operator_may_be_written_as_text() -> None:
    [checked] = check_filters((Condition("lang", "in", ("en", "fr")),), SPEC)  # type: ignore[arg-type]
    assert checked.operator is Operator.IN
    for operator in ("~", "like' OR 1=1", "", None, 7):
        with pytest.raises(InvalidInput, match="there is no operator"):
            check_filters((Condition("lang", operator, "en"),), SPEC)  # type: ignore[arg-type]


def test_an_operator_of_llamaindex_may_be_written_as_text() -> None:
    plain = MetadataFilter(key="lang", value="en")
    for operator, problem in (
        ("==", None),
        ("text_match", "not supported"),
        ("~", "not supported"),
        (None, "not supported"),
    ):
        plain.operator = operator  # type: ignore[assignment]
        if problem is None:
            assert from_llama(MetadataFilters(filters=[plain])) == (Condition("lang", Operator.EQ, "en"),)
        else:
            with pytest.raises(InvalidInput, match=problem):
                from_llama(MetadataFilters(filters=[plain]))
