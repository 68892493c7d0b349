"""A question to chunks of one site of one tenant: what it must name before it is run, and which source types it may touch; and
to what a model is to be given, in one call, or on paper, to look at."""

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from textwrap import indent, shorten
from typing import Any
from uuid import UUID

from jinja2 import StrictUndefined, Template
from msgspec import Struct, structs

from rag_app.application import Application
from rag_app.domain import Forbidden, InvalidInput, Mode, NotFound, Question, Scope
from rag_app.retrieval.filters import IN, checked_text, condition
from rag_app.surfaces.library.arguments import checked_call
from rag_app.surfaces.library.context import (
    Chunk,
    ContextBlock,
    Evidence,
    MergeStrategy,
    Message,
    assemble_chat_prompt,
    assemble_prompt,
    build_context_blocks,
    build_evidence,
    chunk_of,
)
from rag_app.surfaces.library.rag import Rag, open as open_rag, question_of, scope_of

SOURCE_TYPES = ("product", "page", "policy")
"""Of a shop: what the index store_catalogue declares."""


class RetrievalPolicy(Struct, frozen=True):
    """The source types that may be retrieved.

    With `explicit_allowlist_required` every retrieval is filtered by a list: the request's, or, where it names none,
    this one; another type is refused. Without, a request may name any type that its index declares, and gets all of
    them where it names none.

    >>> RetrievalPolicy(allowed_source_types=("policy",)).explicit_allowlist_required
    True
    >>> DEFAULT_POLICY.allowed_source_types
    ('product', 'page', 'policy')
    """

    allowed_source_types: tuple[str, ...] = SOURCE_TYPES
    explicit_allowlist_required: bool = True


DEFAULT_POLICY = RetrievalPolicy()


@checked_call
def create_strict_policy(allowed_source_types: Iterable[str]) -> RetrievalPolicy:
    """These types and no others. Raises InvalidInput where there is none.

    >>> create_strict_policy(["policy"]).allowed_source_types
    ('policy',)
    """
    return RetrievalPolicy(_unique_types(allowed_source_types))


def create_permissive_policy() -> RetrievalPolicy:
    """Whatever the index declares.

    >>> create_permissive_policy().explicit_allowlist_required
    False
    """
    return RetrievalPolicy(explicit_allowlist_required=False)


@checked_call
def sanitize_source_types(source_types: Iterable[str], allowed: Iterable[str] = SOURCE_TYPES) -> list[str]:
    """Those that are allowed, each once, in their order.

    Nothing may be left, and a retrieval refuses an empty list with InvalidInput: it never comes to mean all types.
    Raises InvalidInput for what is no list of texts.

    >>> sanitize_source_types(["product", "blog", "product", "page"])
    ['product', 'page']
    """
    accepted = set(allowed)
    return [each for each in dict.fromkeys(source_types) if each in accepted]


@checked_call
def validate_retrieval_request(
    tenant_id: str | UUID,
    site_id: str | UUID,
    allowed_source_types: Iterable[str] | None = None,
    policy: RetrievalPolicy = DEFAULT_POLICY,
) -> tuple[str, ...] | None:
    """The source types to retrieve; None for all that the index has.

    Raises InvalidInput for a tenant, a site or a list of types that is empty or none, and Forbidden for a type that the
    policy does not allow. Whether the site is the tenant's is for the database to say: `retrieve_chunks` asks it.

    >>> validate_retrieval_request("aurora", "eu", ["product"])
    ('product',)
    >>> validate_retrieval_request("aurora", "eu", policy=create_strict_policy(["page"]))
    ('page',)
    >>> validate_retrieval_request("aurora", "")
    Traceback (most recent call last):
    rag_app.domain.errors.InvalidInput: site_id: is required: a name or an id
    """
    for name, value in (("tenant_id", tenant_id), ("site_id", site_id)):
        if not str(value).strip():
            raise InvalidInput(name, value, "is required: a name or an id")
    strict = policy.explicit_allowlist_required
    if allowed_source_types is None:
        return _unique_types(policy.allowed_source_types) if strict else None
    named = _unique_types(allowed_source_types)
    refused = [each for each in named if each not in policy.allowed_source_types]
    if strict and refused:
        raise Forbidden(
            f"the policy does not allow source type {', '.join(refused)}; "
            f"allowed: {', '.join(policy.allowed_source_types)}"
        )
    return named


def _unique_types(source_types: Iterable[str]) -> tuple[str, ...]:
    """Each once. An empty list is refused: it must not come to mean all types."""
    named = tuple(dict.fromkeys(source_types))
    if not named:
        raise InvalidInput("allowed_source_types", named, "is empty: name a source type")
    return named


@checked_call
async def retrieve_chunks(
    tenant_id: str | UUID,
    site_id: str | UUID,
    query_text: str,
    top_k: int = 10,
    similarity_threshold: float = 0.7,
    allowed_source_types: Iterable[str] | None = None,
    model: str | None = None,
    *,
    mode: str = "dense",
    index: str = "store_catalogue",
    rag: Rag | None = None,
) -> list[Chunk]:
    """At most `top_k` (1..1000) chunks of a tenant's site, the best first, each at least as similar as the threshold.

    Similarity is 1 - distance / 2, 0..1: a threshold of 0.7 is a cosine of 0.40. Tenant and site are names or ids, and
    have no defaults. `allowed_source_types` None means all. `model` None means the one the index is embedded with,
    which is the only one that is accepted. `mode` "dense" compares meanings, "text" words, "hybrid" both: their order
    is then not the similarities'. `rag` None opens what the environment configures, for this one call.

    Raises InvalidInput for what is empty, out of range or of another model, NotFound for a tenant or an index there is
    not and for a site that is not the tenant's, EmbeddingFailed and StoreFailed.

    Example:

        chunks = await rag_app.retrieve_chunks("aurora", "eu", "Do you have wireless headphones?", top_k=3)
        for chunk in chunks:
            print(f"{chunk.similarity:.2f}  {chunk.source_type}  {chunk.title}")
        assert chunks[0].similarity >= 0.7
    """
    source_types = validate_retrieval_request(tenant_id, site_id, allowed_source_types, create_permissive_policy())
    question = _build_question(query_text, top_k, similarity_threshold, mode)
    async with open_rag() if rag is None else nullcontext(rag) as using:
        application = using.application
        spec = application.index(index)
        if model not in (None, known := application.embedding[0]):
            raise InvalidInput(
                "model", model, f"index {spec.name} was built with {known} and can only be searched with it"
            )
        if unknown := [each for each in source_types or () if each not in spec.source_types]:
            raise InvalidInput(
                "allowed_source_types", unknown, f"{', '.join(unknown)}; accepted: {', '.join(spec.source_types)}"
            )
        scope = await scope_of_stranger(application, ("tenant_id", str(tenant_id)), ("site_id", str(site_id)))
        # in other modes the order is not the similarities': what the threshold cuts has others behind it
        fetch = None if question.mode is Mode.DENSE else max(top_k, spec.fusion.depth)
        filters = (condition("source_type", IN, source_types),) if source_types else ()
        hits = await application.searcher.search(
            spec.name, structs.replace(question, filters=filters, fetch=fetch), scope
        )
    return [chunk_of(hit) for hit in hits]


def _build_question(text: str, top_k: int, similarity_threshold: float, mode: str) -> Question:
    question = question_of(text, top_k, mode, (), "query_text")
    if not 0 <= similarity_threshold <= 1:
        raise InvalidInput("similarity_threshold", similarity_threshold, "must be a number from 0 to 1")
    # rounded: 2 * 0.8 - 1 is a little more than 0.6
    return structs.replace(question, threshold=round(2 * similarity_threshold - 1, 12))


async def scope_of_stranger(
    application: Application, organization: tuple[str, str], site: tuple[str, str] | None = None
) -> Scope:
    """An organization's, for one site; both by argument and name. NotFound does not tell the names there are."""
    names = checked_text(*organization), None, checked_text(*site) if site else None
    try:
        return await scope_of(application, *names)
    except NotFound as error:
        raise NotFound(error.kind, error.name) from None


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
