"""The questions over records: each line is whole, and its answer is what the files give."""

from collections import Counter
from datetime import date
from typing import Any

import pytest

from tests.records.expected import FOREIGN, ROOT, expect, lines

FILES = {"tuning.jsonl": 553, "held_out.jsonl": 0, "foreign.jsonl": 76, "aside.jsonl": 24}
KINDS = {"superlative", "count", "total", "average", "period", "own", "list", "group", "trap"}
KINDS |= {"share", "difference", "mean", "first", "having", "per", "one", "record"}
COMPUTED = ("must", "must_not", "order", "rows", "records")
TRAPS = {"field", "period", "organization", "words"}
FIELDS = {
    "id",
    "kind",
    "corpus",
    "organization",
    "user",
    "site",
    "language",
    "today",
    "question",
    "query",
    "must",
    "must_not",
}
FIELDS |= {"order", "refuse", "rows", "records"}


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    return lines(*FILES)


def test_files_hold_their_share() -> None:
    assert {name: len(lines(name)) for name in FILES} == FILES
    assert Counter(line["split"] for line in lines("foreign.jsonl")) == {"tuning": 76}


def test_lines_are_whole(questions: list[dict[str, Any]]) -> None:
    corpora = {path.name for path in (ROOT / "indexes").iterdir()} | {*FOREIGN}
    for line in questions:
        assert line.keys() >= FIELDS and line.keys() - FIELDS <= {"trap", "note", "split", "before"}, line["id"]
        assert line["kind"] in KINDS and line["corpus"] in corpora, line["id"]
        assert line.get("trap") in (TRAPS if line["kind"] == "trap" else {None}), line["id"]
        assert line["refuse"] or line["must"], f"{line['id']}: nothing is expected"
        assert line["today"] is None or date.fromisoformat(line["today"]), line["id"]


def test_no_phrase_is_used_twice(questions: list[dict[str, Any]]) -> None:
    for name in ("id", "question"):
        assert [value for value, times in Counter(line[name] for line in questions).items() if times > 1] == []


def test_files_give_what_is_expected(questions: list[dict[str, Any]]) -> None:
    differing = [line["id"] for line in questions if expect(line) != {name: line[name] for name in COMPUTED}]
    assert differing == []
