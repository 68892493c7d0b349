"""Two rankings into one, by score."""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from rag_app.domain import Mode
from rag_app.retrieval.index import Fusion


class Candidate(Struct, frozen=True):
    """A chunk with its true score on both sides: cosine similarity (-1..1) and BM25 (0 where no term matches)."""

    id: UUID
    cosine: float
    bm25: float


def rank(candidates: Sequence[Candidate], mode: Mode, weights: Fusion) -> list[Candidate]:
    """Best first. HYBRID adds the two scores, each scaled to 0..1 over the candidates, by weight.

    Min-max fusion of true scores: Bruch, Gai, Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval"
    (TOIS 2023); docs/retrieval.md has what was measured here. Ties keep the order of ids, so that both
    stores rank alike.

    >>> both = [Candidate(UUID(int=1), 0.9, 0.0), Candidate(UUID(int=2), 0.8, 7.0), Candidate(UUID(int=3), 0.1, 1.0)]
    >>> [c.id.int for c in rank(both, Mode.HYBRID, Fusion())]
    [2, 1, 3]
    """
    if mode is Mode.DENSE:
        return sorted(candidates, key=lambda c: (-c.cosine, c.id))
    if mode is Mode.TEXT:
        return sorted((c for c in candidates if c.bm25 > 0), key=lambda c: (-c.bm25, c.id))
    if not candidates:
        return []
    dense, lexical = _scale([c.cosine for c in candidates]), _scale([c.bm25 for c in candidates])
    fused = [weights.dense * d + weights.lexical * t for d, t in zip(dense, lexical, strict=True)]
    return [candidates[i] for i in sorted(range(len(candidates)), key=lambda i: (-fused[i], candidates[i].id))]


def _scale(scores: list[float]) -> list[float]:
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) if high > low else 0.0 for score in scores]
