"""Brings a generation of an index up to date with the ledger, from stored content: no files are needed.

A rebuild splits and embeds the content that the ledger keeps. A move copies what another vector store holds: no text is
embedded again. What is written is decided under the ledger's lock, source by source: one that changed or went
meanwhile is left for the next pass, or for good. Killed anywhere, another run goes on where this one was.

After a move both sides are read back and compared. Embeddings come back as the same directions, not as the same bytes:
Qdrant brings cosine vectors to unit length. So ids, texts and metadata are compared by checksum, embeddings one by one.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from uuid import UUID

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, TextNode
from msgspec import Struct

from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Passage
from rag_app.documents.generations import Generation
from rag_app.documents.ingest import Work, embed_nodes, overlap, write_sources
from rag_app.documents.ledger import NO_BUILD, Build, Passages, SourceLedger
from rag_app.documents.metadata import convert_metadata
from rag_app.domain import EmbeddingFailed, InvalidInput, Scope, Source
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import ScopedStore

_MOST_REFUSALS = 5  # sources in a row that an embedding model refuses before it is taken to be out of order
_DEVIATION = 1e-6
# By how much a component of a unit vector may differ. Single precision leaves 1e-8; 1e-6 moves no cosine visibly.

Batch = Sequence[tuple[Source, Passages]]
"""Sources with the content that the ledger keeps."""


class Unbuilt(Struct, frozen=True):
    """A source that could not be built, with the reason."""

    source: Source
    reason: str


@dataclass(slots=True)
class RebuildResult:
    """The result of a rebuild: `sources` were written in `chunks`; `failed` were not.

    `compared`: sources that a move has read back, in both stores.
    """

    sources: int = 0
    chunks: int = 0
    compared: int = 0
    failed: list[Unbuilt] = field(default_factory=list)


@dataclass
class Filling(ABC):
    """Writes the sources of all organizations into one generation of an index. A subclass provides their chunks.

    `organizations` gives those there are; it is asked again, for there may be more. `open_store` gives the
    generation as one of them sees it. `progress` is called after each batch.
    """

    spec: IndexSpec
    generation_id: int
    organizations: Callable[[], Awaitable[Collection[UUID]]]
    open_store: Callable[[UUID], ScopedStore]
    ledger: SourceLedger
    progress: Callable[[RebuildResult], None]
    built: RebuildResult = field(default_factory=RebuildResult, init=False)

    batch = 32
    """Sources written together."""

    async def count_unindexed(self) -> dict[UUID, int]:
        """The number of sources per organization still to be built."""
        return await self.ledger.count_unindexed(await self.organizations(), self.spec.name, self.generation_id)

    async def run(self) -> None:
        """Write the missing sources, until only those that fail remain. Raises StoreFailed."""
        lacking = await self.count_unindexed()
        while sum(lacking.values()) > len(self.built.failed):
            lacking = await self._pass(lacking, locked=True)

    async def complete(self) -> bool:
        """Write the last few missing sources while the caller excludes all writers; returns whether none is missing."""
        lacking = await self.count_unindexed()
        if 0 < sum(lacking.values()) <= self.batch:
            lacking = await self._pass(lacking, locked=False)
        return not lacking

    async def is_right(self) -> bool:
        """Whether what is written is what it should be, while the caller excludes all writers."""
        return True

    async def _pass(self, organizations: Collection[UUID], *, locked: bool) -> dict[UUID, int]:
        self.built.failed.clear()
        for org_id in organizations:
            await self._build(org_id, locked)
        return await self.count_unindexed()

    @abstractmethod
    async def _build(self, org_id: UUID, locked: bool) -> None:
        """One organization's; the ledger's lock is taken where `locked`, and is the caller's otherwise."""

    async def _next(self, org_id: UUID, after: UUID) -> Batch:
        return await self.ledger.next_unindexed(org_id, self.spec.name, self.generation_id, after, self.batch)

    async def _write(self, org_id: UUID, work: Work, locked: bool) -> None:
        async with self.ledger.lock_for_writing(org_id, self.spec.name) if locked else nullcontext():
            claimed = await self.ledger.claim([source for source, _ in work], self.generation_id)
            todo = [(source, nodes) for source, nodes in work if source.id in claimed]
            self.built.chunks += await write_sources(self.ledger, self.open_store(org_id), self.generation_id, todo)
        self.built.sources += len(todo)
        self.progress(self.built)


@dataclass
class Rebuild(Filling):
    """Splits and embeds the content that the ledger keeps.

    `run` raises EmbeddingFailed where the model is out of order.
    """

    embedder: BaseEmbedding
    dimension: int

    def __post_init__(self) -> None:
        self._chunker = Chunker(self.spec.chunking)

    async def _build(self, org_id: UUID, locked: bool) -> None:
        await overlap(self._batches(org_id), self._prepare, lambda work: self._write(org_id, work, locked))

    async def _batches(self, org_id: UUID) -> AsyncIterator[Batch]:
        after = UUID(int=0)
        while batch := await self._next(org_id, after):
            yield batch
            after = batch[-1][0].id

    async def _prepare(self, batch: Batch) -> Work:
        work = list[tuple[Source, list[TextNode]]]()
        for source, content in batch:
            passages = [Passage(**passage) for passage in content]
            try:
                work.append(
                    (
                        source,
                        await asyncio.to_thread(self._chunker.split, convert_metadata(source, self.spec), passages),
                    )
                )
            except InvalidInput as error:
                self.built.failed.append(Unbuilt(source, str(error)))
        try:
            await embed_nodes(self.embedder, self.dimension, [node for _, nodes in work for node in nodes])
        except EmbeddingFailed:
            return await self._embed_one_by_one(work)
        return work

    async def _embed_one_by_one(self, work: Work) -> Work:
        """The texts that the model accepts. Raises EmbeddingFailed if the failure is not due to single sources."""
        taken: list[tuple[Source, Sequence[TextNode]]] = []
        refused: list[Unbuilt] = []
        for source, nodes in work:
            try:
                await embed_nodes(self.embedder, self.dimension, nodes)
                taken.append((source, nodes))
            except EmbeddingFailed as error:
                refused.append(Unbuilt(source, str(error)))
                if len(refused) == _MOST_REFUSALS and not taken:
                    raise
        self.built.failed.extend(refused)
        return taken


class Tally(Struct, frozen=True):
    """The number of chunks and the sum of their digests, which does not depend on their order.

    >>> one, other = TextNode(id_="1", text="a", metadata={"price": 5.0}), TextNode(id_="2", text="b")
    >>> Tally.count_nodes([one, other]) == Tally.count_nodes([other, one]) != Tally.count_nodes([one])
    True
    >>> Tally.count_nodes([one]) == Tally.count_nodes([TextNode(id_="1", text="a", metadata={"price": 5})])  # JSON has one kind of number
    True
    """

    chunks: int = 0
    checksum: int = 0

    @classmethod
    def count_nodes(cls, nodes: Sequence[TextNode]) -> "Tally":
        return cls(len(nodes), sum(map(_digest, nodes)) % 2**128)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.chunks + other.chunks, (self.checksum + other.checksum) % 2**128)


@dataclass(slots=True)
class Comparison:
    """The comparison of an organization's sources; `differing` of them differ, `deviation` is that of the embeddings."""

    org_id: UUID
    sources: int = 0
    original: Tally = field(default_factory=Tally)
    copy: Tally = field(default_factory=Tally)
    differing: int = 0
    deviation: float = 0.0

    def add(self, original: Sequence[TextNode], copy: Sequence[TextNode]) -> bool:
        """Compare a source's chunks. Returns whether they differ."""
        there, here = Tally.count_nodes(original), Tally.count_nodes(copy)
        same = original and there == here
        deviation = float(np.abs(_unit_vectors(original) - _unit_vectors(copy)).max()) if same else 0.0
        differs = there != here or deviation > _DEVIATION
        self.sources, self.differing = self.sources + 1, self.differing + differs
        self.original, self.copy = self.original + there, self.copy + here
        self.deviation = max(self.deviation, deviation)
        return differs


@dataclass
class Move(Filling):
    """Copies the generation `origin` of one store, opened by `open_origin`, into a generation of another."""

    origin: Generation
    open_origin: Callable[[UUID], ScopedStore]
    compared: list[Comparison] = field(default_factory=list, init=False)

    batch = 128

    async def _build(self, org_id: UUID, locked: bool) -> None:
        """Nobody writes between reading and writing: no ingest is in between."""
        after = UUID(int=0)
        while True:
            async with self.ledger.lock_for_writing(org_id, self.spec.name) if locked else nullcontext():
                batch = [source for source, _ in await self._next(org_id, after)]
                if not batch:
                    return
                after = batch[-1].id
                await self._write(org_id, await self._read(org_id, batch), locked=False)

    async def _read(self, org_id: UUID, batch: Sequence[Source]) -> Work:
        held = await self._current_builds(org_id, batch)
        nodes = _group_by_source(await self.open_origin(org_id).export([*held])) if held else {}
        work: list[tuple[Source, list[TextNode]]] = []
        for source in batch:
            found, build = nodes.get(source.id, []), held.get(source.id)
            if build is None:
                reason = f"its current version is not in {self.origin.store}, which is copied: ingest it again"
            elif len(found) != build.chunks:
                known = f"has {len(found)} chunks in {self.origin.store}, not {build.chunks}"
                reason = f"{known}: delete it, then ingest it again"
            else:
                work.append((source, found))
                continue
            self.built.failed.append(Unbuilt(source, reason))
        return work

    async def is_right(self) -> bool:
        """Whether no source differs: the present version of every one is compared in both stores.

        Differing sources are recorded as incomplete, so that the next run copies them again. Chunks of deleted sources
        are removed.
        """
        self.compared = [await self._compare(org_id) for org_id in await self.organizations()]
        return not any(each.differing for each in self.compared)

    async def _compare(self, org_id: UUID) -> Comparison:
        origin, copy = self.open_origin(org_id), self.open_store(org_id)
        found, forgotten = Comparison(org_id), await copy.sources()
        async for batch in self.ledger.pages(Scope(frozenset({org_id})), self.spec.name, self.batch, operator=True):
            forgotten.difference_update(source.id for source in batch)
            if held := await self._current_builds(org_id, batch):
                both = await asyncio.gather(origin.export([*held]), copy.export([*held]))
                originals, copies = map(_group_by_source, both)
                differing = [
                    each for each in batch if each.id in held and found.add(originals[each.id], copies[each.id])
                ]
                await self.ledger.claim(differing, self.generation_id)
                self.built.compared += len(held)
                self.progress(self.built)
        if forgotten:
            await copy.write([], replacing=[*forgotten])
        return found

    async def _current_builds(self, org_id: UUID, batch: Sequence[Source]) -> dict[UUID, Build]:
        """The builds of those sources whose present version the other store holds."""
        builds = await self.ledger.builds(org_id, self.origin.id, [source.id for source in batch])
        return {each.id: builds[each.id] for each in batch if builds.get(each.id, NO_BUILD).holds(each)}


def _group_by_source(nodes: Sequence[TextNode]) -> defaultdict[UUID, list[TextNode]]:
    found = defaultdict[UUID, list[TextNode]](list)
    for node in nodes:
        found[UUID(node.ref_doc_id)].append(node)
    return found


def _digest(node: TextNode) -> int:
    said = json.dumps(
        [node.node_id, node.get_content(MetadataMode.NONE), json.loads(json.dumps(node.metadata), parse_float=_plain)],
        sort_keys=True,
    )
    return int.from_bytes(blake2b(said.encode(), digest_size=16).digest())


def _plain(number: str) -> float:
    """The value as JSON has it: PostgreSQL returns the number 1e16 without its point."""
    return int(float(number)) if float(number).is_integer() else float(number)


def _unit_vectors(nodes: Sequence[TextNode]) -> np.ndarray:
    """Unit vectors, by chunk id; shape (chunks, dimension)."""
    vectors = np.array([node.embedding for node in sorted(nodes, key=lambda node: node.node_id)])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)
