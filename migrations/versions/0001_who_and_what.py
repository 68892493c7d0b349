"""Organizations, users, sources and generations; row-level security.

Revision ID: 0001
Revises:
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

PUBLIC = "00000000-0000-0000-0000-000000000001"

TABLES = [
    """
    CREATE TABLE organizations (
        id uuid CONSTRAINT pk_organizations PRIMARY KEY,
        slug text NOT NULL CONSTRAINT uq_organizations_slug UNIQUE,
        name text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    """
    CREATE TABLE sites (
        id uuid CONSTRAINT pk_sites PRIMARY KEY,
        org_id uuid NOT NULL CONSTRAINT fk_sites_org_id REFERENCES organizations,
        name text NOT NULL,
        CONSTRAINT uq_sites_org_id_name UNIQUE (org_id, name),
        CONSTRAINT uq_sites_org_id_id UNIQUE (org_id, id)
    )
    """,
    """
    CREATE TABLE users (
        id uuid CONSTRAINT pk_users PRIMARY KEY,
        name text NOT NULL CONSTRAINT uq_users_name UNIQUE,
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    """
    CREATE TABLE memberships (
        user_id uuid CONSTRAINT fk_memberships_user_id REFERENCES users ON DELETE CASCADE,
        org_id uuid CONSTRAINT fk_memberships_org_id REFERENCES organizations ON DELETE CASCADE,
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT pk_memberships PRIMARY KEY (user_id, org_id)
    )
    """,
    """
    CREATE TABLE generations (
        id integer GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_generations PRIMARY KEY,
        index_name text NOT NULL,
        store text NOT NULL CONSTRAINT ck_generations_store CHECK (store IN ('postgres', 'qdrant')),
        number integer NOT NULL,
        embedding_model text NOT NULL,
        dimension integer NOT NULL CONSTRAINT ck_generations_dimension CHECK (dimension > 0),
        state text NOT NULL CONSTRAINT ck_generations_state CHECK (state IN ('building', 'active', 'retired')),
        settings jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT uq_generations_index_name_store_number UNIQUE (index_name, store, number)
    )
    """,
    "CREATE UNIQUE INDEX uq_generations_active ON generations (index_name, store) WHERE state = 'active'",
    f"""
    CREATE TABLE sources (
        id uuid CONSTRAINT pk_sources PRIMARY KEY,
        org_id uuid NOT NULL CONSTRAINT fk_sources_org_id REFERENCES organizations,
        index_name text NOT NULL,
        external_id text NOT NULL,
        title text NOT NULL,
        source_type text NOT NULL,
        lang text NOT NULL,
        uri text,
        date double precision,
        metadata jsonb NOT NULL,
        origin text NOT NULL,
        site_id uuid,
        owner_id uuid CONSTRAINT fk_sources_owner_id REFERENCES users,
        visibility text NOT NULL,
        version text NOT NULL,
        content jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        deleted_at timestamptz,
        CONSTRAINT uq_sources_org_id_index_name_external_id UNIQUE (org_id, index_name, external_id),
        CONSTRAINT uq_sources_org_id_id UNIQUE (org_id, id),
        CONSTRAINT fk_sources_org_id_site_id FOREIGN KEY (org_id, site_id) REFERENCES sites (org_id, id),
        CONSTRAINT ck_sources_visibility CHECK (visibility IN ('user', 'team', 'global')),
        CONSTRAINT ck_sources_private_has_owner CHECK (visibility <> 'user' OR owner_id IS NOT NULL),
        CONSTRAINT ck_sources_global_is_public CHECK ((visibility = 'global') = (org_id = '{PUBLIC}'))
    )
    """,
    "CREATE INDEX ix_sources_org_id_index_name_origin ON sources (org_id, index_name, origin)",
    """
    CREATE TABLE source_builds (
        generation_id integer CONSTRAINT fk_source_builds_generation_id REFERENCES generations,
        source_id uuid,
        org_id uuid NOT NULL,
        version text NOT NULL,
        chunks integer NOT NULL DEFAULT 0 CONSTRAINT ck_source_builds_chunks CHECK (chunks >= 0),
        state text NOT NULL CONSTRAINT ck_source_builds_state CHECK (state IN ('writing', 'ready')),
        updated_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT pk_source_builds PRIMARY KEY (generation_id, source_id),
        CONSTRAINT fk_source_builds_org_id_source_id FOREIGN KEY (org_id, source_id)
            REFERENCES sources (org_id, id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX ix_source_builds_org_id_source_id ON source_builds (org_id, source_id)",
    """
    CREATE UNLOGGED TABLE rate_windows (
        key text CONSTRAINT pk_rate_windows PRIMARY KEY,
        window_start bigint NOT NULL,
        count integer NOT NULL
    )
    """,
]

# A setting that was local to a transaction reads as '' after it, not as NULL.
FUNCTIONS = [
    """
    CREATE FUNCTION rag_organizations() RETURNS uuid[] LANGUAGE sql STABLE PARALLEL SAFE
    RETURN coalesce(nullif(current_setting('rag.organizations', true), ''), '{}')::uuid[]
    """,
    """
    CREATE FUNCTION rag_user() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    RETURN nullif(current_setting('rag.user', true), '')::uuid
    """,
    """
    CREATE FUNCTION rag_operator() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN coalesce(current_setting('rag.operator', true) = 'on', false)
    """,
    "COMMENT ON FUNCTION rag_organizations() IS 'The organizations that the transaction may see; none when unset'",
    "COMMENT ON FUNCTION rag_user() IS 'The user for whom private rows of their own exist'",
    "COMMENT ON FUNCTION rag_operator() IS 'Whether private rows of those organizations exist whoever owns them'",
]

# The sub-selects are evaluated once a statement, not once a row.
TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
PRIVATE = "(visibility <> 'user' OR owner_id = (SELECT rag_user()) OR (SELECT rag_operator()))"
POLICIES = {"sources": f"{TENANT} AND {PRIVATE}", "source_builds": TENANT}


def upgrade() -> None:
    for statement in TABLES + FUNCTIONS:
        op.execute(statement)
    for table, condition in POLICIES.items():
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY tenant ON {table} USING ({condition}) WITH CHECK ({condition})")
    op.execute(f"INSERT INTO organizations (id, slug, name) VALUES ('{PUBLIC}', 'public', 'Public')")


def downgrade() -> None:
    tables = [
        "rate_windows",
        "source_builds",
        "sources",
        "generations",
        "memberships",
        "users",
        "sites",
        "organizations",
    ]
    for table in tables:
        op.execute(f"DROP TABLE {table}")
    for function in ["rag_organizations", "rag_user", "rag_operator"]:
        op.execute(f"DROP FUNCTION {function}()")
