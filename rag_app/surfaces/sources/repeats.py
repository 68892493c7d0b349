"""Requests that carry an `Idempotency-Key`: done once, however often they are sent.

A key is private to the caller and belongs to one request for a day. Repeating the request returns the earlier response.
The key is refused while the request is in progress, and for another request. A request that failed may be sent again.
A request in progress renews its lease. If its process dies, the lease runs out after a minute, and the request may be
sent again.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from rag_app.database.session import Database
from rag_app.documents.tables import repeats_table
from rag_app.domain import InvalidInput, JsonObject, Scope, StoreFailed

_LIFETIME = timedelta(days=1)
LEASE = timedelta(minutes=1)


class KeyInUse(InvalidInput):
    """The key belongs to another request, or to one in progress."""


class Repeats:
    """Stores responses by the caller's keys. Different callers' keys are independent.

    `renewal` is the number of seconds after which a request in progress renews its lease.
    """

    def __init__(self, database: Database, renewal: float = LEASE.total_seconds() / 4) -> None:
        self._database, self._renewal = database, renewal

    async def begin(self, org_id: UUID, user: UUID, key: str, fingerprint: str) -> JsonObject | None:
        """The earlier response to the same request; None: execute it now. Raises KeyInUse."""
        over = or_(
            repeats_table.c.created_at < func.now() - _LIFETIME,
            repeats_table.c.response.is_(None) & (repeats_table.c.created_at < func.now() - LEASE),
        )
        async with self._database.scoped(Scope(frozenset({org_id}), user)) as session:
            await session.execute(
                delete(repeats_table).where(repeats_table.c.org_id == org_id, repeats_table.c.user_id == user, over)
            )
            made = await session.scalar(
                insert(repeats_table)
                .values(org_id=org_id, user_id=user, key=key, fingerprint=fingerprint)
                .on_conflict_do_nothing()
                .returning(repeats_table.c.key)
            )
            if made is not None:
                return None
            known = (
                await session.execute(
                    select(repeats_table.c.fingerprint, repeats_table.c.response).where(*_row_named(org_id, user, key))
                )
            ).one()
        if known.fingerprint != fingerprint:
            raise KeyInUse("Idempotency-Key", key, "was already used for a different request")
        if known.response is None:
            raise KeyInUse("Idempotency-Key", key, "belongs to a request that is still running")
        return dict(known.response)

    @asynccontextmanager
    async def lease(self, org_id: UUID, user: UUID, key: str) -> AsyncIterator[None]:
        """Keep the key of a request in progress, from `begin` to `end`."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._renewal)
                with suppress(StoreFailed):  # tried again at the next renewal
                    async with self._database.scoped(Scope(frozenset({org_id}), user)) as session:
                        await session.execute(
                            update(repeats_table).where(*_row_named(org_id, user, key)).values(created_at=func.now())
                        )

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def end(self, org_id: UUID, user: UUID, key: str, response: JsonObject | None) -> None:
        """Store the response; None: the request failed and may be sent again."""
        ended = delete(repeats_table) if response is None else update(repeats_table).values(response=response)
        async with self._database.scoped(Scope(frozenset({org_id}), user)) as session:
            await session.execute(ended.where(*_row_named(org_id, user, key)))


def _row_named(org_id: UUID, user: UUID, key: str) -> tuple[ColumnElement[bool], ...]:
    return repeats_table.c.org_id == org_id, repeats_table.c.user_id == user, repeats_table.c.key == key
