"""The requests and responses of `/api/v1/sources`, and the OpenAPI description of bodies that handlers read piece by piece."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, cast
from uuid import UUID

from litestar.openapi.spec import (
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Parameter,
    RequestBody,
    Schema,
)
from msgspec import Meta, Struct, convert, json, to_builtins

from rag_app.documents.uploads import UploadedDocument
from rag_app.domain import JsonObject, RowsRule
from rag_app.http.fields import COMPONENT
from rag_app.http.surface import example

SOURCE = "6f2d0e5c-58f3-5c0e-9a53-3b1d8c6f7a10"
MOMENT = "2026-01-15T10:30:00Z"
TEXT = "We open at nine.\n\nReturns are free within 30 days."

LinkInfo = Annotated[str, Meta(description="the path of the source", examples=[f"/api/v1/sources/{SOURCE}"])]


class SourceInfo(Struct, frozen=True, kw_only=True):
    id: UUID
    external_id: Annotated[str, Meta(description="the source's name in the index, unique within the organization")]
    index: Annotated[str, Meta(examples=["org_knowledge"])]
    organization: Annotated[UUID, Meta(description="the id of the organization that the source belongs to")]
    title: str
    source_type: Annotated[str, Meta(examples=["doc"])]
    lang: Annotated[str, Meta(examples=["en"])]
    uri: Annotated[str | None, Meta(description="the web address of the source, if one was given")]
    date: Annotated[str | None, Meta(description="ISO 8601, as it was sent", examples=["2026-01-15"])]
    file_name: str | None
    row: Annotated[
        int | None, Meta(description="if the source is a row of a table: its number in `file_name`", examples=[7])
    ]
    sheet: Annotated[
        str | None, Meta(description="if the source is a row of a workbook: the sheet that contains the row")
    ]
    metadata: Annotated[
        JsonObject,
        Meta(
            description="metadata as the client sent it; the index does not declare the fields in `undeclared`, so filters cannot use them",
            examples=[{}],
        ),
    ]
    undeclared: Annotated[
        list[str],
        Meta(
            description="metadata fields that the index does not declare; they are stored but cannot be used in filters"
        ),
    ]
    visibility: Annotated[
        Literal["user", "group", "team", "global"],
        Meta(description="who may see the source: its owner, its groups, the organization, or everybody"),
    ]
    site: Annotated[UUID | None, Meta(description="the id of the site that the source belongs to")]
    owner: Annotated[UUID | None, Meta(description="the id of the user who owns the source")]
    state: Annotated[
        Literal["ready", "writing"],
        Meta(description="`writing`: the source is being replaced, and answers may still use the earlier version"),
    ]
    chunks: Annotated[int, Meta(description="number of chunks", examples=[12])]
    size: Annotated[int, Meta(description="bytes of the stored text with its section headings", examples=[2048])]
    original: Annotated[str | None, Meta(description="the path of the original file; null if the file was not kept")]
    link: LinkInfo
    created_at: Annotated[datetime, Meta(examples=[MOMENT])]
    updated_at: Annotated[datetime, Meta(examples=[MOMENT])]


class ChunkInfo(Struct, frozen=True, kw_only=True):
    id: UUID
    position: Annotated[int, Meta(description="position in the source, from 0")]
    text: str
    section: Annotated[str | None, Meta(description="the headings above the chunk")]
    page: Annotated[int | None, Meta(description="page of a PDF or slide of a presentation, from 1")]
    start: Annotated[
        int | None, Meta(description="offset of the first character in the text; null if the chunk is not found there")
    ]
    end: Annotated[int | None, Meta(description="offset after the last character")]
    link: LinkInfo


class SourceDetail(SourceInfo, frozen=True, kw_only=True):
    passage: Annotated[
        ChunkInfo | None,
        Meta(description="the chunk that was requested with `chunk`; null if the source no longer contains it"),
    ] = None


class SourcesResponse(Struct, frozen=True):
    sources: list[SourceInfo]
    next: Annotated[str | None, Meta(description="send as `cursor` to get the next page; null on the last page")]


class IndexInfo(Struct, frozen=True):
    name: Annotated[str, Meta(description="the name to use in paths", examples=["org_knowledge"])]
    description: Annotated[str, Meta(description="what the index holds", examples=["E-mails and documents"])]
    source_types: Annotated[
        list[str], Meta(description="the values of `filters.source_type`", examples=[["email", "doc"]])
    ]


class IndexesResponse(Struct, frozen=True):
    indexes: Annotated[list[IndexInfo], Meta(description="ordered by name")]


class FieldInfo(Struct, frozen=True):
    name: Annotated[str, Meta(description="the name to use in a filter: `key` in `where`", examples=["lang"])]
    type: Annotated[
        str, Meta(description="keyword, integer, number, boolean, time, tags or uuid", examples=["keyword"])
    ]
    operators: Annotated[
        list[str],
        Meta(description="the operators that a filter may use with this field", examples=[["==", "!=", "in"]]),
    ]
    examples: Annotated[
        list[str | float | bool],
        Meta(
            description="up to five values, from sources that the caller may see; times in ISO 8601, UTC",
            examples=[["en"]],
        ),
    ]


class FieldsResponse(Struct, frozen=True):
    index: Annotated[str, Meta(examples=["org_knowledge"])]
    fields: Annotated[
        list[FieldInfo], Meta(description="first the fields of every index, then the fields that this index declares")
    ]


class ChunksResponse(Struct, frozen=True):
    chunks: Annotated[list[ChunkInfo], Meta(description="ordered by position")]
    total: Annotated[int, Meta(description="number of chunks of the source")]
    next: Annotated[int | None, Meta(description="send as `after` to get the next page; null on the last page")]


class PassageInfo(Struct, frozen=True):
    start: Annotated[int, Meta(description="offset of the first character in `text`")]
    end: Annotated[int, Meta(description="offset after the last character")]
    section: str | None
    page: int | None


class TextResponse(Struct, frozen=True):
    id: UUID
    title: str
    text: Annotated[
        str, Meta(description="the text that was extracted from the source; blank lines separate its passages")
    ]
    passages: Annotated[list[PassageInfo], Meta(description="where each section and page begins and ends in the text")]


Columns = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=20)]
Template = Annotated[str, Meta(max_length=4000)]


class RowsBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Makes each row of a table a source: of a file, a `url`, or a `text` with the `file_name` of a table. The fields are those of `[[rows]]` in index.toml and apply to this document only."""

    key: Columns = []
    id: Template = ""
    columns: Annotated[dict[str, str], Meta(max_length=200)] = {}
    date: Columns = []
    date_formats: Columns = []
    decimal: Literal[".", ","] = "."
    title: Template = ""
    text: Template = ""

    def rule(self) -> RowsRule:
        return convert(to_builtins(self), RowsRule)


ExternalId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=500,
        description="a text of 1 to 500 characters that identifies the source when it is replaced; by default the URL or a generated id",
        examples=["handbook/hours.md"],
    ),
]


class DocumentBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One document, with either `text` or `url`."""

    text: Annotated[str, Meta(min_length=1, description="the text of the document", examples=[TEXT])] | None = None
    url: (
        Annotated[
            str,
            Meta(
                min_length=8,
                max_length=2000,
                pattern="^[Hh][Tt][Tt][Pp][Ss]?://",
                description="an http or https URL of one document; links in it are not followed",
            ),
        ]
        | None
    ) = None
    external_id: ExternalId | None = None
    title: Annotated[str, Meta(min_length=1, max_length=300, description="a text of 1 to 300 characters")] | None = None
    file_name: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=255,
                description="a name of 1 to 255 characters; a `text` is read as a file of this name: `.md` has sections, `.csv` rows",
            ),
        ]
        | None
    ) = None
    metadata: (
        Annotated[
            dict[str, Any],
            Meta(
                max_length=100,
                description="an object of at most 100 fields: source_type, lang, date, uri, the fields that the index declares,"
                " and any others, which cannot be used in filters",
            ),
        ]
        | None
    ) = None
    rows: RowsBody | None = None


Visibility = Annotated[
    Literal["user", "group", "team", "global"],
    Meta(
        description="one of user (only the caller sees it), group (members of `groups`), team (the organization), or global"
        " (everybody; only in the public organization)"
    ),
]
IndexName = Annotated[str, Meta(min_length=1, max_length=100, description="the name of an index")]
OrganizationName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="the slug or id of one of your organizations; required if you belong to several",
    ),
]


GroupNames = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=200, description="the slug of a group")]],
    Meta(min_length=1, max_length=50, description="a list of 1 to 50 groups; it sets the visibility to `group`"),
]


class UploadBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    index: IndexName
    documents: Annotated[
        list[DocumentBody], Meta(min_length=1, max_length=1000, description="a list of 1 to 1000 documents")
    ]
    organization: OrganizationName | None = None
    site: Annotated[str, Meta(min_length=1, max_length=200, description="the name or id of a site")] | None = None
    visibility: Visibility | None = None
    groups: GroupNames | None = None


class PutBody(DocumentBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    index: IndexName
    organization: OrganizationName | None = None
    site: Annotated[str, Meta(min_length=1, max_length=200, description="the name or id of a site")] | None = None
    visibility: Visibility | None = None
    groups: GroupNames | None = None


class PutNamedBody(PutBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One document, with its external id and either `text` or `url`."""

    external_id: ExternalId


class ChangeBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Omitted fields keep their value."""

    title: Annotated[str, Meta(min_length=1, max_length=300, description="a text of 1 to 300 characters")] | None = None
    metadata: (
        Annotated[
            dict[str, Any],
            Meta(
                max_length=100,
                description="an object of at most 100 fields to set; a null removes a field",
            ),
        ]
        | None
    ) = None


class UploadResponse(Struct, frozen=True):
    ids: Annotated[
        list[UUID | None],
        Meta(description="the source id of each document, in the order sent; null if the document failed"),
    ]
    documents: Annotated[list[UploadedDocument], Meta(description="in the same order")]


class QueuedResponse(Struct, frozen=True):
    """What was sent has become a job."""

    job: UUID
    link: Annotated[
        str, Meta(description="the path of the job; read it to see the progress", examples=["/api/v1/jobs/..."])
    ]
    documents: int


class DeletedResponse(Struct, frozen=True):
    deleted: Annotated[int, Meta(description="number of deleted sources")]


_TEXTS = {
    "index": "the name of an index",
    "organization": "the slug or id of one of your organizations; required if you belong to several",
    "site": "the name or id of a site",
    "visibility": "user, group, team or global, as in JSON",
    "groups": "slugs of groups, separated by commas; they set the visibility to `group`",
    "external_id": "the name that identifies the source when it is replaced; by default the file's name. Only with a single file",
    "title": "a text of 1 to 300 characters. Only with a single file",
    "metadata": "a JSON object, as `metadata` of a document; of all files",
    "rows": "a JSON object, as `rows` of a document: makes each row of a table a source",
}
_FILE = Schema(type=OpenAPIType.STRING, content_media_type="application/octet-stream", format="binary")  # type: ignore[arg-type]


IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "header",
    Schema(type=OpenAPIType.STRING, pattern="^[!-~]([ -~]{0,198}[!-~])?$"),
    "1 to 200 printable ASCII characters: a request that is repeated with the same key is executed only once",
    required=False,
)
PREFER_JOB = Parameter(
    "Prefer", "header", Schema(type=OpenAPIType.STRING), "`respond-async` makes the documents a job", required=False
)
_REPEAT_MARK = OpenAPIHeader(
    schema=Schema(type=OpenAPIType.STRING, enum=["true"]), description="sent with the response of an earlier request"
)
_LOCATION = OpenAPIHeader(schema=Schema(type=OpenAPIType.STRING), description="the path of the job", required=True)


def _describe_body(of: type[Struct], named: str, required: Sequence[str], several: bool) -> RequestBody:
    (written,), parts = json.schema_components([of], ref_template=f"{COMPONENT}{{name}}")
    texts = {name: Schema(type=OpenAPIType.STRING, description=said, min_length=1) for name, said in _TEXTS.items()}
    form = Schema(
        type=OpenAPIType.OBJECT,
        properties={"file": Schema(type=OpenAPIType.ARRAY, items=_FILE, min_items=1) if several else _FILE, **texts},
        required=["index", "file", *required],
        additional_properties=False,
    )
    return RequestBody(
        content={
            "application/json": OpenAPIMediaType(
                schema=cast(Schema, {**written, "$defs": parts}), examples={named: example(__package__, named)}
            ),
            "multipart/form-data": OpenAPIMediaType(
                schema=form, examples={named: example(__package__, f"{named}_form")}
            ),
        },
        required=True,
    )


def with_body(of: type[Struct], named: str, *required: str, several: bool = False) -> type[Operation]:
    """The class of an operation whose body its handler reads piece by piece, so that Litestar does not know it.

    The body is JSON or a form, with `examples/NAMED.json` and `examples/NAMED_form.json`. `required`: fields of the form.
    One of `several` documents may become a job.
    """

    @dataclass  # without it, Operation's constructor passes over __post_init__
    class WithBody(Operation):
        def __post_init__(self) -> None:
            self.request_body = _describe_body(of, named, required, several)
            self.parameters = [*(self.parameters or ()), IDEMPOTENCY_KEY, *([PREFER_JOB] if several else [])]
            succeeded = [response for status, response in (self.responses or {}).items() if status.startswith("2")]
            for each in cast("list[OpenAPIResponse]", succeeded):
                each.headers = {**(each.headers or {}), "Idempotency-Replayed": _REPEAT_MARK}
            if several:
                cast(Any, self.responses)["202"].headers["Location"] = _LOCATION

    return WithBody
