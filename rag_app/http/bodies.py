"""Bodies: JSON, decoded strictly; forms with files and large bodies, read piece by piece within limits.

A refusal names the field and what is accepted. A file is written to our own folder under our own name; the client's file
name is kept as text, without a path.
"""

import json
import re
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin
from uuid import uuid4

import msgspec
from litestar.connection import Request
from litestar.dto import AbstractDTO
from litestar.exceptions import HTTPException
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition
from msgspec import Struct
from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from rag_app.domain import InvalidInput, JsonObject, UnknownField
from rag_app.http.exchange import exchange

T = TypeVar("T", bound=msgspec.Struct)
AnyRequest = Request[Any, Any, Any]

_LONGEST_NAME = 100
_MOST_DIGITS = 4000  # Python refuses to read more than 4300

_TYPE_REFUSAL = re.compile(r"Expected `(?P<kinds>[^`]+)`(?P<rule>.*?)(, got .*)?( - at .*)?", re.DOTALL)
_KINDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "uuid": "a UUID",
    "date": "a date, YYYY-MM-DD",
    "datetime": "an ISO 8601 timestamp",
}


@cache
def _decoder(of: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(of)


def decode(of: type[T], body: bytes) -> T:
    """The struct that the body holds. Nothing is converted: "5" is no number; but 5.0 is the whole number 5, as JSON
    Schema has it.

    Raises InvalidInput with the field's path, value and description, or UnknownField with the known fields. A field's
    `Meta(extra={"raises": ...})` names a subclass of InvalidInput for its refusals.

    >>> class Page(msgspec.Struct):
    ...     size: Annotated[int, msgspec.Meta(le=50, description="a whole number up to 50")]
    >>> decode(Page, b'{"size": 51}')
    Traceback (most recent call last):
    rag_app.domain.errors.InvalidInput: size: must be a whole number up to 50
    """
    try:
        try:
            return cast(T, _decoder(of).decode(body))
        except msgspec.ValidationError:
            return _decode_again(of, body)
    except UnicodeDecodeError:
        raise InvalidInput("", None, "The body is not valid UTF-8") from None
    except (msgspec.DecodeError, RecursionError):
        raise InvalidInput("", None, "The body is not valid JSON") from None


def _decode_again(of: type[T], body: bytes) -> T:
    """Decode with integers in place of whole floats. msgspec's errors are text only, so the refused field is searched here."""
    whole_floats: list[str] = []

    def number(written: str) -> int | float:
        value = float(written)
        if not value.is_integer():
            return value
        whole_floats.append(written)
        return int(value)

    text = body.decode()
    try:
        # Python's decoder: a number that is too large is refused by its field, not as bad JSON. NaN is no int
        sent = json.loads(
            text,
            parse_float=number,
            parse_int=lambda digits: int(digits) if len(digits) <= _MOST_DIGITS else float(digits),
            parse_constant=int,
        )
        msgspec.json.encode(sent)  # refuses half of a surrogate pair, as the first decoder does
    except (ValueError, RecursionError):
        raise _refusal_before_the_end(of, body) from None
    try:
        accepted = msgspec.convert(sent, of)
    except msgspec.ValidationError:
        refusal = _find_refusal(of, sent, "") if isinstance(sent, dict) else None
        raise refusal or InvalidInput("", None, "The body must be a JSON object") from None
    if not whole_floats:  # refused before, and no float was to blame
        raise InvalidInput("", None, "The body contains the same field twice, and one of the values is not accepted")
    return accepted


def _find_refusal(annotation: Any, sent: Any, path: str) -> InvalidInput | None:
    """The first field or item that the annotation refuses; None if it accepts the value."""
    kind, said = _unwrap(annotation)
    seen = sent
    if isinstance(sent, list):  # of one that is too long, no more is looked at than it takes to say so
        most = min((meta.max_length for meta in said if meta.max_length is not None), default=len(sent))
        seen = sent[: most + 1]
    problem = _problem(annotation, seen)
    if problem is None:
        return None
    if isinstance(sent, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _find_in_struct(kind, sent, f"{path}." if path else "")
    if isinstance(sent, list) and get_origin(kind) is list:
        item: Any = get_args(kind)[0]
        place = bisect_left(range(len(seen)), True, key=lambda last: _problem(list[item], seen[: last + 1]) is not None)
        if place < len(seen):
            return _find_refusal(item, sent[place], f"{path}[{place}]")
    return _refusal(annotation, sent, path, problem)


def _problem(annotation: Any, sent: Any) -> str | None:
    """The message of msgspec, for people; None if it accepts the value."""
    try:
        msgspec.convert(sent, annotation)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _find_in_struct(of: type[msgspec.Struct], sent: JsonObject, prefix: str) -> InvalidInput | None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(of)}
    for name, value in sent.items():
        if name in fields:
            if refusal := _find_refusal(fields[name].type, value, prefix + name):
                return refusal
        elif of.__struct_config__.forbid_unknown_fields:
            unknown = UnknownField(prefix + name[:_LONGEST_NAME], fields)
            unknown.value = value
            return unknown
    missing = (field for name, field in fields.items() if field.required and name not in sent)
    return next((_refusal(each.type, None, prefix + each.encode_name, "is required") for each in missing), None)


def _refusal_before_the_end(of: type[msgspec.Struct], body: bytes) -> InvalidInput:
    """Of a body that was refused before it turned out to be no JSON: the field that was."""
    if not body.lstrip().startswith(b"{"):
        return InvalidInput("", None, "The body must be a JSON object")
    for each in msgspec.structs.fields(of):
        try:
            msgspec.json.decode(body, type=msgspec.defstruct("Alone", [(each.encode_name, each.type, None)]))
        except msgspec.ValidationError as error:
            return _refusal(each.type, None, each.encode_name, str(error))
        except (msgspec.DecodeError, RecursionError):
            pass  # it breaks off before this field, or in the middle of it
    return InvalidInput("", None, "The body is not valid JSON")


def _refusal(annotation: Any, sent: Any, path: str, problem: str) -> InvalidInput:
    raises: type[InvalidInput] = InvalidInput
    problem = in_words(problem)
    for meta in _unwrap(annotation)[1]:
        raises = (meta.extra or {}).get("raises", raises)
        problem = f"must be {meta.description}" if meta.description else problem
    if isinstance(sent, str) and "\0" in sent:  # PostgreSQL has no text with it
        return InvalidInput(path, sent, f"{problem}, without a NUL character (U+0000)")
    return raises(path, sent, problem)


def in_words(problem: str) -> str:
    """What msgspec says of a type, in words.

    >>> in_words("Expected `object | null`, got `array`"), in_words("Expected `array` of length <= 20")
    ('must be an object', 'must be a list of length <= 20')
    """
    expected = _TYPE_REFUSAL.fullmatch(problem)
    if expected is None:
        return problem
    kinds = [_KINDS.get(kind, kind) for kind in expected["kinds"].split(" | ") if kind != "null"]
    rule = " in another form" if expected["rule"].startswith(" matching") else expected["rule"]
    return f"must be {' or '.join(kinds)}{rule}"


def _unwrap(annotation: Any) -> tuple[Any, list[msgspec.Meta]]:
    """The type of a field without null, and its metadata.

    >>> _unwrap(Annotated[list[int], msgspec.Meta(min_length=1)] | None)
    (list[int], [msgspec.Meta(min_length=1)])
    """
    said: list[msgspec.Meta] = []
    while (origin := get_origin(annotation)) in (Annotated, Union, UnionType):
        if origin is Annotated:
            said += [each for each in annotation.__metadata__ if isinstance(each, msgspec.Meta)]
            annotation = annotation.__origin__
        else:
            annotation = next(each for each in get_args(annotation) if each is not NoneType)
    return annotation, said


def _structs(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    kind, _ = _unwrap(annotation)
    if get_origin(kind) is list:
        yield from _structs(get_args(kind)[0])
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from _structs(field.type)


def _complete(schema: Schema, struct: type[msgspec.Struct]) -> None:
    """Add what Litestar's schema of a struct lacks: no additional fields, a minimum of 0 for nullable numbers, and the
    lengths of texts in a list."""
    if struct.__struct_config__.forbid_unknown_fields:
        schema.additional_properties = False
    for declared in msgspec.structs.fields(struct):
        documented = (schema.properties or {}).get(declared.encode_name)
        if not isinstance(documented, Schema):
            continue
        kind, said = _unwrap(declared.type)
        if any(each.ge == 0 for each in said):
            documented.minimum = 0
        if get_origin(kind) is list and isinstance(documented.items, Schema):
            for each in _unwrap(get_args(kind)[0])[1]:
                documented.items.min_length, documented.items.max_length = each.min_length, each.max_length


class JsonBody(AbstractDTO[Any]):
    """Uses `decode` instead of Litestar's lenient conversion. A body without a content type is read as JSON."""

    asgi_connection: AnyRequest

    @classmethod
    def create_for_field_definition(
        cls, field_definition: FieldDefinition, handler_id: str, backend_cls: Any = None
    ) -> None:
        """Everything follows from the annotation."""

    @classmethod
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any
    ) -> Reference | Schema:
        schema: Reference | Schema = schema_creator.for_field_definition(field_definition)
        structs = {f"{each.__module__}.{each.__qualname__}": each for each in _structs(field_definition.annotation)}
        for registered in schema_creator.schema_registry:
            if struct := structs.get(".".join(registered.key)):
                _complete(registered.schema, struct)
        return schema

    def decode_bytes(self, value: bytes) -> Any:
        media_type = self.asgi_connection.content_type[0]
        if media_type not in ("", "application/json") and not media_type.endswith("+json"):
            raise HTTPException(status_code=415)
        return decode(cast(FieldDefinition, self.asgi_connection.route_handler.parsed_data_field).annotation, value)


# -- forms with files, and large bodies

_HEADER = 4096  # bytes, of a header of a part
_HEADERS = 8  # a part
_FIELDS = 20  # parts of a form that are no files
_FIELD = 1_000_000  # bytes of a field that is no file
_LONGEST_FILE_NAME = 255  # characters of a file's name
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class BodyTooLarge(InvalidInput):
    """A body, or a part of it, is larger than allowed."""


class BodyLimits(Struct, frozen=True):
    """`size` in bytes, of the whole body; `documents` or files in it; `seconds` that we wait for it.

    A body of more than `at_once` bytes becomes a job.
    """

    size: int
    documents: int
    seconds: float
    at_once: int = 1_000_000


class ReceivedFile(Struct, frozen=True):
    """`name` is the client's, for people; `path` is the file's place."""

    name: str | None
    media_type: str
    path: Path


@dataclass(slots=True)
class Form:
    """`fields` by name, the last one where there are several."""

    fields: dict[str, str] = field(default_factory=dict)
    files: list[ReceivedFile] = field(default_factory=list)


async def receive_body(request: AnyRequest, allowed: BodyLimits) -> bytes:
    """The whole body. Raises BodyTooLarge."""
    return b"".join([piece async for piece in _pieces(request, allowed)])


async def receive_form(request: AnyRequest, allowed: BodyLimits, folder: Path) -> Form:
    """A `multipart/form-data` body; files are written below `folder`. Raises BodyTooLarge, InvalidInput."""
    _, options = parse_options_header(request.headers.get("content-type", ""))
    form, text = Form(), bytearray()
    segment: Any = None
    write: Callable[[bytes], object]
    try:
        parser = PushMultipartParser(
            options.get("boundary", ""),
            max_header_size=_HEADER,
            max_header_count=_HEADERS,
            max_segment_count=allowed.documents + _FIELDS,
            strict=True,
        )
        with ExitStack() as writing:
            async for piece in _pieces(request, allowed):
                for event in parser.parse(piece):
                    if isinstance(event, MultipartSegment):
                        segment, text = event, bytearray()
                        write = text.extend
                        if segment.filename is not None:
                            media_type = str(segment.header("Content-Type", "") or "")[:200]
                            form.files.append(
                                ReceivedFile(file_name(segment.filename), media_type, folder / uuid4().hex)
                            )
                            write = writing.enter_context(form.files[-1].path.open("xb")).write
                    elif event:
                        write(event)
                    elif segment.filename is None:
                        form.fields[segment.name] = text.decode()
                    else:
                        writing.close()
                    if len(form.files) > allowed.documents:
                        problem = f"The form has more than {allowed.documents} files (RAG_UPLOAD_DOCUMENTS)"
                        raise BodyTooLarge("", None, problem)
                    if len(text) > _FIELD:
                        raise BodyTooLarge(segment.name[:100], None, f"must not be longer than {_FIELD:,} bytes")
        parser.close()
    except ParserLimitReached:
        raise BodyTooLarge(
            "", None, f"The form has more than {_FIELDS} fields, or the headers of a part are too long"
        ) from None
    except MultipartError as error:
        raise InvalidInput("", None, f"The body is not valid multipart/form-data: {error}") from None
    except UnicodeDecodeError:
        raise InvalidInput(segment.name[:100], None, "is not valid UTF-8") from None
    return form


async def _pieces(request: AnyRequest, allowed: BodyLimits) -> AsyncIterator[bytes]:
    exchange(request.scope).seconds_for_body = allowed.seconds
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and len(declared) < 20 and int(declared) > allowed.size:
        raise _too_large(allowed)
    taken = 0
    async for piece in request.stream():
        taken += len(piece)
        if taken > allowed.size:
            raise _too_large(allowed)
        if piece:
            yield piece


def _too_large(allowed: BodyLimits) -> BodyTooLarge:
    return BodyTooLarge("", None, f"The body is larger than {allowed.size / 1_000_000:,.0f} MB (RAG_UPLOAD_MEGABYTES)")


def file_name(said: str) -> str | None:
    r"""The last part of a client's file name, without unprintable characters; None if nothing remains.

    >>> file_name("../../etc/passwd"), file_name("C:\\Users\\ada\\notes.md"), file_name("a\x00b\u202etxt.exe"), file_name("..")
    ('passwd', 'notes.md', 'abtxt.exe', None)
    """
    last = _UNPRINTABLE.sub("", re.split(r"[/\\]", said)[-1]).strip()
    if len(last) > _LONGEST_FILE_NAME:  # its end tells what kind of text it is
        last = last[: _LONGEST_FILE_NAME - 20] + last[-20:]
    return None if last in ("", ".", "..") else last
