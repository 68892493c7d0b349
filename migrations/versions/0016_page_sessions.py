"""Sessions of the pages, and the codes that sign somebody in once.

Revision ID: 0016
Revises: 0015

Of both the SHA-256 is kept, as of API keys: what reads the database cannot sign in with what it finds there.
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

TABLES = [
    """
    CREATE TABLE page_sessions (
        digest text CONSTRAINT pk_page_sessions PRIMARY KEY,
        user_id uuid NOT NULL CONSTRAINT fk_page_sessions_user_id REFERENCES users ON DELETE CASCADE,
        created_at timestamptz NOT NULL DEFAULT now(),
        seen_at timestamptz NOT NULL DEFAULT now(),
        expires_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX ix_page_sessions_user_id ON page_sessions (user_id)",
    """
    CREATE TABLE sign_in_codes (
        digest text CONSTRAINT pk_sign_in_codes PRIMARY KEY,
        user_id uuid NOT NULL CONSTRAINT fk_sign_in_codes_user_id REFERENCES users ON DELETE CASCADE,
        expires_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX ix_sign_in_codes_user_id ON sign_in_codes (user_id)",
]


def upgrade() -> None:
    for statement in TABLES:
        op.execute(statement)


def downgrade() -> None:
    for table in ("sign_in_codes", "page_sessions"):
        op.execute(f"DROP TABLE {table}")
