"""The graph holds large organizations only, in a table of its own.

Revision ID: 0025
Revises: 0024

Building it takes a minute or two for 100,000 chunks of large organizations, and nothing is written meanwhile.
"""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import HALFVEC

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

LARGEST = 4000
GRAPHED = 25_000
ORGANIZATIONS = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
READERS = "(private_to IS NULL OR private_to = ANY ((SELECT rag_readers())::uuid[]) OR (SELECT rag_operator()))"


def upgrade() -> None:
    build_slowly()
    for t, dimension in generations():
        drop_graph(f"{t}_vectors")
        op.create_table(
            f"{t}_graph",
            sa.Column("org_id", sa.Uuid),
            sa.Column("no", sa.BigInteger),
            sa.Column("private_to", sa.Uuid),
            sa.Column("embedding", HALFVEC(dimension), nullable=False),
            sa.PrimaryKeyConstraint("org_id", "no", name=f"{t}_graph_pkey"),
        )
        for table in ("vectors", "sizes"):  # or their owner sees nothing
            op.execute(f"ALTER TABLE {t}_{table} NO FORCE ROW LEVEL SECURITY")
        if dimension <= LARGEST:
            op.execute(
                f"INSERT INTO {t}_graph SELECT org_id, no, private_to, embedding FROM {t}_vectors"
                f" WHERE org_id IN (SELECT org_id FROM {t}_sizes WHERE chunks > {GRAPHED}) ORDER BY org_id, no"
            )
            create_graph(f"{t}_graph", "embedding")
        op.execute(f"UPDATE {t}_totals SET chunks = (SELECT count(*) FROM {t}_graph)")
        for table in ("vectors", "sizes"):
            op.execute(f"ALTER TABLE {t}_{table} FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {t}_graph ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {t}_graph FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY tenant ON {t}_graph USING ({ORGANIZATIONS} AND {READERS})")


def downgrade() -> None:
    build_slowly()
    for t, dimension in generations():
        op.drop_table(f"{t}_graph")
        if dimension <= LARGEST:
            create_graph(f"{t}_vectors", f"(embedding::halfvec({dimension}))")
        op.execute(f"ALTER TABLE {t}_sizes NO FORCE ROW LEVEL SECURITY")
        op.execute(f"UPDATE {t}_totals SET chunks = (SELECT coalesce(sum(chunks), 0) FROM {t}_sizes)")
        op.execute(f"ALTER TABLE {t}_sizes FORCE ROW LEVEL SECURITY")


def build_slowly() -> None:
    # As 0009: memory as far as needed, and no workers, because /dev/shm is small in containers.
    op.execute("SET LOCAL maintenance_work_mem = '512MB'")
    op.execute("SET LOCAL max_parallel_maintenance_workers = 0")


def create_graph(table: str, expression: str) -> None:
    op.create_index(
        f"{table}_embedding_idx",  # as PostgreSQL names those that the store creates
        table,
        [sa.text(f"{expression} halfvec_cosine_ops")],
        postgresql_using="hnsw",
        postgresql_with={"ef_construction": 128},
    )


def drop_graph(table: str) -> None:
    made = sa.text(
        "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
        " JOIN pg_am ON pg_am.oid = relam WHERE indrelid = CAST(:table AS regclass) AND amname = 'hnsw'"
    )
    for index in op.get_bind().scalars(made, {"table": table}).all():
        op.drop_index(index)


def generations() -> list[tuple[str, int]]:
    """What the names of the tables that the PostgreSQL store made begin with, and the dimension of their vectors."""
    tables = op.get_bind().execute(
        sa.text(
            "SELECT substring(relname FROM '^(g_.+)_vectors$'), atttypmod FROM pg_policy"
            " JOIN pg_class ON pg_class.oid = polrelid"
            " JOIN pg_attribute ON attrelid = polrelid AND attname = 'embedding'"
            " WHERE polname = 'tenant' AND relnamespace = 'public'::regnamespace AND relname ~ '^g_.+_vectors$'"
        )
    )
    return [(t, dimension) for t, dimension in tables]
