"""In the generations that there are: a graph of the vectors, and an index of the signs for each field that filters name.

Revision ID: 0009
Revises: 0008

Building the graph takes a minute or two for 100,000 chunks, and nothing is written meanwhile.
"""

from alembic import op
from sqlalchemy import text

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

LARGEST = 4000
LONGEST = 400


def upgrade() -> None:
    # Taken as far as needed; with less it builds slowly. Several workers would take all of it, of /dev/shm, which is
    # small in containers.
    op.execute("SET LOCAL maintenance_work_mem = '512MB'")
    op.execute("SET LOCAL max_parallel_maintenance_workers = 0")
    for t, dimension in generations():
        if dimension <= LARGEST:
            op.execute(
                f"CREATE INDEX ON {t}_vectors USING hnsw ((embedding::halfvec({dimension})) halfvec_cosine_ops)"
                " WITH (ef_construction = 128)"
            )
        for name, kind in fields(f"{t}_signs"):
            only = f" WHERE octet_length({name}) <= {LONGEST}" if kind == "text" else ""
            op.execute(f"CREATE INDEX ON {t}_signs (org_id, {name}){only}")


def downgrade() -> None:
    made = text(
        "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
        " JOIN pg_am ON pg_am.oid = relam WHERE NOT indisprimary"
        " AND (indrelid = CAST(:signs AS regclass) OR indrelid = CAST(:vectors AS regclass) AND amname = 'hnsw')"
    )
    for t, _ in generations():
        for index in op.get_bind().scalars(made, {"signs": f"{t}_signs", "vectors": f"{t}_vectors"}).all():
            op.execute(f"DROP INDEX {index}")


def generations() -> list[tuple[str, int]]:
    """What the names of the tables that vector stores made begin with, and the dimension of their vectors."""
    tables = op.get_bind().execute(
        text(
            "SELECT substring(relname FROM '^(g_.+)_vectors$'), atttypmod FROM pg_policy"
            " JOIN pg_class ON pg_class.oid = polrelid"
            " JOIN pg_attribute ON attrelid = polrelid AND attname = 'embedding'"
            " WHERE polname = 'tenant' AND relnamespace = 'public'::regnamespace AND relname ~ '^g_.+_vectors$'"
        )
    )
    return [(t, dimension) for t, dimension in tables]


def fields(table: str) -> list[tuple[str, str]]:
    """The columns that filters name, and their types; no lists."""
    columns = op.get_bind().execute(
        text("SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = CAST(:table AS regclass)"
             " AND attnum > 0 AND NOT attisdropped ORDER BY attnum"),
        {"table": table},
    )  # fmt: skip
    own = ("org_id", "no", "signs", "private_to")
    return [(name, kind) for name, kind in columns if name not in own and not kind.endswith("[]")]
