"""`POST /api/rag/search` through the real server, beside bare applications that do the same: latency, throughput, memory."""

import asyncio
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from bench.corpus import SHARES, Corpus
from bench.figures import Bound, Report, Table, Timing, median, rounds
from bench.ours import Ours
from bench.progress import track
from rag_app.access.tokens import issue_token

SECRET = "of no use outside of one run of the bench"  # noqa: S105
TENANT = "1 %"
CLIENTS = 32
_WARM = 5
_REPEATED = 64
"""Questions that are asked again and again where the embedding is cached."""
_A_MINUTE = 50
"""Requests of one user in the whole run: fewer than the 60 that each may send a minute."""
_SECONDS_TO_START = 240


@dataclass(slots=True)
class Service:
    """A server that is asked. `users`: headers that take turns, so that nobody meets the limit."""

    name: str
    port: int
    path: str
    process: "subprocess.Popen[bytes]"
    users: Iterator[str]
    times: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    async def ask(self, connection: "Connection", text: str) -> None:
        asked = json.dumps({"query_text": text, "mode": "hybrid"}).encode()
        status, body = await connection.post(self.path, next(self.users), asked)
        if status != 200 or not (json.loads(body)["results"] or self.name == "stock"):  # which finds nothing at times
            raise RuntimeError(f"{self.name}: {status} {body[:500]!r}")


class Connection:
    """One kept-alive HTTP/1.1 connection: httpx would take longer than some of the servers do."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._port, self._reader, self._writer = port, reader, writer

    @classmethod
    @asynccontextmanager
    async def to(cls, port: int) -> AsyncIterator["Connection"]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield cls(port, reader, writer)
        finally:
            writer.close()

    async def post(self, path: str, header: str, body: bytes) -> tuple[int, bytes]:
        self._writer.write(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n{header}"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next(int(line.partition(b":")[2]) for line in head if line.startswith(b"content-length:"))
        return int(head[0].split()[1]), await self._reader.readexactly(length)


async def measure(report: Report, corpus: Corpus, ours: Ours, owner_url: str, questions: int) -> None:
    fresh = corpus.fresh_questions()
    everything = list(fresh)
    turns = rounds(questions)
    load = min(256, 4 * questions, (len(everything) - questions - _REPEATED) // turns)  # requests a round
    alone, many = everything[:questions], everything[questions : questions + load * turns]
    repeated = everything[-_REPEATED:]
    requests = 2 * questions + 3 * load * turns + 2 * _REPEATED + _WARM
    headers = await _users(ours, math.ceil(requests / _A_MINUTE) + 1)
    async with AsyncExitStack() as stack:
        services = [await stack.enter_async_context(each) for each in _started(ours, corpus, owner_url, headers)]
        for service in services:
            async with Connection.to(service.port) as connection:
                for text in everything[-_REPEATED - _WARM :]:  # also puts the repeated ones into the caches
                    await service.ask(connection, text)
        idle = _resident(services[0].process.pid)
        first = await _one_client(services, alone, "one client")
        cached = await _one_client(
            services, (repeated * math.ceil(questions / _REPEATED))[:questions], "one client, cached"
        )
        busy = await _many_clients(services, [many[n * load : (n + 1) * load] for n in range(turns)], "32 clients")
        again = [(repeated * math.ceil(2 * load / _REPEATED))[: 2 * load]] * turns
        busy_cached = await _many_clients(services, again, "32 clients, cached")
        resident = _resident(services[0].process.pid)
    names = ("ours", "by hand", "stock LlamaIndex, dense")
    report.tables.append(
        Table(
            f"POST /api/rag/search over {corpus.size} chunks, organization with {TENANT}",
            "p50 / p95 in ms with one client; requests a second with 32 (median of rounds that take turns). Granian, one worker "
            "each. Ours and by hand search by meaning and words, fused; stock LlamaIndex does not fuse, it searches by meaning. "
            "Ours also checks a token, its user's organizations and the rate limit. Cached: the question's embedding is known.",
            ("", *names, "ours / hand", "stock / hand"),
            [
                _row("one client", [str(each) for each in first], [each.p50 for each in first]),
                _row("one client, cached", [str(each) for each in cached], [each.p50 for each in cached]),
                _row("32 clients, requests/s", busy, busy),
                _row("32 clients, cached, requests/s", busy_cached, busy_cached),
            ],
        )
    )
    report.tables.append(
        Table(
            "Memory", "Resident MB of our one worker.", ("after the first questions", "after the load"),
            [(idle / 2**20, resident / 2**20)],
        )
    )  # fmt: skip
    against = "bare Litestar by hand"
    report.bounds += [
        Bound("POST /api/rag/search, p50, one client", against, first[0].p50 / first[1].p50, 1.25),
        Bound("the same, embedding cached", against, cached[0].p50 / cached[1].p50, 1.6),
        Bound("the same, requests/s at 32 clients", against, busy[0] / busy[1], 0.8, at_most=False),
        Bound("resident MB of one worker", "-", resident / 2**20, 700.0),
    ]


def _row(name: str, shown: Sequence[str | float], values: Sequence[float]) -> tuple[str | float, ...]:
    return (name, *shown, values[0] / values[1], values[2] / values[1])


async def _one_client(services: Sequence[Service], texts: Sequence[str], what: str) -> list[Timing]:
    times: dict[str, list[float]] = {service.name: [] for service in services}
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection.to(service.port)) for service in services]
        pairs = list(zip(services, connections, strict=True))
        for number, text in enumerate(track(list(texts), what)):
            for turn in range(len(pairs)):
                service, connection = pairs[(number + turn) % len(pairs)]
                started = time.perf_counter()
                await service.ask(connection, text)
                times[service.name].append(1000 * (time.perf_counter() - started))
    return [Timing(tuple(times[service.name])) for service in services]


async def _many_clients(services: Sequence[Service], rounds: Sequence[Sequence[str]], what: str) -> list[float]:
    rates: dict[str, list[float]] = {service.name: [] for service in services}
    for number, texts in enumerate(track(list(rounds), what)):
        for turn in range(len(services)):
            service = services[(number + turn) % len(services)]
            waiting = iter(texts)
            started = time.perf_counter()
            await asyncio.gather(*(_client(service, waiting) for _ in range(CLIENTS)))
            rates[service.name].append(len(texts) / (time.perf_counter() - started))
    return [median(rates[service.name]) for service in services]


async def _client(service: Service, waiting: Iterator[str]) -> None:
    async with Connection.to(service.port) as connection:
        for text in waiting:
            await service.ask(connection, text)


async def _users(ours: Ours, count: int) -> list[str]:
    """Members of the organization, as headers with their tokens."""
    people, headers = ours.application.people, []
    organization = await people.organization(ours.organizations[list(SHARES).index(TENANT)])
    for number in range(count):
        user = await people.create_user(f"bench {number}")
        await people.add_member(organization, user)
        headers.append(f"Authorization: Bearer {issue_token(str(user.id), SECRET, audience='authenticated')}\r\n")
    return headers


def _started(ours: Ours, corpus: Corpus, owner_url: str, headers: list[str]) -> list["_Serving"]:
    granian = [sys.executable, "-m", "granian", "--interface", "asgi", "--factory", "--no-ws", "--log-level", "warning"]
    organization = str(ours.organizations[list(SHARES).index(TENANT)])
    more = {
        "BENCH_DSN": owner_url.replace("+asyncpg", ""), "BENCH_OWNER_URL": owner_url,
        "BENCH_ORGANIZATION": organization,
    }  # fmt: skip
    return [
        _Serving("ours", "/api/rag/search", [sys.executable, "-m", "rag_app", "serve", "--workers", "1"], {}, headers),
        _Serving("by hand", "/search", [*granian, "bench.by_hand:create_app"], {**more, "BENCH_APP": "hand"}, [""]),
        _Serving("stock", "/search", [*granian, "bench.by_hand:create_app"], {**more, "BENCH_APP": "stock"}, [""]),
    ]


class _Serving:
    """A server for as long as the block lasts."""

    def __init__(
        self, name: str, path: str, command: list[str], environment: dict[str, str], headers: list[str]
    ) -> None:
        self._name, self._path, self._headers = name, path, headers
        self._command, self._environment = command, environment

    async def __aenter__(self) -> Service:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [*self._command, "--host", "127.0.0.1", "--port", str(port)]
        self._process = subprocess.Popen(command, env={**os.environ, **self._environment})  # noqa: ASYNC220, S603
        deadline = time.monotonic() + _SECONDS_TO_START
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                async with Connection.to(port):
                    return Service(self._name, port, self._path, self._process, cycle(self._headers))
            except OSError:
                await asyncio.sleep(0.1)
        await self.__aexit__()
        raise RuntimeError(f"the server {self._name} does not start")

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, 20)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _resident(parent: int) -> float:
    """Bytes of the largest child of a process: the worker. NaN where there is no /proc."""
    sizes = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if int(fields.get("PPid", 0)) == parent and "VmRSS" in fields:
            sizes.append(1024.0 * int(fields["VmRSS"].split()[0]))
    return max(sizes, default=float("nan"))
