"""What the OpenAPI document says is what the server does, with the real application behind it.

By day each operation gets two examples that are made from its description. SCHEMATHESIS_EXAMPLES asks for so many, and
for each value at the edge of what a description allows: `.ci/run` for 4, `make fuzz` for 2,000, and for SCHEMATHESIS_CASES
(10,000) or more in all.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from rag_app.access.tokens import issue_token
from rag_app.application import Application
from tests.integration.service import Text, configured, ingest, prepare, served, without_limits
from tests.waiting import PATIENCE

SECRET = "a secret of the tests, long enough for HS256"
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "2"))
PHASES = "examples,coverage,fuzzing,stateful" if "SCHEMATHESIS_EXAMPLES" in os.environ else "examples,fuzzing"
CASES = int(os.environ.get("SCHEMATHESIS_CASES", EXAMPLES))
ROOT = Path(__file__).parents[2]


async def one_organization(application: Application, folder: Path) -> tuple[str, str]:
    """With a few sources; a member of it and a key."""
    people = application.people
    organization = await people.create_organization(f"o-{uuid4().hex}", "Schemathesis")
    member = await people.create_user(f"u-{uuid4().hex}", plan="growth")
    await people.add_member(organization, member)
    texts = [Text(f"t{n}", f"The yearly plan costs {n} euros, says the customer.", organization.id) for n in range(5)]
    await ingest(application, folder, texts)
    _, key = await application.keys.create(organization, "schemathesis", None)
    return issue_token(str(member.id), SECRET, audience="authenticated"), key


@pytest.fixture(scope="module")
def running(
    database_urls: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, dict[str, str]]]:
    """Without limits: a thousand refusals in a row would test nothing."""
    folder = tmp_path_factory.mktemp("schemathesis")
    variables = {
        "RAG_DATABASE_URL": database_urls[1],
        "RAG_DATABASE_OWNER_URL": database_urls[0],
        "RAG_VECTOR_STORE": "postgres",  # the document is the same with any
        "RAG_HOME": str(folder),
    }
    with configured(variables) as patch:
        without_limits(patch)
        token, key = prepare(lambda application: one_organization(application, folder))
        with served() as client:
            headers = {"Authorization": f"Bearer {token}"}
            asked = client.post("/api/lexybrain/rag", json={"message": "What does the plan cost?"}, headers=headers)
            answer = asked.json()["messageId"]
            yield client, {"TEST_TOKEN": token, "TEST_API_KEY": key, "TEST_ANSWER": answer}


@pytest.mark.timeout(3600)
def test_schemathesis_finds_nothing(running: tuple[httpx.Client, dict[str, str]], tmp_path: Path) -> None:
    client, credentials = running
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", f"{client.base_url}/openapi.json",
        "--checks=all", f"--phases={PHASES}", f"--max-examples={EXAMPLES}", "--continue-on-failure", "--suppress-health-check=all",
        "--warnings=off", f"--request-timeout={PATIENCE:.0f}", f"--max-response-time={PATIENCE:.0f}", "--generation-deterministic", "--no-color",
    ]  # fmt: skip
    # One worker: Hypothesis parses sources, and in two threads at once CPython 3.11 may fail to ("AST constructor recursion depth mismatch").
    environment = {
        **os.environ,
        **credentials,
        "SCHEMATHESIS_HOOKS": "tests.schemathesis_hooks",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    tested = re.search(r"(\d+) generated", done.stdout)
    assert tested and int(tested[1]) > CASES, done.stdout
