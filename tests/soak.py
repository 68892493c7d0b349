"""Four workers under load for minutes, and PostgreSQL killed on the way: `make soak`, which is no part of `make test`.

    make soak                                 # 64 clients, 5 minutes after a minute to warm up
    SOAK_SECONDS=60 SOAK_CLIENTS=16 make soak

The real `rag-app serve`, but that nobody is told to wait (tests/integration/unlimited.py), on a private PostgreSQL of
its own. Each client is a user of one of eight organizations and asks one thing after the other: searches, answers,
messages to LexyBrain (a model by script, in a process of its own), the retrieval API; now and then it leaves an answer
half-way, or connects anew. What it gets must be there, and be of nobody else.

PostgreSQL gets a `kill -9` three times (KILLS), and comes back by itself. It fails on any error but in the windows of
these (from a kill until GRACE seconds after it accepts connections), and there on one that does not say so; on a worker
that is not the one that started, on p99 of more than ten times p50 for a kind of request, and on growth between two
moments of rest, after the warm-up and in the end: of a worker's resident memory, of its open files, of connections.
The tables, one of them over time, go to stdout and, with everything else, to .bench/soak.json.
"""

import asyncio
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from bench.figures import Bound, Table, machine, number, percentile
from bench.progress import say
from rag_app.application import Application
from rag_app.console.demo import load_samples
from rag_app.database.migrate import upgrade
from rag_app.database.private import private_postgres
from rag_app.domain.resources import resource_folder
from rag_app.surfaces.lexybrain.quotas import PlanDirectory
from tests.integration.lexybrain import models_file
from tests.integration.service import Text, bearer, configured, ingest, prepare
from tests.scripted_model import Reply, ScriptedModel

ROOT = Path(__file__).parents[1]
REPORT = ROOT / ".bench" / "soak.json"
WORKERS = 4
POOL_SIZE = 10
"""Of each of the two pools that a worker has."""
KILLS = 3
RECOVERY = 5.0
"""Seconds that a killed PostgreSQL may be away."""
GRACE = 5.0
"""Seconds after its return in which a request may still fail: it began before, or got a connection that is dead."""
REST = 8.0
"""Seconds without requests before memory, files and connections are counted."""
MORE_MEMORY_MB = 40.0
"""What a worker may grow: its embeddings of questions are remembered, 12 KB each, 2,048 at most."""
MORE_FILES = 20
"""What a worker's open files may grow: connections to the model are kept for a while, as many as were needed at once."""
REQUESTS_A_CONNECTION = 50
MOMENTS = 20
"""Of the table over time."""
ENOUGH = 200
"""Requests of a kind that have a 99th percentile."""

SEARCHED = ("org_knowledge", "marketplace", "book")
COLOURS = ("amber", "birchen", "cobalt", "damson", "ebony", "fawn")
THINGS = ("kettle", "lantern", "anvil", "compass", "ladder", "loom", "mirror", "saddle", "spindle", "trowel")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: what it was, from when to when (monotonic), and what was wrong with the reply."""

    kind: str
    began: float
    ended: float
    error: str | None

    @property
    def unexplained(self) -> bool:
        """Whether it failed and did not say that it was PostgreSQL."""
        return self.error is not None and not re.search("(?i)database|service_unavailable", self.error)


@dataclass(frozen=True, slots=True)
class User:
    """`own`: what the organization's texts are marked with; "" where they are the samples."""

    headers: dict[str, str]
    key: dict[str, str]
    own: str
    questions: Sequence[str]


@dataclass(frozen=True, slots=True)
class State:
    """At rest. Of each worker, by process id: resident MB and open files; and the connections to PostgreSQL."""

    memory: dict[int, float]
    files: dict[int, int]
    connections: int
    in_transaction: int


class Wrong(Exception):
    """A reply that is not what it should be."""


# --- what is there


async def people(application: Application, clients: int, folder: Path) -> list[User]:
    """Two organizations with the samples, six with texts of their own, and a user for each client."""
    application.indexes = {name: application.indexes[name] for name in SEARCHED}
    with redirect_stdout(sys.stderr):
        await load_samples(application)
    await PlanDirectory(application.database).set("soak", messages=-1)
    questions = {
        spec: [json.loads(line) for line in lines if line.startswith("{")]
        for spec in SEARCHED
        for lines in [(resource_folder("indexes") / spec / "judgments.jsonl").read_text("utf-8").splitlines()]
    }
    organizations = []
    for slug in ("aurora", "birch"):
        own = [each["text"] for rows in questions.values() for each in rows if each["organization"] == slug]
        organizations.append((await application.people.organization(slug), "", own))
    for colour in COLOURS:
        made = await application.people.create_organization(colour, colour.title())
        texts = [
            Text(thing, f"The {mark(colour)} {thing} costs {n + 3} euros a year. It is kept in room {n}.", made.id)
            for n, thing in enumerate(THINGS)
        ]
        await ingest(application, folder, texts)
        organizations.append((made, mark(colour), [f"What does the {thing} cost a year?" for thing in THINGS]))
    keys = [(await application.keys.create(made, "soak"))[1] for made, _, _ in organizations]
    found = []
    for n in range(clients):
        (organization, own_mark, own), key = organizations[n % len(organizations)], keys[n % len(keys)]
        user = await application.people.create_user(f"client {n}", plan="soak")
        await application.people.add_member(organization, user)
        found.append(User(bearer(user.id), {"Authorization": f"Bearer {key}"}, own_mark, own))
    return found


def mark(colour: str) -> str:
    return f"{colour}-marked"


def replies(sender: Any) -> None:
    """The model, until this process is ended."""
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - clients that are cut off are what it would tell of
    said = "The demand index is 58, and it was 51 a month ago [Source 1]. More is not known of it."
    with ScriptedModel(Reply(said, delay_s=0.02, pace_s=0.005)) as model:
        sender.send(model.url)
        while True:
            time.sleep(1)
            model.requests.clear()


@contextmanager
def scripted_model() -> Iterator[str]:
    """Its URL. A process of its own: here, its threads would take time from the clients."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=replies, args=(sender,), daemon=True)
    process.start()
    try:
        yield receiver.recv()
    finally:
        process.kill()
        process.join()


@contextmanager
def served(log: Path) -> Iterator[tuple[str, int]]:
    """The URL of `rag-app serve` without limits, and the process of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = ["-m", "tests.integration.unlimited", "serve", "--port", str(port), "--workers", str(WORKERS)]
    with log.open("w") as said:
        server = subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=said, stderr=said)
        try:
            deadline = time.monotonic() + 120
            while log.read_text().count("Started worker-") < WORKERS or not ready(url):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"not ready: {log.read_text()}")
                time.sleep(0.2)
            yield url, server.pid
        finally:
            server.terminate()
            server.wait(30)


def ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready", timeout=10).status_code == 200
    except httpx.TransportError:
        return False


# --- what is asked


@dataclass(slots=True)
class Client:
    """One user, one request at a time."""

    url: str
    user: User
    chance: random.Random
    asked: list[Asked]
    thread: str | None = None

    async def work(self, over: asyncio.Event) -> None:
        kinds: dict[str, tuple[int, Callable[[httpx.AsyncClient], Awaitable[None]]]] = {
            "search": (45, self.search),
            "answer": (20, self.answer),
            "message": (10, self.message),
            "message, streamed": (8, self.streamed),
            "answer, left half-way": (2, self.left),
            "retrieval query": (15, self.query),
        }
        names, weights = list(kinds), [weight for weight, _ in kinds.values()]
        while not over.is_set():
            async with httpx.AsyncClient(base_url=self.url, verify=False, timeout=90, trust_env=False) as http:
                for _ in range(REQUESTS_A_CONNECTION):
                    if over.is_set():
                        return
                    (kind,) = self.chance.choices(names, weights)
                    began, error = time.monotonic(), None
                    try:
                        await kinds[kind][1](http)
                    except (httpx.HTTPError, Wrong) as wrong:
                        error = re.sub(
                            r'"request_id":"\w+"', '"request_id":""', f"{type(wrong).__name__}: {wrong}"[:300]
                        )
                    self.asked.append(Asked(kind, began, time.monotonic(), error))
                    if error is not None:
                        await asyncio.sleep(0.2)  # as people do

    def question(self) -> str:
        """One of a few, or one that was never asked."""
        text = self.chance.choice(self.user.questions)
        return text if self.chance.random() < 0.8 else f"{text} ({self.chance.randrange(10**9)})"

    async def search(self, http: httpx.AsyncClient) -> None:
        found = await self.post(http, "/api/rag/search", {"query_text": self.question()})
        if not found["results"]:
            raise Wrong("nothing was found")

    async def answer(self, http: httpx.AsyncClient) -> None:
        await self.post(http, "/api/rag/answer", {"query_text": self.question()})

    async def query(self, http: httpx.AsyncClient) -> None:
        body = await self.post(http, "/api/v1/retrieval/query", {"query": self.question()}, self.user.key)
        if "results" not in body:
            raise Wrong(f"no results: {body}")

    async def message(self, http: httpx.AsyncClient) -> None:
        body = {"message": self.question(), **({"threadId": self.thread} if self.thread else {})}
        self.thread = None  # also where it fails
        said = await self.post(http, "/api/lexybrain/rag", body)
        if not said["answer"]:
            raise Wrong("no answer")
        self.thread = said["threadId"] if self.chance.random() < 0.7 else None

    async def streamed(self, http: httpx.AsyncClient) -> None:
        text = await self.stream(http, "/api/lexybrain/rag", {"message": self.question()})
        if "event: done" not in text:
            raise Wrong(f"the stream ends with {text[-200:]!r}")

    async def left(self, http: httpx.AsyncClient) -> None:
        await self.stream(http, "/api/rag/answer", {"query_text": self.question()}, until="event: sources")

    async def post(
        self, http: httpx.AsyncClient, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        reply = await http.post(path, json=body, headers=headers or self.user.headers)
        self.check(reply.status_code, reply.text)
        read: dict[str, Any] = reply.json()
        return read

    async def stream(self, http: httpx.AsyncClient, path: str, body: dict[str, Any], until: str = "") -> str:
        """What was sent, up to the event `until`."""
        text, headers = "", {**self.user.headers, "Accept": "text/event-stream"}
        async with http.stream("POST", path, json=body, headers=headers) as reply:
            async for piece in reply.aiter_text():
                text += piece
                if until and until in text:
                    break
        self.check(reply.status_code, text)
        return text

    def check(self, status: int, text: str) -> None:
        if status != 200:
            raise Wrong(f"{status}: {text[:180]}")
        if foreign := set(re.findall(r"\w+-marked", text)) - {self.user.own}:
            raise Wrong(f"texts of others: {foreign}")


# --- what is measured


def workers(server: int) -> list[int]:
    return sorted(int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split())


def resident(pid: int) -> float:
    """In MB."""
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) / 1024


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def connections(dsn: str) -> tuple[int, int]:
    """Of the application's role; and those of them that are in a transaction."""
    server = await asyncpg.connect(dsn, timeout=5)
    try:
        row = await server.fetchrow(
            "SELECT count(*), count(xact_start) FROM pg_stat_activity WHERE usename = 'rag_app'"
        )
    finally:
        await server.close()
    return row[0], row[1]


async def at_rest(server: int, dsn: str) -> State:
    await asyncio.sleep(REST)
    processes = workers(server)
    memory, files = {pid: resident(pid) for pid in processes}, {pid: open_files(pid) for pid in processes}
    return State(memory, files, *await connections(dsn))


@dataclass(frozen=True, slots=True)
class Look:
    """At one moment of the load: the requests so far and their errors, the largest of the workers, all connections."""

    seconds: float
    requests: int
    errors: int
    memory: float
    files: int
    connections: int


@dataclass(slots=True)
class Watch:
    """Says on stderr how far it is, and keeps what it saw and the most connections that there were."""

    server: int
    dsn: str
    asked: list[Asked]
    began: float = field(default_factory=time.monotonic)
    most: int = 0
    looks: list[Look] = field(default_factory=list)

    async def work(self) -> None:
        said = 0.0
        while True:
            try:
                count, _ = await connections(self.dsn)
                self.most = max(self.most, count)
            except (OSError, asyncpg.PostgresError):
                count = 0
            if (now := time.monotonic()) - said >= 10:
                said, errors = now, sum(1 for each in self.asked if each.error)
                memory = [resident(pid) for pid in workers(self.server)]
                files = max(map(open_files, workers(self.server)))
                look = Look(now - self.began, len(self.asked), errors, max(memory), files, count)
                self.looks.append(look)
                say(
                    f"{look.seconds:5.0f} s: {look.requests} requests, {errors} errors, {count} connections, "
                    f"workers of {' '.join(f'{mb:.0f}' for mb in memory)} MB, {files} open files at most"
                )
            await asyncio.sleep(2)


@asynccontextmanager
async def asking(url: str, users: Sequence[User], asked: list[Asked]) -> AsyncIterator[None]:
    """All clients at work while the block lasts; then each ends what it began."""
    over = asyncio.Event()
    clients = [
        asyncio.create_task(Client(url, user, random.Random(f"{n} {len(asked)}"), asked).work(over))
        for n, user in enumerate(users)
    ]
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*clients)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run was."""

    asked: list[Asked]
    errors_before: int
    kills: list[tuple[float, float]]
    """When PostgreSQL was killed, and when it accepted connections again."""
    seconds: float
    before: State
    after: State
    most_connections: int
    looks: list[Look]

    def touched(self, each: Asked) -> bool:
        """Whether PostgreSQL's absence may have touched it."""
        return any(killed <= each.ended and each.began <= back + GRACE for killed, back in self.kills)

    @property
    def excused(self) -> list[Asked]:
        return [each for each in self.asked if self.touched(each)]

    @property
    def others(self) -> list[Asked]:
        return [each for each in self.asked if not self.touched(each)]

    def bounds(self) -> list[Bound]:
        latencies = self.latencies()
        memory = [self.after.memory.get(pid, 0) - before for pid, before in self.before.memory.items()]
        files = [self.after.files.get(pid, 0) - before for pid, before in self.before.files.items()]
        away = [back - killed for killed, back in self.kills]
        last = self.kills[-1][1] + GRACE
        return [
            Bound("errors in the warm-up", "", self.errors_before, 0),
            Bound("errors while PostgreSQL is there", "", sum(1 for each in self.others if each.error), 0),
            Bound("other errors than its absence", "", sum(1 for each in self.excused if each.unexplained), 0),
            Bound("seconds that a killed PostgreSQL is away", "", max(away), RECOVERY),
            Bound("requests after its last return", "", sum(1 for each in self.others if each.began > last), 1, at_most=False),
            Bound("workers that are not those that began", "", len(set(self.after.memory) ^ set(self.before.memory)), 0),
            *[Bound(f"p99 / p50, {kind}", "", percentile(ms, 0.99) / percentile(ms, 0.5), 10)
              for kind, ms in latencies.items() if len(ms) >= ENOUGH and kind != "everything"],
            Bound("MB that a worker grew", "", max(memory), MORE_MEMORY_MB),
            Bound("open files that a worker grew", "", max(files), MORE_FILES),
            Bound("connections to PostgreSQL", "", self.most_connections, WORKERS * 2 * POOL_SIZE),
            Bound("connections in a transaction, at rest", "", self.after.in_transaction, 0),
        ]  # fmt: skip

    def latencies(self) -> dict[str, list[float]]:
        """Milliseconds, of what PostgreSQL's absence did not touch."""
        kinds = sorted({each.kind for each in self.others})
        return {
            "everything": [1000 * (each.ended - each.began) for each in self.others],
            **{kind: [1000 * (each.ended - each.began) for each in self.others if each.kind == kind] for kind in kinds},
        }

    def tables(self) -> list[Table]:
        rows: list[tuple[str | float, ...]] = []
        for kind, ms in self.latencies().items():
            percentiles = [percentile(ms, share) for share in (0.5, 0.95, 0.99)]
            errors = [
                sum(1 for each in part if each.error and kind in (each.kind, "everything"))
                for part in (self.others, self.excused)
            ]
            rows.append((kind, str(len(ms)), *map(str, errors), *percentiles, percentiles[2] / percentiles[0]))
        away = ", ".join(f"{back - killed:.1f}" for killed, back in self.kills)
        rest: list[tuple[str | float, ...]] = [
            ("after the warm-up", *_row(self.before)),
            ("in the end", *_row(self.after)),
        ]
        return [
            Table(
                "Requests",
                f"{len(self.asked)} in {self.seconds:.0f} s, {len(self.asked) / self.seconds:.0f} a second. PostgreSQL was "
                f"killed {len(self.kills)} times, and away for {away} s. Milliseconds are of requests that it did not touch.",
                ("", "requests", "errors", "errors while it was away", "p50", "p95", "p99", "p99 / p50"),
                rows,
            ),
            Table(
                "Over time",
                "The largest of the workers, and the connections of all of them.",
                ("s", "requests", "errors", "MB", "open files", "connections"),
                [
                    (
                        f"{look.seconds:.0f}",
                        str(look.requests),
                        str(look.errors),
                        f"{look.memory:.0f}",
                        str(look.files),
                        str(look.connections),
                    )
                    for look in some_of(self.looks, MOMENTS)
                ],
            ),
            Table(
                "Workers at rest", "", ("", "MB of each", "open files of each", "connections", "in a transaction"), rest
            ),
        ]


def some_of(looks: Sequence[Look], number: int) -> list[Look]:
    """So many of them, evenly spread, with the first and the last."""
    if len(looks) <= number:
        return [*looks]
    return [looks[round(n * (len(looks) - 1) / (number - 1))] for n in range(number)]


def _row(state: State) -> tuple[str, ...]:
    memory, files = " ".join(f"{mb:.0f}" for mb in state.memory.values()), " ".join(map(str, state.files.values()))
    return memory, files, str(state.connections), str(state.in_transaction)


async def measure(
    url: str, server: int, dsn: str, users: Sequence[User], seconds: float, kill: Callable[[], None]
) -> Run:
    warming: list[Asked] = []
    async with asking(url, users, warming):
        await asyncio.sleep(max(10.0, seconds / 5))
    if errors := Counter(each.error for each in warming if each.error):
        say(f"while it warmed up: {dict(errors)}")
    before = await at_rest(server, dsn)
    asked: list[Asked] = []
    watch = Watch(server, dsn, asked)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch.work())
        began = time.monotonic()
        async with asking(url, users, asked):
            kills = []
            for n in range(1, KILLS + 1):
                await asyncio.sleep(seconds * n / (KILLS + 1) - (time.monotonic() - began))
                killed = time.monotonic()
                kill()
                kills.append((killed, await back_again(dsn)))
                say(f"{killed - began:5.0f} s: PostgreSQL was killed, and away for {kills[-1][1] - killed:.1f} s")
            await asyncio.sleep(seconds - (time.monotonic() - began))
        took = time.monotonic() - began
        watching.cancel()
    after = await at_rest(server, dsn)
    return Run(asked, errors.total(), kills, took, before, after, watch.most, watch.looks)


async def back_again(dsn: str) -> float:
    """When it accepted a connection and answered."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(OSError, asyncpg.PostgresError):
            await connections(dsn)
            return time.monotonic()
        await asyncio.sleep(0.05)
    raise RuntimeError("PostgreSQL does not come back")


def main() -> int:
    seconds, clients = float(os.environ.get("SOAK_SECONDS", "300")), int(os.environ.get("SOAK_CLIENTS", "64"))
    if seconds < 60:
        raise SystemExit("SOAK_SECONDS: 60 or more, or the kills are most of it")
    conditions = {"when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", **machine()}
    REPORT.parent.mkdir(exist_ok=True)
    log = REPORT.with_suffix(".log")
    folder = Path(tempfile.mkdtemp(prefix="rag-soak-"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(lambda: shutil.rmtree(folder, ignore_errors=True))
        stack.callback(lambda: shutil.rmtree((folder / "cluster").resolve(), ignore_errors=True))  # may lie outside
        postgres = stack.enter_context(private_postgres(folder))
        upgrade(postgres.owner_url, postgres.app_url, resource_folder("migrations"))

        def kill() -> None:
            os.kill(int((folder / "cluster" / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

        model = stack.enter_context(scripted_model())
        stack.enter_context(
            configured({
                "RAG_DATABASE_URL": postgres.app_url, "RAG_DATABASE_OWNER_URL": postgres.owner_url,
                "RAG_DATABASE_POOL_SIZE": str(POOL_SIZE), "RAG_VECTOR_STORE": "postgres", "RAG_HOME": str(folder),
                "RAG_LOG_LEVEL": "info", "RAG_MODELS_FILE": str(models_file(folder, model)), "TEST_MODEL_KEY": "key",
            })
        )  # fmt: skip
        users = prepare(lambda application: people(application, clients, folder))
        url, server = stack.enter_context(served(log))
        say(f"{clients} clients, {WORKERS} workers at {url}, which say what they have to say in {log}")
        dsn = postgres.superuser_url.replace("+asyncpg", "")
        run = asyncio.run(measure(url, server, dsn, users, seconds, kill))
    bounds = run.bounds()
    report(run, bounds, {**conditions, "clients": str(clients), "seconds": f"{run.seconds:.0f}"})
    return 0 if all(bound.held for bound in bounds) else 1


def report(run: Run, bounds: Sequence[Bound], conditions: dict[str, str]) -> None:
    tables, errors = run.tables(), {
        name: Counter(f"{each.kind}: {each.error}" for each in part if each.error).most_common(20)
        for name, part in (("while PostgreSQL is there", run.others), ("while it is away", run.excused))
    }  # fmt: skip
    shown: list[tuple[str | float, ...]] = [
        (each.what, each.measured, _limit(each), "held" if each.held else "**missed**") for each in bounds
    ]
    tables.append(Table("Bounds", "", ("what", "measured", "bound", ""), shown))
    everything = {
        "conditions": conditions, "bounds": [{**asdict(each), "held": each.held} for each in bounds],
        "tables": [asdict(each) for each in tables], "errors": errors,
    }  # fmt: skip
    REPORT.write_text(json.dumps(everything, indent=1) + "\n", "utf-8")
    print("\n".join(each.markdown() for each in tables))
    for error, times in errors["while PostgreSQL is there"]:
        say(f"{times} x {error}")
    for each in bounds:
        if not each.held:
            say(f"missed: {each}")
    say(f"written to {REPORT}")


def _limit(bound: Bound) -> str:
    return f"{'<=' if bound.at_most else '>='} {number(bound.limit)}"


if __name__ == "__main__":
    sys.exit(main())
