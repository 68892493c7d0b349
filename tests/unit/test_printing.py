"""What the command line prints of an ingest that goes on."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from rag_app.console import printing
from rag_app.documents.ingest import Summary


def clock(monkeypatch: pytest.MonkeyPatch, times: Iterator[float]) -> None:
    monkeypatch.setattr(printing, "time", SimpleNamespace(monotonic=lambda: next(times)))


def run(batches: list[list[str]]) -> None:
    summary = Summary()
    with printing.progress_bar("book/acme", sum(map(len, batches))) as progress:
        for batch in batches:
            summary.chunks += 10 * len(batch)
            progress([Path(name) for name in batch], summary)


def test_the_last_line_of_progress_is_of_all_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock(monkeypatch, iter([0.0, 10.0, 10.0, 10.0, 10.0, *[11.0] * 9]))
    run([["a.md", "b.md"], ["c.md"], ["d\n.md"]])
    assert capsys.readouterr().err.splitlines() == [
        "book/acme: 2/4 files, 20 chunks, b.md",
        "book/acme: 4/4 files, 40 chunks, d\\n.md",
    ]


def test_a_short_ingest_has_no_lines_of_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock(monkeypatch, map(float, iter([0] * 50)))
    run([["a.md"], ["b.md"]])
    assert capsys.readouterr().err == ""


def test_a_line_is_not_printed_twice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock(monkeypatch, map(float, count(0, 10)))
    run([["a.md"], ["b.md"]])
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "book/acme: 1/2 files",
        "book/acme: 2/2 files",
    ]
