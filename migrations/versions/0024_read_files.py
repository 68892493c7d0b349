"""Files that were read whole: one that is the same need not be read again.

Revision ID: 0024
Revises: 0023
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[]) AND (SELECT rag_operator())"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE read_files (
            org_id uuid CONSTRAINT fk_read_files_org_id REFERENCES organizations ON DELETE CASCADE,
            index_name text,
            origin text,
            digest text NOT NULL,
            sources integer NOT NULL,
            versions numeric NOT NULL,
            CONSTRAINT pk_read_files PRIMARY KEY (org_id, index_name, origin)
        )
    """)
    op.execute("ALTER TABLE read_files ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE read_files FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY tenant ON read_files USING ({TENANT}) WITH CHECK ({TENANT})")


def downgrade() -> None:
    op.execute("DROP TABLE read_files")
