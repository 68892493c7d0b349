"""What an administrator is shown of all conversations: figures of a period, and feedback."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct, field

from rag_app.domain.errors import InvalidInput
from rag_app.surfaces.lexybrain.types import Rating
from rag_app.surfaces.lexybrain.wire import MESSAGE, THREAD, Count, Moment, Rated, Share

LONGEST_PERIOD = 366
"""Days."""
DEFAULT_PERIOD = 30
VERSION = "ask_lexybrain_market_brief_v1"
_FIRST, _LAST = date(2000, 1, 1), date(9999, 12, 30)

Milliseconds = Annotated[float, Meta(ge=0, examples=[3421.5])]


def midnight(day: date) -> datetime:
    """When a day begins, in UTC."""
    return datetime.combine(day, time.min, UTC)


class Period(Struct, frozen=True):
    """Whole days in UTC, from `since` to `until`, both included.

    >>> Period.of(None, date(2026, 1, 31), today=date(2026, 11, 22))
    Period(since=datetime.date(2026, 1, 2), until=datetime.date(2026, 1, 31))
    """

    since: date
    until: date

    @classmethod
    def of(cls, since: date | None, until: date | None, *, today: date) -> "Period":
        """Until today, and 30 days long, where nothing else is said. Raises InvalidInput for `from` and `to`."""
        for name, day in (("from", since), ("to", until)):
            if day is not None and not _FIRST <= day <= _LAST:
                raise InvalidInput(name, str(day), f"must be between {_FIRST} and {_LAST}")
        last = today if until is None else until
        first = last - timedelta(days=DEFAULT_PERIOD - 1) if since is None else since
        if first > last:
            raise InvalidInput("from", str(first), f"must not be after `to` ({last})")
        if (last - first).days >= LONGEST_PERIOD:
            raise InvalidInput("from", str(first), f"must be at most {LONGEST_PERIOD} days up to `to` ({last})")
        return cls(first, last)


class LexyBrainTotals(Struct, frozen=True, rename="camel"):
    """Of the period. Shares and means are null where there is no answer."""

    messages: Annotated[
        Count, Meta(description="questions and answers; deleted ones too, those of deleted threads not")
    ]
    questions: Count
    answers: Count
    deleted_messages: Count
    threads: Annotated[Count, Meta(description="with a message in the period")]
    new_threads: Count
    active_users: Annotated[Count, Meta(description="who asked something")]
    input_tokens: Count
    output_tokens: Count
    cost_cents: float


class LexyBrainDay(Struct, frozen=True, rename="camel"):
    date: date
    messages: Count
    questions: Count
    answers: Count
    input_tokens: Count
    output_tokens: Count
    cost_cents: float


class PlanQuota(Struct, frozen=True, rename="camel"):
    plan: Annotated[str, Meta(examples=["free"])]
    users: Annotated[Count, Meta(description="who have this plan now")]
    active_users: Annotated[Count, Meta(description="of these, who used a message of the month")]
    messages_used: Count
    messages_available: Annotated[int | None, Meta(description="of all its users; null: without limit")]
    messages_per_user: Annotated[int | None, Meta(description="a month; null: without limit")]


class QuotaUse(Struct, frozen=True):
    """Of the month of the period's last day: a quota is monthly."""

    month: Annotated[str, Meta(examples=["2026-01"])]
    plans: list[PlanQuota]


class CapabilityShare(Struct, frozen=True):
    capability: Annotated[str | None, Meta(description="null: the question failed before it was known")]
    questions: Count
    answers: Count
    share: Annotated[Share, Meta(description="of the questions")]


class StageLatency(Struct, frozen=True):
    """In milliseconds, of answers that were made to their end; null where there is none."""

    answers: Count
    p50: Milliseconds | None
    p95: Milliseconds | None


class StageLatencies(Struct, frozen=True):
    keeping: StageLatency
    preparing: StageLatency
    retrieval: StageLatency
    generation: StageLatency
    total: StageLatency


class AnswerQuality(Struct, frozen=True, rename="camel"):
    """Null where there is no answer."""

    mean_sources: float | None
    insufficient_context_share: Share | None
    fallback_share: Share | None
    interrupted_share: Share | None


class Satisfaction(Struct, frozen=True, rename="camel"):
    """What users think of the period's answers, whenever they said it."""

    positive: Count
    negative: Count
    neutral: Count
    positive_share: Annotated[Share | None, Meta(description="of all that are rated; null where none is")]
    rated_share: Annotated[Share | None, Meta(description="of the answers; null where there is none")]


class PromptArm(Struct, frozen=True, rename="camel"):
    """The period's answers that were given with a version; each counts for its global one and its capability's."""

    type: str
    prompt: Annotated[str, Meta(examples=[VERSION])]
    answers: Count
    mean_sources: float
    insufficient_context_share: Share
    fallback_share: Share
    positive: Count
    negative: Count
    neutral: Count
    latency_ms: StageLatency
    mean_cost_cents: float | None


class FailureCount(Struct, frozen=True):
    kind: Annotated[str, Meta(examples=["ModelTimeout"])]
    count: Count


class LexyBrainStats(Struct, frozen=True, rename="camel"):
    from_: date = field(name="from")
    to: date
    totals: LexyBrainTotals
    days: Annotated[list[LexyBrainDay], Meta(description="each day of the period, also those without a message")]
    quota: QuotaUse
    capabilities: Annotated[list[CapabilityShare], Meta(description="the most asked for first")]
    latency_ms: StageLatencies
    answers: AnswerQuality
    satisfaction: Satisfaction
    prompts: list[PromptArm]
    failures: Annotated[list[FailureCount], Meta(description="the most frequent first")]


class FeedbackFilter(Struct, frozen=True, omit_defaults=True):
    """None is all. `prompt` is the name of a version; `since` and `until` whole days in UTC, both included."""

    rating: Rating | None = None
    capability: str | None = None
    prompt: str | None = None
    since: date | None = field(default=None, name="from")
    until: date | None = field(default=None, name="to")


class ReviewedSource(Struct, frozen=True):
    label: str
    cited: bool


class FeedbackReview(Struct, frozen=True, rename="camel"):
    id: UUID
    user_id: UUID
    thread_id: Annotated[UUID, Meta(examples=[THREAD])]
    message_id: Annotated[UUID, Meta(description="the answer's", examples=[MESSAGE])]
    rating: Rated
    comment: str | None
    expected_source_id: Annotated[UUID | None, Meta(description="what should have been among the sources")]
    created_at: Moment
    updated_at: Moment
    question: Annotated[str | None, Meta(description="the user's last message before; null where it was deleted")]
    answer: str
    answered_at: Moment
    capability: str | None
    model: str | None
    prompts: Annotated[dict[str, str], Meta(description="names of versions, by type", examples=[{"global": VERSION}])]
    sources: list[ReviewedSource]


class FeedbackResponse(Struct, frozen=True, rename="camel"):
    feedback: Annotated[list[FeedbackReview], Meta(description="the newest first")]
    next_cursor: Annotated[str | None, Meta(description="`cursor` of the next page; null where this is the last")]
