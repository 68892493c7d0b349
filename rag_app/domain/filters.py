"""The closed set of conditions that a query may put on chunks. docs/filters.md is its specification."""

from enum import StrEnum

from rag_app.domain.frozen import frozen

Value = str | int | float | bool


class FieldType(StrEnum):
    """The type of a field that an index declares. Times are epoch seconds inside."""

    KEYWORD = "keyword"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    TAGS = "tags"
    UUID = "uuid"


class Operator(StrEnum):
    EQ = "=="
    IN = "in"
    GT = ">"
    GTE = ">="
    LT = "<"
    LTE = "<="
    HAS = "has"


@frozen
class Condition:
    """`field operator value`; `value` is a tuple for IN only.

    A chunk without the field does not match, unless `or_missing`: then it does.

    >>> Condition("lang", Operator.EQ, "fr")
    Condition(field='lang', operator=<Operator.EQ: '=='>, value='fr', or_missing=False)
    """

    field: str
    operator: Operator
    value: Value | tuple[Value, ...]
    or_missing: bool = False


Filters = tuple[Condition, ...]
"""All of them hold."""
