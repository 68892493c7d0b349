"""The only way to PostgreSQL: a pool, and short transactions with the identity they act for.

Row-level security on `sources`, `source_builds` and a generation's own tables reads three settings, which hold
for one transaction:

    rag.organizations   '{uuid,uuid}': only rows of these organizations are visible; unset: no rows
    rag.user            this user's private rows (visibility "user") are visible; unset: no private rows
    rag.audiences       '{uuid,uuid}': rows for these sets of groups (visibility "group") are visible; unset: none
    rag.operator        'on': all private rows of those organizations are visible
    rag.administrator   'on': if the user is an administrator, threads and usage of all users can be read

`rag.operator` is for acts on behalf of an organization as a whole: ingestion, deletion, the operator's commands. It
widens nothing across organizations, and no request of a principal sets it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import cached_property, lru_cache
from typing import Any, cast
from uuid import UUID

import asyncpg
from sqlalchemy import (
    AsyncAdaptedQueuePool,
    Executable,
    NullPool,
    Row,
    Select,
    SelectBase,
    Text,
    TextClause,
    bindparam,
    event,
    literal_column,
    make_url,
    select,
    text,
    true,
)
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    ProgrammingError,
    TimeoutError as PoolExhausted,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from rag_app.database.tables import REVISION
from rag_app.domain import JsonObject, Misconfigured, Scope, StoreFailed

_SECONDS_TO_CONNECT = 5
_SECONDS_IN_LINE = 30  # a request waits no longer than this for one of the pool: transactions are short, lines move on
_SECONDS_TO_ANSWER = 60  # a search that takes longer has failed
_OUT_OF_ORDER = frozenset({"08", "53", "57", "58"})
# SQLSTATE classes: connection exception, insufficient resources, operator intervention, system error
_CONNECTION_ERRORS = OSError | asyncpg.InternalClientError
# What asyncpg says of a connection that went; the second where that was between two statements
FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError, OSError, asyncpg.InternalClientError)
"""What a driver raises whose server refuses, fails or goes."""

_TENANT = """set_config('rag.organizations', {}, true) || set_config('rag.user', {}, true)
    || set_config('rag.audiences', {}, true) || set_config('rag.operator', {}, true)
    || set_config('rag.administrator', {}, true)"""
# Tells row-level security the tenant, until the transaction ends. Everything that does so is made of this
_SETTINGS = ("organizations", "user", "audiences", "operator", "administrator")
_SET_TENANT = text(f"SELECT {_TENANT.format(*(f':{name}' for name in _SETTINGS))} AS told")

Prepare = Callable[[asyncpg.Connection], Awaitable[None]]
"""What a new connection begins with."""


def asyncpg_url(url: str) -> URL:
    """A PostgreSQL URL as SQLAlchemy and asyncpg want it. libpq's `sslmode` is understood.

    >>> asyncpg_url("postgres://rag_app@db/rag?sslmode=require").render_as_string()
    'postgresql+asyncpg://rag_app@db/rag?ssl=require'

    Raises Misconfigured for anything else; the message does not show the URL, which may hold a password.
    """
    parsed = None
    with suppress(ArgumentError):
        parsed = make_url(url)
    if parsed is None or parsed.drivername.partition("+")[0] not in {"postgresql", "postgres"}:
        raise Misconfigured("a database URL must look like postgresql://role:password@host:5432/database") from None
    return parsed.set(
        drivername="postgresql+asyncpg",
        query={"ssl" if name == "sslmode" else name: value for name, value in parsed.query.items()},
    )


def create_engine(url: str, prepare: Prepare | None = None, **options: Any) -> AsyncEngine:
    """An engine that raises StoreFailed if the database cannot be reached, disconnects or is broken."""
    engine = create_async_engine(
        asyncpg_url(url),
        # the driver's statements are prepared once a connection, not again every five minutes
        connect_args={"timeout": _SECONDS_TO_CONNECT, "max_cached_statement_lifetime": 0},
        hide_parameters=True,  # an error message goes to logs, what people wrote does not
        **options,
    )
    event.listen(engine.sync_engine, "do_connect", _connect)
    event.listen(engine.sync_engine, "handle_error", _store_failed)
    event.listen(engine.sync_engine, "checkout", _alive)
    if prepare is not None:
        event.listen(engine.sync_engine, "connect", lambda connection, record: connection.run_async(prepare))
    return engine


def _alive(connection: Any, record: object, proxy: object) -> None:
    """Replaces a connection that PostgreSQL has closed before it is used, without asking the server."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError


def _connect(dialect: Dialect, record: object, arguments: list[Any], options: JsonObject) -> DBAPIConnection:
    try:
        return dialect.connect(*arguments, **options)
    except FAILURES as error:
        # SQLAlchemy lets these through as they are: asyncpg raises them before there is a connection
        raise _failure(error, "cannot connect to PostgreSQL") from error


def _store_failed(context: ExceptionContext) -> BaseException | None:
    original = context.original_exception
    if not isinstance(original, Exception):  # cancelled: SQLAlchemy drops the connection, the database is well
        return None
    # no DBAPI errors to SQLAlchemy, which would keep the broken connection
    context.is_disconnect = context.is_disconnect or isinstance(original, _CONNECTION_ERRORS)
    if context.is_disconnect or _is_out_of_order(original):
        return _failure(original)
    return None


async def _close(connection: asyncpg.Connection) -> None:
    """Closes after asking PostgreSQL to cancel the running statement. A connection that cannot be closed is dropped."""
    with suppress(*FAILURES):
        await connection.close(timeout=_SECONDS_TO_CONNECT)


def _failure(error: BaseException, what: str = "PostgreSQL failed") -> StoreFailed:
    return StoreFailed(f"{what}: {str(error) or type(error).__name__}")


def constraint_of(error: DBAPIError) -> str:
    """The name of the constraint that refused a row; empty for another error."""
    return getattr(error.orig and error.orig.__cause__, "constraint_name", None) or ""


def _is_out_of_order(error: BaseException) -> bool:
    return str(getattr(error, "sqlstate", None) or "")[:2] in _OUT_OF_ORDER


@contextmanager
def _pool_has_room() -> Iterator[None]:
    try:
        yield
    except PoolExhausted as error:
        raise StoreFailed(f"all connections to PostgreSQL are in use: {error}") from error


class _Pool(AsyncAdaptedQueuePool):
    """A pool whose connections may stay checked out while they are `idle`: whoever asks for one gets such a one first.

    `waiting` counts those who ask, for as long as they wait.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.idle, self.waiting = list[Any](), 0

    def _do_get(self) -> ConnectionPoolEntry:
        if self.idle and not self.checkedin():
            self.idle.pop().close()
        self.waiting += 1
        try:
            return super()._do_get()
        finally:
            self.waiting -= 1


class OtherRevision(Misconfigured):
    """The schema is that of another version of rag_app."""


class Database:
    """A pool of at most `pool_size` connections to one PostgreSQL, opened on first use.

    A pool belongs to the event loop that first uses it; `close` it in there.

        async with database.scoped(principal.scope()) as session:
            titles = await session.scalars(select(sources_table.c.title))

    Everything raises StoreFailed where PostgreSQL does not answer.
    """

    def __init__(self, url: str, pool_size: int = 10, prepare: Prepare | None = None) -> None:
        self._url, self._pool_size = url, pool_size
        self._engine = create_engine(
            url,
            prepare,
            poolclass=_Pool,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=_SECONDS_IN_LINE,
            pool_use_lifo=True,
        )
        self._autocommit = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self._leaving: set[asyncio.Task[None]] = set()

    @cached_property
    def _unpooled_engine(self) -> AsyncEngine:
        """For `own_connection`, which few commands use: without a pool, so there is nothing to close."""
        return create_engine(self._url, poolclass=NullPool, isolation_level="AUTOCOMMIT")

    def with_preparation(self, prepare: Prepare) -> "Database":
        """The same database over a pool of its own, whose connections begin with `prepare`.

        For planner settings that suit one kind of statement only. The statement itself cannot set them, because it is
        planned before it runs.
        """
        return Database(self._url, self._pool_size, prepare)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncConnection]:
        """One transaction, committed at exit, for tables without row-level security. It sees no rows of the others."""
        with _pool_has_room():
            async with self._engine.begin() as session:
                yield session

    @asynccontextmanager
    async def scoped(
        self, scope: Scope, operator: bool = False, administrator: bool = False
    ) -> AsyncIterator[AsyncConnection]:
        """One transaction, committed at exit, that sees only rows of the scope's organizations.

        Row-level security does not know the scope's site: a query adds it. The module explains the other two.
        """
        async with self.session() as session:
            await session.execute(set_tenant(scope, operator, administrator))
            yield session

    @asynccontextmanager
    async def scoped_reading(
        self, scope: Scope, query: SelectBase
    ) -> AsyncIterator[tuple[AsyncConnection, Sequence[Row[Any]]]]:
        """`scoped`, with the rows of a first query in the same round trip."""
        async with self.session() as session:
            yield session, (await session.execute(_scope_query(scope, query))).all()

    async def read(self, scope: Scope, query: SelectBase, operator: bool = False) -> Sequence[Row[Any]]:
        """The rows of one query, scoped like `scoped`, as its own transaction: one round trip."""
        async with self.autocommit() as connection:
            return (await connection.execute(_scope_query(scope, query, operator))).all()

    async def execute(self, statement: Executable) -> Sequence[Row[Any]]:
        """The rows, if any, of one statement as its own transaction, for tables without row-level security: one round trip."""
        async with self.autocommit() as connection:
            result = await connection.execute(statement)
            return result.all() if result.returns_rows else []

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[AsyncConnection]:
        """For one statement that is a transaction of its own: one round trip instead of three."""
        with _pool_has_room():
            async with self._autocommit.connect() as connection:
                yield connection

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[asyncpg.Connection]:
        """The driver's connection from the pool, for statements that SQLAlchemy's layers would slow down.

        It stays checked out for the next of these, unless somebody waits for one: a checkout takes longer than many a
        statement. Raises StoreFailed for every failure of PostgreSQL.
        """
        pooled: Any = None
        try:
            if (pooled := self._take_idle()) is None:
                with _pool_has_room():
                    pooled = await self._engine.raw_connection()
            yield pooled.driver_connection
        except asyncio.CancelledError:
            if pooled is not None:
                self._leave(pooled)
                pooled = None
            raise
        except BaseException as error:
            if pooled is not None and (not isinstance(error, asyncpg.PostgresError) or _is_out_of_order(error)):
                pooled.invalidate()  # nobody knows what is still to come on it
            if isinstance(error, FAILURES):
                raise _failure(error) from error
            raise
        finally:
            if pooled is not None:
                self._give_back(pooled)

    def _take_idle(self) -> Any:
        """A kept connection; None if there is none. One that PostgreSQL has closed gives its place back to the pool."""
        idle = self._pool.idle
        while idle:
            pooled = idle.pop()
            if not pooled.driver_connection.is_closed():
                return pooled
            pooled.invalidate()
            pooled.close()
        return None

    def _give_back(self, pooled: Any) -> None:
        """Keeps the connection, unless somebody waits for one of the pool or it is broken."""
        if pooled.is_valid and not self._pool.waiting:
            self._pool.idle.append(pooled)
        else:
            pooled.close()

    @property
    def _pool(self) -> _Pool:
        return cast(_Pool, self._engine.pool)

    def _leave(self, pooled: Any) -> None:
        """Close a connection whose statement was cancelled, cancel it in PostgreSQL, and free its place in the pool.

        Invalidating would only cut the connection, and PostgreSQL would run the statement to its end.
        """
        task = asyncio.create_task(_close(pooled.driver_connection))
        pooled.detach()
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def fetch(self, statement: str, *values: object) -> list[asyncpg.Record]:
        """The rows of one statement as its own transaction, for what every request needs.

        Parameters are the driver's ($1, $2). It prepares the statement once per connection; from then on this is one
        round trip, at a fifth of the time of SQLAlchemy's layers.
        """
        async with self.driver() as connection:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *values, timeout=_SECONDS_TO_ANSWER)
            return rows

    async def fetch_scoped(self, scope: Scope, query: str, *values: object) -> list[asyncpg.Record]:
        """`fetch` of a query that sees only the scope's rows, in one statement and one round trip.

        A CTE sets the tenant for this statement only. `query` is joined laterally to it, so PostgreSQL cannot read a
        row before the tenant is set. The CTE has one row, so rows keep the order of `query`.
        """
        statement = _scope_statement(query, len(values))
        async with self.driver() as connection:  # not by `fetch`: a frame less
            rows: list[asyncpg.Record] = await connection.fetch(
                statement, *values, *_tenant_settings(scope)[:3], timeout=_SECONDS_TO_ANSWER
            )
            return rows

    @asynccontextmanager
    async def driver_scoped(self, scope: Scope, settings: Mapping[str, str]) -> AsyncIterator[asyncpg.Connection]:
        """`scoped(scope, operator=True)` on the driver's connection, to write many rows. Never used for a question.

        `settings` of PostgreSQL, which are constants of the code, hold until the transaction ends.
        """
        async with self.driver() as connection, connection.transaction():
            places = (f"${place}" for place in range(1, len(_SETTINGS) + 1))
            others = (f"set_config('{name}', '{value}', true)" for name, value in settings.items())
            await connection.execute(
                f"SELECT {' || '.join((_TENANT.format(*places), *others))}", *_tenant_settings(scope, operator=True)
            )
            yield connection

    def own_connection(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection beside the pool, in autocommit, closed at exit: for locks that last as long as a connection."""
        return self._unpooled_engine.connect()

    async def check(self) -> None:
        """Raises StoreFailed when PostgreSQL does not answer, Misconfigured when this role must not serve requests."""
        revision = None
        async with self.autocommit() as connection:
            unbound = await connection.scalar(
                text("SELECT rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)")
            )
            if unbound is not None:
                raise Misconfigured(
                    f"RAG_DATABASE_URL connects as {unbound!r}, a role that row-level security does not restrict:"
                    " tenants would see each other. Give it a role of its own (CREATE ROLE rag_app LOGIN PASSWORD '...'),"
                    " put the other into RAG_DATABASE_OWNER_URL, and run `rag-app db upgrade`"
                )
            with suppress(ProgrammingError):  # no such table, or no grant on it: never upgraded for this role
                revision = await connection.scalar(text("SELECT version_num FROM alembic_version"))
        if revision != REVISION:
            raise OtherRevision(
                f"the database is at schema revision {revision or 'none'}, this version of rag_app needs {REVISION}:"
                " run `rag-app db upgrade`"
            )

    def connections(self) -> tuple[int, int]:
        """The number of the pool's connections in use, and open."""
        pool = self._pool
        return pool.checkedout() - len(pool.idle), pool.checkedout() + pool.checkedin()

    async def close(self) -> None:
        await asyncio.gather(*self._leaving)
        while self._pool.idle:
            self._pool.idle.pop().close()
        await self._engine.dispose()

    aclose = close  # for `contextlib.aclosing`


@lru_cache(maxsize=250)
def _scope_statement(query: str, values: int) -> str:
    """A query with so many values, and behind it the tenant's three. Kept: most are asked again."""
    tenant = _TENANT.format(*(f"${values + place}" for place in (1, 2, 3)), "''", "''")
    return f"""WITH tenant AS MATERIALIZED (SELECT {tenant} AS told) SELECT found.* FROM tenant
        CROSS JOIN LATERAL (SELECT * FROM ({query}) seen WHERE tenant.told IS NOT NULL OFFSET 0) found"""


def _scope_query(scope: Scope, query: SelectBase, operator: bool = False) -> Select[Any]:
    """The query restricted to the scope; the tenant stays set until the transaction ends.

    A CTE sets the tenant. `query` is joined laterally to it, so PostgreSQL cannot read a row before the tenant is set.
    The CTE has one row, so rows keep the order of `query`.
    """
    tenant = set_tenant(scope, operator).columns(told=Text()).cte("tenant").prefix_with("MATERIALIZED")
    seen = select(query.subquery("seen")).where(tenant.c.told.is_not(None)).offset(literal_column("0")).lateral("found")
    return select(seen).select_from(tenant.join(seen, true()))


def set_tenant(scope: Scope, operator: bool = False, administrator: bool = False) -> TextClause:
    """The statement that a transaction under row-level security begins with."""
    values = zip(_SETTINGS, _tenant_settings(scope, operator, administrator), strict=True)
    # unique: a query that this is a part of may call its own parameters so
    return _SET_TENANT.bindparams(*(bindparam(name, value, unique=True) for name, value in values))


def _tenant_settings(scope: Scope, operator: bool = False, administrator: bool = False) -> tuple[str, ...]:
    """The values of `_SETTINGS`. Raises ValueError for an id that is none."""
    user = str(UUID(str(scope.user))) if scope.user else ""
    switches = ("on" if each else "" for each in (operator, administrator))
    return _array(scope.organizations), user, _array(scope.audiences), *switches


def _array(ids: Iterable[UUID]) -> str:
    return f"{{{','.join(sorted(str(each if isinstance(each, UUID) else UUID(str(each))) for each in ids))}}}"
