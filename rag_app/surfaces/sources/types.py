"""What requests and responses of `/api/v1/sources` hold."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta, Struct, convert, to_builtins

from rag_app.domain import JsonObject, RowsRule

SOURCE = "6f2d0e5c-58f3-5c0e-9a53-3b1d8c6f7a10"
MOMENT = "2026-01-15T10:30:00Z"
TEXT = "We open at nine.\n\nReturns are free within 30 days."

MetadataInfo = Annotated[
    JsonObject,
    Meta(description="by name, as they were sent: `undeclared` names those that no filter knows", examples=[{}]),
]
LinkInfo = Annotated[str, Meta(description="path that opens it", examples=[f"/api/v1/sources/{SOURCE}"])]


class SourceInfo(Struct, frozen=True, kw_only=True):
    id: UUID
    external_id: Annotated[str, Meta(description="its name in the index, unique in the organization")]
    index: Annotated[str, Meta(examples=["org_knowledge"])]
    organization: Annotated[UUID, Meta(description="the id of the organization that has it")]
    title: str
    source_type: Annotated[str, Meta(examples=["doc"])]
    lang: Annotated[str, Meta(examples=["en"])]
    uri: Annotated[str | None, Meta(description="where it is on the web, as far as somebody said so")]
    date: Annotated[str | None, Meta(description="ISO 8601, as it was sent", examples=["2026-01-15"])]
    file_name: str | None
    row: Annotated[int | None, Meta(description="of a table: the one in `file_name` that the source is", examples=[7])]
    sheet: Annotated[str | None, Meta(description="of a workbook: the one that `row` is in")]
    metadata: MetadataInfo
    undeclared: Annotated[list[str], Meta(description="metadata that the index does not declare: kept, not filterable")]
    visibility: Annotated[Literal["user", "group", "team", "global"], Meta(description="`user`: its owner alone")]
    site: Annotated[UUID | None, Meta(description="the id of the site that has it")]
    owner: Annotated[UUID | None, Meta(description="the id of the user whose it is")]
    state: Annotated[
        Literal["ready", "writing"], Meta(description="`writing`: answers may still come from what stood there before")
    ]
    chunks: Annotated[int, Meta(description="pieces that a search finds", examples=[12])]
    size: Annotated[int, Meta(description="bytes of its text with its sections, as it is stored", examples=[2048])]
    original: Annotated[
        str | None, Meta(description="path of the file it was uploaded as; null where that is not kept")
    ]
    link: LinkInfo
    created_at: Annotated[datetime, Meta(examples=[MOMENT])]
    updated_at: Annotated[datetime, Meta(examples=[MOMENT])]


class ChunkInfo(Struct, frozen=True, kw_only=True):
    id: UUID
    position: Annotated[int, Meta(description="in its source, from 0")]
    text: str
    section: Annotated[str | None, Meta(description="the headings above it")]
    page: Annotated[int | None, Meta(description="of a PDF or a presentation, from 1")]
    start: Annotated[int | None, Meta(description="its first character in the text; null where it is not found there")]
    end: Annotated[int | None, Meta(description="behind its last character")]
    link: LinkInfo


class SourceDetail(SourceInfo, frozen=True, kw_only=True):
    passage: Annotated[
        ChunkInfo | None, Meta(description="the chunk asked for with `chunk`; null where it stands there no longer")
    ] = None


class SourcesResponse(Struct, frozen=True):
    sources: list[SourceInfo]
    next: Annotated[str | None, Meta(description="`cursor` for the next page; null where this is the last")]


class FieldInfo(Struct, frozen=True):
    name: Annotated[str, Meta(description="what a condition calls it: `key` in `where`", examples=["lang"])]
    type: Annotated[
        str, Meta(description="keyword, integer, number, boolean, time, tags or uuid", examples=["keyword"])
    ]
    operators: Annotated[list[str], Meta(description="what may be asked of it", examples=[["==", "!=", "in"]])]
    examples: Annotated[
        list[str | int | float | bool],
        Meta(
            description="up to five values of sources that the caller sees; times in ISO 8601, UTC", examples=[["en"]]
        ),
    ]


class FieldsResponse(Struct, frozen=True):
    index: Annotated[str, Meta(examples=["org_knowledge"])]
    fields: Annotated[list[FieldInfo], Meta(description="those of every index, then those that this one declares")]


class ChunksResponse(Struct, frozen=True):
    chunks: Annotated[list[ChunkInfo], Meta(description="by position")]
    total: Annotated[int, Meta(description="chunks that the source has")]
    next: Annotated[int | None, Meta(description="`after` for the next page; null where this is the last")]


class PassageInfo(Struct, frozen=True):
    start: Annotated[int, Meta(description="its first character in `text`")]
    end: Annotated[int, Meta(description="behind its last character")]
    section: str | None
    page: int | None


class TextResponse(Struct, frozen=True):
    id: UUID
    title: str
    text: Annotated[str, Meta(description="what was read of the source: its passages, with blank lines between them")]
    passages: Annotated[list[PassageInfo], Meta(description="where sections and pages stand in it")]


Columns = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=20)]
Template = Annotated[str, Meta(max_length=4000)]


class RowsBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Each row of a table is a source: as an entry of `[[rows]]` in the index's declaration, for this document alone."""

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


class DocumentBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One document: `text` or `url`."""

    text: Annotated[str, Meta(min_length=1, description="the text of the document", examples=[TEXT])] | None = None
    url: (
        Annotated[
            str,
            Meta(
                min_length=8,
                max_length=2000,
                pattern="^[Hh][Tt][Tt][Pp][Ss]?://",
                description="an http(s) address: one document is read from there, and no link in it is followed",
            ),
        ]
        | None
    ) = None
    external_id: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=500,
                description="a text of 1 to 500 characters: the name to replace it by; the address, or a new one, by default",
                examples=["handbook/hours.md"],
            ),
        ]
        | None
    ) = None
    title: Annotated[str, Meta(min_length=1, max_length=300, description="a text of 1 to 300 characters")] | None = None
    file_name: (
        Annotated[str, Meta(min_length=1, max_length=255, description="a name of 1 to 255 characters")] | None
    ) = None
    metadata: (
        Annotated[
            dict[str, Any],
            Meta(
                max_length=100,
                description="an object of at most 100 fields: those that the index declares, source_type, lang, date, uri,"
                " and any others, which no filter knows",
            ),
        ]
        | None
    ) = None
    rows: RowsBody | None = None


Visibility = Annotated[
    Literal["user", "group", "team", "global"],
    Meta(
        description="user (the caller alone), group (with `groups`), team (the organization), or global (in the public"
        " organization)"
    ),
]
IndexName = Annotated[str, Meta(min_length=1, max_length=100, description="the name of an index")]
OrganizationName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="the slug or id of an organization of the caller's: needed with several",
    ),
]


GroupNames = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=200, description="the slug of a group")]],
    Meta(min_length=1, max_length=50, description="a list of 1 to 50 groups: the visibility is then `group`"),
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


class ChangeBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Omitted fields keep their value."""

    title: Annotated[str, Meta(min_length=1, max_length=300, description="a text of 1 to 300 characters")] | None = None
    metadata: (
        Annotated[
            dict[str, Any],
            Meta(
                max_length=100,
                description="an object of at most 100 fields: those named are set, or taken away by null",
            ),
        ]
        | None
    ) = None


class UploadedDocument(Struct, frozen=True, kw_only=True):
    id: Annotated[UUID | None, Meta(description="of its source; null where nothing could be read")]
    external_id: str | None
    title: str | None
    status: Annotated[str, Meta(description="`added`, `updated`, `unchanged` or `failed`", examples=["added"])]
    further: Annotated[
        list[UUID], Meta(description="other sources in the same file: records of a table, attachments of a mail")
    ]
    undeclared: Annotated[list[str], Meta(description="metadata that the index does not declare: kept, not filterable")]
    problems: Annotated[list[str], Meta(description="what could not be read, and why")]
    link: Annotated[str | None, Meta(description="path that opens it")]


class UploadResponse(Struct, frozen=True):
    ids: Annotated[list[UUID | None], Meta(description="of each document, in the order sent; null where it failed")]
    documents: Annotated[list[UploadedDocument], Meta(description="in the same order")]


class QueuedResponse(Struct, frozen=True):
    """What was sent has become a job."""

    job: UUID
    link: Annotated[str, Meta(description="path that says how far it is", examples=["/api/v1/jobs/..."])]
    documents: int


class DeletedResponse(Struct, frozen=True):
    deleted: Annotated[int, Meta(description="sources that never answer again")]
