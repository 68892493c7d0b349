"""Any LlamaIndex embedder, with a limit of time and a number of requests that are ours."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from rag_app.domain import Misconfigured

T = TypeVar("T")
_BACKOFF = 0.5


class OwnEmbedder(BaseEmbedding):
    """Another embedder, asked at most `retries` times again and `timeout_s` seconds each time, with half a second between.

    `model_name` is what an index remembers it by; `dimension` is how long its vectors are. One that has no async calls of
    its own is asked in a thread, which an exceeded limit abandons.
    """

    dimension: int
    timeout_s: float = 30.0
    retries: int = 1
    _inner: BaseEmbedding = PrivateAttr()
    _waits: bool = PrivateAttr()

    def __init__(self, inner: BaseEmbedding, dimension: int, model_name: str | None = None, **limits: Any) -> None:
        name = model_name or inner.model_name
        if name == "unknown":
            raise Misconfigured(
                f"{type(inner).__name__} has no model_name, by which an index remembers its embedder: give it one"
            )
        batch = limits.pop("batch", None) or inner.embed_batch_size
        super().__init__(model_name=name, embed_batch_size=batch, dimension=dimension, **limits)
        self._inner = inner
        overridden = {type(inner)._aget_text_embedding, type(inner)._aget_text_embeddings}
        self._waits = bool(overridden - {BaseEmbedding._aget_text_embedding, BaseEmbedding._aget_text_embeddings})

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        for left in range(self.retries, -1, -1):
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await ask()
            except Exception as error:
                if not left or _is_refused(error):
                    raise
            await asyncio.sleep(_BACKOFF)
        raise AssertionError("unreachable")

    async def _aget_query_embedding(self, query: str) -> list[float]:
        if self._waits:
            return await self._ask(lambda: self._inner._aget_query_embedding(query))
        return await self._ask(lambda: asyncio.to_thread(self._inner._get_query_embedding, query))

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._aget_text_embeddings([text]))[0]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        if self._waits:
            return await self._ask(lambda: self._inner._aget_text_embeddings(texts))
        return await self._ask(lambda: asyncio.to_thread(self._inner._get_text_embeddings, texts))

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._inner._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._inner._get_text_embedding(text)


def _is_refused(error: Exception) -> bool:
    """Whether a server understood the request and said no: asking again does not help."""
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(status, int) and 400 <= status < 500
