"""The tables of people, keys, limits and the audit.

Here and in the other rooms: a table that SQLAlchemy reads or writes as objects is a class; one that only SQL names is a
`Table`.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
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
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, foreign, mapped_column, relationship, synonym

from rag_app.database.tables import Base, InsertTime, NewId


class OrganizationRow(Base):
    __tablename__ = "organizations"
    __table_args__ = (CheckConstraint("monthly_token_budget >= 0", name="budget"),)

    id: Mapped[NewId]
    slug: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    created_at: Mapped[InsertTime]
    monthly_token_budget: Mapped[int | None] = mapped_column(BigInteger)
    requests_per_minute: Mapped[int | None]
    concurrent_requests: Mapped[int | None]
    time_zone: Mapped[str | None]


class SiteRow(Base):
    __tablename__ = "sites"
    __table_args__ = (
        UniqueConstraint("org_id", "name"),
        UniqueConstraint("org_id", "id"),  # for the foreign key of sources
    )

    id: Mapped[NewId]
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id))
    name: Mapped[str]


# A plan's entitlements; -1 messages: no limit.
plans_table = Table(
    "plan_entitlements",
    Base.metadata,
    Column("plan_code", Text, primary_key=True),
    Column("rag_messages_per_month", Integer, nullable=False, server_default=text("50")),
    Column("rag_enabled", Boolean, nullable=False, server_default=text("true")),
    CheckConstraint("rag_messages_per_month >= -1", name="messages"),
)


class UserRow(Base):
    """`subject` is an identity provider's name for the user, if it is not our id."""

    __tablename__ = "users"
    __table_args__ = (CheckConstraint("role IN ('user', 'admin')", name="role"),)

    id: Mapped[NewId]
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[InsertTime]
    subject: Mapped[str | None] = mapped_column(unique=True)
    plan_code: Mapped[str] = mapped_column(ForeignKey(plans_table.c.plan_code), server_default=text("'free'"))
    role: Mapped[str] = mapped_column(server_default=text("'user'"))
    training_opt_in_at: Mapped[datetime | None]
    plan = synonym("plan_code")


class MembershipRow(Base):
    __tablename__ = "memberships"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(UserRow.id, ondelete="CASCADE"), primary_key=True)
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id, ondelete="CASCADE"), primary_key=True)
    created_at: Mapped[InsertTime]


# What a member or a key may do with an organization's sources in an index; `*` is every index.
index_roles_table = Table(
    "index_roles",
    Base.metadata,
    Column("org_id", Uuid, primary_key=True),
    Column("user_id", Uuid, primary_key=True),
    Column("index_name", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    ForeignKeyConstraint(["user_id", "org_id"], [MembershipRow.user_id, MembershipRow.org_id], ondelete="CASCADE"),
    CheckConstraint("role IN ('read', 'write', 'admin')", name="role"),
)


class GroupRow(Base):
    """Some members of an organization."""

    __tablename__ = "groups"
    __table_args__ = (UniqueConstraint("org_id", "slug"), UniqueConstraint("org_id", "id"))

    id: Mapped[NewId]
    org_id: Mapped[UUID] = mapped_column(ForeignKey(OrganizationRow.id, ondelete="CASCADE"))
    slug: Mapped[str]
    name: Mapped[str]
    created_at: Mapped[InsertTime]


# A user whom an administrator has added to a group of their organization.
group_members_table = Table(
    "group_members",
    Base.metadata,
    Column("group_id", Uuid, primary_key=True),
    Column("user_id", Uuid, primary_key=True, index=True),
    Column("org_id", Uuid, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    ForeignKeyConstraint(["org_id", "group_id"], [GroupRow.org_id, GroupRow.id], ondelete="CASCADE"),
    ForeignKeyConstraint(["user_id", "org_id"], [MembershipRow.user_id, MembershipRow.org_id], ondelete="CASCADE"),
)


# A set of groups that sources refer to. Its id derives from theirs. It stays when a group is deleted.
audiences_table = Table(
    "audiences",
    Base.metadata,
    Column("id", Uuid, primary_key=True),
    Column("org_id", ForeignKey(OrganizationRow.id, ondelete="CASCADE"), nullable=False),
    UniqueConstraint("org_id", "id"),
)


audience_groups_table = Table(
    "audience_groups",
    Base.metadata,
    Column("audience_id", Uuid, primary_key=True),
    Column("group_id", Uuid, primary_key=True, index=True),
    Column("org_id", Uuid, nullable=False),
    ForeignKeyConstraint(
        ["org_id", "audience_id"], [audiences_table.c.org_id, audiences_table.c.id], ondelete="CASCADE"
    ),
    ForeignKeyConstraint(["org_id", "group_id"], [GroupRow.org_id, GroupRow.id], ondelete="CASCADE"),
)


# The times of a key's requests in the last minute: Unix time, seconds. `let_in`: whether the last one was allowed.
# UNLOGGED: the last minute need not survive a crash, and costs no write-ahead log.
rate_windows_table = Table(
    "rate_windows",
    Base.metadata,
    Column("key", Text, primary_key=True),
    Column("times", ARRAY(Double), nullable=False),
    Column("let_in", Boolean, nullable=False),
    prefixes=["UNLOGGED"],
)

# A request in progress. The lease of a killed process expires. UNLOGGED, like the windows.
request_leases_table = Table(
    "request_leases",
    Base.metadata,
    Column("id", Uuid, primary_key=True),
    Column("key", Text, nullable=False, index=True),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    prefixes=["UNLOGGED"],
)


class ApiKeyRow(Base):
    """`digest` is the SHA-256 of the key, which has 256 bits of its own; `beginning` is what a list shows of it."""

    __tablename__ = "api_keys"
    __table_args__ = (
        ForeignKeyConstraint(["user_id", "org_id"], [MembershipRow.user_id, MembershipRow.org_id], ondelete="CASCADE"),
        Index(None, "org_id"),
    )

    id: Mapped[NewId]
    name: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    beginning: Mapped[str]
    user_id: Mapped[UUID]
    org_id: Mapped[UUID]
    indexes: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    created_at: Mapped[InsertTime]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    requests_per_minute: Mapped[int | None]
    concurrent_requests: Mapped[int | None]
    organization: Mapped[OrganizationRow] = relationship(
        primaryjoin=lambda: foreign(ApiKeyRow.org_id) == OrganizationRow.id,
        viewonly=True,
        lazy="joined",
        innerjoin=True,
    )


# Tokens that models counted for an organization's members in the month that begins on `period`.
organization_tokens_table = Table(
    "organization_tokens",
    Base.metadata,
    Column("org_id", ForeignKey(OrganizationRow.id, ondelete="CASCADE"), primary_key=True),
    Column("period", Date, primary_key=True),
    Column("tokens", BigInteger, nullable=False),
    CheckConstraint("tokens >= 0", name="tokens"),
)


# An audit event: who did what to which object. Rows are added and read, never changed.
# `actor_id` refers to nothing: it stays when its user is erased.
audit_events_table = Table(
    "audit_events",
    Base.metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("actor_id", Uuid),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("details", JSONB, nullable=False, server_default=text("'{}'")),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now(), index=True),
)


# A browser that is signed in. `digest` is the SHA-256 of its cookie, which has 256 bits of its own.
# `groups`: those that an identity provider named, where one has signed the user in.
Table(
    "page_sessions",
    Base.metadata,
    Column("digest", Text, primary_key=True),
    Column("user_id", ForeignKey(UserRow.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("seen_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("groups", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("by_provider", Boolean, nullable=False, server_default=text("false")),
)

# A code that signs its user in once. `digest` is the SHA-256 of the code, which has 128 bits of its own.
Table(
    "sign_in_codes",
    Base.metadata,
    Column("digest", Text, primary_key=True),
    Column("user_id", ForeignKey(UserRow.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)

# A browser's attempt to sign in at the identity provider. `digest` is the SHA-256 of its cookie of 256 random bits.
Table(
    "sign_in_attempts",
    Base.metadata,
    Column("digest", Text, primary_key=True),
    Column("after", Text, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)
