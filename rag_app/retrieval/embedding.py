"""The bundled embedding model, any other one with limits of ours, and how both are asked."""

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
from cachetools import LRUCache
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from numpy.typing import NDArray

from rag_app.domain import EmbeddingFailed, Misconfigured
from rag_app.retrieval.embedders import MINILM, MODEL_FILE
from rag_app.retrieval.text import tokenizer
from rag_app.telemetry import observing
from rag_app.telemetry.observing import Stage

T = TypeVar("T")

_BACKOFF = 0.5  # seconds before an embedder is asked again
_MAX_TOKENS = 256
# Characters: `max_input_chars_per_word` of the tokenizer, to which a longer word is an unknown one.
_LONGEST_WORD = 100
_TOGETHER = 4  # queries that are encoded at once, at most: more of them cost more each
# By which share of its length a text may differ from the one it is encoded with: padding soon costs what it saves.
_PADDING = 0.1
# Tokens that take as long as a run does before it reads one, where it unpacks the weights.
_TOKENS_TO_UNPACK = 30
# Of texts that are encoded at once, at most: short ones cost up to 40 % less together, long ones nothing less.
_TOKENS_TOGETHER = 256
_SHORT = 2000  # characters that are cut into tokens in less time than a thread takes to be woken for it
_PASSAGE_BYTES = 12_000_000  # of vectors of passages that a process remembers, at most
_THREADS_ALONE = 2  # for a query beside which nothing else is encoded


asking: ContextVar[frozenset[UUID]] = ContextVar("rag_app_asking", default=frozenset())
"""The organizations that ask. What was embedded for one is no faster for another: that would tell what it asked."""

asks_once: ContextVar[bool] = ContextVar("rag_app_asks_once", default=False)
"""Whether this process asks one question and ends. Models that it opens then unpack their weights in each run: opening
them takes a third of the time, and running them a tenth more."""


class RememberedVectors:
    """The vectors of at most `size` texts, for the organizations that ask; the one that was used least recently is forgotten.

    The texts themselves are not kept: they may be erased meanwhile.

    >>> remembered = RememberedVectors(1)
    >>> _ = remembered.put("Opening hours", [0.5, 0.25]), remembered.put("Prices", [1.0, 0.0])
    >>> remembered.get("Opening hours"), remembered.get("Prices").tolist()
    (None, [1.0, 0.0])
    """

    def __init__(self, size: int) -> None:
        self.vectors = LRUCache[tuple[frozenset[UUID], bytes], NDArray[np.float32]](size)

    def get(self, text: str) -> NDArray[np.float32] | None:
        return self.vectors.get(self._key(text))

    def put(self, text: str, vector: Sequence[float]) -> NDArray[np.float32]:
        """The vector as it is remembered: an eighth of the list, and for the bundled model the same figures."""
        kept = np.array(vector, np.float32)
        if self.vectors.maxsize:
            self.vectors[self._key(text)] = kept
        return kept

    async def complete(
        self, texts: Sequence[str], make: Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
    ) -> list[NDArray[np.float32]]:
        """The vectors of all texts: `make` gives those that are not remembered, of each distinct text once."""
        known = {text: vector for text in texts if (vector := self.get(text)) is not None}
        if new := [text for text in dict.fromkeys(texts) if text not in known]:
            known |= {text: self.put(text, each) for text, each in zip(new, await make(new), strict=True)}
        return [known[text] for text in texts]

    @staticmethod
    def _key(text: str) -> tuple[frozenset[UUID], bytes]:
        return asking.get(), blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Embedder(BaseEmbedding):
    """Another's or the bundled model, with what it remembers of the passages that answers were picked from."""

    dimension: int
    _passages: RememberedVectors = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._passages = RememberedVectors(_PASSAGE_BYTES // (4 * self.dimension))

    @property
    def passages(self) -> RememberedVectors:
        """Those of about 8,000 passages with 384 dimensions, 12 MB whatever the dimensions are."""
        return self._passages


_PlacedTokens = tuple[int, list[int]]  # the tokens of a text, and its place among the texts

# The tokens of a query that waits for a thread, and where its vector is put.
_Query = tuple[list[int], "Future[list[float]]"]


class MiniLM(Embedder):
    """all-MiniLM-L6-v2, int8 ONNX: 384 dimensions, unit length, 256 tokens, on the CPU and offline.

    Texts and queries are encoded on the threads of two small pools, so that the event loop is never blocked and no query
    waits for the texts of an ingest. Those that are as long as each other are encoded together (padding makes other batches
    slower here): short texts, and queries that wait for a thread. A query beside which there is no other has two threads
    (docs/performance.md). The last `cache_size` queries are remembered.

    >>> model = MiniLM()
    >>> len(model.get_query_embedding("Where do the milliseconds go?"))
    384
    """

    model_name: str = MINILM.name
    dimension: int = MINILM.dimension
    languages: tuple[str, ...] = MINILM.languages
    embed_batch_size: int = Field(
        default=256, gt=0, le=2048, description="texts of which those alike are encoded together"
    )
    cache_size: int = Field(default=2048, ge=0, description="query embeddings remembered")
    threads: int = Field(default_factory=lambda: min(8, os.cpu_count() or 1), ge=1)
    _session: Any = PrivateAttr()
    _session_alone: Any = PrivateAttr(default=None)
    _loading: Lock = PrivateAttr(default_factory=Lock)
    _times_alone: int = PrivateAttr(default=0)
    _asks_once: bool = PrivateAttr()
    _waiting: list[_Query] = PrivateAttr(default_factory=list)
    _under_way: int = PrivateAttr(default=0)
    _lock: Lock = PrivateAttr(default_factory=Lock)
    _pool: ThreadPoolExecutor = PrivateAttr()
    _text_pool: ThreadPoolExecutor = PrivateAttr()
    _queries: RememberedVectors = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._queries = RememberedVectors(self.cache_size)
        self._asks_once = asks_once.get()
        self._session = open_session(MODEL_FILE, 1)
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="embed")
        self._text_pool = ThreadPoolExecutor(self.threads, thread_name_prefix="embed-texts")

    def load(self) -> None:
        """Load the session for a query alone, which a process otherwise loads when it embeds its second query."""
        with self._loading:
            if self.threads > 1 and self._session_alone is None:
                self._session_alone = open_session(MODEL_FILE, _THREADS_ALONE)

    def _ids(self, text: str) -> list[int]:
        ids = list(tokenizer().encode(text).ids)
        return ids if len(ids) <= _MAX_TOKENS else [*ids[: _MAX_TOKENS - 1], ids[-1]]

    def losses(self, text: str) -> list[str]:
        """What of a text has no part in its vector, for people: nothing, as a rule.

        >>> MiniLM().losses("Who is " + "x" * 101 + "?")
        ['A word of more than 100 characters was not searched by its meaning']
        """
        found: list[str] = []
        if len(text) <= _LONGEST_WORD:
            return found
        words = tokenizer().pre_tokenizer.pre_tokenize_str(tokenizer().normalizer.normalize_str(text))
        if any(len(word) > _LONGEST_WORD for word, _ in words):
            found.append(f"A word of more than {_LONGEST_WORD} characters was not searched by its meaning")
        if len(tokenizer().encode(text).ids) > _MAX_TOKENS:
            found.append(f"Only the first {_MAX_TOKENS} tokens of the question were searched by their meaning")
        return found

    def _encode(self, texts: Sequence[Sequence[int]], session: Any) -> list[list[float]]:
        """Mean of the token vectors, unit length: a vector a text, the same whatever it is encoded with."""
        ids = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, text in enumerate(texts):
            ids[row, : len(text)], mask[row, : len(text)] = text, 1
        (hidden,) = session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
        means = [hidden[row, : len(text)].mean(axis=0) for row, text in enumerate(texts)]
        return [(mean / np.float32(np.linalg.norm(mean))).tolist() for mean in means]

    def _encode_waiting(self) -> None:
        """Encode the query that waits longest, and others with it: called once a query, the last times find none left."""
        queries, alone = self._take()
        if not queries:
            return
        try:
            if alone and self.threads > 1 and not self._asks_once:
                self._times_alone += 1
                if self._times_alone > 1:  # not for a program that embeds one
                    self.load()
            session = self._session_alone if alone and self._session_alone else self._session
            for (_, vector), values in zip(queries, self._encode([ids for ids, _ in queries], session), strict=True):
                vector.set_result(values)
        except Exception as error:
            for _, vector in queries:
                vector.set_exception(error)
        finally:
            with self._lock:
                self._under_way -= 1

    def _take(self) -> tuple[list[_Query], bool]:
        """The first query that waits with those that are about as long, and whether there is nothing else.

        Without those that nobody waits for any longer.
        """
        with self._lock:
            self._waiting = [query for query in self._waiting if not query[1].cancelled()]
            if not self._waiting:
                return [], False
            length = len(self._waiting[0][0])

            def differs(query: _Query) -> int:
                return abs(len(query[0]) - length)

            alike = sorted((each for each in self._waiting if differs(each) <= _PADDING * length), key=differs)
            taken = [query for query in alike[:_TOGETHER] if query[1].set_running_or_notify_cancel()]
            self._waiting = [query for query in self._waiting if query not in taken]
            self._under_way += bool(taken)
            return taken, self._under_way == 1 and not self._waiting

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._encode([self._ids(text)], self._session)[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        groups = alike([*self._text_pool.map(self._ids, texts)], self._asks_once)
        found = dict(each for group in self._text_pool.map(self._encode_texts, groups) for each in group)
        return [found[place] for place in range(len(texts))]

    def _encode_texts(self, texts: Sequence[_PlacedTokens]) -> list[tuple[int, list[float]]]:
        vectors = self._encode([ids for _, ids in texts], self._session)
        return [(place, vector) for (place, _), vector in zip(texts, vectors, strict=True)]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.get_running_loop().run_in_executor(self._text_pool, self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.recall(query) or self._remember(query, self._get_text_embedding(query))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        known = self.recall(query)
        if known is not None:
            return known
        if len(query) <= _SHORT:
            ids = self._ids(query)
        else:
            ids = await asyncio.get_running_loop().run_in_executor(self._pool, self._ids, query)
        vector = Future[list[float]]()
        with self._lock:
            self._waiting.append((ids, vector))
        self._pool.submit(self._encode_waiting)
        return self._remember(query, await asyncio.wrap_future(vector))

    def recall(self, query: str) -> list[float] | None:
        """The query's vector, if the organizations that ask have asked it lately."""
        vector = self._queries.get(query)
        if vector is not None:
            observing.meter.count("rag_query_embeddings", "hit")
            figures: list[float] = vector.tolist()
            return figures
        return None

    def _remember(self, query: str, vector: list[float]) -> list[float]:
        observing.meter.count("rag_query_embeddings", "miss")
        self._queries.put(query, vector)
        return vector


def alike(texts: Sequence[list[int]], once: bool = False) -> list[list[_PlacedTokens]]:
    """The texts, with their places, in groups that are encoded at once; the longest first.

    They are fewer where weights are unpacked for each (`once`).

    >>> [[place for place, _ in group] for group in alike([[1] * 10, [1] * 200, [1] * 30, [1] * 10])]
    [[1], [2], [0, 3]]
    >>> [[place for place, _ in group] for group in alike([[1] * 10, [1] * 24, [1] * 100], once=True)]
    [[2], [1, 0]]
    """
    groups: list[list[_PlacedTokens]] = []
    ordered = sorted(enumerate(texts), key=lambda each: -len(each[1]))
    if once:
        return _group_cheaply(ordered)
    for place, ids in ordered:
        longest = len(groups[-1][0][1]) if groups else 0
        alike = longest - len(ids) <= _PADDING * longest
        if groups and alike and longest * (len(groups[-1]) + 1) <= _TOKENS_TOGETHER:
            groups[-1].append((place, ids))
        else:
            groups.append([(place, ids)])
    return groups


def _group_cheaply(ordered: Sequence[_PlacedTokens]) -> list[list[_PlacedTokens]]:
    """The groups of neighbours that take least in all, with what each run takes and with what it pads."""
    costs, starts = [0], [0]  # of the groups of the texts before each place, and where the last of them begins
    for end in range(1, len(ordered) + 1):
        least = min(
            (costs[start] + _TOKENS_TO_UNPACK + tokens, start)
            for start in range(end)
            if (tokens := len(ordered[start][1]) * (end - start)) <= 2 * _TOKENS_TOGETHER or start == end - 1
        )
        costs.append(least[0])
        starts.append(least[1])
    groups, end = list[list[_PlacedTokens]](), len(ordered)
    while end:
        groups.insert(0, [*ordered[starts[end] : end]])
        end = starts[end]
    return groups


def open_session(file: Path, threads: int) -> Any:
    """An ONNX model on the CPU.

    The weights of the bundled models are stored in 8 bits and unpacked to 32 when they are loaded, or where `asks_once` in
    each run (ADR 53). The copies that this leaves behind, 75 MB a session, are given back to the system.
    """
    # The wheel's telemetry is on unless told otherwise (Privacy.md in it); nothing here calls home.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the cores have other work
    options.enable_mem_pattern = (
        False  # a plan is kept for each shape of input, and here nearly every input has its own
    )
    # onnxruntime's kernel for an addition and its normalization in one takes longer than the two
    left_out = ["SkipLayerNormFusion", *(["ConstantFolding"] if asks_once.get() else [])]
    session = onnxruntime.InferenceSession(
        str(file), options, providers=["CPUExecutionProvider"], disabled_optimizers=left_out
    )
    _give_back()
    return session


_OPENING = Lock()
os.register_at_fork(before=_OPENING.acquire, after_in_parent=_OPENING.release, after_in_child=_OPENING.release)


def shared_session(file: Path) -> Any:
    """A bundled model that this process has opened, or opens now: half a second, in which an event loop has other work."""
    with _OPENING:
        return _opened_session(file)


@cache
def _opened_session(file: Path) -> Any:
    return open_session(file, 1)


def _give_back() -> None:
    """Return freed memory to the system. Only glibc has a call for it; other C libraries are left alone."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class OwnEmbedder(Embedder):
    """Another embedder, asked at most `retries` times again and `timeout_s` seconds each time, with half a second between.

    `model_name` is what an index remembers it by; `dimension` is how long its vectors are. One that has no async calls of
    its own is asked in a thread, which an exceeded limit abandons.
    """

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


async def embed_query(embedder: BaseEmbedding, text: str, dimension: int | None = None) -> list[float]:
    """The question's vector. Raises EmbeddingFailed, whatever the model raises, and for another length than `dimension`."""
    try:
        with Stage("embedding", {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": embedder.model_name}):
            # what is known needs none of the events that LlamaIndex makes of an embedding
            known = embedder.recall(text) if isinstance(embedder, MiniLM) else None
            vector = known or await embedder.aget_query_embedding(text)
    except Exception as error:
        raise EmbeddingFailed(f"{embedder.model_name}: {error}") from error
    _check_length(embedder, vector, dimension)
    return vector


async def embed_texts(embedder: BaseEmbedding, texts: Sequence[str], dimension: int | None = None) -> list[list[float]]:
    """One vector a text, in their order. Raises EmbeddingFailed as `embed_query` does."""
    try:
        vectors = await embedder.aget_text_embedding_batch(list(texts))
    except Exception as error:
        raise EmbeddingFailed(f"{embedder.model_name}: {error}") from error
    for vector in vectors:
        _check_length(embedder, vector, dimension)
    return vectors


async def embed_passages(embedder: BaseEmbedding, texts: Sequence[str]) -> NDArray[np.float64]:
    """The vectors of passages that an answer may be picked from, a row a text. Each distinct text is embedded once, and
    not again while it is remembered for the organizations that ask. Raises EmbeddingFailed as `embed_query` does.
    """
    remembered = embedder.passages if isinstance(embedder, Embedder) and asking.get() else RememberedVectors(0)
    return np.asarray(await remembered.complete(texts, partial(embed_texts, embedder)), np.float64)


def _check_length(embedder: BaseEmbedding, vector: Sequence[float], dimension: int | None) -> None:
    if dimension is not None and len(vector) != dimension:
        raise EmbeddingFailed(f"{embedder.model_name} answered with {len(vector)} dimensions, not {dimension}")


async def embed_together(embedder: BaseEmbedding, texts: Sequence[str]) -> list[float]:
    """One vector for several texts, their mean: what LlamaIndex searches where a query was written anew (HyDE, say).

    Raises EmbeddingFailed, whatever the model raises.
    """
    try:
        vector: list[float] = await embedder.aget_agg_embedding_from_queries(list(texts))
    except Exception as error:
        raise EmbeddingFailed(f"{embedder.model_name}: {error}") from error
    return vector
