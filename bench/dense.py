"""Dense search with a tenant filter: latency and recall@10, the contestants asked in turn, question by question."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from bench.corpus import ALL, SHARES, Corpus, chunk_number
from bench.figures import Bound, Report, Table, Timing, fastest, number, recall
from bench.ours import Ours
from bench.progress import track
from bench.stock import Stock
from bench.tables import ByHand
from rag_app.domain.answer import Mode

TENANTS = (*SHARES, ALL)
SMALL = 10_000
"""Chunks up to which an organization is promised the higher recall."""
AUTHOR = 7

Contestant = Callable[[str, np.ndarray[Any, Any], list[float]], Awaitable[list[int]]]
"""A question's text and vector (as numpy and as LlamaIndex want it) to the chunks found, best first."""


@dataclass(slots=True)
class Found:
    """What one contestant did in one case."""

    times: list[float] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)
    short: int = 0

    @property
    def timing(self) -> Timing:
        return Timing(tuple(self.times))

    @property
    def recall(self) -> float:
        return float(np.mean(self.recalls))


async def race(
    corpus: Corpus, rows: npt.NDArray[np.int64], contestants: Mapping[str, Contestant], questions: int
) -> dict[str, Found]:
    """Ask everybody the same questions in turn, each beginning one further in the row; the first rounds warm up."""
    found = {name: Found() for name in contestants}
    names = list(contestants)
    vectors = corpus.vectors[rows]
    for round_ in range(-3, questions):
        place = round_ % len(corpus.questions)
        text, vector = corpus.questions[place], corpus.question_vectors[place]
        similar = vectors @ vector
        exact = [int(rows[each]) for each in np.argsort(-similar, kind="stable")[:10]]
        as_list = vector.tolist()
        for turn in range(len(names)):
            name = names[(round_ + turn) % len(names)]
            started = time.perf_counter()
            chunks = await contestants[name](text, vector, as_list)
            elapsed = 1000 * (time.perf_counter() - started)
            if round_ >= 0:
                found[name].times.append(elapsed)
                found[name].recalls.append(recall(chunks, exact))
                found[name].short += len(chunks) < len(exact)
    return found


def ours_for(ours: Ours, tenant: str, author: str | None) -> Contestant:
    async def ask(text: str, _: object, vector: list[float]) -> list[int]:
        found = await ours.retrieve(tenant, text, vector, Mode.DENSE, author=author)
        return [chunk_number(node.node.node_id) for node in found]

    return ask


def stock_for(stock: Stock, organization: UUID | None, author: str | None) -> Contestant:
    from llama_index.core.schema import QueryBundle

    async def ask(text: str, _: object, vector: list[float]) -> list[int]:
        found = await stock.retriever(organization, author, 10).aretrieve(QueryBundle(text, embedding=vector))
        return [chunk_number(node.node.node_id) for node in found]

    return ask


def by_hand_for(prepared: Callable[[Any], Awaitable[list[UUID]]]) -> Contestant:
    async def ask(_: str, vector: object, __: object) -> list[int]:
        return [chunk_number(each) for each in await prepared(vector)]

    return ask


async def measure(
    report: Report,
    corpus: Corpus,
    ours: Ours,
    by_hand: ByHand,
    stock: Stock,
    qdrant: Stock,
    held: Sequence[int],
    questions: int,
) -> dict[str, Timing]:
    """The tables and bounds of dense search; our timings by tenant. `held`: the chunks that the stock Qdrant holds."""
    rows: list[tuple[str | float, ...]] = []
    every: list[tuple[str | float, ...]] = []
    timings: dict[str, Timing] = {}
    cases = [(tenant, author) for author in (None, AUTHOR) for tenant in TENANTS]
    for tenant, number_ in track(cases, "dense search"):
        author = None if number_ is None else f"author {number_}"
        chunks = corpus.rows(tenant, author=number_)
        if not len(chunks):
            continue
        organization = None if tenant == ALL else ours.organizations[TENANTS.index(tenant)]
        everybody = list(ours.organizations) if organization is None else [organization]
        prepared = await by_hand.prepared(everybody, author)
        contestants = {
            "ours": ours_for(ours, tenant, author),
            **{way: by_hand_for(ask) for way, ask in prepared.items()},
            "stock PGVectorStore": stock_for(stock, organization, author),
        }
        found = await race(corpus, chunks, contestants, questions)
        local = np.intersect1d(chunks, np.asarray(held))
        slow = (
            await race(corpus, local, {"q": stock_for(qdrant, organization, author)}, min(questions, 10))
            if len(local)
            else {}
        )
        case = tenant if author is None else f"{tenant}, and a filter that leaves 1 %"
        least = 0.99 if len(chunks) <= SMALL else 0.95
        best = fastest(
            {way: found[way].timing for way in by_hand.ways}, {way: found[way].recall for way in by_hand.ways}, least,
            short=[way for way in by_hand.ways if found[way].short],
        )  # fmt: skip
        mine, reference, theirs = found["ours"], found[best], found["stock PGVectorStore"]
        timings[case] = mine.timing
        rows.append((
            case, str(len(chunks)), _shown(mine), f"{best}: {_shown(reference)}", _shown(theirs),
            *(_shown(each) for each in slow.values()), *(["-"] if not slow else []),
            mine.timing.p50 / reference.timing.p50, mine.timing.p95 / reference.timing.p95,
            theirs.timing.p50 / reference.timing.p50,
        ))  # fmt: skip
        every.append((case, *(_shown(found[way]) for way in by_hand.ways)))
        what = f"dense, {case}"
        report.bounds += [
            Bound(f"{what}: p50", f"by hand ({best})", mine.timing.p50 / reference.timing.p50, 1.5),
            Bound(f"{what}: p95", f"by hand ({best})", mine.timing.p95 / reference.timing.p95, 1.5),
            Bound(f"{what}: recall@10", "exact search", mine.recall, least, at_most=False),
            Bound(f"{what}: answers with too few rows", "exact search", float(mine.short), 0.0),
        ]
    report.tables += [
        Table(
            f"Dense search over {corpus.size} chunks",
            "p50 / p95 in ms, recall@10 against exact search, and in how many of the questions fewer than ten rows came "
            "although there are more. Texts and metadata are fetched on all sides. By hand: the fastest of the ways in the "
            f"next table whose recall suffices. Qdrant in local mode (in memory, brute force in Python) over {len(held)} chunks.",
            ("organization with", "chunks", "ours", "best by hand", "stock PGVectorStore", "stock QdrantVectorStore, local",
             "ours / hand, p50", "p95", "stock / hand, p50"),
            rows,
        ),
        Table("Dense search by hand", "Narrow table, signs re-ranked, HNSW with iterative scan.", ("organization with", *by_hand.ways), every),
    ]  # fmt: skip
    return timings


async def grown(corpus: Corpus, ours: Ours, chunks: Sequence[int], questions: int) -> dict[str, Timing]:
    """Ours alone, where only `chunks` are in the store."""
    there = np.asarray(chunks)
    timings = {}
    for tenant in track(("50 %", "10 %", "1 %", ALL), f"dense search over {len(chunks)} chunks"):
        rows = np.intersect1d(corpus.rows(tenant), there)
        found = await race(corpus, rows, {"ours": ours_for(ours, tenant, None)}, questions)
        timings[tenant] = found["ours"].timing
    return timings


def _shown(found: Found) -> str:
    short = f", {found.short} short" if found.short else ""
    return f"{found.timing}, {number(found.recall)}{short}"
