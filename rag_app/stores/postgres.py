"""A generation's chunks in PostgreSQL, for every store; the store that keeps its vectors there too, with pgvector; and what
stores share that keep them elsewhere: they provide the dense leg, texts, filters and words stay in PostgreSQL.

Of the tables (`words`, `postgres_tables`) `vectors` is narrow - what a filter needs and the vector itself,
uncompressed and in the row - because an exact scan of one tenant's rows is then both complete and faster than an
index that is filtered afterwards (docs/adr/0003-postgres-layout.md). `signs` is narrower: one bit per dimension. For a
large organization they select the rows to compare; `sizes` tells which ones are large. `graph` holds the vectors of
very large organizations (docs/adr/0030-signs-with-two-bits-of-the-question.md). Row-level security is forced on every
table of a tenant.
"""

import asyncio
import json
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, ClassVar, Concatenate, ParamSpec
from uuid import UUID

import asyncpg
import msgspec
from cachetools import LRUCache
from llama_index.core.schema import BaseNode, MetadataMode, TextNode
from msgspec.structs import replace

from rag_app.database.session import Database
from rag_app.domain import FieldType, Filters, Mode, Scope, Source, StoreFailed
from rag_app.retrieval.confidence import Words, WordUse
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.records import NamedValue, RecordQuery, RecordResult, check_query
from rag_app.retrieval.spelling import likelihood, spellings
from rag_app.retrieval.store import Backend, ScopedStore, Search, chunk_node, heading
from rag_app.stores import words
from rag_app.stores.postgres_tables import (
    GRAPH_INDEX,
    GRAPHED,
    LARGEST_GRAPH,
    Method,
    Query,
    build_graph_index,
    choose_method,
    create_fields,
    create_statements,
    drop_graph_index,
    drop_statements,
    insert_fields,
    insert_signs,
    is_filtered,
    propose,
)
from rag_app.stores.record_statements import RecordStatement, to_records
from rag_app.stores.registry import Visible
from rag_app.stores.signs import SignMemory, Signs

P = ParamSpec("P")

# Chunks that a walk through the graph looks at before it asks whether it has found enough (docs/adr/0003 has the
# recall), and after how many it gives up: some 60 ms.
_GRAPH_CANDIDATES, _FARTHEST = 600, 6_000
# Chunks that a write takes into the graph, in chunks written: an organization that has become large is in it whole soon.
_CATCHING_UP = 3
# For how long a search goes by the number of chunks that its scope had, and how many scopes' numbers are kept.
_SIZE_SECONDS, _MOST_SIZES = 30.0, 1_000
# Workers of PostgreSQL that build a graph, beside the one that is asked.
_BUILDERS = 2
# Rows of vectors in a statement: an array has at most 1 GB.
_ROWS = 500
# For searches, whose plans are good for every tenant: planned once a connection.
_PLANS = (
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_sort = off; "
    "SET max_parallel_workers_per_gather = 0; SET jit = off; "
    f"SET hnsw.ef_search = {_GRAPH_CANDIDATES}; SET hnsw.iterative_scan = relaxed_order; SET hnsw.max_scan_tuples = {_FARTHEST}"
)
# For what is written, a hundred rows at once. Rows of postings are looked up by their place, however many they are: they
# would be joined with all rows of the organization.
_USUAL_PLANS = {
    "plan_cache_mode": "auto",
    "enable_seqscan": "on",
    "enable_sort": "on",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "max_parallel_workers_per_gather": "2",
}
# A write of so few chunks and sources takes less time than planning it.
_FEW, _PLANS_OF_FEW = 8, _USUAL_PLANS | {"plan_cache_mode": "force_generic_plan"}


class DatabaseBackend(Backend):
    """What every store has in the application's PostgreSQL. Searches have a pool of their own."""

    def __init__(self, database: Database) -> None:
        self.usual = database
        """For questions about records, whose plans depend on how many there are: the application's own pool."""
        self.database = database.with_preparation(self.prepare)

    @staticmethod
    async def prepare(connection: asyncpg.Connection) -> None:
        """What a new connection for searches begins with."""
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=msgspec.json.decode)
        await connection.execute(_PLANS)

    def connections(self) -> tuple[int, int]:
        return self.database.connections()

    async def close(self) -> None:
        await self.database.close()

    def transaction(
        self, scope: Scope, settings: Mapping[str, str] = _USUAL_PLANS
    ) -> AbstractAsyncContextManager[asyncpg.Connection]:
        """An operator's transaction, which also sees private sources of the scope's organizations. For ingestion, never
        for a question.
        """
        return self.database.driver_scoped(scope, settings)


class PostgresBackend(DatabaseBackend):
    """A generation is the common prefix of its tables."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.sizes = LRUCache[tuple[str, frozenset[UUID]], tuple[float, tuple[int, int]]](_MOST_SIZES)
        """When it was looked up how many chunks scopes have in generations, and the largest of their organizations."""
        self.signs = SignMemory()

    @staticmethod
    async def prepare(connection: asyncpg.Connection) -> None:
        from pgvector.asyncpg import register_vector

        await register_vector(connection)
        await DatabaseBackend.prepare(connection)

    def scoped(self, spec: IndexSpec, generation: str, scope: Scope) -> "ScopedStore":
        return PostgresStore(spec=spec, generation=generation, scope=scope, backend=self)

    async def create(self, owner_url: str, spec: IndexSpec, generation: str, dimension: int) -> None:
        await execute_as_owner(owner_url, drop_statements(generation) + create_statements(spec, generation, dimension))

    async def drop(self, owner_url: str, generation: str) -> None:
        await execute_as_owner(owner_url, drop_statements(generation))

    async def begin_load(self, owner_url: str, generation: str) -> None:
        await execute_as_owner(owner_url, drop_graph_index(generation))

    async def is_loaded(self, generation: str) -> bool:
        found = await self.database.fetch(
            f"SELECT EXISTS ({GRAPH_INDEX.format(graph='$1')}) OR NOT EXISTS (SELECT FROM pg_attribute "
            f"WHERE attrelid = to_regclass($1) AND attname = 'embedding' AND atttypmod <= {LARGEST_GRAPH})",
            f"{generation}_graph",
        )
        return bool(found[0][0])

    async def finish_load(self, owner_url: str, generation: str) -> None:
        try:
            await execute_as_owner(owner_url, build_graph_index(generation, _BUILDERS))
        except StoreFailed:  # /dev/shm may be too small, as in many containers
            await execute_as_owner(owner_url, build_graph_index(generation, 0))


async def execute_as_owner(owner_url: str, statements: str) -> None:
    async with (
        aclosing(Database(owner_url, pool_size=1)) as owner,
        owner.driver() as connection,
        connection.transaction(),
    ):
        await connection.execute(statements)


class ChunkStore(ScopedStore):
    """The part of an index that is in PostgreSQL for every store: chunks with their texts, filter fields, and words."""

    @property
    def prefix(self) -> str:
        """The prefix of the generation's table names."""
        return self.generation

    @property
    def fields(self) -> str:
        """The table that filters look into."""
        return f"{self.prefix}_fields"

    def begin(self) -> Query:
        return Query(self.spec, self.scope, self.prefix, self.fields, self.languages)

    async def ask(
        self, write: Callable[Concatenate[Query, P], str], *args: P.args, **kwargs: P.kwargs
    ) -> list[asyncpg.Record]:
        """The rows of the statement that `write`, a method of Query, makes of these arguments."""
        query = self.begin()
        sql = write(query, *args, **kwargs)
        rows: list[asyncpg.Record] = await self.backend.database.fetch_scoped(self.scope, sql, *query.values)
        return rows

    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        return {row["id"]: to_node(row) for row in await self.ask(Query.texts, ids, filters)}

    async def respell(self, among: Sequence[str]) -> dict[str, str]:
        options = {row["word"]: spellings(row["word"]) for row in await self.ask(Query.unknown, among)}
        if not options:
            return {}
        found = sorted(map(tuple, await self.ask(Query.spellings, options)), key=likelihood)
        return {word: spelling for word, spelling, *_ in reversed(found)}

    async def word_use(self, words: Sequence[str], among: Sequence[UUID]) -> Words:
        query = self.begin()  # a frame less than `ask`
        rows = await self.backend.database.fetch_scoped(self.scope, query.word_use(words, among), *query.values)
        used = (WordUse(row["word"], row["chunks"], frozenset(row["hits"])) for row in rows)
        return Words(tuple(used), rows[0]["of"] if rows else 0.0)

    @property
    def records(self) -> str:
        """The table that questions about records read: the filter fields only."""
        return self.fields

    async def find_records(self, query: RecordQuery) -> RecordResult:
        wanted = check_query(query, self.spec)
        return to_records(await self._ask_records(RecordStatement.records, wanted), wanted)

    async def named_values(self, words: Sequence[str]) -> list[NamedValue]:
        rows = await self._ask_records(RecordStatement.named_values, words)
        return [NamedValue(row["field"], row["value"]) for row in rows]

    async def _ask_records(
        self, write: Callable[Concatenate[RecordStatement, P], str], *args: P.args, **kwargs: P.kwargs
    ) -> list[asyncpg.Record]:
        """Planned as usual, unlike a search. No rows where the index has no field to read."""
        query = RecordStatement(self.spec, self.scope, self.prefix, self.records, self.languages)
        sql = write(query, *args, **kwargs)
        rows: list[asyncpg.Record] = (
            await self.backend.usual.fetch_scoped(self.scope, sql, *query.values) if sql else []
        )
        return rows

    async def count(self) -> int:
        ((count,),) = await self.ask(Query.count)
        return int(count)

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        self.check(nodes)
        plans = _USUAL_PLANS if len(nodes) + len(replacing) > _FEW else _PLANS_OF_FEW
        async with self.backend.transaction(self.scope, plans) as connection:
            # One writer an organization at a time: its postings are rows that grow, in the order of its chunks.
            await connection.execute(_LOCK, self.prefix, sorted(self.scope.organizations))
            gone = await self._take_out(connection, [UUID(node.node_id) for node in nodes], replacing)
            if nodes:
                await self._put_in(connection, nodes)
            await self._finish(connection, gone, len(nodes))

    async def move(self, sources: Sequence[Source]) -> None:
        named = ({"file_name": each.file_name, "row": each.row, "sheet": each.sheet} for each in sources)
        places = [{name: value for name, value in place.items() if value is not None} for place in named]
        async with self.backend.transaction(self.scope) as connection:
            ids, organizations = [source.id for source in sources], list(self.scope.organizations)
            await connection.execute(_MOVE.format(t=self.prefix), ids, places, organizations)

    async def _take_out(
        self, connection: asyncpg.Connection, ids: Sequence[UUID], sources: Sequence[UUID]
    ) -> list[int]:
        """Delete chunks; returns their numbers."""
        statement, organizations = words.DELETE.format(t=self.prefix), list(self.scope.organizations)
        went = await connection.fetchrow(statement, list(sources), ids, organizations)
        if went["terms"]:
            await connection.execute(words.MERGE.format(t=self.prefix), went["organizations"], went["terms"])
        return list(went["gone"])

    async def _put_in(self, connection: asyncpg.Connection, nodes: Sequence[BaseNode]) -> None:
        chunks = map(_for_unnest, zip(*map(self._chunk_row, nodes), strict=True))
        inserting = asyncio.ensure_future(connection.fetch(words.INSERT.format(t=self.prefix), *chunks))
        try:  # PostgreSQL analyzes the texts while the other values are made
            await asyncio.sleep(0)
            statement, columns = self._insert_fields(nodes), self._field_columns(nodes)
        finally:  # nothing is running on the connection afterwards
            numbers = [number for (number,) in await inserting]
        for first in range(0, len(nodes), _ROWS):
            part = slice(first, first + _ROWS)
            await connection.execute(statement, numbers[part], *(_for_unnest(column[part]) for column in columns))

    def _insert_fields(self, nodes: Sequence[BaseNode]) -> str:
        """The statement that takes numbers and `_field_columns`."""
        return insert_fields(self.fields, self.spec, self.keeps_vectors)

    keeps_vectors: ClassVar[bool] = False
    """Whether vectors are in the table of the filter fields."""

    async def _finish(self, connection: asyncpg.Connection, gone: list[int], written: int) -> None:
        """Called at the end of each write."""

    async def rows(self, source_ids: Sequence[UUID]) -> list[asyncpg.Record]:
        """Every chunk of these sources in the scope's organizations, private ones too, with its `fields`."""
        sql = (
            f"SELECT c.id, c.text, c.metadata, v.* FROM {self.prefix}_chunks c JOIN {self.fields} v USING (no) "
            "WHERE c.source_id = ANY($1) AND c.org_id = ANY($2) ORDER BY c.no"
        )
        async with self.backend.transaction(self.scope) as connection:
            found: list[asyncpg.Record] = await connection.fetch(sql, list(source_ids), list(self.scope.organizations))
        return found

    async def export(self, source_ids: Sequence[UUID]) -> list[TextNode]:
        return [to_node(row, row["embedding"].to_list()) for row in await self.rows(source_ids)]

    async def sources(self) -> set[UUID]:
        sql = f"SELECT DISTINCT source_id FROM {self.fields} WHERE org_id = ANY($1)"
        async with self.backend.transaction(self.scope) as connection:
            return {row["source_id"] for row in await connection.fetch(sql, list(self.scope.organizations))}

    def _chunk_row(self, node: BaseNode) -> tuple[Any, ...]:
        meta, text = node.metadata, node.get_content(MetadataMode.NONE)
        of = meta["org_id"], meta.get("private_to") or None, meta["source_id"]
        return node.node_id, *of, self.language(node), heading(node), text, meta

    def _field_columns(self, nodes: Sequence[BaseNode]) -> list[Sequence[Any]]:
        """The values of `field_columns` after the chunk's number."""
        metadata = [node.metadata for node in nodes]
        columns: list[Sequence[Any]] = [[node.node_id for node in nodes]]
        for name, kind in {"site_id": FieldType.UUID, "private_to": FieldType.UUID, **self.spec.all_fields}.items():
            columns.append([_for_column(kind, each.get(name)) for each in metadata])
        if not self.keeps_vectors:
            return columns
        from pgvector import Vector  # not for a server whose vectors are elsewhere

        return [*columns, [Vector(node.get_embedding()) for node in nodes]]


class PostgresStore(ChunkStore):
    """One index in one generation's tables, as one scope sees it."""

    keeps_vectors = True

    @property
    def fields(self) -> str:
        return f"{self.prefix}_vectors"

    @property
    def records(self) -> str:
        return f"{self.prefix}_signs"

    async def candidates(self, asked: Search) -> list[Candidate]:
        return [_candidate(row) for row in await self.ask(Query.candidates, asked, self._choose_method(asked))]

    async def best(self, asked: Search) -> list[tuple[Candidate, TextNode]]:
        query, method = self.begin(), self._choose_method(asked)
        scans = method is Method.SIGNS and asked.mode is not Mode.TEXT and not is_filtered(asked, self.scope)
        if scans and (signs := await self._remember_signs()):
            method, query.proposal = Method.REMEMBERED, propose(signs, asked)
        sql = query.best(asked, method)
        rows = await self.backend.database.fetch_scoped(self.scope, sql, *query.values)
        if rows and method is Method.ANY and asked.mode is not Mode.TEXT:
            self.backend.sizes[self._remembered_by] = time.monotonic(), (rows[0]["chunks"], rows[0]["largest"])
        if rows and method is Method.REMEMBERED and rows[0]["outdated"]:
            self.backend.signs.forget(self._remembered_by)
        return [(_candidate(row), to_node(row)) for row in rows]

    def _choose_method(self, asked: Search) -> Method:
        """By a size that may be a moment old: what has just become large is compared whole until then."""
        looked_up, size = self.backend.sizes.get(self._remembered_by, (0.0, None))
        size = size if time.monotonic() - looked_up < _SIZE_SECONDS else None
        return choose_method(size, len(asked.vector), is_filtered(asked, self.scope))

    @property
    def _remembered_by(self) -> tuple[str, frozenset[UUID]]:
        return self.prefix, self.scope.organizations

    async def _remember_signs(self) -> Signs | None:
        """What this process remembers of the scope's organizations, read where it is asked for often."""
        memory: SignMemory = self.backend.signs
        key = self._remembered_by
        if (signs := memory.get(key)) or not memory.is_wanted(key):
            return signs
        (row,) = await self.ask(Query.signs)
        if row["numbers"] is not None:
            memory.keep(key, Signs(row["version"], row["numbers"], row["signs"]))
        return memory.get(key)

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        await super().write(nodes, replacing)
        for generation, organizations in [*self.backend.sizes]:
            if generation == self.prefix and organizations & self.scope.organizations:
                self.backend.sizes.pop((generation, organizations), None)

    def _insert_fields(self, nodes: Sequence[BaseNode]) -> str:
        return insert_signs(self.prefix, self.spec, len(nodes[0].get_embedding()))

    async def _finish(self, connection: asyncpg.Connection, gone: list[int], written: int) -> None:
        organizations = list(self.scope.organizations)
        more = await connection.fetchval(
            _GROW.format(t=self.prefix, many=GRAPHED, dimensions=LARGEST_GRAPH),
            gone,
            organizations,
            _CATCHING_UP * written,
        )
        if more:  # last: a row that all writers of large organizations touch
            await connection.execute(f"UPDATE {self.prefix}_totals SET chunks = chunks + $1", more)


_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1 || org, 0)) FROM unnest($2::uuid[]) org"

_MOVE = """
    UPDATE {t}_chunks c SET metadata = c.metadata - ARRAY['file_name', 'row', 'sheet'] || moved.place
    FROM unnest($1::uuid[], $2::jsonb[]) AS moved (source_id, place)
    WHERE c.source_id = moved.source_id AND c.org_id = ANY($3)"""

_GROW = """
    WITH unsigned AS (DELETE FROM {t}_signs WHERE no = ANY($1) AND org_id = ANY($2)),
    gone AS (DELETE FROM {t}_graph WHERE no = ANY($1) AND org_id = ANY($2) RETURNING no),
    grown AS (
        INSERT INTO {t}_graph (org_id, no, private_to, embedding)
        SELECT v.org_id, v.no, v.private_to, v.embedding FROM {t}_sizes s CROSS JOIN LATERAL (
            SELECT * FROM {t}_vectors v WHERE v.org_id = s.org_id AND v.no > coalesce(
                (SELECT max(g.no) FROM {t}_graph g WHERE g.org_id = s.org_id), 0)
            ORDER BY v.no LIMIT $3) v
        WHERE s.org_id = ANY($2) AND s.chunks > {many} AND vector_dims(v.embedding) <= {dimensions} RETURNING no)
    SELECT (SELECT count(*) FROM grown) - (SELECT count(*) FROM gone)"""


def to_node(row: asyncpg.Record, embedding: Sequence[float] | None = None) -> TextNode:
    return chunk_node(row["id"], row["text"], row["metadata"], embedding)


def _candidate(row: asyncpg.Record) -> Candidate:
    return Candidate(row["id"], row["cosine"], row["bm25"])


def _for_column(kind: FieldType, value: Any) -> Any:
    if kind is FieldType.UUID:
        return value or None
    return json.dumps(value) if kind is FieldType.TAGS and value is not None else value


def _for_unnest(column: Sequence[Any]) -> Sequence[Any] | None:
    """Nothing for a column without a value: `unnest` fills up with NULL, and no element has to be encoded."""
    return None if column.count(None) == len(column) else column


class OutsideBackend(DatabaseBackend):
    """A generation also has tables in PostgreSQL, whose names contain `kind` to distinguish stores.

    What such a store returns is checked against PostgreSQL's sources, under row-level security: `visible`.
    """

    kind: str

    def __init__(self, database: Database, visible: Visible) -> None:
        super().__init__(database)
        self.visible = visible
        self.writing = asyncio.Lock()
        """Replacing a source takes several calls. Between processes, the ledger's lock keeps writers apart."""

    async def create(self, owner_url: str, spec: IndexSpec, generation: str, dimension: int) -> None:
        prefix = f"{generation}_{self.kind}"
        await execute_as_owner(owner_url, drop_statements(prefix) + create_fields(spec, prefix))

    async def drop(self, owner_url: str, generation: str) -> None:
        await execute_as_owner(owner_url, drop_statements(f"{generation}_{self.kind}"))


class OutsideStore(ChunkStore):
    """One index whose vectors are elsewhere, as one scope sees it. PostgreSQL decides which chunks exist."""

    @property
    def prefix(self) -> str:
        return f"{self.generation}_{self.backend.kind}"

    @abstractmethod
    async def nearest(self, asked: Search) -> dict[UUID, float]:
        """The cosines of the `depth` chunks that are nearest and that the scope may see."""

    @abstractmethod
    async def cosines(self, vector: Sequence[float], ids: Sequence[UUID]) -> dict[UUID, float]:
        """Those of these chunks that the scope may see."""

    @abstractmethod
    async def put_vectors(self, nodes: Sequence[BaseNode]) -> None:
        """Write vectors, replacing those with the same ids."""

    @abstractmethod
    async def delete_vectors(self, sources: Sequence[UUID], kept: Sequence[UUID]) -> None:
        """Delete the vectors of these sources in the scope's organizations, except the ids `kept`."""

    async def candidates(self, asked: Search) -> list[Candidate]:
        near = await self.nearest(asked) if asked.mode is not Mode.TEXT else {}
        if asked.mode is Mode.DENSE:
            return [Candidate(id_, cosine, 0.0) for id_, cosine in near.items()]
        bm25 = {row["id"]: row["bm25"] for row in await self.ask(Query.words, asked, [*near])}
        if left := [id_ for id_ in bm25 if id_ not in near]:
            near |= await self.cosines(asked.vector, left)
        return [Candidate(id_, near[id_], score) for id_, score in bm25.items() if id_ in near]

    async def best(self, asked: Search) -> list[tuple[Candidate, TextNode]]:
        """Of twice as many, because a vector whose chunk PostgreSQL does not have (yet, or any more) is skipped."""
        return (await super().best(replace(asked, top_k=2 * asked.top_k)))[: asked.top_k]

    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        found = await super().fetch(ids, filters)
        sources = {id_: UUID(node.metadata["source_id"]) for id_, node in found.items()}
        allowed = await self.backend.visible(self.scope, self.generation, [*{*sources.values()}])
        return {id_: node for id_, node in found.items() if sources[id_] in allowed}

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        self.check(nodes)
        async with self.backend.writing:
            if nodes:
                await self.put_vectors(nodes)
            await super().write(nodes, replacing)
            if replacing:
                await self.delete_vectors(replacing, [UUID(node.node_id) for node in nodes])

    async def forget(self, source_ids: Sequence[UUID]) -> None:
        await super().write([], source_ids)
