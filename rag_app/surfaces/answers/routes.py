"""Feedback on answers of `/api/rag/answer`, `/owner/ask` and `/api/v1/indexes` (`/api/v1/answers`).

An answer is named by the `X-Request-ID` of its response (`request_id` in a stream's `meta`).
"""

from typing import Annotated

from litestar.openapi.spec import Tag
from litestar.params import BodyKwarg, FromPath
from msgspec import Meta, Struct

from rag_app.domain import InvalidInput, NotFound, StoreFailed, Unauthenticated, UnknownField
from rag_app.evaluation.kept_answers import REQUEST, KeptAnswerFeedback, KeptAnswers, Verdict
from rag_app.http.fields import NOT_BLANK, limit_text
from rag_app.http.surface import STRICT, Caller, Credential, Injected, Surface, example

FEEDBACK = "/api/v1/answers/{request_id:str}/feedback"


class AnswerFeedback(Struct, frozen=True, forbid_unknown_fields=True):
    """A null is the same as an omitted field."""

    verdict: Annotated[Verdict, Meta(description="one of right, wrong")]
    comment: (
        Annotated[
            str,
            limit_text(2000),
        ]
        | None
    ) = None
    expected_source: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=500,
                pattern=NOT_BLANK,
                description="the id or external id of the source that the answer should have cited; only with the "
                "verdict wrong",
            ),
        ]
        | None
    ) = None


NO_ANSWER = NotFound("answer", REQUEST)
SURFACE = Surface(
    name="answer_feedback",
    tag=Tag("Answer feedback", "feedback on your own answers of RAG retrieval, Owner Q&A and indexes"),
    paths=("/api/v1/answers/",),
    limit=60,
    credentials=frozenset({Credential.JWT, Credential.COOKIE, Credential.SESSION}),
    errors=(Unauthenticated("The token has expired"), UnknownField("colour", []), StoreFailed(), RuntimeError()),
    options=STRICT,
)


@SURFACE.post(
    FEEDBACK,
    InvalidInput("verdict", "good", "one of right, wrong"),
    UnknownField("colour", AnswerFeedback.__struct_fields__),
    NO_ANSWER,
    summary="Rate an answer as right or wrong",
)
async def give(
    request: Caller,
    data: Annotated[AnswerFeedback, BodyKwarg(examples=[example(__package__, "feedback")])],
    kept_answers: Injected[KeptAnswers],
    request_id: FromPath[str],
) -> KeptAnswerFeedback:
    """You can rate your own answers of the last 24 hours. Each answer has at most one feedback; sending another replaces
    it.

    Feedback is also stored as a judgment: with `right`, that the cited sources answer the question; with `wrong`, that
    `expected_source` does.
    """
    return await kept_answers.judge(request.user, request_id, data.verdict, data.comment, data.expected_source)


@SURFACE.delete(
    FEEDBACK, NO_ANSWER, summary="Delete your feedback and the copy of the answer stored with it", status_code=204
)
async def withdraw(request: Caller, kept_answers: Injected[KeptAnswers], request_id: FromPath[str]) -> None:
    """Deletes the question and its stored answer at once. Returns 404 if nothing is stored."""
    await kept_answers.withdraw(request.user, request_id)
