"""Stores that keep vectors outside PostgreSQL. They provide the dense leg; texts, filters and words stay in PostgreSQL."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from uuid import UUID

from llama_index.core.schema import BaseNode, TextNode
from msgspec.structs import replace

from rag_app.database.session import Database
from rag_app.domain import Filters, Mode
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import Search
from rag_app.stores.postgres import ChunkStore, DatabaseBackend, execute_as_owner
from rag_app.stores.postgres_tables import Query, create_fields, drop_statements
from rag_app.stores.registry import Visible


class OutsideBackend(DatabaseBackend):
    """A generation also has tables in PostgreSQL, whose names contain `kind` to distinguish stores.

    What such a store returns is checked against PostgreSQL's sources, under row-level security: `visible`.
    """

    kind: str

    def __init__(self, database: Database, visible: Visible) -> None:
        super().__init__(database)
        self.visible = visible
        self.writing = asyncio.Lock()
        """Replacing a source takes several calls. Between processes, the ledger's lock keeps writers apart."""

    async def create(self, owner_url: str, spec: IndexSpec, generation: str, dimension: int) -> None:
        prefix = f"{generation}_{self.kind}"
        await execute_as_owner(owner_url, drop_statements(prefix) + create_fields(spec, prefix))

    async def drop(self, owner_url: str, generation: str) -> None:
        await execute_as_owner(owner_url, drop_statements(f"{generation}_{self.kind}"))


class OutsideStore(ChunkStore):
    """One index whose vectors are elsewhere, as one scope sees it. PostgreSQL decides which chunks exist."""

    @property
    def prefix(self) -> str:
        return f"{self.generation}_{self.backend.kind}"

    @abstractmethod
    async def nearest(self, asked: Search) -> dict[UUID, float]:
        """The cosines of the `depth` chunks that are nearest and that the scope may see."""

    @abstractmethod
    async def cosines(self, vector: Sequence[float], ids: Sequence[UUID]) -> dict[UUID, float]:
        """Those of these chunks that the scope may see."""

    @abstractmethod
    async def put_vectors(self, nodes: Sequence[BaseNode]) -> None:
        """Write vectors, replacing those with the same ids."""

    @abstractmethod
    async def delete_vectors(self, sources: Sequence[UUID], kept: Sequence[UUID]) -> None:
        """Delete the vectors of these sources in the scope's organizations, except the ids `kept`."""

    async def candidates(self, asked: Search) -> list[Candidate]:
        near = await self.nearest(asked) if asked.mode is not Mode.TEXT else {}
        if asked.mode is Mode.DENSE:
            return [Candidate(id_, cosine, 0.0) for id_, cosine in near.items()]
        bm25 = {row["id"]: row["bm25"] for row in await self.ask(Query.words, asked, [*near])}
        if left := [id_ for id_ in bm25 if id_ not in near]:
            near |= await self.cosines(asked.vector, left)
        return [Candidate(id_, near[id_], score) for id_, score in bm25.items() if id_ in near]

    async def best(self, asked: Search) -> list[tuple[Candidate, TextNode]]:
        """Of twice as many, because a vector whose chunk PostgreSQL does not have (yet, or any more) is skipped."""
        return (await super().best(replace(asked, top_k=2 * asked.top_k)))[: asked.top_k]

    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        found = await super().fetch(ids, filters)
        sources = {id_: UUID(node.metadata["source_id"]) for id_, node in found.items()}
        allowed = await self.backend.visible(self.scope, self.generation, [*{*sources.values()}])
        return {id_: node for id_, node in found.items() if sources[id_] in allowed}

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        self.check(nodes)
        async with self.backend.writing:
            if nodes:
                await self.put_vectors(nodes)
            await super().write(nodes, replacing)
            if replacing:
                await self.delete_vectors(replacing, [UUID(node.node_id) for node in nodes])

    async def forget(self, source_ids: Sequence[UUID]) -> None:
        await super().write([], source_ids)
