"""The LlamaIndex retriever of rag_app: a question to scored chunks."""

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from rag_app.domain.answer import Mode
from rag_app.domain.filters import Filters
from rag_app.retrieval.embedding import embed_query
from rag_app.retrieval.filters import checked_text, to_llama
from rag_app.retrieval.store import ScopedStore

_MODES = {
    Mode.DENSE: VectorStoreQueryMode.DEFAULT,
    Mode.HYBRID: VectorStoreQueryMode.HYBRID,
    Mode.TEXT: VectorStoreQueryMode.TEXT_SEARCH,
}


class ChunkRetriever(BaseRetriever):
    """Finds chunks in a scoped store. Async: `await retriever.aretrieve("...")`.

    Nodes come best first; a node's score is its cosine similarity with the question, in every mode.
    """

    def __init__(
        self,
        store: ScopedStore,
        embedder: BaseEmbedding,
        *,
        filters: Filters = (),
        top_k: int = 8,
        mode: Mode = Mode.HYBRID,
    ) -> None:
        super().__init__()
        self._store, self._embedder = store, embedder
        self._filters, self._top_k, self._mode = to_llama(filters), top_k, mode

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        text = checked_text("query", query_bundle.query_str)
        found = await self._store.aquery(
            VectorStoreQuery(
                query_embedding=query_bundle.embedding or await embed_query(self._embedder, text),
                query_str=text,
                similarity_top_k=self._top_k,
                mode=_MODES[self._mode],
                filters=self._filters,
            )
        )
        return [
            NodeWithScore(node=node, score=score)
            for node, score in zip(found.nodes or (), found.similarities or (), strict=True)
        ]

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        raise NotImplementedError("use `await retriever.aretrieve(...)`: rag_app retrieves asynchronously")
