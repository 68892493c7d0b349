"""Whatever a body is, it is a struct or an InvalidInput that says where and what."""

import json
from contextlib import suppress
from typing import Annotated

import pytest
from hypothesis import given, strategies as st
from msgspec import Meta, Struct

from rag_app.domain.errors import InvalidInput, UnknownField
from rag_app.http.bodies import decode
from rag_app.surfaces.knowledge.routes import RetrievalRequest


class Inner(Struct, forbid_unknown_fields=True):
    size: Annotated[int, Meta(ge=1, description="a positive number")]
    plain: int = 0


class Outer(Struct, forbid_unknown_fields=True):
    inner: Inner | None = None
    numbers: list[int] = []


@pytest.mark.parametrize(
    ("body", "field", "problem"),
    [
        ('{"inner": {"size": 0}}', "inner.size", "must be a positive number"),
        ('{"inner": {}}', "inner.size", "must be a positive number"),
        ('{"inner": {"size": 1, "plain": "x"}}', "inner.plain", "must be a whole number"),
        ('{"inner": 5}', "inner", "must be an object"),
        ('{"numbers": [1, "x"]}', "numbers[1]", "must be a whole number"),
        ("[]", "", "The body must be a JSON object"),
        ("{", "", "The body is not valid JSON"),
    ],
)
def test_where_and_what(body: str, field: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode(Outer, body.encode())
    assert (refused.value.field, refused.value.problem) == (field, problem)


@pytest.mark.parametrize("written", ["5.0", "5e0", "0.5e1", "50e-1"])
def test_a_whole_number_is_one_however_it_is_written(written: str) -> None:
    assert decode(Outer, f'{{"inner": {{"size": {written}}}, "numbers": [{written}]}}'.encode()) == Outer(Inner(5), [5])


@pytest.mark.parametrize("written", ["5.5", "1e-5", "0.0", "1e400", "9" * 5000, '"5.0"', "true"])
def test_what_is_no_whole_number_from_1_is_none(written: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode(Outer, f'{{"inner": {{"size": {written}}}}}'.encode())
    assert (refused.value.field, refused.value.problem) == ("inner.size", "must be a positive number")


def test_what_was_sent_is_told() -> None:
    for body, value in [
        ('{"inner": {"size": -5.5}}', -5.5),
        ('{"inner": {"size": null}}', None),
        ('{"inner": {"big": [1]}}', [1]),
        ('{"numbers": [1, {"a": "b"}]}', {"a": "b"}),
    ]:
        with pytest.raises(InvalidInput) as refused:
            decode(Outer, body.encode())
        assert refused.value.value == value


def test_a_field_may_have_refusals_of_its_own() -> None:
    class Odd(InvalidInput):
        pass

    class Row(Struct):
        name: Annotated[str, Meta(min_length=1, extra={"raises": Odd})]

    class Rows(Struct):
        rows: list[Row]
        one: Row | None = None

    for body, field in [
        ('{"rows": [{"name": "a"}, {"name": ""}]}', "rows[1].name"),
        ('{"rows": [{}]}', "rows[0].name"),
        ('{"rows": [], "one": {"name": 5}}', "one.name"),
    ]:
        with pytest.raises(Odd) as refused:
            decode(Rows, body.encode())
        assert refused.value.field == field


def test_unknown_fields_with_those_there_are() -> None:
    with pytest.raises(UnknownField) as refused:
        decode(Outer, b'{"outer": 1}')
    assert (refused.value.field, refused.value.accepted) == ("outer", ["inner", "numbers"])


@pytest.mark.parametrize("name", ["a`b - at `$.x", "` - at `$.inner", "\n", "", "a.b"])
def test_a_name_made_up_to_confuse_confuses_nobody_else(name: str) -> None:
    with pytest.raises(InvalidInput):
        decode(Outer, json.dumps({name: 1}).encode())


def test_a_long_name_is_not_repeated_at_length() -> None:
    with pytest.raises(UnknownField) as refused:
        decode(Outer, json.dumps({"x" * 10_000: 1}).encode())
    assert len(refused.value.field) == 100


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "query_text": JSON,
        "top_k": JSON,
        "filters": JSON
        | st.dictionaries(st.sampled_from(["source_type", "lang", "org_id", "date_from", "date_to", "x"]), JSON),
    },
)


@given(st.binary() | st.text().map(str.encode) | (JSON | NEARLY).map(lambda value: json.dumps(value).encode()))
def test_any_bytes(body: bytes) -> None:
    with suppress(InvalidInput):
        question = decode(RetrievalRequest, body).question()
        assert question.text.strip() and len(question.text) <= 500 and 1 <= question.top_k <= 50


@given(st.text(alphabet=" \t\u2003", min_size=400, max_size=500), st.sampled_from(["", "\0", "x", "x\0"]))
def test_blanks_take_no_time(blanks: str, end: str) -> None:
    body = json.dumps({"query_text": (blanks + end)[-500:]}).encode()
    if end == "x":
        decode(RetrievalRequest, body)
    else:
        with pytest.raises(InvalidInput):
            decode(RetrievalRequest, body)


@pytest.mark.parametrize(
    "body",
    [
        r'{"query_text": "a\ud800b", "top_k": 5.0}',
        r'{"query_text": "x", "colour": "\ud800"}',
        '{"query_text": "x", "top_k": NaN}',
        '{"query_text": 5, "query_text": "x"}',
    ],
    ids=["half a pair beside a float", "half a pair in an unknown field", "no number", "same field twice"],
)
def test_a_second_look_accepts_no_more_than_the_first(body: str) -> None:
    with pytest.raises(InvalidInput):
        decode(RetrievalRequest, body.encode())


def test_of_a_long_list_the_first_item_that_is_refused_is_named() -> None:
    for place in 0, 1, 499, 998, 999:
        numbers: list[object] = [*range(1000)]
        numbers[place] = "x"
        with pytest.raises(InvalidInput) as refused:
            decode(Outer, json.dumps({"numbers": numbers}).encode())
        assert refused.value.field == f"numbers[{place}]"
