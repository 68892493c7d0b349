"""Vectors, texts and postings in PostgreSQL with pgvector.

Four tables a generation. `vectors` is narrow - what a filter needs and the vector itself, uncompressed and in
the row - because an exact scan of one tenant's rows is then both complete and faster than an index that is
filtered afterwards (docs/adr/0003-postgres-layout.md). `postings` gives exact BM25 by (term, organization).
`terms` and `totals` count over the whole index; they order hits and are never shown.
Row-level security is forced on everything that belongs to a tenant.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from pgvector.asyncpg import register_vector

from rag_app.domain.answer import Mode
from rag_app.domain.errors import InvalidInput, StoreFailed
from rag_app.domain.filters import Condition, FieldType, Filters, Operator
from rag_app.domain.scope import Scope
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.index import BASE_FIELDS, IndexSpec
from rag_app.retrieval.store import ScopedStore, heading

_SQL_TYPES = {
    FieldType.KEYWORD: "text",
    FieldType.UUID: "uuid",
    FieldType.INTEGER: "bigint",
    FieldType.NUMBER: "double precision",
    FieldType.BOOLEAN: "boolean",
    FieldType.TIME: "double precision",
    FieldType.TAGS: "text[]",
}
_LARGEST_PLAIN_VECTOR = 1900  # dimensions that fit a page together with the row
_SECONDS_TO_CONNECT = 5


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
    async def transaction(self, scope: Scope, *, operator: bool = False) -> AsyncIterator[asyncpg.Connection]:
        """A short transaction in which row-level security knows the scope.

        `operator`: sees private sources of its organizations too; for ingestion, never for a question.
        """
        with postgres_failures():
            pool = await self._pool.opened()
            async with pool.acquire() as connection, connection.transaction():
                organizations = ",".join(str(UUID(str(each))) for each in scope.organizations)
                user = str(UUID(str(scope.user))) if scope.user else ""
                await connection.execute(
                    f"SELECT set_config('rag.organizations', '{{{organizations}}}', true), "
                    f"set_config('rag.user', '{user}', true), "
                    f"set_config('rag.operator', '{'on' if operator else ''}', true)"
                )
                yield connection


class PostgresStore(ScopedStore):
    """One index in one generation's tables, as one scope sees it."""

    _backend: PostgresBackend = PrivateAttr()

    async def candidates(
        self, vector: Sequence[float], text: str, filters: Filters, mode: Mode, depth: int
    ) -> list[Candidate]:
        query = _Query(self)
        embedding = query.bind(vector, "vector")
        visible = query.where(filters)
        parts = []
        if mode is not Mode.TEXT:
            nearest = f"SELECT v.no FROM {self.generation}_vectors v WHERE {visible} "
            parts.append(f"(SELECT no FROM ({nearest} ORDER BY v.embedding <=> {embedding} LIMIT {int(depth)}) dense)")
        legs = ""
        if mode is not Mode.DENSE:
            legs = query.lexical(text, visible, joined=bool(filters) or self.scope.site is not None)
            parts.append(f"(SELECT no FROM lexical ORDER BY bm25 DESC, no LIMIT {int(depth)})")
        bm25 = "coalesce(l.bm25, 0)" if legs else "0::float8"
        sql = (
            f"{legs} SELECT v.id, 1 - (v.embedding <=> {embedding}) AS cosine, {bm25} AS bm25 "
            f"FROM ({' UNION '.join(parts)}) best JOIN {self.generation}_vectors v USING (no) "
            f"{'LEFT JOIN lexical l USING (no)' if legs else ''}"
        )
        async with self._backend.transaction(self.scope) as connection:
            rows = await connection.fetch(sql, *query.values)
        return [Candidate(row["id"], row["cosine"], row["bm25"]) for row in rows]

    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        query = _Query(self)
        wanted = query.bind(list(ids), "uuid[]")
        sql = (
            f"SELECT c.id, c.source_id, c.text, c.metadata FROM {self.generation}_chunks c "
            f"JOIN {self.generation}_vectors v USING (no) WHERE c.id = ANY({wanted}) AND {query.where(filters)}"
        )
        async with self._backend.transaction(self.scope) as connection:
            rows = await connection.fetch(sql, *query.values)
        return {row["id"]: _to_node(row) for row in rows}

    async def count(self) -> int:
        query = _Query(self)
        sql = f"SELECT count(*) FROM {self.generation}_vectors v WHERE {query.where(())}"
        async with self._backend.transaction(self.scope) as connection:
            return int(await connection.fetchval(sql, *query.values))

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        self.check(nodes)
        table = self.generation
        async with self._backend.transaction(self.scope, operator=True) as connection:
            # One writer a generation at a time: the counts in `terms` are rows that all of them touch.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", table)
            gone = await connection.fetchval(
                _DELETE.format(t=table), list(replacing), [UUID(node.node_id) for node in nodes]
            )
            numbers = await connection.fetch(_INSERT_CHUNKS.format(t=table), *_columns(self, nodes))
            number = {row["id"]: row["no"] for row in numbers}
            names = ["no", "id", "site_id", "private_to", *_filter_columns(self.spec), "embedding"]
            await connection.executemany(
                f"INSERT INTO {table}_vectors ({', '.join(names)}) VALUES "
                f"({', '.join(f'${position}' for position in range(1, len(names) + 1))})",
                [_vector_row(self.spec, number[UUID(node.node_id)], node) for node in nodes],
            )
            await connection.execute(_INSERT_POSTINGS.format(t=table), list(number.values()))
            await connection.execute(f"UPDATE {table}_totals SET chunks = chunks + $1", len(nodes) - gone)

    async def export(self, source_ids: Sequence[UUID]) -> list[TextNode]:
        sql = (
            f"SELECT c.id, c.source_id, c.text, c.metadata, v.embedding FROM {self.generation}_chunks c "
            f"JOIN {self.generation}_vectors v USING (no) "
            "WHERE c.source_id = ANY($1) AND c.org_id = ANY($2) ORDER BY c.no"
        )
        async with self._backend.transaction(self.scope, operator=True) as connection:
            rows = await connection.fetch(sql, list(source_ids), list(self.scope.organizations))
        nodes = [_to_node(row) for row in rows]
        for node, row in zip(nodes, rows, strict=True):
            node.embedding = row["embedding"].to_list()
        return nodes

    async def sources(self) -> set[UUID]:
        sql = f"SELECT DISTINCT source_id FROM {self.generation}_vectors WHERE org_id = ANY($1)"
        async with self._backend.transaction(self.scope, operator=True) as connection:
            return {row["source_id"] for row in await connection.fetch(sql, list(self.scope.organizations))}


class _Query:
    """SQL under construction: every value is bound, every column comes from the index spec."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
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
        column, sql_type = f"v.{_column(condition.field)}", _SQL_TYPES[kind]
        if condition.or_missing:
            missing = f"coalesce(cardinality({column}), 0) = 0" if kind is FieldType.TAGS else f"{column} IS NULL"
            return f"({missing} OR {self._condition(replace(condition, or_missing=False))})"
        if condition.operator is Operator.HAS:
            return f"{self.bind(condition.value, 'text')} = ANY({column})"
        if condition.operator is Operator.IN:
            return f"{column} = ANY({self.bind(list(condition.value), f'{sql_type}[]')})"  # type: ignore[arg-type]
        sign = "=" if condition.operator is Operator.EQ else condition.operator.value
        return f"{column} {sign} {self.bind(condition.value, sql_type)}"

    def lexical(self, text: str, visible: str, *, joined: bool) -> str:
        """BM25 of every chunk that shares a term with the text, as a CTE `lexical(no, bm25)`.

        Each term counts as often as the text repeats it. Filters other than the tenant need the join.
        """
        table, bm25 = self.store.generation, self.store.spec.bm25
        languages, body = self.bind(self.store.languages, "text[]"), self.bind(text, "text")
        join = f"JOIN {table}_vectors v ON v.no = p.no AND {visible}" if joined else ""
        return f"""
            WITH weights AS MATERIALIZED (
                SELECT term, q.tf * ln(1 + (n.chunks - t.df + 0.5) / (t.df + 0.5)) AS weight
                FROM (SELECT term, sum(tf)::float8 AS tf
                      FROM unnest({languages}) AS lang, LATERAL rag_terms(lang, {body}) GROUP BY term) q
                JOIN {table}_terms t USING (term) CROSS JOIN {table}_totals n WHERE t.df > 0),
            lexical AS MATERIALIZED (
                SELECT p.no, sum(w.weight * p.tf * {bm25.k1 + 1}
                    / (p.tf + {bm25.k1} * ({1 - bm25.b} + {bm25.b} * p.length / {bm25.average_length}))) AS bm25
                FROM weights w JOIN {table}_postings p ON p.term = w.term AND p.org_id = ANY({self.organizations})
                    AND (p.private_to IS NULL OR p.private_to = {self.user}) {join}
                GROUP BY p.no)"""


_DELETE = """
    WITH old AS MATERIALIZED (
        SELECT no, org_id, lang, heading, text FROM {t}_chunks WHERE source_id = ANY($1) OR id = ANY($2)),
    postings AS (
        DELETE FROM {t}_postings p USING (
            SELECT DISTINCT o.org_id, o.no, terms.term
            FROM old o, LATERAL rag_terms(o.lang, o.heading || E'\\n' || o.text) terms) key
        WHERE p.term = key.term AND p.org_id = key.org_id AND p.no = key.no RETURNING p.term),
    counts AS (
        UPDATE {t}_terms t SET df = t.df - n.df FROM (SELECT term, count(*) AS df FROM postings GROUP BY term) n
        WHERE t.term = n.term),
    chunks AS (DELETE FROM {t}_chunks c USING old WHERE c.no = old.no RETURNING c.no)
    SELECT count(*) FROM chunks"""

_INSERT_CHUNKS = """
    INSERT INTO {t}_chunks (id, org_id, private_to, source_id, lang, heading, text, metadata)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::jsonb[])
    RETURNING no, id"""

_INSERT_POSTINGS = """
    WITH postings AS (
        INSERT INTO {t}_postings (term, org_id, no, private_to, tf, length)
        SELECT term, org_id, no, private_to, tf, sum(tf) OVER (PARTITION BY no)
        FROM (SELECT terms.term, c.org_id, c.no, c.private_to, sum(terms.tf) AS tf
              FROM {t}_chunks c, LATERAL rag_terms(c.lang, c.heading || E'\\n' || c.text) terms
              WHERE c.no = ANY($1) GROUP BY terms.term, c.no) counted
        RETURNING term)
    INSERT INTO {t}_terms AS t (term, df) SELECT term, count(*) FROM postings GROUP BY term
    ON CONFLICT (term) DO UPDATE SET df = t.df + excluded.df"""


def create_statements(spec: IndexSpec, generation: str, dimension: int) -> str:
    """The DDL of a generation's tables."""
    t = generation
    fields = "".join(f", {_column(name)} {_SQL_TYPES[kind]}" for name, kind in spec.fields.items())
    tenant = "org_id uuid NOT NULL, private_to uuid"
    storage = "PLAIN" if dimension <= _LARGEST_PLAIN_VECTOR else "EXTERNAL"
    policies = "".join(
        f"ALTER TABLE {t}_{name} ENABLE ROW LEVEL SECURITY; ALTER TABLE {t}_{name} FORCE ROW LEVEL SECURITY;"
        f"CREATE POLICY tenant ON {t}_{name} USING (org_id = ANY ((SELECT rag_organizations())::uuid[]) AND "
        f"(private_to IS NULL OR private_to = (SELECT rag_user()) OR (SELECT rag_operator())));"
        for name in ("chunks", "vectors", "postings")
    )
    return f"""
        CREATE TABLE {t}_chunks (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT NULL UNIQUE, {tenant},
            source_id uuid NOT NULL, lang text NOT NULL, heading text NOT NULL, text text NOT NULL, metadata jsonb NOT NULL);
        CREATE INDEX ON {t}_chunks (source_id);
        CREATE TABLE {t}_vectors (no bigint PRIMARY KEY REFERENCES {t}_chunks ON DELETE CASCADE, id uuid NOT NULL, {tenant},
            site_id uuid, source_id uuid NOT NULL, source_type text NOT NULL, lang text NOT NULL,
            date double precision{fields}, embedding vector({int(dimension)}) NOT NULL);
        ALTER TABLE {t}_vectors ALTER embedding SET STORAGE {storage};
        CREATE INDEX ON {t}_vectors (org_id);
        CREATE TABLE {t}_postings (term integer, org_id uuid, no bigint, private_to uuid, tf integer NOT NULL,
            length integer NOT NULL, PRIMARY KEY (term, org_id, no));
        CREATE TABLE {t}_terms (term integer PRIMARY KEY, df bigint NOT NULL) WITH (fillfactor = 70);
        CREATE TABLE {t}_totals (chunks bigint NOT NULL);
        INSERT INTO {t}_totals VALUES (0);
        {policies}
        {_READERS.format(t=t, function=function) if (function := _FUNCTIONS.get(spec.name)) else ""}"""


def drop_statements(generation: str) -> str:
    """The DDL that takes a generation's tables away."""
    names = ("vectors", "postings", "terms", "totals", "chunks")  # vectors refer to chunks
    return "".join(f"DROP TABLE IF EXISTS {generation}_{name};" for name in names)


_FUNCTIONS = {"org_knowledge": "rag_match", "store_catalogue": "match_embeddings", "marketplace": "search_rag_context"}
"""The SQL functions of migration 0004, by the index that they search."""

_READERS = """
        DO $$ DECLARE caller regrole; BEGIN  -- who may call the function needs what it reads
            FOR caller IN SELECT grantee FROM pg_proc, aclexplode(proacl)
                          WHERE pg_proc.oid = to_regproc('{function}') AND grantee <> 0 LOOP
                EXECUTE format('GRANT SELECT ON {t}_chunks, {t}_vectors TO %s', caller);
            END LOOP; END $$;"""


def _column(field: str) -> str:
    return field if field in BASE_FIELDS else f"x_{field}"


def _filter_columns(spec: IndexSpec) -> list[str]:
    return [_column(field) for field in spec.all_fields]


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


def _to_node(row: asyncpg.Record) -> TextNode:
    source = RelatedNodeInfo(node_id=str(row["source_id"]))
    return TextNode(
        id_=str(row["id"]),
        text=row["text"],
        metadata=json.loads(row["metadata"]),
        relationships={NodeRelationship.SOURCE: source},
    )


def _uuid(value: str | None) -> UUID | None:
    return UUID(value) if value else None


class LazyPool:
    """At most `size` connections, made when they are first needed: one pool however many ask for it at once."""

    def __init__(self, dsn: str, size: int, **options: Any) -> None:
        self._dsn, self._size, self._options = plain_dsn(dsn), size, options
        self._pool: asyncpg.Pool | None = None
        self._opening = asyncio.Lock()

    async def opened(self) -> asyncpg.Pool:
        if self._pool is None:
            async with self._opening:
                if self._pool is None:
                    self._pool = await asyncpg.create_pool(
                        self._dsn, min_size=1, max_size=self._size, timeout=_SECONDS_TO_CONNECT, command_timeout=60,
                        **self._options,
                    )  # fmt: skip
        return self._pool

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None


def plain_dsn(url: str) -> str:
    """asyncpg's form of a URL that SQLAlchemy also takes.

    >>> plain_dsn("postgresql+asyncpg://me@host/db?ssl=require")
    'postgresql://me@host/db?sslmode=require'
    """
    return re.sub(r"([?&])ssl=", r"\1sslmode=", url.replace("postgresql+asyncpg://", "postgresql://", 1))


async def _prepare(connection: asyncpg.Connection) -> None:
    await register_vector(connection)


@contextmanager
def postgres_failures() -> Iterator[None]:
    """Whatever the driver raises is a StoreFailed."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise StoreFailed(f"PostgreSQL: {type(error).__name__}: {error}") from error
