"""The BM25 leg: latency beside arrays of postings by hand, and whether its top ten are those of exact BM25."""

import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

import asyncpg

from bench import tables
from bench.corpus import ALL, Corpus
from bench.dense import TENANTS
from bench.figures import Bound, Report, Table, Timing
from bench.ours import Ours
from bench.progress import track
from bench.tables import K1, B
from rag_app.domain.answer import Mode

_JUDGED = 20
"""Questions of each case that exact BM25 is computed for."""
_SAME = 1e-9
"""Relative difference of two scores that were added up in another order."""
_EXACT = (
    "CREATE TABLE hand_lexemes AS SELECT id, org_id, to_tsvector('english', title || E'\\n' || text) AS lexemes FROM hand_texts",
    "CREATE INDEX ON hand_lexemes (org_id)",
    "VACUUM ANALYZE hand_lexemes",
)
_MATCHING = """
    SELECT id, array_agg(lexeme) AS lexemes, array_agg(tf) AS tfs, max(length) AS length FROM (
        SELECT h.id, each.lexeme, cardinality(each.positions) AS tf, sum(cardinality(each.positions)) OVER (PARTITION BY h.id) AS length
        FROM hand_lexemes h, LATERAL unnest(h.lexemes) each WHERE h.org_id = ANY($1) AND h.lexemes @@ $2::text::tsquery) all_of_them
    WHERE lexeme = ANY($3) GROUP BY id"""
_COUNTED = """
    SELECT count(*), coalesce(sum((SELECT sum(cardinality(each.positions)) FROM unnest(h.lexemes) each)), 0)
    FROM hand_lexemes h WHERE h.org_id = ANY($1)"""


async def measure(report: Report, corpus: Corpus, ours: Ours, owner_dsn: str, questions: int) -> None:
    owner = await tables.connect(owner_dsn)
    try:
        for statement in track(_EXACT, "lexemes for exact BM25"):
            await owner.execute(statement, timeout=7200)
        rows: list[tuple[str | float, ...]] = []
        for tenant in track(TENANTS, "BM25"):
            everybody = list(ours.organizations) if tenant == ALL else [ours.organizations[TENANTS.index(tenant)]]
            mine, by_hand, agreement = await _race(corpus, ours, owner, tenant, everybody, questions)
            rows.append((tenant, str(mine), str(by_hand), mine.p50 / by_hand.p50, agreement))
            report.bounds += [
                Bound(f"BM25, {tenant}: p50", "arrays by hand", mine.p50 / by_hand.p50, 1.5),
                Bound(f"BM25, {tenant}: agreement of the top ten", "exact BM25", agreement, 0.98, at_most=False),
            ]
        report.tables.append(
            Table(
                f"BM25 over {corpus.size} chunks",
                "p50 / p95 in ms, texts fetched on both sides. Agreement: the share of our ten that are among the ten best of BM25 "
                "computed here from PostgreSQL's lexemes; equal scores are equally good.",
                ("organization with", "ours", "arrays by hand", "ours / hand, p50", "agreement"),
                rows,
            )
        )
    finally:
        await owner.close()


async def _race(
    corpus: Corpus, ours: Ours, owner: asyncpg.Connection, tenant: str, everybody: list[UUID],
    questions: int,
) -> tuple[Timing, Timing, float]:  # fmt: skip
    times: dict[str, list[float]] = {"ours": [], "by hand": []}
    agreements: list[float] = []
    for round_ in range(-3, questions):
        place = round_ % len(corpus.questions)
        text, vector = corpus.questions[place], corpus.question_vectors[place].tolist()

        async def ask_ours(text: str = text, vector: list[float] = vector) -> list[UUID]:
            return [UUID(each.node.node_id) for each in await ours.retrieve(tenant, text, vector, Mode.TEXT)]

        async def ask_by_hand(text: str = text) -> list[UUID]:
            return [row["id"] for row in await tables.bm25(owner, text, everybody)]

        contestants: list[tuple[str, Callable[[], Awaitable[list[UUID]]]]] = [
            ("ours", ask_ours),
            ("by hand", ask_by_hand),
        ]
        found: dict[str, list[UUID]] = {}
        for name, ask in contestants if round_ % 2 else reversed(contestants):
            started = time.perf_counter()
            found[name] = await ask()
            if round_ >= 0:
                times[name].append(1000 * (time.perf_counter() - started))
        if 0 <= round_ < _JUDGED:
            scores = await _exact(owner, text, everybody)
            agreements.append(agreement(found["ours"], scores))
    return Timing(tuple(times["ours"])), Timing(tuple(times["by hand"])), sum(agreements) / len(agreements)


def agreement(found: list[UUID], scores: Mapping[UUID, float]) -> float:
    """The share of the ten best (or of all, where there are fewer) that was found, by score.

    >>> a, b, c = (UUID(int=n) for n in range(3))
    >>> agreement([a, b, c], {a: 2.0, b: 1.0, c: 1.0}), agreement([a], {a: 2.0, b: 1.0})
    (1.0, 0.5)
    """
    best = sorted(scores.values(), reverse=True)[:10]
    if not best:
        return float(not found)
    good = [each for each in found[:10] if scores.get(each, 0.0) >= best[-1] * (1 - _SAME)]
    return len(good) / len(best)


async def _exact(owner: asyncpg.Connection, text: str, everybody: list[UUID]) -> dict[UUID, float]:
    """BM25 of every chunk that shares a lexeme with the question, in plain Python."""
    asked = {
        row["lexeme"]: row["tf"]
        for row in await owner.fetch(
            "SELECT lexeme, cardinality(positions) AS tf FROM unnest(to_tsvector('english', $1))", text
        )
    }
    any_of_them = " | ".join("'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'" for lexeme in asked)
    rows = await owner.fetch(_MATCHING, everybody, any_of_them, list(asked), timeout=600) if asked else []
    frequencies = Counter(lexeme for row in rows for lexeme in row["lexemes"])
    chunks, length = await owner.fetchrow(_COUNTED, everybody)
    return {row["id"]: _bm25(row, asked, frequencies, chunks, float(length) / chunks) for row in rows}


def _bm25(row: Any, asked: Mapping[str, int], frequencies: Mapping[str, int], chunks: int, average: float) -> float:
    total = 0.0
    for lexeme, tf in zip(row["lexemes"], row["tfs"], strict=True):
        df = frequencies[lexeme]
        weight = asked[lexeme] * math.log(1 + (chunks - df + 0.5) / (df + 0.5))
        total += weight * tf * (K1 + 1) / (tf + K1 * (1 - B + B * float(row["length"]) / average))
    return total
