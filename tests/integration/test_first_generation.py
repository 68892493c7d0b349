"""Two processes that start on an index without a generation: one builds it, and nothing that answers is replaced."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from rag_app.application import Application
from rag_app.database.session import Database
from rag_app.database.urls import DatabaseUrls
from rag_app.settings import Settings
from tests.integration.conftest import INDEX
from tests.integration.service import configured

STOPS = 10  # before and after each of the five steps of the other process

OTHER = """
import asyncio, sys
from tests.integration.test_first_generation import with_index
from rag_app.application import Application, OpenStores
from rag_app.database.urls import DatabaseUrls
from rag_app.documents.generations import GenerationRegistry
from rag_app.settings import Settings

stop_at = passed = 0

def stop():
    global passed
    passed += 1
    if passed == stop_at:
        print("stopped", flush=True)
        sys.stdin.readline()

def stopping(owner, name):
    step = getattr(owner, name)
    async def stopped(*args, **options):
        stop()
        done = await step(*args, **options)
        stop()
        return done
    setattr(owner, name, stopped)

for owner, name in ((GenerationRegistry, "active"), (GenerationRegistry, "create"), (OpenStores, "create"), (GenerationRegistry, "activate")):
    stopping(owner, name)

async def main():
    global stop_at, passed
    settings = Settings()
    urls = DatabaseUrls(*(each.get_secret_value() for each in (settings.database.url, settings.database.owner_url)), True)
    application = Application(settings, urls)
    for line in sys.stdin:
        stop_at, passed = int(line), 0
        with_index(application, stop_at)
        made = await application.build_missing()
        print("built" if made else "found", passed, flush=True)
    await application.close()

asyncio.run(main())
"""


def with_index(application: Application, stop_at: int) -> str:
    """Give the application one index alone, which has no generation yet."""
    declared = application.indexes.get(INDEX) or next(iter(application.indexes.values()))
    name = f"first_{stop_at}"
    application.indexes = {name: declared.model_copy(update={"name": name})}
    return name


@pytest.fixture
async def application(database_urls: tuple[str, str], tmp_path: Path) -> AsyncIterator[Application]:
    owner_url, app_url = database_urls
    with configured(
        {
            "RAG_DATABASE_URL": app_url,
            "RAG_DATABASE_OWNER_URL": owner_url,
            "RAG_HOME": str(tmp_path),
            "RAG_VECTOR_STORE": "postgres",
        }
    ):
        opened = Application(Settings(), DatabaseUrls(app_url, owner_url, private=True))
        yield opened
        await opened.close()


async def waits(database: Database, index: str) -> bool:
    """Whether somebody waits for the lock under which a first generation is built."""
    async with database.session() as session:
        found: Any = await session.scalar(
            text(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                " AND (classid::bigint << 32 | objid::bigint) = hashtextextended(:name, 0)"
            ),
            {"name": f"rag_app/switch/{index}"},
        )
    return bool(found)


async def test_what_answers_is_not_replaced_wherever_another_process_is_stopped(application: Application) -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdin and other.stdout

    async def tell(line: str) -> None:
        assert other.stdin
        other.stdin.write(f"{line}\n".encode())
        await other.stdin.drain()

    outcomes = []
    for stop_at in range(1, STOPS + 1):
        index = with_index(application, stop_at)
        await tell(str(stop_at))
        assert await other.stdout.readline() == b"stopped\n"
        mine = asyncio.create_task(application.build_missing())
        while not mine.done() and not await waits(application.database, index):
            await asyncio.sleep(0.01)
        seen = await application.generations.active(index, application.backends.kind(application.indexes[index]))
        await tell("go on")
        outcome, passed = (await other.stdout.readline()).decode().split()
        made = await mine
        outcomes.append((outcome, made == [index]))
        every = [each for each in await application.generations.list() if each.index == index]
        assert [each.state for each in every] == ["active"], stop_at
        assert seen is None or seen.id == every[0].id, stop_at
        assert int(passed) == {"built": STOPS, "found": 2 if stop_at == 1 else 4}[outcome], stop_at
    other.stdin.close()
    assert await other.wait() == 0
    assert set(outcomes) == {("found", True), ("built", False)}
