"""Ask LexyBrain: what users think of answers (`/api/lexybrain/messages/{message_id}/feedback`)."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Request, Response, delete, post, route
from litestar.openapi.spec import Example
from litestar.params import BodyKwarg, FromPath
from msgspec import Meta, Struct

from rag_app.domain.errors import InvalidInput, NotFound
from rag_app.domain.scope import Principal
from rag_app.http.bodies import NOT_BLANK, JsonBody
from rag_app.http.docs import rate_limit_headers
from rag_app.http.surface import Injected
from rag_app.surfaces.lexybrain.feedback import FeedbackLedger
from rag_app.surfaces.lexybrain.rules import (
    LIMIT,
    MESSAGE,
    OF_BODIES,
    SECURITY,
    TAG,
    LexyBrainOperation,
    declared_alone,
    errors,
)
from rag_app.surfaces.lexybrain.thread_routes import VISIBLE, MessageFeedback, Moment, Rated
from rag_app.surfaces.lexybrain.types import KeptFeedback, Rating

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
    message_id: Annotated[UUID, Meta(examples=[MESSAGE])]
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


@post(
    PATH,
    status_code=200,
    dto=JsonBody,
    return_dto=None,
    summary="Rate an answer, or change its rating",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(
        InvalidInput("rating", "good", "must be one of positive, negative, neutral"),
        InvalidInput("expectedSourceId", "kw-1", "must be a source that you may see"),
        NotFound("message", MESSAGE),
        *OF_BODIES,
    ),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def give(
    request: Request[Principal, Any, Any],
    data: FeedbackBody,
    feedback: Injected[FeedbackLedger],
    message_id: FromPath[UUID],
) -> KeptMessageFeedback:
    """There is one of each answer, of its thread's user: a second one takes the place of the first, whole."""
    comment = data.comment and data.comment.strip()
    return _kept(
        await feedback.give(request.user, message_id, Rating(data.rating), comment, data.expected_source_id)
    )  # fmt: skip


@delete(
    PATH,
    summary="Withdraw the rating of an answer",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(InvalidInput("message_id", "1", "Invalid UUID"), NotFound("feedback", MESSAGE)),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def withdraw(
    request: Request[Principal, Any, Any], feedback: Injected[FeedbackLedger], message_id: FromPath[UUID]
) -> None:
    """A second time, it is not found."""
    await feedback.withdraw(request.user, message_id)


@route(PATH, http_method="OPTIONS", status_code=204, include_in_schema=False)
async def methods() -> Response[None]:
    """Litestar by itself tells of the first of several handlers alone."""
    return Response(None, headers={"Allow": "DELETE, OPTIONS, POST"})


HANDLERS = (methods, give, withdraw)


def _kept(feedback: KeptFeedback) -> KeptMessageFeedback:
    return KeptMessageFeedback(
        rating=feedback.rating.value,
        comment=feedback.comment,
        expected_source_id=feedback.expected_source,
        message_id=feedback.message,
        created_at=feedback.created_at,
        updated_at=feedback.updated_at,
    )
