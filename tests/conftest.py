"""One PostgreSQL for the whole run, and organizations of their own for the tests, so that nobody cleans up.

RAG_TEST_OWNER_URL and RAG_TEST_APP_URL name another server; its database is migrated and left as it is.

RAG_VECTOR_STORE says with which store the tests run that neither name one nor run with both. They ask for
`default_store`, which marks them: `pytest -m default_store` is what has to be run again with the other one.
"""

import asyncio
import gc
import os
import random
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

import rag_app.surfaces.lexybrain  # noqa: F401 - its capabilities are registered in every test, as in the application
from rag_app.access.people import Organization, People
from rag_app.database.migrate import upgrade
from rag_app.database.private import PrivatePostgres, private_postgres
from rag_app.database.session import Database, asyncpg_url
from tests.fuzzing import examples

collect_ignore_glob = ["*/train.py", "*/network.py", "*/compact.py"]
"""They need packages that only the training of the reader and of the parser has."""

# How long an example takes is the machine's business, not the product's: others may be at work on it. Examples are the
# same in each run of the same code; `make fuzz` looks for new ones.
settings.register_profile(
    "any machine", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow],
    derandomize="FUZZ_EXAMPLES" not in os.environ,
)  # fmt: skip
settings.load_profile("any machine")

# Servers of tests start no process for jobs beside them: tests of jobs have workers of their own.
os.environ.setdefault("RAG_SERVE_WORKER", "false")

MIGRATIONS = Path(__file__).parents[1] / "migrations"
DEFAULT_STORE = os.environ.get("RAG_VECTOR_STORE") or "postgres"
ON_DEFAULT_STORE = pytest.param(DEFAULT_STORE, marks=pytest.mark.default_store)
"""For what either store should do and one of them is enough to show: CI has it done by the other one, too."""
SEVERAL = pytest.mark.skipif(DEFAULT_STORE == "qdrant", reason="local Qdrant belongs to one process")
"""For a second application or another process beside one that runs."""


def free_port() -> int:
    """One that the system gives to nobody by itself, so that nobody has it before it is listened on."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(15_000, 30_000)))
            port: int = probe.getsockname()[1]
            return port


NewPostgres = Callable[[], PrivatePostgres]
NewOrganization = Callable[[], Awaitable[Organization]]


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files with the longest tests come first, so that no process is left alone with them at the end."""
    items.sort(key=lambda item: "integration" not in item.path.parts)
    for item in items:
        if "default_store" in getattr(item, "fixturenames", ()):
            item.add_marker("default_store")
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("fuzz")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported while tests are collected stays; garbage is looked for afterwards, as often as in the product."""
    gc.disable()
    collected = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, *gc.get_threshold()[1:])
    return collected


@pytest.fixture(scope="session", autouse=True)
def _one_model() -> Iterator[None]:
    """Loaded once a process: an application of its own for each of a thousand tests would load 80 MB each time."""
    from rag_app.retrieval import embedding

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "open_session", cache(embedding.open_session))
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates() -> Iterator[None]:
    """Read once a process: each client of httpx would read them, which takes 20 ms, and nobody here speaks TLS."""
    import httpx

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", cache(httpx.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _unsaid() -> Iterator[None]:
    """Whoever opens the application says with which store, or fails: no test depends on it and lacks the mark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_VECTOR_STORE", "not said, ask for default_store")
        yield


@pytest.fixture(scope="session")
def default_store() -> str:
    return DEFAULT_STORE


@pytest.fixture(scope="session")
def qdrant_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one local Qdrant beside `database_urls`, whose generations it holds."""
    return tmp_path_factory.mktemp("qdrant")


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What tests/remembered.py keeps: one folder for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "vectors"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def new_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewPostgres]:
    """Start a server with an empty database; it lives until the end of the run. Takes about two seconds."""
    with ExitStack() as servers:

        def start() -> PrivatePostgres:
            folder = tmp_path_factory.mktemp("postgres")
            servers.callback(lambda: shutil.rmtree((folder / "cluster").resolve()))  # may lie outside of the folder
            return servers.enter_context(private_postgres(folder))

        yield start


@pytest.fixture(scope="session")
def database_urls(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The URLs of the owner and of the application's role, for SQLAlchemy; the schema is at head."""
    urls = os.environ.get("RAG_TEST_OWNER_URL"), os.environ.get("RAG_TEST_APP_URL")
    if urls[0] and urls[1]:
        owner_url, app_url = (asyncpg_url(url).render_as_string(hide_password=False) for url in urls if url)
    else:
        server: PrivatePostgres = request.getfixturevalue("_server")
        owner_url, app_url = server.owner_url, server.app_url
    upgrade(owner_url, app_url, MIGRATIONS)
    return owner_url, app_url


@pytest.fixture(scope="session")
def _server(new_postgres: NewPostgres) -> PrivatePostgres:
    """The one that most tests share. Its databases `bare`, without a schema, and `migrated`, at head, are to be copied."""
    server = new_postgres()
    # Nobody pulls the plug of this server; those that are killed are servers of their own.
    careless = (f"ALTER SYSTEM SET {name} = off" for name in ("fsync", "full_page_writes", "synchronous_commit"))
    _as_superuser(server, *careless, "SELECT pg_reload_conf()", _COPY.format("bare", "rag"))
    upgrade(server.owner_url, server.app_url, MIGRATIONS)
    _as_superuser(server, _COPY.format("migrated", "rag"))
    return server


@pytest.fixture(scope="session")
def new_database(_server: PrivatePostgres) -> NewPostgres:
    """Make a database at head for tests that need all of it: on the server that others use, too, but another one."""
    return partial(copy_database, _server, "migrated")


@pytest.fixture(scope="session")
def new_bare_database(_server: PrivatePostgres) -> NewPostgres:
    """The same without a schema, for tests of migrations."""
    return partial(copy_database, _server, "bare")


_COPY = "CREATE DATABASE {} TEMPLATE {} OWNER rag_owner"


def copy_database(server: PrivatePostgres, template: str) -> PrivatePostgres:
    """A copy of one of the server's databases, which nobody is connected to."""
    name = f"test_{uuid4().hex[:12]}"
    _as_superuser(server, _COPY.format(name, template))
    urls = (f"{url.rpartition('/')[0]}/{name}" for url in (server.owner_url, server.app_url, server.superuser_url))
    return PrivatePostgres(server.folder, *urls)


def _as_superuser(server: PrivatePostgres, *statements: str) -> None:
    """On a thread: the caller may have an event loop."""
    password = (server.folder / "cluster" / "passwords").read_text().split()[0]
    at = server.app_url.rpartition("@")[2].partition("/")[0]

    async def execute() -> None:
        connection = await asyncpg.connect(f"postgresql://postgres:{password}@{at}/postgres")
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    with ThreadPoolExecutor() as thread:
        thread.submit(asyncio.run, execute()).result()


@pytest.fixture
async def database(database_urls: tuple[str, str]) -> AsyncIterator[Database]:
    """As the application connects. A pool belongs to one event loop, so every test has its own."""
    opened = Database(database_urls[1])
    yield opened
    await opened.close()


@pytest.fixture
def organization(database: Database) -> NewOrganization:
    """Make an organization that nothing belongs to yet."""

    async def make() -> Organization:
        slug = f"org-{uuid4().hex[:12]}"
        return await People(database).create_organization(slug, slug.title())

    return make
