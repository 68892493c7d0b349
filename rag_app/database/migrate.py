"""Migrates the schema as its owner, and grants the application's role what it needs.

The functions block, each on its own event loop and thread, so that commands, notebooks and tests can call them beside
a running loop. One runs at a time in a process, because Alembic keeps the current migration in globals; between
processes a lock in the database lets one migrate while the others wait.
"""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, NullPool, text
from sqlalchemy.exc import ProgrammingError

from rag_app.database.session import asyncpg_url, create_engine
from rag_app.database.tables import all_tables
from rag_app.domain import Misconfigured

T = TypeVar("T")

_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('rag_app/migrate', 0))")
_GRANTS = """\
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};
REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {role};
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role};
GRANT EXECUTE ON FUNCTION {functions} TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT EXECUTE ON FUNCTIONS TO {role}"""
# No TRUNCATE: it passes row-level security by

_GATEWAY_GRANTS = """\
REVOKE ALL ON {tables} FROM {role};
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT (index_name, store, number, embedding_model, dimension, state) ON generations TO {role};
GRANT EXECUTE ON FUNCTION rag_organizations, rag_user, rag_operator, rag_application, rag_subject, rag_claimed_user TO {role};
GRANT EXECUTE ON FUNCTION rag_readers, rag_claimed_readers, rag_claimed_organizations, rag_generation TO {role};
GRANT SELECT ON source_types TO {role};
GRANT EXECUTE ON FUNCTION rag_match, match_embeddings, search_rag_context, is_org_member TO {role}"""
# What the functions of migrations 0004 and 0012 need, which run with their caller's rights; `_SEARCHED_TABLES` comes to it. Taken back
# first: a platform may give such a role everything on each new table, as Supabase does
_FUNCTIONS = text(
    "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
    " AND pg_get_userbyid(proowner) = current_user AND proname LIKE 'rag\\_%'"
)
_TABLES = text(
    "WITH ours AS (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
    " AND pg_get_userbyid(relowner) = current_user"
    " AND (relname = ANY (:names) OR relname ~ '^g_.+_(chunks|vectors|signs|graph|sizes|words|fields|postings|terms|totals)$'))"
    " SELECT oid::regclass::text FROM ours UNION ALL"
    " SELECT s.oid::regclass::text FROM pg_depend JOIN pg_class s ON s.oid = objid AND s.relkind = 'S'"
    " WHERE refobjid IN (SELECT oid FROM ours)"
)
_SEARCHED_TABLES = text(
    "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    " AND relname ~ '^g_(org_knowledge|store_catalogue|marketplace)_[0-9]+_(chunks|vectors)$'"
)


def upgrade(
    owner_url: str, app_url: str, migrations: Path, revision: str = "head", *, gateway: str | None = None
) -> None:
    """Bring the schema to `revision` and grant the role of `app_url` its use: all of it, or nothing.

    `gateway` is the role that may only call the SQL functions (docs/sql.md). Each call repeats the grants, unless both
    URLs name the same role.
    Raises Misconfigured when there is no such revision, no such role, the owner lacks a right, or the gateway's role
    has too many.
    """
    owner, app = asyncpg_url(owner_url).username, asyncpg_url(app_url).username

    def work(connection: Connection) -> None:
        command.upgrade(config(migrations, connection), revision)
        if app != owner and app is not None:
            _check_exists(connection, app, "RAG_DATABASE_URL", "LOGIN PASSWORD '...'")
            _execute(connection, _GRANTS, app, functions=", ".join(connection.scalars(_FUNCTIONS)))
        if gateway is not None:
            _grant_gateway(connection, gateway, taken={owner, app})

    in_transaction(owner_url, work)


def knows_revision(migrations: Path, revision: str) -> bool:
    """Whether this version can migrate from that revision."""
    return any(each.revision == revision for each in ScriptDirectory.from_config(config(migrations)).walk_revisions())


def config(migrations: Path, connection: Connection | None = None) -> Config:
    """Alembic's configuration; with a connection `env.py` uses that one and leaves its transaction alone."""
    made = Config(attributes={"connection": connection})
    made.set_main_option("script_location", str(migrations).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    return made


def _check_exists(connection: Connection, role: str, setting: str, options: str) -> None:
    if not connection.scalar(text("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :role)"), {"role": role}):
        raise Misconfigured(f"there is no role {role!r}, which {setting} names: CREATE ROLE {role} {options}")


def _grant_gateway(connection: Connection, role: str, taken: Collection[str | None]) -> None:
    _check_exists(connection, role, "RAG_DATABASE_GATEWAY_ROLE", "NOLOGIN")
    unfit = role in taken
    if not unfit:
        ours = connection.scalars(_TABLES, {"names": [*all_tables().tables, "alembic_version"]})
        _execute(connection, _GATEWAY_GRANTS, role, tables=", ".join(ours))
        if searched := ", ".join(connection.scalars(_SEARCHED_TABLES)):
            _execute(connection, "GRANT SELECT ON {searched} TO {role}", role, searched=searched)
        unfit = bool(connection.scalar(_SEES_TOO_MUCH, {"role": role}))
    if unfit:
        raise Misconfigured(
            f"RAG_DATABASE_GATEWAY_ROLE cannot be {role!r}: this role, or one that it is a member of, owns the schema,"
            " serves requests or bypasses row-level security, or default privileges grant it what the owner creates."
            " Use a role without any rights (CREATE ROLE ... NOLOGIN), and an owner that owns nothing else"
        )


_SEES_TOO_MUCH = text(
    "SELECT rolbypassrls OR has_table_privilege(oid, 'memberships', 'INSERT')"
    " OR EXISTS (SELECT FROM pg_default_acl, aclexplode(defaclacl) WHERE defaclobjtype = 'r'"
    " AND pg_get_userbyid(defaclrole) = current_user AND grantee IN (0, pg_roles.oid))"
    " FROM pg_roles WHERE rolname = :role"
)
# Who may write memberships is believed to be the application (migration 0004)


def _execute(connection: Connection, statements: str, role: str, **names: str) -> None:
    quoted = connection.dialect.identifier_preparer.quote_identifier(role)
    for statement in statements.format(role=quoted, **names).split(";\n"):
        connection.execute(text(statement.replace(":", r"\:")))


def in_transaction(owner_url: str, work: Callable[[Connection], T]) -> T:
    """What `work` returns, done as the owner while no other process migrates. Raises as `upgrade` does."""

    async def run() -> T:
        engine = create_engine(owner_url, poolclass=NullPool)
        try:
            async with engine.begin() as connection:
                await connection.execute(_LOCK)
                return await connection.run_sync(work)
        except CommandError as error:
            raise Misconfigured(f"cannot migrate: {error}") from error
        except ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) == "42501":  # insufficient privilege
                raise Misconfigured(f"RAG_DATABASE_OWNER_URL's role cannot migrate: {error.orig}") from error
            raise
        finally:
            await engine.dispose()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="migrate") as thread:
        return thread.submit(asyncio.run, run()).result()
