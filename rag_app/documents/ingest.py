"""Keeps an organization's part of an index in step with files.

Read, compare by content hash, split, embed, and then write under a lock: the ledger says what is about to be
written, the store replaces the source's chunks, the ledger says it is done. Killed anywhere, the same command
again ends where an undisturbed one does.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Document, Passage
from rag_app.documents.metadata import Target, to_source
from rag_app.documents.readers import documents_below, read
from rag_app.domain.errors import InvalidInput, UnreadableDocument
from rag_app.domain.source import Source
from rag_app.retrieval.embedding import embed_texts
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import ScopedStore, searchable_text

_BATCH = 32  # sources written together


class Build(Protocol):
    """What of a source stands in the vector store."""

    @property
    def version(self) -> str: ...
    @property
    def state(self) -> str: ...


class Ledger(Protocol):
    """The truth about sources, in PostgreSQL (`rag_app.documents.ledger.SourceLedger`)."""

    def writing(self, org_id: UUID, index: str) -> AbstractAsyncContextManager[None]: ...
    async def builds(self, org_id: UUID, generation_id: int, source_ids: Collection[UUID]) -> Mapping[UUID, Build]: ...
    async def begin_many(
        self, batch: Sequence[tuple[Source, Sequence[Mapping[str, Any]]]], generation_id: int
    ) -> None: ...
    async def finish_many(self, batch: Sequence[tuple[Source, int]], generation_id: int) -> None: ...
    async def of_origin(self, org_id: UUID, index: str, origin: str) -> list[UUID]: ...
    async def deleting(self, org_id: UUID, index: str) -> list[UUID]: ...
    async def mark_deleting(self, org_id: UUID, source_ids: Collection[UUID]) -> None: ...
    async def forget(self, org_id: UUID, source_ids: Collection[UUID]) -> None: ...


@dataclass(slots=True)
class Summary:
    """What an ingest did, in sources; `chunks` were written; `failed` says which files or parts, and why."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    chunks: int = 0
    failed: list[UnreadableDocument] = field(default_factory=list)


Erase = Callable[[Collection[UUID]], Awaitable[None]]
"""Takes the chunks of these sources out of every generation that holds some."""

Progress = Callable[[Path, Summary], None]
"""Called after each file, and after each batch of a large one."""


@dataclass(frozen=True, slots=True)
class _Work:
    source: Source
    passages: tuple[Passage, ...]
    nodes: list[TextNode]


class Ingestor:
    """Writes one organization's sources into one generation of an index."""

    def __init__(
        self, spec: IndexSpec, generation_id: int, store: ScopedStore, ledger: Ledger, embedder: BaseEmbedding,
        target: Target, erase: Erase,
    ) -> None:  # fmt: skip
        self._spec, self._generation, self._store, self._ledger = spec, generation_id, store, ledger
        self._embedder, self._target, self._erase = embedder, target, erase
        self._chunker = Chunker(spec.chunking)

    async def ingest(
        self, paths: Iterable[Path], *, base: Path, progress: Progress = lambda path, summary: None
    ) -> Summary:
        """Every file below `paths`. Sources are named by their file's path, relative to `base` if it is below it.

        A source that a file held before and holds no more is removed. What cannot be read is in the summary.
        """
        summary, seen = Summary(), set[UUID]()
        await self.finish_deletions()
        for path in (file for each in paths for file in documents_below(each)):
            await self._ingest_file(path, _shown(path, base), summary, seen, progress)
            progress(path, summary)
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

    async def _ingest_file(self, path: Path, shown: str, summary: Summary, seen: set[UUID], progress: Progress) -> None:
        here, failures = set[UUID](), len(summary.failed)
        writing: asyncio.Task[None] | None = None
        documents = self._sources(path, shown, summary, seen, here)
        try:
            async for batch in _in_batches(documents):
                work = await self._prepare(batch, summary)
                if writing is not None:
                    await writing
                    progress(path, summary)
                writing = asyncio.create_task(self._write(work, summary))  # while the next batch is embedded
        finally:
            if writing is not None:
                await writing
        if len(summary.failed) == failures:
            before = await self._ledger.of_origin(self._target.org_id, self._spec.name, _origin(path))
            gone = set(before) - here
            await self.delete(gone)
            summary.removed += len(gone)

    def _sources(
        self, path: Path, shown: str, summary: Summary, seen: set[UUID], here: set[UUID]
    ) -> Iterator[tuple[Source, Document]]:
        """What a file holds; what is wrong with it or a part of it goes into the summary."""
        try:
            for document in read(path, shown):
                if isinstance(document, UnreadableDocument):
                    summary.failed.append(document)
                    continue
                part = document.external_id or document.name
                try:
                    source = to_source(document, shown, _origin(path), self._spec, self._target)
                    if source.id in seen:
                        raise InvalidInput("id", source.external_id, f"{source.external_id!r} is there more than once")
                except InvalidInput as error:
                    summary.failed.append(UnreadableDocument(f"{shown}#{part}" if part else shown, str(error)))
                    continue
                seen.add(source.id)
                here.add(source.id)
                yield source, document
        except UnreadableDocument as error:
            summary.failed.append(error)

    async def _prepare(self, batch: list[tuple[Source, Document]], summary: Summary) -> list[_Work]:
        """The sources of a batch that are new or changed, split and embedded."""
        builds = await self._ledger.builds(self._target.org_id, self._generation, [source.id for source, _ in batch])
        changed = [(source, document) for source, document in batch if not _is_current(source, builds)]
        summary.unchanged += len(batch) - len(changed)
        work = [
            _Work(source, document.passages, await asyncio.to_thread(self._chunker.split, source, document.passages))
            for source, document in changed
        ]
        await embed_nodes(self._embedder, [node for each in work for node in each.nodes])
        return work

    async def _write(self, work: list[_Work], summary: Summary) -> None:
        if not work:
            return
        async with self._ledger.writing(self._target.org_id, self._spec.name):
            # another ingest of the same files may have written them while this one embedded
            ids = [each.source.id for each in work]
            builds = await self._ledger.builds(self._target.org_id, self._generation, ids)
            todo = [each for each in work if not _is_current(each.source, builds)]
            contents = [(each.source, [asdict(passage) for passage in each.passages]) for each in todo]
            await self._ledger.begin_many(contents, self._generation)
            nodes = [node for each in todo for node in each.nodes]
            await self._store.write(nodes, replacing=[each.source.id for each in todo])
            await self._ledger.finish_many([(each.source, len(each.nodes)) for each in todo], self._generation)
        known = sum(each.source.id in builds for each in todo)
        summary.added += len(todo) - known
        summary.updated += known
        summary.unchanged += len(work) - len(todo)
        summary.chunks += len(nodes)


async def embed_nodes(embedder: BaseEmbedding, nodes: Sequence[TextNode]) -> None:
    """Give each chunk its vector. Raises EmbeddingFailed."""
    vectors = await embed_texts(embedder, [searchable_text(node) for node in nodes])
    for node, vector in zip(nodes, vectors, strict=True):
        node.embedding = vector


def _is_current(source: Source, builds: Mapping[UUID, Build]) -> bool:
    build = builds.get(source.id)
    return build is not None and build.state == "ready" and build.version == source.version


def _shown(path: Path, base: Path) -> str:
    absolute, base = path.resolve(), base.resolve()
    return absolute.relative_to(base).as_posix() if absolute.is_relative_to(base) else absolute.as_posix()


def _origin(path: Path) -> str:
    return path.resolve().as_posix()


async def _in_batches(items: Iterator[Any]) -> AsyncIterator[list[Any]]:
    """Reading is not for the event loop's thread."""
    while batch := await asyncio.to_thread(lambda: list(islice(items, _BATCH))):
        yield batch
