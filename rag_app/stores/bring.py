"""Imports nodes that other LlamaIndex applications have stored, with their vectors if the model is the same.

Readers block, so they are iterated in a thread. They return the nodes of one source together.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from msgspec import Struct

from rag_app.documents.chunking import NodeWriter
from rag_app.domain import InvalidInput, StoreFailed
from rag_app.retrieval.embedding import embed_texts
from rag_app.retrieval.store import searchable_text

_AT_ONCE = 500  # nodes that are read, embedded and written together
_SAMPLE_SIZE = 8  # nodes whose vectors are made again, to see whether the model is the same
_TABLE = re.compile(r"([A-Za-z_]\w*\.)?[A-Za-z_]\w*")
_SAME = 0.99  # the cosine of a stored vector and one made again above which both are of one model

Nodes = Iterator[BaseNode]
SourceService = Sequence[Sequence[BaseNode]]


class ImportCounts(Struct):
    """The counts of an import; `failed` names the sources that could not be taken, with reasons."""

    nodes: int = 0
    sources: int = 0
    unchanged: int = 0
    vectors: int = 0
    embedded: int = 0
    without_text: int = 0
    of_no_source: int = 0
    other_kinds: int = 0
    failed: list[tuple[str, str]] = []

    def summary(self) -> str:
        """For people: a line for each count that is not zero."""
        lines = {
            "nodes were read": self.nodes,
            "sources were written": self.sources,
            "sources stood there already": self.unchanged,
            "vectors were taken over": self.vectors,
            "texts were embedded": self.embedded,
            "nodes have no text and were left out": self.without_text,
            "nodes name no source and are sources of their own": self.of_no_source,
            "nodes are of another kind than text: their text and metadata were taken": self.other_kinds,
            "sources could not be taken:": len(self.failed),
        }
        told = [f"{count} {what}" for what, count in lines.items() if count]
        return "\n".join([*told, *(f"  {source}: {why}" for source, why in self.failed)])


class Bringing:
    """Writes the nodes of a store through `writer`, source by source; sources already present cost nothing.

    Ids derive from `within`, a UUID of organization and index, and the node's own id: the same in each run, different in
    each organization.
    """

    def __init__(self, writer: NodeWriter, embedder: BaseEmbedding, within: UUID) -> None:
        self._writer, self._embedder, self._within = writer, embedder, within
        self.brought = ImportCounts()
        self.same_model = False

    async def run(self, read: Callable[[], Nodes], progress: Callable[[ImportCounts], None], *, dry_run: bool) -> None:
        """Raises StoreFailed if the store cannot be read."""
        sample = await asyncio.to_thread(lambda: [*islice(read(), _SAMPLE_SIZE)])
        self.same_model = await asyncio.to_thread(is_same_model, sample, self._embedder.get_text_embedding_batch)
        batches = _batches(groupby(self._readable(read()), key=_source))
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            await self._bring(batch, dry_run)
            progress(self.brought)

    async def _bring(self, batch: SourceService, dry_run: bool) -> None:
        todo = []
        for nodes in batch:
            try:
                if await self._writer.holds(nodes):
                    self.brought.unchanged += 1
                else:
                    todo.append(nodes)
            except InvalidInput as error:
                self.brought.failed.append((_source(nodes[0]), str(error)))
        if dry_run or not todo:
            self.brought.sources += len(todo)
            return
        await self._embed([node for nodes in todo for node in nodes])
        for nodes in todo:
            try:
                await self._writer.add(nodes)
                self.brought.sources += 1
            except InvalidInput as error:
                self.brought.failed.append((_source(nodes[0]), str(error)))

    async def _embed(self, nodes: Sequence[BaseNode]) -> None:
        lacking = [node for node in nodes if not (self.same_model and node.embedding is not None)]
        vectors = await embed_texts(self._embedder, [*map(searchable_text, lacking)]) if lacking else []
        for node, vector in zip(lacking, vectors, strict=True):
            node.embedding = vector
        self.brought.embedded += len(lacking)
        self.brought.vectors += len(nodes) - len(lacking)

    def _readable(self, nodes: Nodes) -> Nodes:
        for node in nodes:
            self.brought.nodes += 1
            self.brought.other_kinds += type(node) is not TextNode and not _is_document(node)
            self.brought.of_no_source += node.ref_doc_id is None
            if node.get_content(MetadataMode.NONE).strip():
                node.metadata.pop("org_id", None)
                source = _source(node)
                node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source)
                node.id_ = str(uuid5(self._within, f"{source}\n{node.node_id}"))
                yield node
            else:
                self.brought.without_text += 1


def _batches(groups: Iterator[tuple[str, Iterator[BaseNode]]]) -> Iterator[SourceService]:
    batch: list[list[BaseNode]] = []
    for _, group in groups:
        batch.append([*group])
        if sum(map(len, batch)) >= _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _is_document(node: BaseNode) -> bool:
    return type(node).__name__ == "Document"


def _source(node: BaseNode) -> str:
    return node.ref_doc_id or node.node_id


def is_same_model(nodes: Iterable[BaseNode], embed: Callable[[list[str]], list[list[float]]]) -> bool:
    """Whether the nodes' vectors are of `embed`'s model: some texts are embedded again and compared."""
    some = [node for node in nodes if node.embedding is not None and node.get_content(MetadataMode.EMBED).strip()]
    if not some:
        return False
    made = np.asarray(embed([node.get_content(MetadataMode.EMBED) for node in some]), dtype=np.float64)
    stored = [node.get_embedding() for node in some]
    if {len(each) for each in stored} != {made.shape[1]}:
        return False
    given = np.asarray(stored, dtype=np.float64)
    cosines = (made * given).sum(axis=1) / (np.linalg.norm(made, axis=1) * np.linalg.norm(given, axis=1))
    return bool((cosines > _SAME).all())


def read_folder(folder: Path) -> Nodes:
    """Reads a persisted LlamaIndex storage context: `docstore.json`, and its simple vector store if there is one."""
    from llama_index.core.storage.docstore import SimpleDocumentStore
    from llama_index.core.vector_stores.simple import SimpleVectorStore

    docstore = folder / "docstore.json"
    if not docstore.is_file():
        raise InvalidInput("--folder", str(folder), f"{folder} has no docstore.json")
    found = [*SimpleDocumentStore.from_persist_path(str(docstore)).docs.values()]
    vectors: dict[str, list[float]] = {}
    for file in folder.glob("*vector_store.json"):
        vectors |= SimpleVectorStore.from_persist_path(str(file)).data.embedding_dict
    cut = {node.ref_doc_id for node in found} - {None}
    nodes = [node for node in found if not (_is_document(node) and node.node_id in cut)]
    for node in nodes:
        node.embedding = node.embedding or vectors.get(node.node_id)
    return iter(sorted(nodes, key=_source))  # sorted is stable: nodes of a source keep their order


def read_table(url: str, table: str) -> Nodes:
    """Reads the table of a PGVectorStore, `data_...`, with its schema or in `public`. Raises StoreFailed."""
    import psycopg

    if not _TABLE.fullmatch(table):
        raise InvalidInput("--table", table, "must be the name of a table, as `schema.data_name`")
    sql = (
        f"SELECT node_id, text, metadata_::text, embedding::text FROM {table} "
        "ORDER BY coalesce(nullif(metadata_->>'ref_doc_id', 'None'), node_id), id"
    )
    try:
        with psycopg.connect(re.sub(r"^postgres(ql)?(\+\w+)?:", "postgresql:", url)) as connection:
            connection.read_only = True
            with connection.cursor("bring") as cursor:
                cursor.itersize = _AT_ONCE
                for id_, text, metadata, embedding in cursor.execute(sql):
                    yield _node(str(id_), text or "", json.loads(metadata or "{}"), json.loads(embedding or "null"))
    except psycopg.Error as error:
        raise StoreFailed(
            f"{table} cannot be read: {type(error).__name__}: {error.sqlstate or 'no connection'}"
        ) from None


def read_collection(client: Any, collection: str) -> Nodes:
    """Reads the collection of a QdrantVectorStore. All nodes are held in memory, to group them by source."""
    found, page, pages = list[BaseNode](), None, True
    try:
        while pages:
            points, page = client.scroll(collection, limit=_AT_ONCE, offset=page, with_payload=True, with_vectors=True)
            for point in points:
                vector = point.vector
                if isinstance(vector, dict):
                    vector = next((each for each in vector.values() if isinstance(each, list)), None)
                payload = dict(point.payload or {})
                found.append(_node(str(point.id), str(payload.get("text") or ""), payload, vector))
            pages = page is not None
    except (OSError, ValueError, RuntimeError) as error:
        raise StoreFailed(f"{collection} cannot be read: {type(error).__name__}") from None
    return iter(sorted(found, key=lambda node: (_source(node), node.start_char_idx or 0)))  # type: ignore[attr-defined]


def _node(id_: str, text: str, metadata: dict[str, Any], embedding: list[float] | None) -> BaseNode:
    """The node as LlamaIndex reads it; for another library's node, the known parts."""
    try:
        node = metadata_dict_to_node(metadata)
        if text:
            node.set_content(text)
    except ValueError:
        node = TextNode(id_=id_, text=text, metadata=metadata)
    node.embedding = embedding
    return node
