"""Finds the hits of a question. What answers stands on it (rag_app/pipeline.py); what only searches imports no more."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryBundle
from msgspec.structs import replace

from rag_app.domain import Hit, Mode, Question, Scope
from rag_app.retrieval.filters import check_filters
from rag_app.retrieval.hits import to_hits
from rag_app.retrieval.index import IndexSpec, find_index
from rag_app.retrieval.postprocessors import postprocessors_for
from rag_app.retrieval.retriever import ChunkRetriever
from rag_app.retrieval.store import ScopedStore
from rag_app.telemetry.observing import Stage

OpenStore = Callable[[IndexSpec, Scope], Awaitable[ScopedStore]]
"""The active generation of an index, as a scope sees it."""


class Searcher:
    """Searches the indexes with the given store and embedding model."""

    def __init__(
        self,
        indexes: Mapping[str, IndexSpec],
        open_store: OpenStore,
        embedder: BaseEmbedding,
        dimension: int | None = None,
    ) -> None:
        self._indexes, self._open_store = indexes, open_store
        self._embedder, self._dimension = embedder, dimension

    def search_mode(self, index: str) -> Mode:
        """How an index is searched where a request names no mode. Raises NotFound for an unknown index."""
        return find_index(self._indexes, index).search_mode

    async def search(self, index: str, question: Question, scope: Scope) -> tuple[Hit, ...]:
        """The hits of a question, best first. Calls no answering model.

        Raises NotFound for an unknown index, InvalidInput for a filter that the index does not declare, EmbeddingFailed
        and StoreFailed.
        """
        retriever = self.retriever(index, question, scope)
        with Stage("retrieval", {"rag.index": index}) as span:
            found = await retriever.aretrieve(QueryBundle(question.searched or question.text))
            for postprocessor in postprocessors_for(question, scope):
                found = await postprocessor.apostprocess_nodes(found)
            span.set_attribute("rag.hits", len(found))
        return to_hits(found)

    def retriever(self, index: str, question: Question, scope: Scope) -> ChunkRetriever:
        """The LlamaIndex retriever of an index, for one scope, with the question's filters, named sources and mode.

        It finds as many chunks as the question wants fetched.
        """
        spec = find_index(self._indexes, index)
        check_filters((*question.filters, *question.preferred), spec)  # before a model is asked for anything
        most = max(question.fetch or 0, question.top_k)
        wanted = question if most == question.top_k else replace(question, top_k=most)
        opening = partial(self._open_store, spec, scope)
        return ChunkRetriever(opening, self._embedder, wanted, self._dimension, spec.dated_types)
