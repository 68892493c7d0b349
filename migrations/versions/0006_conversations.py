"""Plans and roles, threads and messages, prompt versions, usage, failures, audit.

Revision ID: 0006
Revises: 0005

What belongs to a user is under row-level security by user. An administrator's session may read the rest, if it says
so (`rag.administrator`) and its user is one: PostgreSQL looks that up, and does not take anybody's word for it.
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = [
    """
    CREATE TABLE plan_entitlements (
        plan_code text CONSTRAINT pk_plan_entitlements PRIMARY KEY,
        rag_messages_per_month integer NOT NULL DEFAULT 50
            CONSTRAINT ck_plan_entitlements_messages CHECK (rag_messages_per_month >= -1),
        rag_enabled boolean NOT NULL DEFAULT true
    )
    """,
    """
    INSERT INTO plan_entitlements (plan_code, rag_messages_per_month)
    VALUES ('free', 50), ('basic', 500), ('pro', 2000), ('growth', -1), ('admin', -1)
    """,
    """
    ALTER TABLE users
        ADD COLUMN plan_code text NOT NULL DEFAULT 'free'
            CONSTRAINT fk_users_plan_code REFERENCES plan_entitlements,
        ADD COLUMN role text NOT NULL DEFAULT 'user' CONSTRAINT ck_users_role CHECK (role IN ('user', 'admin'))
    """,
    """
    ALTER TABLE organizations
        ADD COLUMN monthly_token_budget bigint
            CONSTRAINT ck_organizations_budget CHECK (monthly_token_budget >= 0)
    """,
    """
    CREATE TABLE rag_threads (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_rag_threads PRIMARY KEY,
        user_id uuid NOT NULL CONSTRAINT fk_rag_threads_user_id REFERENCES users ON DELETE CASCADE,
        title text,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        last_message_at timestamptz NOT NULL DEFAULT now(),
        message_count integer NOT NULL DEFAULT 0,
        metadata jsonb NOT NULL DEFAULT '{}',
        archived boolean NOT NULL DEFAULT false
    )
    """,
    "CREATE INDEX rag_threads_user_id_idx ON rag_threads (user_id, last_message_at DESC, id DESC)",
    "CREATE INDEX rag_threads_archived_idx ON rag_threads (archived) WHERE NOT archived",
    """
    CREATE TABLE rag_messages (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_rag_messages PRIMARY KEY,
        thread_id uuid NOT NULL CONSTRAINT fk_rag_messages_thread_id REFERENCES rag_threads ON DELETE CASCADE,
        role text NOT NULL CONSTRAINT ck_rag_messages_role CHECK (role IN ('user', 'assistant')),
        content text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        capability text,
        context_json jsonb,
        model_id text,
        retrieved_source_ids jsonb,
        generation_metadata jsonb,
        flags jsonb NOT NULL DEFAULT '{}',
        training_eligible boolean NOT NULL DEFAULT false,
        deleted_at timestamptz
    )
    """,
    "CREATE INDEX rag_messages_thread_id_idx ON rag_messages (thread_id, created_at, id)",
    "CREATE INDEX rag_messages_role_idx ON rag_messages (role)",
    "CREATE INDEX rag_messages_training_idx ON rag_messages (training_eligible) WHERE training_eligible",
    "CREATE INDEX rag_messages_deleted_idx ON rag_messages (deleted_at) WHERE deleted_at IS NULL",
    """
    CREATE TABLE usage_counters (
        user_id uuid CONSTRAINT fk_usage_counters_user_id REFERENCES users ON DELETE CASCADE,
        key text,
        period date,
        used integer NOT NULL CONSTRAINT ck_usage_counters_used CHECK (used >= 0),
        CONSTRAINT pk_usage_counters PRIMARY KEY (user_id, key, period)
    )
    """,
    """
    CREATE TABLE usage_reservations (
        id uuid CONSTRAINT pk_usage_reservations PRIMARY KEY,
        user_id uuid NOT NULL CONSTRAINT fk_usage_reservations_user_id REFERENCES users ON DELETE CASCADE,
        key text NOT NULL,
        period date NOT NULL,
        expires_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX ix_usage_reservations_user_id_expires_at ON usage_reservations (user_id, expires_at)",
    """
    CREATE TABLE organization_tokens (
        org_id uuid CONSTRAINT fk_organization_tokens_org_id REFERENCES organizations ON DELETE CASCADE,
        period date,
        tokens bigint NOT NULL CONSTRAINT ck_organization_tokens_tokens CHECK (tokens >= 0),
        CONSTRAINT pk_organization_tokens PRIMARY KEY (org_id, period)
    )
    """,
    """
    CREATE TABLE daily_costs (
        day date CONSTRAINT pk_daily_costs PRIMARY KEY,
        cents numeric NOT NULL CONSTRAINT ck_daily_costs_cents CHECK (cents >= 0)
    )
    """,
    """
    CREATE TABLE ai_usage_events (
        id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_ai_usage_events PRIMARY KEY,
        user_id uuid CONSTRAINT fk_ai_usage_events_user_id REFERENCES users ON DELETE SET NULL,
        type text NOT NULL,
        message_id uuid,
        plan_code text NOT NULL,
        capability text,
        model_version text NOT NULL,
        cache_hit boolean NOT NULL DEFAULT false,
        latency_ms integer NOT NULL,
        stages jsonb NOT NULL DEFAULT '{}',
        tokens_in integer NOT NULL,
        tokens_out integer NOT NULL,
        cost_cents numeric NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "CREATE INDEX ix_ai_usage_events_created_at ON ai_usage_events (created_at)",
    "CREATE INDEX ix_ai_usage_events_user_id_created_at ON ai_usage_events (user_id, created_at)",
    """
    CREATE TABLE ai_failures (
        id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_ai_failures PRIMARY KEY,
        user_id uuid CONSTRAINT fk_ai_failures_user_id REFERENCES users ON DELETE CASCADE,
        message_id uuid,
        capability text,
        model_id text,
        kind text NOT NULL,
        message text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "CREATE INDEX ix_ai_failures_created_at ON ai_failures (created_at)",
    "CREATE INDEX ix_ai_failures_user_id ON ai_failures (user_id)",
    """
    CREATE TABLE lexybrain_prompt_configs (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_lexybrain_prompt_configs PRIMARY KEY,
        name text NOT NULL CONSTRAINT uq_lexybrain_prompt_configs_name UNIQUE,
        type text NOT NULL,
        system_instructions text NOT NULL,
        constraints jsonb NOT NULL DEFAULT '{}',
        weight integer NOT NULL DEFAULT 1 CONSTRAINT ck_lexybrain_prompt_configs_weight CHECK (weight >= 0),
        is_active boolean NOT NULL DEFAULT false,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "CREATE INDEX ix_lexybrain_prompt_configs_type ON lexybrain_prompt_configs (type) WHERE is_active",
    """
    CREATE TABLE audit_events (
        id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_audit_events PRIMARY KEY,
        actor_id uuid CONSTRAINT fk_audit_events_actor_id REFERENCES users ON DELETE SET NULL,
        action text NOT NULL,
        subject text NOT NULL,
        details jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "CREATE INDEX ix_audit_events_created_at ON audit_events (created_at)",
]

FUNCTIONS = [
    """
    CREATE FUNCTION rag_administrator() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN rag_application() AND coalesce(current_setting('rag.administrator', true) = 'on', false)
        THEN EXISTS (SELECT FROM users WHERE id = rag_user() AND role = 'admin') ELSE false END
    """,
    "COMMENT ON FUNCTION rag_administrator() IS 'Whether the transaction reads as an administrator, and is one'",
    """
    CREATE FUNCTION rag_touch() RETURNS trigger LANGUAGE plpgsql AS $function$
    BEGIN
        NEW.updated_at := now();
        RETURN NEW;
    END $function$
    """,
    """
    CREATE TRIGGER rag_threads_updated_at_trigger BEFORE UPDATE ON rag_threads
    FOR EACH ROW EXECUTE FUNCTION rag_touch()
    """,
    """
    CREATE TRIGGER lexybrain_prompt_configs_updated_at_trigger BEFORE UPDATE ON lexybrain_prompt_configs
    FOR EACH ROW EXECUTE FUNCTION rag_touch()
    """,
]

OWN = "user_id = (SELECT rag_user())"
IN_OWN_THREAD = "EXISTS (SELECT FROM rag_threads t WHERE t.id = thread_id AND t.user_id = (SELECT rag_user()))"
ADMINISTRATOR = "(SELECT rag_administrator())"
TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
POLICIES = {
    "rag_threads": (OWN, ADMINISTRATOR),
    "rag_messages": (IN_OWN_THREAD, ADMINISTRATOR),
    "usage_counters": (OWN, ADMINISTRATOR),
    "usage_reservations": (OWN, None),
    "ai_usage_events": (OWN, ADMINISTRATOR),
    "ai_failures": (OWN, ADMINISTRATOR),
    "organization_tokens": (TENANT, ADMINISTRATOR),
}
"""Who may do everything with a row, and who else may read it."""


def upgrade() -> None:
    for statement in TABLES + FUNCTIONS:
        op.execute(statement)
    for table, (own, reader) in POLICIES.items():
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY own ON {table} USING ({own}) WITH CHECK ({own})")
        if reader:
            op.execute(f"CREATE POLICY administrator ON {table} FOR SELECT USING ({reader})")

    op.execute("ALTER TABLE audit_events ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE audit_events FORCE ROW LEVEL SECURITY")
    # what was done is added to and read; nobody's session changes it
    op.execute("CREATE POLICY own ON audit_events FOR INSERT WITH CHECK (actor_id = (SELECT rag_user()))")
    op.execute(f"CREATE POLICY administrator ON audit_events FOR SELECT USING ({ADMINISTRATOR})")


def downgrade() -> None:
    for table in (
        "audit_events", "lexybrain_prompt_configs", "ai_failures", "ai_usage_events", "daily_costs",
        "organization_tokens", "usage_reservations", "usage_counters", "rag_messages", "rag_threads",
    ):  # fmt: skip
        op.execute(f"DROP TABLE {table}")
    op.execute("DROP FUNCTION rag_administrator()")
    op.execute("ALTER TABLE users DROP COLUMN plan_code, DROP COLUMN role")
    op.execute("ALTER TABLE organizations DROP COLUMN monthly_token_budget")
    op.execute("DROP TABLE plan_entitlements")
    op.execute("DROP FUNCTION rag_touch()")
