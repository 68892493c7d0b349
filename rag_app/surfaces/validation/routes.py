"""Retrieval validation: raw search results, and how good they are against what is expected (`/api/v1/retrieval`).

The contract's own words are kept: field names, ranges, defaults, texts.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import fsum
from time import perf_counter
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from litestar import Request, get, post
from litestar.exceptions import HTTPException
from litestar.openapi.spec import Example, Tag
from litestar.params import BodyKwarg, FromPath, QueryParameter
from msgspec import Meta, Struct, convert, to_builtins
from msgspec.structs import replace

from rag_app.domain.answer import Hit, Question
from rag_app.domain.errors import (
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
from rag_app.domain.scope import Principal
from rag_app.evaluation.passages import Span, locate
from rag_app.evaluation.records import Validations
from rag_app.evaluation.validation import (
    DEPTH,
    Figures,
    ask_all,
    canonical,
    expected,
    judged,
    measure,
    scored,
)
from rag_app.http.bodies import NOT_BLANK, JsonBody
from rag_app.http.docs import rate_limit_headers, security
from rag_app.http.problems import Kind, Problem, documented
from rag_app.http.surface import Credential, Injected, Surface
from rag_app.pipeline import Pipeline
from rag_app.surfaces.validation.catalogue import Catalogue, Collection

TAG = Tag("Retrieval validation", "search results as they are, and measured against what was expected")
CREDENTIALS = frozenset({Credential.API_KEY})
LIMIT = 100
"""Requests a minute."""
CONCURRENT = 10
MOST_EXPECTED = 1000
"""Chunks that the queries of one validation may expect: each becomes a judgment."""
DEFAULT_COLLECTION = "rag_embedding"
LONGEST_NAME = 100
"""Characters: no collection has a longer name."""
FETCHED = 100
"""Chunks that are retrieved where a threshold cuts: the fused order may put some that reach it behind many that do not."""
_VALIDATION_ID = re.compile("validation_[0-9a-f]{32}")
_CHUNK_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

QUERY = "What is the main concept of embodied AI?"
CHUNK = "6f2d0e5c-58f3-5c0e-9a53-3b1d8c6f7a10"
VALIDATION = "validation_3f9c6d0e58f34c0e9a533b1d8c6f7a10"
MOMENT = "2025-12-20T10:30:00Z"


class InvalidQuery(InvalidInput):
    """It is the query itself that is not accepted."""


class NoCollection(InvalidInput):
    """No such collection, as far as the caller may know."""


QueryText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2000,
        pattern=NOT_BLANK,
        description="a text of 1 to 2000 characters, not all of them blank",
        examples=[QUERY],
        extra={"raises": InvalidQuery},
    ),
]
CollectionName = Annotated[str, Meta(description="the name of a collection", examples=[DEFAULT_COLLECTION])]
Score = Annotated[float, Meta(ge=0, le=1, description="0 to 1")]
Cuts = Annotated[
    dict[str, float], Meta(description="by k: 5, 10, and the `top_k` asked for", examples=[{"5": 0.2, "10": 0.1}])
]
Difference = Annotated[float, Meta(ge=-1, le=1, description="this run less the other one")]
ValidationId = Annotated[str, Meta(examples=[VALIDATION])]


class RetrievalQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A null is the same as nothing."""

    query: QueryText
    top_k: Annotated[int, Meta(ge=1, le=20, description="a whole number from 1 to 20")] | None = 5
    threshold: (
        Annotated[
            float, Meta(ge=0, le=1, description="a number from 0 to 1: the least cosine similarity; 0 cuts nothing")
        ]
        | None
    ) = 0.0
    collection_name: CollectionName | None = DEFAULT_COLLECTION
    validate: Annotated[bool, Meta(description="true or false")] | None = False


class ExpectedQuery(Struct, frozen=True, forbid_unknown_fields=True):
    query: QueryText
    expected_chunks: Annotated[
        list[Annotated[str, Meta(description="the id of a chunk, a text")]],
        Meta(min_length=1, max_length=100, description="a list of 1 to 100 chunk ids", examples=[[CHUNK]]),
    ]


class ValidationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A null is the same as nothing."""

    queries: Annotated[
        list[ExpectedQuery],
        Meta(
            min_length=1,
            max_length=500,
            description="a list of 1 to 500 objects, each with a `query` and its `expected_chunks`",
        ),
    ]
    top_k: Annotated[int, Meta(ge=1, le=100, description="a whole number from 1 to 100")] | None = 10
    collection_name: CollectionName | None = DEFAULT_COLLECTION


class RetrievalResult(Struct, frozen=True):
    chunk_id: UUID
    content: str
    source_url: Annotated[str, Meta(description='"" where the source has none')]
    section_title: str | None
    page_number: int | None
    similarity_score: Annotated[float, Meta(ge=0, le=1, description="cosine similarity", examples=[0.85])]
    rank: Annotated[int, Meta(ge=1, description="in the order of meaning and words together")]


class ValidationMetrics(Struct, frozen=True):
    precision_at_k: Cuts
    recall_at_k: Annotated[
        dict[str, float | None], Meta(description="null where nobody knows how much there is to find")
    ]
    mrr: Score
    hit_rate: Score
    avg_similarity_score: Score
    total_results: int
    relevant_results: int
    calculated_at: Annotated[datetime, Meta(examples=[MOMENT])]
    basis: Annotated[
        Literal["judgments", "threshold"],
        Meta(description="what is relevant: what was judged for this query, or what scores as high as an answer"),
    ]


class SearchMetadata(Struct, frozen=True):
    total_results: Annotated[int, Meta(examples=[2])]
    search_time_ms: Annotated[int, Meta(examples=[120])]
    query_embedding_dimension: Annotated[int, Meta(examples=[384])]


class QueryResponse(Struct, frozen=True, omit_defaults=True, kw_only=True):
    query_id: Annotated[str, Meta(examples=["query_9a533b1d8c6f"])]
    query_text: str
    results: list[RetrievalResult]
    validation_metrics: Annotated[ValidationMetrics, Meta(description="where it was asked for")] | None = None
    search_metadata: SearchMetadata


class QueryMetrics(Struct, frozen=True):
    precision_at_k: Cuts
    recall_at_k: Cuts
    mrr: Score
    hit_rate: Score


class ValidatedQuery(Struct, frozen=True):
    query_id: str
    query_text: str
    retrieved_chunks: Annotated[list[UUID], Meta(description="at most `top_k`, best first")]
    relevant_retrieved: Annotated[int, Meta(description="how many of them were expected")]
    total_expected: Annotated[int, Meta(description="how many different chunks were")]
    metrics: QueryMetrics


AggregateMetrics = Annotated[
    dict[str, float],
    Meta(
        description="means over the queries: `avg_precision_at_k` and `avg_recall_at_k` for k of 5, 10 and `top_k`, "
        "`overall_mrr`, `hit_rate`",
        examples=[{"avg_precision_at_5": 0.2, "avg_recall_at_5": 1.0, "overall_mrr": 1.0, "hit_rate": 1.0}],
    ),
]


class ValidationResponse(Struct, frozen=True):
    validation_id: ValidationId
    total_queries: int
    results: list[ValidatedQuery]
    aggregate_metrics: AggregateMetrics
    completed_at: Annotated[datetime, Meta(examples=[MOMENT])]


class QueryComparison(Struct, frozen=True):
    query_text: str
    metrics: Annotated[
        dict[str, Difference], Meta(description="by name, such as `precision_at_5`, `recall_at_10`, `mrr`")
    ]
    gained: Annotated[list[UUID], Meta(description="retrieved by this run and not by the other one")]
    lost: Annotated[list[UUID], Meta(description="the other way round")]


class Comparison(Struct, frozen=True):
    """Of what both runs measured: the same names, the same queries. More is better."""

    against: ValidationId
    aggregate_metrics: dict[str, Difference]
    queries: list[QueryComparison]


class StoredValidation(ValidationResponse, frozen=True, omit_defaults=True):
    comparison: Comparison | None = None


class ValidationSummary(Struct, frozen=True):
    validation_id: ValidationId
    collection_name: str
    top_k: int
    total_queries: int
    aggregate_metrics: AggregateMetrics
    completed_at: Annotated[datetime, Meta(examples=[MOMENT])]


class ValidationsResponse(Struct, frozen=True):
    validations: list[ValidationSummary]
    next: Annotated[
        str | None, Meta(description="`before` for the next page; null where this is the last", examples=[VALIDATION])
    ]


class CollectionInfo(Struct, frozen=True):
    name: Annotated[str, Meta(examples=[DEFAULT_COLLECTION])]
    vector_size: Annotated[int, Meta(examples=[384])]
    distance: Literal["Cosine"]
    point_count: Annotated[int, Meta(description="chunks that this key may see", examples=[1500])]
    created_at: Annotated[datetime, Meta(examples=["2025-12-15T09:00:00Z"])]


class CollectionsResponse(Struct, frozen=True):
    collections: Annotated[list[CollectionInfo], Meta(description="one for each name that a collection has")]


class RetrievalErrorInfo(Struct, frozen=True, omit_defaults=True):
    code: Annotated[str, Meta(description="for programs; stable")]
    message: Annotated[str, Meta(description="for people")]
    details: Annotated[
        dict[str, Any] | None,
        Meta(
            description="`field`, the `value` it had, what the `problem` is, and `accepted` names where there are any"
        ),
    ] = None


class RetrievalErrorBody(Struct, frozen=True):
    """The envelope of all errors."""

    error: RetrievalErrorInfo


def envelope(problem: Problem) -> RetrievalErrorBody:
    return RetrievalErrorBody(RetrievalErrorInfo(problem.code, problem.message, dict(problem.details) or None))


KINDS: Mapping[type[Exception] | int, Kind] = {
    InvalidQuery: Kind(400, "INVALID_QUERY", "Query text is required and must be between 1 and 2000 characters"),
    InvalidInput: Kind(400, "INVALID_PARAMETERS"),
    Unauthenticated: Kind(401, "UNAUTHORIZED", "Invalid or missing API key"),
    Forbidden: Kind(403, "FORBIDDEN"),
    NoCollection: Kind(404, "COLLECTION_NOT_FOUND"),
    NotFound: Kind(404, "NOT_FOUND"),
    RateLimited: Kind(429, "RATE_LIMIT_EXCEEDED", "Too many requests: wait for as many seconds as Retry-After says"),
    TooManyAtOnce: Kind(429, "CONCURRENCY_LIMIT_EXCEEDED"),
    EmbeddingFailed: Kind(500, "EMBEDDING_ERROR", "An error occurred during embedding generation"),
    StoreFailed: Kind(500, "DATABASE_ERROR", "An error occurred during the database query"),
    Exception: Kind(500, "INTERNAL_ERROR", "An internal error occurred during retrieval"),
    400: Kind(400, "INVALID_PARAMETERS", "The request cannot be read; see /docs"),
    404: Kind(404, "NOT_FOUND", "There is nothing at this path; see /docs"),
    405: Kind(405, "METHOD_NOT_ALLOWED", "This path has other methods: see the Allow header"),
    413: Kind(413, "PAYLOAD_TOO_LARGE", "The body is too large; at most 1 MB is accepted"),
    415: Kind(415, "UNSUPPORTED_MEDIA_TYPE", "Send the body as `Content-Type: application/json`"),
}

OF_ALL = (
    Unauthenticated(),
    Forbidden("Validations belong to one organization: use a key of it"),
    RateLimited(LIMIT, 1704067200),
    TooManyAtOnce(CONCURRENT),
    StoreFailed(),
    RuntimeError(),
)
OF_BODIES = (
    InvalidQuery("query", "", "must be a text of 1 to 2000 characters, not all of them blank"),
    InvalidInput("top_k", 99, "must be a whole number from 1 to 20"),
    UnknownField("topk", RetrievalQuery.__struct_fields__),
    NoCollection("collection_name", "boook", str(NotFound("collection", "boook", ["book", DEFAULT_COLLECTION]))),
    HTTPException(status_code=413),
    HTTPException(status_code=415),
    EmbeddingFailed(),
)


def _errors(*errors: Exception) -> dict[int, Any]:
    return dict(documented(*errors, *OF_ALL, kinds=KINDS, envelope=envelope))


QueryBody = Annotated[
    RetrievalQuery,
    BodyKwarg(
        examples=[
            Example(
                value={
                    "query": QUERY,
                    "top_k": 5,
                    "threshold": 0.3,
                    "collection_name": DEFAULT_COLLECTION,
                    "validate": False,
                }
            )
        ]
    ),
]
ValidationBody = Annotated[
    ValidationRequest,
    BodyKwarg(examples=[Example(value={"queries": [{"query": QUERY, "expected_chunks": [CHUNK]}], "top_k": 10})]),
]


@post(
    "/api/v1/retrieval/query",
    status_code=200,
    dto=JsonBody,
    return_dto=None,
    summary="Similarity search, with figures on its quality where they are asked for",
    tags=[TAG.name],
    security=security(CREDENTIALS),
    responses=_errors(*OF_BODIES),
    response_headers=rate_limit_headers(LIMIT),
)
async def query(
    request: Request[Principal, Any, Any],
    data: QueryBody,
    pipeline: Injected[Pipeline],
    catalogue: Injected[Catalogue],
    validations: Injected[Validations],
) -> QueryResponse:
    """Finds chunks by meaning and by words, among what the key may see."""
    top_k, threshold = 5 if data.top_k is None else data.top_k, data.threshold or None
    collection = await _collection(data.collection_name, request.user, catalogue)
    started = perf_counter()
    hits = await pipeline.search(
        collection.index,
        Question(
            data.query.strip(), top_k=max(top_k, DEPTH), threshold=threshold, fetch=FETCHED if threshold else None
        ),
        request.user.scope(),
    )
    elapsed = perf_counter() - started
    metrics = await _metrics(data.query, hits, top_k, collection, request.user, validations) if data.validate else None
    shown = hits[:top_k]
    return QueryResponse(
        query_id=_query_id(),
        query_text=data.query,
        results=[_result(hit, rank) for rank, hit in enumerate(shown, 1)],
        validation_metrics=metrics,
        search_metadata=SearchMetadata(len(shown), round(1000 * elapsed), collection.dimension),
    )


@post(
    "/api/v1/retrieval/validate",
    status_code=200,
    dto=JsonBody,
    return_dto=None,
    summary="Measure retrieval with queries whose answers are known",
    tags=[TAG.name],
    security=security(CREDENTIALS),
    responses=_errors(
        *OF_BODIES[:1], InvalidInput("queries[0].expected_chunks", [], "must be a list of 1 to 100 chunk ids"),
        *OF_BODIES[3:],
    ),
    response_headers=rate_limit_headers(LIMIT),
)  # fmt: skip
async def validate(
    request: Request[Principal, Any, Any],
    data: ValidationBody,
    pipeline: Injected[Pipeline],
    catalogue: Injected[Catalogue],
    validations: Injected[Validations],
) -> ValidationResponse:
    """Asks each query and looks for the chunks it should find. The run is kept, and so is what answers which query."""
    if sum(len(each.expected_chunks) for each in data.queries) > MOST_EXPECTED:
        raise InvalidInput("queries", None, f"must not expect more than {MOST_EXPECTED} chunks in all")
    top_k, user, scope = 10 if data.top_k is None else data.top_k, request.user, request.user.scope()
    collection = await _collection(data.collection_name, user, catalogue)

    async def search(text: str) -> Sequence[Hit]:
        return await pipeline.search(collection.index, Question(text.strip(), top_k=max(top_k, DEPTH)), scope)

    found = await ask_all([each.query for each in data.queries], search)
    run = uuid4()
    report = _report(run, data.queries, found, top_k)
    judgments = await _judgments(data.queries, found, collection, user, catalogue, validations)
    kept = to_builtins(report)
    await validations.record(user, run, collection.index, collection.generation, top_k, kept, judgments)
    return report


@get(
    "/api/v1/retrieval/validations",
    summary="The runs of your organization, newest first",
    tags=[TAG.name],
    security=security(CREDENTIALS),
    responses=_errors(
        InvalidInput("limit", "101", "Expected `int` <= 100"), NotFound("validation", VALIDATION)
    ),
    response_headers=rate_limit_headers(LIMIT),
)  # fmt: skip
async def newest(
    request: Request[Principal, Any, Any],
    validations: Injected[Validations],
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="of this page")] = 20,
    before: Annotated[
        str | None, QueryParameter(description="only runs made before this one: `next` of a page")
    ] = None,
) -> ValidationsResponse:
    """Without the results of single queries."""
    last = None if before is None else _validation_id(before)
    runs = await validations.newest(request.user, limit, last)
    if not runs and last is not None:
        await _stored(str(before), request.user, validations)
    page = [
        ValidationSummary(
            _shown_id(run),
            index,
            top_k,
            report["total_queries"],
            report["aggregate_metrics"],
            convert(report["completed_at"], datetime),
        )
        for run, index, top_k, report in runs
    ]
    return ValidationsResponse(page, page[-1].validation_id if len(page) == limit else None)


@get(
    "/api/v1/retrieval/validations/{validation_id:str}",
    summary="A run as it was answered, compared with another one on demand",
    tags=[TAG.name],
    security=security(CREDENTIALS),
    responses=_errors(NotFound("validation", VALIDATION)),
    response_headers=rate_limit_headers(LIMIT),
)
async def stored(
    request: Request[Principal, Any, Any],
    validation_id: FromPath[str],
    validations: Injected[Validations],
    against: Annotated[str | None, QueryParameter(description="the id of another run")] = None,
) -> StoredValidation:
    """With `against`, what has changed since that run: figures, and which chunks came and went."""
    run = await _stored(validation_id, request.user, validations)
    if against is None:
        return run
    other = await _stored(against, request.user, validations)
    return replace(run, comparison=_comparison(run, other))


@get(
    "/api/v1/retrieval/collections",
    summary="What can be searched",
    tags=[TAG.name],
    security=security(CREDENTIALS),
    responses=_errors(),
    response_headers=rate_limit_headers(LIMIT),
)
async def collections(request: Request[Principal, Any, Any], catalogue: Injected[Catalogue]) -> CollectionsResponse:
    """A collection that has several names is listed under each of them."""
    listings = await catalogue.collections(request.user)
    return CollectionsResponse(
        [
            CollectionInfo(name, each.collection.dimension, "Cosine", each.chunks, _second(each.created_at))
            for each in listings
            for name in each.collection.names
        ]
    )


SURFACE = Surface(
    name="retrieval_validation",
    tag=TAG,
    paths=("/api/v1/",),
    handlers=(query, validate, newest, stored, collections),
    limit=LIMIT,
    concurrent=CONCURRENT,
    credentials=CREDENTIALS,
    envelope=envelope,
    kinds=KINDS,
)


def _query_id() -> str:
    return f"query_{uuid4().hex[:12]}"


def _shown_id(run: UUID) -> str:
    return f"validation_{run.hex}"


def _validation_id(shown: str) -> UUID:
    if not _VALIDATION_ID.fullmatch(shown):
        raise NotFound("validation", shown)
    return UUID(shown.removeprefix("validation_"))


async def _stored(shown: str, user: Principal, validations: Validations) -> StoredValidation:
    report = await validations.report(user, _validation_id(shown))
    if report is None:
        raise NotFound("validation", shown)
    return convert(report, StoredValidation)


async def _collection(name: str | None, user: Principal, catalogue: Catalogue) -> Collection:
    name = DEFAULT_COLLECTION if name is None else name
    try:
        return await catalogue.collection(name[: LONGEST_NAME + 1], user)  # the message holds it
    except NotFound as error:
        raise NoCollection("collection_name", name, str(error)) from None


def _result(hit: Hit, rank: int) -> RetrievalResult:
    return RetrievalResult(hit.chunk_id, hit.text, hit.uri or "", hit.section, hit.page, hit.relevance, rank)


async def _metrics(
    text: str, hits: Sequence[Hit], top_k: int, collection: Collection, user: Principal, validations: Validations
) -> ValidationMetrics:
    passages, contents = await validations.judgments(user, collection.index, text, {hit.source_id for hit in hits})
    relevance = judged(hits, passages, contents) if passages else scored(hits, collection.answer_from)
    figures, shown = measure(relevance, top_k), hits[:top_k]
    return ValidationMetrics(
        precision_at_k=_by_cut(figures.precision),
        recall_at_k={str(k): None if value is None else _rounded(value) for k, value in figures.recall.items()},
        mrr=_rounded(figures.reciprocal_rank),
        hit_rate=figures.hit_rate,
        avg_similarity_score=_rounded(_mean([hit.relevance for hit in shown])),
        total_results=len(shown),
        relevant_results=figures.relevant,
        calculated_at=_second(datetime.now(UTC)),
        basis="judgments" if passages else "threshold",
    )


def _report(
    run: UUID, queries: Sequence[ExpectedQuery], found: Sequence[Sequence[Hit]], top_k: int
) -> ValidationResponse:
    measured = [
        (each, hits, measure(expected(hits, each.expected_chunks), top_k))
        for each, hits in zip(queries, found, strict=True)
    ]
    return ValidationResponse(
        validation_id=_shown_id(run),
        total_queries=len(queries),
        results=[
            ValidatedQuery(
                query_id=_query_id(),
                query_text=each.query,
                retrieved_chunks=[hit.chunk_id for hit in hits[:top_k]],
                relevant_retrieved=figures.relevant,
                total_expected=len(set(map(canonical, each.expected_chunks))),
                metrics=QueryMetrics(
                    precision_at_k=_by_cut(figures.precision),
                    recall_at_k=_by_cut(figures.recall),
                    mrr=_rounded(figures.reciprocal_rank),
                    hit_rate=figures.hit_rate,
                ),
            )
            for each, hits, figures in measured
        ],
        aggregate_metrics=_aggregates([figures for _, _, figures in measured]),
        completed_at=_second(datetime.now(UTC)),
    )


def _aggregates(figures: Sequence[Figures]) -> dict[str, float]:
    means = {}
    for k in figures[0].precision:
        means[f"avg_precision_at_{k}"] = _mean([each.precision[k] for each in figures])
        means[f"avg_recall_at_{k}"] = _mean([each.recall[k] or 0.0 for each in figures])
    means["overall_mrr"] = _mean([each.reciprocal_rank for each in figures])
    means["hit_rate"] = _mean([each.hit_rate for each in figures])
    return {name: _rounded(mean) for name, mean in means.items()}


async def _judgments(
    queries: Sequence[ExpectedQuery],
    found: Sequence[Sequence[Hit]],
    collection: Collection,
    user: Principal,
    catalogue: Catalogue,
    validations: Validations,
) -> list[tuple[str, UUID, Span | None]]:
    """Where the chunks that were expected stand in their sources: chunks come and go, passages stay."""
    chunks = {str(hit.chunk_id): hit for hits in found for hit in hits}
    wanted = {(each.query, canonical(chunk)) for each in queries for chunk in each.expected_chunks}
    others = [UUID(chunk) for _, chunk in wanted if chunk not in chunks and _CHUNK_ID.fullmatch(chunk)]
    chunks |= {str(chunk): hit for chunk, hit in (await catalogue.chunks(collection, others, user)).items()}
    known = [(text, chunks[chunk]) for text, chunk in wanted if chunk in chunks]
    contents = await validations.contents(user, {chunk.source_id for _, chunk in known})
    there = {chunk.chunk_id: chunk for _, chunk in known if chunk.source_id in contents}
    places = await asyncio.to_thread(
        lambda: {key: locate(chunk, contents[chunk.source_id]) for key, chunk in there.items()}
    )
    return [(text, chunk.source_id, places[chunk.chunk_id]) for text, chunk in known if chunk.chunk_id in places]


def _comparison(run: ValidationResponse, other: ValidationResponse) -> Comparison:
    before: dict[str, list[ValidatedQuery]] = {}
    for each in other.results:
        before.setdefault(each.query_text, []).append(each)
    asked_in_both = [
        (each, before[each.query_text].pop(0)) for each in run.results if before.get(each.query_text)
    ]  # fmt: skip
    return Comparison(
        against=other.validation_id,
        aggregate_metrics=_differences(run.aggregate_metrics, other.aggregate_metrics),
        queries=[
            QueryComparison(
                query_text=now.query_text,
                metrics=_differences(_named(now.metrics), _named(then.metrics)),
                gained=[chunk for chunk in now.retrieved_chunks if chunk not in then.retrieved_chunks],
                lost=[chunk for chunk in then.retrieved_chunks if chunk not in now.retrieved_chunks],
            )
            for now, then in asked_in_both
        ],
    )


def _named(metrics: QueryMetrics) -> dict[str, float]:
    return {
        **{f"precision_at_{k}": value for k, value in metrics.precision_at_k.items()},
        **{f"recall_at_{k}": value for k, value in metrics.recall_at_k.items()},
        "mrr": metrics.mrr,
        "hit_rate": metrics.hit_rate,
    }


def _differences(now: Mapping[str, float], then: Mapping[str, float]) -> dict[str, float]:
    return {name: _rounded(value - then[name]) for name, value in now.items() if name in then}


def _by_cut(figures: Mapping[int, float | None]) -> dict[str, float]:
    return {str(k): _rounded(value) for k, value in figures.items() if value is not None}


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.0


def _rounded(figure: float) -> float:
    """Four digits, as trec_eval prints."""
    return round(figure, 4)


def _second(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)
