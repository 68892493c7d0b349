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
from rag_app.stores.class_file import read_class_file
from rag_app.stores.llamaindex import LlamaIndexBackend
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

FOREIGN = pytest.mark.foreign_stores
"""Of stores behind the adapter beyond one: `make test` leaves these out, `.ci/run` runs them."""
ADAPTED = [
    "llamaindex-chroma",
    pytest.param("llamaindex-postgres", marks=FOREIGN),
    pytest.param("llamaindex-qdrant", marks=FOREIGN),
]
OWN = ["postgres", "qdrant-local", "qdrant-server"]
STORES = [*OWN, *ADAPTED]


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
    kind: str | Path, spec: IndexSpec, dimension: int, database_urls: tuple[str, str], folder: Path
) -> AsyncIterator[Stores]:
    """One of STORES, or what a file declares, with a generation of its own."""
    owner_url, app_url = database_urls
    generation = f"g_{spec.name}_{uuid4().hex[:12]}"
    database = Database(app_url)
    backend: PostgresBackend | QdrantBackend | LlamaIndexBackend

    async def visible(scope: Scope, generation: str, sources: Sequence[UUID]) -> set[UUID]:
        return set(sources)  # what PostgreSQL adds is tested with the whole pipeline; here the store stands alone

    if kind == "postgres":
        backend = PostgresBackend(database)
    elif isinstance(kind, Path) or kind.startswith("llamaindex"):
        file = kind if isinstance(kind, Path) else declare(kind.removeprefix("llamaindex-"), folder, owner_url)
        backend = LlamaIndexBackend(database, visible, read_class_file(file))
    else:
        url = os.environ.get("QDRANT_URL")
        if kind == "qdrant-server" and not url:
            pytest.skip("needs a Qdrant server: set QDRANT_URL")
        where = {"path": folder / "qdrant"} if kind == "qdrant-local" else {"url": url}
        backend = QdrantBackend(database=database, visible=visible, **where)
    await backend.create(owner_url, spec, generation, dimension)
    try:
        yield lambda scope: backend.scoped(spec, generation, scope)
    finally:
        await backend.close()
        await database.close()


def declare(store: str, folder: Path, owner_url: str, compared: int = 0) -> Path:
    """The file of an operator. PostgreSQL compares nothing by itself: what a test finds, the store has found."""
    file = folder / f"{store}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    for name, driver in (("url", "psycopg2"), ("async-url", "asyncpg")):
        (folder / name).write_text(owner_url.replace("+asyncpg", "").replace("://", f"+{driver}://"), "utf-8")
    file.write_text(f"compared = {compared}\n{DECLARED[store].format(folder=folder)}", "utf-8")
    return file


DECLARED = {
    "chroma": """
        class = "llama_index.vector_stores.chroma.ChromaVectorStore"
        constructor = "from_params"
        [arguments]
        collection_name = "{{generation}}"
        persist_dir = "{folder}/chroma"
    """,
    "postgres": """
        class = "llama_index.vector_stores.postgres.PGVectorStore"
        several_processes = true
        threads = 4
        [arguments]
        table_name = "{{generation}}"
        embed_dim = "{{dimension}}"
        connection_string = {{ file = "{folder}/url" }}
        async_connection_string = {{ file = "{folder}/async-url" }}
        initialization_fail_on_error = true
    """,
    "qdrant": """
        class = "llama_index.vector_stores.qdrant.QdrantVectorStore"
        [arguments]
        collection_name = "{{generation}}"
        [arguments.client]
        class = "qdrant_client.QdrantClient"
        [arguments.client.arguments]
        path = "{folder}/qdrant-llamaindex"
        force_disable_check_same_thread = true
    """,
}


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
