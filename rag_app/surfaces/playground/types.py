"""What requests and responses of `/api/v1/playground` hold."""

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from rag_app.domain import Confidence
from rag_app.http.bodies import NOT_BLANK

QUESTION = "What did the customer say about pricing?"
QuestionText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2000,
        pattern=NOT_BLANK,
        description="a text of 1 to 2000 characters, not all of them blank",
        examples=[QUESTION],
    ),
]
IndexName = Annotated[
    str, Meta(min_length=1, max_length=100, description="the name of an index", examples=["org_knowledge"])
]
OrganizationName = Annotated[
    str, Meta(min_length=1, max_length=200, description="the slug of one of yours; all of them by default")
]
ModeName = Literal["hybrid", "dense", "text"]
Cosine = Annotated[float, Meta(ge=-1, le=1, description="cosine similarity")]
Place = Annotated[int, Meta(ge=1)]


class Configuration(Struct, frozen=True, forbid_unknown_fields=True):
    """How a question is asked. A null is the same as nothing."""

    index: IndexName = "org_knowledge"
    organization: OrganizationName | None = None
    mode: Annotated[ModeName, Meta(description="one of hybrid, dense, text")] = "hybrid"
    filters: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=3000)]],
        Meta(
            max_length=20,
            description="a list of at most 20 conditions: `field=value`, `field!=value`, `field in a,b`, or MetadataFilters as JSON",
        ),
    ] = []
    top_k: Annotated[int, Meta(ge=1, le=50, description="a whole number from 1 to 50")] = 8
    threshold: Annotated[float, Meta(ge=-1, le=1, description="a number from -1 to 1")] | None = None
    answer: Annotated[bool, Meta(description="true or false: whether an answer is written, too")] = True


class PlaygroundRequest(Struct, frozen=True, forbid_unknown_fields=True):
    question: QuestionText
    configurations: Annotated[
        list[Configuration], Meta(min_length=1, max_length=2, description="a list of one or two configurations")
    ]


class PlaygroundHit(Struct, frozen=True):
    rank: Place
    chunk_id: UUID
    source_id: UUID
    title: str
    source_type: str
    section: str | None
    page: int | None
    text: str
    cosine: Cosine
    cosine_rank: Annotated[Place, Meta(description="by meaning alone, among the candidates of both legs")]
    bm25: Annotated[float, Meta(ge=0, description="0: no word of the question is in it")]
    words_rank: Annotated[Place | None, Meta(description="by words alone; null where no word matches")]
    kept: Annotated[bool, Meta(description="whether it reaches the threshold")]


class ScoredSentence(Struct, frozen=True):
    """A sentence that may answer the question, without a model."""

    source: Annotated[Place, Meta(description="[Source N] of the prompt")]
    text: str
    cosine: Cosine
    words: Annotated[float, Meta(ge=0, le=1, description="share of the question's words that are in it")]
    source_cosine: Cosine
    score: Annotated[float, Meta(description="what sentences are chosen by: these three, weighted")]
    chosen: Annotated[bool, Meta(description="whether the answer has it")]


class GateSignals(Struct, frozen=True):
    """Why there is an answer, or none."""

    confidence: Confidence
    answers: Annotated[bool, Meta(description="whether there is enough to answer from")]
    basis: Annotated[str, Meta(description="what decides: a fit of organization or index, none, or a fixed rule")]
    probability: Annotated[float | None, Meta(description="that the hits hold an answer; null for a fixed rule")]
    signals: Annotated[dict[str, float], Meta(description="by name: docs/retrieval.md explains them")]


class PromptMessage(Struct, frozen=True):
    role: str
    content: str


class PlaygroundPrompt(Struct, frozen=True):
    version: Annotated[str, Meta(examples=["knowledge_answer_v1"])]
    messages: list[PromptMessage]


class PlaygroundCitation(Struct, frozen=True):
    number: Place
    source_id: UUID
    title: str
    quote: str


class PlaygroundAnswer(Struct, frozen=True):
    text: str
    refusal: Annotated[str | None, Meta(description="why there is no answer; null where there is one")]
    confidence: Confidence
    model: str | None
    citations: list[PlaygroundCitation]


class StageTime(Struct, frozen=True):
    stage: Annotated[str, Meta(examples=["search"])]
    milliseconds: Annotated[float, Meta(ge=0)]


class PlaygroundResult(Struct, frozen=True):
    configuration: Configuration
    hits: Annotated[list[PlaygroundHit], Meta(description="in the order of the mode")]
    candidates: Annotated[int, Meta(ge=0, description="chunks that the two legs found")]
    sentences: Annotated[list[ScoredSentence], Meta(description="the best ten")]
    gate: Annotated[GateSignals | None, Meta(description="null where the index has no capability that answers")]
    prompt: Annotated[PlaygroundPrompt | None, Meta(description="as it would be sent; null: nothing to send")]
    answer: PlaygroundAnswer | None
    stages: list[StageTime]


class PlaygroundResponse(Struct, frozen=True):
    question: str
    results: Annotated[list[PlaygroundResult], Meta(description="one for each configuration")]


class PlaygroundIndex(Struct, frozen=True):
    name: str
    description: str
    capability: Annotated[str | None, Meta(description="what answers from it; null: hits alone")]
    source_types: list[str]
    fields: Annotated[dict[str, str], Meta(description="what a filter may name, and of which type it is")]


class PlaygroundOptions(Struct, frozen=True):
    indexes: list[PlaygroundIndex]
    organizations: Annotated[list[str], Meta(description="slugs of yours")]


class NewJudgment(Struct, frozen=True, forbid_unknown_fields=True):
    question: QuestionText
    index: IndexName
    chunk_id: Annotated[UUID, Meta(description="the id of a chunk that was found")]
    relevant: Annotated[bool, Meta(description="true or false: whether it answers the question")]
    organization: OrganizationName | None = None


class KeptJudgment(Struct, frozen=True):
    source_id: UUID
    start: Annotated[int | None, Meta(description="first character of the passage in its source; null: all of it")]
    end: int | None
    relevant: bool
