"""The tables of sources and generations."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Double,
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

from rag_app.access.tables import audiences_table, organizations_table, sites_table, users_table
from rag_app.database.tables import SCHEMA, time_of_insert

# A build of an index in one vector store; at most one of them answers.
generations_table = Table(
    "generations",
    SCHEMA,
    Column("id", Integer, Identity(always=True), primary_key=True),
    Column("index_name", Text, key="index", nullable=False),
    Column("store", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("embedding_model", Text, nullable=False),
    Column("dimension", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("settings", JSONB, nullable=False),
    time_of_insert(),
    UniqueConstraint("index", "store", "number"),
    Index("uq_generations_active", "index", "store", unique=True, postgresql_where=text("state = 'active'")),
    CheckConstraint("state IN ('building', 'active', 'retired', 'dropped')", name="state"),
    CheckConstraint("dimension > 0", name="dimension"),
)


# A source type that an index declares, for the SQL functions. Written when indexes are built.
Table(
    "source_types",
    SCHEMA,
    Column("index_name", Text, primary_key=True),
    Column("source_type", Text, primary_key=True),
)


# A source as it was last read. With `deleted_at` it is being deleted: nobody sees it, but its chunks may still exist.
sources_table = Table(
    "sources",
    SCHEMA,
    Column("id", Uuid, primary_key=True),
    Column("org_id", ForeignKey(organizations_table.c.id), nullable=False),
    Column("index_name", Text, key="index", nullable=False),
    Column("external_id", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("source_type", Text, nullable=False),
    Column("lang", Text, nullable=False),
    Column("uri", Text),
    Column("date", Double),
    Column("metadata", JSONB, nullable=False),
    Column("origin", Text, nullable=False),
    Column("site_id", Uuid),
    Column("owner_id", ForeignKey(users_table.c.id)),
    Column("row_number", Integer, key="row"),
    Column("sheet", Text),
    Column("visibility", Text, nullable=False),
    Column("file_name", Text),
    Column("untyped", JSONB, nullable=False, server_default=text("'{}'")),
    Column("audience_id", Uuid),
    Column("version", Text, nullable=False),
    Column("content", JSONB, nullable=False),
    Column("bytes", BigInteger, Computed("octet_length(content::text)", persisted=True), key="size", nullable=False),
    time_of_insert(),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("deleted_at", DateTime(timezone=True)),
    UniqueConstraint("org_id", "index", "external_id"),
    UniqueConstraint("org_id", "id"),  # for the foreign key of source_builds
    # A site of another organization is no site.
    ForeignKeyConstraint(["org_id", "site_id"], [sites_table.c.org_id, sites_table.c.id]),
    Index(None, "org_id", "index", "origin"),
    CheckConstraint("visibility IN ('user', 'group', 'team', 'global')", name="visibility"),
    CheckConstraint("visibility <> 'user' OR owner_id IS NOT NULL", name="private_has_owner"),
    CheckConstraint("(visibility = 'group') = (audience_id IS NOT NULL)", name="group_has_audience"),
    ForeignKeyConstraint(["org_id", "audience_id"], [audiences_table.c.org_id, audiences_table.c.id]),
    CheckConstraint(
        "(visibility = 'global') = (org_id = '00000000-0000-0000-0000-000000000001')", name="global_is_public"
    ),
)


# A completely read file, with the number of its sources and the sum of their versions.
# `digest` is that of everything that its sources follow from.
Table(
    "read_files",
    SCHEMA,
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), primary_key=True),
    Column("index_name", Text, primary_key=True),
    Column("origin", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("sources", Integer, nullable=False),
    Column("versions", Numeric, nullable=False),
)


# The uploaded file of a source, valid if `version` is the source's. Its bytes are in a file named by `sha256`.
originals_table = Table(
    "originals",
    SCHEMA,
    Column("source_id", Uuid, primary_key=True),
    Column("org_id", Uuid, nullable=False),
    Column("version", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("bytes", BigInteger, key="size", nullable=False),
    Column("file_name", Text),
    time_of_insert(),
    ForeignKeyConstraint(["org_id", "source_id"], [sources_table.c.org_id, sources_table.c.id], ondelete="CASCADE"),
    Index(None, "org_id", "sha256"),
    CheckConstraint("bytes >= 0", name="bytes"),
)


# The response to a request with an `Idempotency-Key`; without one, the request is in progress or its process died.
repeats_table = Table(
    "idempotency_keys",
    SCHEMA,
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), primary_key=True),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("response", JSONB),
    time_of_insert(),
)


# A source's state in a generation's vector store.
source_builds_table = Table(
    "source_builds",
    SCHEMA,
    Column("generation_id", ForeignKey(generations_table.c.id), primary_key=True),
    Column("source_id", Uuid, primary_key=True),
    Column("org_id", Uuid, nullable=False),
    Column("version", Text, nullable=False),
    Column("chunks", Integer, nullable=False, server_default=text("0")),
    Column("state", Text, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    # A build belongs to the organization of its source.
    ForeignKeyConstraint(["org_id", "source_id"], [sources_table.c.org_id, sources_table.c.id], ondelete="CASCADE"),
    Index(None, "org_id", "source_id"),  # the cascade's way in
    CheckConstraint("state IN ('writing', 'ready')", name="state"),
    CheckConstraint("chunks >= 0", name="chunks"),
)


# A job of files that a user has uploaded for an index. `done` and `failed` count them; the others wait.
jobs_table = Table(
    "jobs",
    SCHEMA,
    Column("id", Uuid, primary_key=True),
    Column("org_id", ForeignKey(organizations_table.c.id, ondelete="CASCADE"), nullable=False),
    Column("user_id", ForeignKey(users_table.c.id, ondelete="CASCADE"), nullable=False),
    Column("index_name", Text, key="index", nullable=False),
    Column("state", Text, nullable=False, server_default=text("'waiting'")),
    Column("target", JSONB, nullable=False),
    Column("files", Integer, nullable=False),
    Column("done", Integer, nullable=False, server_default=text("0")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("error", Text),
    time_of_insert(),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended_at", DateTime(timezone=True)),
    UniqueConstraint("org_id", "id"),  # for the foreign key of job_files
    Index("ix_jobs_org_id_created_at", "org_id", "created_at"),
    CheckConstraint("state IN ('waiting', 'running', 'done', 'failed', 'cancelled')", name="state"),
)


# A file of a job. Its content is kept until the job is deleted, so that failed and cancelled files can be retried.
job_files_table = Table(
    "job_files",
    SCHEMA,
    Column("job_id", Uuid, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("org_id", Uuid, nullable=False),
    Column("name", Text, nullable=False),
    Column("document", JSONB, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("bytes", BigInteger, key="size", nullable=False),
    Column("state", Text, nullable=False, server_default=text("'waiting'")),
    Column("reason", Text),
    ForeignKeyConstraint(["org_id", "job_id"], [jobs_table.c.org_id, jobs_table.c.id], ondelete="CASCADE"),
    CheckConstraint("state IN ('waiting', 'done', 'failed', 'cancelled')", name="state"),
)
