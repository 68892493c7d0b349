"""Ask LexyBrain: messages of a conversation about a marketplace and their answers (`/api/lexybrain`), threads that are kept
(`.../threads`), feedback on their answers (`.../messages`), and consent to training (`.../consent`).

The contract's own words are kept: field names, ranges, defaults, texts.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from litestar import Response
from litestar.openapi.spec import Example, Operation, Tag
from litestar.params import BodyKwarg, FromPath, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

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
    RateLimited,
    StoreFailed,
    ThreadBusy,
    TooManyAtOnce,
    Unauthenticated,
    UnknownField,
    require,
)
from rag_app.http.fields import NOT_BLANK, WORD, PageSize, limit_text
from rag_app.http.problems import INTERNAL, KINDS, Kind, Kinds, Problem
from rag_app.http.streaming import (
    LAST_EVENT_ID,
    MEDIA_TYPE,
    PREFER_RESUMABLE,
    RESUMABLE,
    StreamedOperation,
    event_stream,
    prefers,
    wants_stream,
)
from rag_app.http.surface import STRICT, Caller, Credential, Injected, Surface, example
from rag_app.surfaces.lexybrain.conversations import Conversations
from rag_app.surfaces.lexybrain.feedback import FeedbackLedger
from rag_app.surfaces.lexybrain.quotas import CHOSEN_BY_ADMINISTRATORS, UsageInfo
from rag_app.surfaces.lexybrain.threads import OWN_THREADS_ONLY, ThreadStore
from rag_app.surfaces.lexybrain.training import NO_KEY_CONSENTS, Training
from rag_app.surfaces.lexybrain.types import (
    EXAMPLE,
    MESSAGE,
    THREAD,
    ConsentInfo,
    KeptMessageFeedback,
    RagRequest,
    RagResponse,
    RatingValue,
    ThreadInfo,
    ThreadsResponse,
    ThreadWithMessages,
)

# -- what all routes share: credentials, limits, and the envelope of errors

Cursor = Annotated[
    str | None,
    QueryParameter(min_length=1, max_length=500, pattern=WORD, description="`nextCursor` of the previous page"),
]

READ_WINDOW = "lexybrain_threads"
"""The window of requests that read threads: who scrolls through them may still ask."""


class LexyBrainErrorInfo(Struct, frozen=True):
    code: Annotated[str, Meta(description="a stable code for programs")]
    message: Annotated[str, Meta(description="the explanation for people")]
    retryable: Annotated[bool, Meta(description="whether the same request may succeed if it is sent again later")]


class LexyBrainError(Struct, frozen=True):
    """The envelope of all errors."""

    error: LexyBrainErrorInfo


RETRYABLE = frozenset({"rate_limit_exceeded", "generation_failed", "service_unavailable"})
"""Codes of what passes within minutes: not a quota (until next month), nor the cost cap (until tomorrow)."""

LEXYBRAIN_KINDS: Kinds = {
    InvalidInput: Kind(422, "validation_error"),
    Unauthenticated: Kind(401, "authentication_required"),
    Forbidden: Kind(403, "forbidden"),
    QuotaExceeded: Kind(403, "quota_exceeded"),
    NotFound: Kind(404, "not_found"),
    RateLimited: Kind(429, "rate_limit_exceeded", KINDS[RateLimited].message),
    TooManyAtOnce: Kind(429, "rate_limit_exceeded"),
    ThreadBusy: Kind(
        429, "rate_limit_exceeded", "Earlier messages of this thread are still being answered. Send yours again later."
    ),
    ModelFailed: Kind(500, "generation_failed", "The model did not generate an answer. Try again later."),
    Exception: INTERNAL,
    FeatureDisabled: Kind(503, "feature_disabled"),
    CostCapReached: Kind(
        503, "cost_cap_reached", "Today's cost limit for answers is reached. Try again tomorrow (UTC)."
    ),
    EmbeddingFailed: Kind(503, "service_unavailable", KINDS[EmbeddingFailed].message),
    StoreFailed: Kind(503, "service_unavailable", KINDS[StoreFailed].message),
    400: Kind(422, "validation_error", "The request could not be read; see /docs."),
    404: Kind(404, "not_found", "This path does not exist; see /docs."),
    **{status: KINDS[status] for status in (405, 408, 413, 415)},
}


def envelope(problem: Problem) -> LexyBrainError:
    # the contract's own text; what was wrong with the credential follows it
    message = f"Please sign in. {problem.message}" if problem.code == "authentication_required" else problem.message
    return LexyBrainError(LexyBrainErrorInfo(problem.code, message, problem.code in RETRYABLE))


@dataclass
class LexyBrainOperation(Operation):
    """An OpenAPI operation without the response that Litestar adds: an invalid request is a 422 here."""

    def __post_init__(self) -> None:
        (self.responses or {}).pop("400", None)


SURFACE = Surface(
    name="lexybrain",
    tag=Tag("Ask LexyBrain", "conversations about a marketplace, answered from the sources that the caller may see"),
    paths=("/api/lexybrain/",),
    limit=60,
    windows={READ_WINDOW: 60},
    credentials=frozenset(
        {Credential.JWT, Credential.COOKIE, Credential.SESSION, Credential.EXTENSION, Credential.API_KEY}
    ),
    envelope=envelope,
    kinds=LEXYBRAIN_KINDS,
    errors=(Unauthenticated("The token has expired"), StoreFailed(), RuntimeError()),
    options={**STRICT, "operation_class": LexyBrainOperation},
)


# -- a message and its answer


@dataclass
class RagOperation(LexyBrainOperation, StreamedOperation):
    """Streams, and has the plain response's example."""

    def __post_init__(self) -> None:
        super().__post_init__()
        StreamedOperation.__post_init__(self)
        succeeded: Any = (self.responses or {})["200"]
        succeeded.content["application/json"].examples = {"answer": example(__package__, "answer")}
        self.parameters = [*(self.parameters or ()), PREFER_RESUMABLE]


@dataclass
class ResumeOperation(LexyBrainOperation):
    """Has the header with the last event that the client read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parameters = [*(self.parameters or ()), LAST_EVENT_ID]


@SURFACE.post(
    "/api/lexybrain/rag",
    InvalidInput("options.maxTokens", 99, "must be a whole number from 256 to 2048"),
    UnknownField("colour", ["capability", "context", "message", "meta", "options", "threadId"]),
    QuotaExceeded(50, 50, 1704067200),
    BudgetSpent(1_000_000, 1_000_400, 1704067200),
    Forbidden(CHOSEN_BY_ADMINISTRATORS),
    NotFound("thread", THREAD),
    ModelFailed(),
    EmbeddingFailed(),
    FeatureDisabled("Ask LexyBrain is switched off"),
    CostCapReached(),
    summary="Send a message and get the answer",
    operation_class=RagOperation,
)
async def rag(
    request: Caller, data: Annotated[RagRequest, BodyKwarg(examples=[EXAMPLE])], conversations: Injected[Conversations]
) -> Response[RagResponse]:
    """Stores the message in its thread, or in a new thread, and answers it from the sources that the caller may see.

    With `Prefer: resumable` the server goes on writing after the client disconnects, and each event has an `id`.
    """
    turn = await conversations.begin(request.user, data)
    if wants_stream(request):
        return await event_stream(
            request,
            turn.stream(),
            meta={"threadId": turn.thread, "messageId": turn.message, "capability": turn.capability},
            sources=turn.sources,
            citations=turn.citations,
            body=turn.reply,
            keep=turn.keep if prefers(request, RESUMABLE) else None,
        )
    return Response(await turn.answer())


# -- what a user has there

PATH = "/api/lexybrain/threads"
ONE = f"{PATH}/{{thread_id:str}}"
FEEDBACK = "/api/lexybrain/messages/{message_id:str}/feedback"
CONSENT = "/api/lexybrain/consent"
NOT_A_PERSON = Forbidden(NO_KEY_CONSENTS)
NOTHING_TO_CHANGE = "The body must have `title`, `archived` or both"

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


class ThreadChange(Struct, frozen=True, forbid_unknown_fields=True):
    """At least one of them."""

    title: (
        Annotated[
            str,
            limit_text(200, also=", and no control characters", pattern=VISIBLE, examples=["Wedding keywords"]),
        ]
        | UnsetType
    ) = UNSET
    archived: Annotated[bool, Meta(description="true or false")] | UnsetType = UNSET


class FeedbackRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A null is the same as an omitted field."""

    rating: RatingValue
    comment: (
        Annotated[
            str,
            limit_text(
                2000, also=", and no control characters", pattern=VISIBLE, examples=["The keyword itself is missing"]
            ),
        ]
        | None
    ) = None
    expected_source_id: (
        Annotated[
            str,
            limit_text(
                200,
                also=": the id or external id of the source that the answer should have cited; only with the rating negative",
                examples=["kw-velvet-ring-box"],
            ),
        ]
        | None
    ) = None


class BranchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    before: Annotated[UUID, Meta(description="the UUID of a message of this thread", examples=[MESSAGE])]


class ConsentChange(Struct, frozen=True, forbid_unknown_fields=True):
    training: Annotated[bool, Meta(description="true or false")]


@SURFACE.get(
    PATH,
    InvalidInput("limit", "101", "must be a whole number from 1 to 100"),
    Forbidden(OWN_THREADS_ONLY),
    summary="List threads, newest first",
    opt={"window": READ_WINDOW},
)
async def newest(
    request: Caller,
    threads: Injected[ThreadStore],
    limit: PageSize = 20,
    cursor: Cursor = None,
    archived: Annotated[
        Literal["true", "false"] | None,
        QueryParameter(
            description="true: only archived threads; false: only threads that are not archived; all threads by default"
        ),
    ] = None,
    user: Annotated[
        UUID | None, QueryParameter(description="return the threads of this user; administrators only")
    ] = None,
    everybody: Annotated[
        Literal["true", "false"] | None,
        QueryParameter(
            description="true: return the threads of all users; administrators only, not together with `user`"
        ),
    ] = None,
    search: Annotated[
        str | None,
        QueryParameter(
            min_length=1,
            max_length=200,
            pattern=NOT_BLANK,
            description="return only threads with this text in the title or a message",
        ),
    ] = None,
) -> ThreadsResponse:
    """Returns a page of threads. Reads of other users' threads are recorded in the audit log."""
    return await threads.list(
        request.user,
        limit=limit,
        after=cursor,
        archived=None if archived is None else archived == "true",
        user=user,
        everybody=everybody == "true",
        search=search,
    )


@SURFACE.get(
    ONE,
    InvalidInput("limit", "101", "must be a whole number from 1 to 100"),
    NotFound("thread", THREAD),
    summary="Read a thread and its newest messages",
    opt={"window": READ_WINDOW},
)
async def read(
    request: Caller,
    threads: Injected[ThreadStore],
    thread_id: FromPath[UUID],
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="maximum number of messages to return")] = 100,
    before: Annotated[
        UUID | None,
        QueryParameter(
            description="the id of a message: return the messages before it. To page back, send the id of the oldest message you have"
        ),
    ] = None,
) -> ThreadWithMessages:
    """Sources are returned as they were cited. A source that you may no longer see keeps its label, but its quote is
    withheld. Reads of other users' threads are recorded in the audit log."""
    return await threads.read(request.user, thread_id, limit=limit, before=before)


@SURFACE.patch(
    ONE,
    InvalidInput(
        "title", "", "must be a text of 1 to 200 characters, not all of them blank, and no control characters"
    ),
    InvalidInput("", None, NOTHING_TO_CHANGE),
    NotFound("thread", THREAD),
    summary="Rename, archive or restore a thread",
)
async def change(
    request: Caller,
    data: Annotated[
        ThreadChange,
        BodyKwarg(
            examples=[Example(value={"title": "Wedding keywords"}), Example(value={"archived": True})],
            schema_extra={"min_properties": 1},
        ),
    ],
    threads: Injected[ThreadStore],
    thread_id: FromPath[UUID],
) -> ThreadInfo:
    """Omitted fields keep their value. A new message in an archived thread restores the thread."""
    changes = require(to_builtins(data) or None, InvalidInput("", None, NOTHING_TO_CHANGE))
    return await threads.change(request.user, thread_id, **changes)


@SURFACE.post(
    f"{ONE}/branch",
    InvalidInput("before", "1", "must be the UUID of a message of this thread"),
    NotFound("message", MESSAGE),
    summary="Copy a thread up to a message",
)
async def branch(
    request: Caller,
    data: Annotated[BranchRequest, BodyKwarg(examples=[Example(value={"before": MESSAGE})])],
    threads: Injected[ThreadStore],
    thread_id: FromPath[UUID],
) -> ThreadInfo:
    """Creates a thread with the messages before the given one, so that the user can ask it again in other words. The
    original thread does not change. Feedback is not copied."""
    return await threads.branch(request.user, thread_id, data.before)


@SURFACE.get(
    f"{ONE}/answer",
    InvalidInput("thread_id", "1", "Invalid UUID"),
    NotFound("answer", THREAD),
    ThreadBusy(),
    summary="Resume the stream of an answer",
    opt={"window": READ_WINDOW},
    media_type=MEDIA_TYPE,
    operation_class=ResumeOperation,
)
async def resume(request: Caller, conversations: Injected[Conversations], thread_id: FromPath[UUID]) -> Response[str]:
    """For a client that sent `Prefer: resumable` and lost its connection. Returns the events after `Last-Event-ID`, or
    all events without that header. After the last event of a stream that ended, it is sent once more.

    A stream can be resumed until one minute after its end. Returns 404 if no answer is being written; read the thread
    instead. Returns 429 if another server process writes the answer; it will appear in the thread.
    """
    stream = await conversations.running.find(request.user.user, thread_id)
    return stream.resume(request.headers.get("last-event-id", ""))


@SURFACE.post(
    f"{ONE}/stop",
    InvalidInput("thread_id", "1", "Invalid UUID"),
    NotFound("answer", THREAD),
    summary="Stop the answer that is being written",
    status_code=204,
)
async def stop(request: Caller, conversations: Injected[Conversations], thread_id: FromPath[UUID]) -> None:
    """Keeps the text written so far and marks it `interrupted`. Only streams with `Prefer: resumable` need this: other
    streams stop when their client disconnects."""
    await conversations.running.stop(request.user.user, thread_id)


@SURFACE.get(
    "/api/lexybrain/usage",
    UnknownField("user", []),
    summary="Show how much of your plan is used",
    opt={"window": READ_WINDOW},
)
async def used(request: Caller, conversations: Injected[Conversations]) -> UsageInfo:
    """Returns the messages used this month and the limit of the plan."""
    return await conversations.accounts.month(request.user)


@SURFACE.delete(
    ONE,
    InvalidInput("thread_id", "1", "Invalid UUID"),
    NotFound("thread", THREAD),
    summary="Delete a thread with its messages",
)
async def remove(request: Caller, threads: Injected[ThreadStore], thread_id: FromPath[UUID]) -> None:
    """The thread cannot be restored. Returns 404 if it has already been deleted."""
    await threads.delete(request.user, thread_id)


@SURFACE.delete(
    f"{ONE}/messages/{{message_id:str}}",
    InvalidInput("message_id", "1", "Invalid UUID"),
    NotFound("message", MESSAGE),
    summary="Delete a message",
)
async def remove_message(
    request: Caller, threads: Injected[ThreadStore], thread_id: FromPath[UUID], message_id: FromPath[UUID]
) -> None:
    """The message is no longer shown, and is no longer sent to a model."""
    await threads.delete_message(request.user, thread_id, message_id)


@SURFACE.post(
    FEEDBACK,
    InvalidInput("rating", "good", "must be one of positive, negative, neutral"),
    InvalidInput("expectedSourceId", "kw-1", "must be a source that you may see"),
    NotFound("message", MESSAGE),
    summary="Rate an answer",
)
async def give(
    request: Caller,
    data: Annotated[
        FeedbackRequest,
        BodyKwarg(
            examples=[
                Example(value={"rating": "positive"}),
                Example(value={"rating": "neutral", "comment": "Right, but long"}),
            ]
        ),
    ],
    feedback: Injected[FeedbackLedger],
    message_id: FromPath[UUID],
) -> KeptMessageFeedback:
    """Only the user of the thread can rate its answers. Each answer has at most one feedback: sending another replaces
    all of it."""
    comment = data.comment and data.comment.strip()
    return await feedback.give(request.user, message_id, data.rating, comment, data.expected_source_id)


@SURFACE.delete(
    FEEDBACK,
    InvalidInput("message_id", "1", "Invalid UUID"),
    NotFound("feedback", MESSAGE),
    summary="Delete the feedback on an answer",
)
async def withdraw(request: Caller, feedback: Injected[FeedbackLedger], message_id: FromPath[UUID]) -> None:
    """Returns 404 if it has already been deleted."""
    await feedback.withdraw(request.user, message_id)


@SURFACE.get(CONSENT, NOT_A_PERSON, UnknownField("user", []), summary="Show whether you consent to training")
async def consent(request: Caller, consents: Injected[Training]) -> ConsentInfo:
    """The default is no consent."""
    return await consents.consent(request.user)


@SURFACE.put(
    CONSENT,
    NOT_A_PERSON,
    InvalidInput("training", 1, "must be true or false"),
    summary="Give or withdraw consent to training",
)
async def decide(
    request: Caller,
    data: Annotated[
        ConsentChange, BodyKwarg(examples=[Example(value={"training": True}), Example(value={"training": False})])
    ],
    consents: Injected[Training],
) -> ConsentInfo:
    """Consent covers future answers only. Withdrawing it deletes everything that was collected from you at once."""
    return await consents.decide(request.user, data.training)
