"""JSON bodies, decoded strictly: what is refused is named, with what would be accepted."""

import re
from functools import cache
from typing import Any, TypeVar, cast

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

_REFUSAL = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_NAMED = re.compile(r"Object (?P<problem>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_LONGEST_NAME = 100


@cache
def _decoder(of: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(of)


def decode(of: type[T], body: bytes) -> T:
    """The struct that the body holds. Nothing is converted: "5" is no number.

    Raises InvalidInput with the path of the field and its description, or UnknownField with those there are.

    >>> from typing import Annotated
    >>> class Page(msgspec.Struct):
    ...     size: Annotated[int, msgspec.Meta(le=50, description="a whole number up to 50")]
    >>> decode(Page, b'{"size": 51}')
    Traceback (most recent call last):
    rag_app.domain.errors.InvalidInput: size: must be a whole number up to 50
    """
    try:
        return cast(T, _decoder(of).decode(body))
    except msgspec.ValidationError as error:
        raise _refused(of, str(error)) from None
    except UnicodeDecodeError:
        raise InvalidInput("", None, "The body is not valid UTF-8") from None
    except msgspec.DecodeError:
        raise InvalidInput("", None, "The body is not valid JSON") from None


def _refused(of: type, message: str) -> InvalidInput:
    """msgspec says where and what; what is accepted stands in the description of the field."""
    refusal = _REFUSAL.fullmatch(message)
    problem, path = (refusal["problem"], refusal["path"] or "") if refusal else (message, "")
    if named := _NAMED.fullmatch(problem):
        names, _ = _accepted(of, path)
        name = named["name"][:_LONGEST_NAME]
        path = f"{path}.{name}" if path else name
        if named["problem"] == "contains unknown":
            return UnknownField(path, names)
        problem = "is required"
    if not path:
        return InvalidInput("", None, "The body must be a JSON object")
    _, description = _accepted(of, path)
    return InvalidInput(path, None, f"must be {description}" if description else problem)


def _accepted(of: type, path: str) -> tuple[list[str], str]:
    """Of the field at `path` ("filters.lang"): the names of its own fields, and its description."""
    fields, description = _fields(inspect.type_info(of))
    for name in filter(None, path.split(".")):
        if name not in fields:  # an element of a list, or a name made up to look like a path
            return list(fields), ""
        fields, description = _fields(fields[name])
    return list(fields), description


def _fields(of: inspect.Type) -> tuple[dict[str, inspect.Type], str]:
    description = ""
    if isinstance(of, inspect.UnionType):
        of = next(each for each in of.types if not isinstance(each, inspect.NoneType))
    if isinstance(of, inspect.Metadata):
        description, of = (of.extra_json_schema or {}).get("description", ""), of.type
    fields = of.fields if isinstance(of, inspect.StructType) else ()
    return {field.encode_name: field.type for field in fields}, description


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
        return schema

    def decode_bytes(self, value: bytes) -> Any:
        media_type = self.asgi_connection.content_type[0]
        if media_type not in ("", "application/json") and not media_type.endswith("+json"):
            raise HTTPException(status_code=HTTP_415_UNSUPPORTED_MEDIA_TYPE)
        annotated = cast(FieldDefinition, self.asgi_connection.route_handler.parsed_data_field)
        return decode(annotated.annotation, value)
