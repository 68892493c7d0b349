"""How often somebody asked, and how many requests of theirs are under way: exact however many processes serve."""

from dataclasses import dataclass
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, Double, Uuid, bindparam, text

from rag_app.database.session import Database

_HIT = """
    INSERT INTO rate_windows AS stored (key, window_start, count)
    SELECT $1, floor(coalesce($3::float8, extract(epoch FROM clock_timestamp())::float8) / $2::bigint) * $2::bigint, 1
    FROM (SELECT set_config('synchronous_commit', 'off', true) OFFSET 0) AS nobody_waits_for_the_disk
    ON CONFLICT (key) DO UPDATE SET
        count = CASE WHEN stored.window_start >= excluded.window_start THEN stored.count + 1 ELSE 1 END,
        window_start = greatest(stored.window_start, excluded.window_start)
    RETURNING window_start, count
    """
# A crash of PostgreSQL may lose the hits of its last second, which is less than waiting for its disk at each of them.
# greatest: a statement that waited for the row from one window into the next must not open the old one again
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
    WHERE id = $1 AND expires_at > statement_timestamp()
    """
_GIVE_BACK = "DELETE FROM request_leases WHERE id = $1"


@dataclass(frozen=True, slots=True)
class Window:
    """The state after a hit. `resets_at`: Unix time, seconds, at which the next window begins."""

    limit: int
    remaining: int
    resets_at: int
    allowed: bool


class RateLimiter:
    """Fixed windows, aligned to the epoch: `limit` hits a key in each."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def hit(self, key: str, limit: int, window: int = 60, now: float | None = None) -> Window:
        """Count one request of `key` in the current window of `window` seconds.

        A key always comes with the same window. `now` (Unix time, seconds) is for tests: the clock is the database's,
        the same for all processes. A request that is not allowed is counted, too, and changes nothing else.
        Raises StoreFailed.
        """
        [(start, count)] = await self._database.fetch(_HIT, key, window, now)
        return Window(limit, max(0, limit - count), start + window, count <= limit)


class Leases:
    """Places for requests under way: at most `limit` leases of a key at a time.

    A lease lives `seconds` by the database's clock, and as long again from each `extend`. So the places of a process
    that was killed are free `seconds` later, whatever the clocks of machines say. One that has run out stays so: its
    place may be somebody else's by now. Everything raises StoreFailed.
    """

    def __init__(self, database: Database, seconds: float = 60.0) -> None:
        self._database, self._seconds = database, seconds
        self.extend_every = seconds / 3  # a lease outlives one extension that fails

    async def take(self, key: str, limit: int) -> UUID | None:
        """A place among the `limit` of `key`, or None where all are taken.

        One short transaction: the lock comes in a statement of its own, so that the next one sees what was written by
        whoever held it before. Keys do not wait for each other.
        """
        async with self._database.session() as session:
            await session.execute(_ONE_AT_A_TIME, {"name": f"rag_app/lease/{key}"})
            taken: UUID | None = await session.scalar(
                _TAKE, {"id": uuid4(), "key": key, "limit": limit, "seconds": self._seconds}
            )
        return taken

    async def extend(self, lease: UUID) -> None:
        await self._database.fetch(_EXTEND, lease, self._seconds)

    async def give_back(self, lease: UUID) -> None:
        """Once is enough: a second time, or after it has run out, changes nothing."""
        await self._database.fetch(_GIVE_BACK, lease)
