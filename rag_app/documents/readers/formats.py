"""The formats that can be read, by suffix, and how a stream of one is read. A reader registers itself with `reads`.

The reader of plain text, below, is the shortest example; others have a file each in this folder.
A reader takes bytes and the name to show in errors, and yields documents; where a part of a file cannot be read (a line
of a JSON Lines file, an attachment, a page) it yields the `UnreadableDocument` in its place and goes on. When nothing
of a file can be read, it raises one. Whatever else it raises is told as a corrupt file.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import PurePath
from typing import BinaryIO, Final, TypeVar, cast

from rag_app.documents.documents import Document, Passage
from rag_app.documents.readers.text import LIMIT, clean, clean_mapping, decode, front_matter, written
from rag_app.domain.errors import UnreadableDocument

Reader = Callable[[BinaryIO, str], Iterator[Document | UnreadableDocument]]
AReader = TypeVar("AReader", bound=Reader)

SIDECAR: Final = ".meta.json"


@dataclass(frozen=True, slots=True)
class Format:
    """`becomes` says what a file gives, in docs/ingestion.md. A `streamed` one is not held in memory as a whole."""

    read: Reader
    becomes: str
    streamed: bool


READERS: Final[dict[str, Format]] = {}
"""By suffix, with its dot."""


def reads(*suffixes: str, becomes: str, streamed: bool = False) -> Callable[[AReader], AReader]:
    """Registers the function below as the reader of files whose names end in one of `suffixes`."""

    def register(reader: AReader) -> AReader:
        READERS.update(dict.fromkeys(suffixes, Format(reader, becomes, streamed)))
        return reader

    return register


@reads(".txt", becomes="a source; encoding detected")
def read_plain(stream: BinaryIO, shown: str) -> Iterator[Document]:
    """One passage without sections."""
    metadata, text = front_matter(decode(stream.read(), shown), shown)
    yield written(metadata, (Passage(text),), shown)


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
        if not reader.streamed:
            stream = _held(stream, shown)
        for document in reader.read(stream, shown):
            yield document if isinstance(document, UnreadableDocument) else _cleaned(document, shown)
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


def _cleaned(document: Document, shown: str) -> Document:
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
