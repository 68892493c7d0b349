"""`python -m bench.bulk [CHUNKS]`: a bulk load beside COPY into the finished indexes, graph included.

Ours: a new generation, as `rag-app indexes rebuild` fills it. The chunks of one organization are written in batches, their
vectors known, and the graph is built at the end. By hand: COPY of the same rows in the same batches into copies of the same
tables, all of whose indexes stand; the words are made of the copied texts. The organization is in the graph on both sides.
The bound is on chunks a second. Processor time, of PostgreSQL and the client together, differs less: several workers of
PostgreSQL build a graph at once.
"""

import asyncio
import io
import os
import sys
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.corpus import Corpus, load
from bench.ingest import ByHand, new_nodes, see
from bench.ours import BATCH, INDEX
from bench.progress import say, track
from bench.statistics import cpu_ms
from rag_app.application import Application, open_application
from rag_app.database.urls import DatabaseUrls, database_urls
from rag_app.domain.scope import Scope
from rag_app.settings import Settings
from rag_app.stores import postgres, postgres_tables

CHUNKS = 40_000
"""So many that all of an organization's are in the graph in the end. With fewer, smaller organizations are in it."""
LEAST = 2.0
"""COPY's time in ours."""


@dataclass(slots=True)
class Spent:
    """Seconds by the clock, and of processor time, on what was added."""

    seconds: float = 0.0
    processor: float = 0.0

    async def add(self, work: Awaitable[object]) -> None:
        home = Path(os.environ["RAG_HOME"])
        started, used = time.perf_counter(), time.process_time() + cpu_ms(home) / 1000
        await work
        self.seconds += time.perf_counter() - started
        self.processor += time.process_time() + cpu_ms(home) / 1000 - used


async def measure(application: Application, corpus: Corpus, owner_url: str, chunks: int) -> float:
    """COPY's time in ours, by the clock."""
    spec = application.indexes[INDEX]
    organization = (await application.people.create_organization("bench-bulk", "Bench, bulk load")).id
    owner = await see(owner_url.replace("+asyncpg", ""), [organization])
    generation = await application.backends.begin(spec, application.embedder.model_name, application.dimension)
    hand = await ByHand.cloned(owner, generation.table_prefix, words_ready=False)
    store = application.backends.scoped(spec, generation, Scope(frozenset({organization})))
    ours, copied, edges = Spent(), Spent(), [0]
    try:
        await application.backends.begin_load(generation)
        for first in track(range(0, chunks, BATCH), "ours"):
            batch = range(first, min(first + BATCH, chunks))
            await ours.add(store.write(new_nodes(corpus, batch, organization, first)))
            edges.append(await owner.fetchval(f"SELECT max(no) FROM {generation.table_prefix}_chunks"))
        await ours.add(application.backends.finish_load(generation))
        for after, most in track(list(pairwise(edges)), "COPY"):
            rows = [each for each in await hand.rows(after, most) if not each[0].endswith("_graph")]
            await copied.add(hand.load([*rows, await _graph_rows(hand, after, most)], after))
        held = await owner.fetch(
            f"SELECT (SELECT count(*) FROM {generation.table_prefix}_graph) AS ours, "
            f"(SELECT count(*) FROM {hand.clone(f'{generation.table_prefix}_graph')}) AS copied"
        )
    finally:
        await owner.close()
        await application.backends.drop(generation)
    say(f"{chunks} chunks, in the graph: {held[0]['ours']} and {held[0]['copied']}")
    for name, spent in (("ours", ours), ("COPY", copied)):
        rate, processor = chunks / spent.seconds, spent.processor
        say(f"{name}: {spent.seconds:.1f} s, {rate:.0f} chunks a second; processor time {processor:.1f} s")
    ratio = copied.seconds / ours.seconds
    say(f"COPY / ours: {ratio:.2f} by the clock, {copied.processor / ours.processor:.2f} by processor time")
    return ratio


async def _graph_rows(hand: ByHand, after: int, most: int) -> tuple[str, list[str], bytes]:
    """All rows of the graph for these chunks, at once: the product adds them when the organization has become large."""
    columns, content = ["org_id", "no", "private_to", "embedding"], io.BytesIO()
    query = f"""SELECT org_id, no, private_to, embedding::halfvec FROM {hand.generation}_vectors
        WHERE no > {after} AND no <= {most}"""
    await hand.owner.copy_from_query(query, output=content, format="binary")
    return hand.clone(f"{hand.generation}_graph"), columns, content.getvalue()


async def run(urls: DatabaseUrls, chunks: int) -> int:
    least = min(postgres_tables.GRAPHED, chunks // 2)
    postgres.GRAPHED = postgres_tables.GRAPHED = least  # type: ignore[attr-defined]
    corpus = load(chunks)
    async with open_application(Settings(), urls) as application:
        return 0 if await measure(application, corpus, urls.owner or urls.app, chunks) >= LEAST else 1


def main() -> int:
    chunks = int(sys.argv[1]) if len(sys.argv) > 1 else CHUNKS
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        os.environ |= {"RAG_HOME": home, "RAG_VECTOR_STORE": "postgres", "RAG_LOG_LEVEL": "warning"}
        with database_urls(Settings()) as urls:
            return asyncio.run(run(urls, chunks))


if __name__ == "__main__":
    sys.exit(main())
