"""The indexes there are, as a principal sees them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from llama_index.core.schema import NodeWithScore

from rag_app.documents.generations import Generation
from rag_app.domain.answer import Hit
from rag_app.domain.errors import NotFound
from rag_app.domain.scope import Principal
from rag_app.pipeline import OpenStore
from rag_app.retrieval.hits import to_hit
from rag_app.retrieval.index import IndexSpec


@dataclass(frozen=True, slots=True)
class Collection:
    """An index, and its generation that answers. `answer_from` is the cosine from which it does (-1..1)."""

    index: str
    names: tuple[str, ...]  # its aliases and its own
    dimension: int
    generation: int
    answer_from: float


@dataclass(frozen=True, slots=True)
class Listing:
    """A collection with what a principal may see of it."""

    collection: Collection
    chunks: int
    created_at: datetime


class Catalogue:
    """`active` gives the generation of an index that answers, `open_store` its chunks."""

    def __init__(
        self,
        indexes: Mapping[str, IndexSpec],
        active: Callable[[IndexSpec], Awaitable[Generation]],
        open_store: OpenStore,
    ) -> None:
        self._indexes, self._active, self._open_store = indexes, active, open_store

    async def collections(self, principal: Principal) -> list[Listing]:
        """All that the principal may search, by name, with what it may see of them."""
        specs = list(self._allowed(principal))
        generations = [await self._active(spec) for spec in specs]
        chunks = await asyncio.gather(*(self._count(spec, principal) for spec in specs))
        return [
            Listing(_collection(spec, generation), count, generation.created_at)
            for spec, generation, count in zip(specs, generations, chunks, strict=True)
        ]

    async def collection(self, name: str, principal: Principal) -> Collection:
        """By name or alias. Raises NotFound with the names there are for the principal."""
        known: list[str] = []
        for spec in self._allowed(principal):
            if name in (names := _names(spec)):
                return _collection(spec, await self._active(spec))
            known.extend(names)
        raise NotFound("collection", name, known)

    async def chunks(self, collection: Collection, ids: Sequence[UUID], principal: Principal) -> dict[UUID, Hit]:
        """Those of these chunks that the principal may see, as hits of no query: their score is 0."""
        if not ids:
            return {}
        store = await self._open_store(self._indexes[collection.index], principal.scope())
        return {chunk: to_hit(NodeWithScore(node=node)) for chunk, node in (await store.fetch(ids)).items()}

    def _allowed(self, principal: Principal) -> Iterator[IndexSpec]:
        for spec in self._indexes.values():
            if principal.indexes is None or spec.name in principal.indexes:
                yield spec

    async def _count(self, spec: IndexSpec, principal: Principal) -> int:
        return await (await self._open_store(spec, principal.scope())).count()


def _collection(spec: IndexSpec, generation: Generation) -> Collection:
    return Collection(spec.name, _names(spec), generation.dimension, generation.id, spec.confidence.answer_from)


def _names(spec: IndexSpec) -> tuple[str, ...]:
    """The aliases first: they are there because clients use them."""
    return *spec.aliases, spec.name
