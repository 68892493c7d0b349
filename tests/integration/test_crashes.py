"""A process killed at any step from a message to its answer: nothing is half kept, nothing lost, nothing charged."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.crashing import STEPS
from tests.integration.lexybrain import BOX, load, newcomer, rows
from tests.integration.service import configured, prepare
from tests.integration.test_api_end_to_end import variables

ROOT = Path(__file__).parents[2]
NOTHING_KEPT = {"1 account", "2 quota, before it is kept", "3 message, before it is kept"}
ANSWER_KEPT = {"11 response"}
BY_DAY = (
    "2 quota, before it is kept", "3 message, before it is kept", "3 message, after it is kept", "7 generation",
    "8 answer, before it is kept", "11 response",
)  # fmt: skip
"""Each way it can end, and both sides of each transaction."""


@pytest.mark.parametrize("steps", [BY_DAY, pytest.param((*STEPS,), marks=pytest.mark.thorough)], ids=["some", "all"])
def test_a_crash_at_each_step(
    steps: tuple[str, ...], database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path
) -> None:
    with configured(variables(database_urls, default_store, tmp_path, qdrant_folder)):
        aurora, *_ = prepare(load)
        user = asyncio.run(newcomer(database_urls[1], aurora, "free"))
        command = [sys.executable, "-m", "tests.integration.crashing", str(user), str(aurora), BOX, *steps]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == list(steps), done.stderr

    def found(statement: str) -> list[dict[str, object]]:
        return asyncio.run(rows(database_urls[1], statement, user))

    threads = found(
        "SELECT t.message_count, array_agg(m.role ORDER BY m.created_at) AS roles, min(m.content) FILTER"
        " (WHERE m.role = 'user') AS asked FROM rag_threads t JOIN rag_messages m ON m.thread_id = t.id GROUP BY t.id"
    )
    assert len(threads) == len(found("SELECT id FROM rag_threads")), "no thread without a message"
    kept = {str(each["asked"]).removeprefix(BOX).strip(): each for each in threads}
    assert set(kept) == set(steps) - NOTHING_KEPT, "no message is lost once it is kept"
    for step, thread in kept.items():
        roles = ["user", "assistant"] if step in ANSWER_KEPT else ["user"]
        assert (thread["roles"], thread["message_count"]) == (roles, len(roles)), step
    assert len(found("SELECT * FROM ai_usage_events")) == len(ANSWER_KEPT)

    reserved = len(kept) - len(ANSWER_KEPT)
    assert found("SELECT count(*) AS n FROM usage_reservations") == [{"n": reserved}]
    found("UPDATE usage_reservations SET expires_at = now() - interval '1 second'")
    with configured(variables(database_urls, default_store, tmp_path, qdrant_folder)):
        from tests.integration.crashing import ask

        asyncio.run(ask(user, aurora, BOX))
    assert found("SELECT used FROM usage_counters") == [{"used": len(ANSWER_KEPT) + 1}], "only answers are charged"
    assert found("SELECT * FROM usage_reservations") == []
