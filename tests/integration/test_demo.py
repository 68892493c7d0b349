"""`rag-app demo`, as a newcomer runs it: in a fresh folder, killed, and again."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rag_app.database.private import private_postgres
from tests.conftest import MIGRATIONS
from tests.contract import test_owner_qa as owner_qa
from tests.integration.conftest import Forking
from tests.waiting import PATIENCE

COMMAND = Path(sys.executable).with_name("rag-app")
INDEXES = ("book", "marketplace", "org_knowledge", "salon_calls", "store_catalogue")


@pytest.fixture
def folder(tmp_path: Path, default_store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout's folder with a space in its path, and nothing configured but the store."""
    for name in os.environ:
        if name.startswith(("RAG_", "QDRANT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("RAG_VECTOR_STORE", default_store)
    made = tmp_path / "a new folder"
    (made / ".rag").mkdir(parents=True)
    yield made
    with private_postgres(made / ".rag" / "postgres"):
        pass  # the last one out stops it, also where those before were killed
    shutil.rmtree((made / ".rag" / "postgres" / "cluster").resolve())  # may lie outside of the folder


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Somebody else listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def sent(curl: str) -> httpx.Response:
    """What a line of the invitation does, without asking for curl."""
    program, silent, url, *options = shlex.split(curl.replace("\\\n", " "))
    *headers, data = zip(options[::2], options[1::2], strict=True)
    assert (program, silent, data[0], {name for name, _ in headers}) == ("curl", "-s", "-d", {"-H"})
    return httpx.post(url, headers=dict(line.split(": ", 1) for _, line in headers), content=data[1], timeout=PATIENCE)


def assert_asked(printed: str) -> None:
    """Of each index two questions that it answers, with citations, and one that it refuses."""
    shown = re.split(r"^=== (\w+): .*$", printed, flags=re.MULTILINE)
    assert tuple(shown[1::2]) == INDEXES
    for index, part in zip(shown[1::2], shown[2::2], strict=True):
        questions = re.findall(r"^Q \(\w+\): .+\nA: (.+)\n\n((?:  .*\n)+)", part, re.MULTILINE)
        answered = [(text, below) for text, below in questions if "[Source 1]" in text]
        refused = [below for text, below in questions if "[Source" not in text]
        assert (len(answered), len(refused)) == (2, 1), index
        for text, below in answered:
            cited = {int(number) for number in re.findall(r"\[Source (\d+)\]", text)}
            listed = [
                int(number)
                for number in re.findall(r"^  \[Source (\d+)\] .+\), relevance 0\.\d\d\n      \"", below, re.M)
            ]
            assert listed == sorted(cited) == list(range(1, len(cited) + 1)), index
            assert re.search(r"confidence (medium|high)\)$", below.strip())
        nearest = [float(score) for score in re.findall(r"^  - .+, relevance (0\.\d\d)$", refused[0], re.MULTILINE)]
        assert len(nearest) <= 3 and nearest == sorted(nearest, reverse=True), index


@pytest.mark.timeout(700)
def test_demo_survives_being_killed(folder: Path, taken_port: int, vectors: Path, forking: Forking) -> None:
    environment = {**os.environ, "RAG_PORT": str(taken_port), "PYTHONPATH": str(MIGRATIONS.parent)}
    printed = folder / "printed.txt"
    with printed.open("w") as out, (folder / "errors.txt").open("w") as errors:
        remembering = [sys.executable, "-m", "tests.remembered", str(vectors), "demo"]
        first = subprocess.Popen(remembering, cwd=folder, env=environment, stdout=out, stderr=errors)
    try:
        deadline = time.monotonic() + 300
        while "Started worker-1" not in (folder / "errors.txt").read_text():
            assert first.poll() is None and time.monotonic() < deadline, (folder / "errors.txt").read_text()
            time.sleep(0.2)
        said = printed.read_text()
        added = re.findall(
            r"^  (\w+) +(\d+) added, 0 updated, 0 unchanged, 0 removed; (\d+) chunks", said, re.MULTILINE
        )
        assert tuple(name for name, _, _ in added) == INDEXES and all(int(sources) > 15 for _, sources, _ in added)
        assert sum(int(chunks) for _, _, chunks in added) <= 600
        assert_asked(said)

        search, answer, message, owner = re.findall(r"^curl .+\\\n  -d .+$", said, re.MULTILINE)
        found = sent(search)
        assert found.status_code == 200 and {hit["source_type"] for hit in found.json()["results"]} == {"transcript"}
        replied = sent(answer)
        assert replied.status_code == 200 and replied.json()["citations"]
        assert replied.url.port != taken_port
        talked = sent(message)
        assert (
            talked.status_code == 200 and talked.json()["sources"] and not talked.json()["flags"]["fallbackToGeneric"]
        )
        assert "Authorization" not in owner
        anybody = sent(owner)
        assert anybody.status_code == 200 and anybody.json()["has_sufficient_evidence"]
        served_at = str(replied.url.copy_with(path="")).rstrip("/")
        assert [owner_qa.sent(command, served_at).status_code for command in owner_qa.commands()] == [200] * 4
        assert httpx.get(replied.url.join("/docs"), timeout=PATIENCE).status_code == 200
    finally:
        first.kill()  # -9
        first.wait(PATIENCE)

    again = subprocess.run(
        [COMMAND, "demo", "--check"],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert again.returncode == 0, again.stderr
    assert re.findall(r" (\d+) added, 0 updated, (\d+) unchanged, 0 removed; 0 chunks", again.stdout) == [
        ("0", sources) for _, sources, _ in added
    ]
    assert_asked(again.stdout)
    assert len(re.findall(r"^curl -s http://127\.0\.0\.1:\d+/api/rag/", again.stdout, re.MULTILINE)) == 2
    assert re.findall(r"^POST /owner/(\w+): 200, (\d+) \w+$", again.stdout, re.MULTILINE)[-1] == ("ask", "0")
    assert again.stdout.endswith("demo check: all as it should be\n")
    # what takes a while on a busy machine says how far it is
    assert [
        line for line in again.stderr.splitlines() if not re.match(r"rag-app on http://|\w+: \d+/\d+ files", line)
    ] == []

    # with nothing but an index and an organization: the index's own judgments
    measured = forking.start(["evaluate", "--index", "book", "--org", "aurora", "--json"], folder)
    assert measured.wait() == 0, measured.err
    assert json.loads(measured.out)["R@10"] > 0.9
