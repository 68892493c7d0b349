"""All that is kept about one user: to be told, and to be taken away.

For the operator's commands: they read and write the sources of all organizations that the user owns any in. Whatever
else there is of a user goes with the user's row, in one transaction.
"""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Text, bindparam, func, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from rag_app.access.tables import UserRow
from rag_app.database.session import Database
from rag_app.documents.ledger import SOURCE, source_of
from rag_app.documents.tables import SourceBuildRow, SourceRow
from rag_app.domain.scope import Scope
from rag_app.domain.source import Source

_ATTEMPTS = 5
_DEADLOCK = "40P01"


class Personal:
    """Everything raises StoreFailed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def everything(self, organizations: Collection[UUID], user: UUID) -> dict[str, Any]:
        """By kind, as PostgreSQL has it: rows as dictionaries. Of API keys there is no digest, of rate limits nothing.

        Sources of the user alone come with their text, those that are shared without.
        """
        async with self._database.scoped(Scope(frozenset(organizations), user), operator=True) as session:
            found = {kind: await _rows(session, statement, user) for kind, statement in _KEPT.items()}
        account = found.pop("account")[0]
        messages: dict[UUID, list[dict[str, Any]]] = {}
        for message in found.pop("messages"):
            messages.setdefault(message.pop("thread_id"), []).append(message)
        for thread in found["threads"]:
            thread["messages"] = messages.get(thread["id"], [])
        return {"account": account, **found}

    async def owned(self, organizations: Collection[UUID], user: UUID) -> list[tuple[Source, bool]]:
        """The user's sources, and whether each goes with the user: it is private, or its deletion has been begun."""
        mine = select(*SOURCE, SourceRow.deleted_at).where(SourceRow.owner_id == user)
        ordered = mine.order_by(SourceRow.org_id, SourceRow.id)
        rows = await self._database.read(Scope(frozenset(organizations), user), ordered, operator=True)
        return [(source_of(row), row.visibility == "user" or row.deleted_at is not None) for row in rows]

    async def disown(self, source: Source, written: Mapping[int, int]) -> None:
        """Let a shared source be nobody's: `source` is what it is from now on.

        `written`: in which generations it stands as that, in how many chunks each. For a caller who keeps writers out.
        """
        this = update(SourceRow).where(SourceRow.id == source.id).values(owner_id=None, version=source.version)
        builds = update(SourceBuildRow).where(SourceBuildRow.source_id == source.id)
        async with self._database.scoped(Scope(frozenset({source.org_id})), operator=True) as session:
            await session.execute(this)
            for generation, chunks in written.items():
                await session.execute(
                    builds.where(SourceBuildRow.generation_id == generation).values(
                        version=source.version, state="ready", chunks=chunks, updated_at=func.now()
                    )
                )

    async def erase(self, user: UUID) -> bool:
        """The user goes, with all that is kept about them; False, and nothing has changed, where a source is theirs.

        What stays: usage events, of nobody and no message; what is written down of administration, with the bare id;
        validation runs of an organization, of nobody. Of a user who is gone already, there is nothing to do.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._erase(user)
            except DBAPIError as error:
                state = getattr(error.orig, "sqlstate", None)
                constraint = getattr(error.orig.__cause__ if error.orig else None, "constraint_name", None)
                if constraint == "fk_sources_owner_id":
                    return False
                if state != _DEADLOCK or attempt == _ATTEMPTS:  # with a request of theirs; the next one finds nobody
                    raise
        return False

    async def _erase(self, user: UUID) -> bool:
        async with self._database.scoped(Scope.alone(user)) as session:
            # first, as turns do: whoever is at work on a turn ends before, or finds nobody afterwards
            this = select(UserRow).where(UserRow.id == user).with_for_update()
            found = await session.scalar(this)
            if found is None:
                return True
            names = [f":{user}", *([f":{found.subject}"] if found.subject else [])]
            for table in "rate_windows", "request_leases":
                await session.execute(_FORGET_KEYS[table], {"names": names, "hex": user.hex})
            await session.execute(_FORGET_MESSAGES, {"user": user})
            await session.delete(found)
        return True


async def _rows(session: AsyncSession, statement: str, user: UUID) -> list[dict[str, Any]]:
    result = await session.execute(text(statement), {"user": user})
    return [dict(row) for row in result.mappings()]


_FORGET_MESSAGES = text("UPDATE ai_usage_events SET message_id = NULL WHERE user_id = :user")
_FORGET_KEYS = {
    # "surface:user" or "surface:subject"; of an API key that is its service user. The subject of a first request may be
    # the user's id in any spelling that Python takes for a UUID.
    table: text(
        f"DELETE FROM {table} WHERE right(key, -position(':' IN key) + 1) = ANY(:names)"
        " OR translate(replace(replace(lower(right(key, -position(':' IN key))), 'urn:', ''), 'uuid:', ''), '{}-', '') = :hex"
    ).bindparams(bindparam("names", type_=ARRAY(Text)), bindparam("hex", type_=Text()))
    for table in ("rate_windows", "request_leases")
}
_KEPT = {
    "account": """
        SELECT id, name, subject, plan_code AS plan, role, created_at, training_opt_in_at AS training_consent_since
        FROM users WHERE id = :user
        """,
    "memberships": """
        SELECT o.slug AS organization, o.name, m.created_at FROM memberships m JOIN organizations o ON o.id = m.org_id
        WHERE m.user_id = :user ORDER BY o.slug
        """,
    "threads": """
        SELECT id, title, created_at, updated_at, last_message_at, message_count, metadata, archived
        FROM rag_threads WHERE user_id = :user ORDER BY created_at, id
        """,
    "messages": """
        SELECT m.thread_id, m.id, m.role, m.content, m.created_at, m.capability, m.context_json AS context,
            m.model_id AS model, m.retrieved_source_ids AS sources, m.generation_metadata AS generation, m.flags,
            m.training_eligible, m.deleted_at
        FROM rag_messages m JOIN rag_threads t ON t.id = m.thread_id WHERE t.user_id = :user ORDER BY m.created_at, m.id
        """,
    "feedback": """
        SELECT id, message_id, rating, feedback_text AS comment, expected_source_id, created_at, updated_at
        FROM rag_feedback WHERE user_id = :user ORDER BY created_at, id
        """,
    "judgments": """
        SELECT j.id, j.feedback_id, o.slug AS organization, j.index_name AS index, j.query, j.source_id, j.grade,
            j.created_at
        FROM judgments j JOIN rag_feedback f ON f.id = j.feedback_id JOIN organizations o ON o.id = j.org_id
        WHERE f.user_id = :user ORDER BY j.id
        """,
    "training": """
        SELECT q.id, q.message_id, q.capability, q.prompt, q.context, a.model_id AS model, a.content AS answer,
            q.created_at
        FROM lexybrain_requests q LEFT JOIN lexybrain_responses a ON a.request_id = q.id
        WHERE q.user_id = :user ORDER BY q.created_at, q.id
        """,
    "usage": "SELECT key, period, used FROM usage_counters WHERE user_id = :user ORDER BY period, key",
    "reservations": "SELECT id, key, period, expires_at FROM usage_reservations WHERE user_id = :user ORDER BY id",
    "usage_events": """
        SELECT type, message_id, plan_code AS plan, capability, model_version AS model, latency_ms, stages, tokens_in,
            tokens_out, cost_cents, created_at
        FROM ai_usage_events WHERE user_id = :user ORDER BY id
        """,
    "failures": """
        SELECT message_id, capability, model_id AS model, kind, message, created_at
        FROM ai_failures WHERE user_id = :user ORDER BY id
        """,
    "keys": """
        SELECT k.id, k.name, k.beginning, o.slug AS organization, k.indexes, k.created_at, k.last_used_at, k.revoked_at
        FROM api_keys k JOIN organizations o ON o.id = k.org_id WHERE k.user_id = :user ORDER BY k.created_at
        """,
    "sources": """
        SELECT s.id, o.slug AS organization, s.index_name AS index, s.external_id, s.title, s.source_type, s.lang, s.uri,
            to_timestamp(s.date) AS date, s.metadata, s.origin, s.visibility, s.created_at, s.updated_at,
            CASE WHEN s.visibility = 'user' THEN s.content END AS passages
        FROM sources s JOIN organizations o ON o.id = s.org_id WHERE s.owner_id = :user ORDER BY s.created_at, s.id
        """,
    "validations": """
        SELECT v.id, o.slug AS organization, v.index_name AS index, v.top_k, v.report, v.created_at
        FROM validations v JOIN organizations o ON o.id = v.org_id WHERE v.user_id = :user ORDER BY v.created_at
        """,
    "audit": """
        SELECT actor_id AS actor, action, subject, details, created_at FROM audit_events
        WHERE actor_id = :user OR subject = CAST(CAST(:user AS uuid) AS text)
            OR details ->> 'user' = CAST(CAST(:user AS uuid) AS text)
        ORDER BY id
        """,
}
