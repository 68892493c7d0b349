"""The API on a real port, served by Granian as in production.

The services are the real ones on the session's PostgreSQL: who callers are, what is counted, threads, feedback, consents,
figures, versions of prompts, validation runs. Scripted are the pipeline, the chunks of a store and a conversation's turn:
for exact scores and texts, and for streams that come in pieces or break off. tests/integration has all of them real.
"""

import asyncio
import inspect
import math
import os
import re
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest
from granian.constants import Interfaces
from granian.server.embed import Server
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from litestar import Litestar
from llama_index.core.schema import TextNode
from msgspec import structs
from msgspec.structs import replace
from sqlalchemy import Executable, Row, Select, Table, insert

from rag_app.access.limits import Leases, RateLimiter, Window
from rag_app.access.people import Keys, People
from rag_app.access.tokens import TokenReader, issue_token
from rag_app.answering.prompt_configs import PromptRegistry
from rag_app.database.migrate import upgrade
from rag_app.database.session import Database
from rag_app.documents.generations import Generation
from rag_app.documents.ledger import SourceLedger
from rag_app.domain.answer import Answer, Confidence, Delta, Event, FoundHits, Hit, Mode, Question
from rag_app.domain.errors import ModelFailed
from rag_app.domain.scope import Principal, Scope
from rag_app.evaluation.kept_answers import KeptAnswers
from rag_app.evaluation.records import Validations
from rag_app.http.entrance import Access, Entrance
from rag_app.http.fields import as_wire
from rag_app.http.server import api
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces import registry
from rag_app.surfaces.lexybrain.conversations import INDEX
from rag_app.surfaces.lexybrain.feedback import FeedbackLedger
from rag_app.surfaces.lexybrain.quotas import Entitlements
from rag_app.surfaces.lexybrain.statistics import Statistics
from rag_app.surfaces.lexybrain.threads import ThreadStore
from rag_app.surfaces.lexybrain.training import Training
from rag_app.surfaces.lexybrain.types import (
    Flags,
    RagCitation,
    RagModel,
    RagReferences,
    RagRequest,
    RagResponse,
    RagSource,
)
from rag_app.surfaces.management.service import Belonging, FeedbackQueue, Usage
from rag_app.surfaces.validation.service import RetrievalValidation
from tests.conftest import MIGRATIONS, free_port
from tests.waiting import PATIENCE, wait_for

SECRET = "a-secret-for-tests-of-more-than-32-bytes"
AUDIENCE, ISSUER = "rag-tests", "https://issuer.test"
BEGAN = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)


@dataclass(frozen=True)
class NewRow:
    """A row to be added, as often as a test asks."""

    table: Table
    values: Mapping[str, Any]

    @property
    def id(self) -> UUID:
        return UUID(str(self.values["id"]))


class Tables:
    """PostgreSQL, for tests that say who is known and what was counted. It runs beside the servers."""

    url = ""
    opened: ClassVar[list[Database]] = []

    def open(self, url: str) -> None:
        self.url, self._loop = url, asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="tables", daemon=True).start()
        self._connection = self._run(asyncpg.connect(url.replace("+asyncpg", "")))
        self._database = Database(url, pool_size=1)

    def close(self) -> None:
        self._run(self._connection.close())
        self._run(self._database.close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def fetch(self, sql: str, *values: Any) -> list[Any]:
        found: list[Any] = self._run(self._connection.fetch(sql, *values))
        return found

    def change(self, scope: Scope, *steps: "Executable | NewRow") -> None:
        """Statements and rows to be added, in one transaction of the scope, for its organizations as a whole."""

        async def work() -> None:
            async with self._database.scoped(scope, operator=True) as session:
                for step in steps:
                    await session.execute(insert(step.table).values(step.values) if isinstance(step, NewRow) else step)

        self._run(work())

    def read(self, scope: Scope, query: Select[Any]) -> Sequence[Row[Any]]:
        """The rows, as the operator sees them."""
        rows: Sequence[Row[Any]] = self._run(self._database.read(scope, query, operator=True))
        return rows

    def administers(self, user: UUID, role: str = "admin") -> None:
        self.fetch("UPDATE users SET role = $2 WHERE id = $1", user, role)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


TABLES = Tables()


Validate = Callable[[httpx.Response], None]


@pytest.fixture
def validator(document: dict[str, Any]) -> Validate:
    """Checks a body against the API's own OpenAPI document."""

    def check(response: httpx.Response) -> None:
        path = response.request.url.path
        paths = [path, *(each for each in document["paths"] if re.fullmatch(re.sub(r"{\w+}", "[^/]+", each), path))]
        operation = next(document["paths"][each] for each in paths if each in document["paths"])
        content = operation[response.request.method.lower()]["responses"][str(response.status_code)]["content"]
        schema = {**content["application/json"]["schema"], "components": document["components"]}
        Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(response.json())

    return check


@pytest.fixture(scope="session", autouse=True)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    """Of the session's PostgreSQL; of one of our own where that is shared, as what is counted must be ours alone."""
    if os.environ.get("RAG_TEST_APP_URL"):
        server = request.getfixturevalue("new_postgres")()
        upgrade(server.owner_url, server.app_url, MIGRATIONS)
        TABLES.open(server.app_url)
    else:
        TABLES.open(request.getfixturevalue("database_urls")[1])
    yield TABLES
    TABLES.close()


@contextmanager
def serve(app: Litestar) -> Iterator[str]:
    """Run the app until the block ends; gives its base URL."""
    port = free_port()
    app.on_shutdown += [database.close for database in TABLES.opened]
    TABLES.opened.clear()
    started = threading.Event()
    running: list[tuple[asyncio.AbstractEventLoop, Server]] = []

    async def run() -> None:
        server = Server(app, port=port, interface=Interfaces.ASGI, log_enabled=False)
        running.append((asyncio.get_running_loop(), server))
        started.set()
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="granian")
    thread.start()
    assert started.wait(PATIENCE)
    try:
        wait_for(lambda: _listens(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        loop, server = running[0]
        loop.call_soon_threadsafe(server.stop)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


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

    def warnings(self, question: Question) -> list[str]:
        return [f"{len(question.text)} characters are many"] if len(question.text) > 400 else []

    def search_mode(self, index: str) -> Mode:
        return Mode.DENSE

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
        yield FoundHits(given.hits)
        for number, piece in enumerate(self.pieces or [given.text]):
            if self.breaks_after is not None and number >= self.breaks_after:
                raise ModelFailed("it broke")
            yield Delta(piece)
        yield given


class Known(dict[str, Principal]):
    """Principals by what they show. Each that is set is written to the tables; `clear` makes all of them unknown."""

    def __setitem__(self, shown: str, principal: Principal) -> None:
        user = principal.user or uuid4()
        organizations = principal.organizations or {uuid4()}
        super().__setitem__(shown, replace(principal, user=user, organizations=frozenset(organizations)))
        for each in organizations:
            TABLES.fetch(
                "INSERT INTO organizations (id, slug, name) VALUES ($1, $2, $2) ON CONFLICT DO NOTHING", each, str(each)
            )
        TABLES.fetch("INSERT INTO users (id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING", user, str(user))
        TABLES.fetch("DELETE FROM memberships WHERE user_id = $1", user)
        for each in principal.organizations:
            TABLES.fetch("INSERT INTO memberships (user_id, org_id) VALUES ($1, $2)", user, each)
        self.write(shown, self[shown])

    def write(self, shown: str, principal: Principal) -> None:
        raise NotImplementedError


class PeopleKnown(Known):
    ever: ClassVar[set[str]] = set()  # the tables are those of every Backstage

    def write(self, shown: str, principal: Principal) -> None:
        [organization, *_] = principal.organizations
        self._forget([shown])
        if principal.subject.startswith("member of "):
            TABLES.fetch("UPDATE organizations SET slug = $2 WHERE id = $1", organization, shown)
        else:
            TABLES.fetch("UPDATE users SET subject = $2 WHERE id = $1", principal.user, shown)
        self.ever.add(shown)

    def clear(self) -> None:
        if self.ever:
            self._forget(list(self.ever))
            self.ever.clear()
        super().clear()

    def _forget(self, shown: list[str]) -> None:
        TABLES.fetch("UPDATE organizations SET slug = id::text WHERE slug = ANY($1)", shown)
        TABLES.fetch("UPDATE users SET subject = NULL WHERE subject = ANY($1)", shown)


class KeysKnown(Known):
    ever: ClassVar[set[str]] = set()

    def write(self, shown: str, principal: Principal) -> None:
        [organization, *_] = principal.organizations
        identity = principal.subject.removeprefix("key:")
        self.ever.add(shown)
        TABLES.fetch(
            "INSERT INTO memberships (user_id, org_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            principal.user,
            organization,
        )
        TABLES.fetch(
            "INSERT INTO api_keys (id, name, digest, beginning, user_id, org_id, indexes) VALUES ($1, $2, $3, $4, $5, $6, $7)",
            UUID(identity) if len(identity) == 36 else uuid4(), "of a test", sha256(shown.encode()).hexdigest(), shown[:12], principal.user, organization,
            None if principal.indexes is None else sorted(principal.indexes),
        )  # fmt: skip

    def clear(self) -> None:
        if self.ever:
            digests = [sha256(key.encode()).hexdigest() for key in self.ever]
            TABLES.fetch("DELETE FROM api_keys WHERE digest = ANY($1)", digests)
            self.ever.clear()
        super().clear()


class KnownPeople:
    """Who is known to the real `People`, by the subject of tokens; "member of ..." is an organization, by its slug."""

    def __init__(self) -> None:
        self._known: Known = PeopleKnown()
        self.clear()

    @property
    def known(self) -> Known:
        return self._known

    @known.setter
    def known(self, principals: Mapping[str, Principal]) -> None:
        self.clear()
        for shown, principal in principals.items():
            self._known[shown] = principal

    def clear(self) -> None:
        self._known.clear()


class KnownKeys(KnownPeople):
    """The keys that the real `Keys` knows: `rag_` and 43 characters."""

    def __init__(self) -> None:
        self._known = KeysKnown()
        self.clear()


class Counts(MutableMapping[str, int]):
    """The requests that are counted in the present window, by their key."""

    def __init__(self, windows: "Windows") -> None:
        self._windows = windows

    def _all(self) -> dict[str, int]:
        return dict(TABLES.fetch("SELECT key, cardinality(times) FROM rate_windows"))

    def __getitem__(self, key: str) -> int:
        return self._all()[key]

    def __setitem__(self, key: str, count: int) -> None:
        TABLES.fetch(
            "INSERT INTO rate_windows VALUES ($1, array_fill($2::float8, ARRAY[$3::int]), true) ON CONFLICT (key) "
            "DO UPDATE SET times = excluded.times", key, self._windows.now, count,
        )  # fmt: skip

    def __delitem__(self, key: str) -> None:
        TABLES.fetch("DELETE FROM rate_windows WHERE key = $1", key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


class Windows:
    """What the real `RateLimiter` counts. Its clock is set by the tests, so that no window ends before its test."""

    def __init__(self) -> None:
        self.counts = Counts(self)
        self.clear()

    @property
    def resets_at(self) -> int:
        return math.ceil(self.now + 60)

    def clear(self) -> None:
        self.now = time.time()
        TABLES.fetch("DELETE FROM rate_windows")

    def service(self, database: Database) -> RateLimiter:
        windows = self

        class Pinned(RateLimiter, frozen=True):
            async def hit(self, key: str, limit: int, more: int = 0, now: float | None = None) -> Window:
                return await super().hit(key, limit, more, windows.now)

        return Pinned(database)


class TakenLeases:
    """What the real `Leases` has given out."""

    @property
    def taken(self) -> dict[UUID, str]:
        return dict(TABLES.fetch("SELECT id, key FROM request_leases"))

    def take(self, key: str, places: int) -> None:
        for _ in range(places):
            TABLES.fetch(
                "INSERT INTO request_leases (id, key, expires_at) VALUES ($1, $2, now() + interval '1 hour')",
                uuid4(),
                key,
            )

    def give_back_one(self) -> None:
        TABLES.fetch("DELETE FROM request_leases WHERE id = $1", next(iter(self.taken)))

    def clear(self) -> None:
        TABLES.fetch("DELETE FROM request_leases")


@dataclass
class ScriptedStore:
    """The chunks of an index that no search has to find, and how many there are."""

    counted: int = 0
    stored: dict[UUID, Hit] = field(default_factory=dict)

    async def count(self) -> int:
        return self.counted

    async def fetch(self, ids: Sequence[UUID]) -> dict[UUID, TextNode]:
        return {
            each: TextNode(
                id_=str(each), text=hit.text,
                metadata={
                    "source_id": str(hit.source_id), "org_id": str(hit.org_id), "title": hit.title, "uri": hit.uri,
                    "source_type": hit.source_type, "lang": hit.lang, "position": hit.position,
                    "section": hit.section, "page": hit.page,
                },
            )
            for each, hit in self.stored.items() if each in ids
        }  # fmt: skip


@dataclass
class Shelf:
    """Indexes with a generation that answers, and a store each; `catalogue` is the real one."""

    known: dict[str, tuple[IndexSpec, Generation, ScriptedStore]] = field(default_factory=dict)
    specs: dict[str, IndexSpec] = field(default_factory=dict)

    def add(self, spec: IndexSpec, generation: Generation, store: ScriptedStore) -> None:
        self.specs[spec.name] = spec
        self.known[spec.name] = spec, generation, store

    def clear(self) -> None:
        self.known.clear()
        self.specs.clear()

    def catalogue(self) -> tuple[Any, Any, Any]:
        async def active(spec: IndexSpec) -> Generation:
            return self.known[spec.name][1]

        async def open_store(spec: IndexSpec, scope: Scope) -> Any:
            return self.known[spec.name][2]

        return self.specs, active, open_store


def replied(**other: Any) -> RagResponse:
    """An answer that was made from nothing."""
    made = {
        "thread_id": uuid4(), "message_id": uuid4(), "answer": "Said.", "capability": "general_chat", "sources": [],
        "references": RagReferences([], [], [], []), "model": RagModel("extractive", None, 1),
        "flags": Flags(insufficient_context=True),
    }  # fmt: skip
    return as_wire(RagResponse, SimpleNamespace(**{**made, **other}))


@dataclass
class ScriptedTurn:
    """Says what its conversations are told to reply."""

    stage: "ScriptedConversations"

    @property
    def thread(self) -> UUID:
        return self.stage.given.thread_id

    @property
    def message(self) -> UUID:
        return self.stage.given.message_id

    @property
    def capability(self) -> str:
        return self.stage.given.capability

    async def answer(self) -> RagResponse:
        if self.stage.fails:
            raise self.stage.fails
        return self.stage.given

    async def stream(self) -> AsyncGenerator[Event, None]:
        given, said, closed = self.stage.given, "", self.stage.closed
        try:
            if self.stage.fails and self.stage.breaks_after is None:
                raise self.stage.fails
            yield FoundHits(self.stage.hits)
            for number, piece in enumerate(self.stage.pieces or [given.answer]):
                if number == self.stage.breaks_after:
                    raise self.stage.fails or ModelFailed("it broke")
                if number:
                    await asyncio.sleep(self.stage.thinks)
                said += piece
                yield Delta(piece)
            yield Answer(given.answer, Confidence.HIGH, given.model.id, datetime.now(UTC), self.stage.hits)
        finally:
            await asyncio.sleep(0.01)  # keeping it takes a while
            closed.append(said)

    def reply(self, answer: Answer) -> RagResponse:
        return structs.replace(self.stage.given, answer=answer.text)

    def citations(self, answer: Answer) -> list[RagCitation]:
        return self.stage.cited

    def sources(self, hits: Sequence[Hit]) -> list[RagSource]:
        return [RagSource(hit.source_id, hit.source_type, hit.title, hit.relevance) for hit in hits]


@dataclass
class ScriptedConversations:
    """Remembers what was said and by whom; `error` meets whoever begins, `fails` whoever waits for the answer."""

    given: RagResponse = field(default_factory=replied)
    cited: list[RagCitation] = field(default_factory=list)
    hits: tuple[Hit, ...] = ()
    pieces: list[str] = field(default_factory=list)
    breaks_after: int | None = None
    thinks: float = 0.0
    """Seconds between two pieces."""
    error: Exception | None = None
    fails: Exception | None = None
    said: list[tuple[Principal, RagRequest]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    """What each stream had said when it ended."""

    async def begin(self, principal: Principal, said: RagRequest) -> ScriptedTurn:
        self.said.append((principal, said))
        if self.error:
            raise self.error
        return ScriptedTurn(self)


class Watched:
    """A real service: `asked` are its calls without their principals; `error` meets whoever calls it."""

    def __init__(self, real: object = None) -> None:
        self.real = real
        self.clear()

    def clear(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self.real, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            how = inspect.signature(method).bind(*arguments, **options)
            how.apply_defaults()
            self.asked.append((name, {key: value for key, value in how.arguments.items() if key != "principal"}))
            if self.error:
                raise self.error
            return await method(*arguments, **options)

        return call


@dataclass
class Backstage:
    """What stands behind the running API; the tests set it."""

    pipeline: ScriptedPipeline = field(default_factory=ScriptedPipeline)
    people: KnownPeople = field(default_factory=KnownPeople)
    keys: KnownKeys = field(default_factory=KnownKeys)
    limiter: Windows = field(default_factory=Windows)
    leases: Any = field(default_factory=TakenLeases)
    """The tables of leases; or what takes the place of the service where time itself is tested."""
    shelf: Shelf = field(default_factory=Shelf)
    validations: Watched = field(default_factory=Watched)
    conversations: ScriptedConversations = field(default_factory=ScriptedConversations)
    threads: Watched = field(default_factory=Watched)
    consents: Watched = field(default_factory=Watched)
    feedback: Watched = field(default_factory=Watched)
    statistics: Watched = field(default_factory=Watched)
    prompts: Watched = field(default_factory=Watched)
    checks: dict[str, str] = field(default_factory=lambda: {"database": "ok"})

    def reset(self) -> None:
        self.pipeline.__init__()  # type: ignore[misc]
        watched = (self.threads, self.consents, self.feedback, self.statistics, self.prompts, self.validations)
        for each in (self.people, self.keys, self.limiter, self.leases, self.shelf, *watched):
            each.clear()
        self.conversations.__init__()  # type: ignore[misc]
        self.checks = {"database": "ok"}

    def services(self) -> dict[str, object]:
        database = Database(TABLES.url)
        TABLES.opened.append(database)
        ledger = SourceLedger(database)
        self.threads.real, self.consents.real = (
            ThreadStore(database, ledger),
            Training(database, Entitlements(database)),
        )
        self.feedback.real = FeedbackLedger(database, ledger, INDEX)
        self.statistics.real, self.prompts.real = Statistics(database), PromptRegistry(database)
        self.validations.real = Validations(database)
        return {
            "pipeline": self.pipeline,
            "validation": RetrievalValidation(
                self.pipeline,  # type: ignore[arg-type]
                self.validations,  # type: ignore[arg-type]
                *self.shelf.catalogue(),
            ),
            "conversations": self.conversations,
            "threads": self.threads,
            "consents": self.consents,
            "feedback": self.feedback,
            "kept_answers": KeptAnswers(database, ledger),
            "feedback_queue": FeedbackQueue(database),
            "usage": Usage(database),
            "playground": None,  # tests/integration/test_playground.py
            "jobs": None,  # tests/integration/test_jobs.py
            "belonging": Belonging(database, People(database), Keys(database), ()),
            "statistics": self.statistics,
            "prompts": self.prompts,
            "sources": SimpleNamespace(),
            "readiness": self.readiness,
        }

    def access(self) -> Access:
        """The real services, on a database of their own: it is closed with the application that `serve` runs next."""
        database = Database(TABLES.url)
        TABLES.opened.append(database)
        leases = Leases(database) if isinstance(self.leases, TakenLeases) else self.leases
        return Access(People(database), Keys(database), self.limiter.service(database), leases)

    async def readiness(self) -> Mapping[str, str]:
        return self.checks


@pytest.fixture(scope="session")
def running() -> Iterator[tuple[str, Backstage]]:
    backstage = Backstage()
    entrance = Entrance(TokenReader(SECRET, AUDIENCE, ISSUER))
    app = api(backstage.services(), backstage.access(), entrance, registry.SURFACES, version="0.0.test")
    with serve(app) as url:
        yield url, backstage


@pytest.fixture(scope="session")
def document(running: tuple[str, Backstage]) -> dict[str, Any]:
    """The API's own OpenAPI document. It is long: it is written, sent and read once."""
    described = httpx.get(f"{running[0]}/openapi.json", timeout=PATIENCE)
    assert described.status_code == 200, described.text
    document: dict[str, Any] = described.json()
    return document


@pytest.fixture
def backstage(running: tuple[str, Backstage]) -> Backstage:
    running[1].reset()
    return running[1]


@pytest.fixture
def anonymous(running: tuple[str, Backstage], backstage: Backstage) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=running[0], timeout=PATIENCE, verify=False
    ) as client:  # reading certificates takes 60 ms
        yield client


@pytest.fixture
def client(anonymous: httpx.Client) -> httpx.Client:
    """Somebody with a valid token."""
    anonymous.headers["Authorization"] = f"Bearer {issue_token('ada', SECRET, audience=AUDIENCE, issuer=ISSUER)}"
    return anonymous
