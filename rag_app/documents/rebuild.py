"""Brings a generation of an index up to what the ledger says, from the content that is kept there: no files needed.

What is written is decided under the ledger's lock, source by source: one that changed or went while it was embedded
is left for the next pass, or for good. Killed anywhere, another run goes on where this one was.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from uuid import UUID

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Passage
from rag_app.documents.ledger import Passages, SourceLedger
from rag_app.documents.metadata import under
from rag_app.documents.writing import Work, embed_nodes, overlap, write_sources
from rag_app.domain.errors import EmbeddingFailed, InvalidInput
from rag_app.domain.source import Source
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import ScopedStore

_REFUSED = 5  # sources in a row that an embedding model refuses before it is taken to be out of order


Batch = Sequence[tuple[Source, Passages]]
"""Sources with the content that the ledger keeps."""


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """A source that could not be built, and why."""

    source: Source
    reason: str


@dataclass(slots=True)
class Built:
    """What a rebuild did: `sources` were written, in so many `chunks`; `failed` could not be.

    `compared`: sources that a move has read back, in both stores.
    """

    sources: int = 0
    chunks: int = 0
    compared: int = 0
    failed: list[Unbuilt] = field(default_factory=list)


Progress = Callable[[Built], None]
"""Called after each batch."""


class Filling(ABC):
    """Writes the sources of all organizations into one generation of an index; where from, a subclass knows.

    `organizations` gives those there are; it is asked again, for there may be more. `open_store` gives the
    generation as one of them sees it.
    """

    batch = 32
    """Sources written together."""

    def __init__(
        self,
        spec: IndexSpec,
        generation_id: int,
        organizations: Callable[[], Awaitable[Collection[UUID]]],
        open_store: Callable[[UUID], ScopedStore],
        ledger: SourceLedger,
        progress: Progress,
    ) -> None:
        self._spec, self._generation, self._organizations = spec, generation_id, organizations
        self._open_store, self._ledger, self._progress = open_store, ledger, progress
        self.built = Built()

    async def lacking(self) -> dict[UUID, int]:
        """How many sources of each organization are still to be built."""
        return await self._ledger.lacking(await self._organizations(), self._spec.name, self._generation)

    async def run(self) -> None:
        """Write what is lacking, until only what cannot be written is. Raises StoreFailed."""
        lacking = await self.lacking()
        while sum(lacking.values()) > len(self.built.failed):
            await self._pass(lacking, locked=True)
            lacking = await self.lacking()

    async def complete(self) -> bool:
        """Whether nothing is lacking, for a caller who keeps all writers out; the last few sources are written here."""
        lacking = await self.lacking()
        if 0 < sum(lacking.values()) <= self.batch:
            await self._pass(lacking, locked=False)
            lacking = await self.lacking()
        return not lacking

    async def _pass(self, organizations: Collection[UUID], *, locked: bool) -> None:
        self.built.failed.clear()
        for org_id in organizations:
            await self._build(org_id, locked)

    @abstractmethod
    async def _build(self, org_id: UUID, locked: bool) -> None:
        """One organization's; the ledger's lock is taken where `locked`, and is the caller's otherwise."""

    async def _next(self, org_id: UUID, after: UUID) -> Batch:
        """The first sources that are lacking, by id, from `after` on."""
        return await self._ledger.next_lacking(org_id, self._spec.name, self._generation, after, self.batch)

    async def _write(self, org_id: UUID, work: Work, locked: bool) -> None:
        async with self._ledger.writing(org_id, self._spec.name) if locked else nullcontext():
            claimed = await self._ledger.claim([source for source, _ in work], self._generation)
            todo = [(source, nodes) for source, nodes in work if source.id in claimed]
            chunks = await write_sources(self._ledger, self._open_store(org_id), self._generation, todo)
        self.built.sources += len(todo)
        self.built.chunks += chunks
        self._progress(self.built)


class Rebuild(Filling):
    """Splits and embeds the content that the ledger keeps.

    `run` raises EmbeddingFailed where the model is out of order.
    """

    def __init__(
        self,
        spec: IndexSpec,
        generation_id: int,
        organizations: Callable[[], Awaitable[Collection[UUID]]],
        open_store: Callable[[UUID], ScopedStore],
        ledger: SourceLedger,
        embedder: BaseEmbedding,
        progress: Progress = lambda built: None,
    ) -> None:
        super().__init__(spec, generation_id, organizations, open_store, ledger, progress)
        self._embedder, self._chunker = embedder, Chunker(spec.chunking)

    async def _build(self, org_id: UUID, locked: bool) -> None:
        await overlap(self._batches(org_id), self._prepare, lambda work: self._write(org_id, work, locked))

    async def _batches(self, org_id: UUID) -> AsyncIterator[Batch]:
        after = UUID(int=0)
        while batch := await self._next(org_id, after):
            yield batch
            after = batch[-1][0].id

    async def _prepare(self, batch: Batch) -> Work:
        """The sources of a batch, split and embedded."""
        work: list[tuple[Source, list[TextNode]]] = []
        for source, content in batch:
            passages = [Passage(**passage) for passage in content]
            try:
                work.append((source, await asyncio.to_thread(self._chunker.split, under(source, self._spec), passages)))
            except InvalidInput as error:
                self.built.failed.append(Unbuilt(source, str(error)))
        try:
            await embed_nodes(self._embedder, [node for _, nodes in work for node in nodes])
        except EmbeddingFailed:
            return await self._embed_one_by_one(work)
        return work

    async def _embed_one_by_one(self, work: Work) -> Work:
        """Those that the model takes. Raises EmbeddingFailed where it does not seem to be about the sources."""
        taken: list[tuple[Source, Sequence[TextNode]]] = []
        refused: list[Unbuilt] = []
        for source, nodes in work:
            try:
                await embed_nodes(self._embedder, nodes)
                taken.append((source, nodes))
            except EmbeddingFailed as error:
                refused.append(Unbuilt(source, str(error)))
                if len(refused) == _REFUSED and not taken:
                    raise
        self.built.failed.extend(refused)
        return taken
