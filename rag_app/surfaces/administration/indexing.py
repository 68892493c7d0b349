"""Commands on the generations of an index: list, rebuild, switch, roll back, drop, move.

They work without the check that a server makes at startup, because they repair what that check finds.
"""

from collections.abc import Callable
from uuid import UUID

from msgspec import Struct

from rag_app.application import Application
from rag_app.documents.generations import Generation
from rag_app.documents.rebuild import Comparison, Filling, Move, Rebuild, RebuildResult
from rag_app.domain import InvalidInput, Misconfigured, NotFound, Scope
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import ScopedStore
from rag_app.stores.registry import STORES

Begin = Callable[[Generation, int], Callable[[RebuildResult], None]]
"""Called with the generation and how many sources are to be built (and compared, in a move); gives what is told of
the progress."""


class GenerationContents(Struct, frozen=True):
    """A generation and its contents."""

    generation: Generation
    sources: int
    chunks: int


class Outcome(Struct, frozen=True):
    """A generation after a command: what was built in it, and how many present sources it lacks.

    `misfit` is the reason why servers with these settings cannot start on it, if there is one.
    """

    generation: Generation
    built: RebuildResult
    lacking: int
    misfit: str | None = None


class MoveOutcome(Outcome, frozen=True, kw_only=True):
    """The result of a move: `generation` is the copy of `origin`, and active in its store if `compared` shows no difference.

    Nothing is compared if a source could not be copied. `setting` makes servers use that store, None if they already do.
    It also applies to the indexes `others`, which are not complete in that store.
    """

    origin: Generation
    compared: list[Comparison]
    setting: str | None
    others: list[str]

    @property
    def differing_sources(self) -> int:
        """The number of sources that differ between the stores."""
        return sum(each.differing for each in self.compared)


class Indexing:
    """Works on one application, started or not. Raises NotFound for an unknown index or generation."""

    def __init__(self, application: Application) -> None:
        self._app, self._generations, self._ledger = application, application.generations, application.ledger

    async def read_contents(self) -> list[GenerationContents]:
        """Every generation of every index and store."""
        totals = await self._ledger.totals(await self.organizations())
        return [
            GenerationContents(each, *totals.get(each.id, (0, 0, 0))[:2]) for each in await self._generations.list()
        ]

    async def rebuild(self, index: str, *, switch: bool, begin: Begin) -> Outcome:
        """Build a new generation with the present settings, or complete the unfinished one that has them.

        With `switch` it becomes active, unless a source could not be built.
        """
        spec = self._app.index(index)
        await self._app.check_embedder()
        async with self._ledger.lock_for_rebuilding(spec.name):
            generation = await self._resume_building(spec) or await self._app.backends.begin(
                spec, self._app.embedder.model_name, self._app.dimension
            )
            return await self._complete(spec, generation, begin, switch=switch)

    async def switch(self, index: str, number: int | None) -> Outcome:
        """Make a generation active: the newest one being built, or the one with this number.

        Raises InvalidInput if it does not hold the present version of every source.
        """
        spec = self._app.index(index)
        async with self._ledger.lock_for_rebuilding(spec.name), self._ledger.lock_for_switching(spec.name):
            if number is not None:
                generation = await self._find_generation(spec, number)
            elif built := [each for each in await self._ours(spec) if each.state == "building"]:
                generation = built[-1]
            else:
                raise InvalidInput("", index, f"index {spec.name} has no new generation; `{_rebuild(spec)}` makes one")
            lacking = await self._count_lacking(spec, generation)
            if lacking and generation.state in ("building", "retired"):
                raise InvalidInput(
                    "",
                    number,
                    f"generation {generation.number} of {spec.name} lacks the current version of {lacking} sources; "
                    f"`{_rebuild(spec)} --switch` builds them",
                )
            await self._app.backends.finish_load(generation)  # its rebuild may have been killed before
            generation = await self._generations.activate(generation.id)
        return Outcome(generation, RebuildResult(), lacking, self._app.misfit(spec, generation))

    async def roll_back(self, index: str, *, force: bool, begin: Begin) -> Outcome:
        """Make the generation before the active one active again.

        Sources added or changed since are built in it first, which requires settings that match it (InvalidInput says
        what to set). With `force` it becomes active at once without those sources: never with outdated ones.
        """
        spec = self._app.index(index)
        async with self._ledger.lock_for_rebuilding(spec.name):
            generation = await self._previous_generation(spec)
            misfit = self._app.misfit(spec, generation)
            if force or misfit:
                async with self._ledger.lock_for_switching(spec.name):
                    if force:
                        await self._take_out_outdated(spec, generation)
                    lacking = await self._count_lacking(spec, generation)
                    if lacking and not force:
                        raise InvalidInput(
                            "",
                            index,
                            f"generation {generation.number} of {spec.name} lacks the current version of {lacking} "
                            f"sources, which cannot be built in it: it {misfit}; or go back without them: --force",
                        )
                    return Outcome(await self._generations.activate(generation.id), RebuildResult(), lacking, misfit)
            return await self._complete(spec, generation, begin, switch=True)

    async def drop(self, index: str, number: int) -> Generation:
        """Remove an inactive generation from its store. Raises InvalidInput for the active one."""
        spec = self._app.index(index)
        self._app.backends.owner()  # refuses before anything is done
        async with self._ledger.lock_for_rebuilding(spec.name), self._ledger.lock_for_switching(spec.name):
            generation = await self._generations.drop((await self._find_generation(spec, number)).id)
            await self._app.backends.drop(generation)
            await self._ledger.forget_builds(await self.organizations(), generation.id)
        return generation

    async def move(self, index: str, to: str, *, begin: Begin) -> MoveOutcome:
        """Copy the active generation of the other store to the store `to`, and make it active there if the copy is equal.

        A matching generation that exists there is updated. Raises InvalidInput if there is nothing to move,
        Misconfigured if the settings do not match it.
        """
        spec = self._app.index(index)
        if to not in STORES:
            raise InvalidInput("--to", to, f"accepted: {', '.join(STORES)}")
        async with self._ledger.lock_for_rebuilding(spec.name):
            origin = await self._origin(spec, to)
            if misfit := self._app.misfit(spec, origin):
                raise Misconfigured(f"index {spec.name} in {origin.store} {misfit}")
            target = await self._copy_of(spec, origin, to)
            held = (await self._ledger.totals(await self.organizations())).get(origin.id, (0, 0, 0))[0]
            move = Move(
                spec,
                target.id,
                self.organizations,
                self._open(spec, target),
                self._ledger,
                begin(target, await self._count_lacking(spec, target) + held),
                origin,
                self._open(spec, origin),
            )
            target = await self._fill(spec, target, move, switch=True)
            lacking = await self._count_lacking(spec, target)
        setting, others = await self._setting_for(spec, to)
        return MoveOutcome(
            target, move.built, lacking, origin=origin, compared=move.compared, setting=setting, others=others
        )

    async def _origin(self, spec: IndexSpec, to: str) -> Generation:
        """The active generation of another store than `to`: that of the store that servers use, else the most complete."""
        asked = self._app.backends.kind(spec)
        others = sorted((store for store in STORES if store != to), key=lambda store: store != asked)
        there = [each for store in others if (each := await self._generations.active(spec.name, store)) is not None]
        if not there:
            raise InvalidInput(
                "", spec.name, f"index {spec.name} has no data in {' or '.join(others)}, so there is nothing to move"
            )
        lacking = {each.id: await self._count_lacking(spec, each) for each in there}
        return min(there, key=lambda each: (each.store != asked, lacking[each.id]))

    async def _copy_of(self, spec: IndexSpec, origin: Generation, to: str) -> Generation:
        """The active or unfinished generation in `to`, if it matches; otherwise a new one."""
        there = await self._generations.active(spec.name, to)
        if there is not None and self._app.misfit(spec, there) is None:
            return there
        if begun := await self._resume_building(spec, to):
            return begun
        return await self._app.backends.begin(
            spec, origin.embedding_model, origin.dimension, copied_to=(to, origin.settings)
        )

    def _open(self, spec: IndexSpec, generation: Generation) -> Callable[[UUID], ScopedStore]:
        return lambda org_id: self._app.backends.scoped(spec, generation, Scope(frozenset({org_id})))

    async def _setting_for(self, spec: IndexSpec, to: str) -> tuple[str | None, list[str]]:
        """The setting that makes servers use `to` for an index, and the other indexes it affects that lack sources."""
        if self._app.backends.kind(spec) == to:
            return None, []
        if spec.vector_store is not None:
            return f'vector_store = "{to}" in indexes/{spec.name}/index.toml', []
        others = [each for each in self._app.indexes.values() if each.vector_store is None and each.name != spec.name]
        there = {each.name: await self._generations.active(each.name, to) for each in others}
        return f"RAG_VECTOR_STORE={to}", [
            each.name for each in others if await self._count_lacking(each, there[each.name])
        ]

    async def _resume_building(self, spec: IndexSpec, store: str | None = None) -> Generation | None:
        for each in reversed(await self._ours(spec, store)):
            if each.state == "building" and self._app.misfit(spec, each) is None:
                if each.id not in await self._ledger.totals(await self.organizations()):
                    await self._app.backends.create(spec, each)  # nothing is in it: perhaps not even tables
                return each
        return None

    async def _complete(self, spec: IndexSpec, generation: Generation, begin: Begin, *, switch: bool) -> Outcome:
        rebuild = Rebuild(
            spec,
            generation.id,
            self.organizations,
            self._open(spec, generation),
            self._ledger,
            begin(generation, await self._count_lacking(spec, generation)),
            self._app.embedder,
            generation.dimension,
        )
        generation = await self._fill(spec, generation, rebuild, switch=switch)
        return Outcome(generation, rebuild.built, await self._count_lacking(spec, generation))

    async def _fill(self, spec: IndexSpec, generation: Generation, filling: Filling, *, switch: bool) -> Generation:
        """Write what is missing. To `switch`, the generation becomes active when it is complete and right."""
        begun = await self._ledger.totals(await self.organizations())
        if generation.state == "building" and generation.id not in begun:
            await self._app.backends.begin_load(generation)  # else it is as a killed command has left it
        await filling.run()
        await self._app.backends.finish_load(generation)
        while switch and not filling.built.failed:
            async with self._ledger.lock_for_switching(spec.name):
                if await filling.complete():
                    return await self._generations.activate(generation.id) if await filling.is_right() else generation
            await filling.run()  # an ingest was quick
        return generation

    async def _take_out_outdated(self, spec: IndexSpec, generation: Generation) -> None:
        """Remove outdated versions of sources, so that former content and permissions do not reappear."""
        for org_id in await self.organizations():
            if outdated := await self._ledger.list_outdated(org_id, generation.id):
                await self._open(spec, generation)(org_id).write([], replacing=outdated)
                await self._ledger.forget_builds([org_id], generation.id, outdated)

    async def _count_lacking(self, spec: IndexSpec, generation: Generation | None) -> int:
        """How many sources have no present version in the generation, or in none at all."""
        generation_id = generation.id if generation else 0
        return sum((await self._ledger.count_unindexed(await self.organizations(), spec.name, generation_id)).values())

    async def _ours(self, spec: IndexSpec, store: str | None = None) -> list[Generation]:
        """The generations of the index in its store, or in another one, oldest first."""
        key = spec.name, store or self._app.backends.kind(spec)
        return [each for each in await self._generations.list() if (each.index, each.store) == key]

    async def _find_generation(self, spec: IndexSpec, number: int) -> Generation:
        ours = {each.number: each for each in await self._ours(spec)}
        if number not in ours:
            known = [str(each.number) for each in ours.values() if each.state != "dropped"]
            raise NotFound(f"generation of {spec.name}", str(number), known)
        return ours[number]

    async def _previous_generation(self, spec: IndexSpec) -> Generation:
        before: list[Generation] = []
        for each in await self._ours(spec):
            if each.state == "active" and before:
                return before[-1]
            if each.state == "retired":
                before.append(each)
        raise InvalidInput("", spec.name, f"index {spec.name} has no previous generation to go back to")

    async def organizations(self) -> dict[UUID, str]:
        """Their slugs, by id."""
        return {organization.id: organization.slug for organization in await self._app.people.organizations()}


def _rebuild(spec: IndexSpec) -> str:
    return f"rag-app indexes rebuild {spec.name}"
