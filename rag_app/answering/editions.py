"""Which sources say of themselves that they no longer hold: "superseded", "valid until" a day that is past, or an earlier
edition of what is there in a later one.

It is read from titles, names of files and first lines, where these are among what was found. In doubt a source holds:
"this page replaces the leaflet" and "version 4 is withdrawn" are said of others.
"""

import re
from collections.abc import Sequence
from datetime import date
from pathlib import PurePath
from uuid import UUID

from rag_app.domain import MONTH_NUMBERS, YEAR, Hit, read_table

_LISTS = read_table(__file__)
_PHRASES = {key: "|".join(said.split() if isinstance(said, str) else said) for key, said in _LISTS.items()}
_MONTH = "|".join(sorted(MONTH_NUMBERS, key=len, reverse=True))
_LASTING_WORDS, _EDITION = (frozenset(_LISTS[key].split()) for key in ("lasting", "edition"))

_STATUS_LINES, _LINES, _LONGEST = 3, 6, 600  # of a document's beginning
_MOST_WORDS = 12  # "SUPERSEDED by issue 3 of May 2026 - do not hand out"
_STATUS = re.compile(
    rf"(?:^\W*(?:status\W+)?|[(\[–—:*|/,_-]\s*)(?:{_PHRASES['outdated']})"
    r"(?=\W*$|\s*[)\]–—:,.;*_-]|\s+(?:by|on|since|as|from|do|durch|par)\b|\s+\d)"
    rf"|[(\[]\s*(?:{_PHRASES['old']})(?:\s+(?:version|edition|copy|issue))?\s*[)\]]|[–—_-]\s*(?:{_PHRASES['old']})\W*$",
    re.IGNORECASE,
)
_ITSELF = rf"(?:(?:this|these|dies\w*|cette?|ces)\s+(?:[\w-]+\s+){{0,3}}?(?:{_PHRASES['itself']})\s+)"
_OF_ITSELF = re.compile(_ITSELF, re.IGNORECASE)
_MARKS = re.compile(r"^[\s*_>#\"'|-]+|[\s*_>#\"'|-]+$")
_END_OF_VALIDITY = re.compile(
    rf"^\W*(?:(?:note|notice|hinweis)\b\W+)?(?:(?:{_ITSELF}(?:is|are|was|were|has been|have been|ist|sind|wurden?|est|a été)\s+(?:now\s+)?)?(?:{_PHRASES['replaced']})"
    rf"|{_ITSELF}?(?:{_PHRASES['ended']}))",
    re.IGNORECASE,
)
_VALID_UNTIL = re.compile(
    rf"^(?:.*\b(?:{_PHRASES['itself']})\b.*?|\W*)(?:\b(?:{_PHRASES['until']})\s+|\b(?:{_PHRASES['between']})\s.*?\s(?:until|till|to|bis|au|–|-)\s+)(?P<day>(?:[^;.]|\.\s?(?=\w))*?\b\d{{4}})\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)*)(?!\w)", re.IGNORECASE)
_DATE = re.compile(  # without its year, which follows
    rf"(?:\b(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)?\s(?:of\s)?)?\b(?P<name>{_MONTH})\b\.?,?\s$|\b(?P<name2>{_MONTH})\s(?P<day2>\d{{1,2}}),?\s$"
    r"|\b(?P<day3>\d{1,2})[./](?P<number>\d{1,2})[./]$",
    re.IGNORECASE,
)
_DAY = re.compile(rf"\b\d{{1,2}}(?:st|nd|rd|th|\.)?(?= (?:{_MONTH})\b)", re.IGNORECASE)
_EDITION_NUMBER = re.compile(rf"\b(?:{_PHRASES['edition_number']})\.?\s?(\d+(?:\.\d+)*)", re.IGNORECASE)
_PAST = re.compile(
    rf"\b(?:{_PHRASES['past']}|(?:{_PHRASES['former']})\s(?:\w+\s){{0,2}}?(?:{_PHRASES['itself']}|{_PHRASES['lasting']}))\b",
    re.IGNORECASE,
)
_SEASON = re.compile(
    r"\b(?P<first>(?:19|20)\d\d)\s?(?:/|[-–]|to\b|until\b|bis\b)\s?(?:\d{1,2}\.? )?(?:[^\W\d]+ )?(?P<last>(?:(?:19|20)\d\d|\d\d)\b)"
)


def outdated_sources(hits: Sequence[Hit], today: date) -> frozenset[UUID]:
    """The sources of hits that no longer hold on a day, by what they say of themselves or by a later edition beside them."""
    first = {hit.source_id: hit for hit in sorted(hits, key=lambda hit: -hit.position)}
    editions = {source: _edition_of(hit.title, today) for source, hit in first.items()}
    return frozenset(
        source
        for source, hit in first.items()
        if says_outdated(hit.title, hit.file_name or "", hit.text if hit.position == 0 else "", today)
        or any(_is_earlier(editions[source], other) for other in editions.values())
    )


def says_outdated(title: str, file_name: str, opening: str, today: date) -> bool:
    """Whether a document says of itself that it no longer holds; `opening` is how it begins.

    >>> day = date(2026, 3, 1)
    >>> [says_outdated(title, "", "", day) for title in ("Rates 2023 (superseded)", "ARCHIVED - leave", "Withdrawn stock", "Rates 2026")]
    [True, True, False, False]
    >>> [says_outdated("", "", f"Valid until {end}", day) for end in ("28 February 2026", "28.2.2026", "March 2026", "2025", "March 1, 2026")]
    [True, True, False, True, False]
    >>> begins = ("Replaced by issue 4.", "This list is no longer valid.", "Prices valid until 31 May 2025.", "This page replaces the list.")
    >>> [says_outdated("Rates", "", each, day) for each in begins]
    [True, True, True, False]
    """
    names = (title, PurePath(file_name).stem)
    lines = [line for line in opening[:_LONGEST].splitlines() if line.strip()][:_LINES]
    said = [_MARKS.sub("", sentence) for line in lines for sentence in re.split(r"(?<=[.!?])\s+", line)]
    begins = [_MARKS.sub("", line) for line in lines]
    return (
        any(_STATUS.search(name) for name in names)
        or any(_STATUS.match(each) and len(each.split()) <= _MOST_WORDS for each in begins[:_STATUS_LINES])
        or any(_END_OF_VALIDITY.match(each) for each in (*begins, *(each for each in said if _OF_ITSELF.match(each))))
        or any(_is_past(each, today) for each in (title, *said))
    )


def asks_for_outdated(question: str, title: str, others: Sequence[str]) -> bool:
    """Whether a question is about what once held, or names the edition that a title has, and those of others have not.

    >>> asks_for_outdated("What was a cut in 2023?", "Rates 2023 (old)", ["Rates 2026"]), asks_for_outdated("A cut?", "Rates 2023", [])
    (True, False)
    >>> [asks_for_outdated(each, "Rates 2023", []) for each in ("What did the old price list say?", "What is it for my 7 year old?")]
    [True, False]
    """
    own = {*_NUMBER.findall(title)} - {each for other in others for each in _NUMBER.findall(other)}
    return _PAST.search(question) is not None or bool(own & {*_NUMBER.findall(question)})


def _is_past(said: str, today: date) -> bool:
    found = _VALID_UNTIL.match(said)
    if found is None:
        return False
    year, written = int(found["day"][-4:]), _DATE.search(found["day"][:-4])
    if written is None:
        return year < today.year
    month = int(written["number"] or MONTH_NUMBERS[(written["name"] or written["name2"]).casefold()])
    return (year, month, int(written["day"] or written["day2"] or written["day3"] or 31)) < (
        today.year,
        today.month,
        today.day,
    )


Edition = tuple[frozenset[str], tuple[int, ...]]
"""The words of a title without those of its edition, and the numbers of that."""


def _edition_of(title: str, today: date) -> Edition:
    """
    >>> words, numbers = _edition_of("Price list, version 2.1", date(2026, 3, 1))
    >>> sorted(words), numbers
    (['list', 'price'], (2, 1))
    """
    rest = YEAR.sub(" ", _EDITION_NUMBER.sub(" ", _DAY.sub(" ", _STATUS.sub(" ", title))))
    words = frozenset(re.findall(r"[^\W_]+", rest.casefold()))
    years = [(int(year),) for year in YEAR.findall(title) if int(year) <= today.year]
    numbered = _EDITION_NUMBER.search(title)
    found = max(years, default=()) or (tuple(map(int, numbered[1].split("."))) if numbered else ())
    return words - _EDITION - MONTH_NUMBERS.keys(), found


def _is_earlier(one: Edition, other: Edition) -> bool:
    (words, number), (others, later) = one, other
    alike = bool(words & _LASTING_WORDS) and words == others and bool(number) and bool(later)
    return alike and (number[0] > 1900) == (later[0] > 1900) and number < later


def seasons_in(text: str) -> frozenset[int]:
    """The first years of what goes on from one into the next.

    >>> sorted(seasons_in("2024/25 and 1 April 2026 to 31 March 2027, not 2019 to 60")), seasons_in("2025 - 31 days")
    ([2024, 2026], frozenset())
    """
    found = ((int(each["first"]), each["last"]) for each in _SEASON.finditer(text))
    return frozenset(first for first, last in found if str(first + 1).endswith(last))
