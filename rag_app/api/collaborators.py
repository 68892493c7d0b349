"""What the HTTP layer needs of the rest of rag_app, as it needs it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar
from uuid import UUID

from litestar.di import Dependency
from litestar.params import SkipValidationMarker

from rag_app.domain.answer import Answer, Event, Hit, Question
from rag_app.domain.scope import Principal, Scope

T = TypeVar("T")


class Pipeline(Protocol):
    """Questions in, hits or an answer out; nothing outside `scope` is ever among them."""

    async def search(self, index: str, question: Question, scope: Scope) -> tuple[Hit, ...]: ...

    async def answer(self, capability: str, question: Question, scope: Scope) -> Answer: ...

    def stream(self, capability: str, question: Question, scope: Scope) -> AsyncIterator[Event]:
        """`answer`, as it comes: Found, Deltas, and at last the Answer. What goes wrong before Found is raised first."""
        ...


class People(Protocol):
    async def principal(self, subject: str) -> Principal:
        """The caller a token names. One the database does not know sees the public organization only."""
        ...

    async def member_of(self, organization: str) -> Principal:
        """Somebody without a name who sees what all members of an organization (slug or id) see. Raises NotFound."""
        ...


class Keys(Protocol):
    async def principal(self, key: str) -> Principal:
        """The service user of an API key. Raises Unauthenticated."""
        ...


class Window(Protocol):
    """The state of a rate limit after a request: `resets_at` is when its window ends (Unix time, seconds)."""

    @property
    def limit(self) -> int: ...
    @property
    def remaining(self) -> int: ...
    @property
    def resets_at(self) -> int: ...
    @property
    def allowed(self) -> bool: ...


class RateLimiter(Protocol):
    async def hit(self, key: str, limit: int, window: int = 60) -> Window:
        """Count one request under `key`; at most `limit` are allowed in `window` seconds."""
        ...


class Leases(Protocol):
    """Places for requests under way. One whose holder does not extend it in time is free again."""

    async def take(self, key: str, limit: int) -> UUID | None:
        """A place among the `limit` of `key`, or None where all are taken."""
        ...

    async def extend(self, lease: UUID) -> None: ...

    async def give_back(self, lease: UUID) -> None: ...

    @property
    def extend_every(self) -> float:
        """Seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Collection:
    """An index as its active generation holds it. `chunks` are those that the scope may see."""

    index: str
    names: tuple[str, ...]  # the index's own and its aliases
    dimension: int
    chunks: int
    created_at: datetime


class Catalogue(Protocol):
    """The indexes there are, as a principal sees them."""

    async def collections(self, principal: Principal) -> list[Collection]: ...

    async def collection(self, name: str, principal: Principal) -> Collection:
        """By name or alias. Raises NotFound, also for one that the principal's key is not bound to."""
        ...


Readiness = Callable[[], Awaitable[Mapping[str, str]]]
"""Each part the application needs, by name: "ok", or what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collaborators:
    """All of them. A handler asks for one by the name of its field: `pipeline: Injected[Pipeline]`."""

    pipeline: Pipeline
    people: People
    keys: Keys
    limiter: RateLimiter
    leases: Leases
    catalogue: Catalogue
    validations: Any
    readiness: Readiness


Injected = Annotated[T, Dependency(), SkipValidationMarker()]
"""How a handler asks for one (checking the instance on every request would buy nothing)."""
