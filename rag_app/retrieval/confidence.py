"""Are the hits good enough to answer from?"""

from collections.abc import Sequence

from rag_app.domain.answer import Confidence, Hit
from rag_app.retrieval.index import ConfidenceRule


def average_relevance(hits: Sequence[Hit]) -> float:
    """Mean cosine similarity of the five best hits (fewer if there are fewer); 0 without hits."""
    best = sorted((hit.score for hit in hits), reverse=True)[:5]
    return sum(best) / len(best) if best else 0.0


def signal(hits: Sequence[Hit], rule: ConfidenceRule) -> float:
    """The cosine that the rule's thresholds are compared with; -1 without hits. Fused scores are never looked at."""
    if not hits:
        return -1.0
    return average_relevance(hits) if rule.signal == "mean5" else max(hit.score for hit in hits)


def judge(hits: Sequence[Hit], rule: ConfidenceRule) -> Confidence:
    """LOW is "do not answer".

    >>> judge([], ConfidenceRule())
    <Confidence.LOW: 'low'>
    """
    found = signal(hits, rule)
    if not hits or found < rule.answer_from:
        return Confidence.LOW
    return Confidence.HIGH if found >= rule.high else Confidence.MEDIUM
