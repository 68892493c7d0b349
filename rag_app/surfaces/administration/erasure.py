"""A user, erased: the sources out of every generation and store, then the rest with the user's row."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from llama_index.core.schema import TextNode

from rag_app.access.people import User
from rag_app.application import Application
from rag_app.documents.generations import Generation, GenerationState
from rag_app.documents.metadata import versioned
from rag_app.domain.errors import InvalidInput, StoreFailed
from rag_app.domain.scope import Scope
from rag_app.domain.source import Source, chunk_id
from rag_app.retrieval.index import find_index
from rag_app.retrieval.store import ScopedStore
from rag_app.surfaces.administration.personal import Personal

_PASSES = 5  # over a user's sources, where somebody ingests new ones meanwhile


@dataclass(slots=True)
class Erased:
    """What became of a user's sources. `left`: those that may stand in a store that is not configured here, by its name
    and the collection's."""

    private: int = 0
    shared: int = 0
    left: dict[tuple[str, str], set[UUID]] = field(default_factory=lambda: defaultdict(set))


async def erase(application: Application, user: User) -> Erased:
    """Sources first, then the rest with the user's row: killed anywhere, the same again ends where this would have.

    Raises StoreFailed where sources of theirs keep coming; InvalidInput for one of an index that is not declared.
    """
    work = _Erasure(application)
    for _ in range(_PASSES):
        organizations = [each.id for each in await application.people.organizations()]
        await work.take_sources(await work.personal.owned(organizations, user.id))
        if await work.personal.erase(user.id):
            return work.done
    raise StoreFailed(f"new sources of {user.name} keep coming: stop what ingests them, then run the command again")


class _Erasure:
    """Takes the sources of a user out of every generation, in both stores."""

    def __init__(self, application: Application) -> None:
        self._app, self._ledger = application, application.ledger
        self.personal = Personal(application.database)
        self.done = Erased()

    async def take_sources(self, owned: Sequence[tuple[Source, bool]]) -> None:
        going: dict[tuple[UUID, str], list[UUID]] = defaultdict(list)
        for source, goes in owned:
            if source.index not in self._app.indexes:
                raise InvalidInput(
                    "", source.index, f"sources of theirs are in {source.index}, which is not declared here"
                )
            if goes:
                going[source.org_id, source.index].append(source.id)
        for (org_id, index), ids in going.items():
            await self._delete(org_id, index, ids)
            self.done.private += len(ids)
        for source, goes in owned:
            if not goes:
                await self._disown(source)
                self.done.shared += 1

    async def _delete(self, org_id: UUID, index: str, ids: list[UUID]) -> None:
        async with self._ledger.writing(org_id, index):
            await self._ledger.mark_deleting(org_id, ids)
            for generation in await self._holding(org_id, ids):
                await self._store(generation, org_id).write([], replacing=ids)
            await self._ledger.forget(org_id, ids)

    async def _disown(self, source: Source) -> None:
        """Nobody's from now on: in the ledger, and in what the stores have of it; there it has its owner's id, too.

        The chunks come first, for it is theirs until the ledger says otherwise. A generation that does not answer, or
        holds it in another version, loses it: what makes that one complete again builds it anew.
        """
        org_id = source.org_id
        async with self._ledger.writing(org_id, source.index):
            content = await self._ledger.content(Scope(frozenset({org_id})), source.id, operator=True)
            after, written = versioned(replace(source, owner_id=None), content), dict[int, int]()
            for generation in await self._holding(org_id, [source.id]):
                build = (await self._ledger.builds(org_id, generation.id, [source.id])).get(source.id)
                current = build is not None and (build.version, build.state) == (source.version, "ready")
                if not current or generation.state is not GenerationState.ACTIVE:
                    await self._store(generation, org_id).write([], replacing=[source.id])
                    await self._ledger.forget_builds([org_id], generation.id, [source.id])
                    continue
                store = self._store(generation, org_id)
                nodes = _rename_chunks(await store.export([source.id]), after)
                await store.write(nodes, replacing=[source.id])
                written[generation.id] = len(nodes)
            await self.personal.disown(after, written)

    async def _holding(self, org_id: UUID, ids: Collection[UUID]) -> list[Generation]:
        """The generations in whose stores chunks of these sources may stand; of a store that is not there it is noted."""
        holding = await self._ledger.holding(org_id, ids)
        found = []
        for each in await self._app.generations.list():
            if each.id in holding:
                if self._app.backends.reaches(each.store, self._app.indexes.values()):
                    found.append(each)
                else:
                    self.done.left[each.store, each.table_prefix].update(ids)
        return found

    def _store(self, generation: Generation, org_id: UUID) -> ScopedStore:
        spec = find_index(self._app.indexes, generation.index)
        return self._app.backends.scoped(spec, generation, Scope(frozenset({org_id})))


def _rename_chunks(nodes: Sequence[TextNode], after: Source) -> list[TextNode]:
    """The chunks of a source as they are called after it has changed; each once, also where a writer was killed."""
    chunks = {node.metadata["position"]: node for node in nodes}
    return [
        TextNode(
            id_=str(chunk_id(after.id, after.version, position)),
            text=node.text,
            metadata={key: value for key, value in node.metadata.items() if key != "owner_id"}
            | {"version": after.version},
            relationships=node.relationships,
            embedding=node.embedding,
        )
        for position, node in sorted(chunks.items())
    ]
