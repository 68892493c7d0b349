"""Lists sources for people: by page, filtered, sorted, searched; and the space that an organization uses.

Filters have the same meaning as in a search (docs/filters.md): a source without the field does not match.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from operator import eq, ge, gt, le, lt, ne
from pathlib import PurePath
from typing import Any
from uuid import UUID

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter
from msgspec import Struct, field, structs
from sqlalchemy import (
    ColumnElement,
    DateTime,
    Double,
    Numeric,
    Row,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    not_,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Uuid

from rag_app.database.pages import EPOCH
from rag_app.database.session import Database
from rag_app.database.tables import matches_any
from rag_app.documents.ledger import SOURCE, source_of, visibility_conditions
from rag_app.documents.tables import originals_table, source_builds_table, sources_table
from rag_app.domain import Filters, InvalidInput, NotFound, Scope, Source, require, storable
from rag_app.retrieval.filters import translate

UPLOAD_ORIGIN = "upload:"
"""What the origin of an uploaded source begins with, before the name it was sent under."""
_LONG_AGO = -(2.0**53)  # seconds: where a source without a date comes in an order by date

SORTS: dict[str, tuple[Any, Any]] = {
    "updated_at": (sources_table.c.updated_at, DateTime(timezone=True)),
    "created_at": (sources_table.c.created_at, DateTime(timezone=True)),
    "title": (func.lower(sources_table.c.title), Text()),
    "external_id": (sources_table.c.external_id, Text()),
    "date": (func.coalesce(sources_table.c.date, _LONG_AGO), Double()),
    "size": (sources_table.c.size, Numeric()),
}
"""What a page may be ordered by; the id decides between equals."""


class Entry(Struct, frozen=True):
    """A source in a list. `chunks` are its chunks in the active generation; `ready` if all of them are there.

    `size` is the size of its stored text in bytes. `original` is the file's size in bytes, if the file is kept.
    """

    source: Source
    created_at: datetime
    updated_at: datetime
    size: int
    chunks: int
    ready: bool
    original: int | None = None


class SourceSelection(Struct, frozen=True):
    """Selects sources of these indexes that match `filters` and have `search` in their title, id or file's name.

    `ready`: only sources with all their chunks (True), or only those being written (False). `page` alone uses it.
    """

    indexes: tuple[str, ...]
    filters: Filters = ()
    search: str | None = None
    sort: str = "updated_at"
    descending: bool = True
    after: str | None = None
    limit: int = 50
    external_ids: tuple[str, ...] = ()
    organizations: frozenset[UUID] = field(default_factory=frozenset)
    ready: bool | None = None


class Table(Struct, frozen=True):
    """The sources of the rows of one table, as far as a scope sees them."""

    org_id: UUID
    index: str
    rows: frozenset[UUID]


class Catalogue(Struct, frozen=True):
    """`generations` in its methods are the active ones."""

    _database: Database

    async def page(
        self, scope: Scope, asked: SourceSelection, generations: Collection[int]
    ) -> tuple[list[Entry], str | None]:
        """At most `limit` of the sources, and the cursor of the next page. Raises InvalidInput for a cursor of another
        sort order."""
        order, kind = SORTS[asked.sort]
        key = tuple_(order, sources_table.c.id)
        statement = (
            _entries(generations)
            .add_columns(order.label("place"))
            .where(*_conditions_of(asked), *visibility_conditions(scope))
        )
        if asked.ready is not None:
            statement = statement.where(_READY if asked.ready else not_(_READY))
        if asked.after is not None:
            place = _place(asked, kind)
            statement = statement.where(key < place if asked.descending else key > place)
        turned = [each.desc() if asked.descending else each.asc() for each in (order, sources_table.c.id)]
        rows = await self._database.read(scope, statement.order_by(*turned).limit(asked.limit + 1))
        found = rows[: asked.limit]
        following = _cursor(asked, found[-1]) if len(rows) > asked.limit else None
        return [_entry(row) for row in found], following

    async def entry(self, scope: Scope, source_id: UUID, generations: Collection[int]) -> Entry:
        """Raises NotFound, also for a source outside the scope."""
        statement = _entries(generations).where(sources_table.c.id == source_id, *visibility_conditions(scope))
        found = await self._database.read(scope, statement)
        return _entry(require(next(iter(found), None), NotFound("source", str(source_id))))

    async def list_matching(self, scope: Scope, asked: SourceSelection, operator: bool = False) -> list[UUID]:
        """The ids of all of them."""
        statement = (
            select(sources_table.c.id)
            .where(*_conditions_of(asked), *visibility_conditions(scope, operator))
            .order_by(sources_table.c.id)
        )
        return [found for (found,) in await self._database.read(scope, statement, operator)]

    async def tables(
        self, scope: Scope, asked: SourceSelection, names: Collection[str], operator: bool = False
    ) -> dict[str, Table]:
        """The tables of these names whose rows are among the sources; names of no table are left out.

        A table's name is what its rows' external ids begin with, before the `#`, or else its file's name or path.
        Raises InvalidInput for a name of several tables.
        """
        last_parts = [PurePath(name).name for name in names]
        uploaded = [f"{UPLOAD_ORIGIN}{name}" for name in names]
        table = sources_table.c
        statement = select(
            table.id, table.org_id, table.index.label("index_name"), table.origin, table.file_name, table.external_id
        ).where(
            table.row.is_not(None),
            or_(matches_any(table.file_name, last_parts), matches_any(table.origin, uploaded)),
            *_conditions_of(asked),
            *visibility_conditions(scope, operator),
        )
        found = await self._database.read(scope, statement, operator) if names else []
        named = {name: [row for row in found if _is_row_of(name, row)] for name in names}
        return {name: _one_table(name, rows) for name, rows in named.items() if rows}

    async def existing_sources(self, scope: Scope, source_ids: Collection[UUID]) -> set[UUID]:
        """The existing sources among these that the scope may not see, and so may not overwrite."""
        there = select(sources_table.c.id).where(matches_any(sources_table.c.id, source_ids))
        everybody = await self._database.read(scope, there, operator=True)
        seen = await self._database.read(scope, there.where(*visibility_conditions(scope)))
        return {found for (found,) in everybody} - {found for (found,) in seen}

    async def indexes(self, organizations: Collection[UUID]) -> set[tuple[UUID, str]]:
        """The indexes in which each of these organizations has sources."""
        wanted = select(sources_table.c.org_id, sources_table.c.index).where(sources_table.c.deleted_at.is_(None))
        rows = await self._database.read(Scope(frozenset(organizations)), wanted.distinct(), operator=True)
        return {(org_id, index) for org_id, index in rows}

    async def usage(self, org_id: UUID, without: Collection[UUID] = ()) -> tuple[int, int]:
        """The number of an organization's sources in all indexes, and the bytes of them and their originals, without the
        named ones."""
        scope = Scope(frozenset({org_id}))
        left_out = literal([*without], ARRAY(Uuid))
        kept = select(func.coalesce(func.sum(originals_table.c.size), 0)).where(
            originals_table.c.org_id == org_id, originals_table.c.source_id != func.all(left_out)
        )
        counted = select(func.count(), func.coalesce(func.sum(sources_table.c.size), 0), kept.scalar_subquery()).where(
            sources_table.c.org_id == org_id,
            sources_table.c.deleted_at.is_(None),
            sources_table.c.id != func.all(left_out),
        )
        ((sources, text, originals),) = await self._database.read(scope, counted, operator=True)
        return int(sources), int(text) + int(originals)


_READY = func.coalesce(
    and_(source_builds_table.c.state == "ready", source_builds_table.c.version == sources_table.c.version),
    literal(False),
)


def _entries(generations: Collection[int]) -> Any:
    build = and_(
        source_builds_table.c.source_id == sources_table.c.id,
        matches_any(source_builds_table.c.generation_id, sorted(generations)),
    )
    original = and_(
        originals_table.c.source_id == sources_table.c.id, originals_table.c.version == sources_table.c.version
    )
    return (
        select(
            *SOURCE,
            sources_table.c.id.label("source_id"),
            sources_table.c.created_at,
            sources_table.c.updated_at,
            sources_table.c.size.label("size"),
            func.coalesce(source_builds_table.c.chunks, 0).label("chunks"),
            _READY.label("ready"),
            originals_table.c.size.label("original"),
        )
        .outerjoin(source_builds_table, build)
        .outerjoin(originals_table, original)
    )


def _entry(row: Row[Any]) -> Entry:
    names = [each.name for each in structs.fields(Entry) if each.name != "source"]
    return Entry(source_of(row), **{name: row._mapping[name] for name in names})


def _is_row_of(name: str, row: Row[Any]) -> bool:
    same_file = row.file_name == name or row.origin in (f"{UPLOAD_ORIGIN}{name}", name)
    return same_file or row.origin.endswith(f"/{name}")


def _one_table(name: str, rows: list[Row[Any]]) -> Table:
    """What is called so by the external ids of its rows comes before what only has a file of this name."""
    files = {(row.org_id, row.index_name, row.origin) for row in rows}
    by_id = {(row.org_id, row.index_name, row.origin) for row in rows if row.external_id.startswith(f"{name}#")}
    chosen = by_id or files
    places = {(org_id, index) for org_id, index, _ in chosen}
    if len(places) > 1 or (not by_id and len(files) > 1):
        raise InvalidInput(
            "external_id",
            name,
            f"{name!r} is the name of {len(chosen)} tables: give what their rows' external ids begin with, or the ids",
        )
    ((org_id, index),) = places
    return Table(org_id, index, frozenset(row.id for row in rows if (row.org_id, row.index_name, row.origin) in chosen))


def _conditions_of(asked: SourceSelection) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [matches_any(sources_table.c.index, asked.indexes)]
    if asked.organizations:
        conditions.append(matches_any(sources_table.c.org_id, sorted(asked.organizations)))
    if asked.external_ids:
        conditions.append(matches_any(sources_table.c.external_id, asked.external_ids))
    if asked.search:
        named = (sources_table.c.title, sources_table.c.external_id, sources_table.c.file_name)
        conditions.append(or_(*(column.icontains(asked.search, autoescape=True) for column in named)))
    return [
        *conditions,
        *(  # never NULL, so NOT is SQL's
            translate(each, lambda one: func.coalesce(_condition(one), literal(False)), _JOINS)
            for each in asked.filters
        ),
    ]


_OWN = {
    "org_id": cast(sources_table.c.org_id, Text),
    "source_id": cast(sources_table.c.id, Text),
    "source_type": sources_table.c.source_type,
    "lang": sources_table.c.lang,
    "date": sources_table.c.date,
}


_JOINS: Mapping[FilterCondition, Callable[[list[ColumnElement[bool]]], ColumnElement[bool]]] = {
    FilterCondition.NOT: lambda each: not_(or_(*each)),
    FilterCondition.OR: lambda each: or_(*each),
    FilterCondition.AND: lambda each: and_(*each),
}


def _condition(condition: MetadataFilter) -> ColumnElement[bool]:
    """A checked condition on a source instead of a chunk. Values are parameters, and compared in their own type."""
    name, operator, value = condition.key, condition.operator, condition.value
    if name in _OWN:
        return _COMPARE[operator](_OWN[name], value)
    kept: Any = sources_table.c.metadata
    found, values = kept[name], value if isinstance(value, list) else [value]
    missing = or_(found.astext.is_(None), found == func.jsonb_build_array())
    match operator:
        case FilterOperator.IS_EMPTY:
            return missing
        case FilterOperator.CONTAINS | FilterOperator.ANY | FilterOperator.ALL:
            join = and_ if operator is FilterOperator.ALL else or_
            return join(*(kept.contains({name: [each]}) for each in values))
        case FilterOperator.EQ | FilterOperator.IN:
            return or_(*(kept.contains({name: each}) for each in values))
        case FilterOperator.NE | FilterOperator.NIN:
            return not_(or_(missing, *(kept.contains({name: each}) for each in values)))
    number = case((func.jsonb_typeof(found) == "number", cast(found.astext, Numeric)))
    return _COMPARE[operator](number, value)


# Comparisons are NULL without a value
_COMPARE: Mapping[FilterOperator, Callable[[Any, Any], ColumnElement[bool]]] = {
    FilterOperator.EQ: eq,
    FilterOperator.NE: ne,
    FilterOperator.LT: lt,
    FilterOperator.LTE: le,
    FilterOperator.GT: gt,
    FilterOperator.GTE: ge,
    FilterOperator.IN: lambda column, values: column.in_(values),
    FilterOperator.NIN: lambda column, values: column.not_in(values),
    FilterOperator.IS_EMPTY: lambda column, _: column.is_(None),
}


def _cursor(asked: SourceSelection, last: Row[Any]) -> str:
    value = last._mapping["place"]
    if isinstance(value, datetime):
        value = (value - EPOCH) // timedelta(microseconds=1)
    told = [
        asked.sort,
        asked.descending,
        value if isinstance(value, int | float | str) else int(value),
        last._mapping["source_id"].hex,
    ]
    return urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")


def _place(asked: SourceSelection, kind: Any) -> Any:
    cursor = asked.after or ""
    try:
        sort, descending, value, source = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if [sort, descending] != [asked.sort, asked.descending] or not isinstance(source, str):
            raise ValueError
        accepted = (str,) if isinstance(kind, Text) else (int, float)
        if isinstance(kind, DateTime):
            value = EPOCH + timedelta(microseconds=value)
        elif type(value) not in accepted or storable(str(value)) != str(value):
            raise ValueError
        return tuple_(literal(value, kind), literal(UUID(source), Uuid))
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise InvalidInput("cursor", cursor[:50], "must come from a page with the same sort order") from None
