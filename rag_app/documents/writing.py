"""Writes sources into a generation of an index: embed their chunks, put them into the store, write down that it is done.

Ingestion, rebuilding and moving all end here. The caller holds the ledger's lock and has written down what is begun.
"""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from typing import TypeVar

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

from rag_app.documents.ledger import SourceLedger
from rag_app.domain.source import Source
from rag_app.retrieval.embedding import embed_texts
from rag_app.retrieval.store import ScopedStore, searchable_text

Batch = TypeVar("Batch")
Prepared = TypeVar("Prepared")

Work = Sequence[tuple[Source, Sequence[TextNode]]]
"""Sources of one organization with their chunks, embedded."""


async def embed_nodes(embedder: BaseEmbedding, nodes: Sequence[TextNode]) -> None:
    """Give each chunk its vector. Raises EmbeddingFailed."""
    vectors = await embed_texts(embedder, [searchable_text(node) for node in nodes])
    for node, vector in zip(nodes, vectors, strict=True):
        node.embedding = vector


async def write_sources(ledger: SourceLedger, store: ScopedStore, generation_id: int, work: Work) -> int:
    """Replace what the store holds of these sources with the chunks given. Returns how many chunks those are."""
    nodes = [node for _, chunks in work for node in chunks]
    if work:
        await store.write(nodes, replacing=[source.id for source, _ in work])
        await ledger.finish([(source, len(chunks)) for source, chunks in work], generation_id)
    return len(nodes)


async def overlap(
    batches: AsyncIterable[Batch],
    prepare: Callable[[Batch], Awaitable[Prepared]],
    write: Callable[[Prepared], Awaitable[None]],
) -> None:
    """Prepare each batch while the one before it is written; both are done when this returns or raises."""
    writing: asyncio.Future[None] | None = None
    try:
        async for batch in batches:
            prepared = await prepare(batch)
            if writing is not None:
                await writing
            writing = asyncio.ensure_future(write(prepared))
    finally:
        if writing is not None:
            await writing
