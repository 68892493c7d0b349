"""Questions about records as SQL, over the table of filter fields, with one row per source.

Equals come in the order in which they were loaded: ids of sources differ from one organization to the next.
"""

from collections.abc import Sequence
from typing import cast

import asyncpg
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter

from rag_app.domain import PUBLIC_ORGANIZATION, FieldType
from rag_app.retrieval.records import Aggregate, Grain, Record, RecordQuery, RecordResult
from rag_app.stores.postgres_tables import Query, column

_MOST_CITED = 5  # sources that are named of a group, or of all that a total was computed from
_MOST_VALUES = 500
# A group is added up in so many parts. Of the newest date of each, the fifth says since when the group's newest sources are:
# the others need not be sorted.
_PARTS = 8
# Of rows that have the `size` and the sum of so many records.
_AGGREGATES = {
    Aggregate.COUNT: "sum(size)::float8",
    Aggregate.SUM: "sum(number)::float8",
    Aggregate.AVERAGE: "(sum(number) / nullif(sum(size), 0))::float8",
}


class RecordStatement(Query):
    """A statement about records: every value is bound, every column comes from the index spec."""

    def records(self, query: RecordQuery) -> str:
        """The rows of a `check_query`ed query, each with the total and the aggregate over all records."""
        if query.group is None:
            return self._single(query)
        if query.aggregate is None:
            return self._first_of_each(query, query.group)
        return self._groups(query, query.group, query.aggregate)

    def _single(self, query: RecordQuery) -> str:
        value, kind, types = column(query.order or "date"), *self._types(query)
        aggregate = _AGGREGATES[query.aggregate] if query.aggregate else "NULL::float8"
        direction = "DESC" if query.descending else "ASC"
        return f"""WITH found AS MATERIALIZED (
                SELECT DISTINCT ON (v.source_id) v.source_id, v.no, v.{value} AS value{self._number(query)}{kind}
                FROM {self.fields} v WHERE {self._visible(query)} ORDER BY v.source_id, v.no),
            totals AS MATERIALIZED (
                SELECT sum(size)::bigint AS total, {aggregate} AS aggregate, {types} AS types
                FROM (SELECT {_size(query)}{kind} FROM found GROUP BY (){kind}) parts),
            first AS (
                SELECT * FROM found ORDER BY value {direction} NULLS LAST, no LIMIT {self.bind(query.limit, "bigint")})
            SELECT ARRAY[source_id] AS sources, value, NULL AS of_group, 1::bigint AS size, total, aggregate, types
            FROM first, totals ORDER BY value {direction} NULLS LAST, no"""

    def _first_of_each(self, query: RecordQuery, group: str) -> str:
        """The first record of each group, and its equals; the groups in byte order."""
        direction = "DESC" if query.descending else "ASC"
        return f"""WITH found AS MATERIALIZED (
                SELECT v.source_id, min({self._key(query, group)}::text COLLATE "C") AS of_group,
                    min(v.{column(query.order or "date")}) AS value, min(v.source_type COLLATE "C") AS source_type,
                    min(v.no) AS no
                FROM {self.fields} v WHERE {self._visible(query)} GROUP BY v.source_id),
            totals AS MATERIALIZED (
                SELECT count(DISTINCT of_group) AS total, array_agg(DISTINCT source_type ORDER BY source_type) AS types FROM found),
            ranked AS (
                SELECT source_id, no, of_group, value, rank() OVER (PARTITION BY of_group ORDER BY value {direction}) AS place
                FROM found)
            SELECT ARRAY[source_id] AS sources, value, of_group, 1::bigint AS size, total, NULL::float8 AS aggregate, types
            FROM ranked, totals WHERE place = 1
            ORDER BY of_group, no LIMIT {self.bind(query.limit, "bigint")}"""

    def _key(self, query: RecordQuery, group: str) -> str:
        """What records are grouped by: a value, the day, week, month or year that a time falls in, or its weekday."""
        key = f"v.{column(group)}"
        if query.grain is None:
            return key
        if query.grain is Grain.WEEKDAY:
            return f"extract(isodow FROM {_day(key)})::int"
        return f"to_char(date_trunc({self.bind(query.grain.value, 'text')}, {_day(key)}), 'YYYY-MM-DD')"

    def _groups(self, query: RecordQuery, group: str, aggregate: Aggregate) -> str:
        """Groups in byte order, with the newest sources of the returned groups only."""
        key, kind, types = self._key(query, group), *self._types(query)
        order = f"{'of_group' if query.order == group else 'value'} {'DESC' if query.descending else 'ASC'}"
        return f"""WITH found AS MATERIALIZED (
                SELECT DISTINCT ON (v.source_id) v.source_id, v.no, v.date, {key}::text COLLATE "C" AS of_group{self._number(query)}{kind}
                FROM {self.fields} v WHERE {self._visible(query)} ORDER BY v.source_id, v.no),
            parts AS MATERIALIZED (
                SELECT of_group, max(date) AS newest, {_size(query)}{kind}
                FROM found {self._size_condition(query)} GROUP BY of_group, no % {_PARTS}{kind}),
            groups AS MATERIALIZED (
                SELECT of_group, {_AGGREGATES[aggregate]} AS value, sum(size)::bigint AS size,
                    (array_agg(newest ORDER BY newest DESC NULLS LAST))[{_MOST_CITED}] AS since
                FROM parts GROUP BY of_group),
            totals AS MATERIALIZED (
                SELECT count(DISTINCT of_group) AS total, {_AGGREGATES[aggregate]} AS aggregate, {types} AS types FROM parts),
            told AS MATERIALIZED (
                SELECT row_number() OVER (ORDER BY {order} NULLS LAST, of_group) AS place, of_group, value, size, since
                FROM groups ORDER BY place LIMIT {self.bind(query.limit, "bigint")}),
            cited AS MATERIALIZED (
                SELECT place, (array_agg(source_id ORDER BY date DESC NULLS LAST, source_id))[:{_MOST_CITED}] AS sources
                FROM found JOIN told USING (of_group) WHERE (date < since) IS NOT TRUE GROUP BY place)
            SELECT sources, value, of_group, size, total, aggregate, types
            FROM told JOIN cited USING (place), totals ORDER BY place"""

    def _types(self, query: RecordQuery) -> tuple[str, str]:
        """The column with a record's type, if there can be several, and the types of all records.

        Each column less is a tenth of the time, of 100,000 records.
        """
        accepted = {*self.spec.source_types}
        for each in query.filters:
            if isinstance(each, MetadataFilter) and (each.key, each.operator) == ("source_type", FilterOperator.IN):
                accepted.intersection_update(cast(list[str], each.value))
        if len(accepted) == 1:
            return "", f"ARRAY[{self.bind(accepted.pop(), 'text')}]"
        return ", source_type", 'array_agg(DISTINCT source_type COLLATE "C")'

    def _size_condition(self, query: RecordQuery) -> str:
        """That a group has as many records as the query says."""
        bounds = [
            f"count(*) {sign} {self.bind(number, 'bigint')}"
            for sign, number in ((">=", query.least), ("<=", query.most))
            if number
        ]
        if not bounds:
            return ""
        return f"WHERE of_group IN (SELECT of_group FROM found GROUP BY of_group HAVING {' AND '.join(bounds)})"

    def _number(self, query: RecordQuery) -> str:
        """The column that is added up, if there is one."""
        return f", v.{column(query.of)} AS number" if query.of else ""

    def _visible(self, query: RecordQuery) -> str:
        """The mandatory conditions, the filters, and that the fields to order, sum or group by have values."""
        conditions = [self.where(query.filters)]
        needed = {name for name in (query.order, query.of, query.group, *query.having) if name is not None}
        conditions += [f"v.{column(name)} IS NOT NULL" for name in sorted(needed)]
        if query.weekdays:
            days = self.bind(list(query.weekdays), "int[]")
            conditions.append(f"extract(isodow FROM {_day('v.date')})::int = ANY({days})")
        if query.hours is not None:
            first, last = (self.bind(60 * each, "int") for each in query.hours)
            conditions.append(
                f"mod(floor(v.date)::bigint, 86400) >= {first} AND mod(floor(v.date)::bigint, 86400) < {last}"
            )
        if query.own:
            conditions.append(f"v.org_id <> {self.bind(PUBLIC_ORGANIZATION, 'uuid')}")
            conditions += [
                f"v.{column(name)} IS NOT FALSE" for name, words in self.spec.vocabulary.items() if words.own
            ]
        return " AND ".join(conditions)

    def named_values(self, words: Sequence[str]) -> str:
        """Values with one of the words; empty if the index declares no such field."""
        visible, asked = self.where(()), self.bind(list(words), "text[]")
        fields = {name: kind for name, kind in self.spec.all_fields.items() if name not in ("source_type", "lang")}
        parts = [
            f"SELECT DISTINCT {self.bind(name, 'text')} AS field, unnest(v.{column(name)}) AS value FROM {self.fields} v "
            f"WHERE {visible}"
            for name, kind in fields.items()
            if kind is FieldType.TAGS
        ]
        if keywords := {name: f"v.{column(name)}" for name, kind in fields.items() if kind is FieldType.KEYWORD}:
            # the rows are read once for all fields
            cases = (f"WHEN grouping({each}) = 0 THEN {self.bind(name, 'text')}" for name, each in keywords.items())
            parts.append(
                f"SELECT CASE {' '.join(cases)} END AS field, coalesce({', '.join(keywords.values())}) AS value "
                f"FROM {self.fields} v WHERE {visible} "
                f"GROUP BY GROUPING SETS ({', '.join(f'({each})' for each in keywords.values())})"
            )
        if not parts:
            return ""
        return f"""SELECT field, value FROM ({" UNION ALL ".join(parts)}) known
            WHERE EXISTS (SELECT FROM regexp_split_to_table(lower(value), '[^[:alnum:]]+') word WHERE word = ANY({asked}))
            ORDER BY field, value LIMIT {_MOST_VALUES}"""


def _size(query: RecordQuery) -> str:
    return f"count(*) AS size{', sum(number) AS number' if query.of else ''}"


def _day(seconds: str) -> str:
    return f"(to_timestamp({seconds}) AT TIME ZONE 'UTC')"


def to_records(rows: Sequence[asyncpg.Record], query: RecordQuery) -> RecordResult:
    """The rows of `RecordStatement.records`. Without groups and results, the count is 0."""
    if not rows:
        return RecordResult(value=0.0 if query.aggregate is Aggregate.COUNT and query.group is None else None)
    found = tuple(Record(tuple(row["sources"]), row["value"], row["of_group"], row["size"]) for row in rows)
    return RecordResult(found, rows[0]["total"], rows[0]["aggregate"], tuple(rows[0]["types"]))
