"""The tables of validation runs and judgments."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from rag_app.access.tables import OrganizationRow, UserRow
from rag_app.database.tables import Base, InsertTime, NewId
from rag_app.documents.tables import GenerationRow, SourceRow
from rag_app.domain import JsonObject


class ValidationRow(Base):
    """One validation run of a set of queries with known answers; `report` is the response."""

    __tablename__ = "validations"
    __table_args__ = (Index(None, "org_id", "created_at"), CheckConstraint("top_k > 0", name="top_k"))

    id: Mapped[NewId]
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id, ondelete="CASCADE"))
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey(UserRow.id, ondelete="SET NULL"))
    index_name: Mapped[str]
    generation_id: Mapped[int] = mapped_column(ForeignKey(GenerationRow.id))
    top_k: Mapped[int]
    report: Mapped[JsonObject]
    created_at: Mapped[InsertTime]


class CalibrationRow(Base):
    """The fit for a generation's hits in one organization; the public organization's is for those without their own.

    `fit` is a rag_app.retrieval.confidence.Fit.
    """

    __tablename__ = "calibrations"

    generation_id: Mapped[int] = mapped_column(ForeignKey(GenerationRow.id), primary_key=True)
    org_id: Mapped[UUID] = mapped_column(
        ForeignKey(OrganizationRow.id, ondelete="CASCADE"), primary_key=True, index=True
    )
    fit: Mapped[JsonObject]
    created_at: Mapped[InsertTime]


class JudgmentRow(Base):
    """An organization's judgment that a passage of its own or a public source answers a query.

    Characters `start` to `end` of the source's content, which were `text` then; all of it where they are null.
    Chunks come and go with each build, so none is named here. `feedback_id`, `answer_id`: the feedback that says so,
    on a message or on a kept answer, and takes its judgment along when it goes.
    """

    __tablename__ = "judgments"
    __table_args__ = (
        UniqueConstraint(
            "org_id",
            "index_name",
            "query",
            "source_id",
            "start",
            "end",
            "feedback_id",
            "answer_id",
            name="uq_judgments_passage",
            postgresql_nulls_not_distinct=True,
        ),
        CheckConstraint("grade >= 0", name="grade"),
        CheckConstraint('("start" IS NULL) = ("end" IS NULL) AND 0 <= "start" AND "start" < "end"', name="span"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id, ondelete="CASCADE"))
    index_name: Mapped[str]
    query: Mapped[str]
    source_id: Mapped[UUID] = mapped_column(ForeignKey(SourceRow.id, ondelete="CASCADE"), index=True)
    start: Mapped[int | None]
    end: Mapped[int | None]
    text_: Mapped[str | None] = mapped_column("text")
    grade: Mapped[int] = mapped_column(server_default=text("1"))
    created_at: Mapped[InsertTime]
    feedback_id: Mapped[UUID | None] = mapped_column(ForeignKey("rag_feedback.id", ondelete="CASCADE"), index=True)
    answer_id: Mapped[UUID | None] = mapped_column(ForeignKey("kept_answers.id", ondelete="CASCADE"), index=True)


class KeptAnswerRow(Base):
    """An answer outside a conversation, kept so that its asker can give feedback.

    `sources` are those it cites ({"source_id", "chunk_id", "label"}). Without a `verdict` the row goes after a day.
    """

    __tablename__ = "kept_answers"
    __table_args__ = (
        UniqueConstraint("user_id", "request_id"),
        CheckConstraint("verdict IN ('right', 'wrong')", name="verdict"),
        CheckConstraint("(verdict IS NULL) = (judged_at IS NULL)", name="judged"),
        Index(None, "asked_at"),
    )

    id: Mapped[NewId]
    user_id: Mapped[UUID] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"))
    request_id: Mapped[str]
    capability: Mapped[str]
    index_name: Mapped[str]
    question: Mapped[str]
    answer: Mapped[str]
    refusal: Mapped[str | None]
    model: Mapped[str | None]
    prompt: Mapped[str | None]
    sources: Mapped[list[JsonObject]]
    asked_at: Mapped[InsertTime]
    verdict: Mapped[str | None]
    comment: Mapped[str | None]
    expected_source_id: Mapped[UUID | None] = mapped_column(ForeignKey(SourceRow.id, ondelete="SET NULL"), index=True)
    judged_at: Mapped[datetime | None]
