"""JSON and JSON Lines.

An object with "text" is a source: `text`, `title`, `id`; all other keys are metadata. A list of such objects, and a
JSON Lines file, are many. Any other JSON is one document: its own text, indented.
"""

import codecs
import json
from collections.abc import Iterator
from typing import BinaryIO

from rag_app.documents.documents import Document, Passage
from rag_app.documents.limits import Tally
from rag_app.documents.readers.formats import Documents, build_document, clean, decode, reads
from rag_app.documents.readers.rows import Record, Records
from rag_app.domain import RowsRule, UnreadableDocument

_BECOME = "one source per record: `id`, `title` and `text`; all other keys are metadata"
_PIECE_BYTES = 1024 * 1024
LINE_BYTES = 64 * 1024 * 1024  # one record; a longer line is no JSON Lines


def read_json_line_rows(stream: BinaryIO, shown: str, rules: tuple[RowsRule, ...]) -> Records:
    for number, line in _lines(stream, shown):
        try:
            yield _row(json.loads(line.decode("utf-8-sig")), number, rules[0])
        except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
            yield UnreadableDocument(shown, f"line {number}: {error}")


@reads(".jsonl", ".ndjson", becomes=_BECOME, streamed=True, rows=read_json_line_rows)
def read_json_lines(stream: BinaryIO, shown: str) -> Documents:
    """Line by line, so that a file may be larger than memory."""
    blank = True
    for number, line in _lines(stream, shown):
        blank = False
        try:
            yield _record(json.loads(line.decode("utf-8-sig")), shown, f"line {number}")
        except UnicodeDecodeError:
            yield UnreadableDocument(shown, f"line {number}: not UTF-8")
        except (ValueError, RecursionError) as error:
            yield UnreadableDocument(shown, f"line {number}: not JSON: {error}")
        except UnreadableDocument as error:
            yield error
    if blank:
        raise UnreadableDocument(shown, "empty, or nothing but white space")


def read_json_rows(stream: BinaryIO, shown: str, rules: tuple[RowsRule, ...]) -> Records:
    """A list of objects, or one object."""
    try:
        value = json.loads(decode(stream.read(), shown))
    except (ValueError, RecursionError) as error:
        raise UnreadableDocument(shown, f"not JSON: {error}") from error
    for number, item in enumerate(value if isinstance(value, list) else [value], start=1):
        try:
            yield _row(item, number, rules[0])
        except ValueError as error:
            yield UnreadableDocument(shown, f"item {number}: {error}")


def _row(value: object, number: int, rule: RowsRule) -> Record:
    """Raises ValueError for what is no object."""
    if not isinstance(value, dict):
        raise ValueError("not an object: it has no columns")
    own = value.get("id")
    named = isinstance(own, str | int) and not isinstance(own, bool)
    return Record(number, None, value, rule, id=clean(str(own)) or None if named else None)


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


@reads(".json", becomes=_BECOME, rows=read_json_rows)
def read_json(stream: BinaryIO, shown: str) -> Documents:
    try:
        value = json.loads(decode(stream.read(), shown))
    except (ValueError, RecursionError) as error:
        raise UnreadableDocument(shown, f"not JSON: {error}") from error
    if _has_text(value):
        yield _record(value, shown)
    elif isinstance(value, list) and any(map(_has_text, value)):
        for number, item in enumerate(value, start=1):
            try:
                yield _record(item, shown, f"item {number}")
            except UnreadableDocument as error:
                yield error
    elif value in (None, "", [], {}):
        raise UnreadableDocument(shown, "no text: nothing but an empty value")
    else:
        yield Document("", (Passage("".join(_dump_indented(value))),))


def _dump_indented(value: object) -> Iterator[str]:
    characters = Tally("characters")
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
        characters.add(len(piece))
        yield piece


def _has_text(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("text"), str)


def _record(value: object, shown: str, place: str = "") -> Document:
    try:
        if not isinstance(value, dict):
            raise UnreadableDocument(shown, "not an object")
        text = value.pop("text", None)
        if not isinstance(text, str) or not clean(text):
            raise UnreadableDocument(shown, 'no "text" (only "text" is read, not "content" or "body")')
        return build_document(value, (Passage(text),), shown, name=str(value.get("id") or place) if place else "")
    except UnreadableDocument as error:
        raise UnreadableDocument(shown, f"{place}: {error.reason}" if place else error.reason) from error
