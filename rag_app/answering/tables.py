"""The table of prompt versions."""

from sqlalchemy import Boolean, CheckConstraint, Column, DateTime, Index, Integer, Table, Text, Uuid, func, text
from sqlalchemy.dialects.postgresql import JSONB

from rag_app.database.tables import SCHEMA, time_of_insert

# A version of a prompt. Files seed the table at `db upgrade`; from then on the table says what is active.
prompt_configs_table = Table(
    "lexybrain_prompt_configs",
    SCHEMA,
    Column("id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    Column("name", Text, nullable=False, unique=True),
    Column("type", Text, nullable=False),
    Column("system_instructions", Text, key="instructions", nullable=False),
    Column("constraints", JSONB, nullable=False, server_default=text("'{}'")),
    Column("weight", Integer, nullable=False, server_default=text("1")),
    Column("is_active", Boolean, key="active", nullable=False, server_default=text("false")),
    time_of_insert(),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    CheckConstraint("weight >= 0", name="weight"),
    Index(None, "type", postgresql_where=text("is_active")),
)
