"""Jobs that put documents in, their files, and the queue that workers take them from.

Revision ID: 0020
Revises: 0019

The queue's tables are Procrastinate's own (`procrastinate_3_10.sql` is its schema of that version, as it ships it). They
hold ids of organizations and nothing else of them, so they need no row-level security; what a job is about is in ours.
A later version of the library brings migrations of its own: each becomes a migration here.
"""

from pathlib import Path

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

SCHEMA = Path(__file__).parents[1] / "procrastinate_3_10.sql"
TABLES = [
    """
    CREATE TABLE jobs (
        id uuid CONSTRAINT pk_jobs PRIMARY KEY,
        org_id uuid NOT NULL CONSTRAINT fk_jobs_org_id REFERENCES organizations ON DELETE CASCADE,
        user_id uuid NOT NULL CONSTRAINT fk_jobs_user_id REFERENCES users ON DELETE CASCADE,
        index_name text NOT NULL,
        state text NOT NULL DEFAULT 'waiting'
            CONSTRAINT ck_jobs_state CHECK (state IN ('waiting', 'running', 'done', 'failed', 'cancelled')),
        target jsonb NOT NULL,
        files integer NOT NULL,
        done integer NOT NULL DEFAULT 0,
        failed integer NOT NULL DEFAULT 0,
        attempts integer NOT NULL DEFAULT 0,
        error text,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        ended_at timestamptz,
        CONSTRAINT uq_jobs_org_id_id UNIQUE (org_id, id)
    )
    """,
    "CREATE INDEX ix_jobs_org_id_created_at ON jobs (org_id, created_at)",
    """
    CREATE TABLE job_files (
        job_id uuid,
        position integer,
        org_id uuid NOT NULL,
        name text NOT NULL,
        document jsonb NOT NULL,
        content bytea NOT NULL,
        bytes bigint NOT NULL,
        state text NOT NULL DEFAULT 'waiting'
            CONSTRAINT ck_job_files_state CHECK (state IN ('waiting', 'done', 'failed', 'cancelled')),
        reason text,
        CONSTRAINT pk_job_files PRIMARY KEY (job_id, position),
        CONSTRAINT fk_job_files_org_id_job_id FOREIGN KEY (org_id, job_id)
            REFERENCES jobs (org_id, id) ON DELETE CASCADE
    )
    """,
    "ALTER TABLE job_files ALTER content SET STORAGE EXTERNAL",
]
TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
POLICIES = {
    "jobs": f"{TENANT} AND ((SELECT rag_operator()) OR user_id = (SELECT rag_user()))",
    # whose job it is, the policy of `jobs` says
    "job_files": f"{TENANT} AND ((SELECT rag_operator()) OR EXISTS (SELECT FROM jobs j WHERE j.id = job_id))",
}
# Functions and types of the queue, whose tables are gone.
DROP_QUEUE = """
DO $$ DECLARE each record; BEGIN
    FOR each IN SELECT oid::regprocedure AS name FROM pg_proc
                WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'procrastinate\\_%' LOOP
        EXECUTE format('DROP FUNCTION %s CASCADE', each.name);
    END LOOP;
    FOR each IN SELECT oid::regtype AS name FROM pg_type WHERE typnamespace = 'public'::regnamespace
                AND typname LIKE 'procrastinate\\_%' AND typtype IN ('e', 'c') LOOP
        EXECUTE format('DROP TYPE %s CASCADE', each.name);
    END LOOP;
END $$"""


def upgrade() -> None:
    connection = op.get_bind()
    for statement in split_statements(SCHEMA.read_text("utf-8")):
        connection.exec_driver_sql(statement)
    for statement in TABLES:
        op.execute(statement)
    for table, using in POLICIES.items():
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY tenant ON {table} USING ({using}) WITH CHECK ({using})")


def downgrade() -> None:
    for table in ("job_files", "jobs"):
        op.execute(f"DROP TABLE {table}")
    for table in ("periodic_defers", "events", "jobs", "workers"):
        op.execute(f"DROP TABLE procrastinate_{table} CASCADE")
    op.get_bind().exec_driver_sql(DROP_QUEUE)


def split_statements(script: str) -> list[str]:
    """The statements of a script: a semicolon within a function's body ends none."""
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    statements = [""]
    for place, part in enumerate("\n".join(lines).split("$$")):
        if place % 2:  # a body
            statements[-1] += f"$${part}$$"
            continue
        first, *others = part.split(";")
        statements[-1] += first
        statements += others
    return [each for each in statements if each.strip()]
