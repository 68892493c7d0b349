"""RAG retrieval: search and answers over what an organization knows (`/api/rag`).

The contract's own words are kept: field names, ranges, defaults, texts. `/api/v1/indexes` uses them for any index.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

from litestar import Response
from litestar.openapi.spec import Tag
from litestar.params import BodyKwarg
from msgspec import Meta, Struct, convert, field, structs

from rag_app.answering.capabilities import Capability, capability_named
from rag_app.answering.refusals import foreign_language
from rag_app.answering.restating import go_on
from rag_app.domain import (
    Answer,
    Confidence,
    EmbeddingFailed,
    Event,
    Filters,
    Hit,
    InvalidInput,
    JsonObject,
    MetadataValue,
    Mode,
    Question,
    StoreFailed,
    SupportingPassage,
    Unauthenticated,
    UnknownField,
    resource_folder,
)
from rag_app.evaluation.kept_answers import KeptAnswers
from rag_app.http.exchange import exchange
from rag_app.http.fields import (
    WORD,
    AnswerRemarks,
    EarlierQuestions,
    Passages,
    QuotedPassage,
    SearchMode,
    Warnings,
    Where,
    choice_of,
    limit_text,
)
from rag_app.http.streaming import StreamedOperation, event_stream, wants_stream
from rag_app.http.surface import MODEL_ERRORS, Caller, Credential, Injected, Surface, example
from rag_app.pipeline import Pipeline
from rag_app.retrieval.filters import EQ, GTE, LTE, conditions, instants, parse_where
from rag_app.retrieval.index import load_index

INDEX = "org_knowledge"
CAPABILITY = "knowledge_answer"
if TYPE_CHECKING:
    SourceType = str
else:
    SourceType = choice_of(load_index(resource_folder("indexes") / INDEX).source_types)
DEFAULT_TOP_K = 8
SNIPPET = 200
"""Characters."""
_PLACE = ("chunk_id", "span")  # of a citation, in its `meta`
MOST_CITATIONS = 5

QUERY = "What did the customer say about pricing?"
QUOTE = "The yearly plan is more than we can spend."
QueryText = Annotated[str, Meta(description="as it was sent", examples=[QUERY])]
_MOMENTS = [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]
Moment = Annotated[
    str,
    Meta(
        description="an ISO 8601 date (the whole day, UTC) or timestamp (UTC if it has no zone)",
        # Litestar's way; its own `one_of` would say the same again, without the formats
        extra_json_schema={"extra": {"any_of": [*_MOMENTS, {"type": "null"}], "one_of": None}},
    ),
]


class IndexFilters(Struct, frozen=True, forbid_unknown_fields=True):
    """A chunk must match all filters; a chunk without the field does not match. An organization that the caller does not
    belong to finds nothing."""

    source_type: Annotated[str, Meta(pattern=WORD, description="a source type of the index")] | None = None
    lang: (
        Annotated[
            str,
            Meta(pattern=WORD, description='a language code, such as "en" or "fr"'),
        ]
        | None
    ) = None
    org_id: Annotated[UUID, Meta(description="the UUID of an organization")] | None = None
    date_from: Moment | None = None
    date_to: Moment | None = None
    where: Where | None = None

    def conditions(self) -> Filters:
        since = instants("filters.date_from", self.date_from)[0] if self.date_from is not None else None
        until = instants("filters.date_to", self.date_to)[1] if self.date_to is not None else None
        own = conditions(
            ("source_type", EQ, self.source_type),
            ("lang", EQ, self.lang),
            ("org_id", EQ, str(self.org_id) if self.org_id else None),
            ("date", GTE, since),
            ("date", LTE, until),
        )
        return own if self.where is None else (*own, parse_where(self.where, "filters.where"))


class RetrievalFilters(IndexFilters, frozen=True, forbid_unknown_fields=True):
    """A chunk must match all filters; a chunk without the field does not match. An organization that the caller does not
    belong to finds nothing."""

    source_type: SourceType | None = None


class IndexRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A null is the same as an omitted field."""

    query_text: Annotated[
        str,
        limit_text(500, examples=[QUERY]),
    ]
    top_k: Annotated[int, Meta(ge=1, le=50, description="a whole number from 1 to 50")] | None = DEFAULT_TOP_K
    filters: Annotated[IndexFilters, Meta(description="an object with conditions that a chunk must meet")] | None = None
    earlier_questions: EarlierQuestions | None = None

    def question(self) -> Question:
        filters = self.filters.conditions() if self.filters else ()
        question = Question(self.query_text.strip(), filters, DEFAULT_TOP_K if self.top_k is None else self.top_k)
        return go_on(question, self.earlier_questions or ())


class RetrievalRequest(IndexRequest, frozen=True, forbid_unknown_fields=True):
    """A null is the same as an omitted field."""

    filters: (
        Annotated[RetrievalFilters, Meta(description="an object with conditions that a chunk must meet")] | None
    ) = None


class SearchRequest(RetrievalRequest, frozen=True, forbid_unknown_fields=True):
    """A null is the same as an omitted field. Without `mode`, the `search_mode` of the index applies. Its default is dense."""

    mode: SearchMode | None = None


class RetrievalSource(Struct, frozen=True, kw_only=True):
    """The source of a result or a citation."""

    source_id: UUID
    source_type: Annotated[str, Meta(examples=["transcript"])]
    source_title: Annotated[str, Meta(examples=["Call with Ada, 14 January"])]
    source_uri: Annotated[str | None, Meta(description="a link to the source, if it has one", examples=[None])]
    meta: Annotated[
        JsonObject,
        Meta(
            description="metadata of the source as they were sent, and org_id, date, section, page ...",
            examples=[{"call_sid": "CA1", "date": "2025-01-14T00:00:00Z"}],
        ),
    ]


class SearchResult(RetrievalSource, frozen=True):
    chunk_id: UUID
    score: Annotated[float, Meta(ge=0, le=1, description="cosine similarity", examples=[0.87])]
    snippet: Annotated[str, Meta(description="the first 200 characters of the chunk", examples=[QUOTE])]
    rank: Annotated[int, Meta(ge=1, description="the rank of the result, from 1")]


class SearchResponse(Struct, frozen=True, omit_defaults=True):
    status: Literal["success"]
    query_text: QueryText
    results: Annotated[
        list[SearchResult],
        Meta(description="at most `top_k`, best first: by similarity, or by the combined score in a hybrid search"),
    ]
    total_found: Annotated[int, Meta(description="number of results returned", examples=[1])]
    processing_time_ms: Annotated[int, Meta(examples=[142])]
    warnings: Warnings = []


class AnswerText(Struct, frozen=True):
    text: Annotated[str, Meta(examples=["They find the yearly plan too expensive [Source 1]."])]
    confidence: Confidence
    model: Annotated[str | None, Meta(description="null if no answer was given", examples=["google/gemini-2.5-flash"])]
    generated_at: Annotated[str, Meta(description="ISO 8601, UTC", examples=["2025-01-15T10:30:00Z"])]


class RetrievalCitation(RetrievalSource, frozen=True, omit_defaults=True):
    snippet: Annotated[str, Meta(description="the excerpt that supports the answer", examples=[QUOTE])]
    relevance_score: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="cosine similarity of the question and the source's most similar chunk",
            examples=[0.87],
        ),
    ]
    passages: Passages = ()


class ContextUsed(Struct, frozen=True):
    chunks_retrieved: Annotated[int, Meta(examples=[8])]
    unique_sources: Annotated[int, Meta(examples=[3])]
    avg_relevance: Annotated[
        float, Meta(ge=0, le=1, description="mean cosine similarity of the five best chunks", examples=[0.81])
    ]


class AnswerResponse(AnswerRemarks, frozen=True):
    status: Annotated[
        Literal["success", "insufficient_context"],
        Meta(description="`insufficient_context`: the question was not answered; the citations are the best snippets"),
    ]
    query_text: QueryText
    answer: AnswerText
    citations: Annotated[list[RetrievalCitation], Meta(max_length=5, description="at most five, one per source")]
    context_used: ContextUsed
    processing_time_ms: Annotated[int, Meta(examples=[1847])]
    warnings: Warnings = field(default_factory=list)


ERRORS = (
    InvalidInput("top_k", 99, "must be a whole number from 1 to 50"),
    UnknownField("filters.colour", RetrievalFilters.__struct_fields__),
    EmbeddingFailed(),
    StoreFailed(),
    RuntimeError(),
)
SURFACE = Surface(
    name="rag_retrieval",
    tag=Tag("RAG retrieval", "semantic search and cited answers over the sources of an organization"),
    paths=("/api/rag/", "/functions/v1/rag-"),
    limit=60,
    credentials=frozenset({Credential.JWT, Credential.SESSION}),
    errors=(Unauthenticated("The token has expired"),),
)


@SURFACE.post(
    ["/api/rag/search", "/functions/v1/rag-search"],
    *ERRORS,
    summary="Search for chunks, without an answer",
)
async def search(
    request: Caller,
    data: Annotated[SearchRequest, BodyKwarg(examples=[example(__package__, "request")])],
    pipeline: Injected[Pipeline],
) -> SearchResponse:
    """Finds the chunks that are most similar to the query, among those that the caller may see. With `mode: hybrid`, words
    count as well."""
    question = structs.replace(data.question(), mode=Mode(data.mode or pipeline.search_mode(INDEX)))
    hits = await pipeline.search(INDEX, question, request.user.scope())
    return render_search(request, data.query_text, hits, pipeline.warnings(question))


@SURFACE.post(
    ["/api/rag/answer", "/functions/v1/rag-answer"],
    *ERRORS,
    *MODEL_ERRORS,
    summary="Answer a question with citations",
    operation_class=StreamedOperation,
)
async def answer(
    request: Caller,
    data: Annotated[RetrievalRequest, BodyKwarg(examples=[example(__package__, "request")])],
    pipeline: Injected[Pipeline],
    kept_answers: Injected[KeptAnswers],
) -> Response[AnswerResponse]:
    """Answers from sources that the caller may see, or says that they do not contain enough evidence."""
    question = data.question()
    respond = responder(request, data.query_text, question, capability_named(CAPABILITY), pipeline, kept_answers)
    asked = (CAPABILITY, question, request.user.scope())
    if wants_stream(request):
        return await stream_answer(request, data.query_text, pipeline.stream(*asked), respond)
    return Response(respond(await pipeline.answer(*asked)))


# -- what the routes of any index respond with, too


def render_search(request: Caller, query_text: str, hits: Sequence[Hit], warnings: list[str]) -> SearchResponse:
    results = [
        SearchResult(
            chunk_id=hit.chunk_id,
            source_id=hit.source_id,
            score=hit.relevance,
            snippet=hit.text[:SNIPPET],
            source_type=hit.source_type,
            source_title=hit.title,
            source_uri=hit.uri,
            meta=_meta(hit),
            rank=rank,
        )
        for rank, hit in enumerate(hits, 1)
    ]
    elapsed = exchange(request.scope).elapsed_ms
    return SearchResponse("success", query_text, results, len(results), elapsed, warnings)


def responder(
    request: Caller,
    query_text: str,
    question: Question,
    capability: Capability,
    pipeline: Pipeline,
    kept_answers: KeptAnswers,
) -> Callable[[Answer], AnswerResponse]:
    """Makes the response of an answer, which is kept for feedback when the response is sent."""

    def respond(given: Answer) -> AnswerResponse:
        current = exchange(request.scope)
        kept = (request.user, current.request_id, capability.name, capability.index, question, given)
        current.closing.append(partial(kept_answers.keep, *kept))
        return AnswerResponse(
            status="insufficient_context" if given.refused else "success",
            query_text=query_text,
            answer=AnswerText(
                given.text, Confidence.LOW if given.refused else given.confidence, given.model, _iso(given.generated_at)
            ),
            citations=_supporting_citations(given),
            context_used=ContextUsed(
                chunks_retrieved=len(given.hits),
                unique_sources=len({hit.source_id for hit in given.hits}),
                avg_relevance=round(min(1.0, max(0.0, given.average_relevance)), 4),
            ),
            processing_time_ms=current.elapsed_ms,
            warnings=[*pipeline.warnings(question), *given.warnings],
            removed_sentences=given.removed,
            understood=given.understood,
            courtesy=given.courtesy,
            language=foreign_language(given.text),
        )

    return respond


async def stream_answer(
    request: Caller, query_text: str, events: AsyncGenerator[Event, None], respond: Callable[[Answer], AnswerResponse]
) -> Response[Any]:
    return await event_stream(
        request,
        events,
        meta={"query_text": query_text},
        sources=_best_snippets,
        citations=_supporting_citations,
        body=respond,
    )


def _supporting_citations(given: Answer) -> list[RetrievalCitation]:
    """The passages that support the text, each as relevant as its source's best chunk; without an answer the best
    snippets."""
    if given.refused:
        return _best_snippets(given.hits)
    relevance: dict[UUID, float] = {}
    for hit in (*given.hits, *(each.hit for each in given.citations)):
        relevance[hit.source_id] = max(hit.relevance, relevance.get(hit.source_id, 0.0))
    return [
        _citation(
            each.hit,
            each.quote,
            relevance[each.hit.source_id],
            dict(zip(_PLACE, (str(each.hit.chunk_id), f"{each.start}-{each.end}"), strict=True)),
            each.passages,
        )
        for each in given.citations[:MOST_CITATIONS]
    ]


def _best_snippets(hits: Iterable[Hit]) -> list[RetrievalCitation]:
    by_source: dict[UUID, Hit] = {}
    for hit in sorted(hits, key=lambda hit: hit.score, reverse=True):
        by_source.setdefault(hit.source_id, hit)
    return [_citation(hit, hit.text[:SNIPPET], hit.relevance) for hit in by_source.values()][:MOST_CITATIONS]


def _citation(
    hit: Hit,
    snippet: str,
    relevance: float,
    place: Mapping[str, MetadataValue] | None = None,
    passages: Sequence[SupportingPassage] = (),
) -> RetrievalCitation:
    """`place` says where in the text of which chunk the snippet stands."""
    return RetrievalCitation(
        source_id=hit.source_id,
        source_type=hit.source_type,
        source_title=hit.title,
        source_uri=hit.uri,
        snippet=snippet,
        relevance_score=relevance,
        meta={**_meta(hit), **(place or {})},
        passages=convert(passages, tuple[QuotedPassage, ...], from_attributes=True),
    )


def _meta(hit: Hit) -> JsonObject:
    """The source's metadata, without fields that have the name of one of ours; and ours that are known."""
    date = hit.untyped.get("date") or (_iso(hit.moment) if hit.moment else None)
    shown = ("section", "page", "external_id", "file_name", "link", "row", "sheet")
    ours = {"org_id": str(hit.org_id), "date": date, **{name: getattr(hit, name) for name in shown}}
    sent = {name: value for name, value in hit.sent_metadata.items() if name not in ours and name not in _PLACE}
    return {**sent, **{name: value for name, value in ours.items() if value is not None}}


def _iso(moment: datetime) -> str:
    """
    >>> _iso(datetime(2025, 1, 1, tzinfo=UTC))
    '2025-01-01T00:00:00Z'
    """
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
