"""Files to documents: one reader per format, chosen by the suffix of the file's name.

Every module of this folder is imported, and registers what it reads (`formats`): a new format is one new file here.
Only `UnreadableDocument` and `MemoryError` are raised, whatever the bytes are. An ingest calls `reading`, which
calls this in a process with limits; what the readers hold themselves is in `limits`.

What people wrote about a file may stand beside it, in `<file name>.meta.json`: an object that is merged over the
document's own metadata. Its `title` and `id` are for the file itself, not for the many documents one file may hold.
"""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from msgspec.structs import replace

from rag_app.documents.documents import SIDECAR, Document, Documents
from rag_app.documents.limits import OverLimit
from rag_app.documents.readers.formats import READERS, build_document, clean_mapping, format_of, read_stream
from rag_app.documents.readers.rows import row_reader
from rag_app.documents.reading import open_file
from rag_app.domain import RowMapping, UnreadableDocument

__all__ = ["READERS", "SUFFIXES", "format_of", "read", "read_stream"]

SIDECAR_BYTES = 1024 * 1024  # what people write is shorter


def read(path: Path, shown: str | None = None, root: Path | None = None, rows: RowMapping | None = None) -> Documents:
    """The documents of one file, lazily; `shown` is what errors call it. With `rows`, each row of a table is one.

    Raises `UnreadableDocument`, while it is iterated, when the file is missing, may not be read, is of an unsupported
    type, empty, encrypted, truncated, or holds no text; and when its sidecar is broken, or leads out of `root`, by
    default the file's folder.
    """
    shown = shown or str(path)
    try:
        if path.is_dir():
            next(path.iterdir(), None)  # a folder that may not be listed says so: that is why it was not walked
            raise OSError("not a regular file")
        with open_file(path) as stream:
            beside = _sidecar(path, shown, root or path.parent)
            reader = row_reader(path.name, rows, shown) if rows else None
            for found in read_stream(stream, path.name, shown, reader):
                yield _with_sidecar(found, beside, shown) if beside and isinstance(found, Document) else found
    except (OSError, ValueError, OverLimit) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            reason = f"a link to {path.readlink()}, which is not there: is it mounted?"
        raise UnreadableDocument(shown, reason) from error


def _sidecar(path: Path, shown: str, root: Path) -> dict[str, object]:
    """What stands in the file's sidecar. A broken one is an error: it may be the place that says who may see the file."""
    beside = path.with_name(path.name + SIDECAR)
    try:
        with open_file(beside) as stream:
            if not beside.resolve().is_relative_to(root.resolve()):
                raise ValueError("is a link that leads out of the folder")
            data = stream.read(SIDECAR_BYTES + 1)
        if len(data) > SIDECAR_BYTES:
            raise ValueError(f"larger than {SIDECAR_BYTES >> 20} MB")
        told = json.loads(data)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableDocument(shown + SIDECAR, f"not a readable JSON file: {error}") from error
    if not isinstance(told, dict):
        raise UnreadableDocument(shown + SIDECAR, "not a JSON object")
    return told


def _with_sidecar(document: Document, beside: Mapping[str, object], shown: str) -> Document:
    told = build_document(beside, (), shown + SIDECAR)
    beside = clean_mapping(told.metadata)
    # a row says of itself what is said of its file as a whole
    metadata = {**document.metadata, **beside} if document.row is None else {**beside, **document.metadata}
    document = replace(document, metadata=metadata, strict=tuple(beside))
    if document.name:
        return document
    return replace(document, title=told.title or document.title, external_id=told.external_id or document.external_id)


for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

SUFFIXES = (*READERS, *(f"{suffix}.gz" for suffix in READERS))
"""Of all files that can be read."""
