import asyncio
import time
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import func, select, update

from rag_app.access.limits import Leases, RateLimiter, Window
from rag_app.access.tables import LeaseRow
from rag_app.database.session import Database
from rag_app.domain.errors import StoreFailed


async def test_exactly_the_limit_is_allowed_over_several_pools(database_urls: tuple[str, str]) -> None:
    databases = [Database(database_urls[1], pool_size=5) for _ in range(4)]
    limiters = [RateLimiter(database) for database in databases]
    key = uuid4().hex
    now = 1_800_000_030.5
    windows = await asyncio.gather(*[limiters[i % 4].hit(key, 60, now=now) for i in range(200)])
    assert sum(window.allowed for window in windows) == 60
    assert sorted(window.remaining for window in windows) == [0] * 140 + [*range(60)]
    assert {window.resets_at for window in windows} == {1_800_000_060}
    for database in databases:
        await database.close()


async def test_windows_are_aligned_and_start_afresh(database: Database) -> None:
    limiter, key = RateLimiter(database), uuid4().hex
    assert await limiter.hit(key, 2, now=119.9) == Window(2, 1, 120, True)
    assert await limiter.hit(key, 2, now=120.0) == Window(2, 1, 180, True)
    assert await limiter.hit(key, 2, now=179.9) == Window(2, 0, 180, True)
    assert await limiter.hit(key, 2, now=179.9) == Window(2, 0, 180, False)
    assert await limiter.hit(key, 2, now=180.0) == Window(2, 1, 240, True)
    assert await limiter.hit(uuid4().hex, 2, window=3600, now=7300.0) == Window(2, 1, 10800, True)


async def test_a_late_hit_does_not_open_the_window_before_again(database: Database) -> None:
    limiter, key = RateLimiter(database), uuid4().hex
    await limiter.hit(key, 2, now=120.0)
    assert await limiter.hit(key, 2, now=119.9) == Window(2, 0, 180, True)
    assert await limiter.hit(key, 2, now=120.1) == Window(2, 0, 180, False)


async def test_the_clock_is_the_present_one(database: Database) -> None:
    before = time.time()
    window = await RateLimiter(database).hit(uuid4().hex, 60)
    assert window.allowed and window.remaining == 59
    assert window.resets_at % 60 == 0
    assert before - 60 < window.resets_at - 60 <= time.time() + 1


async def test_keys_do_not_share_a_window(database: Database) -> None:
    limiter = RateLimiter(database)
    one, other = uuid4().hex, uuid4().hex
    assert (await limiter.hit(one, 1, now=0)).allowed
    assert (await limiter.hit(other, 1, now=0)).allowed
    assert not (await limiter.hit(one, 1, now=0)).allowed


# --- requests under way


async def rows(database: Database, key: str) -> int:
    async with database.session() as session:
        found = await session.scalar(
            select(func.count()).select_from(LeaseRow).where(LeaseRow.key.in_([key, f"{key}/other"]))
        )
    return int(found or 0)


async def test_as_many_places_as_the_limit(database: Database) -> None:
    leases, key = Leases(database), uuid4().hex
    first, second = await leases.take(key, 2), await leases.take(key, 2)
    assert first and second and first != second
    assert await leases.take(key, 2) is None
    assert await leases.take(f"{key}/other", 2), "keys do not share places"
    await leases.give_back(first)
    third = await leases.take(key, 2)
    assert third and await leases.take(key, 2) is None
    await leases.give_back(first)
    assert await leases.take(key, 2) is None, "a place is given back once"


async def test_no_row_is_left_behind(database: Database) -> None:
    leases, key = Leases(database), uuid4().hex
    for _ in range(3):
        lease = await leases.take(key, 1)
        assert lease and await leases.take(key, 1) is None
        await leases.extend(lease)
        await leases.give_back(lease)
    assert await rows(database, key) == 0


async def test_never_more_at_once_than_the_limit(database_urls: tuple[str, str]) -> None:
    databases = [Database(database_urls[1], pool_size=4) for _ in range(3)]
    key, under_way, most = uuid4().hex, 0, 0
    full = asyncio.Event()

    async def request(number: int) -> bool:
        nonlocal under_way, most
        leases = Leases(databases[number % 3])
        lease = await leases.take(key, 5)
        if lease is None:
            return False
        under_way += 1
        most = max(most, under_way)
        if under_way == 5:
            full.set()
        await asyncio.wait_for(full.wait(), 60)
        under_way -= 1
        await leases.give_back(lease)
        return True

    served = await asyncio.gather(*[request(number) for number in range(150)])
    assert most == 5 and sum(served) >= 5
    assert await rows(databases[0], key) == 0
    for database in databases:
        await database.close()


async def test_a_lease_runs_out_unless_it_is_extended(database: Database) -> None:
    leases, key = Leases(database, seconds=60), uuid4().hex
    assert leases.extend_every == pytest.approx(20)

    async def pass_time(seconds: float) -> None:
        async with database.session() as session:
            earlier = LeaseRow.expires_at - timedelta(seconds=seconds)
            await session.execute(update(LeaseRow).where(LeaseRow.key == key).values(expires_at=earlier))

    kept, dropped = await leases.take(key, 2), await leases.take(key, 2)
    assert kept and dropped
    for _ in range(4):
        await pass_time(20)
        await leases.extend(kept)
    third = await leases.take(key, 2)
    assert third and await leases.take(key, 2) is None
    assert await rows(database, key) == 2, "the dead one was swept out in passing"
    await leases.extend(dropped)
    assert await rows(database, key) == 2
    await pass_time(70)
    await leases.extend(third)
    assert await leases.take(key, 2) and await leases.take(key, 2), "what has run out stays so"
    assert await leases.take(key, 2) is None


async def test_a_lease_lives_a_minute(database: Database) -> None:
    leases, key = Leases(database), uuid4().hex
    assert await leases.take(key, 1)
    async with database.session() as session:
        times = (await session.execute(select(LeaseRow.expires_at, func.now()).where(LeaseRow.key == key))).one()
    assert 30 < (times[0] - times[1]).total_seconds() <= 60
    assert leases.extend_every == 20


async def test_places_without_a_database() -> None:
    nowhere = Database("postgresql://rag_app:secret@127.0.0.1:1/rag")
    leases = Leases(nowhere)
    for asked in (leases.take("key", 1), leases.extend(uuid4()), leases.give_back(uuid4())):
        with pytest.raises(StoreFailed):
            await asked
    await nowhere.close()
