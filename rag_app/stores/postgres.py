"""Vectors, texts and postings in PostgreSQL with pgvector.

Of a generation's tables (`postgres_schema`) `vectors` is narrow - what a filter needs and the vector itself,
uncompressed and in the row - because an exact scan of one tenant's rows is then both complete and faster than an
index that is filtered afterwards (docs/adr/0003-postgres-layout.md). `signs` is narrower: a bit a dimension, which
say what is worth comparing where an organization has many; `sizes` says where that is. `postings` gives exact BM25
by (term, organization). `terms` and `totals` count over the whole index; they order hits and are never shown.
Row-level security is forced on everything that belongs to a tenant.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from pgvector.asyncpg import register_vector

from rag_app.domain.answer import Mode
from rag_app.domain.errors import InvalidInput
from rag_app.domain.filters import Condition, FieldType, Filters, Operator
from rag_app.domain.scope import Scope
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import ScopedStore, heading
from rag_app.stores.postgres_pool import LazyPool, plain_dsn, postgres_failures
from rag_app.stores.postgres_schema import (
    LARGEST_GRAPH,
    LONGEST_INDEXED,
    SQL_TYPES,
    column,
    create_statements,
    drop_statements,
)

_EXACT_NUMBERS = 5_000 * 384
"""Up to so many numbers in the vectors of a scope's organizations all of them are compared."""
_MOST, _MARGIN = 2_000, 1.15
"""How many of the nearest by sign are compared, at most; how much farther than the best, in roots of the dimension."""
_LARGE = 8_000
"""From which square of a scope's chunks, in chunks of the index, a walk through the graph is shorter than a scan."""
_WALKED = 600
"""Chunks that a walk through the graph looks at before it asks whether it has found enough."""
_PLANS = (
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_sort = off; "
    "SET max_parallel_workers_per_gather = 0; SET jit = off; "
    f"SET hnsw.ef_search = {_WALKED}; SET hnsw.iterative_scan = relaxed_order; SET hnsw.max_scan_tuples = {10 * _WALKED}"
)
"""For searches, whose plans are good for every tenant: planned once a connection."""
_USUAL_PLANS = (
    "SET LOCAL plan_cache_mode = auto; SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on; "
    "SET LOCAL max_parallel_workers_per_gather = 2"
)
"""For what is written, a hundred rows at once."""


class PostgresBackend:
    """One database as a vector store: its connections, its generations. `dsn`: the application's role."""

    name = "postgres"

    def __init__(self, dsn: str, *, connections: int = 10) -> None:
        self._pool = LazyPool(dsn, connections, init=_prepare)

    def scoped(self, spec: IndexSpec, generation: str, scope: Scope) -> "PostgresStore":
        """The index `spec` in the generation's tables (their common prefix), as `scope` sees it."""
        return PostgresStore.of(self, spec, generation, scope)

    async def create(self, owner_dsn: str, spec: IndexSpec, generation: str, dimension: int) -> None:
        """Make the generation's tables, as the role that owns the schema; what was there of it before goes."""
        statements = create_statements(spec, generation, dimension)
        await self._as_owner(owner_dsn, drop_statements(generation) + statements)

    async def drop(self, owner_dsn: str, generation: str) -> None:
        """Take the generation's tables away, if they are there."""
        await self._as_owner(owner_dsn, drop_statements(generation))

    def connections(self) -> tuple[int, int]:
        """How many are in use, how many are open."""
        return self._pool.connections()

    async def close(self) -> None:
        await self._pool.close()

    async def _as_owner(self, dsn: str, statements: str) -> None:
        with postgres_failures():
            owner = await asyncpg.connect(plain_dsn(dsn))
            try:
                async with owner.transaction():
                    await owner.execute(statements)
            finally:
                await owner.close()

    @asynccontextmanager
    async def transaction(self, scope: Scope) -> AsyncIterator[asyncpg.Connection]:
        """A transaction of the operator, for ingestion and never for a question: private sources of the scope's
        organizations are seen, too. Row-level security knows the scope; nothing of it outlives the transaction.
        """
        with postgres_failures():
            pool = await self._pool.opened()
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(_USUAL_PLANS)
                await connection.execute(f"SELECT {_TENANT.format('$1', '$2', '$3')}", *_tenant(scope), "on")
                yield connection

    async def fetch(self, scope: Scope, sql: str, values: Sequence[Any]) -> list[asyncpg.Record]:
        """A query as the scope sees it, in one statement: it is its own transaction, and one round trip.

        The statement begins with telling row-level security the scope, until its own end. What `sql` reads is read
        for each row of that, so not before; if it were, it would see nothing.
        """
        told = _TENANT.format(f"${len(values) + 1}", f"${len(values) + 2}", "''")
        statement = f"""WITH tenant AS MATERIALIZED (SELECT {told} AS told) SELECT found.* FROM tenant
            CROSS JOIN LATERAL (SELECT * FROM ({sql}) seen WHERE tenant.told IS NOT NULL OFFSET 0) found"""
        with postgres_failures():
            return await self._pool.fetch(statement, *values, *_tenant(scope))


_TENANT = """set_config('rag.organizations', {}, true) || set_config('rag.user', {}, true)
    || set_config('rag.operator', {}, true)"""


def _tenant(scope: Scope) -> tuple[str, str]:
    organizations = ",".join(str(UUID(str(each))) for each in scope.organizations)
    return f"{{{organizations}}}", str(UUID(str(scope.user))) if scope.user else ""


async def _prepare(connection: asyncpg.Connection) -> None:
    await register_vector(connection)
    await connection.execute(_PLANS)


class PostgresStore(ScopedStore):
    """One index in one generation's tables, as one scope sees it."""

    _backend: PostgresBackend = PrivateAttr()

    async def candidates(
        self, vector: Sequence[float], text: str, filters: Filters, mode: Mode, depth: int
    ) -> list[Candidate]:
        query = _Query(self)
        rows = await self._backend.fetch(self.scope, query.candidates(vector, text, filters, mode, depth), query.values)
        return [_to_candidate(row) for row in rows]

    async def best(
        self, vector: Sequence[float], text: str, filters: Filters, mode: Mode, depth: int, top_k: int
    ) -> list[tuple[Candidate, TextNode]]:
        query = _Query(self)
        sql = query.best(vector, text, filters, mode, depth, top_k)
        rows = await self._backend.fetch(self.scope, sql, query.values)
        return [(_to_candidate(row), _to_node(row)) for row in rows]

    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        query = _Query(self)
        rows = await self._backend.fetch(self.scope, query.texts(ids, filters), query.values)
        return {row["id"]: _to_node(row) for row in rows}

    async def count(self) -> int:
        query = _Query(self)
        sql = f"SELECT count(*) FROM {self.generation}_vectors v WHERE {query.where(())}"
        ((count,),) = await self._backend.fetch(self.scope, sql, query.values)
        return int(count)

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        self.check(nodes)
        table = self.generation
        async with self._backend.transaction(self.scope) as connection:
            # One writer a generation at a time: the counts in `terms` are rows that all of them touch.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", table)
            ids = [UUID(node.node_id) for node in nodes]
            gone = await connection.fetchval(
                _DELETE.format(t=table), list(replacing), ids, list(self.scope.organizations)
            )
            await connection.execute(f"UPDATE {table}_totals SET chunks = chunks + $1", len(nodes) - gone)
            if not nodes:
                return
            numbers = await connection.fetch(_INSERT_CHUNKS.format(t=table), *_columns(self, nodes))
            number = {row["id"]: row["no"] for row in numbers}
            names = ["no", "id", "site_id", "private_to", *_filter_columns(self.spec), "embedding"]
            rows = [_vector_row(self.spec, number[UUID(node.node_id)], node) for node in nodes]
            await connection.executemany(
                f"INSERT INTO {table}_vectors ({', '.join(names)}) VALUES "
                f"({', '.join(f'${position}' for position in range(1, len(names) + 1))})",
                rows,
            )
            filters = ", ".join(["private_to", "site_id", *_filter_columns(self.spec)[1:]])
            signs = _INSERT_SIGNS.format(t=table, dimension=len(rows[0][-1]), filters=filters)
            await connection.execute(signs, list(number.values()))
            await connection.execute(_INSERT_POSTINGS.format(t=table), list(number.values()))

    async def export(self, source_ids: Sequence[UUID]) -> list[TextNode]:
        sql = (
            f"SELECT c.id, c.source_id, c.text, c.metadata, v.embedding FROM {self.generation}_chunks c "
            f"JOIN {self.generation}_vectors v USING (no) "
            "WHERE c.source_id = ANY($1) AND c.org_id = ANY($2) ORDER BY c.no"
        )
        async with self._backend.transaction(self.scope) as connection:
            rows = await connection.fetch(sql, list(source_ids), list(self.scope.organizations))
        nodes = [_to_node(row) for row in rows]
        for node, row in zip(nodes, rows, strict=True):
            node.embedding = row["embedding"].to_list()
        return nodes

    async def sources(self) -> set[UUID]:
        sql = f"SELECT DISTINCT source_id FROM {self.generation}_vectors WHERE org_id = ANY($1)"
        async with self._backend.transaction(self.scope) as connection:
            return {row["source_id"] for row in await connection.fetch(sql, list(self.scope.organizations))}


class _Query:
    """SQL under construction: every value is bound, every column comes from the index spec."""

    def __init__(self, store: PostgresStore) -> None:
        self.store, self.table = store, store.generation
        self.values: list[Any] = []

    def bind(self, value: Any, sql_type: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::{sql_type}"

    def where(self, filters: Filters) -> str:
        """The mandatory part, from the scope, and the filters, on `v`."""
        scope = self.store.scope
        self.organizations = self.bind(list(scope.organizations), "uuid[]")
        self.user = self.bind(scope.user, "uuid")
        conditions = [
            f"v.org_id = ANY({self.organizations})",
            f"(v.private_to IS NULL OR v.private_to = {self.user})",
            *(self._condition(each) for each in filters),
        ]
        if scope.site is not None:
            conditions.append(f"v.site_id = {self.bind(scope.site, 'uuid')}")
        return " AND ".join(conditions)

    def _condition(self, condition: Condition) -> str:
        kind = self.store.spec.all_fields[condition.field]
        name, sql_type = f"v.{column(condition.field)}", SQL_TYPES[kind]
        if condition.or_missing:
            missing = f"coalesce(cardinality({name}), 0) = 0" if kind is FieldType.TAGS else f"{name} IS NULL"
            return f"({missing} OR {self._condition(replace(condition, or_missing=False))})"
        if condition.operator is Operator.HAS:
            return f"{self.bind(condition.value, 'text')} = ANY({name})"
        if condition.operator is Operator.IN:
            values = list(condition.value)  # type: ignore[arg-type]
            return f"{_indexed(name, kind, values)}{name} = ANY({self.bind(values, f'{sql_type}[]')})"
        sign = "=" if condition.operator is Operator.EQ else condition.operator.value
        return f"{_indexed(name, kind, [condition.value])}{name} {sign} {self.bind(condition.value, sql_type)}"

    def best(self, vector: Sequence[float], text: str, filters: Filters, mode: Mode, depth: int, top_k: int) -> str:
        """`candidates` in the order of `rag_app.retrieval.fusion.ranked`, the `top_k` first, each with its text."""
        found, weights = self.candidates(vector, text, filters, mode, depth, sure=top_k), self.store.spec.fusion
        rank = {
            Mode.DENSE: "cosine",
            Mode.TEXT: "bm25",
            Mode.HYBRID: f"{weights.dense}::float8 * {_scaled('cosine')} + {weights.lexical}::float8 * {_scaled('bm25')}",
        }[mode]
        return f"""SELECT best.id, best.cosine, best.bm25, c.source_id, c.text, c.metadata
            FROM (SELECT *, {rank} AS rank FROM ({found}) found ORDER BY rank DESC, id LIMIT {self.bind(top_k, "bigint")}) best
            CROSS JOIN LATERAL (SELECT * FROM {self.table}_chunks c WHERE c.no = best.no OFFSET 0) c
            ORDER BY best.rank DESC, best.id"""

    def candidates(
        self, vector: Sequence[float], text: str, filters: Filters, mode: Mode, depth: int, *, sure: int | None = None
    ) -> str:
        """The best of each leg with their id, cosine and BM25.

        Plans are made once for all tenants: every join is a lookup for each row of what stands before it, since
        OFFSET 0 keeps the planner from turning it into anything else.
        """
        embedding, limit, visible = self.bind(vector, "vector"), self.bind(depth, "bigint"), self.where(filters)
        filtered, dense = bool(filters) or self.store.scope.site is not None, ""
        if mode != Mode.TEXT:
            dense = self._dense(embedding, len(vector), depth, sure or depth, limit, visible, filtered)
        if mode == Mode.DENSE:
            sql = f"WITH {dense} SELECT no, id, 1 - distance AS cosine, 0::float8 AS bm25 FROM dense"
        else:
            lexical = self._lexical(text, visible if filtered else "")
            sql = f"WITH {lexical}, best AS MATERIALIZED (SELECT no, bm25 FROM lexical ORDER BY bm25 DESC, no LIMIT {limit})"
            scored = f"""SELECT v.no, v.id, 1 - (v.embedding <=> {embedding}) AS cosine, best.bm25
                FROM best {self._vector("best", visible)}"""
            if mode == Mode.HYBRID:
                # IS TRUE: a look into a hash table for each row of `lexical`, however few the planner takes them for
                sql += f""", {dense},
                    known AS MATERIALIZED (SELECT no, bm25 FROM lexical WHERE (no IN (SELECT no FROM dense)) IS TRUE)
                    SELECT no, id, 1 - distance AS cosine, coalesce(bm25, 0) AS bm25 FROM dense LEFT JOIN known USING (no)
                    UNION ALL {scored} WHERE (best.no IN (SELECT no FROM dense)) IS NOT TRUE"""
            else:
                sql += scored
        return sql

    def texts(self, ids: Sequence[UUID], filters: Filters) -> str:
        """The chunks of these ids, as far as they are visible."""
        wanted = self.bind(list(ids), "uuid[]")
        return f"""SELECT c.id, c.source_id, c.text, c.metadata FROM {self.table}_chunks c CROSS JOIN LATERAL (
            SELECT FROM {self.table}_vectors v WHERE v.no = c.no AND {self.where(filters)} OFFSET 0) v
            WHERE c.id = ANY({wanted})"""

    def _dense(
        self, embedding: str, dimension: int, depth: int, sure: int, limit: str, visible: str, filtered: bool
    ) -> str:
        """CTEs that end in `dense(no, id, distance)`: the `depth` nearest to the embedding.

        Where the scope's organizations are small all rows are compared. Where they have a large part of the index a
        graph leads to the nearest. In between, where the graph led to too few, and with filters, which it knows nothing
        of, those of the nearest signs are compared: how far the `sure` best are by sign, and a margin, since signs only
        nearly order as cosines do.
        """
        most, last = self.bind(max(_MOST, 4 * depth), "bigint"), self.bind(max(min(sure, depth) - 1, 0), "bigint")
        margin, half = round(_MARGIN * dimension**0.5), f"halfvec({dimension})"
        may_walk = not filtered and dimension <= LARGEST_GRAPH
        return f"""size AS MATERIALIZED (
                SELECT p.chunks <= {_EXACT_NUMBERS // dimension} AS small,
                    {may_walk} AND p.chunks * p.chunks > {_LARGE} * n.chunks AS large
                FROM (SELECT coalesce(sum(p.chunks), 0)::float8 AS chunks FROM {self.table}_sizes p
                      WHERE p.org_id = ANY({self.organizations})) p CROSS JOIN {self.table}_totals n),
            walked AS MATERIALIZED (
                SELECT v.no, v.id, v.embedding <=> {embedding} AS distance FROM {self.table}_vectors v
                WHERE (SELECT large FROM size) AND {visible}
                ORDER BY v.embedding::{half} <=> {embedding}::{half} LIMIT 4 * {limit}),
            near AS MATERIALIZED (
                SELECT v.no, v.signs <~> (SELECT binary_quantize({embedding})::bit({dimension})) AS far
                FROM {self.table}_signs v
                WHERE NOT (SELECT small OR (SELECT count(*) FROM walked) >= {limit} FROM size) AND {visible}
                ORDER BY far LIMIT {most}),
            dense AS MATERIALIZED (
                SELECT no, id, distance FROM (
                    SELECT v.no, v.id, v.embedding <=> {embedding} AS distance FROM {self.table}_vectors v
                    WHERE (SELECT small FROM size) AND {visible}
                    UNION ALL SELECT v.no, v.id, v.embedding <=> {embedding} FROM near {self._vector("near", visible)}
                    WHERE far <= greatest(
                        coalesce((SELECT far FROM near OFFSET greatest({limit} - 1, 0) LIMIT 1), {dimension}),
                        (SELECT far FROM near OFFSET {last} LIMIT 1) + {margin})
                    UNION ALL SELECT * FROM walked WHERE NOT EXISTS (SELECT FROM near)) either
                ORDER BY distance LIMIT {limit})"""

    def _vector(self, of: str, visible: str) -> str:
        return f"""CROSS JOIN LATERAL (
            SELECT v.no, v.id, v.embedding FROM {self.table}_vectors v WHERE v.no = {of}.no AND {visible} OFFSET 0) v"""

    def _lexical(self, text: str, filtered: str) -> str:
        """CTEs that end in `lexical(no, bm25)`: every chunk that shares a term with the text.

        Each term counts as often as the text repeats it. Postings know the tenant; filters look the chunk up.
        """
        bm25, table = self.store.spec.bm25, self.table
        languages, body = self.bind(self.store.languages, "text[]"), self.bind(text, "text")
        norm = f"{bm25.k1 * (1 - bm25.b)}::float8 + {bm25.k1 * bm25.b / bm25.average_length}::float8 * p.length"
        return f"""weights AS MATERIALIZED (
                SELECT q.term, {bm25.k1 + 1} * q.tf * ln(1 + (n.chunks - t.df + 0.5::float8) / (t.df + 0.5::float8)) AS weight
                FROM (SELECT term, sum(tf)::float8 AS tf
                      FROM unnest({languages}) AS lang, LATERAL rag_terms(lang, {body}) GROUP BY term) q
                CROSS JOIN LATERAL (SELECT df FROM {table}_terms t WHERE t.term = q.term AND t.df > 0 OFFSET 0) t
                CROSS JOIN {table}_totals n),
            lexical AS MATERIALIZED (
                SELECT p.no, p.bm25 FROM (
                    SELECT p.no, sum(w.weight * p.tf / (p.tf + {norm})) AS bm25
                    FROM weights w CROSS JOIN LATERAL (
                        SELECT p.no, p.tf, p.length FROM {table}_postings p
                        WHERE p.term = w.term AND p.org_id = ANY({self.organizations})
                            AND (p.private_to IS NULL OR p.private_to = {self.user}) OFFSET 0) p
                    GROUP BY p.no) p {self._vector("p", filtered) if filtered else ""})"""


def _indexed(name: str, kind: FieldType, values: Sequence[Any]) -> str:
    """What a query must say besides, so that PostgreSQL sees that the index of such keywords holds all it looks for."""
    short = kind is FieldType.KEYWORD and all(len(each.encode()) <= LONGEST_INDEXED for each in values)
    return f"octet_length({name}) <= {LONGEST_INDEXED} AND " if short else ""


def _scaled(score: str) -> str:
    """To 0..1 over all candidates, as `rag_app.retrieval.fusion` does."""
    low, high = f"min({score}) OVER ()", f"max({score}) OVER ()"
    return f"coalesce(({score} - {low}) / nullif({high} - {low}, 0), 0)"


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
    RETURNING no, id"""

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


def _filter_columns(spec: IndexSpec) -> list[str]:
    return [column(field) for field in spec.all_fields]


def _columns(store: PostgresStore, nodes: Sequence[BaseNode]) -> tuple[list[Any], ...]:
    """Parallel arrays for `_INSERT_CHUNKS`."""
    metas = [node.metadata for node in nodes]
    return (
        [UUID(node.node_id) for node in nodes],
        [UUID(meta["org_id"]) for meta in metas],
        [_uuid(meta.get("private_to")) for meta in metas],
        [UUID(meta["source_id"]) for meta in metas],
        [store.language(node) for node in nodes],
        [heading(node) for node in nodes],
        [node.get_content(MetadataMode.NONE) for node in nodes],
        [json.dumps(meta) for meta in metas],
    )


def _vector_row(spec: IndexSpec, number: int, node: BaseNode) -> tuple[Any, ...]:
    meta = node.metadata
    fields = [
        _uuid(meta.get(name)) if kind is FieldType.UUID else meta.get(name) for name, kind in spec.all_fields.items()
    ]
    own = (number, UUID(node.node_id), _uuid(meta.get("site_id")), _uuid(meta.get("private_to")))
    if node.embedding is None:
        raise InvalidInput("embedding", node.node_id, "a chunk needs its embedding before it can be stored")
    return (*own, *fields, node.embedding)


def _to_candidate(row: asyncpg.Record) -> Candidate:
    return Candidate(row["id"], row["cosine"], row["bm25"])


def _to_node(row: asyncpg.Record) -> TextNode:
    source = RelatedNodeInfo(node_id=str(row["source_id"]))
    return TextNode(
        id_=str(row["id"]),
        text=row["text"],
        metadata=msgspec.json.decode(row["metadata"]),
        relationships={NodeRelationship.SOURCE: source},
    )


def _uuid(value: str | None) -> UUID | None:
    return UUID(value) if value else None
