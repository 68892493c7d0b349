"""Ask LexyBrain: conversations that are kept (`/api/lexybrain/threads`)."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from litestar import Request, Response, delete, get, patch, route
from litestar.openapi.spec import Example
from litestar.params import BodyKwarg, FromPath, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from rag_app.domain.errors import Forbidden, InvalidInput, NotFound
from rag_app.domain.scope import Principal
from rag_app.http.bodies import WORD, JsonBody
from rag_app.http.docs import rate_limit_headers
from rag_app.http.surface import Injected
from rag_app.surfaces.lexybrain.rules import (
    LIMIT,
    MESSAGE,
    OF_BODIES,
    SECURITY,
    TAG,
    THREAD,
    LexyBrainOperation,
    declared_alone,
    errors,
)
from rag_app.surfaces.lexybrain.threads import Threads
from rag_app.surfaces.lexybrain.types import Feedback, Message, Role, Thread

TYPES = ["keyword", "listing", "alert", "doc"]
NOTHING_TO_CHANGE = "The body must have a `title`, or `archived`, or both"

Moment = Annotated[datetime, Meta(examples=["2026-01-15T10:30:00Z"])]
# control characters that are no white space; what else leaves nothing to see: white space, fillers, marks of format
_CONTROL = r"\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
_BLANK = (
    r"\x09-\x0d\x1c-\x20\x85\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u1680"
    r"\u17b4-\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff9-\ufffb"
)
# what may come before the first visible character is none itself: so nothing is tried twice
VISIBLE = f"^[{_BLANK}]*[^{_CONTROL}{_BLANK}][^{_CONTROL}]*$"
"""A pattern: something to see, and no control characters."""
Title = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=VISIBLE,
        description="a text of 1 to 200 characters, not all of them blank, and no control characters",
        examples=["Wedding keywords"],
    ),
]


class RagSource(Struct, frozen=True):
    id: UUID
    type: Annotated[
        str, Meta(description=f"one of {', '.join(TYPES)}", extra_json_schema={"extra": {"enum": TYPES}})
    ]  # fmt: skip
    label: Annotated[str, Meta(examples=["vintage wedding rings"])]
    score: Annotated[float, Meta(ge=0, le=1, description="cosine similarity", examples=[0.92])]


class RagUsage(Struct, frozen=True, rename="camel"):
    input_tokens: Annotated[int, Meta(examples=[1847])]
    output_tokens: Annotated[int, Meta(examples=[312])]


class RagModel(Struct, frozen=True, rename="camel"):
    id: Annotated[str, Meta(description='"extractive" where no model is configured', examples=["extractive"])]
    usage: Annotated[RagUsage | None, Meta(description="null where nobody counted")]
    latency_ms: Annotated[int, Meta(description="of the generation", examples=[3421])]


class ThreadSource(RagSource, frozen=True):
    citation: Annotated[int | None, Meta(description="its number in the text, [Source N]; null where it has none")]
    quote: Annotated[str | None, Meta(description="the passage that supports the answer")]
    available: Annotated[
        bool, Meta(description="false where it was deleted, or is no longer yours to see: its quote is withheld")
    ]


class ThreadFlags(Struct, frozen=True, rename="camel"):
    used_rag: bool
    fallback_to_generic: bool
    insufficient_context: bool
    interrupted: Annotated[bool, Meta(description="the text ends where the model or the client left")]


Rated = Annotated[Literal["positive", "negative", "neutral"], Meta(description="one of positive, negative, neutral")]


class MessageFeedback(Struct, frozen=True, rename="camel"):
    rating: Rated
    comment: Annotated[str | None, Meta(examples=["The keyword itself is missing"])]
    expected_source_id: Annotated[
        UUID | None, Meta(description="what should have been found; null, too, where it was deleted")
    ]


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


class ThreadChange(Struct, frozen=True, forbid_unknown_fields=True):
    """At least one of them."""

    title: Title | UnsetType = UNSET
    archived: Annotated[bool, Meta(description="true or false")] | UnsetType = UNSET


ChangeBody = Annotated[
    ThreadChange,
    BodyKwarg(
        examples=[Example(value={"title": "Wedding keywords"}), Example(value={"archived": True})],
        schema_extra={"min_properties": 1},
    ),
]


@get(
    "/api/lexybrain/threads",
    summary="Your threads, newest first",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(
        InvalidInput("limit", "101", "Expected `int` <= 100"),
        Forbidden("Only an administrator may read the threads of others"),
    ),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def newest(
    request: Request[Principal, Any, Any],
    threads: Injected[Threads],
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="of this page")] = 20,
    cursor: Annotated[
        str | None,
        QueryParameter(min_length=1, max_length=500, pattern=WORD, description="`nextCursor` of the page before"),
    ] = None,
    archived: Annotated[
        Literal["true", "false"] | None, QueryParameter(description="only those that are archived, or are not")
    ] = None,
    user: Annotated[UUID | None, QueryParameter(description="whose threads; for administrators")] = None,
    everybody: Annotated[
        Literal["true", "false"] | None,
        QueryParameter(description="everybody's threads; for administrators, without `user`"),
    ] = None,
) -> ThreadsResponse:
    """What an administrator reads of others is written down."""
    page = await threads.list(
        request.user,
        limit=limit,
        after=cursor,
        archived=None if archived is None else archived == "true",
        user=user,
        everybody=everybody == "true",
    )
    return ThreadsResponse([_info(each) for each in page.threads], page.after)


@get(
    "/api/lexybrain/threads/{thread_id:str}",
    summary="A thread with its newest messages",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(InvalidInput("limit", "101", "Expected `int` <= 100"), NotFound("thread", THREAD)),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def read(
    request: Request[Principal, Any, Any],
    threads: Injected[Threads],
    thread_id: FromPath[UUID],
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="messages of this page")] = 100,
    before: Annotated[
        UUID | None, QueryParameter(description="only messages before this one: the first of the page after it")
    ] = None,
) -> ThreadWithMessages:
    """Sources come as they were cited. One that you may see no longer keeps its label and loses its quote. What an
    administrator reads of others is written down."""
    thread, messages, more = await threads.read(request.user, thread_id, limit=limit, before=before)
    return ThreadWithMessages(**asdict(_info(thread)), messages=[_message(each) for each in messages], has_more=more)


@patch(
    "/api/lexybrain/threads/{thread_id:str}",
    dto=JsonBody,
    return_dto=None,
    summary="Rename a thread, or put it away",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(
        InvalidInput(
            "title", "", "must be a text of 1 to 200 characters, not all of them blank, and no control characters"
        ),
        InvalidInput("", None, NOTHING_TO_CHANGE),
        NotFound("thread", THREAD),
        *OF_BODIES,
    ),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def change(
    request: Request[Principal, Any, Any], data: ChangeBody, threads: Injected[Threads], thread_id: FromPath[UUID]
) -> ThreadInfo:
    """A message in an archived thread brings it back."""
    changed: Thread | None = None
    if data.title is not UNSET:
        changed = await threads.rename(request.user, thread_id, data.title.strip())
    if data.archived is not UNSET:
        changed = await threads.archive(request.user, thread_id, data.archived)
    if changed is None:
        raise InvalidInput("", None, NOTHING_TO_CHANGE)
    return _info(changed)


@delete(
    "/api/lexybrain/threads/{thread_id:str}",
    summary="Delete a thread with its messages",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(InvalidInput("thread_id", "1", "Invalid UUID"), NotFound("thread", THREAD)),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def remove(request: Request[Principal, Any, Any], threads: Injected[Threads], thread_id: FromPath[UUID]) -> None:
    """It does not come back. A second time, it is not found."""
    await threads.delete(request.user, thread_id)


@delete(
    "/api/lexybrain/threads/{thread_id:str}/messages/{message_id:str}",
    summary="Delete a message",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(InvalidInput("message_id", "1", "Invalid UUID"), NotFound("message", MESSAGE)),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def remove_message(
    request: Request[Principal, Any, Any],
    threads: Injected[Threads],
    thread_id: FromPath[UUID],
    message_id: FromPath[UUID],
) -> None:
    """It is shown no more, and no model reads it."""
    await threads.delete_message(request.user, thread_id, message_id)


@route("/api/lexybrain/threads/{thread_id:str}", http_method="OPTIONS", status_code=204, include_in_schema=False)
async def methods() -> Response[None]:
    """Litestar by itself tells of the first of several handlers alone."""
    return Response(None, headers={"Allow": "DELETE, GET, OPTIONS, PATCH"})


HANDLERS = (newest, methods, read, change, remove, remove_message)


def _info(thread: Thread) -> ThreadInfo:
    return ThreadInfo(
        id=thread.id,
        user_id=thread.user,
        title=thread.title,
        created_at=thread.created_at,
        updated_at=thread.updated_at,
        last_message_at=thread.last_message_at,
        message_count=thread.messages,
        archived=thread.archived,
        # which version of a prompt a thread has is the operator's affair
        metadata={name: value for name, value in thread.metadata.items() if name != "prompts"},
    )


def _message(message: Message) -> ThreadMessage:
    answered = message.role is Role.ASSISTANT
    return ThreadMessage(
        id=message.id,
        role=message.role.value,
        content=message.text,
        created_at=message.created_at,
        capability=message.capability,
        sources=[
            ThreadSource(each.id, each.type, each.label, each.score, each.cited, each.quote, each.available)
            for each in message.sources
        ],
        model=_model(message) if answered else None,
        flags=ThreadFlags(
            used_rag=message.flags.used_rag,
            fallback_to_generic=message.flags.fallback_to_generic,
            insufficient_context=message.flags.insufficient_context,
            interrupted=message.flags.interrupted,
        )
        if answered
        else None,
        feedback=_feedback(message.feedback) if message.feedback else None,
    )


def _feedback(feedback: Feedback) -> MessageFeedback:
    return MessageFeedback(feedback.rating.value, feedback.comment, feedback.expected_source)


def _model(message: Message) -> RagModel:
    made = message.generation
    read, written = made.get("tokensIn"), made.get("tokensOut")
    return RagModel(
        message.model or "",
        None if read is None or written is None else RagUsage(read, written),
        made.get("latencyMs", 0),
    )
