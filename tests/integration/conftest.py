"""The whole application on a real PostgreSQL, with either vector store as the default."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

import pytest

from rag_app.application import Application, open_application
from rag_app.console import cli
from rag_app.database.urls import DatabaseUrls
from rag_app.documents.ingest import Summary
from rag_app.documents.metadata import Target
from rag_app.documents.reading import ReaderPool
from rag_app.domain.answer import Hit, Mode, Question
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.settings import Settings
from tests.conftest import MIGRATIONS, ON_DEFAULT_STORE, NewOrganization
from tests.remembered import remember

if TYPE_CHECKING:
    from tests.integration.lexybrain import Chat

INDEX = "org_knowledge"
ON_DEFAULT = pytest.mark.parametrize("environment", [ON_DEFAULT_STORE], indirect=True)


Command = Callable[..., str]
"""A command line and the exit status that it is to have; what it says, on stderr where the status is 1."""


@pytest.fixture
def rag(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def rag(*arguments: str, status: int = 0) -> str:
        with monkeypatch.context() as patch:
            patch.setattr("sys.argv", ["rag-app", *arguments])
            with pytest.raises(SystemExit) as left:
                cli.main()
        said = capsys.readouterr()
        assert (int(left.value.code or 0)) == status, said
        return said.err if status == 1 else said.out

    return rag


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


@pytest.fixture(scope="package", autouse=True)
def _remembered(vectors: Path) -> Iterator[None]:
    with remember(vectors):
        yield


@pytest.fixture(scope="package", autouse=True)
def _readers_go_on() -> Iterator[None]:
    """A process that reads files takes a second to start: an application that closes leaves its own to the next one."""
    idle: dict[tuple[str, str], list[Any]] = {}
    start = ReaderPool._take_child

    def left(readers: ReaderPool) -> list[Any]:
        """Those with the same limits that were started here: a path may be relative."""
        return idle.setdefault((repr(readers._limits), str(Path.cwd())), [])

    def child(self: ReaderPool) -> Any:
        with suppress(IndexError):
            self._idle.append(left(self).pop())
        return start(self)

    def close(self: ReaderPool) -> None:
        left(self).extend(self._idle)
        self._idle.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReaderPool, "_take_child", child)
        patch.setattr(ReaderPool, "close", close)
        yield
    for children in idle.values():
        for each in children:
            each.close()


@dataclass(frozen=True)
class Running:
    """A command in a process of its own, which `wait` gives the exit status of."""

    pid: int
    folder: Path
    statuses: IO[str]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return int(self.statuses.readline())

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text("utf-8")

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text("utf-8")


@dataclass(frozen=True)
class Forking:
    """Runs commands in processes whose imports are done, one after the other: tests/integration/forking.py."""

    process: subprocess.Popen[str]
    folders: Callable[[str], Path]

    def start(self, arguments: Sequence[object], folder: Path, **variables: str) -> Running:
        said = self.folders("said")
        for name in ("out", "err"):
            (said / name).touch()
        command = {
            "arguments": [str(each) for each in arguments], "folder": str(folder), "out": str(said / "out"),
            "err": str(said / "err"), "environment": {**os.environ, **variables},
        }  # fmt: skip
        assert self.process.stdin and self.process.stdout
        print(json.dumps(command), file=self.process.stdin, flush=True)
        return Running(int(self.process.stdout.readline()), said, self.process.stdout)


@pytest.fixture(scope="session")
def forking(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forking]:
    command = [sys.executable, "-m", "tests.integration.forking", str(vectors)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=MIGRATIONS.parent
    ) as it:
        yield Forking(it, tmp_path_factory.mktemp)
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


@pytest.fixture(scope="module")
def running(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Chat]":
    """A server with a scripted model, for all conversations of a module."""
    from tests.integration.lexybrain import chatting

    with chatting(database_urls, default_store, qdrant_folder, tmp_path_factory.mktemp("chat")) as chat:
        yield chat
