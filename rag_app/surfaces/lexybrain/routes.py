"""Ask LexyBrain: a message of a conversation about a marketplace, and the answer to it (`/api/lexybrain`).

The contract's own words are kept: field names, ranges, defaults, texts.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal
from uuid import UUID

from litestar import Response
from litestar.openapi.spec import Schema
from litestar.params import BodyKwarg
from msgspec import Meta, Struct, convert, field, to_builtins
from msgspec.structs import asdict

from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.domain import (
    BudgetSpent,
    CostCapReached,
    EmbeddingFailed,
    FeatureDisabled,
    Forbidden,
    InvalidInput,
    ModelFailed,
    NotFound,
    QuotaExceeded,
    UnknownField,
)
from rag_app.http.bodies import NOT_BLANK
from rag_app.http.streaming import StreamedOperation, event_stream, wants_stream
from rag_app.http.surface import Injected, example
from rag_app.surfaces.lexybrain import thread_routes
from rag_app.surfaces.lexybrain.conversations import Conversations
from rag_app.surfaces.lexybrain.rules import SURFACE, Caller, LexyBrainOperation
from rag_app.surfaces.lexybrain.types import THREAD, Capability, Focus, RagResponse, Said

__all__ = ["SURFACE", "thread_routes"]

EXAMPLE, ANSWER = example(__package__, "message"), example(__package__, "answer")

# `(?!\n)`: to Python, `$` is also before a last line break
_CODE = r"^[^\s\x00\x1c-\x1f\x85\ufeff]+(?!\n)$"
_LANGUAGE = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*(?!\n)$"
# a host that every URL parser takes, and no user name in front of it
_URL = r"^[Hh][Tt][Tt][Pp][Ss]?://[A-Za-z0-9._-]+(:[0-9]{1,5})?([/?#][^\s\x00-\x1f\x7f\x85\ufeff]*)?(?!\n)$"


def _items(longest: int, pattern: str) -> dict[str, Any]:
    """What Litestar does not say of the texts in a list that may be null."""
    return {"extra": {"items": {"minLength": 1, "maxLength": longest, "pattern": pattern}}}


Ids = Annotated[
    list[
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=200,
                pattern=NOT_BLANK,
                description="a text of 1 to 200 characters, not all of them blank",
            ),
        ]
    ],
    Meta(
        max_length=50,
        description="a list of at most 50 ids",
        extra_json_schema=_items(200, NOT_BLANK),
        examples=[[]],
    ),
]
Moment = Annotated[
    str,
    Meta(
        description="an ISO 8601 date (the whole day, UTC) or timestamp (UTC where it has no zone)",
        extra_json_schema={"extra": {"any_of": [Schema(format="date"), Schema(format="date-time")]}},  # Litestar's way
        examples=["2026-01-01T00:00:00Z"],
    ),
]


class RagTimeRange(Struct, frozen=True, forbid_unknown_fields=True):
    """`from` must be before `to`."""

    from_: Moment = field(name="from")
    to: Moment

    def moments(self) -> tuple[datetime, datetime]:
        since = _moment("context.timeRange.from", self.from_, time.min)
        until = _moment("context.timeRange.to", self.to, time.max)
        if since >= until:
            raise InvalidInput("context.timeRange", to_builtins(self), "`from` must be before `to`")
        return since, until


class RagContext(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """What the message is about. Sources are named by id, or as their organization calls them; those that the caller
    may not see are as good as none."""

    keywords: Ids | None = field(default=None, name="keywordIds")
    watchlists: Ids | None = field(default=None, name="watchlistIds")
    listings: Ids | None = field(default=None, name="listingIds")
    alerts: Ids | None = field(default=None, name="alertIds")
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
                extra_json_schema=_items(100, _CODE),
                examples=[["etsy"]],
            ),
        ]
        | None
    ) = None
    time_range: Annotated[RagTimeRange, Meta(description="an object with `from` and `to`")] | None = None

    def focus(self) -> Focus:
        since, until = self.time_range.moments() if self.time_range else (None, None)
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return convert({**given, "since": since, "until": until}, Focus)


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
                description="the code of a plan, a word; for administrators alone",
                examples=["pro"],
            ),
        ]
        | None
    ) = field(default=None, name="planCode")


class RagMeta(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Kept with a new thread."""

    client: Annotated[Literal["web", "extension", "api"], Meta(description="one of web, extension, api")] | None = None
    version: (
        Annotated[str, Meta(max_length=100, pattern=r"^[^\x00]*$", description="a text of at most 100 characters")]
        | None
    ) = None


class RagRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A null is the same as nothing."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=4000,
            pattern=NOT_BLANK,
            description="a text of 1 to 4000 characters, not all of them blank",
            examples=[EXAMPLE.value["message"]],
        ),
    ] = field(name="message")
    thread: Annotated[UUID, Meta(description="the UUID of a thread; without one, a new thread is made")] | None = field(
        default=None, name="threadId"
    )
    capability: (
        Annotated[
            Capability,
            Meta(description=f"one of {', '.join(DESCRIPTIONS)}; without one, it is detected"),
        ]
        | None
    ) = None
    context: Annotated[RagContext, Meta(description="an object")] | None = None
    options: Annotated[RagOptions, Meta(description="an object")] | None = None
    meta: Annotated[RagMeta, Meta(description="an object")] | None = None

    def said(self) -> Said:
        options = self.options or RagOptions()
        return Said(
            self.text.strip(),
            self.thread,
            self.capability,
            self.context.focus() if self.context else Focus(),
            to_builtins(self.context),
            meta=to_builtins(self.meta) or {},
            **{**asdict(options), "language": options.language or "en"},
        )


@dataclass
class RagOperation(LexyBrainOperation, StreamedOperation):
    """Streams, and has the plain response's example."""

    def __post_init__(self) -> None:
        super().__post_init__()
        StreamedOperation.__post_init__(self)
        succeeded: Any = (self.responses or {})["200"]
        succeeded.content["application/json"].examples = {"answer": ANSWER}


@SURFACE.post(
    "/api/lexybrain/rag",
    InvalidInput("options.maxTokens", 99, "must be a whole number from 256 to 2048"),
    UnknownField("colour", ["capability", "context", "message", "meta", "options", "threadId"]),
    QuotaExceeded(50, 50, 1704067200),
    BudgetSpent(1_000_000, 1_000_400, 1704067200),
    Forbidden("planCode: only an administrator may choose a plan"),
    NotFound("thread", THREAD),
    ModelFailed(),
    EmbeddingFailed(),
    FeatureDisabled("Ask LexyBrain is switched off"),
    CostCapReached(),
    summary="A message, and the answer to it",
    operation_class=RagOperation,
)
async def rag(
    request: Caller, data: Annotated[RagRequest, BodyKwarg(examples=[EXAMPLE])], conversations: Injected[Conversations]
) -> Response[RagResponse]:
    """Keeps the message in its thread, or in a new one, and answers from what the caller may see."""
    turn = await conversations.begin(request.user, data.said())
    if wants_stream(request):
        return await event_stream(
            request,
            turn.stream(),
            meta={"threadId": turn.thread, "messageId": turn.message, "capability": turn.capability},
            sources=turn.sources,
            citations=turn.citations,
            body=turn.reply,
        )
    return Response(await turn.answer())


def _moment(name: str, value: str, when: time) -> datetime:
    """The instant, in UTC; of a day, its first or last."""
    written = value.upper()  # RFC 3339 has "t" and "z", too
    with suppress(ValueError):
        return datetime.combine(date.fromisoformat(written), when, UTC)
    with suppress(ValueError, OverflowError):  # the latter: not in the years 1 to 9999 of UTC
        moment = datetime.fromisoformat(written)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    raise InvalidInput(name, value, "must be an ISO 8601 date or timestamp")
