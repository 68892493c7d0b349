"""Answers being written for clients that may resume them, or stop them from elsewhere.

Each process holds the answers that it writes. A stop may reach another process, which leaves it in `request_leases`,
where the writing process looks every second.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID, uuid5

from rag_app.database.session import Database
from rag_app.domain import NotFound, StoreFailed, ThreadBusy
from rag_app.http.streaming import Resumable
from rag_app.surfaces.lexybrain.threads import lease_id

KEPT_S = 60.0
"""How long a stream that is over can be read again; from then on its answer is in the thread."""
_LOOK_S = 1.0
_STOP_S = 900.0
_ASK_TO_STOP = """
    INSERT INTO request_leases (id, key, expires_at) VALUES ($1, 'stop', now() + make_interval(secs => $2))
    ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at
    """


@dataclass(frozen=True, slots=True)
class RunningAnswers:
    """The running answers of this process, by user and thread: a thread answers one message at a time."""

    database: Database
    _streams: dict[tuple[UUID, UUID], tuple[Resumable, asyncio.Task[None]]] = field(default_factory=dict, init=False)

    def keep(self, user: UUID, thread: UUID, stream: Resumable) -> None:
        """Keep a stream until `KEPT_S` seconds after its end, or until the thread answers another message."""
        if before := self._streams.get((user, thread)):
            before[1].cancel()
        self._streams[user, thread] = stream, asyncio.create_task(self._watch(user, thread, stream))

    async def find(self, user: UUID | None, thread: UUID) -> Resumable:
        """Raises NotFound if nothing is being answered, ThreadBusy if another process does it."""
        if user is not None:
            if found := self._streams.get((user, thread)):
                return found[0]
            held = "SELECT id FROM request_leases WHERE id = $1 AND expires_at > now()"
            if await self.database.fetch(held, lease_id(user, thread)):
                raise ThreadBusy
        raise NotFound("answer", str(thread))

    async def stop(self, user: UUID | None, thread: UUID) -> None:
        """Stop the answer; the text so far is stored, marked `interrupted`. Raises NotFound if nothing is being answered."""
        try:
            stream = await self.find(user, thread)
        except ThreadBusy:
            await self.database.fetch(_ASK_TO_STOP, _mark(user, thread), _STOP_S)
            return
        if stream.writing.done():
            raise NotFound("answer", str(thread))
        await stream.stop()

    async def aclose(self) -> None:
        """Stop all running answers; their text so far is stored."""
        for stream, watching in list(self._streams.values()):
            await stream.stop()
            watching.cancel()
            await asyncio.wait({watching})

    async def _watch(self, user: UUID, thread: UUID, stream: Resumable) -> None:
        mark = _mark(user, thread)
        while not stream.writing.done():
            await asyncio.wait({stream.writing}, timeout=_LOOK_S)
            with suppress(StoreFailed):  # it looks again
                if await self.database.fetch("DELETE FROM request_leases WHERE id = $1 RETURNING id", mark):
                    await stream.stop()
        await asyncio.sleep(KEPT_S)
        del self._streams[user, thread]


def _mark(user: UUID | None, thread: UUID) -> UUID:
    return uuid5(thread, f"stop {user}")
