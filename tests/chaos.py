"""Server, workers, ingest and PostgreSQL are killed at random under load: `make chaos`, which is no part of `make test`.

    make chaos                                   # ten minutes, and a minute or two around them
    CHAOS_SECONDS=120 CHAOS_SEED=7 make chaos    # the same blows in the same order

The real `rag-app serve`, but that nobody is told to wait (tests/integration/unlimited.py), over the private PostgreSQL
of a home of its own. Clients ask one thing after the other (those of tests/soak.py), while `rag-app ingest` reads a
folder that changes before each run, and a client puts documents of another organization in and takes some out, by jobs
over HTTP. Then one of these gets a `kill -9`: the server, one of its workers, the worker that does the jobs, the ingest,
the postmaster of PostgreSQL, one connection's process of it (PostgreSQL then ends all others). The next blow comes when the
server has answered five searches in a row on new connections. A server that has ended, or has not answered for
PATIENCE seconds, is started again, as an operator's supervisor would; that is counted.

It fails on

- an error outside the windows: a window is the time from a blow to GRACE seconds after the server answers again;
- in a window, an error that the blow does not explain: a killed PostgreSQL makes statuses that name the database, a killed
  server or worker breaks connections, a killed ingest touches no request;
- an answer that shows another organization's text;
- a PostgreSQL that takes more than RECOVERY seconds to serve again, or needs the server restarted;
- an ingest that fails outside the windows, and a last one that does not succeed; a job that does not end well;
- an end state that is not the undisturbed one. The folder's last state is read into an empty home, the documents that
  were put in are put in there, once, and both homes must
  have the same sources, chunks, statistics of terms and results of searches.

All processes that it starts have ended when it ends. The report goes to stdout and .bench/chaos.json.
"""

import asyncio
import json
import os
import random
import re
import secrets
import shutil
import signal
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
from typing import Any, TypeVar
from uuid import NAMESPACE_DNS, UUID, uuid5

import asyncpg
import httpx

from bench.figures import Bound, Table, machine, percentile
from bench.progress import say
from rag_app.access.roles import Role
from rag_app.application import Application, open_application
from rag_app.database.private import private_postgres
from rag_app.database.urls import DatabaseUrls, database_urls
from rag_app.documents.metadata import Target
from rag_app.documents.uploads import Upload
from rag_app.domain import Mode, Question, Scope, source_id
from rag_app.settings import Settings
from rag_app.stores.words import CHUNK
from rag_app.surfaces.lexybrain.quotas import PlanDirectory
from tests.conftest import free_port
from tests.integration.conftest import INDEX
from tests.integration.lexybrain import models_file
from tests.integration.service import bearer, configured
from tests.soak import THINGS, Asked, User, asking, mark, scripted_model, workers

T = TypeVar("T")

ROOT = Path(__file__).parents[1]
REPORT = ROOT / ".bench" / "chaos.json"
BLOWS = ("postgres", "server", "worker", "jobs", "ingest", "connection")
WORKERS = 2
GRACE = 5.0
"""Seconds after the server answers again in which a request may still fail: it began before, or got a dead connection."""
PATIENCE = 60.0
"""Seconds without an answer after which a supervisor restarts the server."""
RECOVERY = 5.0
"""Seconds that a killed PostgreSQL may take to serve again."""
QUIET = (1.0, 4.0)
"""Seconds of undisturbed work between a window's end and the next blow."""
COLOURS = ("amber", "cobalt")
FILES, RECORDS = 6, 180
AT_ONCE = 60
"""Documents of a job."""


# --- what is read in


@dataclass(slots=True)
class Corpus:
    """The folder that is ingested again and again: some records change, some go, some come before each time."""

    folder: Path
    chance: random.Random
    records: dict[int, str] = field(default_factory=dict)
    last: int = 0

    def change(self) -> None:
        for number in self.chance.sample(sorted(self.records), len(self.records) // 10):
            del self.records[number]
        for number in self.chance.sample(sorted(self.records), len(self.records) // 5):
            self.records[number] = self.write_text(number)
        while len(self.records) < RECORDS:
            self.last += 1
            self.records[self.last] = self.write_text(self.last)
        for n in range(FILES):
            lines = [{"id": f"r{k}", "text": text} for k, text in self.records.items() if k % FILES == n]
            (self.folder / f"part-{n}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")

    def write_text(self, number: int) -> str:
        thing, price = self.chance.choice(THINGS), self.chance.randrange(10**6)
        told = [f"Record {number}: the {mark(COLOURS[0])} {thing} was sold for {price} euros."]
        told += [f"It was seen in room {self.chance.randrange(10**4)}." for _ in range(self.chance.randrange(4))]
        return " ".join(told)


def things(colour: str) -> str:
    """What an organization has from the beginning, as JSON lines."""
    texts = [
        f"The {mark(colour)} {thing} costs {n + 3} euros a year. It is kept in room {n}."
        for n, thing in enumerate(THINGS)
    ]
    return "".join(json.dumps({"id": thing, "text": text}) + "\n" for thing, text in zip(THINGS, texts, strict=True))


async def begin(application: Application, folder: Path) -> dict[str, UUID]:
    """Both organizations and their own texts; their ids, from which those of sources and chunks follow: one in any home."""
    made = {}
    for colour in COLOURS:
        organization = await application.people.create_organization(colour, colour.title())
        made[colour] = uuid5(NAMESPACE_DNS, colour)
        async with superuser(application) as server:
            await server.execute("UPDATE organizations SET id = $1 WHERE id = $2", made[colour], organization.id)
        file = folder / f"{colour}.jsonl"
        file.write_text(things(colour), "utf-8")
        ingestor = await application.ingestor(application.indexes[INDEX], Target(made[colour]))
        assert not (await ingestor.ingest([file], base=folder)).failed
    return made


@asynccontextmanager
async def superuser(application: Application) -> AsyncIterator[asyncpg.Connection]:
    """A connection to the home's PostgreSQL that sees everything."""
    password = (application.settings.database.home / "postgres/cluster/passwords").read_text().split()[0]
    url = httpx.URL(application.urls.app)
    server = await asyncpg.connect(
        host=url.host, port=url.port, user="postgres", password=password, database=url.path.strip("/")
    )
    try:
        yield server
    finally:
        await server.close()


async def people(application: Application, clients: int, folder: Path) -> list[User]:
    organizations = await begin(application, folder)
    questions = [f"What does the {thing} cost a year?" for thing in THINGS]
    found = []
    await PlanDirectory(application.database).set("chaos", messages=-1)
    for n in range(clients):
        colour = COLOURS[n % len(COLOURS)]
        organization = await application.people.organization(colour)
        assert organization.id == organizations[colour]
        _, key = await application.keys.create(organization, f"chaos {n}")
        principal = await application.keys.principal(key)
        assert principal.user is not None
        await application.roles.grant(organization.id, principal.user, Role.WRITE, INDEX)
        user = await application.people.create_user(f"client {n}", plan="chaos")
        await application.people.add_member(organization, user)
        found.append(User(bearer(user.id), {"Authorization": f"Bearer {key}"}, mark(colour), questions))
    return found


def at_home(home: Path, work: Callable[[Application], Awaitable[T]]) -> T:
    """What an operator does on the machine, beside a server or without one."""

    async def opened(urls: DatabaseUrls) -> T:
        async with open_application(Settings(), urls) as application:
            return await work(application)

    with configured({"RAG_HOME": str(home)}), database_urls(Settings()) as urls, redirect_stdout(sys.stderr):
        return asyncio.run(opened(urls))


# --- what runs, and is killed


class Process:
    """A program in a session of its own, so that it and its children can be ended together."""

    def __init__(self, log: Path, *command: str) -> None:
        with log.open("a") as said:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, stdout=said, stderr=said, start_new_session=True
            )
        self.pid = self.popen.pid

    @property
    def ended(self) -> bool:
        return self.popen.poll() is not None

    def kill(self) -> None:
        """All of them, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait()

    def stop(self, seconds: float) -> bool:
        """Asks it to end; whether it did, by itself and well."""
        self.popen.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(seconds)
        well = self.popen.poll() == 0
        self.kill()
        return well


@dataclass(slots=True)
class Served:
    """`rag-app serve` under a supervisor."""

    port: int
    log: Path
    process: Process | None = None
    starts: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Also where it runs: what is left of it is ended first."""
        if self.process is not None:
            self.process.kill()
        options = ["--port", str(self.port), "--workers", str(WORKERS)]
        self.process = Process(self.log, "tests.integration.unlimited", "serve", *options)
        self.starts += 1

    async def supervise(self) -> None:
        """Starts it whenever it has ended, until this is cancelled."""
        while True:
            if self.process is None or self.process.ended:
                self.start()
            await asyncio.sleep(0.05)

    async def answers(self, user: User, patience: float) -> float | None:
        """When it answered the first of five searches in a row, each on a new connection; None if it did not."""
        deadline, first, row = time.monotonic() + patience, 0.0, 0
        while row < 5:
            if time.monotonic() > deadline:
                return None
            try:
                async with httpx.AsyncClient(base_url=self.url, timeout=10, trust_env=False) as http:
                    reply = await http.post("/api/rag/search", json={"query_text": THINGS[row]}, headers=user.headers)
                well = reply.status_code == 200 and bool(reply.json()["results"])
            except httpx.HTTPError:
                well = False
            if not well:
                row = 0
                await asyncio.sleep(0.05)
                continue
            first = first if row else time.monotonic()
            row += 1
        return first


@dataclass(slots=True)
class Ingest:
    """`rag-app ingest`, one run after the other, of a folder that changes before each."""

    corpus: Corpus
    log: Path
    process: Process | None = None
    runs: list[tuple[float, float, int]] = field(default_factory=list)
    """From when to when, and the exit status."""

    async def work(self, over: asyncio.Event) -> None:
        while not over.is_set():
            self.corpus.change()
            await self.once()

    async def once(self) -> int:
        began = time.monotonic()
        base = str(self.corpus.folder)
        self.process = Process(
            self.log, "rag_app", "ingest", base, "--base", base, "--index", INDEX, "--org", COLOURS[0]
        )
        status = await asyncio.to_thread(self.process.popen.wait)
        self.runs.append((began, time.monotonic(), status))
        return status


@dataclass(slots=True)
class Loading:
    """A client that puts documents in over HTTP, job after job; what it got no answer to, it sends again."""

    chance: random.Random
    http: httpx.AsyncClient
    texts: dict[str, str] = field(default_factory=dict)
    last: int = 0
    jobs: int = 0

    async def work(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self.once()

    async def once(self) -> None:
        gone = self.chance.sample(sorted(self.texts), len(self.texts) // 10)
        for name in gone:
            del self.texts[name]
            source = source_id(uuid5(NAMESPACE_DNS, COLOURS[1]), INDEX, name)
            await self._call("DELETE", f"/api/v1/sources/{source}", 200, 404)
        changed = self.chance.sample(sorted(self.texts), len(self.texts) // 5)
        new = [f"sent-{self.last + n}" for n in range(RECORDS - len(self.texts))]
        self.last += len(new)
        self.texts |= {name: self._write_text(name) for name in (*changed, *new)}
        documents = [{"external_id": name, "text": text} for name, text in self.texts.items()]
        for first in range(0, len(documents), AT_ONCE):
            await self._put_in(documents[first : first + AT_ONCE])

    def _write_text(self, name: str) -> str:
        thing, price = self.chance.choice(THINGS), self.chance.randrange(10**6)
        return f"Document {name}: the {mark(COLOURS[1])} {thing} was bought for {price} euros."

    async def _put_in(self, documents: Sequence[dict[str, str]]) -> None:
        headers = {"Prefer": "respond-async", "Idempotency-Key": f"load-{self.chance.getrandbits(64)}"}
        body = {"index": INDEX, "documents": documents}
        job = (await self._call("POST", "/api/v1/sources", 202, json=body, headers=headers))["job"]
        deadline = time.monotonic() + 20 * PATIENCE
        while (state := (await self._call("GET", f"/api/v1/jobs/{job}", 200))["state"]) != "done":
            if time.monotonic() > deadline:
                raise RuntimeError(f"job {job} is {state} after {20 * PATIENCE:.0f} seconds")
            if state == "failed":  # given up after several blows to the same slice
                await self._call("POST", f"/api/v1/jobs/{job}/retry", 200, 202, 400)
            await asyncio.sleep(0.2)
        self.jobs += 1

    async def _call(self, method: str, path: str, *well: int, **options: Any) -> Any:
        deadline = time.monotonic() + 10 * PATIENCE
        while True:
            try:
                reply = await self.http.request(method, path, **options)
            except httpx.HTTPError as error:
                told = repr(error)
            else:
                if reply.status_code in well:
                    return reply.json()
                told = f"{reply.status_code} {reply.text}"
                if reply.status_code < 500 and reply.status_code != 409:  # 409: the same request is under way
                    raise RuntimeError(f"{method} {path}: {told}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{method} {path}: {told}, for {10 * PATIENCE:.0f} seconds")
            await asyncio.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Blow:
    """What was killed, when, when the server served again, and how often the supervisor had to start it."""

    what: str
    at: float
    back: float
    restarts: int

    def touches(self, began: float, ended: float) -> bool:
        return self.at <= ended and began <= self.back + GRACE

    def explains(self, error: str) -> bool:
        if self.what in ("postgres", "connection") and re.search("(?i)database|service_unavailable", error):
            return True
        # of a connection that breaks: httpx' words for it, or a stream without an end
        broken = re.search(r"^\w*(Error|Timeout|Disconnected): |^Wrong: the stream ends with", error)
        return (self.what in ("server", "worker") or self.restarts > 0) and broken is not None


def postmaster(home: Path) -> int:
    return int((home / "postgres" / "cluster" / "data" / "postmaster.pid").read_text().split()[0])


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def job_worker(server: int) -> int | None:
    """The process that does the jobs; a thread of the server has started it."""
    for each in Path(f"/proc/{server}/task").glob("*/children"):
        for pid in each.read_text().split():
            with suppress(FileNotFoundError):
                if b"--beside" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
    return None


def victim(what: str, chance: random.Random, served: Served, ingest: Ingest, home: Path) -> int | None:
    """The process to kill; None where there is none just now."""
    assert served.process
    match what:
        case "server":
            return served.process.pid
        case "worker":
            return chance.choice(workers(served.process.pid) or [served.process.pid])
        case "jobs":
            return job_worker(served.process.pid)
        case "ingest":
            return ingest.process.pid if ingest.process and not ingest.process.ended else None
        case "postgres":
            return postmaster(home)
        case _:
            clients = [
                pid for pid in children(postmaster(home)) if "rag_app rag" in Path(f"/proc/{pid}/cmdline").read_text()
            ]
            return chance.choice(clients) if clients else None


async def strike(what: str, pid: int, served: Served, user: User) -> Blow:
    starts, at = served.starts, time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while (back := await served.answers(user, PATIENCE)) is None:
        if time.monotonic() - at > 10 * PATIENCE:
            raise RuntimeError(f"not serving {10 * PATIENCE:.0f} seconds after {what} was killed; see {served.log}")
        say(f"no answer {PATIENCE:.0f} s after {what} was killed: the server is started again")
        served.start()
    return Blow(what, at, back, served.starts - starts)


# --- the end state


async def end_state(application: Application) -> dict[str, list[Any]]:
    """All that must be the same. Not the order of writing, in which chunks are numbered, nor times."""
    generation = await application.backends.active(application.indexes[INDEX])
    table = generation.table_prefix
    statements = {
        "sources": "SELECT id, org_id, external_id, title, source_type, lang, version, metadata::text, content::text,"
                   f" deleted_at IS NULL FROM sources WHERE index_name = '{INDEX}'",
        "builds": "SELECT source_id, org_id, version, chunks, state FROM source_builds"
                  f" WHERE generation_id = {generation.id}",
        "chunks": f"SELECT id, org_id, source_id, text, metadata::text, length, cardinality(terms) FROM {table}_chunks",
        "vectors": f"SELECT c.id, v.org_id FROM {table}_vectors v LEFT JOIN {table}_chunks c USING (no)",
        "signs": f"SELECT c.id, s.org_id FROM {table}_signs s LEFT JOIN {table}_chunks c USING (no)",
        "postings": f"SELECT c.id, w.org_id, w.term, posting & {2**CHUNK - 1} FROM {table}_words w"
                    f" CROSS JOIN LATERAL unnest(w.postings) posting LEFT JOIN {table}_chunks c ON c.no = posting >> {CHUNK}",
        "sizes": f"SELECT org_id, chunks, shared, length FROM {table}_sizes WHERE chunks > 0",
        "totals": f"SELECT chunks FROM {table}_totals",
        "generations": f"SELECT count(*) FROM generations WHERE index_name = '{INDEX}' AND state <> 'dropped'",
    }  # fmt: skip
    async with superuser(application) as server:
        state: dict[str, list[Any]] = {
            name: [list(row) for row in await server.fetch(statement)] for name, statement in statements.items()
        }
    state["searches"] = await searches(application)
    return state


async def searches(application: Application) -> list[Any]:
    """What is found, in order: the sources, the places in them, the scores."""
    found = []
    for colour in COLOURS:
        scope = Scope(frozenset({(await application.people.organization(colour)).id}))
        sources = application.ledger.list(scope, INDEX, operator=True)
        names = {source.id: source.external_id async for source in sources}
        for text in (f"Which {thing} was sold for {n}00 euros?" for n, thing in enumerate(THINGS)):
            for mode in Mode:
                hits = await application.pipeline.search(INDEX, Question(text, top_k=10, mode=mode), scope)
                told = [(names[hit.source_id], hit.position, round(hit.score, 3)) for hit in hits]
                found.append([colour, text, mode.value, *told])
    return found


def differences(disturbed: dict[str, list[Any]], undisturbed: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Of each part: what only one of them has."""
    found = {}
    for name in undisturbed:
        ours, theirs = (Counter(map(repr, state[name])) for state in (disturbed, undisturbed))
        found[name] = [f"only after the blows: {row}" for row in (ours - theirs).elements()]
        found[name] += [f"only undisturbed: {row}" for row in (theirs - ours).elements()]
    return found


# --- the run


@dataclass(slots=True)
class Run:
    seconds: float = 0.0
    asked: list[Asked] = field(default_factory=list)
    blows: list[Blow] = field(default_factory=list)
    ingests: list[tuple[float, float, int]] = field(default_factory=list)
    last_ingest: int = -1
    jobs: int = 0
    stopped_well: bool = False
    state: dict[str, list[Any]] = field(default_factory=dict)
    differing: dict[str, list[str]] = field(default_factory=dict)

    def touching(self, began: float, ended: float) -> list[Blow]:
        return [blow for blow in self.blows if blow.what != "ingest" and blow.touches(began, ended)]

    def failures(self) -> tuple[list[Asked], list[Asked]]:
        """Requests that failed outside the windows, and those in them for another reason than the blow."""
        failed = [(each, self.touching(each.began, each.ended)) for each in self.asked if each.error]
        outside = [each for each, blows in failed if not blows]
        unexplained = [
            each for each, blows in failed if blows and not any(blow.explains(str(each.error)) for blow in blows)
        ]
        return outside, unexplained

    def failed_ingests(self) -> int:
        """Those that nobody killed, and that no blow explains."""
        return sum(
            1 for began, ended, status in self.ingests
            if status not in (0, -signal.SIGKILL) and not self.touching(began, ended)
        )  # fmt: skip

    def bounds(self) -> list[Bound]:
        outside, unexplained = self.failures()
        database = [blow for blow in self.blows if blow.what in ("postgres", "connection")]
        needless = [blow for blow in self.blows if blow.what != "server" and blow.restarts]
        return [
            Bound("errors outside the windows", "", len(outside), 0),
            Bound("errors in them that the blow does not explain", "", len(unexplained), 0),
            Bound("ingests that failed outside the windows", "", self.failed_ingests(), 0),
            Bound("exit status of the last ingest", "", self.last_ingest, 0),
            Bound("seconds until a killed PostgreSQL serves again", "", max((blow.back - blow.at for blow in database), default=0), RECOVERY),
            Bound("blows after which a supervisor was needed, the server's own not counted", "", len(needless), 0),
            Bound("the server ends well when it is told to", "", int(self.stopped_well), 1, at_most=False),
            *[Bound(f"differences from the undisturbed state: {name}", "", len(rows), 0) for name, rows in self.differing.items()],
        ]  # fmt: skip

    def tables(self) -> list[Table]:
        rows: list[tuple[str | float, ...]] = []
        for what in BLOWS:
            blows = [blow for blow in self.blows if blow.what == what]
            times = [blow.back - blow.at for blow in blows] or [0.0]
            failed = sum(
                1 for each in self.asked if each.error and any(blow.touches(each.began, each.ended) for blow in blows)
            )
            restarts = sum(blow.restarts for blow in blows)
            rows.append((what, str(len(blows)), percentile(times, 0.5), max(times), str(failed), str(restarts)))
        failed = sum(1 for each in self.asked if each.error)
        killed = sum(1 for _, _, status in self.ingests if status == -signal.SIGKILL)
        said = (
            f"{len(self.asked)} requests in {self.seconds:.0f} s, {failed} of them failed. {len(self.ingests)} runs of "
            f"ingest, {killed} of them killed; {self.jobs} jobs over HTTP. In the end: "
            + ", ".join(
                f"{len(self.state.get(name, []))} {name}" for name in ("sources", "chunks", "postings", "searches")
            )
            + ", compared with those of an undisturbed ingest."
        )
        head = ("killed", "times", "s to serve again, p50", "max", "requests that failed", "server started again")
        return [Table("Blows", said, head, rows)]


async def disturb(
    run: Run,
    chance: random.Random,
    seconds: float,
    served: Served,
    ingest: Ingest,
    load: Loading,
    users: Sequence[User],
    home: Path,
) -> None:
    """Blows under load, for that many seconds; then everything ends what it began."""
    supervising = asyncio.create_task(served.supervise())
    if await served.answers(users[0], 10 * PATIENCE) is None:
        raise RuntimeError(f"it does not serve; see {served.log}")
    over, began = asyncio.Event(), time.monotonic()
    reading, sending = asyncio.create_task(ingest.work(over)), asyncio.create_task(load.work(over))
    try:
        async with asking(served.url, users, run.asked):
            while time.monotonic() - began < seconds:
                for what in chance.sample(BLOWS, len(BLOWS)):
                    await asyncio.sleep(chance.uniform(*QUIET))
                    if time.monotonic() - began > seconds or reading.done() or sending.done():
                        break
                    if (pid := victim(what, chance, served, ingest, home)) is None:
                        continue
                    run.blows.append(await strike(what, pid, served, users[0]))
                    blow = run.blows[-1]
                    say(
                        f"{blow.at - began:5.0f} s: {what} killed, served again after {blow.back - blow.at:.1f} s, {len(run.asked)} requests"
                    )
                    await asyncio.sleep(max(0.0, GRACE + blow.back - time.monotonic()))
                if reading.done() or sending.done():
                    break
    finally:
        over.set()
        try:
            await asyncio.gather(reading, sending)
        finally:
            supervising.cancel()
            await load.http.aclose()
    run.jobs = load.jobs
    run.seconds, run.ingests = time.monotonic() - began, list(ingest.runs)
    run.last_ingest = await ingest.once()


@contextmanager
def new_home(name: str) -> Iterator[Path]:
    """A folder for a home; in the end its PostgreSQL is stopped, and it is removed."""
    home = Path(tempfile.mkdtemp(prefix=f"rag-{name}-"))
    home.chmod(0o755)
    try:
        yield home
    finally:
        if (cluster := home / "postgres" / "cluster").exists():
            with private_postgres(home / "postgres"):
                pass  # whoever leaves last stops it; those that used it were killed
            shutil.rmtree(cluster.resolve(), ignore_errors=True)  # may lie outside
        shutil.rmtree(home, ignore_errors=True)


def kill_all(*owners: Served | Ingest) -> None:
    for owner in owners:
        if owner.process is not None:
            owner.process.kill()


def end(*_: object) -> None:
    raise SystemExit("told to end")


def main() -> int:
    seconds, clients = float(os.environ.get("CHAOS_SECONDS", "600")), int(os.environ.get("CHAOS_CLIENTS", "8"))
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
    signal.signal(signal.SIGTERM, end)
    say(f"CHAOS_SEED={seed} CHAOS_SECONDS={seconds:.0f} CHAOS_CLIENTS={clients}")
    conditions = {
        "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "seed": str(seed),
        "clients": str(clients),
        **machine(),
    }
    REPORT.parent.mkdir(exist_ok=True)
    log, run = REPORT.with_suffix(".log"), Run()
    log.unlink(missing_ok=True)
    with ExitStack() as stack:
        home, control = stack.enter_context(new_home("chaos")), stack.enter_context(new_home("undisturbed"))
        folder = home / "folder"
        folder.mkdir()
        model = stack.enter_context(scripted_model())
        patch = stack.enter_context(
            configured({
                "RAG_HOME": str(home), "RAG_VECTOR_STORE": "postgres", "RAG_LOG_LEVEL": "info", "RAG_SERVE_WORKER": "true",
                "RAG_MODELS_FILE": str(models_file(home, model)), "TEST_MODEL_KEY": "key",
            })
        )  # fmt: skip
        for name in ("RAG_DATABASE_URL", "RAG_DATABASE_OWNER_URL"):
            patch.delenv(name, raising=False)
        users = at_home(home, lambda application: people(application, clients, home))
        served, ingest = Served(free_port(), log), Ingest(Corpus(folder, random.Random(f"corpus {seed}")), log)
        stack.callback(kill_all, served, ingest)
        http = httpx.AsyncClient(base_url=served.url, headers=users[1].key, timeout=30, trust_env=False)
        load = Loading(random.Random(f"load {seed}"), http)
        asyncio.run(disturb(run, random.Random(seed), seconds, served, ingest, load, users, home))
        assert served.process
        run.stopped_well = served.process.stop(30)
        run.state = at_home(home, end_state)
        run.differing = differences(
            run.state, at_home(control, lambda application: undisturbed(application, folder, load.texts, control))
        )
    bounds = run.bounds()
    report(run, bounds, {**conditions, "seconds": f"{run.seconds:.0f}"})
    return 0 if all(bound.held for bound in bounds) else 1


async def undisturbed(
    application: Application, folder: Path, texts: dict[str, str], home: Path
) -> dict[str, list[Any]]:
    """The state of a home that was given the same, once."""
    organizations = await begin(application, home)
    ingestor = await application.ingestor(application.indexes[INDEX], Target(organizations[COLOURS[0]]))
    assert not (await ingestor.ingest([folder], base=folder)).failed
    sent = [Upload(external_id=name, text=text) for name, text in texts.items()]
    other = organizations[COLOURS[1]]
    received = await application.uploads.ingest(
        application.indexes[INDEX], Target(other), sent, Scope(frozenset({other}))
    )
    assert not [each for each in received if each.problems]
    return await end_state(application)


def report(run: Run, bounds: Sequence[Bound], conditions: dict[str, str]) -> None:
    outside, unexplained = run.failures()
    errors = {
        name: Counter(f"{each.kind}: {each.error}" for each in part).most_common(20)
        for name, part in (("outside the windows", outside), ("unexplained", unexplained))
    }
    shown: list[tuple[str | float, ...]] = [
        (
            each.what,
            each.measured,
            f"{'<=' if each.at_most else '>='} {each.limit:g}",
            "held" if each.held else "**missed**",
        )
        for each in bounds
    ]
    tables = [*run.tables(), Table("Bounds", "", ("what", "measured", "bound", ""), shown)]
    everything = {
        "conditions": conditions, "bounds": [{**asdict(each), "held": each.held} for each in bounds],
        "tables": [asdict(each) for each in tables], "blows": [asdict(each) for each in run.blows], "errors": errors,
        "differences": {name: rows[:20] for name, rows in run.differing.items()},
    }  # fmt: skip
    REPORT.write_text(json.dumps(everything, indent=1) + "\n", "utf-8")
    print("\n".join(each.markdown() for each in tables))
    for name, part in errors.items():
        for error, times in part:
            say(f"{name}: {times} x {error}")
    for name, rows in run.differing.items():
        for row in rows[:3]:
            say(f"{name}: {row[:300]}")
    say(f"written to {REPORT}; again with CHAOS_SEED={conditions['seed']}")


if __name__ == "__main__":
    sys.exit(main())
