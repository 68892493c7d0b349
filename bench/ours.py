"""The product over the bench's database: its application, its tables filled by its own writes."""

import time
from collections.abc import Sequence
from uuid import UUID

import numpy as np
from llama_index.core.schema import NodeWithScore, QueryBundle

from bench.corpus import ALL, OTHERS, SHARES, Corpus
from bench.progress import track
from bench.tables import connect
from rag_app.application import Application
from rag_app.domain.answer import Mode, Question
from rag_app.domain.scope import Scope
from rag_app.retrieval.filters import condition
from rag_app.retrieval.store import ScopedStore

INDEX = "org_knowledge"
BATCH = 500
"""Chunks a write: what an ingest of some documents hands over at once."""


class Ours:
    """`organizations` by their number in the corpus."""

    def __init__(self, application: Application, organizations: Sequence[UUID]) -> None:
        self.application, self.organizations = application, organizations

    @classmethod
    async def with_organizations(cls, application: Application) -> "Ours":
        made = [
            await application.people.create_organization(f"bench-{number}", f"Bench {number}")
            for number in range(len(SHARES) + OTHERS)
        ]
        return cls(application, [each.id for each in made])

    async def store(self, organization: UUID) -> ScopedStore:
        return await self.application.backends.open(self.application.indexes[INDEX], Scope(frozenset({organization})))

    async def prefix(self) -> str:
        """What the names of the generation's tables begin with."""
        return (await self.application.backends.active(self.application.indexes[INDEX])).table_prefix

    async def write(self, corpus: Corpus, chunks: Sequence[int]) -> float:
        """Seconds that the store took for these, an organization at a time as ingestion does; building nodes not counted.

        The batches come in a random order, as organizations ingest when they like.
        """
        batches: list[list[int]] = []
        by_organization = np.asarray(chunks)[np.argsort(corpus.organization[chunks], kind="stable")]
        edges = np.nonzero(np.diff(corpus.organization[by_organization]))[0] + 1
        for group in np.split(by_organization, edges):
            batches += [group[start : start + BATCH].tolist() for start in range(0, len(group), BATCH)]
        np.random.default_rng(2).shuffle(batches)
        seconds = 0.0
        for batch in track(batches, f"{len(chunks)} chunks into our tables"):
            organization = self.organizations[corpus.organization[batch[0]]]
            store, nodes = await self.store(organization), [corpus.node(chunk, organization) for chunk in batch]
            started = time.perf_counter()
            await store.write(nodes)
            seconds += time.perf_counter() - started
        return seconds

    async def vacuum(self, owner_dsn: str) -> None:
        """What autovacuum does some minutes after a load."""
        owner = await connect(owner_dsn)
        try:
            for table in await tables(owner, await self.prefix()):
                await owner.execute(f"VACUUM ANALYZE {table}", timeout=600)
        finally:
            await owner.close()

    def scope(self, tenant: str) -> Scope:
        if tenant == ALL:
            return Scope(frozenset(self.organizations))
        return Scope(frozenset({self.organizations[list(SHARES).index(tenant)]}))

    async def retrieve(
        self,
        tenant: str,
        text: str,
        vector: list[float] | None,
        mode: Mode,
        *,
        author: str | None = None,
        top_k: int = 10,
    ) -> list[NodeWithScore]:
        """As a question goes: the pipeline's retriever, made anew for each."""
        filters = () if author is None else (condition("author", "==", author),)
        question = Question(text, filters, top_k, mode)
        retriever = self.application.pipeline.retriever(INDEX, question, self.scope(tenant))
        return await retriever.aretrieve(QueryBundle(text, embedding=vector))


async def tables(owner: object, prefix: str) -> list[str]:
    """All of a generation."""
    found = await owner.fetch(  # type: ignore[attr-defined]
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND starts_with(relname, $1) ORDER BY relname",
        f"{prefix}_",
    )
    return [row["relname"] for row in found]
