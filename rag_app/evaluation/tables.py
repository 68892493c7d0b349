"""The tables of validation runs and judgments."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from rag_app.access.tables import organizations_table, users_table
from rag_app.database.tables import SCHEMA, id_column, time_of_insert
from rag_app.documents.tables import generations_table, sources_table

# One validation run of a set of queries with known answers; `report` is the response.
validations_table = Table(
    "validations",
    SCHEMA,
    Column("id", Uuid, primary_key=True),
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), nullable=False),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="SET NULL")),
    Column("index_name", Text, nullable=False),
    Column("generation_id", ForeignKey(generations_table.c.id), nullable=False),
    Column("top_k", Integer, nullable=False),
    Column("report", JSONB, nullable=False),
    time_of_insert(),
    Index(None, "org_id", "created_at"),
    CheckConstraint("top_k > 0", name="top_k"),
)

# The sources that a run found or expected. A run is visible to those who see all of them, and who could when it was made.
# `audience_id`, `private`: for whom the source was then: these groups, or the run's user alone. They outlive the source.
validation_sources_table = Table(
    "validation_sources",
    SCHEMA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("validation_id", ForeignKey(validations_table.c.id, ondelete="CASCADE"), index=True, nullable=False),
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), index=True, nullable=False),
    Column("source_id", ForeignKey(sources_table.c.id, ondelete="SET NULL"), index=True),
    Column("audience_id", Uuid),
    Column("private", Boolean, nullable=False),
)


# The fit for a generation's hits in one organization; the public organization's is for those without their own.
# `fit` is a rag_app.retrieval.confidence.Fit.
calibrations_table = Table(
    "calibrations",
    SCHEMA,
    Column("generation_id", ForeignKey(generations_table.c.id), primary_key=True),
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), primary_key=True, index=True),
    Column("fit", JSONB, nullable=False),
    time_of_insert(),
)


# An organization's judgment that a passage of its own or a public source answers a query.
# Characters `start` to `end` of the source's content, which were `text` then; all of it where they are null.
# Chunks come and go with each build, so none is named here. `feedback_id`, `answer_id`: the feedback that says so,
# on a message or on a kept answer, and takes its judgment along when it goes.
judgments_table = Table(
    "judgments",
    SCHEMA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), nullable=False),
    Column("index_name", Text, nullable=False),
    Column("query", Text, nullable=False),
    Column("source_id", ForeignKey(sources_table.c.id, ondelete="CASCADE"), index=True, nullable=False),
    Column("start", Integer),
    Column("end", Integer),
    Column("text", Text),
    Column("grade", Integer, nullable=False, server_default=text("1")),
    time_of_insert(),
    Column("feedback_id", ForeignKey("rag_feedback.id", ondelete="CASCADE"), index=True),
    Column("answer_id", ForeignKey("kept_answers.id", ondelete="CASCADE"), index=True),
    UniqueConstraint(
        *("org_id", "index_name", "query", "source_id", "start", "end", "feedback_id", "answer_id"),
        name="uq_judgments_passage",
        postgresql_nulls_not_distinct=True,
    ),
    CheckConstraint("grade >= 0", name="grade"),
    CheckConstraint('("start" IS NULL) = ("end" IS NULL) AND 0 <= "start" AND "start" < "end"', name="span"),
)


# An answer outside a conversation, kept so that its asker can give feedback.
# `sources` are those it cites ({"source_id", "chunk_id", "label"}). Without a `verdict` the row goes after a day.
kept_answers_table = Table(
    "kept_answers",
    SCHEMA,
    id_column(),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), nullable=False),
    Column("request_id", Text, nullable=False),
    Column("capability", Text, nullable=False),
    Column("index_name", Text, nullable=False),
    Column("question", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("refusal", Text),
    Column("model", Text),
    Column("prompt", Text),
    Column("sources", JSONB, nullable=False),
    Column("asked_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("verdict", Text),
    Column("comment", Text),
    Column("expected_source_id", ForeignKey(sources_table.c.id, ondelete="SET NULL"), index=True),
    Column("judged_at", DateTime(timezone=True)),
    UniqueConstraint("user_id", "request_id"),
    CheckConstraint("verdict IN ('right', 'wrong')", name="verdict"),
    CheckConstraint("(verdict IS NULL) = (judged_at IS NULL)", name="judged"),
    Index(None, "asked_at"),
)
