"""Rows and records to documents: each one a source of its own, as a `RowsRule` says.

    records      a table's rows under the names of its columns; an object of JSON is one already
    documents    the rule's key, typed fields, date, title and sentence; every other column is metadata without a type

A value that does not fit its type is named with row and column, and its row is kept without that field. A row without
its key is refused, and so is a table without the key's columns: nobody could tell later which row it was.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from itertools import chain, islice
from pathlib import PurePath
from typing import NamedTuple

from rag_app.documents.documents import Document, Documents, Passage
from rag_app.documents.readers.formats import Reader, clean, format_of
from rag_app.domain import FieldType, RowMapping, RowsRule, UnreadableDocument, column_name, read_table, uuid_in

_HEADER_WITHIN = 50  # rows: what stands above a table is shorter
_LONGEST_VALUE = 500  # characters of a cell that is metadata; a longer one is text alone
_MOST_METADATA = 12_000  # characters of untyped cells of a row: each chunk carries them
_OWN = {
    **dict.fromkeys(("lang", "uri", "source_type"), FieldType.KEYWORD),
    "date": FieldType.TIME,
}
_NEVER_UNTYPED = {"text", "title", *_OWN}
_PLACE = re.compile(r"\{([^{}:]+)(?::([^{}]+))?\}")
_OPTIONAL = re.compile(r"\[([^\[\]]*\{[^\[\]]*)\]")
_NUMBER = re.compile(r"([-+−]?)\s*[$€£¥]?\s*(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)\s*(?:[$€£¥%])?")
_SCIENTIFIC = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+")
_SHORT_HOUR = re.compile(r"(?<=[ T])(?=\d:\d\d)")
_YEAR_AND_MONTH = re.compile(r"\d{4}-\d\d")
_LISTS: dict[str, list[str]] = read_table(__file__)
_BOOLEANS = {word: value for key, value in (("yes", True), ("no", False)) for word in _LISTS[key]}
_PARSED_TYPES = (FieldType.INTEGER, FieldType.NUMBER, FieldType.BOOLEAN, FieldType.TIME)
_NOTHING = frozenset(_LISTS["nothing"])
"""What is written where there is no value."""


class Record(NamedTuple):
    """A row: its number as a spreadsheet counts, its cells by column.

    `problems` are of the table, said once. `id` is the name that a record of JSON gives itself.
    """

    number: int
    sheet: str | None
    cells: Mapping[str, object]
    rule: RowsRule
    problems: tuple[str, ...] = ()
    id: str | None = None


Records = Iterator[Record | Document | UnreadableDocument]
"""With a document of what is no row."""
Row = tuple[int, Mapping[int, str]]
"""The number of a row, and its cells by the number of their columns."""


# -- records


def table_records(rows: Iterable[Row], rule: RowsRule, shown: str, sheet: str | None = None) -> Records:
    """The rows below a table's header. Empty rows, and a header that comes again, are passed over.

    Raises UnreadableDocument where the header lacks a column of the key, or has one that the rule names twice.
    """
    full = ((number, cells) for number, row in rows if (cells := _cells(row)))
    first = [*islice(full, _HEADER_WITHIN)]
    if not first:
        return
    place = _header_place(first, rule, shown)
    header = first[place][1]
    names = _column_names(header, rule, shown)
    lacking = _named_columns(rule) - {*map(column_name, names.values())}
    problems = (f"no column {', '.join(sorted(lacking))}, which [rows] names",) if lacking else ()
    for number, cells in chain(first[place + 1 :], full):
        if cells != header:
            named = {names.get(column, f"column {column + 1}"): cell for column, cell in cells.items()}
            yield Record(number, sheet, named, rule, problems)
            problems = ()


def _cells(row: Mapping[int, str]) -> dict[int, str]:
    return {column: text for column, cell in row.items() if (text := " ".join(clean(cell).split()))}


def _named_columns(rule: RowsRule) -> set[str]:
    templates = (rule.id, rule.title, rule.text)
    written = (match[1] for template in templates for match in _PLACE.finditer(template))
    return {column_name(name) for name in (*rule.key, *rule.date, *rule.columns, *written)}


def _header_place(rows: Sequence[Row], rule: RowsRule, shown: str) -> int:
    """The row that names the columns: all those of the key, or else the most of those that the rule names."""
    wanted = {column_name(name) for name in rule.key} or _named_columns(rule)
    found = [len(wanted & {*map(column_name, cells.values())}) for _, cells in rows]
    best = max(found)
    if rule.key and best < len(wanted):
        columns = ", ".join(rows[found.index(best)][1].values())
        raise UnreadableDocument(shown, f"no header with {', '.join(rule.key)}, the key of its rows: {columns}"[:500])
    if best:
        return found.index(best)
    usual = max(len(cells) for _, cells in rows[:20])
    return next(place for place, (_, cells) in enumerate(rows) if len(cells) * 2 >= usual)


def _column_names(header: Mapping[int, str], rule: RowsRule, shown: str) -> dict[int, str]:
    names: dict[int, str] = {}
    taken: dict[str, int] = {}
    for column, written in header.items():
        name = column_name(written)
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1 and name in _named_columns(rule):
            raise UnreadableDocument(shown, f"column {written!r} is there twice, and [rows] names it"[:500])
        names[column] = written if taken[name] == 1 else f"{written} ({taken[name]})"
    return names


# -- documents


def row_reader(name: str, mapping: RowMapping, shown: str) -> Reader | None:
    """What reads the rows of a file of this name; None where its format holds none."""
    known = format_of(name)
    read = known.rows if known else None
    return None if read is None else lambda stream, _: row_documents(read(stream, shown, mapping.rules), mapping, shown)


def row_documents(records: Records, mapping: RowMapping, shown: str) -> Documents:
    """Each record as a document. One without its key is an error in its place.

    Raises UnreadableDocument where there is none, so that nothing is removed for a table that came empty.
    """
    stem = PurePath(shown).name.partition(".")[0]
    if (first := next(records, None)) is None:
        raise UnreadableDocument(shown, "it has no rows")
    for record in chain((first,), records):
        if not isinstance(record, Record):
            yield record
            continue
        try:
            yield _document(record, mapping, stem)
        except ValueError as error:
            yield UnreadableDocument(shown, f"{_place(record)}: {error}")


def _place(record: Record) -> str:
    return f"sheet {record.sheet!r}, row {record.number}" if record.sheet else f"row {record.number}"


def _document(record: Record, mapping: RowMapping, stem: str) -> Document:
    """Raises ValueError for a row that has no key, or nothing in it."""
    rule = record.rule
    cells = {
        name: value
        for name, value in ((column_name(each), value) for each, value in record.cells.items())
        if _text(value) and not (says_nothing(_text(value)) and _is_typed(name, rule, mapping))
    }
    texts = {name: _text(value) for name, value in cells.items()}
    key = [_key_part(texts, column) for column in rule.key]
    named = "/".join(key) or f"row {record.number}"
    problems: list[str] = []
    metadata = _metadata(record, cells, mapping, problems)
    if rule.source_type:
        metadata["source_type"] = rule.source_type
    if rule.date and (date := _date(texts, rule, problems)):
        metadata["date"] = date
    line = "; ".join(f"{name}: {_text(value)}" for name, value in record.cells.items() if column_name(name) in cells)
    own_text = cells.get("text") if isinstance(cells.get("text"), str) else None  # of JSON: newlines are kept
    text = fill(rule.text, texts, rule.date_formats) or str(own_text or line)
    if not text.strip():
        raise ValueError("no text")
    return Document(
        name=f"{record.sheet}/{named}" if record.sheet else named,
        passages=(Passage(text, record.sheet, atomic=True),),
        title=fill(rule.title, texts, rule.date_formats) or texts.get("title") or " ".join([stem, *key]),
        metadata=metadata,
        external_id=_id(rule, texts) or (None if key else record.id),
        row=record.number,
        sheet=record.sheet,
        problems=tuple(f"{_place(record)}: {problem}" for problem in [*record.problems, *problems]),
    )


def says_nothing(text: str) -> bool:
    """Whether a cell of figures, dates, or yes and no says that there is none.

    >>> says_nothing("NA"), says_nothing("n/a"), says_nothing("0")
    (True, True, False)
    """
    return text.casefold() in _NOTHING


def _is_typed(name: str, rule: RowsRule, mapping: RowMapping) -> bool:
    fields = {column_name(column): field for column, field in rule.columns.items()}
    dated = name in map(column_name, rule.date)
    return dated or mapping.fields.get(fields.get(name, name)) in _PARSED_TYPES


def _key_part(texts: Mapping[str, str], column: str) -> str:
    if value := texts.get(column_name(column)):
        return value[:_LONGEST_VALUE]
    raise ValueError(f"the key column {column} is empty: the row is skipped")


def _id(rule: RowsRule, texts: Mapping[str, str]) -> str | None:
    for match in _PLACE.finditer(rule.id):
        _key_part(texts, match[1])
    return fill(rule.id, texts, rule.date_formats)[:_LONGEST_VALUE] or None


def _metadata(
    record: Record,
    cells: Mapping[str, object],
    mapping: RowMapping,
    problems: list[str],
) -> dict[str, object]:
    """Fields in their types, and the other cells as they are, as far as they are short."""
    if mapping.as_written:
        return {name: _text(value)[:_LONGEST_VALUE] for name, value in record.cells.items()}
    typed: dict[str, object] = {}
    others: dict[str, object] = {}
    room = _MOST_METADATA
    columns = {column_name(column): field for column, field in record.rule.columns.items()}
    for written, value in record.cells.items():
        name = column_name(written)
        if name not in cells:
            continue
        field = columns.get(name, name)
        kind = mapping.fields.get(field) or _OWN.get(field)
        if kind is not None and not (field == "date" and record.rule.date):
            try:
                typed[field] = typed_value(kind, value, record.rule)
            except ValueError as error:
                problems.append(f"column {written}: {error}, not {_text(value)[:100]!r}: left out")
        elif name not in _NEVER_UNTYPED and (size := len(written) + len(_text(value))) <= min(room, _LONGEST_VALUE):
            room -= size
            others[written] = value
    return {**others, **typed}


def _date(texts: Mapping[str, str], rule: RowsRule, problems: list[str]) -> str | None:
    parts = [texts[name] for column in rule.date if (name := column_name(column)) in texts]
    for written in (parts, parts[:1]):  # a time that is none costs no day
        with suppress(ValueError):
            date = _moment(" ".join(written), rule.date_formats).isoformat()
            if written != parts:
                problems.append(f"column {rule.date[-1]}: must be a time, not {parts[-1][:100]!r}: left out")
            return date
    if parts:
        problems.append(f"column {rule.date[0]}: must be {_expected_date(rule)}, not {parts[0][:100]!r}: left out")
    return None


def _text(value: object) -> str:
    """A value as a cell of a table."""
    match value:
        case None:
            text = ""
        case bool():
            text = str(value).lower()
        case float():
            text = f"{value:.15g}" if math.isfinite(value) else ""
        case list() if not any(isinstance(each, list | dict) for each in value):
            text = ", ".join(filter(None, map(_text, value)))
        case list() | dict():
            text = json.dumps(value, ensure_ascii=False)
        case _:
            text = str(value)
    return " ".join(clean(text).split())


# -- values


def typed_value(kind: FieldType, value: object, rule: RowsRule) -> object:
    """A cell in its field's type. Raises ValueError that says what is accepted.

    >>> typed_value(FieldType.NUMBER, "£1,250.50", RowsRule()), typed_value(FieldType.INTEGER, "48.0", RowsRule())
    (1250.5, 48)
    >>> typed_value(FieldType.TIME, "5.1.2026", RowsRule(date_formats=("%d.%m.%Y",)))
    '2026-01-05T00:00:00'
    """
    text = _text(value)
    match kind:
        case FieldType.INTEGER | FieldType.NUMBER:
            return _number(text, rule.decimal, whole=kind is FieldType.INTEGER)
        case FieldType.BOOLEAN if text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        case FieldType.BOOLEAN:
            raise ValueError("must be yes or no, true or false, 1 or 0")
        case FieldType.TIME:
            try:
                return _moment(text, rule.date_formats).isoformat()
            except ValueError:
                raise ValueError(f"must be {_expected_date(rule)}") from None
        case FieldType.UUID if found := uuid_in(text):
            return str(found)
        case FieldType.UUID:
            raise ValueError("must be a UUID")
        case FieldType.TAGS if isinstance(value, list):
            return [*filter(None, map(_text, value))]
    if len(text) > _LONGEST_VALUE:
        raise ValueError(f"must have at most {_LONGEST_VALUE} characters")
    return text


def _number(text: str, decimal: str, *, whole: bool) -> int | float:
    """A percentage is the number that is written; a currency's sign is passed over."""
    expected = "a whole number of at most 64 bits" if whole else f"a number with `{decimal}` before its decimals"
    found = _NUMBER.fullmatch(text.translate({ord("."): ",", ord(","): "."}) if decimal == "," else text)
    if found is not None:
        value = Decimal(found[2].replace(",", ""))
        value = -value if found[1] in ("-", "−") else value
        if not whole and math.isfinite(float(value)):
            return float(value)
        if whole and value == value.to_integral_value() and -(2**63) <= value < 2**63:
            return int(value)
    elif not whole and decimal == "." and _SCIENTIFIC.fullmatch(text) and math.isfinite(float(text)):
        return float(text)  # 1.5e-3, as programs write it
    raise ValueError(f"must be {expected}")


def _moment(text: str, formats: Iterable[str]) -> datetime:
    """Raises ValueError."""
    for written in formats:
        with suppress(ValueError):
            return datetime.strptime(text, written)  # noqa: DTZ007 - UTC where nothing else is said
    return datetime.fromisoformat(f"{text}-01" if _YEAR_AND_MONTH.fullmatch(text) else _SHORT_HOUR.sub("0", text))


def _expected_date(rule: RowsRule) -> str:
    return " or ".join(["a date in ISO 8601", *rule.date_formats])


def fill(template: str, cells: Mapping[str, str], formats: Iterable[str] = ()) -> str:
    """A template with a row's cells in it.

    >>> cells = {"name": "Ada", "born": "1815-12-10"}
    >>> fill("{name}[, born on {born:%-d %B %Y}][, died on {died}]", cells)
    'Ada, born on 10 December 1815'
    """

    def optional(match: re.Match[str]) -> str:
        empty = any(not cells.get(column_name(each[1])) for each in _PLACE.finditer(match[1]))
        return "" if empty else match[1]

    def cell(match: re.Match[str]) -> str:
        value = cells.get(column_name(match[1]), "")
        with suppress(ValueError):
            return _moment(value, formats).strftime(match[2]) if match[2] and value else value
        return value

    return _PLACE.sub(cell, _OPTIONAL.sub(optional, template)).strip()
