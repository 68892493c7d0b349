"""What a client is told of an answer: its sources, what it mentions, and what to know about it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from rag_app.domain.answer import Answer, Citation, Confidence, Hit, Refusal
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces.lexybrain.types import Flags, RetrievedSource

REFERENCE_TYPES = ("keyword", "listing", "alert", "doc")
ENOUGH_SOURCES = 5

_MADE_FROM_HITS = frozenset({Refusal.FAILED, Refusal.UNCITED, Refusal.ADMITTED})


def retrieved(hits: Iterable[Hit], citations: Sequence[Citation], spec: IndexSpec) -> tuple[RetrievedSource, ...]:
    """A source for each of the hits' sources: the cited ones by number, then the others in the order of their hits."""
    best: dict[UUID, Hit] = {}
    for hit in (*(citation.hit for citation in citations), *hits):
        if hit.source_id not in best or hit.score > best[hit.source_id].score:
            best[hit.source_id] = hit
    cited = {citation.hit.source_id: citation for citation in citations}
    return tuple(
        RetrievedSource(
            hit.source_id,
            spec.shown(hit.source_type),
            hit.title,
            hit.relevance,
            cited[source].number if source in cited else None,
            cited[source].quote if source in cited else None,
        )
        for source, hit in best.items()
    )


def sources_of(answer: Answer, spec: IndexSpec) -> tuple[RetrievedSource, ...]:
    """What an answer was made from; of a refusal, what was found. Nothing where an answer makes no use of it."""
    if not answer.refused and not _uses(answer):
        return ()
    return retrieved(answer.hits, () if answer.refused else answer.citations, spec)


def flags_of(answer: Answer, sources: Sequence[RetrievedSource]) -> Flags:
    return Flags(
        used_rag=bool(sources) and _uses(answer),
        fallback_to_generic=answer.refusal is Refusal.FAILED or not answer.complete,
        insufficient_context=len(sources) < ENOUGH_SOURCES or not _uses(answer),
        interrupted=not answer.complete,
    )


def mentioned(text: str, sources: Sequence[RetrievedSource], hits: Iterable[Hit]) -> Mapping[str, tuple[UUID, ...]]:
    """Ids of the sources that a text cites by number or names by label or term, by shown type."""
    names: dict[UUID, set[str]] = {}
    for hit in hits:
        names.setdefault(hit.source_id, {hit.title}).add(str(hit.metadata.get("term", hit.title)))
    found: dict[str, tuple[UUID, ...]] = dict.fromkeys(REFERENCE_TYPES, ())
    for source in sources:
        if source.cited is not None or any(_says(text, name) for name in names.get(source.id, {source.label})):
            found[source.type] = (*found.get(source.type, ()), source.id)
    return found


def _uses(answer: Answer) -> bool:
    """Whether the text is made from the hits: weak ones are not shown to a model."""
    return bool(answer.hits) and (answer.refusal in _MADE_FROM_HITS or answer.confidence is not Confidence.LOW)


def _says(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None
