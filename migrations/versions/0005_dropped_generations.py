"""A generation can be dropped: its row stays, for the validation runs that it answered.

Revision ID: 0005
Revises: 0004
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _accept("'building', 'active', 'retired', 'dropped'")


def downgrade() -> None:
    op.execute("UPDATE generations SET state = 'retired' WHERE state = 'dropped'")  # of which nothing is left
    _accept("'building', 'active', 'retired'")


def _accept(states: str) -> None:
    op.execute("ALTER TABLE generations DROP CONSTRAINT ck_generations_state")
    op.execute(f"ALTER TABLE generations ADD CONSTRAINT ck_generations_state CHECK (state IN ({states}))")
