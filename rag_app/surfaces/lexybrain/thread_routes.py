"""Ask LexyBrain: what a user has there: conversations that are kept (`/api/lexybrain/threads`), feedback on their answers
(`.../messages`), and whether answers may be collected to train models with (`.../consent`)."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from litestar import Response
from litestar.openapi.spec import Example
from litestar.params import BodyKwarg, FromPath, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from rag_app.domain import Forbidden, InvalidInput, NotFound, TooManyAtOnce, UnknownField
from rag_app.http.bodies import NOT_BLANK
from rag_app.http.surface import Caller, Injected
from rag_app.surfaces.lexybrain.conversations import Conversations
from rag_app.surfaces.lexybrain.feedback import FeedbackLedger
from rag_app.surfaces.lexybrain.rules import READING, SURFACE, Cursor, Limit
from rag_app.surfaces.lexybrain.threads import Threads
from rag_app.surfaces.lexybrain.training import Training
from rag_app.surfaces.lexybrain.types import (
    MESSAGE,
    THREAD,
    ConsentInfo,
    KeptMessageFeedback,
    Rated,
    Rating,
    ThreadInfo,
    ThreadsResponse,
    ThreadWithMessages,
    UsageInfo,
)

PATH = "/api/lexybrain/threads"
ONE = f"{PATH}/{{thread_id:str}}"
USAGE = "/api/lexybrain/usage"
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


class BranchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    before: Annotated[UUID, Meta(description="the UUID of a message of this thread", examples=[MESSAGE])]


BranchBody = Annotated[BranchRequest, BodyKwarg(examples=[Example(value={"before": MESSAGE})])]
FeedbackBody = Annotated[
    FeedbackRequest,
    BodyKwarg(
        examples=[
            Example(value={"rating": "positive"}),
            Example(value={"rating": "neutral", "comment": "Right, but long"}),
        ]
    ),
]


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
    opt={"window": READING},
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
    search: Annotated[
        str | None,
        QueryParameter(
            min_length=1,
            max_length=200,
            pattern=NOT_BLANK,
            description="only those with this text in title or messages",
        ),
    ] = None,
) -> ThreadsResponse:
    """What an administrator reads of others is written down."""
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
    InvalidInput("limit", "101", "Expected `int` <= 100"),
    NotFound("thread", THREAD),
    summary="A thread with its newest messages",
    opt={"window": READING},
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
    return await threads.read(request.user, thread_id, limit=limit, before=before)


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
    changes = to_builtins(data)
    if not changes:
        raise InvalidInput("", None, NOTHING_TO_CHANGE)
    return await threads.change(request.user, thread_id, **changes)


@SURFACE.post(
    f"{ONE}/branch",
    InvalidInput("before", "1", "must be the UUID of a message of this thread"),
    NotFound("message", MESSAGE),
    summary="A new thread with what was said before a message",
)
async def branch(
    request: Caller, data: BranchBody, threads: Injected[Threads], thread_id: FromPath[UUID]
) -> ThreadInfo:
    """To ask that message again in other words. This thread stays as it is; ratings stay with it."""
    return await threads.branch(request.user, thread_id, data.before)


@SURFACE.get(
    f"{ONE}/answer",
    InvalidInput("thread_id", "1", "Invalid UUID"),
    NotFound("answer", THREAD),
    TooManyAtOnce(1),
    summary="The stream of the answer that is being written",
    opt={"window": READING},
    media_type="text/event-stream",
)
async def resume(request: Caller, conversations: Injected[Conversations], thread_id: FromPath[UUID]) -> Response[Any]:
    """For a client that sent `Prefer: resumable` and lost the stream: all its events, or those after `Last-Event-ID`.

    Until a minute after its end. 404: nothing is being answered, the thread has what there is. 429: another process
    answers it; its answer will be in the thread.
    """
    stream = await conversations.running.find(request.user.user, thread_id)
    seen = request.headers.get("last-event-id", "")
    return stream.response(int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 9 else 0)


@SURFACE.post(
    f"{ONE}/stop",
    InvalidInput("thread_id", "1", "Invalid UUID"),
    NotFound("answer", THREAD),
    summary="Stop the answer that is being written",
    status_code=204,
)
async def stop(request: Caller, conversations: Injected[Conversations], thread_id: FromPath[UUID]) -> None:
    """What had been said is kept, marked `interrupted`. For streams with `Prefer: resumable`: others end with their client."""
    await conversations.running.stop(request.user.user, thread_id)


@SURFACE.get(USAGE, UnknownField("user", []), summary="What is left of your plan", opt={"window": READING})
async def used(request: Caller, conversations: Injected[Conversations]) -> UsageInfo:
    """Messages of this month."""
    account, month = await conversations.accounts.month(request.user)
    return UsageInfo(account.plan, month.used, month.limit, datetime.fromtimestamp(month.resets_at, UTC))


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
    return await feedback.give(request.user, message_id, Rating(data.rating), comment, data.expected_source_id)


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
    return await consents.consent(request.user)


@SURFACE.put(
    CONSENT,
    NOT_A_PERSON,
    InvalidInput("training", 1, "must be true or false"),
    summary="Consent to training, or withdraw it",
)
async def decide(request: Caller, data: ConsentBody, consents: Injected[Training]) -> ConsentInfo:
    """Consent holds for answers to come. With its withdrawal all that was collected from you is deleted, at once."""
    return await consents.decide(request.user, data.training)
