"""What administrators of Ask LexyBrain send and get, as JSON has it."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, field, to_builtins

from rag_app.answering.roles import PromptConfig, PromptVersion
from rag_app.surfaces.lexybrain.figures import Figures, Latency, Review
from rag_app.surfaces.lexybrain.rules import MESSAGE, THREAD
from rag_app.surfaces.lexybrain.thread_routes import Moment, Rated
from rag_app.surfaces.lexybrain.types import Rating

VERSION = "ask_lexybrain_market_brief_v1"

Capability = Literal["market_brief", "competitor_intel", "keyword_explanation", "alert_explanation", "general_chat"]
Kind = Literal["global", "market_brief", "competitor_intel", "keyword_explanation", "alert_explanation", "general_chat"]
SourceScope = Literal[
    "keywords", "keyword_history", "trends", "listings", "shops", "alerts", "risk_rules", "docs", "user_keywords",
    "user_watchlists", "watchlists",
]  # fmt: skip
Share = Annotated[float, Meta(ge=0, le=1)]
Milliseconds = Annotated[float, Meta(ge=0, examples=[3421.5])]
Count = Annotated[int, Meta(ge=0)]
Weight = Annotated[
    int, Meta(ge=0, le=1_000_000, description="a whole number from 0 to 1000000: its share among the active ones")
]
# as `prompts add` has it: text and line breaks, and something in it that is not white space
_UNPRINTABLE = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029"
_INSTRUCTIONS = rf"^[^{_UNPRINTABLE}]*[^\s{_UNPRINTABLE}\ufeff][^{_UNPRINTABLE}]*$"
_AT_MOST = Meta(ge=1, le=100, description="a whole number from 1 to 100: sources of this type in an answer")


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


class PromptConstraints(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """As files of prompts write them: docs/prompts.md."""

    temperature: Annotated[float, Meta(ge=0, le=2, description="a number from 0 to 2")] | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=16, le=4096, description="a whole number from 16 to 4096")] | UnsetType = UNSET
    retrieval_scope: (
        Annotated[
            list[SourceScope],
            Meta(min_length=1, description=f"a list, not empty, of: {', '.join(get_args(SourceScope))}"),
        ]
        | UnsetType
    ) = UNSET
    max_keywords: Annotated[int, _AT_MOST] | UnsetType = UNSET
    max_related_keywords: Annotated[int, _AT_MOST] | UnsetType = UNSET
    max_listings: Annotated[int, _AT_MOST] | UnsetType = UNSET
    max_alerts: Annotated[int, _AT_MOST] | UnsetType = UNSET


class NewPrompt(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[
        str,
        Meta(
            pattern=r"^ask_lexybrain_[a-z0-9_]{1,80}(?!\n)$",
            description="ask_lexybrain_ and small letters, digits or _, such as ask_lexybrain_market_brief_v2",
            examples=["ask_lexybrain_market_brief_v2"],
        ),
    ]
    type: Annotated[Kind, Meta(description=f"one of {', '.join(get_args(Kind))}")]
    instructions: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=20_000,
            pattern=_INSTRUCTIONS,
            description="a text of at most 20000 characters, not blank, without control characters",
            examples=["Compare the markets. Begin with what changed."],
        ),
    ]
    constraints: PromptConstraints = PromptConstraints()
    weight: Weight = 1
    active: Annotated[bool, Meta(description="true or false: whether new threads get it at once")] = False

    def config(self) -> PromptConfig:
        return PromptConfig(
            self.name, self.type, self.instructions.strip(), to_builtins(self.constraints), self.weight, self.active
        )


class PromptChange(Struct, frozen=True, forbid_unknown_fields=True):
    """At least one of them. The text of a version never changes."""

    active: Annotated[bool, Meta(description="true or false")] | UnsetType = UNSET
    weight: Weight | UnsetType = UNSET


class PromptInfo(Struct, frozen=True, rename="camel"):
    name: Annotated[str, Meta(examples=[VERSION])]
    type: str
    instructions: str
    constraints: dict[str, Any]
    active: bool
    weight: Count
    share: Annotated[Share, Meta(description="of new threads that get it")]
    threads: Annotated[Count, Meta(description="that have it now")]
    created_at: Moment
    updated_at: Moment


class PromptsResponse(Struct, frozen=True):
    configs: Annotated[list[PromptInfo], Meta(description="by type and name")]


def stats_of(given: Figures) -> LexyBrainStats:
    totals, ratings = given.totals, given.totals.ratings
    rated = sum(ratings.values())
    return LexyBrainStats(
        from_=given.period.since,
        to=given.period.until,
        totals=LexyBrainTotals(
            messages=totals.questions + totals.answers,
            questions=totals.questions,
            answers=totals.answers,
            deleted_messages=totals.deleted,
            threads=totals.threads,
            new_threads=totals.new_threads,
            active_users=totals.active_users,
            input_tokens=sum(each.input_tokens for each in given.days),
            output_tokens=sum(each.output_tokens for each in given.days),
            cost_cents=_rounded(sum(each.cost_cents for each in given.days)),
        ),
        days=[
            LexyBrainDay(
                each.day,
                each.questions + each.answers,
                each.questions,
                each.answers,
                each.input_tokens,
                each.output_tokens,
                _rounded(each.cost_cents),
            )
            for each in given.days
        ],
        quota=QuotaUse(
            f"{given.month:%Y-%m}",
            [
                PlanQuota(
                    each.plan,
                    each.users,
                    each.active,
                    each.used,
                    None if each.messages < 0 else each.messages * each.users,
                    None if each.messages < 0 else each.messages,
                )
                for each in given.plans
            ],
        ),
        capabilities=[
            CapabilityShare(
                each.capability, each.questions, each.answers, _share(each.questions, totals.questions) or 0
            )
            for each in given.capabilities
        ],
        latency_ms=StageLatencies(**{stage: _latency(each) for stage, each in given.latency.items()}),
        answers=AnswerQuality(
            *(
                None if each is None else _rounded(each)
                for each in (totals.sources, totals.insufficient_context, totals.fallback, totals.interrupted)
            )
        ),
        satisfaction=Satisfaction(
            **_by_rating(ratings),
            positive_share=_share(ratings[Rating.POSITIVE], rated),
            rated_share=_share(rated, totals.answers),
        ),
        prompts=[
            PromptArm(
                type=each.type,
                prompt=each.prompt,
                answers=each.answers,
                mean_sources=_rounded(each.sources),
                insufficient_context_share=_rounded(each.insufficient_context),
                fallback_share=_rounded(each.fallback),
                **_by_rating(each.ratings),
                latency_ms=_latency(each.latency),
                mean_cost_cents=None if each.cost_cents is None else _rounded(each.cost_cents),
            )
            for each in given.arms
        ],
        failures=[FailureCount(kind, count) for kind, count in given.failures.items()],
    )


def _latency(given: Latency) -> StageLatency:
    return StageLatency(given.answers, *(None if each is None else round(each, 1) for each in (given.p50, given.p95)))


def _by_rating(ratings: Mapping[Rating, int]) -> dict[str, int]:
    return {each.value: ratings[each] for each in Rating}


def _share(part: int, whole: int) -> float | None:
    return _rounded(part / whole) if whole else None


def _rounded(figure: float) -> float:
    return round(figure, 4)


def review_of(given: Review) -> FeedbackReview:
    return FeedbackReview(
        id=given.id,
        user_id=given.user,
        thread_id=given.thread,
        message_id=given.message,
        rating=given.rating.value,
        comment=given.comment,
        expected_source_id=given.expected_source,
        created_at=given.created_at,
        updated_at=given.updated_at,
        question=given.question,
        answer=given.answer,
        answered_at=given.answered_at,
        capability=given.capability,
        model=given.model,
        prompts=dict(given.prompts),
        sources=[ReviewedSource(label, cited) for label, cited in given.sources],
    )


def prompt_of(given: PromptVersion) -> PromptInfo:
    config = given.config
    return PromptInfo(
        name=config.name,
        type=config.type,
        instructions=config.instructions,
        constraints=dict(config.constraints),
        active=config.active,
        weight=config.weight,
        share=_rounded(given.share),
        threads=given.threads,
        created_at=given.created_at,
        updated_at=given.updated_at,
    )
