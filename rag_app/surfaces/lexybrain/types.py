"""A conversation: threads of messages, what a user sends, and what comes back."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args
from uuid import UUID

from litestar.openapi.spec import Schema
from msgspec import Meta, Struct, field as named, structs, to_builtins
from sqlalchemy import Row

from rag_app.answering import prompts
from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.domain import BudgetSpent, InvalidInput, JsonObject, Scope, Usage
from rag_app.http.fields import PASSAGES, AnswerRemarks, RemovedCount, limit_text, show_items
from rag_app.http.surface import example
from rag_app.retrieval.filters import instants
from rag_app.surfaces.lexybrain.quotas import Account


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


THREAD = "550e8400-e29b-41d4-a716-446655440000"
MESSAGE = "660e8400-e29b-41d4-a716-446655440001"

Moment = Annotated[datetime, Meta(examples=["2026-01-15T10:30:00Z"])]
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]

if TYPE_CHECKING:
    Capability = str
    Kind = str
else:  # what the registries have; a type checker wants each name written out
    Capability = Literal[tuple(DESCRIPTIONS)]
    Kind = Literal[prompts.conversation_types()]

Rating = Literal["positive", "negative", "neutral"]
RatingValue = Annotated[Rating, Meta(description=f"one of {', '.join(get_args(Rating))}")]


# -- what comes

EXAMPLE = example(__package__, "message")

# `(?!\n)`: to Python, `$` is also before a last line break
_CODE = r"^[^\s\x00\x1c-\x1f\x85\ufeff]+(?!\n)$"
_LANGUAGE = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*(?!\n)$"
# a host that every URL parser takes, and no user name in front of it
_URL = r"^[Hh][Tt][Tt][Pp][Ss]?://[A-Za-z0-9._-]+(:[0-9]{1,5})?([/?#][^\s\x00-\x1f\x7f\x85\ufeff]*)?(?!\n)$"


Ids = Annotated[
    list[
        Annotated[
            str,
            limit_text(200),
        ]
    ],
    Meta(
        max_length=50,
        description="a list of at most 50 ids",
        extra_json_schema=show_items(200),
        examples=[[]],
    ),
]
When = Annotated[
    str,
    Meta(
        description="an ISO 8601 date (the whole day, UTC) or timestamp (UTC if it has no zone)",
        extra_json_schema={"extra": {"any_of": [Schema(format="date"), Schema(format="date-time")]}},  # Litestar's way
        examples=["2026-01-01T00:00:00Z"],
    ),
]


class RagTimeRange(Struct, frozen=True, forbid_unknown_fields=True):
    """`from` must be before `to`. Raises InvalidInput otherwise."""

    from_: When = named(name="from")
    to: When

    def __post_init__(self) -> None:
        self.moments()

    def moments(self) -> tuple[float, float]:
        """Epoch seconds."""
        since, until = instants("context.timeRange.from", self.from_)[0], instants("context.timeRange.to", self.to)[1]
        if since >= until:
            raise InvalidInput("context.timeRange", to_builtins(self), "`from` must be before `to`")
        return since, until


class RagContext(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """What the message is about. Sources are named by id or external id; those that the caller may not see are
    ignored."""

    keywords: Ids | None = named(default=None, name="keywordIds")
    watchlists: Ids | None = named(default=None, name="watchlistIds")
    listings: Ids | None = named(default=None, name="listingIds")
    alerts: Ids | None = named(default=None, name="alertIds")
    shop_url: (
        Annotated[
            str,
            Meta(
                max_length=2000,
                pattern=_URL,
                description="an http or https URL of at most 2000 characters",
                examples=["https://www.etsy.com/shop/VintageRings"],
            ),
        ]
        | None
    ) = None
    marketplaces: (
        Annotated[
            list[
                Annotated[
                    str,
                    Meta(
                        min_length=1,
                        max_length=100,
                        pattern=_CODE,
                        description="a word of 1 to 100 characters",
                    ),
                ]
            ],
            Meta(
                max_length=20,
                description="a list of at most 20 marketplaces",
                extra_json_schema=show_items(100, _CODE),
                examples=[["etsy"]],
            ),
        ]
        | None
    ) = None
    time_range: Annotated[RagTimeRange, Meta(description="an object with `from` and `to`")] | None = None


class RagOptions(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    max_tokens: (
        Annotated[
            int,
            Meta(
                ge=256,
                le=2048,
                description="a whole number from 256 to 2048",
                extra_json_schema={"extra": {"default": 1024}},
            ),
        ]
        | None
    ) = None
    temperature: (
        Annotated[
            float,
            Meta(ge=0, le=1, description="a number from 0 to 1", extra_json_schema={"extra": {"default": 0.7}}),
        ]
        | None
    ) = None
    language: (
        Annotated[
            str,
            Meta(
                max_length=35,
                pattern=_LANGUAGE,
                description='the language of the answer: a code such as "en" or "pt-BR"',
            ),
        ]
        | None
    ) = "en"
    plan: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=100,
                pattern=_CODE,
                description="the code of a plan, without spaces; administrators only",
                examples=["pro"],
            ),
        ]
        | None
    ) = named(default=None, name="planCode")


class RagMeta(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Kept with a new thread."""

    client: Annotated[Literal["web", "extension", "api"], Meta(description="one of web, extension, api")] | None = None
    version: (
        Annotated[str, Meta(max_length=100, pattern=r"^[^\x00]*$", description="a text of at most 100 characters")]
        | None
    ) = None


class RagRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A null is the same as an omitted field."""

    text: Annotated[
        str,
        limit_text(4000, examples=[EXAMPLE.value["message"]]),
    ] = named(name="message")
    thread: Annotated[UUID, Meta(description="the UUID of a thread; without one, a new thread is made")] | None = named(
        default=None, name="threadId"
    )
    capability: (
        Annotated[
            Capability,
            Meta(description=f"one of {', '.join(DESCRIPTIONS)}; without one, it is detected"),
        ]
        | None
    ) = None
    context: Annotated[RagContext, Meta(description="an object that says what the message refers to")] | None = None
    options: Annotated[RagOptions, Meta(description="an object with options of the answer")] | None = None
    meta: Annotated[RagMeta, Meta(description="an object that describes the client")] | None = None

    def __post_init__(self) -> None:
        structs.force_setattr(self, "text", self.text.strip())


# -- what leaves


class RagReferences(Struct, frozen=True):
    """Ids of the sources that the answer mentions."""

    keywords: list[UUID]
    listings: list[UUID]
    alerts: list[UUID]
    docs: list[UUID]


REFERENCE_TYPES = tuple(each.removesuffix("s") for each in RagReferences.__struct_fields__)
"""The types of sources that clients know: an index says how it shows the others (`shown_types`)."""


class CheckedRemarks(AnswerRemarks, frozen=True, kw_only=True, rename="camel"):
    """`AnswerRemarks` of an answer whose claims were compared with its sources."""

    grounded: Annotated[
        bool | None,
        Meta(description="whether a cited source supports every claim of the answer; absent if no claim was checked"),
    ] = None
    removed_sentences: RemovedCount = 0


class SourcePlace(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Where a source is read, and which part of it was found or cited; a field without a value is omitted."""

    link: Annotated[
        str | None,
        Meta(
            description="the path that opens the source with the passage",
            examples=[
                "/api/v1/sources/6f1c2b1e-8a41-5d0f-9a57-0d3f1f6f9a10?chunk=0b8e4f0c-2a58-5c55-8a3b-6f4d2c1e7b92"
            ],
        ),
    ] = None
    external_id: Annotated[str | None, Meta(examples=["reports/rings.pdf"])] = None
    file_name: Annotated[str | None, Meta(examples=["rings.pdf"])] = None
    section: Annotated[str | None, Meta(description="headings above the passage", examples=["Rings > Demand"])] = None
    page: Annotated[int | None, Meta(examples=[3])] = None


class RagSource(SourcePlace, frozen=True, omit_defaults=True):
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
    id: Annotated[
        str, Meta(description='the model\'s name; "extractive" if no model is configured', examples=["extractive"])
    ]
    usage: Annotated[RagUsage | None, Meta(description="null if the model reported no token counts")]
    latency_ms: Annotated[int, Meta(description="duration of the generation", examples=[3421])]


class CitedPassage(Struct, frozen=True, rename="camel"):
    """Where the quote stands: characters `start` to `end` of the text of a chunk."""

    chunk_id: UUID
    start: Annotated[int, Meta(ge=0, examples=[120])]
    end: Annotated[int, Meta(ge=0, examples=[164])]


class ClaimPassage(CitedPassage, frozen=True):
    quote: str


Passages = Annotated[tuple[ClaimPassage, ...], Meta(description=PASSAGES)]


class RagCitation(RagSource, frozen=True):
    """A source that the answer cites."""

    cited: Annotated[int, Meta(ge=1, description="the N of [Source N] in the text")] = named(name="citation")
    quote: Annotated[str | None, Meta(description="the passage that supports the answer")]
    passage: CitedPassage | None = None
    passages: Passages = ()


class ThreadSource(RagSource, frozen=True):
    cited: Annotated[
        int | None, Meta(description="the N of [Source N] in the text; null if the answer does not cite this source")
    ] = named(name="citation")
    quote: Annotated[
        str | None,
        Meta(
            description="the passage that supports the answer; if there is no answer, the passage closest to the question"
        ),
    ]
    available: Annotated[
        bool,
        Meta(description="false if the source was deleted or you may no longer see it; its quote is then withheld"),
    ]
    passage: CitedPassage | None = None
    passages: Passages = ()


class RagFlags(CheckedRemarks, frozen=True, rename="camel"):
    used_rag: Annotated[bool, Meta(description="at least one source was retrieved for the answer")]
    fallback_to_generic: Annotated[
        bool, Meta(description="the model failed; the answer lists the sources that were found")
    ]
    insufficient_context: Annotated[
        bool, Meta(description="fewer than five sources were found, or none was relevant enough")
    ]


class ThreadFlags(RagFlags, frozen=True):
    interrupted: Annotated[
        bool,
        Meta(description="the text is incomplete because the model failed, or the client disconnected or stopped it"),
    ]
    refused: Annotated[bool, Meta(description="the text says that there is no answer; `sources` are the closest hits")]


class MessageFeedback(Struct, frozen=True, rename="camel"):
    rating: RatingValue
    comment: Annotated[str | None, Meta(examples=["The keyword itself is missing"])]
    expected_source_id: Annotated[
        UUID | None,
        Meta(description="the source that the answer should have cited; null if none was given or it was deleted"),
    ]


class KeptMessageFeedback(MessageFeedback, frozen=True):
    """As it is kept: `created_at` stays when it is changed."""

    message_id: Annotated[UUID, Meta(examples=[MESSAGE])]
    created_at: Moment
    updated_at: Moment


class ReviewedSource(Struct, frozen=True):
    label: str
    cited: bool


class ThreadMessage(Struct, frozen=True, rename="camel"):
    id: Annotated[UUID, Meta(examples=[MESSAGE])]
    role: Literal["user", "assistant"]
    content: str
    created_at: Moment
    capability: Annotated[str | None, Meta(examples=["market_brief"])]
    sources: Annotated[
        list[ThreadSource],
        Meta(description="the sources of the answer, as they were cited; empty for a user's message"),
    ]
    model: Annotated[RagModel | None, Meta(description="null for a user's message")]
    flags: Annotated[ThreadFlags | None, Meta(description="null for a user's message")]
    feedback: Annotated[
        MessageFeedback | None, Meta(description="the feedback of the thread's user; null if there is none")
    ]


class ThreadInfo(Struct, frozen=True, rename="camel"):
    id: Annotated[UUID, Meta(examples=[THREAD])]
    user_id: Annotated[UUID, Meta(description="the owner of the thread")]
    title: Annotated[str | None, Meta(description="taken from the first message unless the thread was renamed")]
    created_at: Moment
    updated_at: Moment
    last_message_at: Moment
    message_count: int
    archived: bool
    metadata: Annotated[
        JsonObject,
        Meta(description="`meta` as sent with the first message", examples=[{"client": "web", "version": "1.0"}]),
    ]


class ThreadWithMessages(ThreadInfo, frozen=True):
    messages: Annotated[list[ThreadMessage], Meta(description="oldest first")]
    has_more: Annotated[
        bool,
        Meta(description="there are earlier messages: to read them, send the id of the first one here as `before`"),
    ]


class ThreadsResponse(Struct, frozen=True, rename="camel"):
    threads: Annotated[list[ThreadInfo], Meta(description="ordered by the newest message, newest first")]
    next_cursor: Annotated[str | None, Meta(description="send as `cursor` to get the next page; null on the last page")]


class RagResponse(Struct, frozen=True, rename="camel"):
    thread_id: UUID
    message_id: Annotated[UUID, Meta(description="the id of the answer")]
    answer: str
    capability: Annotated[
        str,
        Meta(description=f"the capability that answered: one of {', '.join(DESCRIPTIONS)}", examples=["market_brief"]),
    ]
    sources: Annotated[
        list[RagSource], Meta(description="the sources used for the answer, cited ones first; [Source N] is the Nth")
    ]
    references: RagReferences
    model: RagModel
    flags: RagFlags


class ConsentInfo(Struct, frozen=True):
    training: Annotated[bool, Meta(description="whether the answers you get may be collected to train models")]
    since: Annotated[
        datetime | None,
        Meta(description="when consent was given; null without consent", examples=["2026-01-15T10:30:00Z"]),
    ]


# -- what a turn is made of


class Flags(CheckedRemarks, frozen=True, rename="camel", omit_defaults=False):
    """What a client should know of an answer; kept as JSON.

    `used_rag`: something was retrieved. `fallback_to_generic`: the model failed, the text says what was found.
    `insufficient_context`: fewer than five sources, or none that was good enough. `interrupted`: the text ends where
    the model or the client left. `refused`: the text says that there is no answer; of older messages it is not known.
    `grounded`: every claim has a source that supports it; None where there was none to
    compare with. `removed_sentences` of a model are left out, as no source supports them. `understood` says what was
    asked of records, where they were found by their fields. `courtesy`: a greeting or thanks is returned, nothing was
    asked.
    """

    used_rag: bool = False
    fallback_to_generic: bool = False
    insufficient_context: bool = False
    interrupted: bool = False
    refused: bool = False


class PastMessage(Struct, frozen=True):
    """A message of the thread's history. `capability` is what was wanted, or what answered."""

    id: UUID
    role: Role
    content: str
    capability: str | None = None
    retrieved_source_ids: list[JsonObject] | None = None


class Outcome(Struct, frozen=True):
    """What became of a turn: the assistant's message, and what it took.

    `generation` is kept as `generation_metadata` (tokensIn, tokensOut, latencyMs, temperature, prompts, stages);
    `stages` in milliseconds; `failures` are (kind, text) of parts that failed. `charged`: whether the message counts
    against the user's plan; `teaches`: whether a model may learn from it, if the user consents. `unsupported`: the check
    refused it whole, and it is free as long as a day has not had too many of them.
    """

    message: UUID
    text: str
    capability: str
    model: str
    sources: tuple[ThreadSource, ...]
    flags: Flags
    usage: Usage
    cost_cents: Decimal
    latency_ms: int
    stages: Mapping[str, int]
    generation: Mapping[str, Any]
    failures: tuple[tuple[str, str], ...] = ()
    charged: bool = True
    teaches: bool = False
    unsupported: bool = False


class BegunTurn(Struct, frozen=True):
    """A turn under way: the user's message is kept in its thread, and one message of the plan is reserved for it.

    `message` is the id of both. With `over_budget` no model may write the answer, nor help with it.
    """

    thread: Row[Any]
    message: UUID
    account: Account
    scope: Scope
    over_budget: BudgetSpent | None = None
