"""Users' feedback: one per answer, which can be changed and withdrawn; administrators read all feedback.

A change of feedback first locks the row of its message, so concurrent changes are serialized and a deleted message gets
none.
"""

from datetime import date
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct, convert
from sqlalchemy import Date, DateTime, Delete, Text, Uuid, bindparam, delete, insert, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.access.audit import EVERYBODY, Act, administrator_session
from rag_app.database import pages
from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger
from rag_app.domain import InvalidInput, NotFound, Principal, require, storable
from rag_app.evaluation.records import check_comment, expected_source, judge
from rag_app.http.fields import as_wire
from rag_app.surfaces.lexybrain.statistics import VERSION
from rag_app.surfaces.lexybrain.tables import feedback_table, messages_table, threads_table
from rag_app.surfaces.lexybrain.types import (
    MESSAGE,
    THREAD,
    KeptMessageFeedback,
    Moment,
    Rating,
    RatingValue,
    ReviewedSource,
    Role,
)


class FeedbackReview(Struct, frozen=True, rename="camel"):
    id: UUID
    user_id: UUID
    thread_id: Annotated[UUID, Meta(examples=[THREAD])]
    message_id: Annotated[UUID, Meta(description="the id of the answer", examples=[MESSAGE])]
    rating: RatingValue
    comment: str | None
    expected_source_id: Annotated[UUID | None, Meta(description="the source that the answer should have cited")]
    created_at: Moment
    updated_at: Moment
    question: Annotated[str | None, Meta(description="the user's message that was answered; null if it was deleted")]
    answer: str
    answered_at: Moment
    capability: str | None
    model: str | None
    prompts: Annotated[
        dict[str, str], Meta(description="names of the prompt versions, by type", examples=[{"global": VERSION}])
    ]
    sources: list[ReviewedSource]


class FeedbackResponse(Struct, frozen=True, rename="camel"):
    feedback: Annotated[list[FeedbackReview], Meta(description="newest first")]
    next_cursor: Annotated[str | None, Meta(description="send as `cursor` to get the next page; null on the last page")]


MESSAGE_FEEDBACK = """
    SELECT f.id, f.user_id, m.thread_id, f.message_id, f.rating, f.feedback_text AS comment, f.expected_source_id,
        f.created_at, f.updated_at, m.content AS answer, m.created_at AS answered_at, m.capability,
        m.model_id AS model, coalesce(m.generation_metadata -> 'prompts', '{}') AS prompts, (
            SELECT CASE WHEN q.deleted_at IS NULL THEN q.content END FROM rag_messages q
            WHERE q.thread_id = m.thread_id AND q.role = 'user' AND (q.created_at, q.id) < (m.created_at, m.id)
            ORDER BY q.created_at DESC, q.id DESC LIMIT 1
        ) AS question, coalesce((
            SELECT jsonb_agg(jsonb_build_object('label', s -> 'label', 'cited', s -> 'cited' <> 'null') ORDER BY place)
            FROM jsonb_array_elements(m.retrieved_source_ids) WITH ORDINALITY AS each (s, place)
        ), '[]') AS sources
    FROM rag_feedback f JOIN rag_messages m ON m.id = f.message_id WHERE m.deleted_at IS NULL
"""
"""Its columns are the fields of a FeedbackReview. The question is the last message of the user before the answer."""
_REVIEWS = (
    text(
        f"""
        SELECT * FROM ({MESSAGE_FEEDBACK}) AS f WHERE rating = coalesce(:rating, rating)
            AND (CAST(:capability AS text) IS NULL OR capability = :capability)
            AND (CAST(:prompt AS text) IS NULL OR EXISTS (
                SELECT FROM jsonb_each_text(prompts) AS version WHERE version.value = :prompt
            ))
            AND created_at >= coalesce(CAST(:since AS timestamp) AT TIME ZONE 'UTC', '-infinity')
            AND created_at < coalesce(CAST(:until + 1 AS timestamp) AT TIME ZONE 'UTC', 'infinity')
            AND (CAST(:moment AS timestamptz) IS NULL OR (created_at, id) < (:moment, :row))
        ORDER BY created_at DESC, id DESC LIMIT :most
        """
    )
    .bindparams(
        *(bindparam(name, type_=Text()) for name in ("rating", "capability", "prompt")),
        *(bindparam(name, type_=Date()) for name in ("since", "until")),
        bindparam("moment", type_=DateTime(timezone=True)),
        bindparam("row", type_=Uuid()),
    )
    .columns(prompts=JSONB(), sources=JSONB())
)
# the text searched for an answer; if unknown, the user's message before it
_SEARCH_STATEMENT = text(
    """
    SELECT coalesce(answer.generation_metadata ->> 'searched', (
        SELECT content FROM rag_messages
        WHERE thread_id = answer.thread_id AND role = 'user' AND (created_at, id) < (answer.created_at, answer.id)
        ORDER BY created_at DESC, id DESC LIMIT 1
    )) FROM rag_messages AS answer WHERE id = :answer
    """
)


class FeedbackLedger:
    """Feedback on answers from `index`. What is not the principal's own message is NotFound, for administrators, too."""

    def __init__(self, database: Database, ledger: SourceLedger, index: str) -> None:
        self._database, self._ledger, self._index = database, ledger, index

    async def give(
        self, principal: Principal, message: UUID, rating: Rating, comment: str | None, expected: str | None
    ) -> KeptMessageFeedback:
        """Store the principal's feedback on an answer, replacing all earlier feedback.

        `expected` names a source that should have been found, by id or external id. It is allowed with a negative rating
        only, and also records a judgment: of the source's own organization or, for a public source, of the principal's
        organization if there is exactly one.

        Raises NotFound, and InvalidInput for a message that is no answer, for a source that the principal may not see
        or whose name several have, and for text that PostgreSQL cannot keep.
        """
        if expected is not None and rating != "negative":
            raise InvalidInput("expectedSourceId", expected, "can only be sent with the rating negative")
        check_comment(comment)
        scope, found = principal.scope(), list[UUID]()
        if expected is not None and expected == storable(expected):
            found = await self._ledger.find_named(scope, self._index, [expected])
        async with self._database.scoped(scope) as session:
            await _lock_answer(session, principal, message)
            source = None if expected is None else await expected_source(session, found, "expectedSourceId", expected)
            # made anew, not updated: so what it had judged goes, in whatever organization that was
            since = await session.scalar(_delete_feedback(principal, message).returning(feedback_table.c.created_at))
            made = insert(feedback_table).values(
                message_id=message,
                user_id=principal.user,
                rating=rating,
                comment=comment,
                expected_source_id=source and source.id,
                **({} if since is None else {"created_at": since}),
            )
            row = (await session.execute(made.returning(feedback_table))).one()
            if (
                source is not None
                and (asked := await session.scalar(_SEARCH_STATEMENT, {"answer": message})) is not None
            ):
                await judge(session, principal, self._index, asked, source, feedback=row.id)
        return as_wire(KeptMessageFeedback, row)

    async def withdraw(self, principal: Principal, message: UUID) -> None:
        """Raises NotFound, also without feedback, and InvalidInput for a message that is not an answer."""
        async with self._database.scoped(principal.scope()) as session:
            await _lock_answer(session, principal, message)
            gone = await session.scalar(_delete_feedback(principal, message).returning(feedback_table.c.id))
            require(gone, NotFound("feedback", str(message)))

    async def review(
        self,
        principal: Principal,
        *,
        rating: str | None = None,
        capability: str | None = None,
        prompt: str | None = None,
        since: date | None = None,
        until: date | None = None,
        limit: int,
        after: str | None,
    ) -> FeedbackResponse:
        """All users' feedback, newest first, for administrators; each read is audited.

        None is all. `prompt` is the name of a version; `since` and `until` are whole days in UTC, both included. `after`
        is a page's cursor. A changed rating keeps its place.

        Raises Forbidden, and InvalidInput for a cursor that is none.
        """
        moment, row = (None, None) if after is None else pages.place(after)
        wanted = {"rating": rating, "capability": capability, "prompt": prompt}
        asked = {**wanted, "from": since and str(since), "to": until and str(until)}
        act = Act("feedback.read", EVERYBODY, {name: value for name, value in asked.items() if value is not None})
        values = {**wanted, "since": since, "until": until, "moment": moment, "row": row, "most": limit + 1}
        async with administrator_session(self._database, principal, act) as session:
            rows = (await session.execute(_REVIEWS, values)).all()
        page = convert(rows[:limit], list[FeedbackReview], from_attributes=True)
        return FeedbackResponse(page, pages.cursor(page[-1].created_at, page[-1].id) if len(rows) > limit else None)


async def _lock_answer(session: AsyncConnection, principal: Principal, message: UUID) -> None:
    """Lock an answer in the principal's own thread until the transaction ends."""
    statement = (
        select(messages_table.c.role)
        .join(threads_table, threads_table.c.id == messages_table.c.thread_id)
        .where(
            messages_table.c.id == message,
            threads_table.c.user_id == principal.user,
            messages_table.c.deleted_at.is_(None),
        )
        .with_for_update(of=messages_table, key_share=True)
    )
    role = require(await session.scalar(statement), NotFound("message", str(message)))
    if role != Role.ASSISTANT.value:
        raise InvalidInput(
            "message_id", str(message), "is one of your own messages; feedback can only be given on answers"
        )


def _delete_feedback(principal: Principal, message: UUID) -> Delete:
    return delete(feedback_table).where(
        feedback_table.c.message_id == message, feedback_table.c.user_id == principal.user
    )
