"""A chunk as the library's functions hand it from one to the next."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rag_app.answering.context import neutralise
from rag_app.domain.answer import Hit
from rag_app.domain.source import MetadataValue


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a source, with its `similarity` to the question: 0..1, which is 1 - distance / 2.

    `source_updated_at` is ISO 8601, in UTC: a date, or a date and time. `position` is the chunk's place in its source.
    `metadata` has the fields that the index declares, the language, and section and page where the source has them.

    >>> Chunk(id="c-1", source_type="product", source_id="p-1", text="Over-ear.", similarity=0.75).distance
    0.5
    """

    id: str
    source_type: str
    source_id: str
    text: str
    similarity: float
    title: str | None = None
    url: str | None = None
    source_updated_at: str | None = None
    position: int = 0
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)

    @property
    def distance(self) -> float:
        """Cosine distance of chunk and question: 0..2.

        >>> Chunk("c-1", "product", "p-1", "Over-ear.", similarity=1.0).distance
        0.0
        """
        return 2 * (1 - self.similarity)


def chunk_of(hit: Hit) -> Chunk:
    """What a search found, as the library shows it."""
    place = {"section": hit.section, "page": hit.page}
    return Chunk(
        id=str(hit.chunk_id),
        source_type=hit.source_type,
        source_id=str(hit.source_id),
        text=hit.text,
        similarity=min(1.0, max(0.0, (1 + hit.score) / 2)),
        title=hit.title,
        url=hit.uri,
        source_updated_at=_moment(hit.date),
        position=hit.position,
        metadata={
            **hit.metadata,
            "lang": hit.lang,
            **{key: value for key, value in place.items() if value is not None},
        },
    )


def by_source(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """Each source's chunks, best first, without repetitions; the source with the best chunk comes first.

    >>> one, two = (Chunk(id, "page", source, text, 0.8) for id, source, text in [("a", "s", "Hi."), ("b", "s", "Hi.")])
    >>> by_source([one, two, one]) == [[one]]
    True
    """
    groups: dict[tuple[str, str], dict[str, Chunk]] = {}
    known = set[str]()
    for chunk in sorted(chunks, key=lambda chunk: -chunk.similarity):
        if chunk.id not in known and neutralise(chunk.text).strip():  # what nobody can see is no text
            known.add(chunk.id)
            groups.setdefault((chunk.source_type, chunk.source_id), {}).setdefault(chunk.text.strip(), chunk)
    return [list(group.values()) for group in groups.values()]


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("T00:00:00+00:00")
