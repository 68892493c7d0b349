"""A question and its answer as LlamaIndex carries them: what an engine's `aquery` takes, and what it gives."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.response.schema import AsyncStreamingResponse, Response
from llama_index.core.schema import NodeWithScore, QueryBundle

from rag_app.domain import Answer, Delta, Event, Question


class QuestionBundle(QueryBundle):
    """A whole question in a query bundle: with its limits, named sources and instructions.

    `embedding`, or that of `texts`, is searched by meaning instead of the text's own. `streamed`: the answer is wanted in
    pieces.

    >>> QuestionBundle(Question("When do you open?", top_k=3)).query_str
    'When do you open?'
    """

    def __init__(
        self,
        question: Question,
        embedding: Sequence[float] | None = None,
        texts: Sequence[str] | None = None,
        *,
        streamed: bool = False,
    ) -> None:
        super().__init__(
            question.text,
            custom_embedding_strs=None if texts is None else [*texts],
            embedding=None if embedding is None else [*embedding],
        )
        self.question, self.streamed = question, streamed


@dataclass
class EngineResponse(Response):
    """What an engine's `aquery` gives: LlamaIndex' response, and the `answer` that it was made from."""

    answer: Answer | None = None


class AnswerStream(AsyncStreamingResponse):
    """What `aquery` gives for a QuestionBundle that is `streamed`: `events` as they come; `async_response_gen()` is their text.

    Read one of the two, once. Close `events` when nobody listens any longer.
    """

    def __init__(self, events: AsyncGenerator[Event, None], nodes: Sequence[NodeWithScore]) -> None:
        super().__init__(_texts(events), [*nodes])
        self.events = events


async def _texts(events: AsyncGenerator[Event, None]) -> AsyncGenerator[str, None]:
    async for event in events:
        if isinstance(event, Delta):
            yield event.text


def answer_metadata(answer: Answer) -> dict[str, Any]:
    """An answer as the metadata of a response have it."""
    return {
        "confidence": answer.confidence.value,
        "average_relevance": answer.average_relevance,
        "probability": answer.probability,
        "calibration": answer.calibration,
        "model": answer.model,
        "refusal": answer.refusal and answer.refusal.value,
        "warnings": [*answer.warnings],
        "citations": [
            {
                "number": citation.number,
                "chunk_id": str(citation.hit.chunk_id),
                "source_id": str(citation.hit.source_id),
                "title": citation.hit.title,
                "uri": citation.hit.uri,
                "relevance": citation.hit.relevance,
                "quote": citation.quote,
                "start": citation.start,
                "end": citation.end,
                "passages": [
                    {"chunk_id": str(each.chunk_id), "quote": each.quote, "start": each.start, "end": each.end}
                    for each in citation.passages
                ],
                "foreign": citation.hit.foreign,
            }
            for citation in answer.citations
        ],
    }
