"""The LlamaIndex retriever of rag_app: a question to scored chunks."""

from collections.abc import Sequence
from typing import NoReturn
from uuid import UUID

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle

from rag_app.domain.answer import Mode
from rag_app.domain.errors import StoreFailed
from rag_app.domain.filters import Condition, Filters, Operator
from rag_app.retrieval.embedding import embed_query
from rag_app.retrieval.filters import checked_text
from rag_app.retrieval.store import ScopedStore
from rag_app.telemetry.observing import Stage


class ChunkRetriever(BaseRetriever):
    """Finds chunks in a scoped store. Async: `await retriever.aretrieve("...")`.

    Nodes come best first; a node's score is its cosine similarity with the question, in every mode.

    `preferred` filters hold as well, unless they leave fewer than `enough` nodes. Of each of the `sources` that the
    scope may see, whatever the filters, at least the best chunk is there, and comes first. The question is embedded once.
    """

    def __init__(
        self,
        store: ScopedStore,
        embedder: BaseEmbedding,
        *,
        filters: Filters = (),
        top_k: int = 8,
        mode: Mode = Mode.HYBRID,
        preferred: Filters = (),
        enough: int = 1,
        sources: Sequence[UUID] = (),
    ) -> None:
        super().__init__()
        self._store, self._embedder = store, embedder
        self._filters, self._top_k, self._mode = filters, top_k, mode
        self._preferred, self._enough, self._sources = preferred, enough, sources

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        text = checked_text("query", query_bundle.query_str)
        vector = query_bundle.embedding or await embed_query(self._embedder, text)
        with Stage("search", {"rag.mode": self._mode.value, "rag.top_k": self._top_k}):
            first = await self._named(text, vector)
            filters = (*self._filters, *self._preferred)
            found = await self._store.search(vector, text, filters, self._mode, self._top_k)
            if self._preferred and len(found) < self._enough:
                found = await self._store.search(vector, text, self._filters, self._mode, self._top_k)
        known = {node.node.node_id for node in first}
        return [*first, *(node for node in found if node.node.node_id not in known)]

    async def _named(self, text: str, vector: list[float]) -> list[NodeWithScore]:
        """Chunks of the named sources, best first. A long source may crowd out others: those are asked for again."""
        found: list[NodeWithScore] = []
        wanted = {str(source) for source in self._sources}
        while wanted:
            most = max(self._top_k, len(wanted))
            only = (Condition("source_id", Operator.IN, tuple(sorted(wanted))),)
            nearest = await self._store.search(vector, text, only, Mode.DENSE, most)
            found += nearest
            wanted -= {node.node.metadata["source_id"] for node in nearest}
            if len(nearest) < most:
                break  # that was all there is of them
        return sorted(found, key=lambda node: -(node.score or 0.0))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        raise NotImplementedError("use `await retriever.aretrieve(...)`: rag_app retrieves asynchronously")


class Unreachable(BaseRetriever):
    """In place of a retriever whose store did not open: says so when something is to be retrieved."""

    def __init__(self, error: StoreFailed) -> None:
        super().__init__()
        self._error = error

    async def _aretrieve(self, query_bundle: QueryBundle) -> NoReturn:
        raise self._error

    def _retrieve(self, query_bundle: QueryBundle) -> NoReturn:
        raise self._error
