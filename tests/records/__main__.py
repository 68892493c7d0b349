"""Asks the questions over records and tells how many are answered right: `python -m tests.records [--held-out] [--all] [PART ...]`.

They are asked over the real HTTP routes, of an application of its own with the built-in answerer, over the samples as they
are written and the foreign table. `--all` prints every answer, else those that are not right; PART: only ids that hold it.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

from rag_app.answering.capabilities import capability_named, register
from rag_app.application import Application, open_application
from rag_app.console.answers import ask_threads
from rag_app.console.demo import load_samples
from rag_app.database.urls import DatabaseUrls, database_urls
from rag_app.domain import InvalidInput
from rag_app.evaluation.answers import Thread
from rag_app.retrieval.index import load_index
from rag_app.settings import Settings
from rag_app.surfaces.library.rag import target_of
from tests.records.expected import FOLDER, WEATHER, Row, rows_of
from tests.records.scoring import Verdict, verdict
from tests.remembered import remember

NOBODY = date(2026, 11, 23)
"""The day on which questions are asked that are answered the same on every day."""


def questions(held_out: bool, parts: list[str]) -> list[Row]:
    own = FOLDER / ("held_out.jsonl" if held_out else "tuning.jsonl")
    split = "held_out" if held_out else "tuning"
    rows = [json.loads(line) for line in own.read_text("utf-8").splitlines()]
    foreign = [json.loads(line) for line in (FOLDER / "foreign.jsonl").read_text("utf-8").splitlines()]
    rows += [row for row in foreign if row["split"] == split]
    return [row for row in rows if not parts or any(part in row["id"] for part in parts)]


async def load_foreign(application: Application, folder: Path) -> None:
    """The foreign table as JSON lines: its fields as the index declares them, and a text of its columns."""
    spec = application.indexes[WEATHER]
    lines = []
    for row in rows_of(WEATHER, ""):
        told = {name: row[name] for name in ("date", *spec.fields)}
        text = ", ".join(f"{name} {value}" for name, value in told.items())
        lines.append(json.dumps({"id": row["key"], "title": row["date"], "text": text, **told}))
    (folder / "weather.jsonl").write_text("\n".join(lines), "utf-8")
    target = await target_of(application, "aurora", None, None, None, {})
    ingestor = await application.ingestor(spec, target)
    await ingestor.ingest([folder / "weather.jsonl"], base=folder)


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
            "turns": [{"text": row["question"]}],
        }
    )
    (scored,) = await ask_threads(application, [thread], None, None, None, lambda _: None)
    return scored


async def run(arguments: list[str], home: Path, settings: Settings, urls: DatabaseUrls) -> int:
    shown, held_out = "--all" in arguments, "--held-out" in arguments
    rows = questions(held_out, [each for each in arguments if not each.startswith("--")])
    weather = load_index(FOLDER / WEATHER)
    if not any(row["corpus"] == WEATHER for row in rows):
        weather = None  # type: ignore[assignment]
    counts: Counter[tuple[str, Verdict]] = Counter()
    async with open_application(settings, urls) as application:
        await load_samples(application)
        await add_people(application, rows)
        if weather is not None:
            application.indexes[WEATHER] = weather
            await application.build_missing()
            register(replace(capability_named("knowledge_answer"), name="foreign", index=WEATHER))
            await load_foreign(application, home)
        for row in rows:
            scored = await ask(application, row)
            found = verdict(row, scored.reply)
            table = "foreign" if row["corpus"] == WEATHER else "own"
            counts[f"{table} {row['kind']}", found] += 1
            counts[f"{table} ALL", found] += 1
            if shown or found is not Verdict.RIGHT:
                print(f"{found.upper():8} {row['id']} {row['question']}\n         {scored.reply.text[:700]}")
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
