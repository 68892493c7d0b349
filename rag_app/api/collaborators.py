"""What the HTTP layer needs of the rest of rag_app, as it needs it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Protocol

from litestar.di import Dependency
from litestar.params import SkipValidationMarker

from rag_app.domain.answer import Answer, Hit, Question
from rag_app.domain.scope import Principal, Scope


class Pipeline(Protocol):
    """Questions in, hits or an answer out; nothing outside `scope` is ever among them."""

    async def search(self, index: str, question: Question, scope: Scope) -> tuple[Hit, ...]: ...

    async def answer(self, capability: str, question: Question, scope: Scope) -> Answer: ...


class People(Protocol):
    async def principal(self, subject: str) -> Principal:
        """The caller a token names. One the database does not know sees the public organization only."""
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


Readiness = Callable[[], Awaitable[Mapping[str, str]]]
"""Each part the application needs, by name: "ok", or what is wrong with it."""

InjectedPipeline = Annotated[Pipeline, Dependency(), SkipValidationMarker()]
"""How a handler asks for the pipeline (checking the instance on every request would buy nothing)."""
