"""Vectors, texts and postings in PostgreSQL with pgvector.

Of a generation's tables (`postgres_tables`) `vectors` is narrow - what a filter needs and the vector itself,
uncompressed and in the row - because an exact scan of one tenant's rows is then both complete and faster than an
index that is filtered afterwards (docs/adr/0003-postgres-layout.md). `signs` is narrower: a bit a dimension, which
say what is worth comparing where an organization has many; `sizes` says where that is. A graph on `vectors` is for
organizations with a large part of the index. `postings` gives exact BM25
by (term, organization). `terms` and `totals` count over the whole index; they order hits and are never shown.
Row-level security is forced on everything that belongs to a tenant.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode, TextNode
from pgvector.asyncpg import register_vector

from rag_app.database.session import Database
from rag_app.domain import FieldType, Filters, Mode, Scope
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import Backend, ScopedStore, chunk_node, heading
from rag_app.stores.postgres_tables import Query, column, create_statements, drop_statements

# Chunks that a walk through the graph looks at before it asks whether it has found enough (docs/adr/0003 has the
# recall), and after how many it gives up: some 60 ms.
_WALKED, _FARTHEST = 600, 6_000
# For searches, whose plans are good for every tenant: planned once a connection.
_PLANS = (
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_sort = off; "
    "SET max_parallel_workers_per_gather = 0; SET jit = off; "
    f"SET hnsw.ef_search = {_WALKED}; SET hnsw.iterative_scan = relaxed_order; SET hnsw.max_scan_tuples = {_FARTHEST}"
)
# For what is written, a hundred rows at once.
_USUAL_PLANS = (
    "SET LOCAL plan_cache_mode = auto; SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on; "
    "SET LOCAL max_parallel_workers_per_gather = 2"
)


class PostgresBackend(Backend):
    """The application's PostgreSQL; a generation is the common prefix of its tables. Searches have a pool of their own."""

    def __init__(self, database: Database) -> None:
        self.database = database.prepared(_prepare)

    def scoped(self, spec: IndexSpec, generation: str, scope: Scope) -> "PostgresStore":
        return PostgresStore.of(self, spec, generation, scope)

    async def create(self, owner_url: str, spec: IndexSpec, generation: str, dimension: int) -> None:
        await _execute_as_owner(owner_url, drop_statements(generation) + create_statements(spec, generation, dimension))

    async def drop(self, owner_url: str, generation: str) -> None:
        await _execute_as_owner(owner_url, drop_statements(generation))

    def connections(self) -> tuple[int, int]:
        return self.database.connections()

    async def close(self) -> None:
        await self.database.close()

    @asynccontextmanager
    async def transaction(self, scope: Scope) -> AsyncIterator[asyncpg.Connection]:
        """A transaction of the operator, for ingestion and never for a question: private sources of the scope's
        organizations are seen, too.
        """
        async with self.database.driver_scoped(scope) as connection:
            await connection.execute(_USUAL_PLANS)
            yield connection


async def _execute_as_owner(owner_url: str, statements: str) -> None:
    owner = Database(owner_url, pool_size=1)
    try:
        async with owner.driver() as connection, connection.transaction():
            await connection.execute(statements)
    finally:
        await owner.close()


async def _prepare(connection: asyncpg.Connection) -> None:
    await register_vector(connection)
    await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=msgspec.json.decode)
    await connection.execute(_PLANS)


class PostgresStore(ScopedStore):
    """One index in one generation's tables, as one scope sees it."""

    _backend: PostgresBackend = PrivateAttr()

    async def candidates(
        self, vector: Sequence[float], text: str, filters: Filters, mode: Mode, depth: int
    ) -> list[Candidate]:
        query = Query(self)
        return [
            Candidate(row["id"], row["cosine"], row["bm25"])
            for row in (
                await self._backend.database.fetch_scoped(
                    self.scope, query.candidates(vector, text, filters, mode, depth), *query.values
                )
            )
        ]

    async def best(
        self, vector: Sequence[float], text: str, filters: Filters, mode: Mode, depth: int, top_k: int
    ) -> list[tuple[Candidate, TextNode]]:
        query = Query(self)
        return [
            (Candidate(row["id"], row["cosine"], row["bm25"]), _to_node(row))
            for row in (
                await self._backend.database.fetch_scoped(
                    self.scope, query.best(vector, text, filters, mode, depth, top_k), *query.values
                )
            )
        ]

    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        query = Query(self)
        return {
            row["id"]: _to_node(row)
            for row in (await self._backend.database.fetch_scoped(self.scope, query.texts(ids, filters), *query.values))
        }

    async def count(self) -> int:
        query = Query(self)
        ((count,),) = await self._backend.database.fetch_scoped(
            self.scope, f"SELECT count(*) FROM {self.generation}_vectors v WHERE {query.where(())}", *query.values
        )
        return int(count)

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        self.check(nodes)
        table, ids, organizations = (
            self.generation,
            [UUID(node.node_id) for node in nodes],
            list(self.scope.organizations),
        )
        async with self._backend.transaction(self.scope) as connection:
            # One writer a generation at a time: the counts in `terms` are rows that all of them touch.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", table)
            gone = await connection.fetchval(_DELETE.format(t=table), list(replacing), ids, organizations)
            await connection.execute(f"UPDATE {table}_totals SET chunks = chunks + $1", len(nodes) - gone)
            if not nodes:
                return
            chunks = zip(*(self._chunk_row(node) for node in nodes), strict=True)
            number = dict(await connection.fetch(_INSERT_CHUNKS.format(t=table), *chunks))
            columns = [column(field) for field in self.spec.all_fields]
            await connection.executemany(
                f"INSERT INTO {table}_vectors (no, id, site_id, private_to, {', '.join(columns)}, embedding) VALUES "
                f"({', '.join(f'${position}' for position in range(1, len(columns) + 6))})",
                [(number[UUID(node.node_id)], *self._vector_row(node)) for node in nodes],
            )
            signs = {
                "filters": ", ".join(["private_to", "site_id", *columns[1:]]),
                "dimension": len(nodes[0].get_embedding()),
            }
            await connection.execute(_INSERT_SIGNS.format(t=table, **signs), list(number.values()))
            await connection.execute(_INSERT_POSTINGS.format(t=table), list(number.values()))

    async def export(self, source_ids: Sequence[UUID]) -> list[TextNode]:
        sql = (
            f"SELECT c.id, c.text, c.metadata, v.embedding FROM {self.generation}_chunks c "
            f"JOIN {self.generation}_vectors v USING (no) "
            "WHERE c.source_id = ANY($1) AND c.org_id = ANY($2) ORDER BY c.no"
        )
        async with self._backend.transaction(self.scope) as connection:
            rows = await connection.fetch(sql, list(source_ids), list(self.scope.organizations))
        return [chunk_node(row["id"], row["text"], row["metadata"], row["embedding"].to_list()) for row in rows]

    async def sources(self) -> set[UUID]:
        async with self._backend.transaction(self.scope) as connection:
            return {
                row["source_id"]
                for row in await connection.fetch(
                    f"SELECT DISTINCT source_id FROM {self.generation}_vectors WHERE org_id = ANY($1)",
                    list(self.scope.organizations),
                )
            }

    def _chunk_row(self, node: BaseNode) -> tuple[Any, ...]:
        meta, text = node.metadata, node.get_content(MetadataMode.NONE)
        of = UUID(meta["org_id"]), _uuid(meta.get("private_to")), UUID(meta["source_id"])
        return UUID(node.node_id), *of, self.language(node), heading(node), text, meta

    def _vector_row(self, node: BaseNode) -> list[Any]:
        meta = node.metadata
        own = [UUID(node.node_id), _uuid(meta.get("site_id")), _uuid(meta.get("private_to"))]
        kinds = self.spec.all_fields.items()
        fields = [_uuid(meta.get(name)) if kind is FieldType.UUID else meta.get(name) for name, kind in kinds]
        return [*own, *fields, node.embedding]


_DELETE = """
    WITH old AS MATERIALIZED (
        SELECT no, org_id, lang, heading, text FROM {t}_chunks
        WHERE (source_id = ANY($1) OR id = ANY($2)) AND org_id = ANY($3)),
    postings AS (
        DELETE FROM {t}_postings p USING (
            SELECT DISTINCT o.org_id, o.no, terms.term
            FROM old o, LATERAL rag_terms(o.lang, o.heading || E'\\n' || o.text) terms) key
        WHERE p.term = key.term AND p.org_id = key.org_id AND p.no = key.no RETURNING p.term),
    counts AS (
        UPDATE {t}_terms t SET df = t.df - n.df FROM (SELECT term, count(*) AS df FROM postings GROUP BY term) n
        WHERE t.term = n.term),
    sizes AS (
        UPDATE {t}_sizes s SET chunks = s.chunks - n.chunks
        FROM (SELECT org_id, count(*) AS chunks FROM old GROUP BY org_id) n WHERE s.org_id = n.org_id),
    signs AS (DELETE FROM {t}_signs s USING old WHERE s.org_id = old.org_id AND s.no = old.no),
    chunks AS (DELETE FROM {t}_chunks c USING old WHERE c.no = old.no RETURNING c.no)
    SELECT count(*) FROM chunks"""

_INSERT_CHUNKS = """
    INSERT INTO {t}_chunks (id, org_id, private_to, source_id, lang, heading, text, metadata)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::jsonb[])
    RETURNING id, no"""

_INSERT_SIGNS = """
    WITH signs AS (
        INSERT INTO {t}_signs (org_id, no, signs, {filters})
        SELECT org_id, no, binary_quantize(embedding)::bit({dimension}), {filters} FROM {t}_vectors WHERE no = ANY($1)
        RETURNING org_id)
    INSERT INTO {t}_sizes AS s (org_id, chunks) SELECT org_id, count(*) FROM signs GROUP BY org_id
    ON CONFLICT (org_id) DO UPDATE SET chunks = s.chunks + excluded.chunks"""

# Of the time that writing takes most goes into the index of postings, and less if it is gone through in its order.
_INSERT_POSTINGS = """
    WITH postings AS (
        INSERT INTO {t}_postings (term, org_id, no, private_to, tf, length)
        SELECT p.term, c.org_id, c.no, c.private_to, p.tf, p.length FROM {t}_chunks c CROSS JOIN LATERAL (
            SELECT term, sum(tf) AS tf, sum(sum(tf)) OVER () AS length
            FROM rag_terms(c.lang, c.heading || E'\\n' || c.text) GROUP BY term OFFSET 0) p
        WHERE c.no = ANY($1) ORDER BY p.term, c.org_id, c.no
        RETURNING term)
    INSERT INTO {t}_terms AS t (term, df) SELECT term, count(*) FROM postings GROUP BY term ORDER BY term
    ON CONFLICT (term) DO UPDATE SET df = t.df + excluded.df"""


def _to_node(row: asyncpg.Record) -> TextNode:
    return chunk_node(row["id"], row["text"], row["metadata"])


def _uuid(value: str | None) -> UUID | None:
    return UUID(value) if value else None
