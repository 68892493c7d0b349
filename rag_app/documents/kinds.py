"""Detects the format of a file by its bytes. The client's file name only distinguishes formats of text.

A name that claims a binary format that the bytes are not in is refused.
"""

import gzip
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePath

from rag_app.documents.readers.formats import READERS, attempt

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
