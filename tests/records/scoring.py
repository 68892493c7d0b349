"""Whether an answer is right, by the rules of tests/records/README.md."""

import re
from enum import StrEnum

from rag_app.evaluation.answer_facts import Reply
from tests.records.expected import Row

_FIGURE = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


class Verdict(StrEnum):
    """`refused`: it was not answered where an answer was expected; no figure is told then."""

    RIGHT = "right"
    REFUSED = "refused"
    WRONG = "wrong"


def verdict(line: Row, reply: Reply) -> Verdict:
    """
    >>> line = {"refuse": False, "must": [["Theo"], ["1234"]], "must_not": ["Mai"], "order": []}
    >>> verdict(line, Reply("Theo has sold 1,234.00 [Source 1].", refused=False)).value
    'right'
    """
    said = _plain(reply.text)
    false = any(_stands(each, said) for each in line["must_not"])
    if line["refuse"]:
        return Verdict.RIGHT if reply.refused and not false else Verdict.WRONG
    complete = all(any(_stands(each, said) for each in wordings) for wordings in line["must"])
    if complete and not false and _in_order(line["order"], said):
        return Verdict.RIGHT
    return Verdict.REFUSED if reply.refused and not false else Verdict.WRONG


def _in_order(names: list[list[str]], said: str) -> bool:
    places = [_place(wordings, said) for wordings in names]
    known = [place for place in places if place >= 0]
    return known == sorted(known)


def _place(wordings: list[str], said: str) -> int:
    found = [match.start() for each in wordings if (match := _pattern(each).search(said))]
    return min(found, default=-1)


def _stands(text: str, said: str) -> bool:
    if _FIGURE.fullmatch(text):
        return any(_number(each) == _number(text) for each in _FIGURE.findall(said))
    return _pattern(text).search(said) is not None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(_plain(text).rstrip('?!.'))}(?!\w)")


def _number(figure: str) -> float:
    return float(figure.replace(",", "").rstrip("."))


def _plain(text: str) -> str:
    """Case, white space, markers of sources and typographic signs do not count."""
    text = re.sub(r"\[Source \d+\]", "", text).replace("−", "-").replace("’", "'")
    return " ".join(text.casefold().split())
