"""`rag-app` without limits of requests, in which questions break what they meet: `python -m tests.integration.telling`.

A search for a text with "EXPLODE" in it raises an error that shows it, as a bug might; an answer with it raises such an
error in the middle of a stream.
"""

from collections.abc import AsyncGenerator
from typing import Any

from rag_app.console.cli import main
from rag_app.pipeline import Pipeline
from tests.integration.unlimited import lift


def explode() -> None:
    search, stream = Pipeline.search, Pipeline.stream

    async def searched(self: Any, index: str, question: Any, scope: Any) -> Any:
        if "EXPLODE" in question.text:
            secret = question.text
            try:
                int(secret)
            except ValueError as error:
                raise KeyError(f"no such thing as {secret}") from error
        return await search(self, index, question, scope)

    async def streamed(self: Pipeline, capability: str, question: Any, scope: Any) -> AsyncGenerator[Any, None]:
        async for event in stream(self, capability, question, scope):
            yield event
            if "EXPLODE" in question.text:
                raise KeyError(f"no such thing as {question.text}")

    Pipeline.search, Pipeline.stream = searched, streamed  # type: ignore[method-assign]


if __name__ == "__main__":
    lift()
    explode()
    main()
