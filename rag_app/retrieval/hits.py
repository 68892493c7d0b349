"""Hits as LlamaIndex carries them (nodes with scores) and as the rest of rag_app reads them; whether they are good enough."""

from collections.abc import Iterable, Sequence

from llama_index.core.schema import NodeWithScore
from msgspec import convert

from rag_app.domain import Confidence, Hit
from rag_app.retrieval.index import RESERVED_FIELDS, ConfidenceRule


def to_hit(found: NodeWithScore) -> Hit:
    """Read a node that came out of a store. Its id is the chunk's, its score the cosine similarity."""
    fields = {**found.node.metadata, "chunk_id": found.node.node_id, "text": found.node.get_content()}
    fields["metadata"] = {key: value for key, value in found.node.metadata.items() if key not in RESERVED_FIELDS}
    return convert(fields | {"score": found.score or 0.0}, Hit)


def to_hits(found: Iterable[NodeWithScore]) -> tuple[Hit, ...]:
    return tuple(to_hit(node) for node in found)


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
    """By a rule that compares a cosine; LOW is "do not answer".

    >>> judge([], ConfidenceRule())
    <Confidence.LOW: 'low'>
    """
    found = signal(hits, rule)
    if not hits or found < rule.answer_from:
        return Confidence.LOW
    return Confidence.HIGH if found >= rule.high else Confidence.MEDIUM
