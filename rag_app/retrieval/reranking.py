"""Hits in a cross-encoder's order: endpoints of the shapes that TEI, Cohere and Jina have.

| kind | sent | received |
|---|---|---|
| tei | `{"query", "texts", "truncate": true}` | `[{"index", "score"}, ...]` |
| cohere, jina | `{"model", "query", "documents", "top_n"}` | `{"results": [{"index", "relevance_score"}, ...]}` |
"""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from rag_app.retrieval.store import searchable_text

if TYPE_CHECKING:
    import httpx

Kind = Literal["tei", "cohere", "jina"]


class BadRanking(ValueError):
    """An endpoint answered with something that is no ranking. The message says what is wrong with it."""


class EndpointReranker(BaseNodePostprocessor):
    """Puts nodes in the order of an endpoint's scores, the best first; their own scores stay.

    All nodes are kept: what the endpoint leaves out comes last, in the order it had. Raises httpx.HTTPError where the
    endpoint does not answer, and BadRanking.
    """

    kind: Kind
    url: str
    model: str | None = None
    seconds: float = Field(default=2.0, gt=0)
    _key: str | None = PrivateAttr(default=None)
    _client: "httpx.AsyncClient | None" = PrivateAttr(default=None)

    def __init__(self, key: str | None = None, **said: Any) -> None:
        super().__init__(**said)
        self._key = key

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None or len(nodes) < 2:
            return nodes
        if self._client is None:
            import httpx  # only where there is an endpoint: it imports a command line of its own

            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._client = httpx.AsyncClient(headers=headers, timeout=self.seconds)
        asked = self._request(query_bundle.query_str, [searchable_text(each.node) for each in nodes])
        response = await self._client.post(self.url, json=asked)
        response.raise_for_status()
        first = ranking(response.json(), len(nodes))
        return [nodes[place] for place in (*first, *(place for place in range(len(nodes)) if place not in first))]

    def _request(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        if self.kind == "tei":
            return {"query": query, "texts": texts, "truncate": True}
        return {"model": self.model, "query": query, "documents": texts, "top_n": len(texts)}

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        raise NotImplementedError("use `await postprocessor.apostprocess_nodes(...)`")

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def ranking(reply: Any, size: int) -> list[int]:
    """The places of `size` texts in the order of their scores, of either shape. Raises BadRanking.

    >>> ranking([{"index": 0, "score": 0.1}, {"index": 1, "score": 0.9}], 2)
    [1, 0]
    >>> ranking({"results": [{"index": 2, "relevance_score": 0.9}]}, 2)
    Traceback (most recent call last):
    rag_app.retrieval.reranking.BadRanking: place 2 of 2 texts
    """
    rows = reply.get("results") if isinstance(reply, dict) else reply
    scores: dict[int, float] = {}
    for row in rows if isinstance(rows, list) else [None]:
        match row:
            case {"index": int(place), "score": float() | int() as score}:
                pass
            case {"index": int(place), "relevance_score": float() | int() as score}:
                pass
            case _:
                raise BadRanking("no list of index and score")
        if not 0 <= place < size or place in scores or not isfinite(score):
            raise BadRanking(f"place {place} of {size} texts")
        scores[place] = score
    return sorted(scores, key=lambda place: -scores[place])
