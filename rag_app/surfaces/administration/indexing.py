"""Generations of an index, operated by command: listed, rebuilt, switched, rolled back, dropped, moved.

All of it works below the check that a server makes when it starts: it is what puts right what that check finds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from rag_app.application import Application
from rag_app.documents.generations import Generation, GenerationState
from rag_app.documents.rebuild import Built, Comparison, Move, Rebuild
from rag_app.domain import InvalidInput, Misconfigured, NotFound, Scope, frozen
from rag_app.retrieval.index import IndexSpec, find_index
from rag_app.retrieval.store import ScopedStore
from rag_app.stores.registry import STORES

Begin = Callable[[Generation, int], Callable[[Built], None]]
"""Called with the generation and how many sources are to be built (and compared, in a move); gives what is told of
the progress."""


@frozen
class Holding:
    """A generation, and what stands in it."""

    generation: Generation
    sources: int
    chunks: int


@frozen
class Outcome:
    """A generation after a command: what was built in it, and how many sources it does not hold as they are now.

    `misfit` says why servers with these settings cannot start on it, where they cannot.
    """

    generation: Generation
    built: Built
    lacking: int
    misfit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(Outcome):
    """What a move did: `generation` is the copy of `origin`, and answers in its store if `compared` shows no difference.

    Nothing is compared where a source could not be copied. `setting` is what makes servers ask that store, None where
    they do; with it they look there for `others`, too, indexes that are not there as they are now.
    """

    origin: Generation
    compared: list[Comparison]
    setting: str | None
    others: list[str]

    @property
    def differing(self) -> int:
        """Sources that are not the same in both stores."""
        return sum(each.differing for each in self.compared)


class Indexing:
    """Works on one application, started or not. Raises NotFound for an index or a generation there is not."""

    def __init__(self, application: Application) -> None:
        self._app, self._generations, self._ledger = application, application.generations, application.ledger

    async def holdings(self) -> list[Holding]:
        """Every generation of every index and store."""
        totals = await self._ledger.totals(await self._organizations())
        return [Holding(each, *totals.get(each.id, (0, 0, 0))[:2]) for each in await self._generations.list()]

    async def rebuild(self, index: str, *, switch: bool, begin: Begin) -> Outcome:
        """A new generation with the present settings, or the unfinished one that was begun with them, made complete.

        With `switch` it answers from then on, unless a source could not be built.
        """
        spec = find_index(self._app.indexes, index)
        await self._app.check_embedder()
        async with self._ledger.rebuilding(spec.name):
            generation = await self._taken_up(spec) or await self._app.backends.begin(
                spec, self._app.embedder.model_name, self._app.dimension
            )
            return await self._complete(spec, generation, begin, switch=switch)

    async def switch(self, index: str, number: int | None) -> Outcome:
        """Let a generation answer: the newest that is being built, or the one of this number.

        Raises InvalidInput for one that does not hold every source as it is now.
        """
        spec = find_index(self._app.indexes, index)
        async with self._ledger.rebuilding(spec.name), self._ledger.switching(spec.name):
            if number is not None:
                generation = await self._find_generation(spec, number)
            elif built := [each for each in await self._ours(spec) if each.state is GenerationState.BUILDING]:
                generation = built[-1]
            else:
                raise InvalidInput("", index, f"index {spec.name} has no new generation; `{_rebuild(spec)}` makes one")
            lacking = await self._lacking(spec, generation)
            if lacking and generation.state in (GenerationState.BUILDING, GenerationState.RETIRED):
                raise InvalidInput(
                    "",
                    number,
                    f"generation {generation.number} of {spec.name} lacks the current version of {lacking} sources; "
                    f"`{_rebuild(spec)} --switch` builds them",
                )
            generation = await self._generations.activate(generation.id)
        return Outcome(generation, Built(), lacking, self._app.misfit(spec, generation))

    async def roll_back(self, index: str, *, force: bool, begin: Begin) -> Outcome:
        """Let the generation before the present one answer again.

        Sources that came or changed since are built in it first, for which the settings must fit it (InvalidInput
        says what to set). With `force` it answers at once, without them: never as they were before.
        """
        spec = find_index(self._app.indexes, index)
        async with self._ledger.rebuilding(spec.name):
            generation = await self._before_the_active(spec)
            misfit = self._app.misfit(spec, generation)
            if force or misfit:
                async with self._ledger.switching(spec.name):
                    if force:
                        await self._take_out_outdated(spec, generation)
                    lacking = await self._lacking(spec, generation)
                    if lacking and not force:
                        raise InvalidInput(
                            "",
                            index,
                            f"generation {generation.number} of {spec.name} lacks the current version of {lacking} "
                            f"sources, which cannot be built in it: it {misfit}; or go back without them: --force",
                        )
                    return Outcome(await self._generations.activate(generation.id), Built(), lacking, misfit)
            return await self._complete(spec, generation, begin, switch=True)

    async def drop(self, index: str, number: int) -> Generation:
        """Take a generation that does not answer out of its store. Raises InvalidInput for the one that does."""
        spec = find_index(self._app.indexes, index)
        self._app.backends.owner()  # refuses before anything is done
        async with self._ledger.rebuilding(spec.name), self._ledger.switching(spec.name):
            generation = await self._generations.drop((await self._find_generation(spec, number)).id)
            await self._app.backends.drop(generation)
            await self._ledger.forget_builds(await self._organizations(), generation.id)
        return generation

    async def move(self, index: str, to: str, *, begin: Begin) -> Moved:
        """Copy the generation that answers in the other store to the store `to`, and let it answer there if it is the same.

        A generation that is there already and fits is brought up to date. Raises InvalidInput where there is nothing
        to be moved, Misconfigured where the settings do not fit it.
        """
        spec = find_index(self._app.indexes, index)
        if to not in STORES:
            raise InvalidInput("--to", to, f"accepted: {', '.join(STORES)}")
        async with self._ledger.rebuilding(spec.name):
            origin = await self._origin(spec, to)
            if misfit := self._app.misfit(spec, origin):
                raise Misconfigured(f"index {spec.name} in {origin.store} {misfit}")
            target = await self._copy_of(spec, origin, to)
            held = (await self._ledger.totals(await self._organizations())).get(origin.id, (0, 0, 0))[0]
            move = Move(
                spec,
                target.id,
                self._organizations,
                self._open(spec, target),
                self._ledger,
                begin(target, await self._lacking(spec, target) + held),
                origin.id,
                self._open(spec, origin),
            )
            await move.run()
            compared: list[Comparison] = []
            while not move.built.failed:
                async with self._ledger.switching(spec.name):
                    if await move.complete():
                        compared = await move.compare()
                        if not any(each.differing for each in compared):
                            target = await self._generations.activate(target.id)
                        break
                await move.run()  # an ingest was quick
            lacking = await self._lacking(spec, target)
        setting, others = await self._to_be_set(spec, to)
        return Moved(target, move.built, lacking, origin=origin, compared=compared, setting=setting, others=others)

    async def _origin(self, spec: IndexSpec, to: str) -> Generation:
        """What answers in another store than `to`: in the one that servers ask, if that is another."""
        asked = self._app.backends.kind(spec)
        others = sorted((store for store in STORES if store != to), key=lambda store: store != asked)
        for store in others:
            if (origin := await self._generations.active(spec.name, store)) is not None:
                return origin
        raise InvalidInput(
            "", spec.name, f"index {spec.name} has no data in {' or '.join(others)}, so there is nothing to move"
        )

    async def _copy_of(self, spec: IndexSpec, origin: Generation, to: str) -> Generation:
        """The generation in `to` that answers, or that an earlier run began, if it fits; a new one otherwise."""
        there = await self._generations.active(spec.name, to)
        if there is not None and self._app.misfit(spec, there) is None:
            return there
        if begun := await self._taken_up(spec, to):
            return begun
        backends = self._app.backends
        backends.owner()  # refuses before there is one
        made = await self._generations.create(spec.name, to, origin.embedding_model, origin.dimension, origin.settings)
        await backends.create(spec, made)
        return made

    def _open(self, spec: IndexSpec, generation: Generation) -> Callable[[UUID], ScopedStore]:
        return lambda org_id: self._app.backends.scoped(spec, generation, Scope(frozenset({org_id})))

    async def _to_be_set(self, spec: IndexSpec, to: str) -> tuple[str | None, list[str]]:
        """What makes servers look for an index in `to`, and the other indexes that this is true of and that lack sources."""
        if self._app.backends.kind(spec) == to:
            return None, []
        if spec.vector_store is not None:
            return f'vector_store = "{to}" in indexes/{spec.name}/index.toml', []
        others = [each for each in self._app.indexes.values() if each.vector_store is None and each.name != spec.name]
        return f"RAG_VECTOR_STORE={to}", [each.name for each in others if await self._lacks(each, to)]

    async def _lacks(self, spec: IndexSpec, store: str) -> bool:
        """Whether an index has sources that do not stand in the store as they are now."""
        there = await self._generations.active(spec.name, store)
        generation_id = there.id if there else 0  # of no generation
        return bool(await self._ledger.lacking(await self._organizations(), spec.name, generation_id))

    async def _taken_up(self, spec: IndexSpec, store: str | None = None) -> Generation | None:
        for each in reversed(await self._ours(spec, store)):
            if each.state is GenerationState.BUILDING and self._app.misfit(spec, each) is None:
                if each.id not in await self._ledger.totals(await self._organizations()):
                    await self._app.backends.create(spec, each)  # nothing is in it: perhaps not even tables
                return each
        return None

    async def _complete(self, spec: IndexSpec, generation: Generation, begin: Begin, *, switch: bool) -> Outcome:
        rebuild = Rebuild(
            spec,
            generation.id,
            self._organizations,
            self._open(spec, generation),
            self._ledger,
            begin(generation, await self._lacking(spec, generation)),
            self._app.embedder,
        )
        await rebuild.run()
        while switch and not rebuild.built.failed:
            async with self._ledger.switching(spec.name):
                if await rebuild.complete():
                    generation = await self._generations.activate(generation.id)
                    break
            await rebuild.run()  # an ingest was quick
        return Outcome(generation, rebuild.built, await self._lacking(spec, generation))

    async def _take_out_outdated(self, spec: IndexSpec, generation: Generation) -> None:
        """What a source said before, or to whom, is not to be seen again."""
        for org_id in await self._organizations():
            if outdated := await self._ledger.outdated(org_id, generation.id):
                await self._open(spec, generation)(org_id).write([], replacing=outdated)
                await self._ledger.forget_builds([org_id], generation.id, outdated)

    async def _lacking(self, spec: IndexSpec, generation: Generation) -> int:
        return sum((await self._ledger.lacking(await self._organizations(), spec.name, generation.id)).values())

    async def _ours(self, spec: IndexSpec, store: str | None = None) -> list[Generation]:
        """Those of the index in its store, or in another one, oldest first."""
        key = spec.name, store or self._app.backends.kind(spec)
        return [each for each in await self._generations.list() if (each.index, each.store) == key]

    async def _find_generation(self, spec: IndexSpec, number: int) -> Generation:
        ours = {each.number: each for each in await self._ours(spec)}
        if number not in ours:
            known = [str(each.number) for each in ours.values() if each.state is not GenerationState.DROPPED]
            raise NotFound(f"generation of {spec.name}", str(number), known)
        return ours[number]

    async def _before_the_active(self, spec: IndexSpec) -> Generation:
        before: list[Generation] = []
        for each in await self._ours(spec):
            if each.state is GenerationState.ACTIVE and before:
                return before[-1]
            if each.state is GenerationState.RETIRED:
                before.append(each)
        raise InvalidInput("", spec.name, f"index {spec.name} has no previous generation to go back to")

    async def organizations(self) -> dict[UUID, str]:
        """Their slugs, by id."""
        return {organization.id: organization.slug for organization in await self._app.people.organizations()}

    async def _organizations(self) -> list[UUID]:
        return [*await self.organizations()]


def _rebuild(spec: IndexSpec) -> str:
    return f"rag-app indexes rebuild {spec.name}"
