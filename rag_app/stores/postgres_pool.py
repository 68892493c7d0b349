"""Connections to PostgreSQL by asyncpg, made when they are needed; whatever goes wrong is a StoreFailed."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from rag_app.domain.errors import StoreFailed

_SECONDS_TO_CONNECT = 5


class LazyPool:
    """At most `size` connections, made when they are first needed: one pool however many ask for it at once."""

    def __init__(self, dsn: str, size: int, **options: Any) -> None:
        self._dsn, self._size, self._options = plain_dsn(dsn), size, options
        self._pool: asyncpg.Pool | None = None
        self._opening = asyncio.Lock()
        self._returning: set[asyncio.Task[None]] = set()

    async def opened(self) -> asyncpg.Pool:
        if self._pool is None:
            async with self._opening:
                if self._pool is None:
                    self._pool = await asyncpg.create_pool(
                        self._dsn, min_size=1, max_size=self._size, timeout=_SECONDS_TO_CONNECT, command_timeout=60,
                        max_cached_statement_lifetime=0, reset=_keep,
                        **self._options,
                    )  # fmt: skip
        return self._pool

    async def fetch(self, statement: str, *values: object) -> list[asyncpg.Record]:
        """The rows of one statement. Nobody waits until its connection is back in the pool."""
        pool = await self.opened()
        connection = await pool.acquire()
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *values)
            return rows
        finally:
            task = asyncio.create_task(pool.release(connection))
            self._returning.add(task)
            task.add_done_callback(self._returned)

    def _returned(self, task: asyncio.Task[None]) -> None:
        """A connection that breaks on its way back is not in the pool any longer, and nobody's failure."""
        self._returning.discard(task)
        if not task.cancelled():
            task.exception()

    def connections(self) -> tuple[int, int]:
        """How many are in use, how many are open."""
        if self._pool is None:
            return 0, 0
        return self._pool.get_size() - self._pool.get_idle_size(), self._pool.get_size()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None


def plain_dsn(url: str) -> str:
    """asyncpg's form of a URL that SQLAlchemy also takes.

    >>> plain_dsn("postgresql+asyncpg://me@host/db?ssl=require")
    'postgresql://me@host/db?sslmode=require'
    """
    return re.sub(r"([?&])ssl=", r"\1sslmode=", url.replace("postgresql+asyncpg://", "postgresql://", 1))


async def _keep(connection: asyncpg.Connection) -> None:
    """Instead of a round trip that resets what nobody here changes: settings hold for a transaction only."""


@contextmanager
def postgres_failures() -> Iterator[None]:
    """Whatever the driver raises is a StoreFailed; the last is what it says where the server goes between two statements."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, asyncpg.InternalClientError) as error:
        raise StoreFailed(f"PostgreSQL: {type(error).__name__}: {error}") from error
