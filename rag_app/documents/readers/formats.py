"""What readers share: the formats there are, which of them a file has, and bytes to text.

A reader takes bytes and the name to show in errors, and yields documents; where a part of a file cannot be read (a line
of a JSON Lines file, an attachment, a page) it yields the `UnreadableDocument` in its place and goes on. When nothing
of a file can be read, it raises one. Whatever else it raises is told as a corrupt file. It registers itself with
`reads`, by the suffixes of its files' names. That of plain text (`plain.py`) is the shortest example.

Encodings: a byte order mark, then UTF-8 (a few damaged bytes are tolerated), UTF-16 without a mark by where its NULs
stand and the bytes alternate, the declared one, and the legacy ones by likelihood, where cp1252 wins a tie: short texts
in cp1250 or cp1254 may be taken for it. Removed from every text: control characters, lone surrogates, soft hyphens, zero-width spaces.

The format of an upload is detected by its bytes. The client's file name only distinguishes formats of text; a name that claims
a binary format that the bytes are not in is refused.
"""

import gzip
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path, PurePath
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
_SAMPLE = 8192  # bytes of which is seen whether they alternate

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
    one_sided = max(even, odd) * 100 > len(data) and min(even, odd) * 10 < max(even, odd) and _alternates(data)
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


def _alternates(data: bytes) -> bool:
    """Whether the bytes at even places are of other kinds than those at odd places, as in UTF-16 of any script.

    >>> _alternates("Łódź".encode("utf-16-le")), _alternates("日本語の文章です。".encode("utf-16-be"))
    (True, True)
    >>> _alternates(b"Good text \\xff\\xfe\\0\\x81 and more")
    False
    """
    even, odd = (Counter(byte >> 4 for byte in data[first:_SAMPLE:2]) for first in (0, 1))
    return (even & odd).total() * 4 < min(len(data), _SAMPLE)


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


_HEAD = 8192  # bytes
_OFFICE = {"word/document.xml": ".docx", "ppt/presentation.xml": ".pptx", "xl/workbook.xml": ".xlsx"}
_BINARY = frozenset({".pdf", *_OFFICE.values()})
_PAGE = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
_MAIL = re.compile(
    rb"(?:(?:from|to|subject|date|received|return-path|delivered-to|message-id|mime-version|content-type|x-[\w-]+):"
    rb"[^\n]*\n(?:[ \t][^\n]*\n)*){3}",
    re.IGNORECASE,
)
# What files of binary formats begin with. Not those whose names are commonly given to tables and pages: .doc, .xls.
_BEGINNINGS: Mapping[str, tuple[bytes, ...]] = {
    ".pdf": (b"%PDF-",),
    **dict.fromkeys((*_OFFICE.values(), ".zip", ".jar", ".epub", ".odt", ".ods", ".odp"), (b"PK",)),
    ".gz": (b"\x1f\x8b",),
    ".tgz": (b"\x1f\x8b",),
    ".bz2": (b"BZh",),
    ".xz": (b"\xfd7zXZ",),
    ".7z": (b"7z\xbc\xaf",),
    ".rar": (b"Rar!",),
    ".png": (b"\x89PNG",),
    ".jpg": (b"\xff\xd8\xff",),
    ".jpeg": (b"\xff\xd8\xff",),
    ".gif": (b"GIF87a", b"GIF89a"),
    ".tif": (b"II*\0", b"MM\0*"),
    ".tiff": (b"II*\0", b"MM\0*"),
    ".webp": (b"RIFF",),
    ".wav": (b"RIFF",),
    ".ogg": (b"OggS",),
    ".flac": (b"fLaC",),
    ".mp3": (b"ID3", b"\xff"),
    ".mp4": (b"\0",),
    ".mov": (b"\0",),
    ".exe": (b"MZ",),
    ".dll": (b"MZ",),
}
_MEDIA_TYPES: Mapping[str, str] = {
    "text/markdown": ".md",
    "text/html": ".html",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/json": ".json",
    "application/x-ndjson": ".jsonl",
    "application/jsonl": ".jsonl",
    "message/rfc822": ".eml",
}


def tell_suffix(path: Path, name: str = "", media_type: str = "") -> str:
    """The suffix of the file's format. Anything but a known binary format is taken for text, and its reader refuses it if
    it is not.

    `name` and `media_type` come from the client and choose among the formats of text.
    """
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if head.startswith(b"\x1f\x8b"):
        inner = name[:-3] if name.lower().endswith(".gz") else name
        try:
            with gzip.open(path) as stream:
                return _suffix(stream.read(_HEAD), inner, media_type, None) + ".gz"
        except (OSError, EOFError, zlib.error):
            return ".txt.gz"
    return _suffix(head, name, media_type, path)


def name_problem(path: Path, name: str) -> str:
    """Why a file may not have this name: it claims a binary format that the file is not in. Empty where it may."""
    claimed = PurePath(name).suffix.lower()
    if (beginnings := _BEGINNINGS.get(claimed)) is None:
        return ""
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if (
        head.startswith(beginnings)
        or (claimed == ".pdf" and _is_pdf(head, name))
        or (claimed in _BINARY and _suffix(head, "", "", None) in _BINARY)
    ):
        return ""
    return (
        f"its name ends in {claimed}, but its content is not in that format: send it under a name that says what it is"
    )


def _is_pdf(head: bytes, name: str) -> bool:
    """Readers of PDF allow for other bytes before its first line; a text may speak of PDF so early, too."""
    return head.startswith(b"%PDF-") or (name.lower().endswith(".pdf") and b"%PDF-" in head[:1024])


def _suffix(head: bytes, name: str, media_type: str, archive: Path | None) -> str:
    if _is_pdf(head, name):
        return ".pdf"
    if head.startswith(b"PK\x03\x04"):
        return _office(archive) if archive else ".docx"
    said = PurePath(name).suffix.lower()
    if said not in READERS or said in _BINARY:
        said = _MEDIA_TYPES.get(media_type.partition(";")[0].strip().lower(), ".txt")
    return said if said != ".txt" else _text(head)


def _office(archive: Path) -> str:
    names = attempt(lambda: zipfile.ZipFile(archive).namelist()) or ()  # its reader says what is wrong
    return next((suffix for part, suffix in _OFFICE.items() if part in names), ".docx")


def _text(head: bytes) -> str:
    """
    >>> _text(b"<!DOCTYPE html><p>Hello"), _text(b"From: a@b.example\\nTo: c\\nSubject: d\\n\\nHello"), _text(b'{"text": "a"}')
    ('.html', '.eml', '.json')
    >>> _text(b"Hello"), _text(b'{"text": "a"}\\n{"text": "b"}')
    ('.txt', '.jsonl')
    """
    if _PAGE.match(head):
        return ".html"
    if _MAIL.match(head):
        return ".eml"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"{":
        first, line_end, rest = start.partition(b"\n")
        if line_end and rest.lstrip()[:1] == b"{" and _is_json(first):
            return ".jsonl"
        if len(head) == _HEAD or _is_json(start):
            return ".json"
    return ".json" if start[:1] == b"[" and _is_json(start) else ".txt"


def _is_json(text: bytes) -> bool:
    return attempt(lambda: json.loads(text)) is not None
