"""Owner Q&A: search and cited answers over a salon's calls and bookings (`/owner`).

The contract's own words are kept: field names, ranges, defaults, texts.
"""

from datetime import date, datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from litestar import Response
from litestar.openapi.spec import Tag
from litestar.params import BodyKwarg
from msgspec import Meta, Struct, field

from rag_app.answering.refusals import foreign_language
from rag_app.answering.restating import go_on
from rag_app.domain import (
    Answer,
    EmbeddingFailed,
    Filters,
    Hit,
    InvalidInput,
    Mode,
    ModelLimited,
    Question,
    Refusal,
    StoreFailed,
    Unauthenticated,
    UnknownField,
    resource_folder,
)
from rag_app.evaluation.kept_answers import KeptAnswers
from rag_app.http.exchange import exchange
from rag_app.http.fields import (
    AnswerRemarks,
    EarlierQuestions,
    Passages,
    SearchMode,
    SourceReference,
    T,
    Warnings,
    Where,
    as_wire,
    choice_of,
    limit_text,
)
from rag_app.http.problems import KINDS, Kind
from rag_app.http.streaming import StreamedOperation, event_stream, wants_stream
from rag_app.http.surface import MODEL_ERRORS, Caller, Credential, Injected, Surface, example
from rag_app.pipeline import Pipeline
from rag_app.retrieval.filters import EQ, GTE, IN, LTE, conditions, parse_where
from rag_app.retrieval.index import load_index

INDEX = "salon_calls"
CAPABILITY = "owner_ask"
SOURCE_TYPES = load_index(resource_folder("indexes") / INDEX).source_types
if TYPE_CHECKING:
    SourceType = str
else:
    SourceType = choice_of(SOURCE_TYPES)
SEARCH_LIMIT, SEARCH_SIMILARITY = 10, 0.3
ASK_LIMIT, ASK_SIMILARITY = 5, 0.35
LEAST_FETCHED = 20
"""Chunks that are retrieved before the threshold, however few are wanted: `limit` of them may well lie below it."""
SEARCH_FETCHED = 100
"""The same for a hybrid search: its order may put some that reach the threshold behind many that do not."""

EXCERPT = 300
"""Characters of what was found, before it is known what an answer cites."""

QUERY = "customer complaints about pricing"
QUESTION = "What did customers say about wait times this week?"
CALL = "123e4567-e89b-12d3-a456-426614174000"

Text = limit_text(1000)
Limit = Annotated[int, Meta(ge=1, le=50, description="a whole number from 1 to 50")]
MinSimilarity = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
_UNSENT = Meta(
    extra_json_schema={
        "extra": {
            "description": "a number from 0 to 1: chunks below it are not used. Omitted or null: chunks from "
            f"{ASK_SIMILARITY} on, and those below where a model is asked or the confidence is high"
        }
    }
)
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, description="a whole number of at most 64 bits")]
Day = Annotated[date, Meta(description="a date, YYYY-MM-DD: the whole day, UTC", examples=["2026-01-08"])]
Reference = Annotated[str | None, Meta(examples=[CALL])]


class RecordFilters(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of a request. A record must match all filters; a record without the field does not match. A null is the
    same as an omitted field."""

    source_types: (
        Annotated[
            list[SourceType],
            Meta(min_length=1, description=f"a list with one or more of {', '.join(SOURCE_TYPES)}"),
        ]
        | None
    ) = None
    date_from: Day | None = None
    date_to: Day | None = None
    stylist_id: Number | None = None
    customer_id: Number | None = None
    where: Where | None = None

    def conditions(self) -> Filters:
        own = conditions(
            ("source_type", IN, tuple(self.source_types or ())),
            ("date", GTE, self.date_from.isoformat() if self.date_from else None),
            ("date", LTE, self.date_to.isoformat() if self.date_to else None),
            ("stylist_id", EQ, self.stylist_id),
            ("customer_id", EQ, self.customer_id),
        )
        return own if self.where is None else (*own, parse_where(self.where))


class OwnerSearchRequest(RecordFilters, frozen=True, forbid_unknown_fields=True, kw_only=True):
    query: Annotated[str, Text]
    limit: Limit | None = SEARCH_LIMIT
    min_similarity: MinSimilarity | None = SEARCH_SIMILARITY
    mode: SearchMode | None = None

    def question(self, mode: Mode) -> Question:
        """`mode` is used where the request names none."""
        mode = Mode(self.mode or mode)
        return Question(
            self.query.strip(),
            self.conditions(),
            SEARCH_LIMIT if self.limit is None else self.limit,
            mode,
            threshold=SEARCH_SIMILARITY if self.min_similarity is None else self.min_similarity,
            fetch=SEARCH_FETCHED if mode is Mode.HYBRID else None,
        )


class OwnerAskRequest(RecordFilters, frozen=True, forbid_unknown_fields=True, kw_only=True):
    question: Annotated[str, Text]
    limit: Limit | None = ASK_LIMIT
    min_similarity: Annotated[MinSimilarity, _UNSENT] | None = None
    earlier_questions: EarlierQuestions | None = None

    def to_question(self) -> Question:
        limit = ASK_LIMIT if self.limit is None else self.limit
        question = Question(
            self.question.strip(),
            self.conditions(),
            limit,
            threshold=ASK_SIMILARITY if self.min_similarity is None else self.min_similarity,
            threshold_sent=self.min_similarity is not None,
            fetch=max(LEAST_FETCHED, 2 * limit),
        )
        return go_on(question, self.earlier_questions or ())


class OwnerRecord(SourceReference, frozen=True, kw_only=True):
    """A passage of a call or booking."""

    source_type: Annotated[str, Meta(examples=["call_transcript"])]
    source_id: UUID
    booking_id: Reference
    call_id: Reference
    created_at: Annotated[
        datetime | None,
        Meta(description="the date of the call or booking: ISO 8601, UTC", examples=["2026-01-10T14:30:00Z"]),
    ]
    similarity: Annotated[float, Meta(ge=0, le=1, description="cosine similarity, four digits", examples=[0.7823])]
    section: Annotated[str | None, Meta(description="the headings above the passage")]
    page: Annotated[int | None, Meta(description="the page of the passage")]


class OwnerSearchResult(OwnerRecord, frozen=True):
    id: Annotated[UUID, Meta(description="the id of the chunk")]
    chunk_index: Annotated[int, Meta(ge=0, description="position of the chunk in its source, from 0")]
    content: Annotated[str, Meta(examples=["Customer: I was surprised by the final price..."])]
    customer_id: Annotated[int | None, Meta(examples=[42])]
    stylist_id: Annotated[int | None, Meta(examples=[5])]


class OwnerSearchResponse(Struct, frozen=True, omit_defaults=True):
    results: Annotated[
        list[OwnerSearchResult],
        Meta(description="at most `limit`, best first: by similarity, or by the combined score in a hybrid search"),
    ]
    query: Annotated[str, Meta(description="the query as sent", examples=[QUERY])]
    total: Annotated[int, Meta(description="number of results returned", examples=[3])]
    warnings: Warnings = []


class OwnerSource(OwnerRecord, frozen=True, omit_defaults=True):
    chunk_id: UUID
    excerpt: Annotated[
        str,
        Meta(
            description="the passage that supports the answer", examples=["Customer: I had to wait almost 15 minutes"]
        ),
    ]
    passages: Passages = ()


class OwnerAskResponse(AnswerRemarks, frozen=True):
    answer: Annotated[
        str,
        Meta(
            description="at most seven sentences with [Source N] citations, or a refusal",
            examples=["One customer waited 15 minutes past their appointment time [Source 1]."],
        ),
    ]
    sources: Annotated[
        list[OwnerSource],
        Meta(
            description="the cited sources; [Source N] is the Nth. If no hit answers the question, or no source supports the "
            "model's answer: the hits, most similar first. Empty for other refusals"
        ),
    ]
    has_sufficient_evidence: Annotated[bool, Meta(description="true if a source supports every claim of the answer")]
    query: Annotated[str, Meta(description="the question as sent", examples=[QUESTION])]
    chunks_retrieved: Annotated[
        int, Meta(description="number of chunks found before `min_similarity` is applied", examples=[8])
    ]
    chunks_above_threshold: Annotated[
        int, Meta(description="number of chunks that reach `min_similarity`", examples=[5])
    ]
    warnings: Warnings = field(default_factory=list)


ERRORS = (
    InvalidInput("limit", 99, "must be a whole number from 1 to 50"),
    UnknownField("colour", OwnerAskRequest.__struct_fields__),
    EmbeddingFailed(),
    StoreFailed(),
    RuntimeError(),
)
SURFACE = Surface(
    name="owner_qa",
    tag=Tag("Owner Q&A", "search and cited answers over a salon's calls and bookings"),
    paths=("/owner/",),
    limit=60,
    credentials=frozenset({Credential.JWT, Credential.SESSION, Credential.NONE}),
    kinds={**KINDS, ModelLimited: Kind(500, "model_rate_limited", KINDS[ModelLimited].message)},  # whatever part fails
    errors=(Unauthenticated("The token has expired"),),
)


@SURFACE.post("/owner/search", *ERRORS, summary="Search for the most similar chunks, without an answer")
async def search(
    request: Caller,
    data: Annotated[OwnerSearchRequest, BodyKwarg(examples=[example(__package__, "search")])],
    pipeline: Injected[Pipeline],
) -> OwnerSearchResponse:
    """Finds chunks of calls and bookings that the caller may see. No answering model is called."""
    question = data.question(pipeline.search_mode(INDEX))
    hits = await pipeline.search(INDEX, question, request.user.scope())
    results = [*map(render_result, hits)]
    return OwnerSearchResponse(results, data.query, len(results), pipeline.warnings(question))


@SURFACE.post(
    "/owner/ask",
    *ERRORS,
    *MODEL_ERRORS,
    summary="Answer a question with citations",
    operation_class=StreamedOperation,
)
async def ask(
    request: Caller,
    data: Annotated[OwnerAskRequest, BodyKwarg(examples=[example(__package__, "ask")])],
    pipeline: Injected[Pipeline],
    kept_answers: Injected[KeptAnswers],
) -> Response[OwnerAskResponse]:
    """Answers from calls and bookings that the caller may see, or says that they do not contain enough evidence."""

    def response(given: Answer) -> OwnerAskResponse:
        current = exchange(request.scope)
        current.closing.append(
            partial(kept_answers.keep, request.user, current.request_id, CAPABILITY, INDEX, question, given)
        )
        return render_answer(data.question, given, warnings)

    question = data.to_question()
    asked, warnings = (CAPABILITY, question, request.user.scope()), pipeline.warnings(question)
    if wants_stream(request):
        return await event_stream(
            request,
            pipeline.stream(*asked),
            meta={"query": data.question},
            sources=lambda hits: [
                _render_record(OwnerSource, hit, excerpt=hit.text[:EXCERPT], passages=())
                for hit in sorted(hits, key=attrgetter("score"), reverse=True)
            ],
            citations=_cited_sources,
            body=response,
        )
    return Response(response(await pipeline.answer(*asked)))


def render_result(hit: Hit) -> OwnerSearchResult:
    return _render_record(
        OwnerSearchResult,
        hit,
        id=hit.chunk_id,
        chunk_index=hit.position,
        content=hit.text,
        customer_id=hit.metadata.get("customer_id"),
        stylist_id=hit.metadata.get("stylist_id"),
    )


def render_answer(question: str, given: Answer, warnings: list[str]) -> OwnerAskResponse:
    return OwnerAskResponse(
        answer=given.text,
        sources=_cited_sources(given),
        has_sufficient_evidence=not given.refused,
        query=question,
        chunks_retrieved=given.retrieved,
        chunks_above_threshold=given.above_threshold,
        warnings=[*warnings, *given.warnings],
        removed_sentences=given.removed,
        understood=given.understood,
        courtesy=given.courtesy,
        language=foreign_language(given.text),
    )


def _cited_sources(given: Answer) -> list[OwnerSource]:
    """What the answer cites; what was found, where none of it answers, or a model's answer cites nothing of it."""
    shown = given.citations if given.refusal in (None, Refusal.UNCITED, Refusal.WEAK) else ()
    return [_render_record(OwnerSource, each.hit, excerpt=each.quote, passages=each.passages) for each in shown]


def _render_record(of: type[T], hit: Hit, **own: object) -> T:
    ids = {name: str(hit.metadata[name]) if name in hit.metadata else None for name in ("booking_id", "call_id")}
    return as_wire(of, hit, created_at=hit.moment, similarity=hit.relevance, **ids, **own)
