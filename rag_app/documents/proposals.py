"""Proposes a table's mapping for index.toml: types guessed from all of its values, a key, a date, a title and a sentence."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from rag_app.documents.documents import Document
from rag_app.documents.ingest import offered_files
from rag_app.documents.readers.formats import format_of
from rag_app.documents.readers.rows import typed_value
from rag_app.documents.reading import File, Readers
from rag_app.domain import FieldType, RowMapping, RowsRule, column_name
from rag_app.retrieval.index import RESERVED_FIELDS, IndexSpec

_GUESSED_TYPES = (FieldType.INTEGER, FieldType.NUMBER, FieldType.TIME, FieldType.BOOLEAN)
"""In this order: a column of 0 and 1 is one of numbers."""
_FORMATS = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d", "%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d %Y")
_MOST_ROWS = 100_000
"""Of a table that are looked at."""
_LONGEST_KEYWORD = 100  # characters; a column with a longer value is text
_FIELD = re.compile("[a-z][a-z0-9_]{0,30}")
_NAMES_A_ROW = re.compile("(?:^|_)(?:id|key|no|nr|number|sku|code|uuid)$")


@dataclass(slots=True)
class _Column:
    """What the values of a column so far have in common."""

    kinds: list[FieldType] = field(default_factory=lambda: [*_GUESSED_TYPES])
    formats: list[str] = field(default_factory=lambda: ["", *_FORMATS])
    values: set[str] = field(default_factory=set)
    filled: int = 0
    longest: int = 0

    def add(self, value: str) -> None:
        self.filled += 1
        self.longest = max(self.longest, len(value))
        if value in self.values:
            return
        self.values.add(value)
        if FieldType.TIME in self.kinds:
            self.formats = [each for each in self.formats if _fits(FieldType.TIME, value, each)]
        self.kinds = [kind for kind in self.kinds if (self.formats if kind is FieldType.TIME else _fits(kind, value))]

    @property
    def kind(self) -> FieldType | None:
        """The field type; None for free text, which is searched and not filtered."""
        if self.kinds:
            return self.kinds[0]
        return FieldType.KEYWORD if self.longest <= _LONGEST_KEYWORD else None


def propose(readers: Readers, paths: Iterable[Path], exclude: Sequence[str], spec: IndexSpec) -> Iterator[str]:
    """A section of an index.toml for each table below `paths` that no rule of the index matches."""
    files = [
        File(path, path.name, "", path.parent, RowMapping((RowsRule(),), {}, as_written=True))
        for _, path in offered_files(paths, exclude)
        if (known := format_of(path.name))
        and known.rows
        and not any(rule.matches(path.as_posix()) for rule in spec.rows)
    ]
    with closing(readers.read_all(files)) as reading:
        for file, documents in reading:
            columns: dict[str, _Column] = {}
            rows = 0
            for document in documents:
                if isinstance(document, Document) and document.row is not None:
                    rows += 1
                    for name, value in document.metadata.items():
                        if text := str(value):
                            columns.setdefault(name, _Column()).add(text)
                if rows == _MOST_ROWS:
                    break
            if rows:
                yield _proposal(file.path.name, rows, columns)


def _fits(kind: FieldType, value: str, written: str = "") -> bool:
    try:
        typed_value(kind, value, RowsRule(date_formats=(written,) if written else ()))
    except ValueError:
        return False
    return True


def _proposal(file: str, rows: int, columns: Mapping[str, _Column]) -> str:
    kinds = {name: column.kind for name, column in columns.items()}
    key = _key(rows, columns)
    date = next((name for name, kind in kinds.items() if kind is FieldType.TIME), None)
    fields = {name: _field_name(name) for name, kind in kinds.items() if kind is not None and name != date}
    formats = {columns[name].formats[0] for name, kind in kinds.items() if kind is FieldType.TIME} - {""}
    renamed = {name: field for name, field in fields.items() if field != column_name(name)}
    lines = [f"# {file}: {rows:,} rows, types guessed from all of their values", "[fields]"]
    lines += [f'{field} = "{kinds[name]}"' for name, field in fields.items()]
    lines += ["", "[[rows]]", f"files = {_toml(file)}"]
    lines += (
        [f"key = {_toml(key)}"] if key else ["# key: no column tells the rows apart; they are named by their numbers"]
    )
    lines += [f"date = {_toml(date)}"] if date else []
    lines += [f"date_formats = {json.dumps(sorted(formats))}"] if formats else []
    lines += [f"# {name}: could be {' or '.join(each)}: say which" for name, each in _doubtful(columns).items()]
    if renamed:
        pairs = ", ".join(f"{_toml(name)} = {_toml(field)}" for name, field in renamed.items())
        lines.append(f"columns = {{{pairs}}}")
    lines.append(f"title = {_toml(_title(key, date, columns))}")
    lines.append(f"text = {_toml(_sentence(columns))}")
    return "\n".join(lines)


def _doubtful(columns: Mapping[str, _Column]) -> dict[str, list[str]]:
    """Columns of dates that fit several notations: 05/01/2026 may be 5 January or 1 May."""
    times = {name: column.formats for name, column in columns.items() if column.kind is FieldType.TIME}
    return {name: formats for name, formats in times.items() if formats[0] and len(formats) > 1}


def _key(rows: int, columns: Mapping[str, _Column]) -> str | None:
    """A column without missing or repeated values: one named like a key, or else the first."""
    unique = [name for name, column in columns.items() if column.filled == rows == len(column.values)]
    called = [name for name in unique if _NAMES_A_ROW.search(column_name(name))]
    short = [name for name in unique if columns[name].longest <= _LONGEST_KEYWORD]
    return next(iter([*called, *short]), None)


def _title(key: str | None, date: str | None, columns: Mapping[str, _Column]) -> str:
    words = (name for name, column in columns.items() if column.kind is FieldType.KEYWORD)
    chosen = [name for name in (next(words, None), date, key) if name is not None]
    return ", ".join(f"{{{name}}}" for name in dict.fromkeys(chosen)) or f"{{{next(iter(columns))}}}"


def _sentence(columns: Iterable[str]) -> str:
    """A sentence of each column with its name; empty cells are omitted."""
    first, *others = (f"{name.replace('_', ' ')}: {{{name}}}" for name in columns)
    return first + "".join(f"[; {each}]" for each in others) + "."


def _field_name(column: str) -> str:
    name = "".join(letter for letter in column_name(column) if letter.isascii())[:24]
    if not _FIELD.fullmatch(name) or name in RESERVED_FIELDS or name in ("title", "lang", "uri"):
        name = f"record_{name}".rstrip("_")
    return name


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
