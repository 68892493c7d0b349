"""The present day in an organization's time zone."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy import select

from rag_app.access.tables import organizations_table
from rag_app.database.session import Database
from rag_app.domain import Scope

_SECONDS_REMEMBERED = 60.0
"""Seconds that a process remembers time zones."""


class Calendar:
    """`now` is the clock, which tests replace; it gives a moment in any time zone."""

    def __init__(self, database: Database, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database, self.now = database, now
        self._zones: Mapping[UUID, str] = {}
        self._read_at = -_SECONDS_REMEMBERED

    async def today(self, scope: Scope) -> date:
        """The day in the time zone of the scope's organization (of several, the lowest id), or in UTC.

        A change of the time zone is seen within a minute. Raises StoreFailed.
        """
        if time.monotonic() - self._read_at >= _SECONDS_REMEMBERED:
            with_zone = select(organizations_table.c.id, organizations_table.c.time_zone).where(
                organizations_table.c.time_zone.is_not(None)
            )
            self._zones = {zoned.id: zoned.time_zone for zoned in await self._database.execute(with_zone)}
            self._read_at = time.monotonic()
        zone = next((self._zones[each] for each in sorted(scope.organizations) if each in self._zones), "UTC")
        return self.now().astimezone(ZoneInfo(zone)).date()
