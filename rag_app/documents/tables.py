"""The tables of sources and generations."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Numeric,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from rag_app.access.tables import OrganizationRow, SiteRow, UserRow, audiences_table
from rag_app.database.tables import Base, InsertTime, Json
from rag_app.domain import JsonObject


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
        CheckConstraint("state IN ('building', 'active', 'retired', 'dropped')", name="state"),
        CheckConstraint("dimension > 0", name="dimension"),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    index: Mapped[str] = mapped_column("index_name")
    store: Mapped[str]
    number: Mapped[int]
    embedding_model: Mapped[str]
    dimension: Mapped[int]
    state: Mapped[str]
    settings: Mapped[JsonObject]
    created_at: Mapped[InsertTime]


# A source type that an index declares, for the SQL functions. Written when indexes are built.
Table(
    "source_types",
    Base.metadata,
    Column("index_name", Text, primary_key=True),
    Column("source_type", Text, primary_key=True),
)


class SourceRow(Base):
    """A source as it was last read. With `deleted_at` it is being deleted: nobody sees it, but its chunks may still exist."""

    __tablename__ = "sources"
    __table_args__ = (
        UniqueConstraint("org_id", "index_name", "external_id"),
        UniqueConstraint("org_id", "id"),  # for the foreign key of source_builds
        # A site of another organization is no site.
        ForeignKeyConstraint(["org_id", "site_id"], [SiteRow.org_id, SiteRow.id]),
        Index(None, "org_id", "index_name", "origin"),
        CheckConstraint("visibility IN ('user', 'group', 'team', 'global')", name="visibility"),
        CheckConstraint("visibility <> 'user' OR owner_id IS NOT NULL", name="private_has_owner"),
        CheckConstraint("(visibility = 'group') = (audience_id IS NOT NULL)", name="group_has_audience"),
        ForeignKeyConstraint(["org_id", "audience_id"], [audiences_table.c.org_id, audiences_table.c.id]),
        CheckConstraint(
            "(visibility = 'global') = (org_id = '00000000-0000-0000-0000-000000000001')", name="global_is_public"
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id))
    index: Mapped[str] = mapped_column("index_name")
    external_id: Mapped[str]
    title: Mapped[str]
    source_type: Mapped[str]
    lang: Mapped[str]
    uri: Mapped[str | None]
    date: Mapped[float | None]
    metadata_: Mapped[JsonObject] = mapped_column("metadata")
    origin: Mapped[str]
    site_id: Mapped[UUID | None]
    owner_id: Mapped[UUID | None] = mapped_column(ForeignKey(UserRow.id))
    row: Mapped[int | None] = mapped_column("row_number")
    sheet: Mapped[str | None]
    visibility: Mapped[str]
    file_name: Mapped[str | None]
    untyped: Mapped[Json]
    audience_id: Mapped[UUID | None]
    version: Mapped[str]
    content: Mapped[list[JsonObject]] = mapped_column(deferred=True)
    size: Mapped[int] = mapped_column(
        "bytes", BigInteger, Computed("octet_length(content::text)", persisted=True), deferred=True
    )
    created_at: Mapped[InsertTime]
    updated_at: Mapped[InsertTime]
    deleted_at: Mapped[datetime | None]


# A completely read file, with the number of its sources and the sum of their versions.
# `digest` is that of everything that its sources follow from.
Table(
    "read_files",
    Base.metadata,
    Column("org_id", ForeignKey(OrganizationRow.id, ondelete="CASCADE"), primary_key=True),
    Column("index_name", Text, primary_key=True),
    Column("origin", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("sources", Integer, nullable=False),
    Column("versions", Numeric, nullable=False),
)


# The uploaded file of a source, valid if `version` is the source's. Its bytes are in a file named by `sha256`.
originals_table = Table(
    "originals",
    Base.metadata,
    Column("source_id", Uuid, primary_key=True),
    Column("org_id", Uuid, nullable=False),
    Column("version", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("bytes", BigInteger, key="size", nullable=False),
    Column("file_name", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    ForeignKeyConstraint(["org_id", "source_id"], [SourceRow.org_id, SourceRow.id], ondelete="CASCADE"),
    Index(None, "org_id", "sha256"),
    CheckConstraint("bytes >= 0", name="bytes"),
)


# The response to a request with an `Idempotency-Key`; without one, the request is in progress or its process died.
repeats_table = Table(
    "idempotency_keys",
    Base.metadata,
    Column("org_id", ForeignKey(OrganizationRow.id, ondelete="CASCADE"), primary_key=True),
    Column("user_id", ForeignKey(UserRow.id, ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("response", JSONB),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)


class SourceBuildRow(Base):
    """A source's state in a generation's vector store."""

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
    updated_at: Mapped[InsertTime]


class JobRow(Base):
    """A job of files that a user has uploaded for an index. `done` and `failed` count them; the others wait."""

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("org_id", "id"),  # for the foreign key of job_files
        Index("ix_jobs_org_id_created_at", "org_id", "created_at"),
        CheckConstraint("state IN ('waiting', 'running', 'done', 'failed', 'cancelled')", name="state"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id, ondelete="CASCADE"))
    user_id: Mapped[UUID] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"))
    index: Mapped[str] = mapped_column("index_name")
    state: Mapped[str] = mapped_column(server_default=text("'waiting'"))
    target: Mapped[JsonObject]
    files: Mapped[int]
    done: Mapped[int] = mapped_column(server_default=text("0"))
    failed: Mapped[int] = mapped_column(server_default=text("0"))
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    error: Mapped[str | None]
    created_at: Mapped[InsertTime]
    updated_at: Mapped[InsertTime]
    ended_at: Mapped[datetime | None]


# A file of a job. Its content is kept until the job is deleted, so that failed and cancelled files can be retried.
job_files_table = Table(
    "job_files",
    Base.metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("org_id", Uuid, nullable=False),
    Column("name", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("bytes", BigInteger, key="size", nullable=False),
    Column("state", Text, nullable=False, server_default=text("'waiting'")),
    Column("reason", Text),
    ForeignKeyConstraint(["org_id", "job_id"], [JobRow.org_id, JobRow.id], ondelete="CASCADE"),
    CheckConstraint("state IN ('waiting', 'done', 'failed', 'cancelled')", name="state"),
)
