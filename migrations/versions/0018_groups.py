"""Groups: sources that some members of an organization see; who reads what is private is asked of `rag_readers`.

Revision ID: 0018
Revises: 0017

`private_to` of a chunk is a user or an audience, a set of groups. Servers of the release before set no audiences and see
nothing of what is for groups.
"""

from alembic import op
from alembic.util import CommandError
from sqlalchemy import text

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

TABLES = [
    """
    CREATE TABLE groups (
        id uuid CONSTRAINT pk_groups PRIMARY KEY,
        org_id uuid NOT NULL CONSTRAINT fk_groups_org_id REFERENCES organizations ON DELETE CASCADE,
        slug text NOT NULL,
        name text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT uq_groups_org_id_slug UNIQUE (org_id, slug),
        CONSTRAINT uq_groups_org_id_id UNIQUE (org_id, id)
    )
    """,
    """
    CREATE TABLE group_members (
        group_id uuid,
        user_id uuid,
        org_id uuid NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT pk_group_members PRIMARY KEY (group_id, user_id),
        CONSTRAINT fk_group_members_org_id_group_id FOREIGN KEY (org_id, group_id)
            REFERENCES groups (org_id, id) ON DELETE CASCADE,
        CONSTRAINT fk_group_members_user_id_org_id FOREIGN KEY (user_id, org_id)
            REFERENCES memberships (user_id, org_id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX ix_group_members_user_id ON group_members (user_id)",
    """
    CREATE TABLE audiences (
        id uuid CONSTRAINT pk_audiences PRIMARY KEY,
        org_id uuid NOT NULL CONSTRAINT fk_audiences_org_id REFERENCES organizations ON DELETE CASCADE,
        CONSTRAINT uq_audiences_org_id_id UNIQUE (org_id, id)
    )
    """,
    """
    CREATE TABLE audience_groups (
        audience_id uuid,
        group_id uuid,
        org_id uuid NOT NULL,
        CONSTRAINT pk_audience_groups PRIMARY KEY (audience_id, group_id),
        CONSTRAINT fk_audience_groups_org_id_audience_id FOREIGN KEY (org_id, audience_id)
            REFERENCES audiences (org_id, id) ON DELETE CASCADE,
        CONSTRAINT fk_audience_groups_org_id_group_id FOREIGN KEY (org_id, group_id)
            REFERENCES groups (org_id, id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX ix_audience_groups_group_id ON audience_groups (group_id)",
    """
    ALTER TABLE sources ADD audience_id uuid,
        ADD CONSTRAINT fk_sources_org_id_audience_id FOREIGN KEY (org_id, audience_id) REFERENCES audiences (org_id, id),
        DROP CONSTRAINT ck_sources_visibility,
        ADD CONSTRAINT ck_sources_visibility CHECK (visibility IN ('user', 'group', 'team', 'global')),
        ADD CONSTRAINT ck_sources_group_has_audience CHECK ((visibility = 'group') = (audience_id IS NOT NULL))
    """,
]
FUNCTIONS = [
    # With its owner's rights and without an argument, as rag_claimed_organizations is: it tells nothing but the caller's own.
    """
    CREATE FUNCTION rag_claimed_readers() RETURNS uuid[] LANGUAGE sql STABLE PARALLEL SAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN ARRAY(SELECT a.audience_id FROM audience_groups a JOIN group_members USING (group_id)
                 WHERE user_id = rag_claimed_user()) || rag_claimed_user()
    """,
    """
    CREATE FUNCTION rag_readers() RETURNS uuid[] LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN rag_application()
        THEN coalesce(nullif(current_setting('rag.audiences', true), ''), '{}')::uuid[] || rag_user()
        ELSE rag_claimed_readers() END
    """,
    "REVOKE EXECUTE ON FUNCTION rag_claimed_readers(), rag_readers() FROM PUBLIC",
    "COMMENT ON FUNCTION rag_claimed_readers() IS 'The user of the claims and the audiences that their groups are in'",
    "COMMENT ON FUNCTION rag_readers() IS 'Of private rows, whose exist: the user and the audiences of the transaction'",
]
TENANT = "org_id = ANY ((SELECT rag_organizations())::uuid[])"
USER = "private_to = (SELECT rag_user())"
READERS = "private_to = ANY ((SELECT rag_readers())::uuid[])"
SEEN = (
    "(visibility IN ('team', 'global') OR visibility = 'user' AND owner_id = (SELECT rag_user())"
    " OR visibility = 'group' AND audience_id = ANY ((SELECT rag_readers())::uuid[]) OR (SELECT rag_operator()))"
)
SEEN_BEFORE = "(visibility <> 'user' OR owner_id = (SELECT rag_user()) OR (SELECT rag_operator()))"

OLD, NEW = "(v.private_to IS NULL OR v.private_to = $3)", "(v.private_to IS NULL OR v.private_to = ANY ($3))"
REWRITTEN = {
    "rag_match": [(OLD, NEW), ("rag_organizations(), rag_user(), given", "rag_organizations(), rag_readers(), given")],
    "match_embeddings": [
        (OLD, NEW),
        ("rag_organizations(), rag_user(), tenant", "rag_organizations(), rag_readers(), tenant"),
    ],
    "search_rag_context": [
        (OLD, NEW),
        ("(c.metadata ->> 'owner_id')::uuid = $3", "(c.metadata ->> 'owner_id')::uuid = ANY ($3)"),
        ("rag_organizations(), rag_user(), source_types", "rag_organizations(), rag_readers(), source_types"),
    ],
}


def upgrade() -> None:
    for statement in TABLES + FUNCTIONS:
        op.execute(statement)
    set_policies(SEEN, READERS)
    for function, changes in REWRITTEN.items():
        rewrite(function, changes)


def downgrade() -> None:
    if op.get_bind().scalar(text("SELECT EXISTS (SELECT FROM sources WHERE visibility = 'group')")):
        raise CommandError("there are sources for groups: delete them first, or ingest them for all members")
    for function, changes in REWRITTEN.items():
        rewrite(function, [(new, old) for old, new in changes])
    set_policies(SEEN_BEFORE, USER)
    op.execute("DROP FUNCTION rag_readers()")
    op.execute("DROP FUNCTION rag_claimed_readers()")
    op.execute(
        "ALTER TABLE sources DROP CONSTRAINT ck_sources_group_has_audience, DROP CONSTRAINT ck_sources_visibility,"
        " ADD CONSTRAINT ck_sources_visibility CHECK (visibility IN ('user', 'team', 'global')), DROP audience_id"
    )
    for table in ("audience_groups", "audiences", "group_members", "groups"):
        op.execute(f"DROP TABLE {table}")


def set_policies(seen: str, readers: str) -> None:
    """Of sources, and of the generations' tables that know a reader."""
    op.execute(f"ALTER POLICY tenant ON sources USING ({TENANT} AND {seen}) WITH CHECK ({TENANT} AND {seen})")
    tables = op.get_bind().scalars(
        text(
            "SELECT polrelid::regclass::text FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid"
            " JOIN pg_attribute ON attrelid = polrelid AND attname = 'private_to' AND NOT attisdropped"
            " WHERE polname = 'tenant' AND relnamespace = 'public'::regnamespace AND relname ~ '^g_'"
        )
    )
    for table in tables.all():
        op.execute(
            f"ALTER POLICY tenant ON {table} USING ({TENANT} AND"
            f" (private_to IS NULL OR {readers} OR (SELECT rag_operator())))"
        )


def rewrite(function: str, changes: list[tuple[str, str]]) -> None:
    """The rest of the function, its settings and its grants stay."""
    definition = op.get_bind().scalar(text("SELECT pg_get_functiondef(CAST(:name AS regproc))"), {"name": function})
    for old, new in changes:
        if old not in definition:
            raise CommandError(f"the function {function} is not the one of migration 0012: put that back")
        definition = definition.replace(old, new)
    op.get_bind().exec_driver_sql(definition)
