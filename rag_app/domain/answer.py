"""The way from a question to an answer, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from rag_app.domain.filters import Filters
from rag_app.domain.source import MetadataValue


class Mode(StrEnum):
    """How hits are found: by meaning, by words, or by both, fused."""

    HYBRID = "hybrid"
    DENSE = "dense"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. `threshold` cuts hits below that cosine similarity (-1..1); None cuts nothing."""

    text: str
    filters: Filters = ()
    top_k: int = 8
    mode: Mode = Mode.HYBRID
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that a query found.

    `score` is the cosine similarity of question and chunk (-1..1), whatever found it. Hits come best first;
    in hybrid and text mode that is not the order of their scores.
    """

    chunk_id: UUID
    source_id: UUID
    org_id: UUID
    text: str
    score: float
    title: str
    source_type: str
    lang: str
    position: int
    uri: str | None = None
    date: float | None = None
    section: str | None = None
    page: int | None = None
    owner_id: UUID | None = None
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)

    @property
    def relevance(self) -> float:
        """The score as it is shown: clipped to 0..1, four digits."""
        return round(min(1.0, max(0.0, self.score)), 4)


class Confidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Citation:
    """`[Source number]` in the text of an answer stands for `hit`; `quote` is the passage that supports it."""

    number: int
    hit: Hit
    quote: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a model counted for one answer."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, or a refusal: `model` is None and `text` the refusal when no answer was given.

    `hits` are all that was found; `citations` the ones its text refers to, numbered from 1 without gaps (when
    refused: the best hit of each source); `average_relevance` is the mean of the five best scores. `usage` is what a model was paid for, even where its answer was refused.
    """

    text: str
    confidence: Confidence
    model: str | None
    generated_at: datetime
    hits: tuple[Hit, ...] = ()
    citations: tuple[Citation, ...] = ()
    average_relevance: float = 0.0
    usage: Usage | None = None

    @property
    def refused(self) -> bool:
        return self.model is None
