"""Sources over HTTP: file names and undeclared metadata, originals, roles in an index, requests that may be repeated.

Revision ID: 0017
Revises: 0016
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

TABLES = [
    """
    ALTER TABLE sources ADD file_name text, ADD untyped jsonb NOT NULL DEFAULT '{}',
        ADD bytes bigint NOT NULL GENERATED ALWAYS AS (octet_length(content::text)) STORED
    """,
    # The owner's own policies are forced on it; what a file is called belongs to every organization.
    "ALTER TABLE sources NO FORCE ROW LEVEL SECURITY",
    "UPDATE sources SET file_name = regexp_replace(origin, '^.*/', '') WHERE origin LIKE '/%'",
    "ALTER TABLE sources FORCE ROW LEVEL SECURITY",
    """
    CREATE TABLE originals (
        source_id uuid CONSTRAINT pk_originals PRIMARY KEY,
        org_id uuid NOT NULL,
        version text NOT NULL,
        sha256 text NOT NULL,
        bytes bigint NOT NULL CONSTRAINT ck_originals_bytes CHECK (bytes >= 0),
        file_name text,
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT fk_originals_org_id_source_id FOREIGN KEY (org_id, source_id)
            REFERENCES sources (org_id, id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX ix_originals_org_id_sha256 ON originals (org_id, sha256)",
    """
    CREATE TABLE idempotency_keys (
        org_id uuid CONSTRAINT fk_idempotency_keys_org_id REFERENCES organizations ON DELETE CASCADE,
        user_id uuid CONSTRAINT fk_idempotency_keys_user_id REFERENCES users ON DELETE CASCADE,
        key text,
        fingerprint text NOT NULL,
        response jsonb,
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT pk_idempotency_keys PRIMARY KEY (org_id, user_id, key)
    )
    """,
    """
    CREATE TABLE index_roles (
        org_id uuid,
        user_id uuid,
        index_name text,
        role text NOT NULL CONSTRAINT ck_index_roles_role CHECK (role IN ('read', 'write', 'admin')),
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT pk_index_roles PRIMARY KEY (org_id, user_id, index_name),
        CONSTRAINT fk_index_roles_user_id_org_id FOREIGN KEY (user_id, org_id)
            REFERENCES memberships (user_id, org_id) ON DELETE CASCADE
    )
    """,
]

TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
POLICIES = {
    "originals": TENANT,
    "idempotency_keys": f"{TENANT} AND user_id = (SELECT rag_user())",
    "index_roles": TENANT,
}


def upgrade() -> None:
    for statement in TABLES:
        op.execute(statement)
    for table, using in POLICIES.items():
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY tenant ON {table} USING ({using}) WITH CHECK ({using})")


def downgrade() -> None:
    for table in POLICIES:
        op.execute(f"DROP TABLE {table}")
    op.execute("ALTER TABLE sources DROP bytes, DROP untyped, DROP file_name")
