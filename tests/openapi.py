"""The OpenAPI document, without a server: `python -m tests.openapi` prints it.

`python -m tests.openapi OLD` compares it with a file that was printed, or with the document of a revision of git: what
differs in paths, fields, types and statuses is printed, with exit status 1. Texts are not compared, nor names of schemas.
"""

import inspect
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from litestar.di import Dependency
from litestar.serialization import decode_json, encode_json, get_serializer

from rag_app.http.entrance import Access, Entrance
from rag_app.http.server import api, ready
from rag_app.surfaces import registry

TEXTS = frozenset(["summary", "description", "title", "example", "examples", "operationId", "tags", "info"])
NAMES = ("properties", "paths", "schemas", "responses", "headers", "content")
"""What is in these is named by the API: a property may be called "title"."""


def build_document() -> dict[str, Any]:
    """The document of all surfaces. Their services are not called: nothing stands behind them."""
    handlers = [handler for surface in registry.SURFACES for handler in surface.handlers] + [ready]
    services = {
        name: None
        for handler in handlers
        for name, parameter in inspect.signature(handler.fn).parameters.items()
        if any(isinstance(each, Dependency) for each in getattr(parameter.annotation, "__metadata__", ()))
    }
    nobody = cast(Any, None)
    entrance = Entrance(nobody)
    app = api(services, Access(nobody, nobody, nobody, nobody), entrance, registry.SURFACES, version="")
    return cast("dict[str, Any]", decode_json(encode_json(app.openapi_schema.to_schema(), get_serializer())))


def facts(document: dict[str, Any]) -> set[str]:
    """What can be asked and is returned: a line for each part and each value, at the path to it; schemas where they are used."""
    return {*_facts(document["paths"], "", document["components"]["schemas"], ("paths",))}


def _facts(value: Any, at: str, schemas: dict[str, Any], inside: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict) and "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        if name in inside:
            yield f"{at}: as above, {inside[::-1].index(name)} steps"
        else:
            yield from _facts(schemas[name], at, schemas, (*inside, name, "$ref"))
    elif isinstance(value, dict):
        yield at
        for key, each in value.items():
            if key not in TEXTS or inside[-1] in NAMES:
                yield from _facts(each, f"{at}/{key.replace('/', '.')}", schemas, (*inside, key))
    elif isinstance(value, list):
        plain = all(not isinstance(each, dict | list) for each in value)
        for place, each in enumerate(value):
            where = each["name"] if isinstance(each, dict) and "name" in each else "" if plain else place
            yield from _facts(each, f"{at}/{where}", schemas, (*inside, "[]"))
    else:
        yield f"{at}: {json.dumps(value)}"


def document_of(revision: str) -> dict[str, Any]:
    """The document of a revision: this file is run over its files, also where it had no such file."""
    files = subprocess.run(["git", "archive", revision], check=True, capture_output=True).stdout
    with TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(folder, filter="data")
        command = [sys.executable, "-c", Path(__file__).read_text("utf-8")]
        printed = subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout
    return cast("dict[str, Any]", json.loads(printed))


def main(arguments: list[str]) -> int:
    document = build_document()
    if not arguments:
        print(json.dumps(document, indent=1, ensure_ascii=False))
        return 0
    file = Path(arguments[0])
    old = facts(json.loads(file.read_text("utf-8")) if file.exists() else document_of(arguments[0]))
    new = facts(document)
    for line in sorted(old ^ new):
        print("-" if line in old else "+", line)
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
