"""What readers share: the formats there are, and bytes to text.

A reader takes bytes and the name to show in errors, and yields documents; where a part of a file cannot be read (a line
of a JSON Lines file, an attachment, a page) it yields the `UnreadableDocument` in its place and goes on. When nothing
of a file can be read, it raises one. Whatever else it raises is told as a corrupt file. It registers itself with
`reads`, by the suffixes of its files' names. That of plain text (`plain.py`) is the shortest example.

Encodings: a byte order mark, then UTF-8 (a few damaged bytes are tolerated), UTF-16 without a mark by where its NULs
stand, the declared one, and the legacy ones by likelihood, where cp1252 wins a tie: short texts in cp1250 or cp1254
may be taken for it. Removed from every text: control characters, lone surrogates, soft hyphens, zero-width spaces.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import PurePath
from typing import Any, BinaryIO, TypeVar, cast

import yaml  # type: ignore[import-untyped]
from charset_normalizer import from_bytes
from msgspec import Struct, structs

from rag_app.documents import limits
from rag_app.documents.documents import SIDECAR, Document, Documents, Passage
from rag_app.documents.limits import OverLimit, Tally, check_nesting
from rag_app.domain import RowsRule, UnreadableDocument

T = TypeVar("T")
Reader = Callable[[BinaryIO, str], Documents]
RecordReader = Callable[[BinaryIO, str, tuple[RowsRule, ...]], Iterator[Any]]
"""Reads the `rows.Records` of a file, by the first of the rules, or by the first for each sheet."""

FRONT_MATTER_CHARS = 20_000  # characters; what people write is shorter, and reading more of it takes seconds

_MARKS = {  # UTF-32 first: its little-endian mark starts with that of UTF-16
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_LEGACY = [
    *("cp1252", "cp1250", "cp1254", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
]
_WEB_NAMES = dict.fromkeys(("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii"), "cp1252")
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]")
_UNWANTED_CHARACTERS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\ufeff\ud800-\udfff]")
_LINE_ENDS = str.maketrans("\r\v\x85", "\n\n\n")
_FRONT_MATTER = re.compile(r"\s*---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"^[\w-]+:(?:\s|$)", re.MULTILINE)


class Format(Struct, frozen=True):
    """`becomes` says what a file gives, in docs/ingestion.md. A `streamed` one is not held in memory as a whole.

    `rows` reads the rows of a format that holds some.
    """

    read: Reader
    becomes: str
    streamed: bool
    rows: RecordReader | None


READERS: dict[str, Format] = {}
"""By suffix, with its dot."""


def reads(
    *suffixes: str, becomes: str, streamed: bool = False, rows: RecordReader | None = None
) -> Callable[[Reader], Reader]:
    """Registers the function below as the reader of files whose names end in one of `suffixes`."""

    def register(reader: Reader) -> Reader:
        READERS.update(dict.fromkeys(suffixes, Format(reader, becomes, streamed, rows)))
        return reader

    return register


def read_stream(stream: BinaryIO, name: str, shown: str, reader: Reader | None = None) -> Documents:
    """The documents of a stream with a file's name: `read` without the file system.

    `reader` reads it in place of the format's own.
    """
    if name.lower().endswith(SIDECAR):
        raise UnreadableDocument(shown, "a sidecar: it describes the file beside it")
    if (known := format_of(name)) is None:
        suffix = suffix_of(name)
        kind = f"unsupported type {suffix}" if suffix else "unsupported type: no suffix"
        raise UnreadableDocument(shown, f"{kind}; supported: {' '.join(sorted(READERS))}, each also with .gz")
    try:
        if name.lower().endswith(".gz"):
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=stream))
        if not known.streamed:
            stream = _whole(stream, shown)
        for document in (reader or known.read)(stream, shown):
            yield document if isinstance(document, UnreadableDocument) else _check_document(document, shown)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableDocument(shown, f"truncated or corrupt: {error}") from error
    except OverLimit as error:
        raise UnreadableDocument(shown, str(error)) from error
    except RecursionError as error:
        raise UnreadableDocument(shown, "nested too deep") from error
    except (UnreadableDocument, MemoryError):
        raise
    except Exception as error:  # the parsers raise anything on a broken file: KeyError, RecursionError, AssertionError
        if isinstance(error, OSError) and error.errno:  # the disk, not the parser
            raise
        raise UnreadableDocument(shown, f"corrupt: {type(error).__name__}: {str(error)[:200]}") from error


def format_of(name: str) -> Format | None:
    return READERS.get(suffix_of(name))


def suffix_of(name: str) -> str:
    return PurePath(name[:-3] if name.lower().endswith(".gz") else name).suffix.lower()


def _whole(stream: BinaryIO, shown: str) -> BinaryIO:
    held = BytesIO()
    while piece := stream.read(1024 * 1024):
        check_unpacked(held.tell() + len(piece))
        held.write(piece)
    if not held.tell():
        raise UnreadableDocument(shown, "empty: 0 bytes")
    held.seek(0)
    return held


def check_unpacked(size: int) -> None:
    """Raises OverLimit for more bytes than a file may unpack to."""
    if size > limits.CURRENT.unpacked << 20:
        raise OverLimit(f"larger than {limits.CURRENT.unpacked:,} MB unpacked (RAG_READ_UNPACKED)")


def _check_document(document: Document, shown: str) -> Document | UnreadableDocument:
    """The document cleaned; of many in a file, one that is over a limit does not cost the others."""
    try:
        passages = tuple(
            structs.replace(p, text=text, section=clean(p.section) or None if p.section else p.section)
            for p in check_output(document.passages)
            if (text := clean(p.text))
        )
        if not passages:
            raise UnreadableDocument(shown, "no text")
        return structs.replace(
            document,
            name=clean(document.name),
            title=clean(document.title) if document.title else None,
            passages=passages,
            metadata=clean_mapping(document.metadata),
            derived=clean_mapping(document.derived),
        )
    except OverLimit as error:
        if not document.name:
            raise
        return UnreadableDocument(f"{shown}#{document.name}", str(error))


def check_output(passages: Iterable[Passage]) -> Iterator[Passage]:
    """The passages, as they come. Raises OverLimit at the first that is too much for one document."""
    count, characters = Tally("passages"), Tally("characters")
    for passage in passages:
        count.add()
        characters.add(len(passage.text) + len(passage.section or ""))
        yield passage


def attempt(part: Callable[[], T]) -> T | None:
    """An optional part of a file, or None where it is broken: no document is refused for its author's name."""
    try:
        return part()
    except (OverLimit, MemoryError):
        raise
    except Exception:
        return None


def clean(text: str) -> str:
    """The text without what no store or reader wants."""
    return _UNWANTED_CHARACTERS.sub("", text.replace("\r\n", "\n").replace("\f", "\n\n").translate(_LINE_ENDS)).strip()


def clean_mapping(values: Mapping[str, object], level: int = 1) -> dict[str, object]:
    """The same for metadata, however it nests."""
    return {clean(str(key)): _clean_value(value, level) for key, value in values.items()}


def _clean_value(value: object, level: int) -> object:
    check_nesting(level)
    match value:
        case str():
            return clean(value)
        case Mapping():
            return clean_mapping(value, level + 1)
        case list() | tuple():
            return [_clean_value(inner, level + 1) for inner in value]
        case _:
            return value


def decode(data: bytes, shown: str, declared: str | None = None) -> str:
    """The text of some bytes. Raises `UnreadableDocument` when they are binary, or hold nothing but white space."""
    text = _decode_marked(data, declared)
    if text is not None and text.isspace():  # of hundreds of megabytes, too: what follows takes its time
        raise UnreadableDocument(shown, "nothing but white space")
    noise = 0 if text is None else len(_CONTROL.findall(text)) + text.count("\ufffd") / 5
    if text is None or "\0" in text or noise * 100 > len(text):
        raise UnreadableDocument(shown, "binary content, or text in an unknown encoding")
    if not clean(text):
        raise UnreadableDocument(shown, "nothing but white space")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decode_marked(data: bytes, declared: str | None) -> str | None:
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    even, odd = data[::2].count(0), data[1::2].count(0)
    one_sided = max(even, odd) * 100 > len(data) and min(even, odd) * 10 < max(even, odd)
    if one_sided and (max(even, odd) * 5 > len(data) * 2 or not _is_plain(data.replace(b"\0", b""))):
        return data[: len(data) // 2 * 2].decode("utf-16-be" if even > odd else "utf-16-le", errors="replace")
    declared = _WEB_NAMES.get((declared or "").lower(), declared) or "utf-8"
    for encoding in (declared, "utf-8") if b"\x1b" in data else ("utf-8", declared):  # ISO-2022-JP is valid UTF-8
        with suppress(ValueError, LookupError):  # malformed bytes, or a malformed name of an encoding
            return data.decode(encoding)
    text = data.decode(errors="replace")
    if text.count("\ufffd") * 10 <= len(text) - len(text.encode("ascii", "ignore")):  # UTF-8 with some damage
        return text
    matches = from_bytes(data, cp_isolation=_LEGACY)
    if (best := matches.best()) is None:
        return None
    alike = [m for m in matches if m.chaos <= best.chaos + 0.005 and m.coherence >= best.coherence - 0.05]
    return str(min(alike, key=lambda m: min(_LEGACY.index(name) for name in m.could_be_from_charset)))


def _is_plain(data: bytes) -> bool:
    """Whether some bytes, without the NULs between them, are UTF-8 without control characters."""
    text = attempt(data.decode)
    return text is not None and _CONTROL.search(text) is None


def front_matter(text: str, shown: str) -> tuple[dict[str, object], str]:
    """The YAML mapping a text starts with, between two lines of `---`, and the rest of the text.

    A block that is no mapping is text. One that looks like a mapping and is broken is an error: it may be the place
    that says who may see the document.
    """
    if (match := _FRONT_MATTER.match(text)) is None:
        return {}, text
    try:
        if len(match[1]) > FRONT_MATTER_CHARS:
            raise yaml.YAMLError(f"longer than {FRONT_MATTER_CHARS} characters")
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(match[1])):
            raise yaml.YAMLError("aliases are not allowed")  # nested, a few lines unfold to gigabytes
        found = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: 2024-13-45
        if _KEY.search(match[1]) is None:
            return {}, text
        mark = getattr(error, "problem_mark", None)  # where it stops
        hint = "; a value with a colon in it needs quotes" if mark and match[1][mark.index :].startswith(":") else ""
        raise UnreadableDocument(
            shown, f"front matter is not valid YAML: {' '.join(str(error).split())}{hint}"
        ) from error
    if not isinstance(found, dict):
        return {}, text
    return {str(key): value for key, value in found.items()}, text[match.end() :]


def build_document(
    metadata: Mapping[str, object],
    passages: tuple[Passage, ...],
    shown: str,
    *,
    name: str = "",
    title: str | None = None,
    derived: Mapping[str, object] | None = None,
) -> Document:
    """A document whose `title` and `id` are those in `metadata`, where it has them."""
    own = dict(metadata)
    own_title, own_id = own.pop("title", None), own.pop("id", None)
    for key, value in (("title", own_title), ("id", own_id)):
        if isinstance(value, bool | list | tuple | Mapping):
            raise UnreadableDocument(shown, f"`{key}` must be text or a number")
    said = [None if value is None else clean(str(value)) or None for value in (own_title, own_id)]
    return Document(name, passages, said[0] or title, own, derived or {}, said[1])
