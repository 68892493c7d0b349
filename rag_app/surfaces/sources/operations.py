"""The OpenAPI description of bodies that handlers read themselves, piece by piece."""

from typing import Any, cast

import msgspec
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, OpenAPIType, Operation, RequestBody, Schema

from rag_app.domain import JsonObject
from rag_app.surfaces.sources.types import PutBody, QueuedResponse, UploadBody


class _FixedSchema(Schema):
    """A schema that is given as a dictionary."""

    def __init__(self, written: JsonObject) -> None:
        super().__init__()
        self._written = written

    def to_schema(self) -> JsonObject:
        return self._written


def _schema(of: type[msgspec.Struct]) -> JsonObject:
    """The schema with its references inlined, because no other operation uses them."""
    (written,), parts = msgspec.json.schema_components([of], ref_template="{name}")

    def inline(value: Any) -> Any:
        if isinstance(value, list):
            return [inline(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return inline(parts[value["$ref"]])
        return {key: inline(each) for key, each in value.items()}

    return cast(JsonObject, inline(written))


_TEXTS = {
    "index": "the name of an index",
    "organization": "the slug or id of an organization of the caller's: needed with several",
    "site": "the name or id of a site",
    "visibility": "user, group, team or global",
    "groups": "slugs of groups, comma-separated: the visibility is then group",
    "external_id": "the name to replace it by; the file's by default",
    "title": "a text of 1 to 300 characters",
    "metadata": "a JSON object, as `metadata` of a document",
}


def _form(several: bool) -> Schema:
    file = Schema(type=OpenAPIType.STRING, content_media_type="application/octet-stream", format="binary")  # type: ignore[arg-type]
    files = Schema(type=OpenAPIType.ARRAY, items=file, min_items=1) if several else file
    texts = {name: Schema(type=OpenAPIType.STRING, description=said, min_length=1) for name, said in _TEXTS.items()}
    return Schema(
        type=OpenAPIType.OBJECT,
        properties={"file": files, **texts},
        required=["index", "file"] if several else ["index", "file", "external_id"],
    )


def _body(of: type[msgspec.Struct], several: bool) -> RequestBody:
    return RequestBody(
        content={
            "application/json": OpenAPIMediaType(schema=_FixedSchema(_schema(of))),
            "multipart/form-data": OpenAPIMediaType(schema=_form(several)),
        },
        required=True,
    )


class UploadOperation(Operation):
    def __post_init__(self) -> None:
        self.request_body = _body(UploadBody, several=True)
        self.responses = {
            **(self.responses or {}),
            "202": OpenAPIResponse(
                description="A job has been made of it: it was more than is done at once (RAG_UPLOAD_AT_ONCE_MEGABYTES), "
                "or asked for by `Prefer: respond-async`",
                content={"application/json": OpenAPIMediaType(schema=_FixedSchema(_schema(QueuedResponse)))},
            ),
        }


class PutOperation(Operation):
    def __post_init__(self) -> None:
        self.request_body = _body(PutBody, several=False)
