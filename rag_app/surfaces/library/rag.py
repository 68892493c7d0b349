"""The application, open, as an object: ingest, search and ask. Async; works in a notebook's event loop.

Names and texts as people give them are made into what the parts take: who asks, what is asked, where documents go.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from llama_index.core.vector_stores.types import MetadataFilters
from msgspec.structs import replace

from rag_app.answering.capabilities import Capability, capability_for, capability_named
from rag_app.answering.parts import MakeRetriever, Parts
from rag_app.answering.restating import go_on
from rag_app.application import Application, open_application
from rag_app.database.urls import database_urls
from rag_app.domain import (
    PUBLIC_ORGANIZATION,
    Answer,
    Hit,
    InvalidInput,
    Misconfigured,
    Mode,
    Question,
    RagError,
    Scope,
    Visibility,
    require,
)
from rag_app.retrieval.filters import checked_text, parse_condition
from rag_app.settings import Settings
from rag_app.surfaces.library.arguments import checked_call

if TYPE_CHECKING:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.llms import LLM
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.response_synthesizers import BaseSynthesizer

    from rag_app.answering.engine import CapabilityEngine
    from rag_app.documents.ingest import Summary
    from rag_app.documents.metadata import Target
    from rag_app.retrieval.retriever import ChunkRetriever
    from rag_app.retrieval.store import ScopedStore

MAX_TOP_K = 1000

WrittenFilters = MetadataFilters | Sequence[str | MetadataFilters]
"""Filters as on a command line, or LlamaIndex', or both: then all of them hold."""


@asynccontextmanager
async def open(  # noqa: A001
    settings: Settings | None = None,
    *,
    embedder: "BaseEmbedding | None" = None,
    llm: "LLM | None" = None,
    retriever: "BaseRetriever | MakeRetriever | None" = None,
    postprocessors: "Sequence[BaseNodePostprocessor]" = (),
    synthesizer: "BaseSynthesizer | None" = None,
) -> AsyncIterator["Rag"]:
    """Open what the settings configure (by default the environment's); with no database, the private one under `.rag/`.

    LlamaIndex parts of your own take the place of those that settings choose (docs/library.md): `embedder` for all indexes;
    for answers `llm`, `retriever` (one, or a function of ours and the scope that makes one), `postprocessors` and
    `synthesizer`. A retriever of your own has to keep to the scope itself; answers mark what it finds as `foreign`.

    Raises Misconfigured for a part of another class, and where settings and data do not fit, with what to do; EmbeddingFailed where an embedder of your
    own does not say how long its vectors are.

    Example:

        async with rag_app.open() as rag:
            hits = await rag.search("Do you have wireless headphones?", index="store_catalogue", organization="aurora")
    """
    _check_parts(
        embedder=embedder, llm=llm, retriever=retriever, postprocessors=postprocessors, synthesizer=synthesizer
    )
    settings = settings or Settings()
    parts = Parts(
        embedder,
        None if embedder is None else await _embedding_dimension(embedder),
        llm,
        retriever,
        tuple(postprocessors),
        synthesizer,
    )
    database = ExitStack()
    # a private PostgreSQL takes seconds to start: not on the caller's event loop
    urls = await asyncio.to_thread(database.enter_context, database_urls(settings))
    try:
        async with open_application(settings, urls, parts=parts) as application:
            rag = Rag(application)
            try:
                yield rag
            finally:
                rag.close()
    finally:
        await asyncio.to_thread(database.close)


_CLASSES = {
    "embedder": "BaseEmbedding",
    "llm": "LLM",
    "retriever": "BaseRetriever",
    "postprocessors": "BaseNodePostprocessor",
    "synthesizer": "BaseSynthesizer",
}


def _check_parts(**parts: object) -> None:
    """Raises Misconfigured for a part that is not of its class of LlamaIndex, which is not imported for that."""
    for name, given in parts.items():
        for part in given if isinstance(given, Sequence) else (given,):
            of_class = _CLASSES[name] in {each.__name__ for each in type(part).__mro__}
            if not of_class and part is not None and not (name == "retriever" and callable(part)):
                raise Misconfigured(f"{name}: a LlamaIndex {_CLASSES[name]} is needed, not {type(part).__name__}")


class Rag:
    """Search and ask, as a member of one organization: its content and what is public.

    Everywhere: `organization`, `user` and `site` are names or ids; with a user, who must be a member, that user's private
    sources and those of their groups are seen too; with a site, nothing but that site's. `filters` are LlamaIndex'
    MetadataFilters, or written as on the command line ("lang=fr", "date>=2026-01-01"); docs/filters.md has them all.
    Raises NotFound for what there is not, InvalidInput for what is not accepted and for a user who is not a member.

    Example:

        async with rag_app.open() as rag:
            assert isinstance(rag, rag_app.Rag)
            eu = {"index": "store_catalogue", "organization": "aurora", "site": "eu"}
            for hit in await rag.search("How soon is a return refunded?", **eu, filters=["source_type=policy"], top_k=3):
                print(hit.relevance, hit.title)
    """

    def __init__(self, application: Application) -> None:
        self._application: Application | None = application

    @property
    def application(self) -> Application:
        """The parts it is made of. Raises RagError once the `rag_app.open()` that gave it has ended.

        Example:

            async with rag_app.open() as rag:
                assert "store_catalogue" in rag.application.indexes
        """
        closed = RagError("this Rag is closed: work with it inside of `async with rag_app.open() as rag:`")
        return require(self._application, closed)

    def close(self) -> None:
        """From here on every call raises RagError. `rag_app.open()` calls it at its end.

        Example:

            async with rag_app.open() as rag:
                rag.close()
        """
        self._application = None

    @checked_call
    async def search(
        self,
        question: str,
        *,
        index: str,
        organization: str,
        user: str | None = None,
        site: str | None = None,
        filters: WrittenFilters = (),
        top_k: int = 8,
        mode: str = "hybrid",
    ) -> tuple[Hit, ...]:
        """Hits, best first. `mode`: hybrid, dense or text.

        Example:

            async with rag_app.open() as rag:
                hits = await rag.search("wireless headphones", index="store_catalogue", organization="aurora", top_k=3)
                assert 0 < len(hits) <= 3
        """
        scope = await scope_of(self.application, organization, user, site)
        return await self.application.searcher.search(index, question_of(question, top_k, mode, filters), scope)

    @checked_call
    async def ask(
        self,
        question: str,
        *,
        index: str,
        organization: str,
        user: str | None = None,
        site: str | None = None,
        filters: WrittenFilters = (),
        top_k: int | None = None,
        mode: str = "hybrid",
        capability: str | None = None,
        earlier_questions: Sequence[str] = (),
    ) -> Answer:
        """An answer with verified citations, or a refusal (`answer.refused`).

        `capability` is one of those that answer from the index, by default its first. One of a conversation answers as
        it would a first message. `earlier_questions` are those before this one, oldest first: a follow-up is searched
        together with the last of them. Raises NotFound for a capability there is not, with the names there are.

        Example:

            async with rag_app.open() as rag:
                answer = await rag.ask(
                    "How soon is a return refunded?", index="store_catalogue", organization="aurora", site="eu"
                )
                assert not answer.refused
                print(answer.text, [citation.hit.title for citation in answer.citations])
        """
        chosen = capability_of(self.application, index, capability)
        asked = question_of(question, chosen.top_k if top_k is None else top_k, mode, filters)
        scope = await scope_of(self.application, organization, user, site)
        opening = await opening_of(self.application, chosen, asked)
        return await self.application.pipeline.answer(chosen.name, go_on(opening, earlier_questions), scope)

    @property
    def embedder(self) -> "BaseEmbedding":
        """The embedding model of the indexes, for `VectorStoreIndex`, an `IngestionPipeline` and your own retrievers.

        Example:

            async with rag_app.open() as rag:
                assert len(await rag.embedder.aget_query_embedding("When do you open?")) == rag.application.dimension
        """
        return self.application.embedder

    @checked_call
    async def store(
        self,
        *,
        index: str,
        organization: str,
        user: str | None = None,
        site: str | None = None,
        visibility: str | None = None,
        groups: Sequence[str] = (),
    ) -> "ScopedStore":
        """The index as a LlamaIndex vector store: what the organization's member sees is read, ordinary nodes are put in.

        Nodes become chunks of the organization's sources: of the document that they name (`ref_doc_id`), else of a source
        each. Their metadata are read as a document's are; with a `user` the sources are that user's where `visibility` is
        "user". Its calls are async. Raises Misconfigured where these settings do not fit the index.

        Example:

            from llama_index.core import VectorStoreIndex
            from llama_index.core.schema import TextNode

            async with rag_app.open() as rag:
                await rag.create_organization("meadow")
                store = await rag.store(index="store_catalogue", organization="meadow")
                shelf = VectorStoreIndex.from_vector_store(store, embed_model=rag.embedder)
                await shelf.ainsert_nodes([TextNode(text="Seeds can be returned for 30 days.")])
                (found,) = await shelf.as_retriever().aretrieve("Can I return seeds?")
                assert found.node.metadata["source_type"] == "page"
        """
        spec = self.application.index(index)
        scope = await scope_of(self.application, organization, user, site)
        target = await target_of(self.application, organization, site, user, visibility, {}, groups)
        writer = await self.application.node_writer(spec, target)
        generation = await self.application.backends.active(spec)
        return self.application.backends.scoped(spec, generation, scope).model_copy(update={"writer": writer})

    @checked_call
    async def engine(
        self,
        *,
        organization: str,
        index: str | None = None,
        capability: str | None = None,
        user: str | None = None,
        site: str | None = None,
        filters: WrittenFilters = (),
        top_k: int | None = None,
        mode: str = "hybrid",
    ) -> "CapabilityEngine":
        """The LlamaIndex query engine of a capability, or of the one that answers from `index`.

        Raises NotFound for a capability there is not, InvalidInput where neither is named.

        Example:

            async with rag_app.open() as rag:
                engine = await rag.engine(index="store_catalogue", organization="aurora", site="eu")
                response = await engine.aquery("How soon is a return refunded?")
                print(response, len(response.source_nodes))
        """
        if index is None and capability is None:
            raise InvalidInput("index", None, "name an index or a capability")
        chosen = capability_of(self.application, index or capability_named(capability or "").index, capability)
        scope = await scope_of(self.application, organization, user, site)
        asked = question_of("?", chosen.top_k if top_k is None else top_k, mode, filters)
        opening = await opening_of(self.application, chosen, asked)
        return self.application.pipeline.engine(chosen.name, opening, scope)

    @checked_call
    async def retriever(
        self,
        *,
        index: str,
        organization: str,
        user: str | None = None,
        site: str | None = None,
        filters: WrittenFilters = (),
        top_k: int = 8,
        mode: str = "hybrid",
    ) -> "ChunkRetriever":
        """The LlamaIndex retriever.

        Example:

            async with rag_app.open() as rag:
                retriever = await rag.retriever(index="store_catalogue", organization="aurora", top_k=3)
                nodes = await retriever.aretrieve("How soon is a return refunded?")
                assert 0 < len(nodes) <= 3
        """
        scope = await scope_of(self.application, organization, user, site)
        return self.application.searcher.retriever(index, question_of("?", top_k, mode, filters), scope)

    @checked_call
    async def ingest(
        self,
        *paths: Path | str,
        index: str,
        organization: str,
        base: Path | str = ".",
        site: str | None = None,
        owner: str | None = None,
        visibility: str | None = None,
        groups: Sequence[str] = (),
        **metadata: object,
    ) -> "Summary":
        """Read files and folders into an index; what could not be read is in the summary, with reasons.

        Example:

            from pathlib import Path

            Path("returns.md").write_text("What was bought can be returned for 30 days.", "utf-8")
            async with rag_app.open() as rag:
                await rag.create_organization("meadow")
                where = {"index": "store_catalogue", "organization": "meadow"}
                summary = await rag.ingest("returns.md", **where, source_type="policy")
                assert summary.added == 1 and not summary.failed
        """
        spec = self.application.index(index)
        target = await target_of(self.application, organization, site, owner, visibility, metadata, groups)
        ingestor = await self.application.ingestor(spec, target)
        return await ingestor.ingest([Path(path) for path in paths], base=Path(base))

    @checked_call
    async def create_organization(self, slug: str, name: str | None = None) -> str:
        """Make an organization; its id. Raises InvalidInput where the slug is taken.

        Example:

            async with rag_app.open() as rag:
                print(await rag.create_organization("meadow", "Meadow, the garden shop"))
        """
        return str((await self.application.people.create_organization(slug, name or slug)).id)

    @checked_call
    async def create_site(self, organization: str, name: str) -> str:
        """Make a site of an organization; its id. Raises NotFound, and InvalidInput where the name is taken.

        Example:

            async with rag_app.open() as rag:
                await rag.create_organization("meadow")
                print(await rag.create_site("meadow", "north"))
        """
        owner = await self.application.people.organization(organization)
        return str((await self.application.people.create_site(owner.id, name)).id)


async def _embedding_dimension(embedder: "BaseEmbedding") -> int:
    """How long its vectors are: as it says, or as one is."""
    from rag_app.retrieval.embedding import embed_query

    said: int | None = getattr(embedder, "dimension", None)
    return said or len(await embed_query(embedder, "dimension"))


async def scope_of(application: Application, org: str, user: str | None = None, site: str | None = None) -> Scope:
    """What an organization's member sees: its content and what is public; a user's private sources if named.

    Raises NotFound, and InvalidInput for a user who is not a member.
    """
    organization = await application.people.organization(org)
    member = None if user is None else await application.people.member(organization, user)
    return Scope(
        frozenset({organization.id, PUBLIC_ORGANIZATION}),
        None if member is None else member.id,
        None if site is None else (await application.people.site(organization.id, site)).id,
        frozenset() if member is None else await application.groups.audiences(organization, member),
    )


def question_of(text: str, top_k: int, mode: str, filters: WrittenFilters, text_name: str = "question") -> Question:
    """Raises InvalidInput for what is not a question; `text_name` is what the caller calls the text."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(text_name, text, "is empty")
    if not 1 <= top_k <= MAX_TOP_K:
        raise InvalidInput("top_k", top_k, f"must be a whole number from 1 to {MAX_TOP_K}")
    if mode not in list(Mode):
        raise InvalidInput("mode", mode, f"accepted: {', '.join(Mode)}")
    listed = (filters,) if isinstance(filters, MetadataFilters) else filters
    given = tuple(each if isinstance(each, MetadataFilters) else parse_condition(each) for each in listed)
    return Question(checked_text(text_name, text), given, top_k, Mode(mode))


def capability_of(application: Application, index: str, name: str | None) -> Capability:
    """The named capability of an index, or the index's own.

    Raises NotFound with those there are, and InvalidInput for one that answers from another index.
    """
    spec = application.index(index)
    if name is None:
        return capability_for(spec.name)
    capability = capability_named(name)
    if application.index(capability.index) is not spec:
        raise InvalidInput("capability", name, f"{name} answers from {capability.index}, not from {spec.name}")
    return capability


async def opening_of(application: Application, capability: Capability, question: Question) -> Question:
    """The question as the first message of a conversation, where the capability is one of those; else as it is."""
    if capability.group is None:
        return question
    from rag_app.answering.prompts import GLOBAL
    from rag_app.surfaces.lexybrain.messages import instruct
    from rag_app.surfaces.lexybrain.types import RagRequest

    drawn = [await application.prompts.draw(kind) for kind in (GLOBAL, capability.name)]
    opening = instruct(capability, RagRequest(question.text), drawn, datetime.now(UTC))
    return replace(opening, filters=(*question.filters, *opening.filters), top_k=question.top_k, mode=question.mode)


async def target_of(
    application: Application,
    org: str,
    site: str | None,
    owner: str | None,
    visibility: str | None,
    metadata: Mapping[str, object],
    groups: Sequence[str] = (),
) -> "Target":
    """Where documents go, by names; with `groups` the visibility is "group". Raises NotFound and InvalidInput."""
    from rag_app.documents.metadata import Target

    organization = await application.people.organization(org)
    owner_id = None if owner is None else (await application.people.member(organization, owner, "owner")).id
    public = organization.id == PUBLIC_ORGANIZATION
    accepted = [Visibility.GLOBAL] if public else [Visibility.TEAM, Visibility.USER, Visibility.GROUP]
    chosen = visibility or str(Visibility.GROUP if groups else accepted[0])
    if chosen not in accepted:
        raise InvalidInput(
            "visibility",
            chosen,
            f"accepted for {org}: {', '.join(accepted)} "
            "(sources of the organization public must be global, and other sources cannot be global)",
        )
    if chosen == Visibility.USER and owner_id is None:
        raise InvalidInput("visibility", chosen, "needs an owner, the user who may see the source")
    if groups and chosen != Visibility.GROUP:
        raise InvalidInput("groups", list(groups), f"can only be used with the visibility group, not with {chosen}")
    return Target(
        org_id=organization.id,
        site_id=None if site is None else (await application.people.site(organization.id, site)).id,
        owner_id=owner_id,
        visibility=Visibility(chosen),
        audience_id=await application.groups.audience(organization, groups) if chosen == Visibility.GROUP else None,
        metadata=metadata,
    )
