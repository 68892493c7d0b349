"""Reads the questions in questions/*.txt, each over a made-up table with the query that it means (README.md)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

FOLDER = Path(__file__).parent / "questions"
NUMBERS = ("number", "integer")
OPERATORS = {"=": "=="}
"""As a query writes what a file has shorter."""
_PART = re.compile(r'(title)="([^"]*)"|(\w+) (has) ("[^"]*"|\S+)|(\w+)(!=|<=|>=|=|<|>)("[^"]*"|\S+)|(own)|(\S+)')
_QUERY = re.compile(r"(\w+) (list|count|sum|average)(?:\((\w+)\))?(?: |$)(.*)$")


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    words: tuple[str, ...]
    unit: str = ""
    values: tuple[str, ...] = ()
    high: tuple[str, ...] = ()
    low: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """The kinds that have it."""
    header: str = ""
    """The name of the column in its file."""
    said: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Values with what else they are called."""


@dataclass(frozen=True)
class Query:
    kind: str
    operation: str
    of: str | None = None
    filters: tuple[tuple[str, str, str], ...] = ()
    own: bool = False
    title: str = ""
    group: str | None = None
    grain: str | None = None
    order: str | None = None
    descending: bool = False
    limit: int | None = None
    show: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        """The fields that it needs."""
        used = {self.of, self.group, self.order, *(name for name, _, _ in self.filters)}
        return {name for name in used if name not in (None, "date", "value")}

    def rename(self, names: Mapping[str, str]) -> "Query":
        """The same query over fields that are called otherwise."""

        def called(name: str | None) -> str | None:
            return names.get(name, name) if name is not None else None

        return replace(
            self,
            of=called(self.of),
            group=called(self.group),
            order=called(self.order),
            filters=tuple((names.get(name, name), sign, value) for name, sign, value in self.filters),
            show=tuple(names.get(name, name) for name in self.show),
        )


@dataclass(eq=False)
class Schema:
    name: str
    kinds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fields: dict[str, Field] = field(default_factory=dict)
    titles: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether it says what the columns are called in their file."""
        return any(each.header for each in self.fields.values())


@dataclass(frozen=True)
class Asked:
    """A question over a schema; `query` is None where no query says it."""

    text: str
    query: Query | None
    schema: Schema


def _split(text: str, by: str = ",") -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(by) if part.strip())


def questions(files: Iterable[Path]) -> list[Asked]:
    found: list[Asked] = []
    schema, text = Schema(""), ""
    for file in sorted(files):
        for line in map(str.strip, file.read_text("utf-8").splitlines()):
            if line.startswith("# schema "):
                schema = Schema(line.removeprefix("# schema "))
            elif line.startswith("kind "):
                name, words = line.removeprefix("kind ").split(":", 1)
                schema.kinds[name.strip()] = _split(words)
            elif line.startswith("field "):
                made = _read_field(line.removeprefix("field "))
                schema.fields[made.name] = made
            elif line.startswith("column "):
                name, header = line.removeprefix("column ").split(":", 1)
                schema.fields[name] = replace(schema.fields[name], header=header.strip())
            elif line.startswith("of "):
                kind, names = line.removeprefix("of ").split(":", 1)
                for name in _split(names):
                    has = schema.fields[name]
                    schema.fields[name] = replace(has, kinds=(*has.kinds, kind.strip()))
            elif line.startswith(("high ", "low ")):
                end, _, rest = line.partition(" ")
                name, words = rest.split(":", 1)
                has = schema.fields[name.strip()]
                said = _split(words)
                schema.fields[has.name] = replace(has, high=said) if end == "high" else replace(has, low=said)
            elif line.startswith("titles "):
                name, titles = line.removeprefix("titles ").split(":", 1)
                schema.titles[name.strip()] = _split(titles, ";")
            elif line.startswith(">"):
                text = line.removeprefix(">").strip()
            elif line:
                found.append(Asked(text, read_query(line), schema))
    return found


def _read_field(line: str) -> Field:
    head, words, *more = (part.strip() for part in line.split("|"))
    name, type_ = head.split()
    numeric = type_ in NUMBERS
    told = more[0] if more else ""
    return Field(name, type_, _split(words), told if numeric else "", () if numeric else _split(told))


def read_query(line: str) -> Query | None:
    """
    >>> read_query('rental list skipper="Anna Wolf" price>20 order=-price limit=1').filters
    (('skipper', '=', 'Anna Wolf'), ('price', '>', '20'))
    >>> read_query("none") is None
    True
    """
    if line == "none":
        return None
    if (found := _QUERY.match(line)) is None:
        raise ValueError(f"no query: {line}")
    query = Query(found[1], found[2], found[3])
    for part in _PART.finditer(found[4]):
        query = _with_part(query, part)
    return query


def _with_part(query: Query, part: re.Match[str]) -> Query:
    if part[1]:
        return replace(query, title=part[2])
    if part[4]:
        return replace(query, filters=(*query.filters, (part[3], "=", part[5].strip('"'))))
    if part[9]:
        return replace(query, own=True)
    if part[6] is None:
        raise ValueError(f"what is {part[0]}")
    name, sign, value = part[6], part[7], part[8].strip('"')
    if sign == "=" and name == "title":
        return replace(query, title=value)
    if sign == "=" and name == "group":
        timed = value in ("day", "week", "month", "year")
        return replace(query, group="date" if timed else value, grain=value if timed else None)
    if sign == "=" and name == "order":
        return replace(query, order=value.lstrip("-"), descending=value.startswith("-"))
    if sign == "=" and name == "limit":
        return replace(query, limit=int(value))
    if sign == "=" and name == "show":
        return replace(query, show=tuple(value.split(",")))
    return replace(query, filters=(*query.filters, (name, sign, value)))


def is_aside(schema: str, of: int = 6) -> bool:
    """Whether a schema is put aside: one of six is."""
    return crc32(schema.encode()) % of == 0
