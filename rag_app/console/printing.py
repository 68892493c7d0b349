"""How hits, answers and summaries look on a terminal, and as JSON."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import Any
from uuid import UUID

from rag_app.access.keys import ApiKey
from rag_app.console.indexing import Holding, Moved, Outcome
from rag_app.documents.ingest import Progress, Summary
from rag_app.domain.answer import Answer, Hit
from rag_app.domain.errors import UnreadableDocument
from rag_app.domain.source import Source

_EXCERPT = 240  # characters of a hit's text
_NEAREST = 3  # sources named beside a refusal
_LINE = re.compile(r"line (\d+): ")


def print_json(value: Any) -> None:
    """One document on stdout."""
    print(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def day(seconds: float | None) -> str | None:
    """Epoch seconds as an ISO 8601 date, or date and time, in UTC.

    >>> day(0.0), day(3600.0)
    ('1970-01-01', '1970-01-01T01:00:00Z')
    """
    if seconds is None:
        return None
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d}" if seconds % 86400 == 0 else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def place(hit: Hit) -> str:
    """Title and section, then type, date and page, in one line."""
    below = (hit.section or "").removeprefix(hit.title).removeprefix(" > ")  # a section often begins with the title
    about = ", ".join(part for part in (hit.source_type, day(hit.date), f"p. {hit.page}" if hit.page else None) if part)
    return f"{hit.title}{' > ' + below if below else ''} ({about}), relevance {hit.relevance:.2f}"


def hit_json(hit: Hit) -> dict[str, Any]:
    return {
        "chunk_id": str(hit.chunk_id), "source_id": str(hit.source_id), "org_id": str(hit.org_id),
        "score": hit.relevance, "title": hit.title, "source_type": hit.source_type, "lang": hit.lang,
        "uri": hit.uri, "date": day(hit.date), "section": hit.section, "page": hit.page,
        "metadata": dict(hit.metadata), "text": hit.text,
    }  # fmt: skip


def hits_text(hits: tuple[Hit, ...]) -> str:
    """Two lines a hit, best first."""
    if not hits:
        return "Nothing found."
    return "\n".join(
        f"{rank:>3}. {place(hit)}\n     {shorten(hit.text, _EXCERPT, placeholder=' …')}"
        for rank, hit in enumerate(hits, 1)
    )


def answer_json(answer: Answer) -> dict[str, Any]:
    return {
        "answered": not answer.refused,
        "text": answer.text,
        "confidence": str(answer.confidence),
        "model": answer.model,
        "generated_at": answer.generated_at.isoformat(),
        "average_relevance": round(answer.average_relevance, 4),
        "citations": [{"number": c.number, "quote": c.quote, **hit_json(c.hit)} for c in answer.citations],
    }


def answer_text(answer: Answer) -> str:
    """The answer, then what it cites, each with the passage that supports it; a refusal, then the nearest sources."""
    lines = [answer.text, ""]
    if answer.refused:
        nearest = sorted(answer.citations, key=lambda citation: citation.hit.relevance, reverse=True)
        lines += [f"  - {place(citation.hit)}" for citation in nearest[:_NEAREST]]
        return "\n".join([*lines, f"  (no answer given{'; these came nearest' if nearest else ''})"])
    for citation in answer.citations:
        lines.append(f"  [Source {citation.number}] {place(citation.hit)}")
        if citation.quote:
            lines.append(f'      "{" ".join(citation.quote.split())}"')
    by = "sentences of the sources" if answer.model == "extractive" else f"written by {answer.model}"
    return "\n".join([*lines, f"  ({by}; confidence {answer.confidence})"])


def source_json(source: Source) -> dict[str, Any]:
    return {"id": str(source.id), **asdict(source), "date": day(source.date)}


def key_json(key: ApiKey) -> dict[str, Any]:
    moments = {"created": key.created_at, "last_used": key.last_used_at, "revoked": key.revoked_at}
    return {
        "id": str(key.id),
        "beginning": key.beginning,
        "name": key.name,
        "organization": key.organization.slug,
        "indexes": key.indexes,
        **{name: moment and moment.astimezone(UTC).isoformat(timespec="seconds") for name, moment in moments.items()},
    }


def key_text(key: ApiKey) -> str:
    """One line: how it begins, name, organization, indexes, and the days of its life."""
    revoked = f"revoked {_date(key.revoked_at)}" if key.revoked_at else "valid"
    indexes = "all indexes" if key.indexes is None else ",".join(key.indexes)
    parts = (
        f"{key.beginning}...", key.name, key.organization.slug, indexes,
        f"created {_date(key.created_at)}", f"last used {_date(key.last_used_at)}", revoked, str(key.id),
    )  # fmt: skip
    return "\t".join(parts)


def _date(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d}" if moment else "never"


def holding_json(holding: Holding) -> dict[str, Any]:
    each = holding.generation
    return {
        "index": each.index, "store": each.store, "generation": each.number, "state": str(each.state),
        "embedding_model": each.embedding_model, "dimension": each.dimension, "chunking": each.settings.get("chunking"),
        "sources": holding.sources, "chunks": holding.chunks,
        "created": each.created_at.astimezone(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def holding_text(holding: Holding) -> str:
    """One line: index, store, number, state, embedding model, chunking, what stands in it, and its day."""
    each = holding.generation
    cut = each.settings.get("chunking", {})
    parts = (
        each.index, each.store, str(each.number), str(each.state), f"{each.embedding_model} ({each.dimension})",
        f"{cut.get('size', '?')}/{cut.get('overlap', '?')} tokens", f"{holding.sources} sources",
        f"{holding.chunks} chunks", f"created {_date(each.created_at)}",
    )  # fmt: skip
    return "\t".join(parts)


def outcome_json(outcome: Outcome | Moved, slugs: Mapping[UUID, str]) -> dict[str, Any]:
    failed = [
        {"organization": slugs.get(each.source.org_id), "source": each.source.external_id, "reason": each.reason}
        for each in outcome.built.failed
    ]
    each = outcome.generation
    return {
        "index": each.index, "store": each.store, "generation": each.number, "state": str(each.state),
        "built": outcome.built.sources, "chunks": outcome.built.chunks, "lacking": outcome.lacking, "failed": failed,
    }  # fmt: skip


def moved_json(moved: Moved, slugs: Mapping[UUID, str]) -> dict[str, Any]:
    """As `outcome_json`, with both sides of each organization that has sources; checksums are 32 hexadecimal digits."""
    compared = [
        {
            "organization": slugs.get(each.org_id), "sources": each.sources, "differing": each.differing,
            "chunks": {moved.origin.store: each.original.chunks, moved.generation.store: each.copy.chunks},
            "checksums": {
                moved.origin.store: f"{each.original.checksum:032x}", moved.generation.store: f"{each.copy.checksum:032x}"
            },
            "embeddings_deviate_by": each.deviation,
        }
        for each in moved.compared if each.sources
    ]  # fmt: skip
    return {
        **outcome_json(moved, slugs), "moved_from": {"store": moved.origin.store, "generation": moved.origin.number},
        "differing": moved.differing, "compared": compared, "setting": moved.setting, "others": moved.others,
    }  # fmt: skip


def moved_text(moved: Moved, slugs: Mapping[UUID, str]) -> str:
    """What was copied and compared, in one line; then what could not be copied or differs; what to set, in the last one."""
    copy, origin, built = moved.generation, moved.origin, moved.built
    name, of = (
        f"generation {copy.number} of {copy.index} in {copy.store}",
        f"generation {origin.number} in {origin.store}",
    )
    copied = f"{built.sources} sources copied, {built.chunks} chunks written"
    again = f"`rag-app indexes move {copy.index} --to {copy.store}`"
    if built.failed:
        lines = [f"{name} is {copy.state}; {copied}; {len(built.failed)} could not be copied:"]
        lines += [f"  {slugs.get(one.source.org_id)}/{one.source.external_id}: {one.reason}" for one in built.failed]
        return "\n".join([*lines, f"nothing is switched; then again: {again}"])
    if moved.differing:
        lines = [f"{name} is not the same as {of}; {copied}; {moved.differing} sources differ:"]
        for each in moved.compared:
            if each.differing:
                lines.append(
                    f"  {slugs.get(each.org_id)}: {each.differing} of {each.sources} sources; chunks: "
                    f"{each.original.chunks} in {origin.store}, {each.copy.chunks} in {copy.store}"
                )
        return "\n".join([*lines, f"nothing is switched; {again} copies them anew"])
    chunks = sum(each.copy.chunks for each in moved.compared)
    lines = [f"{name} is the same as {of}: {chunks} chunks compared; {copied}"]
    if moved.setting is None:
        return "\n".join([*lines, f"the settings ask {copy.store} already"])
    if moved.others:
        lines.append(
            f"{moved.setting} is for every index; not in {copy.store} as they are now: {', '.join(moved.others)}"
        )
    return "\n".join([*lines, f"let it answer: set {moved.setting}; what is ingested until then, {again} brings over"])


def outcome_text(outcome: Outcome, slugs: Mapping[UUID, str]) -> str:
    """What was built, and what answers, in one line; then each failure with its reason, and what is still to be done."""
    each, built = outcome.generation, outcome.built
    name = f"generation {each.number} of {each.index} in {each.store}"
    lines = [f"{name} answers" if each.state == "active" else f"{name} is {each.state}"]
    if built.sources or built.failed:
        lines[0] += f"; {built.sources} sources built, {built.chunks} chunks written"
    if outcome.lacking:
        lines[0] += f"; {outcome.lacking} sources are not in it"
    if built.failed:
        lines[0] += f"; {len(built.failed)} could not be built:"
        lines += [f"  {slugs.get(one.source.org_id)}/{one.source.external_id}: {one.reason}" for one in built.failed]
    elif each.state == "building":
        lines.append(f"let it answer: `rag-app indexes switch {each.index}`")
    if outcome.misfit:
        lines.append(f"a server with these settings does not start on it: it {outcome.misfit}")
    return "\n".join(lines)


def summary_json(summary: Summary) -> dict[str, Any]:
    failed = [{"path": failure.path, "reason": failure.reason} for failure in summary.failed]
    return {**asdict(replace(summary, failed=[])), "failed": failed}  # asdict cannot copy an exception


def summary_text(summary: Summary) -> str:
    """What an ingest did, in one line; then each failure with its reason."""
    counts = (
        f"{summary.added} added, {summary.updated} updated, {summary.unchanged} unchanged, "
        f"{summary.removed} removed; {summary.chunks} chunks written"
    )
    if not summary.failed:
        return counts
    failures = "\n".join(f"  {line}" for line in _folded(summary.failed))
    return f"{counts}; {len(summary.failed)} could not be read:\n{failures}"


def _folded(failures: Iterable[UnreadableDocument]) -> Iterator[str]:
    """A line a failure; lines of one file that have the same thing wrong are told once.

    >>> list(_folded(UnreadableDocument("a.jsonl", f"line {n}: no JSON") for n in (1, 2, 7)))
    ['a.jsonl: lines 1 to 7 (3 of them): no JSON']
    """
    for _, alike in groupby(failures, key=lambda failure: (failure.path, _LINE.sub("", failure.reason))):
        first, *others = alike
        numbers = [found[1] for each in (first, *others) if (found := _LINE.match(each.reason))]
        if others and len(numbers) == 1 + len(others):
            rest = _LINE.sub("", first.reason)
            yield f"{first.path}: lines {numbers[0]} to {numbers[-1]} ({len(numbers)} of them): {rest}"
        else:
            yield from (str(each) for each in (first, *others))


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing otherwise."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Progress]:
    """Progress over `total` files on stderr: a bar on a terminal, a line every few seconds otherwise."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    seen = set[Path]()
    if sys.stderr.isatty():
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(
            *columns, TextColumn("{task.fields[chunks]} chunks"), console=Console(stderr=True), transient=True
        ) as bar:
            task = bar.add_task(title, total=total, chunks=0)

            def step(path: Path, summary: Summary) -> None:
                seen.add(path)
                bar.update(task, completed=len(seen), chunks=summary.chunks)

            yield step
    else:
        last = [datetime.now(UTC)]

        def line(path: Path, summary: Summary) -> None:
            seen.add(path)
            if (datetime.now(UTC) - last[0]).total_seconds() >= 5:
                last[0] = datetime.now(UTC)
                print(
                    f"{title.strip()}: {len(seen)}/{total} files, {summary.chunks} chunks", file=sys.stderr, flush=True
                )

        yield line
