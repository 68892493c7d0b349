"""How far a request travels: own frames from its handler to a statement, counted through tasks, too."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, cast
from weakref import WeakKeyDictionary

import asyncpg
import httpx
import pytest
from asyncpg.prepared_stmt import PreparedStatement

import rag_app
from rag_app import application
from rag_app.application import create_app
from tests.integration.lexybrain import BOX, KEYWORD, chatting, citing
from tests.integration.service import bearer
from tests.waiting import PATIENCE

Frames = tuple[str, ...]
OURS = str(Path(rag_app.__file__).parent)
SENDING = [
    (asyncpg.Connection, "_execute"), (asyncpg.Connection, "_executemany"), (asyncpg.Connection, "execute"),
    (PreparedStatement, "fetch"), (PreparedStatement, "fetchrow"), (PreparedStatement, "fetchval"),
]  # fmt: skip
"""What everything that reaches the server goes through, with SQLAlchemy and without."""


class Watch:
    """The paths of all statements, each from the outermost frame of a surface."""

    def __init__(self) -> None:
        self.paths: dict[Frames, str] = {}
        self._began: WeakKeyDictionary[asyncio.Task[Any], Frames] = WeakKeyDictionary()

    def here(self) -> Frames:
        """Own frames, outermost first; those of whoever created the task come before its own."""
        frames: list[str] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(OURS):
                frames.append(f"{Path(frame.f_code.co_filename).relative_to(OURS)}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        return (*(self._began.get(task, ()) if task else ()), *reversed(frames))

    def create_task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> Any:
        began = self.here()
        task = asyncio.Task(work, loop=loop, **options)
        self._began[task] = began
        return task

    def watching(self, send: Callable[..., Any]) -> Callable[..., Any]:
        async def sent(target: Any, *args: Any, **options: Any) -> Any:
            path = self.here()
            while path and not path[0].startswith("surfaces/"):
                path = path[1:]
            if path:  # else asked before the handler: who it is, and how often
                self.paths.setdefault(path, str(args[0]) if args else "")
            return await send(target, *args, **options)

        return sent


CHAT = "/api/lexybrain/rag"
BOUNDS = [
    ("/api/rag/search", {"query_text": BOX}, 6),
    ("/owner/search", {"query": BOX}, 6),
    ("/api/rag/answer", {"query_text": BOX}, 8),
    ("/owner/ask", {"question": BOX}, 8),
    ("/api/v1/indexes/org_knowledge/search", {"query_text": BOX}, 6),
    ("/api/v1/indexes/org_knowledge/answer", {"query_text": BOX}, 8),
    (CHAT, {"message": BOX}, 9),
    (CHAT, {"message": "Were there more alerts in December 2025 or in January 2026?"}, 9),
    (CHAT, {"message": "What did our listings sell on average in January 2026?"}, 9),
    (CHAT, {"message": "What share of our alerts is open?"}, 9),
    (CHAT, {"message": "Explain our open alerts"}, 9),
]
"""Requests with their bodies, and how many own frames may lie between the handler and a statement."""


async def ask(path: str, body: Mapping[str, Any], headers: Mapping[str, str], patch: pytest.MonkeyPatch) -> Watch:
    """A request to an application of this process, which has its connections: the second of two."""
    watch, app, loop = Watch(), create_app(), asyncio.get_running_loop()
    async with app.lifespan():
        transport = httpx.ASGITransport(app=cast(Any, app))
        async with httpx.AsyncClient(transport=transport, base_url="http://here", timeout=PATIENCE) as client:
            await client.post(path, json=body, headers=headers)
            with patch.context() as watching:
                watching.setattr(application, "_GENERATION_SECONDS", -1)  # which one answers is looked up, too
                for owner, name in SENDING:
                    watching.setattr(owner, name, watch.watching(getattr(owner, name)))
                loop.set_task_factory(cast(Any, watch.create_task))
                response = await client.post(path, json=body, headers=headers)
                assert response.status_code == 200, response.text
    return watch


def test_a_request_does_not_travel_far(
    database_urls: tuple[str, str], qdrant_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chatting(database_urls, "postgres", qdrant_folder, tmp_path) as chat:
        chat.model.script[:] = [citing(KEYWORD, "The demand index is 58 {}.")]
        too_far = []
        for url, body, most in BOUNDS:
            watch = asyncio.run(ask(url, body, bearer(chat.mila), monkeypatch))
            assert watch.paths
            farthest = max(watch.paths, key=len)
            print(f"\n{url} {body}: {len(farthest)} of {most}, {len(watch.paths)} paths", *farthest, sep="\n    ")
            print("   ", " ".join(watch.paths[farthest].split())[:150])
            if len(farthest) > most:
                too_far.append((url, body))
    assert too_far == []
