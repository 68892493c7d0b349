"""The table of settled feedback."""

from sqlalchemy import CheckConstraint, Column, DateTime, ForeignKey, Table, Text, Uuid, func

from rag_app.database.tables import SCHEMA, id_column
from rag_app.evaluation.tables import kept_answers_table

# An administrator's settlement of a feedback on a message or a kept answer. It is deleted with the feedback.
# `settled_by` refers to nothing: it stays when its user is erased.
settlements_table = Table(
    "feedback_settlements",
    SCHEMA,
    id_column(),
    Column("feedback_id", ForeignKey("rag_feedback.id", ondelete="CASCADE"), unique=True),
    Column("answer_id", ForeignKey(kept_answers_table.c.id, ondelete="CASCADE"), unique=True),
    Column("resolution", Text, nullable=False),
    Column("note", Text),
    Column("settled_by", Uuid, nullable=False),
    Column("settled_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    CheckConstraint("resolution IN ('fixed', 'noted', 'dismissed')", name="resolution"),
    CheckConstraint("num_nonnulls(feedback_id, answer_id) = 1", name="one"),
)
