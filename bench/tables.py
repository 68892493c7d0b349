"""The same chunks in tables as somebody would lay them out by hand, and the statements that search them best.

No row-level security, no scope, no generations: what these leave out is what ours is compared with.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import asyncpg
from pgvector.asyncpg import register_vector

from bench.corpus import Corpus, chunk_uuid
from bench.progress import track

_TABLES = """
    CREATE TABLE hand_texts (no bigint PRIMARY KEY, id uuid NOT NULL, org_id uuid NOT NULL, title text NOT NULL,
        text text NOT NULL, metadata jsonb NOT NULL);
    CREATE TABLE hand_vectors (no bigint PRIMARY KEY, org_id uuid NOT NULL, author text NOT NULL,
        embedding vector(384) NOT NULL);
    ALTER TABLE hand_vectors ALTER embedding SET STORAGE PLAIN;
"""
_INDEXES = (
    "CREATE INDEX ON hand_vectors (org_id)",
    "CREATE INDEX ON hand_vectors (org_id, author)",
    "CREATE TABLE hand_signs AS SELECT no, org_id, author, binary_quantize(embedding)::bit(384) AS bits "
    "FROM hand_vectors ORDER BY no",
    "CREATE INDEX ON hand_signs (org_id)",
    "CREATE INDEX ON hand_signs (org_id, author)",
    "CREATE TABLE hand_hnsw AS SELECT no, org_id, author, embedding FROM hand_vectors ORDER BY no",
    "ALTER TABLE hand_hnsw ADD PRIMARY KEY (no)",
    "SET maintenance_work_mem = '2GB'",
    "CREATE INDEX ON hand_hnsw USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 64)",
    # a term is a lexeme's hash; an array a term and organization
    "CREATE TABLE hand_words AS SELECT org_id, term, array_agg(no::integer ORDER BY no) AS nos, "
    "array_agg(tf::integer ORDER BY no) AS tfs, array_agg(length::integer ORDER BY no) AS lengths FROM ("
    "SELECT hashtext(lexeme) AS term, org_id, no, sum(cardinality(positions)) AS tf, "
    "sum(sum(cardinality(positions))) OVER (PARTITION BY no) AS length FROM hand_texts, "
    "LATERAL unnest(to_tsvector('english', title || E'\\n' || text)) GROUP BY 1, 2, 3) each GROUP BY org_id, term",
    "ALTER TABLE hand_words ADD PRIMARY KEY (org_id, term)",
    "CREATE TABLE hand_sizes AS SELECT org_id, count(*)::float8 AS chunks, sum(length)::float8 AS length FROM ("
    "SELECT DISTINCT org_id, unnest(nos) AS no, unnest(lengths) AS length FROM hand_words) each GROUP BY org_id",
    "ALTER TABLE hand_sizes ADD PRIMARY KEY (org_id)",
    *(f"VACUUM ANALYZE hand_{name}" for name in ("texts", "vectors", "signs", "hnsw", "words", "sizes")),
)
K1, B = 0.9, 0.4
"""Of BM25, as the index has them."""

_TEXTS = "SELECT t.id, t.title, t.text, t.metadata, best.cosine FROM ({best}) best JOIN hand_texts t USING (no) ORDER BY best.cosine DESC"
_EXACT = (
    "SELECT no, 1 - (embedding <=> $1) AS cosine FROM hand_vectors WHERE org_id = ANY($2){and_} "
    "ORDER BY embedding <=> $1 LIMIT 10"
)
_SIGNS = (
    "SELECT no, 1 - (embedding <=> $1) AS cosine FROM (SELECT no FROM hand_signs WHERE org_id = ANY($2){and_} "
    "ORDER BY bits <~> (SELECT binary_quantize($1::vector)::bit(384)) LIMIT {depth}) near JOIN hand_vectors USING (no) ORDER BY embedding <=> $1 LIMIT 10"
)
_STRICT = (
    "SELECT no, 1 - (embedding <=> $1) AS cosine FROM hand_hnsw WHERE org_id = ANY($2){and_} "
    "ORDER BY embedding <=> $1 LIMIT 10"
)
_RELAXED = (
    "WITH near AS MATERIALIZED (SELECT no, 1 - (embedding <=> $1) AS cosine FROM hand_hnsw "
    "WHERE org_id = ANY($2){and_} ORDER BY embedding <=> $1 LIMIT 40) SELECT * FROM near ORDER BY cosine DESC LIMIT 10"
)
_LEXICAL = f"""
    WITH found AS MATERIALIZED (
        SELECT q.tf AS asked, w.* FROM (SELECT hashtext(lexeme) AS term, cardinality(positions) AS tf
            FROM unnest(to_tsvector('english', $1))) q JOIN hand_words w ON w.term = q.term AND w.org_id = ANY($2)),
    weights AS MATERIALIZED (
        SELECT term, {K1 + 1} * asked * ln(1 + (n.chunks - df + 0.5::float8) / (df + 0.5::float8)) AS weight,
            {K1 * B}::float8 * n.chunks / n.length AS norm
        FROM (SELECT term, asked, sum(cardinality(nos))::float8 AS df FROM found GROUP BY term, asked) d CROSS JOIN
            (SELECT sum(chunks) AS chunks, sum(length) AS length FROM hand_sizes WHERE org_id = ANY($2)) n),
    lexical AS MATERIALIZED (
        SELECT no, sum(weight * tf / (tf + {K1 * (1 - B)}::float8 + norm * length)) AS bm25
        FROM (SELECT weight, norm, unnest(nos) AS no, unnest(tfs) AS tf, unnest(lengths) AS length
              FROM found JOIN weights USING (term)) each GROUP BY no)"""
_BM25 = (
    f"{_LEXICAL} SELECT t.id, t.title, t.text, t.metadata, best.bm25 FROM "
    "(SELECT no, bm25 FROM lexical ORDER BY bm25 DESC LIMIT 10) best JOIN hand_texts t USING (no) "
    "ORDER BY best.bm25 DESC"
)
_HYBRID = f"""{_LEXICAL},
    candidates AS MATERIALIZED (
        SELECT no, 1 - (v.embedding <=> $3) AS cosine, coalesce(l.bm25, 0) AS bm25 FROM (
            (SELECT no FROM hand_vectors WHERE org_id = ANY($2) ORDER BY embedding <=> $3 LIMIT 100)
            UNION (SELECT no FROM lexical ORDER BY bm25 DESC LIMIT 100)) near
        JOIN hand_vectors v USING (no) LEFT JOIN lexical l USING (no)),
    best AS (
        SELECT no, cosine, 0.6 * (cosine - min(cosine) OVER ()) / nullif(max(cosine) OVER () - min(cosine) OVER (), 0)
            + 0.4 * coalesce((bm25 - min(bm25) OVER ()) / nullif(max(bm25) OVER () - min(bm25) OVER (), 0), 0) AS fused
        FROM candidates ORDER BY fused DESC NULLS LAST LIMIT $4)
    SELECT t.id, t.title, t.text, t.metadata, best.cosine FROM best JOIN hand_texts t USING (no) ORDER BY best.fused DESC"""

Ask = Callable[[Any], Awaitable[list[UUID]]]
Row = Any


async def fill(owner_dsn: str, corpus: Corpus, organizations: Sequence[UUID]) -> None:
    """The tables, in the order of organizations, with their indexes."""
    owner = await connect(owner_dsn)
    try:
        await owner.execute(_TABLES)
        starts = range(0, corpus.size, 10_000)
        for start in track(starts, "tables by hand"):
            part = [(no, int(corpus.in_order[no])) for no in range(start, min(start + 10_000, corpus.size))]
            await owner.copy_records_to_table("hand_texts", records=[
                (no, chunk_uuid(chunk), org := organizations[corpus.organization[chunk]], corpus.title(chunk),
                 corpus.text(chunk), json.dumps(corpus.metadata(chunk, org)))
                for no, chunk in part
            ])  # fmt: skip
            await owner.copy_records_to_table("hand_vectors", records=[
                (no, organizations[corpus.organization[chunk]], f"author {corpus.author[chunk]}", corpus.vectors[chunk])
                for no, chunk in part
            ])  # fmt: skip
        for statement in track(_INDEXES, "indexes by hand (HNSW takes its time)"):
            await owner.execute(statement, timeout=7200)
    finally:
        await owner.close()


async def connect(dsn: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(dsn)
    await register_vector(connection)
    return connection


class ByHand:
    """Dense search by hand: each way on a connection of its own, prepared for one tenant at a time."""

    ways = ("exact", "signs 400", "signs 800", "HNSW ef 100", "HNSW ef 800")

    def __init__(self, connections: dict[str, asyncpg.Connection]) -> None:
        self._connections = connections

    @classmethod
    async def opened(cls, dsn: str) -> "ByHand":
        connections = {way: await connect(dsn) for way in cls.ways}
        for way, mode, ef, most in (
            ("HNSW ef 100", "strict_order", 100, 20_000),
            ("HNSW ef 800", "relaxed_order", 800, 100_000),
        ):
            await connections[way].execute(
                f"SET hnsw.iterative_scan = {mode}; SET hnsw.ef_search = {ef}; SET hnsw.max_scan_tuples = {most}; "
                "SET enable_seqscan = off; SET enable_sort = on"
            )
        return cls(connections)

    async def prepared(self, organizations: list[UUID], author: str | None) -> dict[str, Ask]:
        """For each way, a question's vector to the ids of the ten best, their texts fetched with them."""
        and_ = "" if author is None else f" AND author = '{author}'"
        statements = {
            "exact": _EXACT.format(and_=and_),
            "signs 400": _SIGNS.format(and_=and_, depth=400),
            "signs 800": _SIGNS.format(and_=and_, depth=800),
            "HNSW ef 100": _STRICT.format(and_=and_),
            "HNSW ef 800": _RELAXED.format(and_=and_),
        }
        return {way: await self._prepare(self._connections[way], sql, organizations) for way, sql in statements.items()}

    async def _prepare(self, connection: asyncpg.Connection, best: str, organizations: list[UUID]) -> Ask:
        statement = await connection.prepare(_TEXTS.format(best=best))

        async def ask(vector: Any) -> list[UUID]:
            return [row["id"] for row in await statement.fetch(vector, organizations)]

        return ask

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()


async def bm25(connection: asyncpg.Connection, text: str, organizations: list[UUID]) -> list[Row]:
    """The ten best by BM25, with their texts."""
    rows: list[Row] = await connection.fetch(_BM25, text, organizations)
    return rows


async def hybrid(
    connection: asyncpg.Connection, text: str, vector: Any, organizations: list[UUID], limit: int
) -> list[Row]:
    """Both legs and their fusion in one statement."""
    rows: list[Row] = await connection.fetch(_HYBRID, text, organizations, vector, limit)
    return rows
