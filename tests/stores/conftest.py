"""Both vector stores behind one fixture, with chunks whose vectors are easy to reason about."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest
from llama_index.core.schema import TextNode

from rag_app.database.session import Database
from rag_app.domain.scope import Scope
from rag_app.domain.source import chunk_id
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import ScopedStore
from rag_app.stores.postgres import PostgresBackend
from rag_app.stores.qdrant import QdrantBackend
from tests.remembered import remember

DIMENSION = 8

SPEC = IndexSpec(
    name="things",
    source_types=("doc", "email"),
    default_source_type="doc",
    languages=("en", "fr"),
    fields={
        "author": "keyword", "stylist": "integer", "price": "number", "in_stock": "boolean", "tags": "tags",
        "ticket": "uuid", "due": "time",
    },
)  # fmt: skip

STORES = ["postgres", "qdrant-local", "qdrant-server"]


def vector(*leading: float) -> list[float]:
    """A unit vector that starts with these numbers; the last one makes up the length."""
    rest = 1 - sum(x * x for x in leading)
    return [*leading, *[0.0] * (DIMENSION - 1 - len(leading)), max(rest, 0.0) ** 0.5]


def chunk(
    org: UUID, text: str, embedding: Sequence[float], *, source: UUID | None = None, position: int = 0,
    version: str = "1", **meta: object,
) -> TextNode:  # fmt: skip
    source = source or uuid4()
    return TextNode(
        id_=str(chunk_id(source, version, position)),
        text=text,
        embedding=list(embedding),
        metadata={
            "org_id": str(org), "source_id": str(source), "title": "", "source_type": "doc", "lang": "en",
            "position": position, "date": 0.0, **meta,
        },
    )  # fmt: skip


Stores = Callable[[Scope], ScopedStore]


@asynccontextmanager
async def opened(
    kind: str, spec: IndexSpec, dimension: int, database_urls: tuple[str, str], folder: Path
) -> AsyncIterator[Stores]:
    """One of STORES, with a generation of its own."""
    owner_url, app_url = database_urls
    generation = f"g_{spec.name}_{uuid4().hex[:12]}"
    database = Database(app_url)
    if kind == "postgres":
        backend: PostgresBackend | QdrantBackend = PostgresBackend(database)
    else:
        url = os.environ.get("QDRANT_URL")
        if kind == "qdrant-server" and not url:
            pytest.skip("needs a Qdrant server: set QDRANT_URL")

        async def visible(scope: Scope, generation: str, sources: Sequence[UUID]) -> set[UUID]:
            return set(sources)  # what PostgreSQL adds is tested with the whole pipeline; here the store stands alone

        where = {"path": folder / "qdrant"} if kind == "qdrant-local" else {"url": url}
        backend = QdrantBackend(database=database, visible=visible, **where)
    await backend.create(owner_url, spec, generation, dimension)
    try:
        yield lambda scope: backend.scoped(spec, generation, scope)
    finally:
        await backend.close()
        await database.close()


@pytest.fixture(scope="package", autouse=True)
def _remembered(vectors: Path) -> Iterator[None]:
    with remember(vectors):
        yield


@pytest.fixture(params=STORES)
async def stores(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], tmp_path: Path
) -> AsyncIterator[Stores]:
    """The store seen through a scope; every test has a generation of its own."""
    async with opened(request.param, SPEC, DIMENSION, database_urls, tmp_path) as found:
        yield found


@pytest.fixture
def org() -> UUID:
    return uuid4()


@pytest.fixture
def scope(org: UUID) -> Scope:
    return Scope(frozenset({org}))


@pytest.fixture
async def app_connection(database_urls: tuple[str, str]) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_urls[1].replace("+asyncpg", ""))
    yield connection
    await connection.close()


Search = Callable[..., Awaitable[list[tuple[str, float]]]]
