"""Many at once: quotas are exact, also over processes, and nothing of the database is held while a model thinks."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from rag_app.database import session
from tests.conftest import SEVERAL, free_port
from tests.integration.lexybrain import BOX, KEYWORD, RAG, Chat, chatting, citing, events_of
from tests.integration.service import bearer
from tests.integration.test_cli import is_ready
from tests.waiting import PATIENCE

LEFT, REQUESTS, STREAMS = 50, 150, 30
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def chat(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chat]:
    folder = tmp_path_factory.mktemp("load")
    settings = {"RAG_DATABASE_POOL_SIZE": "10", "RAG_LOG_LEVEL": "info"}
    with pytest.MonkeyPatch.context() as patch:
        for patience in ("_SECONDS_IN_LINE", "_SECONDS_TO_CONNECT", "_SECONDS_TO_ANSWER"):  # on a busy machine, too
            patch.setattr(session, patience, 300)
        with chatting(database_urls, default_store, qdrant_folder, folder, settings=settings) as running:
            yield running


def ask_at_once(url: str, users: list[UUID], path_headers: dict[str, str] | None = None) -> list[httpx.Response]:
    async def all_of_them() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=url, verify=False, timeout=400, limits=limits) as client:
            return await asyncio.gather(
                *[
                    client.post(RAG, json={"message": BOX}, headers={**bearer(user), **(path_headers or {})})
                    for user in users
                ]
            )

    return asyncio.run(all_of_them())


def check_exactly_fifty(chat: Chat, url: str) -> None:
    chat.model.script[:] = [citing(KEYWORD, "It is 58 {}.", delay_s=0.05)]
    user = chat.newcomer("free")
    replies = ask_at_once(url, [user] * REQUESTS)
    codes = Counter(reply.json().get("error", {}).get("code", "answered") for reply in replies)
    assert codes == {"answered": LEFT, "quota_exceeded": REQUESTS - LEFT}
    assert Counter(reply.status_code for reply in replies) == {200: LEFT, 403: REQUESTS - LEFT}
    assert chat.used(user) == LEFT and chat.rows("SELECT * FROM usage_reservations", user) == []
    kept = chat.rows("SELECT role, count(*) AS messages FROM rag_messages GROUP BY role", user)
    assert {row["role"]: row["messages"] for row in kept} == {"user": LEFT, "assistant": LEFT}


def test_fifty_messages_left_and_three_times_as_many_requests(chat: Chat) -> None:
    check_exactly_fifty(chat, str(chat.client.base_url))


@contextmanager
def two_workers(folder: Path) -> Iterator[str]:
    """Processes of their own, so that only the database can count; their limit of requests a minute is lifted."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "granian",
        "--interface",
        "asgi",
        "--factory",
        "--workers",
        "2",
        "--port",
        str(port),
    ]
    with (folder / "granian.log").open("w") as log:
        server = subprocess.Popen(
            [*command, "tests.integration.unlimited:create_app"],
            stdout=log,
            stderr=log,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + PATIENCE
            while (folder / "granian.log").read_text().count("Started worker-") < 2 or not is_ready(url):
                assert server.poll() is None and time.monotonic() < deadline, (folder / "granian.log").read_text()
                time.sleep(0.1)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(PATIENCE)
            finally:
                with suppress(ProcessLookupError):  # its workers, where it could not end them
                    os.killpg(server.pid, signal.SIGKILL)


@SEVERAL
@pytest.mark.thorough  # over processes: test_four_processes_get_fifty_together (test_db_quotas.py) by day
def test_the_same_with_two_workers(chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_DATABASE_POOL_SIZE", "5")
    with two_workers(tmp_path) as url:
        check_exactly_fifty(chat, url)


def test_slow_streams_over_ten_connections(chat: Chat, default_store: str) -> None:
    if default_store == "qdrant" and not os.environ.get("QDRANT_URL"):
        pytest.skip("local Qdrant searches on the server's own core: as many at once are no load for it")
    chat.model.script[:] = [citing(KEYWORD, "The demand index is 58 {}.", pace_s=0.3)]
    users = [chat.newcomer("growth") for _ in range(20)]

    async def one(client: httpx.AsyncClient, user: UUID) -> list[tuple[str, Any]]:
        headers = {**bearer(user), "Accept": "text/event-stream"}
        async with client.stream("POST", RAG, json={"message": BOX}, headers=headers) as response:
            lines = [line async for line in response.aiter_lines()]
            return list(events_of(iter(lines)))

    async def all_of_them() -> list[list[tuple[str, Any]]]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=chat.client.base_url, verify=False, timeout=400, limits=limits) as client:
            return await asyncio.gather(*[one(client, users[n % len(users)]) for n in range(STREAMS)])

    streams = asyncio.run(all_of_them())
    assert Counter(events[-1][0] for events in streams) == {"done": STREAMS}
    assert {events[-1][1]["answer"] for events in streams} == {"The demand index is 58 [Source 1]."}
    assert sum(chat.used(user) for user in users) == STREAMS
