"""The schema: brought to a revision by its owner, with the application's role granted what it needs.

The functions block, each on an event loop and thread of its own, so that a command, a notebook and a test can call
them whatever loop runs where they are. One at a time in a process (Alembic keeps the current migration in globals);
between processes a lock in the database lets one migrate and the others find the work done.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, NullPool, text
from sqlalchemy.exc import ProgrammingError

from rag_app.db.session import asyncpg_url, create_engine
from rag_app.domain.errors import Misconfigured

T = TypeVar("T")

_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('rag_app/migrate', 0))")
_GRANTS = """\
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};
REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {role};
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role};
GRANT EXECUTE ON FUNCTION rag_organizations(), rag_user(), rag_operator() TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {role};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT EXECUTE ON FUNCTIONS TO {role}"""
"""No TRUNCATE: it passes row-level security by."""


def upgrade(owner_url: str, app_url: str, migrations: Path, revision: str = "head") -> None:
    """Bring the schema to `revision` and grant the role of `app_url` its use: all of it, or nothing.

    Does the grants again each time. Where both URLs name one role there is nothing to grant.
    Raises Misconfigured when there is no such revision, no such role, or the owner lacks a right.
    """
    owner, app = asyncpg_url(owner_url).username, asyncpg_url(app_url).username

    def work(connection: Connection) -> None:
        command.upgrade(config(migrations, connection), revision)
        if app != owner and app is not None:
            _grant(connection, app)

    _in_transaction(owner_url, work)


def downgrade(owner_url: str, migrations: Path, revision: str) -> None:
    """Take the schema back to `revision`, or to nothing: "base". What newer migrations made is lost."""
    _in_transaction(owner_url, lambda connection: command.downgrade(config(migrations, connection), revision))


def current(owner_url: str) -> str | None:
    """The revision the database is at; None before the first upgrade."""
    return _in_transaction(owner_url, lambda connection: MigrationContext.configure(connection).get_current_revision())


def head(migrations: Path) -> str | None:
    """The newest revision among the files."""
    return ScriptDirectory.from_config(config(migrations)).get_current_head()


def config(migrations: Path, connection: Connection | None = None) -> Config:
    """Alembic's configuration; with a connection `env.py` uses that one and leaves its transaction alone."""
    made = Config(attributes={"connection": connection})
    made.set_main_option("script_location", str(migrations).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    return made


def _grant(connection: Connection, role: str) -> None:
    if not connection.scalar(text("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :role)"), {"role": role}):
        raise Misconfigured(
            f"there is no role {role!r}, which RAG_DATABASE_URL names: CREATE ROLE {role} LOGIN PASSWORD '...'"
        )
    quoted = connection.dialect.identifier_preparer.quote_identifier(role)
    for statement in _GRANTS.format(role=quoted).split(";\n"):
        connection.execute(text(statement.replace(":", r"\:")))


def _in_transaction(owner_url: str, work: Callable[[Connection], T]) -> T:
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
