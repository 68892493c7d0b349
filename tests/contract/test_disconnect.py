"""Clients that go away, and places among the requests under way: over real sockets, against a slow pipeline."""

import asyncio
import json
import logging
import random
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from h2.connection import H2Connection
from h2.events import DataReceived
from litestar import Request, get, post
from litestar.openapi.spec import Tag
from litestar.params import JSONBody
from litestar.response import ServerSentEvent, Stream

from rag_app.access.tokens import TokenReader, issue_token
from rag_app.domain.answer import Hit, Question
from rag_app.domain.errors import StoreFailed
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal, Scope
from rag_app.http.entrance import Entrance
from rag_app.http.exchange import Client
from rag_app.http.server import api
from rag_app.http.surface import Injected, Surface
from rag_app.pipeline import Pipeline
from tests.contract.conftest import SECRET, Backstage, ScriptedPipeline, serve
from tests.waiting import PATIENCE, wait_for

PLACES = 40
EVERYTHING = Scope(frozenset({PUBLIC_ORGANIZATION}))


@dataclass
class SlowPipeline(ScriptedPipeline):
    """Searches for `seconds`, or while it is `held`, and counts what became of it. `permits` lets so many through."""

    seconds: float = 0.0
    held: bool = False
    permits: int = 0
    under_way: int = 0
    cancelled: int = 0
    ended: int = 0

    async def search(self, index: str, question: Question, scope: Scope) -> tuple[Hit, ...]:
        self.under_way += 1
        try:
            while self.held and not self.permits:
                await asyncio.sleep(0.005)
            self.permits -= self.held
            await asyncio.sleep(self.seconds)
            self.ended += 1
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1
        return self.hits


@dataclass
class SlowLeases:
    """Places that are counted as the real ones are. Scripted: what is tested is what happens while taking one or giving
    it back takes long, or fails; and that nothing but giving back frees a place."""

    taken: dict[UUID, str] = field(default_factory=dict)
    extend_every: float = 20.0
    seconds: float = 0.0
    held: bool = False
    extended: list[UUID] = field(default_factory=list)
    given_back: int = 0
    error: Exception | None = None

    async def take(self, key: str, limit: int) -> UUID | None:
        if list(self.taken.values()).count(key) >= limit:
            return None
        lease = uuid4()
        self.taken[lease] = key
        while self.held:
            await asyncio.sleep(0.005)
        await asyncio.sleep(self.seconds)
        return lease

    async def extend(self, lease: UUID, key: str, limit: int) -> bool:
        self.extended.append(lease)
        if self.error:
            raise self.error
        return True

    async def give_back(self, lease: UUID) -> None:
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        del self.taken[lease]
        self.given_back += 1


@post("/attended/search", status_code=200)
async def search(data: JSONBody[dict[str, Any]], pipeline: Injected[Pipeline]) -> dict[str, int]:
    return {"found": len(await pipeline.search("book", Question(data["text"]), EVERYTHING))}


@get("/attended/search")
async def search_by_get(request: Request[Principal, Any, Any], pipeline: Injected[Pipeline]) -> dict[str, int]:
    body = await request.body()  # of a GET: there is none, and nobody waits for it
    return {"found": len(await pipeline.search("book", Question("?"), EVERYTHING)) + len(body)}


@post("/attended/stubborn", status_code=200)
async def stubborn(data: JSONBody[dict[str, Any]], pipeline: Injected[Pipeline]) -> dict[str, int]:
    """What it began is brought to its end."""
    return {"found": len(await asyncio.shield(pipeline.search("book", Question(data["text"]), EVERYTHING)))}


@post("/attended/stream", status_code=200)
async def stream(data: JSONBody[dict[str, Any]], pipeline: Injected[Pipeline]) -> Stream:
    await pipeline.search("book", Question("?"), EVERYTHING)  # long enough for the client to be watched by then
    return Stream(_pieces(int(data["pieces"]), pipeline), media_type="text/plain")


@post("/attended/events", status_code=200)
async def events(data: JSONBody[dict[str, Any]], pipeline: Injected[Pipeline]) -> ServerSentEvent:
    return ServerSentEvent(_pieces(int(data["pieces"]), pipeline))


async def _pieces(number: int, pipeline: Pipeline) -> AsyncIterator[str]:
    for _ in range(number):
        await pipeline.search("book", Question("?"), EVERYTHING)
        yield "piece\n"


SURFACE = Surface(
    name="attended",
    tag=Tag("attended"),
    paths=("/attended/",),
    handlers=[search, search_by_get, stubborn, stream, events],
    limit=10_000,
    concurrent=PLACES,
)
TOKEN = f"Bearer {issue_token('ada', SECRET)}"
BODY = json.dumps({"text": "?", "pieces": 3}).encode()


@dataclass
class Stage:
    url: str
    port: int
    backstage: Backstage
    pipeline: SlowPipeline
    leases: SlowLeases

    def is_quiet(self) -> bool:
        return not self.pipeline.under_way and not self.leases.taken

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.settimeout(PATIENCE)
        return connection


@pytest.fixture(scope="module")
def started() -> Iterator[Stage]:
    pipeline, leases = SlowPipeline(), SlowLeases()
    backstage = Backstage(pipeline=pipeline, leases=leases)
    app = api(
        backstage.services(), backstage.access(), Entrance(TokenReader(SECRET)), version="0.0.test", surfaces=[SURFACE]
    )
    with serve(app) as url:
        yield Stage(url, int(url.rsplit(":", 1)[1]), backstage, pipeline, leases)


@pytest.fixture
def stage(started: Stage) -> Iterator[Stage]:
    started.pipeline.__init__(held=True)  # type: ignore[misc]
    started.leases.__init__()  # type: ignore[misc]
    started.backstage.limiter.clear()
    yield started
    assert wait_for(started.is_quiet), "a place or a search was left behind"


@pytest.fixture
def client(stage: Stage) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stage.url, timeout=PATIENCE, verify=False, headers={"Authorization": TOKEN}) as client:
        yield client


def request(method: str, path: str, body: bytes = BODY, announced: int | None = None) -> bytes:
    length = len(body) if announced is None else announced
    head = f"{method} /attended/{path} HTTP/1.1\r\nHost: t\r\nAuthorization: {TOKEN}\r\n"
    if method == "GET":
        return f"{head}\r\n".encode()
    return f"{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode() + body


def close(connection: socket.socket) -> None:
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_close(connection: socket.socket) -> None:
    """Granian takes the end of what is sent for the end of the connection."""
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1000) == b""


@pytest.mark.parametrize("leave", [close, reset, half_close])
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_who_has_gone_is_not_worked_for(
    method: str, leave: Callable[[socket.socket], None], stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with stage.connect() as connection, caplog.at_level(logging.INFO, "rag_app.http"):
        connection.sendall(request(method, "search"))
        assert wait_for(lambda: stage.pipeline.under_way == 1)
        assert list(stage.leases.taken.values()) == ["attended:ada"]
        leave(connection)
        assert wait_for(lambda: stage.pipeline.cancelled == 1 and stage.is_quiet())
        assert wait_for(lambda: bool(caplog.records))
    (line,) = caplog.messages
    assert line.startswith(f"{method} /attended/search given up after ") and line.endswith(" the client has gone")


def test_who_goes_after_a_slow_beginning_is_not_worked_for(stage: Stage) -> None:
    """The request is read when others are watched already."""
    stage.leases.seconds = 0.3
    with stage.connect() as connection:
        connection.sendall(request("POST", "search"))
        assert wait_for(lambda: stage.pipeline.under_way == 1)
    assert wait_for(lambda: stage.pipeline.cancelled == 1)


def test_many_come_and_some_go(stage: Stage) -> None:
    dice = random.Random(4)
    with ExitStack() as stack:
        connections = [stack.enter_context(stage.connect()) for _ in range(PLACES)]
        for connection in connections:
            connection.sendall(request("POST", "search"))
        assert wait_for(lambda: stage.pipeline.under_way == PLACES)
        dice.shuffle(connections)
        for connection in connections[:25]:
            dice.choice([close, reset])(connection)
        assert wait_for(lambda: stage.pipeline.cancelled == 25 and len(stage.leases.taken) == PLACES - 25)
        stage.pipeline.held = False
        for connection in connections[25:]:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert (stage.pipeline.ended, stage.pipeline.cancelled) == (PLACES - 25, 25)


def test_who_waits_is_answered(client: httpx.Client, stage: Stage) -> None:
    stage.pipeline.held = False
    for seconds in (0.0, 0.05, 0.1, 0.3):  # about as long as nobody watches, and longer
        stage.pipeline.seconds = seconds
        for method in ("POST", "GET"):
            response = client.request(method, "/attended/search", content=BODY if method == "POST" else None)
            assert (response.status_code, response.json()) == (200, {"found": 0})
            assert not stage.leases.taken
    assert (stage.pipeline.ended, stage.pipeline.cancelled) == (8, 0)


def test_a_connection_that_is_kept_serves_on(stage: Stage) -> None:
    stage.pipeline.held, stage.pipeline.seconds = False, 0.15
    with stage.connect() as connection:
        for method in ("POST", "GET") * 4:
            connection.sendall(request(method, "search"))
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        stage.pipeline.held = True
        connection.sendall(request("POST", "search"))
        assert wait_for(lambda: stage.pipeline.under_way == 1)
    assert wait_for(lambda: stage.pipeline.cancelled == 1)
    assert stage.pipeline.ended == 8


def test_requests_sent_in_a_row_are_answered_in_a_row(stage: Stage) -> None:
    stage.pipeline.held, stage.pipeline.seconds = False, 0.2
    with stage.connect() as connection:
        connection.sendall(request("POST", "search") + request("GET", "search") + request("POST", "search"))
        received = b""
        while received.count(b'{"found":0}') < 3:
            received += connection.recv(1000)
    assert received.count(b"HTTP/1.1 200 ") == 3
    assert (stage.pipeline.ended, stage.pipeline.cancelled) == (3, 0)


def test_over_http_2_one_request_is_taken_back_and_the_others_go_on(stage: Stage) -> None:
    http2, answered = H2Connection(), dict[int, bytes]()
    headers = {":method": "POST", ":scheme": "http", ":authority": "t", ":path": "/attended/search"}
    headers |= {"authorization": TOKEN, "content-type": "application/json"}
    http2.initiate_connection()
    for stream_id in (1, 3, 5):
        http2.send_headers(stream_id, list(headers.items()))
        http2.send_data(stream_id, BODY, end_stream=True)
    with stage.connect() as connection:
        connection.sendall(http2.data_to_send())
        assert wait_for(lambda: stage.pipeline.under_way == 3)
        http2.reset_stream(3)
        connection.sendall(http2.data_to_send())
        assert wait_for(lambda: stage.pipeline.cancelled == 1 and len(stage.leases.taken) == 2)
        stage.pipeline.held = False
        while len(answered) < 2:
            for event in http2.receive_data(connection.recv(10_000)):
                if isinstance(event, DataReceived) and event.data:
                    answered[event.stream_id] = event.data
    assert answered == dict.fromkeys((1, 5), b'{"found":0}')


def test_who_leaves_in_the_middle_of_a_request_frees_the_place(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rag_app.http"):
        with stage.connect() as connection:
            connection.sendall(request("POST", "search", b'{"te', announced=100))
            assert wait_for(lambda: len(stage.leases.taken) == 1)
        assert wait_for(stage.is_quiet)
        assert wait_for(lambda: bool(caplog.records))
    assert [record.levelname for record in caplog.records] == ["INFO"], "nothing went wrong here"
    assert not stage.pipeline.cancelled and not stage.pipeline.ended


def test_who_leaves_while_a_place_is_being_taken_has_none(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, give_up = threading.Event(), Client._give_up

    def given_up(client: Client) -> None:
        give_up(client)
        gone.set()

    monkeypatch.setattr(Client, "_give_up", given_up)
    stage.leases.held = True
    with stage.connect() as connection:
        connection.sendall(request("GET", "search"))
        assert wait_for(lambda: len(stage.leases.taken) == 1)
    assert gone.wait(PATIENCE)
    stage.leases.held = False
    assert wait_for(lambda: stage.leases.given_back == 1)
    assert not stage.pipeline.cancelled and not stage.pipeline.ended


def test_work_that_must_not_stop_half_way_shields_itself(stage: Stage) -> None:
    with stage.connect() as connection:
        connection.sendall(request("POST", "stubborn"))
        assert wait_for(lambda: stage.pipeline.under_way == 1)
    assert wait_for(lambda: not stage.leases.taken), "the request has ended, whatever it left behind"
    assert stage.pipeline.under_way == 1
    stage.pipeline.held = False
    assert wait_for(lambda: stage.pipeline.ended == 1)
    assert stage.pipeline.cancelled == 0


@pytest.mark.parametrize("path", ["stream", "events"])
def test_a_stream_keeps_its_place_to_its_end(path: str, client: httpx.Client, stage: Stage) -> None:
    stage.pipeline.permits = 1 + (path == "stream")
    with client.stream("POST", f"/attended/{path}", content=BODY) as response:
        pieces = response.iter_raw()
        next(pieces)
        assert len(stage.leases.taken) == 1
        stage.pipeline.held = False
        assert b"".join(pieces).count(b"piece") == 2
        assert not stage.leases.taken
    assert stage.pipeline.ended == 3 + (path == "stream") and not stage.pipeline.cancelled


@pytest.mark.parametrize("path", ["stream", "events"])
def test_who_leaves_a_stream_stops_it(path: str, client: httpx.Client, stage: Stage) -> None:
    stage.pipeline.permits = 1 + (path == "stream")
    with client.stream("POST", f"/attended/{path}", content=b'{"pieces": 1000}') as response:
        next(response.iter_raw())
    assert wait_for(lambda: stage.pipeline.cancelled == 1 and stage.is_quiet())


def test_more_at_once_than_may_be(client: httpx.Client, stage: Stage) -> None:
    with ThreadPoolExecutor(PLACES + 5) as pool:
        sent = [pool.submit(client.post, "/attended/search", content=BODY) for _ in range(PLACES + 5)]
        assert wait_for(lambda: sum(each.done() for each in sent) == 5), "nobody waits for a place"
        stage.pipeline.held = False
    replies = [each.result() for each in sent]
    refused = [reply for reply in replies if reply.status_code != 200]
    assert len(refused) == 5 and stage.pipeline.ended == PLACES
    for reply in refused:
        assert (reply.status_code, reply.json()["error"]["code"]) == (429, "too_many_at_once")
    counted = sorted(int(reply.headers["x-ratelimit-remaining"]) for reply in replies)
    assert counted == list(range(10_000 - PLACES - 5, 10_000)), "who is refused for this has been counted, too"


def test_who_has_read_an_answer_finds_the_place_free(stage: Stage) -> None:
    """As many at once as may be, one after the other without a pause: nobody is refused."""
    stage.pipeline.held, stage.leases.seconds = False, 0.02

    def ask_on(number: int) -> set[int]:
        path = ("search", "stream")[number % 2]
        with httpx.Client(
            base_url=stage.url, timeout=PATIENCE, verify=False, headers={"Authorization": TOKEN}
        ) as client:
            return {client.post(f"/attended/{path}", content=BODY).status_code for _ in range(10)}

    with ThreadPoolExecutor(PLACES) as pool:
        assert set().union(*pool.map(ask_on, range(PLACES))) == {200}


@pytest.mark.parametrize("body", [b"{", b'{"pieces": "many"}', b"{}"])
def test_what_goes_wrong_gives_its_place_back(body: bytes, client: httpx.Client, stage: Stage) -> None:
    stage.pipeline.held = False
    assert client.post("/attended/stream", content=body).status_code >= 400
    assert not stage.leases.taken and stage.leases.given_back == 1


def test_who_is_not_let_in_takes_no_place(client: httpx.Client, stage: Stage) -> None:
    stage.backstage.limiter.counts["attended:ada"] = SURFACE.limit or 0
    assert client.post("/attended/search", content=BODY).json()["error"]["code"] == "rate_limited"
    assert client.post("/attended/search", headers={"Authorization": "Bearer x"}).status_code == 401
    assert client.options("/attended/search").status_code == 204
    assert client.post("/attended/nothing").status_code == 404
    assert not stage.leases.given_back


def test_a_place_is_kept_as_long_as_the_request_runs(client: httpx.Client, stage: Stage) -> None:
    stage.leases.extend_every = 0.05
    with ThreadPoolExecutor() as pool:
        sent = pool.submit(client.post, "/attended/search", content=BODY)
        assert wait_for(lambda: len(stage.leases.extended) >= 3)
        stage.pipeline.held = False
    assert sent.result().status_code == 200 and wait_for(lambda: stage.leases.given_back == 1)
    first = list(stage.leases.extended)
    assert len(set(first)) == 1
    stage.pipeline.held = True
    with ThreadPoolExecutor() as pool:  # it is not kept for as long as another one is
        sent = pool.submit(client.post, "/attended/search", content=BODY)
        assert wait_for(lambda: len(set(stage.leases.extended)) == 2 and len(stage.leases.extended) >= len(first) + 3)
        stage.pipeline.held = False
    assert sent.result().status_code == 200 and stage.leases.extended.count(first[0]) == len(first)


def test_a_database_that_fails_later_spoils_no_answer(
    client: httpx.Client, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.leases.extend_every = 0.05
    stage.leases.error = StoreFailed("away")
    with ThreadPoolExecutor() as pool:
        sent = pool.submit(client.post, "/attended/search", content=BODY)
        assert wait_for(lambda: len(stage.leases.extended) >= 2), "one failure is not the last attempt"
        stage.pipeline.held = False
    assert sent.result().json() == {"found": 0}
    assert {"could not extend a request lease: away", "could not release a request lease: away"} == set(caplog.messages)
    stage.leases.taken.clear()


def test_a_request_that_is_refused_before_its_body_came_leaves_the_connection_usable(
    running: tuple[str, Backstage], backstage: Backstage
) -> None:
    """Many clients send headers and body apart; the connection they keep must not be closed behind their back."""
    host, port = running[0].removeprefix("http://").split(":")
    head = "POST /api/rag/search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        for _ in range(5):
            connection.sendall(head.encode())
            time.sleep(0.05)  # the refusal is ready by now
            connection.sendall(b'{"query_text": "ab"}')
            reply = connection.recv(65536)
            assert reply.startswith(b"HTTP/1.1 401") and b"connection: close" not in reply.lower()


def test_who_goes_at_once_is_not_worked_for_either(stage: Stage) -> None:
    """Before the watch begins. The last of this file: what arrives late would be counted by the test after it."""
    for _ in range(20):
        with stage.connect() as connection:
            connection.sendall(request("POST", "search"))
    # some are given up before they search, and some do not even arrive
    assert wait_for(lambda: stage.leases.given_back > 0 and stage.is_quiet()) and stage.pipeline.ended == 0
