"""Files to documents: one reader per format, chosen by the suffix of the file's name.

A reader takes bytes and the name to show in errors, and yields documents; where a part of a file cannot be read (a line
of a JSON Lines file, an attachment, a page) it yields the `UnreadableDocument` in its place and goes on. When nothing
of a file can be read, it raises one. Nothing else is raised, whatever the bytes are.

What people wrote about a file may stand beside it, in `<file name>.meta.json`: an object that is merged over the
document's own metadata. Its `title` and `id` are for the file itself, not for the many documents one file may hold.
"""

import gzip
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path, PurePath
from typing import BinaryIO, Final, cast

from rag_app.documents.documents import Document
from rag_app.documents.readers.delimited import read_delimited
from rag_app.documents.readers.mail import read_mail
from rag_app.documents.readers.markup import read_html, read_markdown
from rag_app.documents.readers.office import read_docx, read_pptx, read_xlsx
from rag_app.documents.readers.pdf import read_pdf
from rag_app.documents.readers.records import read_json, read_json_lines
from rag_app.documents.readers.text import LIMIT, clean, clean_mapping, read_plain, written
from rag_app.domain.errors import UnreadableDocument

Reader = Callable[[BinaryIO, str], Iterator[Document | UnreadableDocument]]

SIDECAR: Final = ".meta.json"
_STREAMED: Final = {".jsonl", ".ndjson"}  # read line by line; all others are held in memory


def documents_below(path: Path) -> Iterator[Path]:
    """The files that `path`, a folder or a file, offers for reading, in sorted order.

    Left out: hidden files and folders, sidecars, `manifest.toml`, and links that lead out of the folder. Files of an
    unsupported type are kept, and so are folders that cannot be listed: `read` says what is wrong with them.
    """
    if not path.is_dir():
        yield path
        return
    root = path.resolve()
    found: list[Path] = []

    def unlisted(error: OSError) -> None:
        found.append(Path(error.filename))

    for folder, folders, files in os.walk(path, onerror=unlisted):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            file = Path(folder, name)
            if name.startswith(".") or name.lower().endswith(SIDECAR) or name == "manifest.toml":
                continue
            if file.is_file() and (not file.is_symlink() or file.resolve().is_relative_to(root)):
                found.append(file)
    yield from sorted(found)


def read(path: Path, shown: str | None = None) -> Iterator[Document | UnreadableDocument]:
    """The documents of one file, lazily; `shown` is what errors call it.

    Raises `UnreadableDocument`, while it is iterated, when the file is missing, may not be read, is of an unsupported
    type, empty, encrypted, truncated, or holds no text.
    """
    shown = shown or str(path)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            if stat.S_ISDIR(mode):
                next(path.iterdir(), None)  # a folder that may not be listed says so: that is why it was not walked
            raise UnreadableDocument(shown, "not a regular file")
        beside = _sidecar(path, shown)
        with path.open("rb") as stream:
            documents = read_stream(stream, path.name, shown)
            yield from (_with_sidecar(document, beside, shown) for document in documents) if beside else documents
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UnreadableDocument(shown, getattr(error, "strerror", None) or str(error)) from error


def read_stream(stream: BinaryIO, name: str, shown: str) -> Iterator[Document | UnreadableDocument]:
    """The documents of a stream with a file's name: `read` without the file system."""
    if name.lower().endswith(SIDECAR):
        raise UnreadableDocument(shown, "a sidecar: it describes the file beside it")
    packed = name.lower().endswith(".gz")
    suffix = PurePath(name[:-3] if packed else name).suffix.lower()
    if (reader := READERS.get(suffix)) is None:
        kind = f"unsupported type {suffix}" if suffix else "unsupported type: no suffix"
        raise UnreadableDocument(shown, f"{kind}; supported: {' '.join(READERS)}, each also with .gz")
    try:
        if packed:
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=stream))
        if suffix not in _STREAMED:
            stream = _held(stream, shown)
        for document in reader(stream, shown):
            yield _cleaned(document, shown)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableDocument(shown, f"truncated or corrupt: {error}") from error
    except UnreadableDocument:
        raise
    except Exception as error:  # the parsers raise anything on a broken file: KeyError, RecursionError, AssertionError
        if isinstance(error, OSError) and error.errno:  # the disk, not the parser
            raise
        raise UnreadableDocument(shown, f"corrupt: {type(error).__name__}: {str(error)[:200]}") from error


def _held(stream: BinaryIO, shown: str) -> BinaryIO:
    """All of the stream in memory, if it is not too large for that."""
    data = stream.read(LIMIT + 1)
    if not data:
        raise UnreadableDocument(shown, "empty: 0 bytes")
    if len(data) > LIMIT:
        raise UnreadableDocument(shown, f"larger than {LIMIT >> 20} MB unpacked")
    return BytesIO(data)


def _cleaned(document: Document | UnreadableDocument, shown: str) -> Document | UnreadableDocument:
    if isinstance(document, UnreadableDocument):
        return document
    passages = tuple(replace(p, text=text) for p in document.passages if (text := clean(p.text)))
    if not passages:
        raise UnreadableDocument(shown, "no text")
    return replace(
        document,
        name=clean(document.name),
        title=clean(document.title) if document.title else None,
        passages=passages,
        metadata=clean_mapping(document.metadata),
        derived=clean_mapping(document.derived),
    )


def _sidecar(path: Path, shown: str) -> dict[str, object]:
    """What stands in the file's sidecar. A broken one is an error: it may be the place that says who may see the file."""
    try:
        told = json.loads(path.with_name(path.name + SIDECAR).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableDocument(shown + SIDECAR, f"not a readable JSON file: {error}") from error
    if not isinstance(told, dict):
        raise UnreadableDocument(shown + SIDECAR, "not a JSON object")
    return told


def _with_sidecar(
    document: Document | UnreadableDocument, beside: Mapping[str, object], shown: str
) -> Document | UnreadableDocument:
    if isinstance(document, UnreadableDocument):
        return document
    told = written(beside, (), shown + SIDECAR)
    own = bool(document.name)
    return replace(
        document,
        title=document.title if own else told.title or document.title,
        external_id=document.external_id if own else told.external_id or document.external_id,
        metadata={**document.metadata, **clean_mapping(told.metadata)},
    )


READERS: Final[Mapping[str, Reader]] = {
    **dict.fromkeys((".txt",), read_plain),
    **dict.fromkeys((".md", ".markdown"), read_markdown),
    **dict.fromkeys((".html", ".htm"), read_html),
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".pptx": read_pptx,
    ".xlsx": read_xlsx,
    **dict.fromkeys((".csv", ".tsv"), read_delimited),
    ".eml": partial(read_mail, read_stream),
    ".json": read_json,
    **dict.fromkeys((".jsonl", ".ndjson"), read_json_lines),
}
SUFFIXES: Final = (*READERS, *(f"{suffix}.gz" for suffix in READERS))
