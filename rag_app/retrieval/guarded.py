"""A postprocessor that nobody here wrote: it has a limit of time, and where it fails everything stays as it was."""

import asyncio
import logging
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from rag_app.telemetry.observing import Stage, safe_text

log = logging.getLogger(__name__)


class GuardedPostprocessor(BaseNodePostprocessor):
    """Another postprocessor, for one question.

    It chooses nodes and their order; scores stay the cosines that they were. Where it raises, or takes more than
    `seconds`, the nodes are as they were before it, `warning` says so, and the log why.
    """

    inner: BaseNodePostprocessor
    seconds: float
    _warning: str = PrivateAttr(default="")

    @property
    def warning(self) -> str:
        """What people should know; empty where all went well."""
        return self._warning

    @property
    def what(self) -> str:
        return type(self.inner).__name__

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return nodes
        before = {each.node.node_id: each.score for each in nodes}
        try:
            with Stage("reranking", {"rag.postprocessor": self.what}):
                async with asyncio.timeout(self.seconds):
                    copies = [NodeWithScore(node=each.node, score=each.score) for each in nodes]
                    chosen = await self.inner.apostprocess_nodes(copies, query_bundle=query_bundle)
            return [NodeWithScore(node=each.node, score=before.get(each.node.node_id, each.score)) for each in chosen]
        except Exception as error:
            late = isinstance(error, TimeoutError)
            why = f"took more than {self.seconds:g} s" if late else "failed"
            self._warning = f"Reranking by {self.what} {why}; the order is that of the search"
            log.warning("%s: %s", self._warning, safe_text(error))
            return nodes

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        raise NotImplementedError("use `await postprocessor.apostprocess_nodes(...)`")


def warnings_of(postprocessors: Any) -> tuple[str, ...]:
    """What those that are guarded have to say."""
    return tuple(each.warning for each in postprocessors if isinstance(each, GuardedPostprocessor) and each.warning)
