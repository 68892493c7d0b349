"""Keeps an organization's part of an index in step with files.

Unchanged files are skipped. The others are read, compared by content hash, split, embedded, and then written under a
lock: the ledger records what will be written, the store replaces the sources' chunks, the ledger records the end.
Sources are processed in batches, whatever files they come from: while one batch is written, the next is embedded, and
the one after it is read and split. After a kill at any point, the same command ends in the same state as an undisturbed
one. Rebuilding and moving write the same way, with the functions at the end.
"""

import asyncio
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.metadata import version
from itertools import islice
from pathlib import Path, PurePath
from typing import TypeVar
from uuid import UUID

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode
from msgspec import Struct, structs

from rag_app.documents.catalogue import UPLOAD_ORIGIN
from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Document, Documents, Passage
from rag_app.documents.ledger import (
    NO_BUILD,
    Basis,
    Build,
    FileRead,
    Place,
    SourceLedger,
    WriteLock,
    locate,
    version_number,
)
from rag_app.documents.metadata import Target, to_source
from rag_app.documents.reading import File, ReaderPool, digest_of, documents_below, is_utf8
from rag_app.domain import InvalidInput, RowsRule, Source, UnreadableDocument, row_mapping
from rag_app.retrieval.embedding import embed_texts
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import ScopedStore, searchable_text

_SOURCES = 128  # sources, or files, written together: what a transaction costs is shared by all of them
_LOOKED_UP = 1_000  # files of which is asked together whether they are as they were
_CHARACTERS = 100_000  # of text after which a batch is full however few its sources are: some seconds of embedding

Batch = TypeVar("Batch")
PreparedBatch = TypeVar("PreparedBatch")

Work = Sequence[tuple[Source, Sequence[TextNode]]]
"""Sources of one organization with their chunks, embedded."""

Erase = Callable[[Collection[UUID]], Awaitable[None]]
"""Takes the chunks of these sources out of every generation that holds some."""


class Summary(Struct):
    """The result of an ingest in sources. `chunks` were written; `failed` names files or parts, with reasons."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    chunks: int = 0
    failed: list[UnreadableDocument] = []


Progress = Callable[[Sequence[Path], Summary], None]
"""Called after each batch, with the files whose sources stand in the store now, or the one that the batch is a part of."""


@dataclass(slots=True, eq=False)
class _FileProgress:
    """The progress of reading a file: whether it was complete and without remarks so far, and its sources."""

    file: File
    whole: bool = True
    faultless: bool = True
    sources: int = 0
    versions: int = 0

    @property
    def as_read(self) -> FileRead | None:
        """The record that lets the next ingest skip the file; None if its problems must be reported again."""
        if not self.faultless or not self.sources or self.file.digest is None:
            return None
        return self.file.origin, self.file.digest, self.sources, self.versions


@dataclass(slots=True)
class _Batch:
    """Documents that are processed together. `ended` are the files whose last source is in this batch or an earlier one,
    `builds` those of its sources, and `work` the sources that are not unchanged, with their passages and chunks."""

    found: list[tuple[Source, Document]] = field(default_factory=list)
    ended: list[_FileProgress] = field(default_factory=list)
    last: Path = Path()
    characters: int = 0
    builds: dict[UUID, Build] = field(default_factory=dict)
    work: list[tuple[Source, Sequence[Passage], Sequence[TextNode]]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.found) >= _SOURCES or len(self.ended) > _SOURCES or self.characters >= _CHARACTERS


class Ingestor:
    """Writes one organization's sources into one generation of an index.

    `change`, where it is set, is applied to each document before it is ingested.
    """

    def __init__(
        self,
        spec: IndexSpec,
        generation_id: int,
        store: ScopedStore,
        ledger: SourceLedger,
        embedder: BaseEmbedding,
        dimension: int,
        target: Target,
        erase: Erase,
        readers: ReaderPool,
    ) -> None:
        self._spec, self._generation, self._store, self._ledger = spec, generation_id, store, ledger
        self._embedder, self._dimension = embedder, dimension
        self._target, self._erase, self._readers = target, erase, readers
        self._chunker = Chunker(spec.chunking)
        self._settings = (
            version("rag_app"),
            spec.fields,
            [(name, words.formula) for name, words in spec.vocabulary.items() if words.formula],
            spec.source_types,
            spec.default_source_type,
            spec.languages,
            target,
        )
        self.change: Callable[[Document], Document] | None = None

    async def ingest(
        self,
        paths: Iterable[Path],
        *,
        base: Path,
        progress: Progress = lambda paths, summary: None,
        summary: Summary | None = None,
        exclude: Sequence[str] = (),
        rows: RowsRule | None = None,
        dry_run: bool = False,
    ) -> Summary:
        """Every file below `paths`. Sources are named by their file's path, relative to `base` if it is below it.

        Removes a source that its file does not contain any more. Skips a file that is unchanged and whose sources are
        present. The summary lists what cannot be read, and adds to the one given. Skips files that match a pattern of
        `exclude` (`fnmatch`, on the name or the path below the folder of a file, or of a folder that it is in). With `rows`, that rule makes each row of a
        table a source, as the index's own rules do for some files. With `dry_run` nothing is embedded or written,
        and the summary says what would be.
        """
        summary, standing = summary or Summary(), dict[UUID, str]()
        files = await self._select_changed(self._files(paths, base, exclude, rows), summary, progress, standing)
        with closing(self._readers.read_all(map(self._with_digest, files))) as reading:
            return await self.ingest_documents(
                reading, progress=progress, summary=summary, dry_run=dry_run, standing=standing
            )

    def _files(
        self, paths: Iterable[Path], base: Path, exclude: Sequence[str], rows: RowsRule | None
    ) -> Iterator[File]:
        root = base.resolve()
        for given, path in offered_files(paths, exclude):
            there = os.path.exists(path)  # noqa: PTH110 - that of a path raises PermissionError
            origin = path.resolve() if there else path.parent.resolve() / path.name
            below = (origin.relative_to(root) if origin.is_relative_to(root) else origin).as_posix()
            shown = os.fsencode(below).decode(errors="backslashreplace")
            mapping = row_mapping(self._spec.rows, self._spec.fields, shown, rows)
            yield File(path, shown, origin.as_posix(), given if given.is_dir() else given.parent, mapping)

    async def _select_changed(
        self, files: Iterator[File], summary: Summary, progress: Progress, standing: dict[UUID, str]
    ) -> list[File]:
        """The files to read. The others are counted, and their sources added to `standing`, with the file's name."""
        changed: list[File] = []
        while offered := await asyncio.to_thread(lambda: [*islice(files, _LOOKED_UP)]):
            some: list[File] = []
            for file in offered:
                if is_utf8(file.origin):
                    some.append(file)
                    continue
                what = "the name of its folder" if is_utf8(file.path.name) else "its name"
                summary.failed.append(UnreadableDocument(file.shown, f"{what} is not UTF-8: rename it"))
            origins = [file.origin for file in some]
            org_id, index = self._target.org_id, self._spec.name
            read = await self._ledger.files_as_read(org_id, index, self._generation, origins)
            for file in await asyncio.to_thread(self._with_digests, some, read):
                digest, sources = read.get(file.origin, ("", []))
                if file.digest != digest:
                    changed.append(file)
                    continue
                standing.update(dict.fromkeys(sources, file.shown))
                summary.unchanged += len(sources)
            waiting = {file.path for file in changed}
            if done := [file.path for file in offered if file.path not in waiting]:
                progress(done, summary)
        return changed

    def _with_digests(self, files: Sequence[File], read: Collection[str]) -> list[File]:
        return [self._with_digest(file) if file.origin in read else file for file in files]

    def _with_digest(self, file: File) -> File:
        """The file with the digest of everything that its sources depend on, except `change`."""
        if file.digest is not None or self.change is not None:
            return file
        said = repr((self._settings, file.shown, file.root, file.rows))
        return file._replace(digest=digest_of(file, said.encode()))

    async def ingest_documents(
        self,
        reading: Iterator[tuple[File, Documents]],
        *,
        progress: Progress = lambda paths, summary: None,
        summary: Summary | None = None,
        dry_run: bool = False,
        standing: Mapping[UUID, str] | None = None,
        basis: Basis | None = None,
    ) -> Summary:
        """The same for documents already read, or read while `reading` is iterated, in a thread.

        No source is removed for a file without an origin. Sources in `standing` belong to other files, which are named.
        Raises SourceChanged, and leaves the source of `basis` as it is, if that is no longer stored so.
        """
        summary = summary or Summary()
        if not dry_run:
            await self.finish_deletions()
        async with self._ledger.writer(self._target.org_id, self._spec.name) as writing:
            run = _Run(self, summary, progress, writing, dry_run, {**(standing or {})}, basis)
            if dry_run:
                async for split in run.batches(reading):
                    await run.foresee(split)
            else:
                await overlap(run.batches(reading), run.embed, run.write)
        return summary

    async def builds(self, source_ids: Collection[UUID]) -> dict[UUID, Build]:
        """What the generation has of these sources."""
        return await self._ledger.builds(self._target.org_id, self._generation, source_ids)

    async def prune(
        self, folders: Iterable[Path], *, summary: Summary | None = None, dry_run: bool = False
    ) -> list[str]:
        """Remove the sources whose files have gone from these folders; returns those files.

        A file that cannot be accessed counts as present, and so do the files of a folder that is empty, perhaps because
        it is not mounted: raises InvalidInput if sources were read from such a folder.
        """
        gone: list[str] = []
        for folder in folders:
            root = folder.resolve()
            if not is_utf8(root.as_posix()):  # nothing was read from it
                continue
            known = await self._ledger.origins_below(self._target.org_id, self._spec.name, root.as_posix())
            if known and not any(map(os.path.exists, documents_below(root))):
                raise InvalidInput("--prune", str(folder), f"{folder} contains no files: is it mounted?")
            gone += await asyncio.to_thread(list, filter(_is_gone, known))
        for first in range(0, len(gone), _SOURCES):
            origins = gone[first : first + _SOURCES]
            sources = await self._ledger.find_by_origins(self._target.org_id, self._spec.name, origins)
            if not dry_run:
                await self.delete(sources)
            if summary is not None:
                summary.removed += len(sources)
        return gone

    async def delete(self, source_ids: Collection[UUID], basis: Basis | None = None) -> None:
        """Delete these sources of the organization from every generation and from the ledger. Raises SourceChanged if
        `basis` is no longer stored so."""
        if source_ids:
            async with self._ledger.writer(self._target.org_id, self._spec.name) as writing:
                await self._delete(writing, source_ids, basis)

    async def _delete(self, writing: WriteLock, source_ids: Collection[UUID], basis: Basis | None = None) -> None:
        async with writing():
            await self._ledger.mark_deleting(self._target.org_id, source_ids, basis)
            await self._erase(source_ids)
            await self._ledger.forget(self._target.org_id, source_ids)

    async def finish_deletions(self) -> None:
        """Complete interrupted deletions."""
        await self.delete(await self._ledger.list_deleting(self._target.org_id, self._spec.name))


class _Run:
    """One pass of an ingestor over files."""

    def __init__(
        self,
        ingestor: Ingestor,
        summary: Summary,
        progress: Progress,
        writing: WriteLock,
        dry_run: bool,
        seen: dict[UUID, str],
        basis: Basis | None,
    ) -> None:
        self._ingestor, self._summary, self._progress = ingestor, summary, progress
        self._writing, self._dry_run = writing, dry_run
        self._ledger, self._generation = ingestor._ledger, ingestor._generation
        self._target, self._spec = ingestor._target, ingestor._spec
        self._seen, self._basis = seen, basis

    async def batches(self, reading: Iterator[tuple[File, Documents]]) -> AsyncIterator[_Batch]:
        """The batches to embed and write, split. Reads outside the event loop's thread."""
        gathering = self._gather(reading)
        while (batch := await asyncio.to_thread(next, gathering, None)) is not None:
            batch.builds = await self._ingestor.builds([source.id for source, _ in batch.found])
            held = [source for source, _ in batch.found if batch.builds.get(source.id, NO_BUILD).holds(source)]
            self._summary.unchanged += len(held)
            # unchanged, but in another file or row; what is uploaded unchanged stays that of its file
            moved = [source for source in held if _has_moved(batch.builds[source.id].place, locate(source))]
            if moved and not self._dry_run:
                await self._ledger.move(self._target.org_id, moved)
                await self._ingestor._store.move(moved)
            await asyncio.to_thread(self._split, batch, {source.id for source in held})
            yield batch

    def _gather(self, reading: Iterator[tuple[File, Documents]]) -> Iterator[_Batch]:
        batch = _Batch()
        for file, documents in reading:
            following = _FileProgress(file)
            for source, document in self._sources(following, documents):
                batch.found.append((source, document))
                batch.last = file.path
                batch.characters += sum(len(passage.text) for passage in document.passages)
                if batch.full:
                    yield batch
                    batch = _Batch()
            batch.ended.append(following)
            if batch.full:
                yield batch
                batch = _Batch()
        if batch.found or batch.ended:
            yield batch

    def _sources(self, following: _FileProgress, documents: Documents) -> Iterator[tuple[Source, Document]]:
        file = following.file
        for read in documents:
            if isinstance(read, UnreadableDocument):
                self._fail(following, read)
                continue
            document = self._ingestor.change(read) if self._ingestor.change else read
            part = document.external_id or document.name
            # a row is taken in without what of it could not be read: its file has been read whole
            self._summary.failed += [UnreadableDocument(file.shown, problem) for problem in document.problems]
            following.faultless = following.faultless and not document.problems
            try:
                source = to_source(document, file.shown, file.origin, self._spec, self._target)
                if (other := self._seen.get(source.id)) is not None:
                    also = f", also in {other}" if other not in ("", file.shown) else ""
                    problem = f"{source.external_id!r} occurs more than once{also}"
                    raise InvalidInput("id", source.external_id, problem)
            except InvalidInput as error:
                shown = f"{file.shown}#{part}" if part else file.shown
                row = f"row {document.row}: " if document.row is not None else ""
                self._fail(following, UnreadableDocument(shown, row + str(error)))
                continue
            self._seen[source.id] = file.shown
            following.sources += 1
            following.versions += version_number(source.version)
            yield source, document

    def _fail(self, following: _FileProgress, failure: UnreadableDocument) -> None:
        following.whole = following.faultless = False
        self._summary.failed.append(failure)

    def _split(self, batch: _Batch, held: Collection[UUID]) -> None:
        for source, document in batch.found:
            if source.id not in held:
                nodes = self._ingestor._chunker.split(source, document.passages)
                batch.work.append((source, document.passages, nodes))

    async def embed(self, split: _Batch) -> _Batch:
        changed = [source.id for source, *_ in split.work if source.id in split.builds]
        known = await self._ingestor._store.export(changed) if changed else []
        nodes = [node for *_, chunks in split.work for node in chunks]
        await embed_nodes(self._ingestor._embedder, self._ingestor._dimension, nodes, known)
        return split

    async def write(self, split: _Batch) -> None:
        if split.work:
            async with self._writing():
                await self._write(split)
        if gone := await self._find_removed(split.ended):
            await self._ingestor._delete(self._writing, gone)
            self._summary.removed += len(gone)
        if read := [known for each in split.ended if (known := each.as_read) is not None]:
            await self._ledger.keep_files(self._target.org_id, self._spec.name, read)
        self._tell(split)

    async def _write(self, split: _Batch) -> None:
        # another ingest of the same files may have written them while this one embedded
        builds = await self._ingestor.builds([source.id for source, *_ in split.work])
        todo = [each for each in split.work if not builds.get(each[0].id, NO_BUILD).holds(each[0])]
        await self._ledger.begin(
            [(source, [structs.asdict(passage) for passage in passages]) for source, passages, _ in todo],
            self._generation,
            self._basis,
        )
        self._summary.chunks += await write_sources(
            self._ledger, self._ingestor._store, self._generation, [(source, nodes) for source, _, nodes in todo]
        )
        self._summary.unchanged += len(split.work) - len(todo)
        self._count([source for source, *_ in todo], builds)

    async def foresee(self, split: _Batch) -> None:
        """Count what `write` would do."""
        self._count([source for source, *_ in split.work], split.builds)
        self._summary.chunks += sum(len(nodes) for *_, nodes in split.work)
        self._summary.removed += len(await self._find_removed(split.ended))
        self._tell(split)

    def _count(self, sources: Sequence[Source], builds: Collection[UUID]) -> None:
        known = sum(source.id in builds for source in sources)
        self._summary.added += len(sources) - known
        self._summary.updated += known

    async def _find_removed(self, ended: Sequence[_FileProgress]) -> set[UUID]:
        """The sources that these files no longer contain. Nothing is known of a file that could not be read completely."""
        origins = {each.file.origin for each in ended if each.whole and each.file.origin}
        if not origins:
            return set()
        held = await self._ledger.find_by_origins(self._target.org_id, self._spec.name, origins)
        return held.keys() - self._seen.keys()

    def _tell(self, split: _Batch) -> None:
        self._progress([each.file.path for each in split.ended] or [split.last], self._summary)


def offered_files(paths: Iterable[Path], exclude: Sequence[str] = ()) -> Iterator[tuple[Path, Path]]:
    """Each file below `paths` that no pattern of `exclude` excludes, once, after the path it belongs to."""
    offered = set[str]()
    for given in paths:
        for path in documents_below(given):
            if any(_excludes(pattern, given, path) for pattern in exclude):
                continue
            if (origin := os.path.realpath(path)) not in offered:
                offered.add(origin)
                yield given, path


def find_unused_patterns(paths: Iterable[Path], exclude: Sequence[str]) -> list[str]:
    """The patterns of `exclude` that exclude none of the files below `paths`."""
    offered = [*offered_files(paths)] if exclude else []
    return [pattern for pattern in exclude if not any(_excludes(pattern, *each) for each in offered)]


def _excludes(pattern: str, given: Path, path: Path) -> bool:
    """Whether the pattern fits the name or the path of the file, or of one of its folders, below the folder `given`."""
    below = path.relative_to(given) if given.is_dir() else PurePath(path.name)
    wanted = pattern.rstrip("/")
    return any(fnmatch(each.name, wanted) or fnmatch(str(each), wanted) for each in (below, *below.parents[:-1]))


def _has_moved(before: Place, now: Place) -> bool:
    uploaded = now[0].startswith(UPLOAD_ORIGIN) and not before[0].startswith(UPLOAD_ORIGIN)
    return before != now and not uploaded


def _is_gone(origin: str) -> bool:
    """Whether there is no such file. One that cannot be accessed may be there."""
    try:
        Path(origin).lstat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


async def embed_nodes(
    embedder: BaseEmbedding, dimension: int, nodes: Sequence[TextNode], known: Iterable[TextNode] = ()
) -> None:
    """Set each chunk's vector: from a chunk in `known` with the same text, or the model's.

    Raises EmbeddingFailed, also if the model's vectors do not have `dimension` numbers.

    The longest come first, so that texts of one batch need little padding and no thread starts a long text when the
    others have finished.
    """
    vectors = {searchable_text(node): node.embedding for node in known}
    texts = [searchable_text(node) for node in nodes]
    new = sorted({text: None for text in texts if text not in vectors}, key=lambda text: -len(text))
    if new:
        vectors |= zip(new, await embed_texts(embedder, new, dimension), strict=True)
    for node, text in zip(nodes, texts, strict=True):
        node.embedding = vectors[text]


async def write_sources(ledger: SourceLedger, store: ScopedStore, generation_id: int, work: Work) -> int:
    """Replace these sources' chunks in the store. Returns the number of chunks."""
    nodes = [node for _, chunks in work for node in chunks]
    if work:
        await store.write(nodes, replacing=[source.id for source, _ in work])
        await ledger.finish([(source, len(chunks)) for source, chunks in work], generation_id)
    return len(nodes)


async def overlap(
    batches: AsyncIterator[Batch],
    prepare: Callable[[Batch], Awaitable[PreparedBatch]],
    write: Callable[[PreparedBatch], Awaitable[None]],
) -> None:
    """Prepare each batch while the previous one is written and the next one fetched.

    Nothing is still running when this returns or raises.
    """
    fetching = asyncio.ensure_future(_next(batches))
    writing = asyncio.ensure_future(asyncio.sleep(0))
    try:
        while (batch := await fetching) is not None:
            fetching = asyncio.ensure_future(_next(batches))
            prepared = await prepare(batch)
            await writing
            writing = asyncio.ensure_future(write(prepared))
    finally:
        # a thread that reads cannot be stopped: what it reads from is in use until it is done
        await asyncio.gather(fetching, return_exceptions=True)
        await writing


async def _next(batches: AsyncIterator[Batch]) -> Batch | None:
    return await anext(batches, None)
