"""The whole application on a real PostgreSQL, with either vector store as the default."""

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from rag_app.application import Application, DatabaseUrls, open_application
from rag_app.documents.ingest import Summary
from rag_app.documents.metadata import Target
from rag_app.domain.answer import Hit, Mode, Question
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.settings import Settings
from tests.conftest import DEFAULT_STORE, MIGRATIONS, NewOrganization

INDEX = "org_knowledge"
ON_DEFAULT = pytest.mark.parametrize(
    "environment", [pytest.param(DEFAULT_STORE, marks=pytest.mark.default_store)], indirect=True
)
"""For what either store should do and one of them is enough to show."""


@pytest.fixture(params=["postgres", "qdrant"])
def environment(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], qdrant_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    """The variables of a deployment on the tests' database; the name of its vector store."""
    for name, value in {
        "RAG_DATABASE_URL": database_urls[1],
        "RAG_DATABASE_OWNER_URL": database_urls[0],
        "RAG_VECTOR_STORE": request.param,
        "QDRANT_PATH": str(qdrant_folder),
        "RAG_HOME": str(tmp_path / "home"),
        "RAG_JWT_SECRET": "a secret of the tests, long enough for HS256",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("QDRANT_URL", raising=False)
    return str(request.param)


@pytest.fixture
async def application(environment: str, database_urls: tuple[str, str]) -> AsyncIterator[Application]:
    """Open for the test; its indexes are built at first use and shared by all tests of a run."""
    async with open_application(Settings(), DatabaseUrls(database_urls[1], database_urls[0], private=True)) as opened:
        yield opened


@pytest.fixture(scope="session")
def forking() -> Iterator[subprocess.Popen[str]]:
    """Runs commands: tests/integration/forking.py."""
    command = [sys.executable, "-m", "tests.integration.forking"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=MIGRATIONS.parent
    ) as it:
        yield it
        assert it.stdin
        it.stdin.close()


Ingest = Callable[..., Awaitable[Summary]]
Search = Callable[..., Awaitable[tuple[Hit, ...]]]


@pytest.fixture
async def org(application: Application, organization: NewOrganization) -> UUID:
    return (await organization()).id


@pytest.fixture
def ingest(application: Application, org: UUID) -> Ingest:
    """Ingest a folder for `org`, or for another organization, into one index."""

    async def run(folder: Path, *, org_id: UUID = org, index: str = INDEX, **target: object) -> Summary:
        ingestor = await application.ingestor(application.indexes[index], Target(org_id, **target))  # type: ignore[arg-type]
        return await ingestor.ingest([folder], base=folder)

    return run


@pytest.fixture
def search(application: Application, org: UUID) -> Search:
    """Search as a member of `org`, or of another organization."""

    async def run(
        text: str, *, org_id: UUID = org, user: UUID | None = None, index: str = INDEX, top_k: int = 20,
        mode: Mode = Mode.HYBRID,
    ) -> tuple[Hit, ...]:  # fmt: skip
        scope = Scope(frozenset({org_id, PUBLIC_ORGANIZATION}), user)
        return await application.pipeline.search(index, Question(text, top_k=top_k, mode=mode), scope)

    return run
