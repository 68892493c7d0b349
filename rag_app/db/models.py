"""The tables. Migrations make them; a test holds the two together.

Row-level security, the functions it reads and the grants are in `migrations/versions`, and explained in
`rag_app.db.session`: models cannot say them.
"""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID, uuid4

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    MetaData,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

REVISION = "0005"
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
        dict[str, Any]: JSONB,
        list[dict[str, Any]]: JSONB,
    }


class OrganizationRow(Base):
    __tablename__ = "organizations"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    slug: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class SiteRow(Base):
    __tablename__ = "sites"
    __table_args__ = (
        UniqueConstraint("org_id", "name"),
        UniqueConstraint("org_id", "id"),  # for the foreign key of sources
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id))
    name: Mapped[str]


class UserRow(Base):
    """`subject` is what an identity provider calls the user, where that is not our id."""

    __tablename__ = "users"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    subject: Mapped[str | None] = mapped_column(unique=True)


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
    Chunks come and go with each build, so none is named here.
    """

    __tablename__ = "judgments"
    __table_args__ = (
        UniqueConstraint(
            "org_id", "index_name", "query", "source_id", "start", "end", postgresql_nulls_not_distinct=True
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
