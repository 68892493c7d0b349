"""Embedding models: a registry, by the kind that settings name. A module of one's own adds an entry to `EMBEDDERS`.

Any other LlamaIndex embedder is given as an object, or by its class in the models file (docs/models.md).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from rag_app.domain import Misconfigured, require

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding


class BundledModel(Struct, frozen=True):
    """The model of a kind that always is the same one: what is known of it before it is loaded."""

    name: str
    dimension: int
    languages: tuple[str, ...]
    files: tuple[Path, ...]


class Embedder(Struct, frozen=True):
    """One kind of embedding model.

    `build` makes the LlamaIndex embedding from a model's name, a base URL and a key; it imports its integration itself.
    A model that knows the length of its vectors has an attribute `dimension`.
    """

    build: "Callable[[str, str | None, str | None], BaseEmbedding]"
    hint: str = ""
    bundled: BundledModel | None = None


def build_embedder(kind: str, model: str, api_base: str | None, api_key: str | None) -> "BaseEmbedding":
    """The embedding model that settings name. Raises Misconfigured for a kind there is not."""
    found = require(EMBEDDERS.get(kind), Misconfigured(f"RAG_EMBEDDING={kind!r}: accepted are {', '.join(EMBEDDERS)}"))
    return found.build(model, api_base, api_key)


def _builtin(model: str, api_base: str | None, api_key: str | None) -> "BaseEmbedding":
    from rag_app.retrieval.embedding import MiniLM

    return MiniLM()


def _openai(model: str, api_base: str | None, api_key: str | None) -> "BaseEmbedding":
    from llama_index.embeddings.openai import OpenAIEmbedding

    # LlamaIndex multiplies: it tries `max_retries` times what the SDK tries once and `max_retries` times more. With 1 the
    # SDK alone asks again, once
    return OpenAIEmbedding(model_name=model, api_base=api_base, api_key=api_key or "none", max_retries=1, timeout=30)


MODEL_FILE = Path(__file__).with_name("embedder.onnx")
TOKENIZER_FILE = Path(__file__).with_name("minilm-tokenizer.json")
MINILM = BundledModel("all-MiniLM-L6-v2-int8", 384, ("en",), (MODEL_FILE, TOKENIZER_FILE))
EMBEDDERS: dict[str, Embedder] = {
    "builtin": Embedder(_builtin, "all-MiniLM-L6-v2, on the CPU, offline", MINILM),
    "openai": Embedder(_openai, "any URL that speaks its protocol"),
}
