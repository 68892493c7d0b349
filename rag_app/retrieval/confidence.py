"""Are the hits good enough to answer from?"""

from collections.abc import Sequence

from rag_app.domain.answer import Confidence, Hit
from rag_app.retrieval.index import ConfidenceRule


def average_relevance(hits: Sequence[Hit]) -> float:
    """Mean cosine similarity of the five best hits (fewer if there are fewer); 0 without hits."""
    best = sorted((hit.score for hit in hits), reverse=True)[:5]
    return sum(best) / len(best) if best else 0.0


def judge(hits: Sequence[Hit], rule: ConfidenceRule) -> Confidence:
    """LOW is "do not answer". Fused scores are never looked at, only cosine similarity.

    >>> judge([], ConfidenceRule())
    <Confidence.LOW: 'low'>
    """
    if not hits:
        return Confidence.LOW
    signal = average_relevance(hits) if rule.signal == "mean5" else max(hit.score for hit in hits)
    if signal >= rule.high:
        return Confidence.HIGH
    return Confidence.MEDIUM if signal >= rule.answer_from else Confidence.LOW
