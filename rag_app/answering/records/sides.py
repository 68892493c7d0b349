"""Two sides of a question that have days of their own: "A's price in May against B's in June", "her visit in May than the one in June".

The second side has the words of the first one, but for its days and for whom it names: a day of one side is none of the other's.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date

from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.records.asking import without_period
from rag_app.answering.records.steps import asks_difference
from rag_app.answering.records.titles import read_names
from rag_app.answering.records.wording import Token
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import Period, find_period, means_part
from rag_app.retrieval.records import NamedValue

_LINK = re.compile(
    r"\b(?:than|against|versus|vs|compared (?:to|with)|and|or|als|gegen|und|oder|que|contre|et|ou)\b", re.I
)
_SHARED_ROLES = frozenset({"field", "kind", "unit", "own", "total"})  # roles of words that both sides may say


class Side(Struct, frozen=True):
    """One of the two: what is asked of it, without its days, these days, and whom it names that the other one does not.

    What the days are "said" with is the word between the two sides.
    """

    text: str
    period: Period
    name: str = ""


def split_sides(text: str, today: date) -> Iterator[tuple[Side, Side]]:
    """The parts of a question around a word that sets two against each other, where both have days."""
    for link in _LINK.finditer(text):
        parts = text[: link.start()], text[link.end() :]
        days = [(part, find_period(part, today)) for part in parts]
        sides = [
            Side(without_period(part, period), replace(period, said=link[0], span=(0, 0), otherwise=None))
            for part, period in days
            if period is not None and period.start and period.end and not means_part(part, period)
        ]
        if len(sides) == 2:
            yield sides[0], sides[1]


def first_side_has_day(text: str, period: Period | None) -> bool:
    """Whether a difference is asked for, and the first side alone has a day, which may be none of the other's.

    >>> text = "By how much was A's visit on 8 January dearer than B's?"
    >>> first_side_has_day(text, find_period(text, date(2026, 1, 14)))
    True
    """
    day = period is not None and period.grain == "day" and asks_difference(text)
    return day and period is not None and re.search(r"\bthan\b", text[period.span[1] :], re.I) is not None


def share_words(one: Side, other: Side, spec: IndexSpec, values: Sequence[NamedValue]) -> Sequence[Side]:
    """Both sides with the words of the first; none where the second says anything but days, a name and the same words again."""
    first, second = (read_names(each.text, spec, values) for each in (one, other))
    again = {token.meaning for token in first if token.role in _SHARED_ROLES}
    named = [place for place, token in enumerate(second) if token.role == "value"]
    others = [token for token in second if token.role != "value" and not token.inside]
    if len(named) > 1 or not all(token.meaning in again or (token.said and token.meaning is None) for token in others):
        return ()
    places = [
        place
        for token in second
        if token.role == "value"
        for place, each in enumerate(first)
        if each.name == token.name and each.role == "value"
    ]
    if len(places) != len(named) or (places and (first[places[0]].also or second[named[0]].also)):
        return ()
    said = " ".join(token.text for token in first)
    texts, names = [said, said], ["", ""]
    if places and first[places[0]].meaning != second[named[0]].meaning:
        names = [" ".join(_phrase(tokens, place)) for tokens, place in ((first, places[0]), (second, named[0]))]
        behind = places[0] + len(_phrase(first, places[0]))
        texts[1] = " ".join(
            (*(token.text for token in first[: places[0]]), names[1], *(token.text for token in first[behind:]))
        )
    elif one.period.meets(other.period.start or date.min, other.period.end or date.max):
        return ()
    return [replace(each, text=text, name=name) for each, text, name in zip((one, other), texts, names, strict=True)]


def _phrase(tokens: Sequence[Token], place: int) -> list[str]:
    """The words of the phrase that begins at a place."""
    behind = [*tokens[place + 1 :]]
    size = next((at for at, token in enumerate(behind) if not token.inside), len(behind))
    return [token.text for token in tokens[place : place + 1 + size]]
