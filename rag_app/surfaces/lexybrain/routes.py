"""Ask LexyBrain: a message of a conversation about a marketplace, and the answer to it (`/api/lexybrain`).

The contract's own words are kept: field names, ranges, defaults, texts.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from litestar import Response
from litestar.params import BodyKwarg

from rag_app.domain import (
    BudgetSpent,
    CostCapReached,
    EmbeddingFailed,
    FeatureDisabled,
    Forbidden,
    InvalidInput,
    ModelFailed,
    NotFound,
    QuotaExceeded,
    UnknownField,
)
from rag_app.http.streaming import RESUMABLE, Resumable, StreamedOperation, event_stream, prefers, wants_stream
from rag_app.http.surface import Caller, Injected, example
from rag_app.surfaces.lexybrain import thread_routes
from rag_app.surfaces.lexybrain.conversations import Conversations
from rag_app.surfaces.lexybrain.rules import SURFACE, LexyBrainOperation
from rag_app.surfaces.lexybrain.types import EXAMPLE, THREAD, RagRequest, RagResponse

__all__ = ["SURFACE", "thread_routes"]

ANSWER = example(__package__, "answer")


@dataclass
class RagOperation(LexyBrainOperation, StreamedOperation):
    """Streams, and has the plain response's example."""

    def __post_init__(self) -> None:
        super().__post_init__()
        StreamedOperation.__post_init__(self)
        succeeded: Any = (self.responses or {})["200"]
        succeeded.content["application/json"].examples = {"answer": ANSWER}


@SURFACE.post(
    "/api/lexybrain/rag",
    InvalidInput("options.maxTokens", 99, "must be a whole number from 256 to 2048"),
    UnknownField("colour", ["capability", "context", "message", "meta", "options", "threadId"]),
    QuotaExceeded(50, 50, 1704067200),
    BudgetSpent(1_000_000, 1_000_400, 1704067200),
    Forbidden("planCode: only an administrator may choose a plan"),
    NotFound("thread", THREAD),
    ModelFailed(),
    EmbeddingFailed(),
    FeatureDisabled("Ask LexyBrain is switched off"),
    CostCapReached(),
    summary="Send a message and get the answer",
    operation_class=RagOperation,
)
async def rag(
    request: Caller, data: Annotated[RagRequest, BodyKwarg(examples=[EXAMPLE])], conversations: Injected[Conversations]
) -> Response[RagResponse]:
    """Stores the message in its thread, or in a new thread, and answers it from the sources that the caller may see.

    With `Prefer: resumable` the server goes on writing after the client disconnects, and each event has an `id`.
    """
    turn = await conversations.begin(request.user, data)
    if wants_stream(request):

        def keep(stream: Resumable) -> None:
            conversations.running.keep(turn.user, turn.thread, stream)

        return await event_stream(
            request,
            turn.stream(),
            meta={"threadId": turn.thread, "messageId": turn.message, "capability": turn.capability},
            sources=turn.sources,
            citations=turn.citations,
            body=turn.reply,
            keep=keep if prefers(request, RESUMABLE) else None,
        )
    return Response(await turn.answer())
