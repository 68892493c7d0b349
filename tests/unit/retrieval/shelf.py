"""A vector store in memory, which knows the cosine of each chunk and judges filters as docs/filters.md says."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from llama_index.core import MockEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from rag_app.domain.answer import Hit
from rag_app.domain.errors import StoreFailed
from rag_app.domain.filters import Filters
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.store import ScopedStore, Search
from tests.filters import holds
from tests.unit.answering.hits import node
from tests.unit.test_pipeline import Shelf as Given


class Shelf(Given):
    """Its backend: `hits`, `asked` (filters, mode and depth of each query), and `down` where it does not answer."""

    async def candidates(self, asked: Search) -> list[Candidate]:
        self.backend["asked"].append((asked.filters, asked.mode, asked.depth))
        if self.backend.get("down"):
            raise StoreFailed("PostgreSQL: gone")
        found = [each for each in self.backend["hits"] if all(_holds(each, given) for given in asked.filters)]
        nearest = sorted(found, key=lambda each: -each.score)[: asked.depth]
        return [Candidate(each.chunk_id, each.score, each.metadata.get("bm25", 0.0)) for each in nearest]

    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        return {each.chunk_id: _text_node(each) for each in self.backend["hits"] if each.chunk_id in ids}


class Counted(MockEmbedding):
    """Remembers what it embedded."""

    embedded: list[str] = []  # noqa: RUF012 - a field of a pydantic model, copied for each
    languages: tuple[str, ...] = ()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        self.embedded.append(query)
        return await super()._aget_query_embedding(query)


def _text_node(hit: Hit) -> TextNode:
    found = node(hit).node
    found.metadata["owner_id"] = str(hit.owner_id) if hit.owner_id else None
    assert isinstance(found, TextNode)
    return found


def _holds(hit: Hit, given: MetadataFilter | MetadataFilters) -> bool:
    standard = {
        "source_id": str(hit.source_id), "org_id": str(hit.org_id), "source_type": hit.source_type, "lang": hit.lang,
        "date": hit.date,
    }  # fmt: skip
    return holds(given, standard | dict(hit.metadata))


def opening(store: ScopedStore | Exception) -> Callable[[], Awaitable[ScopedStore]]:
    """What gives a retriever this store, or fails."""

    async def opened() -> ScopedStore:
        if isinstance(store, Exception):
            raise store
        return store

    return opened
