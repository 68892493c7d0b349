"""Attempts to sign in at an identity provider, and what it says of a session's user.

Revision ID: 0022
Revises: 0021

Of an attempt the SHA-256 of its cookie is kept, as of sessions: what reads the database cannot finish it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sign_in_attempts",
        sa.Column("digest", sa.Text),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_sign_in_attempts"),
    )
    op.add_column("page_sessions", sa.Column("groups", sa.ARRAY(sa.Text), nullable=False, server_default="{}"))
    op.add_column("page_sessions", sa.Column("by_provider", sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("page_sessions", "groups")
    op.drop_column("page_sessions", "by_provider")
    op.drop_table("sign_in_attempts")
