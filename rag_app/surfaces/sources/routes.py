"""Sources over HTTP: what an organization has put in, page by page and one by one."""

from typing import Annotated, Any
from uuid import UUID

from litestar.openapi.spec import Tag
from litestar.params import FromPath, QueryParameter

from rag_app.domain import (
    EmbeddingFailed,
    InvalidInput,
    NotFound,
    StoreFailed,
    Unauthenticated,
    UnknownField,
    UnreadableDocument,
)
from rag_app.http.problems import KINDS, Kind, Kinds
from rag_app.http.surface import Caller, Credential, Injected, Surface
from rag_app.retrieval.filters import parse_condition
from rag_app.surfaces.sources.service import Listing, Sources
from rag_app.surfaces.sources.types import SOURCE, ChunksResponse, SourceDetail, SourcesResponse, TextResponse

PATH = "/api/v1/sources"
CREDENTIALS = frozenset({Credential.JWT, Credential.COOKIE, Credential.API_KEY})

ALL_KINDS: Kinds = {
    **KINDS,
    UnreadableDocument: Kind(422, "unreadable_document"),
    EmbeddingFailed: Kind(500, "embedding_failed", "The text could not be embedded. Try again later."),
}

SURFACE = Surface(
    name="sources",
    tag=Tag("Sources", "documents of an organization: uploaded, listed, read, changed, deleted"),
    paths=(PATH,),
    limit=300,
    credentials=CREDENTIALS,
    kinds=ALL_KINDS,
    errors=(Unauthenticated("The token has expired"), StoreFailed(), RuntimeError()),
)
NO_SOURCE = NotFound("source", SOURCE)
NO_INDEX = NotFound("index", "boook", ["book", "org_knowledge"])


@SURFACE.get(
    PATH,
    InvalidInput("sort", "colour", "must be one of title, date, or one of them behind a `-`"),
    UnknownField("colour", ["author", "date", "lang"]),
    NO_INDEX,
    summary="A page of sources",
)
async def list_sources(
    request: Caller,
    sources: Injected[Sources],
    index: Annotated[str | None, QueryParameter(description="an index; all of them by default")] = None,
    filters: Annotated[
        list[str] | None,
        QueryParameter(
            name="filter",
            max_items=20,
            description="`field=value`, `field>=value`, `field in a,b`, `field has tag`: all must hold; with `index`",
        ),
    ] = None,
    search: Annotated[
        str | None, QueryParameter(max_length=200, description="a part of a title, an external id or a file's name")
    ] = None,
    sort: Annotated[
        str,
        QueryParameter(
            description="updated_at, created_at, title, external_id, date or size; `-` before it: descending"
        ),
    ] = "-updated_at",
    cursor: Annotated[str | None, QueryParameter(max_length=2000, description="`next` of a page")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=200, description="of this page")] = 50,
    external_id: Annotated[str | None, QueryParameter(max_length=500, description="the source of that name")] = None,
    organization: Annotated[
        str | None, QueryParameter(max_length=200, description="the slug or id of one of the caller's")
    ] = None,
) -> SourcesResponse:
    """What the caller's organizations have put in, and the caller may see."""
    _only(request)
    return await sources.page(
        request.user,
        Listing(
            index=index,
            filters=tuple(parse_condition(each) for each in filters or ()),
            search=_text("search", search),
            sort=sort,
            cursor=cursor,
            limit=limit,
            external_id=_text("external_id", external_id),
            organization=_text("organization", organization),
        ),
    )


@SURFACE.get(f"{PATH}/{{source_id:str}}", NO_SOURCE, summary="One source, and a passage of it")
async def get_source(
    request: Caller,
    source_id: FromPath[str],
    sources: Injected[Sources],
    chunk: Annotated[UUID | None, QueryParameter(description="the id of a chunk: its passage comes along")] = None,
) -> SourceDetail:
    """What is known about it. Links of hits and citations lead here."""
    _only(request)
    return await sources.get(request.user, source_id, chunk)


@SURFACE.get(f"{PATH}/{{source_id:str}}/chunks", NO_SOURCE, summary="The chunks of a source")
async def get_chunks(
    request: Caller,
    source_id: FromPath[str],
    sources: Injected[Sources],
    after: Annotated[int, QueryParameter(ge=-1, le=2**31, description="`next` of a page")] = -1,
    limit: Annotated[int, QueryParameter(ge=1, le=200, description="of this page")] = 50,
) -> ChunksResponse:
    """The pieces that a search finds, with where each stands in the text."""
    _only(request)
    return await sources.chunks(request.user, source_id, after, limit)


@SURFACE.get(f"{PATH}/{{source_id:str}}/text", NO_SOURCE, summary="The text of a source")
async def get_text(request: Caller, source_id: FromPath[str], sources: Injected[Sources]) -> TextResponse:
    """What was read of it, with the places of its sections and pages. Viewers show this, never the file."""
    _only(request)
    return await sources.text(request.user, source_id)


def _only(request: Caller) -> None:
    """Raises UnknownField for a parameter of the query that the route does not have: none is passed over."""
    declared = request.route_handler.parsed_fn_signature.parameters
    known = {_query_name(name, each) for name, each in declared.items()} - {None}
    if unknown := sorted(set(request.query_params) - known):
        raise UnknownField(unknown[0][:100], [str(name) for name in known])


def _query_name(name: str, declared: Any) -> str | None:
    asked = declared.kwarg_definition
    return (asked.name or name) if isinstance(asked, QueryParameter) else None


def _text(name: str, value: str | None) -> str | None:
    """Raises InvalidInput for what no text of the database can be."""
    if value is not None and "\0" in value:
        raise InvalidInput(name, value, "contains a NUL character")
    return value
