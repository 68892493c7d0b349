"""Any index over HTTP, also one of your own: the list of them, their fields, search, and answers (`/api/v1/indexes`).

Requests and responses of search and answer are those of `/api/rag`.
"""

from typing import Annotated

from litestar import Response
from litestar.openapi.spec import Tag
from litestar.params import BodyKwarg, FromPath
from msgspec.structs import replace

from rag_app.answering.capabilities import capability_for
from rag_app.domain import (
    EmbeddingFailed,
    InvalidInput,
    Mode,
    StoreFailed,
    Unauthenticated,
    UnknownField,
)
from rag_app.evaluation.kept_answers import KeptAnswers
from rag_app.http.fields import SearchMode
from rag_app.http.streaming import StreamedOperation, wants_stream
from rag_app.http.surface import MODEL_ERRORS, STRICT, Caller, Injected, Surface, example
from rag_app.pipeline import Pipeline
from rag_app.surfaces.knowledge.routes import (
    AnswerResponse,
    IndexFilters,
    IndexRequest,
    SearchResponse,
    render_search,
    responder,
    stream_answer,
)
from rag_app.surfaces.sources.routes import NO_INDEX, SURFACE as SOURCES
from rag_app.surfaces.sources.service import SourceService
from rag_app.surfaces.sources.types import FieldsResponse, IndexesResponse, IndexInfo


class IndexSearchRequest(IndexRequest, frozen=True, forbid_unknown_fields=True):
    """A null is the same as an omitted field. Without `mode`, the `search_mode` of the index applies. Its default is dense."""

    mode: SearchMode | None = None


INDEX = "/api/v1/indexes/{index:str}"
ERRORS = (
    NO_INDEX,
    InvalidInput("top_k", 99, "must be a whole number from 1 to 50"),
    UnknownField("filters.colour", IndexFilters.__struct_fields__),
    EmbeddingFailed(),
)
SURFACE = Surface(
    name="indexes",
    tag=Tag("Indexes", "the indexes, their fields, semantic search in one, and cited answers from it"),
    paths=("/api/v1/indexes",),
    limit=60,
    windows={SOURCES.name: SOURCES.limit},
    credentials=SOURCES.credentials,
    errors=(Unauthenticated("The token has expired"), UnknownField("colour", []), StoreFailed(), RuntimeError()),
    options=STRICT,
)


@SURFACE.get("/api/v1/indexes", summary="List the indexes that the caller may search", opt={"window": SOURCES.name})
async def list_indexes(request: Caller, sources: Injected[SourceService]) -> IndexesResponse:
    """Returns the name, description and source types of each index, whether or not the caller sees a source in it."""
    found = sorted(sources.indexes(request.user), key=lambda spec: spec.name)
    return IndexesResponse([IndexInfo(spec.name, spec.description, [*spec.source_types]) for spec in found])


@SURFACE.get(f"{INDEX}/fields", NO_INDEX, summary="List the fields that filters may use", opt={"window": SOURCES.name})
async def list_fields(request: Caller, index: FromPath[str], sources: Injected[SourceService]) -> FieldsResponse:
    """Returns each field of an index with its type, operators and examples. Examples come from sources that the caller may
    see."""
    return await sources.fields(request.user, index)


@SURFACE.post(f"{INDEX}/search", *ERRORS, summary="Search an index for chunks, without an answer")
async def search(
    request: Caller,
    index: FromPath[str],
    data: Annotated[IndexSearchRequest, BodyKwarg(examples=[example(__package__, "request")])],
    sources: Injected[SourceService],
    pipeline: Injected[Pipeline],
) -> SearchResponse:
    """Finds the chunks that are most similar to the query, among those that the caller may see. With `mode: hybrid`, words
    count as well."""
    spec = sources.index(index, request.user)
    question = replace(data.question(), mode=Mode(data.mode or spec.search_mode))
    hits = await pipeline.search(spec.name, question, request.user.scope())
    return render_search(request, data.query_text, hits, pipeline.warnings(question))


@SURFACE.post(
    f"{INDEX}/answer",
    *ERRORS,
    *MODEL_ERRORS,
    summary="Answer a question from an index, with citations",
    operation_class=StreamedOperation,
)
async def answer(
    request: Caller,
    index: FromPath[str],
    data: Annotated[IndexRequest, BodyKwarg(examples=[example(__package__, "request")])],
    sources: Injected[SourceService],
    pipeline: Injected[Pipeline],
    kept_answers: Injected[KeptAnswers],
) -> Response[AnswerResponse]:
    """Answers from sources of the index that the caller may see, or says that they do not contain enough evidence."""
    capability, question = capability_for(sources.index(index, request.user).name), data.question()
    respond = responder(request, data.query_text, question, capability, pipeline, kept_answers)
    asked = (capability.name, question, request.user.scope())
    if wants_stream(request):
        return await stream_answer(request, data.query_text, pipeline.stream(*asked), respond)
    return Response(respond(await pipeline.answer(*asked)))
