"""The way from a question to an answer, as values."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct, field

from rag_app.domain.days import Period
from rag_app.domain.errors import RagError
from rag_app.domain.filters import Filters
from rag_app.domain.source import JsonObject, MetadataValue, passage_link


class Mode(StrEnum):
    """How hits are found: by meaning, by words, or by both, fused."""

    HYBRID = "hybrid"
    DENSE = "dense"
    TEXT = "text"


class Instructions(Struct, frozen=True):
    """What the asker's side wants of the model, besides question and context.

    `values` are the other variables of the capability's prompt. `max_tokens` (of the answer) and `temperature` (0..2)
    are the model's own where they are None.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    max_tokens: int | None = None
    temperature: float | None = None


class Question(Struct, frozen=True):
    """What is asked, and how many hits are wanted (`top_k`).

    `threshold` cuts hits below that cosine similarity (-1..1); None cuts nothing. Records that are found by their fields
    are cut only where the request itself sends it (`threshold_sent`), not by a surface's default. `fetch` chunks are retrieved before
    the cut, as many as `top_k` where it is None.

    In a conversation: `searched` is what is looked for, where `text` alone would not find it; `also` are other wordings
    that are searched beside it, and `earlier` are sources of the answer before, which are searched by themselves, too.
    `leans`: its words refer to what was said before, so that they alone are no question about records. `restated` says
    in full what only names another thing than the question before, or points at one of it; records are asked for in the words of
    `text` first.
    `sources` are named by the asker, and come before what was found; `preferred` filters hold as well, unless they leave
    fewer than `enough` chunks. `wide` are the filters of a second look, where the first one finds no good evidence.
    `terms` are words the asker named, for an order that puts exact matches first; `at_most` so many sources of a type
    are kept.

    `today` is the asker's day, where it is None the pipeline says it. `period` are the days that its words mean, those of
    `filters` where these have dates of their own: None where they mean none.
    """

    text: str
    filters: Filters = ()
    top_k: int = 8
    mode: Mode = Mode.HYBRID
    threshold: float | None = None
    threshold_sent: bool = True
    fetch: int | None = None
    searched: str | None = None
    also: tuple[str, ...] = ()
    earlier: tuple[UUID, ...] = ()
    leans: bool = False
    restated: str = ""
    sources: tuple[UUID, ...] = ()
    preferred: Filters = ()
    enough: int = 5
    wide: Filters | None = None
    terms: tuple[str, ...] = ()
    at_most: tuple[tuple[str, int], ...] = ()
    instructions: Instructions = Instructions()
    today: date | None = None
    period: Period | None = None


class Hit(Struct, frozen=True):
    """A chunk that a query found.

    `score` is the cosine similarity of question and chunk (-1..1), whatever found it. Hits come best first;
    in hybrid and text mode that is not the order of their scores. `external_id`, `file_name`, `row`, `sheet` and
    `untyped` are those of its source; chunks that an earlier release wrote have none. `foreign`: another retriever than
    ours found it, and what it did not say of it is filled in.
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
    external_id: str | None = None
    file_name: str | None = None
    untyped: JsonObject = field(default_factory=dict)
    foreign: bool = False
    row: int | None = None
    sheet: str | None = None

    @property
    def link(self) -> str:
        """The path that opens its passage."""
        return passage_link(self.source_id, self.chunk_id)

    @property
    def sent_metadata(self) -> JsonObject:
        """The source's metadata as they were sent: declared ones in their types, times as they were written."""
        return {**self.metadata, **self.untyped}

    @property
    def relevance(self) -> float:
        """The score as it is shown: clipped to 0..1, four digits."""
        return round(min(1.0, max(0.0, self.score)), 4)

    @property
    def moment(self) -> datetime | None:
        """Its date, in UTC."""
        return None if self.date is None else datetime.fromtimestamp(self.date, UTC)


class Confidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class SupportingPassage(Struct, frozen=True):
    """The passage is `hit.text[start:end]`; a `quote` that is cut ends with an ellipsis."""

    hit: Hit
    quote: str
    start: int = 0
    end: int = 0

    @property
    def chunk_id(self) -> UUID:
        return self.hit.chunk_id


class Citation(Struct, frozen=True):
    """`[Source number]` in the text of an answer stands for `hit`; `quote` is the passage that supports it.

    The passage is `hit.text[start:end]`; a quote that is cut ends with an ellipsis. Where the text has `[Source number]`
    several times for different passages of the source, `passages` has one for each, in the order of the text.
    """

    number: int
    hit: Hit
    quote: str
    start: int = 0
    end: int = 0
    passages: tuple[SupportingPassage, ...] = ()


class ShownSource(Struct, frozen=True):
    """What a model was shown of one source: `text` is its block of the prompt, as it stood there.

    `cited` is the number by which the answer cites it, which need not be that of the block; None where it does not.
    """

    source: UUID
    source_type: str
    label: str
    text: str
    cited: int | None = None


class Usage(Struct, frozen=True):
    """Tokens that a model counted for one answer."""

    input_tokens: int
    output_tokens: int


class Look(StrEnum):
    """Where an answer's evidence was found."""

    FIRST = "first"  # with the question's own filters, which of a conversation are those of its capability
    ALL_TYPES = "all_types"  # among all source types, as the first look found too little


class Refusal(StrEnum):
    """Why no answer was given."""

    NOTHING_FOUND = "nothing_found"  # no hit that reaches the question's threshold
    WEAK = "weak"  # hits, but none good enough for the index's confidence rule
    UNCITED = "uncited"  # no claim of what a model wrote is supported by what was found
    ADMITTED = "admitted"  # it said that it lacks the information
    FAILED = "failed"  # the model did not answer; the text says what was found
    COURTESY = "courtesy"  # a greeting or thanks, returned: nothing was asked


class Answer(Struct, frozen=True):
    """An answer, or a refusal: then `refusal` says why, `text` is its words and `model` is None.

    `hits` are those it was made from the best of; `retrieved` chunks were found before the question's threshold cut
    some, `above_threshold` reached it. `citations` are what the text refers to, numbered from 1 without gaps (when
    refused: the best hit of each source); `average_relevance` is the mean of the five best scores. `usage` is what a
    model was paid for, even where its answer was refused.

    Where a capability copes with failures (`Capability.failure_text`), `failures` are those of its parts, and
    `complete` is False where a model fell silent in the middle: the text is what it had said by then. `seconds` is how
    long each stage took: "retrieval", "generation". `asked` is the model that wrote, also where that was refused, and
    `prompt` the version of the prompt that it was sent. `shown` is what the answer was written from, in the order of the
    prompt; empty when refused. `look` says where `hits` come from, `searched` the text that found them: with the spelling
    put right, perhaps. `removed` sentences of what was written are left out: no source supports them. `understood` says
    what was asked of records, where that is what was answered: "your 4 listings, bestseller first". `elsewhen` is the period
    that an answer is about where nothing is recorded for the one that was asked for; the text begins with saying so.

    `probability` (0..1) is the judge's that the hits hold an answer, None where a fixed rule compared a cosine.
    `warnings` say what did not go as configured and changed nothing else, such as reranking that failed, and that the
    confidence is uncalibrated.
    `calibration` is what it was fitted to: "organization", "index", "uncalibrated" (neither), or "fixed".
    """

    text: str
    confidence: Confidence
    model: str | None
    generated_at: datetime
    hits: tuple[Hit, ...] = ()
    citations: tuple[Citation, ...] = ()
    average_relevance: float = 0.0
    usage: Usage | None = None
    refusal: Refusal | None = None
    retrieved: int = 0
    above_threshold: int = 0
    failures: tuple[RagError, ...] = ()
    complete: bool = True
    seconds: Mapping[str, float] = field(default_factory=dict)
    asked: str | None = None
    prompt: str | None = None
    shown: tuple[ShownSource, ...] = ()
    look: Look = Look.FIRST
    searched: str = ""
    probability: float | None = None
    calibration: str = "fixed"
    removed: int = 0
    understood: str = ""
    warnings: tuple[str, ...] = ()
    elsewhen: Period | None = None

    @property
    def refused(self) -> bool:
        return self.refusal is not None

    @property
    def courtesy(self) -> bool:
        """Whether it returns a greeting or thanks: of a message that asks nothing."""
        return self.refusal is Refusal.COURTESY


class FoundHits(Struct, frozen=True):
    """The beginning of a streamed answer: the hits it will be made from, best first."""

    hits: tuple[Hit, ...]


class Delta(Struct, frozen=True):
    """A piece of a streamed answer: its citations are checked, and it is not taken back.

    `citations` are those of all that has come by now, for who has to do without the rest.
    """

    text: str
    citations: tuple[Citation, ...] = ()


Event = FoundHits | Delta | Answer
"""What a streamed answer consists of: FoundHits, then the text in Deltas, then the whole Answer."""
