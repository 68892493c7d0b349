"""A generation may be in any vector store that the application knows: the registry says which there are.

Revision ID: 0010
Revises: 0009

Downgrading needs generations in `postgres` and `qdrant` alone.
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE generations DROP CONSTRAINT ck_generations_store")


def downgrade() -> None:
    op.execute("ALTER TABLE generations ADD CONSTRAINT ck_generations_store CHECK (store IN ('postgres', 'qdrant'))")
