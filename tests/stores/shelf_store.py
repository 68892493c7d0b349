"""A vector store as a user of rag_app might write it, in one file, against LlamaIndex' interface alone.

What it can do is an argument, so that each lack can be met. Its score is none: the nearer, the smaller.
"""

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterOperator,
    MetadataFilter,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

EVERYTHING = ["filter", "and", "in", "ranges", "delete", "delete_nodes", "nearest"]


class ShelfStore(BasePydanticVectorStore):
    shelves: ClassVar[dict[str, dict[str, BaseNode]]] = {}
    asked: ClassVar[list[VectorStoreQuery]] = []

    stores_text: bool = True
    shelf: str
    can: list[str] = EVERYTHING
    most: int = 1_000_000
    slow: float = 0.0
    password: str = ""

    @property
    def client(self) -> Any:
        return None

    @property
    def nodes(self) -> dict[str, BaseNode]:
        return self.shelves.setdefault(self.shelf, {})

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        if self.password == "wrong":
            raise ConnectionError(f"cannot sign in with {self.password} at shelf://ann:{self.password}@shelf")
        self.nodes.update({node.node_id: TextNode.model_validate(node.model_dump()) for node in nodes})
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **kwargs: Any) -> None:
        if "delete" in self.can:
            for each in [id_ for id_, node in self.nodes.items() if node.ref_doc_id == ref_doc_id]:
                del self.nodes[each]

    def delete_nodes(self, node_ids: list[str] | None = None, filters: Any = None, **kwargs: Any) -> None:
        if "delete_nodes" not in self.can:
            raise NotImplementedError
        for each in node_ids or []:
            self.nodes.pop(each, None)

    def clear(self) -> None:
        self.nodes.clear()

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        time.sleep(self.slow)
        self.asked.append(query)
        filters = query.filters.filters if query.filters else []
        kept = [node for node in self.nodes.values() if self._passes(node, filters)]  # type: ignore[arg-type]
        nearest = sorted(kept, key=lambda node: self._distance(node, query.query_embedding or []))
        if "nearest" not in self.can:
            nearest.reverse()
        found = nearest[: min(query.similarity_top_k, self.most)]
        return VectorStoreQueryResult(nodes=found, similarities=[0.0 for _ in found], ids=[n.node_id for n in found])

    def _distance(self, node: BaseNode, vector: list[float]) -> float:
        return sum((x - y) ** 2 for x, y in zip(node.get_embedding(), vector, strict=True))

    def _passes(self, node: BaseNode, filters: list[MetadataFilter]) -> bool:
        if "filter" not in self.can:
            return True
        of = filters if "and" in self.can else filters[:1]
        return all(self._holds(node.metadata.get(each.key), each) for each in of)

    def _holds(self, value: Any, condition: MetadataFilter) -> bool:
        wanted: Any = condition.value
        match condition.operator:
            case FilterOperator.EQ:
                return bool(value == wanted)
            case FilterOperator.IN if "in" in self.can:
                return value in wanted
            case FilterOperator.GTE if "ranges" in self.can:
                return value is not None and value >= wanted
            case FilterOperator.LTE if "ranges" in self.can:
                return value is not None and value <= wanted
        raise NotImplementedError(condition.operator)
