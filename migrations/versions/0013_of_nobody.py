"""Usage and failures of nobody can be deleted by the operator, when they are as old as the settings allow.

Revision ID: 0013
Revises: 0012

They stay when their user is erased, and until now no session saw them but an administrator's, to read.
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

TABLES = ("ai_usage_events", "ai_failures")


def upgrade() -> None:
    for table in TABLES:
        for command in ("SELECT", "DELETE"):  # a DELETE that reads a column needs both
            op.execute(
                f"CREATE POLICY nobodys_{command.lower()} ON {table} FOR {command}"
                " USING (user_id IS NULL AND (SELECT rag_operator()))"
            )


def downgrade() -> None:
    for table in TABLES:
        for command in ("select", "delete"):
            op.execute(f"DROP POLICY nobodys_{command} ON {table}")
