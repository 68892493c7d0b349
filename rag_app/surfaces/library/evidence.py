"""What an answer can point at: one piece of evidence a source."""

from collections.abc import Iterable
from dataclasses import dataclass

from rag_app.surfaces.library.chunks import Chunk, by_source
from rag_app.surfaces.library.context import ContextBlock


@dataclass(frozen=True, slots=True)
class Evidence:
    """A source, and the chunks of it that were used. `score` is the best one's similarity (0..1).

    `dataclasses.asdict` makes it JSON, to store beside a chat message.

    >>> from dataclasses import asdict
    >>> asdict(Evidence("policy", "returns", ("c-2",), 0.8, title="Returns"))["chunk_ids"]
    ('c-2',)
    """

    source_type: str
    source_id: str
    chunk_ids: tuple[str, ...]
    score: float
    title: str | None = None
    url: str | None = None
    source_updated_at: str | None = None


def build_evidence(context_blocks: Iterable[ContextBlock]) -> list[Evidence]:
    """Of the sources in a context, in its order.

    >>> block = ContextBlock(1, "policy", "returns", "30 days.", 0.8, ("c-2",), title="Returns")
    >>> build_evidence([block])[0]
    Evidence(source_type='policy', source_id='returns', chunk_ids=('c-2',), score=0.8, title='Returns', url=None, source_updated_at=None)
    """
    found: dict[tuple[str, str], Evidence] = {}
    for block in context_blocks:
        source = (block.source_type, block.source_id)
        before = found.get(source)
        found[source] = Evidence(
            *source,
            chunk_ids=(before.chunk_ids if before else ()) + block.chunk_ids,
            score=max(block.similarity, before.score if before else 0.0),
            title=block.title,
            url=block.url,
            source_updated_at=block.source_updated_at,
        )
    return list(found.values())


def build_evidence_from_chunks(chunks: Iterable[Chunk]) -> list[Evidence]:
    """Of everything that was retrieved, the source of the most similar chunk first.

    >>> chunks = [Chunk("c-1", "page", "faq", "Monday.", 0.7), Chunk("c-2", "page", "faq", "Tuesday.", 0.9)]
    >>> [(evidence.source_id, evidence.chunk_ids, evidence.score) for evidence in build_evidence_from_chunks(chunks)]
    [('faq', ('c-2', 'c-1'), 0.9)]
    """
    return [
        Evidence(
            source_type=best.source_type,
            source_id=best.source_id,
            chunk_ids=tuple(chunk.id for chunk in (best, *others)),
            score=best.similarity,
            title=best.title,
            url=best.url,
            source_updated_at=best.source_updated_at,
        )
        for best, *others in by_source(chunks)
    ]
