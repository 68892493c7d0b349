"""The tables. Migrations make them; a test holds the two together.

Row-level security, the functions it reads and the grants are in `migrations/versions`, and explained in
`rag_app.database.session`: models cannot say them.
"""

from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID, uuid4

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Date,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    MetaData,
    Numeric,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

REVISION = "0009"
"""The migration that these models describe: a server refuses a database at another one."""


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text,
        float: Double,
        datetime: DateTime(timezone=True),
        date: Date,
        Decimal: Numeric,
        dict[str, Any]: JSONB,
        list[dict[str, Any]]: JSONB,
    }


class OrganizationRow(Base):
    __tablename__ = "organizations"
    __table_args__ = (CheckConstraint("monthly_token_budget >= 0", name="budget"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    slug: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    monthly_token_budget: Mapped[int | None] = mapped_column(BigInteger)


class SiteRow(Base):
    __tablename__ = "sites"
    __table_args__ = (
        UniqueConstraint("org_id", "name"),
        UniqueConstraint("org_id", "id"),  # for the foreign key of sources
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id))
    name: Mapped[str]


class PlanRow(Base):
    """What a plan gives a user; -1 messages: without limit."""

    __tablename__ = "plan_entitlements"
    __table_args__ = (CheckConstraint("rag_messages_per_month >= -1", name="messages"),)

    plan_code: Mapped[str] = mapped_column(primary_key=True)
    rag_messages_per_month: Mapped[int] = mapped_column(server_default=text("50"))
    rag_enabled: Mapped[bool] = mapped_column(server_default=text("true"))


class UserRow(Base):
    """`subject` is what an identity provider calls the user, where that is not our id."""

    __tablename__ = "users"
    __table_args__ = (CheckConstraint("role IN ('user', 'admin')", name="role"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    subject: Mapped[str | None] = mapped_column(unique=True)
    plan_code: Mapped[str] = mapped_column(ForeignKey(PlanRow.plan_code), server_default=text("'free'"))
    role: Mapped[str] = mapped_column(server_default=text("'user'"))
    training_opt_in_at: Mapped[datetime | None]


class MembershipRow(Base):
    __tablename__ = "memberships"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"), primary_key=True)
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id, ondelete="CASCADE"), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class GenerationRow(Base):
    __tablename__ = "generations"
    __table_args__ = (
        UniqueConstraint("index_name", "store", "number"),
        Index(
            "uq_generations_active",
            "index_name",
            "store",
            unique=True,
            postgresql_where=text("state = 'active'"),
        ),
        CheckConstraint("store IN ('postgres', 'qdrant')", name="store"),
        CheckConstraint("state IN ('building', 'active', 'retired', 'dropped')", name="state"),
        CheckConstraint("dimension > 0", name="dimension"),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    index_name: Mapped[str]
    store: Mapped[str]
    number: Mapped[int]
    embedding_model: Mapped[str]
    dimension: Mapped[int]
    state: Mapped[str]
    settings: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class SourceRow(Base):
    """A source as it was last read. With `deleted_at` it is on its way out: nobody sees it, but its chunks may stand."""

    __tablename__ = "sources"
    __table_args__ = (
        UniqueConstraint("org_id", "index_name", "external_id"),
        UniqueConstraint("org_id", "id"),  # for the foreign key of source_builds
        # A site of another organization is no site.
        ForeignKeyConstraint(["org_id", "site_id"], [SiteRow.org_id, SiteRow.id]),
        Index(None, "org_id", "index_name", "origin"),
        CheckConstraint("visibility IN ('user', 'team', 'global')", name="visibility"),
        CheckConstraint("visibility <> 'user' OR owner_id IS NOT NULL", name="private_has_owner"),
        CheckConstraint(
            "(visibility = 'global') = (org_id = '00000000-0000-0000-0000-000000000001')", name="global_is_public"
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id))
    index_name: Mapped[str]
    external_id: Mapped[str]
    title: Mapped[str]
    source_type: Mapped[str]
    lang: Mapped[str]
    uri: Mapped[str | None]
    date: Mapped[float | None]
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata")
    origin: Mapped[str]
    site_id: Mapped[UUID | None]
    owner_id: Mapped[UUID | None] = mapped_column(ForeignKey(UserRow.id))
    visibility: Mapped[str]
    version: Mapped[str]
    content: Mapped[list[dict[str, Any]]] = mapped_column(deferred=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    deleted_at: Mapped[datetime | None]


class SourceBuildRow(Base):
    """What of a source stands in a generation's vector store."""

    __tablename__ = "source_builds"
    __table_args__ = (
        # A build belongs to the organization of its source.
        ForeignKeyConstraint(["org_id", "source_id"], [SourceRow.org_id, SourceRow.id], ondelete="CASCADE"),
        Index(None, "org_id", "source_id"),  # the cascade's way in
        CheckConstraint("state IN ('writing', 'ready')", name="state"),
        CheckConstraint("chunks >= 0", name="chunks"),
    )

    generation_id: Mapped[int] = mapped_column(ForeignKey(GenerationRow.id), primary_key=True)
    source_id: Mapped[UUID] = mapped_column(primary_key=True)
    org_id: Mapped[UUID]
    version: Mapped[str]
    chunks: Mapped[int] = mapped_column(server_default=text("0"))
    state: Mapped[str]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())


class RateWindowRow(Base):
    """UNLOGGED: a count of the last minute need not survive a crash, and costs no write-ahead log."""

    __tablename__ = "rate_windows"
    __table_args__ = ({"prefixes": ["UNLOGGED"]},)

    key: Mapped[str] = mapped_column(primary_key=True)
    window_start: Mapped[int] = mapped_column(BigInteger)
    count: Mapped[int]


class LeaseRow(Base):
    """A request under way; the lease of one whose process died runs out. UNLOGGED, as the windows are."""

    __tablename__ = "request_leases"
    __table_args__ = (Index(None, "key"), {"prefixes": ["UNLOGGED"]})

    id: Mapped[UUID] = mapped_column(primary_key=True)
    key: Mapped[str]
    expires_at: Mapped[datetime]


class ApiKeyRow(Base):
    """`digest` is the SHA-256 of the key, which has 256 bits of its own; `beginning` is what a list shows of it."""

    __tablename__ = "api_keys"
    __table_args__ = (
        ForeignKeyConstraint(["user_id", "org_id"], [MembershipRow.user_id, MembershipRow.org_id], ondelete="CASCADE"),
        Index(None, "org_id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    beginning: Mapped[str]
    user_id: Mapped[UUID]
    org_id: Mapped[UUID]
    indexes: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class ValidationRow(Base):
    """One run of a set of queries whose answers are known; `report` is what was answered."""

    __tablename__ = "validations"
    __table_args__ = (Index(None, "org_id", "created_at"), CheckConstraint("top_k > 0", name="top_k"))

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id, ondelete="CASCADE"))
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey(UserRow.id, ondelete="SET NULL"))
    index_name: Mapped[str]
    generation_id: Mapped[int] = mapped_column(ForeignKey(GenerationRow.id))
    top_k: Mapped[int]
    report: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class JudgmentRow(Base):
    """A passage that answers a query, by the judgment of an organization: of a source of its own, or of a public one.

    Characters `start` to `end` of the source's content, which were `text` then; all of it where they are null.
    Chunks come and go with each build, so none is named here. `feedback_id`: the feedback that says so, and takes its
    judgment along when it goes.
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
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    feedback_id: Mapped[UUID | None] = mapped_column(ForeignKey("rag_feedback.id", ondelete="CASCADE"), index=True)


class ThreadRow(Base):
    __tablename__ = "rag_threads"
    __table_args__ = (
        Index("rag_threads_user_id_idx", "user_id", text("last_message_at DESC"), text("id DESC")),
        Index("rag_threads_archived_idx", "archived", postgresql_where=text("NOT archived")),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    user_id: Mapped[UUID] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"))
    title: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_message_at: Mapped[datetime] = mapped_column(server_default=func.now())
    message_count: Mapped[int] = mapped_column(server_default=text("0"))
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", server_default=text("'{}'"))
    archived: Mapped[bool] = mapped_column(server_default=text("false"))


class MessageRow(Base):
    """From `model_id` on: of the assistant's messages. `clock_timestamp`: two of one transaction come one after the other."""

    __tablename__ = "rag_messages"
    __table_args__ = (
        CheckConstraint("role IN ('user', 'assistant')", name="role"),
        Index("rag_messages_thread_id_idx", "thread_id", "created_at", "id"),
        Index("rag_messages_role_idx", "role"),
        Index(None, "created_at"),
        Index("rag_messages_training_idx", "training_eligible", postgresql_where=text("training_eligible")),
        Index("rag_messages_deleted_idx", "deleted_at", postgresql_where=text("deleted_at IS NULL")),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    thread_id: Mapped[UUID] = mapped_column(ForeignKey(ThreadRow.id, ondelete="CASCADE"))
    role: Mapped[str]
    content: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    capability: Mapped[str | None]
    context_json: Mapped[dict[str, Any] | None]
    model_id: Mapped[str | None]
    retrieved_source_ids: Mapped[list[dict[str, Any]] | None]
    generation_metadata: Mapped[dict[str, Any] | None]
    flags: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    training_eligible: Mapped[bool] = mapped_column(server_default=text("false"))
    deleted_at: Mapped[datetime | None]


class FeedbackRow(Base):
    """What a user thinks of an answer; of one, one. `expected_source_id`: what should have been among its sources."""

    __tablename__ = "rag_feedback"
    __table_args__ = (
        UniqueConstraint("message_id", "user_id"),
        CheckConstraint("rating IN ('positive', 'negative', 'neutral')", name="rating"),
        Index("rag_feedback_user_id_idx", "user_id", text("created_at DESC")),
        Index("rag_feedback_rating_idx", "rating"),
        Index(None, "created_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    message_id: Mapped[UUID] = mapped_column(ForeignKey(MessageRow.id, ondelete="CASCADE"))
    user_id: Mapped[UUID] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"))
    rating: Mapped[str]
    feedback_text: Mapped[str | None]
    expected_source_id: Mapped[UUID | None] = mapped_column(ForeignKey(SourceRow.id, ondelete="SET NULL"), index=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())


class TrainingRequestRow(Base):
    """What a model was asked, of a user who consents to training: `prompt` is a list of messages (role, content),
    `context` the passages it was shown, with their sources. `message_id` is the answer's."""

    __tablename__ = "lexybrain_requests"
    __table_args__ = (UniqueConstraint("message_id"), Index(None, "user_id", "created_at"))

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    message_id: Mapped[UUID] = mapped_column(ForeignKey(MessageRow.id, ondelete="CASCADE"))
    user_id: Mapped[UUID] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"))
    capability: Mapped[str]
    prompt: Mapped[list[dict[str, Any]]]
    context: Mapped[list[dict[str, Any]]]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class TrainingResponseRow(Base):
    """What it answered."""

    __tablename__ = "lexybrain_responses"
    __table_args__ = (UniqueConstraint("request_id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    request_id: Mapped[UUID] = mapped_column(ForeignKey(TrainingRequestRow.id, ondelete="CASCADE"))
    user_id: Mapped[UUID] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"), index=True)
    model_id: Mapped[str]
    content: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class UsageCounterRow(Base):
    """How much of `key` a user has used in the month that begins on `period`; reservations under way are in it."""

    __tablename__ = "usage_counters"
    __table_args__ = (CheckConstraint("used >= 0", name="used"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    period: Mapped[date] = mapped_column(primary_key=True)
    used: Mapped[int]


class ReservationRow(Base):
    """One use that is counted but not yet earned: it goes when the answer is kept, or is given back when it expires."""

    __tablename__ = "usage_reservations"
    __table_args__ = (Index(None, "user_id", "expires_at"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"))
    key: Mapped[str]
    period: Mapped[date]
    expires_at: Mapped[datetime]


class OrganizationTokensRow(Base):
    """Tokens that models counted for an organization's members in the month that begins on `period`."""

    __tablename__ = "organization_tokens"
    __table_args__ = (CheckConstraint("tokens >= 0", name="tokens"),)

    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id, ondelete="CASCADE"), primary_key=True)
    period: Mapped[date] = mapped_column(primary_key=True)
    tokens: Mapped[int] = mapped_column(BigInteger)


class DailyCostRow(Base):
    """What answers have cost on a day (UTC), all users together."""

    __tablename__ = "daily_costs"
    __table_args__ = (CheckConstraint("cents >= 0", name="cents"),)

    day: Mapped[date] = mapped_column(primary_key=True)
    cents: Mapped[Decimal]


class UsageEventRow(Base):
    """One answer and what it took. `stages` in milliseconds."""

    __tablename__ = "ai_usage_events"
    __table_args__ = (Index(None, "created_at"), Index(None, "user_id", "created_at"))

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey(UserRow.id, ondelete="SET NULL"))
    type: Mapped[str]
    message_id: Mapped[UUID | None]
    plan_code: Mapped[str]
    capability: Mapped[str | None]
    model_version: Mapped[str]
    cache_hit: Mapped[bool] = mapped_column(server_default=text("false"))
    latency_ms: Mapped[int]
    stages: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    tokens_in: Mapped[int]
    tokens_out: Mapped[int]
    cost_cents: Mapped[Decimal]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class FailureRow(Base):
    """A part that failed while an answer was made: `kind` is the error's name, `message` its text, without what was asked."""

    __tablename__ = "ai_failures"
    __table_args__ = (Index(None, "created_at"), Index(None, "user_id"))

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"))
    message_id: Mapped[UUID | None]
    capability: Mapped[str | None]
    model_id: Mapped[str | None]
    kind: Mapped[str]
    message: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class PromptConfigRow(Base):
    """A version of a prompt. Files seed the table at `db upgrade`; from then on the table says what is active."""

    __tablename__ = "lexybrain_prompt_configs"
    __table_args__ = (
        CheckConstraint("weight >= 0", name="weight"),
        Index(None, "type", postgresql_where=text("is_active")),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    name: Mapped[str] = mapped_column(unique=True)
    type: Mapped[str]
    system_instructions: Mapped[str]
    constraints: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    weight: Mapped[int] = mapped_column(server_default=text("1"))
    is_active: Mapped[bool] = mapped_column(server_default=text("false"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())


class AuditRow(Base):
    """What somebody did, and to what. Rows are added and read, never changed.

    `actor_id` refers to nothing: it stays when its user is erased.
    """

    __tablename__ = "audit_events"
    __table_args__ = (Index(None, "created_at"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    actor_id: Mapped[UUID | None]
    action: Mapped[str]
    subject: Mapped[str]
    details: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
