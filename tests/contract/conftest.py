"""The API on a real port, served by Granian as in production, with everything behind it scripted."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from granian.constants import Interfaces
from granian.server.embed import Server
from litestar import Litestar

from rag_app.api.auth import Tokens, issue_token
from rag_app.api.server import api
from rag_app.domain.answer import Answer, Hit, Question
from rag_app.domain.scope import Principal, Scope

SECRET = "a-secret-for-tests-of-more-than-32-bytes"
AUDIENCE, ISSUER = "rag-tests", "https://issuer.test"


@contextmanager
def serve(app: Litestar) -> Iterator[str]:
    """Run the app until the block ends; gives its base URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = threading.Event()
    running: list[tuple[asyncio.AbstractEventLoop, Server]] = []

    async def run() -> None:
        server = Server(app, port=port, interface=Interfaces.ASGI, log_enabled=False)
        running.append((asyncio.get_running_loop(), server))
        started.set()
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="granian")
    thread.start()
    assert started.wait(10)
    try:
        _wait_until_it_listens(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        loop, server = running[0]
        loop.call_soon_threadsafe(server.stop)
        thread.join(10)
        assert not thread.is_alive()


def _wait_until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise TimeoutError("the server does not listen")


@dataclass
class ScriptedPipeline:
    """Answers what it is told to, and remembers what it was asked."""

    hits: tuple[Hit, ...] = ()
    given: Answer | None = None
    error: Exception | None = None
    asked: list[tuple[str, Question, Scope]] = field(default_factory=list)

    async def search(self, index: str, question: Question, scope: Scope) -> tuple[Hit, ...]:
        self.asked.append((index, question, scope))
        if self.error:
            raise self.error
        return self.hits

    async def answer(self, capability: str, question: Question, scope: Scope) -> Answer:
        await self.search(capability, question, scope)
        assert self.given is not None
        return self.given


@dataclass
class ScriptedPeople:
    known: dict[str, Principal] = field(default_factory=dict)
    error: Exception | None = None

    async def principal(self, subject: str) -> Principal:
        if self.error:
            raise self.error
        return self.known.get(subject, Principal(subject))


@dataclass(frozen=True)
class ScriptedWindow:
    limit: int
    remaining: int
    resets_at: int
    allowed: bool


@dataclass
class ScriptedLimiter:
    """Counts as the real one does, in a window that never ends before the test."""

    counts: dict[str, int] = field(default_factory=dict)
    resets_at: int = 0

    async def hit(self, key: str, limit: int, window: int = 60) -> ScriptedWindow:
        count = self.counts[key] = self.counts.get(key, 0) + 1
        return ScriptedWindow(limit, max(0, limit - count), self.resets_at, count <= limit)


@dataclass
class Backstage:
    """What stands behind the running API; the tests set it."""

    pipeline: ScriptedPipeline = field(default_factory=ScriptedPipeline)
    people: ScriptedPeople = field(default_factory=ScriptedPeople)
    limiter: ScriptedLimiter = field(default_factory=ScriptedLimiter)
    checks: dict[str, str] = field(default_factory=lambda: {"database": "ok"})

    def reset(self) -> None:
        self.pipeline.__init__()  # type: ignore[misc]
        self.people.__init__()  # type: ignore[misc]
        self.limiter.__init__(resets_at=int(time.time()) + 30)  # type: ignore[misc]
        self.checks = {"database": "ok"}

    async def readiness(self) -> Mapping[str, str]:
        return self.checks


@pytest.fixture(scope="session")
def running() -> Iterator[tuple[str, Backstage]]:
    backstage = Backstage()
    app = api(
        pipeline=backstage.pipeline,
        people=backstage.people,
        limiter=backstage.limiter,
        tokens=Tokens(SECRET, AUDIENCE, ISSUER),
        readiness=backstage.readiness,
        version="0.0.test",
    )
    with serve(app) as url:
        yield url, backstage


@pytest.fixture
def backstage(running: tuple[str, Backstage]) -> Backstage:
    running[1].reset()
    return running[1]


@pytest.fixture
def anonymous(running: tuple[str, Backstage], backstage: Backstage) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running[0], timeout=10, verify=False) as client:  # reading certificates takes 60 ms
        yield client


@pytest.fixture
def client(anonymous: httpx.Client) -> httpx.Client:
    """Somebody with a valid token."""
    anonymous.headers["Authorization"] = f"Bearer {issue_token('ada', SECRET, audience=AUDIENCE, issuer=ISSUER)}"
    return anonymous
