"""The questions that the parser is taught with: each query fits its table."""

from collections import Counter

import pytest

from tests.records.parsing.schemas import FOLDER, NUMBERS, Asked, is_aside, questions

OPERATORS = {
    "number": {"=", "!=", "<", "<=", ">", ">="},
    "integer": {"=", "!=", "<", "<=", ">", ">="},
    "keyword": {"=", "!="},
    "tags": {"=", "!="},
    "boolean": {"=", "!="},
}


@pytest.fixture(scope="module")
def asked() -> list[Asked]:
    return questions(FOLDER.glob("*.txt"))


def test_a_sixth_is_put_aside(asked: list[Asked]) -> None:
    names = {each.schema.name for each in asked}
    assert 0.1 < sum(map(is_aside, names)) / len(names) < 0.25


def test_queries_fit_their_tables(asked: list[Asked]) -> None:
    for each in asked:
        if (query := each.query) is None:
            continue
        fields = each.schema.fields
        assert query.kind in each.schema.kinds and query.names <= fields.keys(), each.text
        assert query.of is None or fields[query.of].type in NUMBERS, each.text
        assert query.title.casefold() in each.text.casefold(), each.text
        for name, sign, value in query.filters:
            field = fields[name]
            assert sign in OPERATORS[field.type], each.text
            assert field.type not in ("keyword", "tags") or value in field.values, each.text


def test_fields_are_those_of_the_kind(asked: list[Asked]) -> None:
    for each in asked:
        names = each.query.names if each.query else set()
        assert all(each.query.kind in each.schema.fields[name].kinds for name in names if each.query), each.text


def test_no_question_is_asked_twice_of_a_table(asked: list[Asked]) -> None:
    times = Counter((each.schema.name, each.text.casefold()) for each in asked)
    assert [key for key, count in times.items() if count > 1] == []
