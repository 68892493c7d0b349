"""Sources over HTTP."""

import re
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from uuid import UUID, uuid4

from litestar.datastructures import ETag, ResponseHeader
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Tag
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from litestar.response import File, Response
from msgspec import DecodeError, Meta, Struct, json, structs

from rag_app.documents.uploads import OrganizationFull, Upload, temporary_folder
from rag_app.domain import (
    EmbeddingFailed,
    Forbidden,
    InvalidInput,
    NotFound,
    StoreFailed,
    Unauthenticated,
    UnknownField,
    UnreadableDocument,
)
from rag_app.http.bodies import BodyTooLarge, Form, decode, file_name, receive_body, receive_form
from rag_app.http.problems import KINDS, Kind
from rag_app.http.streaming import prefers
from rag_app.http.surface import STRICT, Caller, Credential, Injected, Surface
from rag_app.retrieval.filters import checked_text, parse_condition
from rag_app.surfaces.sources.repeats import KeyInUse
from rag_app.surfaces.sources.service import PreconditionFailed, Sending, SourceService, names_tag
from rag_app.surfaces.sources.types import (
    SOURCE,
    ChangeBody,
    ChunksResponse,
    DeletedResponse,
    DocumentBody,
    PutBody,
    PutNamedBody,
    QueuedResponse,
    RowsBody,
    SourceDetail,
    SourceInfo,
    SourcesResponse,
    TextResponse,
    UploadBody,
    UploadResponse,
    with_body,
)

PATH = "/api/v1/sources"

SURFACE = Surface(
    name="sources",
    tag=Tag("Sources", "documents of an organization: upload, list, read, change and delete them"),
    paths=(PATH,),
    limit=300,
    credentials=frozenset({Credential.JWT, Credential.COOKIE, Credential.SESSION, Credential.API_KEY}),
    kinds={
        **KINDS,
        UnreadableDocument: Kind(422, "unreadable_document"),
        OrganizationFull: Kind(403, "organization_full"),
        BodyTooLarge: Kind(413, "payload_too_large"),
        KeyInUse: Kind(409, "idempotency_key_in_use"),
        PreconditionFailed: Kind(412, "precondition_failed"),
        413: Kind(413, "payload_too_large", "The body is too large."),
        415: Kind(415, "unsupported_media_type", "Send JSON, or multipart/form-data."),
        EmbeddingFailed: Kind(500, "embedding_failed", "The text could not be embedded. Try again later."),
    },
    errors=(
        Unauthenticated("The token has expired"),
        UnknownField("colour", ["chunk"]),
        StoreFailed(),
        RuntimeError(),
    ),
    options=STRICT,
)
FORM_FIELDS = frozenset(
    {"index", "organization", "site", "visibility", "groups", "external_id", "title", "metadata", "rows"}
)
LONGEST_ID = 500  # characters
_KEY = re.compile(r"[ -~]{1,200}")
NO_ROLE = Forbidden(
    "This requires the role write in book, and you have read. An operator can grant it with `rag-app grant`"
)
KEY_IN_USE = KeyInUse("Idempotency-Key", "1", "was already used for a different request")
FULL = OrganizationFull("The organization may have at most 1,000 sources (RAG_ORGANIZATION_SOURCES). Delete some first")
STALE = PreconditionFailed('a.md has been changed: its ETag is "1b". Read it again before you change it')
ENTITY_TAG = ResponseHeader(
    "ETag", True, '"1b"', "send it as `If-Match` to change the source only if it is still this one"
)
IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="If-Match",
        description="the ETag that the source must still have, several of them separated by commas, or `*`",
    ),
]
IfNoneMatch = Annotated[
    str | None,
    HeaderParameter(
        name="If-None-Match",
        description="the ETag that the source must not have, several of them separated by commas, or `*`: the source must not exist",
    ),
]
IfChanged = Annotated[
    str | None,
    HeaderParameter(
        name="If-None-Match",
        description="the ETag of the source that the caller has: the response is 304 if it still has it",
    ),
]
UNREADABLE = UnreadableDocument("a.pdf", "encrypted: a password is needed")
QUEUED_RESPONSE = ResponseSpec(
    QueuedResponse,
    description="The upload was accepted as a background job, because it exceeds RAG_UPLOAD_AT_ONCE_MEGABYTES or the request"
    " sent `Prefer: respond-async`.",
    generate_examples=False,
)
NO_SOURCE = NotFound("source", SOURCE)
NO_INDEX = NotFound("index", "boook", ["book", "org_knowledge"])


@SURFACE.get(
    PATH,
    InvalidInput("sort", "colour", "must be one of title, date, optionally with a leading `-`"),
    UnknownField("colour", ["author", "date", "lang"]),
    NO_INDEX,
    summary="List sources",
)
async def list_sources(
    request: Caller,
    sources: Injected[SourceService],
    index: Annotated[str | None, QueryParameter(description="the name of an index; all indexes by default")] = None,
    filters: Annotated[
        list[str] | None,
        QueryParameter(
            name="filter",
            max_items=20,
            description="`field=value`, `field!=value`, `field in a,b`, `tags contains a`, or MetadataFilters as JSON; a source must match all filters; requires `index`",
        ),
    ] = None,
    search: Annotated[
        str | None, QueryParameter(max_length=200, description="text to find in titles, external ids and file names")
    ] = None,
    sort: Annotated[
        str,
        QueryParameter(
            description="updated_at, created_at, title, external_id, date or size; put `-` in front for descending order"
        ),
    ] = "-updated_at",
    cursor: Annotated[str | None, QueryParameter(max_length=2000, description="`next` of the previous page")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=200, description="maximum number of results to return")] = 50,
    external_id: Annotated[
        str | None, QueryParameter(max_length=500, description="return only the source with this external id")
    ] = None,
    in_state: Annotated[
        Literal["ready", "writing"] | None,
        QueryParameter(name="state", description="return only sources in this state"),
    ] = None,
    organization: Annotated[
        str | None, QueryParameter(max_length=200, description="the slug or id of one of your organizations")
    ] = None,
) -> SourcesResponse:
    """Returns the sources of the caller's organizations that the caller may see."""
    return await sources.page(
        request.user,
        index=index,
        filters=tuple(parse_condition(each) for each in filters or ()),
        search=_text("search", search),
        sort=sort,
        cursor=cursor,
        limit=limit,
        external_id=_text("external_id", external_id),
        organization=_text("organization", organization),
        state=in_state,
    )


@SURFACE.get(
    f"{PATH}/{{source_id:str}}",
    NO_SOURCE,
    summary="Read a source",
    responses={304: ResponseSpec(None, description="the source still has this ETag", generate_examples=False)},
    response_headers=[ENTITY_TAG],
)
async def get_source(
    request: Caller,
    source_id: FromPath[str],
    sources: Injected[SourceService],
    chunk: Annotated[UUID | None, QueryParameter(description="the id of a chunk to return with the source")] = None,
    if_none_match: IfChanged = None,
) -> Response[SourceDetail]:
    """Returns the source's title, metadata and state. Links of hits and citations point here."""
    detail, tag = await sources.get(request.user, source_id, chunk)
    if if_none_match is not None and names_tag(if_none_match, tag):
        return cast("Response[SourceDetail]", Response(b"", status_code=304, headers={"ETag": tag}))
    return Response(detail, headers={"ETag": tag})


@SURFACE.get(f"{PATH}/{{source_id:str}}/chunks", NO_SOURCE, summary="List the chunks of a source")
async def get_chunks(
    request: Caller,
    source_id: FromPath[str],
    sources: Injected[SourceService],
    after: Annotated[int, QueryParameter(ge=-1, le=2**31, description="`next` of the previous page")] = -1,
    limit: Annotated[int, QueryParameter(ge=1, le=200, description="maximum number of results to return")] = 50,
) -> ChunksResponse:
    """Returns the pieces that a search can find, each with its position in the text."""
    return await sources.chunks(request.user, source_id, after, limit)


@SURFACE.get(f"{PATH}/{{source_id:str}}/text", NO_SOURCE, summary="Read the text of a source")
async def get_text(request: Caller, source_id: FromPath[str], sources: Injected[SourceService]) -> TextResponse:
    """Returns the extracted text with the positions of its sections and pages. The uploaded file is at `/original`."""
    return await sources.text(request.user, source_id)


@SURFACE.post(
    PATH,
    InvalidInput("documents", [], "must be a list of 1 to 1000 documents"),
    NO_INDEX,
    NO_ROLE,
    FULL,
    UNREADABLE,
    EmbeddingFailed(),
    KEY_IN_USE,
    summary="Add or replace documents",
    dto=None,
    operation_class=with_body(UploadBody, "upload", several=True),
    responses={202: QUEUED_RESPONSE},
    request_max_body_size=None,
)
async def upload(request: Caller, sources: Injected[SourceService]) -> Response[UploadResponse]:
    """Accepts texts, URLs or files. Each document becomes a source; a source with the same external id is replaced. The ids
    are returned in the order sent.

    With an `Idempotency-Key`, a repeated request is executed only once.
    """
    return await _upload(request, sources, None, several=True)


@SURFACE.put(
    PATH,
    InvalidInput("external_id", None, "is required"),
    NO_INDEX,
    NO_ROLE,
    FULL,
    UNREADABLE,
    EmbeddingFailed(),
    KEY_IN_USE,
    STALE,
    summary="Add or replace one document",
    dto=None,
    operation_class=with_body(PutNamedBody, "put", "external_id"),
    request_max_body_size=None,
)
async def put_document(
    request: Caller,
    sources: Injected[SourceService],
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response[UploadResponse]:
    """Replaces the source with this `external_id`, or adds it if there is none.

    With an `Idempotency-Key`, a repeated request is executed only once.
    """
    return await _upload(request, sources, None, if_match, if_none_match)


@SURFACE.put(
    f"{PATH}/{{source_id:str}}",
    InvalidInput("external_id", None, "differs from the external id in the path"),
    NO_INDEX,
    NO_ROLE,
    FULL,
    UNREADABLE,
    EmbeddingFailed(),
    KEY_IN_USE,
    STALE,
    summary="Add or replace one document, with its external id in the path",
    dto=None,
    operation_class=with_body(PutBody, "put_at_path"),
    request_max_body_size=None,
)
async def put_source(
    request: Caller,
    source_id: FromPath[str],
    sources: Injected[SourceService],
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response[UploadResponse]:
    """The last part of the path is the external id, percent-encoded. If the external id contains a slash, use
    `PUT /api/v1/sources` and send it in the body.

    With an `Idempotency-Key`, a repeated request is executed only once.
    """
    return await _upload(request, sources, source_id, if_match, if_none_match)


@SURFACE.patch(
    f"{PATH}/{{source_id:str}}",
    NO_SOURCE,
    NO_ROLE,
    InvalidInput("metadata", {}, "must be an object of at most 100 fields"),
    EmbeddingFailed(),
    STALE,
    summary="Change a source's title and metadata",
    response_headers=[ENTITY_TAG],
)
async def change_source(
    request: Caller,
    source_id: FromPath[str],
    data: JSONBody[ChangeBody],
    sources: Injected[SourceService],
    if_match: IfMatch = None,
) -> Response[SourceInfo]:
    """Omitted fields keep their value. A null removes a field."""
    info, tag = await sources.change(request.user, source_id, data, if_match)
    return Response(info, headers={"ETag": tag})


@SURFACE.delete(f"{PATH}/{{source_id:str}}", NO_SOURCE, NO_ROLE, STALE, status_code=200, summary="Delete a source")
async def delete_source(
    request: Caller, source_id: FromPath[str], sources: Injected[SourceService], if_match: IfMatch = None
) -> DeletedResponse:
    """The source is no longer found by any search. Returns 404 if it has already been deleted. If the path names a table, all
    its rows that the caller may see are deleted.
    """
    return await sources.delete(request.user, source_id, if_match)


@SURFACE.delete(
    PATH,
    InvalidInput("filter", None, "is required"),
    UnknownField("colour", ["author", "date", "lang"]),
    NO_INDEX,
    NO_ROLE,
    STALE,
    status_code=200,
    summary="Delete sources by filter, or all sources of an index",
)
async def delete_sources(
    request: Caller,
    sources: Injected[SourceService],
    index: Annotated[str, QueryParameter(max_length=100, description="the name of an index")],
    filters: Annotated[
        list[str] | None,
        QueryParameter(
            name="filter",
            max_items=20,
            description="as for listing sources; required unless `external_id` or `confirm` is sent",
        ),
    ] = None,
    external_ids: Annotated[
        list[str] | None,
        QueryParameter(
            name="external_id",
            max_items=200,
            description="the external ids of the sources to delete, or the names of tables, with all sources of their rows; an alternative to `filter`",
        ),
    ] = None,
    confirm: Annotated[
        str | None,
        QueryParameter(
            max_length=100,
            description="the name of the index, typed again as a confirmation: deletes all sources in the index; cannot be combined with `filter`",
        ),
    ] = None,
    organization: Annotated[
        str | None, QueryParameter(max_length=200, description="the slug or id of one of your organizations")
    ] = None,
    if_match: IfMatch = None,
) -> DeletedResponse:
    """Deletes sources of one organization. To delete all of them, send the name of the index as `confirm`; this requires
    the role `admin`. A filter that only excludes sources is refused if it matches every source. `If-Match` can be sent
    with a single `external_id`.
    """
    return await sources.delete_many(
        request.user,
        index,
        tuple(parse_condition(each) for each in filters or ()),
        [_text("external_id", each) or "" for each in external_ids or ()],
        confirm,
        _text("organization", organization),
        if_match,
    )


@SURFACE.get(
    f"{PATH}/{{source_id:str}}/original",
    NO_SOURCE,
    summary="Download the original file of a source",
    media_type="application/octet-stream",
    responses={304: ResponseSpec(None, description="the caller has the file", generate_examples=False)},
    response_headers=[
        ResponseHeader("ETag", True, '"5f8a"', "the digest of the file"),
        ResponseHeader("last-modified", True, "Mon, 05 Jan 2026 09:00:00 GMT", "when the file was last changed"),
    ],
)
async def get_original(request: Caller, source_id: FromPath[str], sources: Injected[SourceService]) -> File:
    """Returns 404 if the original file was not kept, and 304 if the caller has it (`If-None-Match`, `If-Modified-Since`)."""
    path, name = await sources.original(request.user, source_id)
    if _holds(request, path):
        told = {"ETag": f'"{path.name}"', "Last-Modified": formatdate(path.stat().st_mtime, usegmt=True)}
        return cast("File", Response(b"", status_code=304, headers={**told, **NEVER_SHOWN}))
    return File(
        path,
        filename=name,
        media_type="application/octet-stream",
        content_disposition_type="attachment",
        headers=NEVER_SHOWN,
        etag=ETag(value=path.name),
    )


def _holds(request: Caller, file: Path) -> bool:
    """Whether the caller has the file already. Its name is the digest of its content."""
    tags, since = request.headers.get("if-none-match"), request.headers.get("if-modified-since", "")
    if tags is not None:
        return names_tag(tags, f'"{file.name}"')
    try:
        return int(file.stat().st_mtime) <= parsedate_to_datetime(since).timestamp()
    except ValueError:  # nor has a header that nobody can read a meaning
        return False


NEVER_SHOWN = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cache-Control": "private, no-store",
}
"""Headers of a file that somebody uploaded: no browser takes it for a page of ours."""


def _key(request: Caller) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidInput("Idempotency-Key", key[:100], "must be 1 to 200 printable ASCII characters")
    return key


async def _upload(
    request: Caller,
    sources: SourceService,
    external_id: str | None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    several: bool = False,
) -> Response[Any]:
    """Ingests what was sent; several documents become a job where they are large, or where the caller prefers one."""
    with temporary_folder() as folder:
        sent = await _receive_content(request, sources, folder, external_id, several)
        sizes = (each.file.stat().st_size if each.file else len(each.text or "") for each in sent.uploads)
        later = several and (prefers(request, "respond-async") or sum(sizes) > sources.allowed.at_once)
        response, repeated = await sources.upload(
            request.user, sent, folder, _key(request), later=later, if_match=if_match, if_none_match=if_none_match
        )
    headers = {"Idempotency-Replayed": "true"} if repeated else {}
    if isinstance(response, QueuedResponse):
        return Response(response, status_code=202, headers={"Location": response.link, **headers})
    return Response(response, headers=headers)


async def _receive_content(
    request: Caller, sources: SourceService, folder: Path, external_id: str | None, several: bool = False
) -> Sending:
    """The content of a request: a form with files, or JSON.

    `sources.allowed` limits its size while it is read, so these routes are exempt from the server's own limit of 1 MB.
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        form = await receive_form(request, sources.allowed, folder)
        return _read_form(form, external_id, several)
    if kind != "application/json" and not kind.endswith("+json"):
        raise HTTPException(status_code=415)
    body = await receive_body(request, sources.allowed)
    if not several:
        one = decode(PutBody, body)
        return Sending(one, [_set_external_id(_read_document(one, "", folder), external_id)])
    many, most = decode(UploadBody, body), sources.allowed.documents
    if len(many.documents) > most:
        raise InvalidInput("documents", None, f"must not contain more than {most} documents (RAG_UPLOAD_DOCUMENTS)")
    return Sending(
        many, [_read_document(each, f"documents[{place}].", folder) for place, each in enumerate(many.documents)]
    )


def _read_document(document: DocumentBody, place: str, folder: Path) -> Upload:
    """A text with a file's name is written into `folder`, so that it is read as that file would be."""
    name = file_name(document.file_name) if document.file_name else None
    if document.rows is not None and document.url is None and name is None:
        raise InvalidInput(
            f"{place}rows", None, "can only be used with a `url`, a file, or a text with the `file_name` of a table"
        )
    if (document.text is None) == (document.url is None):
        raise InvalidInput(f"{place}text", None, "is required unless there is a `url`; send only one of them")
    file = None
    if document.text is not None and name is not None:
        file = folder / uuid4().hex
        file.write_bytes(document.text.encode())
    return Upload(
        external_id=document.external_id,
        text=document.text if file is None else None,
        file=file,
        url=document.url,
        file_name=name,
        title=document.title,
        metadata=document.metadata or {},
        rows=document.rows.rule() if document.rows else None,
    )


def _read_form(form: Form, external_id: str | None, several: bool) -> Sending:
    if unknown := sorted(form.fields.keys() - FORM_FIELDS):
        raise UnknownField(unknown[0][:100], [*FORM_FIELDS, "file"])
    if not form.files or (len(form.files) > 1 and not several):
        raise InvalidInput("file", None, "must be one file" if not several else "must be one or more files")
    fields = form.fields
    if len(form.files) > 1 and {"external_id", "title"} & fields.keys():
        raise InvalidInput("external_id", None, "and `title` can only be used with a single file")
    written = {name: _read_json(name, fields[name]) for name in ("metadata", "rows") if name in fields}
    parts = decode(_JsonFields, json.encode(written))
    # the same rules as in JSON
    body: dict[str, Any] = {name: value for name, value in fields.items() if name not in ("metadata", "rows")}
    if "groups" in fields:
        body["groups"] = [each.strip() for each in fields["groups"].split(",")]
    one = decode(PutBody, json.encode({**body, "text": "-"}))
    uploads = [
        Upload(
            external_id=one.external_id,
            file=each.path,
            file_name=each.name,
            media_type=each.media_type,
            title=one.title,
            metadata=parts.metadata,
            rows=parts.rows.rule() if parts.rows else None,
        )
        for each in form.files
    ]
    return Sending(one, uploads if several else [_set_external_id(uploads[0], external_id)])


def _read_json(name: str, text: str) -> Any:
    try:
        return json.decode(text)
    except (DecodeError, RecursionError):
        raise InvalidInput(name, text[:100], "is not valid JSON") from None


def _set_external_id(upload: Upload, external_id: str | None) -> Upload:
    """The upload with the external id of the path or the body; both must agree."""
    if external_id is not None and upload.external_id not in (None, external_id):
        raise InvalidInput("external_id", upload.external_id, "differs from the external id in the path")
    name = external_id or upload.external_id
    if name is None or "\0" in name or len(name) > LONGEST_ID:
        raise InvalidInput("external_id", name, f"must be a text of 1 to {LONGEST_ID} characters")
    return structs.replace(upload, external_id=name)


class _JsonFields(Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of a form that hold JSON."""

    metadata: Annotated[dict[str, Any], Meta(max_length=100, description="a JSON object of at most 100 fields")] = {}
    rows: RowsBody | None = None


def _text(name: str, value: str | None) -> str | None:
    """Raises InvalidInput for a text that the database cannot store."""
    return None if value is None else checked_text(name, value)
