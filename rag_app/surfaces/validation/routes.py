"""Retrieval validation: raw search results, and how good they are against what is expected (`/api/v1/retrieval`).

The contract's own words are kept: field names, ranges, defaults, texts.
"""

from typing import Annotated

from litestar.exceptions import HTTPException
from litestar.openapi.spec import Tag
from litestar.params import BodyKwarg, FromPath, QueryParameter

from rag_app.domain import (
    EmbeddingFailed,
    Forbidden,
    InvalidInput,
    NotFound,
    RateLimited,
    StoreFailed,
    TooManyAtOnce,
    Unauthenticated,
    UnknownField,
)
from rag_app.http.exchange import exchange
from rag_app.http.fields import PageSize
from rag_app.http.problems import KINDS, Kind, Kinds, Problem
from rag_app.http.surface import STRICT, Caller, Credential, Injected, Surface, example
from rag_app.surfaces.validation.service import RetrievalValidation
from rag_app.surfaces.validation.types import (
    DEFAULT_COLLECTION,
    VALIDATION,
    CollectionsResponse,
    InvalidQuery,
    NoCollection,
    QueryResponse,
    RetrievalErrorBody,
    RetrievalErrorInfo,
    RetrievalQuery,
    StoredValidation,
    ValidationRequest,
    ValidationResponse,
    ValidationsResponse,
)

CONCURRENT = 10


def envelope(problem: Problem) -> RetrievalErrorBody:
    return RetrievalErrorBody(RetrievalErrorInfo(problem.code, problem.message, dict(problem.details) or None))


RETRIEVAL_KINDS: Kinds = {
    InvalidQuery: Kind(400, "INVALID_QUERY", "Query text is required and must be between 1 and 2000 characters"),
    InvalidInput: Kind(400, "INVALID_PARAMETERS"),
    Unauthenticated: Kind(401, "UNAUTHORIZED", "Invalid or missing API key"),
    Forbidden: Kind(403, "FORBIDDEN"),
    NoCollection: Kind(404, "COLLECTION_NOT_FOUND"),
    NotFound: Kind(404, "NOT_FOUND"),
    RateLimited: Kind(429, "RATE_LIMIT_EXCEEDED", "Too many requests. Wait for the number of seconds in Retry-After"),
    TooManyAtOnce: Kind(429, "CONCURRENCY_LIMIT_EXCEEDED"),
    EmbeddingFailed: Kind(500, "EMBEDDING_ERROR", "An error occurred during embedding generation"),
    StoreFailed: Kind(500, "DATABASE_ERROR", "An error occurred during the database query"),
    Exception: Kind(500, "INTERNAL_ERROR", "An internal error occurred during retrieval"),
    400: Kind(400, "INVALID_PARAMETERS", "The request could not be read; see /docs"),
    404: Kind(404, "NOT_FOUND", "This path does not exist; see /docs"),
    405: Kind(
        405, "METHOD_NOT_ALLOWED", "This method is not allowed here; the Allow header lists the methods that are"
    ),
    408: Kind(408, "REQUEST_TIMEOUT", KINDS[408].message),
    413: Kind(413, "PAYLOAD_TOO_LARGE", "The body is too large; at most 1 MB is accepted"),
    415: Kind(415, "UNSUPPORTED_MEDIA_TYPE", "Send the body as `Content-Type: application/json`"),
}

SURFACE = Surface(
    name="retrieval_validation",
    tag=Tag("Retrieval validation", "search results without an answer, and metrics against expected chunks"),
    paths=("/api/v1/",),
    limit=100,
    concurrent=CONCURRENT,
    credentials=frozenset({Credential.API_KEY}),
    envelope=envelope,
    kinds=RETRIEVAL_KINDS,
    errors=(
        Unauthenticated(),
        Forbidden("Validation runs belong to one organization; use an API key of that organization"),
        TooManyAtOnce(CONCURRENT),
        StoreFailed(),
        RuntimeError(),
    ),
    options=STRICT,
)
NO_QUERY = InvalidQuery("query", "", "must be a text of 1 to 2000 characters, not all of them blank")
NO_COLLECTION = NoCollection(
    "collection_name", "boook", str(NotFound("collection", "boook", ["book", DEFAULT_COLLECTION]))
)
NO_VALIDATION = NotFound("validation", VALIDATION)


@SURFACE.post(
    "/api/v1/retrieval/query",
    NO_QUERY,
    InvalidInput("top_k", 99, "must be a whole number from 1 to 20"),
    UnknownField("topk", RetrievalQuery.__struct_fields__),
    NO_COLLECTION,
    EmbeddingFailed(),
    summary="Search chunks, with quality metrics on request",
)
async def query(
    request: Caller,
    data: Annotated[RetrievalQuery, BodyKwarg(examples=[example(__package__, "query")])],
    validation: Injected[RetrievalValidation],
) -> QueryResponse:
    """Combines dense and lexical search over the chunks that the API key may see."""
    return await validation.query(request.user, data)


@SURFACE.post(
    "/api/v1/retrieval/validate",
    NO_QUERY,
    InvalidInput("queries[0].expected_chunks", [], "must be a list of 1 to 100 chunk ids"),
    NO_COLLECTION,
    EmbeddingFailed(),
    summary="Measure retrieval with queries whose relevant chunks are known",
)
async def validate(
    request: Caller,
    data: Annotated[ValidationRequest, BodyKwarg(examples=[example(__package__, "validate")])],
    validation: Injected[RetrievalValidation],
) -> ValidationResponse:
    """Searches with each query and compares the results with the expected chunks. The run is stored, and the expected
    chunks are stored as judgments.

    Each query counts against the rate limit. A run with more queries than the limit counts as the whole limit.
    """
    if len(data.queries) > 1:
        await exchange(request.scope).count(len(data.queries) - 1)
    return await validation.validate(request.user, data)


@SURFACE.get(
    "/api/v1/retrieval/validations",
    InvalidInput("limit", "101", "must be a whole number from 1 to 100"),
    NO_VALIDATION,
    summary="List validation runs, newest first",
)
async def newest(
    request: Caller,
    validation: Injected[RetrievalValidation],
    limit: PageSize = 20,
    before: Annotated[
        str | None, QueryParameter(description="return only runs before this one: `next` of the previous page")
    ] = None,
) -> ValidationsResponse:
    """Returns the runs of your organization with their aggregate metrics, without the results of each query."""
    return await validation.newest(request.user, limit, before)


@SURFACE.get(
    "/api/v1/retrieval/validations/{validation_id:str}",
    NO_VALIDATION,
    HTTPException(status_code=400),
    summary="Read a validation run",
)
async def stored(
    request: Caller,
    validation_id: FromPath[str],
    validation: Injected[RetrievalValidation],
    against: Annotated[str | None, QueryParameter(description="the id of the run to compare with")] = None,
) -> StoredValidation:
    """Returns the run as it was measured. With `against`, the response also lists the changes since that run: differences
    of metrics, and chunks gained and lost."""
    return await validation.read_run(request.user, validation_id, against)


@SURFACE.get("/api/v1/retrieval/collections", UnknownField("colour", []), summary="List collections")
async def collections(request: Caller, validation: Injected[RetrievalValidation]) -> CollectionsResponse:
    """A collection with several names is listed once under each name."""
    return await validation.collections(request.user)
