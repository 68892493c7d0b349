"""JSON and JSON Lines.

An object with "text" is a source: `text`, `title`, `id`; all other keys are metadata. A list of such objects, and a
JSON Lines file, are many. Any other JSON is one document: its own text, indented.
"""

import codecs
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TypeVar

from rag_app.documents.documents import Document, Documents, Passage
from rag_app.documents.limits import Tally
from rag_app.documents.readers.formats import build_document, clean, decode, reads
from rag_app.documents.readers.rows import Record, Records
from rag_app.domain import RowsRule, UnreadableDocument

Part = TypeVar("Part")
Result = TypeVar("Result")

_BECOME = "one source per record: `id`, `title` and `text`; all other keys are metadata"
_PIECE_BYTES = 1024 * 1024
LINE_BYTES = 64 * 1024 * 1024  # one record; a longer line is no JSON Lines


def read_json_line_rows(stream: BinaryIO, shown: str, rules: tuple[RowsRule, ...]) -> Records:
    return _make_each(
        "line", _lines(stream, shown), lambda number, line: _row(_parse(line, shown), shown, number, rules[0]), shown
    )


@reads(".jsonl", ".ndjson", becomes=_BECOME, streamed=True, rows=read_json_line_rows)
def read_json_lines(stream: BinaryIO, shown: str) -> Documents:
    """Line by line, so that a file may be larger than memory."""
    lines = _lines(stream, shown)
    found = _make_each("line", lines, lambda number, line: _record(_parse(line, shown), shown, f"line {number}"), shown)
    if (first := next(found, None)) is None:
        raise UnreadableDocument(shown, "empty, or nothing but white space")
    yield first
    yield from found


def read_json_rows(stream: BinaryIO, shown: str, rules: tuple[RowsRule, ...]) -> Records:
    """A list of objects, or one object."""
    value = _parse(decode(stream.read(), shown), shown)
    items = enumerate(value if isinstance(value, list) else [value], start=1)
    return _make_each("item", items, lambda number, item: _row(item, shown, number, rules[0]), shown)


@reads(".json", becomes=_BECOME, rows=read_json_rows)
def read_json(stream: BinaryIO, shown: str) -> Documents:
    value = _parse(decode(stream.read(), shown), shown)
    if _has_text(value):
        yield _record(value, shown)
    elif isinstance(value, list) and any(map(_has_text, value)):
        items = enumerate(value, start=1)
        yield from _make_each("item", items, lambda number, item: _record(item, shown, f"item {number}"), shown)
    elif value in (None, "", [], {}):
        raise UnreadableDocument(shown, "no text: nothing but an empty value")
    else:
        pieces = json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value)
        yield Document("", (Passage("".join(Tally("characters").count_texts(pieces))),))


def _make_each(
    kind: str, parts: Iterable[tuple[int, Part]], make: Callable[[int, Part], Result], shown: str
) -> Iterator[Result | UnreadableDocument]:
    """What is made of each numbered part of a file, or the error in its place."""
    for number, part in parts:
        try:
            yield make(number, part)
        except UnreadableDocument as error:
            yield UnreadableDocument(shown, f"{kind} {number}: {error.reason}")


def _parse(written: str | bytes, shown: str) -> Any:
    try:
        return json.loads(written if isinstance(written, str) else written.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UnreadableDocument(shown, "not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableDocument(shown, f"not JSON: {error}") from error


def _row(value: object, shown: str, number: int, rule: RowsRule) -> Record:
    if not isinstance(value, dict):
        raise UnreadableDocument(shown, "not an object: it has no columns")
    own = value.get("id")
    named = isinstance(own, str | int) and not isinstance(own, bool)
    return Record(number, None, value, rule, id=clean(str(own)) or None if named else None)


def _record(value: object, shown: str, place: str = "") -> Document:
    if not isinstance(value, dict):
        raise UnreadableDocument(shown, "not an object")
    text = value.pop("text", None)
    if not isinstance(text, str) or not clean(text):
        raise UnreadableDocument(shown, 'no "text" (only "text" is read, not "content" or "body")')
    return build_document(value, (Passage(text),), shown, name=str(value.get("id") or place) if place else "")


def _lines(stream: BinaryIO, shown: str) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers. Gigabytes of blank ones cost no more than to unpack them."""
    number, held = 1, b""
    while piece := stream.read(_PIECE_BYTES):
        data = (held + piece).removeprefix(codecs.BOM_UTF8)
        if number == 1 and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise UnreadableDocument(shown, "JSON Lines must be UTF-8, this is UTF-16")
        full = data.lstrip()
        blank = data[: len(data) - len(full)]
        number += len(blank) - len(blank.translate(None, b"\n"))  # count() takes five times as long
        *lines, held = full.split(b"\n")
        if max(map(len, [*lines, held])) > LINE_BYTES:
            raise UnreadableDocument(shown, f"line {number} or below: longer than {LINE_BYTES >> 20} MB")
        for line in lines:
            if line.strip():
                yield number, line
            number += 1
    if held.strip():
        yield number, held


def _has_text(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("text"), str)
