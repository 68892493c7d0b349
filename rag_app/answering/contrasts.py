"""Whether a text speaks of another thing than a question: of dogs, where cats are asked about. English and German words."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from rag_app.answering.citations import content_words
from rag_app.domain import WEEKDAYS, read_table

_WORDS = read_table(__file__)
_SETS = [[frozenset(each.split()) for each in one] for one in (*_WORDS["ordered"], *_WORDS["sets"])]
_ORDERED_COUNT = len(_WORDS["ordered"])
_EVERYTHING = frozenset(_WORDS["everything"].split())
_APART = re.compile(
    r"(?<!in )\bmay\b(?!\s?(?:to|and|until|[-–]))|\b(?:per|pro) \w+|/ ?\w+"
)  # the verb; "£9 per person"
_JOINED_PREFIX = re.compile(r"\b(non|full(?=[- ]time\b)|part(?=[- ]time\b))[- ]", re.IGNORECASE)
_SHORT_DAYS = {day[:3]: day for day in map(str.title, WEEKDAYS[:7])}
_SHORT_DAY = re.compile(
    rf"\b(?:{'|'.join(_SHORT_DAYS)})\b(?=\.?(?:$|[;,:/)]|\s?[-–]|\s\d|\s(?:to|and|or|early|late|night|morning|afternoon|evening)\b))"
)
_RANGE_WORDS = frozenset({"to", "until", "till", "through", "bis", "-", "–"})


def speaks_of_another(question: str, text: str, *, times: bool = False) -> bool:
    """Whether a text is about another thing of a sort: it names a dog and no cat, and the question names a cat.

    With `times` only days of the week and months are compared.

    >>> [speaks_of_another("What does a cat cost?", text) for text in ("Dogs: $9", "Dogs and cats: $9", "Any pet: $9")]
    [True, False, False]
    >>> speaks_of_another("What is a room in June?", "May to September: $90"), speaks_of_another("on Friday", "Saturday: $9")
    (False, True)
    """
    others = (named and wanted not in named for wanted, named in _compare(question, text, times))
    return any(others) and not _EVERYTHING & {*_words(text)}


def speaks_of_asked(question: str, text: str, *, times: bool = False) -> bool:
    """Whether a text names the thing of a sort that a question names; with `times` the day of the week or the month.

    >>> speaks_of_asked("Open on Friday?", "Thursday to Saturday: 9 to 5", times=True), speaks_of_asked("A girl?", "Dog, female")
    (True, True)
    """
    return any(wanted in named for wanted, named in _compare(question, text, times))


def exchange_thing(question: str, thing: str) -> str:
    """The question with its word for a thing of a sort exchanged for the one that is named; empty where there is no such.

    >>> exchange_thing("Are dogs allowed on Mondays?", "cats"), exchange_thing("Are dogs allowed?", "lamps")
    ('Are cats allowed on Mondays?', '')
    """
    words = {word: _words(word) for word in re.findall(r"[^\W\d_]+", question)}
    for number, wanted in _ask_for(thing).items():
        places = {word: _groups_of(said, _SETS[number]) for word, said in words.items()}
        named = [word for word, groups in places.items() if groups]
        if len(named) == 1 and wanted not in places[named[0]]:
            said = [each for each in re.findall(r"[^\W\d_]+", thing) if _groups_of(_words(each), _SETS[number])]
            return re.sub(rf"\b{named[0]}\b", said[0], question) if len(content_words(thing)) == 1 else ""
    return ""


def things_apart(one: str, other: str) -> list[tuple[set[int], set[int]]]:
    """For each sort of which two texts name different things, what each of them names: adults, weekdays, dogs. Nothing
    where one speaks of everything.

    >>> [things_apart("Adults pay $9", each) for each in ("A child pays $5", "A swim is $5", "Anybody, on any day: $5")]
    [[({0}, {1})], [({0}, set())], []]
    """
    words = [_words(each) for each in (one, other)]
    if any(_EVERYTHING & {*each} for each in words):
        return []
    named = [
        tuple({*(_fill_ranges if number < _ORDERED_COUNT else _groups_of)(each, groups)} for each in words)
        for number, groups in enumerate(_SETS)
    ]
    return [(left, right) for left, right in named if left != right]


def _compare(question: str, text: str, times: bool) -> Iterator[tuple[int, list[int]]]:
    """For each set of which the question names one member: the place of that one, and of those that the text names."""
    for number, wanted in _ask_for(question).items():
        if number < _ORDERED_COUNT:
            yield wanted, _fill_ranges(_words(text), _SETS[number])
        elif not times:
            yield wanted, _groups_of(_words(text), _SETS[number])


@lru_cache(64)
def _ask_for(question: str) -> Mapping[int, int]:
    """The sets of which a question names one member, and the place of that one. Asked again for each sentence that is found."""
    words = _words(question)
    named = {number: {*_groups_of(words, groups)} for number, groups in enumerate(_SETS)}
    return {number: found.pop() for number, found in named.items() if len(found) == 1}


def _groups_of(words: Sequence[str], groups: Sequence[frozenset[str]]) -> list[int]:
    return [number for word in words for number, group in enumerate(groups) if word in group]


def _fill_ranges(words: Sequence[str], groups: Sequence[frozenset[str]]) -> list[int]:
    """The groups that are named, and those between two of them: "Monday to Friday"."""
    found = _groups_of(words, groups)
    for place, word in enumerate(words):
        ends = _groups_of(words[place - 1 : place], groups), _groups_of(words[place + 1 : place + 2], groups)
        if word in _RANGE_WORDS and all(ends):
            first, last = ends[0][0], ends[1][0]
            found += range(first, last if first <= last else last + len(groups))
    return [each % len(groups) for each in found]


def write_out_days(text: str) -> str:
    """
    >>> write_out_days("Day: Wed; Shift: Late"), write_out_days("Sun cream"), write_out_days("Thu 7 to 9")
    ('Day: Wednesday; Shift: Late', 'Sun cream', 'Thursday 7 to 9')
    """
    return _SHORT_DAY.sub(lambda day: _SHORT_DAYS[day[0]], text)


def _words(text: str) -> list[str]:
    plain = _APART.sub(" ", _JOINED_PREFIX.sub(r"\1", write_out_days(text)))
    return re.findall(r"[^\W\d_]+|[-–]", plain.casefold())
