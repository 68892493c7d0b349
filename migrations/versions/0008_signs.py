"""Signs of vectors, and how many chunks each organization has, in the generations that there are.

Revision ID: 0008
Revises: 0007

Servers that run while this does must not write any more: what they write has no signs. They say so: `/ready` fails.
"""

from alembic import op
from sqlalchemy import text

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ORGANIZATIONS = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
READERS = "(private_to IS NULL OR private_to = (SELECT rag_user()) OR (SELECT rag_operator()))"


def upgrade() -> None:
    for t in generations():
        dimension, columns = described(f"{t}_vectors")
        op.execute(f"ALTER TABLE {t}_vectors NO FORCE ROW LEVEL SECURITY")  # or its owner sees nothing
        op.execute(
            f"CREATE TABLE {t}_signs AS SELECT org_id, no, binary_quantize(embedding)::bit({dimension}) AS signs,"
            f" private_to, site_id, {columns} FROM {t}_vectors ORDER BY org_id, no"
        )
        op.execute(f"ALTER TABLE {t}_signs ADD PRIMARY KEY (org_id, no)")
        for column in ("signs", "source_id", "source_type", "lang"):
            op.execute(f"ALTER TABLE {t}_signs ALTER {column} SET NOT NULL")
        op.execute(f"CREATE TABLE {t}_sizes (org_id uuid PRIMARY KEY, chunks bigint NOT NULL) WITH (fillfactor = 70)")
        op.execute(f"INSERT INTO {t}_sizes SELECT org_id, count(*) FROM {t}_vectors GROUP BY org_id")
        op.execute(f"ALTER TABLE {t}_vectors FORCE ROW LEVEL SECURITY")
        index_vectors(t, "org_id, no")
        for name, using in (("signs", f"{ORGANIZATIONS} AND {READERS}"), ("sizes", ORGANIZATIONS)):
            op.execute(f"ALTER TABLE {t}_{name} ENABLE ROW LEVEL SECURITY")
            op.execute(f"ALTER TABLE {t}_{name} FORCE ROW LEVEL SECURITY")
            op.execute(f"CREATE POLICY tenant ON {t}_{name} USING ({using})")


def downgrade() -> None:
    for t in generations():
        op.execute(f"DROP TABLE {t}_signs, {t}_sizes")
        index_vectors(t, "org_id")


def generations() -> list[str]:
    """What the names of the tables that vector stores made begin with."""
    tables = op.get_bind().scalars(
        text(
            "SELECT substring(relname FROM '^(g_.+)_vectors$') FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid"
            " WHERE polname = 'tenant' AND relnamespace = 'public'::regnamespace AND relname ~ '^g_.+_vectors$'"
        )
    )
    return list(tables)


def index_vectors(t: str, columns: str) -> None:
    """Instead of the one index that there is beside the primary key."""
    query = text(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = CAST(:t AS regclass) AND NOT indisprimary"
    )
    op.execute(f"DROP INDEX {op.get_bind().scalar(query, {'t': f'{t}_vectors'})}")
    op.execute(f"CREATE INDEX ON {t}_vectors ({columns})")


def described(table: str) -> tuple[int, str]:
    """Dimensions, and the columns that filters name."""
    columns = op.get_bind().execute(
        text("SELECT attname, atttypmod FROM pg_attribute WHERE attrelid = CAST(:t AS regclass) AND attnum > 0"
             " AND NOT attisdropped ORDER BY attnum"),
        {"t": table},
    ).all()  # fmt: skip
    own = ("no", "id", "org_id", "private_to", "site_id", "embedding")
    return dict(columns)["embedding"], ", ".join(name for name, _ in columns if name not in own)
