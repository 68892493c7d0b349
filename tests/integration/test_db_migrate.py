"""Migrations: up, down and up again, from several processes, with grants; and no drift between them and the models."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from rag_app.database import migrate
from rag_app.database.private import PrivatePostgres
from rag_app.database.session import Database
from rag_app.database.tables import REVISION, all_tables
from rag_app.domain.errors import Misconfigured, StoreFailed
from tests import migrating
from tests.conftest import MIGRATIONS, NewPostgres
from tests.waiting import PATIENCE


@pytest.fixture
def server(new_bare_database: NewPostgres) -> PrivatePostgres:
    """A database of the test's own, with an empty schema."""
    return new_bare_database()


@pytest.fixture
def migrated(new_database: NewPostgres) -> PrivatePostgres:
    """A database of the test's own, at the newest revision."""
    return new_database()


async def run(url: str, *statements: str) -> None:
    database = Database(url)
    try:
        async with database.session() as session:
            for statement in statements:
                await session.execute(text(statement))
    finally:
        await database.close()


async def tables(url: str) -> set[str]:
    database = Database(url)
    async with database.session() as session:
        found = await session.scalars(
            text(
                "SELECT relname FROM pg_class WHERE relkind IN ('r','v','S') AND relnamespace = 'public'::regnamespace"
            )
        )
        functions = await session.scalars(
            text("SELECT proname FROM pg_proc WHERE pg_get_userbyid(proowner) = 'rag_owner'")
        )
        names = {*found, *functions}
    await database.close()
    return names


def superuser(server: PrivatePostgres) -> str:
    password = (server.folder / "cluster" / "passwords").read_text().split()[0]
    return f"postgresql://postgres:{password}@{server.app_url.partition('@')[2]}"


async def test_up_and_again_and_down(server: PrivatePostgres) -> None:
    assert migrating.current(server.owner_url) is None
    for _ in range(2):
        migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS)  # although a loop runs in this thread
        assert migrating.current(server.owner_url) == migrating.head(MIGRATIONS) == REVISION
        app = Database(server.app_url)
        await app.check()
        await app.close()
    migrating.downgrade(server.owner_url, MIGRATIONS, "base")
    assert await tables(server.owner_url) == {"alembic_version"}


def test_every_revision_goes_up_down_and_up(server: PrivatePostgres) -> None:
    script = ScriptDirectory.from_config(migrate.config(MIGRATIONS))
    for revision in reversed([*script.walk_revisions()]):
        migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS, revision.revision)
        migrating.downgrade(server.owner_url, MIGRATIONS, "-1")
        migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS, revision.revision)
    assert migrating.current(server.owner_url) == REVISION


async def test_models_and_migrations_agree(server: PrivatePostgres) -> None:
    """By the `alembic` command itself, which finds its configuration in pyproject.toml."""
    environment = {**os.environ, "RAG_DATABASE_OWNER_URL": server.owner_url}

    def alembic(*arguments: str) -> str:
        command = [sys.executable, "-m", "alembic", *arguments]
        done = subprocess.run(
            command, cwd=MIGRATIONS.parent, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    assert "Target database is not up to date" in alembic("check")
    alembic("upgrade", "head")
    await run(server.owner_url, "CREATE TABLE g_book_1 (id uuid PRIMARY KEY)")  # a generation's, no drift
    assert "No new upgrade operations detected" in alembic("check")
    await run(server.owner_url, "ALTER TABLE users ADD COLUMN shoe_size integer")
    assert "shoe_size" in alembic("check")


async def test_the_checks_that_alembic_does_not_compare(migrated: PrivatePostgres) -> None:
    declared = {
        str(constraint.name)
        for table in all_tables().tables.values()
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
    }

    def there(connection: Connection) -> set[str]:
        inspector = inspect(connection)
        return {str(check["name"]) for name in all_tables().tables for check in inspector.get_check_constraints(name)}

    database = Database(migrated.owner_url)
    async with database.autocommit() as connection:
        assert await connection.run_sync(there) == declared
    await database.close()


async def test_row_level_security_is_forced(migrated: PrivatePostgres) -> None:
    database = Database(migrated.owner_url)
    async with database.session() as session:
        forced = await session.scalars(
            text("SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity ORDER BY relname")
        )
        assert forced.all() == [
            "ai_failures", "ai_usage_events", "audit_events", "calibrations", "feedback_settlements", "idempotency_keys",
            "index_roles", "job_files", "jobs", "judgments", "kept_answers", "lexybrain_requests", "lexybrain_responses",
            "organization_tokens", "originals", "rag_feedback", "rag_messages", "rag_threads", "read_files",
            "source_builds", "sources",
            "usage_counters", "usage_reservations", "validation_sources", "validations",
        ]  # fmt: skip
    await database.close()


def test_processes_that_migrate_at_once_do_it_once(server: PrivatePostgres) -> None:
    program = (
        "import sys; from pathlib import Path; from rag_app.database.migrate import upgrade;"
        "upgrade(sys.argv[1], sys.argv[2], Path(sys.argv[3]))"
    )
    command = [sys.executable, "-c", program, server.owner_url, server.app_url, str(MIGRATIONS)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=MIGRATIONS.parent) for _ in range(3)]
    for process in processes:
        _, complaint = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, complaint
    assert migrating.current(server.owner_url) == REVISION


async def test_the_application_is_granted_its_use_and_no_more(migrated: PrivatePostgres) -> None:
    role = 'rag "reader": 2'
    quoted = '"rag ""reader"": 2"'
    await run(
        superuser(migrated),
        "CREATE ROLE " + quoted.replace(":", r"\:") + " LOGIN PASSWORD 'p'",
        "GRANT CONNECT ON DATABASE rag TO " + quoted.replace(":", r"\:"),
    )
    url = f"postgresql://rag%20%22reader%22%3A%202:p@{migrated.app_url.partition('@')[2]}"
    migrate.upgrade(migrated.owner_url, url, MIGRATIONS)
    await run(migrated.owner_url, "CREATE TABLE g_book_1 (id integer GENERATED BY DEFAULT AS IDENTITY, n serial)")

    app = Database(url)
    await app.check()
    async with app.session() as session:
        assert await session.scalar(text("SELECT current_user")) == role
    await app.close()
    await run(
        url,
        "INSERT INTO organizations (id, slug, name) VALUES (gen_random_uuid(), 'a', 'A')",
        "INSERT INTO generations (index_name, store, number, embedding_model, dimension, state, settings)"
        " VALUES ('book', 'postgres', 1, 'm', 8, 'building', '{}')",
        "INSERT INTO g_book_1 DEFAULT VALUES",  # made after the grants
        "DELETE FROM g_book_1",
        "SELECT rag_organizations(), rag_user(), rag_operator(), count(*) FROM sources",
    )
    for refused in (
        "TRUNCATE sources CASCADE",
        "ALTER TABLE sources DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenant ON sources",
        "DELETE FROM alembic_version",
        "CREATE TABLE mine (id integer)",
    ):
        with pytest.raises(DBAPIError, match=r"permission denied|must be owner"):
            await run(url, refused)


async def test_a_server_does_not_start_on_an_empty_database_or_as_a_role_that_sees_everything(
    server: PrivatePostgres, migrated: PrivatePostgres
) -> None:
    empty = Database(server.app_url)
    with pytest.raises(Misconfigured, match=r"at schema revision none.* run `rag-app db upgrade`"):
        await empty.check()
    await empty.close()

    await run(
        superuser(migrated),
        "CREATE ROLE climber LOGIN BYPASSRLS PASSWORD 'climb'",
        "GRANT CONNECT ON DATABASE rag TO climber",
    )
    climber = f"postgresql://climber:climb@{migrated.app_url.partition('@')[2]}"
    for url, role in (superuser(migrated), "postgres"), (climber, "climber"):
        database = Database(url)
        with pytest.raises(Misconfigured, match=rf"connects as '{role}'.*row-level security.*CREATE ROLE"):
            await database.check()
        await database.close()


OF_0003 = (
    "CREATE POLICY tenant ON {table} USING (org_id = ANY ((SELECT rag_organizations())::uuid[]) AND"
    " (private_to IS NULL OR private_to = (SELECT rag_user())"
    " OR (SELECT current_setting('rag.operator', true)) = 'on'))"
)
FOREIGN = "SELECT set_config('rag.organizations', '{00000000-0000-0000-0000-00000000000a}', true)"


async def rules(url: str) -> list[tuple[str, ...]]:
    """Every function and policy, as PostgreSQL would write it."""
    database = Database(url)
    async with database.session() as session:
        found = await session.execute(
            text(
                "SELECT oid::regprocedure::text, pg_get_functiondef(oid), obj_description(oid) FROM pg_proc"
                " WHERE pg_get_userbyid(proowner) = 'rag_owner' UNION ALL"
                " SELECT polrelid::regclass::text, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)"
                " FROM pg_policy ORDER BY 1"
            )
        )
        rows = [tuple(row) for row in found]
    await database.close()
    return rows


async def gateway(server: PrivatePostgres) -> str:
    """The URL of a role that can do nothing yet."""
    await run(superuser(server), "DROP ROLE IF EXISTS gate", "CREATE ROLE gate LOGIN PASSWORD 'g'")
    await run(superuser(server), "GRANT CONNECT ON DATABASE rag TO gate")
    return f"postgresql://gate:g@{server.app_url.partition('@')[2]}"


async def rights(server: PrivatePostgres) -> list[str]:
    """Who may do what with the tables and functions of the schema, as PostgreSQL notes it down."""
    database = Database(server.owner_url)
    rows = await database.fetch(
        "SELECT relname || ' ' || relacl::text FROM pg_class WHERE relnamespace = 'public'::regnamespace UNION ALL"
        " SELECT proname || ' ' || proacl::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1"
    )
    await database.close()
    return [row[0] for row in rows if row[0]]


async def leave(server: PrivatePostgres) -> None:
    await run(superuser(server), "DROP OWNED BY gate", "DROP ROLE gate")


async def test_tables_of_generations_made_before_0004_follow_it_up_and_down(server: PrivatePostgres) -> None:
    url = await gateway(server)
    migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS, "0003")
    for table in ("g_book_1_chunks", "g_marketplace_1_chunks"):
        await run(
            server.owner_url,
            f"CREATE TABLE {table} (org_id uuid, private_to uuid)",
            f"INSERT INTO {table} VALUES ('00000000-0000-0000-0000-00000000000a')",
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
            OF_0003.format(table=table),
        )
    before = await rules(server.owner_url)

    migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS, gateway="gate")
    migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS, gateway="gate")  # safe to repeat
    after = {row[0]: row[1] for row in await rules(server.owner_url)}
    for table in ("g_book_1_chunks", "g_marketplace_1_chunks"):
        assert "rag_operator()" in after[table] and "current_setting" not in after[table]
    for role, seen in ((server.app_url, 1), (url, 0)):
        database = Database(role)
        async with database.session() as session:
            await session.execute(text(FOREIGN))
            assert await session.scalar(text("SELECT count(*) FROM g_marketplace_1_chunks")) == seen
        await database.close()
    with pytest.raises(DBAPIError, match="permission denied for table g_book_1_chunks"):
        await run(url, "SELECT FROM g_book_1_chunks")

    migrating.downgrade(server.owner_url, MIGRATIONS, "0003")
    assert await rules(server.owner_url) == before
    for table in ("g_marketplace_1_chunks", "generations"):
        with pytest.raises(DBAPIError, match=f"permission denied for table {table}"):
            await run(url, f"SELECT FROM {table}")
    await leave(server)


@pytest.mark.parametrize(
    "granted",
    ["rag_app", "rag_owner", "rag_app TO gate", "BYPASSRLS", "SUPERUSER", "DEFAULT"],
)
async def test_a_gateway_that_could_see_everything_is_refused_and_nothing_is_granted(
    migrated: PrivatePostgres, granted: str
) -> None:
    await gateway(migrated)
    role = granted if granted in ("rag_app", "rag_owner") else "gate"
    if "TO" in granted:
        await run(superuser(migrated), f"GRANT {granted}")
    elif granted == "DEFAULT":
        await run(migrated.owner_url, "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO gate")
    elif role == "gate":
        await run(superuser(migrated), f"ALTER ROLE gate {granted}")
    before = await rights(migrated)
    with pytest.raises(Misconfigured, match=f"RAG_DATABASE_GATEWAY_ROLE cannot be '{role}'"):
        migrate.upgrade(migrated.owner_url, migrated.app_url, MIGRATIONS, gateway=role)
    assert await rights(migrated) == before
    await leave(migrated)


async def test_a_refused_gateway_leaves_an_empty_database_empty(server: PrivatePostgres) -> None:
    with pytest.raises(Misconfigured, match="RAG_DATABASE_GATEWAY_ROLE cannot be 'rag_app'"):
        migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS, gateway="rag_app")
    assert migrating.current(server.owner_url) is None


async def test_what_a_gateway_was_granted_by_others_is_taken_back(migrated: PrivatePostgres) -> None:
    url = await gateway(migrated)
    await run(migrated.owner_url, "CREATE TABLE g_book_1_chunks (id serial)", "CREATE TABLE theirs (id integer)")
    await run(
        migrated.owner_url,
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO gate",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO gate",
        "GRANT USAGE ON SCHEMA public TO gate",
    )
    migrate.upgrade(migrated.owner_url, migrated.app_url, MIGRATIONS, gateway="gate")
    for refused in (
        "INSERT INTO memberships (user_id, org_id) SELECT gen_random_uuid(), gen_random_uuid()",
        "SELECT FROM users",
        "SELECT version_num FROM alembic_version",
        "SELECT FROM g_book_1_chunks",
        "SELECT nextval('g_book_1_chunks_id_seq')",
        "SELECT setval('generations_id_seq', 1)",
    ):
        with pytest.raises(DBAPIError, match="permission denied for"):
            await run(url, refused)
    await run(url, "SELECT FROM theirs")  # no table of ours
    await leave(migrated)


async def test_a_database_without_pgvector_is_told_so(server: PrivatePostgres) -> None:
    await run(superuser(server), "DROP EXTENSION vector")
    with pytest.raises(Misconfigured, match="CREATE EXTENSION vector"):
        migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS)
    assert migrating.current(server.owner_url) is None
    await run(superuser(server), "CREATE SCHEMA extensions", "CREATE EXTENSION vector SCHEMA extensions")
    await run(superuser(server), "GRANT USAGE ON SCHEMA extensions TO rag_owner, rag_app")
    name = server.owner_url.rpartition("/")[2]
    await run(superuser(server), f"ALTER DATABASE {name} SET search_path = public, extensions")
    migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS)  # as Supabase has it
    await run(
        server.owner_url,
        "INSERT INTO generations (index_name, store, number, embedding_model, dimension, state, settings)"
        " VALUES ('book', 'postgres', 1, 'm', 2, 'active', '{}')",
        "SET LOCAL search_path = extensions",
        "SELECT public.rag_generation('book', '[1,2]', 5)",
    )


async def test_one_role_for_both_needs_no_grants(server: PrivatePostgres) -> None:
    migrate.upgrade(server.owner_url, server.owner_url, MIGRATIONS)
    owner = Database(server.owner_url)
    await owner.check()
    await owner.close()


async def test_a_role_that_is_missing_is_named_and_nothing_is_done(server: PrivatePostgres) -> None:
    url = f"postgresql://nobody_yet:x@{server.app_url.partition('@')[2]}"
    with pytest.raises(Misconfigured, match=r"no role 'nobody_yet'.*CREATE ROLE"):
        migrate.upgrade(server.owner_url, url, MIGRATIONS)
    with pytest.raises(
        Misconfigured, match=r"no role 'nor_i', which RAG_DATABASE_GATEWAY_ROLE names: CREATE ROLE nor_i"
    ):
        migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS, gateway="nor_i")
    assert migrating.current(server.owner_url) is None
    assert "sources" not in await tables(server.owner_url)


def test_what_cannot_be_migrated(server: PrivatePostgres, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"cannot migrate.*nonesuch"):
        migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS, "nonesuch")
    with pytest.raises(Misconfigured, match="cannot migrate"):
        migrate.upgrade(server.owner_url, server.app_url, tmp_path / "100%")
    with pytest.raises(Misconfigured, match=r"RAG_DATABASE_OWNER_URL's role cannot migrate.*permission denied"):
        migrate.upgrade(server.app_url, server.app_url, MIGRATIONS)
    with pytest.raises(StoreFailed):
        migrate.upgrade("postgresql://rag_owner:x@127.0.0.1:1/rag", server.app_url, MIGRATIONS)
