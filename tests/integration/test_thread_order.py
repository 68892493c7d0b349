"""Messages of one thread are answered one after another, over processes, and a process that dies holds nobody up."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from rag_app.database.session import Database
from rag_app.domain.errors import StoreFailed
from rag_app.surfaces.lexybrain import threads
from tests.conftest import free_port
from tests.integration.lexybrain import BOX, KEYWORD, THREADS, chatting, citing
from tests.waiting import PATIENCE


class Turn:
    """One that holds a thread, or waits for it."""

    def __init__(self, database: Database, user: UUID, thread: UUID) -> None:
        self.taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        holding = threads.hold_thread(database, user, thread, uuid4(), self.taken, self.over)
        self.task = asyncio.create_task(holding)

    async def end(self) -> None:
        self.over.set_result(False)
        await self.task


async def test_a_thread_is_one_turns_at_a_time_and_other_threads_do_not_wait(
    database: Database, database_urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, user, thread = Database(database_urls[1], pool_size=2), uuid4(), uuid4()
    first = Turn(database, user, thread)
    assert await first.taken
    second = Turn(elsewhere, user, thread)
    for others in Turn(elsewhere, user, uuid4()), Turn(elsewhere, uuid4(), thread):  # another thread, another user
        assert await others.taken
        await others.end()
    assert not second.taken.done()
    await first.end()
    assert await second.taken
    monkeypatch.setattr(threads, "WAIT_S", 0.0)
    third = Turn(database, user, thread)
    assert await third.taken is False, "there is an end to waiting"
    await second.end()
    fourth = Turn(database, user, thread)
    assert await fourth.taken
    await fourth.end()
    await elsewhere.close()


async def test_a_thread_that_a_crash_of_postgresql_lost_is_taken_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_KEEP_S", 0.01)
    user, thread = uuid4(), uuid4()
    first = Turn(database, user, thread)
    assert await first.taken
    place = {"id": threads.lease_id(user, thread)}
    async with database.session() as session:  # what becomes of a table that is not logged
        await session.execute(text("DELETE FROM request_leases WHERE id = :id"), place)
    async with database.session() as session:
        while not await session.scalar(text("SELECT count(*) FROM request_leases WHERE id = :id"), place):
            await asyncio.sleep(0.01)
    monkeypatch.setattr(threads, "WAIT_S", 0.0)
    second = Turn(database, user, thread)
    assert await second.taken is False, "it is the first one's turn still"
    await first.end()


async def test_who_does_not_wait_any_longer_takes_no_place(database: Database) -> None:
    user, thread = uuid4(), uuid4()
    first, second = Turn(database, user, thread), None
    assert await first.taken
    second = Turn(database, user, thread)
    await second.end()
    await first.end()
    third = Turn(database, user, thread)
    assert await third.taken
    await third.end()


async def test_a_database_that_is_down_is_said() -> None:
    nobody = Database(f"postgresql://rag_app@127.0.0.1:{free_port()}/rag")
    turn = Turn(nobody, uuid4(), uuid4())
    with pytest.raises(StoreFailed):
        await turn.taken
    await turn.end()


VICTIM = """
import asyncio, sys
from uuid import UUID, uuid4

from rag_app.database.session import Database
from rag_app.surfaces.lexybrain import threads

async def main(url, user, thread):
    threads.LEASE_S = 1.0
    taken, over = (asyncio.get_running_loop().create_future() for _ in range(2))
    holding = threads.hold_thread(Database(url), UUID(user), UUID(thread), uuid4(), taken, over)
    holding = asyncio.create_task(holding)
    print(await taken, flush=True)
    await holding

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_thread_that_is_settled_while_it_is_kept_stays_free(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer's transaction frees the thread; who keeps it may look for it in the very next moment."""
    monkeypatch.setattr(threads, "_KEEP_S", 0.01)
    user, thread = uuid4(), uuid4()
    turn, place = Turn(database, user, thread), threads.lease_id(user, thread)
    assert await turn.taken
    await database.fetch("DELETE FROM request_leases WHERE id = $1", place)  # as settling does
    async with asyncio.timeout(PATIENCE):
        while not await database.fetch("SELECT FROM request_leases WHERE id = $1", place):
            await asyncio.sleep(0.01)
    turn.over.set_result(True)
    await turn.task
    assert not await database.fetch("SELECT FROM request_leases WHERE id = $1", place)


async def test_a_killed_server_leaves_no_thread_taken(database: Database, database_urls: tuple[str, str]) -> None:
    user, thread = uuid4(), uuid4()

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", VICTIM, database_urls[1], str(user), str(thread)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "True\n"
        return process

    victim = await asyncio.to_thread(start)
    after = Turn(database, user, thread)
    await asyncio.sleep(0)
    victim.kill()
    await asyncio.to_thread(victim.wait, 60)
    assert await after.taken
    await after.end()


def test_three_messages_at_once_are_answered_one_after_another(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path
) -> None:
    with chatting(database_urls, default_store, qdrant_folder, tmp_path) as chat:
        chat.model.script[:] = [citing(KEYWORD, "The demand index is 58 {}.")]
        thread = chat.post(BOX)["threadId"]
        go_on = threading.Event()
        chat.model.script[:] = [citing(KEYWORD, "The demand index is 58 {}.", go_on=go_on)]
        chat.model.requests.clear()
        with ThreadPoolExecutor(3) as crowd:
            asked = [crowd.submit(chat.post, f"{BOX} {number}", threadId=thread) for number in range(2)]
            asked.append(crowd.submit(lambda: chat.stream(BOX, threadId=thread)[-1][1]))
            while not chat.model.requests:
                threading.Event().wait(0.01)
            go_on.set()
            answers = [each.result() for each in asked]
        messages = chat.get(f"{THREADS}/{thread}")["messages"]
        assert [each["role"] for each in messages] == ["user", "assistant"] * 4
        assert {each["id"] for each in messages} >= {each["messageId"] for each in answers}
        prompts = [request.prompt for request in chat.model.requests]
        assert "The demand index is 58" in prompts[-1], "what was answered before is in its history"
