"""Files to documents: one reader per format, chosen by the suffix of the file's name.

Every module of this folder is imported, and registers what it reads (`formats`): a new format is one new file here.
Nothing but `UnreadableDocument` is raised, whatever the bytes are.

What people wrote about a file may stand beside it, in `<file name>.meta.json`: an object that is merged over the
document's own metadata. Its `title` and `id` are for the file itself, not for the many documents one file may hold.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from rag_app.documents.documents import Document
from rag_app.documents.readers.formats import READERS, SIDECAR, Documents, clean_mapping, read_stream, written
from rag_app.domain import UnreadableDocument

__all__ = ["READERS", "SIDECAR", "SUFFIXES", "documents_below", "read", "read_stream"]


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
    for folder, folders, files in os.walk(path, onerror=lambda error: found.append(Path(error.filename))):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in (Path(folder, name) for name in files):
            aside = file.name.startswith(".") or file.name.lower().endswith(SIDECAR) or file.name == "manifest.toml"
            if not aside and file.is_file() and (not file.is_symlink() or file.resolve().is_relative_to(root)):
                found.append(file)
    yield from sorted(found)


def read(path: Path, shown: str | None = None) -> Documents:
    """The documents of one file, lazily; `shown` is what errors call it.

    Raises `UnreadableDocument`, while it is iterated, when the file is missing, may not be read, is of an unsupported
    type, empty, encrypted, truncated, or holds no text.
    """
    shown = shown or str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            if path.is_dir():
                next(path.iterdir(), None)  # a folder that may not be listed says so: that is why it was not walked
            raise UnreadableDocument(shown, "not a regular file")
        beside = _sidecar(path, shown)
        with path.open("rb") as stream:
            for found in read_stream(stream, path.name, shown):
                yield _with_sidecar(found, beside, shown) if beside and isinstance(found, Document) else found
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UnreadableDocument(shown, getattr(error, "strerror", None) or str(error)) from error


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


def _with_sidecar(document: Document, beside: Mapping[str, object], shown: str) -> Document:
    told = written(beside, (), shown + SIDECAR)
    document = replace(document, metadata={**document.metadata, **clean_mapping(told.metadata)})
    if document.name:
        return document
    return replace(document, title=told.title or document.title, external_id=told.external_id or document.external_id)


for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

SUFFIXES = (*READERS, *(f"{suffix}.gz" for suffix in READERS))
"""Of all files that can be read."""
