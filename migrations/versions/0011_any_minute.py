"""The rate limit remembers when each request came; organizations and API keys may have limits of their own.

Revision ID: 0011
Revises: 0010

What was counted in the present minute is lost, both ways.
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("TRUNCATE rate_windows")
    op.execute(
        "ALTER TABLE rate_windows DROP COLUMN window_start, DROP COLUMN count,"
        " ADD COLUMN times double precision[] NOT NULL, ADD COLUMN let_in boolean NOT NULL"
    )
    for table in ("organizations", "api_keys"):
        op.execute(
            f"ALTER TABLE {table} ADD COLUMN requests_per_minute integer, ADD COLUMN concurrent_requests integer"
        )


def downgrade() -> None:
    for table in ("organizations", "api_keys"):
        op.execute(f"ALTER TABLE {table} DROP COLUMN requests_per_minute, DROP COLUMN concurrent_requests")
    op.execute("TRUNCATE rate_windows")
    op.execute(
        "ALTER TABLE rate_windows DROP COLUMN times, DROP COLUMN let_in,"
        " ADD COLUMN window_start bigint NOT NULL, ADD COLUMN count integer NOT NULL"
    )
