"""Ingestion beside what it cannot do without: the embedder, and COPY into the same tables."""

import io
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

from bench.corpus import Corpus
from bench.figures import Bound, Report, Table, median, rounds
from bench.ours import INDEX, Ours, tables
from bench.progress import track
from bench.tables import connect
from rag_app.application import Application
from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Document
from rag_app.documents.metadata import Target, to_source
from rag_app.documents.readers import read
from rag_app.domain.source import Visibility
from rag_app.retrieval.embedding import embed_texts
from rag_app.retrieval.store import searchable_text
from rag_app.stores.words import BLOCK, CHUNK, COUNT

_DOCUMENTS = 32
"""A round of the end-to-end ingest; each is two passages long."""
_SHORT = 5_000
"""Short files, at most."""
_KNOWN = 500
"""Chunks a round where the embeddings are known."""
_KNOWN_ROUNDS = 8
_DELETED = 50
"""Chunks a deletion, one for each of the rounds."""

_READY = "SELECT org_id, term, private_to, posting FROM copied_words"
_MADE = f"""
    SELECT c.org_id, each.term, c.private_to, (c.no << {CHUNK}) | (each.tf << {COUNT}) | c.length
    FROM {{clone}} c CROSS JOIN LATERAL (
        SELECT term, sum(tf) AS tf FROM rag_terms(c.metadata->>'lang', c.metadata->>'title' || E'\\n' || c.text) GROUP BY term) each
    WHERE c.no > $1"""
_APPEND = f"""
    WITH posted (org_id, term, private_to, posting) AS ({{postings}}),
    new AS MATERIALIZED (
        SELECT org_id, term, private_to, array_agg(posting ORDER BY posting) AS postings
        FROM posted GROUP BY term, org_id, private_to),
    longer AS MATERIALIZED (
        SELECT n.org_id, n.term, n.private_to, last.place, coalesce(last.postings || n.postings, n.postings) AS postings,
            CASE WHEN last.place IS NULL THEN 1 ELSE {BLOCK + 1} END AS rest
        FROM new n LEFT JOIN LATERAL (
            SELECT w.ctid AS place, w.postings FROM {{words}} w
            WHERE w.org_id = n.org_id AND w.term = n.term AND w.private_to IS NOT DISTINCT FROM n.private_to
            ORDER BY w.first DESC LIMIT 1) last ON cardinality(last.postings) < {BLOCK}),
    grown AS (UPDATE {{words}} w SET postings = l.postings[:{BLOCK}] FROM longer l WHERE w.ctid = l.place)
    INSERT INTO {{words}} (org_id, term, first, private_to, postings)
    SELECT org_id, term, postings[start] >> {CHUNK}, private_to, postings[start:start + {BLOCK - 1}]
    FROM longer CROSS JOIN LATERAL generate_series(rest, cardinality(postings), {BLOCK}) AS start
    WHERE rest <= cardinality(postings) ORDER BY org_id, term, 3"""
"""Postings into the rows of their terms, as a search reads them: COPY can append to no row."""
_TERMS = "SELECT array_agg(DISTINCT term) FROM {chunks}, unnest(terms) AS term WHERE org_id = $1 AND no = ANY($2)"
_TAKE_OUT = (
    f"UPDATE {{words}} SET postings = ARRAY(SELECT each FROM unnest(postings) each WHERE each >> {CHUNK} <> ALL($2)) "
    "WHERE org_id = $1 AND term = ANY($3)"
)
_EMPTIED = "DELETE FROM {words} WHERE org_id = $1 AND term = ANY($2) AND cardinality(postings) = 0"


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


@dataclass(frozen=True, slots=True)
class ByHand:
    """Copies of a generation's tables, with its rows, indexes and foreign keys, into which rows are loaded by COPY.

    The policy of row-level security is on the table of words alone: PostgreSQL refuses COPY under one. With `words_ready` the postings are copied as
    well, ready made, and only appended to the rows of their terms; otherwise they are made of the texts that have been
    copied. The terms and the length of a chunk, its sign and its ids are ready made in both.
    """

    owner: asyncpg.Connection
    generation: str
    words_ready: bool
    columns: Mapping[str, Sequence[str]]

    @classmethod
    async def cloned(cls, owner: asyncpg.Connection, generation: str, *, words_ready: bool) -> "ByHand":
        columns = {table: await _columns(owner, table) for table in await tables(owner, generation)}
        hand = cls(owner, generation, words_ready, {t: names for t, names in columns.items() if "no" in names})
        for table in (*hand.columns, f"{generation}_words"):
            clone, listed = hand.clone(table), ", ".join(columns[table])
            filling = " WITH (fillfactor = 85)" if table == f"{generation}_words" else ""
            await owner.execute(f"CREATE TABLE {clone} (LIKE {table} INCLUDING ALL){filling}")
            await owner.execute(
                f"INSERT INTO {clone} ({listed}) OVERRIDING SYSTEM VALUE SELECT {listed} FROM {table}", timeout=7200
            )
            await owner.execute(f"VACUUM ANALYZE {clone}", timeout=600)
        chunks, vectors = hand.clone(f"{generation}_chunks"), hand.clone(f"{generation}_vectors")
        await owner.execute(f"ALTER TABLE {vectors} ADD FOREIGN KEY (no) REFERENCES {chunks} ON DELETE CASCADE")
        words = f"{generation}_words"
        policy = await owner.fetchval(
            "SELECT pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polrelid = $1::text::regclass", words
        )
        await owner.execute(
            f"ALTER TABLE {hand.clone(words)} ENABLE ROW LEVEL SECURITY; ALTER TABLE {hand.clone(words)} FORCE ROW LEVEL SECURITY;"
            f"CREATE POLICY tenant ON {hand.clone(words)} USING ({policy})"
        )
        await owner.execute(
            "CREATE UNLOGGED TABLE IF NOT EXISTS copied_words (org_id uuid, term integer, private_to uuid, posting bigint)"
        )
        return hand

    def clone(self, table: str) -> str:
        return f"{'ready' if self.words_ready else 'made'}_{table}"

    async def rows(self, after: int, most: int = 2**62) -> list[tuple[str, Sequence[str], bytes]]:
        """The rows of all chunks that the product has given numbers above `after`, up to `most`, as COPY takes them."""
        wanted = {
            self.clone(table): (
                columns,
                f"SELECT {', '.join(columns)} FROM {table} WHERE no > {after} AND no <= {most}",
            )
            for table, columns in self.columns.items()
        }
        if self.words_ready:
            wanted["copied_words"] = (
                ["org_id", "term", "private_to", "posting"],
                f"SELECT org_id, term, private_to, posting FROM {self.generation}_words, unnest(postings) posting"
                f" WHERE posting >> {CHUNK} > {after} AND posting >> {CHUNK} <= {most}",
            )
        found = []
        for table, (columns, query) in wanted.items():
            content = io.BytesIO()
            await self.owner.copy_from_query(query, output=content, format="binary")
            found.append((table, columns, content.getvalue()))
        return found

    async def load(self, rows: Sequence[tuple[str, Sequence[str], bytes]], after: int) -> float:
        """Seconds for these rows, in one transaction."""
        started = time.perf_counter()
        words = self.clone(f"{self.generation}_words")
        async with self.owner.transaction():
            for table, columns, content in rows:
                await self.owner.copy_to_table(table, source=io.BytesIO(content), columns=columns, format="binary")
            if self.words_ready:
                await self.owner.execute(_APPEND.format(postings=_READY, words=words))
                await self.owner.execute("TRUNCATE copied_words")
            else:
                made = _MADE.format(clone=self.clone(f"{self.generation}_chunks"))
                await self.owner.execute(_APPEND.format(postings=made, words=words), after)
        return time.perf_counter() - started

    async def delete(self, organization: UUID, numbers: Sequence[int]) -> float:
        """Seconds to take chunks out by their numbers, in one transaction, and their postings out of the rows of their terms."""
        started = time.perf_counter()
        chunks, words = self.clone(f"{self.generation}_chunks"), self.clone(f"{self.generation}_words")
        async with self.owner.transaction():
            terms = await self.owner.fetchval(_TERMS.format(chunks=chunks), organization, numbers)
            await self.owner.execute(_TAKE_OUT.format(words=words), organization, numbers, terms)
            await self.owner.execute(_EMPTIED.format(words=words), organization, terms)
            for table in self.columns:
                await self.owner.execute(
                    f"DELETE FROM {self.clone(table)} WHERE org_id = $1 AND no = ANY($2)", organization, numbers
                )
        return time.perf_counter() - started

    async def drop(self) -> None:
        for table in reversed((*self.columns, f"{self.generation}_words")):
            await self.owner.execute(f"DROP TABLE {self.clone(table)} CASCADE")
        await self.owner.execute("DROP TABLE IF EXISTS copied_words")


async def known(report: Report, corpus: Corpus, ours: Ours, owner_dsn: str, questions: int) -> None:
    """The store's write, and a whole ingest without the embedding, beside COPY of the rows they wrote.

    The bound is read on COPY that makes the words of the texts itself. The embeddings are what is known; the terms of a
    text are made of it while it is loaded, by whoever loads it, as in a table with a generated `tsvector` column.
    """
    application = ours.application
    prefix = await ours.prefix()
    organization = (await application.people.create_organization("bench-known", "Bench, embeddings known")).id
    owner = await see(owner_dsn, [*ours.organizations, organization])
    rates: dict[str, list[float]] = {"write": [], "ingest": [], "made": [], "ready": [], "deleted": [], "by hand": []}
    written: list[tuple[list[TextNode], int]] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            hands = {
                "made": await ByHand.cloned(owner, prefix, words_ready=False),
                "ready": await ByHand.cloned(owner, prefix, words_ready=True),
            }
            for round_ in track(range(_KNOWN_ROUNDS), "ingest with embeddings known"):
                chunks = [(round_ * _KNOWN + n) % corpus.size for n in range(_KNOWN)]
                nodes, store = new_nodes(corpus, chunks, organization, round_ * _KNOWN), await ours.store(organization)
                before = await owner.fetchval(f"SELECT max(no) FROM {prefix}_chunks")
                started = time.perf_counter()
                await store.write(nodes)
                rates["write"].append(_KNOWN / (time.perf_counter() - started))
                written.append((nodes[:_DELETED], before))
                for name, hand in hands.items() if round_ % 2 else reversed(hands.items()):
                    rates[name].append(_KNOWN / await hand.load(await hand.rows(before), before))
                if round_ < rounds(questions):
                    file = _write_lines(Path(folder) / f"{round_}.jsonl", corpus, chunks)
                    rates["ingest"].append(await _ingest_known(application, organization, file, corpus))
            for nodes, before in track(written, "deletions"):
                started = time.perf_counter()
                await store.write([], replacing=[UUID(node.metadata["source_id"]) for node in nodes])
                rates["deleted"].append(_DELETED / (time.perf_counter() - started))
                numbers = list(range(before + 1, before + 1 + _DELETED))
                rates["by hand"].append(_DELETED / await hands["ready"].delete(organization, numbers))
            for hand in hands.values():
                await hand.drop()
    finally:
        await owner.close()
    deleted, by_hand = median(rates["deleted"]), median(rates["by hand"])
    report.tables.append(
        Table(
            "Deletion",
            f"Chunks a second, {_DELETED} at once, in turns. By hand: the same rows out of copies of the same tables, and the "
            "postings out of the rows of their terms. Ours also counts, and joins rows that have become short.",
            ("ours", "by hand", "ours / by hand"),
            [(deleted, by_hand, deleted / by_hand)],
        )
    )
    writes, ingests, made, ready = (median(rates[name]) for name in ("write", "ingest", "made", "ready"))
    report.tables.append(
        Table(
            "Ingest, embeddings known",
            f"Chunks a second, in rounds of {_KNOWN} that take turns, with all the others in the tables. COPY: the same rows "
            "into copies of the same tables with their indexes and foreign keys; one statement appends the postings to the rows of "
            "their terms. It makes them of the copied texts, or they are copied as well, ready made. "
            "The whole ingest also reads, splits, hashes and keeps the ledger of sources.",
            ("", "chunks a second", "our store's write / it", "our whole ingest / it"),
            [
                ("our store's write", writes, 1.0, ingests / writes),
                ("our whole ingest", ingests, writes / ingests, 1.0),
                ("COPY, words made of the texts", made, writes / made, ingests / made),
                ("COPY, words ready made", ready, writes / ready, ingests / ready),
            ],
        )
    )
    report.bounds.append(
        Bound("ingest, embeddings known", "COPY of the same rows, words made", writes / made, 0.85, at_most=False)
    )


def new_nodes(corpus: Corpus, chunks: Sequence[int], organization: UUID, first: int) -> list[TextNode]:
    """These chunks with ids that are not in the tables yet, counted from `first`."""
    nodes = [corpus.node(chunk, organization) for chunk in chunks]
    for place, node in enumerate(nodes, first):
        node.id_ = str(UUID(int=(1 << 102) + place))
        node.metadata["source_id"] = str(UUID(int=(1 << 103) + place))
    return nodes


def _write_lines(file: Path, corpus: Corpus, chunks: Sequence[int]) -> Path:
    """A document a line, for each of these chunks."""
    lines = [
        {"id": f"{file.stem}-{n}", "title": corpus.title(chunk), "text": corpus.text(chunk)}
        for n, chunk in enumerate(chunks)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file


async def _ingest_known(application: Application, organization: UUID, file: Path, corpus: Corpus) -> float:
    """Chunks a second of a whole ingest that does not wait for the model."""
    model = application.embedder
    application.embedder = Known(model_name=model.model_name, vector=corpus.vectors[0].tolist())
    try:
        target = Target(organization, None, None, Visibility.TEAM)
        ingestor = await application.ingestor(application.indexes[INDEX], target)
        started = time.perf_counter()
        summary = await ingestor.ingest([file], base=file.parent)
        return summary.chunks / (time.perf_counter() - started)
    finally:
        application.embedder = model


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


async def see(dsn: str, organizations: Sequence[UUID]) -> asyncpg.Connection:
    """The owner, for whom row-level security is in force as well."""
    owner = await connect(dsn)
    await owner.execute(
        f"SELECT set_config('rag.organizations', '{{{','.join(map(str, organizations))}}}', false), "
        "set_config('rag.operator', 'on', false)"
    )
    return owner


async def _columns(owner: asyncpg.Connection, table: str) -> list[str]:
    """Those that are written."""
    found = await owner.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped "
        "AND attgenerated = '' ORDER BY attnum", table,
    )  # fmt: skip
    return [row["attname"] for row in found]
