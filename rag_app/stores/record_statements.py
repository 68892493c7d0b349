"""Questions about records as SQL, over the table that filters look into: one row a source, whatever its chunks."""

from collections.abc import Sequence

import asyncpg

from rag_app.domain import PUBLIC_ORGANIZATION, FieldType
from rag_app.retrieval.records import Aggregate, Record, RecordQuery, Records
from rag_app.stores.postgres_tables import Query, column

_CITED = 5
"""Sources that are named of a group, or of all that a total was computed from."""
_MOST_VALUES = 500
_AGGREGATES = {
    Aggregate.COUNT: "count(*)::float8",
    Aggregate.SUM: "sum(number)::float8",
    Aggregate.AVERAGE: "avg(number)::float8",
}

_TYPES = "ARRAY(SELECT source_type FROM found GROUP BY source_type ORDER BY source_type) AS types"


class RecordStatement(Query):
    """A statement about records: every value is bound, every column comes from the index spec."""

    def records(self, query: RecordQuery) -> str:
        """The rows of a `check_query`ed query, each with the total and the aggregate over all records."""
        if query.group is not None and query.aggregate is not None:
            return self._groups(query, query.group, query.aggregate)
        return self._single(query)

    def _single(self, query: RecordQuery) -> str:
        value = f"min(v.{column(query.order or 'date')})"
        number = f"min(v.{column(query.of)})" if query.of else "NULL::float8"
        aggregate = f"(SELECT {_AGGREGATES[query.aggregate]} FROM found)" if query.aggregate else "NULL::float8"
        direction = "DESC" if query.descending else "ASC"
        return f"""WITH found AS MATERIALIZED (
                SELECT v.source_id, {value} AS value, {number} AS number, min(v.source_type) AS source_type
                FROM {self.fields} v WHERE {self._visible(query)} GROUP BY v.source_id)
            SELECT ARRAY[source_id] AS sources, value, NULL AS of_group, 1::bigint AS size,
                (SELECT count(*) FROM found) AS total, {aggregate} AS aggregate, {_TYPES}
            FROM found ORDER BY value {direction} NULLS LAST, source_id LIMIT {self.bind(query.limit, "bigint")}"""

    def _groups(self, query: RecordQuery, group: str, aggregate: Aggregate) -> str:
        key = f"v.{column(group)}"
        if query.grain is not None:
            key = f"to_char(date_trunc({self.bind(query.grain.value, 'text')}, {_day(key)}), 'YYYY-MM-DD')"
        number = f"min(v.{column(query.of)})" if query.of else "NULL::float8"
        order = f"{'of_group' if query.order == group else 'value'} {'DESC' if query.descending else 'ASC'}"
        return f"""WITH found AS MATERIALIZED (
                SELECT v.source_id, min({key}::text) AS of_group, {number} AS number, min(v.date) AS date,
                    min(v.source_type) AS source_type
                FROM {self.fields} v WHERE {self._visible(query)} GROUP BY v.source_id),
            groups AS MATERIALIZED (
                SELECT of_group, {_AGGREGATES[aggregate]} AS value, count(*) AS size,
                    (array_agg(source_id ORDER BY date DESC NULLS LAST, source_id))[1:{_CITED}] AS sources
                FROM found GROUP BY of_group)
            SELECT sources, value, of_group, size, (SELECT count(*) FROM groups) AS total,
                (SELECT {_AGGREGATES[aggregate]} FROM found) AS aggregate, {_TYPES}
            FROM groups ORDER BY {order} NULLS LAST, of_group LIMIT {self.bind(query.limit, "bigint")}"""

    def _visible(self, query: RecordQuery) -> str:
        """The mandatory part, the filters, and that the fields that are ordered, summed or grouped by are there."""
        conditions = [self.where(query.filters)]
        needed = {name for name in (query.order, query.of, query.group, *query.having) if name is not None}
        conditions += [f"v.{column(name)} IS NOT NULL" for name in sorted(needed)]
        if query.weekdays:
            days = self.bind(list(query.weekdays), "int[]")
            conditions.append(f"extract(isodow FROM {_day('v.date')})::int = ANY({days})")
        if query.own:
            conditions.append(f"v.org_id <> {self.bind(PUBLIC_ORGANIZATION, 'uuid')}")
            conditions += [
                f"v.{column(name)} IS NOT FALSE" for name, words in self.spec.vocabulary.items() if words.own
            ]
        return " AND ".join(conditions)

    def named_values(self, words: Sequence[str]) -> str:
        """Values with one of the words; empty where the index declares no field that has any."""
        visible, asked = self.where(()), self.bind(list(words), "text[]")
        parts = []
        for name, kind in self.spec.all_fields.items():
            if kind not in (FieldType.KEYWORD, FieldType.TAGS) or name in ("source_type", "lang"):
                continue
            value = f"unnest(v.{column(name)})" if kind is FieldType.TAGS else f"v.{column(name)}"
            parts.append(
                f"SELECT DISTINCT {self.bind(name, 'text')} AS field, {value} AS value FROM {self.fields} v "
                f"WHERE {visible} AND v.{column(name)} IS NOT NULL"
            )
        if not parts:
            return ""
        return f"""SELECT field, value FROM ({" UNION ALL ".join(parts)}) known
            WHERE EXISTS (SELECT FROM regexp_split_to_table(lower(value), '[^[:alnum:]]+') word WHERE word = ANY({asked}))
            ORDER BY field, value LIMIT {_MOST_VALUES}"""


def _day(seconds: str) -> str:
    """The moment of epoch seconds, in UTC."""
    return f"(to_timestamp({seconds}) AT TIME ZONE 'UTC')"


def to_records(rows: Sequence[asyncpg.Record], query: RecordQuery) -> Records:
    """The rows of `RecordStatement.records`. Of a statement without a group that finds nothing the count is 0."""
    if not rows:
        return Records(value=0.0 if query.aggregate is Aggregate.COUNT and query.group is None else None)
    found = tuple(Record(tuple(row["sources"]), row["value"], row["of_group"], row["size"]) for row in rows)
    return Records(found, rows[0]["total"], rows[0]["aggregate"], tuple(rows[0]["types"]))
