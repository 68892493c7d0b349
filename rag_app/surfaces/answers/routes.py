"""Feedback on answers of `/api/rag/answer` and `/owner/ask` (`/api/v1/answers`).

An answer is named by the `X-Request-ID` of its response (`request_id` in a stream's `meta`).
"""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from litestar.openapi.spec import Tag
from litestar.params import BodyKwarg, FromPath
from msgspec import Meta, Struct, convert

from rag_app.domain import InvalidInput, NotFound, StoreFailed, Unauthenticated, UnknownField
from rag_app.evaluation.kept_answers import KeptAnswers, Verdict
from rag_app.http.bodies import NOT_BLANK
from rag_app.http.surface import STRICT, Caller, Credential, Injected, Surface, example

REQUEST = "5b1f0c9e3f0d4f0f8f3e2d1c0b9a8f7e"
FEEDBACK = "/api/v1/answers/{request_id:str}/feedback"


class AnswerFeedback(Struct, frozen=True, forbid_unknown_fields=True):
    """A null is the same as nothing."""

    verdict: Annotated[Literal["right", "wrong"], Meta(description="one of right, wrong")]
    comment: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=2000,
                pattern=NOT_BLANK,
                description="a text of 1 to 2000 characters, not all of them blank",
            ),
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
                description="what should have been cited: the id of a source, or what its organization calls it; "
                "with the verdict wrong alone",
            ),
        ]
        | None
    ) = None


class KeptAnswerFeedback(Struct, frozen=True):
    request_id: Annotated[str, Meta(description="of the answer", examples=[REQUEST])]
    verdict: Literal["right", "wrong"]
    comment: str | None
    expected_source_id: UUID | None
    judged_at: Annotated[datetime, Meta(examples=["2026-01-15T10:30:00Z"])]


Body = Annotated[AnswerFeedback, BodyKwarg(examples=[example(__package__, "feedback")])]
NO_ANSWER = NotFound("answer", REQUEST)
SURFACE = Surface(
    name="answer_feedback",
    tag=Tag("Answer feedback", "whether answers of RAG retrieval and Owner Q&A are right, by whoever asked"),
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
    summary="Say whether an answer is right",
)
async def give(
    request: Caller, data: Body, kept_answers: Injected[KeptAnswers], request_id: FromPath[str]
) -> KeptAnswerFeedback:
    """Of your own answers of the last 24 hours. Each user has at most one feedback per answer: sending another replaces
    it. It becomes a judgment: `right`, that the cited sources answer the question; `wrong`, that `expected_source` does.
    """
    given = await kept_answers.judge(
        request.user, request_id, Verdict(data.verdict), data.comment, data.expected_source
    )
    return convert(given, KeptAnswerFeedback, from_attributes=True)


@SURFACE.delete(FEEDBACK, NO_ANSWER, summary="Withdraw feedback, and have the answer forgotten", status_code=204)
async def withdraw(request: Caller, kept_answers: Injected[KeptAnswers], request_id: FromPath[str]) -> None:
    """The question and what was kept of its answer are deleted at once. Returns 404 if nothing is kept."""
    await kept_answers.withdraw(request.user, request_id)
