"""`python -m bench`: everything of one run, its report, and an exit code that says whether all bounds held."""

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench import dense, ingest, lexical, parts, serving, starts
from bench.corpus import ALL, CACHE, NOISE, ROOT, Corpus, load
from bench.figures import Report, Table, machine
from bench.ours import Ours
from bench.progress import say
from bench.stock import Stock, fill_postgres, postgres_store, qdrant_store
from bench.tables import ByHand, fill
from rag_app.application import open_application
from rag_app.database import private
from rag_app.database.migrate import upgrade
from rag_app.database.urls import DatabaseUrls
from rag_app.domain.resources import resource_folder
from rag_app.settings import Settings

STANDARD_SIZE = 100_000
SHARED_BUFFERS = "2GB"


def main() -> int:
    size = int(os.environ.get("BENCH_SIZE") or STANDARD_SIZE)
    questions = int(os.environ.get("BENCH_QUERIES") or (100 if size >= STANDARD_SIZE else 20))
    logging.getLogger("rag_app").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended, and removed
    started = time.monotonic()
    corpus = load(size)
    report = Report(_conditions(corpus, questions))
    home = Path(tempfile.mkdtemp(prefix="rag-bench-"))
    # The contestants' tables lie side by side and would push each other out; a deployment has those of one.
    private._SETTINGS["shared_buffers"] = SHARED_BUFFERS
    try:
        home.chmod(0o755)
        with private.private_postgres(home / "postgres") as server:
            upgrade(server.owner_url, server.app_url, resource_folder("migrations"))
            os.environ |= {
                "RAG_HOME": str(home), "RAG_DATABASE_URL": server.app_url, "RAG_DATABASE_OWNER_URL": server.owner_url,
                "RAG_VECTOR_STORE": "postgres", "RAG_LOG_LEVEL": "warning", "RAG_JWT_SECRET": serving.SECRET,
            }  # fmt: skip
            asyncio.run(_measure(report, corpus, server.app_url, server.owner_url, questions))
    except BaseException:
        report.write(CACHE)  # what there is
        raise
    finally:
        cluster = home / "postgres" / "cluster"
        shutil.rmtree(cluster.resolve(), ignore_errors=True)  # may lie outside of the folder
        shutil.rmtree(home, ignore_errors=True)
    folder = ROOT / "bench" if size >= STANDARD_SIZE else CACHE
    report.write(folder)
    sys.stdout.write(report.markdown())
    say(f"written to {folder}/results.md and results.json, after {(time.monotonic() - started) / 60:.0f} minutes")
    for bound in report.missed:
        say(f"missed: {bound}, against {bound.against}")
    return 1 if report.missed else 0


async def _measure(report: Report, corpus: Corpus, app_url: str, owner_url: str, questions: int) -> None:
    owner = owner_url.replace("+asyncpg", "")
    first = _first_tenth(corpus)
    rest = np.setdiff1d(np.arange(corpus.size), first)
    async with open_application(Settings(), DatabaseUrls(app_url, owner_url, private=True)) as application:
        ours = await Ours.with_organizations(application)
        seconds = {len(first): await ours.write(corpus, first.tolist())}
        await ours.vacuum(owner)
        small = await dense.grown(corpus, ours, first.tolist(), questions)
        seconds[corpus.size] = await ours.write(corpus, rest.tolist())
        await ours.vacuum(owner)
        await fill(owner, corpus, ours.organizations)
        await fill_postgres(owner_url, corpus, ours.organizations)
        await serving.measure(report, corpus, ours, owner_url, questions)
        held = first if corpus.size > 10_000 else np.arange(corpus.size)
        stock = Stock(postgres_store(owner_url), application.embedder)
        qdrant = Stock(await qdrant_store(corpus, ours.organizations, held[:10_000].tolist()), application.embedder)
        by_hand = await ByHand.opened(owner)
        large = await dense.measure(report, corpus, ours, by_hand, stock, qdrant, held[:10_000].tolist(), questions)
        await by_hand.close()
        await lexical.measure(report, corpus, ours, owner, questions)
        await parts.measure(report, corpus, ours, questions)
        await parts.processor(report, corpus, ours, questions)
        # last: what these write is in nobody else's tables
        await ingest.whole(report, corpus, ours, questions)
        await ingest.short(report, corpus, ours, questions)
        await ingest.known(report, corpus, ours, owner, questions)
    rates = {len(first): len(first) / seconds[len(first)], corpus.size: len(rest) / seconds[corpus.size]}
    report.tables.append(
        Table(
            "Growth",
            "Ours, dense search, p50 / p95 in ms; chunks a second that the store writes, embeddings known.",
            ("chunks", "organization with 50 %", "10 %", "1 %", ALL, "written a second"),
            [
                (str(count), *(str(timings[tenant]) for tenant in ("50 %", "10 %", "1 %", ALL)), rates[count])
                for count, timings in ((len(first), small), (corpus.size, large))
            ],
        )
    )
    report.bounds += starts.measure()


def _first_tenth(corpus: Corpus) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """A tenth of every organization's chunks, at least one."""
    groups = [np.nonzero(corpus.organization == each)[0] for each in np.unique(corpus.organization)]
    return np.sort(np.concatenate([group[: max(1, len(group) // 10)] for group in groups]))


def _conditions(corpus: Corpus, questions: int) -> dict[str, str]:
    return {
        "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        **machine(),
        "PostgreSQL": f"private, shared_buffers {SHARED_BUFFERS}, so that the contestants do not push each other out",
        "corpus": f"{corpus.size} chunks spread from {corpus.sources}: each one a passage's vector with Gaussian noise of "
        f"{NOISE}/sqrt(384) in each dimension, normalised, and its text with one sentence of another passage",
        "questions": f"{questions} a case, of {len(corpus.questions)} real ones; contestants are asked in turn, question by question",
    }


if __name__ == "__main__":
    sys.exit(main())
