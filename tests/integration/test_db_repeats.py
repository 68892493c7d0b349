"""The lease of a request with an `Idempotency-Key`: kept while the request runs, free a minute after its process died."""

import asyncio
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select, update

from rag_app.access.people import People
from rag_app.database.session import Database
from rag_app.documents.tables import repeats_table
from rag_app.domain.scope import Scope
from rag_app.surfaces.sources.repeats import LEASE, KeyInUse, Repeats
from tests.conftest import NewOrganization
from tests.waiting import PATIENCE


@pytest.fixture
async def caller(database: Database, organization: NewOrganization) -> tuple[UUID, UUID]:
    org = (await organization()).id
    return org, (await People(database).create_user(f"ada-{uuid4().hex}@acme.example")).id


async def set_begun(database: Database, caller: tuple[UUID, UUID], ago: float) -> None:
    """As if the request had begun, or renewed its lease, so many leases ago."""
    async with database.scoped(Scope(frozenset({caller[0]}), caller[1])) as session:
        await session.execute(update(repeats_table).values(created_at=func.now() - LEASE * ago))


async def is_fresh(database: Database, caller: tuple[UUID, UUID]) -> bool:
    """Whether half of the lease or more is left."""
    async with database.scoped(Scope(frozenset({caller[0]}), caller[1])) as session:
        return (await session.scalars(select(repeats_table.c.created_at > func.now() - LEASE / 2))).one()


async def test_a_request_whose_process_died_may_be_sent_again_after_its_lease(
    database: Database, caller: tuple[UUID, UUID]
) -> None:
    repeats = Repeats(database)
    assert await repeats.begin(*caller, "k", "f") is None
    await set_begun(database, caller, 0.9)
    with pytest.raises(KeyInUse, match="still running"):
        await repeats.begin(*caller, "k", "f")
    await set_begun(database, caller, 1.1)
    assert await repeats.begin(*caller, "k", "f") is None


async def test_a_request_that_runs_renews_its_lease(database: Database, caller: tuple[UUID, UUID]) -> None:
    repeats = Repeats(database, renewal=0.01)
    assert await repeats.begin(*caller, "k", "f") is None
    async with repeats.lease(*caller, "k"):
        await set_begun(database, caller, 0.9)
        async with asyncio.timeout(PATIENCE):
            while not await is_fresh(database, caller):
                await asyncio.sleep(0.01)
    await repeats.end(*caller, "k", {"id": 1})
    await set_begun(database, caller, 1.1)
    assert await repeats.begin(*caller, "k", "f") == {"id": 1}, "a response is kept for a day"
