"""Row-level security, and what happens when PostgreSQL does not answer."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from rag_app.access.people import People
from rag_app.access.tables import organizations_table
from rag_app.database import session as session_module
from rag_app.database.session import Database
from rag_app.database.tables import REVISION
from rag_app.documents.tables import source_builds_table, sources_table
from rag_app.domain.errors import Misconfigured, StoreFailed
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from tests.conftest import NewOrganization
from tests.waiting import PATIENCE


def row(org_id: UUID, **values: object) -> dict[str, Any]:
    """The values of a source."""
    defaults = {
        "id": uuid4(), "org_id": org_id, "index": "book", "external_id": uuid4().hex, "title": "", "lang": "en",
        "source_type": "book", "metadata": {}, "origin": "", "visibility": "team", "version": "1", "content": [],
    }  # fmt: skip
    return {**defaults, **values}


def of(*organizations: UUID, user: UUID | None = None) -> Scope:
    return Scope(frozenset(organizations), user)


async def seen(database: Database, scope: Scope, operator: bool = False) -> set[UUID]:
    async with database.scoped(scope, operator) as session:
        return set(await session.scalars(select(sources_table.c.id)))


@pytest.fixture
async def alone(database_urls: tuple[str, str]) -> AsyncIterator[Database]:
    """A pool of one connection."""
    opened = Database(database_urls[1], pool_size=1)
    yield opened
    await opened.close()


async def test_without_a_tenant_nothing_is_visible_and_a_pooled_connection_forgets_the_last_one(
    alone: Database, organization: NewOrganization
) -> None:
    org = (await organization()).id
    async with alone.scoped(of(org, user=uuid4()), operator=True) as session:
        await session.execute(insert(sources_table).values(row(org)))
        first = await session.scalar(text("SELECT pg_backend_pid()"))
    assert len(await seen(alone, of(org))) == 1

    everything = select(func.count()).select_from(sources_table), select(func.count()).select_from(source_builds_table)
    async with alone.session() as session:
        assert await session.scalar(text("SELECT pg_backend_pid()")) == first
        assert [await session.scalar(count) for count in everything] == [0, 0]
        tenant = await session.execute(text("SELECT rag_organizations(), rag_user(), rag_operator()"))
        assert tuple(tenant.one()) == ([], None, False)
    async with alone.autocommit() as connection:
        assert (await connection.execute(everything[0])).scalar() == 0


async def test_the_tenant_is_forgotten_after_a_failed_transaction(
    alone: Database, organization: NewOrganization
) -> None:
    org = (await organization()).id

    async def fail() -> None:
        async with alone.scoped(of(org), operator=True) as session:
            await session.execute(insert(sources_table).values(row(org)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with alone.session() as session:
        assert await session.scalar(text("SELECT rag_organizations()")) == []
    assert await seen(alone, of(org)) == set()


async def test_the_owner_is_held_too(database_urls: tuple[str, str], organization: NewOrganization) -> None:
    org = (await organization()).id
    owner = Database(database_urls[0])
    async with owner.scoped(of(org)) as session:
        await session.execute(insert(sources_table).values(row(org)))
    async with owner.session() as session:
        assert await session.scalar(select(func.count()).select_from(sources_table)) == 0
    assert len(await seen(owner, of(org))) == 1
    await owner.close()


async def test_organizations_see_nothing_of_each_other(database: Database, organization: NewOrganization) -> None:
    ours, theirs = (await organization()).id, (await organization()).id
    mine, foreign = row(ours), row(theirs)
    ids = mine["id"], foreign["id"]
    for source in mine, foreign:
        async with database.scoped(of(source["org_id"])) as session:
            await session.execute(insert(sources_table).values(source))

    assert await seen(database, of(ours)) == {ids[0]}
    assert await seen(database, of(ours), operator=True) == {ids[0]}
    assert await seen(database, of(theirs)) == {ids[1]}
    assert await seen(database, of(ours, theirs)) == set(ids)
    async with database.scoped(of(ours), operator=True) as session:
        touched = await session.execute(update(sources_table).values(title="mine").returning(sources_table.c.id))
        assert touched.scalars().all() == [ids[0]]
        gone = await session.execute(delete(sources_table).returning(sources_table.c.id))
        assert gone.scalars().all() == [ids[0]]
    assert await seen(database, of(theirs)) == {ids[1]}


async def test_a_row_of_another_organization_cannot_be_written(
    database: Database, organization: NewOrganization
) -> None:
    ours, theirs = (await organization()).id, (await organization()).id
    with pytest.raises(DBAPIError, match="row-level security"):
        async with database.scoped(of(ours), operator=True) as session:
            await session.execute(insert(sources_table).values(row(theirs)))
    mine = row(ours)
    async with database.scoped(of(ours)) as session:
        await session.execute(insert(sources_table).values(mine))
    with pytest.raises(DBAPIError, match="row-level security"):
        async with database.scoped(of(ours), operator=True) as session:
            await session.execute(update(sources_table).values(org_id=theirs))
    assert len(await seen(database, of(ours))) == 1


async def test_a_private_source_is_seen_by_its_owner_and_by_the_operator_of_its_organization(
    database: Database, organization: NewOrganization
) -> None:
    org, other = (await organization()).id, (await organization()).id
    people = People(database)
    owner, colleague = [(await people.create_user(f"user-{uuid4().hex}")).id for _ in range(2)]
    private = row(org, visibility="user", owner_id=owner)
    private_id = private["id"]
    with pytest.raises(DBAPIError, match="row-level security"):
        async with database.scoped(of(org, user=colleague)) as session:
            await session.execute(insert(sources_table).values(row(org, visibility="user", owner_id=owner)))
    async with database.scoped(of(org, user=owner)) as session:
        await session.execute(insert(sources_table).values(private))

    assert await seen(database, of(org, user=owner)) == {private_id}
    assert await seen(database, of(org), operator=True) == {private_id}
    assert await seen(database, of(org, user=colleague)) == set()
    assert await seen(database, of(org)) == set()
    assert await seen(database, of(other, user=owner)) == set()
    assert await seen(database, of(other), operator=True) == set()


async def test_what_the_tables_refuse(database: Database, organization: NewOrganization) -> None:
    ours, theirs = (await organization()).id, (await organization()).id
    site = await People(database).create_site(theirs, "elsewhere")
    refused = [
        row(ours, site_id=site.id),  # another organization's
        row(ours, site_id=uuid4()),
        row(ours, visibility="global"),  # not the public organization
        row(PUBLIC_ORGANIZATION, visibility="team"),
        row(ours, visibility="user"),  # whose?
    ]
    for source in refused:
        with pytest.raises(IntegrityError):
            async with database.scoped(of(source["org_id"]), operator=True) as session:
                await session.execute(insert(sources_table).values(source))
    async with database.scoped(of(theirs)) as session:
        await session.execute(insert(sources_table).values(row(theirs, site_id=site.id)))


async def test_one_transaction_commits_at_exit_and_rolls_back_on_an_error(
    database: Database, organization: NewOrganization
) -> None:
    org = await organization()

    async def fail() -> None:
        async with database.session() as session:
            await session.execute(
                update(organizations_table).where(organizations_table.c.id == org.id).values(name="lost")
            )
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await People(database).organization(org.id) == org


async def test_check(database: Database, database_urls: tuple[str, str]) -> None:
    await database.check()
    owner = Database(database_urls[0])
    async with owner.session() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = 'older'"))
    try:
        with pytest.raises(
            Misconfigured, match=f"at schema revision older.* needs {REVISION}: run `rag-app db upgrade`"
        ):
            await database.check()
    finally:
        async with owner.session() as session:
            await session.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": REVISION})
        await owner.close()


async def fails(url: str) -> str:
    database = Database(url)
    try:
        for entered in (
            database.session(),
            database.autocommit(),
            database.own_connection(),
            database.scoped(of(uuid4())),
        ):
            with pytest.raises(StoreFailed) as failure:
                async with entered as anything:
                    await anything.execute(text("SELECT 1"))
        return str(failure.value)
    finally:
        await database.close()


async def test_what_cannot_be_reached_has_failed(
    database_urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    role, _, address = database_urls[1].partition("@")
    with closing(socket.create_server(("127.0.0.1", 0))) as silent, monkeypatch.context() as patch:
        patch.setattr(session_module, "_SECONDS_TO_CONNECT", 0.3)
        port = silent.getsockname()[1]
        assert "TimeoutError" in await fails(f"postgresql://rag_app:x@127.0.0.1:{port}/rag")
    assert "cannot connect" in await fails(f"postgresql://rag_app:x@127.0.0.1:{port}/rag")
    assert "cannot connect" in await fails("postgresql://rag_app:x@no-such-host.invalid/rag")
    assert "password" in await fails(f"{role}-wrong@{address}")
    assert "does not exist" in await fails(f"{role}@{address}-wrong")


async def test_a_connection_that_dies_has_failed_and_the_next_one_works(
    alone: Database, database: Database, organization: NewOrganization
) -> None:
    org = (await organization()).id

    async def die() -> None:
        async with alone.scoped(of(org)) as session:
            await session.execute(insert(sources_table).values(row(org)))
            victim = await session.scalar(text("SELECT pg_backend_pid()"))
            async with database.session() as other:
                await other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": victim})
            await session.execute(text("SELECT 1"))

    with pytest.raises(StoreFailed):
        await die()
    assert await seen(alone, of(org)) == set()


async def test_a_pooled_connection_that_died_meanwhile_costs_nothing(alone: Database, database: Database) -> None:
    async with alone.session() as session:
        victim = await session.scalar(text("SELECT pg_backend_pid()"))
        pooled = (await session.get_raw_connection()).driver_connection
    async with database.session() as other:
        await other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": victim})
    assert pooled is not None
    async with asyncio.timeout(PATIENCE):
        while not pooled.is_closed():  # the end of it arrives
            await asyncio.sleep(0.01)
    assert await seen(alone, of(uuid4())) == set()


async def test_a_pool_keeps_the_drivers_connection_checked_out_and_gives_it_to_whoever_waits(
    alone: Database, database: Database
) -> None:
    prepared = []

    async def prepare(connection: Any) -> None:
        prepared.append(connection)

    left = "coalesce(current_setting('rag.organizations', true), '')"
    pool, asked = alone.with_preparation(prepare), f"SELECT pg_backend_pid(), {left}"

    async def in_a_session() -> list[Any]:
        async with pool.session() as session:
            return [tuple(each) for each in await session.execute(text(asked))]

    try:
        (first,) = await pool.fetch(asked)
        with pytest.raises(StoreFailed):
            await pool.fetch("SELECT nothing")
        await pool.fetch_scoped(of(uuid4()), "SELECT 1 AS one")
        assert await pool.fetch(asked) == [first]
        assert (pool.connections(), len(prepared)) == ((0, 1), 1)

        async with pool.driver() as connection:
            assert pool.connections() == (1, 1)
            waiting = [asyncio.create_task(pool.fetch(asked)) for _ in range(3)]
            waiting += [asyncio.create_task(in_a_session()) for _ in range(3)]
            while pool._pool.waiting < 6:
                await asyncio.sleep(0)
        assert await asyncio.gather(*waiting) == [[first]] * 6
        assert await pool.fetch(asked) == [first]
        assert (await in_a_session(), pool.connections(), len(prepared)) == ([first], (0, 1), 1)

        async with database.session() as session:
            await session.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": connection.get_server_pid()})
        while not connection.is_closed():
            await asyncio.sleep(0.01)
        ((second, _),) = await pool.fetch(asked)
        assert second != first[0] and pool.connections() == (0, 1)
    finally:
        await pool.close()
    assert connection.is_closed() and prepared[-1].is_closed()


async def test_an_exhausted_pool_has_failed(database_urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_SECONDS_IN_LINE", 0.2)
    small = Database(database_urls[1], pool_size=1)
    async with small.session() as session:
        await session.execute(text("SELECT 1"))
        for entered in small.session(), small.autocommit():
            with pytest.raises(StoreFailed, match="all connections"):
                async with entered as anything:
                    await anything.execute(text("SELECT 1"))
        async with small.own_connection() as connection:  # beside the pool
            assert (await connection.execute(text("SELECT 1"))).scalar() == 1
    await small.close()


@pytest.mark.parametrize("url", ["", "sqlite:///rag.db", "mysql://u:secret@h/d", "postgresql"])
def test_a_url_that_is_none_is_not_shown(url: str) -> None:
    with pytest.raises(Misconfigured, match="must look like postgresql://") as refusal:
        Database(url)
    assert "secret" not in str(refusal.value)


async def test_a_statement_that_is_cancelled_ends_in_postgresql_too(database: Database) -> None:
    running = text("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(599)%'")

    async def count() -> int:
        async with database.session() as session:
            others = await session.scalar(running)
        return int(others or 0) - 1  # without the one that asks

    async def until(wanted: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while await count() != wanted:
                await asyncio.sleep(0.01)

    scope = Scope(frozenset({uuid4()}))
    asking = asyncio.create_task(database.fetch_scoped(scope, "SELECT 1 FROM pg_sleep(599)"))
    await until(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await until(0)
