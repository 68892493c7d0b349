"""Bytes to text, and what a person wrote about it: encodings and front matter.

Encodings: a byte order mark, then UTF-8 (a few damaged bytes are tolerated), UTF-16 without a mark by where its NULs
stand, the declared one, and the legacy ones by likelihood, where cp1252 wins a tie: short texts in cp1250 or cp1254
may be taken for it. Removed from every text: control characters, lone surrogates, soft hyphens, zero-width spaces.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import yaml  # type: ignore[import-untyped]
from charset_normalizer import from_bytes

from rag_app.documents.documents import Document, Passage
from rag_app.domain.errors import UnreadableDocument

T = TypeVar("T")

FRONT_MATTER_CHARS: Final = 20_000  # characters; what people write is shorter, and reading more of it takes seconds
LIMIT: Final = 512 * 1024 * 1024  # bytes of a document once unpacked: it is held in memory, beside the models

_MARKS: Final = {  # UTF-32 first: its little-endian mark starts with that of UTF-16
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_LEGACY: Final = [
    *("cp1252", "cp1250", "cp1254", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
]
_WEB_NAMES: Final = dict.fromkeys(("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii"), "cp1252")
_CONTROL: Final = re.compile(r"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]")
_UNWANTED: Final = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\ufeff\ud800-\udfff]")
_FRONT_MATTER: Final = re.compile(r"\s*---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY: Final = re.compile(r"^[\w-]+:(?:\s|$)", re.MULTILINE)


def attempt(part: Callable[[], T]) -> T | None:
    """An optional part of a file, or None where it is broken: no document is refused for its author's name."""
    try:
        return part()
    except Exception:
        return None


def clean(text: str) -> str:
    """The text without what no store or reader wants."""
    text = (
        text.replace("\r\n", "\n").replace("\r", "\n").replace("\v", "\n").replace("\f", "\n\n").replace("\x85", "\n")
    )
    return _UNWANTED.sub("", text).strip()


def clean_mapping(values: Mapping[str, object]) -> dict[str, object]:
    """The same for metadata, however it nests."""
    return {clean(str(key)): _clean_value(value) for key, value in values.items()}


def _clean_value(value: object) -> object:
    match value:
        case str():
            return clean(value)
        case Mapping():
            return clean_mapping(value)
        case list() | tuple():
            return [_clean_value(inner) for inner in value]
        case _:
            return value


def decode(data: bytes, shown: str, declared: str | None = None) -> str:
    """The text of some bytes. Raises `UnreadableDocument` when they are binary, or hold nothing but white space."""
    if not data:
        raise UnreadableDocument(shown, "empty: 0 bytes")
    text = _decoded(data, declared)
    noise = 0 if text is None else len(_CONTROL.findall(text)) + text.count("\ufffd") / 5
    if text is None or "\0" in text or noise * 100 > len(text):
        raise UnreadableDocument(shown, "binary content, or text in an unknown encoding")
    if not clean(text):
        raise UnreadableDocument(shown, "nothing but white space")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decoded(data: bytes, declared: str | None) -> str | None:
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    even, odd = data[::2].count(0), data[1::2].count(0)
    if max(even, odd) * 100 > len(data) and min(even, odd) * 10 < max(even, odd):
        return data[: len(data) // 2 * 2].decode("utf-16-be" if even > odd else "utf-16-le", errors="replace")
    declared = _WEB_NAMES.get((declared or "").lower(), declared) or "utf-8"
    for encoding in (declared, "utf-8") if b"\x1b" in data else ("utf-8", declared):  # ISO-2022-JP is valid UTF-8
        try:
            return data.decode(encoding)
        except (ValueError, LookupError):  # malformed bytes, or a malformed name of an encoding
            continue
    text = data.decode(errors="replace")
    if text.count("\ufffd") * 10 <= len(text) - len(text.encode("ascii", "ignore")):  # UTF-8 with some damage
        return text
    matches = from_bytes(data, cp_isolation=_LEGACY)
    if (best := matches.best()) is None:
        return None
    alike = [m for m in matches if m.chaos <= best.chaos + 0.005 and m.coherence >= best.coherence - 0.05]
    return str(min(alike, key=lambda m: min(_LEGACY.index(name) for name in m.could_be_from_charset)))


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
        raise UnreadableDocument(shown, f"front matter is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        return {}, text
    return {str(key): value for key, value in found.items()}, text[match.end() :]


def written(
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
