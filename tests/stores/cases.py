"""The example index, its chunks and the cases of docs/filters.md, as they stand there."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from llama_index.core.schema import TextNode

from rag_app.domain.filters import Condition, FieldType, Filters, Operator
from rag_app.retrieval.filters import epoch_seconds
from rag_app.retrieval.index import IndexSpec
from tests.stores.conftest import chunk, vector

PAGE = (Path(__file__).parents[2] / "docs" / "filters.md").read_text("utf-8")

ORGANIZATION, FOREIGN = UUID(int=0xA), UUID(int=0xB)
OWNER = UUID(int=0xC)
"""Of what is private in the example."""

_CONDITION = re.compile(r"(\w+) (==|in|>=|<=|>|<|has) ")
_REFUSED = "refused: "


@dataclass(frozen=True, slots=True)
class Case:
    """`finds`: the names of chunks. `refused`: how the error begins, None where there is to be none."""

    written: str
    filters: Filters
    finds: frozenset[str]
    refused: str | None


def rows(header: str) -> Iterator[tuple[str, str]]:
    """The two cells of each row of the table that begins with this header."""
    (table,) = re.findall(rf"^\| {re.escape(header)} \|\n\|[-| ]+\|\n((?:\|.*\|\n)+)", PAGE, re.MULTILINE)
    for line in table.splitlines():
        first, second = (cell.strip().strip("`") for cell in line.strip("|").rsplit("|", 1))
        if second:  # without it, a heading
            yield first, second


def conditions(written: str) -> Filters:
    """
    >>> conditions('price in [1, 2] or missing and author == "Ann and Bob"')[1].value
    'Ann and Bob'
    """
    found, position = [], 0
    while matched := _CONDITION.match(written, position):
        value, position = json.JSONDecoder().raw_decode(written, matched.end())
        lenient = written.startswith(" or missing", position)
        position += len(" or missing") * lenient
        found.append(
            Condition(matched[1], Operator(matched[2]), tuple(value) if isinstance(value, list) else value, lenient)
        )
        position += len(" and ") * written.startswith(" and ", position)
    assert position == len(written), f"not a condition: {written[position:]}"
    return tuple(found)


def cases() -> Iterator[Case]:
    for written, finds in rows("conditions | finds"):
        refused = finds.removeprefix(_REFUSED) if finds.startswith(_REFUSED) else None
        names = frozenset() if refused or finds == "-" else frozenset(finds.split(", "))
        yield Case(written, conditions(written), names, refused)


def spec() -> IndexSpec:
    (declared,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return IndexSpec(name="filters", **tomllib.loads(declared))


def chunks(of: IndexSpec) -> list[TextNode]:
    """Those that the cases ask for; each text is the chunk's name."""
    return [_node(of, ORGANIZATION, name, fields) for name, fields in rows("chunk | fields")]


def unseen(of: IndexSpec) -> list[TextNode]:
    """Those that no case finds."""
    found = []
    for name, fields in rows("unseen | fields"):
        private = {"private_to": str(OWNER), "owner_id": str(OWNER)} if name.startswith("private") else {}
        found.append(_node(of, ORGANIZATION if private else FOREIGN, name, fields, **private))
    return found


def _node(of: IndexSpec, org: UUID, name: str, fields: str, **meta: Any) -> TextNode:
    said = json.loads(fields)
    times = [field for field, kind in of.all_fields.items() if kind is FieldType.TIME and field in said]
    said |= {field: epoch_seconds(field, said[field]) for field in times}
    source = uuid5(org, name)
    return chunk(org, name, vector(0.5), source=source, title="word", **{"date": None, **said, **meta})
