import asyncio
import random
import time
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import delete, func, select, text, update

from rag_app.access.limits import Leases, RateLimiter, Window
from rag_app.access.tables import rate_windows_table, request_leases_table
from rag_app.database.session import Database
from rag_app.domain.errors import StoreFailed
from tests.waiting import PATIENCE


async def test_exactly_the_limit_is_allowed_over_several_pools(database_urls: tuple[str, str]) -> None:
    databases = [Database(database_urls[1], pool_size=5) for _ in range(4)]
    limiters = [RateLimiter(database) for database in databases]
    key = uuid4().hex
    now = 1_800_000_030.5
    windows = await asyncio.gather(*[limiters[i % 4].hit(key, 60, now=now) for i in range(200)])
    assert sum(window.allowed for window in windows) == 60
    assert sorted(window.remaining for window in windows) == [0] * 140 + [*range(60)]
    assert {window.resets_at for window in windows} == {1_800_000_091}
    for database in databases:
        await database.close()


async def test_never_more_than_the_limit_in_any_sixty_seconds(database: Database) -> None:
    """Also across a minute's border, where two windows of the clock would let in twice as many."""
    limiter, key, chance = RateLimiter(database), uuid4().hex, random.Random(13)
    times = sorted([119.0 + n / 100 for n in range(200)] + [chance.uniform(100, 400) for _ in range(300)])
    let_in = [now for now in times if (await limiter.hit(key, 20, now=now)).allowed]
    assert len(let_in) > 60, "who waits is let in again"
    assert max(sum(1 for each in let_in if start <= each < start + 60) for start in let_in) == 20


async def test_a_place_is_free_sixty_seconds_after_it_was_taken(database: Database) -> None:
    limiter, key = RateLimiter(database), uuid4().hex
    assert await limiter.hit(key, 2, now=119.5) == Window(2, 1, 180, True)
    assert await limiter.hit(key, 2, now=121.0) == Window(2, 0, 180, True)
    assert await limiter.hit(key, 2, now=179.4) == Window(2, 0, 180, False)
    assert await limiter.hit(key, 2, now=179.5) == Window(2, 0, 181, True)
    assert await limiter.hit(key, 2, now=180.9) == Window(2, 0, 181, False)
    assert await limiter.hit(key, 2, now=500.0) == Window(2, 1, 560, True)


async def test_what_is_refused_takes_no_place(database: Database) -> None:
    limiter, key = RateLimiter(database), uuid4().hex
    assert (await limiter.hit(key, 1, now=100)).allowed
    assert not any([(await limiter.hit(key, 1, now=now)).allowed for now in range(101, 160)])
    assert (await limiter.hit(key, 1, now=160)).allowed


async def test_a_limit_that_was_lowered_holds_at_once(database: Database) -> None:
    limiter, key = RateLimiter(database), uuid4().hex
    for now in range(100, 110):
        await limiter.hit(key, 10, now=now)
    assert await limiter.hit(key, 3, now=110) == Window(3, 0, 167, False), "the eighth of ten leaves two"
    assert await limiter.hit(key, 3, now=167) == Window(3, 0, 168, True)


async def test_what_costs_more_takes_the_places_that_come_free_next(database: Database) -> None:
    limiter, key = RateLimiter(database), uuid4().hex
    for now in (100, 110, 120):
        await limiter.hit(key, 4, now=now)
    assert await limiter.hit(key, 4, more=3, now=130) == Window(4, 0, 180, True), "one is free, two are of 160 and 170"
    assert [(await limiter.hit(key, 4, now=now)).allowed for now in (160, 179, 180, 189, 190, 219, 220)] == [
        False, False, True, False, True, False, True,
    ]  # fmt: skip
    assert (await limiter.hit(uuid4().hex, 4, more=500, now=0)).remaining == 0


async def test_a_hit_that_waited_for_its_turn_is_counted_when_it_has_it(database: Database) -> None:
    limiter, key = RateLimiter(database), uuid4().hex
    await limiter.hit(key, 2)
    async with database.session() as first:
        await first.execute(select(rate_windows_table).where(rate_windows_table.c.key == key).with_for_update())
        second = asyncio.create_task(limiter.hit(key, 2))
        waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()")
        async with asyncio.timeout(PATIENCE):
            while not await first.scalar(waiting):
                await asyncio.sleep(0.01)
        went_on = await first.scalar(text("SELECT extract(epoch FROM clock_timestamp())::float8"))
    await second
    async with database.session() as session:
        times = await session.scalar(select(rate_windows_table.c.times).where(rate_windows_table.c.key == key))
    assert times is not None and times[1] > went_on


async def test_the_clock_is_the_present_one(database: Database) -> None:
    before = time.time()
    window = await RateLimiter(database).hit(uuid4().hex, 60)
    assert window.allowed and window.remaining == 59
    assert before + 60 <= window.resets_at + 1 and window.resets_at - 61 <= time.time() + 1


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
            select(func.count())
            .select_from(request_leases_table)
            .where(request_leases_table.c.key.in_([key, f"{key}/other"]))
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
        await leases.extend(lease, key, 1)
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
        await asyncio.wait_for(full.wait(), PATIENCE)
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
            earlier = request_leases_table.c.expires_at - timedelta(seconds=seconds)
            await session.execute(
                update(request_leases_table).where(request_leases_table.c.key == key).values(expires_at=earlier)
            )

    kept, dropped = await leases.take(key, 2), await leases.take(key, 2)
    assert kept and dropped
    for _ in range(4):
        await pass_time(20)
        assert await leases.extend(kept, key, 2)
    third = await leases.take(key, 2)
    assert third and await leases.take(key, 2) is None
    assert await rows(database, key) == 2, "the dead one was swept out in passing"
    assert not await leases.extend(dropped, key, 2), "another has its place"
    assert await rows(database, key) == 2
    await pass_time(70)
    assert await leases.extend(third, key, 2) and await leases.take(key, 2), "one that has run out is taken again"
    assert await leases.take(key, 2) is None


async def test_a_lease_that_a_crash_of_postgresql_lost_is_taken_again(database: Database) -> None:
    leases, key = Leases(database), uuid4().hex
    first, second = await leases.take(key, 2), await leases.take(key, 2)
    assert first and second
    async with database.session() as session:  # what becomes of a table that is not logged
        await session.execute(delete(request_leases_table).where(request_leases_table.c.key == key))
    assert await leases.extend(first, key, 2)
    assert await leases.take(key, 2), "who came first afterwards"
    assert not await leases.extend(second, key, 2)
    assert await leases.take(key, 2) is None and await rows(database, key) == 2
    await leases.give_back(first)
    assert await leases.extend(second, key, 2), "as soon as there is a place"


async def test_a_lease_lives_a_minute(database: Database) -> None:
    leases, key = Leases(database), uuid4().hex
    assert await leases.take(key, 1)
    async with database.session() as session:
        times = (
            await session.execute(
                select(request_leases_table.c.expires_at, func.now()).where(request_leases_table.c.key == key)
            )
        ).one()
    assert 30 < (times[0] - times[1]).total_seconds() <= 60
    assert leases.extend_every == 20


async def test_places_without_a_database() -> None:
    nowhere = Database("postgresql://rag_app:secret@127.0.0.1:1/rag")
    leases = Leases(nowhere)
    for asked in (leases.take("key", 1), leases.extend(uuid4(), "key", 1), leases.give_back(uuid4())):
        with pytest.raises(StoreFailed):
            await asked
    await nowhere.close()
