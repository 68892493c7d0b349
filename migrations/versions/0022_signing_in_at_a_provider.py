"""Attempts to sign in at an identity provider, and what it says of a session's user.

Revision ID: 0022
Revises: 0021

Of an attempt the SHA-256 of its cookie is kept, as of sessions: what reads the database cannot finish it.
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE sign_in_attempts (
            digest text CONSTRAINT pk_sign_in_attempts PRIMARY KEY,
            after text NOT NULL,
            expires_at timestamptz NOT NULL
        )
        """
    )
    op.execute(
        """
        ALTER TABLE page_sessions
            ADD groups text[] NOT NULL DEFAULT '{}',
            ADD by_provider boolean NOT NULL DEFAULT false
        """
    )


def downgrade() -> None:
    op.execute("ALTER TABLE page_sessions DROP groups, DROP by_provider")
    op.execute("DROP TABLE sign_in_attempts")
