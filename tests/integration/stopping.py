"""Stop a process between two statements of a transaction, however busy the machine is, to kill it there."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
from sqlalchemy import text

from rag_app.database.session import Database
from tests.waiting import PATIENCE

_LOCK = 20_260_115
_STOP = """
CREATE FUNCTION stop_here() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.org_id = '{org}' AND NEW.state = '{state}' AND {ready} <= (
        SELECT count(*) FROM source_builds built
        WHERE built.generation_id = NEW.generation_id AND built.org_id = NEW.org_id AND built.state = 'ready'
    ) THEN
        PERFORM pg_advisory_xact_lock_shared({lock});
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER stop_here BEFORE INSERT OR UPDATE ON source_builds FOR EACH ROW EXECUTE FUNCTION stop_here();
"""
_WAITING = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted"


@asynccontextmanager
async def stopped(owner_url: str, org: UUID, state: str, ready: int, kill: Callable[[], None]) -> AsyncIterator[None]:
    """Whoever gives a source of `org` this state, once so many are ready, waits there; inside of the block it does.

    Then it is killed: its transaction is over at the end of the block, and nobody else will be stopped.
    """
    async with asyncio.timeout(300):
        owner = await asyncpg.connect(owner_url.replace("+asyncpg", ""))
        try:
            await owner.execute(_STOP.format(org=org, state=state, ready=ready, lock=_LOCK))
            await owner.execute("SELECT pg_advisory_lock($1)", _LOCK)
            while (waiting := await owner.fetchval(_WAITING, _LOCK)) is None:
                await asyncio.sleep(0.01)
            yield
            kill()
            await owner.execute("SELECT pg_advisory_unlock($1)", _LOCK)
            while await owner.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", waiting):
                await asyncio.sleep(0.01)
            await owner.execute("DROP TRIGGER stop_here ON source_builds; DROP FUNCTION stop_here")
        finally:
            await owner.close()


async def until_blocked(database: Database, statements: int = 1) -> None:
    """Until so many statements wait for a lock that somebody else holds."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()")
    async with asyncio.timeout(PATIENCE), database.session() as session:
        while (await session.scalar(waiting) or 0) < statements:
            await asyncio.sleep(0.01)
