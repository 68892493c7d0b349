"""Hits, and nodes for in-memory retrievers."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from rag_app.answering.context import Context
from rag_app.domain.answer import Hit

DATE = datetime(2026, 1, 10, 14, 30, tzinfo=UTC).timestamp()


def hit(text: str, source: UUID | None = None, position: int = 0, score: float = 0.8, **more: Any) -> Hit:
    plain: dict[str, Any] = {"title": "Price list", "source_type": "faq", "lang": "en", "date": DATE}
    return Hit(uuid4(), source or uuid4(), uuid4(), text, score, position=position, **(plain | more))


def node(found: Hit) -> NodeWithScore:
    """As a store gives it."""
    metadata: dict[str, Any] = {
        "source_id": str(found.source_id),
        "org_id": str(found.org_id),
        "title": found.title,
        "source_type": found.source_type,
        "lang": found.lang,
        "position": found.position,
        "date": found.date,
        **found.metadata,
    }
    return NodeWithScore(node=TextNode(id_=str(found.chunk_id), text=found.text, metadata=metadata), score=found.score)


def hits_of(context: Context) -> tuple[Hit, ...]:
    """The hits that are in it."""
    return tuple(hit for block in context.blocks for hit in block.hits)


class Found(BaseRetriever):
    """Finds the same hits whatever is asked."""

    def __init__(self, *hits: Hit) -> None:
        super().__init__()
        self._nodes = [node(each) for each in hits]
        self.asked: list[str] = []

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.asked.append(query_bundle.query_str)
        return list(self._nodes)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        raise AssertionError("the synchronous way was taken")
