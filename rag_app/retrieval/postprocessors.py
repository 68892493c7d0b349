"""LlamaIndex node postprocessors: what retrieval found is cut, folded and reordered before it is judged."""

from uuid import UUID

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle


class _Pure(BaseNodePostprocessor):
    """Nothing here waits, so the async call is the plain one, without a thread."""

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return self._postprocess_nodes(nodes, query_bundle)


class SimilarityCutoff(_Pure):
    """Keeps nodes whose cosine similarity is at least `threshold` (-1..1)."""

    threshold: float

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return [node for node in nodes if node.score is not None and node.score >= self.threshold]


class Best(_Pure):
    """Keeps the first `top_k` nodes; nodes come best first."""

    top_k: int

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return nodes[: self.top_k]


class DeduplicateBySource(_Pure):
    """Keeps the first `keep` nodes of each source; nodes come best first."""

    keep: int = 1

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        seen: dict[str, int] = {}
        kept = []
        for node in nodes:
            source = node.node.metadata["source_id"]
            seen[source] = seen.get(source, 0) + 1
            if seen[source] <= self.keep:
                kept.append(node)
        return kept


class OwnerPreference(_Pure):
    """A user's own sources first, then the team's, then what is public; the order inside each is kept.

    Nodes more than `within` (cosine) below the best one are not lifted over better ones.
    """

    user: UUID | None
    public: UUID
    within: float = 0.1

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        best = max((node.score or 0.0 for node in nodes), default=0.0)

        def tier(node: NodeWithScore) -> int:
            if (node.score or 0.0) < best - self.within:
                return 3
            if self.user is not None and node.node.metadata.get("owner_id") == str(self.user):
                return 0
            return 2 if node.node.metadata["org_id"] == str(self.public) else 1

        return sorted(nodes, key=tier)
