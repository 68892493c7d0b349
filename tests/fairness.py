"""Two organizations upload at once, and both search: `make fairness`, which is no part of `make test`.

    make fairness                                     # 5,000 files each, 4 workers
    FAIRNESS_FILES=500 FAIRNESS_WORKERS=2 make fairness

The real `rag-app serve` over the private PostgreSQL of a home of its own, without limits of requests a minute, and
`rag-app worker` in processes of their own. Each organization sends its files in requests of 100, which become jobs,
while a client of each searches, for texts that it has not asked for before, ten times a second at most. Every file says
whose it is.

Then the CPU time of a chunk, of one worker and of two, in turn and each time in new organizations.
The tables go to stdout.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx

from bench.figures import Bound, Report, Table, machine, percentile
from bench.progress import say
from rag_app.access.roles import Role
from rag_app.application import Application
from tests.chaos import Process, Served, at_home, kill_all, new_home, superuser
from tests.conftest import free_port
from tests.integration.conftest import INDEX
from tests.integration.service import configured
from tests.soak import THINGS, mark, workers

FILES = int(os.environ.get("FAIRNESS_FILES", "5000"))
WORKERS = int(os.environ.get("FAIRNESS_WORKERS", "4"))
COSTED = int(os.environ.get("FAIRNESS_COSTED", "1000"))
"""Files of each of two organizations, whose CPU time is measured."""
WARMING = 300
A_REQUEST = 100
PAUSE = 0.1
"""Seconds between two searches of a client, so that the searches themselves do not fill the machine."""
AT_REST = 150
"""Searches of a client before the uploads and after them."""
SAMPLED = 1.0
BEGINS, SHARES = 0.1, (0.2, 0.4, 0.6, 0.8, 1.0)
"""From this share of its files on an organization's progress is compared: before, one turn is a large part of it."""
MOST_APART, MOST_SLOWER, MORE_MEMORY_MB, MOST_CPU = 0.2, 3.0, 40.0, 1.1
PAIRS = (("amber", "cobalt"), ("damson", "ebony"), ("fawn", "birchen"), ("green", "hazel"), ("indigo", "jade"))
WARMERS = ("khaki", "lilac", "maroon", "navy", "olive", "pink")
"""Whose first files give each worker a turn, so that all have loaded their model when memory is compared."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Sender:
    """An organization: its id, its key, and what its searches took."""

    colour: str
    id: UUID
    key: str
    asked: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds of each search, before, during and after."""
    errors: list[str] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@dataclass(frozen=True, slots=True)
class Sample:
    """At one moment: the files of each organization that are done, and the resident MB of each process by its name."""

    at: float
    done: Mapping[UUID, int]
    memory: Mapping[str, float]


@dataclass(slots=True)
class Run:
    senders: Sequence[Sender]
    samples: list[Sample] = field(default_factory=list)
    seconds: float = 0.0
    crossed: dict[str, int] = field(default_factory=dict)
    cpu: list[tuple[int, float, float, int]] = field(default_factory=list)
    """Of each measurement: workers, CPU seconds of the workers, of PostgreSQL, chunks."""


async def create_senders(application: Application, colours: Sequence[str]) -> list[Sender]:
    found = []
    for colour in colours:
        made = await application.people.create_organization(colour, colour.title())
        _, key = await application.keys.create(made, "fairness")
        principal = await application.keys.principal(key)
        assert principal.user is not None
        await application.roles.grant(made.id, principal.user, Role.WRITE, INDEX)
        found.append(Sender(colour, made.id, key))
    return found


def write_file(sender: Sender, number: int, chance: random.Random) -> str:
    said = [f"# Note {number} of {sender.colour}", f"The {mark(sender.colour)} {chance.choice(THINGS)} number {number}"
            f" was sold for {chance.randrange(10**6)} euros."]  # fmt: skip
    said += [
        f"A {chance.choice(THINGS)} stood beside a {chance.choice(THINGS)} in room {chance.randrange(10**4)}."
        for _ in range(chance.randrange(1, 5))
    ]
    return "\n\n".join([said[0], " ".join(said[1:])])


async def send_files(url: str, sender: Sender, first: int, count: int) -> None:
    """Upload the files as jobs, request after request."""
    chance = random.Random(f"{sender.colour} {first}")
    async with httpx.AsyncClient(base_url=url, headers=sender.headers, timeout=120, trust_env=False) as http:
        for start in range(first, first + count, A_REQUEST):
            numbers = range(start, min(start + A_REQUEST, first + count))
            files = [("file", (f"note-{n:05}.md", write_file(sender, n, chance).encode())) for n in numbers]
            reply = await http.post(
                "/api/v1/sources", data={"index": INDEX}, files=files, headers={"Prefer": "respond-async"}
            )
            if reply.status_code != 202:
                raise RuntimeError(f"{sender.colour}: {reply.status_code} {reply.text[:300]}")


async def search(http: httpx.AsyncClient, sender: Sender, part: str, chance: random.Random) -> None:
    """Ask for a text that is new, and note the time and anything of somebody else's."""
    query = f"Which {chance.choice(THINGS)} was sold for {chance.randrange(10**6)} euros?"
    began = time.perf_counter()
    try:
        reply = await http.post("/api/v1/retrieval/query", json={"query": query, "collection_name": INDEX})
    except httpx.HTTPError as error:
        sender.errors.append(f"{type(error).__name__}: {error}")
        return
    sender.asked.setdefault(part, []).append(1000 * (time.perf_counter() - began))
    if reply.status_code != 200 or not reply.json()["results"]:
        sender.errors.append(f"{reply.status_code}: {reply.text[:200]}")
    foreign = [each for pair in PAIRS for each in pair if each != sender.colour and mark(each) in reply.text]
    if foreign:
        sender.errors.append(f"texts of {', '.join(foreign)}")


async def search_often(url: str, sender: Sender, part: str, times: int | None, over: asyncio.Event) -> None:
    chance = random.Random(f"{sender.colour} {part}")
    async with httpx.AsyncClient(base_url=url, headers=sender.headers, timeout=60, trust_env=False) as http:
        while not over.is_set() and times != 0:
            await search(http, sender, part, chance)
            times = None if times is None else times - 1
            await asyncio.sleep(PAUSE)


async def search_at_rest(url: str, senders: Sequence[Sender], part: str) -> None:
    await asyncio.gather(*(search_often(url, each, part, AT_REST, asyncio.Event()) for each in senders))


# --- what is measured


def descendants(pid: int) -> Iterator[int]:
    """The process and all that it has started, which still run."""
    yield pid
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from descendants(int(child))


def resident(pid: int) -> float:
    """In MB, of the process and its children."""
    pages = 0
    for each in descendants(pid):
        with suppress(OSError):
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    """Of the process, its children that have ended and those that run."""
    ticks = 0
    for each in descendants(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS


async def files_done(server: asyncpg.Connection) -> dict[UUID, int]:
    rows = await server.fetch("SELECT org_id, sum(done + failed) AS done FROM jobs GROUP BY org_id")
    return {row["org_id"]: int(row["done"]) for row in rows}


async def chunks_written(server: asyncpg.Connection) -> int:
    count: int = await server.fetchval("SELECT coalesce(sum(chunks), 0) FROM source_builds WHERE state = 'ready'")
    return int(count)


async def until_done(server: asyncpg.Connection, wanted: Mapping[UUID, int]) -> None:
    while any(done < wanted[each] for each, done in (await _done_of(server, wanted)).items()):
        await asyncio.sleep(SAMPLED / 4)


async def _done_of(server: asyncpg.Connection, wanted: Mapping[UUID, int]) -> dict[UUID, int]:
    done = await files_done(server)
    return {each: done.get(each, 0) for each in wanted}


async def find_crossings(
    server: asyncpg.Connection, prefix: str, senders: Sequence[Sender], files: int
) -> dict[str, int]:
    """Everything that is not where it belongs; all figures should be 0."""
    found = {"files that failed": await server.fetchval("SELECT count(*) FROM job_files WHERE state <> 'done'")}
    for sender in senders:
        said, own = f"%{mark(sender.colour)}%", sender.id
        wrong = f"SELECT count(*) FROM {prefix}_chunks WHERE (org_id = $1) <> (text LIKE $2)"
        found[f"{sender.colour}: chunks at the wrong organization"] = await server.fetchval(wrong, own, said)
        count = await server.fetchval("SELECT count(*) FROM sources WHERE org_id = $1 AND deleted_at IS NULL", own)
        found[f"{sender.colour}: sources too many or too few"] = abs(count - files)
        orphans = (
            f"SELECT count(*) FROM {prefix}_chunks c JOIN sources s ON s.id = c.source_id WHERE c.org_id <> s.org_id"
        )
        found[f"{sender.colour}: chunks of another's source"] = await server.fetchval(orphans)
    return found


@asynccontextmanager
async def working(count: int, log: Path) -> AsyncIterator[dict[str, int]]:
    """So many `rag-app worker`, by name; it goes on when all have connected to the queue."""
    processes = [Process(log, "rag_app", "worker") for _ in range(count)]
    try:
        await asyncio.sleep(0)
        yield {f"worker {number}": process.pid for number, process in enumerate(processes, 1)}
        for process in processes:
            if process.ended:
                raise RuntimeError(f"a worker has ended; see {log}")
    finally:
        for process in processes:
            process.popen.send_signal(signal.SIGTERM)
        for process in processes:
            process.stop(20)


async def until_workers(server: asyncpg.Connection, count: int) -> None:
    """Wait until so many workers give signs of life."""
    since = "last_heartbeat > now() - interval '6 seconds'"
    while await server.fetchval(f"SELECT count(*) FROM procrastinate_workers WHERE {since}") < count:
        await asyncio.sleep(0.2)


# --- the run


async def be_fair(
    run: Run, warmers: Sequence[Sender], served: Served, server: asyncpg.Connection, prefix: str, log: Path
) -> None:
    """Both upload everything while both search."""
    senders, wanted = run.senders, {each.id: FILES for each in run.senders}
    async with working(WORKERS, log) as pids:
        await until_workers(server, WORKERS)
        first = [*senders, *warmers]
        await asyncio.gather(*(send_files(served.url, each, 0, A_REQUEST) for each in first))
        await until_done(server, {each.id: A_REQUEST for each in first})
        await search_at_rest(served.url, senders, "before")
        assert served.process is not None
        pids |= {f"server {n}": pid for n, pid in enumerate(workers(served.process.pid), 1)}
        over, began = asyncio.Event(), time.monotonic()
        async with asyncio.TaskGroup() as group:
            for each in senders:
                group.create_task(search_often(served.url, each, "during", None, over))
            sending = [
                group.create_task(send_files(served.url, each, A_REQUEST, FILES - A_REQUEST)) for each in senders
            ]
            said = 0.0
            while not over.is_set():
                memory = {name: resident(pid) for name, pid in pids.items()}
                sample = Sample(time.monotonic() - began, await _done_of(server, wanted), memory)
                run.samples.append(sample)
                if sample.at - said > 15:
                    said = sample.at
                    say(
                        f"{said:5.0f} s: {' '.join(map(str, sample.done.values()))} files, {sum(memory.values()):.0f} MB"
                    )
                if all(task.done() for task in sending) and min(sample.done.values()) >= FILES:
                    over.set()
                await asyncio.sleep(SAMPLED)
        run.seconds = time.monotonic() - began
        await search_at_rest(served.url, senders, "after")
    run.crossed = await find_crossings(server, prefix, senders, FILES)


async def cost(
    run: Run,
    count: int,
    senders: Sequence[Sender],
    served: Served,
    server: asyncpg.Connection,
    postgres: int,
    log: Path,
) -> None:
    """The CPU time of these organizations' files, of workers that have begun already."""
    async with working(count, log) as pids:
        await until_workers(server, count)
        await asyncio.gather(*(send_files(served.url, each, 0, WARMING) for each in senders))
        await until_done(server, {each.id: WARMING for each in senders})
        chunks, mine, theirs = await chunks_written(server), sum(map(cpu_seconds, pids.values())), cpu_seconds(postgres)
        await asyncio.gather(*(send_files(served.url, each, WARMING, COSTED) for each in senders))
        await until_done(server, {each.id: WARMING + COSTED for each in senders})
        mine, theirs = sum(map(cpu_seconds, pids.values())) - mine, cpu_seconds(postgres) - theirs
        run.cpu.append((count, mine, theirs, await chunks_written(server) - chunks))
    say(f"{count} workers: {mine:.1f} s of CPU, PostgreSQL {theirs:.1f} s, {run.cpu[-1][3]} chunks")


async def measure(run: Run, application: Application, served: Served, home: Path, log: Path) -> None:
    postgres = int((home / "postgres/cluster/data/postmaster.pid").read_text().split()[0])
    served.start()
    async with httpx.AsyncClient(base_url=served.url, timeout=10, trust_env=False) as http:
        while True:
            with suppress(httpx.TransportError):
                if (await http.get("/health/ready")).status_code == 200:
                    break
            await asyncio.sleep(0.2)
    async with superuser(application) as server:
        run.senders = await create_senders(application, PAIRS[0])
        prefix = (await application.backends.active(application.indexes[INDEX])).table_prefix
        warmers = await create_senders(application, WARMERS[: max(0, WORKERS - len(run.senders))])
        await be_fair(run, warmers, served, server, prefix, log)
        for count, colours in zip((1, 2, 2, 1), PAIRS[1:], strict=True):
            await cost(run, count, await create_senders(application, colours), served, server, postgres, log)


def shares_of(run: Run) -> list[tuple[Sample, list[float]]]:
    """Each sample, and the share of its files that each organization has done."""
    return [(sample, [sample.done[each.id] / FILES for each in run.senders]) for sample in run.samples]


def progress_table(run: Run) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for share in SHARES:
        sample, both = next((sample, both) for sample, both in shares_of(run) if max(both) >= share)
        done = [str(sample.done[each.id]) for each in run.senders]
        rows.append((f"{share:.0%}", sample.at, *done, 1 - min(both) / max(both), sum(sample.memory.values())))
    return Table(
        "Two organizations at once",
        f"{FILES} files each, {WORKERS} workers, {run.seconds:.0f} s: {2 * FILES / run.seconds:.0f} files a second together."
        " Rows: when the first of both has this share of its files done.",
        ("first is at", "s", *(each.colour for each in run.senders), "apart", "MB, all processes"),
        rows,
    )


def memory_table(run: Run) -> Table:
    first, last = memory_compared(run)
    rows: list[tuple[str | float, ...]] = [
        (name, mb, max(sample.memory[name] for sample in run.samples), last[name]) for name, mb in first.items()
    ]
    return Table("Memory, MB resident", "", ("process", f"at {SHARES[0]:.0%}", "most", "in the end"), rows)


def memory_compared(run: Run) -> tuple[Mapping[str, float], Mapping[str, float]]:
    begins = next(sample for sample, both in shares_of(run) if min(both) >= SHARES[0])
    return begins.memory, run.samples[-1].memory


def times_of(run: Run) -> dict[str, list[float]]:
    return {part: [ms for each in run.senders for ms in each.asked[part]] for part in ("before", "during", "after")}


def searches_table(run: Run) -> Table:
    rows: list[tuple[str | float, ...]] = [
        (part, str(len(ms)), percentile(ms, 0.5), percentile(ms, 0.95), max(ms)) for part, ms in times_of(run).items()
    ]
    return Table("Searches", "Milliseconds, of two clients.", ("", "searches", "p50", "p95", "max"), rows)


def cpu_table(run: Run) -> Table:
    rows: list[tuple[str | float, ...]] = [
        (str(count), str(chunks), *(1000 * each / chunks for each in (mine, theirs, mine + theirs)))
        for count, mine, theirs, chunks in run.cpu
    ]
    columns = ("workers", "chunks", "of the workers", "of PostgreSQL", "together")
    return Table("CPU time of a chunk", f"Milliseconds, {2 * COSTED} files each time.", columns, rows)


def bounds_of(run: Run) -> list[Bound]:
    shares = shares_of(run)
    compared = [both for _, both in shares if BEGINS <= min(both) < 1]
    apart = max((1 - min(both) / max(both) for both in compared), default=float("nan"))
    ends = [next(sample.at for sample, both in shares if both[n] >= 1) for n in range(len(run.senders))]
    first, last = memory_compared(run)
    times = {part: percentile(ms, 0.5) for part, ms in times_of(run).items()}
    two, one = (sum((mine + theirs) / chunks for n, mine, theirs, chunks in run.cpu if n == count) for count in (2, 1))
    errors = sum(len(each.errors) for each in run.senders)
    return [
        Bound("progress, the slower behind the faster", f"from {BEGINS:.0%} of the files on", apart, MOST_APART),
        Bound("end, the earlier before the later", "", 1 - min(ends) / max(ends), MOST_APART),
        Bound("searches meanwhile, p50", "at rest", times["during"] / min(times["before"], times["after"]), MOST_SLOWER),
        Bound("searches that failed or showed another's text", "", errors, 0),
        *[Bound(what, "", count, 0) for what, count in run.crossed.items()],
        Bound("MB that a process grew", f"since {SHARES[0]:.0%} of the files",
              max(last[name] - mb for name, mb in first.items()), MORE_MEMORY_MB),
        Bound("CPU of a chunk, two workers", "one worker", two / one, MOST_CPU),
    ]  # fmt: skip


def report_of(run: Run, conditions: Mapping[str, str]) -> Report:
    errors = [error for each in run.senders for error in each.errors]
    for error in sorted({*errors})[:10]:
        say(f"{errors.count(error)} x {error}")
    tables = [make(run) for make in (progress_table, memory_table, searches_table, cpu_table)]
    return Report(conditions, tables, bounds_of(run))


def main() -> int:
    conditions = {"files": f"{FILES} of each organization", "workers": str(WORKERS), **machine()}
    run = Run(())
    with ExitStack() as stack:
        home = stack.enter_context(new_home("fairness"))
        log = home / "log"
        patch = stack.enter_context(
            configured({
                "RAG_HOME": str(home), "RAG_VECTOR_STORE": "postgres", "RAG_LOG_LEVEL": "info", "RAG_SERVE_WORKER": "false",
            })
        )  # fmt: skip
        for name in ("RAG_DATABASE_URL", "RAG_DATABASE_OWNER_URL"):
            patch.delenv(name, raising=False)
        served = Served(free_port(), log)
        stack.callback(kill_all, served)
        try:
            at_home(home, lambda application: measure(run, application, served, home, log))
        except BaseException:
            sys.stderr.write(log.read_text()[-3000:] if log.exists() else "")
            raise
    report = report_of(run, conditions)
    print(report.markdown().replace("Written by `make bench`.", "Written by `make fairness`."))
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
