"""The indexes there are, as a principal sees them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from llama_index.core.schema import NodeWithScore

from rag_app.documents.generations import Generation
from rag_app.domain.answer import Hit
from rag_app.domain.errors import NotFound
from rag_app.domain.scope import Principal
from rag_app.pipeline import OpenStore
from rag_app.retrieval.hits import to_hit
from rag_app.retrieval.index import IndexSpec


class Collection(NamedTuple):
    """An index, and its generation that answers."""

    spec: IndexSpec
    generation: Generation


class Catalogue:
    """`active` gives the generation of an index that answers, `open_store` its chunks."""

    def __init__(
        self,
        indexes: Mapping[str, IndexSpec],
        active: Callable[[IndexSpec], Awaitable[Generation]],
        open_store: OpenStore,
    ) -> None:
        self._indexes, self._active, self._open_store = indexes, active, open_store

    async def collections(self, principal: Principal) -> list[tuple[Collection, int]]:
        """All that the principal may search, by name, with the number of chunks that it may see."""
        found = [Collection(spec, await self._active(spec)) for spec in self._allowed(principal)]
        chunks = await asyncio.gather(*(self._count(each.spec, principal) for each in found))
        return list(zip(found, chunks, strict=True))

    async def collection(self, name: str, principal: Principal) -> Collection:
        """By name or alias. Raises NotFound with the names there are, also for one that the principal's key is not
        bound to."""
        known: list[str] = []
        for spec in self._allowed(principal):
            if name in (names := names_of(spec)):
                return Collection(spec, await self._active(spec))
            known.extend(names)
        raise NotFound("collection", name, known)

    async def chunks(self, collection: Collection, ids: Sequence[UUID], principal: Principal) -> dict[UUID, Hit]:
        """Those of these chunks that the principal may see, as hits of no query: their score is 0."""
        if not ids:
            return {}
        store = await self._open_store(collection.spec, principal.scope())
        return {chunk: to_hit(NodeWithScore(node=node)) for chunk, node in (await store.fetch(ids)).items()}

    def _allowed(self, principal: Principal) -> Iterator[IndexSpec]:
        for spec in self._indexes.values():
            if principal.indexes is None or spec.name in principal.indexes:
                yield spec

    async def _count(self, spec: IndexSpec, principal: Principal) -> int:
        return await (await self._open_store(spec, principal.scope())).count()


def names_of(spec: IndexSpec) -> tuple[str, ...]:
    """The aliases first: they are there because clients use them."""
    return *spec.aliases, spec.name
