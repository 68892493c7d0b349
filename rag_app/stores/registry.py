"""The registry of vector stores, by the kind used in settings. Your own module can add an entry to `STORES`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from rag_app.domain import Misconfigured, Scope, require

if TYPE_CHECKING:
    from pathlib import Path

    from rag_app.database.session import Database
    from rag_app.retrieval.store import Backend
    from rag_app.settings import Settings
    from rag_app.stores.class_file import ClassFile

Visible = Callable[[Scope, str, Sequence[UUID]], Awaitable[set[UUID]]]
"""(scope, generation, sources) -> those that the scope may see, according to PostgreSQL."""


class Store(Struct, frozen=True):
    """One kind of vector store.

    `open` creates its backend, with the application's database, and imports the vendor. A store that cannot enforce
    tenancy calls `Visible` before it returns anything. `place` describes its location for people. `unshared` is the
    reason why several processes cannot use it at once, or empty. `configured` tells whether the settings refer to it,
    even if no index uses it. A store that is `always_there` is part of the database: PostgreSQL has its vectors. One that
    is `in_database` has nothing beside it.
    """

    open: "Callable[[Settings, Database, Visible], Backend]"
    place: "Callable[[Settings], str]"
    unshared: "Callable[[Settings], str]" = lambda settings: ""
    configured: "Callable[[Settings], bool]" = lambda settings: True
    always_there: bool = False
    in_database: bool = False


def store_named(kind: str) -> Store:
    """Raises Misconfigured with the known kinds."""
    return require(
        STORES.get(kind), Misconfigured(f"there is no vector store {kind!r}: accepted are {', '.join(STORES)}")
    )


def unshared_store(settings: "Settings") -> str:
    """Why several processes cannot use the stores of the declared indexes at once, or empty."""
    from rag_app.retrieval.index import load_indexes

    specs = load_indexes(*settings.indexes.folders).values()
    kinds = sorted({spec.vector_store or settings.store.kind for spec in specs})
    return next((why for kind in kinds if (why := store_named(kind).unshared(settings))), "")


def _open_postgres(settings: "Settings", database: "Database", visible: Visible) -> "Backend":
    from rag_app.stores.postgres import PostgresBackend

    return PostgresBackend(database)


def _open_qdrant(settings: "Settings", database: "Database", visible: Visible) -> "Backend":
    from rag_app.stores.qdrant import QdrantBackend

    url, key = settings.store.qdrant_url, settings.store.qdrant_api_key
    return QdrantBackend(
        database,
        visible,
        path=(None if url else _qdrant_folder(settings)),
        url=url,
        api_key=key.get_secret_value() if key else None,
    )


def _open_llamaindex(settings: "Settings", database: "Database", visible: Visible) -> "Backend":
    from rag_app.stores.llamaindex import LlamaIndexBackend

    return LlamaIndexBackend(database, visible, _class_file(settings))


def _class_file(settings: "Settings") -> "ClassFile":
    from rag_app.stores.class_file import read_class_file

    return read_class_file(settings.store.class_file)


def _qdrant_folder(settings: "Settings") -> "Path":
    return settings.store.qdrant_path or settings.database.home / "qdrant"


STORES: dict[str, Store] = {
    "postgres": Store(_open_postgres, lambda settings: "PostgreSQL", always_there=True, in_database=True),
    "qdrant": Store(
        _open_qdrant,
        lambda settings: f"Qdrant ({settings.store.qdrant_url or f'local, in {_qdrant_folder(settings)}'})",
        lambda settings: (
            ""
            if settings.store.qdrant_url
            else "local Qdrant serves one process: use --workers 1, or a Qdrant server by QDRANT_URL"
        ),
        lambda settings: (
            bool(settings.store.qdrant_url or settings.store.qdrant_path) or _qdrant_folder(settings).exists()
        ),
    ),
    "llamaindex": Store(
        _open_llamaindex,
        lambda settings: f"{_class_file(settings).release} (as {settings.store.class_file} says)",
        lambda settings: (
            ""
            if _class_file(settings).several_processes
            else "the vector store is declared for one process: use --workers 1, or set several_processes in its file"
        ),
        lambda settings: settings.store.class_file is not None,
        always_there=True,
    ),
}
