"""A stream that a client may come back to."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from rag_app.domain import Event, InvalidInput
from rag_app.http.streaming import Resumable

FRAMES = [b"event: meta\n\n", b"event: delta\n\n", b"event: done\n\n"]


async def frames(hold: asyncio.Event | None = None) -> AsyncGenerator[bytes, None]:
    for each in FRAMES[: None if hold is None else -1]:
        yield each
    if hold is not None:
        await hold.wait()


async def events() -> AsyncGenerator[Event, None]:
    for each in list[Event]():
        yield each


async def read(stream: Resumable, after: int) -> list[bytes]:
    return [frame async for frame in stream.read(after)]


async def test_whoever_has_everything_gets_the_last_event_once_more() -> None:
    stream = Resumable(frames(), events())
    await stream.writing
    sent = [b"id: %d\n%b" % (number, frame) for number, frame in enumerate(FRAMES, 1)]
    assert [await read(stream, after) for after in range(4)] == [sent, sent[1:], sent[2:], sent[2:]]
    for known in ("", "0", "3"):
        stream.resume(known)
    for unknown in ("4", "999", "abc", "-1", "1e3", "\u0663"):
        with pytest.raises(InvalidInput, match="Last-Event-ID: must be the id of an event of this answer: 1 to 3"):
            stream.resume(unknown)


async def test_of_a_stream_that_was_stopped_nothing_comes_twice() -> None:
    stream = Resumable(frames(asyncio.Event()), events())
    reading = stream.read()
    for _ in FRAMES[:-1]:
        await anext(reading)
    await stream.stop()
    assert await read(stream, 2) == []
