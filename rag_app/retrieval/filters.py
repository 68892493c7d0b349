"""LlamaIndex' filters, checked against what an index declares.

docs/filters.md is the specification; nothing that is not in it reaches a store.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, TypeVar
from uuid import UUID

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from rag_app.domain import FieldType, Filters, InvalidInput, UnknownField, Value, require
from rag_app.retrieval.index import IndexSpec

T = TypeVar("T")
DEEPEST, MOST_CONDITIONS, MOST_VALUES = 3, 50, 1000
"""Of one filter: groups in each other, conditions in all of them, values of one condition."""

EQ, NE, IN, NIN = FilterOperator.EQ, FilterOperator.NE, FilterOperator.IN, FilterOperator.NIN
GT, GTE, LT, LTE = FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE
ANY, ALL, CONTAINS, IS_EMPTY = FilterOperator.ANY, FilterOperator.ALL, FilterOperator.CONTAINS, FilterOperator.IS_EMPTY

_EQUALITY = (EQ, NE, IN, NIN, IS_EMPTY)
_ORDER_OPERATORS = (EQ, NE, LT, LTE, GT, GTE, IN, NIN, IS_EMPTY)
OPERATORS: Mapping[FieldType, tuple[FilterOperator, ...]] = {
    FieldType.KEYWORD: _EQUALITY,
    FieldType.UUID: _EQUALITY,
    FieldType.INTEGER: _ORDER_OPERATORS,
    FieldType.NUMBER: _ORDER_OPERATORS,
    FieldType.TIME: _ORDER_OPERATORS,
    FieldType.BOOLEAN: (EQ, NE, IS_EMPTY),
    FieldType.TAGS: (CONTAINS, ANY, ALL, IS_EMPTY),
}
"""What may be asked of a field of each type."""
LIST_OPERATORS = frozenset({IN, NIN, ANY, ALL})
"""The operators that take a list of values."""

_SIGNS = "==|!=|>=|<=|=|>|<"
_NAMES = "not in|nin|in|any|all|contains|has"
_CONDITION_TEXT = re.compile(
    rf"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:({_SIGNS}|\b(?:{_NAMES})\b)\s*(.*)|\s(is_empty|is empty)\s*)", re.DOTALL
)
_SPELLINGS = {"=": "==", "not in": "nin", "has": "contains"}


def condition(field: str, operator: FilterOperator | str, value: object = None) -> MetadataFilter:
    """`field operator value`, unchecked. Unlike MetadataFilter itself it takes booleans, UUIDs and tuples.

    >>> condition("in_stock", "==", True).value, condition("lang", IN, ("en", "fr")).value
    (True, ['en', 'fr'])
    """
    typed: Any = list(value) if isinstance(value, list | tuple | set | frozenset) else value
    with suppress(ValueError):  # `check_filters` refuses it, saying what is accepted
        operator = FilterOperator(operator)
    return MetadataFilter.model_construct(key=field, operator=operator, value=typed)  # type: ignore[arg-type]


def all_of(filters: Sequence[MetadataFilter | MetadataFilters]) -> MetadataFilters:
    """A group of filters that all hold."""
    return MetadataFilters.model_construct(filters=[*filters], condition=FilterCondition.AND)


def any_of(filters: Sequence[MetadataFilter | MetadataFilters]) -> MetadataFilters:
    """A group of filters of which one holds."""
    return MetadataFilters.model_construct(filters=[*filters], condition=FilterCondition.OR)


def none_of(filters: Sequence[MetadataFilter | MetadataFilters]) -> MetadataFilters:
    """A group of filters of which none holds."""
    return MetadataFilters.model_construct(filters=[*filters], condition=FilterCondition.NOT)


def or_missing(given: MetadataFilter) -> MetadataFilters:
    """The condition holds, or its field is missing.

    >>> [each.operator.value for each in or_missing(condition("market", "==", "etsy")).filters]
    ['==', 'is_empty']
    """
    return any_of([given, condition(given.key, IS_EMPTY)])


def fields_of(filters: Filters) -> set[str]:
    """The fields that filters name, in whatever group.

    >>> sorted(fields_of((condition("lang", "==", "en"), or_missing(condition("date", ">", 0)))))
    ['date', 'lang']
    """
    groups = [each for each in filters if isinstance(each, MetadataFilters)]
    named = {each.key for each in filters if isinstance(each, MetadataFilter)}
    return named.union(*(fields_of(tuple(each.filters)) for each in groups))


def translate(
    given: MetadataFilter | MetadataFilters,
    condition: Callable[[MetadataFilter], T],
    joins: Mapping[FilterCondition, Callable[[list[T]], T]],
) -> T:
    """A checked filter in a store's language, which says a `condition` and `joins` those of a group.

    >>> joins = {FilterCondition.OR: " or ".join}
    >>> translate(or_missing(condition("lang", "==", "en")), lambda given: f"{given.key} {given.operator.value}", joins)
    'lang == or lang is_empty'
    """
    if isinstance(given, MetadataFilter):
        return condition(given)
    return joins[FilterCondition(given.condition)]([translate(each, condition, joins) for each in given.filters])


def names_something(given: MetadataFilter | MetadataFilters) -> bool:
    """Whether all that it finds has something in common that it says: a value of a field, besides the organization's.

    What says only what sources are not, or have not, may be true of everything there is.

    >>> ada = condition("author", "==", "Ada")
    >>> names_something(ada), names_something(none_of([ada])), names_something(or_missing(ada))
    (True, False, False)
    """
    if isinstance(given, MetadataFilter):
        return given.key != "org_id" and given.operator not in (NE, NIN, IS_EMPTY)
    if given.condition == FilterCondition.NOT:
        return False
    each = (names_something(part) for part in given.filters if isinstance(part, MetadataFilter | MetadataFilters))
    return all(each) if given.condition == FilterCondition.OR else any(each)


def conditions(*given: tuple[str, FilterOperator, object]) -> tuple[MetadataFilter, ...]:
    """Those that have a value."""
    return tuple(condition(*each) for each in given if each[2] not in (None, ()))


def check_filters(filters: Filters, spec: IndexSpec) -> Filters:
    """The same filters with every value in its field's type; times as epoch seconds.

    A date without a time means the whole day, UTC. Raises UnknownField with the fields there are, and InvalidInput for
    an operator that the field's type does not have, a value that is not of that type, a group or a list without
    anything in it, and for what is nested too deep or too long.

    >>> notes = IndexSpec(name="notes", source_types=("note",), default_source_type="note")
    >>> check_filters((condition("date", "<", "1970-01-02"),), notes)
    (MetadataFilter(key='date', value=86400.0, operator=<FilterOperator.LT: '<'>),)
    """
    for each in filters:
        if (found := _count(each)) > MOST_CONDITIONS:
            raise InvalidInput("filters", found, f"must have at most {MOST_CONDITIONS} conditions, not {found}")
    return tuple(_check(each, spec) for each in filters)


def _count(given: object, depth: int = 0) -> int:
    if isinstance(given, MetadataFilter):
        return 1
    if not isinstance(given, MetadataFilters):
        raise InvalidInput("filters", None, f"must be MetadataFilter or MetadataFilters, not {type(given).__name__}")
    if depth == DEEPEST:
        raise InvalidInput("filters", None, f"groups may be nested at most {DEEPEST} deep")
    if not given.filters:
        raise InvalidInput(
            "filters", None, "a group must have at least one condition; omit the group to search everything"
        )
    return sum(_count(each, depth + 1) for each in given.filters)


def _check(given: MetadataFilter | MetadataFilters, spec: IndexSpec) -> MetadataFilter | MetadataFilters:
    if isinstance(given, MetadataFilter):
        return _check_condition(given, spec)
    try:
        joined = FilterCondition(given.condition or "and")
    except ValueError:
        raise InvalidInput(
            "condition", given.condition, f"must be and, or or not, not {given.condition!r}"[:200]
        ) from None
    return MetadataFilters.model_construct(filters=[_check(each, spec) for each in given.filters], condition=joined)


def _check_condition(given: MetadataFilter, spec: IndexSpec) -> MetadataFilter | MetadataFilters:
    name, value = given.key, given.value
    kind = spec.all_fields.get(name)
    if kind is None:
        raise UnknownField(name, spec.all_fields)
    operator = _check_operator(given, kind)
    if operator is IS_EMPTY:
        if value is not None:
            raise InvalidInput(name, value, "is_empty takes no value")
        return condition(name, operator)
    if (operator in LIST_OPERATORS) != isinstance(value, list):
        raise InvalidInput(
            name,
            value,
            f"a list of values is required with {', '.join(sorted(LIST_OPERATORS))} and cannot be used with other operators",
        )
    if not isinstance(value, list):
        if kind is FieldType.TIME:
            return _moment(name, operator, value)
        return condition(name, operator, coerce(name, kind, value))
    if not 0 < len(value) <= MOST_VALUES:
        raise InvalidInput(name, len(value), f"{operator.value} takes from 1 to {MOST_VALUES} values")
    if kind is not FieldType.TIME:
        return condition(name, operator, [coerce(name, kind, each) for each in value])
    if operator is IN:
        return any_of([_moment(name, EQ, each) for each in value])
    return all_of([_moment(name, NE, each) for each in value])


def _check_operator(given: MetadataFilter, kind: FieldType) -> FilterOperator:
    accepted = ", ".join(OPERATORS[kind])
    try:
        operator = FilterOperator(given.operator)
    except ValueError:
        raise InvalidInput(
            given.key, given.operator, f"there is no operator {given.operator!r}; accepted: {accepted}"[:200]
        ) from None
    if operator not in OPERATORS[kind]:
        raise InvalidInput(
            given.key, given.value, f"{operator.value} cannot be used with a {kind} field; accepted: {accepted}"
        )
    return operator


def _moment(name: str, operator: FilterOperator, value: object) -> MetadataFilter | MetadataFilters:
    start = epoch_seconds(name, value)
    if not _is_day(value):
        return condition(name, operator, start)
    end = start + timedelta(days=1).total_seconds()
    match operator:
        case FilterOperator.EQ:
            return all_of([condition(name, GTE, start), condition(name, LT, end)])
        case FilterOperator.NE:
            return any_of([condition(name, LT, start), condition(name, GTE, end)])
        case FilterOperator.GT:
            return condition(name, GTE, end)
        case FilterOperator.LTE:
            return condition(name, LT, end)
    return condition(name, operator, start)


def _is_day(value: object) -> bool:
    try:  # any notation of ISO 8601
        return isinstance(value, str) and bool(date.fromisoformat(value.strip()))
    except ValueError:
        return False


def coerce(name: str, kind: FieldType, value: object) -> Value:
    """One value in its field's type (a tag for TAGS). Raises InvalidInput saying what is accepted."""
    if isinstance(value, str) and kind in (FieldType.KEYWORD, FieldType.TAGS):
        return language_code(checked_text(name, value)) if name == "lang" else checked_text(name, value)
    if kind is FieldType.TIME:
        return epoch_seconds(name, value)
    text = str(value).strip().lower() if isinstance(value, str | int | float) else ""
    try:
        if kind is FieldType.UUID:
            return str(UUID(text))
        if kind is FieldType.BOOLEAN:
            return {"true": True, "false": False}[text]
        if kind is FieldType.INTEGER and not isinstance(value, bool) and -(2**63) <= int(text) < 2**63:
            return int(text)
        if kind is FieldType.NUMBER and not isinstance(value, bool) and math.isfinite(float(text)):
            return float(text)
    except (ValueError, KeyError):
        pass
    raise InvalidInput(name, value, f"must be {_EXPECTED_VALUES[kind]}, not {value!r}"[:200])


_EXPECTED_VALUES = {
    FieldType.KEYWORD: "a text",
    FieldType.TAGS: "a text",
    FieldType.UUID: "a UUID",
    FieldType.BOOLEAN: "true or false",
    FieldType.INTEGER: "a whole number of at most 64 bits",
    FieldType.NUMBER: "a finite number",
}


def language_code(written: str) -> str:
    """The language of a tag (BCP 47), as sources have it.

    >>> language_code("en-US"), language_code("FR"), language_code("fil")
    ('en', 'fr', 'fil')
    """
    return written.strip().replace("_", "-").partition("-")[0].lower()


def checked_text(name: str, value: str) -> str:
    """A text that every store can hold: no NUL character, no lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(name, value, "is not valid Unicode text") from None
    if "\0" in value:
        raise InvalidInput(name, value, "contains a NUL character")
    return value


def epoch_seconds(name: str, value: object) -> float:
    """An ISO 8601 date or date-time (UTC where it has no zone), or epoch seconds, as epoch seconds.

    >>> epoch_seconds("date", "1970-01-01T01:00:00+01:00")
    0.0
    """
    if isinstance(value, datetime):
        moment = value
    elif hasattr(value, "year"):
        moment = datetime.combine(value, time())  # type: ignore[arg-type]
    elif isinstance(value, int | float) and not isinstance(value, bool) and -62135596800 <= value <= 253402300800:
        return float(value)
    else:
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            raise InvalidInput(name, value, f"must be an ISO 8601 date or time, not {value!r}"[:200]) from None
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        raise InvalidInput(name, value, "is outside the supported range of times") from None


def instants(name: str, written: str) -> tuple[float, float]:
    """The first and the last moment of an ISO 8601 date (UTC); of a timestamp (UTC where it has no zone) both are the same.

    Epoch seconds. Raises InvalidInput.

    >>> instants("from", "1970-01-02"), instants("from", "1970-01-01t01:00:00+01:00")
    ((86400.0, 172799.999999), (0.0, 0.0))
    """
    said = written.upper()  # RFC 3339 has "t" and "z", too
    with suppress(ValueError):
        day = date.fromisoformat(said)
        return datetime.combine(day, time.min, UTC).timestamp(), datetime.combine(day, time.max, UTC).timestamp()
    with suppress(ValueError, OverflowError):  # the latter: not in the years 1 to 9999 of UTC
        moment = datetime.fromisoformat(said)
        at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
        return at, at
    raise InvalidInput(name, written, "must be an ISO 8601 date or timestamp")


def parse_condition(written: str) -> MetadataFilter | MetadataFilters:
    """A filter as typed on a command line: a condition, or MetadataFilters as JSON.

    >>> parse_condition("price<=20").operator.value, parse_condition("lang in en, fr").value
    ('<=', ['en', 'fr'])
    >>> parse_condition('{"filters": [{"key": "lang", "value": "en"}], "condition": "not"}').condition.value
    'not'
    """
    if written.lstrip().startswith("{"):
        try:
            said = json.loads(written)
        except (ValueError, RecursionError):
            raise InvalidInput("filter", written, "begins with a brace but is not valid JSON") from None
        return parse_where(said, "filter")
    problem = f"{written!r} is not `field=value`, `field>=value`, `field in a,b` ..."[:200]
    found = require(_CONDITION_TEXT.fullmatch(written), InvalidInput("filter", written, problem))
    field, sign, value, empty = found.groups()
    if empty:
        return condition(field, IS_EMPTY)
    operator = FilterOperator(_SPELLINGS.get(sign, sign))
    return condition(
        field, operator, [part.strip() for part in value.split(",")] if operator in LIST_OPERATORS else value.strip()
    )


def parse_where(said: object, name: str = "where") -> MetadataFilters:
    """LlamaIndex' MetadataFilters as they come from JSON; `name` is what the caller calls them.

    Their fields are not known here: `check_filters` is for that. Raises InvalidInput with the place in `said`.

    >>> parse_where({"filters": [{"key": "stylist", "operator": ">=", "value": 5}]}).filters
    [MetadataFilter(key='stylist', value=5, operator=<FilterOperator.GTE: '>='>)]
    """
    if not isinstance(said, Mapping) or "filters" not in said:
        raise InvalidInput(name, None, 'must be an object with "filters" and "condition"')
    return _group(said, name, 0)


def _group(said: Mapping[str, Any], name: str, depth: int) -> MetadataFilters:
    _only(said, ("filters", "condition"), name)
    listed, joined = said["filters"], said.get("condition", "and")
    if not isinstance(listed, list) or not listed:
        raise InvalidInput(f"{name}.filters", None, "must be a list of at least one condition or group")
    if joined not in [each.value for each in FilterCondition]:
        raise InvalidInput(f"{name}.condition", None, "must be one of and, or, not")
    if depth == DEEPEST:
        raise InvalidInput(name, None, f"groups may be nested at most {DEEPEST} deep")
    members = [_member(each, f"{name}.filters[{at}]", depth) for at, each in enumerate(listed)]
    return MetadataFilters.model_construct(filters=members, condition=FilterCondition(joined))


def _member(said: object, name: str, depth: int) -> MetadataFilter | MetadataFilters:
    if not isinstance(said, Mapping):
        raise InvalidInput(name, None, "must be an object: a condition with key, operator and value, or a group")
    if "filters" in said:
        return _group(said, name, depth + 1)
    _only(said, ("key", "operator", "value"), name)
    key, operator = said.get("key"), said.get("operator", "==")
    if not isinstance(key, str) or not isinstance(operator, str):
        raise InvalidInput(name, None, "must have a `key`; `key` and `operator` must be texts")
    return condition(key, operator, said.get("value"))


def _only(said: Mapping[str, Any], accepted: Sequence[str], name: str) -> None:
    for each in said:
        if each not in accepted:
            raise InvalidInput(f"{name}.{each}"[:200], None, f"unknown field; accepted: {', '.join(accepted)}")
