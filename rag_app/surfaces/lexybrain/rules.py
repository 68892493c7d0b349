"""What all routes of Ask LexyBrain share: credentials, limits, and the envelope of errors."""

from dataclasses import dataclass
from typing import Annotated

from litestar.openapi.spec import Operation, Tag
from litestar.params import QueryParameter
from msgspec import Meta, Struct

from rag_app.domain import (
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
    TooManyAtOnce,
    Unauthenticated,
)
from rag_app.http.bodies import WORD
from rag_app.http.problems import KINDS as KINDS_OF_ALL
from rag_app.http.problems import Kind, Kinds, Problem
from rag_app.http.surface import STRICT, Credential, Surface

Limit = Annotated[int, QueryParameter(ge=1, le=100, description="maximum number of results to return")]
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

KINDS: Kinds = {
    InvalidInput: Kind(422, "validation_error"),
    Unauthenticated: Kind(401, "authentication_required"),
    Forbidden: Kind(403, "forbidden"),
    QuotaExceeded: Kind(403, "quota_exceeded"),
    NotFound: Kind(404, "not_found"),
    RateLimited: Kind(429, "rate_limit_exceeded", "Too many requests. Wait for the number of seconds in Retry-After."),
    TooManyAtOnce: Kind(
        429, "rate_limit_exceeded", "Earlier messages of this thread are still being answered. Send yours again later."
    ),
    ModelFailed: Kind(500, "generation_failed", "The model did not generate an answer. Try again later."),
    Exception: Kind(500, "internal_error", "Something went wrong on the server."),
    FeatureDisabled: Kind(503, "feature_disabled"),
    CostCapReached: Kind(
        503, "cost_cap_reached", "Today's cost limit for answers is reached. Try again tomorrow (UTC)."
    ),
    EmbeddingFailed: Kind(503, "service_unavailable", "The question could not be embedded. Try again later."),
    StoreFailed: Kind(503, "service_unavailable", "The database did not answer. Try again later."),
    400: Kind(422, "validation_error", "The request could not be read; see /docs."),
    404: Kind(404, "not_found", "This path does not exist; see /docs."),
    405: Kind(
        405, "method_not_allowed", "This method is not allowed here. The Allow header lists the methods that are."
    ),
    408: KINDS_OF_ALL[408],
    413: Kind(413, "payload_too_large", "The body is too large; at most 1 MB is accepted."),
    415: Kind(415, "unsupported_media_type", "Send the body as `Content-Type: application/json`."),
}


SIGN_IN = "Please sign in"
"""The contract's own text; what was wrong with the credential follows it."""


def envelope(problem: Problem) -> LexyBrainError:
    message = f"{SIGN_IN}. {problem.message}" if problem.code == "authentication_required" else problem.message
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
    kinds=KINDS,
    errors=(Unauthenticated("The token has expired"), StoreFailed(), RuntimeError()),
    options={**STRICT, "operation_class": LexyBrainOperation},
)
