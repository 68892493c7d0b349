"""In the generations that there are: what a deletion of this release touches. They are read no more, but built anew.

Revision ID: 0014
Revises: 0013

Servers of the release before go on with them until they are rebuilt: their own postings stay.
"""

from alembic import op
from sqlalchemy import text

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

ORGANIZATIONS = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
READERS = "(private_to IS NULL OR private_to = (SELECT rag_user()) OR (SELECT rag_operator()))"


def upgrade() -> None:
    for t in generations("postgres"):
        op.execute(
            f"ALTER TABLE {t}_chunks ADD length integer NOT NULL DEFAULT 0, ADD terms integer[] NOT NULL DEFAULT '{{}}'"
        )
        op.execute(f"ALTER TABLE {t}_sizes ADD shared bigint NOT NULL DEFAULT 0, ADD length bigint NOT NULL DEFAULT 0")
        create_words(t)
    for t in generations("qdrant"):
        op.execute(
            f"CREATE TABLE {t}_qdrant_chunks (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            " id uuid NOT NULL UNIQUE, org_id uuid NOT NULL, private_to uuid, source_id uuid NOT NULL,"
            " text text NOT NULL, metadata jsonb NOT NULL, length integer NOT NULL, terms integer[] NOT NULL)"
        )
        op.execute(
            f"CREATE TABLE {t}_qdrant_sizes (org_id uuid PRIMARY KEY, chunks bigint NOT NULL, shared bigint NOT NULL,"
            " length bigint NOT NULL) WITH (fillfactor = 70)"
        )
        create_words(f"{t}_qdrant")
        force(f"{t}_qdrant_chunks", f"{ORGANIZATIONS} AND {READERS}")
        force(f"{t}_qdrant_sizes", ORGANIZATIONS)


def downgrade() -> None:
    op.execute("UPDATE generations SET settings = settings - 'layout'")  # their words go: they are to be built anew
    for t in generations("postgres"):
        op.execute(f"DROP TABLE {t}_words")
        op.execute(f"ALTER TABLE {t}_chunks DROP length, DROP terms")
        op.execute(f"ALTER TABLE {t}_sizes DROP shared, DROP length")
    for t in generations("qdrant"):
        op.execute(f"DROP TABLE IF EXISTS {t}_qdrant_fields, {t}_qdrant_words, {t}_qdrant_sizes, {t}_qdrant_chunks")


def create_words(t: str) -> None:
    op.execute(
        f"CREATE TABLE {t}_words (org_id uuid, term integer, first bigint, private_to uuid, postings bigint[] NOT NULL,"
        " PRIMARY KEY (org_id, term, first)) WITH (fillfactor = 85)"
    )
    op.execute(f"ALTER TABLE {t}_words ALTER postings SET STORAGE PLAIN")
    force(f"{t}_words", f"{ORGANIZATIONS} AND {READERS}")


def force(table: str, using: str) -> None:
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY tenant ON {table} USING ({using})")


def generations(store: str) -> list[str]:
    """What the names of a generation's tables begin with."""
    if store == "postgres":
        found = (
            "SELECT substring(relname FROM '^(g_.+)_vectors$') FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid"
            " WHERE polname = 'tenant' AND relnamespace = 'public'::regnamespace AND relname ~ '^g_.+_vectors$'"
        )
    else:
        found = (
            "SELECT 'g_' || index_name || '_' || number FROM generations WHERE store = 'qdrant' AND state <> 'dropped'"
        )
    return list(op.get_bind().scalars(text(found)))
