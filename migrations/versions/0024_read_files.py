"""Files that were read whole: one that is the same need not be read again.

Revision ID: 0024
Revises: 0023
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[]) AND (SELECT rag_operator())"


def upgrade() -> None:
    op.create_table(
        "read_files",
        sa.Column("org_id", sa.Uuid),
        sa.Column("index_name", sa.Text),
        sa.Column("origin", sa.Text),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("sources", sa.Integer, nullable=False),
        sa.Column("versions", sa.Numeric, nullable=False),
        sa.PrimaryKeyConstraint("org_id", "index_name", "origin", name="pk_read_files"),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_read_files_org_id", ondelete="CASCADE"),
    )
    op.execute("ALTER TABLE read_files ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE read_files FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY tenant ON read_files USING ({TENANT}) WITH CHECK ({TENANT})")


def downgrade() -> None:
    op.drop_table("read_files")
