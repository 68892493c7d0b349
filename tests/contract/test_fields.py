"""What leaves is listed: the fields of each response, by the OpenAPI document, are those of the surface's `fields.toml`."""

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from rag_app.http.surface import surface_of
from rag_app.surfaces.registry import SURFACES

LISTED = {
    room: [surface for surface in SURFACES if surface.handlers[0].fn.__module__.startswith(f"{room}.")]
    for room in sorted({surface.handlers[0].fn.__module__.rpartition(".")[0] for surface in SURFACES})
}


def schemas_of(shape: Any, components: dict[str, Any], found: dict[str, set[str]]) -> None:
    """Add the fields of each object that a schema refers to, however deep."""
    if isinstance(shape, list):
        for each in shape:
            schemas_of(each, components, found)
    elif isinstance(shape, dict):
        name = shape.get("$ref", "").rpartition("/")[2]
        if name and name not in found:
            found[name] = set(components[name].get("properties", ()))
            schemas_of(components[name], components, found)
        schemas_of(list(shape.values()), components, found)


@pytest.mark.parametrize("room", LISTED)
def test_what_leaves_is_listed(room: str, document: dict[str, Any]) -> None:
    leaves: dict[str, set[str]] = {}
    for path, operations in document["paths"].items():
        if surface_of(path, SURFACES) in LISTED[room]:
            for operation in operations.values():
                for response in operation["responses"].values():
                    shapes = [media["schema"] for media in response.get("content", {}).values()]
                    nameless = [each for each in shapes if "properties" in each]
                    # what Litestar adds by itself where it converts a parameter; errors come in the surface's envelope
                    assert not nameless or response["description"] == "Bad request syntax or unsupported method", path
                    schemas_of(shapes, document["components"]["schemas"], leaves)
    listed = tomllib.loads((files(room) / "fields.toml").read_text("utf-8"))
    for name, entry in listed.items():
        assert set(entry) <= {"seed", "added"} and all(entry.get("added", {"": "-"}).values()), name
    fields = {name: {*entry.get("seed", ()), *entry.get("added", ())} for name, entry in listed.items()}
    assert {name: names for name, names in leaves.items() if names} == fields
