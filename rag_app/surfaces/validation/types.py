"""What requests and responses of `/api/v1/retrieval` hold: the contract's own names, ranges and defaults."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from rag_app.domain import InvalidInput, JsonObject, Question
from rag_app.evaluation.validation import DEPTH
from rag_app.http.fields import SourceReference, limit_text
from rag_app.http.problems import ErrorInfo

DEFAULT_COLLECTION = "rag_embedding"
FETCH_DEPTH = 100
# Chunks that are retrieved where a threshold cuts: the fused order may put some that reach it behind many that do not
MOST_EXPECTED = 1000
"""Chunks that the queries of one validation may expect: each becomes a judgment."""

VALIDATION = "validation_3f9c6d0e58f34c0e9a533b1d8c6f7a10"
MOMENT = "2025-12-20T10:30:00Z"


class InvalidQuery(InvalidInput):
    """It is the query itself that is not accepted."""


class NoCollection(InvalidInput):
    """No such collection, as far as the caller may know."""


QueryText = Annotated[
    str,
    limit_text(2000, examples=["What is the main concept of embodied AI?"], extra={"raises": InvalidQuery}),
]
CollectionName = Annotated[str, Meta(description="the name of a collection", examples=[DEFAULT_COLLECTION])]
Score = Annotated[float, Meta(ge=0, le=1, description="0 to 1")]
Cuts = Annotated[
    dict[str, float],
    Meta(
        description="the metric for each number of results k: 5, 10 and the requested `top_k`",
        examples=[{"5": 0.2, "10": 0.1}],
    ),
]
Difference = Annotated[float, Meta(ge=-1, le=1, description="value of this run minus value of the other run")]
ValidationId = Annotated[str, Meta(examples=[VALIDATION])]


class RetrievalQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A null is the same as an omitted field."""

    query: QueryText
    top_k: Annotated[int, Meta(ge=1, le=20, description="a whole number from 1 to 20")] | None = 5
    threshold: (
        Annotated[
            float,
            Meta(ge=0, le=1, description="a number from 0 to 1: the minimum cosine similarity; 0 sets no minimum"),
        ]
        | None
    ) = 0.0
    collection_name: CollectionName | None = DEFAULT_COLLECTION
    validate: Annotated[bool, Meta(description="true or false")] | None = False

    @property
    def results_wanted(self) -> int:
        """How many results are returned."""
        return 5 if self.top_k is None else self.top_k

    def question(self) -> Question:
        """As many hits as the figures look at, also where fewer are returned."""
        return Question(
            self.query.strip(),
            top_k=max(self.results_wanted, DEPTH),
            threshold=self.threshold or None,
            fetch=FETCH_DEPTH if self.threshold else None,
        )


class ExpectedQuery(Struct, frozen=True, forbid_unknown_fields=True):
    query: QueryText
    expected_chunks: Annotated[
        list[Annotated[str, Meta(description="the id of a chunk, a text")]],
        Meta(
            min_length=1,
            max_length=100,
            description="a list of 1 to 100 chunk ids",
            examples=[["6f2d0e5c-58f3-5c0e-9a53-3b1d8c6f7a10"]],
        ),
    ]


class ValidationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A null is the same as an omitted field."""

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

    @property
    def results_wanted(self) -> int:
        """How many results of each query count."""
        return 10 if self.top_k is None else self.top_k


class RetrievalResult(SourceReference, frozen=True):
    chunk_id: UUID
    content: str
    source_url: Annotated[str, Meta(description="empty if the source has no URL")]
    section_title: str | None
    page_number: int | None
    similarity_score: Annotated[float, Meta(ge=0, le=1, description="cosine similarity", examples=[0.85])]
    rank: Annotated[int, Meta(ge=1, description="rank by the fused score, which combines dense and lexical search")]
    source_id: UUID
    metadata: Annotated[JsonObject, Meta(description="metadata of the source, as sent")]


class QueryMetrics(Struct, frozen=True):
    precision_at_k: Cuts
    recall_at_k: Cuts
    mrr: Score
    hit_rate: Score


class ValidationMetrics(QueryMetrics, frozen=True):
    recall_at_k: Annotated[  # type: ignore[assignment]
        dict[str, float | None], Meta(description="null if the number of relevant chunks is unknown")
    ]
    avg_similarity_score: Score
    total_results: int
    relevant_results: int
    calculated_at: Annotated[datetime, Meta(examples=[MOMENT])]
    basis: Annotated[
        Literal["judgments", "threshold"],
        Meta(
            description="what counts as relevant: chunks judged for this query, or chunks above the index's threshold"
        ),
    ]


class SearchMetadata(Struct, frozen=True):
    total_results: Annotated[int, Meta(examples=[2])]
    search_time_ms: Annotated[int, Meta(examples=[120])]
    query_embedding_dimension: Annotated[int, Meta(examples=[384])]


class QueryResponse(Struct, frozen=True, omit_defaults=True, kw_only=True):
    query_id: Annotated[str, Meta(examples=["query_9a533b1d8c6f"])]
    query_text: str
    results: list[RetrievalResult]
    validation_metrics: Annotated[ValidationMetrics, Meta(description="present if `validate` was true")] | None = None
    search_metadata: SearchMetadata
    warnings: Annotated[
        list[str], Meta(description="parts of the query that were not searched; absent if all of it was")
    ] = []


class ValidatedQuery(Struct, frozen=True):
    query_id: str
    query_text: str
    retrieved_chunks: Annotated[list[UUID], Meta(description="at most `top_k`, best first")]
    relevant_retrieved: Annotated[int, Meta(description="number of retrieved chunks that were expected")]
    total_expected: Annotated[int, Meta(description="number of different expected chunks")]
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
        dict[str, Difference],
        Meta(description="differences by metric, such as `precision_at_5`, `recall_at_10`, `mrr`"),
    ]
    gained: Annotated[list[UUID], Meta(description="chunks retrieved by this run only")]
    lost: Annotated[list[UUID], Meta(description="chunks retrieved by the other run only")]


class Comparison(Struct, frozen=True):
    """Differences between two runs, for metrics and queries that both have. Higher is better."""

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
        str | None,
        Meta(description="send as `before` to get the next page; null on the last page", examples=[VALIDATION]),
    ]


class CollectionInfo(Struct, frozen=True):
    name: Annotated[str, Meta(examples=[DEFAULT_COLLECTION])]
    vector_size: Annotated[int, Meta(examples=[384])]
    distance: Literal["Cosine"]
    point_count: Annotated[int, Meta(description="number of chunks that this API key may see", examples=[1500])]
    created_at: Annotated[datetime, Meta(examples=["2025-12-15T09:00:00Z"])]


class CollectionsResponse(Struct, frozen=True):
    collections: Annotated[list[CollectionInfo], Meta(description="one entry per name of a collection")]


class RetrievalErrorInfo(ErrorInfo, frozen=True, omit_defaults=True):
    details: Annotated[
        JsonObject | None,
        Meta(description="the refused `field`, its `value`, the `problem`, and the `accepted` names if there are any"),
    ] = None


class RetrievalErrorBody(Struct, frozen=True):
    """The envelope of all errors."""

    error: RetrievalErrorInfo
