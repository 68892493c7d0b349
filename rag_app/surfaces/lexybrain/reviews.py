"""Feedback of all users with what it is about, for administrators to read."""

from datetime import date, timedelta

from msgspec import to_builtins
from sqlalchemy import ColumnElement, case, func, select, text, true, tuple_
from sqlalchemy.orm import aliased

from rag_app.access.audit import EVERYBODY, Act, administering
from rag_app.database import pages
from rag_app.database.session import Database
from rag_app.domain.scope import Principal
from rag_app.surfaces.lexybrain.figures import (
    FeedbackFilter,
    FeedbackResponse,
    FeedbackReview,
    ReviewedSource,
    midnight,
)
from rag_app.surfaces.lexybrain.tables import FeedbackRow, MessageRow
from rag_app.surfaces.lexybrain.types import Role

_ANSWER, _ASKED = MessageRow, aliased(MessageRow)
# the last message of the user before the answer, and nothing where that one was deleted
_QUESTION = (
    select(case((_ASKED.deleted_at.is_(None), _ASKED.content)).label("question"))
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
# its columns are the fields of a FeedbackReview
_REVIEWS = (
    select(
        FeedbackRow.id,
        FeedbackRow.user_id,
        _ANSWER.thread_id,
        FeedbackRow.message_id,
        FeedbackRow.rating,
        FeedbackRow.feedback_text.label("comment"),
        FeedbackRow.expected_source_id,
        FeedbackRow.created_at,
        FeedbackRow.updated_at,
        _QUESTION.c.question,
        _ANSWER.content.label("answer"),
        _ANSWER.created_at.label("answered_at"),
        _ANSWER.capability,
        _ANSWER.model_id.label("model"),
        func.coalesce(_ANSWER.generation_metadata["prompts"], text("'{}'::jsonb")).label("prompts"),
        _ANSWER.retrieved_source_ids.label("sources"),
    )
    .join(_ANSWER, _ANSWER.id == FeedbackRow.message_id)
    .outerjoin(_QUESTION, true())
    .where(_ANSWER.deleted_at.is_(None))
    .order_by(FeedbackRow.created_at.desc(), FeedbackRow.id.desc())
)


class Reviews:
    """For administrators; each reading is written down with it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, principal: Principal, wanted: FeedbackFilter, *, limit: int, after: str | None
    ) -> FeedbackResponse:
        """The newest first; `after` is a page's cursor. What is rated anew keeps its place.

        Raises Forbidden, and InvalidInput for a cursor that is none.
        """
        statement = _REVIEWS.where(*_conditions(wanted)).limit(limit + 1)
        if after is not None:
            statement = statement.where(pages.before(after, FeedbackRow.created_at, FeedbackRow.id))
        act = Act("feedback.read", EVERYBODY, to_builtins(wanted))
        async with administering(self._database, principal, act) as session:
            rows = (await session.execute(statement)).mappings().all()
        page = [
            FeedbackReview(
                **{**row, "sources": [ReviewedSource(s["label"], s["cited"] is not None) for s in row["sources"] or ()]}
            )
            for row in rows[:limit]
        ]
        return FeedbackResponse(page, pages.cursor(page[-1].created_at, page[-1].id) if len(rows) > limit else None)


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
