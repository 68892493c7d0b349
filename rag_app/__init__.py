"""Answers questions with verified citations, over content that only some people may see.

Search and ask:

    import rag_app

    async with rag_app.open() as rag:
        for hit in await rag.search("What is embodied AI?", index="book", organization="aurora"):
            print(hit.relevance, hit.title)
        answer = await rag.ask("What is embodied AI?", index="book", organization="aurora")
        print(answer.text, [citation.hit.title for citation in answer.citations])

Prepare the context and the prompt for a model that you call yourself (docs/library.md):

    result = await rag_app.run_rag_pipeline(
        tenant_id="aurora", site_id="eu", query_text="Do you have wireless headphones?"
    )
    print(result.prompts.chat, result.evidence)
"""

from typing import TYPE_CHECKING

from rag_app.domain.errors import RagError

if TYPE_CHECKING:
    __version__: str
    from rag_app.surfaces.library.context import (
        Chunk,
        ContextBlock,
        Evidence,
        Message,
        assemble_chat_prompt,
        assemble_conversation_prompt,
        assemble_prompt,
        build_context_blocks,
        build_evidence,
        build_evidence_from_chunks,
    )
    from rag_app.surfaces.library.owner import (
        Citation,
        RAGResponse,
        ask_with_citations,
        search_chunks_with_filters,
    )
    from rag_app.surfaces.library.rag import (
        Rag,
        open as open,  # noqa: A004
    )
    from rag_app.surfaces.library.retrieval import (
        DEFAULT_POLICY,
        PipelineResult,
        Prompts,
        RetrievalPolicy,
        create_permissive_policy,
        create_strict_policy,
        quick_test,
        retrieve_chunks,
        run_rag_pipeline,
        sanitize_source_types,
        test_rag_pipeline,
        validate_retrieval_request,
    )
    from rag_app.surfaces.library.verifying import Verified, verify

# `open` and `__version__` are left out: `from rag_app import *` is not to replace Python's own
__all__ = [
    "DEFAULT_POLICY",
    "Chunk",
    "Citation",
    "ContextBlock",
    "Evidence",
    "Message",
    "PipelineResult",
    "Prompts",
    "RAGResponse",
    "Rag",
    "RagError",
    "RetrievalPolicy",
    "Verified",
    "ask_with_citations",
    "assemble_chat_prompt",
    "assemble_conversation_prompt",
    "assemble_prompt",
    "build_context_blocks",
    "build_evidence",
    "build_evidence_from_chunks",
    "create_permissive_policy",
    "create_strict_policy",
    "quick_test",
    "retrieve_chunks",
    "run_rag_pipeline",
    "sanitize_source_types",
    "search_chunks_with_filters",
    "test_rag_pipeline",
    "validate_retrieval_request",
    "verify",
]

if not TYPE_CHECKING:  # a type checker would take any name for one that is here
    _MODULES = {
        "context": "Chunk ContextBlock Evidence Message assemble_chat_prompt assemble_conversation_prompt assemble_prompt"
        " build_context_blocks build_evidence build_evidence_from_chunks",
        "owner": "Citation RAGResponse ask_with_citations search_chunks_with_filters",
        "rag": "Rag open",
        "retrieval": "DEFAULT_POLICY PipelineResult Prompts RetrievalPolicy create_permissive_policy create_strict_policy quick_test"
        " retrieve_chunks run_rag_pipeline sanitize_source_types test_rag_pipeline validate_retrieval_request",
        "verifying": "Verified verify",
    }

    def __getattr__(name):
        # LlamaIndex takes seconds to import: `rag-app --help` does without, others take the parts that they use
        from importlib import import_module
        from importlib.metadata import version

        if name == "__version__":
            return version("rag-app")
        for module, names in _MODULES.items():
            if name in names.split():
                if module in ("owner", "rag", "retrieval"):
                    from rag_app.console.lazy_packages import import_frozen as import_module
                return getattr(import_module(f"rag_app.surfaces.library.{module}"), name)
        raise AttributeError(f"module 'rag_app' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__, "open", "__version__"})
