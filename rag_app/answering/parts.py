"""Parts of one's own, in the place of those that settings choose: of an open application, or of one capability."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from rag_app.domain import Scope

if TYPE_CHECKING:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.llms import LLM
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.response_synthesizers import BaseSynthesizer

    from rag_app.retrieval.retriever import ChunkRetriever

MakeRetriever = Callable[["ChunkRetriever", Scope], "BaseRetriever"]
"""Gives the retriever of one question, from ours, which keeps to the scope, and the scope: what else it looks into has
to keep to it, too."""


class Parts(Struct, frozen=True):
    """LlamaIndex parts; what is None or empty is as the settings say.

    `embedder`, whose vectors have `dimension` numbers, is for all indexes, so no capability has one of its own.
    `retriever` is one, or makes one (MakeRetriever). `postprocessors` choose among `candidates` chunks at least, each for
    at most `seconds`; one that fails or takes longer leaves everything as it was, and the answer's warnings say so.
    `synthesizer` takes the place of the model: its text is checked like that of one, so it has to cite `[Source N]`.

    >>> Parts(candidates=30).fall_back_to(Parts(candidates=10, seconds=2.0)).seconds
    10.0
    """

    embedder: "BaseEmbedding | None" = None
    dimension: int | None = None
    llm: "LLM | None" = None
    retriever: "BaseRetriever | MakeRetriever | None" = None
    postprocessors: "tuple[BaseNodePostprocessor, ...]" = ()
    synthesizer: "BaseSynthesizer | None" = None
    candidates: int = 0
    seconds: float = 10.0

    def fall_back_to(self, others: "Parts") -> "Parts":
        """These, and where they have none, the others."""
        mine = self if self.postprocessors or not others.postprocessors else others
        return Parts(
            self.embedder or others.embedder,
            self.dimension or others.dimension,
            self.llm or others.llm,
            self.retriever or others.retriever,
            mine.postprocessors,
            self.synthesizer or others.synthesizer,
            mine.candidates,
            mine.seconds,
        )

    def retriever_for(self, ours: "ChunkRetriever", scope: Scope) -> "BaseRetriever":
        """What looks for a question: ours, or the own one."""
        if self.retriever is None:
            return ours
        return self.retriever(ours, scope) if callable(self.retriever) else self.retriever


NO_PARTS = Parts()
