"""Where the time of one search goes: its parts on the clock, and Python's share of it by package."""

import cProfile
import pstats
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from bench.corpus import ALL, SHARES, Corpus
from bench.figures import Report, Table, Timing
from bench.ours import INDEX, Ours
from bench.progress import track
from rag_app.domain.answer import Mode, Question
from rag_app.retrieval.embedding import MiniLM
from rag_app.retrieval.store import Search

TENANT = "1 %"
_PACKAGE = re.compile(r"site-packages/([^/.]+)|lib/python[\d.]+/(?!site-packages)([^/.]+)|(rag_app)/")


async def measure(report: Report, corpus: Corpus, ours: Ours, questions: int) -> None:
    """Everything warm and the question's embedding cached, but for the line that embeds."""
    application, scope = ours.application, ours.scope(TENANT)
    spec = application.indexes[INDEX]
    store = await application.backends.open(spec, scope)
    user = await application.people.create_user("bench parts")
    organization = await application.people.organization(ours.organizations[list(SHARES).index(TENANT)])
    await application.people.add_member(organization, user)
    model = MiniLM(cache_size=0)
    texts = [corpus.questions[n % len(corpus.questions)] for n in range(questions)]
    vectors = [corpus.question_vectors[n % len(corpus.questions)].tolist() for n in range(questions)]
    ids = [candidate.id for candidate in await store.candidates(Search(vectors[0], "", (), Mode.DENSE, 8))]
    asked: dict[str, Callable[[int], Awaitable[object]]] = {
        "the user's organizations": lambda n: application.people.principal(str(user.id)),
        "the rate limit": lambda n: application.limiter.hit("bench parts", 60),
        "embedding the question": lambda n: model.aget_query_embedding(texts[n]),
        "the active generation": lambda n: application.backends.open(spec, scope),
        "candidates, dense": lambda n: store.candidates(Search(vectors[n], texts[n], (), Mode.DENSE, 8)),
        "candidates, text": lambda n: store.candidates(Search(vectors[n], texts[n], (), Mode.TEXT, 8)),
        "candidates, hybrid": lambda n: store.candidates(Search(vectors[n], texts[n], (), Mode.HYBRID, 100)),
        "texts of eight": lambda n: store.fetch(ids),
        "a whole search, hybrid, embedding cached": lambda n: application.pipeline.search(
            INDEX, Question(texts[n]), scope
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in asked}
    for text in texts:  # into the cache of embeddings
        await application.pipeline.search(INDEX, Question(text), scope)
    for round_ in track(range(-3, questions), "parts of a search"):
        for name, part in asked.items():
            started = time.perf_counter()
            await part(max(round_, 0))
            if round_ >= 0:
                times[name].append(1000 * (time.perf_counter() - started))
    note = f"p50 / p95 in ms, in one process, organization with {TENANT} of {corpus.size} chunks."
    rows: list[tuple[str | float, ...]] = [(name, str(Timing(tuple(each)))) for name, each in times.items()]
    report.tables.append(Table("Parts of a search", note, ("part", "p50 / p95"), rows))

    profile = cProfile.Profile()
    profile.enable()
    for text in texts:
        await application.pipeline.search(INDEX, Question(text), scope)
    profile.disable()
    shares = by_package(pstats.Stats(profile))
    report.tables.append(
        Table(
            "Python's part of a search, by package",
            "Own time under cProfile, which makes small functions look more expensive than they are; waiting for PostgreSQL "
            "is `select`.",
            ("package", "% of the time"),
            [(name, 100 * share) for name, share in shares.most_common(12)],
        )
    )


async def processor(report: Report, corpus: Corpus, ours: Ours, questions: int) -> None:
    """The processor time of a hybrid search whose question's embedding is cached, by organization."""
    application = ours.application
    ((backend,),) = await application.database.fetch("SELECT pg_backend_pid()")
    server = _parent(backend)
    texts = [corpus.questions[n % len(corpus.questions)] for n in range(questions)]
    rows: list[tuple[str | float, ...]] = []
    for tenant in track((*SHARES, ALL), "processor time"):
        for text in texts:  # into the cache of embeddings
            await application.pipeline.search(INDEX, Question(text, mode=Mode.HYBRID), ours.scope(tenant))
        before, own = _milliseconds_below(server), time.process_time()
        for text in texts:
            await application.pipeline.search(INDEX, Question(text, mode=Mode.HYBRID), ours.scope(tenant))
        spent, python = _milliseconds_below(server) - before, 1000 * (time.process_time() - own)
        rows.append((tenant, len(corpus.rows(tenant)), spent / questions, python / questions))
    note = "ms of processor time of a hybrid search, the question's embedding cached, in one process without HTTP."
    report.tables.append(
        Table("Processor time of a search", note, ("organization with", "chunks", "PostgreSQL", "Python"), rows)
    )


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _milliseconds_below(parent: int) -> float:
    """What the child processes that there are have spent of the processor."""
    spent = 0.0
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # one that has just ended
            spent += int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) / 1e6
    return spent


def by_package(stats: pstats.Stats) -> Counter[str]:
    """The share of each package in the functions' own time; built-in functions go under what is called."""
    total: Counter[str] = Counter()
    for (file, _, function), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        total[package_of(file, function)] += own
    everything = sum(total.values()) or 1.0
    return Counter({name: own / everything for name, own in total.items()})


def package_of(file: str, function: str) -> str:
    """The package of a function in a profile.

    >>> package_of("/x/site-packages/llama_index/core/schema.py", "f"), package_of("~", "<method 'poll' of 'select.epoll'>")
    ('llama_index', 'select')
    """
    if file == "~":
        if "poll" in function:
            return "select"
        return "sending to PostgreSQL" if "'send' of '_socket" in function else "built-in functions"
    found = _PACKAGE.search(Path(file).as_posix())
    return next((name for name in found.groups() if name), file) if found else Path(file).parent.name
