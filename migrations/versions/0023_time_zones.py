"""The time zone of an organization: which day it is there.

Revision ID: 0023
Revises: 0022
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("organizations", sa.Column("time_zone", sa.Text))


def downgrade() -> None:
    op.drop_column("organizations", "time_zone")
