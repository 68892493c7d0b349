"""What plans give, what is used of it, and what it costs: exact however many processes serve.

A message is counted when it comes, and reserved: the reservation goes when its answer is kept, and the count goes back
when nothing came of it. One whose process died is given back when it has expired, at its user's next message.

Months and days are those of the database's clock, in UTC. `now` is for tests. The functions below work in somebody
else's transaction, in which the account's user is the one of row-level security. They lock in one order (reservations,
counters, what is charged), so that two of them never wait for each other; `rag_app.surfaces.lexybrain.turns` puts threads in its middle.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    BigInteger,
    Boolean,
    Date,
    DateTime,
    Double,
    Integer,
    Numeric,
    Row,
    Select,
    TextClause,
    Uuid,
    and_,
    bindparam,
    exists,
    insert,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.types import TypeEngine

from rag_app.access.people import called
from rag_app.access.tables import ApiKeyRow, PlanRow, UserRow
from rag_app.database.session import Database, set_tenant
from rag_app.domain.errors import BudgetSpent, CostCapReached, Forbidden, InvalidInput, QuotaExceeded
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal, Scope
from rag_app.surfaces.lexybrain.tables import FailureRow, UsageEventRow
from rag_app.surfaces.lexybrain.types import Account, Outcome

_KEY = "rag_messages"
_LONGEST_SUBJECT = 255  # characters, as OpenID Connect bounds a `sub`
_LONGEST_CODE = 64  # characters of a plan's code
_MOST_MESSAGES = 2**31 - 1  # what the column holds
_LONGEST_FAILURE = 2000  # characters that are kept of a failure's text

_MOMENT = "moment AS (SELECT coalesce(:now, statement_timestamp()) AS at)"
_MONTH = f"{_MOMENT}, month AS (SELECT at, date_trunc('month', at AT TIME ZONE 'UTC') AS first FROM moment)"
_RESETS = "extract(epoch FROM (first + interval '1 month') AT TIME ZONE 'UTC')::bigint"


def _statement(sql: str) -> TextClause:
    """With the types of the parameters it has: PostgreSQL cannot guess that of one that may be null."""
    types: dict[str, TypeEngine[Any]] = {
        "now": DateTime(timezone=True), "id": Uuid(), "user": Uuid(), "limit": Integer(), "seconds": Double(),
        "period": Date(), "uses": Integer(), "organizations": ARRAY(Uuid()), "public": Uuid(), "default": BigInteger(),
        "tokens": BigInteger(), "cents": Numeric(), "messages": Integer(), "enabled": Boolean(),
    }  # fmt: skip
    made = text(sql)
    return made.bindparams(*(bindparam(name, type_=types[name]) for name in types if name in made.compile().params))


_EXPIRED = _statement(
    f"""
    WITH {_MOMENT}
    DELETE FROM usage_reservations WHERE id IN (
        SELECT id FROM usage_reservations
        WHERE user_id = :user AND key = '{_KEY}' AND expires_at <= (SELECT at FROM moment) ORDER BY id FOR UPDATE
    ) RETURNING period
    """
)
_CONSUME = _statement(
    f"""
    WITH {_MONTH}, consumed AS (
        INSERT INTO usage_counters AS stored (user_id, key, period, used)
        SELECT :user, '{_KEY}', first::date, 1 FROM month WHERE :limit <> 0
        ON CONFLICT (user_id, key, period) DO UPDATE SET used = stored.used + 1
        WHERE :limit < 0 OR stored.used < :limit
        RETURNING period
    )
    INSERT INTO usage_reservations (id, user_id, key, period, expires_at)
    SELECT :id, :user, '{_KEY}', period, at + make_interval(secs => :seconds) FROM consumed, month
    RETURNING id
    """
)
_CHARGE = _statement(
    f"""
    WITH {_MONTH}
    INSERT INTO usage_counters AS stored (user_id, key, period, used)
    SELECT :user, '{_KEY}', first::date, 1 FROM month
    ON CONFLICT (user_id, key, period) DO UPDATE SET used = stored.used + 1
    """
)
_SETTLE = _statement("DELETE FROM usage_reservations WHERE id = :id RETURNING id")
_GIVE_BACK = _statement("DELETE FROM usage_reservations WHERE id = :id RETURNING user_id, period")
_SUBTRACT = _statement(
    f"""
    UPDATE usage_counters SET used = greatest(used - :uses, 0)
    WHERE user_id = :user AND key = '{_KEY}' AND period = :period
    """
)
_USED = _statement(
    f"""
    WITH {_MONTH}
    SELECT greatest(0, coalesce((
        SELECT used FROM usage_counters WHERE user_id = :user AND key = '{_KEY}' AND period = first::date
    ), 0) - (
        SELECT count(*) FROM usage_reservations
        WHERE user_id = :user AND key = '{_KEY}' AND period = first::date AND expires_at <= at
    )) AS used, {_RESETS} AS resets_at FROM month
    """
)
_TODAY = "(coalesce(:now, statement_timestamp()) AT TIME ZONE 'UTC')::date"
_SPENT_TODAY = _statement(f"SELECT cents FROM daily_costs WHERE day = {_TODAY}")
_SPEND = _statement(
    f"""
    INSERT INTO daily_costs AS stored (day, cents) VALUES ({_TODAY}, :cents)
    ON CONFLICT (day) DO UPDATE SET cents = stored.cents + excluded.cents
    """
)
_BUDGET = _statement(
    f"""
    WITH {_MONTH}
    SELECT coalesce(monthly_token_budget, :default) AS budget, coalesce(tokens, 0) AS tokens, {_RESETS} AS resets_at
    FROM month, organizations LEFT JOIN organization_tokens ON org_id = id AND period = (SELECT first::date FROM month)
    WHERE id = ANY (:organizations) AND id <> :public
        AND coalesce(tokens, 0) >= coalesce(monthly_token_budget, :default)
    ORDER BY slug LIMIT 1
    """
)
_USE_TOKENS = _statement(
    f"""
    WITH {_MONTH}
    INSERT INTO organization_tokens AS stored (org_id, period, tokens)
    SELECT id, first::date, :tokens FROM organizations, month
    WHERE id = ANY (:organizations) AND id <> :public ORDER BY id
    ON CONFLICT (org_id, period) DO UPDATE SET tokens = stored.tokens + excluded.tokens
    """
)
_SET_PLAN = _statement(
    """
    INSERT INTO plan_entitlements AS stored (plan_code, rag_messages_per_month, rag_enabled)
    VALUES (:code, coalesce(:messages, 50), coalesce(:enabled, true))
    ON CONFLICT (plan_code) DO UPDATE SET
        rag_messages_per_month = coalesce(:messages, stored.rag_messages_per_month),
        rag_enabled = coalesce(:enabled, stored.rag_enabled)
    RETURNING plan_code, rag_messages_per_month, rag_enabled
    """
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a plan gives each of its users: `messages` a month, -1 without limit; `enabled`: conversations at all."""

    code: str
    messages: int
    enabled: bool


@dataclass(frozen=True, slots=True)
class MonthlyUse:
    """Messages `used` of `limit` (-1: without) this month, those under way included, until `resets_at` (Unix time, seconds)."""

    used: int
    limit: int
    resets_at: int


class Plans:
    """The plans there are. Codes are compared to the letter."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> Sequence[Plan]:
        """By code."""
        async with self._database.session() as session:
            return [_plan(row) for row in await session.scalars(select(PlanRow).order_by(PlanRow.plan_code))]

    async def set(self, code: str, messages: int | None = None, enabled: bool | None = None) -> Plan:
        """Change what is not None, from the next message on; a new code makes a new plan (50 messages, enabled).

        Raises InvalidInput for a code that is no name, and for messages below -1.
        """
        if not code.strip() or code != code.strip() or not code.isprintable() or len(code) > _LONGEST_CODE:
            raise InvalidInput("plan", code, f"must be a name of at most {_LONGEST_CODE} characters")
        if messages is not None and not -1 <= messages <= _MOST_MESSAGES:
            raise InvalidInput("messages", messages, f"must be between 0 and {_MOST_MESSAGES}, or unlimited")
        async with self._database.session() as session:
            row = await session.execute(_SET_PLAN, {"code": code, "messages": messages, "enabled": enabled})
            return Plan(*row.one())


class Accounts:
    """What a principal's user may do in conversations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, principal: Principal) -> Account:
        """Plan, entitlement and role. Whom the database does not know becomes a user, on plan free.

        So does everybody whose token is valid, once: with the id that is its `sub`, or with the `sub` beside a new id.
        Raises Forbidden for a visitor without a name, and for a `sub` that cannot be kept.
        """
        async with self._database.session() as session:
            if principal.user is not None:
                found = (await session.execute(_ACCOUNTS.where(UserRow.id == principal.user))).one_or_none()
            else:
                found = await _welcomed(session, principal)
        if found is None:
            raise Forbidden("the user of these credentials is gone")
        return _account(found)

    async def plan(self, code: str) -> tuple[int, bool]:
        """Messages a month (-1: without limit), and whether it has conversations at all.

        Raises InvalidInput, which names the plans there are.
        """
        plans = {plan.code: plan for plan in await Plans(self._database).list()}
        if code not in plans:
            raise InvalidInput("planCode", code, f"accepted: {', '.join(plans)}")
        return plans[code].messages, plans[code].enabled

    async def usage(self, account: Account, now: datetime | None = None) -> MonthlyUse:
        """What the account's user has used this month; a message whose time is over is not in it."""
        async with self._database.scoped(Scope.alone(account.user)) as session:
            return await usage(session, account, now)

    async def used(self, users: Iterable[UUID]) -> dict[UUID, int]:
        """Messages of this month, for the operator: one user after the other, as each of them may see it."""
        found = {}
        async with self._database.session() as session:
            for user in users:
                await session.execute(set_tenant(Scope.alone(user)))
                found[user] = (await session.execute(_USED, {"user": user, "now": None})).one().used
        return found


async def consents(session: AsyncSession, user: UUID | None) -> bool | None:
    """Whether a user consents to training, which then does not change until the transaction ends; None: there is no such
    user any more.

    Who calls it calls it first: erasing a user begins with this row, too.
    """
    this = select(UserRow.training_opt_in_at.is_not(None)).where(UserRow.id == user)
    consented: bool | None = await session.scalar(this.with_for_update(read=True))
    return consented


async def reserve(
    session: AsyncSession, reservation: UUID, account: Account, *, seconds: float, now: datetime | None = None
) -> None:
    """Count one message of the user's month, for `seconds` until it is settled or given back.

    What the user had reserved longer ago is given back first. Raises QuotaExceeded where the plan has no more; the
    transaction must then be rolled back. Without a limit it is counted, too.
    """
    expired = Counter(await session.scalars(_EXPIRED, {"user": account.user, "now": now}))
    for period in sorted(expired):
        await _subtract(session, account.user, period, expired[period])
    wanted = {"id": reservation, "user": account.user, "limit": account.messages, "seconds": seconds, "now": now}
    if await session.scalar(_CONSUME, wanted) is None:
        month = await usage(session, account, now)
        raise QuotaExceeded(month.limit, month.used, month.resets_at)


async def settle(session: AsyncSession, reservation: UUID) -> bool:
    """The message counts for good. False where it had expired and is given back: then `charge` it."""
    return await session.scalar(_SETTLE, {"id": reservation}) is not None


async def charge(session: AsyncSession, account: Account, now: datetime | None = None) -> None:
    """Count one message, whatever the limit: of an answer that was kept after its reservation was given back."""
    await session.execute(_CHARGE, {"user": account.user, "now": now})


async def give_back(session: AsyncSession, reservation: UUID) -> None:
    """The message does not count, in the month it was counted in. Once is enough: a second time changes nothing."""
    gone = (await session.execute(_GIVE_BACK, {"id": reservation})).one_or_none()
    if gone is not None:
        await _subtract(session, gone.user_id, gone.period, 1)


async def usage(session: AsyncSession, account: Account, now: datetime | None = None) -> MonthlyUse:
    row = (await session.execute(_USED, {"user": account.user, "now": now})).one()
    return MonthlyUse(row.used, account.messages, row.resets_at)


async def check_cost_cap(session: AsyncSession, cap_cents: Decimal | None, now: datetime | None = None) -> None:
    """Raises CostCapReached where today's answers, of all users, have cost so much; None is no bound.

    An answer is paid for when it ends: those under way when the cap is reached come on top.
    """
    if cap_cents is not None and (await session.scalar(_SPENT_TODAY, {"now": now}) or 0) >= cap_cents:
        raise CostCapReached("answers have cost as much as they may in a day; tomorrow (UTC) they may again")


async def check_budget(
    session: AsyncSession, organizations: Collection[UUID], default: int | None, now: datetime | None = None
) -> None:
    """Raises BudgetSpent where one of the organizations has used its tokens of the month.

    The budget is the organization's own, else `default`; None is no bound. The public organization has none. Whoever
    belongs to several is refused as soon as one of them has nothing left.
    """
    asked = {"organizations": list(organizations), "public": PUBLIC_ORGANIZATION, "default": default, "now": now}
    spent = (await session.execute(_BUDGET, asked)).one_or_none()
    if spent is not None:
        raise BudgetSpent(spent.budget, spent.tokens, spent.resets_at)


async def record(
    session: AsyncSession, account: Account, scope: Scope, outcome: Outcome, now: datetime | None = None
) -> None:
    """What an answer took: an event, its failures, tokens of each of the user's organizations, cost of the day."""
    tokens_in = outcome.usage.input_tokens if outcome.usage else 0
    tokens_out = outcome.usage.output_tokens if outcome.usage else 0
    event = {
        "user_id": account.user, "type": "rag_message", "message_id": outcome.message, "plan_code": account.plan,
        "capability": outcome.capability, "model_version": outcome.model, "latency_ms": outcome.latency_ms,
        "stages": dict(outcome.stages), "tokens_in": tokens_in, "tokens_out": tokens_out,
        "cost_cents": outcome.cost_cents,
    }  # fmt: skip
    await session.execute(insert(UsageEventRow).values(event if now is None else {**event, "created_at": now}))
    await record_failures(
        session, account, outcome.message, outcome.failures, capability=outcome.capability, model=outcome.model
    )
    await spend(session, scope, outcome, now)


async def spend(session: AsyncSession, scope: Scope, outcome: Outcome, now: datetime | None = None) -> None:
    """The tokens and the cost alone: of an answer whose user is gone, too.

    The cost comes last: all users' answers wait for that row, and no longer than to the end of the transaction.
    """
    usage = outcome.usage
    if usage is not None and (tokens := usage.input_tokens + usage.output_tokens):
        used = {"organizations": list(scope.organizations), "public": PUBLIC_ORGANIZATION, "tokens": tokens, "now": now}
        await session.execute(_USE_TOKENS, used)
    if outcome.cost_cents:
        await session.execute(_SPEND, {"cents": outcome.cost_cents, "now": now})


async def record_failures(
    session: AsyncSession, account: Account, message: UUID, failures: Iterable[tuple[str, str]], *,
    capability: str | None = None, model: str | None = None,
) -> None:  # fmt: skip
    """(kind, text) of parts that failed while a message was answered."""
    rows = [
        {
            "user_id": account.user, "message_id": message, "capability": capability, "model_id": model,
            "kind": kind, "message": _storable(said),
        }
        for kind, said in failures
    ]  # fmt: skip
    if rows:
        await session.execute(insert(FailureRow), rows)


_Found = Row[tuple[UUID, str, int, bool, bool, bool]]
_ACCOUNTS: Select[tuple[UUID, str, int, bool, bool, bool]] = select(
    UserRow.id,
    UserRow.plan_code,
    PlanRow.rag_messages_per_month,
    PlanRow.rag_enabled,
    and_(UserRow.role == "admin", ~exists().where(ApiKeyRow.user_id == UserRow.id)),  # as rag_app.access.audit
    UserRow.training_opt_in_at.is_not(None),
).join(PlanRow, PlanRow.plan_code == UserRow.plan_code)


async def _welcomed(session: AsyncSession, principal: Principal) -> _Found | None:
    """The user that a `sub` stands for from now on; of two requests at once one makes it."""
    subject = principal.subject
    if principal.organizations:
        raise Forbidden("conversations belong to a user: sign in")
    if not subject.strip() or not subject.isprintable() or len(subject) > _LONGEST_SUBJECT:
        raise Forbidden(
            f"the `sub` of the token must be a printable text of at most {_LONGEST_SUBJECT} characters, not blank"
        )
    try:
        fresh, stored = UUID(subject), None
    except ValueError:
        fresh, stored = uuid4(), subject
    this = (
        _ACCOUNTS.where(called(subject)).order_by((UserRow.subject == subject).desc().nulls_last()).limit(1)
    )  # as `People.principal` looks for it
    for name in f"user-{fresh.hex[:12]}", f"user-{uuid4().hex}":  # the second where the first is somebody else's
        if (found := (await session.execute(this)).one_or_none()) is not None:
            return found
        await session.execute(upsert(UserRow).values(id=fresh, name=name, subject=stored).on_conflict_do_nothing())
    return (await session.execute(this)).one_or_none()


def _account(found: _Found) -> Account:
    return Account(*found)


def _plan(row: PlanRow) -> Plan:
    return Plan(row.plan_code, row.rag_messages_per_month, row.rag_enabled)


async def _subtract(session: AsyncSession, user: UUID, period: date, uses: int) -> None:
    await session.execute(_SUBTRACT, {"user": user, "period": period, "uses": uses})


def _storable(said: str) -> str:
    """What models and networks say may hold what PostgreSQL does not take: NUL, and half of a surrogate pair."""
    return said[:_LONGEST_FAILURE].encode("utf-8", "replace").decode().replace("\0", "\ufffd")
