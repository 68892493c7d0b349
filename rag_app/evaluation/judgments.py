"""Questions and the sources that answer them, read from an index's own file or from TREC's formats."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag_app.domain import InvalidInput, describe_problem, require

Qrels = Mapping[str, Mapping[str, int]]
"""Query id -> external id of a source -> grade; relevant from 1 on."""

Text = Annotated[str, Field(pattern=r"\S")]
_QREL = re.compile(r"(\S+)\s+\S+\s+(\S.*?)\s+(\S+)")


class Line(BaseModel):
    """One line of a file: what its id names."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    id: Text


class _QuestionLine(Line):
    text: Text
    organization: Text | None = None
    site: Text | None = None
    user: Text | None = None
    lang: Text | None = None
    demo: bool = False


class Query(_QuestionLine):
    """A question to measure with, and as whom it is asked: slugs of organization and site, e-mail of the user.

    `answerable` is False where no source answers it, None where its file does not say.
    """

    answerable: bool | None = None


class _JudgmentLine(_QuestionLine, extra="forbid"):  # closed: with a misspelt `user` it would be asked in another scope
    organization: Text
    sources: tuple[Text, ...]


class JudgmentSet(Struct, frozen=True):
    """`queries` are those that are judged or known to be unanswerable, in the order of their file."""

    queries: tuple[Query, ...]
    qrels: Qrels

    @property
    def answerable(self) -> frozenset[str]:
        """Ids of the queries with a relevant source."""
        return frozenset(query for query, grades in self.qrels.items() if max(grades.values(), default=0) >= 1)

    @property
    def unanswerable(self) -> frozenset[str]:
        return frozenset(query.id for query in self.queries if query.answerable is False)


def read_judgments(path: Path) -> JudgmentSet:
    """An index's own `judgments.jsonl`: `{"id", "organization", "text", "sources": [external ids]}` a line.

    Optional: `site`, `user`, `lang`, `demo`. A query without sources is unanswerable. Raises InvalidInput with file,
    line and what is accepted.
    """
    lines = read_jsonl(path, _JudgmentLine)
    queries = [Query(**line.model_dump(exclude={"sources"}), answerable=bool(line.sources)) for line in lines]
    return JudgmentSet(tuple(queries), {line.id: dict.fromkeys(line.sources, 1) for line in lines if line.sources})


def read_trec(queries: Path, qrels: Path) -> JudgmentSet:
    """`queries` in JSONL with judgments in TREC's format (see read_qrels).

    `{"id", "text"}` a line of queries; Query's other fields are optional, further ones are ignored. A query without judgments is left out, unless its line says `"answerable": false`. Raises InvalidInput as they do.
    """
    asked = read_jsonl(queries, Query)
    judged = read_qrels(qrels, {query.id for query in asked})
    return JudgmentSet(tuple(query for query in asked if query.id in judged or query.answerable is False), judged)


def judgments_of(qrels: Qrels) -> JudgmentSet:
    """Judgments by the text of each query, which is its id, too.

    >>> judgments_of({"what sells?": {"kw-1": 1}}).queries[0].text
    'what sells?'
    """
    return JudgmentSet(tuple(Query(id=text, text=text) for text in qrels), qrels)


def read_qrels(path: Path, known: Collection[str]) -> dict[str, dict[str, int]]:
    """TREC judgments: `query 0 document grade` a line, separated by white space, no header; the 0 is not looked at.

    A document's name may have spaces in it, a query's id not. A line may be there again, but not with another grade.
    Raises InvalidInput with file and line, also for a query that is not among `known`.
    """
    qrels: dict[str, dict[str, int]] = {}
    for where, line in _lines(path):
        fields = require(
            _QREL.fullmatch(line),
            InvalidInput(where, line, "accepted: `query 0 document grade`, separated by white space"),
        )
        query, document, grade = fields.groups()
        if not re.fullmatch(r"[+-]?[0-9]+", grade):
            raise InvalidInput(where, grade, f"the grade must be a whole number, not {grade!r}")
        if query not in known:
            raise InvalidInput(where, query, f"no query has the id {query!r}")
        if qrels.setdefault(query, {}).setdefault(document, int(grade)) != int(grade):
            raise InvalidInput(where, grade, f"{document!r} has another grade for query {query!r} above")
    return qrels


_Row = TypeVar("_Row", bound=Line)


def read_jsonl(path: Path, kind: type[_Row]) -> list[_Row]:
    """One JSON object a line, each with an id of its own. Raises InvalidInput with file, line and what is accepted."""
    rows: dict[str, _Row] = {}
    for where, line in _lines(path):
        try:
            row = kind.model_validate_json(line)
        except ValidationError as error:
            problem = describe_problem(error.errors()[0])
            names = [name if field.is_required() else f"{name}?" for name, field in kind.model_fields.items()]
            raise InvalidInput(where, line, f"{problem}; accepted: an object with {', '.join(names)}") from error
        if row.id in rows:
            raise InvalidInput(where, row.id, f"the id {row.id!r} is there twice")
        rows[row.id] = row
    return list(rows.values())


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise InvalidInput(str(path), None, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(str(path), None, f"cannot be read: {error}") from error
    if not text.strip():
        raise InvalidInput(str(path), None, "is empty")
    for number, line in enumerate(text.split("\n"), 1):  # splitlines() would break lines at U+2028 inside of JSON
        if line.strip():
            yield f"{path}:{number}", line.strip()
