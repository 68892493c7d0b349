"""Turns uploaded documents, one or many at once, into sources, in the order sent.

    read      the readers' processes read files; a text is a document already
    make      creates their sources and external ids; reports what cannot be a source
    check     refuses to overwrite sources that the sender may not see; the organization's limits, under a lock
    ingest    `Ingestor.ingest_documents`, as for every ingest

Unchanged documents cost nothing, so an interrupted request can be repeated.

What is received is in a temporary folder, which is removed even if its process is killed: a process locks the folder it uses
(flock(2), which a kill frees), and the next process removes folders without a lock.
"""

import asyncio
import fcntl
import hashlib
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct, field, structs

from rag_app.documents.catalogue import UPLOAD_ORIGIN, Catalogue
from rag_app.documents.documents import Document, Documents, Passage
from rag_app.documents.ingest import Ingestor
from rag_app.documents.ledger import Basis, SourceLedger
from rag_app.documents.metadata import Target, to_source, undeclared_names
from rag_app.documents.originals import Originals
from rag_app.documents.readers.formats import name_problem, tell_suffix
from rag_app.documents.reading import File, ReaderPool
from rag_app.domain import (
    InvalidInput,
    RagError,
    RowsRule,
    Scope,
    Source,
    UnknownField,
    UnreadableDocument,
    passage_link,
    row_mapping,
)
from rag_app.retrieval.index import IndexSpec

_LONGEST_TITLE = 80  # characters of a text's first line
_MOST_CHARACTERS = 20_000_000  # of a text, as of a file


class OrganizationFull(RagError):
    """An organization has reached its limit of sources or of text. The message names the limit, and not what there is:
    that includes sources that the sender may not see."""


class Upload(Struct, frozen=True):
    """One document as sent: `text`, or a completely received `file`.

    `external_id` is the name to replace it by; by default what the document says of itself, the file's name, or, of a
    text, the hash of its content. `derived` are metadata that nobody has written (`Document.derived`). With `problem`
    there is nothing to read: it could not be had. `url` is where it is to be read from, before it has been. With `rows`,
    each row of a table is a source by that rule; without, as the index's own rules say.
    """

    external_id: str | None = None
    text: str | None = None
    file: Path | None = None
    file_name: str | None = None
    media_type: str = ""
    title: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    derived: Mapping[str, object] = field(default_factory=dict)
    problem: str | None = None
    url: str | None = None
    rows: RowsRule | None = None

    @property
    def name(self) -> str:
        """The external id of sources in it that have none of their own."""
        known = self.external_id or self.file_name
        return known or f"text-{hashlib.sha256((self.text or '').encode()).hexdigest()[:24]}"


class UploadedDocument(Struct, frozen=True, kw_only=True):
    """The result of an upload: the source of the file itself, or of the first document in it; `problems` explain what is
    missing."""

    id: Annotated[UUID | None, Meta(description="the id of the source; null if nothing could be read")]
    external_id: str | None
    title: str | None
    status: Annotated[str, Meta(description="`added`, `updated`, `unchanged` or `failed`", examples=["added"])]
    further: Annotated[
        list[UUID],
        Meta(description="ids of other sources from the same file: rows of a table, attachments of an e-mail"),
    ]
    undeclared: Annotated[
        list[str],
        Meta(
            description="metadata fields that the index does not declare; they are stored but cannot be used in filters"
        ),
    ]
    problems: Annotated[list[str], Meta(description="what could not be read, and why")]
    link: Annotated[str | None, Meta(description="the path of the source")]


class Limits(Struct, frozen=True):
    """An organization's limits: the number of sources and their bytes; None: no limit."""

    sources: int | None = None
    size: int | None = None


class _UploadResult(Struct):
    upload: Upload
    found: list[tuple[Source, Document]] = []
    problems: list[str] = []
    remarks: list[str] = []
    """What of rows that are among `found` could not be taken."""


class UploadService:
    """`ingestor` opens a writer for an index.

    `readers` read the files of `at_once` requests at a time; others wait.
    """

    def __init__(
        self,
        ingestor: Callable[[IndexSpec, Target], Awaitable[Ingestor]],
        ledger: SourceLedger,
        catalogue: Catalogue,
        originals: Originals,
        readers: ReaderPool,
        at_once: int,
        limits: Limits,
    ) -> None:
        self._ingestor, self._ledger = ingestor, ledger
        self._catalogue, self._originals, self._limits = catalogue, originals, limits
        self._readers, self._turn = readers, threading.Semaphore(at_once)

    async def ingest(
        self,
        spec: IndexSpec,
        target: Target,
        uploads: Sequence[Upload],
        sender: Scope,
        basis: Basis | None = None,
    ) -> list[UploadedDocument]:
        """Ingest the uploads; returns their results, in order. `sender` decides which sources may be overwritten or removed.

        Raises UnknownField, OrganizationFull, EmbeddingFailed, StoreFailed, SourceChanged if `basis` is no longer stored so. A repeated call ends in the same state as an
        undisturbed one.
        """
        for upload in uploads:
            if upload.rows is not None and (unknown := upload.rows.undeclared_columns(spec.fields)):
                raise UnknownField(unknown[0], spec.fields)
        made = await asyncio.to_thread(self._make, spec, target, uploads)
        ids = {source.id for each in made for source, _ in each.found}
        before = await self._ledger.find_by_origins(target.org_id, spec.name, {*map(_origin, uploads)})
        within = structs.replace(sender, organizations=frozenset({target.org_id}), site=None)
        hidden = await self._catalogue.existing_sources(within, ids | before.keys()) if ids else set()
        for each in made:
            each.problems += [
                f"external_id: {source.external_id!r} is the name of a source that you may not see"
                for source, _ in each.found
                if source.id in hidden
            ]
            each.found = [(source, document) for source, document in each.found if source.id not in hidden]
        async with self._within_limits(target.org_id, made):
            return await self._put_in(spec, target, made, ids - hidden, hidden, basis)

    async def _put_in(
        self,
        spec: IndexSpec,
        target: Target,
        made: Sequence[_UploadResult],
        ids: Collection[UUID],
        hidden: Collection[UUID],
        basis: Basis | None,
    ) -> list[UploadedDocument]:
        ingestor = await self._ingestor(spec, target)
        before = await ingestor.builds(ids)
        # what the sender may not see stays, though it was sent under the same name
        await ingestor.ingest_documents(_read_results(made), standing=dict.fromkeys(hidden, ""), basis=basis)
        received = []
        for each in made:
            sources = [source for source, _ in each.found]
            first, status = next(iter(sources), None), "failed"
            if first is not None:
                same = all(source.id in before and before[source.id].holds(source) for source in sources)
                status = "unchanged" if same else "updated" if first.id in before else "added"
                if each.upload.file is not None:
                    await self._originals.keep(first, each.upload.file, each.upload.file_name)
            received.append(
                UploadedDocument(
                    id=first.id if first else None,
                    external_id=first.external_id if first else each.upload.external_id,
                    title=first.title if first else None,
                    status=status,
                    further=[source.id for source in sources[1:]],
                    undeclared=sorted({name for source in sources for name in undeclared_names(source, spec)}),
                    problems=[*each.problems, *each.remarks],
                    link=passage_link(first.id) if first else None,
                )
            )
        return received

    async def change(self, spec: IndexSpec, source: Source, title: str | None, metadata: Mapping[str, object]) -> None:
        """Change a source's title and metadata: the given keys are set, or removed if None.

        Raises InvalidInput, EmbeddingFailed, StoreFailed, NotFound, and SourceChanged if it is no longer stored as `source`.
        """
        content = await self._ledger.content(Scope(frozenset({source.org_id})), source.id, operator=True)
        said: dict[str, object] = {"source_type": source.source_type, "lang": source.lang, "uri": source.uri}
        said |= {"date": source.date, "title": title or source.title, **source.metadata, **source.untyped, **metadata}
        document = Document(
            "",
            tuple(Passage(**each) for each in content),
            metadata={key: value for key, value in said.items() if value is not None},
            external_id=source.external_id,
            row=source.row,
            sheet=source.sheet,
        )
        target = Target(
            source.org_id, source.site_id, source.owner_id, source.visibility, audience_id=source.audience_id
        )
        to_source(document, source.file_name or "", source.origin, spec, target)  # or it is refused
        file = File(Path(source.external_id[:200]), source.file_name or "", source.origin, Path())
        # the others of its file stay: nothing is removed for one that has not been read whole
        rest = UnreadableDocument(source.external_id, "not read again")
        ingestor = await self._ingestor(spec, target)
        parts: Documents = iter([document, rest])
        await ingestor.ingest_documents(iter([(file, parts)]), basis=Basis(source.id, source, same_file=True))

    async def delete(
        self, spec: IndexSpec, org_id: UUID, source_ids: Sequence[UUID], basis: Basis | None = None
    ) -> None:
        """Delete these sources of an organization. Raises SourceChanged if `basis` is no longer stored so."""
        await (await self._ingestor(spec, Target(org_id))).delete(source_ids, basis)

    @asynccontextmanager
    async def _within_limits(self, org_id: UUID, made: Sequence[_UploadResult]) -> AsyncIterator[None]:
        """Serializes uploads of an organization that has limits, so that no two of them use the same remaining space."""
        found = [(source, document) for each in made for source, document in each.found]
        if self._limits == Limits() or not found:
            yield
            return
        most, size = self._limits.sources, self._limits.size
        async with self._ledger.lock_for_counting(org_id):
            sources, taken = await self._catalogue.usage(org_id, [source.id for source, _ in found])
            if most is not None and sources + len(found) > most:
                raise OrganizationFull(
                    f"The organization may have at most {most:,} sources (RAG_ORGANIZATION_SOURCES). Delete some first"
                )
            taken += sum(len(passage.text.encode()) for _, document in found for passage in document.passages)
            taken += sum(each.upload.file.stat().st_size for each in made if each.upload.file is not None)
            if size is not None and taken > size:
                raise OrganizationFull(
                    f"The organization's sources may take at most {size / 1e6:,.0f} MB (RAG_ORGANIZATION_MEGABYTES)."
                    " Delete some first"
                )
            yield

    def _make(self, spec: IndexSpec, target: Target, uploads: Sequence[Upload]) -> list[_UploadResult]:
        """Runs in a thread, because reading and language detection are slow."""
        made, seen = [_UploadResult(each) for each in uploads], set[UUID]()
        for each, documents in self._read(spec, made):
            for document in documents:
                if isinstance(document, UnreadableDocument):
                    each.problems.append(document.reason)
                    continue
                try:
                    named = _assign_name(document, each.upload)
                    source = to_source(named, each.upload.file_name or "", _origin(each.upload), spec, target)
                    if source.id in seen:
                        raise InvalidInput("", None, f"{source.external_id!r} is there more than once")
                except InvalidInput as error:
                    each.problems.append(str(error))
                    continue
                seen.add(source.id)
                each.found.append((source, named))
                each.remarks += document.problems
        return made

    def _read(self, spec: IndexSpec, made: Sequence[_UploadResult]) -> Iterator[tuple[_UploadResult, Documents]]:
        files: list[tuple[_UploadResult, File]] = []
        for each in made:
            known, received = _read_text(each.upload), each.upload.file
            if known or received is None:
                yield each, iter(known)
            else:
                files.append((each, _file(each.upload, received, spec)))
        if files:
            with self._turn, closing(self._readers.read_all(file for _, file in files)) as reading:
                for (each, _), (_, documents) in zip(files, reading, strict=True):
                    yield each, documents


def _read_text(upload: Upload) -> list[Document | UnreadableDocument]:
    """The text as a document, or why there is nothing to read; nothing for a file that a reader reads."""
    text = (upload.text or "").strip()
    # an address (its derived `uri`) says nothing of what it leads to, as the name that somebody gave to a file does
    name = "" if "uri" in upload.derived else upload.file_name or ""
    if problem := upload.problem or (upload.file and name_problem(upload.file, name)):
        return [UnreadableDocument(upload.name, str(problem))]
    if upload.file is not None:
        return []
    if not text:
        return [UnreadableDocument(upload.name, "no text")]
    if len(text) > _MOST_CHARACTERS:
        return [UnreadableDocument(upload.name, f"more than {_MOST_CHARACTERS:,} characters")]
    first_line = text.partition("\n")[0].strip()[:_LONGEST_TITLE]
    return [Document("", (Passage(text),), upload.title or upload.file_name or first_line)]


def _file(upload: Upload, received: Path, spec: IndexSpec) -> File:
    """A file name of our own instead of the client's, with the suffix of the detected format."""
    suffix = tell_suffix(received, upload.file_name or "", upload.media_type)
    named = received.with_name(f"{received.name}{suffix}")
    if not named.exists():
        named.hardlink_to(received)
    rows = row_mapping(spec.rows, spec.fields, upload.file_name or upload.name, upload.rows)
    return File(named, upload.name, _origin(upload), named.parent, rows)


def _origin(upload: Upload) -> str:
    return f"{UPLOAD_ORIGIN}{upload.name}"


def _assign_name(document: Document, upload: Upload) -> Document:
    own = document.external_id
    if upload.external_id:
        name = f"{upload.external_id}#{own or document.name}" if document.name else upload.external_id
    else:
        name = own or (f"{upload.name}#{document.name}" if document.name else upload.name)
    title = document.title if document.name else upload.title or document.title
    return structs.replace(
        document,
        external_id=name,
        title=title,
        # a row says of itself what is said of its file as a whole
        metadata={**document.metadata, **upload.metadata}
        if document.row is None
        else {**upload.metadata, **document.metadata},
        derived={**upload.derived, **document.derived},
        problems=(),
    )


def _read_results(made: Iterable[_UploadResult]) -> Iterator[tuple[File, Documents]]:
    for each in made:
        if each.found:
            shown = each.upload.file_name or ""
            parts: list[Document | UnreadableDocument] = [document for _, document in each.found]
            # what could not be read may be what stands there now: nothing is removed for it
            parts += [UnreadableDocument(each.upload.name, problem) for problem in each.problems]
            yield File(Path(each.upload.name[:200]), shown, _origin(each.upload), Path()), iter(parts)


_PREFIX = "rag-files-"
_YOUNG = 60.0  # seconds of a folder's life in which it may not be locked yet


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder, removed at exit."""
    with TemporaryDirectory(prefix=_PREFIX) as name:
        lock = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(lock)


def remove_abandoned_folders(now: float | None = None) -> None:
    """Remove those of processes that were killed. `now` is the time since the epoch."""
    oldest = (time.time() if now is None else now) - _YOUNG
    for folder in Path(gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is another user's, or has gone
            if folder.stat().st_uid == os.geteuid() and folder.stat().st_mtime < oldest:
                _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)
