"""The tables of conversations: threads, messages, feedback, training, usage."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Numeric,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from rag_app.access.tables import users_table
from rag_app.database.tables import SCHEMA, time_of_insert
from rag_app.documents.tables import sources_table

threads_table = Table(
    "rag_threads",
    SCHEMA,
    Column("id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), nullable=False),
    time_of_insert(),
    Column("title", Text),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("last_message_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("message_count", Integer, nullable=False, server_default=text("0")),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'")),
    Column("archived", Boolean, nullable=False, server_default=text("false")),
    Index("rag_threads_user_id_idx", "user_id", text("last_message_at DESC"), text("id DESC")),
    Index("rag_threads_archived_idx", "archived", postgresql_where=text("NOT archived")),
)


# From `model_id` on: of the assistant's messages. `clock_timestamp`: two of one transaction come one after the other.
messages_table = Table(
    "rag_messages",
    SCHEMA,
    Column("id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("thread_id", ForeignKey(threads_table.c.id, ondelete="CASCADE"), nullable=False),
    Column("role", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("capability", Text),
    Column("context_json", JSONB),
    Column("model_id", Text),
    Column("retrieved_source_ids", JSONB),
    Column("generation_metadata", JSONB),
    Column("flags", JSONB, nullable=False, server_default=text("'{}'")),
    Column("training_eligible", Boolean, nullable=False, server_default=text("false")),
    Column("deleted_at", DateTime(timezone=True)),
    CheckConstraint("role IN ('user', 'assistant')", name="role"),
    Index("rag_messages_thread_id_idx", "thread_id", "created_at", "id"),
    Index("rag_messages_role_idx", "role"),
    Index(None, "created_at"),
    Index("rag_messages_training_idx", "training_eligible", postgresql_where=text("training_eligible")),
    Index("rag_messages_deleted_idx", "deleted_at", postgresql_where=text("deleted_at IS NULL")),
)


# What a user thinks of an answer; of one, one. `expected_source_id`: what should have been among its sources.
feedback_table = Table(
    "rag_feedback",
    SCHEMA,
    Column("id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), nullable=False),
    time_of_insert(),
    Column("message_id", ForeignKey(messages_table.c.id, ondelete="CASCADE"), nullable=False),
    Column("rating", Text, nullable=False),
    Column("feedback_text", Text, key="comment"),
    Column("expected_source_id", ForeignKey(sources_table.c.id, ondelete="SET NULL"), index=True),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    UniqueConstraint("message_id", "user_id"),
    CheckConstraint("rating IN ('positive', 'negative', 'neutral')", name="rating"),
    Index("rag_feedback_user_id_idx", "user_id", text("created_at DESC")),
    Index("rag_feedback_rating_idx", "rating"),
    Index(None, "created_at"),
)


# What a model was asked, of a user who consents to training: `prompt` is a list of messages (role, content),
# `context` the passages it was shown, with their sources. `message_id` is the answer's.
training_requests_table = Table(
    "lexybrain_requests",
    SCHEMA,
    Column("id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), nullable=False),
    Column("message_id", ForeignKey(messages_table.c.id, ondelete="CASCADE"), nullable=False, unique=True),
    Column("capability", Text, nullable=False),
    Column("prompt", JSONB, nullable=False),
    Column("context", JSONB, nullable=False),
    time_of_insert(),
    Index(None, "user_id", "created_at"),
)

# The model's answer to a training request.
Table(
    "lexybrain_responses",
    SCHEMA,
    Column("id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("request_id", ForeignKey(training_requests_table.c.id, ondelete="CASCADE"), nullable=False, unique=True),
    Column("model_id", Text, nullable=False),
    Column("content", Text, nullable=False),
    time_of_insert(),
)


# A user's use of `key` in the month that begins on `period`, including reservations.
usage_counters_table = Table(
    "usage_counters",
    SCHEMA,
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("period", Date, primary_key=True),
    Column("used", Integer, nullable=False),
    CheckConstraint("used >= 0", name="used"),
)


# A counted use without an answer yet. It is deleted when the answer is stored, or given back when it expires.
usage_reservations_table = Table(
    "usage_reservations",
    SCHEMA,
    Column("id", Uuid, primary_key=True),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), nullable=False),
    Column("key", Text, nullable=False),
    Column("period", Date, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Index(None, "user_id", "expires_at"),
)


# The cost of all users' answers on a day (UTC).
daily_costs_table = Table(
    "daily_costs",
    SCHEMA,
    Column("day", Date, primary_key=True),
    Column("cents", Numeric, nullable=False),
    CheckConstraint("cents >= 0", name="cents"),
)


# One answer and its use, which may stay when its user is erased. `stages` in milliseconds.
usage_events_table = Table(
    "ai_usage_events",
    SCHEMA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("message_id", Uuid),
    Column("capability", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now(), index=True),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="SET NULL")),
    Column("type", Text, nullable=False),
    Column("plan_code", Text, nullable=False),
    Column("model_version", Text, nullable=False),
    Column("cache_hit", Boolean, nullable=False, server_default=text("false")),
    Column("latency_ms", Integer, nullable=False),
    Column("stages", JSONB, nullable=False, server_default=text("'{}'")),
    Column("tokens_in", Integer, nullable=False),
    Column("tokens_out", Integer, nullable=False),
    Column("cost_cents", Numeric, nullable=False),
    Index(None, "user_id", "created_at"),
)


# A part that failed while an answer was made: `kind` is the error's name, `message` its text, without what was asked.
failures_table = Table(
    "ai_failures",
    SCHEMA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("message_id", Uuid),
    Column("capability", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now(), index=True),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), index=True),
    Column("model_id", Text),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
)
