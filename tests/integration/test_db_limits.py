import asyncio
import time
from uuid import uuid4

from rag_app.db.limits import RateLimiter, Window
from rag_app.db.session import Database


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
