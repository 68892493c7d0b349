"""LlamaIndex as it comes: `VectorStoreIndex` on the stock stores, set up as their documentation advises."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from llama_index.vector_stores.postgres import PGVectorStore
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, models
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from bench.corpus import Corpus
from bench.progress import track
from bench.tables import connect

_HNSW = {"hnsw_m": 16, "hnsw_ef_construction": 64, "hnsw_ef_search": 40, "hnsw_dist_method": "vector_cosine_ops"}
_INDEX = "data_stock_embedding_idx"


def postgres_store(owner_url: str) -> PGVectorStore:
    return PGVectorStore(
        table_name="stock",
        embed_dim=384,
        hnsw_kwargs=dict(_HNSW),
        engine=create_engine(owner_url.replace("+asyncpg", "+psycopg2")),
        async_engine=create_async_engine(owner_url),
    )


async def fill_postgres(owner_url: str, corpus: Corpus, organizations: Sequence[UUID]) -> None:
    """The store's own table and index, by COPY: its `add` would take hours. HNSW is built when the rows are in."""
    store = postgres_store(owner_url)
    store._initialize()
    await store.close()
    owner = await connect(owner_url.replace("+asyncpg", ""))
    try:
        definition = await owner.fetchval(f"SELECT pg_get_indexdef('{_INDEX}'::regclass)")
        await owner.execute(f"DROP INDEX {_INDEX}; SET maintenance_work_mem = '2GB'")
        columns = ["text", "metadata_", "node_id", "embedding"]
        for start in track(range(0, corpus.size, 10_000), "table of the stock PGVectorStore"):
            chunks = range(start, min(start + 10_000, corpus.size))
            records = [_record(corpus, chunk, organizations) for chunk in chunks]
            await owner.copy_records_to_table("data_stock", columns=columns, records=records)
        for statement in track([definition, "VACUUM ANALYZE data_stock"], "its HNSW index"):
            await owner.execute(statement, timeout=7200)
    finally:
        await owner.close()


def _record(corpus: Corpus, chunk: int, organizations: Sequence[UUID]) -> tuple[Any, ...]:
    node = corpus.node(chunk, organizations[corpus.organization[chunk]])
    metadata = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
    return node.text, json.dumps(metadata), node.node_id, corpus.vectors[chunk]


async def qdrant_store(corpus: Corpus, organizations: Sequence[UUID], chunks: Sequence[int]) -> QdrantVectorStore:
    """Local mode, in memory: no server can be had from a package index."""
    client = AsyncQdrantClient(":memory:")
    await client.create_collection("stock", models.VectorParams(size=384, distance=models.Distance.COSINE))
    store = QdrantVectorStore("stock", aclient=client)
    for start in track(range(0, len(chunks), 500), "stock QdrantVectorStore, local mode"):
        part = chunks[start : start + 500]
        await store.async_add([corpus.node(chunk, organizations[corpus.organization[chunk]]) for chunk in part])
    return store


class Stock:
    """A stock retriever, asked as an application would."""

    def __init__(self, store: BasePydanticVectorStore, embedder: BaseEmbedding) -> None:
        self._index = VectorStoreIndex.from_vector_store(store, embed_model=embedder)

    def retriever(self, organization: UUID | None, author: str | None, top_k: int) -> Any:
        """Of one organization's rows, or of all of them."""
        wanted = {"org_id": str(organization) if organization else None, "author": author}
        filters = [MetadataFilter(key=key, value=value) for key, value in wanted.items() if value is not None]
        return self._index.as_retriever(
            similarity_top_k=top_k, filters=MetadataFilters(filters=filters) if filters else None
        )
