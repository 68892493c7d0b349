"""A graph of the vectors of each generation that there is, for organizations that have a large part of it.

Revision ID: 0009
Revises: 0008

Building it takes some minutes for a million chunks, and nothing is written meanwhile.
"""

from alembic import op
from sqlalchemy import text

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

LARGEST = 4000


def upgrade() -> None:
    op.execute("SET LOCAL maintenance_work_mem = '512MB'")  # taken as far as needed; with less it builds slowly
    for table, dimension in vectors():
        if dimension <= LARGEST:
            op.execute(
                f"CREATE INDEX ON {table} USING hnsw ((embedding::halfvec({dimension})) halfvec_cosine_ops)"
                " WITH (ef_construction = 128)"
            )


def downgrade() -> None:
    graphs = text(
        "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
        " JOIN pg_am ON pg_am.oid = relam WHERE amname = 'hnsw' AND indrelid = CAST(:table AS regclass)"
    )
    for table, _ in vectors():
        for graph in op.get_bind().scalars(graphs, {"table": table}).all():
            op.execute(f"DROP INDEX {graph}")


def vectors() -> list[tuple[str, int]]:
    """The tables of vectors that stores made, with their dimensions."""
    tables = op.get_bind().execute(
        text(
            "SELECT relname, atttypmod FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid"
            " JOIN pg_attribute ON attrelid = polrelid AND attname = 'embedding'"
            " WHERE polname = 'tenant' AND relnamespace = 'public'::regnamespace AND relname ~ '^g_.+_vectors$'"
        )
    )
    return [(table, dimension) for table, dimension in tables]
