"""The stock LlamaIndex stores as a measure: the same chunks rank the same, and what they let through is refused here."""

from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import pytest
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.vector_stores.postgres import PGVectorStore
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from rag_app.domain.scope import Scope
from tests.stores.conftest import DIMENSION, Stores, chunk

INJECTION = "x' OR '1'='1"


def some_chunks(org: UUID, count: int) -> list[TextNode]:
    vectors = np.random.default_rng(5).normal(size=(count, DIMENSION))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [chunk(org, f"chunk {n}", vector.tolist()) for n, vector in enumerate(vectors)]


@pytest.fixture
def stock_postgres(database_urls: tuple[str, str]) -> PGVectorStore:
    owner = database_urls[0]
    return PGVectorStore(
        table_name=f"g_stock_{uuid4().hex[:8]}",
        embed_dim=DIMENSION,
        engine=create_engine(owner.replace("+asyncpg", "+psycopg2")),
        async_engine=create_async_engine(owner),
    )


async def test_dense_ranking_and_scores_are_those_of_the_stock_stores(
    stores: Stores, stock_postgres: PGVectorStore, org: UUID, scope: Scope, tmp_path: Path
) -> None:
    nodes: list[BaseNode] = [*some_chunks(org, 60)]
    await stores(scope).async_add(nodes)
    stock_qdrant = QdrantVectorStore("stock", client=QdrantClient(path=str(tmp_path / "stock")))
    query = VectorStoreQuery(query_embedding=nodes[0].embedding, similarity_top_k=20)
    ours = await stores(scope).aquery(query)
    for stock in (stock_postgres, stock_qdrant):
        stock.add(nodes)
        theirs = stock.query(query)
        assert theirs.ids == ours.ids
        assert theirs.similarities == pytest.approx(ours.similarities, abs=1e-3)


async def test_the_injection_that_the_stock_postgres_store_lets_through(
    stores: Stores, stock_postgres: PGVectorStore, org: UUID, scope: Scope
) -> None:
    """If the stock store stops doing this, ADR 2 wants another look."""
    mine, theirs = some_chunks(org, 2), some_chunks(uuid4(), 2)
    stock_postgres.add([*mine, *theirs])
    hostile = MetadataFilters(
        filters=[MetadataFilter(key="org_id", value=str(org)), MetadataFilter(key="lang", value=INJECTION)]
    )
    leaked = stock_postgres.query(
        VectorStoreQuery(query_embedding=mine[0].embedding, similarity_top_k=10, filters=hostile)
    )
    assert len(leaked.ids or []) == 4

    await stores(scope).async_add(mine)
    await stores(Scope(frozenset({UUID(theirs[0].metadata["org_id"])}))).async_add(theirs)
    found = await stores(scope).aquery(
        VectorStoreQuery(query_embedding=mine[0].embedding, similarity_top_k=10, filters=hostile)
    )
    assert found.ids == []
