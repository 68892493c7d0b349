"""Asking every question once and writing down what came back, and how fast."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from rag_app.domain.answer import Hit
from rag_app.domain.scope import PUBLIC_ORGANIZATION
from rag_app.domain.source import source_id
from rag_app.evaluation.judgments import Qrels, Query
from rag_app.evaluation.validation import ask_all
from rag_app.retrieval.confidence import signal
from rag_app.retrieval.index import ConfidenceRule

Search = Callable[[Query, int], Awaitable[Sequence[Hit]]]
"""The best chunks for a query, at most so many, best first, in the scope that the query is to be asked in."""

_JUDGED_HITS = 8  # as many as a capability asks for: a better score further down would not be seen there


@dataclass(frozen=True, slots=True)
class Run:
    """What retrieval returned, by query id.

    `rankings`: names of sources, best first, each once. `signals`: the cosine that confidence is judged by (-1..1).
    `latencies`: milliseconds from asking to hits.
    """

    rankings: dict[str, Sequence[str]]
    signals: dict[str, float]
    latencies: dict[str, float]

    def latency(self, percentile: float) -> float:
        """Milliseconds that `percentile` (0..100) per cent of the queries stay below; 0 for an empty run."""
        return float(np.percentile(list(self.latencies.values()), percentile)) if self.latencies else 0.0


async def run_retrieval(
    queries: Iterable[Query],
    search: Search,
    source_names: Mapping[UUID, str],
    *,
    rule: ConfidenceRule,
    depth: int = 100,
    concurrency: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> Run:
    """Ask each query for `depth` chunks and merge them to sources, each at the rank of its best chunk.

    Sources are named by `source_names` (see the function of that name), all others by their id. `concurrency` queries
    (1 or more) are under way at a time; with more than one, latencies include their waiting for each other. `rule` says
    which signal is taken. `progress` is called with the number of queries done. What `search` raises ends the run.
    """
    run = Run({}, {}, {})

    async def ask(query: Query) -> None:
        started = time.perf_counter()
        hits = await search(query, depth)
        run.latencies[query.id] = (time.perf_counter() - started) * 1000
        run.rankings[query.id] = tuple(dict.fromkeys(source_names.get(h.source_id, str(h.source_id)) for h in hits))
        run.signals[query.id] = signal(hits[:_JUDGED_HITS], rule)
        progress(len(run.rankings))

    await ask_all(queries, ask, concurrency)
    return run


def source_names(qrels: Qrels, index: str, organizations: Iterable[UUID]) -> dict[UUID, str]:
    """The judged external ids by source id, for sources of these organizations and of the public one.

    `index` is the index's name, not an alias. Where two organizations have a source of the same name, a judgment
    means both of them: within a scope they count as one.

    >>> names = source_names({"q": {"ch1.md": 1}}, "book", [UUID(int=7)])
    >>> names[source_id(UUID(int=7), "book", "ch1.md")], names[source_id(PUBLIC_ORGANIZATION, "book", "ch1.md")]
    ('ch1.md', 'ch1.md')
    """
    judged = {name for grades in qrels.values() for name in grades}
    return {source_id(org, index, name): name for org in {*organizations, PUBLIC_ORGANIZATION} for name in judged}
