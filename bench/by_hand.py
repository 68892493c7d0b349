"""What is served beside the product: bare Litestar applications that do the same search, without credentials or limits.

Run by Granian with one worker, as the product is: `granian --interface asgi --factory bench.by_hand:create_app`.
BENCH_APP chooses one: `hand` (onnxruntime, asyncpg) or `stock` (LlamaIndex on the stock PGVectorStore).
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
from litestar import Litestar, post
from msgspec import Struct
from pgvector.asyncpg import register_vector
from tokenizers import Tokenizer

from bench import tables
from rag_app.retrieval.embedders import MODEL_FILE, TOKENIZER_FILE


class Search(Struct):
    query_text: str
    top_k: int = 8


class Result(Struct):
    chunk_id: UUID
    source_id: UUID
    score: float
    snippet: str
    source_type: str
    source_title: str
    source_uri: str | None
    meta: dict[str, Any]
    rank: int


class Results(Struct):
    status: str
    query_text: str
    results: list[Result]
    total_found: int
    processing_time_ms: int


class Model:
    """all-MiniLM-L6-v2 by onnxruntime alone: a thread a text, as many threads as cores, as the product has it."""

    def __init__(self) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(MODEL_FILE), options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER_FILE))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(256)
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1)
        self._known: dict[str, Any] = {}

    async def embed(self, text: str) -> Any:
        if text not in self._known:
            self._known[text] = await asyncio.get_running_loop().run_in_executor(self._pool, self._encode, text)
        return self._known[text]

    def _encode(self, text: str) -> Any:
        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = self._session.run(None, inputs)[0][0].mean(axis=0)
        return mean / np.float32(np.linalg.norm(mean))


def create_app() -> Litestar:
    return {"hand": _hand, "stock": _stock}[os.environ["BENCH_APP"]]()


def _hand() -> Litestar:
    model, organization = Model(), UUID(os.environ["BENCH_ORGANIZATION"])
    pools: list[asyncpg.Pool] = []

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        pools.append(await asyncpg.create_pool(os.environ["BENCH_DSN"], max_size=10, init=register_vector))
        yield
        await pools.pop().close()

    @post("/search", status_code=200)
    async def search(data: Search) -> Results:
        started = time.perf_counter()
        vector = await model.embed(data.query_text)
        async with pools[0].acquire() as connection:
            rows = await tables.hybrid(connection, data.query_text, vector, [organization], data.top_k)
        found = [(row["id"], row["cosine"], row["text"], json.loads(row["metadata"])) for row in rows]
        return _results(data, found, started)

    return Litestar([search], lifespan=[lifespan])


def _stock() -> Litestar:
    from llama_index.core.schema import MetadataMode

    from bench.stock import Stock, postgres_store
    from rag_app.retrieval.embedding import MiniLM

    stock = Stock(postgres_store(os.environ["BENCH_OWNER_URL"]), MiniLM())
    organization = UUID(os.environ["BENCH_ORGANIZATION"])

    @post("/search", status_code=200)
    async def search(data: Search) -> Results:
        started = time.perf_counter()
        nodes = await stock.retriever(organization, None, data.top_k).aretrieve(data.query_text)
        found = [
            (UUID(each.node.node_id), each.score or 0.0, each.node.get_content(MetadataMode.NONE), each.node.metadata)
            for each in nodes
        ]
        return _results(data, found, started)

    return Litestar([search])


def _results(data: Search, found: list[tuple[UUID, float, str, dict[str, Any]]], started: float) -> Results:
    results = [
        Result(
            chunk_id, UUID(meta["source_id"]), max(0.0, min(1.0, score)), text[:200], meta["source_type"], meta["title"],
            meta.get("uri"), meta, rank,
        )
        for rank, (chunk_id, score, text, meta) in enumerate(sorted(found, key=lambda each: -each[1]), 1)
    ]  # fmt: skip
    return Results("success", data.query_text, results, len(results), round(1000 * (time.perf_counter() - started)))
