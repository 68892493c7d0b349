"""The tables of people, keys, limits and the audit."""

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

from rag_app.database.tables import SCHEMA, id_column, time_of_insert

organizations_table = Table(
    "organizations",
    SCHEMA,
    id_column(),
    Column("slug", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    time_of_insert(),
    Column("monthly_token_budget", BigInteger),
    Column("requests_per_minute", Integer),
    Column("concurrent_requests", Integer),
    Column("time_zone", Text),
    CheckConstraint("monthly_token_budget >= 0", name="budget"),
)


sites_table = Table(
    "sites",
    SCHEMA,
    id_column(),
    Column("org_id", ForeignKey(organizations_table.c.id), nullable=False),
    Column("name", Text, nullable=False),
    UniqueConstraint("org_id", "name"),
    UniqueConstraint("org_id", "id"),  # for the foreign key of sources
)


# A plan's entitlements; -1 messages: no limit.
plans_table = Table(
    "plan_entitlements",
    SCHEMA,
    Column("plan_code", Text, primary_key=True),
    Column("rag_messages_per_month", Integer, nullable=False, server_default=text("50")),
    Column("rag_enabled", Boolean, nullable=False, server_default=text("true")),
    CheckConstraint("rag_messages_per_month >= -1", name="messages"),
)


# `subject` is an identity provider's name for the user, if it is not our id.
users_table = Table(
    "users",
    SCHEMA,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    time_of_insert(),
    Column("subject", Text, unique=True),
    Column("plan_code", ForeignKey(plans_table.c.plan_code), key="plan", nullable=False, server_default=text("'free'")),
    Column("role", Text, nullable=False, server_default=text("'user'")),
    Column("training_opt_in_at", DateTime(timezone=True)),
    CheckConstraint("role IN ('user', 'admin')", name="role"),
)


memberships_table = Table(
    "memberships",
    SCHEMA,
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), primary_key=True),
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), primary_key=True),
    time_of_insert(),
)


# What a member or a key may do with an organization's sources in an index; `*` is every index.
index_roles_table = Table(
    "index_roles",
    SCHEMA,
    Column("org_id", Uuid, primary_key=True),
    Column("user_id", Uuid, primary_key=True),
    Column("index_name", Text, primary_key=True),
    Column("role", Text, nullable=False),
    time_of_insert(),
    ForeignKeyConstraint(
        ["user_id", "org_id"], [memberships_table.c.user_id, memberships_table.c.org_id], ondelete="CASCADE"
    ),
    CheckConstraint("role IN ('read', 'write', 'admin')", name="role"),
)


# Some members of an organization.
groups_table = Table(
    "groups",
    SCHEMA,
    id_column(),
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), nullable=False),
    Column("slug", Text, nullable=False),
    Column("name", Text, nullable=False),
    time_of_insert(),
    UniqueConstraint("org_id", "slug"),
    UniqueConstraint("org_id", "id"),
)


# A user whom an administrator has added to a group of their organization.
group_members_table = Table(
    "group_members",
    SCHEMA,
    Column("group_id", Uuid, primary_key=True),
    Column("user_id", Uuid, primary_key=True, index=True),
    Column("org_id", Uuid, nullable=False),
    time_of_insert(),
    ForeignKeyConstraint(["org_id", "group_id"], [groups_table.c.org_id, groups_table.c.id], ondelete="CASCADE"),
    ForeignKeyConstraint(
        ["user_id", "org_id"], [memberships_table.c.user_id, memberships_table.c.org_id], ondelete="CASCADE"
    ),
)


# A set of groups that sources refer to. Its id derives from theirs. It stays when a group is deleted.
audiences_table = Table(
    "audiences",
    SCHEMA,
    Column("id", Uuid, primary_key=True),
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), nullable=False),
    UniqueConstraint("org_id", "id"),
)


audience_groups_table = Table(
    "audience_groups",
    SCHEMA,
    Column("audience_id", Uuid, primary_key=True),
    Column("group_id", Uuid, primary_key=True, index=True),
    Column("org_id", Uuid, nullable=False),
    ForeignKeyConstraint(
        ["org_id", "audience_id"], [audiences_table.c.org_id, audiences_table.c.id], ondelete="CASCADE"
    ),
    ForeignKeyConstraint(["org_id", "group_id"], [groups_table.c.org_id, groups_table.c.id], ondelete="CASCADE"),
)


# The times of a key's requests in the last minute: Unix time, seconds. `let_in`: whether the last one was allowed.
# UNLOGGED: the last minute need not survive a crash, and costs no write-ahead log.
rate_windows_table = Table(
    "rate_windows",
    SCHEMA,
    Column("key", Text, primary_key=True),
    Column("times", ARRAY(Double), nullable=False),
    Column("let_in", Boolean, nullable=False),
    prefixes=["UNLOGGED"],
)

# A request in progress. The lease of a killed process expires. UNLOGGED, like the windows.
request_leases_table = Table(
    "request_leases",
    SCHEMA,
    Column("id", Uuid, primary_key=True),
    Column("key", Text, nullable=False, index=True),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    prefixes=["UNLOGGED"],
)


# `digest` is the SHA-256 of the key, which has 256 bits of its own; `beginning` is what a list shows of it.
api_keys_table = Table(
    "api_keys",
    SCHEMA,
    id_column(),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False, unique=True),
    Column("beginning", Text, nullable=False),
    Column("user_id", Uuid, nullable=False),
    Column("org_id", Uuid, nullable=False),
    Column("indexes", ARRAY(Text)),
    time_of_insert(),
    Column("last_used_at", DateTime(timezone=True)),
    Column("revoked_at", DateTime(timezone=True)),
    Column("requests_per_minute", Integer),
    Column("concurrent_requests", Integer),
    ForeignKeyConstraint(
        ["user_id", "org_id"], [memberships_table.c.user_id, memberships_table.c.org_id], ondelete="CASCADE"
    ),
    Index(None, "org_id"),
)


# Tokens that models counted for an organization's members in the month that begins on `period`.
organization_tokens_table = Table(
    "organization_tokens",
    SCHEMA,
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), primary_key=True),
    Column("period", Date, primary_key=True),
    Column("tokens", BigInteger, nullable=False),
    CheckConstraint("tokens >= 0", name="tokens"),
)


# An audit event: who did what to which object. Rows are added and read, never changed.
# `actor_id` refers to nothing: it stays when its user is erased.
audit_events_table = Table(
    "audit_events",
    SCHEMA,
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
    SCHEMA,
    Column("digest", Text, primary_key=True),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), nullable=False, index=True),
    time_of_insert(),
    Column("seen_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("groups", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("by_provider", Boolean, nullable=False, server_default=text("false")),
)

# A code that signs its user in once. `digest` is the SHA-256 of the code, which has 128 bits of its own.
Table(
    "sign_in_codes",
    SCHEMA,
    Column("digest", Text, primary_key=True),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)

# A browser's attempt to sign in at the identity provider. `digest` is the SHA-256 of its cookie of 256 random bits.
Table(
    "sign_in_attempts",
    SCHEMA,
    Column("digest", Text, primary_key=True),
    Column("after", Text, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)
