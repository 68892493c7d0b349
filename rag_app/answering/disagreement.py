"""Whether two sentences state different values of one fact.

A value is a figure with its unit, a time, a date, a name, or whether something is so. Two sentences disagree where
they speak of the same thing in nearly the same words, and one value of one kind differs. In doubt they do not.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from msgspec import Struct

from rag_app.answering.citations import content_words
from rag_app.answering.verification.figures import MONEY, UNITS, figures_of
from rag_app.domain import DAY_NUMBERS, MONTH_NUMBERS
from rag_app.retrieval.text import NUMBER_WORDS, words_in

COLOURS = frozenset(words_in("black white red green blue yellow orange purple pink brown grey gray"))
_HOUR_IN_WORDS = re.compile(
    rf"\b(?<!past )(?<!to )(?P<hour>{'|'.join(word for word, number in NUMBER_WORDS.items() if 1 <= number <= 12)}|\d{{1,2}})"
    r"(?: o['’]clock)?(?: in the (?P<part>morning|afternoon|evening)| o['’]clock)\b"
    rf"|(?<=\bat )(?P<bare>{'|'.join(word for word, number in NUMBER_WORDS.items() if 1 <= number <= 12)})(?=[,.;)]|$| (?:on|every|and|or|to|until|sharp)\b)",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"\b(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|(?<=the )last|\d{1,2}(?:st|nd|rd|th))\b",
    re.IGNORECASE,
)
_LEAD = 4  # words before a figure
_SECONDS_A_MONTH = 30 * 86_400
_FREE = re.compile(r"\b(?:is|are|was|were|comes?|for) free\b|\bfree of charge\b|\bcosts? nothing\b", re.IGNORECASE)
_NOT = re.compile(r"\b(?:not|no|never|cannot|without|neither)\b|n['’]t\b", re.IGNORECASE)
# Words that say that there is a value, and not of what.
_PLAIN = frozenset(
    words_in(
        """
    once twice cost price charge amount take last require need must may might have contain include hold make
    bring sit lie lead led keep kept stay open opened opening close closed start begin began end ended finish
    due least most maximum minimum total about around up within under over only now currently get give given
    return long write wrote written there people every at a an employ located go goe run change found use used
    build built doe don isn aren wasn doesn cannot never not without t time per free charge
    """
    )
)
NO_SUBJECT = _PLAIN | NUMBER_WORDS.keys() | UNITS.keys() | DAY_NUMBERS.keys() | MONTH_NUMBERS.keys()


class Statement(Struct, frozen=True):
    """What a sentence says: the words for what it is about, the values by their kinds, and whether it denies something."""

    about: frozenset[str]
    names: frozenset[str]
    values: Mapping[str, frozenset[Any]]
    denies: bool


def disagree(one: str, other: str) -> bool:
    """
    >>> disagree("A cut costs 40 dollars.", "A cut costs $45."), disagree("A cut costs 40 dollars.", "A colour costs $45.")
    (True, False)
    >>> disagree("Dogs are allowed.", "Dogs are not allowed."), disagree("It takes two days.", "It takes 48 hours.")
    (True, False)
    """
    left, right = statement_of(one), statement_of(other)
    if left.denies == right.denies and _differ_behind_same_words(one, other):
        return True
    common = left.about & right.about
    if not common or (left.about ^ common and right.about ^ common):
        return False  # each of them speaks of something of its own
    if len(common) * 2 < max(len(left.about), len(right.about)):
        return False
    differing = kinds_apart(left, right)
    if left.denies != right.denies:
        return not differing and left.about == right.about
    if differing:
        at_some_time = (left.values.keys() ^ right.values.keys()) & {"weekday", "month", "year"}
        is_time = differing & {"weekday", "month", "date", "year"}
        return len(differing) == 1 and left.names == right.names and bool(is_time or not at_some_time)
    apart = left.names - right.names, right.names - left.names
    return bool(apart[0] and apart[1]) and left.about == right.about and not left.values and not right.values


def kinds_apart(one: Statement, other: Statement) -> set[str]:
    """The kinds of which both have values, and none in common."""
    return {kind for kind in one.values.keys() & other.values.keys() if not one.values[kind] & other.values[kind]}


def _differ_behind_same_words(one: str, other: str) -> bool:
    """Whether one figure stands behind the same words in both, another one in each: "is turned off on 15 May, as Ada said".

    >>> _differ_behind_same_words("Ada said that water is turned off on 15 May.", "The water is turned off on 31 May, at noon.")
    True
    >>> _differ_behind_same_words("The tour lasts 2 hours.", "The tour lasts 90 minutes.")
    False
    """
    left, right = (re.findall(r"\w+", text.casefold()) for text in (one, other))
    for place, word in enumerate(left):
        for at in (at for at, each in enumerate(right) if word.isdigit() and each.isdigit() and each != word):
            alike = [
                *takewhile(lambda pair: pair[0] == pair[1], zip(left[:place][::-1], right[:at][::-1], strict=False))
            ]
            said = content_words(" ".join(same for same, _ in alike[:_LEAD])) - NO_SUBJECT
            if left[place + 1 : place + 2] == right[at + 1 : at + 2] != [] and len(alike) >= _LEAD and len(said) > 1:
                before = (statement_of(" ".join(words)) for words in (left[:place], right[:at]))
                return not kinds_apart(*before)  # nothing else is said to be of another year
    return False


def statement_of(text: str) -> Statement:
    plain, said = " ".join(text.split()), [*_values(text)]
    values = {kind: frozenset(value for each, value in said if each == kind) for kind, _ in said}
    names = frozenset(
        word
        for name in re.findall(r"(?<!^)\b[A-Z][a-z]+\b|^[A-Z][a-z]+(?= [A-Z])", plain)
        for word in content_words(name)
    ) - (DAY_NUMBERS.keys() | MONTH_NUMBERS.keys())
    words = frozenset(word for word in content_words(plain) if word.isalpha())
    about = words - names - NO_SUBJECT - {value for _, value in said}
    return Statement(about, names, values, _NOT.search(plain) is not None)


def _write_hour(found: re.Match[str]) -> str:
    """An hour in digits.

    >>> [_HOUR_IN_WORDS.sub(_write_hour, each) for each in ("until one in the afternoon", "at nine o'clock", "at nine per cent")]
    ['until 1 pm', "at 9 o'clock", 'at nine per cent']
    """
    said = (found["hour"] or found["bare"]).casefold()
    part = (found["part"] or "").casefold()
    half = {"": "o'clock", "morning": "am"}.get(part, "pm")
    return f"{NUMBER_WORDS.get(said, said)} {half}"


def _values(text: str) -> Iterator[tuple[str, object]]:
    """The kind and the value of each figure, day, month and colour; a figure that may be read in two ways has both."""
    found = figures_of(_HOUR_IN_WORDS.sub(_write_hour, text))
    for each in found.numbers:
        is_year = not each.dimension and all(1500 < value < 2100 for value in each.values)
        kind, factor = ("time", _SECONDS_A_MONTH) if each.dimension == "months" else (each.dimension, 1)
        yield from (("year" if is_year else kind, factor * value) for value in each.values)
    for date in found.dates:
        yield from ((kind, part) for kind, part in zip(("year", "month", "date"), date, strict=True) if part)
    yield from (("weekday", day) for day in found.weekdays)
    yield from (("hour", minutes) for each in found.times for minutes in each)
    yield from (("place", place.casefold()) for place in _PLACE.findall(text))
    if re.search(r"\bonce\b", text, re.IGNORECASE):
        yield "", 1.0
    yield from (("colour", word) for word in content_words(text) & COLOURS)
    if _FREE.search(text):
        yield "paid", False
    elif any(each.dimension in MONEY for each in found.numbers):
        yield "paid", True
