"""A conversation: threads of messages, what a user sends, and what comes back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from uuid import UUID

from msgspec import Meta, Struct, convert

from rag_app.answering import prompts
from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.domain.answer import Usage
from rag_app.domain.scope import Scope

T = TypeVar("T", bound=Struct)


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


class Rating(StrEnum):
    POSITIVE = "positive"
    NEGATIVE = "negative"
    NEUTRAL = "neutral"


THREAD = "550e8400-e29b-41d4-a716-446655440000"
MESSAGE = "660e8400-e29b-41d4-a716-446655440001"

Moment = Annotated[datetime, Meta(examples=["2026-01-15T10:30:00Z"])]
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]

if TYPE_CHECKING:
    Capability = str
    Kind = str
    SourceScope = str
    RatingName = str
else:  # what the registries have; a type checker wants each name written out
    Capability = Literal[tuple(DESCRIPTIONS)]
    Kind = Literal[prompts.TYPES]
    SourceScope = Literal[tuple(prompts.SCOPES)]
    RatingName = Literal[tuple(each.value for each in Rating)]

Rated = Annotated[RatingName, Meta(description=f"one of {', '.join(Rating)}")]


def as_wire(of: type[T], inner: object, **others: Any) -> T:
    """A response from what it shows: fields come from the attributes of the same name, or from `others`."""
    values = {name: others[name] if name in others else getattr(inner, name) for name in of.__struct_fields__}
    return convert(SimpleNamespace(**values), of, from_attributes=True)


@dataclass(frozen=True, slots=True)
class Focus:
    """What a message is about, as the client knows it. Sources are named by id, or as their organization calls them.

    `since` and `until` bound the dates of sources; `marketplaces` are values of the field `market`.
    """

    keywords: tuple[str, ...] = ()
    watchlists: tuple[str, ...] = ()
    listings: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    shop_url: str | None = None
    marketplaces: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All sources that are named."""
        return self.keywords + self.watchlists + self.listings + self.alerts


@dataclass(frozen=True, slots=True)
class Said:
    """A message as its user sends it: into a new thread where `thread` is None.

    `capability` is detected where it is None. `max_tokens` of the answer and `temperature` (0..1) are those of the
    prompt where they are None. `plan` overrides the user's own, for administrators. `context` is what was sent as
    `focus`, to be kept with the message; `meta` goes to a new thread.
    """

    text: str
    thread: UUID | None = None
    capability: str | None = None
    focus: Focus = Focus()
    context: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    language: str = "en"
    plan: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetrievedSource:
    """A source that an answer was made from. `score` is the cosine of its best chunk, clipped to 0..1.

    `type` is its kind as the index shows it; `cited` is its number in the text ([Source N]), if it has one; `quote` the
    passage that supports the answer. `available` is False, and `quote` None, where its reader may see it no longer.
    """

    id: UUID
    type: str
    label: str
    score: float
    cited: int | None = None
    quote: str | None = None
    available: bool = True


class Flags(Struct, frozen=True, rename="camel"):
    """What a client should know of an answer; kept as JSON.

    `used_rag`: something was retrieved. `fallback_to_generic`: the model failed, the text says what was found.
    `insufficient_context`: fewer than five sources, or none that was good enough. `interrupted`: the text ends where
    the model or the client left.
    """

    used_rag: bool = False
    fallback_to_generic: bool = False
    insufficient_context: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a user thinks of an answer. `expected_source`: what should have been among its sources, and was not."""

    rating: Rating
    comment: str | None = None
    expected_source: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFeedback(Feedback):
    """Feedback as it is kept: `created_at` stays when it is changed."""

    message: UUID
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a thread. From `model` on: of the assistant's alone. `feedback` is that of the thread's user."""

    id: UUID
    thread: UUID
    role: Role
    text: str
    created_at: datetime
    capability: str | None = None
    context: Mapping[str, Any] | None = None
    model: str | None = None
    sources: tuple[RetrievedSource, ...] = ()
    generation: Mapping[str, Any] = field(default_factory=dict)
    flags: Flags = field(default_factory=Flags)
    feedback: Feedback | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation of one user."""

    id: UUID
    user: UUID
    title: str | None
    created_at: datetime
    updated_at: datetime
    last_message_at: datetime
    messages: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    archived: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What a user gets for a message. `references` are ids of the sources that the text mentions, by shown type."""

    thread: UUID
    message: UUID
    text: str
    capability: str
    sources: tuple[RetrievedSource, ...]
    references: Mapping[str, tuple[UUID, ...]]
    model: str
    usage: Usage | None
    latency_ms: int
    flags: Flags


@dataclass(frozen=True, slots=True)
class Account:
    """What a user may do. `messages` a month, -1 without limit; `enabled`: the plan has conversations at all.

    `training`: the user lets their answers be collected to train models with.
    """

    user: UUID
    plan: str
    messages: int
    enabled: bool
    administrator: bool
    training: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Threads, newest first; `after` is the cursor of the next page, None on the last one."""

    threads: tuple[Thread, ...]
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a turn: the assistant's message, and what it took.

    `generation` is kept as `generation_metadata` (tokensIn, tokensOut, latencyMs, temperature, prompts, stages);
    `stages` in milliseconds; `failures` are (kind, text) of parts that failed. `charged`: whether the message counts
    against the user's plan; `teaches`: whether a model may learn from it, if the user consents.
    """

    message: UUID
    text: str
    capability: str
    model: str
    sources: tuple[RetrievedSource, ...]
    flags: Flags
    usage: Usage | None
    cost_cents: Decimal
    latency_ms: int
    stages: Mapping[str, int]
    generation: Mapping[str, Any]
    failures: tuple[tuple[str, str], ...] = ()
    charged: bool = True
    teaches: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn under way: the user's message is kept in its thread, and one message of the plan is reserved for it."""

    thread: Thread
    message: UUID
    reservation: UUID
    account: Account
    scope: Scope


@dataclass(frozen=True, slots=True)
class Consent:
    """Whether a user lets their answers be collected to train models with, and since when."""

    training: bool
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """One answer to learn from. `message` is its id, `told` are the ids of the messages that its prompt was made from.

    `prompt` is what a model was told, a list of {role, content}; `text` is what it should say to that: the answer, with
    sources numbered as in the prompt. `context` are the passages in the prompt, in the order of their numbers: {id, type,
    label, text, cited}.
    """

    message: UUID
    told: tuple[UUID, ...]
    capability: str
    model: str
    prompt: Sequence[Mapping[str, Any]]
    context: Sequence[Mapping[str, Any]]
    text: str
