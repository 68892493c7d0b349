"""The table of settled feedback."""

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from rag_app.database.tables import Base, InsertTime, NewId
from rag_app.evaluation.tables import KeptAnswerRow


class SettlementRow(Base):
    """An administrator's settlement of a feedback on a message or a kept answer. It is deleted with the feedback.

    `settled_by` refers to nothing: it stays when its user is erased.
    """

    __tablename__ = "feedback_settlements"
    __table_args__ = (
        CheckConstraint("resolution IN ('fixed', 'noted', 'dismissed')", name="resolution"),
        CheckConstraint("num_nonnulls(feedback_id, answer_id) = 1", name="one"),
    )

    id: Mapped[NewId]
    feedback_id: Mapped[UUID | None] = mapped_column(ForeignKey("rag_feedback.id", ondelete="CASCADE"), unique=True)
    answer_id: Mapped[UUID | None] = mapped_column(ForeignKey(KeptAnswerRow.id, ondelete="CASCADE"), unique=True)
    resolution: Mapped[str]
    note: Mapped[str | None]
    settled_by: Mapped[UUID]
    settled_at: Mapped[InsertTime]
