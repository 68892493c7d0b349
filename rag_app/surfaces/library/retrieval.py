"""A question to chunks of one site of one tenant."""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from rag_app.application import Application
from rag_app.domain.answer import Mode, Question
from rag_app.domain.errors import InvalidInput, NotFound
from rag_app.domain.filters import Condition, Filters, Operator
from rag_app.domain.scope import Scope
from rag_app.retrieval.filters import checked_text
from rag_app.retrieval.index import IndexSpec, find_index
from rag_app.surfaces.library.asking import scope_of
from rag_app.surfaces.library.chunks import Chunk, chunk_of
from rag_app.surfaces.library.guardrails import create_permissive_policy, validate_retrieval_request
from rag_app.surfaces.library.rag import Rag, opened

MAX_TOP_K = 1000


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
    question = _question(query_text, top_k, similarity_threshold, mode)
    async with opened(rag) as using:
        application = using.application
        spec = find_index(application.indexes, index)
        if model not in (None, application.embedder.model_name):
            known = application.embedder.model_name
            raise InvalidInput(
                "model", model, f"index {spec.name} is embedded with {known}, and searched with no other"
            )
        scope = await _scope(application, str(tenant_id), str(site_id))
        # in other modes the order is not the similarities': what the threshold cuts has others behind it
        fetch = None if question.mode is Mode.DENSE else max(top_k, spec.fusion.depth)
        asked = replace(question, filters=_only(source_types, spec), fetch=fetch)
        hits = await application.pipeline.search(spec.name, asked, scope)
    return [chunk_of(hit) for hit in hits]


def _question(text: str, top_k: int, similarity_threshold: float, mode: str) -> Question:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput("query_text", text, "is empty")
    if not isinstance(top_k, int) or isinstance(top_k, bool) or not 1 <= top_k <= MAX_TOP_K:
        raise InvalidInput("top_k", top_k, f"must be a whole number from 1 to {MAX_TOP_K}")
    if not isinstance(similarity_threshold, int | float) or not 0 <= similarity_threshold <= 1:
        raise InvalidInput("similarity_threshold", similarity_threshold, "must be a number from 0 to 1")
    if mode not in list(Mode):
        raise InvalidInput("mode", mode, f"accepted: {', '.join(Mode)}")
    cosine = round(2 * similarity_threshold - 1, 12)  # 2 * 0.8 - 1 is a little more than 0.6
    return Question(checked_text("query_text", text), (), top_k, Mode(mode), cosine)


def _only(source_types: tuple[str, ...] | None, spec: IndexSpec) -> Filters:
    """Raises InvalidInput for a type that the index does not declare: it would find nothing and look like no result."""
    if source_types is None:
        return ()
    if unknown := [each for each in source_types if each not in spec.source_types]:
        raise InvalidInput(
            "allowed_source_types", unknown, f"{', '.join(unknown)}; accepted: {', '.join(spec.source_types)}"
        )
    return (Condition("source_type", Operator.IN, source_types),)


async def _scope(application: Application, tenant_id: str, site_id: str) -> Scope:
    """The tenant's, for one site. NotFound does not name the tenants there are: the name may be a stranger's."""
    tenant, site = checked_text("tenant_id", tenant_id), checked_text("site_id", site_id)
    try:
        return await scope_of(application, tenant, None, site)
    except NotFound as error:
        raise NotFound(error.kind, error.name) from None
