"""A third vector store in one file: chunks in a dictionary, cosines by hand, words counted as they are."""

from collections.abc import Sequence
from math import sqrt
from typing import Any
from uuid import UUID

from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode

from rag_app.domain.filters import Filters
from rag_app.domain.scope import Scope
from rag_app.domain.source import Source
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import Backend, ScopedStore, Search
from rag_app.stores.registry import Store
from tests.filters import holds


class MemoryBackend(Backend):
    def __init__(self) -> None:
        self.generations: dict[str, dict[UUID, TextNode]] = {}

    def scoped(self, spec: IndexSpec, generation: str, scope: Scope) -> "MemoryStore":
        return MemoryStore(spec=spec, generation=generation, scope=scope, backend=self)

    async def create(self, owner_url: str, spec: IndexSpec, generation: str, dimension: int) -> None:
        self.generations[generation] = {}

    async def drop(self, owner_url: str, generation: str) -> None:
        self.generations.pop(generation, None)

    async def close(self) -> None:
        self.generations.clear()


class MemoryStore(ScopedStore):
    async def candidates(self, asked: Search) -> list[Candidate]:
        words = set(asked.text.casefold().split())
        found = [
            Candidate(id_, _cosine(asked.vector, node.embedding or []), len(words & set(node.text.casefold().split())))
            for id_, node in self._seen(asked.filters).items()
        ]
        return sorted(found, key=lambda each: -each.cosine)[: asked.depth]

    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        return {id_: node for id_, node in self._seen(filters).items() if id_ in ids}

    async def count(self) -> int:
        return len(self._seen(()))

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        self.check(nodes)
        kept = self.backend.generations[self.generation]
        for id_ in [id_ for id_, node in self._owned().items() if UUID(node.metadata["source_id"]) in replacing]:
            del kept[id_]
        for node in nodes:
            source = RelatedNodeInfo(node_id=node.metadata["source_id"])
            kept[UUID(node.node_id)] = TextNode(
                id_=node.node_id,
                text=node.get_content(),
                metadata=node.metadata,
                embedding=node.embedding,
                relationships={NodeRelationship.SOURCE: source},
            )

    async def move(self, sources: Sequence[Source]) -> None:
        places = {each.id: {"file_name": each.file_name, "row": each.row, "sheet": each.sheet} for each in sources}
        for node in self._owned().values():
            if place := places.get(UUID(node.metadata["source_id"])):
                node.metadata = {key: value for key, value in (node.metadata | place).items() if value is not None}

    async def export(self, source_ids: Sequence[UUID]) -> list[TextNode]:
        return [node for node in self._owned().values() if UUID(node.metadata["source_id"]) in source_ids]

    async def sources(self) -> set[UUID]:
        return {UUID(node.metadata["source_id"]) for node in self._owned().values()}

    def _owned(self) -> dict[UUID, TextNode]:
        kept = self.backend.generations[self.generation].items()
        return {id_: node for id_, node in kept if UUID(node.metadata["org_id"]) in self.scope.organizations}

    def _seen(self, filters: Filters) -> dict[UUID, TextNode]:
        readers = {None, str(self.scope.user)}
        return {
            id_: node
            for id_, node in self._owned().items()
            if node.metadata.get("private_to") in readers
            and (self.scope.site is None or node.metadata.get("site_id") == str(self.scope.site))
            and all(holds(each, node.metadata) for each in filters)
        }


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = sqrt(sum(x * x for x in one)) * sqrt(sum(x * x for x in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / lengths


def _open(settings: Any, database: Any, visible: Any) -> MemoryBackend:
    return MemoryBackend()


MEMORY = Store(_open, lambda settings: "a dictionary", lambda settings: "a dictionary serves one process")
