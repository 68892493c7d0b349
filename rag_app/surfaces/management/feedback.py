"""The queue of users' feedback on all surfaces, with its settlements."""

from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from msgspec import convert
from sqlalchemy import DateTime, Text, bindparam, delete, text
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.types import Uuid

from rag_app.access.audit import EVERYBODY, Act, administering
from rag_app.database import pages
from rag_app.database.session import Database
from rag_app.domain import NotFound, Principal, frozen, require
from rag_app.surfaces.management.tables import settlements_table
from rag_app.surfaces.management.types import FeedbackQueuePage, QueuedFeedback

# one statement: a page, and how many are open, of the same moment
_QUEUE = (
    text(
        """
        WITH given AS (
            SELECT f.id, 'message' AS kind, f.user_id, f.rating, f.feedback_text AS comment, f.expected_source_id,
                f.created_at AS given_at, m.content AS answer, m.capability, m.model_id AS model,
                coalesce(m.generation_metadata -> 'prompts', '{}') AS prompts, (
                    SELECT CASE WHEN q.deleted_at IS NULL THEN q.content END FROM rag_messages q
                    WHERE q.thread_id = m.thread_id AND q.role = 'user' AND (q.created_at, q.id) < (m.created_at, m.id)
                    ORDER BY q.created_at DESC, q.id DESC LIMIT 1
                ) AS question, coalesce((
                    SELECT jsonb_agg(jsonb_build_object('label', s -> 'label', 'cited', s -> 'cited' <> 'null'))
                    FROM jsonb_array_elements(m.retrieved_source_ids) s
                ), '[]') AS sources
            FROM rag_feedback f JOIN rag_messages m ON m.id = f.message_id WHERE m.deleted_at IS NULL
            UNION ALL
            SELECT id, 'answer', user_id, CASE verdict WHEN 'right' THEN 'positive' ELSE 'negative' END, comment,
                expected_source_id, judged_at, answer, capability, model,
                CASE WHEN prompt IS NULL THEN '{}' ELSE jsonb_build_object(capability, prompt) END, question, coalesce((
                    SELECT jsonb_agg(jsonb_build_object('label', s -> 'label', 'cited', true))
                    FROM jsonb_array_elements(sources) s
                ), '[]')
            FROM kept_answers WHERE verdict IS NOT NULL
        ), queued AS (
            SELECT given.*, settled.resolution, settled.note, settled.settled_at,
                coalesce(who.name, settled.settled_by::text) AS settled_by
            FROM given LEFT JOIN feedback_settlements settled ON given.id IN (settled.feedback_id, settled.answer_id)
            LEFT JOIN users who ON who.id = settled.settled_by
        )
        SELECT queued.*, coalesce(u.name, queued.user_id::text) AS "user",
            coalesce(nullif(s.title, ''), queued.expected_source_id::text) AS expected_source,
            (SELECT count(*) FROM queued WHERE resolution IS NULL) AS open
        FROM queued LEFT JOIN users u ON u.id = queued.user_id LEFT JOIN sources s ON s.id = queued.expected_source_id
        WHERE (CAST(:state AS text) IS NULL OR (CAST(:state AS text) = 'open') = (resolution IS NULL))
            AND kind = coalesce(:kind, kind) AND rating = coalesce(:rating, rating)
            AND (CAST(:prompt AS text) IS NULL OR EXISTS (
                SELECT FROM jsonb_each_text(prompts) AS version WHERE version.value = CAST(:prompt AS text)
            ))
            AND (CAST(:moment AS timestamptz) IS NULL OR (given_at, queued.id) < (:moment, :row))
        ORDER BY given_at DESC, queued.id DESC LIMIT :most
        """
    )
    .bindparams(
        bindparam("moment", type_=DateTime(timezone=True)),
        bindparam("row", type_=Uuid()),
        bindparam("kind", type_=Text()),
        bindparam("rating", type_=Text()),
    )
    .columns(prompts=JSONB(), sources=JSONB())
)
_COUNT_OPEN = text(
    """
    SELECT (SELECT count(*) FROM rag_feedback f JOIN rag_messages m ON m.id = message_id WHERE deleted_at IS NULL
            AND NOT EXISTS (SELECT FROM feedback_settlements s WHERE s.feedback_id = f.id))
        + (SELECT count(*) FROM kept_answers a WHERE verdict IS NOT NULL
            AND NOT EXISTS (SELECT FROM feedback_settlements s WHERE s.answer_id = a.id))
    """
)
_FIND_COLUMN = text(
    """
    SELECT 'feedback_id' FROM rag_feedback WHERE id = :id
    UNION ALL SELECT 'answer_id' FROM kept_answers WHERE id = :id AND verdict IS NOT NULL
    """
)


@frozen
class FeedbackQueue:
    """For administrators; each read and each settlement is audited. Everything raises Forbidden for others."""

    _database: Database

    async def read(
        self,
        principal: Principal,
        *,
        state: str | None,
        kind: str | None,
        rating: str | None,
        prompt: str | None,
        limit: int,
        after: str | None,
    ) -> FeedbackQueuePage:
        """Newest first; `after` is a page's cursor. Raises InvalidInput for an invalid one.

        None is all. `state` is open or settled, `kind` message or answer, `rating` positive, negative or neutral.
        """
        moment, row = (None, None) if after is None else pages.place(after)
        wanted = {"state": state, "kind": kind, "rating": rating, "prompt": prompt}
        values = {**wanted, "moment": moment, "row": row, "most": limit + 1}
        act = Act("feedback.read", EVERYBODY, {name: value for name, value in wanted.items() if value is not None})
        async with administering(self._database, principal, act) as session:
            rows = (await session.execute(_QUEUE, values)).mappings().all()
            still_open = rows[0]["open"] if rows else await session.scalar(_COUNT_OPEN)
        page = [_queue_entry(dict(each)) for each in rows[:limit]]
        more = pages.cursor(page[-1].given_at, page[-1].id) if len(rows) > limit else None
        return FeedbackQueuePage(page, cast(int, still_open), more)

    async def settle(self, principal: Principal, feedback: UUID, resolution: str, note: str | None) -> None:
        """Settle a feedback, replacing an earlier settlement. Raises NotFound."""
        act = Act("feedback.settle", str(feedback), {"resolution": resolution})
        async with administering(self._database, principal, act) as session:
            found = await session.scalar(_FIND_COLUMN, {"id": feedback})
            which = require(found, NotFound("feedback", str(feedback)))
            said = {
                "resolution": resolution,
                "note": note,
                "settled_by": principal.user,
                "settled_at": datetime.now(UTC),
            }
            made = insert(settlements_table).values({which: feedback, **said})
            await session.execute(made.on_conflict_do_update(index_elements=[which], set_=said))

    async def reopen(self, principal: Principal, feedback: UUID) -> None:
        """Raises NotFound if the feedback is not settled."""
        settled = settlements_table.c
        this = (settled.feedback_id == feedback) | (settled.answer_id == feedback)
        async with administering(self._database, principal, Act("feedback.reopen", str(feedback))) as session:
            if await session.scalar(delete(settlements_table).where(this).returning(settled.id)) is None:
                raise NotFound("settled feedback", str(feedback))


def _queue_entry(row: dict[str, Any]) -> QueuedFeedback:
    settled = {name: row[name] for name in ("resolution", "note", "settled_by", "settled_at")}
    return convert({**row, "settlement": settled if row["resolution"] else None}, QueuedFeedback)
