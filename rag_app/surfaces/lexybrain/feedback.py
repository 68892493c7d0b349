"""Users' feedback: one per answer, which can be changed and withdrawn; administrators read all feedback.

A change of feedback first locks the row of its message, so concurrent changes are serialized and a deleted message gets
none.
"""

from datetime import date, timedelta
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct, field, to_builtins
from sqlalchemy import ColumnElement, Delete, case, delete, func, insert, select, text, true, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from rag_app.access.audit import EVERYBODY, Act, administering
from rag_app.database import pages
from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger
from rag_app.domain import InvalidInput, NotFound, Principal, require, storable
from rag_app.evaluation.records import check_comment, expected_source, judge
from rag_app.http.fields import as_wire
from rag_app.surfaces.lexybrain.statistics import VERSION, midnight
from rag_app.surfaces.lexybrain.tables import feedback_table, messages_table, threads_table
from rag_app.surfaces.lexybrain.types import MESSAGE, THREAD, KeptMessageFeedback, Moment, Rating, RatingValue, Role


class FeedbackFilter(Struct, frozen=True, omit_defaults=True):
    """None is all. `prompt` is the name of a version; `since` and `until` whole days in UTC, both included."""

    rating: Rating | None = None
    capability: str | None = None
    prompt: str | None = None
    since: date | None = field(default=None, name="from")
    until: date | None = field(default=None, name="to")


class ReviewedSource(Struct, frozen=True):
    label: str
    cited: bool


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


_ANSWER, _EARLIER = messages_table.c, messages_table.alias().c
# the last message of the user before the answer, and nothing where that one was deleted
_QUESTION = (
    select(case((_EARLIER.deleted_at.is_(None), _EARLIER.content)).label("question"))
    .where(
        _EARLIER.thread_id == _ANSWER.thread_id,
        _EARLIER.role == Role.USER.value,
        tuple_(_EARLIER.created_at, _EARLIER.id) < tuple_(_ANSWER.created_at, _ANSWER.id),
    )
    .order_by(_EARLIER.created_at.desc(), _EARLIER.id.desc())
    .limit(1)
    .correlate(messages_table)
    .lateral("question")
)
# its columns are the fields of a FeedbackReview
_REVIEWS = (
    select(
        feedback_table.c.id,
        feedback_table.c.user_id,
        _ANSWER.thread_id,
        feedback_table.c.message_id,
        feedback_table.c.rating,
        feedback_table.c.comment.label("comment"),
        feedback_table.c.expected_source_id,
        feedback_table.c.created_at,
        feedback_table.c.updated_at,
        _QUESTION.c.question,
        _ANSWER.content.label("answer"),
        _ANSWER.created_at.label("answered_at"),
        _ANSWER.capability,
        _ANSWER.model_id.label("model"),
        func.coalesce(_ANSWER.generation_metadata["prompts"], text("'{}'::jsonb")).label("prompts"),
        _ANSWER.retrieved_source_ids.label("sources"),
    )
    .join(messages_table, _ANSWER.id == feedback_table.c.message_id)
    .outerjoin(_QUESTION, true())
    .where(_ANSWER.deleted_at.is_(None))
    .order_by(feedback_table.c.created_at.desc(), feedback_table.c.id.desc())
)
# the text searched for an answer; if unknown, the user's message before it
_SEARCHED = text(
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
        if expected is not None and rating is not Rating.NEGATIVE:
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
                rating=rating.value,
                comment=comment,
                expected_source_id=source and source.id,
                **({} if since is None else {"created_at": since}),
            )
            row = (await session.execute(made.returning(feedback_table))).one()
            if source is not None and (asked := await session.scalar(_SEARCHED, {"answer": message})) is not None:
                await judge(session, principal, self._index, asked, source, feedback=row.id)
        return as_wire(KeptMessageFeedback, row)

    async def withdraw(self, principal: Principal, message: UUID) -> None:
        """Raises NotFound, also without feedback, and InvalidInput for a message that is not an answer."""
        async with self._database.scoped(principal.scope()) as session:
            await _lock_answer(session, principal, message)
            if await session.scalar(_delete_feedback(principal, message).returning(feedback_table.c.id)) is None:
                raise NotFound("feedback", str(message))

    async def review(
        self, principal: Principal, wanted: FeedbackFilter, *, limit: int, after: str | None
    ) -> FeedbackResponse:
        """All users' feedback, newest first, for administrators; each read is audited.

        `after` is a page's cursor. A changed rating keeps its place.

        Raises Forbidden, and InvalidInput for a cursor that is none.
        """
        statement = _REVIEWS.where(*_conditions(wanted)).limit(limit + 1)
        if after is not None:
            statement = statement.where(pages.is_after_cursor(after, feedback_table.c.created_at, feedback_table.c.id))
        async with administering(
            self._database, principal, Act("feedback.read", EVERYBODY, to_builtins(wanted))
        ) as session:
            rows = (await session.execute(statement)).mappings().all()
        page = [
            FeedbackReview(
                **{**row, "sources": [ReviewedSource(s["label"], s["cited"] is not None) for s in row["sources"] or ()]}
            )
            for row in rows[:limit]
        ]
        return FeedbackResponse(page, pages.cursor(page[-1].created_at, page[-1].id) if len(rows) > limit else None)


async def _lock_answer(session: AsyncSession, principal: Principal, message: UUID) -> None:
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


def _conditions(wanted: FeedbackFilter) -> list[ColumnElement[bool]]:
    versions = func.jsonb_each_text(_ANSWER.generation_metadata["prompts"]).table_valued("value")
    last = min(wanted.until or date.max, date.max - timedelta(days=1))  # there must be a day after it
    conditions: list[tuple[object, ColumnElement[bool]]] = [
        (wanted.rating, feedback_table.c.rating == wanted.rating),
        (wanted.capability, _ANSWER.capability == wanted.capability),
        (wanted.prompt, select(versions).where(versions.c.value == wanted.prompt).exists()),
        (wanted.since, feedback_table.c.created_at >= midnight(wanted.since or date.min)),
        (wanted.until, feedback_table.c.created_at < midnight(last) + timedelta(days=1)),
    ]
    return [condition for given, condition in conditions if given is not None]
