"""docs/sources.md: from an empty organization to a cited answer, by the lines that stand there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from rag_app.application import Application
from tests.integration.service import configured, prepare, served

PAGE = (Path(__file__).parents[2] / "docs" / "sources.md").read_text("utf-8")
HANDBOOK = """---
layout: page
---
# Orders

Shipping takes three working days within the country.

## Returns

Returns are free within 30 days of delivery. Send the parcel back with the label that came with it.
"""


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


async def built(application: Application) -> None:
    """Opening it builds what is missing."""


def test_the_lines_of_the_page_lead_to_a_cited_answer_whose_link_opens_the_passage(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path
) -> None:
    for_operators, for_everybody = blocks()
    (tmp_path / "handbook.md").write_text(HANDBOOK, "utf-8")
    variables = {
        "RAG_DATABASE_URL": database_urls[1],
        "RAG_DATABASE_OWNER_URL": database_urls[0],
        "RAG_VECTOR_STORE": default_store,
        "QDRANT_PATH": str(qdrant_folder),
        "RAG_HOME": str(tmp_path / "home"),
    }
    slug = f"acme-{uuid4().hex}"
    command = str(Path(sys.executable).with_name("rag-app"))

    def run(line: str, **values: str) -> str:
        line = re.sub(r"^rag-app", command, re.sub(r"\bacme\b", slug, line))
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=tmp_path, env={**os.environ, **values}, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    with configured(variables):
        prepare(built)
        key = ""
        for line in for_operators.strip().splitlines():
            said = run(line, KEY=key)
            key = found[0] if (found := re.search(r"rag_[A-Za-z0-9_-]{43}", said)) else key
        lines = for_everybody.replace("\\\n", " ").strip().splitlines()
        with served() as client:
            known = {"URL": str(client.base_url).rstrip("/"), "KEY": key}
            empty, put, answer = (json.loads(run(each, **known)) for each in lines[:3])
            assert empty["sources"] == []
            assert (put["documents"][0]["status"], put["documents"][0]["undeclared"]) == ("added", ["layout"])
            assert "30 days" in answer["answer"]["text"], answer
            (cited,) = [each["meta"] for each in answer["citations"] if each["source_id"] == put["ids"][0]]
            opened = json.loads(run(lines[3], **known, LINK=cited["link"]))
    assert "Returns are free within 30 days" in opened["passage"]["text"]
    assert (opened["file_name"], opened["passage"]["section"]) == ("handbook.md", "Orders > Returns")
    assert (cited["date"], cited["author"], cited["file_name"]) == ("2026-01-15", "Ada", "handbook.md")
