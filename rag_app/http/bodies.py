"""JSON bodies, decoded strictly: what is refused is named, with what would be accepted."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from litestar.connection import Request
from litestar.dto import AbstractDTO
from litestar.exceptions import HTTPException
from litestar.openapi.spec import Reference, Schema
from litestar.status_codes import HTTP_415_UNSUPPORTED_MEDIA_TYPE
from litestar.typing import FieldDefinition
from msgspec import inspect

from rag_app.domain.errors import InvalidInput, UnknownField

T = TypeVar("T", bound=msgspec.Struct)

# What is white space to Python and what to JSON Schema differ by some: none of either counts here.
WORD = r"^[^\s\x00\x1c-\x1f\x85\ufeff]+$"
"""A pattern: one or more characters, none of them white space or NUL."""
NOT_BLANK = r"^[^\x00]*[^\s\x00\x1c-\x1f\x85\ufeff][^\x00]*$"
"""A pattern: at least one character that is not white space, no NUL."""

_REFUSAL = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_NAMED = re.compile(r"Object (?P<problem>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_STEP = re.compile(r"\.?(?P<name>[^.\[\]]+)|\[(?P<place>\d+)\]")
_LONGEST_NAME = 100


@cache
def _decoder(of: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(of)


def decode(of: type[T], body: bytes) -> T:
    """The struct that the body holds. Nothing is converted: "5" is no number; but 5.0 is the whole number 5, as JSON
    Schema has it.

    Raises InvalidInput with the path of the field, what was sent there and the field's description, or UnknownField
    with those there are. A field may say `Meta(extra={"raises": ...})`: a subclass of InvalidInput for its refusals.

    >>> from typing import Annotated
    >>> class Page(msgspec.Struct):
    ...     size: Annotated[int, msgspec.Meta(le=50, description="a whole number up to 50")]
    >>> decode(Page, b'{"size": 51}')
    Traceback (most recent call last):
    rag_app.domain.errors.InvalidInput: size: must be a whole number up to 50
    """
    try:
        try:
            return cast(T, _decoder(of).decode(body))
        except msgspec.ValidationError as error:
            body.decode()  # msgspec looks at no text that it refuses for another reason
            if "got `float`" not in str(error):
                raise
            return cast(T, _decoder(of).decode(msgspec.json.encode(_whole(msgspec.json.decode(body)))))
    except msgspec.ValidationError as error:
        raise _refused(of, str(error), body) from None
    except UnicodeDecodeError:
        raise InvalidInput("", None, "The body is not valid UTF-8") from None
    except (msgspec.DecodeError, RecursionError):
        raise InvalidInput("", None, "The body is not valid JSON") from None


def _whole(sent: Any) -> Any:
    """With integers for floats that are whole numbers."""
    match sent:
        case dict():
            return {name: _whole(value) for name, value in sent.items()}
        case list():
            return [_whole(value) for value in sent]
        case float() if sent.is_integer():
            return int(sent)
    return sent


def _refused(of: type, message: str, body: bytes) -> InvalidInput:
    """msgspec says where and what; what is accepted stands in the description of the field."""
    refusal = _REFUSAL.fullmatch(message)
    problem, path = (refusal["problem"], refusal["path"] or "") if refusal else (message, "")
    steps = _steps(path)
    if named := _NAMED.fullmatch(problem):
        name = named["name"][:_LONGEST_NAME]
        path, steps = f"{path}.{name}" if path else name, [*steps, name]
        if named["problem"] == "contains unknown":
            unknown = UnknownField(path, _field(of, steps[:-1]).names)
            unknown.value = _sent(body, steps)
            return unknown
        problem = "is required"
    if not path:
        return InvalidInput("", None, "The body must be a JSON object")
    field = _field(of, steps)
    problem = f"must be {field.description}" if field.description else problem
    return field.raises(path, _sent(body, steps), problem)


def _steps(path: str) -> list[str | int]:
    """
    >>> _steps("queries[3].query")
    ['queries', 3, 'query']
    """
    return [int(step["place"]) if step["place"] else step["name"] for step in _STEP.finditer(path)]


class _Field(NamedTuple):
    names: list[str]  # of its own fields
    description: str
    raises: type[InvalidInput]


def _field(of: type, steps: Sequence[str | int]) -> _Field:
    """What the struct says of the field at this place; nothing where there is none."""
    at: inspect.Type | None = inspect.type_info(of)
    for step in steps:
        at = _below(at, step)
    extra: dict[str, Any] = {}
    description = ""
    if isinstance(at := _given(at), inspect.Metadata):
        extra, description = at.extra or {}, (at.extra_json_schema or {}).get("description", "")
    return _Field(list(_fields(at)), description, extra.get("raises", InvalidInput))


def _below(at: inspect.Type | None, step: str | int) -> inspect.Type | None:
    if isinstance(step, str):
        return _fields(_given(at)).get(step)
    at = _given(at)
    inner = at.type if isinstance(at, inspect.Metadata) else at
    return inner.item_type if isinstance(inner, inspect.ListType) else None


def _given(at: inspect.Type | None) -> inspect.Type | None:
    """The type that a field has where it is not null."""
    if isinstance(at, inspect.UnionType):
        return next(each for each in at.types if not isinstance(each, inspect.NoneType))
    return at


def _fields(at: inspect.Type | None) -> dict[str, inspect.Type]:
    at = at.type if isinstance(at, inspect.Metadata) else at
    return {field.encode_name: field.type for field in at.fields} if isinstance(at, inspect.StructType) else {}


def _sent(body: bytes, steps: Sequence[str | int]) -> Any:
    """The value at this place of the body, None where there is none."""
    try:
        value = msgspec.json.decode(body)
        for step in steps:
            value = value[step]
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError):
        return None
    return value


def _structs(of: type) -> Iterator[inspect.StructType]:
    """Those that a body consists of."""
    inner: list[inspect.Type] = [inspect.type_info(of)]
    for each in inner:
        match each:
            case inspect.StructType(fields=fields):
                inner += [field.type for field in fields]
                yield each
            case inspect.UnionType(types=types):
                inner += types
            case inspect.Metadata(type=kind) | inspect.ListType(item_type=kind):
                inner.append(kind)


def _complete(schema: Schema, struct: inspect.StructType) -> None:
    """What Litestar does not say of a struct: that it is closed, and a least value of 0 where null is accepted."""
    if struct.forbid_unknown_fields:
        schema.additional_properties = False
    for field in struct.fields:
        at, documented = _given(field.type), (schema.properties or {}).get(field.encode_name)
        kind = at.type if isinstance(at, inspect.Metadata) else at
        if isinstance(documented, Schema) and isinstance(kind, inspect.IntType | inspect.FloatType) and kind.ge == 0:
            documented.minimum = 0


class JsonBody(AbstractDTO[Any]):
    """`decode` where Litestar would convert leniently. A body without a content type is taken for JSON."""

    asgi_connection: Request[Any, Any, Any]

    @classmethod
    def create_for_field_definition(
        cls, field_definition: FieldDefinition, handler_id: str, backend_cls: Any = None
    ) -> None:
        """The annotation is all there is to know."""

    @classmethod
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any
    ) -> Reference | Schema:
        schema: Reference | Schema = schema_creator.for_field_definition(field_definition)
        structs = {
            f"{each.cls.__module__}.{each.cls.__qualname__}": each for each in _structs(field_definition.annotation)
        }
        for registered in schema_creator.schema_registry:
            if struct := structs.get(".".join(registered.key)):
                _complete(registered.schema, struct)
        return schema

    def decode_bytes(self, value: bytes) -> Any:
        media_type = self.asgi_connection.content_type[0]
        if media_type not in ("", "application/json") and not media_type.endswith("+json"):
            raise HTTPException(status_code=HTTP_415_UNSUPPORTED_MEDIA_TYPE)
        annotated = cast(FieldDefinition, self.asgi_connection.route_handler.parsed_data_field)
        return decode(annotated.annotation, value)
