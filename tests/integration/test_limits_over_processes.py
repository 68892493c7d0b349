"""Limits are exact however many processes serve: two of them, and more requests at once than they let through."""

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import func, select, update

from rag_app.access.limits import Leases
from rag_app.access.people import Keys
from rag_app.access.tables import rate_windows_table, request_leases_table
from rag_app.application import Application
from rag_app.database.session import Database
from tests.integration.service import bearer, configured, prepare
from tests.integration.test_cli import serving
from tests.waiting import PATIENCE, wait_for

T = TypeVar("T")

SEARCH, QUERY = "/api/rag/search", "/api/v1/retrieval/query"
REQUESTS = 160


@dataclass(frozen=True)
class Served:
    """Two workers, a user, and keys of the user's organization."""

    url: str
    log: Path
    user: object
    keys: Sequence[str]
    database_url: str

    def ask(self, path: str, headers: dict[str, str], requests: int, at_once: int) -> list[httpx.Response]:
        """So many requests, each on a connection of its own, so that every worker gets some."""
        body = {"query_text": "?"} if path == SEARCH else {"query": "?"}

        async def all_of_them() -> list[httpx.Response]:
            turns = asyncio.Semaphore(at_once)
            limits = httpx.Limits(max_keepalive_connections=0)
            async with httpx.AsyncClient(base_url=self.url, verify=False, timeout=PATIENCE, limits=limits) as client:

                async def one() -> httpx.Response:
                    async with turns:
                        return await client.post(path, json=body, headers=headers)

                return await asyncio.gather(*[one() for _ in range(requests)])

        return asyncio.run(all_of_them())

    def places_taken(self) -> int:
        return with_database(self.database_url, lambda database: leases(database, "retrieval_validation:"))


def with_database(url: str, work: Callable[[Database], Awaitable[T]]) -> T:
    async def opened() -> T:
        database = Database(url, pool_size=2)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(opened())


async def leases(database: Database, key: str) -> int:
    """Those whose key begins like that."""
    beginning = (
        select(func.count()).select_from(request_leases_table).where(func.starts_with(request_leases_table.c.key, key))
    )
    async with database.session() as session:
        return await session.scalar(beginning) or 0


@pytest.fixture(scope="module")
def served(database_urls: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("limits")

    async def work(application: Application) -> tuple[object, list[str]]:
        org = await application.people.create_organization(f"limits-{uuid4().hex}", "Limits")
        ada = await application.people.create_user(f"ada-{uuid4().hex}")
        await application.people.add_member(org, ada)
        return ada.id, [(await application.keys.create(org, f"key {n}"))[1] for n in range(4)]

    variables = {
        "RAG_DATABASE_OWNER_URL": database_urls[0],
        "RAG_DATABASE_URL": database_urls[1],
        "RAG_DATABASE_POOL_SIZE": "5",
        "RAG_HOME": str(folder / "home"),
        "RAG_VECTOR_STORE": "postgres",  # local Qdrant serves one process
        "RAG_LOG_LEVEL": "info",
    }
    with configured(variables):
        user, keys = prepare(work)
        with serving(folder, workers=2) as (_, url, log):
            yield Served(url, log, user, keys, database_urls[1])


def counted_once(replies: Sequence[httpx.Response], limit: int) -> bool:
    """Whether every request that was let in has taken another place, by whichever process.

    On a machine so slow that the first place came free again meanwhile nothing can be said.
    """
    remaining = sorted(int(reply.headers["X-RateLimit-Remaining"]) for reply in replies)
    if len({reply.headers["X-RateLimit-Reset"] for reply in replies}) > 1:
        return all(remaining.count(each) <= 1 + (each == 0) * len(remaining) for each in range(limit // 2, limit))
    return remaining == [0] * (len(replies) - limit) + list(range(limit))


def test_sixty_a_minute_and_not_one_more(served: Served) -> None:
    replies = served.ask(SEARCH, bearer(served.user), REQUESTS, at_once=100)
    assert len(replies) == REQUESTS and {reply.status_code for reply in replies} == {200, 429}
    assert counted_once(replies, 60)
    assert most_in_a_minute(served, f"rag_retrieval:{served.user}") == 60


def test_of_an_api_key_a_hundred_a_minute_and_ten_at_once(served: Served) -> None:
    key = {"Authorization": f"Bearer {served.keys[0]}"}
    replies = served.ask(QUERY, key, REQUESTS, at_once=60)
    assert {reply.status_code for reply in replies} == {200, 429}
    assert counted_once(replies, 100)
    crowded = [reply for reply in replies if reply.status_code == 429 and is_crowded(reply)]
    let_in = [reply for reply in replies if reply.status_code == 200]
    assert len(let_in) + len(crowded) >= 100, "who finds no place has been counted"
    user = with_database(served.database_url, lambda database: Keys(database).principal(served.keys[0])).user
    assert most_in_a_minute(served, f"retrieval_validation:{user}") == 100
    assert served.places_taken() == 0


def most_in_a_minute(served: Served, key: str) -> int:
    """Places that the log of the key has: it holds those of one minute."""
    longest = select(func.cardinality(rate_windows_table.c.times)).where(rate_windows_table.c.key == key)

    async def read(database: Database) -> int:
        async with database.session() as session:
            return await session.scalar(longest) or 0

    return with_database(served.database_url, read)


def is_crowded(refused: httpx.Response) -> bool:
    return "are running" in refused.json()["error"]["message"]


def test_who_keeps_to_ten_at_once_is_never_refused_for_it(served: Served) -> None:
    replies = served.ask(QUERY, {"x-api-key": served.keys[1]}, 100, at_once=10)
    assert Counter(reply.status_code for reply in replies) == {200: 100}
    assert served.places_taken() == 0


def test_all_processes_refuse_a_revoked_key_at_once(served: Served) -> None:
    key = {"Authorization": f"Bearer {served.keys[2]}"}
    assert {reply.status_code for reply in served.ask(QUERY, key, 20, at_once=5)} == {200}
    prepare(lambda application: application.keys.revoke(served.keys[2]))
    assert {reply.status_code for reply in served.ask(QUERY, key, 20, at_once=10)} == {401}


def test_clients_that_go_away_leave_nothing_behind(served: Served) -> None:
    address = served.url.removeprefix("http://").split(":")
    body = b'{"query": "Who goes there?"}'
    head = f"POST {QUERY} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {served.keys[3]}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    for number in range(24):
        with socket.create_connection((address[0], int(address[1]))) as connection:
            connection.sendall(request)
            time.sleep(number % 12 / 100)  # in every stage of a request
    wait_for(lambda: served.places_taken() == 0)
    assert httpx.get(f"{served.url}/health/ready", timeout=PATIENCE).status_code == 200
    assert not re.search("ERROR|Traceback|panic|never awaited", served.log.read_text())


@pytest.mark.thorough
def test_a_connection_on_which_nothing_is_said_is_closed(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    for begun in (b"", b"POST / HTTP/1.1\r\nHost: t"):
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(begun)
            assert connection.recv(1) == b"", "no byte, and no wait without an end"


# --- places, without a server

TAKER = """
import asyncio, os, sys
from rag_app.access.limits import Leases
from rag_app.access.people import Keys
from rag_app.database.session import Database

async def main(url, key, takers, file, hold):
    database, turns = Database(url, pool_size=4), asyncio.Semaphore(25)
    leases, log = Leases(database), os.open(file, os.O_WRONLY | os.O_APPEND)

    async def request():
        async with turns:
            lease = await leases.take(key, 10)
            os.write(log, b"+" if lease else b".")
            if lease:
                while open(file).read().count("+") < 10:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(float(hold))
                os.write(log, b"-")
                await leases.give_back(lease)

    await asyncio.gather(*(request() for _ in range(int(takers))))
    while not (lease := await leases.take(key, 10)):  # one more, when there is a place again
        await asyncio.sleep(0.01)
    os.write(log, b"+-")
    await leases.give_back(lease)
    await database.close()

asyncio.run(main(*sys.argv[1:]))
"""


def takers(url: str, key: str, number: int, log: Path, hold: float) -> subprocess.Popen[bytes]:
    """A process that wants so many places, to hold each until ten have been taken and for `hold` seconds more.

    It writes a character to `log` when it gets one, or none, or has had enough of it.
    """
    return subprocess.Popen([sys.executable, "-c", TAKER, url, key, *map(str, (number, log, hold))])


def test_never_more_than_ten_at_once_among_four_processes(database_urls: tuple[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    key = uuid4().hex
    processes = [takers(database_urls[1], key, REQUESTS // 4, log, 0.2) for _ in range(4)]
    assert [process.wait(PATIENCE) for process in processes] == [0] * 4
    written = log.read_text()
    under_way = list(accumulate({"+": 1, "-": -1, ".": 0}[each] for each in written))
    assert max(under_way) == 10 and min(under_way) == 0 and under_way[-1] == 0
    assert written.count("+") + written.count(".") == REQUESTS + 4 and written.count("+") >= 10 + 4


def test_the_places_of_a_killed_process_are_free_when_their_time_is_over(
    database_urls: tuple[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    key = uuid4().hex
    process = takers(database_urls[1], key, 10, log, 60)
    deadline = time.monotonic() + PATIENCE
    while log.read_text() != "+" * 10:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait(PATIENCE)

    async def take(database: Database) -> bool:
        lease = await Leases(database).take(key, 10)
        if lease:
            await Leases(database).give_back(lease)
        return lease is not None

    assert not with_database(database_urls[1], take), "for now it may be alive"

    async def run_out(database: Database) -> None:
        async with database.session() as session:
            await session.execute(
                update(request_leases_table).where(request_leases_table.c.key == key).values(expires_at=func.now())
            )

    with_database(database_urls[1], run_out)
    assert with_database(database_urls[1], take)
    assert with_database(database_urls[1], lambda database: leases(database, key)) == 0
