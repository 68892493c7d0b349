"""Keeps an organization's part of an index in step with files.

Read, compare by content hash, split, embed, and then write under a lock: the ledger says what is about to be
written, the store replaces the source's chunks, the ledger says it is done. Killed anywhere, the same command
again ends where an undisturbed one does. Rebuilding and moving write the same way, with the functions at the end.
"""

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Document, Passage
from rag_app.documents.ledger import NO_BUILD, SourceLedger
from rag_app.documents.metadata import Target, to_source
from rag_app.documents.reading import Documents, File, Readers, documents_below
from rag_app.domain import InvalidInput, Source, UnreadableDocument
from rag_app.retrieval.embedding import embed_texts
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import ScopedStore, searchable_text

_BATCH = 32  # sources written together

Batch = TypeVar("Batch")
Prepared = TypeVar("Prepared")

Work = Sequence[tuple[Source, Sequence[TextNode]]]
"""Sources of one organization with their chunks, embedded."""

Erase = Callable[[Collection[UUID]], Awaitable[None]]
"""Takes the chunks of these sources out of every generation that holds some."""


@dataclass(slots=True)
class Summary:
    """What an ingest did, in sources; `chunks` were written; `failed` says which files or parts, and why."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    chunks: int = 0
    failed: list[UnreadableDocument] = field(default_factory=list)


Progress = Callable[[Path, Summary], None]
"""Called after each batch that is written, and after each file."""

_Work = Sequence[tuple[Source, Sequence[Passage], Sequence[TextNode]]]


class Ingestor:
    """Writes one organization's sources into one generation of an index."""

    def __init__(
        self,
        spec: IndexSpec,
        generation_id: int,
        store: ScopedStore,
        ledger: SourceLedger,
        embedder: BaseEmbedding,
        target: Target,
        erase: Erase,
        readers: Readers,
    ) -> None:
        self._spec, self._generation, self._store, self._ledger = spec, generation_id, store, ledger
        self._embedder, self._target, self._erase, self._readers = embedder, target, erase, readers
        self._chunker = Chunker(spec.chunking)

    async def ingest(
        self,
        paths: Iterable[Path],
        *,
        base: Path,
        progress: Progress = lambda path, summary: None,
        summary: Summary | None = None,
    ) -> Summary:
        """Every file below `paths`. Sources are named by their file's path, relative to `base` if it is below it.

        A source that a file held before and holds no more is removed. What cannot be read is in the summary, which
        adds to the one that is given.
        """
        with closing(self._readers.read_all(_files(paths, base))) as reading:
            return await self.ingest_documents(reading, progress=progress, summary=summary)

    async def ingest_documents(
        self,
        reading: Iterator[tuple[File, Documents]],
        *,
        progress: Progress = lambda path, summary: None,
        summary: Summary | None = None,
    ) -> Summary:
        """The same for documents that have been read, or are as `reading` is iterated."""
        summary, seen = summary or Summary(), set[UUID]()
        await self.finish_deletions()
        for file, documents in reading:
            await self._ingest_file(file, documents, summary, seen, progress)
            progress(file.path, summary)
        return summary

    async def delete(self, source_ids: Collection[UUID]) -> None:
        """These sources of the organization never answer again, in whatever generation, and the ledger forgets them."""
        if source_ids:
            async with self._ledger.writing(self._target.org_id, self._spec.name):
                await self._ledger.mark_deleting(self._target.org_id, source_ids)
                await self._erase(source_ids)
                await self._ledger.forget(self._target.org_id, source_ids)

    async def finish_deletions(self) -> None:
        """Complete what an interrupted deletion left."""
        await self.delete(await self._ledger.deleting(self._target.org_id, self._spec.name))

    async def _ingest_file(
        self, file: File, documents: Documents, summary: Summary, seen: set[UUID], progress: Progress
    ) -> None:
        here, failures = set[UUID](), len(summary.failed)

        async def write(work: _Work) -> None:
            await self._write(work, summary)
            progress(file.path, summary)

        sources = self._sources(file, documents, summary, seen, here)
        await overlap(_in_batches(sources), partial(self._prepare, summary), write)
        if len(summary.failed) == failures:
            gone = set(await self._ledger.of_origin(self._target.org_id, self._spec.name, file.origin)) - here
            await self.delete(gone)
            summary.removed += len(gone)

    def _sources(
        self, file: File, documents: Documents, summary: Summary, seen: set[UUID], here: set[UUID]
    ) -> Iterator[tuple[Source, Document]]:
        for document in documents:
            if isinstance(document, UnreadableDocument):
                summary.failed.append(document)
                continue
            part = document.external_id or document.name
            try:
                source = to_source(document, file.shown, file.origin, self._spec, self._target)
                if source.id in seen:
                    raise InvalidInput("id", source.external_id, f"{source.external_id!r} is there more than once")
            except InvalidInput as error:
                shown = f"{file.shown}#{part}" if part else file.shown
                summary.failed.append(UnreadableDocument(shown, str(error)))
                continue
            seen.add(source.id)
            here.add(source.id)
            yield source, document

    async def _prepare(self, summary: Summary, batch: list[tuple[Source, Document]]) -> _Work:
        ids = [source.id for source, _ in batch]
        builds = await self._ledger.builds(self._target.org_id, self._generation, ids)
        work = [
            (source, document.passages, await asyncio.to_thread(self._chunker.split, source, document.passages))
            for source, document in batch
            if not builds.get(source.id, NO_BUILD).holds(source)
        ]
        summary.unchanged += len(batch) - len(work)
        await embed_nodes(self._embedder, [node for *_, nodes in work for node in nodes])
        return work

    async def _write(self, work: _Work, summary: Summary) -> None:
        if not work:
            return
        async with self._ledger.writing(self._target.org_id, self._spec.name):
            # another ingest of the same files may have written them while this one embedded
            ids = [source.id for source, *_ in work]
            builds = await self._ledger.builds(self._target.org_id, self._generation, ids)
            todo = [each for each in work if not builds.get(each[0].id, NO_BUILD).holds(each[0])]
            await self._ledger.begin(
                [(source, [asdict(passage) for passage in passages]) for source, passages, _ in todo], self._generation
            )
            summary.chunks += await write_sources(
                self._ledger, self._store, self._generation, [(source, nodes) for source, _, nodes in todo]
            )
        known = sum(source.id in builds for source, *_ in todo)
        summary.added += len(todo) - known
        summary.updated += known
        summary.unchanged += len(work) - len(todo)


def _files(paths: Iterable[Path], base: Path) -> Iterator[File]:
    root = base.resolve()
    for given in paths:
        folder = given if given.is_dir() else given.parent
        for path in documents_below(given):
            origin = path.resolve()
            shown = origin.relative_to(root) if origin.is_relative_to(root) else origin
            yield File(path, shown.as_posix(), origin.as_posix(), folder)


async def _in_batches(items: Iterator[Any]) -> AsyncIterator[list[Any]]:
    """Reading is not for the event loop's thread."""
    while batch := await asyncio.to_thread(lambda: list(islice(items, _BATCH))):
        yield batch


async def embed_nodes(embedder: BaseEmbedding, nodes: Sequence[TextNode]) -> None:
    """Give each chunk its vector. Raises EmbeddingFailed."""
    vectors = await embed_texts(embedder, [searchable_text(node) for node in nodes])
    for node, vector in zip(nodes, vectors, strict=True):
        node.embedding = vector


async def write_sources(ledger: SourceLedger, store: ScopedStore, generation_id: int, work: Work) -> int:
    """Replace what the store holds of these sources with the chunks given. Returns how many chunks those are."""
    nodes = [node for _, chunks in work for node in chunks]
    if work:
        await store.write(nodes, replacing=[source.id for source, _ in work])
        await ledger.finish([(source, len(chunks)) for source, chunks in work], generation_id)
    return len(nodes)


async def overlap(
    batches: AsyncIterable[Batch],
    prepare: Callable[[Batch], Awaitable[Prepared]],
    write: Callable[[Prepared], Awaitable[None]],
) -> None:
    """Prepare each batch while the one before it is written; both are done when this returns or raises."""
    writing = asyncio.ensure_future(asyncio.sleep(0))
    try:
        async for batch in batches:
            prepared = await prepare(batch)
            await writing
            writing = asyncio.ensure_future(write(prepared))
    finally:
        await writing
