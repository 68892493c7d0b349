"""Rows of tables as sources: where in its file a source stands.

Revision ID: 0021
Revises: 0020
"""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE sources ADD COLUMN row_number integer, ADD COLUMN sheet text")


def downgrade() -> None:
    op.execute("ALTER TABLE sources DROP COLUMN row_number, DROP COLUMN sheet")
