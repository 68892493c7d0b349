"""What requests and responses of `/api/v1/playground` hold."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from msgspec import Meta, Struct

from rag_app.domain import Confidence, Mode
from rag_app.http.fields import choice_of, limit_text

QuestionText = Annotated[
    str,
    limit_text(2000, examples=["What did the customer say about pricing?"]),
]
IndexName = Annotated[
    str, Meta(min_length=1, max_length=100, description="the name of an index", examples=["org_knowledge"])
]
OrganizationName = Annotated[
    str, Meta(min_length=1, max_length=200, description="the slug of one of your organizations; all of them by default")
]
if TYPE_CHECKING:
    AnyMode = str
else:
    AnyMode = choice_of(Mode)
Cosine = Annotated[float, Meta(ge=-1, le=1, description="cosine similarity")]
Place = Annotated[int, Meta(ge=1)]


class Configuration(Struct, frozen=True, forbid_unknown_fields=True):
    """How a question is asked. A null is the same as an omitted field."""

    index: IndexName = "org_knowledge"
    organization: OrganizationName | None = None
    mode: AnyMode = "hybrid"
    filters: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=3000)]],
        Meta(
            max_length=20,
            description="a list of at most 20 conditions: `field=value`, `field!=value`, `field in a,b`, or MetadataFilters as JSON",
        ),
    ] = []
    top_k: Annotated[int, Meta(ge=1, le=50, description="a whole number from 1 to 50")] = 8
    threshold: Annotated[float, Meta(ge=-1, le=1, description="a number from -1 to 1")] | None = None
    answer: Annotated[bool, Meta(description="true or false: whether to write an answer, too")] = True


class PlaygroundRequest(Struct, frozen=True, forbid_unknown_fields=True):
    question: QuestionText
    configurations: Annotated[
        list[Configuration], Meta(min_length=1, max_length=2, description="a list of one or two configurations")
    ]


class PlaygroundPassage(Struct, frozen=True, kw_only=True):
    """Where a hit or a quote is found."""

    source_id: UUID
    title: str
    section: str | None
    page: int | None
    external_id: str | None
    file_name: str | None
    link: Annotated[str, Meta(description="the path that opens the source with the passage")]


class PlaygroundHit(PlaygroundPassage, frozen=True):
    rank: Place
    chunk_id: UUID
    source_type: str
    text: str
    cosine: Cosine
    cosine_rank: Annotated[Place, Meta(description="rank by cosine similarity among all candidates")]
    bm25: Annotated[float, Meta(ge=0, description="lexical score; 0 if no word of the question matches")]
    words_rank: Annotated[Place | None, Meta(description="rank by lexical score; null if no word matches")]
    kept: Annotated[bool, Meta(description="whether the hit reaches the threshold")]


class ScoredSentence(Struct, frozen=True):
    """A sentence that may answer the question, without a model."""

    source: Annotated[Place, Meta(description="the N of [Source N] in the prompt")]
    text: str
    cosine: Cosine
    words: Annotated[float, Meta(ge=0, le=1, description="share of the question's words that the sentence contains")]
    source_cosine: Cosine
    score: Annotated[float, Meta(description="weighted sum of the other three scores; the best sentences are chosen")]
    chosen: Annotated[bool, Meta(description="true if the answer quotes this sentence of the source")]


class GateSignals(Struct, frozen=True):
    """Why the question was answered or refused."""

    confidence: Confidence
    answers: Annotated[bool, Meta(description="whether the evidence is good enough to answer")]
    basis: Annotated[
        str, Meta(description="what decided: a calibration of the organization or the index, none, or a fixed rule")
    ]
    probability: Annotated[
        float | None, Meta(description="probability that the hits contain an answer; null for a fixed rule")
    ]
    signals: Annotated[dict[str, float], Meta(description="signal values by name, as explained in docs/retrieval.md")]


class PromptMessage(Struct, frozen=True):
    role: str
    content: str


class PlaygroundPrompt(Struct, frozen=True):
    version: Annotated[str, Meta(examples=["knowledge_answer_v1"])]
    messages: list[PromptMessage]


class PlaygroundCitation(PlaygroundPassage, frozen=True):
    number: Place
    quote: str


class PlaygroundAnswer(Struct, frozen=True):
    text: str
    refusal: Annotated[str | None, Meta(description="why the question was refused; null if it was answered")]
    confidence: Confidence
    model: str | None
    citations: list[PlaygroundCitation]


class StageTime(Struct, frozen=True):
    stage: Annotated[str, Meta(examples=["search"])]
    milliseconds: Annotated[float, Meta(ge=0)]


class PlaygroundResult(Struct, frozen=True):
    configuration: Configuration
    hits: Annotated[list[PlaygroundHit], Meta(description="best first, in the order of the search mode")]
    candidates: Annotated[int, Meta(ge=0, description="number of chunks found by dense and lexical search together")]
    sentences: Annotated[list[ScoredSentence], Meta(description="the ten best candidate sentences")]
    gate: GateSignals
    prompt: Annotated[
        PlaygroundPrompt | None,
        Meta(description="the prompt as a model would get it; null if there is nothing to send"),
    ]
    answer: PlaygroundAnswer | None
    stages: list[StageTime]


class PlaygroundResponse(Struct, frozen=True):
    question: str
    results: Annotated[list[PlaygroundResult], Meta(description="one result per configuration")]


class PlaygroundIndex(Struct, frozen=True):
    name: str
    description: str
    capability: Annotated[str, Meta(description="the capability that answers from the index")]
    source_types: list[str]
    fields: Annotated[dict[str, str], Meta(description="the filterable fields with their types")]


class PlaygroundOptions(Struct, frozen=True):
    indexes: list[PlaygroundIndex]
    organizations: Annotated[list[str], Meta(description="the slugs of your organizations")]


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
