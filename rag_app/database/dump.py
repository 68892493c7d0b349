"""Dumps the schema `public` with pg_dump and restores it, with a count and a checksum of each table's rows.

pg_dump and pg_restore are the wheel's, of PostgreSQL 18. For newer servers, and for servers before 17, which do not
understand what pg_restore 18 sends, those on the PATH are used.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from secrets import token_urlsafe
from typing import IO, cast

import asyncpg
from msgspec import Struct

from rag_app.database.private import programs
from rag_app.database.session import FAILURES, asyncpg_url
from rag_app.domain import Misconfigured, StoreFailed, require

Sums = dict[str, tuple[int, str]]
"""Of each table: how many rows, and the sum of their hashes, so that order does not matter."""

_WHEEL = (17, 18)  # versions of servers
_PIECE = 1 << 20  # bytes
_SEES_ALL = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
_AS_TEXT = "SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO'; SET LOCAL extra_float_digits = 1"
_OURS = """NOT EXISTS (SELECT FROM pg_depend WHERE objid = c.oid AND deptype = 'e')
    AND relnamespace = 'public'::regnamespace"""
_TABLES = (
    f"SELECT c.oid::regclass::text FROM pg_class c WHERE relkind = 'r' AND relpersistence = 'p' AND {_OURS} ORDER BY 1"
)
_FIRST_OBJECT = f"SELECT c.oid::regclass::text FROM pg_class c WHERE {_OURS} LIMIT 1"
_SUM = "SELECT count(*), coalesce(sum(hashtextextended(each::text, 0)::numeric), 0)::text FROM {} each"
_CLOSED_FUNCTIONS = """SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    AND proacl IS NOT NULL AND NOT EXISTS (SELECT FROM aclexplode(proacl) WHERE grantee = 0) ORDER BY 1"""


class Snapshot(Struct, frozen=True):
    """A consistent view of the database, while its transaction lasts. `closed`: functions that PUBLIC may not call."""

    url: str
    name: str
    sums: Sums
    closed: list[str]
    revision: str

    async def write(self, file: IO[bytes]) -> None:
        """Write pg_dump's output, without roles and grants (`upgrade` grants them) and without rows of UNLOGGED tables.

        Raises StoreFailed with pg_dump's message.
        """
        options = ["--format=custom", f"--snapshot={self.name}", "--no-owner", "--no-privileges", "--schema=public"]
        async with _run_program("pg_dump", self.url, *options, "--no-unlogged-table-data") as (_, said):
            while piece := await said.read(_PIECE):
                file.write(piece)


@asynccontextmanager
async def snapshot(url: str) -> AsyncIterator[Snapshot]:
    """The database as it is now. Raises Misconfigured where the role of `url` does not see all rows."""
    async with _connect(url) as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        if not await connection.fetchval(_SEES_ALL):
            raise Misconfigured(
                "row-level security hides rows from this role: a backup by it would be incomplete. Set RAG_DATABASE_BACKUP_URL"
                " to a role that sees all (CREATE ROLE rag_backup LOGIN BYPASSRLS PASSWORD '...';"
                " GRANT pg_read_all_data TO rag_backup)"
            )
        name = await connection.fetchval("SELECT pg_export_snapshot()")
        revision = await connection.fetchval("SELECT version_num FROM alembic_version")
        closed = [row[0] for row in await connection.fetch(_CLOSED_FUNCTIONS)]
        yield Snapshot(url, name, await _sums(connection), closed, revision)


async def reading_role(superuser_url: str) -> str:
    """The URL of a role of the private server that reads all rows and is no superuser.

    A function that somebody has put into a view runs with the rights of whoever reads the view.
    """
    url, password = asyncpg_url(superuser_url), token_urlsafe(32)
    async with _connect(url.set(database="postgres").render_as_string(hide_password=False)) as connection:
        if not await connection.fetchval("SELECT true FROM pg_roles WHERE rolname = 'rag_all_reader'"):
            await connection.execute(
                "CREATE ROLE rag_all_reader LOGIN BYPASSRLS; GRANT pg_read_all_data TO rag_all_reader"
            )
        await connection.execute(f"ALTER ROLE rag_all_reader PASSWORD '{password}'")
        await connection.execute(f'GRANT CONNECT ON DATABASE "{url.database}" TO rag_all_reader')
    return url.set(username="rag_all_reader", password=password).render_as_string(hide_password=False)


async def check_empty(url: str) -> None:
    """Raises Misconfigured if the database contains a table."""
    async with _connect(url) as connection:
        if found := await connection.fetchval(_FIRST_OBJECT):
            raise Misconfigured(
                f"the database is not empty, it has {found}: a backup can only be restored into an empty database"
            )


async def restore(owner_url: str, file: IO[bytes], sums: Sums, closed: list[str]) -> None:
    """Restore everything in one transaction, as the owner, into an empty database.

    Raises StoreFailed with pg_restore's message, and if a table's rows differ from the dumped ones.
    """
    options = ["--format=custom", "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]
    options.append("--schema=public")  # what is in it: it is there itself
    async with _run_program("pg_restore", owner_url, *options) as (told, _):
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended, and says why
            while piece := file.read(_PIECE):
                told.write(piece)
                await told.drain()
        told.close()
    async with _connect(owner_url) as connection:
        for function in closed:
            await connection.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
        looking = connection.transaction()
        await looking.start()
        for row in await connection.fetch(f"{_TABLES.split('ORDER', maxsplit=1)[0]} AND relforcerowsecurity"):
            await connection.execute(f"ALTER TABLE {row[0]} NO FORCE ROW LEVEL SECURITY")  # or its owner sees nothing
        found = await _sums(connection)
        await looking.rollback()
        if differing := sorted(table for table in {*sums, *found} if sums.get(table) != found.get(table)):
            raise StoreFailed(f"tables are not what they were when the backup was made: {', '.join(differing)}")
        await connection.execute("ANALYZE")


async def _sums(connection: asyncpg.Connection) -> Sums:
    await connection.execute(_AS_TEXT)
    tables = [row[0] for row in await connection.fetch(_TABLES)]
    return {table: tuple(await connection.fetchrow(_SUM.format(table))) for table in tables}


@asynccontextmanager
async def _connect(url: str) -> AsyncIterator[asyncpg.Connection]:
    try:
        connection = await asyncpg.connect(
            asyncpg_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        )
        try:
            yield connection
        finally:
            await connection.close()
    except FAILURES as error:
        raise StoreFailed(f"PostgreSQL failed: {error}") from error


async def _path(program: str, url: str) -> str:
    async with _connect(url) as connection:
        server = connection.get_server_version().major
    if server in _WHEEL:
        return str(programs() / program)
    return require(
        shutil.which(program),
        Misconfigured(f"the server is PostgreSQL {server}: put {program} of that version on the PATH"),
    )


@asynccontextmanager
async def _run_program(
    program: str, url: str, *options: str
) -> AsyncIterator[tuple[asyncio.StreamWriter, asyncio.StreamReader]]:
    """Its stdin and stdout. Raises StoreFailed if it fails.

    The password is passed in the environment, because arguments are visible to other users.
    """
    parsed = asyncpg_url(url)
    ssl = {
        "sslmode" if name == "ssl" else name: value for name, value in parsed.query.items() if "password" not in name
    }
    plain = parsed.set(drivername="postgresql", query=ssl)._replace(password=None)
    process = await asyncio.create_subprocess_exec(
        await _path(program, url),
        *options,
        f"--dbname={plain.render_as_string()}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "PGPASSWORD": str(parsed.password or parsed.query.get("password") or "")},
    )
    pipes = process.stdin, process.stdout, process.stderr
    stdin, stdout, stderr = cast("tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamReader]", pipes)
    saying = asyncio.create_task(stderr.read())
    try:
        yield stdin, stdout
        said = (await saying).decode(errors="replace").strip()
        if await process.wait() != 0:
            raise StoreFailed(f"{program} failed: {said}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        saying.cancel()
