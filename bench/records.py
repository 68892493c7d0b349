"""Questions about 100,000 records: the planner's queries beside the same SQL by hand. `python -m bench.records`

Both run over the same table of one organization, in turn, as the application's role; by hand without row-level security's
settings in the statement, which is told who asks once.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from uuid import uuid4

import asyncpg
import numpy as np
from llama_index.core.schema import TextNode

from rag_app.database.session import Database
from rag_app.database.urls import DatabaseUrls, database_urls
from rag_app.domain import Scope
from rag_app.retrieval.filters import condition
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.records import Aggregate, RecordQuery
from rag_app.settings import Settings
from rag_app.stores.postgres import PostgresBackend

RECORDS, BATCH, ROUNDS = 100_000, 5_000, 15
SPEC = IndexSpec.model_validate(
    {
        "name": "sold",
        "source_types": ("row",),
        "default_source_type": "row",
        "fields": {"seller": "keyword", "price": "number", "paid": "boolean"},
    }
)
HALF = (condition("paid", "==", True),)
FOUND = "SELECT source_id, min(x_price) AS price, min(x_seller) AS seller FROM {t} WHERE org_id = $1 {where} GROUP BY 1"
CASES = {
    "count": (RecordQuery(HALF, aggregate=Aggregate.COUNT), "SELECT count(*) FROM ({half}) f"),
    "sum": (RecordQuery(HALF, aggregate=Aggregate.SUM, of="price"), "SELECT count(*), sum(price) FROM ({half}) f"),
    "first five": (
        RecordQuery(order="price"),
        "WITH f AS MATERIALIZED ({all}) SELECT *, (SELECT count(*) FROM f) FROM f ORDER BY price DESC LIMIT 5",
    ),
    "by group": (
        RecordQuery(aggregate=Aggregate.SUM, of="price", group="seller", limit=24),
        "SELECT seller, sum(price), count(*) FROM ({all}) f GROUP BY seller ORDER BY 2 DESC LIMIT 24",
    ),
}


def rows(org: str, count: int) -> list[TextNode]:
    chosen, made = np.random.default_rng(7), list[TextNode]()
    for number in range(count):
        meta = {
            "org_id": org, "source_id": str(uuid4()), "title": "", "source_type": "row", "lang": "en", "position": 0,
            "date": float(number), "seller": f"seller {chosen.integers(40)}", "price": int(chosen.integers(1, 9999)) / 100,
            "paid": bool(chosen.random() < 0.5),
        }  # fmt: skip
        made.append(TextNode(id_=str(uuid4()), text="sold", embedding=[1.0, number / count], metadata=meta))
    return made


async def measure(urls: DatabaseUrls) -> int:
    owner = urls.owner or urls.app
    database, org, generation = Database(urls.app), uuid4(), f"g_bench_{uuid4().hex[:8]}"
    backend = PostgresBackend(database)
    await backend.create(owner, SPEC, generation, 2)
    store = backend.scoped(SPEC, generation, Scope(frozenset({org})))
    for _ in range(RECORDS // BATCH):
        await store.write(rows(str(org), BATCH))
    hand = await asyncpg.connect(urls.app.replace("+asyncpg", ""))
    await hand.execute(f"SET rag.organizations = '{{{org}}}'; SET rag.audiences = '{{}}'")
    worst = 0.0
    sys.stdout.write(
        f"{'':12} {'by hand':>9} {'planner':>9} {'ratio':>6}   ms, median of {ROUNDS}, {RECORDS} records\n"
    )
    try:
        for name, (query, by_hand) in CASES.items():
            table = f"{generation}_signs"
            parts = {key: FOUND.format(t=table, where=where) for key, where in (("all", ""), ("half", "AND x_paid"))}
            sql, times = by_hand.format(**parts), (list[float](), list[float]())
            for _ in range(ROUNDS):
                started = perf_counter()
                await hand.fetch(sql, org)
                times[0].append(perf_counter() - started)
                started = perf_counter()
                await store.find_records(query)
                times[1].append(perf_counter() - started)
            one, other = (1000 * median(each) for each in times)
            worst = max(worst, other / one)
            sys.stdout.write(f"{name:12} {one:9.1f} {other:9.1f} {other / one:6.2f}\n")
    finally:
        await hand.close()
        await backend.drop(owner, generation)
        await backend.close()
        await database.close()
    return 0 if worst <= 2 else 1


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        os.environ.setdefault("RAG_HOME", home)
        with database_urls(Settings()) as urls:
            return asyncio.run(measure(urls))


if __name__ == "__main__":
    sys.exit(main())
