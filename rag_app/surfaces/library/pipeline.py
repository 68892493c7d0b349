"""From a question to what a model is to be given, in one call; and the same on paper, to look at."""

from collections.abc import Iterable
from pathlib import Path
from textwrap import indent, shorten
from typing import Any
from uuid import UUID

from jinja2 import StrictUndefined, Template
from msgspec import Struct

from rag_app.surfaces.library.arguments import checked_call
from rag_app.surfaces.library.context import (
    Chunk,
    ContextBlock,
    Evidence,
    MergeStrategy,
    build_context_blocks,
    build_evidence,
)
from rag_app.surfaces.library.prompting import Message, assemble_chat_prompt, assemble_prompt
from rag_app.surfaces.library.rag import Rag
from rag_app.surfaces.library.retrieval import (
    DEFAULT_POLICY,
    RetrievalPolicy,
    create_permissive_policy,
    retrieve_chunks,
    validate_retrieval_request,
)

_PREVIEW = 2400  # characters of the prompt in a report


class Prompts(Struct, frozen=True):
    """The same prompt as one text and as chat messages.

    >>> prompts = Prompts(assemble_prompt([], "Hello!"), assemble_chat_prompt([], "Hello!"))
    >>> prompts.single.endswith(prompts.chat[-1]["content"])
    True
    """

    single: str
    chat: list[Message]


class PipelineResult(Struct, frozen=True):
    """What was retrieved, what of it a model reads, what an answer can point at, and the prompts.

    `context_blocks[n - 1]` is what `[Source n]` in an answer stands for.

    >>> found = [Chunk("c-2", "policy", "returns", "30 days.", 0.8, title="Returns")]
    >>> blocks = build_context_blocks(found)
    >>> prompts = Prompts(assemble_prompt(blocks, "Hello!"), assemble_chat_prompt(blocks, "Hello!"))
    >>> PipelineResult(found, blocks, build_evidence(blocks), prompts).evidence[0].title
    'Returns'
    """

    chunks: list[Chunk]
    context_blocks: list[ContextBlock]
    evidence: list[Evidence]
    prompts: Prompts


@checked_call
async def run_rag_pipeline(
    *,
    tenant_id: str | UUID,
    site_id: str | UUID,
    query_text: str,
    top_k: int = 10,
    similarity_threshold: float = 0.7,
    allowed_source_types: Iterable[str] | None = None,
    max_context_tokens: int = 4000,
    max_context_characters: int | None = None,
    max_chunks_per_source: int = 3,
    max_sources: int = 5,
    merge_strategy: MergeStrategy = "concatenate",
    system_template: str | None = None,
    policy: RetrievalPolicy = DEFAULT_POLICY,
    model: str | None = None,
    mode: str = "dense",
    index: str = "store_catalogue",
    rag: Rag | None = None,
) -> PipelineResult:
    """Validate, retrieve, build the context and its evidence, assemble the prompts. No answering model is called.

    The options are those of `retrieve_chunks`, `build_context_blocks` and `assemble_prompt`. The default
    policy is a shop's: for another index name one. Raises as these functions do, and Forbidden for a source type that
    the policy does not allow.

    Example:

        result = await rag_app.run_rag_pipeline(
            tenant_id="aurora",
            site_id="eu",
            query_text="Do you have wireless headphones?",
            allowed_source_types=["product"],
        )
        for evidence in result.evidence:
            print(f"{evidence.score:.2f}  {evidence.title}  {evidence.url}")
        assert "Halden 2" in result.prompts.single
    """
    source_types = validate_retrieval_request(tenant_id, site_id, allowed_source_types, policy)
    chunks = await retrieve_chunks(
        tenant_id,
        site_id,
        query_text,
        top_k,
        similarity_threshold,
        source_types,
        model,
        mode=mode,
        index=index,
        rag=rag,
    )
    blocks = build_context_blocks(
        chunks, max_context_tokens, max_context_characters, max_chunks_per_source, max_sources, merge_strategy
    )
    prompts = Prompts(
        single=assemble_prompt(blocks, query_text, system_template=system_template),
        chat=assemble_chat_prompt(blocks, query_text, system_template=system_template),
    )
    return PipelineResult(chunks, blocks, build_evidence(blocks), prompts)


async def test_rag_pipeline(
    *, tenant_id: str | UUID, site_id: str | UUID, query_text: str, **options: Any
) -> PipelineResult:
    """`run_rag_pipeline` with its options; prints what came out: for trying things, not for serving.

    Example:

        result = await rag_app.test_rag_pipeline(
            tenant_id="aurora", site_id="eu", query_text="How soon is a return refunded?", max_sources=2
        )
        assert len(result.context_blocks) <= 2
    """
    result = await run_rag_pipeline(tenant_id=tenant_id, site_id=site_id, query_text=query_text, **options)
    print(report(query_text, result))  # noqa: T201
    return result


test_rag_pipeline.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test where it is imported


@checked_call
async def quick_test(
    tenant_id: str | UUID,
    site_id: str | UUID,
    query_text: str,
    *,
    index: str = "store_catalogue",
    rag: Rag | None = None,
) -> str:
    """Print what `run_rag_pipeline` finds with its defaults, and return the same text.

    Chunks with their similarities, context blocks with their sources, the evidence, the beginning of the prompt.

    Example:

        report = await rag_app.quick_test("aurora", "eu", "Do you have wireless headphones?")
        assert "[Source 1]" in report
    """
    result = await test_rag_pipeline(
        tenant_id=tenant_id,
        site_id=site_id,
        query_text=query_text,
        policy=create_permissive_policy(),
        index=index,
        rag=rag,
    )
    return report(query_text, result)


def report(query_text: str, result: PipelineResult) -> str:
    """A result as text, to read on a terminal."""
    written, prompt = Path(__file__).with_name("report.txt").read_text("utf-8"), result.prompts.single
    preview = prompt if len(prompt) <= _PREVIEW else prompt[:_PREVIEW] + " …"
    shown: Template = Template(written, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    quoted = indent(preview, "  | ", lambda line: True)
    return shown.render(question=query_text, result=result, preview=quoted, shorten=shorten)
