"""A conversation: threads of messages, what a user sends, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from uuid import UUID

from msgspec import Meta, Struct, convert
from msgspec import field as named

from rag_app.answering import prompts
from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.domain import Scope, Usage
from rag_app.surfaces.lexybrain.tables import ThreadRow

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


# -- what leaves


class RagReferences(Struct, frozen=True):
    """Ids of the sources that the answer mentions."""

    keywords: list[UUID]
    listings: list[UUID]
    alerts: list[UUID]
    docs: list[UUID]


REFERENCE_TYPES = tuple(each.removesuffix("s") for each in RagReferences.__struct_fields__)
"""The types of sources that clients know: an index says how it shows the others (`shown_types`)."""


class RagSource(Struct, frozen=True):
    id: UUID
    type: Annotated[
        str,
        Meta(
            description=f"one of {', '.join(REFERENCE_TYPES)}",
            extra_json_schema={"extra": {"enum": list(REFERENCE_TYPES)}},
        ),
    ]
    label: Annotated[str, Meta(examples=["vintage wedding rings"])]
    score: Annotated[float, Meta(ge=0, le=1, description="cosine similarity", examples=[0.92])]


class RagUsage(Struct, frozen=True, rename="camel"):
    input_tokens: Annotated[int, Meta(examples=[1847])]
    output_tokens: Annotated[int, Meta(examples=[312])]


class RagModel(Struct, frozen=True, rename="camel"):
    id: Annotated[str, Meta(description='"extractive" where no model is configured', examples=["extractive"])]
    usage: Annotated[RagUsage | None, Meta(description="null where nobody counted")]
    latency_ms: Annotated[int, Meta(description="of the generation", examples=[3421])]


class RagCitation(RagSource, frozen=True):
    """A source that the answer cites."""

    cited: Annotated[int, Meta(ge=1, description="its number in the text: [Source N]")] = named(name="citation")
    quote: Annotated[str | None, Meta(description="the passage that supports the answer")]


class ThreadSource(RagSource, frozen=True):
    cited: Annotated[int | None, Meta(description="its number in the text, [Source N]; null where it has none")] = (
        named(name="citation")
    )
    quote: Annotated[str | None, Meta(description="the passage that supports the answer")]
    available: Annotated[
        bool, Meta(description="false where it was deleted, or is no longer yours to see: its quote is withheld")
    ]


class ThreadFlags(Struct, frozen=True, rename="camel"):
    used_rag: bool
    fallback_to_generic: bool
    insufficient_context: bool
    interrupted: Annotated[bool, Meta(description="the text ends where the model or the client left")]


class MessageFeedback(Struct, frozen=True, rename="camel"):
    rating: Rated
    comment: Annotated[str | None, Meta(examples=["The keyword itself is missing"])]
    expected_source_id: Annotated[
        UUID | None, Meta(description="what should have been found; null, too, where it was deleted")
    ]


class KeptMessageFeedback(MessageFeedback, frozen=True):
    """As it is kept: `created_at` stays when it is changed."""

    message_id: Annotated[UUID, Meta(examples=[MESSAGE])]
    created_at: Moment
    updated_at: Moment


class ThreadMessage(Struct, frozen=True, rename="camel"):
    id: Annotated[UUID, Meta(examples=[MESSAGE])]
    role: Literal["user", "assistant"]
    content: str
    created_at: Moment
    capability: Annotated[str | None, Meta(examples=["market_brief"])]
    sources: Annotated[list[ThreadSource], Meta(description="as the answer cited them; of the assistant's alone")]
    model: Annotated[RagModel | None, Meta(description="null for the user's")]
    flags: Annotated[ThreadFlags | None, Meta(description="null for the user's")]
    feedback: Annotated[MessageFeedback | None, Meta(description="of the thread's user; null where there is none")]


class ThreadInfo(Struct, frozen=True, rename="camel"):
    id: Annotated[UUID, Meta(examples=[THREAD])]
    user_id: Annotated[UUID, Meta(description="whose it is")]
    title: Annotated[str | None, Meta(description="made from the first message, until it is renamed")]
    created_at: Moment
    updated_at: Moment
    last_message_at: Moment
    message_count: int
    archived: bool
    metadata: Annotated[
        dict[str, Any], Meta(description="`meta` of the first message", examples=[{"client": "web", "version": "1.0"}])
    ]


class ThreadWithMessages(ThreadInfo, frozen=True):
    messages: Annotated[list[ThreadMessage], Meta(description="the oldest first")]
    has_more: Annotated[bool, Meta(description="there are earlier ones: ask with `before`, the id of the first here")]


class ThreadsResponse(Struct, frozen=True, rename="camel"):
    threads: Annotated[list[ThreadInfo], Meta(description="the one with the newest message first")]
    next_cursor: Annotated[str | None, Meta(description="`cursor` of the next page; null where this is the last")]


class RagFlags(Struct, frozen=True, rename="camel"):
    used_rag: Annotated[bool, Meta(description="the answer was made from sources")]
    fallback_to_generic: Annotated[bool, Meta(description="the model failed; the answer says what was found")]
    insufficient_context: Annotated[bool, Meta(description="fewer than five sources, or none that was good enough")]


class RagResponse(Struct, frozen=True, rename="camel"):
    thread_id: UUID
    message_id: Annotated[UUID, Meta(description="of the answer")]
    answer: str
    capability: Annotated[
        str, Meta(description=f"that was used: one of {', '.join(DESCRIPTIONS)}", examples=["market_brief"])
    ]
    sources: Annotated[
        list[RagSource], Meta(description="what it was made from, the cited ones first: [Source N] is the Nth")
    ]
    references: RagReferences
    model: RagModel
    flags: RagFlags


class ConsentInfo(Struct, frozen=True):
    training: Annotated[bool, Meta(description="whether your answers may be collected to train models with")]
    since: Annotated[datetime | None, Meta(description="null where they may not", examples=["2026-01-15T10:30:00Z"])]


# -- what a turn is made of


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


class PastMessage(Struct, frozen=True):
    """A message of the thread's history. `capability` is what was wanted, or what answered."""

    id: UUID
    role: Role
    content: str
    capability: str | None = None


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
    sources: tuple[ThreadSource, ...]
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
    """A turn under way: the user's message is kept in its thread, and one message of the plan is reserved for it.

    `message` is the id of both.
    """

    thread: ThreadRow
    message: UUID
    account: Account
    scope: Scope
