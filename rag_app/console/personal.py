"""A user's data: told, erased, and exported for training where the user consents."""

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO
from uuid import UUID

from llama_index.core.schema import TextNode

from rag_app.access.people import User
from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.application import Application
from rag_app.console.commands import run
from rag_app.console.printing import counting
from rag_app.documents.generations import Generation, GenerationState
from rag_app.documents.metadata import versioned
from rag_app.domain.errors import InvalidInput, NotFound, StoreFailed
from rag_app.domain.scope import Scope
from rag_app.domain.source import Source, chunk_id
from rag_app.retrieval.filters import epoch_seconds
from rag_app.retrieval.index import IndexSpec, find_index
from rag_app.surfaces.administration.personal import Personal
from rag_app.surfaces.lexybrain.training import Collected, Consenting

_PASSES = 5  # over a user's sources, where somebody ingests new ones meanwhile


# -- training


@dataclass(slots=True)
class Exported:
    """`withheld` lessons were made from a source that is gone, or is no longer their user's to see."""

    lessons: int = 0
    users: int = 0
    withheld: int = 0


def export_training(output: Path | None, since: str | None, capability: str | None) -> None:
    """Write lessons as JSON lines, of those who consent now, each read as their user; tell how many on stderr."""
    if capability is not None and capability not in DESCRIPTIONS:
        raise NotFound("capability", capability, DESCRIPTIONS)
    after = None if since is None else datetime.fromtimestamp(epoch_seconds("since", since), UTC)

    async def work(application: Application) -> Exported:
        done, consenting = Exported(), await application.training.consenting()
        with _written(output) as lines, counting("users", len(consenting)) as count:
            for number, each in enumerate(consenting, 1):
                before = done.lessons
                async for page in application.training.collected(each, since=after, capability=capability):
                    named = {source for lesson in page for source in lesson.sources}
                    seen = await application.ledger.seen(each.scope, named) if named else set()
                    for lesson in page:
                        if lesson.sources <= seen:
                            lines.write(json.dumps(_example(each, lesson), ensure_ascii=False) + "\n")
                            done.lessons += 1
                        else:
                            done.withheld += 1
                done.users += done.lessons > before
                count(number)
        return done

    done = run(work)
    print(
        f"{done.lessons} examples of {done.users} users; {done.withheld} left out:"
        " a source of theirs is gone, or no longer their user's to see",
        file=sys.stderr,
    )


def _example(of: Consenting, lesson: Collected) -> dict[str, Any]:
    """As fine-tuning tools read it."""
    return {
        "messages": [*lesson.prompt, {"role": "assistant", "content": lesson.text}],
        "metadata": {
            "user": _pseudonym(of),
            "capability": lesson.capability,
            "model": lesson.model,
            "prompts": dict(lesson.prompts),
            "sources": len(lesson.context),
            "cited": sum(bool(shown["cited"]) for shown in lesson.context),
            "rating": lesson.rating,
            "created_at": lesson.created_at.isoformat(),
        },
    }


def _pseudonym(of: Consenting) -> str:
    """The same in each export as long as the consent lasts. Whoever does not have the database cannot tell whose it is."""
    return hashlib.sha256(f"{of.user}/{of.since.isoformat()}".encode()).hexdigest()[:16]


# -- told


def export_user(name: str, output: Path | None) -> None:
    """All that is kept about a user, as one JSON document."""

    async def work(application: Application) -> dict[str, Any]:
        user = await application.people.user(name)
        organizations = [each.id for each in await application.people.organizations()]
        return await Personal(application.database).everything(organizations, user.id)

    found = run(work)
    with _written(output) as document:
        document.write(json.dumps(found, ensure_ascii=False, indent=2, default=_plain) + "\n")
    counted = ", ".join(f"{len(rows)} {kind}" for kind, rows in found.items() if isinstance(rows, list) and rows)
    print(f"{found['account']['name']}: {counted or 'nothing but the account'}", file=sys.stderr)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


@contextmanager
def _written(output: Path | None) -> Iterator[TextIO]:
    """A file that is there when it is whole, for its owner's eyes; stdout without one."""
    if output is None:
        yield sys.stdout
        return
    part = output.with_name(f"{output.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600, exist_ok=False)
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        part.replace(output)
    finally:  # half of it is of no use, and somebody's
        part.unlink(missing_ok=True)


# -- erased


@dataclass(slots=True)
class Erased:
    """What became of a user's sources. `left`: those that may stand in a store that is not configured here, by its name
    and the collection's."""

    private: int = 0
    shared: int = 0
    left: dict[tuple[str, str], set[UUID]] = field(default_factory=lambda: defaultdict(set))


def erase_user(name: str) -> bool:
    """False where something is left to be done elsewhere: that is told on stderr."""

    async def work(application: Application) -> tuple[User, Erased]:
        user = await application.people.user(name)
        return user, await erase(application, user)

    user, done = run(work)
    print(f"{user.name} ({user.id}) is erased, with {done.private} private sources")
    if done.shared:
        print(f"{done.shared} sources that others see stay, and belong to nobody")
    for (store, collection), sources in done.left.items():
        print(
            f"!! {store} is not configured here, and its {collection} may hold chunks of theirs:"
            f" delete that collection, or its points with one of these as source_id: {', '.join(map(str, sorted(sources)))}",
            file=sys.stderr,
        )
    return not done.left


async def erase(application: Application, user: User) -> Erased:
    """Sources first, then the rest with the user's row: killed anywhere, the same again ends where this would have.

    Raises StoreFailed where sources of theirs keep coming; InvalidInput for one of an index that is not declared.
    """
    work = _Erasure(application)
    personal = Personal(application.database)
    for _ in range(_PASSES):
        await work.take_sources(await personal.owned(await work.organizations(), user.id))
        if await personal.erase(user.id):
            return work.done
    raise StoreFailed(f"new sources of {user.name} keep coming: stop what ingests them, then run the command again")


class _Erasure:
    """Takes the sources of a user out of every generation, in both stores."""

    def __init__(self, application: Application) -> None:
        self._app, self._ledger = application, application.ledger
        self.done = Erased()

    async def organizations(self) -> list[UUID]:
        return [each.id for each in await self._app.people.organizations()]

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
                await self._take_out(generation, org_id, ids)
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
                    await self._take_out(generation, org_id, [source.id])
                    await self._ledger.forget_builds([org_id], generation.id, [source.id])
                    continue
                store = self._app.backends.scoped(self._spec(generation), generation, Scope(frozenset({org_id})))
                nodes = _renamed(await store.export([source.id]), after)
                await store.write(nodes, replacing=[source.id])
                written[generation.id] = len(nodes)
            await Personal(self._app.database).disown(after, written)

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

    async def _take_out(self, generation: Generation, org_id: UUID, ids: Collection[UUID]) -> None:
        store = self._app.backends.scoped(self._spec(generation), generation, Scope(frozenset({org_id})))
        await store.write([], replacing=[*ids])

    def _spec(self, generation: Generation) -> IndexSpec:
        return find_index(self._app.indexes, generation.index)


def _renamed(nodes: Sequence[TextNode], after: Source) -> list[TextNode]:
    """The chunks of a source as they are called after it has changed; each once, also where a writer was killed."""
    chunks = {node.metadata["position"]: node for node in nodes}
    return [
        TextNode(
            id_=str(chunk_id(after.id, after.version, position)),
            text=node.text,
            metadata=_without_owner(node.metadata) | {"version": after.version},
            relationships=node.relationships,
            embedding=node.embedding,
        )
        for position, node in sorted(chunks.items())
    ]


def _without_owner(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != "owner_id"}
