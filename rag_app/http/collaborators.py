"""What the HTTP layer needs of the rest of rag_app, as it needs it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Protocol, TypeVar
from uuid import UUID

from litestar.di import Dependency
from litestar.params import SkipValidationMarker

from rag_app.answering.roles import PromptConfig, PromptVersion
from rag_app.domain.answer import Answer, Event, Hit, Question
from rag_app.domain.scope import Principal, Scope
from rag_app.evaluation.passages import Judged, Passages, Span
from rag_app.surfaces.lexybrain.figures import FeedbackFilter, Figures, ReviewPage
from rag_app.surfaces.lexybrain.lessons import Consent
from rag_app.surfaces.lexybrain.types import KeptFeedback, Message, Page, Rating, Reply, RetrievedSource, Said, Thread

T = TypeVar("T")


class Pipeline(Protocol):
    """Questions in, hits or an answer out; nothing outside `scope` is ever among them."""

    async def search(self, index: str, question: Question, scope: Scope) -> tuple[Hit, ...]: ...

    async def answer(self, capability: str, question: Question, scope: Scope) -> Answer: ...

    def stream(self, capability: str, question: Question, scope: Scope) -> AsyncGenerator[Event, None]:
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
    """An index, and the generation of it that answers. `answer_from` is the cosine from which it does (-1..1)."""

    index: str
    names: tuple[str, ...]  # its aliases and its own
    dimension: int
    generation: int
    answer_from: float


@dataclass(frozen=True, slots=True)
class Listing:
    """A collection with what a principal may see of it."""

    collection: Collection
    chunks: int
    created_at: datetime


class Catalogue(Protocol):
    """The indexes there are, as a principal sees them."""

    async def collections(self, principal: Principal) -> list[Listing]: ...

    async def collection(self, name: str, principal: Principal) -> Collection:
        """By name or alias. Raises NotFound, also for one that the principal's key is not bound to."""
        ...

    async def chunks(self, collection: Collection, ids: Sequence[UUID], principal: Principal) -> Mapping[UUID, Hit]:
        """Those of these chunks that the principal may see; their score is 0."""
        ...


class Validations(Protocol):
    """Validation runs and judged passages of a principal's organization.

    A judged passage is a span of a source's content, or None for all of it. Everything raises Forbidden for a
    principal who is not of exactly one organization.
    """

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
        """Keep a run, and that these passages answer these queries; known judgments are passed over."""
        ...

    async def report(self, principal: Principal, run: UUID) -> Mapping[str, Any] | None: ...

    async def newest(
        self, principal: Principal, limit: int, before: UUID | None
    ) -> Sequence[tuple[UUID, str, int, Mapping[str, Any]]]:
        """Run, index, top_k and report without its `results`, newest first."""
        ...

    async def judgments(
        self, principal: Principal, index: str, query: str, hits: AbstractSet[UUID]
    ) -> tuple[Sequence[Judged], Mapping[UUID, Passages]]:
        """What answers the query, and the content of those of its sources that are among `hits`."""
        ...

    async def contents(self, principal: Principal, sources: AbstractSet[UUID]) -> Mapping[UUID, Passages]:
        """Of those of these sources that can be judged."""
        ...


class Turn(Protocol):
    """A message that is kept, charged for, and about to be answered: by `answer`, or by `stream`, once.

    Whatever becomes of it, the conversation knows: a stream that is closed keeps what was said by then.
    """

    @property
    def thread(self) -> UUID: ...
    @property
    def message(self) -> UUID:
        """The id that the assistant's message has, or will have."""
        ...

    @property
    def capability(self) -> str: ...

    async def answer(self) -> Reply:
        """Raises ModelFailed where nothing can be said; StoreFailed and EmbeddingFailed."""
        ...

    def stream(self) -> AsyncGenerator[Event, None]:
        """`answer`, as it comes: Found, Deltas, and at last the Answer."""
        ...

    def reply(self, answer: Answer) -> Reply:
        """What a client is told of it."""
        ...

    def sources(self, hits: Sequence[Hit]) -> tuple[RetrievedSource, ...]:
        """Those of the hits, before it is known which of them are cited."""
        ...


class Conversations(Protocol):
    async def begin(self, principal: Principal, said: Said) -> Turn:
        """Keep what a user says, and reserve the answer.

        Raises FeatureDisabled, CostCapReached, QuotaExceeded, BudgetSpent, Forbidden (an index or plan that is not the
        caller's), NotFound (a thread or capability), InvalidInput, StoreFailed.
        """
        ...


class Threads(Protocol):
    """Conversations that are kept. What is not the principal's is NotFound, unless they are an administrator who reads:
    that is written down."""

    async def list(
        self, principal: Principal, *, limit: int, after: str | None, archived: bool | None, user: UUID | None,
        everybody: bool,
    ) -> Page:  # fmt: skip
        """Newest first. `archived` None: both. `user` or `everybody`: for administrators, else Forbidden.

        Raises InvalidInput for a cursor that is none.
        """
        ...

    async def read(
        self, principal: Principal, thread: UUID, *, limit: int, before: UUID | None
    ) -> tuple[Thread, Sequence[Message], bool]:
        """The thread, its newest messages (or those before one) in their order, and whether there are earlier ones.

        Sources that the principal may see no longer keep their label and lose their text.
        """
        ...

    async def rename(self, principal: Principal, thread: UUID, title: str) -> Thread: ...

    async def archive(self, principal: Principal, thread: UUID, archived: bool) -> Thread: ...

    async def delete(self, principal: Principal, thread: UUID) -> None:
        """The thread with its messages goes."""
        ...

    async def delete_message(self, principal: Principal, thread: UUID, message: UUID) -> None:
        """It is shown no more, nor used as history; feedback on it goes."""
        ...


class FeedbackLedger(Protocol):
    """What users think of answers in their own threads; administrators have no more of it than others."""

    async def give(
        self, principal: Principal, message: UUID, rating: Rating, comment: str | None, expected: str | None
    ) -> KeptFeedback:
        """In place of what there was. `expected` names a source: by id, or as its organization calls it.

        Raises NotFound, and InvalidInput for a message that is no answer, a source that the principal may not see, and
        one that is expected of a rating that is not negative.
        """
        ...

    async def withdraw(self, principal: Principal, message: UUID) -> None:
        """Raises NotFound, also where there is none."""
        ...


class Statistics(Protocol):
    async def read(self, principal: Principal, since: date | None, until: date | None) -> Figures:
        """Of whole days in UTC. Raises Forbidden for whom PostgreSQL does not find to be an administrator, and
        InvalidInput for `from` and `to`."""
        ...


class Reviews(Protocol):
    async def list(self, principal: Principal, wanted: FeedbackFilter, *, limit: int, after: str | None) -> ReviewPage:
        """Feedback of all users, newest first. Raises Forbidden, and InvalidInput for a cursor that is none."""
        ...


class PromptVersions(Protocol):
    """All of them raise Forbidden."""

    async def versions(self, principal: Principal) -> Sequence[PromptVersion]:
        """By type and name."""
        ...

    async def publish(self, principal: Principal, config: PromptConfig) -> PromptVersion:
        """Raises InvalidInput where it cannot be used, or its name is taken."""
        ...

    async def change(
        self, principal: Principal, name: str, *, active: bool | None = None, weight: int | None = None
    ) -> PromptVersion:
        """What is None stays as it is. Raises NotFound, with the names there are."""
        ...


class Consents(Protocol):
    """Whether people let their answers be collected to train models with. Forbidden for API keys: others speak through
    them."""

    async def consent(self, principal: Principal) -> Consent: ...

    async def decide(self, principal: Principal, training: bool) -> Consent:
        """From now on. What was collected goes at once where it is withdrawn."""
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
    validations: Validations
    conversations: Conversations
    threads: Threads
    consents: Consents
    feedback: FeedbackLedger
    statistics: Statistics
    reviews: Reviews
    prompts: PromptVersions
    readiness: Readiness


Injected = Annotated[T, Dependency(), SkipValidationMarker()]
"""How a handler asks for one (checking the instance on every request would buy nothing)."""
