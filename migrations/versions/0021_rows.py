"""Rows of tables as sources: where in its file a source stands.

Revision ID: 0021
Revises: 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sources", sa.Column("row_number", sa.Integer))
    op.add_column("sources", sa.Column("sheet", sa.Text))


def downgrade() -> None:
    op.drop_column("sources", "row_number")
    op.drop_column("sources", "sheet")
