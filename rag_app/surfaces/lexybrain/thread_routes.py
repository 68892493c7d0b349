"""Ask LexyBrain: what a user has there: conversations that are kept (`/api/lexybrain/threads`), feedback on their answers
(`.../messages`), and whether answers may be collected to train models with (`.../consent`)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from litestar.openapi.spec import Example
from litestar.params import BodyKwarg, FromPath, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType, field

from rag_app.domain.errors import Forbidden, InvalidInput, NotFound, UnknownField
from rag_app.http.bodies import NOT_BLANK
from rag_app.http.surface import Injected
from rag_app.surfaces.lexybrain.feedback import FeedbackLedger
from rag_app.surfaces.lexybrain.messages import REFERENCE_TYPES
from rag_app.surfaces.lexybrain.rules import SURFACE, Caller, Cursor, Limit
from rag_app.surfaces.lexybrain.threads import Threads
from rag_app.surfaces.lexybrain.training import Training
from rag_app.surfaces.lexybrain.types import MESSAGE, THREAD, Message, Moment, Rated, Rating, Role, Thread, as_wire

PATH = "/api/lexybrain/threads"
ONE = f"{PATH}/{{thread_id:str}}"
FEEDBACK = "/api/lexybrain/messages/{message_id:str}/feedback"
CONSENT = "/api/lexybrain/consent"
LONGEST_COMMENT = 2000
NOT_A_PERSON = Forbidden("An API key speaks for others: only a person consents, signed in")
NOTHING_TO_CHANGE = "The body must have a `title`, or `archived`, or both"

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


class ThreadSource(RagSource, frozen=True):
    cited: Annotated[int | None, Meta(description="its number in the text, [Source N]; null where it has none")] = (
        field(name="citation")
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
    expected_source: Annotated[
        UUID | None, Meta(description="what should have been found; null, too, where it was deleted")
    ] = field(name="expectedSourceId")


class KeptMessageFeedback(MessageFeedback, frozen=True):
    message: Annotated[UUID, Meta(examples=[MESSAGE])] = field(name="messageId")
    created_at: Moment
    updated_at: Moment


class ThreadMessage(Struct, frozen=True, rename="camel"):
    id: Annotated[UUID, Meta(examples=[MESSAGE])]
    role: Literal["user", "assistant"]
    text: str = field(name="content")
    created_at: Moment
    capability: Annotated[str | None, Meta(examples=["market_brief"])]
    sources: Annotated[list[ThreadSource], Meta(description="as the answer cited them; of the assistant's alone")]
    model: Annotated[RagModel | None, Meta(description="null for the user's")]
    flags: Annotated[ThreadFlags | None, Meta(description="null for the user's")]
    feedback: Annotated[MessageFeedback | None, Meta(description="of the thread's user; null where there is none")]


class ThreadInfo(Struct, frozen=True, rename="camel"):
    id: Annotated[UUID, Meta(examples=[THREAD])]
    user: Annotated[UUID, Meta(description="whose it is")] = field(name="userId")
    title: Annotated[str | None, Meta(description="made from the first message, until it is renamed")]
    created_at: Moment
    updated_at: Moment
    last_message_at: Moment
    messages: int = field(name="messageCount")
    archived: bool
    metadata: Annotated[
        dict[str, Any], Meta(description="`meta` of the first message", examples=[{"client": "web", "version": "1.0"}])
    ]


class ThreadWithMessages(ThreadInfo, frozen=True):
    said: Annotated[list[ThreadMessage], Meta(description="the oldest first")] = field(name="messages")
    has_more: Annotated[bool, Meta(description="there are earlier ones: ask with `before`, the id of the first here")]


class ThreadsResponse(Struct, frozen=True, rename="camel"):
    threads: Annotated[list[ThreadInfo], Meta(description="the one with the newest message first")]
    next_cursor: Annotated[str | None, Meta(description="`cursor` of the next page; null where this is the last")]


class ThreadChange(Struct, frozen=True, forbid_unknown_fields=True):
    """At least one of them."""

    title: Title | UnsetType = UNSET
    archived: Annotated[bool, Meta(description="true or false")] | UnsetType = UNSET


class FeedbackRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A null is the same as nothing."""

    rating: Rated
    comment: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=LONGEST_COMMENT,
                pattern=VISIBLE,
                description="a text of 1 to 2000 characters, not all of them blank, and no control characters",
                examples=["The keyword itself is missing"],
            ),
        ]
        | None
    ) = None
    expected_source_id: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=200,
                pattern=NOT_BLANK,
                description="a text of 1 to 200 characters, not all of them blank: a source by id, or as your "
                "organization calls it; with the rating negative alone",
                examples=["kw-velvet-ring-box"],
            ),
        ]
        | None
    ) = None


FeedbackBody = Annotated[
    FeedbackRequest,
    BodyKwarg(
        examples=[
            Example(value={"rating": "positive"}),
            Example(value={"rating": "neutral", "comment": "Right, but long"}),
        ]
    ),
]


class ConsentInfo(Struct, frozen=True):
    training: Annotated[bool, Meta(description="whether your answers may be collected to train models with")]
    since: Annotated[datetime | None, Meta(description="null where they may not", examples=["2026-01-15T10:30:00Z"])]


class ConsentChange(Struct, frozen=True, forbid_unknown_fields=True):
    training: Annotated[bool, Meta(description="true or false")]


ConsentBody = Annotated[
    ConsentChange, BodyKwarg(examples=[Example(value={"training": True}), Example(value={"training": False})])
]
ChangeBody = Annotated[
    ThreadChange,
    BodyKwarg(
        examples=[Example(value={"title": "Wedding keywords"}), Example(value={"archived": True})],
        schema_extra={"min_properties": 1},
    ),
]


@SURFACE.get(
    PATH,
    InvalidInput("limit", "101", "Expected `int` <= 100"),
    Forbidden("Only an administrator may read the threads of others"),
    summary="Your threads, newest first",
)
async def newest(
    request: Caller,
    threads: Injected[Threads],
    limit: Limit = 20,
    cursor: Cursor = None,
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


@SURFACE.get(
    ONE,
    InvalidInput("limit", "101", "Expected `int` <= 100"),
    NotFound("thread", THREAD),
    summary="A thread with its newest messages",
)
async def read(
    request: Caller,
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
    said = [_message(each) for each in messages]
    return as_wire(ThreadWithMessages, thread, metadata=_shown(thread), said=said, has_more=more)


@SURFACE.patch(
    ONE,
    InvalidInput(
        "title", "", "must be a text of 1 to 200 characters, not all of them blank, and no control characters"
    ),
    InvalidInput("", None, NOTHING_TO_CHANGE),
    NotFound("thread", THREAD),
    summary="Rename a thread, or put it away",
)
async def change(
    request: Caller, data: ChangeBody, threads: Injected[Threads], thread_id: FromPath[UUID]
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


@SURFACE.delete(
    ONE,
    InvalidInput("thread_id", "1", "Invalid UUID"),
    NotFound("thread", THREAD),
    summary="Delete a thread with its messages",
)
async def remove(request: Caller, threads: Injected[Threads], thread_id: FromPath[UUID]) -> None:
    """It does not come back. A second time, it is not found."""
    await threads.delete(request.user, thread_id)


@SURFACE.delete(
    f"{ONE}/messages/{{message_id:str}}",
    InvalidInput("message_id", "1", "Invalid UUID"),
    NotFound("message", MESSAGE),
    summary="Delete a message",
)
async def remove_message(
    request: Caller, threads: Injected[Threads], thread_id: FromPath[UUID], message_id: FromPath[UUID]
) -> None:
    """It is shown no more, and no model reads it."""
    await threads.delete_message(request.user, thread_id, message_id)


@SURFACE.post(
    FEEDBACK,
    InvalidInput("rating", "good", "must be one of positive, negative, neutral"),
    InvalidInput("expectedSourceId", "kw-1", "must be a source that you may see"),
    NotFound("message", MESSAGE),
    summary="Rate an answer, or change its rating",
)
async def give(
    request: Caller, data: FeedbackBody, feedback: Injected[FeedbackLedger], message_id: FromPath[UUID]
) -> KeptMessageFeedback:
    """There is one of each answer, of its thread's user: a second one takes the place of the first, whole."""
    comment = data.comment and data.comment.strip()
    kept = await feedback.give(request.user, message_id, Rating(data.rating), comment, data.expected_source_id)
    return as_wire(KeptMessageFeedback, kept)


@SURFACE.delete(
    FEEDBACK,
    InvalidInput("message_id", "1", "Invalid UUID"),
    NotFound("feedback", MESSAGE),
    summary="Withdraw the rating of an answer",
)
async def withdraw(request: Caller, feedback: Injected[FeedbackLedger], message_id: FromPath[UUID]) -> None:
    """A second time, it is not found."""
    await feedback.withdraw(request.user, message_id)


@SURFACE.get(CONSENT, NOT_A_PERSON, UnknownField("user", []), summary="Whether you consent to training")
async def consent(request: Caller, consents: Injected[Training]) -> ConsentInfo:
    """Nobody does who has not said so."""
    return as_wire(ConsentInfo, await consents.consent(request.user))


@SURFACE.put(
    CONSENT,
    NOT_A_PERSON,
    InvalidInput("training", 1, "must be true or false"),
    summary="Consent to training, or withdraw it",
)
async def decide(request: Caller, data: ConsentBody, consents: Injected[Training]) -> ConsentInfo:
    """Consent holds for answers to come. With its withdrawal all that was collected from you is deleted, at once."""
    return as_wire(ConsentInfo, await consents.decide(request.user, data.training))


def _info(thread: Thread) -> ThreadInfo:
    return as_wire(ThreadInfo, thread, metadata=_shown(thread))


def _shown(thread: Thread) -> Mapping[str, Any]:
    """Which version of a prompt a thread has is the operator's affair."""
    return {name: value for name, value in thread.metadata.items() if name != "prompts"}


def _message(message: Message) -> ThreadMessage:
    if message.role is Role.USER:
        return as_wire(ThreadMessage, message, model=None, flags=None)
    made = message.generation
    read, written = made.get("tokensIn"), made.get("tokensOut")
    usage = None if read is None or written is None else RagUsage(read, written)
    return as_wire(ThreadMessage, message, model=RagModel(message.model or "", usage, made.get("latencyMs", 0)))
