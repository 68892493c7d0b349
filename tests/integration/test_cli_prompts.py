"""`rag-app prompts`, on a database of its own: which version is in use is everybody's."""

import json
import re
from pathlib import Path

import pytest

from rag_app.answering.prompts import load_config, released_prompts
from rag_app.domain.resources import resource_folder
from tests.conftest import NewPostgres
from tests.integration.test_cli import Run, assert_fails, main, rag

__all__ = ["main", "rag"]  # fixtures

NEW = """\
type = "market_brief"
weight = 3
system_instructions = "Be brief."
[constraints]
max_keywords = 5
"""


@pytest.fixture(scope="module")
def urls(new_database: NewPostgres) -> tuple[str, str]:
    server = new_database()
    return server.owner_url, server.app_url


@pytest.fixture(autouse=True)
def _deployment(urls: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_DATABASE_OWNER_URL", urls[0])
    monkeypatch.setenv("RAG_DATABASE_URL", urls[1])
    monkeypatch.setenv("RAG_VECTOR_STORE", "postgres")  # prompts are in no store
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("command", ["", "list", "show", "add", "activate", "deactivate", "weigh"])
def test_every_command_has_help(command: str, main: Run) -> None:
    shown = main("prompts", *command.split(), "--help")
    assert (shown.status, shown.err) == (0, "")
    assert shown.out.startswith(f"Usage: rag-app prompts {command}".rstrip())
    for line in shown.out.splitlines():
        assert not re.fullmatch(r"  (-\w, )?--?[\w-]+( \S+)?( +\[required\])?", line), f"no help for {line}"


def test_a_version_from_its_file_to_half_of_the_threads(rag: Run, main: Run, tmp_path: Path) -> None:
    first = rag("db", "upgrade").out
    assert "prompts added: ask_lexybrain_alert_explanation_v1, ask_lexybrain_competitor_intel_v1" in first
    assert "prompts added" not in main("db", "upgrade").out

    listed = {each["name"]: each for each in main("prompts", "list", "--json").json}
    assert set(listed) == {each.name for each in released_prompts(resource_folder("prompts"))}
    assert listed["ask_lexybrain_market_brief_v1"] == {
        "name": "ask_lexybrain_market_brief_v1", "type": "market_brief", "is_active": True, "weight": 1,
        "constraints": {"max_keywords": 20, "retrieval_scope": ["keywords", "trends"]}, "share": 1.0,
    }  # fmt: skip

    file = tmp_path / "ask_lexybrain_market_brief_v2.toml"
    file.write_text(NEW)
    assert rag("prompts", "add", file).out == "ask_lexybrain_market_brief_v2\tmarket_brief\t3\tnot in use\n"
    assert main("prompts", "activate", file.stem).out.endswith("\t3\t75% of new threads\n")
    assert main("prompts", "weigh", file.stem, 1).out.endswith("\t1\t50% of new threads\n")
    assert "ask_lexybrain_market_brief_v1\tmarket_brief\t1\t50% of new threads\n" in main("prompts", "list").out
    assert_fails(main("prompts", "add", file), "'ask_lexybrain_market_brief_v2' already exists")

    shown = main("prompts", "show", file.stem)
    third = tmp_path / "ask_lexybrain_market_brief_v3.toml"
    third.write_text(shown.out)
    assert load_config(third).instructions == "Be brief." and load_config(third).active
    assert main("prompts", "show", file.stem, "--json").json["system_instructions"] == "Be brief."

    assert main("prompts", "deactivate", file.stem).err == ""
    left = main("prompts", "deactivate", "ask_lexybrain_market_brief_v1")
    assert left.out.endswith("\t1\tnot in use\n")
    assert left.err.startswith("note: no version of market_brief is in use")
    assert "prompts added" not in main("db", "upgrade").out, "what was switched off stays off"
    assert not {each["name"]: each for each in json.loads(main("prompts", "list", "--json").out)}[
        "ask_lexybrain_market_brief_v1"
    ]["is_active"]


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        ("prompts activate nowhere", "no prompt version named 'nowhere'", 1),
        ("prompts show nowhere", "no prompt version named 'nowhere'", 1),
        ("prompts weigh nowhere 2", "no prompt version named 'nowhere'", 1),
        ("prompts weigh nowhere -1", "No such option", 2),
        ("prompts weigh nowhere 1000001", "Invalid value for", 2),
        ("prompts weigh nowhere much", "Invalid value for", 2),
        ("prompts weigh nowhere", "Missing argument 'W'", 2),
        ("prompts add nowhere.toml", "nowhere.toml: No such file or directory", 1),
    ],
)
def test_ways_to_fail(arguments: str, message: str, status: int, main: Run) -> None:
    assert_fails(main(*arguments.split()), message, status=status)


def test_a_file_that_is_refused(main: Run, tmp_path: Path) -> None:
    file = tmp_path / "ask_lexybrain_market_brief_v9.toml"
    file.write_text(NEW.replace("max_keywords = 5", "max_keywords = 500"))
    assert_fails(main("prompts", "add", file), "v9.toml: max_keywords: must be a whole number from 1 to 100")
    assert "v9" not in main("prompts", "list").out
