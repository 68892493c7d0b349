"""Asks the questions over records and tells how many are answered right: `python -m tests.records [--held-out | --aside] [--all | --totals] [PART ...]`.

They are asked over the real HTTP routes, of an application of its own with the built-in answerer, over the samples as they
are written and the foreign tables. `--all` prints every answer, `--totals` none, else those that are not right; PART: only ids that
hold it.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rag_app.answering.capabilities import capability_named, register
from rag_app.application import Application, open_application
from rag_app.console.answers import ask_threads
from rag_app.console.demo import load_samples
from rag_app.database.urls import DatabaseUrls, database_urls
from rag_app.domain import InvalidInput
from rag_app.evaluation.answer_facts import Thread
from rag_app.retrieval.index import load_index
from rag_app.settings import Settings
from rag_app.surfaces.lexybrain.quotas import PlanDirectory
from rag_app.surfaces.library.rag import target_of
from tests.records.expected import FOLDER, FOREIGN, Row, lines, rows_of
from tests.records.scoring import Verdict, verdict
from tests.remembered import remember

NOBODY = date(2026, 11, 23)
"""The day on which questions are asked that are answered the same on every day."""


def questions(split: str, parts: list[str]) -> list[Row]:
    """The lines of `tuning`, `held_out` or `aside`, those of the foreign tables at the end."""
    rows = lines(f"{split}.jsonl") + [row for row in lines("foreign.jsonl") if row["split"] == split]
    rows.sort(key=lambda row: row["corpus"] in FOREIGN)
    return [row for row in rows if not parts or any(part in row["id"] for part in parts)]


async def load_foreign(application: Application, corpus: str, folder: Path) -> None:
    """A foreign table as JSON lines: its fields as the index declares them, and a text of its columns."""
    spec = application.indexes[corpus] = load_index(FOLDER / corpus)
    await application.build_missing()
    register(replace(capability_named("knowledge_answer"), name=corpus, index=corpus))
    records = []
    for row in rows_of(corpus, ""):
        told = {name: row[name] for name in ("date", *spec.fields) if row[name] is not None}
        text = ", ".join(f"{name} {value}" for name, value in told.items())
        title = row.get("name", row["date"])
        records.append(json.dumps({"id": row["key"], "title": title, "text": text, **told}))
    file = folder / f"{corpus}.jsonl"
    file.write_text("\n".join(records), "utf-8")
    target = await target_of(application, "aurora", None, None, None, {})
    ingestor = await application.ingestor(spec, target)
    await ingestor.ingest([file], base=folder)


@contextmanager
def deployment() -> Iterator[Path]:
    """A home of its own, in RAG_HOME; one that is named there already is used again."""
    if home := os.environ.get("RAG_HOME"):
        yield Path(home)
        return
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        os.environ["RAG_HOME"] = made
        yield Path(made)


async def add_people(application: Application, rows: list[Row]) -> None:
    """Whoever asks and is not among the people of the samples."""
    for name, slug in sorted({(row["user"], row["organization"]) for row in rows if row["user"]}):
        with suppress(InvalidInput):  # is there already
            await application.people.create_user(name)
        await application.people.add_member(
            await application.people.organization(slug), await application.people.user(name)
        )


async def ask(application: Application, row: Row) -> Any:
    today = date.fromisoformat(row["today"]) if row["today"] else NOBODY

    application.calendar.now = lambda: datetime.combine(today, time(12), UTC)
    thread = Thread.model_validate(
        {
            **{name: row[name] for name in ("id", "corpus", "kind", "language", "organization", "user", "site")},
            "turns": [{"text": text} for text in (*row.get("before", ()), row["question"])],
        }
    )
    return (await ask_threads(application, [thread], None, None, None, lambda _: None))[-1]


async def run(arguments: list[str], home: Path, settings: Settings, urls: DatabaseUrls) -> int:
    shown, silent = "--all" in arguments, "--totals" in arguments
    split = "held_out" if "--held-out" in arguments else "aside" if "--aside" in arguments else "tuning"
    rows = questions(split, [each for each in arguments if not each.startswith("--")])
    counts: Counter[tuple[str, Verdict]] = Counter()
    async with open_application(settings, urls) as application:
        await load_samples(application)
        await add_people(application, rows)
        await PlanDirectory(application.database).set("free", messages=1_000_000)
        for corpus in sorted({row["corpus"] for row in rows} & FOREIGN.keys()):
            await load_foreign(application, corpus, home)
        for row in rows:
            scored = await ask(application, row)
            found = verdict(row, scored.reply)
            table = row["corpus"] if row["corpus"] in FOREIGN else "own"
            counts[f"{table} {row['kind']}", found] += 1
            counts[f"{table} ALL", found] += 1
            if not silent and (shown or found is not Verdict.RIGHT):
                read = f"[{scored.reply.understood or 'from passages'}]"
                print(f"{found.upper():8} {row['id']} {row['question']}\n         {read} {scored.reply.text[:700]}")
    print(f"\n{'':24}" + "".join(f"{each:>9}" for each in Verdict))
    for kind in sorted({kind for kind, _ in counts}):
        print(f"{kind:24}" + "".join(f"{counts[kind, each]:9}" for each in Verdict))
    return 0


if __name__ == "__main__":
    with deployment() as folder:
        (vectors := folder / "vectors").mkdir(exist_ok=True)
        with remember(vectors):
            os.environ.setdefault("RAG_JWT_SECRET", "a secret of the records, long enough for HS256")
            settings = Settings()
            with database_urls(settings) as urls:
                sys.exit(asyncio.run(run(sys.argv[1:], folder, settings, urls)))
