"""The ledger of sources: what was read, and which of it is in which generation's vector store.

A vector store cannot take part in our transactions, so each change is recorded before it is made there:

    write     begin -> the store's chunks -> finish                 killed between: `builds` says "writing"
    rebuild   claim -> the store's chunks -> finish                 killed between: `lacking` counts it
    delete    mark_deleting -> the store's chunks go -> forget      killed between: `deleting` names it

Writing acts for the organization as a whole (`operator` in `rag_app.database.session`): it also touches private sources.
Reading takes a Scope, and has `operator` only for the operator's own commands.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from msgspec import Struct, structs
from sqlalchemy import ColumnElement, Row, Select, and_, exists, false, func, literal, or_, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.elements import TextClause

from rag_app.database.session import Database, constraint_of
from rag_app.database.tables import matches_any
from rag_app.documents.tables import originals_table, source_builds_table, sources_table
from rag_app.domain import (
    InvalidInput,
    JsonObject,
    Misconfigured,
    NotFound,
    RagError,
    Scope,
    Source,
    StoreFailed,
    Visibility,
    require,
    uuid_in,
)

Passages = Sequence[Mapping[str, Any]]
"""A source's normalised content as JSON: what an index can be rebuilt from without the file."""


Place = tuple[str, str | None, int | None, str | None]
"""Where a source was read from: its file for us and for people, row and sheet."""


def locate(source: Source) -> Place:
    return source.origin, source.file_name, source.row, source.sheet


@dataclass(frozen=True, slots=True)
class Build:
    """A source in a generation. While it is being written, the store may contain both old and new chunks."""

    version: str
    state: Literal["writing", "ready"]
    chunks: int
    place: "Place" = field(default=("", None, None, None), compare=False)

    def holds(self, source: Source) -> bool:
        """Whether the generation holds the present version of the source."""
        return self.state == "ready" and self.version == source.version


FileRead = tuple[str, str, int, int]
"""A completely read file: its origin, the digest of its sources' inputs, their number, the sum of their versions."""


def version_number(version: str) -> int:
    """A source's version as a number. The sum of several identifies them in any order.

    >>> version_number("0f" + 62 * "0")
    67553994410557440
    """
    return int(version[:15], 16)


NO_BUILD = Build("", "writing", 0)


WriteLock = Callable[[], AbstractAsyncContextManager[None]]
"""Takes the lock of `SourceLedger.lock_for_writing`, repeatedly on one connection. Not for two tasks at once."""


class SourceChanged(RagError):
    """A source has been changed or deleted since it was read."""


class Basis(Struct, frozen=True):
    """The source that a change was worked out from, as it was read; None if there was none of this id. `same_file`: the
    change keeps the file that it was uploaded as."""

    id: UUID
    source: Source | None
    same_file: bool = False


class SourceLedger(Struct, frozen=True):
    """Records which source is in which generation. All ids are `Source.id`; unknown ids and those out of scope are skipped."""

    _database: Database

    def _open_session(self, *organizations: UUID) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._database.scoped(Scope(frozenset(organizations)), operator=True)

    async def _execute(self, organizations: Iterable[UUID], *statements: TextClause, **values: Any) -> None:
        async with self._open_session(*organizations) as session:
            for statement in statements:
                await session.execute(statement, values)

    async def _read_rows(self, organizations: Iterable[UUID], statement: Select[Any]) -> Sequence[Row[Any]]:
        return await self._database.read(Scope(frozenset(organizations)), statement, operator=True)

    async def _ids(self, org_id: UUID, *conditions: ColumnElement[bool]) -> list[UUID]:
        found = (
            select(sources_table.c.id).where(sources_table.c.org_id == org_id, *conditions).order_by(sources_table.c.id)
        )
        return [source for (source,) in await self._read_rows({org_id}, found)]

    # -- writing

    @asynccontextmanager
    async def lock_for_writing(self, org_id: UUID, index: str) -> AsyncIterator[None]:
        """Hold the lock for writing this organization's sources in this index; waits until it is free.

        Meanwhile no generation of the index can be activated. The lock belongs to a database session, so it is freed at
        exit or when the process dies. Behind a connection pooler it needs session pooling.
        """
        async with self.writer(org_id, index) as lock, lock():
            yield

    @asynccontextmanager
    async def writer(self, org_id: UUID, index: str) -> AsyncIterator[WriteLock]:
        """The same for repeated writes: one connection, on which the lock is taken and released each time."""
        names = {"name": f"rag_app/write/{org_id}/{index}", "shared": f"rag_app/switch/{index}"}
        async with self._database.own_connection() as connection:

            @asynccontextmanager
            async def lock() -> AsyncIterator[None]:
                await connection.execute(_LOCK_TO_WRITE, names)
                try:
                    yield
                except BaseException:
                    with suppress(StoreFailed):  # a connection that is gone holds nothing
                        await connection.execute(_UNLOCK, names)
                    raise
                await connection.execute(_UNLOCK, names)

            yield lock

    @asynccontextmanager
    async def lock_for_counting(self, org_id: UUID) -> AsyncIterator[None]:
        """Hold the lock for counting an organization's sources and adding to them, like `lock_for_writing`."""
        async with self._database.own_connection() as connection:
            await connection.execute(_LOCK, {"name": f"rag_app/count/{org_id}"})
            yield

    @asynccontextmanager
    async def lock_for_switching(self, index: str) -> AsyncIterator[None]:
        """Hold the lock that excludes all writers of this index, like `lock_for_writing`."""
        async with self._database.own_connection() as connection:
            await connection.execute(_LOCK, {"name": f"rag_app/switch/{index}"})
            yield

    @asynccontextmanager
    async def lock_for_rebuilding(self, index: str) -> AsyncIterator[None]:
        """Hold the lock for creating and dropping generations of this index, like `lock_for_writing`.

        Raises Misconfigured if another process holds it.
        """
        async with self._database.own_connection() as connection:
            if not await connection.scalar(_TRY_LOCK, {"name": f"rag_app/rebuild/{index}"}):
                raise Misconfigured(f"another command rebuilds, switches or drops a generation of {index}: wait for it")
            yield

    async def begin(
        self, batch: Sequence[tuple[Source, Passages]], generation_id: int, basis: Basis | None = None
    ) -> None:
        """Record the present version of these sources, and that their chunks are about to be written.

        From here on `visible` returns the new version. A source whose deletion had begun is restored.
        All or nothing. Raises InvalidInput for a site of another organization, a private source without an owner,
        an organization or owner that does not exist, text with a NUL in it, or if only one of visibility "global" and
        the public organization is given. Raises Misconfigured if the generation is no longer active: the sources
        would be missing in the active one. Raises SourceChanged if `basis` is of one of them and no longer stored so.
        """
        if not batch:
            return
        sources = [source for source, _ in batch]
        try:
            async with self._open_session(*{source.org_id for source in sources}) as session:
                gone = await session.scalar(_NO_LONGER, {"generation": generation_id})
                if gone is not None:
                    raise Misconfigured(f"index {gone} has been switched to another generation: run the command again")
                for source in sources:
                    if basis is not None and source.id == basis.id:
                        await _lock_stored(session, source.org_id, basis)
                        if basis.source is not None and basis.same_file:
                            # the file of the version before is that of this one, too
                            await session.execute(
                                update(originals_table)
                                .filter_by(source_id=source.id, version=basis.source.version)
                                .values(version=source.version)
                            )
                await session.execute(
                    _UPSERT_SOURCE,
                    [
                        {each.name: getattr(source, each.name) for each in structs.fields(Source)}
                        | {"id": source.id, "content": [*content]}
                        for source, content in batch
                    ],
                )
                await _claim(session, sources, generation_id)
        except DBAPIError as error:
            raise _describe_refusal(error) from error

    async def finish(self, batch: Sequence[tuple[Source, int]], generation_id: int) -> None:
        """Record that the store holds exactly these versions of these sources, with so many chunks.

        A build for which another version has begun meanwhile stays unfinished.
        """
        if not batch:
            return
        await self._execute(
            {source.org_id for source, _ in batch},
            _FINISH,
            generation=generation_id,
            ids=[source.id for source, _ in batch],
            versions=[source.version for source, _ in batch],
            chunks=[chunks for _, chunks in batch],
        )

    async def claim(self, batch: Sequence[Source], generation_id: int) -> set[UUID]:
        """Record that these sources of one organization are about to be written from the stored content.

        Returns them without those changed or deleted since they were read.
        """
        if not batch:
            return set()
        async with self._open_session(*{source.org_id for source in batch}) as session:
            return await _claim(session, batch, generation_id)

    async def move(self, org_id: UUID, sources: Sequence[Source]) -> None:
        """Update where these sources are read from; nothing else of them changes."""
        origins, names, rows, sheets = zip(*map(locate, sources), strict=True)
        places = {"origins": [*origins], "names": [*names], "rows": [*rows], "sheets": [*sheets]}
        await self._execute({org_id}, _MOVE, org=org_id, ids=[source.id for source in sources], **places)

    async def mark_deleting(self, org_id: UUID, source_ids: Collection[UUID], basis: Basis | None = None) -> None:
        """Hide these sources from everybody, and count no build of them as complete. Raises SourceChanged if `basis` is no
        longer stored so."""
        async with self._open_session(org_id) as session:
            if basis is not None:
                await _lock_stored(session, org_id, basis)
            for statement in (_HIDE, _REOPEN):
                await session.execute(statement, {"org": org_id, "ids": [*source_ids]})

    async def forget(self, org_id: UUID, source_ids: Collection[UUID]) -> None:
        """Delete the rows of marked sources, once no store holds a chunk of them. Others stay."""
        await self._execute({org_id}, _FORGET, org=org_id, ids=[*source_ids])

    # -- what ingestion asks

    async def builds(self, org_id: UUID, generation_id: int, source_ids: Collection[UUID]) -> dict[UUID, Build]:
        """The builds of these sources in the generation. A source being deleted has no build."""
        standing = (
            select(
                *(
                    sources_table.c.id,
                    source_builds_table.c.version,
                    source_builds_table.c.state,
                    source_builds_table.c.chunks,
                ),
                *(sources_table.c.origin, sources_table.c.file_name, sources_table.c.row, sources_table.c.sheet),
            )
            .join(source_builds_table, _build_in(generation_id))
            .where(
                sources_table.c.org_id == org_id,
                matches_any(sources_table.c.id, source_ids),
                sources_table.c.deleted_at.is_(None),
            )
        )
        return {
            source: Build(version, state, chunks, tuple(place))
            for source, version, state, chunks, *place in await self._read_rows({org_id}, standing)
        }

    async def read_passages(self, org_id: UUID, source_ids: Collection[UUID]) -> dict[UUID, Passages]:
        """The content of these sources as last written."""
        kept = select(sources_table.c.id, sources_table.c.content).where(
            sources_table.c.org_id == org_id,
            matches_any(sources_table.c.id, source_ids),
            sources_table.c.deleted_at.is_(None),
        )
        return {source: content for source, content in await self._read_rows({org_id}, kept)}  # noqa: C416 - rows

    async def list_deleting(self, org_id: UUID, index: str) -> list[UUID]:
        """Sources with an unfinished deletion. Their chunks may be in any generation."""
        return await self._ids(org_id, sources_table.c.index == index, sources_table.c.deleted_at.is_not(None))

    async def list_interrupted(self, organizations: Collection[UUID]) -> Sequence[Row[tuple[UUID, str]]]:
        """The (organization, index) pairs with an unfinished deletion."""
        return await self._read_rows(
            organizations,
            select(sources_table.c.org_id, sources_table.c.index)
            .where(sources_table.c.deleted_at.is_not(None))
            .distinct(),
        )

    async def generations_holding(self, org_id: UUID, source_ids: Collection[UUID]) -> set[int]:
        """The generations whose stores may have chunks of these sources."""
        builds = select(source_builds_table.c.generation_id).where(
            source_builds_table.c.org_id == org_id, matches_any(source_builds_table.c.source_id, source_ids)
        )
        return {generation for (generation,) in await self._read_rows({org_id}, builds.distinct())}

    async def find_by_origins(self, org_id: UUID, index: str, origins: Collection[str]) -> dict[UUID, str]:
        """The sources that were read from these files, each with its file."""
        read = select(sources_table.c.id, sources_table.c.origin).where(
            sources_table.c.org_id == org_id,
            sources_table.c.index == index,
            matches_any(sources_table.c.origin, origins),
            sources_table.c.deleted_at.is_(None),
        )
        return {source: origin for source, origin in await self._read_rows({org_id}, read)}  # noqa: C416 - rows

    async def origins_below(self, org_id: UUID, index: str, folder: str) -> list[str]:
        """The files in this folder, and in those within it, that sources were read from."""
        below = select(sources_table.c.origin).where(
            sources_table.c.org_id == org_id,
            sources_table.c.index == index,
            sources_table.c.origin.startswith(f"{folder.rstrip('/')}/", autoescape=True),
            sources_table.c.deleted_at.is_(None),
        )
        return [
            origin for (origin,) in await self._read_rows({org_id}, below.distinct().order_by(sources_table.c.origin))
        ]

    async def files_as_read(
        self, org_id: UUID, index: str, generation_id: int, origins: Collection[str]
    ) -> dict[str, tuple[str, list[UUID]]]:
        """The digests and sources of those files whose sources are in the generation as they were read."""
        values = {"org": org_id, "index": index, "generation": generation_id, "origins": [*origins]}
        async with self._open_session(org_id) as session:
            rows = (await session.execute(_AS_READ, values)).all()
        return {origin: (digest, sources) for origin, digest, sources in rows}

    async def keep_files(self, org_id: UUID, index: str, files: Sequence[FileRead]) -> None:
        """Record that these files were read completely, with their sources."""
        values = dict(
            zip(("origins", "digests", "sources", "versions"), map(list, zip(*files, strict=True)), strict=True)
        )
        await self._execute({org_id}, _KEEP_FILES, org=org_id, index=index, **values)

    # -- what a rebuild asks

    async def count_unindexed(self, organizations: Collection[UUID], index: str, generation_id: int) -> dict[UUID, int]:
        """The number of sources per organization whose present version the generation lacks; no entry for zero."""
        counted = _select_unindexed(select(sources_table.c.org_id, func.count()), index, generation_id).group_by(
            sources_table.c.org_id
        )
        return {org_id: sources for org_id, sources in await self._read_rows(organizations, counted)}  # noqa: C416 - rows

    async def next_unindexed(
        self, org_id: UUID, index: str, generation_id: int, after: UUID, limit: int
    ) -> Sequence[tuple[Source, Passages]]:
        """The next of those sources by id after `after`, with their content."""
        page = _select_unindexed(select(*SOURCE, sources_table.c.content), index, generation_id).where(
            sources_table.c.org_id == org_id
        )
        page = page.where(sources_table.c.id > after).order_by(sources_table.c.id).limit(limit)
        return [(source_of(row), row.content) for row in await self._read_rows({org_id}, page)]

    async def list_outdated(self, org_id: UUID, generation_id: int) -> list[UUID]:
        """Sources of which the generation may hold another version than the present one."""
        return await self._ids(org_id, exists().where(_build_in(generation_id), _NOT_CURRENT))

    async def forget_builds(
        self, organizations: Collection[UUID], generation_id: int, source_ids: Collection[UUID] | None = None
    ) -> None:
        """Forget the builds of these sources, or of all, in the generation."""
        await self._execute(
            organizations, _FORGET_BUILDS, generation=generation_id, ids=None if source_ids is None else [*source_ids]
        )

    async def totals(self, organizations: Collection[UUID]) -> dict[int, tuple[int, int, int]]:
        """For each generation: the number of its sources, of their chunks, and of sources being written."""
        ready = source_builds_table.c.state == "ready"
        counted = select(
            source_builds_table.c.generation_id,
            func.count().filter(ready),
            func.coalesce(func.sum(source_builds_table.c.chunks).filter(ready), 0),
            func.count().filter(~ready),
        ).group_by(source_builds_table.c.generation_id)
        return {generation: tuple(counts) for generation, *counts in await self._read_rows(organizations, counted)}

    # -- reading

    async def visible(self, scope: Scope, generation_id: int, source_ids: Collection[UUID]) -> dict[UUID, str]:
        """The visible ones of these sources, with the version that the generation holds or is getting.

        A vector store's hit is shown only if its source is among them.
        """
        standing = (
            select(sources_table.c.id, source_builds_table.c.version)
            .join(source_builds_table, _build_in(generation_id))
            .where(matches_any(sources_table.c.id, source_ids), *visibility_conditions(scope))
        )
        return {source: version for source, version in await self._database.read(scope, standing)}  # noqa: C416 - rows

    async def find_named(self, scope: Scope, index: str, names: Collection[str], uri: str | None = None) -> list[UUID]:
        """The sources of an index with one of these names: an id, an external id or an http(s) URI.

        Names without a source in the scope are skipped.
        """
        called = [
            sources_table.c.id.in_([found for name in names if (found := uuid_in(name))]),
            sources_table.c.external_id.in_(names),
        ]
        if uri is not None:
            called.append(sources_table.c.uri.in_(_addresses(uri)))
        known = select(sources_table.c.id).where(
            sources_table.c.index == index, or_(*called), *visibility_conditions(scope)
        )
        return [source for (source,) in await self._database.read(scope, known.order_by(sources_table.c.id))]

    async def visible_sources(self, scope: Scope, source_ids: Collection[UUID]) -> set[UUID]:
        """The visible ones of these sources, in any generation."""
        found = select(sources_table.c.id).where(
            matches_any(sources_table.c.id, source_ids), *visibility_conditions(scope)
        )
        return {source for (source,) in await self._database.read(scope, found)}

    async def get(self, scope: Scope, source_id: UUID, operator: bool = False) -> Source:
        """Raises NotFound, also for a source outside the scope."""
        return source_of(await self._one(scope, source_id, operator, *SOURCE))

    async def content(self, scope: Scope, source_id: UUID, operator: bool = False) -> list[JsonObject]:
        """The passages given to `begin`. Raises NotFound as `get` does."""
        (passages,) = await self._one(scope, source_id, operator, sources_table.c.content)
        return [*passages]

    async def _one(self, scope: Scope, source_id: UUID, operator: bool, *columns: Any) -> Row[Any]:
        wanted = select(*columns).where(sources_table.c.id == source_id, *visibility_conditions(scope, operator))
        found = await self._database.read(scope, wanted, operator)
        return require(next(iter(found), None), NotFound("source", str(source_id)))

    async def list(self, scope: Scope, index: str, operator: bool = False) -> AsyncIterator[Source]:
        """All sources of an index that the scope may see, by organization and external id."""
        async for page in self.pages(scope, index, _PAGE, operator):
            for source in page:
                yield source

    async def pages(
        self, scope: Scope, index: str, size: int, operator: bool = False
    ) -> AsyncIterator[Sequence[Source]]:
        """The same in pages of at most `size`. No transaction is open while the caller works on a page."""
        key = tuple_(sources_table.c.org_id, sources_table.c.external_id)
        page = (
            select(*SOURCE)
            .where(sources_table.c.index == index, *visibility_conditions(scope, operator))
            .order_by(key)
            .limit(size)
        )
        rest = page
        while found := [source_of(row) for row in await self._database.read(scope, rest, operator)]:
            yield found
            rest = page.where(key > tuple_(literal(found[-1].org_id), literal(found[-1].external_id)))


_PAGE = 500
_LOCK = text("SELECT pg_advisory_lock(hashtextextended(:name, 0))")
_TRY_LOCK = text("SELECT pg_try_advisory_lock(hashtextextended(:name, 0))")
_LOCK_TO_WRITE = text(
    "SELECT pg_advisory_lock_shared(hashtextextended(:shared, 0)), pg_advisory_lock(hashtextextended(:name, 0))"
)
_UNLOCK = text(
    "SELECT pg_advisory_unlock(hashtextextended(:name, 0)), pg_advisory_unlock_shared(hashtextextended(:shared, 0))"
)
_NO_LONGER = text("SELECT index_name FROM generations WHERE id = :generation AND state IN ('retired', 'dropped')")
_CLAIM = text(
    "INSERT INTO source_builds (generation_id, source_id, org_id, version, state)"
    " SELECT :generation, s.id, s.org_id, s.version, 'writing' FROM sources s"
    " JOIN unnest(CAST(:ids AS uuid[]), CAST(:versions AS text[])) AS read (id, version) USING (id, version)"
    " WHERE s.deleted_at IS NULL"
    " ON CONFLICT (generation_id, source_id) DO UPDATE"
    " SET version = excluded.version, state = excluded.state, updated_at = now() RETURNING source_id"
)
_FINISH = text(
    "UPDATE source_builds b SET state = 'ready', chunks = written.chunks, updated_at = now()"
    " FROM unnest(CAST(:ids AS uuid[]), CAST(:versions AS text[]), CAST(:chunks AS integer[]))"
    " AS written (source_id, version, chunks)"
    " WHERE b.generation_id = :generation AND b.source_id = written.source_id AND b.version = written.version"
)
_MOVE = text(
    "UPDATE sources s SET origin = moved.origin, file_name = moved.name, row_number = moved.number, sheet = moved.sheet"
    " FROM unnest(CAST(:ids AS uuid[]), CAST(:origins AS text[]), CAST(:names AS text[]), CAST(:rows AS integer[]),"
    " CAST(:sheets AS text[])) AS moved (id, origin, name, number, sheet)"
    " WHERE s.org_id = :org AND s.id = moved.id"
)
_HIDE = text(
    "UPDATE sources SET deleted_at = coalesce(deleted_at, now()) WHERE org_id = :org AND id = ANY(CAST(:ids AS uuid[]))"
)
_REOPEN = text(
    "UPDATE source_builds SET state = 'writing', updated_at = now()"
    " WHERE org_id = :org AND source_id = ANY(CAST(:ids AS uuid[]))"
)
_FORGET = text(
    "WITH gone AS (DELETE FROM sources WHERE org_id = :org AND id = ANY(CAST(:ids AS uuid[])) AND deleted_at IS NOT NULL"
    " RETURNING index_name, origin)"
    " DELETE FROM read_files f USING gone"
    " WHERE f.org_id = :org AND f.index_name = gone.index_name AND f.origin = gone.origin"
)
_AS_READ = text(
    "SELECT f.origin, f.digest, array_agg(s.id) FROM read_files f"
    " JOIN sources s ON s.org_id = f.org_id AND s.index_name = f.index_name AND s.origin = f.origin"
    "   AND s.deleted_at IS NULL"
    " LEFT JOIN source_builds b ON b.source_id = s.id AND b.generation_id = :generation"
    " WHERE f.org_id = :org AND f.index_name = :index AND f.origin = ANY(CAST(:origins AS text[]))"
    " GROUP BY f.origin, f.digest, f.sources, f.versions"
    " HAVING bool_and(coalesce(b.state = 'ready' AND b.version = s.version, false)) AND count(*) = f.sources"
    "   AND sum(CAST(CAST('x' || left(s.version, 15) AS bit(60)) AS bigint)) = f.versions"
)
_KEEP_FILES = text(
    "INSERT INTO read_files (org_id, index_name, origin, digest, sources, versions)"
    " SELECT :org, :index, * FROM unnest(CAST(:origins AS text[]), CAST(:digests AS text[]),"
    "   CAST(:sources AS integer[]), CAST(:versions AS numeric[]))"
    " ON CONFLICT (org_id, index_name, origin) DO UPDATE"
    " SET digest = excluded.digest, sources = excluded.sources, versions = excluded.versions"
)
_FORGET_BUILDS = text(
    "DELETE FROM source_builds WHERE generation_id = :generation"
    " AND (CAST(:ids AS uuid[]) IS NULL OR source_id = ANY(CAST(:ids AS uuid[])))"
)
_NOT_CURRENT = or_(source_builds_table.c.state != "ready", source_builds_table.c.version != sources_table.c.version)

_KEPT_COLUMNS = {"id", "created_at", "updated_at", "deleted_at", "size"}
_new_source = insert(sources_table)
_UPSERT_SOURCE = _new_source.on_conflict_do_update(
    index_elements=[sources_table.c.id],
    set_={column.key: column for column in _new_source.excluded if column.key not in _KEPT_COLUMNS}
    | {"updated_at": func.now(), "deleted_at": None},
)

_REFUSALS = {
    "fk_sources_org_id": ("organization", "there is none of this id"),
    "fk_sources_org_id_site_id": ("site", "the organization has none of this id"),
    "fk_sources_owner_id": ("owner", "there is no user of this id"),
    "fk_source_builds_generation_id": ("generation", "there is none of this id"),
    "fk_sources_org_id_audience_id": ("groups", "the organization has no such groups"),
    "ck_sources_private_has_owner": ("visibility", "a source for its owner alone needs an owner"),
    "ck_sources_group_has_audience": ("visibility", "a source for groups, and no other, names groups"),
    "ck_sources_global_is_public": ("visibility", "all sources of the public organization, and only those, are global"),
}


def _describe_refusal(error: DBAPIError) -> Exception:
    cause = error.orig.__cause__ if error.orig else None
    field, problem = _REFUSALS.get(constraint_of(error), ("source", ""))
    if not problem and (getattr(cause, "sqlstate", None) or "")[:2] == "22":  # data exception
        problem = f"not a text for PostgreSQL: {cause}"
    return InvalidInput(field, None, problem) if problem else error


def _addresses(uri: str) -> list[str]:
    """The stored forms that the address of a page may have. Its query only says where a visitor came from.

    >>> _addresses("HTTP://Shop.example/Rings/?ref=1")[1:]
    ['https://shop.example/Rings', 'https://shop.example/Rings/', 'http://shop.example/Rings', 'http://shop.example/Rings/']
    """
    parts = urlsplit(uri)
    page = f"{parts.netloc.lower()}{parts.path.rstrip('/')}"
    return [uri, *(f"{scheme}://{page}{end}" for scheme in ("https", "http") for end in ("", "/"))]


def _build_in(generation_id: int) -> ColumnElement[bool]:
    return and_(
        source_builds_table.c.source_id == sources_table.c.id, source_builds_table.c.generation_id == generation_id
    )


def _select_unindexed(statement: Select[Any], index: str, generation_id: int) -> Select[Any]:
    return statement.outerjoin(source_builds_table, _build_in(generation_id)).where(
        sources_table.c.index == index,
        sources_table.c.deleted_at.is_(None),
        or_(source_builds_table.c.source_id.is_(None), _NOT_CURRENT),
    )


def visibility_conditions(scope: Scope, operator: bool = False) -> list[ColumnElement[bool]]:
    """Repeats the conditions of row-level security, and adds those it leaves to the query: the site, and no deleted source."""
    # IS TRUE keeps it a filter: counted twice as an index condition, it would outbid the ids on a fresh table
    seen: list[ColumnElement[bool]] = [
        matches_any(sources_table.c.org_id, sorted(scope.organizations)).is_(True),
        sources_table.c.deleted_at.is_(None),
    ]
    if not operator:
        own = sources_table.c.owner_id == scope.user if scope.user else false()
        seen.append(
            or_(
                sources_table.c.visibility.in_([Visibility.TEAM, Visibility.GLOBAL]),
                and_(sources_table.c.visibility == Visibility.USER, own),
                and_(
                    sources_table.c.visibility == Visibility.GROUP,
                    matches_any(sources_table.c.audience_id, sorted(scope.audiences)),
                ),
            )
        )
    return [*seen, sources_table.c.site_id == scope.site] if scope.site else seen


SOURCE = [sources_table.c[each.name].label(each.name) for each in structs.fields(Source)]
"""The columns that `source_of` reads."""


def source_of(row: Row[Any]) -> Source:
    """The domain's source. Its metadata are as stored, whatever the index declares now."""
    said = {each.name: row._mapping[each.name] for each in structs.fields(Source)}
    return Source(**{**said, "visibility": Visibility(row.visibility)})


async def _lock_stored(session: AsyncConnection, org_id: UUID, basis: Basis) -> None:
    """Lock the source's row until the transaction ends. Raises SourceChanged unless it is stored as it was read. The lock
    for writing keeps others from adding a source that is not there."""
    this = select(*SOURCE).where(
        sources_table.c.id == basis.id, sources_table.c.org_id == org_id, sources_table.c.deleted_at.is_(None)
    )
    row = (await session.execute(this.with_for_update())).one_or_none()
    stored = None if row is None else source_of(row)
    if stored != basis.source:
        known = stored or basis.source
        raise SourceChanged(f"{known.external_id if known else ''} has been added, changed or deleted meanwhile")


async def _claim(session: AsyncConnection, sources: Sequence[Source], generation_id: int) -> set[UUID]:
    ids, versions = [source.id for source in sources], [source.version for source in sources]
    return {*await session.scalars(_CLAIM, {"generation": generation_id, "ids": ids, "versions": versions})}
