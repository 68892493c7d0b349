"""Deletes what is older than the settings allow, each kind separately, in every organization.

Row-level security shows a session one user's rows, so each user has a transaction. A thread is deleted with its
messages, feedback with judgments, and training data.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, select, text

from rag_app.access.tables import organization_tokens_table, organizations_table, users_table
from rag_app.database.session import Database
from rag_app.domain import Scope
from rag_app.evaluation.tables import judgments_table, kept_answers_table
from rag_app.surfaces.lexybrain.tables import (
    daily_costs_table,
    failures_table,
    threads_table,
    usage_counters_table,
    usage_events_table,
)

log = logging.getLogger(__name__)

_TRY_LOCK = text("SELECT pg_try_advisory_lock(hashtextextended('rag_app/retention', 0))")
_OF_A_MONTH = (usage_counters_table, organization_tokens_table)
# What of each kind goes, by the column that says how old a row is.
_KINDS: dict[str, list[Any]] = {
    "threads": [threads_table.c.last_message_at],
    "judgments": [judgments_table.c.created_at, kept_answers_table.c.asked_at],
    "usage": [
        usage_events_table.c.created_at,
        usage_counters_table.c.period,
        organization_tokens_table.c.period,
        daily_costs_table.c.day,
    ],
    "failures": [failures_table.c.created_at],
}


async def enforce(database: Database, days: Mapping[str, int | None]) -> dict[str, int] | None:
    """Delete what is older than the `days` of its kind, if any; how many rows of each kind, without what hung on them. None: another process is at it.

    After a kill, the next run continues. Raises StoreFailed.
    """
    wanted = {name: kept for name, kept in days.items() if kept is not None}
    if not wanted:
        return {}
    async with database.own_connection() as connection:
        if not await connection.scalar(_TRY_LOCK):
            return None
        gone = dict.fromkeys(wanted, 0)
        async with database.session() as session:
            users = (await session.scalars(select(users_table.c.id))).all()
            organizations = (await session.scalars(select(organizations_table.c.id))).all()
        # of an organization: the rows without a user
        for scope in (*map(Scope.alone, users), *(Scope(frozenset({each})) for each in organizations)):
            await _delete(database, scope, wanted, gone)
    log.info("deleted by age: %s", ", ".join(f"{count} {name}" for name, count in gone.items()))
    return gone


async def _delete(database: Database, scope: Scope, days: dict[str, int], gone: dict[str, int]) -> None:
    async with database.scoped(scope, operator=scope.user is None) as session:
        for name, kept in days.items():
            until = datetime.now(UTC) - timedelta(days=kept)
            for column in _KINDS[name]:
                # a month's counter is read until the month is over
                oldest = until.date().replace(day=1) if column.table in _OF_A_MONTH else until
                deleted = await session.execute(delete(column.table).where(column < oldest))
                gone[name] += deleted.rowcount
