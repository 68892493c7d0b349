"""Ask LexyBrain: what users think of answers (`/api/lexybrain/messages/{message_id}/feedback`)."""

from typing import Annotated
from uuid import UUID

from litestar.openapi.spec import Example
from litestar.params import BodyKwarg, FromPath
from msgspec import Meta, Struct, field

from rag_app.domain.errors import InvalidInput, NotFound
from rag_app.http.bodies import NOT_BLANK
from rag_app.http.surface import Injected
from rag_app.surfaces.lexybrain.feedback import FeedbackLedger
from rag_app.surfaces.lexybrain.rules import SURFACE, Caller
from rag_app.surfaces.lexybrain.thread_routes import VISIBLE, MessageFeedback
from rag_app.surfaces.lexybrain.types import Rating
from rag_app.surfaces.lexybrain.wire import MESSAGE, Moment, Rated, as_wire

PATH = "/api/lexybrain/messages/{message_id:str}/feedback"
LONGEST_COMMENT = 2000


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


class KeptMessageFeedback(MessageFeedback, frozen=True):
    message: Annotated[UUID, Meta(examples=[MESSAGE])] = field(name="messageId")
    created_at: Moment
    updated_at: Moment


FeedbackBody = Annotated[
    FeedbackRequest,
    BodyKwarg(
        examples=[
            Example(value={"rating": "positive"}),
            Example(value={"rating": "neutral", "comment": "Right, but long"}),
        ]
    ),
]


@SURFACE.post(
    PATH,
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
    PATH,
    InvalidInput("message_id", "1", "Invalid UUID"),
    NotFound("feedback", MESSAGE),
    summary="Withdraw the rating of an answer",
)
async def withdraw(request: Caller, feedback: Injected[FeedbackLedger], message_id: FromPath[UUID]) -> None:
    """A second time, it is not found."""
    await feedback.withdraw(request.user, message_id)
