"""The OpenAPI document: Litestar's own, completed for the generators of clients."""

import json
from collections.abc import Iterator
from typing import Any

from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import OpenAPI

from rag_app.domain import JsonObject
from rag_app.http.fields import COMPONENT

_EXAMPLES = frozenset({"example", "examples"})
_RETRY_AFTER = {
    "schema": {"type": "integer", "minimum": 0},
    "description": "seconds to wait before the next attempt; absent where the server does not know them",
}
_MAY_BE_RETRIED = ("429", "500", "503")


class DocumentConfig(OpenAPIConfig):
    """Litestar's configuration, of a document that is completed."""

    def to_openapi_schema(self) -> OpenAPI:
        return _Document(**vars(super().to_openapi_schema()))


class _Document(OpenAPI):
    def to_schema(self) -> JsonObject:
        return complete(super().to_schema())


def complete(document: JsonObject) -> JsonObject:
    """Names the schemas that stand in `$defs`, states defaults in words, and declares `Retry-After`.

    Generators take a field with a `default` for one that is always there: TypeScript requires it, Python sends it. So no field
    has one. The description of a request's field tells it; a field of a response is absent, or has its value.
    """
    schemas = document["components"]["schemas"]
    for node in [*_nodes(document)]:
        for name, schema in node.pop("$defs", {}).items():
            schemas.setdefault(name, schema)
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    sent = _reachable([each.get("requestBody") for each in operations], schemas)
    for name, schema in schemas.items():
        for node in _nodes(schema):
            for described in node.get("properties", {}).values():
                _omit_default(described, is_sent=name in sent)
    for operation in operations:
        for status in _MAY_BE_RETRIED:
            if status in operation["responses"]:
                operation["responses"][status].setdefault("headers", {})["Retry-After"] = _RETRY_AFTER
    return document


def _nodes(part: Any) -> Iterator[JsonObject]:
    """The objects of a part of the document, without those in examples."""
    if isinstance(part, dict):
        yield part
        for name, inner in part.items():
            if name not in _EXAMPLES:
                yield from _nodes(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _nodes(inner)


def _reachable(parts: Any, schemas: JsonObject) -> set[str]:
    """The names of the schemas that parts refer to, and of those that these refer to."""
    found: set[str] = set()
    waiting = [parts]
    while waiting:
        for node in _nodes(waiting.pop()):
            name = str(node.get("$ref", "")).removeprefix(COMPONENT)
            if name in schemas and name not in found:
                found.add(name)
                waiting.append(schemas[name])
    return found


def _omit_default(described: JsonObject, *, is_sent: bool) -> None:
    """
    >>> size = {"type": "integer", "default": 8, "description": "a whole number"}
    >>> _omit_default(size, is_sent=True)
    >>> size
    {'type': 'integer', 'description': 'a whole number; 8 by default'}
    """
    default = described.pop("default", None)
    if not is_sent:
        for kind in described.get("oneOf", []):
            kind.pop("default", None)
    elif default not in (None, "", [], {}):
        words = f"{json.dumps(default)} by default"
        described["description"] = f"{described['description']}; {words}" if "description" in described else words
