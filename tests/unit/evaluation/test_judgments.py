"""Reading questions and judgments, and saying which line is wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rag_app.domain.errors import InvalidInput
from rag_app.evaluation.judgments import Query, read_jsonl, read_judgments, read_qrels, read_trec

INDEXES = Path(__file__).parents[3] / "indexes"

NewFile = Callable[..., Path]


@pytest.fixture
def file(tmp_path: Path) -> NewFile:
    def write(content: str | bytes, name: str = "file") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_judgments_of_an_index(file: NewFile) -> None:
    judged = read_judgments(
        file(
            '{"id": "a", "organization": "aurora", "text": "How long?", "sources": ["x.md", "y z.md"], "demo": true}\n'
            "\n"
            '{"id": "b", "organization": "birch", "site": "eu", "user": "u@birch.example", "lang": "fr",'
            ' "text": "Line\u2028separator?", "sources": []}\r\n'
        )
    )
    first, second = judged.queries
    assert (first.id, first.text, first.organization, first.demo, first.answerable) == (
        "a", "How long?", "aurora", True, True,
    )  # fmt: skip
    assert (second.site, second.user, second.lang, second.text) == (
        "eu",
        "u@birch.example",
        "fr",
        "Line\u2028separator?",
    )
    assert judged.qrels == {"a": {"x.md": 1, "y z.md": 1}}
    assert (judged.answerable, judged.unanswerable) == (frozenset("a"), frozenset("b"))


@pytest.mark.parametrize("path", sorted(INDEXES.glob("*/judgments.jsonl")), ids=lambda path: path.parent.name)
def test_every_index_that_ships_has_readable_judgments(path: Path) -> None:
    judged = read_judgments(path)
    assert len(judged.answerable) >= 10 and len(judged.unanswerable) >= 5
    assert sum(query.demo for query in judged.queries) == 3


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"id": "b", ', r":2: Invalid JSON.*accepted: an object with id, text, organization, site\?.*, sources"),
        ('{"id": "b", "organization": "o", "text": "t"}', ":2: sources: Field required"),
        ('{"id": "b", "organization": "o", "text": "t", "sources": "x.md"}', ":2: sources: .*array"),
        ('{"id": "b", "organization": "o", "text": "t", "sources": [null]}', r":2: sources\.0: .*string"),
        ('{"id": "b", "text": "t", "sources": []}', ":2: organization: Field required"),
        ('{"id": "b", "organization": "o", "text": " ", "sources": []}', ":2: text: "),
        ('{"id": "b", "organization": "o", "text": "t", "sources": [], "usr": "u"}', ":2: usr: Extra inputs"),
        ('{"id": "a", "organization": "o", "text": "t", "sources": []}', ":2: the id 'a' is there twice"),
        ("[]", ":2: .*object"),
    ],
)
def test_a_broken_line_of_judgments_is_named(file: NewFile, line: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_judgments(file('{"id": "a", "organization": "o", "text": "t", "sources": []}\n' + line))


def test_trec(file: NewFile) -> None:
    queries = file(
        '\ufeff{"id": "q1", "text": "one", "metadata": {}}\n{"id": 2, "text": "two"}\n'
        '{"id": "q3", "text": "not judged"}\n{"id": "q4", "text": "four", "answerable": false}\n',
        "queries.jsonl",
    )
    qrels = file("q1 0 d1 2\nq1\tQ0\tmy file (2).md\t0\n\n  2   0  d9   -1 \r\nq1 0 d1 2\n", "qrels.trec")
    judged = read_trec(queries, qrels)
    assert [query.id for query in judged.queries] == ["q1", "2", "q4"]
    assert judged.qrels == {"q1": {"d1": 2, "my file (2).md": 0}, "2": {"d9": -1}}
    assert (judged.answerable, judged.unanswerable) == (frozenset({"q1"}), frozenset({"q4"}))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("q1 0 d1", "file:2: accepted: `query 0 document grade`"),
        ("q1", "file:2: accepted: `query 0 document grade`"),
        ("q1 0 d1 1.5", "file:2: the grade must be a whole number, not '1.5'"),
        ("q1 0 d1 high", "file:2: the grade must be a whole number, not 'high'"),
        ("q7 0 d1 1", "file:2: no query has the id 'q7'"),
        ("q1 0 d0 2", "file:2: 'd0' has another grade for query 'q1' above"),
    ],
)
def test_a_broken_line_of_qrels_is_named(file: NewFile, line: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_qrels(file("q1 0 d0 1\n" + line), {"q1"})


def test_a_query_twice(file: NewFile) -> None:
    with pytest.raises(InvalidInput, match=":2: the id 'q' is there twice"):
        read_jsonl(file('{"id": "q", "text": "a"}\n{"id": "q", "text": "b"}'), Query)


@pytest.mark.parametrize(("content", "problem"), [(b"\xff\xfe\x00", "cannot be read"), (b" \n", "is empty")])
def test_a_file_that_is_no_text(file: NewFile, content: bytes, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_jsonl(file(content), Query)


def test_a_file_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere: cannot be read"):
        read_jsonl(tmp_path / "nowhere", Query)
