"""What rag_app asks of a vector store: a LlamaIndex store seen through one Scope.

An adapter in `stores/` implements six methods (and `best`, where one question to it can do); modes, fusion and LlamaIndex's interface are here, once.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
from llama_index.core.bridge.pydantic import ConfigDict, Field
from llama_index.core.schema import (
    DEFAULT_TEXT_NODE_TMPL,
    BaseNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from msgspec import Struct
from msgspec.structs import force_setattr
from pydantic import SkipValidation

from rag_app.domain import FieldType, Filters, InvalidInput, JsonObject, Misconfigured, Mode, Scope, Source, require
from rag_app.retrieval.confidence import Words
from rag_app.retrieval.filters import check_filters, checked_text
from rag_app.retrieval.fusion import Candidate, rank
from rag_app.retrieval.index import RESERVED_FIELDS, IndexSpec
from rag_app.retrieval.records import NamedValue, RecordQuery, RecordResult

_LARGEST = 65_504  # what half precision can say, which PostgreSQL's graph is made of; the same on every store
OTHER_LANGUAGE = "xx"
"""The analyzer of sources in a language that the index does not declare: words as they are."""

MODES = {
    VectorStoreQueryMode.DEFAULT: Mode.DENSE,
    VectorStoreQueryMode.HYBRID: Mode.HYBRID,
    VectorStoreQueryMode.TEXT_SEARCH: Mode.TEXT,
    VectorStoreQueryMode.SPARSE: Mode.TEXT,
}


class Search(Struct, frozen=True):
    """What a store is asked: `top_k` chunks, the best of the `depth` that are nearest and the `depth` with the best words.

    >>> Search([1.0], "door", (), Mode.TEXT, 5).depth
    5
    """

    vector: Sequence[float]
    text: str
    filters: Filters
    mode: Mode
    top_k: int
    depth: int = 0
    """At least `top_k`."""

    def __post_init__(self) -> None:
        force_setattr(self, "depth", max(self.depth, self.top_k))


def _no_backup_of(generation: str) -> Misconfigured:
    return Misconfigured(f"{generation} is in a vector store that cannot be backed up")


class Backend(ABC):
    """One vector store that is open: its generations, and each index seen through a scope."""

    @abstractmethod
    def scoped(self, spec: IndexSpec, generation: str, scope: Scope) -> "ScopedStore":
        """The index `spec` in the generation of that name, as `scope` sees it."""

    @abstractmethod
    async def create(self, owner_url: str, spec: IndexSpec, generation: str, dimension: int) -> None:
        """Make what the generation is stored in, empty; what was there of it before goes.

        `owner_url` is the PostgreSQL role that owns the schema.
        """

    @abstractmethod
    async def drop(self, owner_url: str, generation: str) -> None:
        """Take away what the generation is stored in, if it is there."""

    async def begin_load(self, owner_url: str, generation: str) -> None:
        """Take away what is cheaper to build after a bulk load; for a generation that nobody searches yet."""
        return

    async def is_loaded(self, generation: str) -> bool:
        """Whether nothing that `begin_load` takes away is missing."""
        return True

    async def finish_load(self, owner_url: str, generation: str) -> None:
        """Build what is missing."""
        return

    async def create_outside(self, spec: IndexSpec, generation: str, dimension: int) -> None:
        """Of what `create` makes that which is not in PostgreSQL. This and the next three are for backups, of a store
        that does not go with the database."""
        raise _no_backup_of(generation)

    async def holds(self, generation: str) -> bool:
        """Whether there is something of that name, as far as the store can tell."""
        return True

    async def limits(self, generation: str) -> str:
        """For the operator: what the generation's store is and cannot do; empty where there is nothing to say."""
        return ""

    async def dump(self, generation: str) -> AsyncIterator[bytes]:
        """Every point of all organizations, as a line of JSON with `id`, `payload` and what else `load` needs."""
        raise _no_backup_of(generation)
        yield b""

    async def load(self, generation: str, lines: Sequence[bytes]) -> None:
        """Put points back as `dump` told them."""
        raise _no_backup_of(generation)

    def connections(self) -> tuple[int, int]:
        """Of a pool to PostgreSQL of its own: how many are in use, how many are open."""
        return 0, 0

    @abstractmethod
    async def close(self) -> None:
        """Close what it has opened."""


class ScopedStore(BasePydanticVectorStore):
    """One index in one vector store, as one scope sees it; there is no unscoped one.

    Works wherever LlamaIndex takes a vector store, with async calls:
    `VectorStoreIndex.from_vector_store(store, embed_model=...).as_retriever(filters=...).aretrieve(...)`.
    Similarities are cosines in every mode; hybrid and text results come in the order of their mode.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True)

    stores_text: bool = True
    spec: SkipValidation[IndexSpec]
    generation: str
    scope: SkipValidation[Scope]
    backend: Any = Field(exclude=True, repr=False)
    """That in `stores/` which made it."""
    writer: Any = Field(default=None, exclude=True, repr=False)
    """What makes chunks of ordinary nodes (documents/chunking.py), where this store was opened to write."""

    @property
    def client(self) -> Any:
        return self.backend

    @abstractmethod
    async def candidates(self, asked: Search) -> list[Candidate]:
        """The `depth` best of each leg that the mode uses, each with its true score on both (BM25 0 in DENSE)."""

    @abstractmethod
    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        """The chunks of these ids that the scope may see."""

    async def respell(self, among: Sequence[str]) -> dict[str, str]:
        """For each of these lower-case words that no visible chunk has, its likeliest spelling in visible chunks.

        A word without one is left out (see `spelling`); empty where the store does not know its words.
        """
        return {}

    async def word_use(self, words: Sequence[str], among: Sequence[UUID]) -> Words:
        """How rare these words (lower case, each once) are, and which chunks of `among` have them; empty where the
        store does not know."""
        return Words()

    async def find_records(self, query: RecordQuery) -> RecordResult:
        """What the scope may see of what a query asks of the records. Raises UnknownField and InvalidInput.

        A store that does not know its fields raises Misconfigured.
        """
        raise Misconfigured(f"{self.generation} is in a vector store without fields of records")

    async def named_values(self, words: Sequence[str]) -> list[NamedValue]:
        """Values of keyword and tags fields, among what the scope may see, that have one of these words (lower case).

        At most 500; empty where the store does not know its fields.
        """
        return []

    @abstractmethod
    async def count(self) -> int:
        """How many chunks the scope may see."""

    @abstractmethod
    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        """Put chunks (with embeddings) in, then take all others of the sources `replacing` out.

        Raises InvalidInput where a chunk belongs to an organization outside the scope.
        """

    @abstractmethod
    async def move(self, sources: Sequence[Source]) -> None:
        """Let the chunks of these sources say the file, row and sheet that they are in now; for the operator."""

    async def forget(self, source_ids: Sequence[UUID]) -> None:
        """Take out what PostgreSQL has of these sources, where the store itself cannot be reached; as `write`."""

    @abstractmethod
    async def export(self, source_ids: Sequence[UUID]) -> list[TextNode]:
        """Every chunk of these sources in the scope's organizations, with its embedding; for the operator, as `write` is.

        Private sources are among them, whoever the scope's user is.
        """

    @abstractmethod
    async def sources(self) -> set[UUID]:
        """The sources of the scope's organizations that have chunks here, private ones too; for the operator."""

    @property
    def languages(self) -> list[str]:
        return [*self.spec.languages, OTHER_LANGUAGE]

    def language(self, node: BaseNode) -> str:
        """The analyzer a chunk is indexed with."""
        lang = str(node.metadata["lang"])
        return lang if lang in self.spec.languages else OTHER_LANGUAGE

    def check(self, nodes: Sequence[BaseNode]) -> None:
        """Raises InvalidInput for a chunk of another organization, or one that has no direction to be found in."""
        organizations = {str(org_id) for org_id in self.scope.organizations}
        for node in nodes:
            if "org_id" not in node.metadata:
                raise InvalidInput("org_id", None, "an ordinary node goes into a store that `rag.store(...)` gives")
            if node.metadata["org_id"] not in organizations:
                raise InvalidInput("org_id", node.metadata["org_id"], "is not an organization of this scope")
            if node.embedding is None:
                raise InvalidInput("embedding", node.node_id, "a chunk needs its embedding before it can be stored")
            if not _has_direction(node.embedding):
                raise InvalidInput("embedding", node.node_id, f"must be numbers up to {_LARGEST}, not all of them zero")

    async def search(self, asked: Search) -> list[NodeWithScore]:
        """The best chunks, best first, with their cosines. Raises UnknownField and InvalidInput for the filters."""
        text, filters = checked_text("query", asked.text), check_filters(asked.filters, self.spec)
        depth = max(self.spec.fusion.depth, 2 * asked.top_k) if asked.mode is Mode.HYBRID else 0
        checked = Search(asked.vector, text, filters, asked.mode, asked.top_k, depth)
        return [NodeWithScore(node=node, score=candidate.cosine) for candidate, node in await self.best(checked)]

    async def best(self, asked: Search) -> list[tuple[Candidate, TextNode]]:
        """Of the candidates the `top_k` that rank first."""
        ranking = rank(await self.candidates(asked), asked.mode, self.spec.fusion)[: asked.top_k]
        nodes = await self.fetch([candidate.id for candidate in ranking])
        return [(candidate, nodes[candidate.id]) for candidate in ranking if candidate.id in nodes]

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Raises InvalidInput for a mode, filter or option that is not supported; none is ignored."""
        if query.mode not in MODES:
            raise InvalidInput("mode", query.mode, f"accepted: {', '.join(MODES)}")
        if kwargs or query.node_ids or query.doc_ids or query.alpha is not None or query.query_embedding is None:
            raise InvalidInput("query", None, "takes an embedding, a text, filters and a mode, and nothing else")
        if query.similarity_top_k < 1:
            raise InvalidInput("similarity_top_k", query.similarity_top_k, "must be 1 or more")
        found = await self.search(
            Search(
                query.query_embedding,
                query.query_str or "",
                (query.filters,) if query.filters else (),
                MODES[query.mode],
                query.similarity_top_k,
            )
        )
        return VectorStoreQueryResult(
            nodes=[each.node for each in found],
            similarities=[each.get_score() for each in found],
            ids=[each.node.node_id for each in found],
        )

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Put nodes in, or in the place of those of the same ids; their ids as they are stored."""
        if self.writer is not None:
            stored: list[str] = await self.writer.add(nodes)
            return stored
        await self.write(nodes)
        return [node.node_id for node in nodes]

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Take a document out: by the id that its nodes name, or its source's."""
        if self.writer is not None:
            await self.writer.delete(ref_doc_id)
            return
        await self.write([], replacing=[UUID(ref_doc_id)])

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        node_ids = require(node_ids, InvalidInput("node_ids", None, "name the nodes to get"))
        found = await self.fetch(
            [UUID(each) for each in node_ids], check_filters((filters,) if filters else (), self.spec)
        )
        return [found[key] for each in node_ids if (key := UUID(each)) in found]

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        raise NotImplementedError("use `await store.aquery(...)`: rag_app's stores are async")

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        raise NotImplementedError("use `await store.async_add(...)`: rag_app's stores are async")

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        raise NotImplementedError("use `await store.adelete(...)`: rag_app's stores are async")


def _has_direction(embedding: Sequence[float]) -> bool:
    """Whether the numbers are a vector that half precision can hold, other than zero.

    >>> [_has_direction(each) for each in ([0.0, -1.0], [], [0.0], [1.0, float("nan")], [-1e6])]
    [True, False, False, False, False]
    """
    numbers = np.frombuffer(array("f", embedding), np.float32)
    if 0 < numbers.dot(numbers) <= _LARGEST:  # as nearly all are, and quicker than what follows
        return True
    return bool(0 < np.abs(numbers).max(initial=0) <= _LARGEST)  # not so for a NaN


_UNSHOWN = sorted(RESERVED_FIELDS - {"title", "section", "page", "source_type"})


def write_date(seconds: float) -> str:
    """A time of a chunk (Unix, UTC), for a reader.

    >>> write_date(1767225600.0), write_date(1767258000.0)
    ('2026-01-01', '2026-01-01 09:00')
    """
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds):%Y-%m-%d %H:%M}".removesuffix(" 00:00")


def chunk_node(id_: object, text: str, metadata: JsonObject, embedding: Sequence[float] | None = None) -> TextNode:
    """A chunk as LlamaIndex has it, of the source that its metadata name.

    A model that LlamaIndex shows it to reads its title, section, page, type, declared fields, and its date as a date.
    """
    fields = {
        "id_": str(id_),
        "text": text,
        "metadata": metadata,
        "embedding": embedding,
        "excluded_llm_metadata_keys": _UNSHOWN,
        "excluded_embed_metadata_keys": _UNSHOWN,
        "text_template": _template(metadata, ["date"]),
        "relationships": {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=metadata["source_id"])},
    }
    node = TextNode.__new__(TextNode)  # pydantic's checks without the two constructors around them: a third of the time
    TextNode.__pydantic_validator__.validate_python(fields, self_instance=node)
    return node


def show_times(found: list[NodeWithScore], spec: IndexSpec) -> list[NodeWithScore]:
    """The same nodes; a model that LlamaIndex shows them to reads the index's own times as dates, as it does `date`."""
    times = [name for name, kind in spec.fields.items() if kind is FieldType.TIME]
    for node in (each.node for each in found if times and isinstance(each.node, TextNode)):
        node.excluded_llm_metadata_keys = node.excluded_embed_metadata_keys = sorted({*_UNSHOWN, *times})
        node.text_template = _template(node.metadata, ["date", *times])
    return found


def _template(metadata: JsonObject, times: Sequence[str]) -> str:
    dates = [f"{name}: {write_date(metadata[name])}\n" for name in times if metadata.get(name) is not None]
    return "".join([*dates, DEFAULT_TEXT_NODE_TMPL])


def heading(node: BaseNode) -> str:
    """Title and section, which are searched and embedded along with the text; a section often begins with the title."""
    title, section = str(node.metadata.get("title") or ""), str(node.metadata.get("section") or "")
    return section if section.startswith(title) else f"{title}\n{section}".strip()


def searchable_text(node: BaseNode) -> str:
    """What is embedded, and analyzed for BM25."""
    return f"{heading(node)}\n\n{node.get_content(MetadataMode.NONE)}".strip()
