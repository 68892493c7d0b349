"""Use by user, month and day. It comes from the usage events of answers, in conversations and outside."""

import re
from datetime import UTC, date, datetime, timedelta

from msgspec import convert
from sqlalchemy import Date, DateTime, Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from rag_app.access.audit import EVERYBODY, Act, administering
from rag_app.database.session import Database
from rag_app.domain import PUBLIC_ORGANIZATION, InvalidInput, Principal, frozen
from rag_app.evaluation.kept_answers import ANSWER_EVENT, REFUSAL_EVENT
from rag_app.surfaces.lexybrain.statistics import Period, midnight
from rag_app.surfaces.management.types import (
    MONTH,
    AuditEntry,
    AuditResponse,
    OrganizationUsage,
    TrendDay,
    TrendsResponse,
    UsageResponse,
    UserUsage,
)

_MOMENTS = (bindparam("since", type_=DateTime(timezone=True)), bindparam("until", type_=DateTime(timezone=True)))
_EACH_DAY = """
    SELECT date, coalesce(users, 0) AS users, coalesce(answers, 0) AS answers, coalesce(refused, 0) AS refused,
        coalesce(positive, 0) AS positive, coalesce(negative, 0) AS negative, coalesce(cost, 0) AS cost_cents,
        p50 AS latency_p50, p95 AS latency_p95
    FROM (
        SELECT (:since AT TIME ZONE 'UTC')::date + n AS date FROM generate_series(
            0, (:until AT TIME ZONE 'UTC')::date - (:since AT TIME ZONE 'UTC')::date - 1
        ) AS n
    ) AS period
"""
"""What is told of each day of a period: it is joined to what there was on some of them."""
_DAYS = text(
    f"""
    WITH answered AS (
        SELECT (m.created_at AT TIME ZONE 'UTC')::date AS date, rating,
            flags ->> 'insufficientContext' = 'true' AND flags ->> 'courtesy' IS DISTINCT FROM 'true' AS refused
        FROM rag_messages m LEFT JOIN rag_feedback f ON f.message_id = m.id
        WHERE role = 'assistant' AND m.created_at >= :since AND m.created_at < :until
    ), answers AS (
        SELECT date, count(*) AS answers, count(*) FILTER (WHERE refused) AS refused,
            count(*) FILTER (WHERE rating = 'positive') AS positive, count(*) FILTER (WHERE rating = 'negative') AS negative
        FROM answered GROUP BY date
    ), asking AS (
        SELECT (m.created_at AT TIME ZONE 'UTC')::date AS date, count(DISTINCT user_id) AS users
        FROM rag_messages m JOIN rag_threads t ON t.id = thread_id
        WHERE role = 'user' AND m.created_at >= :since AND m.created_at < :until GROUP BY 1
    ), took AS (
        SELECT (created_at AT TIME ZONE 'UTC')::date AS date, sum(cost_cents)::float8 AS cost,
            percentile_cont(0.5) WITHIN GROUP (ORDER BY total) FILTER (WHERE whole) AS p50,
            percentile_cont(0.95) WITHIN GROUP (ORDER BY total) FILTER (WHERE whole) AS p95
        FROM (
            SELECT *, (stages ->> 'total')::int AS total, stages ? 'generation' AS whole FROM ai_usage_events
        ) AS e WHERE type = 'rag_message' AND created_at >= :since AND created_at < :until GROUP BY 1
    )
    {_EACH_DAY} LEFT JOIN answers USING (date) LEFT JOIN asking USING (date) LEFT JOIN took USING (date) ORDER BY date
    """
).bindparams(*_MOMENTS)
_DAYS_OUTSIDE = text(
    f"""
    WITH took AS (
        SELECT (created_at AT TIME ZONE 'UTC')::date AS date, count(*) AS answers,
            count(*) FILTER (WHERE type = :refused) AS refused, count(DISTINCT user_id) AS users,
            sum(cost_cents)::float8 AS cost, percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_ms) AS p50,
            percentile_cont(0.95) WITHIN GROUP (ORDER BY latency_ms) AS p95
        FROM ai_usage_events WHERE type IN (:answered, :refused) AND capability = :capability
            AND created_at >= :since AND created_at < :until GROUP BY 1
    ), rated AS (
        SELECT (asked_at AT TIME ZONE 'UTC')::date AS date, count(*) FILTER (WHERE verdict = 'right') AS positive,
            count(*) FILTER (WHERE verdict = 'wrong') AS negative
        FROM kept_answers WHERE verdict IS NOT NULL AND capability = :capability
            AND asked_at >= :since AND asked_at < :until GROUP BY 1
    )
    {_EACH_DAY} LEFT JOIN took USING (date) LEFT JOIN rated USING (date) ORDER BY date
    """
).bindparams(*_MOMENTS, answered=ANSWER_EVENT, refused=REFUSAL_EVENT)
_USERS = text(
    """
    SELECT u.id, u.name, u.role, u.plan_code AS plan, coalesce(c.used, 0) AS messages_used,
        nullif(p.rag_messages_per_month, -1) AS messages_per_month, coalesce(e.answers, 0) AS answers,
        coalesce(e.tokens_in, 0) AS input_tokens, coalesce(e.tokens_out, 0) AS output_tokens,
        coalesce(e.cost, 0) AS cost_cents, e.last AS last_answer_at
    FROM users u JOIN plan_entitlements p USING (plan_code)
    LEFT JOIN usage_counters c ON c.user_id = u.id AND c.key = 'rag_messages' AND c.period = :month
    LEFT JOIN (
        SELECT user_id, count(*) AS answers, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out,
            sum(cost_cents)::float8 AS cost, max(created_at) AS last
        FROM ai_usage_events WHERE type = 'rag_message' AND created_at >= :since AND created_at < :until GROUP BY user_id
    ) e ON e.user_id = u.id
    WHERE NOT EXISTS (SELECT FROM api_keys k WHERE k.user_id = u.id) OR c.used > 0 OR e.answers > 0
    ORDER BY messages_used DESC, answers DESC, u.name LIMIT 500
    """
).bindparams(bindparam("month", type_=Date()), *_MOMENTS)
_ORGANIZATIONS = text(
    """
    SELECT slug, name, coalesce(tokens, 0) AS tokens, monthly_token_budget AS token_budget
    FROM organizations LEFT JOIN organization_tokens ON org_id = id AND period = :month
    WHERE id = ANY(:mine) AND id <> :public ORDER BY slug
    """
).bindparams(bindparam("month", type_=Date()), bindparam("mine", type_=ARRAY(Uuid())), public=PUBLIC_ORGANIZATION)
_AUDIT = text(
    """
    SELECT a.id, coalesce(u.name, actor_id::text) AS actor, a.action, a.subject, a.details, a.created_at AS at
    FROM audit_events a LEFT JOIN users u ON u.id = actor_id
    WHERE a.id < coalesce(:before, 9223372036854775807) AND a.action = coalesce(CAST(:action AS text), a.action)
    ORDER BY a.id DESC LIMIT :most
    """
)


@frozen
class Usage:
    """For administrators; each read is audited. Everything raises Forbidden for others."""

    _database: Database

    async def trends(
        self, principal: Principal, since: date | None, until: date | None, capability: str | None = None
    ) -> TrendsResponse:
        """Figures by day, by default of the last 30, for conversations or for a capability outside of them.

        Raises InvalidInput for an invalid period.
        """
        period = Period.from_days(since, until, today=datetime.now(UTC).date())
        values = {"since": midnight(period.since), "until": midnight(period.until) + timedelta(days=1)}
        about = {} if capability is None else {"capability": capability}
        act = Act("trends.read", EVERYBODY, {"from": str(period.since), "to": str(period.until), **about})
        async with administering(self._database, principal, act) as session:
            rows = (await session.execute(_DAYS_OUTSIDE if about else _DAYS, values | about)).mappings().all()
        return TrendsResponse([convert(dict(each), TrendDay) for each in rows])

    async def month(self, principal: Principal, month: str | None) -> UsageResponse:
        """The 500 users with the most use, and the principal's organizations. `month`: 2026-01; by default the present one."""
        first = first_day(month)
        next_month = (first.replace(day=28) + timedelta(days=4)).replace(day=1)
        values = {"month": first, "since": midnight(first), "until": midnight(next_month)}
        mine = {"month": first, "mine": list(principal.organizations)}
        act = Act("usage.read", EVERYBODY, {"month": f"{first:%Y-%m}"})
        async with administering(self._database, principal, act) as session:
            users = (await session.execute(_USERS, values)).mappings().all()
            organizations = (await session.execute(_ORGANIZATIONS, mine)).mappings().all()
        return UsageResponse(
            f"{first:%Y-%m}",
            [convert(dict(each), UserUsage) for each in users],
            [convert(dict(each), OrganizationUsage) for each in organizations],
        )

    async def audit(self, principal: Principal, *, limit: int, before: int | None, action: str | None) -> AuditResponse:
        """The audit events, newest first; `before` is a page's `next`."""
        act = Act("audit.read", EVERYBODY, {} if action is None else {"action": action})
        values = {"before": before, "action": action, "most": limit + 1}
        async with administering(self._database, principal, act) as session:
            rows = (await session.execute(_AUDIT, values)).mappings().all()
        page = [convert(dict(each), AuditEntry) for each in rows[:limit]]
        return AuditResponse(page, page[-1].id if len(rows) > limit else None)


def first_day(month: str | None) -> date:
    """The first day of a month; of the present one (UTC) for None. Raises InvalidInput.

    >>> first_day("2026-02")
    datetime.date(2026, 2, 1)
    >>> first_day("9999-12")
    Traceback (most recent call last):
    rag_app.domain.errors.InvalidInput: month: must be a month, such as 2026-01
    """
    if month is None:
        return datetime.now(UTC).date().replace(day=1)
    if not re.fullmatch(MONTH, month):
        raise InvalidInput("month", month[:20], "must be a month, such as 2026-01")
    return date.fromisoformat(f"{month}-01")
