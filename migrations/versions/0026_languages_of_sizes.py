"""Which analyzers an organization's chunks have, so that a search asks for the terms of these alone.

Revision ID: 0026
Revises: 0025
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for t, table in generations():
        op.add_column(f"{t}_sizes", sa.Column("languages", sa.ARRAY(sa.Text), nullable=False, server_default="{}"))
        op.alter_column(f"{t}_sizes", "languages", server_default=None)
        for name in (f"{t}_sizes", table):  # or their owner sees nothing
            op.execute(f"ALTER TABLE {name} NO FORCE ROW LEVEL SECURITY")
        # xx: that of languages which the index does not declare
        op.execute(
            f"UPDATE {t}_sizes s SET languages = l.languages FROM ("
            f"SELECT org_id, array_agg(DISTINCT lang) || 'xx'::text AS languages FROM {table} GROUP BY org_id) l"
            " WHERE s.org_id = l.org_id"
        )
        for name in (f"{t}_sizes", table):
            op.execute(f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY")


def downgrade() -> None:
    for t, _ in generations():
        op.drop_column(f"{t}_sizes", "languages")


def generations() -> list[tuple[str, str]]:
    """What the names of a generation's tables begin with, and the table with the languages of its chunks."""
    names = op.get_bind().scalars(
        sa.text(
            "SELECT relname FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid WHERE polname = 'tenant'"
            " AND relnamespace = 'public'::regnamespace AND relname ~ '^g_.+_(sizes|signs|fields)$'"
        )
    )
    tables = set(names)
    sizes = sorted(name.removesuffix("_sizes") for name in tables if name.endswith("_sizes"))
    return [(t, f"{t}_{name}") for t in sizes for name in ("signs", "fields") if f"{t}_{name}" in tables]
