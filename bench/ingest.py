"""Ingestion beside what it cannot do without: the embedder, and COPY into the same tables."""

import io
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from llama_index.core.base.embeddings.base import BaseEmbedding

from bench.corpus import Corpus
from bench.figures import Bound, Report, Table, median, rounds
from bench.ours import INDEX, Ours, tables
from bench.progress import track
from bench.tables import connect
from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Document
from rag_app.documents.metadata import Target, to_source
from rag_app.documents.readers import read
from rag_app.domain.source import Visibility
from rag_app.retrieval.embedding import embed_texts
from rag_app.retrieval.store import searchable_text
from rag_app.stores.words import BLOCK, CHUNK

_DOCUMENTS = 32
"""A round of the end-to-end ingest; each is two passages long."""
_SHORT = 5_000
"""Short files, at most."""
_KNOWN = 500
"""Chunks a round where the embeddings are known."""

_GROW_WORDS = f"""
    WITH new AS MATERIALIZED (SELECT org_id, term, private_to, NULL::bigint AS first, posting FROM copied_words),
    growing AS MATERIALIZED (
        SELECT of.org_id, of.term, of.private_to, last.first, unnest(last.postings)
        FROM (SELECT DISTINCT org_id, term, private_to FROM new) of CROSS JOIN LATERAL (
            SELECT w.first, w.postings FROM copy_of_words w
            WHERE w.org_id = of.org_id AND w.term = of.term AND w.private_to IS NOT DISTINCT FROM of.private_to
            ORDER BY w.first DESC LIMIT 1) last
        WHERE cardinality(last.postings) < {BLOCK}),
    packed AS (
        SELECT org_id, term, coalesce(min(first), min(posting) >> {CHUNK}) AS first, private_to,
            array_agg(posting ORDER BY posting) AS postings
        FROM (SELECT *, (row_number() OVER (PARTITION BY org_id, term, private_to ORDER BY posting) - 1) / {BLOCK} AS block
              FROM (TABLE new UNION ALL TABLE growing) every) each
        GROUP BY org_id, term, private_to, block),
    emptied AS (DELETE FROM copied_words)
    INSERT INTO copy_of_words (org_id, term, first, private_to, postings)
    SELECT org_id, term, first, private_to, postings FROM packed ORDER BY org_id, term, first
    ON CONFLICT (org_id, term, first) DO UPDATE SET postings = excluded.postings"""
"""What a copy of `words` takes in, in rows of as many postings as the product's have."""


class Known(BaseEmbedding):
    """Gives vectors that were there before, whatever the text: it costs nothing."""

    vector: list[float]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self.vector

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return [self.vector] * len(texts)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._get_text_embeddings(texts)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.vector

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self.vector


async def known(report: Report, corpus: Corpus, ours: Ours, owner_dsn: str, questions: int) -> None:
    """The store's write, and a whole ingest without the embedding, beside COPY of the rows they wrote."""
    application = ours.application
    prefix, spec = await ours.prefix(), application.indexes[INDEX]
    organization = (await application.people.create_organization("bench-known", "Bench, embeddings known")).id
    owner = await _seeing(owner_dsn, [*ours.organizations, organization])
    model = application.embedder
    rates: dict[str, list[float]] = {"write": [], "ingest": [], "copy": []}
    try:
        with tempfile.TemporaryDirectory() as folder:
            clones = await _cloned(owner, prefix)
            for round_ in track(range(rounds(questions)), "ingest with embeddings known"):
                chunks = [(round_ * _KNOWN + n) % corpus.size for n in range(_KNOWN)]
                nodes = [corpus.node(chunk, organization) for chunk in chunks]
                for place, node in enumerate(nodes):  # of ids that are not in the tables yet
                    node.id_ = str(UUID(int=(1 << 102) + round_ * _KNOWN + place))
                    node.metadata["source_id"] = str(UUID(int=(1 << 103) + round_ * _KNOWN + place))
                store = await ours.store(organization)
                before = await owner.fetchval(f"SELECT max(no) FROM {prefix}_chunks")
                started = time.perf_counter()
                await store.write(nodes)
                rates["write"].append(_KNOWN / (time.perf_counter() - started))
                rows = await _written(owner, prefix, clones, before)
                started = time.perf_counter()
                async with owner.transaction():
                    for clone, columns, content in rows:
                        await owner.copy_to_table(clone, source=io.BytesIO(content), columns=columns, format="binary")
                    await owner.execute(_GROW_WORDS)
                rates["copy"].append(_KNOWN / (time.perf_counter() - started))

                file = Path(folder) / f"{round_}.jsonl"
                lines = [
                    {"id": f"{round_}-{n}", "title": corpus.title(c), "text": corpus.text(c)}
                    for n, c in enumerate(chunks)
                ]
                file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
                application.embedder = Known(model_name=model.model_name, vector=corpus.vectors[0].tolist())
                try:
                    ingestor = await application.ingestor(spec, Target(organization, None, None, Visibility.TEAM))
                    started = time.perf_counter()
                    summary = await ingestor.ingest([file], base=Path(folder))
                    rates["ingest"].append(summary.chunks / (time.perf_counter() - started))
                finally:
                    application.embedder = model
            for clone in (*(clone for clone, _ in clones.values()), "copy_of_words", "copied_words"):
                await owner.execute(f"DROP TABLE {clone}")
    finally:
        await owner.close()
    writes, ingests, copies = (median(rates[name]) for name in ("write", "ingest", "copy"))
    report.tables.append(
        Table(
            "Ingest, embeddings known",
            f"Chunks a second, in rounds of {_KNOWN} that take turns, with all the others in the tables. COPY: the same rows, "
            "ready made, into copies of the same tables with their indexes. Postings are copied beside, and one statement appends them to "
            "the rows of their terms. "
            "The whole ingest also reads, splits, hashes and keeps the ledger of sources.",
            ("COPY", "our store's write", "our whole ingest", "write / COPY", "ingest / COPY"),
            [(copies, writes, ingests, writes / copies, ingests / copies)],
        )
    )
    report.bounds.append(
        Bound("ingest, embeddings known", "COPY of the same rows", writes / copies, 0.85, at_most=False)
    )


async def whole(report: Report, corpus: Corpus, ours: Ours, questions: int) -> None:
    """A whole ingest beside the embedder alone on the same chunks."""
    application = ours.application
    spec = application.indexes[INDEX]
    organization = (await application.people.create_organization("bench-whole", "Bench, whole ingest")).id
    rates: dict[str, list[float]] = {"embedder": [], "ingest": []}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in track(range(rounds(questions)), "ingest, end to end"):
            file = Path(folder) / f"{round_}.jsonl"
            pairs = [(2 * (round_ * _DOCUMENTS + n)) % (corpus.size - 1) for n in range(_DOCUMENTS)]
            lines = [
                {
                    "id": f"{round_}-{n}",
                    "title": corpus.title(first),
                    "text": f"{corpus.text(first)} {corpus.text(first + 1)}",
                }
                for n, first in enumerate(pairs)
            ]
            file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
            target = Target(organization, None, None, Visibility.TEAM)
            texts = _texts(file, spec, target)
            ingestor = await application.ingestor(spec, target)
            for name in ("embedder", "ingest") if round_ % 2 else ("ingest", "embedder"):
                started = time.perf_counter()
                if name == "embedder":
                    await embed_texts(application.embedder, texts)
                else:
                    summary = await ingestor.ingest([file], base=Path(folder))
                    if summary.chunks != len(texts) or summary.failed:
                        raise RuntimeError(
                            f"ingest wrote {summary.chunks} of {len(texts)} chunks; failed: {summary.failed}"
                        )
                rates[name].append(len(texts) / (time.perf_counter() - started))
    alone, ingests = median(rates["embedder"]), median(rates["ingest"])
    report.tables.append(
        Table(
            "Ingest, end to end",
            f"Chunks a second, in rounds of {len(texts)} that take turns.",
            ("embedder alone", "our whole ingest", "ingest / embedder"),
            [(alone, ingests, ingests / alone)],
        )
    )
    report.bounds.append(Bound("ingest, end to end", "the embedder alone", ingests / alone, 0.85, at_most=False))


async def short(report: Report, corpus: Corpus, ours: Ours, questions: int) -> None:
    """A folder of short files beside the embedder alone on the same texts; then the same folder, unchanged."""
    application = ours.application
    spec = application.indexes[INDEX]
    organization = (await application.people.create_organization("bench-short", "Bench, short files")).id
    target = Target(organization, None, None, Visibility.TEAM)
    ingestor = await application.ingestor(spec, target)
    rates: dict[str, list[float]] = {"embedder": [], "ingest": [], "unchanged": []}
    sentences = corpus.fresh_questions()
    with tempfile.TemporaryDirectory() as within:
        for round_ in track(range(min(rounds(questions), _SHORT // 500)), "ingest of short files"):
            folder = Path(within) / str(round_)
            folder.mkdir()
            files = [folder / f"{n:05}.md" for n in range(500)]
            for n, file in enumerate(files):
                file.write_text(f"# Note {round_}-{n}\n\n{next(sentences, corpus.text(n % corpus.size))}\n", "utf-8")
            texts = [text for file in files for text in _texts(file, spec, target)]
            started = time.perf_counter()
            await embed_texts(application.embedder, texts)
            rates["embedder"].append(len(files) / (time.perf_counter() - started))
            for name in ("ingest", "unchanged"):
                started = time.perf_counter()
                summary = await ingestor.ingest([folder], base=Path(within))
                rates[name].append(len(files) / (time.perf_counter() - started))
                if (summary.added + summary.unchanged, summary.failed) != (len(files), []):
                    raise RuntimeError(f"ingest of short files: {summary}")
    alone, ingests, unchanged = (median(rates[name]) for name in ("embedder", "ingest", "unchanged"))
    report.tables.append(
        Table(
            "Ingest, short files",
            "Files a second, 500 a round: a title and a sentence each. Unchanged: the same folder once more.",
            ("embedder alone", "our whole ingest", "unchanged", "ingest / embedder"),
            [(alone, ingests, unchanged, ingests / alone)],
        )
    )
    report.bounds.append(Bound("ingest, short files", "the embedder alone", ingests / alone, 0.65, at_most=False))


def _texts(file: Path, spec: Any, target: Target) -> list[str]:
    """What an ingest of the file embeds."""
    chunker, found = Chunker(spec.chunking), []
    for document in read(file, file.name):
        if isinstance(document, Document):
            source = to_source(document, file.name, str(file), spec, target)
            found += [searchable_text(node) for node in chunker.split(source, document.passages)]
    return found


async def _seeing(dsn: str, organizations: Sequence[UUID]) -> asyncpg.Connection:
    """The owner, for whom row-level security is in force as well."""
    owner = await connect(dsn)
    await owner.execute(
        f"SELECT set_config('rag.organizations', '{{{','.join(map(str, organizations))}}}', false), "
        "set_config('rag.operator', 'on', false)"
    )
    return owner


async def _cloned(owner: asyncpg.Connection, prefix: str) -> dict[str, tuple[str, list[str]]]:
    """Copies, rows and indexes, of the generation's tables that have a row for a chunk; and the columns to write."""
    clones = {}
    for table in await tables(owner, prefix):
        columns = [
            row["attname"]
            for row in await owner.fetch(
                "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped "
                "AND attgenerated = '' ORDER BY attnum", table,
            )
        ]  # fmt: skip
        if "no" not in columns:
            continue  # words, below; sizes are a row for an organization
        clone, listed = f"copy_of_{table}", ", ".join(columns)
        await owner.execute(f"CREATE TABLE {clone} (LIKE {table} INCLUDING ALL)")
        await owner.execute(
            f"INSERT INTO {clone} ({listed}) OVERRIDING SYSTEM VALUE SELECT {listed} FROM {table}", timeout=7200
        )
        clones[table] = clone, columns
    await owner.execute(f"CREATE TABLE copy_of_words (LIKE {prefix}_words INCLUDING ALL) WITH (fillfactor = 85)")
    await owner.execute(f"INSERT INTO copy_of_words SELECT * FROM {prefix}_words", timeout=7200)
    await owner.execute(
        "CREATE UNLOGGED TABLE copied_words (org_id uuid, term integer, private_to uuid, posting bigint)"
    )
    return clones


async def _written(
    owner: asyncpg.Connection, prefix: str, clones: dict[str, tuple[str, list[str]]], before: int
) -> list[tuple[str, list[str], bytes]]:
    """The rows and postings of all chunks after `before`, as COPY takes them."""
    queries = {
        table: (clone, columns, f"SELECT {', '.join(columns)} FROM {table} WHERE no > {int(before)}")
        for table, (clone, columns) in clones.items()
    }
    queries["words"] = (
        "copied_words",
        ["org_id", "term", "private_to", "posting"],
        f"SELECT org_id, term, private_to, posting FROM {prefix}_words, unnest(postings) posting"
        f" WHERE posting >> {CHUNK} > {int(before)}",
    )
    rows = []
    for table, columns, query in queries.values():
        content = io.BytesIO()
        await owner.copy_from_query(query, output=content, format="binary")
        rows.append((table, columns, content.getvalue()))
    return rows
