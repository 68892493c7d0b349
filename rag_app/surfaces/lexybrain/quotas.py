"""Plans, their use and its cost, exact across any number of processes.

A message is counted and reserved when it arrives. The reservation ends when its answer is stored; without an answer the
count is given back. If its process died, that happens after it expires, at its user's next message.

Months and days are those of the database's clock, in UTC. `now` is for tests. `admit` and `lock_user` begin a user's
transaction; the functions below them work in it. They lock in one order (the user, reservations, counters, what is
charged), so that two of them never wait for each other; `rag_app.surfaces.lexybrain.threads` puts threads in its middle.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from itertools import starmap
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID, uuid4

from msgspec import Meta, Struct, structs
from sqlalchemy import (
    JSON,
    Numeric,
    Select,
    and_,
    bindparam,
    exists,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.access.limits import ADD_TOKENS, MONTH, NOW, OVER_BUDGET, RESETS, spending_parameters
from rag_app.access.people import has_subject
from rag_app.access.tables import api_keys_table, plans_table, users_table
from rag_app.database.session import Database, set_tenant
from rag_app.domain import (
    BudgetSpent,
    CostCapReached,
    FeatureDisabled,
    Forbidden,
    InvalidInput,
    JsonObject,
    Principal,
    QuotaExceeded,
    Scope,
    require,
    uuid_in,
)

if TYPE_CHECKING:
    from rag_app.surfaces.lexybrain.types import Outcome

CHOSEN_BY_ADMINISTRATORS = "planCode: only an administrator may choose a plan"
_KEY = "rag_messages"
_LONGEST_SUBJECT = 255  # characters, as OpenID Connect bounds a `sub`
_LONGEST_CODE = 64  # characters of a plan's code
_MOST_MESSAGES = 2**31 - 1  # what the column holds
_LONGEST_FAILURE = 2000  # characters that are kept of a failure's text

_TODAY = "(coalesce(:now, statement_timestamp()) AT TIME ZONE 'UTC')::date"

_RESERVE = text(
    f"""
    WITH {MONTH}, expired AS (
        DELETE FROM usage_reservations WHERE id IN (
            SELECT id FROM usage_reservations
            WHERE user_id = :user AND key = '{_KEY}' AND expires_at <= (SELECT at FROM moment) ORDER BY id FOR UPDATE
        ) RETURNING period
    ), returned AS (
        SELECT period, count(*)::int AS uses FROM expired GROUP BY period
    ), earlier AS (
        UPDATE usage_counters SET used = greatest(used - uses, 0) FROM returned, month
        WHERE user_id = :user AND key = '{_KEY}' AND usage_counters.period = returned.period
            AND returned.period <> first::date
        RETURNING 1
    ), present AS (
        SELECT at, first::date AS period, coalesce((SELECT uses FROM returned WHERE period = first::date), 0) AS uses
        FROM month, (SELECT count(*) FROM earlier) AS months_are_locked_in_their_order
    ), consumed AS (
        INSERT INTO usage_counters AS stored (user_id, key, period, used)
        SELECT :user, '{_KEY}', period, 1 FROM present WHERE :limit <> 0
        ON CONFLICT (user_id, key, period) DO UPDATE
        SET used = greatest(stored.used - (SELECT uses FROM present), 0) + 1
        WHERE :limit < 0 OR greatest(stored.used - (SELECT uses FROM present), 0) < :limit
        RETURNING period
    ), reserved AS (
        INSERT INTO usage_reservations (id, user_id, key, period, expires_at)
        SELECT :id, :user, '{_KEY}', period, at + make_interval(secs => :seconds) FROM consumed JOIN present USING (period)
        RETURNING id
    )
    SELECT EXISTS (SELECT FROM reserved) AS reserved, uses AS returned FROM present
    """
)
_CHARGE = text(
    f"""
    WITH {MONTH}
    INSERT INTO usage_counters AS stored (user_id, key, period, used)
    SELECT :user, '{_KEY}', first::date, 1 FROM month
    ON CONFLICT (user_id, key, period) DO UPDATE SET used = stored.used + 1
    """
)
# whose reservation ends holds its thread no longer (threads.py)
_FREE_THREAD = "freed AS (DELETE FROM request_leases WHERE key = CAST(CAST(:id AS uuid) AS text))"
_SETTLE = text(f"WITH {_FREE_THREAD} DELETE FROM usage_reservations WHERE id = :id RETURNING id")
_GIVE_BACK = text(
    f"""
    WITH {_FREE_THREAD}, returned AS (DELETE FROM usage_reservations WHERE id = :id RETURNING user_id, period)
    UPDATE usage_counters AS stored SET used = greatest(used - 1, 0) FROM returned
    WHERE stored.user_id = returned.user_id AND key = '{_KEY}' AND stored.period = returned.period
    """
)
_COUNT_USE = text(
    f"""
    WITH {MONTH}
    SELECT greatest(0, coalesce((
        SELECT used FROM usage_counters WHERE user_id = :user AND key = '{_KEY}' AND period = first::date
    ), 0) - (
        SELECT count(*) FROM usage_reservations
        WHERE user_id = :user AND key = '{_KEY}' AND period = first::date AND expires_at <= at
    )) AS used, {RESETS} AS resets_at FROM month
    """
)
_COST_OF_TODAY = text(f"SELECT cents FROM daily_costs WHERE day = {_TODAY}").bindparams(NOW)
_ADD_FAILURES = """
    INSERT INTO ai_failures (user_id, message_id, capability, model_id, kind, message)
    SELECT :user, :message, :capability, :model, kind, said
    FROM unnest(CAST(:kinds AS text[]), CAST(:texts AS text[])) WITH ORDINALITY AS failed (kind, said, place) ORDER BY place
    """
_RECORD_FAILURES = text(_ADD_FAILURES)
# the cost comes last: all users' answers wait for that row, and no longer than to the end of the transaction
_ADD_COST = f"""
    {ADD_TOKENS}
    INSERT INTO daily_costs AS stored (day, cents)
    SELECT {_TODAY}, :cents FROM (SELECT count(*) FROM tokens) AS those_before WHERE CAST(:cents AS numeric) <> 0
    ON CONFLICT (day) DO UPDATE SET cents = stored.cents + excluded.cents
    """
_SPEND = text(f"WITH {MONTH}, {_ADD_COST}")
_RECORD = text(
    f"""
    WITH {MONTH}, event AS (
        INSERT INTO ai_usage_events (
            user_id, type, message_id, plan_code, capability, model_version, latency_ms, stages, tokens_in, tokens_out,
            cost_cents, created_at
        ) VALUES (
            :user, 'rag_message', :message, :plan, :capability, :model, :latency_ms, :stages, :tokens_in, :tokens_out,
            :cents, coalesce(:now, now())
        )
    ), failures AS ({_ADD_FAILURES}), {_ADD_COST}
    """
).bindparams(bindparam("stages", type_=JSONB()))
UNSUPPORTED_ANSWER = "AnswerUnsupported"
"""The kind of failure that an answer is of which the check left nothing."""
_MOST_FREE = 5  # of them, for a user and day: more are charged, or a user could have answers refused for nothing
_COUNT_REFUSALS = text(
    f"""
    SELECT count(*) FROM ai_failures
    WHERE user_id = :user AND kind = '{UNSUPPORTED_ANSWER}' AND (created_at AT TIME ZONE 'UTC')::date = {_TODAY}
    """
).bindparams(NOW)
_SET_PLAN = text(
    """
    INSERT INTO plan_entitlements AS stored (plan_code, rag_messages_per_month, rag_enabled)
    VALUES (:code, coalesce(:messages, 50), coalesce(:enabled, true))
    ON CONFLICT (plan_code) DO UPDATE SET
        rag_messages_per_month = coalesce(:messages, stored.rag_messages_per_month),
        rag_enabled = coalesce(:enabled, stored.rag_enabled)
    RETURNING plan_code, rag_messages_per_month, rag_enabled
    """
)
_PLANS = select(plans_table.c.plan_code, plans_table.c.rag_messages_per_month, plans_table.c.rag_enabled).order_by(
    plans_table.c.plan_code
)
_ACCOUNTS: Select[tuple[UUID, str, int, bool, bool, bool]] = select(
    users_table.c.id,
    users_table.c.plan,
    plans_table.c.rag_messages_per_month,
    plans_table.c.rag_enabled,
    # as rag_app.access.audit
    and_(users_table.c.role == "admin", ~exists().where(api_keys_table.c.user_id == users_table.c.id)).label(
        "administrator"
    ),
    users_table.c.training_opt_in_at.is_not(None).label("training"),
).join(plans_table, plans_table.c.plan_code == users_table.c.plan)


class Account(Struct, frozen=True):
    """A user's entitlements: `messages` a month, -1 for no limit; `enabled`: the plan includes conversations.

    `training`: the user lets their answers be collected to train models with.
    """

    user: UUID
    plan: str
    messages: int
    enabled: bool
    administrator: bool
    training: bool = False


class Plan(Struct, frozen=True):
    """A plan's entitlements for each user: `messages` a month, -1 for no limit; `enabled`: it includes conversations."""

    code: str
    messages: int
    enabled: bool


class UsageInfo(Struct, frozen=True, rename="camel"):
    plan: Annotated[str, Meta(description="the code of the plan", examples=["free"])]
    messages_used: Annotated[
        int, Meta(ge=0, description="messages used this month (UTC), including those being answered")
    ]
    messages_per_month: Annotated[int, Meta(description="the limit of the plan; -1 means unlimited", examples=[50])]
    resets_at: Annotated[datetime, Meta(description="when the count is reset", examples=["2026-02-01T00:00:00Z"])]


class PlanDirectory(Struct, frozen=True):
    """The plans. Codes are compared exactly."""

    _database: Database

    async def list(self) -> Sequence[Plan]:
        """By code."""
        return [*starmap(Plan, await self._database.execute(_PLANS))]

    async def set(self, code: str, messages: int | None = None, enabled: bool | None = None) -> Plan:
        """Change what is not None, from the next message on; a new code makes a new plan (50 messages, enabled).

        Raises InvalidInput for a code that is no name, and for messages below -1.
        """
        if not code.strip() or code != code.strip() or not code.isprintable() or len(code) > _LONGEST_CODE:
            raise InvalidInput("plan", code, f"must be a name of at most {_LONGEST_CODE} characters")
        if messages is not None and not -1 <= messages <= _MOST_MESSAGES:
            raise InvalidInput("messages", messages, f"must be between 0 and {_MOST_MESSAGES}, or unlimited")
        [row] = await self._database.execute(_SET_PLAN.bindparams(code=code, messages=messages, enabled=enabled))
        return Plan(*row)


class Entitlements(Struct, frozen=True):
    """The entitlements of a principal's user in conversations."""

    _database: Database

    async def find(self, principal: Principal) -> Account:
        """Plan, entitlement and role. An unknown user is created, on plan free.

        The id of a user created for a valid token is its `sub`, or a new id that the `sub` is stored with. Raises Forbidden
        for an anonymous visitor, and for a `sub` that cannot be stored.
        """
        async with self._database.session() as session:
            if principal.user is None:
                return await _welcome(session, principal)
            return _account((await session.execute(_ACCOUNTS.where(users_table.c.id == principal.user))).one_or_none())

    async def month(self, principal: Principal) -> UsageInfo:
        """Plan, and messages of this month. Raises as `find`."""
        account = await self.find(principal)
        async with self._database.scoped(Scope.alone(account.user)) as session:
            return await usage(session, account)

    async def messages_used(self, users: Iterable[UUID]) -> dict[UUID, int]:
        """Messages of this month, for the operator: reads one user after the other, each in that user's scope."""
        found = {}
        async with self._database.session() as session:
            for user in users:
                await session.execute(set_tenant(Scope.alone(user)))
                found[user] = (await session.execute(_COUNT_USE, {"user": user, "now": None})).one().used
        return found


@asynccontextmanager
async def lock_user(database: Database, scope: Scope) -> AsyncIterator[tuple[AsyncConnection, bool | None]]:
    """A transaction of the scope's user, and whether they consent to training; None if the user no longer exists.

    Neither changes until the transaction ends, because erasing a user and withdrawing consent lock the same row first.
    """
    this = (
        select(users_table.c.training_opt_in_at.is_not(None))
        .where(users_table.c.id == scope.user)
        .with_for_update(read=True)
    )
    async with database.scoped_reading(scope, this) as (session, found):
        yield session, found[0][0] if found else None


@asynccontextmanager
async def admit(
    database: Database,
    scope: Scope,
    *,
    plan: str | None = None,
    cost_cap_cents: Decimal | None,
    token_budget: int | None,
    may_extract: bool = False,
    now: datetime | None = None,
) -> AsyncIterator[tuple[AsyncConnection, Account, BudgetSpent | None]]:
    """`lock_user` for a user who may ask now, with their entitlements. `plan` replaces their plan, for administrators.

    Raises Forbidden, InvalidInput for a plan, and FeatureDisabled where theirs has no conversations. Raises
    CostCapReached where today's answers, of all users, have cost `cost_cap_cents`; None is no bound. An answer is paid
    for when it ends: those under way when the cap is reached come on top. Raises BudgetSpent where one of the scope's
    organizations has used its tokens of the month: its own budget, else `token_budget`; None is no bound. The public
    organization has none. With `may_extract` that error is yielded instead: an answer without a model takes no tokens.
    """
    over_budget = OVER_BUDGET.bindparams(organizations=list(scope.organizations), default=token_budget, now=now)
    this = (
        _ACCOUNTS.add_columns(
            _COST_OF_TODAY.bindparams(now=now).columns(cents=Numeric()).scalar_subquery().label("spent"),
            over_budget.columns(budget=JSON()).scalar_subquery().label("over_budget"),
        )
        .where(users_table.c.id == scope.user)
        .with_for_update(read=True, of=users_table)
    )
    async with database.scoped_reading(scope, this) as (session, rows):
        # a plan that was changed while this waited for the user's row leaves none: a new statement sees it
        found = rows or (await session.execute(this)).all()
        *mine, spent, over = found[0] if found else (None, None, None)
        account = _account(mine if found else None)
        if plan is not None:
            if not account.administrator:
                raise Forbidden(CHOSEN_BY_ADMINISTRATORS)
            plans = {each.code: each for each in starmap(Plan, await session.execute(_PLANS))}
            if plan not in plans:
                raise InvalidInput("planCode", plan, f"accepted: {', '.join(plans)}")
            account = structs.replace(account, plan=plan, messages=plans[plan].messages, enabled=plans[plan].enabled)
        if not account.enabled:
            raise FeatureDisabled(f"The plan {account.plan} does not include conversations")
        if cost_cap_cents is not None and (spent or 0) >= cost_cap_cents:
            raise CostCapReached("The daily cost cap is reached. Questions are answered again from 00:00 UTC")
        spent_budget = None if over is None else BudgetSpent(*over)
        if spent_budget is not None and not may_extract:
            raise spent_budget
        yield session, account, spent_budget


async def reserve(
    session: AsyncConnection, reservation: UUID, account: Account, *, seconds: float, now: datetime | None = None
) -> None:
    """Count one message of the user's month, for `seconds` until it is settled or given back.

    Gives back the user's expired reservations. Raises QuotaExceeded if the plan has no message left; the transaction
    must then be rolled back. A plan without a limit is counted, too.
    """
    wanted = {"id": reservation, "user": account.user, "limit": account.messages, "seconds": seconds, "now": now}
    done = (await session.execute(_RESERVE, wanted)).one()
    if not done.reserved:
        month = await usage(session, account, now)
        used = max(month.messages_used - done.returned, 0)
        raise QuotaExceeded(month.messages_per_month, used, int(month.resets_at.timestamp()))


async def settle(session: AsyncConnection, reservation: UUID) -> bool:
    """Count the message for good. False if its reservation had expired and was given back: then `charge` it."""
    return await session.scalar(_SETTLE, {"id": reservation}) is not None


async def charge(session: AsyncConnection, account: Account, now: datetime | None = None) -> None:
    """Count one message, whatever the limit, for an answer stored after its reservation was given back."""
    await session.execute(_CHARGE, {"user": account.user, "now": now})


async def is_free(session: AsyncConnection, account: Account, now: datetime | None = None) -> bool:
    """Whether an answer that the check refused completely is free: the first five per user and day are.

    Call it after `give_back`, which serializes a user's messages, and before this one is recorded.
    """
    return (await session.scalar(_COUNT_REFUSALS, {"user": account.user, "now": now}) or 0) < _MOST_FREE


async def give_back(session: AsyncConnection, reservation: UUID) -> None:
    """Take the message off the month it was counted in. Idempotent."""
    await session.execute(_GIVE_BACK, {"id": reservation})


async def usage(session: AsyncConnection, account: Account, now: datetime | None = None) -> UsageInfo:
    row = (await session.execute(_COUNT_USE, {"user": account.user, "now": now})).one()
    return UsageInfo(account.plan, row.used, account.messages, datetime.fromtimestamp(row.resets_at, UTC))


async def record(
    session: AsyncConnection, account: Account, scope: Scope, outcome: "Outcome", now: datetime | None = None
) -> None:
    """Record an answer's use: an event, its failures, tokens of each of the user's organizations, cost of the day."""
    event = {
        "user": account.user,
        "message": outcome.message,
        "plan": account.plan,
        "capability": outcome.capability,
        "model": outcome.model,
        "latency_ms": outcome.latency_ms,
        "stages": dict(outcome.stages),
    }
    await session.execute(_RECORD, event | _failures(outcome.failures) | _costs(scope, outcome, now))


async def spend(session: AsyncConnection, scope: Scope, outcome: "Outcome") -> None:
    """Record only tokens and cost, for an answer whose user was erased."""
    await session.execute(_SPEND, _costs(scope, outcome, None))


async def record_failures(
    session: AsyncConnection, account: Account, message: UUID, failures: Iterable[tuple[str, str]]
) -> None:
    """Record (kind, text) of the failures of a message without an answer."""
    of_message = {"user": account.user, "message": message, "capability": None, "model": None}
    await session.execute(_RECORD_FAILURES, of_message | _failures(failures))


def _costs(scope: Scope, outcome: "Outcome", now: datetime | None) -> JsonObject:
    return spending_parameters(scope, outcome.usage) | {"cents": outcome.cost_cents, "now": now}


def _failures(failures: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The failures without characters that PostgreSQL refuses: NUL, and half of a surrogate pair."""
    told = list(failures)
    texts = [said[:_LONGEST_FAILURE].encode("utf-8", "replace").decode().replace("\0", "\ufffd") for _, said in told]
    return {"kinds": [kind for kind, _ in told], "texts": texts}


def _account(found: Sequence[Any] | None) -> Account:
    return Account(*require(found, Forbidden("The user of this credential was deleted")))


async def _welcome(session: AsyncConnection, principal: Principal) -> Account:
    """Create the user of a `sub`; of two concurrent requests one creates it."""
    subject = principal.subject
    if principal.organizations:
        raise Forbidden("Conversations belong to a user. Sign in to use them")
    if not subject.strip() or not subject.isprintable() or len(subject) > _LONGEST_SUBJECT:
        raise Forbidden(
            f"the `sub` of the token must be a printable text of at most {_LONGEST_SUBJECT} characters, not blank"
        )
    known = uuid_in(subject)
    fresh, stored = (uuid4(), subject) if known is None else (known, None)
    # as `People.principal` looks for it
    this = (
        _ACCOUNTS.where(has_subject(subject)).order_by((users_table.c.subject == subject).desc().nulls_last()).limit(1)
    )
    for name in f"user-{fresh.hex[:12]}", f"user-{uuid4().hex}":  # the second where the first is somebody else's
        if (found := (await session.execute(this)).one_or_none()) is not None:
            return _account(found)
        await session.execute(upsert(users_table).values(id=fresh, name=name, subject=stored).on_conflict_do_nothing())
    return _account((await session.execute(this)).one_or_none())
