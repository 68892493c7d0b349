"""Hits as LlamaIndex carries them (nodes with scores) and as the rest of rag_app reads them."""

from collections.abc import Iterable
from uuid import UUID

from llama_index.core.schema import NodeWithScore

from rag_app.domain.answer import Hit

STANDARD_KEYS = frozenset(
    {
        "source_id",
        "org_id",
        "title",
        "source_type",
        "lang",
        "position",
        "uri",
        "date",
        "section",
        "page",
        "owner_id",
        "site_id",
        "private_to",
        "version",
    }
)
"""Node metadata that has a place of its own in a Hit; the rest is what the index declares."""


def to_hit(found: NodeWithScore) -> Hit:
    """Read a node that came out of a store. Its id is the chunk's, its score the cosine similarity."""
    meta = found.node.metadata
    return Hit(
        chunk_id=UUID(found.node.node_id),
        source_id=UUID(meta["source_id"]),
        org_id=UUID(meta["org_id"]),
        text=found.node.get_content(),
        score=found.score if found.score is not None else 0.0,
        title=meta["title"],
        source_type=meta["source_type"],
        lang=meta["lang"],
        position=meta["position"],
        uri=meta.get("uri"),
        date=meta.get("date"),
        section=meta.get("section"),
        page=meta.get("page"),
        owner_id=UUID(meta["owner_id"]) if meta.get("owner_id") else None,
        metadata={key: value for key, value in meta.items() if key not in STANDARD_KEYS},
    )


def to_hits(found: Iterable[NodeWithScore]) -> tuple[Hit, ...]:
    return tuple(to_hit(node) for node in found)
