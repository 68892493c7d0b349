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
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from rag_app.domain.filters import FieldType, Filters
from rag_app.retrieval.filters import all_of, any_of, condition, epoch_seconds, none_of, or_missing
from rag_app.retrieval.index import IndexSpec
from tests.stores.conftest import chunk, vector

PAGE = (Path(__file__).parents[2] / "docs" / "filters.md").read_text("utf-8")

ORGANIZATION, FOREIGN = UUID(int=0xA), UUID(int=0xB)
OWNER = UUID(int=0xC)
"""Of what is private in the example."""

_CONDITION = re.compile(r"(\w+) (==|!=|nin|in|any|all|>=|<=|>|<|contains) ")
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
    >>> conditions('not (author == "Ann" or not (price < 1))')[0].condition.value
    'not'
    """
    found, rest = _joined(written, " and ")
    assert not rest, f"not a condition: {rest}"
    return tuple(found)


def _joined(written: str, sign: str) -> tuple[list[MetadataFilter | MetadataFilters], str]:
    """Those that this joins, and what follows them."""
    one, rest = _one(written)
    found = [one]
    while rest.startswith(sign):
        one, rest = _one(rest.removeprefix(sign))
        found.append(one)
    return found, rest


def _one(written: str) -> tuple[MetadataFilter | MetadataFilters, str]:
    if matched := re.match(r"(not )?\(", written):
        inner = written[matched.end() :]
        for sign, group in ((" or ", none_of if matched[1] else any_of), (" and ", all_of)):
            found, rest = _joined(inner, sign)
            if rest.startswith(")"):
                joined = group(found)
                return (none_of([joined]) if matched[1] and group is all_of else joined), rest[1:]
        raise AssertionError(f"no group: {written}")
    if matched := re.match(r"(\w+) is_empty", written):
        return condition(matched[1], "is_empty"), written[matched.end() :]
    matched = _CONDITION.match(written)
    assert matched, f"not a condition: {written}"
    value, position = json.JSONDecoder().raw_decode(written, matched.end())
    found_ = condition(matched[1], matched[2], value)
    rest = written[position:]
    if rest.startswith(" or missing"):
        return or_missing(found_), rest.removeprefix(" or missing")
    return found_, rest


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
