"""Questions over content that only some people may see, answered with verified citations.

In a notebook or a program:

    import rag_app

    async with rag_app.open() as rag:
        for hit in await rag.search("What is embodied AI?", index="book", organization="aurora"):
            print(hit.relevance, hit.title)
        answer = await rag.ask("What is embodied AI?", index="book", organization="aurora")
        print(answer.text, [citation.hit.title for citation in answer.citations])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_app.library import Rag, open  # noqa: A004

__all__ = ["Rag", "open"]


def __getattr__(name: str) -> Any:
    # LlamaIndex takes seconds to import; `rag-app --help` is not to wait for it
    if name not in __all__:
        raise AttributeError(f"module 'rag_app' has no attribute {name!r}")
    return getattr(import_module("rag_app.library"), name)
