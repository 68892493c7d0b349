"""What administrators see and change: members and keys of their organizations, users' feedback on all surfaces, and use."""

import re
from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from msgspec import Struct, convert, structs
from sqlalchemy import Date, DateTime, Text, Uuid, bindparam, delete, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert

from rag_app.access.audit import EVERYBODY, Act, administrator_session, record
from rag_app.access.people import Keys, Organization, People
from rag_app.answering.capabilities import CAPABILITIES, PLAIN
from rag_app.database import pages
from rag_app.database.session import Database
from rag_app.domain import PUBLIC_ORGANIZATION, InvalidInput, NotFound, Principal, require
from rag_app.evaluation.kept_answers import ANSWER_EVENT, REFUSAL_EVENT
from rag_app.surfaces.lexybrain.feedback import MESSAGE_FEEDBACK
from rag_app.surfaces.lexybrain.statistics import bounded_period, midnight
from rag_app.surfaces.management.tables import settlements_table
from rag_app.surfaces.management.types import (
    MONTH,
    AuditEntry,
    AuditResponse,
    FeedbackQueuePage,
    KeyInfo,
    KeysResponse,
    MadeKey,
    MemberInfo,
    MembersResponse,
    OrganizationInfo,
    OrganizationsResponse,
    OrganizationUsage,
    QueuedFeedback,
    TrendDay,
    TrendsResponse,
    UsageResponse,
    UserUsage,
)

# -- members and keys


class Belonging:
    """For administrators, who see and change what belongs to organizations of their own alone; all of it is written down.

    Everything that names an organization raises NotFound for one that is not the principal's, and everything Forbidden
    for whom is no administrator.
    """

    def __init__(self, database: Database, people: People, keys: Keys, indexes: Collection[str]) -> None:
        self._database, self._people, self._keys, self.indexes = database, people, keys, tuple(indexes)

    async def organizations(self, principal: Principal) -> OrganizationsResponse:
        """Those of the principal."""
        await record(self._database, principal, Act("organizations.read", "own"))
        found = await self._people.organizations(principal.organizations)
        return OrganizationsResponse(convert(found, list[OrganizationInfo], from_attributes=True))

    async def as_member(self, principal: Principal, organization: str) -> Principal:
        """The principal, as a member of one organization alone, who reads its validation runs."""
        found = await self._own(principal, organization, Act("validations.read", organization))
        return structs.replace(principal, organizations=frozenset({found.id}))

    async def members(self, principal: Principal, organization: str) -> MembersResponse:
        found = await self._own(principal, organization, Act("members.read", organization))
        members = await self._people.members(found)
        return MembersResponse(found.slug, convert(members, list[MemberInfo], from_attributes=True))

    async def add_member(self, principal: Principal, organization: str, user: str) -> MembersResponse:
        """Raises NotFound for a user there is not; once is enough: a second time changes nothing."""
        found = await self._own(principal, organization)
        await self._people.add_member(found, await self._people.user(user), by=principal)
        return await self.members(principal, organization)

    async def remove_member(self, principal: Principal, organization: str, user: UUID) -> None:
        """Raises NotFound for whom the organization does not have, and InvalidInput for the principal."""
        if user == principal.user:
            raise InvalidInput("user", str(user), "must be another user: you cannot remove yourself")
        found = await self._own(principal, organization)
        await self._people.remove_member(found, await self._people.user(user), by=principal)

    async def set_plan(self, principal: Principal, user: UUID, plan: str) -> MemberInfo:
        """Raises NotFound for a user or a plan there is not."""
        await record(self._database, principal)
        changed = await self._people.set_plan(await self._people.user(user), plan, by=principal)
        return convert(changed, MemberInfo, from_attributes=True)

    async def keys(self, principal: Principal, organization: str) -> KeysResponse:
        found = await self._own(principal, organization, Act("keys.read", organization))
        keys = await self._keys.list(found)
        return KeysResponse(found.slug, convert(keys, list[KeyInfo], from_attributes=True))

    async def create_key(
        self, principal: Principal, organization: str, name: str, indexes: Sequence[str] | None
    ) -> MadeKey:
        """Raises InvalidInput for an index there is not."""
        found = await self._own(principal, organization)
        for index in indexes or ():
            if index not in self.indexes:
                raise InvalidInput("indexes", index, f"accepted: {', '.join(sorted(self.indexes))}")
        made, secret = await self._keys.create(found, name, indexes, by=principal)
        return MadeKey(convert(made, KeyInfo, from_attributes=True), secret)

    async def revoke_key(self, principal: Principal, key: UUID) -> KeyInfo:
        """Once is enough: a second time changes nothing. Raises NotFound."""
        return convert(await self._keys.revoke(str(key), by=principal), KeyInfo, from_attributes=True)

    async def _own(self, principal: Principal, slug: str, *acts: Act) -> Organization:
        await record(self._database, principal, *acts)
        return await self._people.own_organization(principal, slug)


# -- the queue of feedback


# one statement: a page, and how many are open, of the same moment
_QUEUE = (
    text(
        f"""
        WITH given AS (
            SELECT id, 'message' AS kind, user_id, rating, comment, expected_source_id, created_at AS given_at, answer,
                capability, model, prompts, question, sources
            FROM ({MESSAGE_FEEDBACK}) AS of_messages
            UNION ALL
            SELECT id, 'answer', user_id, CASE verdict WHEN 'right' THEN 'positive' ELSE 'negative' END, comment,
                expected_source_id, judged_at, answer, capability, model,
                CASE WHEN prompt IS NULL THEN '{{}}' ELSE jsonb_build_object(capability, prompt) END, question, coalesce((
                    SELECT jsonb_agg(jsonb_build_object('label', s -> 'label', 'cited', true))
                    FROM jsonb_array_elements(sources) s
                ), '[]')
            FROM kept_answers WHERE verdict IS NOT NULL
        ), queued AS (
            SELECT given.*, settled.resolution, settled.note, settled.settled_at,
                coalesce(who.name, settled.settled_by::text) AS settled_by
            FROM given LEFT JOIN feedback_settlements settled ON given.id IN (settled.feedback_id, settled.answer_id)
            LEFT JOIN users who ON who.id = settled.settled_by
        )
        SELECT queued.*, coalesce(u.name, queued.user_id::text) AS "user",
            coalesce(nullif(s.title, ''), queued.expected_source_id::text) AS expected_source,
            (SELECT count(*) FROM queued WHERE resolution IS NULL) AS open
        FROM queued LEFT JOIN users u ON u.id = queued.user_id LEFT JOIN sources s ON s.id = queued.expected_source_id
        WHERE (CAST(:state AS text) IS NULL OR (CAST(:state AS text) = 'open') = (resolution IS NULL))
            AND kind = coalesce(:kind, kind) AND rating = coalesce(:rating, rating)
            AND (CAST(:prompt AS text) IS NULL OR EXISTS (
                SELECT FROM jsonb_each_text(prompts) AS version WHERE version.value = CAST(:prompt AS text)
            ))
            AND (CAST(:moment AS timestamptz) IS NULL OR (given_at, queued.id) < (:moment, :row))
        ORDER BY given_at DESC, queued.id DESC LIMIT :most
        """
    )
    .bindparams(
        bindparam("moment", type_=DateTime(timezone=True)),
        bindparam("row", type_=Uuid()),
        bindparam("kind", type_=Text()),
        bindparam("rating", type_=Text()),
    )
    .columns(prompts=JSONB(), sources=JSONB())
)
_COUNT_OPEN = text(
    """
    SELECT (SELECT count(*) FROM rag_feedback f JOIN rag_messages m ON m.id = message_id WHERE deleted_at IS NULL
            AND NOT EXISTS (SELECT FROM feedback_settlements s WHERE s.feedback_id = f.id))
        + (SELECT count(*) FROM kept_answers a WHERE verdict IS NOT NULL
            AND NOT EXISTS (SELECT FROM feedback_settlements s WHERE s.answer_id = a.id))
    """
)
_FIND_COLUMN = text(
    """
    SELECT 'feedback_id' FROM rag_feedback WHERE id = :id
    UNION ALL SELECT 'answer_id' FROM kept_answers WHERE id = :id AND verdict IS NOT NULL
    """
)


class FeedbackQueue(Struct, frozen=True):
    """For administrators; each read and each settlement is audited. Everything raises Forbidden for others."""

    _database: Database

    async def read(
        self,
        principal: Principal,
        *,
        state: str | None,
        kind: str | None,
        rating: str | None,
        prompt: str | None,
        limit: int,
        after: str | None,
    ) -> FeedbackQueuePage:
        """Newest first; `after` is a page's cursor. Raises InvalidInput for an invalid one.

        None is all. `state` is open or settled, `kind` message or answer, `rating` positive, negative or neutral.
        """
        moment, row = (None, None) if after is None else pages.place(after)
        wanted = {"state": state, "kind": kind, "rating": rating, "prompt": prompt}
        values = {**wanted, "moment": moment, "row": row, "most": limit + 1}
        act = Act("feedback.read", EVERYBODY, {name: value for name, value in wanted.items() if value is not None})
        async with administrator_session(self._database, principal, act) as session:
            rows = (await session.execute(_QUEUE, values)).mappings().all()
            still_open = rows[0]["open"] if rows else await session.scalar(_COUNT_OPEN)
        page = [_queue_entry(dict(each)) for each in rows[:limit]]
        more = pages.cursor(page[-1].given_at, page[-1].id) if len(rows) > limit else None
        return FeedbackQueuePage(page, cast(int, still_open), more)

    async def settle(self, principal: Principal, feedback: UUID, resolution: str, note: str | None) -> None:
        """Settle a feedback, replacing an earlier settlement. Raises NotFound."""
        act = Act("feedback.settle", str(feedback), {"resolution": resolution})
        async with administrator_session(self._database, principal, act) as session:
            found = await session.scalar(_FIND_COLUMN, {"id": feedback})
            which = require(found, NotFound("feedback", str(feedback)))
            said = {
                "resolution": resolution,
                "note": note,
                "settled_by": principal.user,
                "settled_at": datetime.now(UTC),
            }
            made = insert(settlements_table).values({which: feedback, **said})
            await session.execute(made.on_conflict_do_update(index_elements=[which], set_=said))

    async def reopen_feedback(self, principal: Principal, feedback: UUID) -> None:
        """Raises NotFound if the feedback is not settled."""
        settled = settlements_table.c
        this = (settled.feedback_id == feedback) | (settled.answer_id == feedback)
        async with administrator_session(self._database, principal, Act("feedback.reopen", str(feedback))) as session:
            gone = await session.scalar(delete(settlements_table).where(this).returning(settled.id))
            require(gone, NotFound("settled feedback", str(feedback)))


def _queue_entry(row: dict[str, Any]) -> QueuedFeedback:
    settled = {name: row[name] for name in ("resolution", "note", "settled_by", "settled_at")}
    return convert({**row, "settlement": settled if row["resolution"] else None}, QueuedFeedback)


# -- use by user, month and day: it comes from the usage events of answers, in conversations and outside


_MOMENTS = (bindparam("since", type_=DateTime(timezone=True)), bindparam("until", type_=DateTime(timezone=True)))
# What is told of each day of a period: it is joined to what there was on some of them.
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


class Usage(Struct, frozen=True):
    """For administrators; each read is audited. Everything raises Forbidden for others."""

    _database: Database

    async def trends(
        self, principal: Principal, since: date | None, until: date | None, capability: str | None = None
    ) -> TrendsResponse:
        """Figures by day, by default of the last 30, for conversations or for a capability outside of them.

        Raises InvalidInput for an invalid period, or a capability that no answer outside of conversations can have.
        """
        accepted = [each.name for each in CAPABILITIES if each.group is None]
        if capability is not None and capability not in accepted and not capability.startswith(PLAIN):
            expected = f"must be {', '.join(accepted)}, or {PLAIN} and the name of an index"
            raise InvalidInput("capability", capability, expected)
        first, last = bounded_period(since, until, today=datetime.now(UTC).date())
        values = {"since": midnight(first), "until": midnight(last) + timedelta(days=1)}
        about = {} if capability is None else {"capability": capability}
        act = Act("trends.read", EVERYBODY, {"from": str(first), "to": str(last), **about})
        async with administrator_session(self._database, principal, act) as session:
            rows = (await session.execute(_DAYS_OUTSIDE if about else _DAYS, values | about)).mappings().all()
        return TrendsResponse([convert(dict(each), TrendDay) for each in rows])

    async def month(self, principal: Principal, month: str | None) -> UsageResponse:
        """The 500 users with the most use, and the principal's organizations. `month`: 2026-01; by default the present one."""
        first = first_day(month)
        next_month = (first.replace(day=28) + timedelta(days=4)).replace(day=1)
        values = {"month": first, "since": midnight(first), "until": midnight(next_month)}
        mine = {"month": first, "mine": list(principal.organizations)}
        act = Act("usage.read", EVERYBODY, {"month": f"{first:%Y-%m}"})
        async with administrator_session(self._database, principal, act) as session:
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
        async with administrator_session(self._database, principal, act) as session:
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
