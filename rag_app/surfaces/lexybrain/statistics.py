"""Figures of all conversations in a period, for administrators. docs/surfaces/lexybrain-admin.md says which rows count for
which.

Deleted messages count, because they were written and answered; those of deleted threads do not exist any more. The use
of models (`ai_usage_events`) stays. Percentiles are PostgreSQL's `percentile_cont`: interpolated between two neighbours.
"""

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, get_args

from msgspec import Meta, Struct, convert, field
from sqlalchemy import Date, DateTime, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB

from rag_app.access.audit import EVERYBODY, Act, administrator_session
from rag_app.database.session import Database
from rag_app.domain import InvalidInput, Principal
from rag_app.surfaces.lexybrain.types import Count, Rating, Share

LONGEST_PERIOD = 366
"""Days."""
DEFAULT_PERIOD = 30
VERSION = "ask_lexybrain_market_brief_v1"
_FIRST, _LAST = date(2000, 1, 1), date(9999, 12, 30)

Milliseconds = Annotated[float, Meta(ge=0, examples=[3421.5])]


def midnight(day: date) -> datetime:
    """The beginning of a day, in UTC."""
    return datetime.combine(day, time.min, UTC)


def bounded_period(since: date | None, until: date | None, *, today: date) -> tuple[date, date]:
    """Whole days in UTC, both included; the default is the 30 days until today. Raises InvalidInput for `from` and `to`.

    >>> bounded_period(None, date(2026, 1, 31), today=date(2026, 11, 22))
    (datetime.date(2026, 1, 2), datetime.date(2026, 1, 31))
    """
    for name, day in (("from", since), ("to", until)):
        if day is not None and not _FIRST <= day <= _LAST:
            raise InvalidInput(name, str(day), f"must be between {_FIRST} and {_LAST}")
    last = today if until is None else until
    first = last - timedelta(days=DEFAULT_PERIOD - 1) if since is None else since
    if first > last:
        raise InvalidInput("from", str(first), f"must not be after `to` ({last})")
    if (last - first).days >= LONGEST_PERIOD:
        raise InvalidInput("from", str(first), f"must be at most {LONGEST_PERIOD} days up to `to` ({last})")
    return first, last


class LexyBrainTotals(Struct, frozen=True, rename="camel"):
    """Of the period. Shares and means are null where there is no answer."""

    messages: Annotated[
        Count, Meta(description="questions and answers, including deleted messages but not those of deleted threads")
    ]
    questions: Count
    answers: Count
    deleted_messages: Count
    threads: Annotated[Count, Meta(description="threads with at least one message in the period")]
    new_threads: Count
    active_users: Annotated[Count, Meta(description="users who asked at least one question")]
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
    users: Annotated[Count, Meta(description="users who have this plan now")]
    active_users: Annotated[Count, Meta(description="users of this plan who used at least one message this month")]
    messages_used: Count
    messages_available: Annotated[int | None, Meta(description="total for all users of the plan; null means unlimited")]
    messages_per_user: Annotated[int | None, Meta(description="messages per user and month; null means unlimited")]


class QuotaUse(Struct, frozen=True):
    """Of the month of the period's last day: a quota is monthly."""

    month: Annotated[str, Meta(examples=["2026-01"])]
    plans: list[PlanQuota]


class CapabilityShare(Struct, frozen=True):
    capability: Annotated[str | None, Meta(description="null if the question failed before its capability was known")]
    questions: Count
    answers: Count
    share: Annotated[Share, Meta(description="share of all questions")]


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
    positive_share: Annotated[
        Share | None, Meta(description="share of rated answers with a positive rating; null if no answer is rated")
    ]
    rated_share: Annotated[
        Share | None, Meta(description="share of answers that are rated; null if there are no answers")
    ]


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
    days: Annotated[
        list[LexyBrainDay], Meta(description="one entry per day of the period, including days without messages")
    ]
    quota: QuotaUse
    capabilities: Annotated[list[CapabilityShare], Meta(description="most used first")]
    latency_ms: StageLatencies
    answers: AnswerQuality
    satisfaction: Satisfaction
    prompts: list[PromptArm]
    failures: Annotated[list[FailureCount], Meta(description="most frequent first")]


# Hashing is right here whatever is known of the tables, and nested loops are ruinous where nothing is yet; to plan it anew
# for each period, or to compile its expressions, takes longer than it saves.
_PLAN = text(
    "SELECT set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true),"
    " set_config('enable_sort', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"
)

_STAGES = StageLatencies.__struct_fields__
_RATINGS = ", ".join(f"count(*) FILTER (WHERE rating = '{each}') AS {each}" for each in get_args(Rating))
_MESSAGES = "m.created_at >= :since AND m.created_at < :until"
_STAGE_COLUMNS = ", ".join(f"(stages -> '{stage}')::int AS {stage}" for stage in _STAGES)
_FLAGS = ", ".join(
    f"(flags ->> '{flag}' = 'true')::int AS {name}"
    for flag, name in (
        ("insufficientContext", "insufficient"),
        ("fallbackToGeneric", "fallback"),
        ("interrupted", "interrupted"),
    )
)


def _latency(values: str) -> str:
    cuts = (f"'p{n}', percentile_cont(0.{n}) WITHIN GROUP (ORDER BY {values})" for n in (50, 95))
    return f"jsonb_build_object('answers', count({values}), {', '.join(cuts)})"


def _list(order: str) -> str:
    return f"coalesce(jsonb_agg(to_jsonb(each) ORDER BY {order}), '[]')"


# One statement: all figures are of the same moment. Each row is a part of LexyBrainStats, with the names it has there. An
# event is recorded with its message and begun a moment before it. An answer that was made to its end has the stage
# "generation": the total of any other is how long somebody waited.
_FIGURES = (
    text(
        f"""
        WITH took AS MATERIALIZED (
            SELECT message_id, created_at, tokens_in, tokens_out, cost_cents, {_STAGE_COLUMNS}
            FROM ai_usage_events
            WHERE type = 'rag_message' AND created_at >= :since - interval '1 hour' AND created_at < :until
        ), answered AS MATERIALIZED (
            SELECT id, capability, generation_metadata -> 'prompts' AS prompts, rating,
                jsonb_array_length(retrieved_source_ids) AS sources, {_FLAGS}
            FROM rag_messages m LEFT JOIN (SELECT message_id, rating FROM rag_feedback) f ON message_id = m.id
            WHERE role = 'assistant' AND {_MESSAGES}
        ), said AS MATERIALIZED (
            SELECT (m.created_at AT TIME ZONE 'UTC')::date AS date, capability,
                count(*) FILTER (WHERE role = 'user') AS questions, count(*) FILTER (WHERE role = 'assistant') AS answers,
                count(deleted_at) AS deleted
            FROM rag_messages m WHERE {_MESSAGES} GROUP BY 1, capability
        ), days AS MATERIALIZED (
            SELECT date, coalesce(questions, 0) + coalesce(answers, 0) AS messages, coalesce(questions, 0) AS questions,
                coalesce(answers, 0) AS answers, coalesce(deleted, 0) AS deleted, coalesce(tokens_in, 0) AS "inputTokens",
                coalesce(tokens_out, 0) AS "outputTokens", coalesce(cost_cents, 0) AS "costCents"
            FROM (
                SELECT (:since AT TIME ZONE 'UTC')::date + n AS date FROM generate_series(
                    0, (:until AT TIME ZONE 'UTC')::date - (:since AT TIME ZONE 'UTC')::date - 1
                ) AS n
            ) AS period LEFT JOIN (
                SELECT date, sum(questions) AS questions, sum(answers) AS answers, sum(deleted) AS deleted
                FROM said GROUP BY date
            ) AS s USING (date) LEFT JOIN (
                SELECT (created_at AT TIME ZONE 'UTC')::date AS date, sum(tokens_in) AS tokens_in,
                    sum(tokens_out) AS tokens_out, sum(cost_cents) AS cost_cents
                FROM took WHERE created_at >= :since GROUP BY 1
            ) AS t USING (date)
        )
        SELECT 'totals' AS part, to_jsonb(of_days) || to_jsonb(of_threads) AS figures FROM (
            SELECT sum(messages) AS messages, sum(questions) AS questions, sum(answers) AS answers,
                sum(deleted) AS "deletedMessages", sum("inputTokens") AS "inputTokens",
                sum("outputTokens") AS "outputTokens", sum("costCents") AS "costCents"
            FROM days
        ) AS of_days, (
            SELECT count(*) AS threads, count(DISTINCT user_id) FILTER (WHERE asked) AS "activeUsers",
                (SELECT count(*) FROM rag_threads WHERE created_at >= :since AND created_at < :until) AS "newThreads"
            FROM (
                SELECT thread_id, bool_or(role = 'user') AS asked FROM rag_messages m WHERE {_MESSAGES} GROUP BY thread_id
            ) AS spoken JOIN rag_threads t ON t.id = thread_id
        ) AS of_threads
        UNION ALL SELECT 'days', {_list("date")} FROM days AS each
        UNION ALL SELECT 'quota', jsonb_build_object(
            'month', to_char(CAST(:month AS date), 'YYYY-MM'), 'plans', {_list('plan COLLATE "C"')}
        ) FROM (
            SELECT plan_code AS plan, count(u.id) AS users, count(u.id) FILTER (WHERE c.used > 0) AS "activeUsers",
                coalesce(sum(c.used), 0) AS "messagesUsed", nullif(rag_messages_per_month, -1) AS "messagesPerUser",
                nullif(rag_messages_per_month, -1) * count(u.id) AS "messagesAvailable"
            FROM plan_entitlements LEFT JOIN users u USING (plan_code)
            LEFT JOIN usage_counters c ON c.user_id = u.id AND c.key = 'rag_messages' AND c.period = :month
            GROUP BY plan_code
        ) AS each
        UNION ALL SELECT 'capabilities', {_list('questions DESC, capability IS NULL, capability COLLATE "C"')} FROM (
            SELECT capability, sum(questions) AS questions, sum(answers) AS answers,
                coalesce(sum(questions) / nullif(sum(sum(questions)) OVER (), 0), 0) AS share
            FROM said GROUP BY capability
        ) AS each
        UNION ALL SELECT 'latencyMs', to_jsonb(each) FROM (
            SELECT {", ".join(f"{_latency(stage)} AS {stage}" for stage in _STAGES)}
            FROM took WHERE created_at >= :since AND generation IS NOT NULL
        ) AS each
        UNION ALL SELECT 'answers', to_jsonb(each) FROM (
            SELECT avg(sources) AS "meanSources", avg(coalesce(insufficient, 0)) AS "insufficientContextShare",
                avg(coalesce(fallback, 0)) AS "fallbackShare", avg(coalesce(interrupted, 0)) AS "interruptedShare"
            FROM answered
        ) AS each
        UNION ALL SELECT 'satisfaction', to_jsonb(each) FROM (
            SELECT {_RATINGS}, avg((rating = 'positive')::int) AS "positiveShare",
                avg((rating IS NOT NULL)::int) AS "ratedShare"
            FROM answered
        ) AS each
        UNION ALL SELECT 'prompts', {_list("type, prompt")} FROM (
            SELECT arm.type COLLATE "C" AS type, prompt COLLATE "C" AS prompt, count(*) AS answers,
                avg(sources) AS "meanSources", avg(coalesce(insufficient, 0)) AS "insufficientContextShare",
                avg(coalesce(fallback, 0)) AS "fallbackShare", {_RATINGS}, {_latency("total")} AS "latencyMs",
                avg(cost_cents) AS "meanCostCents"
            FROM answered LEFT JOIN (
                SELECT message_id, cost_cents, CASE WHEN generation IS NOT NULL THEN total END AS total FROM took
            ) AS t ON message_id = id, LATERAL (
                VALUES ('global', prompts ->> 'global'), (capability, prompts ->> capability)
            ) AS arm (type, prompt)
            WHERE prompt IS NOT NULL GROUP BY 1, 2
        ) AS each
        UNION ALL SELECT 'failures', {_list('count DESC, kind COLLATE "C"')} FROM (
            SELECT kind, count(*) AS count FROM ai_failures WHERE created_at >= :since AND created_at < :until
            GROUP BY kind
        ) AS each
        """
    )
    .bindparams(
        bindparam("since", type_=DateTime(timezone=True)),
        bindparam("until", type_=DateTime(timezone=True)),
        bindparam("month", type_=Date()),
    )
    .columns(figures=JSONB())
)


class Statistics(Struct, frozen=True):
    """For administrators; each read is audited."""

    _database: Database

    async def read(self, principal: Principal, since: date | None, until: date | None) -> LexyBrainStats:
        """Raises Forbidden, and InvalidInput for an invalid period."""
        first, last = bounded_period(since, until, today=datetime.now(UTC).date())
        values = {
            "since": midnight(first),
            "until": midnight(last) + timedelta(days=1),
            "month": last.replace(day=1),
        }
        details = {"from": str(first), "to": str(last)}
        async with administrator_session(
            self._database, principal, Act("statistics.read", EVERYBODY, details)
        ) as session:
            await session.execute(_PLAN)
            parts = dict((await session.execute(_FIGURES, values)).tuples().all())
        return convert({"from": first, "to": last, **round_figures(parts)}, LexyBrainStats)


def round_figures(given: Any, places: int = 4) -> Any:
    """Milliseconds have one decimal place, other numbers four."""
    match given:
        case float():
            return round(given, places)
        case list():
            return [round_figures(each) for each in given]
        case dict():
            return {name: round_figures(each, 1 if name in ("p50", "p95") else 4) for name, each in given.items()}
    return given
