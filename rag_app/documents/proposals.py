"""Proposes for index.toml how a table is read, and what its rows are called in questions.

Types are guessed from all of its values. A key, a date, a title, a sentence and a kind of record are chosen.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from jinja2 import StrictUndefined, Template
from msgspec import Struct

from rag_app.documents.documents import Document
from rag_app.documents.ingest import offered_files
from rag_app.documents.readers.formats import attempt, format_of
from rag_app.documents.readers.rows import typed_value
from rag_app.documents.reading import File, Readers
from rag_app.domain import FieldType, RowMapping, RowsRule, column_name
from rag_app.retrieval.index import RESERVED_FIELDS, IndexSpec

# In this order: a column of 0 and 1 is one of numbers.
_GUESSED_TYPES = (FieldType.INTEGER, FieldType.NUMBER, FieldType.TIME, FieldType.BOOLEAN)
_FORMATS = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d", "%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d %Y")
_MOST_ROWS = 100_000  # of a table that are looked at
_LONGEST_KEYWORD = 100  # characters; a column with a longer value is text
_FIELD = re.compile("[a-z][a-z0-9_]{0,30}")
# A header such as `Price (EUR)`.
_WITH_UNIT = re.compile(r"(?P<name>[^()\[\]]+?)\s*[(\[](?P<unit>[^()\[\]]{1,20})[)\]]")
_NAMES_A_ROW = re.compile("(?:^|_)(?:id|key|no|nr|number|sku|code|uuid)$")


class _Column(Struct, frozen=True):
    """What the values of a column have in common. `formats` are the notations of dates that fit all of them.

    `kind` is None for free text, which is searched and not filtered.
    """

    kind: FieldType | None
    formats: list[str]
    filled: int
    distinct: int
    longest: int


def _describe_column(values: Counter[str]) -> _Column:
    formats = [each for each in ("", *_FORMATS) if all(_fits(FieldType.TIME, value, each) for value in values)]
    fitting = (
        kind
        for kind in _GUESSED_TYPES
        if (formats if kind is FieldType.TIME else all(_fits(kind, value) for value in values))
    )
    longest = max(map(len, values))
    kind = next(fitting, FieldType.KEYWORD if longest <= _LONGEST_KEYWORD else None)
    return _Column(kind, formats, values.total(), len(values), longest)


def propose(readers: Readers, paths: Iterable[Path], exclude: Sequence[str], spec: IndexSpec) -> Iterator[str]:
    """An index.toml for each table below `paths` that no rule of the index matches."""
    files = [
        File(path, path.name, "", path.parent, RowMapping((RowsRule(),), {}, as_written=True))
        for _, path in offered_files(paths, exclude)
        if (known := format_of(path.name))
        and known.rows
        and not any(rule.matches(path.as_posix()) for rule in spec.rows)
    ]
    with closing(readers.read_all(files)) as reading:
        for file, documents in reading:
            columns = defaultdict[str, Counter[str]](Counter)
            rows = 0
            for document in documents:
                if isinstance(document, Document) and document.row is not None:
                    rows += 1
                    for name, value in document.metadata.items():
                        if text := str(value):
                            columns[name][text] += 1
                if rows == _MOST_ROWS:
                    break
            if rows:
                yield _proposal(
                    file.path.name, rows, {name: _describe_column(values) for name, values in columns.items()}
                )


def _fits(kind: FieldType, value: str, written: str = "") -> bool:
    rule = RowsRule(date_formats=(written,) if written else ())
    return attempt(lambda: typed_value(kind, value, rule)) is not None


def _proposal(file: str, rows: int, columns: Mapping[str, _Column]) -> str:
    kinds = {name: column.kind for name, column in columns.items()}
    key = _key(rows, columns)
    times = {name: columns[name].formats for name, kind in kinds.items() if kind is FieldType.TIME}
    date = next(iter(times), None)
    fields = {name: _field_name(name) for name, kind in kinds.items() if kind is not None and name != date}
    formats = {written[0] for written in times.values()} - {""}
    renamed = {name: field for name, field in fields.items() if field != column_name(name)}
    template: Template = Template(
        Path(__file__).with_name("proposal.txt").read_text("utf-8"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return template.render(
        file=_toml(file),
        shown=file,
        rows=f"{rows:,}",
        fields=[(field, _declaration(name, kinds[name])) for name, field in fields.items()],
        key=key and _toml(key),
        date=date and _toml(date),
        formats=formats and json.dumps(sorted(formats)),
        times=times,
        renamed={_toml(name): _toml(field) for name, field in renamed.items()},
        title=_toml(_title(key, date, columns)),
        text=_toml(_sentence(columns)),
        called=_what_a_row_is(file, key),
    )


def _declaration(column: str, kind: FieldType | None) -> str:
    """A field's type; of a number, also what people call it and its unit, where the header has both."""
    header = _WITH_UNIT.fullmatch(column.strip())
    if header is None or kind not in (FieldType.INTEGER, FieldType.NUMBER):
        return f'"{kind}"'
    return f'{{ type = "{kind}", words = [{_toml(header["name"].lower())}], unit = {_toml(header["unit"])} }}'


def _what_a_row_is(file: str, key: str | None) -> str:
    """`order`, for a key called `order_id` or a file `orders-2026.csv`."""
    by_key = _NAMES_A_ROW.sub("", column_name(key or ""))
    names = [by_key] if by_key and by_key != column_name(key or "") else re.findall("[a-z]+", Path(file).stem.lower())
    name = "".join(letter for letter in (names or [""])[-1] if letter.isascii())
    singular = name.removesuffix("s") if not name.endswith("ss") else name
    return singular if _FIELD.fullmatch(singular) else "row"


def _key(rows: int, columns: Mapping[str, _Column]) -> str | None:
    """A column without missing or repeated values: one named like a key, or else the first."""
    unique = [name for name, column in columns.items() if column.filled == rows == column.distinct]
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
