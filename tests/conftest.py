"""One PostgreSQL for the whole run, and organizations of their own for the tests, so that nobody cleans up.

RAG_TEST_OWNER_URL and RAG_TEST_APP_URL name another server; its database is migrated and left as it is.
"""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from rag_app.db.migrate import upgrade
from rag_app.db.people import Organization, People
from rag_app.db.private import PrivatePostgres, private_postgres
from rag_app.db.session import Database, asyncpg_url

MIGRATIONS = Path(__file__).parents[1] / "migrations"

NewPostgres = Callable[[], PrivatePostgres]
NewOrganization = Callable[[], Awaitable[Organization]]


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
        server: PrivatePostgres = request.getfixturevalue("new_postgres")()
        owner_url, app_url = server.owner_url, server.app_url
    upgrade(owner_url, app_url, MIGRATIONS)
    return owner_url, app_url


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
