"""Limits, exact across any number of processes: requests, concurrent requests, and model tokens.

Tokens are an organization's, in a month over all surfaces: checked before an answer, charged after it. Months are those of
the database's clock, in UTC.
"""

from datetime import datetime
from math import ceil
from uuid import UUID, uuid4

from msgspec import Struct
from sqlalchemy import JSON, BigInteger, DateTime, Double, Uuid, bindparam, text

from rag_app.database.session import Database
from rag_app.domain import PUBLIC_ORGANIZATION, BudgetSpent, Scope, Usage

SECONDS = 60
"""The length of the window."""

_HIT = f"""
    INSERT INTO rate_windows AS stored (key, times, let_in)
    SELECT $1, array_fill(coalesce($5::float8, extract(epoch FROM clock_timestamp())::float8), ARRAY[$3::integer]), true
    FROM (SELECT set_config('synchronous_commit', 'off', true) OFFSET 0) AS nobody_waits_for_the_disk
    ON CONFLICT (key) DO UPDATE SET (times, let_in) = (
        SELECT CASE WHEN let_in THEN recent[borrowed + 1:] || array_fill(now, ARRAY[$3::integer - borrowed])
            || ARRAY(SELECT taken + {SECONDS} FROM unnest(recent[:borrowed]) AS taken) ELSE recent END, let_in
        FROM (
            SELECT now, recent, $4::boolean OR cardinality(recent) < $2::integer AS let_in,
                least(greatest(cardinality(recent) + $3::integer - $2::integer, 0), $3::integer) AS borrowed
            FROM (
                SELECT now, ARRAY(
                    SELECT taken FROM unnest(stored.times) AS taken WHERE taken > now - {SECONDS} ORDER BY taken
                ) AS recent
                FROM (SELECT coalesce($5::float8, extract(epoch FROM clock_timestamp())::float8) AS now OFFSET 0) AS clock
            ) AS log
        ) AS decision
    )
    RETURNING times, let_in
    """
# A crash of PostgreSQL may lose the hits of its last second, which is less than waiting for its disk at each of them.
# The sub-select is evaluated once the row is locked, so its clock cannot be behind that of the hit before.
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
_TAKE = text(
    """
    WITH expired AS (DELETE FROM request_leases WHERE key = :key AND expires_at <= statement_timestamp())
    INSERT INTO request_leases (id, key, expires_at)
    SELECT :id, :key, statement_timestamp() + make_interval(secs => :seconds)
    WHERE (SELECT count(*) FROM request_leases WHERE key = :key AND expires_at > statement_timestamp()) < :limit
    RETURNING id
    """
).bindparams(bindparam("id", type_=Uuid), bindparam("seconds", type_=Double), bindparam("limit", type_=BigInteger))
_EXTEND = """
    UPDATE request_leases SET expires_at = statement_timestamp() + make_interval(secs => $2)
    WHERE id = $1 AND expires_at > statement_timestamp() RETURNING id
    """


class Window(Struct, frozen=True):
    """The state after a hit: `remaining` places are free now, the next one becomes free at `resets_at` (Unix time, seconds)."""

    limit: int
    remaining: int
    resets_at: int
    allowed: bool


class RateLimiter(Struct, frozen=True):
    """Allows at most `limit` requests of a key in any 60 seconds. The key's row holds the time of each."""

    _database: Database

    async def hit(self, key: str, limit: int, more: int = 0, now: float | None = None) -> Window:
        """Take a place for one request of `key`. If none is free, the request is refused and takes none.

        `more` is for an admitted request that costs more than one place: it takes so many more, at most `limit`.
        Places that are not free yet are taken in advance.
        `now` (Unix time, seconds) is for tests: the clock is the database's, the same for all processes.
        Raises StoreFailed.
        """
        [(times, allowed)] = await self._database.fetch(_HIT, key, limit, min(more or 1, limit), more > 0, now)
        next_free = sorted(times)[max(0, len(times) - limit)]
        return Window(limit, max(0, limit - len(times)), ceil(next_free + SECONDS), allowed)


class Leases:
    """Limits concurrent requests: at most `limit` leases of a key at a time.

    A lease lasts `seconds` by the database's clock, and as long again from each `extend`. The leases of a killed process
    therefore expire `seconds` later, whatever the machines' clocks say. They are not written ahead: a crash of PostgreSQL
    loses all of them, and each is taken again when it is extended. Everything raises StoreFailed.
    """

    def __init__(self, database: Database, seconds: float = 60.0) -> None:
        self._database, self._seconds = database, seconds
        self.extend_every = seconds / 3  # a lease outlives one extension that fails

    async def take(self, key: str, limit: int, lost: UUID | None = None) -> UUID | None:
        """A lease among the `limit` of `key`, or None if all are taken. One that was `lost` is taken again.

        One short transaction. The lock is a separate statement, so that the next statement sees what the previous holder
        wrote. Keys do not wait for each other.
        """
        lease = lost or uuid4()
        wanted = {"id": lease, "key": key, "limit": limit, "seconds": self._seconds}
        async with self._database.session() as session:
            await session.execute(_ONE_AT_A_TIME, {"name": f"rag_app/lease/{key}"})
            return lease if await session.scalar(_TAKE, wanted) else None

    async def extend(self, lease: UUID, key: str, limit: int) -> bool:
        """Keep a lease that was taken with this key and limit. One that was lost, or has expired, is taken again if
        there is a place; False if there is none."""
        if await self._database.fetch(_EXTEND, lease, self._seconds):
            return True
        await self.give_back(lease)  # what is left of it
        return await self.take(key, limit, lost=lease) is not None

    async def give_back(self, lease: UUID) -> None:
        """Idempotent; an expired lease is ignored."""
        await self._database.fetch("DELETE FROM request_leases WHERE id = $1", lease)


# -- tokens

NOW = bindparam("now", type_=DateTime(timezone=True))
_MOMENT = "moment AS (SELECT coalesce(:now, statement_timestamp()) AS at)"
MONTH = f"{_MOMENT}, month AS (SELECT at, date_trunc('month', at AT TIME ZONE 'UTC') AS first FROM moment)"
RESETS = "extract(epoch FROM (first + interval '1 month') AT TIME ZONE 'UTC')::bigint"
OVER_BUDGET = text(
    f"""
    WITH {MONTH}
    SELECT json_build_array(coalesce(monthly_token_budget, :default), coalesce(tokens, 0), {RESETS}) AS budget
    FROM month, organizations LEFT JOIN organization_tokens ON org_id = id AND period = (SELECT first::date FROM month)
    WHERE id = ANY (:organizations) AND id <> :public
        AND coalesce(tokens, 0) >= coalesce(monthly_token_budget, :default)
    ORDER BY slug LIMIT 1
    """
).bindparams(NOW, bindparam("default", type_=BigInteger()), public=PUBLIC_ORGANIZATION)
ADD_TOKENS = """
    tokens AS (
        INSERT INTO organization_tokens AS stored (org_id, period, tokens)
        SELECT id, first::date, :tokens_in + CAST(:tokens_out AS bigint) FROM organizations, month
        WHERE id = ANY (:organizations) AND id <> :public AND :tokens_in + CAST(:tokens_out AS bigint) > 0 ORDER BY id
        ON CONFLICT (org_id, period) DO UPDATE SET tokens = stored.tokens + excluded.tokens
        RETURNING 1
    )"""
_SPEND = text(f"WITH {MONTH}, {ADD_TOKENS} SELECT count(*) FROM tokens")


class Budgets:
    """`default` is the budget of organizations without their own; None is unlimited."""

    def __init__(self, database: Database, default: int | None) -> None:
        self._database, self.default = database, default

    async def check(self, scope: Scope, now: datetime | None = None) -> None:
        """Raises BudgetSpent if one of the scope's organizations has used its tokens. The public one has no budget."""
        this = OVER_BUDGET.bindparams(organizations=list(scope.organizations), default=self.default, now=now)
        for [spent] in await self._database.read(scope, this.columns(budget=JSON())):
            raise BudgetSpent(*spent)

    async def spend(self, scope: Scope, usage: Usage, now: datetime | None = None) -> None:
        """Charge the usage to each of the scope's organizations, except the public one."""
        async with self._database.scoped(scope) as session:
            await session.execute(_SPEND, spending_parameters(scope, usage) | {"now": now})


def spending_parameters(scope: Scope, usage: Usage | None) -> dict[str, object]:
    """The parameters of `ADD_TOKENS`."""
    return {
        "organizations": list(scope.organizations),
        "public": PUBLIC_ORGANIZATION,
        "tokens_in": usage.input_tokens if usage else 0,
        "tokens_out": usage.output_tokens if usage else 0,
    }
