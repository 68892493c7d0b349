"""Owner Q&A from Python: `search_chunks_with_filters` and `ask_with_citations` are `/owner/search` and `/owner/ask`.

Ranges, defaults, texts and results are those of the HTTP API. `shop_id` is an organization, by name or id, and has no
default.

    from rag_app import ask_with_citations

    response = await ask_with_citations("aurora", "What did customers say about wait times?", date_from="2026-01-08")
    print(response.answer, [source.excerpt for source in response.sources])
"""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import date
from uuid import UUID

from msgspec import json

from rag_app.application import Application
from rag_app.domain import InvalidInput, Scope
from rag_app.http.bodies import T, decode
from rag_app.surfaces.library.arguments import checked_call
from rag_app.surfaces.library.rag import Rag, open as open_rag
from rag_app.surfaces.library.retrieval import scope_of_stranger
from rag_app.surfaces.owner.routes import (
    CAPABILITY,
    INDEX,
    OwnerAskRequest,
    OwnerAskResponse,
    OwnerSearchRequest,
    OwnerSearchResult,
    OwnerSource,
    render_answer,
    render_result,
)

Citation = OwnerSource
"""A cited source: the passage that supports the answer, and the call or booking that it is from."""
RAGResponse = OwnerAskResponse
"""An answer with `[Source N]` citations or a refusal, `sources`, and how much evidence there was."""


@checked_call
async def search_chunks_with_filters(
    shop_id: str | UUID,
    query: str,
    limit: int = 10,
    min_similarity: float = 0.3,
    source_types: Sequence[str] | None = None,
    date_from: str | date | None = None,
    date_to: str | date | None = None,
    stylist_id: int | None = None,
    customer_id: int | None = None,
    *,
    mode: str | None = None,
    rag: Rag | None = None,
) -> list[OwnerSearchResult]:
    """The most similar chunks of a shop's calls and bookings; calls no model.

    Raises InvalidInput for a value outside its range, NotFound for a shop there is not, EmbeddingFailed and StoreFailed.
    `rag` None opens what the environment configures, for this one call.

    Example:

        chunks = await rag_app.search_chunks_with_filters("aurora", "complaints about pricing", limit=3)
        for chunk in chunks:
            print(f"{chunk.similarity:.2f}  {chunk.content}")
    """
    asked = _check_request(
        OwnerSearchRequest,
        query=query,
        limit=limit,
        min_similarity=min_similarity,
        source_types=source_types,
        date_from=date_from,
        date_to=date_to,
        stylist_id=stylist_id,
        customer_id=customer_id,
        mode=mode,
    )
    async with open_rag() if rag is None else nullcontext(rag) as using:
        pipeline, scope = using.application.pipeline, await _shop_scope(using.application, shop_id)
        return [*map(render_result, await pipeline.search(INDEX, asked.question(pipeline.search_mode(INDEX)), scope))]


@checked_call
async def ask_with_citations(
    shop_id: str | UUID,
    question: str,
    limit: int = 5,
    min_similarity: float | None = None,
    source_types: Sequence[str] | None = None,
    date_from: str | date | None = None,
    date_to: str | date | None = None,
    stylist_id: int | None = None,
    customer_id: int | None = None,
    *,
    rag: Rag | None = None,
) -> RAGResponse:
    """An answer whose every claim cites a call or booking of the shop, or one of the contract's refusals.

    `min_similarity` None is 0.35, below which chunks are used only where a model is asked or the confidence is high; it does
    not cut records that are found by their fields. A number cuts both.
    Raises what `search_chunks_with_filters` raises, ModelFailed, and BudgetSpent.

    Example:

        response = await rag_app.ask_with_citations("aurora", "What did customers say about wait times?")
        assert isinstance(response, rag_app.RAGResponse)
        for source in response.sources:
            assert isinstance(source, rag_app.Citation)
            print(source.excerpt)
    """
    asked = _check_request(
        OwnerAskRequest,
        question=question,
        limit=limit,
        min_similarity=min_similarity,
        source_types=source_types,
        date_from=date_from,
        date_to=date_to,
        stylist_id=stylist_id,
        customer_id=customer_id,
    ).to_question()
    async with open_rag() if rag is None else nullcontext(rag) as using:
        pipeline, scope = using.application.pipeline, await _shop_scope(using.application, shop_id)
        return render_answer(question, await pipeline.answer(CAPABILITY, asked, scope), pipeline.warnings(asked))


def _check_request(of: type[T], **values: object) -> T:
    """The request, by the rules of the HTTP API. Raises InvalidInput."""
    try:
        body = json.encode({name: value for name, value in values.items() if value is not None})
    except (TypeError, ValueError) as error:
        raise InvalidInput("", None, f"an argument is of a type that is not accepted: {error}") from None
    return decode(of, body)


async def _shop_scope(application: Application, shop_id: str | UUID) -> Scope:
    if not str(shop_id).strip():
        raise InvalidInput("shop_id", shop_id, "is required: a name or an id")
    return await scope_of_stranger(application, ("shop_id", str(shop_id)))
