"""Feedback of all users with what it is about, for administrators to read."""

from datetime import date, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, func, select, true, tuple_
from sqlalchemy.orm import aliased

from rag_app.access.audit import EVERYBODY, Act, administering
from rag_app.database import pages
from rag_app.database.session import Database
from rag_app.domain.scope import Principal
from rag_app.surfaces.lexybrain.figures import FeedbackFilter, Review, ReviewPage, midnight
from rag_app.surfaces.lexybrain.tables import FeedbackRow, MessageRow
from rag_app.surfaces.lexybrain.types import Rating, Role

_ANSWER, _ASKED = MessageRow, aliased(MessageRow)
# the last message of the user before the answer, and nothing where that one was deleted
_QUESTION = (
    select(_ASKED.content, _ASKED.deleted_at)
    .where(
        _ASKED.thread_id == _ANSWER.thread_id,
        _ASKED.role == Role.USER.value,
        tuple_(_ASKED.created_at, _ASKED.id) < tuple_(_ANSWER.created_at, _ANSWER.id),
    )
    .order_by(_ASKED.created_at.desc(), _ASKED.id.desc())
    .limit(1)
    .correlate(_ANSWER)
    .lateral("question")
)
_REVIEWS = (
    select(FeedbackRow, _ANSWER, _QUESTION.c.content, _QUESTION.c.deleted_at)
    .join(_ANSWER, _ANSWER.id == FeedbackRow.message_id)
    .outerjoin(_QUESTION, true())
    .where(_ANSWER.deleted_at.is_(None))
    .order_by(FeedbackRow.created_at.desc(), FeedbackRow.id.desc())
)


class Reviews:
    """For administrators; each reading is written down with it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, principal: Principal, wanted: FeedbackFilter, *, limit: int, after: str | None) -> ReviewPage:
        """The newest first; `after` is a page's cursor. What is rated anew keeps its place.

        Raises Forbidden, and InvalidInput for a cursor that is none.
        """
        statement = _REVIEWS.where(*_conditions(wanted)).limit(limit + 1)
        if after is not None:
            statement = statement.where(pages.before(after, FeedbackRow.created_at, FeedbackRow.id))
        act = Act("feedback.read", EVERYBODY, _details(wanted))
        async with administering(self._database, principal, act) as session:
            rows = (await session.execute(statement)).all()
        page = tuple(_review(row) for row in rows[:limit])
        return ReviewPage(page, pages.cursor(page[-1].created_at, page[-1].id) if len(rows) > limit else None)


def _conditions(wanted: FeedbackFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.rating is not None:
        found.append(FeedbackRow.rating == wanted.rating.value)
    if wanted.capability is not None:
        found.append(_ANSWER.capability == wanted.capability)
    if wanted.prompt is not None:
        versions = func.jsonb_each_text(_ANSWER.generation_metadata["prompts"]).table_valued("value")
        found.append(select(versions).where(versions.c.value == wanted.prompt).exists())
    if wanted.since is not None:
        found.append(FeedbackRow.created_at >= midnight(wanted.since))
    if wanted.until is not None and wanted.until < date.max:  # there is no day after that one
        found.append(FeedbackRow.created_at < midnight(wanted.until) + timedelta(days=1))
    return found


def _details(wanted: FeedbackFilter) -> dict[str, str]:
    given = {
        "rating": wanted.rating, "capability": wanted.capability, "prompt": wanted.prompt, "from": wanted.since,
        "to": wanted.until,
    }  # fmt: skip
    return {name: str(value) for name, value in given.items() if value is not None}


def _review(row: Row[Any]) -> Review:
    given, answer, question, deleted_at = row
    return Review(
        id=given.id,
        user=given.user_id,
        thread=answer.thread_id,
        message=answer.id,
        rating=Rating(given.rating),
        comment=given.feedback_text,
        expected_source=given.expected_source_id,
        created_at=given.created_at,
        updated_at=given.updated_at,
        answered_at=answer.created_at,
        capability=answer.capability,
        model=answer.model_id,
        question=question if deleted_at is None else None,
        answer=answer.content,
        prompts=(answer.generation_metadata or {}).get("prompts", {}),
        sources=tuple((each["label"], each["cited"] is not None) for each in answer.retrieved_source_ids or ()),
    )
