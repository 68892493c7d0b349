"""From SQL: a source type that there is not and a threshold that is no number are refused; `is_org_member`.

Revision ID: 0012
Revises: 0011

The types of a source are the index's, in its index.toml: `db upgrade` writes them down here.
"""

from alembic import op
from alembic.util import CommandError
from sqlalchemy import text

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_ARGUMENTS_NEEDED = "        RETURN QUERY EXECUTE format($query$\n            SELECT v.id, v.org_id,"
_KEYS_CHECKED = "        until := given ->> 'date_to';\n"
CHECKS = {
    "match_embeddings": (
        _ARGUMENTS_NEEDED,
        """\
        IF match_threshold = 'NaN' THEN
            RAISE EXCEPTION 'match_threshold: must be a distance from 0 to 2, not NaN' USING ERRCODE = 'invalid_parameter_value';
        END IF;
""",
    ),
    "rag_match": (
        _KEYS_CHECKED,
        """\
        IF given ->> 'source_type' NOT IN (SELECT t.source_type FROM source_types t WHERE t.index_name = 'org_knowledge') THEN
            RAISE EXCEPTION 'filters.source_type: there is no %; accepted: %', to_json(left(given ->> 'source_type', 50)),
                (SELECT string_agg(t.source_type, ', ' ORDER BY t.source_type) FROM source_types t WHERE t.index_name = 'org_knowledge')
            USING ERRCODE = 'invalid_parameter_value';
        END IF;
""",
    ),
}
"""Of each function: what stands before these lines, which are added."""


def upgrade() -> None:
    op.execute(
        "CREATE TABLE source_types (index_name text, source_type text,"
        " CONSTRAINT pk_source_types PRIMARY KEY (index_name, source_type))"
    )
    for function, (place, check) in CHECKS.items():
        rewrite(function, place, check + place)
    op.execute(
        "CREATE FUNCTION is_org_member(org_id uuid) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE"
        " RETURN coalesce(org_id = ANY (rag_organizations()), false)"
    )
    op.execute("REVOKE EXECUTE ON FUNCTION is_org_member(uuid) FROM PUBLIC")
    op.execute("COMMENT ON FUNCTION is_org_member IS 'Whether the caller sees what members of this organization see'")


def downgrade() -> None:
    op.execute("DROP FUNCTION is_org_member(uuid)")
    for function, (place, check) in CHECKS.items():
        rewrite(function, check + place, place)
    op.execute("DROP TABLE source_types")


def rewrite(function: str, old: str, new: str) -> None:
    """The rest of the function, its settings and its grants stay."""
    definition = op.get_bind().scalar(text("SELECT pg_get_functiondef(CAST(:name AS regproc))"), {"name": function})
    if old not in definition:
        raise CommandError(f"the function {function} is not the one of migration 0004: put that back")
    op.get_bind().exec_driver_sql(definition.replace(old, new))
