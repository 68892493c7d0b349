"""By what hits are judged: fits, each of a generation and an organization.

Revision ID: 0019
Revises: 0018
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[])"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE calibrations (
            generation_id integer NOT NULL CONSTRAINT fk_calibrations_generation_id REFERENCES generations,
            org_id uuid NOT NULL CONSTRAINT fk_calibrations_org_id REFERENCES organizations ON DELETE CASCADE,
            fit jsonb NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT pk_calibrations PRIMARY KEY (generation_id, org_id)
        )
        """
    )
    op.execute("CREATE INDEX ix_calibrations_org_id ON calibrations (org_id)")
    op.execute("ALTER TABLE calibrations ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE calibrations FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY tenant ON calibrations USING ({TENANT}) WITH CHECK ({TENANT})")


def downgrade() -> None:
    op.execute("DROP TABLE calibrations")
