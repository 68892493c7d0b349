"""Filters as people and LlamaIndex write them, checked against what an index declares.

docs/filters.md is the specification; nothing that is not in it reaches a store.
"""

import math
import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from rag_app.domain import Condition, FieldType, Filters, InvalidInput, Operator, UnknownField, Value
from rag_app.retrieval.index import IndexSpec

_ORDERED = frozenset({Operator.EQ, Operator.IN, Operator.GT, Operator.GTE, Operator.LT, Operator.LTE})
_EQUALITY = frozenset({Operator.EQ, Operator.IN})
OPERATORS = {
    FieldType.KEYWORD: _EQUALITY,
    FieldType.UUID: _EQUALITY,
    FieldType.INTEGER: _ORDERED,
    FieldType.NUMBER: _ORDERED,
    FieldType.TIME: _ORDERED - {Operator.IN},
    FieldType.BOOLEAN: frozenset({Operator.EQ}),
    FieldType.TAGS: frozenset({Operator.HAS}),
}
"""What may be asked of a field of each type."""

_WRITTEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(==|>=|<=|=|>|<|\bin\b|\bhas\b)\s*(.*)", re.DOTALL)
_LLAMA = {
    FilterOperator.EQ: Operator.EQ,
    FilterOperator.IN: Operator.IN,
    FilterOperator.GT: Operator.GT,
    FilterOperator.GTE: Operator.GTE,
    FilterOperator.LT: Operator.LT,
    FilterOperator.LTE: Operator.LTE,
    FilterOperator.CONTAINS: Operator.HAS,
}


def check_filters(filters: Filters, spec: IndexSpec) -> Filters:
    """The same conditions with every value in its field's type; times as epoch seconds.

    A date without a time means the whole day, UTC. Raises UnknownField with the fields there are, and
    InvalidInput for an operator the field's type does not have or a value that is not of that type.

    >>> notes = IndexSpec(name="notes", source_types=("note",), default_source_type="note")
    >>> check_filters((Condition("date", Operator.LT, "1970-01-02"),), notes)
    (Condition(field='date', operator=<Operator.LT: '<'>, value=86400.0, or_missing=False),)
    """
    return tuple(checked for condition in filters for checked in _check(condition, spec))


def _check(condition: Condition, spec: IndexSpec) -> tuple[Condition, ...]:
    name, operator, value = condition.field, condition.operator, condition.value
    kind = spec.all_fields.get(name)
    if kind is None:
        raise UnknownField(name, spec.all_fields)
    try:
        operator = Operator(operator)
    except ValueError:
        raise InvalidInput(
            name, operator, f"there is no operator {operator!r}; accepted: {', '.join(sorted(OPERATORS[kind]))}"[:200]
        ) from None
    condition = replace(condition, operator=operator)
    if operator not in OPERATORS[kind]:
        raise InvalidInput(
            name,
            value,
            f"{operator} is not possible on a {kind} field; accepted: {', '.join(sorted(OPERATORS[kind]))}",
        )
    if (operator is Operator.IN) != isinstance(value, tuple):
        raise InvalidInput(name, value, "a list of values goes with `in`, and only with it")
    if kind is FieldType.TIME and _is_day(value):
        return _whole_day(condition)
    if isinstance(value, tuple):
        return (replace(condition, value=tuple(coerce(name, kind, each) for each in value)),)
    return (replace(condition, value=coerce(name, kind, value)),)


def _is_day(value: object) -> bool:
    try:  # any notation of ISO 8601
        return isinstance(value, str) and bool(date.fromisoformat(value.strip()))
    except ValueError:
        return False


def _whole_day(condition: Condition) -> tuple[Condition, ...]:
    start = epoch_seconds(condition.field, condition.value)
    end = start + timedelta(days=1).total_seconds()
    bounds = {
        Operator.GTE: [(Operator.GTE, start)],
        Operator.LT: [(Operator.LT, start)],
        Operator.GT: [(Operator.GTE, end)],
        Operator.LTE: [(Operator.LT, end)],
        Operator.EQ: [(Operator.GTE, start), (Operator.LT, end)],
    }
    return tuple(replace(condition, operator=operator, value=at) for operator, at in bounds[condition.operator])


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
    raise InvalidInput(name, value, f"must be {_EXPECTED[kind]}, not {value!r}"[:200])


_EXPECTED = {
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
        raise InvalidInput(name, value, "is out of the range of times") from None


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


def conditions(*given: tuple[str, Operator, Value | tuple[Value, ...] | None], or_missing: bool = False) -> Filters:
    """Those that have a value."""
    return tuple(Condition(*each, or_missing=or_missing) for each in given if each[2] not in (None, ()))  # type: ignore[arg-type]


def parse_condition(written: str) -> Condition:
    """A condition as typed on a command line.

    >>> parse_condition("price<=20").operator.value, parse_condition("lang in en, fr").value
    ('<=', ('en', 'fr'))
    """
    found = _WRITTEN.fullmatch(written)
    if found is None:
        raise InvalidInput("filter", written, f"{written!r} is not `field=value`, `field>=value`, `field in a,b` ...")
    field, sign, value = found.groups()
    operator = Operator.EQ if sign == "=" else Operator(sign)
    listed = tuple(part.strip() for part in value.split(","))
    return Condition(field, operator, listed if operator is Operator.IN else value.strip())


def from_llama(filters: MetadataFilters | None) -> Filters:
    """Our conditions from LlamaIndex's. Raises InvalidInput for what the closed set does not have."""
    if filters is None:
        return ()
    if filters.condition not in (None, FilterCondition.AND):
        raise InvalidInput("filters", str(filters.condition), "only `and` joins conditions")
    return tuple(_from_llama(each) for each in filters.filters)


def _from_llama(condition: MetadataFilter | MetadataFilters) -> Condition:
    """The one group that there is: a condition, or its field is missing."""
    match condition:
        case MetadataFilter(key=key, operator=operator):
            known = _LLAMA.get(FilterOperator(operator)) if operator in set(FilterOperator) else None
            if known is None:
                said = str(getattr(operator, "value", operator))
                raise InvalidInput(key, said, f"operator {said} is not supported"[:200])
            value: Any = condition.value
            return Condition(key, known, tuple(value) if isinstance(value, list) else value)
        case MetadataFilters(
            condition=FilterCondition.OR,
            filters=[
                MetadataFilter() as plain,
                MetadataFilter(operator=FilterOperator.IS_EMPTY, value=None) as missing,
            ],
        ) if plain.key == missing.key:
            return replace(_from_llama(plain), or_missing=True)
    raise InvalidInput("filters", None, "conditions cannot be nested, but for `one, or its field is empty`")
