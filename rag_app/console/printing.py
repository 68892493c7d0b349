"""How results look on a terminal, and as JSON."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TextIO

from msgspec.structs import asdict
from typer import Exit

from rag_app.domain import Answer, Citation, Hit, JsonObject, Source, UnreadableDocument

if TYPE_CHECKING:
    from rag_app.access.people import ApiKey, Organization
    from rag_app.documents.ingest import Progress, Summary
    from rag_app.surfaces.administration.personal import ErasureResult

_EXCERPT = 240  # characters of a hit's text
_NEAREST = 3  # sources named beside a refusal
_SECONDS_BETWEEN_LINES = 5.0  # of progress
_COUNTS = (
    "{0.added} added, {0.updated} updated, {0.unchanged} unchanged, {0.removed} removed; {0.chunks} chunks written"
)
_UNPRINTABLE = re.compile("[\0-\x08\n-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LINE = re.compile(r"(?:line|row) (\d+): ")
_VALUE = re.compile(r", not .*(?=: left out$)", re.DOTALL)  # of a cell: another one in each row


def print_result(as_json: bool, value: Any, text: str) -> None:
    """One JSON document on stdout, or the text."""
    print(json.dumps(value, ensure_ascii=False, indent=2, default=plain) if as_json else text)


def print_list(as_json: bool, records: Sequence[Any], lines: Iterable[str], noun: str | None = None) -> None:
    """The records as one JSON document, or their lines, escaped; how many of what `noun` names they are goes to stderr."""
    if as_json:
        print_result(as_json, records, "")
    else:
        sys.stdout.writelines(f"{escape_controls(line)}\n" for line in lines)
        if noun:
            print(f"{len(records)} {noun}", file=sys.stderr)


def record(value: object, fields: str) -> JsonObject:
    """Attributes of a value by their names in JSON; `name=path` where the attribute is called otherwise or lies deeper.

    >>> record(3 + 4j, "real imaginary=imag")
    {'real': 3.0, 'imaginary': 4.0}
    """
    return {
        name: attrgetter(path or name)(value) for name, _, path in (field.partition("=") for field in fields.split())
    }


def escape_controls(text: str) -> str:
    r"""The text without line ends, and without what a terminal obeys. Tabs stay.

    >>> escape_controls("Two\nlines\tand \x1b[31mred")
    'Two\\nlines\tand \\x1b[31mred'
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def render_text(template: str, **values: Any) -> str:
    """A file of `templates/` with these values."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    files = FileSystemLoader(Path(__file__).with_name("templates"))
    shown = Environment(loader=files, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)  # noqa: S701 - no HTML
    shown.filters["escape_controls"] = lambda value: escape_controls(str(value))
    return shown.get_template(template).render(**values).rstrip()


def plain(value: object) -> Any:
    """What JSON has no form for."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def moment(at: datetime) -> str:
    """ISO 8601, in UTC, to the second."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def day(seconds: float | None) -> str | None:
    """Epoch seconds as an ISO 8601 date, or date and time, in UTC.

    >>> day(0.0), day(3600.0)
    ('1970-01-01', '1970-01-01T01:00:00Z')
    """
    if seconds is None:
        return None
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{at:%Y-%m-%d}" if seconds % 86400 == 0 else f"{at:%Y-%m-%dT%H:%M:%SZ}"


def place(hit: Hit) -> str:
    """Title and section, then type, date and page, in one line."""
    below = (hit.section or "").removeprefix(hit.title).removeprefix(" > ")  # a section often begins with the title
    date = (day(hit.date) or "")[: len("2026-01-31")]
    about = ", ".join(part for part in (hit.source_type, date, f"p. {hit.page}" if hit.page else None) if part)
    return escape_controls(f"{hit.title}{' > ' + below if below else ''} ({about}), relevance {hit.relevance:.2f}")


def hit_json(hit: Hit) -> JsonObject:
    return {
        **record(hit, "chunk_id source_id org_id score=relevance title source_type lang uri"),
        "date": day(hit.date),
        **record(hit, "section page external_id file_name link metadata text"),
    }


def hits_text(hits: tuple[Hit, ...]) -> str:
    """Two lines a hit, best first."""
    if not hits:
        return "Nothing found."
    return "\n".join(
        f"{rank:>3}. {place(hit)}\n     {shorten(hit.text, _EXCERPT, placeholder=' …')}"
        for rank, hit in enumerate(hits, 1)
    )


def answer_json(answer: Answer) -> JsonObject:
    return {
        "answered": not answer.refused,
        **record(answer, "text confidence model generated_at"),
        "average_relevance": round(answer.average_relevance, 4),
        **record(answer, "probability calibration"),
        **({"understood": answer.understood} if answer.understood else {}),
        "citations": [
            {
                **record(each, "number quote start end"),
                **(
                    {"passages": [record(one, "chunk_id quote start end") for one in each.passages]}
                    if each.passages
                    else {}
                ),
                **hit_json(each.hit),
            }
            for each in answer.citations
        ],
    }


def answer_text(answer: Answer) -> str:
    """The answer, then what it cites, each with the passage that supports it; a refusal, then the nearest sources, each with the sentence that is nearest."""
    lines = [answer.text, ""]
    if answer.refused:
        nearest = sorted(answer.citations, key=lambda citation: citation.hit.relevance, reverse=True)
        for citation in nearest[:_NEAREST]:
            lines += [f"  - {place(citation.hit)}", *_quote_lines(citation)]
        return "\n".join([*lines, f"  (no answer given{'; the closest hits are listed' if nearest else ''})"])
    for citation in answer.citations:
        lines += [f"  [Source {citation.number}] {place(citation.hit)}", *_quote_lines(citation)]
    if answer.understood:
        lines.append(f"  (understood as: {answer.understood})")
    found = "found in records" if answer.understood else "sentences of the sources"
    by = found if answer.model == "extractive" else f"written by {answer.model}"
    unsure = ", uncalibrated" if answer.calibration == "uncalibrated" else ""
    return "\n".join([*lines, f"  ({by}; confidence {answer.confidence}{unsure})"])


def _quote_lines(citation: Citation) -> list[str]:
    quotes = dict.fromkeys(" ".join(each.quote.split()) for each in citation.passages or [citation])
    return [f'      "{each}"' for each in quotes if each]


def source_json(source: Source) -> JsonObject:
    return {"id": str(source.id), **asdict(source), "date": day(source.date)}


def summary_json(summary: "Summary") -> JsonObject:
    return {**asdict(summary), "failed": [record(failure, "path reason") for failure in summary.failed]}


def summary_text(summary: "Summary") -> str:
    """What an ingest did, in one line; then each failure with its reason."""
    counts = _COUNTS.format(summary)
    if not summary.failed:
        return counts
    headline = f"{counts}; {len(summary.failed)} could not be read:"
    return "\n".join([headline, *(f"  {escape_controls(line)}" for line in _fold_failures(summary.failed))])


def _fold_failures(failures: Iterable[UnreadableDocument]) -> Iterator[str]:
    """A line a failure; lines of one file that have the same thing wrong are told once.

    >>> list(_fold_failures(UnreadableDocument("a.jsonl", f"line {n}: no JSON") for n in (1, 2, 7)))
    ['a.jsonl: lines 1 to 7 (3 of them): no JSON']
    >>> list(_fold_failures(UnreadableDocument("a.csv", f"row {n}: no number, not '{n}%': left out") for n in (2, 3)))
    ["a.csv: rows 2 to 3 (2 of them): no number, not '2%': left out"]
    """
    for _, alike in groupby(
        failures, key=lambda failure: (failure.path, _VALUE.sub("", _LINE.sub("", failure.reason)))
    ):
        first, *others = alike
        numbers = [found[1] for each in (first, *others) if (found := _LINE.match(each.reason))]
        if others and len(numbers) == 1 + len(others):
            rest = _LINE.sub("", first.reason)
            yield f"{first.path}: {first.reason.split()[0]}s {numbers[0]} to {numbers[-1]} ({len(numbers)} of them): {rest}"
        else:
            yield from (str(each) for each in (first, *others))


@contextmanager
def progress_counter(what: str, total: int, *columns: Any) -> Iterator[Callable[..., None]]:
    """A bar on a terminal, nothing otherwise. Gives what is called with how many are done, and with fields of the columns."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task(what, total=total, chunks=0, rate=0.0, file="")
        yield lambda done, **fields: bar.update(task, completed=done, **fields)


@contextmanager
def progress_lines(what: str, things: str) -> Iterator[Callable[[int], None]]:
    """A line on stderr every few seconds with how many things are done, where nobody knows how many there are."""
    began = last_line = time.monotonic()

    def step(done: int) -> None:
        nonlocal last_line
        if time.monotonic() - last_line >= _SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            rate = done / max(last_line - began, 0.001)
            print(f"{what}: {done} {things}, {rate:.0f}/s", file=sys.stderr, flush=True)

    yield step


@contextmanager
def progress_bar(title: str, total: int) -> "Iterator[Progress]":
    """Progress over `total` files on stderr: a bar on a terminal, a line every few seconds otherwise.

    The last line printed is of all that was done.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    seen = set[Path]()
    first = 0
    began = last_line = time.monotonic()
    latest = printed = ""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    rest = TextColumn(
        "{task.fields[rate]:.1f} files/s, {task.fields[chunks]} chunks  {task.fields[file]}", markup=False
    )
    with progress_counter(title, total, *columns, rest) as update:

        def step(paths: Sequence[Path], summary: "Summary") -> None:
            nonlocal first, began, last_line, latest, printed
            seen.update(paths)
            if not first:  # these took as long as it takes to start the readers and the embedding model
                first, began = len(seen), time.monotonic()
            rate = (len(seen) - first) / max(time.monotonic() - began, 0.001)
            name = escape_controls(paths[-1].name)
            update(len(seen), chunks=summary.chunks, rate=rate, file=name[:40])
            left = total - len(seen)
            speed = f"{rate:.1f}/s, {left / rate:.0f} s left, " if rate and left else ""
            latest = f"{title.strip()}: {len(seen)}/{total} files, {speed}{summary.chunks} chunks, {name}"
            if not sys.stderr.isatty() and time.monotonic() - last_line >= _SECONDS_BETWEEN_LINES:
                last_line, printed = time.monotonic(), latest
                print(printed, file=sys.stderr, flush=True)

        yield step
    if printed and printed != latest:
        print(latest, file=sys.stderr, flush=True)


@contextmanager
def open_output(output: Path | None) -> Iterator[TextIO]:
    """A file that is there when it is whole, for its owner's eyes; stdout without one."""
    if output is None:
        yield sys.stdout
        return
    part = output.with_name(f"{output.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600, exist_ok=False)
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        part.replace(output)
    finally:  # half of it is of no use, and somebody's
        part.unlink(missing_ok=True)


def format_limits(limited: "Organization | ApiKey") -> str:
    limits = (limited.requests_per_minute, limited.concurrent_requests)
    return "{} requests a minute\t{} at once".format(*(limit or "no number of its own" for limit in limits))


def report_leftovers(done: "ErasureResult") -> None:
    """Print on stderr what is left in stores and folders that are not configured here; if there is any, exit with status 2."""
    for (store, collection), sources in done.left.items():
        print(
            f"!! {store} is not configured here, but its {collection} may contain chunks of what was deleted:"
            f" delete that collection, or its points with one of these source_ids: {', '.join(map(str, sorted(sources)))}",
            file=sys.stderr,
        )
    for file in done.files:
        print(
            f"!! an original may be left: expected at {file}. Set RAG_ORIGINALS_FOLDER, or RAG_HOME, as the servers have it,"
            " and delete this file there",
            file=sys.stderr,
        )
    if done.left or done.files:
        raise Exit(2)
