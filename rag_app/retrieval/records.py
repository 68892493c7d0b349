"""Questions about records: what is asked of the fields that an index declares, and what comes back.

A query has one list of filters, one order, one limit, at most one aggregate and one group. It is made of declared fields
alone and carries no SQL: the store (`ScopedStore.find_records`) writes it, under the scope that it was opened with.
"""

from enum import StrEnum
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from rag_app.domain import FieldType, Filters, InvalidInput, UnknownField, Value
from rag_app.retrieval.index import IndexSpec

LARGEST_LIMIT = 50
NUMBER_FIELDS = frozenset({FieldType.INTEGER, FieldType.NUMBER})
_ORDER_TYPES = NUMBER_FIELDS | {FieldType.TIME}
_GROUP_TYPES = NUMBER_FIELDS | {FieldType.KEYWORD, FieldType.BOOLEAN, FieldType.TIME}


class Aggregate(StrEnum):
    """What is computed over all records that the filters leave."""

    COUNT = "count"
    SUM = "sum"
    AVERAGE = "average"


class Grain(StrEnum):
    """By what a time is grouped."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"
    WEEKDAY = "weekday"


class RecordQuery(Struct, frozen=True):
    """What is asked of an index's records; a record is a source.

    `own` leaves out what is public and what the index's `own` field says belongs to others. `having` are fields that must
    be there, `weekdays` (1 is Monday) those that the date may fall on, `hours` the minutes of the day that it may have, from the first up to the last. `order` is a declared field; groups come in the
    order of their aggregate, or of themselves where `order` is the group's field. `of` is the field that is summed or
    averaged. Records without the ordered, summed or grouped field are left out. `limit` is 1 to 50 records or groups.
    `grain` is by what a time is grouped; the group of a weekday is "1" (Monday) to "7". Days are those of UTC. A group without an aggregate gives the first records of
    each group. `least` and `most` are how many records a counted group may have; 0 is no bound.

    >>> RecordQuery(order="price", limit=1).descending
    True
    """

    filters: Filters = ()
    own: bool = False
    order: str | None = None
    descending: bool = True
    limit: int = 5
    aggregate: Aggregate | None = None
    of: str | None = None
    group: str | None = None
    grain: Grain | None = None
    having: tuple[str, ...] = ()
    weekdays: tuple[int, ...] = ()
    hours: tuple[int, int] | None = None
    least: int = 0
    most: int = 0


class Record(Struct, frozen=True):
    """A record that was found, or a group of them: `value` is what it is ordered by, in a group its aggregate.

    `sources` are the record itself, or some of the group's; `size` is how many records a group has.
    """

    sources: tuple[UUID, ...]
    value: Value | None = None
    group: Value | None = None
    size: int = 1


class RecordResult(Struct, frozen=True):
    """What a query found: the first `limit` of `total` records or groups; `value` is the aggregate over all records.

    `types` are the source types of all records.
    """

    rows: tuple[Record, ...] = ()
    total: int = 0
    value: float | None = None
    types: tuple[str, ...] = ()


class NamedValue(Struct, frozen=True):
    """A value of a keyword or tags field that the scope has, and that a text may speak of.

    Of the field `source_id` it is one record: the one with this `title`, of this `source_type`, that has these `fields`.
    `words` are the stems of its title.
    """

    field: str
    value: str
    title: str = ""
    source_type: str = ""
    fields: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()


def check_query(query: RecordQuery, spec: IndexSpec) -> RecordQuery:
    """The same query, its filters checked and in their fields' types.

    Raises UnknownField with the fields there are, and InvalidInput for a field of the wrong type or a limit out of range.

    >>> notes = IndexSpec(name="notes", source_types=("note",), default_source_type="note", fields={"price": "number"})
    >>> check_query(RecordQuery(order="price"), notes).order
    'price'
    """
    from rag_app.retrieval.filters import check_filters  # LlamaIndex, which the words of records do without

    for role, name, accepted in (
        ("order", query.order, _ORDER_TYPES),
        ("of", query.of, NUMBER_FIELDS),
        ("group", query.group, _GROUP_TYPES),
    ):
        if name is None:
            continue
        if name not in spec.all_fields:
            raise UnknownField(name, spec.all_fields)
        if (kind := spec.all_fields[name]) not in accepted:
            raise InvalidInput(role, name, f"{name} is a {kind} field; accepted: {', '.join(sorted(accepted))}")
    if unknown := sorted({*query.having} - {*spec.all_fields}):
        raise UnknownField(unknown[0], spec.all_fields)
    if not 1 <= query.limit <= LARGEST_LIMIT:
        raise InvalidInput("limit", query.limit, f"must be a whole number from 1 to {LARGEST_LIMIT}")
    if (query.aggregate in (Aggregate.SUM, Aggregate.AVERAGE)) != (query.of is not None):
        raise InvalidInput(
            "of", query.of, "is required for a sum or an average, and cannot be used with other aggregates"
        )
    if query.group is not None and query.aggregate is None and query.order in (None, query.group):
        raise InvalidInput(
            "group", query.group, "can only be used with an aggregate, or with an order by another field"
        )
    if (query.least or query.most) and (query.group is None or query.aggregate is not Aggregate.COUNT):
        raise InvalidInput("least", query.least, "can only be used to count the records of groups")
    if (query.grain is not None) != (query.group is not None and spec.all_fields[query.group] is FieldType.TIME):
        raise InvalidInput(
            "grain",
            query.grain,
            "is required to group by a time field (day, week, month, year or weekday), and cannot be used with other fields",
        )
    return replace(query, filters=check_filters(query.filters, spec))


def can_run(query: RecordQuery, spec: IndexSpec) -> bool:
    """Whether `check_query` accepts a query.

    >>> notes = IndexSpec(name="notes", source_types=("note",), default_source_type="note", fields={"price": "number"})
    >>> can_run(RecordQuery(order="price"), notes), can_run(RecordQuery(order="cost"), notes)
    (True, False)
    """
    try:
        check_query(query, spec)
    except (InvalidInput, UnknownField):
        return False
    return True
