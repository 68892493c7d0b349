"""Reading in processes of their own: limits, deaths, and that nothing is left of them."""

import inspect
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest

from rag_app.documents import reading
from rag_app.documents.documents import Document
from rag_app.documents.limits import Limits
from rag_app.documents.reading import File, ReaderPool, documents_below
from rag_app.domain import UnreadableDocument
from tests.unit.ingestion.bombs import BOMBS, packed, pages
from tests.waiting import PATIENCE, is_gone, wait_for


def text_or_reason(found: Document | UnreadableDocument) -> str:
    return found.reason if isinstance(found, UnreadableDocument) else found.passages[0].text


def all_of(readers: ReaderPool, folder: Path) -> dict[str, list[str]]:
    files = [File(path, path.name, str(path), folder) for path in documents_below(folder)]
    return {file.shown: list(map(text_or_reason, documents)) for file, documents in readers.read_all(files)}


@pytest.fixture
def pool() -> Iterator[Callable[..., ReaderPool]]:
    """Pools that are closed in the end."""
    made: list[ReaderPool] = []

    def make(processes: int = 1, **limits: float) -> ReaderPool:
        made.append(ReaderPool(Limits(**limits), processes))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def strict() -> Iterator[ReaderPool]:
    readers = ReaderPool(Limits(memory=1024, unpacked=64), 1)
    yield readers
    readers.close()


def pid_of(readers: ReaderPool) -> int:
    (child,) = readers._idle
    return child._process.pid


def children_of(reading_all: Generator[object]) -> list[reading._Child]:
    children: list[reading._Child] = inspect.getgeneratorlocals(reading_all)["children"]
    return children


@pytest.mark.parametrize("processes", [1, 3])
def test_files_come_in_order_with_what_cannot_be_read_among_them(
    tmp_path: Path, pool: Callable[..., ReaderPool], processes: int
) -> None:
    for number in range(100):
        (tmp_path / f"{number:03}.txt").write_text(f"text {number}")
    (tmp_path / "050.txt").write_bytes(b"\0\1\2")
    (tmp_path / "051.jsonl").write_text("".join(f'{{"text": "row {n}", "at": "2026-01-05"}}\n' for n in range(5_000)))
    (tmp_path / "052.md").write_text("---\ndate: 2026-01-05 10:00:00+01:00\nids: !!set {a, b}\n---\nText.")
    readers = pool(processes)
    for _ in range(2):  # the second time with the processes of the first
        found = all_of(readers, tmp_path)
        assert list(found) == sorted(found)
        assert found["007.txt"] == ["text 7"]
        assert found["050.txt"] == ["binary content, or text in an unknown encoding"]
        assert found["051.jsonl"] == [f"row {n}" for n in range(5_000)]
        assert found["052.md"] == ["Text."]


def test_what_is_over_a_limit_is_refused_with_its_name_and_the_rest_goes_on(
    tmp_path: Path, pool: Callable[..., ReaderPool]
) -> None:
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "b.jsonl.gz").write_bytes(packed(b'{"text": "row"}\n', 1) + packed(b"x" * (1 << 20), 60))
    (tmp_path / "c.txt").write_text("last")
    refused = "takes longer than 0.001 seconds to read (RAG_READ_SECONDS)"
    assert all_of(pool(seconds=0.001), tmp_path)["b.jsonl.gz"] == [refused]
    found = all_of(pool(memory=256), tmp_path)
    assert found == {
        "a.txt": ["first"],
        "b.jsonl.gz": ["row", "takes more than 256 MB of memory to read (RAG_READ_MEMORY)"],
        "c.txt": ["last"],
    }


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_read_or_refused_within_the_limits(tmp_path: Path, strict: ReaderPool, name: str) -> None:
    file, build = BOMBS[name]
    data = build()
    (tmp_path / file).write_bytes(data.encode() if isinstance(data, str) else data)
    (tmp_path / "z.txt").write_text("the rest")
    found = all_of(strict, tmp_path)
    assert found["z.txt"] == ["the rest"]
    assert found[file]
    assert not any("RAG_READ_SECONDS" in each or "the process" in each for each in found[file])
    assert any(said in each for each in found[file] for said in EXPECTED.get(name, ["word", "Hello!"]))


EXPECTED = {
    "docx gridSpan": ["before"],
    "docx gridBefore": ["before"],
    "html nested colspan": ["20,000,000 characters (RAG_READ_CHARACTERS)"],
    "html wide cells": ["w"],
    "html nesting": ["nested more than 300 deep (RAG_READ_NESTING)"],
    "html nested tables": ["nested more than 300 deep (RAG_READ_NESTING)"],
    "markdown quotes": ["no text"],
    "json nesting": ["20,000,000 characters (RAG_READ_CHARACTERS)"],
    "jsonl nesting": ["nested more than 300 deep (RAG_READ_NESTING)"],
    "yaml aliases": ["aliases are not allowed"],
    "csv rows above the table": ["a"],
    "csv long header": ["20,000,000 characters (RAG_READ_CHARACTERS)"],
    "mail nesting": ["nested too deep"],
    "pdf pages": ["more than 5,000 pages (RAG_READ_PAGES)"],
    "gz of blank lines": ["nothing but white space"],
    "xlsx wide rows": ["w"],
    "gz of blank text": ["larger than 64 MB unpacked (RAG_READ_UNPACKED)"],
    "docx zip": ["larger than 64 MB unpacked (RAG_READ_UNPACKED)"],
    "xlsx zip": ["larger than 64 MB unpacked (RAG_READ_UNPACKED)"],
    "pptx zip": ["larger than 64 MB unpacked (RAG_READ_UNPACKED)"],
    "docx entities": ["corrupt"],
    "xlsx entities": ["corrupt"],
    "pptx entities": ["corrupt"],
    "core entities": ["corrupt"],
}


def test_a_process_that_dies_costs_one_file(tmp_path: Path, pool: Callable[..., ReaderPool]) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(name)
    readers = pool()
    assert all_of(readers, tmp_path)["a.txt"] == ["a"]
    (first,) = readers._idle
    os.kill(first._process.pid, signal.SIGKILL)  # while it has nothing to do: the next is started before it is needed
    wait_for(lambda: not first.lives())
    assert all_of(readers, tmp_path) == {"a.txt": ["a"], "b.txt": ["b"], "c.txt": ["c"]}
    (tmp_path / "a.jsonl").write_text('{"text": "row"}\n' * 20_000)  # more than a socket holds
    reading_all = readers.read_all([File(path, path.name, "", tmp_path) for path in documents_below(tmp_path)])
    _, documents = next(reading_all)
    assert text_or_reason(next(documents)) == "row"
    os.kill(children_of(reading_all)[0]._process.pid, signal.SIGKILL)
    *rows, reason = map(text_or_reason, documents)
    assert {*rows} <= {"row"}
    assert "ended with SIGKILL" in reason
    assert [(file.shown, list(map(text_or_reason, found))) for file, found in reading_all] == [
        ("a.txt", ["a"]),
        ("b.txt", ["b"]),
        ("c.txt", ["c"]),
    ]


def test_an_answer_that_is_no_document_costs_one_file(tmp_path: Path, pool: Callable[..., ReaderPool]) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(name)
    reading_all = pool().read_all([File(path, path.name, "", tmp_path) for path in documents_below(tmp_path)])
    _, documents = next(reading_all)
    children_of(reading_all)[0]._answers = BytesIO(pickle.dumps(5))  # type: ignore[assignment]
    (reason,) = map(text_or_reason, documents)
    assert "the process that read it ended" in reason
    assert [(file.shown, list(map(text_or_reason, found))) for file, found in reading_all] == [("b.txt", ["b"])]


def test_a_process_that_is_stopped_is_replaced(
    tmp_path: Path, pool: Callable[..., ReaderPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_GRACE", 0.0)
    (tmp_path / "a.txt").write_text("a")
    readers = pool(seconds=30)
    assert all_of(readers, tmp_path) == {"a.txt": ["a"]}
    child = readers._idle[0]
    child._requests.settimeout(0.5)
    os.kill(child._process.pid, signal.SIGSTOP)
    assert all_of(readers, tmp_path) == {"a.txt": ["takes longer than 30 seconds to read (RAG_READ_SECONDS)"]}
    assert all_of(readers, tmp_path) == {"a.txt": ["a"]}


def test_closing_in_the_middle_leaves_nothing_behind(tmp_path: Path, pool: Callable[..., ReaderPool]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "row"}\n' * 20_000)
    (tmp_path / "b.txt").write_text("b")
    readers = pool(processes=2)
    reading_all = readers.read_all([File(path, path.name, "", tmp_path) for path in documents_below(tmp_path)])
    _, documents = next(reading_all)
    assert text_or_reason(next(documents)) == "row"
    children = children_of(reading_all)
    reading_all.close()
    assert all(child._process.poll() is not None for child in children if child.unread)
    assert not any(child.unread for child in readers._idle)
    (tmp_path / "a.jsonl").unlink()
    assert all_of(readers, tmp_path) == {"b.txt": ["b"]}


def test_closing_ends_the_wait_of_another_thread(tmp_path: Path, pool: Callable[..., ReaderPool]) -> None:
    (tmp_path / "a.txt").write_text("a")
    readers = pool()
    assert all_of(readers, tmp_path) == {"a.txt": ["a"]}
    stopped = readers._idle[0]._process.pid
    os.kill(stopped, signal.SIGSTOP)
    reading_all = readers.read_all([File(tmp_path / "a.txt", "a", "", tmp_path)])
    _, documents = next(reading_all)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(list, documents)
        wait_for(waiting.running)
        reading_all.close()
        assert isinstance(waiting.result(PATIENCE)[0], UnreadableDocument)
    assert is_gone(stopped)


PARENT = """
import sys, time
from pathlib import Path
from rag_app.documents.limits import Limits
from rag_app.documents.reading import File, ReaderPool
file = File(Path(sys.argv[1]), "a", "", Path("/"))
readers = ReaderPool(Limits(), 1)
reading = readers.read_all([file])
print(next(next(reading)[1]).passages[0].text, reading.gi_frame.f_locals["children"][0]._process.pid, flush=True)
time.sleep(600)
"""


def test_a_killed_parent_leaves_no_child(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"  # so much is left to read that the child is busy when its parent ends
    file.write_bytes(packed(b'{"text": "row"}\n', 1) + packed(b" " * (16 << 20), 4_000))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(file)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    word, pid = parent.stdout.readline().split()
    assert word == "row"
    assert not is_gone(int(pid))
    parent.kill()
    parent.communicate()
    wait_for(lambda: is_gone(int(pid)))


def test_a_child_imports_the_readers_alone_and_gets_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAG_LLM_API_KEY", "secret")
    (tmp_path / "a.txt").write_text("a")
    readers = ReaderPool(Limits(), 1)
    try:
        assert all_of(readers, tmp_path) == {"a.txt": ["a"]}
        environment = Path(f"/proc/{pid_of(readers)}/environ").read_bytes()
    finally:
        readers.close()
    assert b"secret" not in environment
    code = "import sys, rag_app.documents.reading, rag_app.documents.readers; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"llama_index", "sqlalchemy", "litestar", "asyncpg", "pydantic", "onnxruntime"} & {*imported}
    code = "import sys, rag_app.documents.reading; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"docx", "pptx", "openpyxl", "pypdf", "bs4", "lxml"} & {*imported}


def test_only_documents_are_unpickled() -> None:
    with pytest.raises(pickle.UnpicklingError, match="no part of a document"):
        reading._Unpickler(BytesIO(pickle.dumps(os.system))).load()


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path, pool: Callable[..., ReaderPool]) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside / "below", outside):
        folder.mkdir(parents=True)
    (outside / "secret.txt").write_text("secret")
    (outside / "told.json").write_text('{"title": "secret"}')
    (inside / "file.txt").symlink_to(outside / "secret.txt")
    (inside / "folder").symlink_to(outside)
    (inside / "zero.txt").symlink_to("/dev/zero")
    for name in ("device", "told", "linked"):
        (inside / "below" / f"{name}.txt").write_text(name)
    (inside / "below" / "device.txt.meta.json").symlink_to("/dev/zero")
    (inside / "below" / "told.txt.meta.json").symlink_to(outside / "told.json")
    (inside / "own.json").write_text('{"title": "its own"}')
    (inside / "below" / "linked.txt.meta.json").symlink_to(inside / "own.json")
    found = all_of(pool(), inside)
    assert sorted(found) == ["device.txt", "linked.txt", "own.json", "told.txt"]
    assert found["linked.txt"] == ["linked"]
    assert "not a regular file" in found["device.txt"][0]
    assert "leads out of the folder" in found["told.txt"][0]
    assert "secret" not in str(found)


def test_a_pdf_has_a_limit_of_pages(tmp_path: Path, pool: Callable[..., ReaderPool]) -> None:
    (tmp_path / "a.pdf").write_bytes(pages(3))
    assert all_of(pool(pages=3), tmp_path) == {"a.pdf": ["word"]}
    assert all_of(pool(pages=2), tmp_path) == {"a.pdf": ["more than 2 pages (RAG_READ_PAGES)"]}
