"""Whether a figure that a question gives falls into a range that a text states: "8 miles" into "5 to 12 miles".

Rules for English and German. A figure is compared with ranges of its unit, or with those of which no unit is told.
"""

import re
from collections.abc import Iterator
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.citations import content_words
from rag_app.answering.kinds import numbers_in
from rag_app.answering.verification.figures import MONEY, UNITS
from rag_app.domain import MONTH_NUMBERS, read_table
from rag_app.retrieval.confidence import stem
from rag_app.retrieval.text import NUMBER_WORDS

_LISTS = read_table(__file__)
_RANGE_WORDS, _AGE, _NO_NAME, _PEOPLE = (
    frozenset(_LISTS["words"][key].split()) for key in ("between", "age", "no_name", "people")
)
_SECONDS_A_MONTH = 30.44 * 86_400
_YEAR = 1500, 2100
_CHARACTERS_BEFORE = 8  # characters before a figure in a question: "aged 7"
_NUMBER = rf"(?:\d{{1,4}}(?:[.,]\d+)?|\b(?:{'|'.join(NUMBER_WORDS)})\b)"
_NO_FIGURE_BEFORE = r"(?<![\w.,:/$£€#-])(?<![$£€]\s)"
_UNIT = r"(?:[ \u00a0-]?(?P<{}>[^\W\d_]+|%))?"
_NO_TIME = r"(?![:.,/]?\d)"


def _alternatives(key: str, bound: str) -> str:
    return "|".join(_LISTS[key].get(bound, []) or ["(?!)"])


_FROM_TO = re.compile(
    rf"{_NO_FIGURE_BEFORE}(?P<low>{_NUMBER}){_NO_TIME}{_UNIT.format('unit')}\s?(?:[-–—]|\b(?:{'|'.join(_RANGE_WORDS)})\b)\s?"
    rf"(?P<high>{_NUMBER}){_NO_TIME}{_UNIT.format('last')}",
    re.IGNORECASE,
)
_BOUND_BEFORE = re.compile(
    "|".join(
        rf"(?P<{bound}>\b(?:{_alternatives('before', bound)})\b)" for bound in ("most", "below", "least", "above")
    ),
    re.IGNORECASE,
)
_LONE = re.compile(rf"{_NO_FIGURE_BEFORE}(?P<low>{_NUMBER}){_NO_TIME}{_UNIT.format('unit')}", re.IGNORECASE)
_BOUND_BEHIND = re.compile(
    "|".join(rf"(?P<{bound}>^\s?(?:{_alternatives('after', bound)}))" for bound in ("most", "least"))
    + r"|(?P<plus>^\+)",
    re.IGNORECASE,
)
_NO_QUANTITY = re.compile(r"^\s?(?:[ap]\.?m\b|o['’]clock|uhr\b|st\b|nd\b|rd\b|th\b)", re.IGNORECASE)


class Range(Struct, frozen=True):
    """From `low` to `high` in the smallest unit of `dimension`, which is that of a unit, a word for what is counted, or
    empty; `factor` is how many of these the unit has."""

    low: float
    high: float
    dimension: str = ""
    factor: float = 1.0
    open_end: bool = False

    def covers(self, other: "Range") -> bool | None:
        """Whether a single figure is in the range; None where the two cannot be compared."""
        factors = self.factor, other.factor
        if self.low == self.high and other.low / other.factor % 1:
            return self.low / self.factor == other.low / other.factor  # "the 6.2 tower": a name more than a figure
        if self.dimension != other.dimension:
            if not self._may_be_of(other):
                return None
            factors = 1.0, 1.0
        value = other.low / other.factor * factors[1]
        low, high = (end / self.factor * factors[0] for end in (self.low, self.high))
        return low <= value < high if self.open_end else low <= value <= high

    def _may_be_of(self, other: "Range") -> bool:
        """Whether figures of two dimensions may be of one: one of them is of none, and the other a count or an age."""
        known = {self.dimension, other.dimension} - {""}
        ages = "time" in known and any(each.factor >= 12 * _SECONDS_A_MONTH - 1 for each in (self, other))
        return len(known) < 2 and (ages or not known & _DIMENSIONS)


_DIMENSIONS = frozenset(dimension for dimension, _ in UNITS.values())


def fits(question: str, text: str, label: str = "", *, exact: bool = False) -> bool | None:
    """Whether a figure of the question is in a range of the text; None where none can be compared. `label` is what the text
    stands under; with `exact` a figure alone is a range of its own.

    >>> [fits("What is it for 8 miles?", each) for each in ("5 to 12 miles", "up to 5 miles", "12 kg", "5 to 12 kg", "beyond 7 miles")]
    [True, False, None, None, True]
    >>> fits("My 7 year old", "5-9", "Age"), fits("For a 32h contract", "32 hours", exact=True), fits("In 2026?", "from 65")
    (True, True, None)
    """
    ranges = [*ranges_in(text, label, exact=exact)]
    found = [each.covers(figure) for figure in quantities_in(question) for each in ranges] if ranges else []
    compared = [each for each in found if each is not None]
    return any(compared) if compared else None


def quantities_in(text: str) -> list[Range]:
    """The figures of a question that may be looked up in ranges: neither money nor a time, a year or the number of something.

    >>> [(each.low, each.dimension) for each in quantities_in("At 5 pm, 12 kilos and 8 people for $4 in room 3, in 2026")]
    [(12000.0, 'mass'), (8.0, 'people')]
    """
    numbered = {sign for (word, _), signs in numbers_in(text).items() if word not in _AGE | _NO_NAME for sign in signs}
    found = (each for each in _LONE.finditer(text) if not _NO_QUANTITY.match(text[each.end("low") :]))
    named = [
        (
            _range(
                each["low"], each["low"], each["unit"], text[max(0, each.start() - _CHARACTERS_BEFORE) : each.start()]
            ),
            each["low"],
        )
        for each in found
    ]
    return [
        each
        for each, written in named
        if each is not None and not (each.dimension == "" and written.lstrip("0") in numbered) and not _is_year(each)
    ]


def ranges_in(text: str, label: str = "", *, exact: bool = False) -> Iterator[Range]:
    """The ranges that a text states, in the order of their kinds.

    >>> [(each.low, each.high, each.dimension) for each in ranges_in("from 65, 5 to 12 kg, 3 and under")]
    [(5000.0, 12000.0, 'mass'), (65.0, inf, ''), (-inf, 3.0, '')]
    >>> [[each.low < each.high for each in ranges_in(text)] for text in ("21 to 8 days before", "voted down 4 to 2")]
    [[True], []]
    """
    rest = text
    for each in _FROM_TO.finditer(text):
        unit = each["last"] or each["unit"]
        found = _range(each["low"], each["high"], unit, label)
        rest = rest.replace(each[0], " ; ", 1)
        if found is not None and found.low > found.high and found.dimension in _DIMENSIONS:
            found = replace(found, low=found.high, high=found.low)  # "21 to 8 days before"
        if found is not None and found.low < found.high and not _is_year(found):
            yield found
    for each in _LONE.finditer(rest):
        bound = _bound_of(rest, each)
        found = _range(each["low"], each["low"], each["unit"], label)
        if found is None or _NO_QUANTITY.match(rest[each.end("low") :]) or _is_year(found):
            continue
        if bound in ("most", "below"):
            yield Range(-inf, found.high, found.dimension, found.factor, bound == "below")
        elif bound in ("least", "above"):
            yield Range(found.low, inf, found.dimension, found.factor)
        elif exact and (found.dimension or rest.strip() == each[0].strip()):
            yield found


def _bound_of(text: str, figure: re.Match[str]) -> str:
    before = [*_BOUND_BEFORE.finditer(text[max(0, figure.start() - 20) : figure.start()])]
    if before and not text[max(0, figure.start() - 20) : figure.start()][before[-1].end() :].strip(" .:"):
        return before[-1].lastgroup or ""
    for end in (figure.end("low"), figure.end()):
        if behind := _BOUND_BEHIND.match(text[end:]):
            return "least" if behind.lastgroup == "plus" else behind.lastgroup or ""
    return ""


def _range(low: str, high: str, unit: str | None, label: str) -> Range | None:
    """None of money and of days of a month. A unit that is not told beside the figure may be in the label."""
    word = (unit or "").casefold()
    if word in MONTH_NUMBERS:
        return None
    if word not in UNITS and not (content_words(word) - _RANGE_WORDS):
        told = [each for each in re.findall(r"[^\W\d_]+", label.casefold()) if each in UNITS and len(each) > 1]
        word = told[0] if told else "years" if {*re.findall(r"\w+", label.casefold())} & _AGE else ""
    dimension, factor = UNITS.get(word, (_name_counted(word), 1.0))
    if dimension in MONEY:
        return None
    if dimension == "months":
        dimension, factor = "time", factor * _SECONDS_A_MONTH
    return Range(_value(low) * factor, _value(high) * factor, dimension, factor)


def _name_counted(word: str) -> str:
    return "people" if word in _PEOPLE else stem(word) if word else ""


def _value(written: str) -> float:
    word = written.casefold()
    return float(NUMBER_WORDS[word]) if word in NUMBER_WORDS else float(word.replace(",", "."))


def _is_year(each: Range) -> bool:
    return each.dimension == "" and any(_YEAR[0] < end < _YEAR[1] for end in (each.low, each.high))
