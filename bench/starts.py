"""What starting costs: CPU seconds of a new process, user and system, the best of five. `python -m bench.starts`

The processes work in a home of their own, in which `rag-app demo --check` has run.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from bench.figures import Bound
from bench.progress import say

_TIMES = 5
_QUESTION = ["Within how many days are returns free?", "-o", "aurora", "-i", "org_knowledge"]
_LIBRARY = "import asyncio, rag_app; "
_PIPELINE = 'rag_app.run_rag_pipeline(tenant_id="aurora", site_id="eu", query_text="Do you have wireless headphones?")'
STARTS: dict[str, tuple[float, list[str]]] = {
    "rag-app --help": (0.5, ["-m", "rag_app", "--help"]),
    "rag-app orgs list": (0.5, ["-m", "rag_app", "orgs", "list"]),
    "rag-app keys list": (0.5, ["-m", "rag_app", "keys", "list"]),
    "rag-app token": (0.5, ["-m", "rag_app", "token", "--user", "mila@aurora.example"]),
    "rag-app sources list": (0.5, ["-m", "rag_app", "sources", "list", *_QUESTION[1:]]),
    "rag-app doctor": (0.5, ["-m", "rag_app", "doctor"]),
    "rag-app search": (1.2, ["-m", "rag_app", "search", *_QUESTION]),
    "rag-app ask": (1.2, ["-m", "rag_app", "ask", *_QUESTION]),
    "run_rag_pipeline": (1.5, ["-c", f"{_LIBRARY} asyncio.run({_PIPELINE})"]),
    "build_context_blocks": (0.3, ["-c", f"{_LIBRARY} rag_app.build_context_blocks([])"]),
    "assemble_chat_prompt": (0.3, ["-c", f"{_LIBRARY} rag_app.assemble_chat_prompt([], 'Why?')"]),
}
"""The most that each may take, in seconds, and Python's arguments."""


def measure() -> list[Bound]:
    with tempfile.TemporaryDirectory(prefix="rag-bench-") as home:
        Path(home).chmod(0o755)  # a private PostgreSQL may run as another user
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAG_", "LEXYBRAIN_"))}
        environment = {**kept, "RAG_HOME": home}
        _run(["-m", "rag_app", "demo", "--check"], environment)
        return [
            Bound(f"{name}, seconds of CPU", "-", min(_run(arguments, environment) for _ in range(_TIMES)), most)
            for name, (most, arguments) in STARTS.items()
        ]


def _run(arguments: list[str], environment: dict[str, str]) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(  # noqa: S603
        [sys.executable, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    for bound in measure():
        say(f"{bound.what:40} {bound.measured:5.2f}  at most {bound.limit}")
