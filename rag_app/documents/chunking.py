"""Passages to chunks, cut between sentences, never across a page or a section; and nodes of others to chunks, as they are."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, MetadataMode, TextNode
from msgspec import structs, to_builtins

from rag_app.documents.documents import Document, Passage
from rag_app.documents.generations import Generation
from rag_app.documents.ledger import NO_BUILD, SourceLedger
from rag_app.documents.metadata import OWN_KEYS, Target, add_version, to_source
from rag_app.domain import InvalidInput, Source, chunk_id, source_id, uuid_in
from rag_app.retrieval.index import RESERVED_FIELDS, Chunking, IndexSpec
from rag_app.retrieval.store import ScopedStore, chunk_node, heading
from rag_app.retrieval.text import sentence_pieces, tokens

_TITLE = 80  # characters of a node's text that are its title, where nothing says one
_HEADING_SHARE = 3  # of a chunk's tokens, at most one in three goes to title and section


class Chunker:
    """LlamaIndex's SentenceSplitter, counting with the embedding model's tokens, title and section included.

    >>> from uuid import UUID
    >>> notes = Source(UUID(int=1), "notes", "a.md", "Opening hours", "doc", "1")
    >>> [node.get_content() for node in Chunker(Chunking()).split(notes, [Passage("We open at nine.")])]
    ['We open at nine.']
    """

    def __init__(self, chunking: Chunking) -> None:
        self._size = chunking.size
        self._splitter = SentenceSplitter(
            chunk_size=chunking.size,
            chunk_overlap=min(chunking.overlap, chunking.size // 4),
            tokenizer=tokens,
            chunking_tokenizer_fn=sentence_pieces,
        )

    def split(self, source: Source, passages: Sequence[Passage]) -> list[TextNode]:
        """Nodes in document order, with the metadata that stores and citations read; no embeddings yet."""
        return [
            chunk_node(chunk_id(source.id, source.version, position), text, chunk_metadata(source, passage, position))
            for position, (text, passage) in enumerate(self._pieces(source, passages))
        ]

    def _pieces(self, source: Source, passages: Sequence[Passage]) -> Iterator[tuple[str, Passage]]:
        for passage in passages:
            above = heading(TextNode(metadata={"title": source.title, "section": passage.section}))
            while len(tokens(above)) > self._size // _HEADING_SHARE:
                above = above[: len(above) * 3 // 4]
            for text in self._splitter.split_text_metadata_aware(passage.text, above):
                if text.strip():
                    yield text.strip(), passage


def chunk_metadata(source: Source, passage: Passage, position: int) -> dict[str, object]:
    """Only what has a value: a missing key is what "the chunk does not have the field" means to a filter."""
    everything = to_builtins(
        {
            **source.metadata,
            "org_id": source.org_id,
            "source_id": source.id,
            "title": source.title,
            "source_type": source.source_type,
            "lang": source.lang,
            "uri": source.uri,
            "date": source.date,
            "section": passage.section,
            "page": passage.page,
            "position": position,
            "site_id": source.site_id,
            "owner_id": source.owner_id,
            "private_to": source.private_to,
            "version": source.version,
            "external_id": source.external_id,
            "file_name": source.file_name,
            "untyped": source.untyped or None,
            "row": source.row,
            "sheet": source.sheet,
        }
    )
    return {key: value for key, value in everything.items() if value is not None}


class NodeWriter:
    """Writes ordinary nodes for one `target`, in the ledger as in a store that is scoped to its organization.

    A node's source is the document that it names (`ref_doc_id`), else itself. What a source needs is read from the node's
    metadata as from a document's: title, date, lang, uri, source_type, and the fields that the index declares; others are
    kept without a type. Missing values get the index's default.

    Nodes are added to their sources and replace nodes with the same id. Other writers of the same organization and index
    wait meanwhile.
    """

    def __init__(
        self,
        spec: IndexSpec,
        generation: Generation,
        store: ScopedStore,
        ledger: SourceLedger,
        target: Target,
        delete_sources: Callable[[Collection[UUID]], Awaitable[None]],
    ) -> None:
        self._spec, self._generation, self._store = spec, generation, store
        self._ledger, self._target, self._delete = ledger, target, delete_sources

    async def add(self, nodes: Sequence[BaseNode]) -> list[str]:
        """Write the nodes and return their chunk ids, in order: a node's own id if it is a UUID.

        Raises InvalidInput for a node without a text or an embedding, one whose embedding has another length than the
        index, one that names another organization, and a value that is not of its field's type.
        """
        documents: dict[str, list[BaseNode]] = {}
        for node in nodes:
            self._check(node)
            documents.setdefault(node.ref_doc_id or node.node_id, []).append(node)
        async with self._ledger.lock_for_writing(self._target.org_id, self._spec.name):
            await self._write(documents)
        return [str(self._chunk_id(node)) for node in nodes]

    async def holds(self, nodes: Sequence[BaseNode]) -> bool:
        """Whether the source that consists of these nodes is present in this version. Raises InvalidInput like `add`."""
        source = self._source(nodes[0].ref_doc_id or nodes[0].node_id, nodes[0])
        source = add_version(source, [structs.asdict(_passage(node)) for node in nodes])
        builds = await self._ledger.builds(self._target.org_id, self._generation.id, [source.id])
        return builds.get(source.id, NO_BUILD).holds(source)

    async def delete(self, ref_doc_id: str) -> None:
        """Delete the document's source. An unknown one is skipped."""
        named = source_id(self._target.org_id, self._spec.name, ref_doc_id), uuid_in(ref_doc_id)
        await self._delete({each for each in named if each is not None})

    def _check(self, node: BaseNode) -> None:
        org, size = node.metadata.get("org_id"), len(node.embedding or ())
        if org is not None and uuid_in(str(org)) != self._target.org_id:
            raise InvalidInput("org_id", org, "is not the organization of this store")
        if not node.get_content(MetadataMode.NONE).strip():
            raise InvalidInput("text", node.node_id, "a node without a text cannot be found")
        if not size:
            raise InvalidInput("embedding", node.node_id, "a node needs its embedding: use embed_model=rag.embedder")
        if size != self._generation.dimension:
            problem = f"has {size} dimensions, {self._spec.name} has {self._generation.dimension}: use embed_model=rag.embedder"
            raise InvalidInput("embedding", node.node_id, problem)

    async def _write(self, documents: Mapping[str, Sequence[BaseNode]]) -> None:
        org, generation = self._target.org_id, self._generation.id
        sources = {name: self._source(name, nodes[0]) for name, nodes in documents.items()}
        ids = [self._chunk_id(node) for nodes in documents.values() for node in nodes]
        replaced = await self._store.fetch(ids)
        builds = await self._ledger.builds(org, generation, [each.id for each in sources.values()])
        kept = await self._ledger.read_passages(org, [*builds])
        work: list[tuple[Source, list[Any], list[TextNode], int]] = []
        for name, nodes in documents.items():
            source = sources[name]
            old = [replaced[id_].get_content() for id_ in map(self._chunk_id, nodes) if id_ in replaced]
            gone = {
                *old,
                *(_passage(node).text for node in nodes),
            }  # these, too: an attempt that failed may have left them
            before = [each for each in kept.get(source.id, ()) if each["text"] not in gone]
            passages = [*before, *(structs.asdict(_passage(node)) for node in nodes)]
            source = add_version(source, passages)
            chunks = [self._chunk(node, source, len(before) + place) for place, node in enumerate(nodes)]
            count = builds.get(source.id, NO_BUILD).chunks - len(old) + len(chunks)
            work.append((source, passages, chunks, count))
        await self._ledger.begin([(source, passages) for source, passages, *_ in work], generation)
        await self._store.write([chunk for *_, chunks, _ in work for chunk in chunks])
        await self._ledger.finish([(source, count) for source, *_, count in work], generation)

    def _source(self, name: str, node: BaseNode) -> Source:
        said = {key: value for key, value in node.metadata.items() if key in OWN_KEYS or key not in RESERVED_FIELDS}
        file = str(node.metadata.get("file_name") or node.metadata.get("file_path") or "")
        text = " ".join(node.get_content(MetadataMode.NONE).split())
        title = text if len(text) <= _TITLE else f"{text[: _TITLE - 1].rsplit(maxsplit=1)[0]}…"
        document = Document("", (_passage(node),), file or title, said, external_id=name)
        return to_source(document, file, "", self._spec, self._target)

    def _chunk(self, node: BaseNode, source: Source, position: int) -> TextNode:
        own = self._source(source.external_id, node)
        meta = chunk_metadata(own, _passage(node), position) | {"version": source.version}
        return chunk_node(self._chunk_id(node), _passage(node).text, meta, node.embedding)

    def _chunk_id(self, node: BaseNode) -> UUID:
        """A chunk id for a node whose id is not a UUID: stable, and different in each organization and index."""
        document = source_id(self._target.org_id, self._spec.name, node.ref_doc_id or node.node_id)
        return uuid_in(node.node_id) or uuid5(document, node.node_id)


def _passage(node: BaseNode) -> Passage:
    section, page = (
        node.metadata.get("section"),
        str(node.metadata.get("page") or node.metadata.get("page_label") or ""),
    )
    text = node.get_content(MetadataMode.NONE).strip()
    return Passage(text, str(section) if section else None, int(page) if page.isdecimal() else None)
