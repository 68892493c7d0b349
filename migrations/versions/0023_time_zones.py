"""The time zone of an organization: which day it is there.

Revision ID: 0023
Revises: 0022
"""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE organizations ADD COLUMN time_zone text")


def downgrade() -> None:
    op.execute("ALTER TABLE organizations DROP COLUMN time_zone")
