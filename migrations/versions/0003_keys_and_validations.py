"""API keys, subjects of identity providers, requests under way, validation runs and judgments.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = [
    "ALTER TABLE users ADD COLUMN subject text CONSTRAINT uq_users_subject UNIQUE",
    """
    CREATE UNLOGGED TABLE request_leases (
        id uuid CONSTRAINT pk_request_leases PRIMARY KEY,
        key text NOT NULL,
        expires_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX ix_request_leases_key ON request_leases (key)",
    """
    CREATE TABLE api_keys (
        id uuid CONSTRAINT pk_api_keys PRIMARY KEY,
        name text NOT NULL,
        digest text NOT NULL CONSTRAINT uq_api_keys_digest UNIQUE,
        beginning text NOT NULL,
        user_id uuid NOT NULL,
        org_id uuid NOT NULL,
        indexes text[],
        created_at timestamptz NOT NULL DEFAULT now(),
        last_used_at timestamptz,
        revoked_at timestamptz,
        CONSTRAINT fk_api_keys_user_id_org_id FOREIGN KEY (user_id, org_id)
            REFERENCES memberships (user_id, org_id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX ix_api_keys_org_id ON api_keys (org_id)",
    """
    CREATE TABLE validations (
        id uuid CONSTRAINT pk_validations PRIMARY KEY,
        org_id uuid NOT NULL CONSTRAINT fk_validations_org_id REFERENCES organizations ON DELETE CASCADE,
        user_id uuid CONSTRAINT fk_validations_user_id REFERENCES users ON DELETE SET NULL,
        index_name text NOT NULL,
        generation_id integer NOT NULL CONSTRAINT fk_validations_generation_id REFERENCES generations,
        top_k integer NOT NULL CONSTRAINT ck_validations_top_k CHECK (top_k > 0),
        report jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "CREATE INDEX ix_validations_org_id_created_at ON validations (org_id, created_at)",
    """
    CREATE TABLE judgments (
        id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_judgments PRIMARY KEY,
        org_id uuid NOT NULL CONSTRAINT fk_judgments_org_id REFERENCES organizations ON DELETE CASCADE,
        index_name text NOT NULL,
        query text NOT NULL,
        source_id uuid NOT NULL CONSTRAINT fk_judgments_source_id REFERENCES sources ON DELETE CASCADE,
        "start" integer,
        "end" integer,
        text text,
        grade integer NOT NULL DEFAULT 1 CONSTRAINT ck_judgments_grade CHECK (grade >= 0),
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT uq_judgments_org_id_index_name_query_source_id_start_end
            UNIQUE NULLS NOT DISTINCT (org_id, index_name, query, source_id, "start", "end"),
        CONSTRAINT ck_judgments_span
            CHECK (("start" IS NULL) = ("end" IS NULL) AND 0 <= "start" AND "start" < "end")
    )
    """,
    "CREATE INDEX ix_judgments_source_id ON judgments (source_id)",
]

TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[])"


def upgrade() -> None:
    for statement in TABLES:
        op.execute(statement)
    for table in ("validations", "judgments"):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY tenant ON {table} USING ({TENANT}) WITH CHECK ({TENANT})")


def downgrade() -> None:
    for table in ("judgments", "validations", "api_keys", "request_leases"):
        op.execute(f"DROP TABLE {table}")
    op.execute("ALTER TABLE users DROP COLUMN subject")
