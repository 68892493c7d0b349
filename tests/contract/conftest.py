"""The API on a real port, served by Granian as in production, with everything behind it scripted."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from granian.constants import Interfaces
from granian.server.embed import Server
from litestar import Litestar

from rag_app.api.auth import Tokens, issue_token
from rag_app.api.collaborators import Collaborators, Collection, Listing
from rag_app.api.entrance import Entrance
from rag_app.api.server import api
from rag_app.domain.answer import Answer, Delta, Event, Found, Hit, Question
from rag_app.domain.errors import ModelFailed, NotFound, Unauthenticated
from rag_app.domain.scope import Principal, Scope
from rag_app.evaluation.passages import Judged, Passages, Span

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
    pieces: list[str] = field(default_factory=list)
    """In which a streamed answer comes; all at once by default."""
    breaks_after: int | None = None
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

    async def stream(self, capability: str, question: Question, scope: Scope) -> AsyncGenerator[Event, None]:
        given = await self.answer(capability, question, scope)
        yield Found(given.hits)
        for number, piece in enumerate(self.pieces or [given.text]):
            if self.breaks_after is not None and number >= self.breaks_after:
                raise ModelFailed("it broke")
            yield Delta(piece)
        yield given


@dataclass
class ScriptedPeople:
    known: dict[str, Principal] = field(default_factory=dict)
    error: Exception | None = None

    async def principal(self, subject: str) -> Principal:
        if self.error:
            raise self.error
        return self.known.get(subject, Principal(subject))

    async def member_of(self, organization: str) -> Principal:
        if organization not in self.known:
            raise NotFound("organization", organization)
        return self.known[organization]


@dataclass
class ScriptedKeys:
    known: dict[str, Principal] = field(default_factory=dict)

    async def principal(self, key: str) -> Principal:
        if key not in self.known:
            raise Unauthenticated("The API key is not valid")
        return self.known[key]


@dataclass
class ScriptedLeases:
    """Counts places as the real ones do; none is freed but by giving it back."""

    taken: dict[UUID, str] = field(default_factory=dict)
    extend_every: float = 20.0

    async def take(self, key: str, limit: int) -> UUID | None:
        if list(self.taken.values()).count(key) >= limit:
            return None
        lease = uuid4()
        self.taken[lease] = key
        return lease

    async def extend(self, lease: UUID) -> None:
        assert lease in self.taken

    async def give_back(self, lease: UUID) -> None:
        del self.taken[lease]


@dataclass
class ScriptedCatalogue:
    known: list[Listing] = field(default_factory=list)
    stored: dict[UUID, Hit] = field(default_factory=dict)
    """Chunks that no search has to find."""

    async def collections(self, principal: Principal) -> list[Listing]:
        return [each for each in self.known if principal.indexes is None or each.collection.index in principal.indexes]

    async def collection(self, name: str, principal: Principal) -> Collection:
        for each in await self.collections(principal):
            if name in each.collection.names:
                return each.collection
        raise NotFound("collection", name)

    async def chunks(self, collection: Collection, ids: Sequence[UUID], principal: Principal) -> dict[UUID, Hit]:
        return {each: self.stored[each] for each in ids if each in self.stored}


@dataclass
class ScriptedValidations:
    """Keeps runs as the real ones are kept, and judgments of whoever asks."""

    runs: dict[UUID, tuple[Principal, str, int, Mapping[str, Any]]] = field(default_factory=dict)
    judged: dict[str, list[Judged]] = field(default_factory=dict)
    texts: dict[UUID, Passages] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    error: Exception | None = None

    async def record(
        self,
        principal: Principal,
        run: UUID,
        index: str,
        generation: int,
        top_k: int,
        report: Mapping[str, Any],
        judgments: Sequence[tuple[str, UUID, Span | None]],
    ) -> None:
        if self.error:
            raise self.error
        self.runs[run] = principal, index, top_k, json.loads(json.dumps(report))
        for query, source, span in judgments:
            self.judged.setdefault(query, []).append((source, span))

    async def report(self, principal: Principal, run: UUID) -> Mapping[str, Any] | None:
        owner, _, _, report = self.runs.get(run, (None, "", 0, None))
        return report if owner == principal else None

    async def newest(
        self, principal: Principal, limit: int, before: UUID | None
    ) -> list[tuple[UUID, str, int, Mapping[str, Any]]]:
        mine = [(run, index, k, report) for run, (who, index, k, report) in self.runs.items() if who == principal]
        mine.reverse()
        places = [place for place, (run, *_) in enumerate(mine) if run == before]
        start = 0 if before is None else places[0] + 1 if places else len(mine)
        return mine[start : start + limit]

    async def judgments(
        self, principal: Principal, index: str, query: str, hits: AbstractSet[UUID]
    ) -> tuple[list[Judged], dict[UUID, Passages]]:
        self.asked.append(query)
        return self.judged.get(query, []), {source: text for source, text in self.texts.items() if source in hits}

    async def contents(self, principal: Principal, sources: AbstractSet[UUID]) -> dict[UUID, Passages]:
        return {source: text for source, text in self.texts.items() if source in sources}


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
    keys: ScriptedKeys = field(default_factory=ScriptedKeys)
    limiter: ScriptedLimiter = field(default_factory=ScriptedLimiter)
    leases: ScriptedLeases = field(default_factory=ScriptedLeases)
    catalogue: ScriptedCatalogue = field(default_factory=ScriptedCatalogue)
    validations: ScriptedValidations = field(default_factory=ScriptedValidations)
    checks: dict[str, str] = field(default_factory=lambda: {"database": "ok"})

    def reset(self) -> None:
        self.pipeline.__init__()  # type: ignore[misc]
        for each in (self.people, self.keys, self.leases, self.catalogue, self.validations):
            each.__init__()  # type: ignore[misc]
        self.limiter.__init__(resets_at=int(time.time()) + 30)  # type: ignore[misc]
        self.checks = {"database": "ok"}

    def collaborators(self) -> Collaborators:
        return Collaborators(
            pipeline=self.pipeline,
            people=self.people,
            keys=self.keys,
            limiter=self.limiter,
            leases=self.leases,
            catalogue=self.catalogue,
            validations=self.validations,
            readiness=self.readiness,
        )

    async def readiness(self) -> Mapping[str, str]:
        return self.checks


@pytest.fixture(scope="session")
def running() -> Iterator[tuple[str, Backstage]]:
    backstage = Backstage()
    app = api(backstage.collaborators(), Entrance(Tokens(SECRET, AUDIENCE, ISSUER)), version="0.0.test")
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
