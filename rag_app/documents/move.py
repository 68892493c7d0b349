"""Copies what one vector store holds of an index into a generation of the other: no text is embedded again.

The ledger decides what is copied, as in a rebuild; source by source, under its lock, so that no ingest is between
reading and writing. Afterwards both sides are read back and compared.

Embeddings come back as the same directions, not as the same bytes: Qdrant brings cosine vectors to unit length. So
ids, texts and metadata are compared by checksum, embeddings one by one.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import MetadataMode, TextNode

from rag_app.documents.ledger import Build, SourceLedger
from rag_app.documents.rebuild import Filling, Progress, Unbuilt
from rag_app.documents.writing import Work
from rag_app.domain.scope import Scope
from rag_app.domain.source import Source
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import ScopedStore

_DEVIATION = 1e-6
"""By how much a component of a unit vector may differ. Single precision leaves 1e-8; 1e-6 moves no cosine visibly."""


@dataclass(frozen=True, slots=True)
class Tally:
    """So many chunks, and the sum of their digests: the same in whatever order they come.

    >>> one, other = TextNode(id_="1", text="a", metadata={"price": 5.0}), TextNode(id_="2", text="b")
    >>> Tally.of([one, other]) == Tally.of([other, one]) != Tally.of([one])
    True
    >>> Tally.of([one]) == Tally.of([TextNode(id_="1", text="a", metadata={"price": 5})])  # JSON has one kind of number
    True
    """

    chunks: int = 0
    checksum: int = 0

    @classmethod
    def of(cls, nodes: Sequence[TextNode]) -> "Tally":
        return cls(len(nodes), sum(map(_digest, nodes)) % 2**128)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.chunks + other.chunks, (self.checksum + other.checksum) % 2**128)


@dataclass(slots=True)
class Comparison:
    """An organization's sources on both sides; `differing` of them are not the same, `deviation` is that of embeddings."""

    org_id: UUID
    sources: int = 0
    original: Tally = field(default_factory=Tally)
    copy: Tally = field(default_factory=Tally)
    differing: int = 0
    deviation: float = 0.0


class Move(Filling):
    """Writes into a generation of one store what stands in that of another, `origin_id`."""

    batch = 128

    def __init__(
        self,
        spec: IndexSpec,
        generation_id: int,
        origin_id: int,
        organizations: Callable[[], Awaitable[Collection[UUID]]],
        open_store: Callable[[UUID], ScopedStore],
        open_origin: Callable[[UUID], ScopedStore],
        ledger: SourceLedger,
        progress: Progress = lambda built: None,
    ) -> None:
        super().__init__(spec, generation_id, organizations, open_store, ledger, progress)
        self._origin, self._open_origin = origin_id, open_origin

    async def _build(self, org_id: UUID, locked: bool) -> None:
        after = UUID(int=0)
        while True:
            async with self._ledger.writing(org_id, self._spec.name) if locked else nullcontext():
                batch = [source for source, _ in await self._next(org_id, after)]
                if not batch:
                    return
                after = batch[-1].id
                await self._write(org_id, await self._read(org_id, batch), locked=False)

    async def _read(self, org_id: UUID, batch: Sequence[Source]) -> Work:
        """The chunks of those sources that stand in the other store as they are now."""
        held = await self._held(org_id, batch)
        nodes = _by_source(await self._open_origin(org_id).export([*held])) if held else {}
        work: list[tuple[Source, list[TextNode]]] = []
        for source in batch:
            found = nodes.get(source.id, [])
            if source.id not in held:
                reason = "does not stand in the other store as it is now: ingest it again"
            elif len(found) != held[source.id].chunks:
                known = held[source.id].chunks
                reason = f"has {len(found)} chunks in the other store, not {known}: delete it, then ingest it again"
            else:
                work.append((source, found))
                continue
            self.built.failed.append(Unbuilt(source, reason))
        return work

    async def compare(self) -> list[Comparison]:
        """Every source that stands in both stores as it is now, for a caller who keeps all writers out.

        What differs is written down as incomplete: the next run copies it anew. Chunks of sources that there are no
        longer are taken out.
        """
        return [await self._compare(org_id) for org_id in await self._organizations()]

    async def _compare(self, org_id: UUID) -> Comparison:
        origin, copy = self._open_origin(org_id), self._open_store(org_id)
        found, forgotten = Comparison(org_id), await copy.sources()
        async for batch in self._batches(org_id):
            forgotten.difference_update(source.id for source in batch)
            if held := await self._held(org_id, batch):
                sides = await asyncio.gather(origin.export([*held]), copy.export([*held]))
                differing = _differing(found, held, *map(_by_source, sides))
                again = [source for source in batch if source.id in differing]
                await self._ledger.claim(again, self._generation)
                self.built.compared += len(held)
                self._progress(self.built)
        if forgotten:
            await copy.write([], replacing=[*forgotten])
        return found

    async def _held(self, org_id: UUID, batch: Sequence[Source]) -> dict[UUID, Build]:
        """Those of these sources that stand in the other store as they are now."""
        builds = await self._ledger.builds(org_id, self._origin, [source.id for source in batch])
        return {source.id: build for source in batch if (build := builds.get(source.id)) and build.holds(source)}

    async def _batches(self, org_id: UUID) -> AsyncIterator[list[Source]]:
        batch: list[Source] = []
        async for source in self._ledger.list(Scope(frozenset({org_id})), self._spec.name, operator=True):
            batch.append(source)
            if len(batch) == self.batch:
                yield batch
                batch = []
        if batch:
            yield batch


def _differing(
    found: Comparison,
    sources: Collection[UUID],
    originals: Mapping[UUID, list[TextNode]],
    copies: Mapping[UUID, list[TextNode]],
) -> set[UUID]:
    """Those that are not the same on both sides; what was seen goes into `found`."""
    differing = set()
    for source in sources:
        original, copy = originals.get(source, []), copies.get(source, [])
        tallies = Tally.of(original), Tally.of(copy)
        same = tallies[0] == tallies[1]
        if same and original:
            deviation = float(np.abs(_directions(original) - _directions(copy)).max())
            found.deviation, same = max(found.deviation, deviation), deviation <= _DEVIATION
        if not same:
            differing.add(source)
        found.original, found.copy = found.original + tallies[0], found.copy + tallies[1]
    found.sources += len(sources)
    found.differing += len(differing)
    return differing


def _by_source(nodes: Sequence[TextNode]) -> dict[UUID, list[TextNode]]:
    found: dict[UUID, list[TextNode]] = {}
    for node in nodes:
        found.setdefault(UUID(node.ref_doc_id), []).append(node)
    return found


def _digest(node: TextNode) -> int:
    said = json.dumps([node.node_id, node.get_content(MetadataMode.NONE), _plain(node.metadata)], sort_keys=True)
    return int.from_bytes(blake2b(said.encode(), digest_size=16).digest())


def _plain(value: Any) -> Any:
    """As JSON means it: PostgreSQL gives the number 1e16 back without its point."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _directions(nodes: Sequence[TextNode]) -> npt.NDArray[np.float64]:
    """Unit vectors, by chunk id; shape (chunks, dimension)."""
    vectors = np.array([node.embedding for node in sorted(nodes, key=lambda node: node.node_id)])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)
