"""Which sources a validation run found: whoever does not see one of them does not see the run.

Revision ID: 0027
Revises: 0026

What earlier runs found is not known. Where an index has sources that not all members see, such a run is the user's who made
it, and nobody's without one.
"""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

TABLE = """
    CREATE TABLE validation_sources (
        id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_validation_sources PRIMARY KEY,
        validation_id uuid NOT NULL
            CONSTRAINT fk_validation_sources_validation_id REFERENCES validations ON DELETE CASCADE,
        org_id uuid NOT NULL CONSTRAINT fk_validation_sources_org_id REFERENCES organizations ON DELETE CASCADE,
        source_id uuid CONSTRAINT fk_validation_sources_source_id REFERENCES sources ON DELETE SET NULL,
        audience_id uuid,
        private boolean NOT NULL
    )
"""
EARLIER = """
    INSERT INTO validation_sources (validation_id, org_id, private)
    SELECT id, org_id, true FROM validations v WHERE EXISTS (
        SELECT FROM sources s
        WHERE s.org_id = v.org_id AND s.index_name = v.index_name AND s.visibility IN ('user', 'group'))
"""
TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[])"


def upgrade() -> None:
    op.execute(TABLE)
    for column in ("org_id", "source_id", "validation_id"):
        op.execute(f"CREATE INDEX ix_validation_sources_{column} ON validation_sources ({column})")
    for table in ("validations", "sources"):  # or their owner sees nothing
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    op.execute(EARLIER)
    for table in ("validations", "sources"):
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE validation_sources ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE validation_sources FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY tenant ON validation_sources USING ({TENANT}) WITH CHECK ({TENANT})")


def downgrade() -> None:
    op.execute("DROP TABLE validation_sources")
