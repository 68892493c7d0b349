"""Builds the application from the settings: database, stores, models and services. Only this module knows all parts."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from functools import cached_property, partial
from importlib.metadata import version
from math import inf
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import rag_app.surfaces.lexybrain  # noqa: F401 - registers its capabilities, which are known whether or not it is served
from rag_app.access.limits import Budgets, Leases, RateLimiter
from rag_app.access.page_sessions import Sessions
from rag_app.access.people import Calendar, Keys, People
from rag_app.access.roles import GroupDirectory, Role, RoleDirectory
from rag_app.answering.capabilities import Capability, capability_named
from rag_app.answering.parts import NO_PARTS, Parts
from rag_app.database.session import Database
from rag_app.database.urls import DatabaseUrls, database_urls
from rag_app.documents.generations import Generation, GenerationRegistry
from rag_app.documents.ledger import SourceLedger
from rag_app.documents.originals import Originals
from rag_app.domain import Forbidden, Misconfigured, NotFound, RagError, Scope, StoreFailed, require, resource_folder
from rag_app.evaluation.records import Calibrations
from rag_app.retrieval.confidence import shipped_fit
from rag_app.retrieval.embedders import EMBEDDERS, BundledModel, build_embedder
from rag_app.retrieval.index import LAYOUT, ConfidenceRule, IndexSpec, find_index, load_indexes
from rag_app.settings import Settings
from rag_app.stores.registry import STORES, store_named, unshared_store

if TYPE_CHECKING:
    from pathlib import Path

    from litestar import Litestar
    from litestar.types import Guard
    from llama_index.core.base.embeddings.base import BaseEmbedding

    from rag_app.access.openid import Provider
    from rag_app.access.tokens import PublicKeys
    from rag_app.answering.chosen_models import ChosenModels
    from rag_app.answering.models_file import ModelsFile
    from rag_app.answering.prompt_configs import PromptRegistry
    from rag_app.documents.chunking import NodeWriter
    from rag_app.documents.ingest import Ingestor
    from rag_app.documents.jobs import Jobs
    from rag_app.documents.metadata import Target
    from rag_app.documents.reading import ReaderPool
    from rag_app.documents.uploads import Upload, UploadedDocument, UploadService
    from rag_app.evaluation.kept_answers import KeptAnswers
    from rag_app.evaluation.records import Validations
    from rag_app.http.entrance import Entrance
    from rag_app.http.server import Site
    from rag_app.pipeline import Pipeline
    from rag_app.retrieval.searcher import Searcher
    from rag_app.retrieval.store import Backend, ScopedStore
    from rag_app.surfaces.lexybrain.conversations import Conversations
    from rag_app.surfaces.sources.service import SourceService

log = logging.getLogger(__name__)

_JOBS_KEPT, _JOBS_FORGOTTEN = 30.0, 3600.0  # seconds between two looks at jobs that go on, and that ended long ago
_HOUR, _DAY = 3600.0, 24 * 3600.0  # seconds between two deletions of what is too old
_GENERATION_SECONDS = 2.0  # how long a process may go on with a generation after a switch


class OpenStores:
    """The vector stores in use, each imported and opened when an index first needs it."""

    def __init__(
        self,
        settings: Settings,
        urls: DatabaseUrls,
        database: Database,
        ledger: SourceLedger,
        generations: GenerationRegistry,
        check_reads: Callable[[IndexSpec, Generation], None],
    ) -> None:
        self._settings, self._urls, self._database = settings, urls, database
        self._ledger, self._generations = ledger, generations
        self._check_reads = check_reads
        self._opened = dict[str, "Backend"]()
        self._ids: dict[tuple[str, str], int] = {}

    def kind(self, spec: IndexSpec) -> str:
        return spec.vector_store or self._settings.store.kind

    def place(self, spec: IndexSpec) -> str:
        """Where the index's store is, for people."""
        return store_named(self.kind(spec)).place(self._settings)

    def backend(self, kind: str) -> "Backend":
        if kind not in self._opened:
            self._opened[kind] = store_named(kind).open(self._settings, self._database, partial(self._visible, kind))
        return self._opened[kind]

    async def open(self, spec: IndexSpec, scope: Scope) -> "ScopedStore":
        """The index's active generation as `scope` sees it.

        Raises Misconfigured where there is none, StoreFailed where this process cannot read it.
        """
        found = await self._generations.active(
            spec.name, self.kind(spec), _GENERATION_SECONDS
        )  # without `active`: one frame less
        generation = self._check_built(spec, found)
        self._check_reads(spec, generation)
        return self.scoped(spec, generation, scope)

    def scoped(self, spec: IndexSpec, generation: Generation, scope: Scope) -> "ScopedStore":
        """A generation as `scope` sees it."""
        self._ids[generation.store, generation.table_prefix] = generation.id
        return self.backend(generation.store).scoped(spec, generation.table_prefix, scope)

    async def active(self, spec: IndexSpec) -> Generation:
        """The generation that answers, as it was at most a moment ago. Raises Misconfigured where there is none."""
        return self._check_built(spec, await self._generations.active(spec.name, self.kind(spec), _GENERATION_SECONDS))

    async def check(self, spec: IndexSpec) -> None:
        """Raises StoreFailed where what the active generation is stored in is missing. No store is opened where the database
        has the vectors."""
        generation = await self.active(spec)
        if store_named(generation.store).in_database:
            chunks = f"SELECT FROM {generation.table_prefix}_chunks LIMIT 0"
            await self._database.fetch_scoped(Scope(frozenset({UUID(int=0)})), chunks)
        elif not await self.backend(generation.store).holds(generation.table_prefix):
            raise StoreFailed(
                f"{generation.store} has no data of index {spec.name}: {generation.table_prefix} is missing"
            )

    def _check_built(self, spec: IndexSpec, generation: Generation | None) -> Generation:
        if generation is None:  # not by `require`: each search comes by here
            raise Misconfigured(f"index {spec.name} has not been built in {self.kind(spec)}: run `rag-app db upgrade`")
        return generation

    async def begin(
        self,
        spec: IndexSpec,
        embedding_model: str,
        dimension: int,
        copied_to: tuple[str, Mapping[str, object]] | None = None,
    ) -> Generation:
        """The index's next generation, empty. `copied_to`: another store, and with which settings the original was built."""
        self.owner()  # refuses before there is one
        store, settings = copied_to or (self.kind(spec), spec.built_with)
        made = await self._generations.create(spec.name, store, embedding_model, dimension, settings)
        await self.create(spec, made)
        return made

    async def create(self, spec: IndexSpec, generation: Generation) -> None:
        """What the generation is stored in, empty."""
        await self.backend(generation.store).create(self.owner(), spec, generation.table_prefix, generation.dimension)

    async def begin_load(self, generation: Generation) -> None:
        """Let a generation that nobody searches be filled without what is cheaper to build afterwards, by `finish_load`."""
        await self.backend(generation.store).begin_load(self.owner(), generation.table_prefix)

    async def finish_load(self, generation: Generation) -> None:
        """Build what is missing. Before a generation becomes active."""
        backend = self.backend(generation.store)
        if not await backend.is_loaded(generation.table_prefix):
            await backend.finish_load(self.owner(), generation.table_prefix)

    async def drop(self, generation: Generation) -> None:
        """What the generation is stored in goes."""
        await self.backend(generation.store).drop(self.owner(), generation.table_prefix)

    def reaches(self, store: str, specs: Iterable[IndexSpec]) -> bool:
        """Whether this process is configured for a store, be it that no index answers from it any more."""
        configured = store in STORES and STORES[store].configured(self._settings)
        return configured or any(self.kind(spec) == store for spec in specs)

    def owner(self) -> str:
        """The URL of the role that owns the schema. Raises Misconfigured where this process does not know it."""
        return require(
            self._urls.owner,
            Misconfigured("set RAG_DATABASE_OWNER_URL: building an index needs the role that owns the schema"),
        )

    def connections(self) -> tuple[int, int]:
        """Of the pools that stores have in PostgreSQL: how many are in use, how many are open."""
        in_use, opened = zip((0, 0), *(backend.connections() for backend in self._opened.values()), strict=True)
        return sum(in_use), sum(opened)

    async def close(self) -> None:
        for backend in self._opened.values():
            await backend.close()

    async def _visible(self, kind: str, scope: Scope, generation: str, sources: Sequence[UUID]) -> set[UUID]:
        return set(await self._ledger.visible(scope, self._ids[kind, generation], sources))


class Application:
    """Everything a command or a server works with, over one database. What few commands need is made at its first use.

    `sessions` of browsers are None if the pages are disabled.
    """

    _owner: asyncio.AbstractEventLoop | None

    def __init__(self, settings: Settings, urls: DatabaseUrls, parts: Parts = NO_PARTS) -> None:
        self.settings, self.urls = settings, urls
        self.database = database = Database(urls.app, settings.database.pool_size)
        self.people, self.groups, self.keys, self.roles = (
            People(database),
            GroupDirectory(database),
            Keys(database),
            RoleDirectory(database),
        )
        pages = settings.pages
        lives = timedelta(hours=pages.session_hours), timedelta(minutes=pages.idle_minutes)
        self.sessions = None if pages.shown == "off" else Sessions(database, *lives)
        self.ledger, self.generations = SourceLedger(database), GenerationRegistry(database)
        self.limiter, self.leases = RateLimiter(database), Leases(database)
        self.calendar = Calendar(database)
        self.backends = OpenStores(settings, urls, database, self.ledger, self.generations, self._check_reads)
        self.calibrations = Calibrations(
            database,
            self.backends.kind,
            lambda spec: shipped_fit(resource_folder("indexes"), spec.name, self.embedding[0]),
        )
        files = settings.uploads.originals_folder or settings.database.home / "originals"
        self.originals = Originals(database, files, keeps=settings.uploads.originals == "files")
        self.fit_for = self.calibrations.fit_for
        self._parts, self._owner = parts, None
        self._closing = AsyncExitStack()  # the last first
        for close in (database.close, self.backends.close):
            self._closing.push_async_callback(close)

    @cached_property
    def indexes(self) -> dict[str, IndexSpec]:
        return _indexes(self.settings)

    def index(self, name: str) -> IndexSpec:
        """By name or alias. Raises NotFound with the names there are."""
        return find_index(self.indexes, name)

    @cached_property
    def _models_file(self) -> "ModelsFile":
        from rag_app.answering.models_file import read_models

        return read_models(self.settings.model.models_file)

    @cached_property
    def bundled_model(self) -> BundledModel | None:
        """The embedding model, if it comes with this package."""
        given = self._parts.embedder or (self.settings.model.models_file and self._models_file.embedding)
        return None if given else EMBEDDERS[self.settings.embedding.kind].bundled

    @property
    def embedding(self) -> tuple[str, int]:
        """The embedding model's name and dimension, by which a generation remembers it. A bundled model is not loaded."""
        if self.bundled_model is None:
            return self.embedder.model_name, getattr(self.embedder, "dimension", self.settings.embedding.dimension)
        loaded = vars(self).get("embedder")
        return (loaded.model_name if loaded else self.bundled_model.name), self.bundled_model.dimension

    @property
    def dimension(self) -> int:
        return self.embedding[1]

    @cached_property
    def embedder(self) -> "BaseEmbedding":
        if self.bundled_model is not None:
            return build_embedder(self.settings.embedding.kind, self.bundled_model.name, None, None)
        return _embedder(self.settings, self._models_file, self._parts)

    @cached_property
    def searcher(self) -> "Searcher":
        """Finds hits, and imports nothing that answers."""
        from rag_app.retrieval.searcher import Searcher

        return Searcher(self.indexes, self.backends.open, self.embedder, self.dimension)

    @cached_property
    def prompts(self) -> "PromptRegistry":
        from rag_app.answering.prompt_configs import PromptRegistry

        return PromptRegistry(self.database)

    @cached_property
    def models(self) -> "ChosenModels":
        from rag_app.answering.chosen_models import ChosenModels

        made = ChosenModels(self.settings, self.embedder, self.prompts.draw, self._parts, self._models_file)
        self._closing.push_async_callback(made.aclose)
        return made

    @cached_property
    def validations(self) -> "Validations":
        from rag_app.evaluation.records import Validations

        return Validations(self.database)

    @cached_property
    def kept_answers(self) -> "KeptAnswers":
        from rag_app.evaluation.kept_answers import KeptAnswers

        return KeptAnswers(self.database, self.ledger, self.models.cost_cents)

    @cached_property
    def pipeline(self) -> "Pipeline":
        return self._pipeline(budgets=Budgets(self.database, self.settings.lexybrain.token_budget))

    @cached_property
    def _pipeline(self) -> "Callable[..., Pipeline]":
        """Makes a pipeline over the parts of this application."""
        from rag_app.answering.rerankers import RerankerRegistry
        from rag_app.pipeline import Pipeline

        rerankers = RerankerRegistry(self._models_file, self.settings.model.models_file)
        self._closing.push_async_callback(rerankers.aclose)

        def own(capability: Capability) -> Parts:
            return capability.parts.fall_back_to(self._parts).fall_back_to(rerankers.parts(capability))

        return partial(
            Pipeline,
            self.indexes,
            self.backends.open,
            self.embedder,
            self.models.synthesizer,
            dimension=self.dimension,
            load_fit=self.fit_for,
            parts=own,
            today=self.calendar.today,
            query_writer=self.models.query_writer,
            owner=lambda: self._owner,
        )

    @cached_property
    def readers(self) -> "ReaderPool":
        made = open_readers(self.settings, self.settings.reading.processes)
        self._closing.callback(made.close)
        return made

    @cached_property
    def jobs(self) -> "Jobs":
        from rag_app.documents.jobs import Jobs

        return Jobs(self.database)

    @cached_property
    def uploads(self) -> "UploadService":
        """What is sent over HTTP, or for jobs. It reads in processes of its own."""
        from rag_app.documents.catalogue import Catalogue
        from rag_app.documents.uploads import Limits, UploadService

        chosen, readers = self.settings.uploads, open_readers(self.settings, 1)
        self._closing.callback(readers.close)
        return UploadService(
            self.ingestor,
            self.ledger,
            Catalogue(self.database),
            self.originals,
            readers,
            self.settings.reading.processes,
            Limits(chosen.sources, None if chosen.total is None else chosen.total * 1_000_000),
        )

    @cached_property
    def conversations(self) -> "Conversations":
        """Ask LexyBrain. Its pipeline checks no budgets: a turn does, when it begins."""
        from rag_app.surfaces.lexybrain.conversations import INDEX, Conversations
        from rag_app.surfaces.lexybrain.quotas import Entitlements
        from rag_app.surfaces.lexybrain.threads import ThreadStore
        from rag_app.surfaces.lexybrain.training import Training

        chosen, accounts = self.settings.lexybrain, Entitlements(self.database)
        made = Conversations(
            database=self.database,
            accounts=accounts,
            pipeline=self._pipeline(),
            index=self.indexes.get(INDEX),
            threads=ThreadStore(self.database, self.ledger),
            prompts=self.prompts,
            ledger=self.ledger,
            models=self.models,
            training=Training(self.database, accounts),
            enabled=chosen.enabled,
            detect_by_model=chosen.detection == "model",
            rewrite=chosen.rewrite,
            history_tokens=chosen.history_tokens,
            cost_cap_cents=Decimal(chosen.daily_cost_cap),
            token_budget=chosen.token_budget,
        )
        self._closing.push_async_callback(made.aclose)
        return made

    def check_declared(self) -> None:
        """Raises Misconfigured for indexes and models that cannot be used as they are declared."""
        _ = self.indexes
        if self.settings.names_models or self._parts != NO_PARTS:
            _ = self.pipeline

    async def start(self, indexes: Collection[str] | None = None) -> None:
        """Check that what is configured fits what is stored; the private database and new indexes are prepared.

        Of the indexes, these are checked: by default all.

        Raises Misconfigured with what to do, StoreFailed where the database does not answer.
        """
        self.check_declared()
        self._owner = asyncio.get_running_loop()
        await self.database.check()
        if self.urls.private:
            await self.build_missing()
            await self.seed_prompts()
        for name in self.indexes if indexes is None else indexes:
            await self.check_index(self.index(name))

    async def check_default_organization(self) -> None:
        """Raises Misconfigured where callers without a credential are to be of an organization that does not exist."""
        if (default := self.settings.api.default_organization) is not None:
            try:
                await self.people.organization(default)
            except NotFound as error:
                raise Misconfigured(f"RAG_DEFAULT_ORGANIZATION: {error}") from error

    async def load_models(self) -> None:
        """Load the bundled models that requests would load one by one, so that a server is soon as large as it will be."""
        from rag_app.answering.reader import the_reader
        from rag_app.documents.metadata import language_identifier
        from rag_app.retrieval.embedding import MiniLM

        await asyncio.to_thread(language_identifier)
        if isinstance(self.embedder, MiniLM):
            await asyncio.to_thread(self.embedder.load)
            await asyncio.to_thread(the_reader().load)

    async def build_missing(self) -> list[str]:
        """Make a first generation of each index that has none; the names of those made.

        Safe in several processes at once: one of them builds, the others wait for it and find the work done.
        """
        made = []
        for spec in self.indexes.values():
            await self.generations.declare(spec.name, spec.source_types)
            store = self.backends.kind(spec)
            if await self.generations.active(spec.name, store) is not None:
                continue
            async with self.ledger.lock_for_switching(spec.name):
                if await self.generations.active(spec.name, store) is not None:
                    continue
                generation = await self.backends.begin(spec, *self.embedding)
                await self.generations.activate(generation.id, retire=False)
            made.append(spec.name)
        return made

    async def seed_prompts(self) -> list[str]:
        """Add the versions of prompts that the files have and the database has not; the names of those added."""
        from rag_app.answering.prompts import released_names, released_prompts

        folder = resource_folder("prompts")
        if {each.name for each in await self.prompts.all()} >= released_names(folder):
            return []
        return await self.prompts.seed(released_prompts(folder))

    async def check_embedder(self) -> None:
        """Raises EmbeddingFailed where it does not answer, Misconfigured where its vectors have another length."""
        from rag_app.retrieval.embedding import embed_query

        vector = await embed_query(self.embedder, "ready?")
        if len(vector) != self.dimension:
            raise Misconfigured(
                f"{self.embedder.model_name} has {len(vector)} dimensions: set RAG_EMBEDDING_DIMENSION={len(vector)}, or "
                "dimension in [embedding] of RAG_MODELS_FILE"
            )

    async def close(self) -> None:
        await self._closing.aclose()

    async def ingestor(self, spec: IndexSpec, target: "Target") -> "Ingestor":
        """What writes an organization's sources into an index. Raises Misconfigured where these settings do not fit it."""
        await self.check_index(spec)
        return await self._ingestor(spec, target)

    async def node_writer(self, spec: IndexSpec, target: "Target") -> "NodeWriter":
        """What makes nodes chunks of sources of `target`. Raises Misconfigured where these settings do not fit the index."""
        from rag_app.documents.chunking import NodeWriter

        ingestor, generation = await self.ingestor(spec, target), await self.backends.active(spec)
        store = self.backends.scoped(spec, generation, Scope(frozenset({target.org_id}), target.owner_id))
        return NodeWriter(spec, generation, store, self.ledger, target, ingestor.delete)

    async def _ingestor(self, spec: IndexSpec, target: "Target") -> "Ingestor":
        from rag_app.documents.ingest import Ingestor

        generation = await self.backends.active(spec)
        store = self.backends.scoped(spec, generation, Scope(frozenset({target.org_id}), target.owner_id))

        async def erase(source_ids: Collection[UUID]) -> None:
            for missing in await self.originals.forget(target.org_id, source_ids):
                log.warning("an original was to be deleted, but it is not here: %s", missing)
            holding = await self.ledger.generations_holding(target.org_id, source_ids)
            for each in await self.generations.list():
                if each.id in holding and each.store in STORES:
                    held = self.backends.scoped(spec, each, Scope(frozenset({target.org_id})))
                    reached = self.backends.reaches(each.store, self.indexes.values())
                    try:
                        if reached:
                            await held.write([], replacing=list(source_ids))
                    except StoreFailed:
                        if each.store == generation.store:
                            raise
                        reached = False
                    if not reached:  # another store need not be there any more; nobody is shown what it holds of these
                        await held.forget(list(source_ids))

        return Ingestor(
            spec, generation.id, store, self.ledger, self.embedder, generation.dimension, target, erase, self.readers
        )

    async def take_turn(self, org_id: UUID) -> None:
        """Some files of an organization's jobs, in this process. Raises what an ingest raises."""
        from rag_app.documents.jobs import take_turn

        async def ingest(
            index: str, target: "Target", uploads: "Sequence[Upload]", sender: Scope
        ) -> "Sequence[UploadedDocument]":
            # who sent the job may have left the organization since, or lost the role
            if await self.keys.is_revoked(sender.user):
                raise Forbidden("The API key that sent this job has been revoked")
            await self.roles.require(Role.WRITE, await self.people.principal(str(sender.user)), target.org_id, index)
            return await self.uploads.ingest(self.index(index), target, uploads, sender)

        await take_turn(self.jobs, ingest, org_id)

    async def work(self) -> None:
        """Take turns from the queue until cancelled."""
        from rag_app.documents.uploads import remove_abandoned_folders
        from rag_app.documents.worker import work

        await asyncio.to_thread(remove_abandoned_folders)
        keeping = asyncio.create_task(self._keep_jobs())
        try:
            await work(self.urls.app, self.take_turn)
        finally:
            keeping.cancel()

    async def _keep_jobs(self) -> None:
        """Now and then: jobs that ended long ago go, and none that goes on is left without a turn."""
        forgotten = -inf
        while True:
            with suppress(StoreFailed):
                organizations = [each.id for each in await self.people.organizations()]
                await self.jobs.requeue_unfinished(organizations)
                if time.monotonic() - forgotten > _JOBS_FORGOTTEN:
                    forgotten = time.monotonic()
                    for org_id in organizations:
                        await self.jobs.forget(org_id, self.settings.jobs.days)
            await asyncio.sleep(_JOBS_KEPT)

    async def finish_deletions(self) -> None:
        """Complete the deletions of sources that a killed process began."""
        from rag_app.documents.metadata import Target

        organizations = [organization.id for organization in await self.people.organizations()]
        for org_id, index in await self.ledger.list_interrupted(organizations):
            await (await self._ingestor(self.index(index), Target(org_id))).finish_deletions()

    async def readiness(self) -> dict[str, str]:
        """Each part that a request needs: "ok" or "unavailable". Anybody may ask, so what is wrong goes to the log."""
        states = await self._states(readable=True)
        for name, state in states.items():
            if state != "ok":
                log.warning("%s is not ready: %s", name, state)
        return {name: "ok" if state == "ok" else "unavailable" for name, state in states.items()}

    async def _states(self, readable: bool = False) -> dict[str, str]:
        database = await _state(self.database.check())
        return {"database": database, "vector_store": await _state(self._check_stores(readable))}

    async def problems(self) -> dict[str, str]:
        """For the operator: each part, and whether each index fits the settings; "ok", or what is wrong."""
        parts = await self._states()
        return parts | {spec.name: await _state(self.check_index(spec)) for spec in self.indexes.values()}

    async def _check_stores(self, readable: bool) -> None:
        for spec in self.indexes.values():
            await self.backends.check(spec)
            if readable:
                self._check_reads(spec, await self.backends.active(spec))

    def misfit(self, spec: IndexSpec, generation: Generation) -> str | None:
        """Why this process cannot write to a generation, and what to put back; None if it can."""
        was, now = (generation.embedding_model, generation.dimension), self.embedding
        if was != now:
            earlier = "RAG_EMBEDDING"
            if self._parts.embedder is not None:
                earlier = "embedder given to `rag_app.open`"
            elif self.settings.model.models_file and self._models_file.embedding:
                earlier = f"[embedding] of RAG_MODELS_FILE ({self.settings.model.models_file}), or RAG_EMBEDDING"
            return (
                f"was built with {was[0]} ({was[1]} dimensions), but the settings name "
                f"{now[0]} ({now[1]}): restore the earlier {earlier}"
            )
        if generation.settings.get("layout") != LAYOUT:
            return "was built by another release, which stores indexes differently: go back to that release"
        if dict(generation.settings) != spec.built_with:
            return f"was built with other fields or chunking than {spec.name}/index.toml now declares: restore the earlier index.toml"
        return None

    async def check_index(self, spec: IndexSpec) -> None:
        """Raises Misconfigured where these settings do not fit the generation that answers."""
        if why := self.misfit(spec, await self.backends.active(spec)):
            command = f"rag-app indexes rebuild {spec.name} --switch"
            raise Misconfigured(f"index {spec.name} {why}, or run `{command}`")

    def _check_reads(self, spec: IndexSpec, generation: Generation) -> None:
        """After a switch beside a running process; how a generation was chunked is nothing to a reader."""
        mine, settings = spec.built_with, generation.settings
        same = all(settings.get(part) == mine[part] for part in mine if part != "chunking")
        if not same or (generation.embedding_model, generation.dimension) != self.embedding:
            raise StoreFailed(
                f"index {spec.name} was switched to generation {generation.number} "
                "while this process was running. "
                "Restart it with the settings of the active generation "
                f"(model {generation.embedding_model}, {generation.dimension} dimensions)"
            )


@asynccontextmanager
async def open_application(
    settings: Settings,
    urls: DatabaseUrls,
    prepare: Callable[[Application], Awaitable[None]] = Application.start,
    parts: Parts = NO_PARTS,
) -> AsyncIterator[Application]:
    """The application for as long as the context lasts, after `prepare`: by default it is checked and ready."""
    application = Application(settings, urls, parts)
    try:
        await prepare(application)
        yield application
    finally:
        await application.close()


def create_app() -> "Litestar":
    """The HTTP application, for any ASGI server: `granian --interface asgi --factory rag_app.application:create_app`."""
    from litestar import Litestar

    from rag_app.http.server import metrics
    from rag_app.surfaces.lexybrain.retention import enforce
    from rag_app.telemetry.setup import Telemetry, configure_logging

    settings = Settings()
    wanted = settings.telemetry
    configure_logging(wanted.log_format, wanted.log_level)
    telemetry = Telemetry(wanted)
    resources = ExitStack()
    application = Application(settings, resources.enter_context(database_urls(settings)))

    pools = {"database": application.database.connections, "vectors": application.backends.connections}
    counted = telemetry.measure(application.models.cost_cents, pools)
    token = wanted.metrics_token

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        with resources:
            tasks = [asyncio.create_task(telemetry.watch())]
            try:
                await application.start()
                tasks.append(asyncio.create_task(application.load_models()))
                if settings.jobs.worker and unshared_store(settings):
                    tasks.append(asyncio.create_task(application.work()))
                days, forget = settings.retention.model_dump(), application.kept_answers.forget
                tasks += [
                    asyncio.create_task(_repeat(partial(enforce, application.database, days), _DAY, "what is too old")),
                    asyncio.create_task(_repeat(forget, _HOUR, "answers that were kept for a day")),
                ]
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await application.close()
                await asyncio.to_thread(telemetry.stop)

    return build_api(
        application,
        lifespan=[lifespan],
        metrics=metrics(counted.scrape, token.get_secret_value() if token else None) if counted else None,
    )


def build_api(application: Application, **options: Any) -> "Litestar":
    """All surfaces over an application that is open; `options` are those of `rag_app.http.server.api`."""
    from rag_app.http.entrance import Access, gate
    from rag_app.http.server import api
    from rag_app.http.surface import with_limits
    from rag_app.surfaces import registry

    chosen, door = application.settings.api, entrance(application.settings)
    surfaces = with_limits(registry.SURFACES, chosen.requests, chosen.concurrent)
    access = Access(application.people, application.keys, application.limiter, application.leases, application.sessions)
    [asked] = [each for each in surfaces if each.name == "indexes"]
    return api(
        _services(application),
        access,
        door,
        surfaces,
        version=version("rag-app"),
        site=_site(application, gate(asked, door, access)),
        **options,
    )


def _services(application: Application) -> dict[str, object]:
    """What routes work with, by the name of their parameter."""
    from rag_app.surfaces.jobs.routes import JobService
    from rag_app.surfaces.lexybrain.conversations import INDEX
    from rag_app.surfaces.lexybrain.feedback import FeedbackLedger
    from rag_app.surfaces.lexybrain.statistics import Statistics
    from rag_app.surfaces.management.service import Belonging, FeedbackQueue, Usage
    from rag_app.surfaces.playground.routes import Playground
    from rag_app.surfaces.validation.service import RetrievalValidation

    database, conversations, backends = application.database, application.conversations, application.backends
    return {
        "pipeline": application.pipeline,
        "validation": RetrievalValidation(
            application.pipeline, application.validations, application.indexes, backends.active, backends.open
        ),
        "sources": _sources(application),
        "jobs": JobService(application.jobs, application.roles),
        "conversations": conversations,
        "threads": conversations.threads,
        "consents": conversations.training,
        "statistics": Statistics(database),
        "prompts": application.prompts,
        "feedback": FeedbackLedger(database, application.ledger, INDEX),
        "kept_answers": application.kept_answers,
        "feedback_queue": FeedbackQueue(database),
        "usage": Usage(database),
        "belonging": Belonging(database, application.people, application.keys, application.indexes),
        "playground": Playground(
            database,
            application.pipeline,
            application.indexes,
            backends.open,
            application.embedder,
            application.people,
            application.prompts,
            application.validations,
            application.dimension,
        ),
        "readiness": application.readiness,
    }


def _sources(application: Application) -> "SourceService":
    from rag_app.documents.catalogue import Catalogue
    from rag_app.http.bodies import BodyLimits
    from rag_app.surfaces.sources.addresses import networks
    from rag_app.surfaces.sources.repeats import Repeats
    from rag_app.surfaces.sources.service import SourceService

    uploads = application.settings.uploads
    return SourceService(
        Catalogue(application.database),
        application.ledger,
        application.indexes,
        application.backends.active,
        application.backends.open,
        application.people,
        application.roles,
        application.uploads,
        application.jobs,
        application.originals,
        Repeats(application.database),
        application.groups,
        BodyLimits(uploads.megabytes * 1_000_000, uploads.documents, uploads.seconds, uploads.at_once * 1_000_000),
        networks(uploads.url_networks),
    )


def _site(application: Application, count_question: "Guard") -> "Site | None":
    from rag_app.surfaces.pages.routes import build_site

    if application.sessions is None:
        return None
    settings = application.settings
    return build_site(
        application.people,
        application.sessions,
        application.limiter,
        count_question,
        tries=settings.pages.tries,
        demo=settings.pages.shown == "demo",
        provider=identity_provider(settings),
        public_url=settings.pages.public_url,
    )


def open_readers(settings: Settings, processes: int) -> "ReaderPool":
    """The processes that read files, within the limits of the settings; to be closed."""
    from rag_app.documents.limits import Limits
    from rag_app.documents.reading import ReaderPool

    return ReaderPool(Limits(**settings.reading.model_dump(exclude={"processes"})), processes)


def entrance(settings: Settings) -> "Entrance":
    """Whom the HTTP API lets in. Raises Misconfigured for a secret, keys or origins that cannot be used."""
    from rag_app.access.tokens import TokenReader
    from rag_app.http.entrance import Entrance, host_of, hosts, origins

    chosen, public_url = settings.api, settings.pages.public_url
    key = public_keys(settings) or settings.jwt_secret()
    return Entrance(
        TokenReader(key, chosen.jwt_audience, chosen.jwt_issuer, chosen.jwt_groups),
        chosen.session_cookie,
        origins(chosen.origins),
        chosen.default_organization,
        near=settings.pages.shown == "demo",
        hosts=hosts(chosen.hosts) | ({host_of(public_url)} if public_url else frozenset()),
    )


def wrong_settings(settings: Settings, workers: int) -> list[str]:
    """Why no server with that many workers can run with these settings: a line for each that is wrong.

    Nothing is created, connected to or asked.
    """
    shared = unshared_store(settings) if workers > 1 else None
    found = [shared] if shared else []
    for check in _checks(settings):
        try:
            check()
        except Misconfigured as error:
            found.append(" ".join(str(error).split()))
    return found


def _checks(settings: Settings) -> Iterator[Callable[[], object]]:
    """Each raises Misconfigured for a setting that is wrong. What checks a setting is imported where it is set."""
    from rag_app.telemetry.setup import check_telemetry_installed

    api = settings.api
    yield partial(check_telemetry_installed, settings.telemetry)
    yield partial(public_keys, settings)
    yield partial(identity_provider, settings)
    if api.jwt_secret is not None:
        from rag_app.access.tokens import TokenReader

        yield partial(TokenReader, api.jwt_secret.get_secret_value())
    if api.origins or api.hosts:
        from rag_app.http.entrance import hosts, origins

        yield partial(origins, api.origins)
        yield partial(hosts, api.hosts)
    if api.requests or api.concurrent:
        from rag_app.http.surface import with_limits
        from rag_app.surfaces.registry import SURFACES

        yield partial(with_limits, SURFACES, api.requests, {})
        yield partial(with_limits, SURFACES, {}, api.concurrent)
    if settings.uploads.url_networks:
        from rag_app.surfaces.sources.addresses import networks

        yield partial(networks, settings.uploads.url_networks)


def identity_provider(settings: Settings) -> "Provider | None":
    """The one that signs people in to the pages, if there is one. Raises Misconfigured."""
    chosen = settings.oidc
    if chosen.issuer is None or chosen.client_id is None:
        return None
    from rag_app.access.openid import Provider

    secret = chosen.client_secret.get_secret_value() if chosen.client_secret else None
    return Provider(chosen.issuer, chosen.client_id, secret, scopes=chosen.scopes, groups=settings.api.jwt_groups)


def public_keys(settings: Settings) -> "PublicKeys | None":
    """Of the identity provider that issues the tokens; None where they are signed with a secret."""
    url, file = settings.api.jwt_jwks_url, settings.api.jwt_key_file
    if url is None and file is None:
        return None
    from rag_app.access.tokens import PublicKeys

    return PublicKeys.from_url(url) if url is not None else PublicKeys.in_file(cast("Path", file))


def _indexes(settings: Settings) -> dict[str, IndexSpec]:
    """The declared indexes; a fixed confidence rule in the settings replaces that of one."""
    high, medium = settings.confidence.high, settings.confidence.medium
    specs = load_indexes(*settings.indexes.folders)
    for spec in specs.values():
        store_named(spec.vector_store or settings.store.kind)
    if high is None and medium is None:
        return specs
    high, medium = 0.75 if high is None else high, 0.60 if medium is None else medium
    if high < medium:
        raise Misconfigured("RAG_CONFIDENCE_HIGH_THRESHOLD is below RAG_CONFIDENCE_MEDIUM_THRESHOLD")
    rule = ConfidenceRule(signal="mean5", answer_from=medium, high=high)
    judged = find_index(specs, capability_named("knowledge_answer").index)  # whose contract has these settings
    return {**specs, judged.name: judged.model_copy(update={"confidence": rule})}


def _embedder(settings: Settings, file: "ModelsFile", parts: Parts) -> "BaseEmbedding":
    from llama_index.core.base.embeddings.base import BaseEmbedding

    from rag_app.retrieval.embedding import Embedder, OwnEmbedder

    chosen, said = settings.embedding, file.embedding
    if parts.embedder is not None and parts.dimension is not None:
        ours = isinstance(parts.embedder, Embedder)
        return parts.embedder if ours else OwnEmbedder(parts.embedder, parts.dimension)
    if said is not None:
        where = f"{settings.model.models_file}: embedding"
        if "kind" in chosen.model_fields_set:
            raise Misconfigured(f"{where} and RAG_EMBEDDING are both set: an index has one embedder")
        waits = {"max_retries": 0, "timeout": said.timeout, "request_timeout": said.timeout}
        inner, _ = said.build(BaseEmbedding, where, file.folder, waits)  # type: ignore[type-abstract]
        limits = {"timeout_s": said.timeout, "retries": said.retries, "batch": said.batch}
        return OwnEmbedder(inner, said.dimension, said.model, **limits)
    key = chosen.api_key or settings.providers.openai_api_key
    return build_embedder(chosen.kind, chosen.model, chosen.api_base, key.get_secret_value() if key else None)


async def _repeat(delete: Callable[[], Awaitable[object]], seconds: float, what: str) -> None:
    """At once and then every so many seconds, until cancelled. Failures are retried the next time."""
    while True:
        try:
            await delete()
        except RagError as error:
            log.warning("%s could not be deleted: %s", what, error)
        await asyncio.sleep(seconds)


async def _state(check: Awaitable[None]) -> str:
    try:
        await check
    except Exception as error:
        return str(error) if isinstance(error, RagError) else f"{type(error).__name__}: {error}"
    return "ok"
