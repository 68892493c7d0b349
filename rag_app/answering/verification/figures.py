"""Figures, dates and times of a text, in one form: "480 euros", "€480", "four hundred and eighty"."""

import re
from collections.abc import Iterable, Sequence
from datetime import date
from functools import lru_cache
from itertools import chain, combinations

from msgspec import Struct

from rag_app.retrieval.text import words_in

_SMALL = words_in(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen
    """
)
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NUMBER_WORDS = {word: value for value, word in enumerate(_SMALL)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
"""Of one word each: "zero" to "twenty", and the tens to "ninety"."""
_SCALES = {
    "hundred": 100,
    "thousand": 10**3,
    "k": 10**3,
    "million": 10**6,
    "mio": 10**6,
    "billion": 10**9,
    "mrd": 10**9,
}
_OTHER_WORDS = {
    "dozen": 12, "twice": 2,
    "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9, "zehn": 10, "elf": 11,
    "zwölf": 12, "zwanzig": 20, "dreißig": 30, "hundert": 100, "tausend": 1000,
    "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "sept": 7, "huit": 8, "neuf": 9, "dix": 10, "onze": 11, "douze": 12,
    "quinze": 15, "vingt": 20, "trente": 30, "cent": 100, "mille": 1000,
}  # fmt: skip
UNITS = {
    name: (dimension, float(factor))
    for dimension, factor, names in (
        ("time", 1, "second seconds sec sekunde sekunden seconde secondes"),
        ("time", 60, "minute minutes min mins minuten"),
        ("time", 3600, "hour hours hr hrs h stunde stunden heure heures"),
        ("time", 86400, "day days tag tage tagen jour jours"),
        ("time", 604800, "week weeks woche wochen semaine semaines"),
        ("months", 1, "month months monat monate monaten mois"),
        ("months", 12, "year years jahr jahre jahren an ans année années"),
        ("percent", 1, "% percent prozent"),
        ("dollar", 1, "$ dollar dollars usd us$"),
        ("euro", 1, "€ euro euros eur"),
        ("pound", 1, "£ gbp quid"),
        ("franc", 1, "chf francs franken"),
        ("yen", 1, "¥ yen jpy"),
        ("mass", 1, "g gram grams gramm"),
        ("mass", 1000, "kg kilo kilos kilogram kilograms"),
        ("length", 1, "mm"),
        ("length", 10, "cm"),
        ("length", 1000, "m metre metres meter meters"),
        ("length", 1_000_000, "km kilometre kilometres kilometer kilometers"),
        ("length", 1_609_344, "mile miles"),
        ("bytes", 1, "kb"),
        ("bytes", 1000, "mb"),
        ("bytes", 1_000_000, "gb"),
        ("bytes", 1_000_000_000, "tb"),
    )
    for name in names.split()
}
MONEY = frozenset(["dollar", "euro", "pound", "franc", "yen"])
_UNIT = "|".join(re.escape(name) for name in sorted(UNITS, key=lambda name: -len(name)))
MONTHS = {
    name: number
    for names in (
        "january february march april may june july august september october november december",
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "januar februar märz april mai juni juli august september oktober november dezember",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    )
    for number, name in enumerate(names.split(), 1)
} | {"sept": 9}
DAYS = {
    name: number
    for names in (
        "monday tuesday wednesday thursday friday saturday sunday",
        "montag dienstag mittwoch donnerstag freitag samstag sonntag",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
    )
    for number, name in enumerate(names.split())
}
_MONTH = "|".join(sorted(MONTHS, key=lambda name: -len(name)))
_DAY = "|".join(DAYS)
_NUMBER = r"\d{1,3}(?:[.,'’\u00a0\u202f]\d{3})+(?:[.,]\d+)?(?![\d])|\d+(?:[.,]\d+)?"
_WORD_NUMBER = rf"(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_SMALL[1:10])}))?|{'|'.join(_SMALL)}|hundred|thousand"
_DATE = re.compile(
    rf"""(?P<iso>\b(?P<iy>\d{{4}})-(?P<im>\d{{2}})(?:-(?P<id>\d{{2}}))?(?=\b|T))
      | \b(?P<na>\d{{1,2}})[./](?P<nb>\d{{1,2}})[./](?P<ny>\d{{4}}|\d{{2}})\b
      | \b(?P<d1>\d{{1,2}})(?:st|nd|rd|th|\.)?\ (?:of\ )?(?P<m1>{_MONTH})\b\.?(?:,?\ (?P<y1>\d{{4}})\b)?
      | \b(?P<m2>{_MONTH})\b\.?\ (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\s?(?:%|percent))(?:,?\ (?P<y2>\d{{4}})\b)?
      | \b(?P<m3>{_MONTH})\b\.?,?\ (?P<y3>\d{{4}})\b""",
    re.IGNORECASE | re.VERBOSE,
)
_LONE_MONTH = re.compile(
    rf"\b(?:(?!may\b|march\b|mars\b|mai\b|jan\b|mar\b|dec\b|sep\b|an\b)(?:{_MONTH})\b|(?<=in )(?:May|March)\b)",
    re.IGNORECASE,
)
_WEEKDAY = re.compile(rf"\b({_DAY})s?\b", re.IGNORECASE)
_TIME = re.compile(
    r"""\b(?P<h>\d{1,2})[:h](?P<m>\d{2})(?!\d)\s?(?P<half>[ap]\.?m\b\.?)?
      | \b(?P<h2>\d{1,2})(?:\.(?P<m2>\d{2}))?\s?(?P<half2>[ap]\.?m\b\.?|o['’]clock|uhr\b)
      | \b(?P<word>noon|midnight)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_FIGURE = re.compile(
    rf"""(?:(?P<before>US\$|[$€£¥]|\b(?:usd|eur|gbp|chf)\b)\s?)?
        (?:(?<![\w.,])|(?<=\bv))(?P<sign>(?<![\w)])[-+−–])?(?P<digits>{_NUMBER})(?![.,]?\d)
        (?P<scale>\s?(?:k|thousand|million|billion|mio|mrd)\b)?
        (?:[\s\u00a0-]?(?P<after>{_UNIT})(?!\w))?
      | \b(?P<words>{_WORD_NUMBER})(?P<scales>(?:[- ](?:hundred|thousand|million|billion))*)(?:\ and\ (?P<rest>{_WORD_NUMBER}))?\b
        (?:[\s-](?P<after2>{_UNIT})(?!\w))?
      | \b(?P<other>{"|".join(_OTHER_WORDS)})\b(?:\s(?P<after3>{_UNIT})(?!\w))?""",
    re.IGNORECASE | re.VERBOSE,
)
_IMPLIED = re.compile(
    rf"\b(?P<half>half)\b(?:\ an?\ (?P<of>{_UNIT})(?!\w))?|\b(?:an?|per|each|every)\ (?P<one>{_UNIT})(?!\w)|\b(?P<both>both)\b",
    re.IGNORECASE,
)
_ORDINAL = re.compile(r"\b\d{1,2}(?:st|nd|rd|th)\b", re.IGNORECASE)
_SUM = re.compile(
    r"\b(?:together|total\w*|in all|altogether|combined|sum\w*|overall|difference|more|less|fewer|ahead|behind|higher|lower|longer"
    r"|shorter|between|apart|gap|insgesamt|zusammen|mehr|weniger|au total|ensemble|plus|moins)\b",
    re.IGNORECASE,
)
_LARGEST_COUNT = 50
_MOST_TO_ADD = 40


class Figure(Struct, frozen=True):
    """What a text states as a number: `values` are how it may be read ("1.240" as 1240 or 1.24).

    `dimension` is what it is measured in, "" where the text does not say; `values` are in the smallest unit of it, and
    `plain` are without the unit. `sign` is -1 or 1 where it is written, else 0.
    """

    values: frozenset[float]
    plain: frozenset[float]
    dimension: str = ""
    sign: int = 0

    def agrees(self, other: "Figure") -> bool:
        if self.sign * other.sign < 0:
            return False
        if self.dimension and other.dimension:
            return self.dimension == other.dimension and bool(self.values & other.values)
        return bool(self.plain & other.plain)


Date = tuple[int | None, int | None, int | None]
"""Year, month and day, with None for what is not said."""


class Figures(Struct, frozen=True):
    """All that a text states. Times are minutes of a day."""

    numbers: tuple[Figure, ...] = ()
    dates: tuple[Date, ...] = ()
    weekdays: frozenset[int] = frozenset()
    times: tuple[frozenset[int], ...] = ()
    implied: tuple[Figure, ...] = ()
    """What a source says without a number: "within a week", "both", "half of the price"."""


@lru_cache(maxsize=512)
def figures_of(text: str) -> Figures:
    """
    >>> found = figures_of("On 5 February, two of 1,240 took 90 minutes at 2:30 pm.")
    >>> [sorted(each.plain) for each in found.numbers], found.dates, [sorted(each) for each in found.times]
    ([[2.0], [1.24, 1240.0], [90.0]], ((None, 2, 5),), [[870]])
    """
    dates = [_date(found) for found in _DATE.finditer(text)]
    rest = _DATE.sub(" § ", text)
    times = [read for found in _TIME.finditer(rest) if (read := _time(found))]
    rest = _TIME.sub(lambda found: " § " if _time(found) else found[0], rest)
    weekdays = frozenset(DAYS[name.casefold()] for name in _WEEKDAY.findall(rest))
    dates += [(None, MONTHS[found[0].casefold()], None) for found in _LONE_MONTH.finditer(rest)]
    rest = _ORDINAL.sub(" § ", _LONE_MONTH.sub(" § ", rest))
    numbers = tuple(figure for found in _FIGURE.finditer(rest) if (figure := _figure(found)))
    implied = tuple(_implied_figure(found) for found in _IMPLIED.finditer(rest))
    return Figures(numbers, tuple(dates), weekdays, tuple(times), implied)


def is_unsupported(claim: Figures, sources: Figures, text: str, counted: Iterable[int] = ()) -> bool:
    """Whether the claim `text` states a figure, date or time that the sources do not.

    `counted` are numbers that a count may give: how many sources are cited. A sum or a difference of two figures of the
    sources, or the sum of all of one unit, passes where the claim says that it is one ("together", "more than").

    >>> source = figures_of("Starter has three seats, Team ten.")
    >>> [is_unsupported(figures_of(text), source, text) for text in ("Together 13 seats.", "There are 13 seats.")]
    [False, True]
    """
    counts = {value for value in counted if value <= _LARGEST_COUNT}
    bare = counts | _hours(chain.from_iterable(sources.times)) | {year for year, _, _ in sources.dates if year}
    for figure in claim.numbers:
        if any(figure.agrees(other) for other in (*sources.numbers, *sources.implied)):
            continue
        if not figure.dimension and figure.plain & bare:
            continue
        if not (_SUM.search(text) and _is_computed(figure, sources.numbers)):
            return True
    return (
        any(not _has_date(each, sources.dates) for each in claim.dates)
        or not claim.weekdays <= sources.weekdays | {*map(_weekday, sources.dates)}
        or any(not _has_time(each, sources) for each in claim.times)
    )


def _figure(found: re.Match[str]) -> Figure | None:
    unit = (found["after"] or found["after2"] or found["after3"] or found["before"] or "").casefold()
    if found["digits"]:
        scale = _SCALES.get((found["scale"] or "").strip().casefold(), 1)
        plain = {value * scale for value in _readings(found["digits"])}
    elif found["words"]:
        if found["words"].casefold() == "one" and not unit and not found["scales"]:
            return None  # "one customer", "no one"
        value = float(_value(found["words"]))
        for scale_name in found["scales"].casefold().replace("-", " ").split():
            value *= _SCALES[scale_name]
        plain = {value + (_value(found["rest"]) if found["rest"] and found["scales"] else 0)}
    else:
        plain = {float(_OTHER_WORDS[found["other"].casefold()])}
    sign = 0 if not found["sign"] or found["sign"] == "–" else 1 if found["sign"] == "+" else -1
    return _build_figure(plain, unit, sign)


def _build_figure(plain: Iterable[float], unit: str, sign: int = 0) -> Figure:
    dimension, factor = UNITS.get(unit, ("", 1.0))
    known = frozenset(round(value, 6) for value in plain)
    return Figure(frozenset(round(value * factor, 6) for value in known), known, dimension, sign)


def _implied_figure(found: re.Match[str]) -> Figure:
    if found["both"]:
        return _build_figure([2], "")
    if found["half"]:
        return _build_figure([0.5], found["of"].casefold()) if found["of"] else _build_figure([50], "%")
    return _build_figure([1], found["one"].casefold())


def _value(words: str) -> int:
    parts = re.split(r"[- ]", words.casefold())
    return sum(_SCALES[part] if part in _SCALES else NUMBER_WORDS[part] for part in parts)


def _readings(digits: str) -> set[float]:
    """A last mark may be the decimal one, or set thousands apart: "1.240" is both."""
    marks = re.findall(r"[.,'’\u00a0\u202f]", digits)
    whole, mark, last = re.sub(r"['’\u00a0\u202f]", "", digits).replace(",", ".").rpartition(".")
    whole = whole.replace(".", "")
    grouped = {float(whole + last)} if len(last) == 3 and len(set(marks)) == 1 else set()
    if grouped and len(marks) > 1:
        return grouped
    return grouped | {float(f"{whole}{mark}{last}")}


def _date(found: re.Match[str]) -> Date:
    if found["iso"]:
        return int(found["iy"]), int(found["im"]), int(found["id"]) if found["id"] else None
    if found["na"]:
        first, second, year = int(found["na"]), int(found["nb"]), int(found["ny"])
        year += 2000 if year < 100 else 0
        return (year, second, first) if second <= 12 else (year, first, second)
    month, day = found["m1"] or found["m2"] or found["m3"], found["d1"] or found["d2"]
    said = found["y1"] or found["y2"] or found["y3"]
    return int(said) if said else None, MONTHS[month.casefold()], int(day) if day else None


def _time(found: re.Match[str]) -> frozenset[int] | None:
    if found["word"]:
        return frozenset([720 if found["word"].casefold() == "noon" else 0])
    hour, minute = int(found["h"] or found["h2"]), int(found["m"] or found["m2"] or 0)
    half = (found["half"] or found["half2"] or "").casefold().replace(".", "")
    if hour > 24 or minute > 59:
        return None
    if half in ("am", "pm"):
        return frozenset([hour % 12 * 60 + minute + (720 if half == "pm" else 0)])
    hours = (hour, hour + 12) if half.startswith("o") else (hour,)  # "five o'clock" is said of the afternoon, too
    return frozenset(each % 24 * 60 + minute for each in hours)


def _has_date(wanted: Date, known: Sequence[Date]) -> bool:
    year, month, day = wanted
    agrees = any(
        (year is None or each[0] in (None, year)) and month == each[1] and (day is None or each[2] == day)
        for each in known
    )
    return agrees or (year is not None and day is not None and (year, day, month) in known)


def _weekday(day: Date) -> int | None:
    try:
        return date(*day).weekday()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # part of it is not said, or there is no such day
        return None


def _has_time(wanted: frozenset[int], sources: Figures) -> bool:
    if any(wanted & each for each in sources.times):
        return True
    return any(not each.dimension and each.plain & _hours(wanted) for each in sources.numbers)


def _hours(times: Iterable[int]) -> set[float]:
    """The full hours, of the morning as well: "9 to 5" of a source that says 9:00 to 17:00."""
    hours = {float(minutes // 60) for minutes in times if minutes % 60 == 0}
    return hours | {hour % 12 for hour in hours}


def _is_computed(figure: Figure, known: Sequence[Figure]) -> bool:
    """Whether a figure is the sum of all figures of one unit, or of two of them, or the difference of two."""
    alike = [each for each in dict.fromkeys(known) if not figure.dimension or each.dimension in ("", figure.dimension)]
    by_dimension: dict[str, list[float]] = {}
    for each in alike[:_MOST_TO_ADD]:
        by_dimension.setdefault(each.dimension, []).append(max(each.values))
    for values in by_dimension.values():
        pairs = [*combinations(values, 2)]
        computed = [sum(values), *map(sum, pairs), *(abs(one - other) for one, other in pairs)]
        if any(abs(value - wanted) < 1e-6 for value in computed for wanted in figure.values):
            return True
    return False
