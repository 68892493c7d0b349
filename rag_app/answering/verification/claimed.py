"""Whether sources state the figures of a claim, or figures that it may be computed from."""

import re
from collections.abc import Iterable, Iterator, Sequence, Set as AbstractSet
from datetime import date
from itertools import chain, combinations, product
from math import inf
from typing import TypeVar

from msgspec.structs import replace

from rag_app.answering.verification.figures import (
    MONEY,
    NUMBER,
    Date,
    Figure,
    FigureSet,
    Ratio,
    figures_of,
    is_convertible,
)
from rag_app.answering.verification.results import (
    MONTHS_A_YEAR,
    NO_SURROUNDINGS,
    SAYS_DIFFERENCE,
    YEARLY,
    Surroundings,
    is_result,
)
from rag_app.domain import compile_later

_APART = compile_later(
    r"\b(?:later|earlier|after|before|until|past|early|late|später|früher|vor|nach|bis|plus (?:tard|tôt)|avant|après)\b",
    re.I,
)
_EQUATION = compile_later(
    rf"(?<![\w.,+-])({NUMBER})[^\d=+-]{{0,20}}[×*][^\d=+-]{{0,6}}({NUMBER})[^\d=+-]{{0,20}}=[^\d=+-]{{0,6}}({NUMBER})(?![.,]?\d)"
)
_AHEAD = compile_later(r"\b(?:before\w*|ahead|notice|advance|prior|vor\w*|avant|avance)\b", re.I)
_OVER_WORDS = frozenset(["more than", "over", "a little over", "just over", "at least"])
_UNDER_WORDS = frozenset(
    ["almost", "nearly", "close to", "just under", "a little under", "less than", "fewer than", "under"]
)
_ABOUT_WORDS = frozenset(["about", "around", "roughly", "approximately", "some"])
_NEARLY, _ROUNDING, _LEAST_ROUND = 1.1, 0.03, 50
_NEARLY_PART, _ROUNDING_PART = 1.25, 0.2
_EXACT = 0.005
_ANY_YEAR = 2025
_LARGEST_COUNT = 50
SPANS = frozenset(["time", "months"])
_SECONDS_A_DAY = 86400
_QUARTERS_OF_HOUR = frozenset([900.0, 1800.0, 2700.0, 3600.0])
_OPPOSITE_BOUNDS = frozenset([("<", ">"), (">", "<"), ("<=", ">="), (">=", "<=")])
_Thing = TypeVar("_Thing")


def is_unsupported(
    claim: FigureSet,
    sources: FigureSet,
    text: str,
    counted: Iterable[int] = (),
    beside: Surroundings = NO_SURROUNDINGS,
) -> bool:
    """Whether the claim `text` states a figure, date or time that the sources do not.

    `counted` are numbers that a count may give: how many sources are cited; `beside` is what the question and the sentences
    before state, with which a claim may go on to reckon. What is worked out of figures that the claim names passes, and so
    does a large figure worked out of one of these and one of the sources. A small one, or one that is worked out of the
    sources alone, passes where the claim says that it is ("together", "more than").

    >>> from rag_app.answering.verification.results import read_lines
    >>> source, lines = "Starter has three seats, Team ten.", Surroundings(lines=read_lines("Starter has three seats, Team ten."))
    >>> claims = "Together 13 seats.", "There are 13 seats."
    >>> [is_unsupported(figures_of(claim), figures_of(source), claim, (), lines) for claim in claims]
    [False, True]
    """
    counts = {value for value in counted if value <= _LARGEST_COUNT}
    bare = counts | _hours(chain.from_iterable(sources.times)) | {year for year, _, _ in sources.dates if year}
    if ("×" in text or YEARLY.search(text)) and any(
        each.dimension == "months"
        for given in (sources, beside.asked, beside.said)
        for each in (*given.numbers, *given.implied)
    ):
        bare.add(MONTHS_A_YEAR)
    return (
        has_wrong_equation(text)
        or _has_unknown_number(claim, sources, text, bare, beside)
        or any(_is_turned(each, sources, text, beside.asked) for each in claim.numbers)
        or any(not _has_ratio(each, claim, sources, text) for each in claim.ratios)
        or any(_is_other_span(each, sources) for each in claim.spans)
        or any(not _has_short_date(each, sources) for each in claim.short_dates)
        or any(not (_has_date(each, sources) or _is_days_away(each, claim, sources, beside)) for each in claim.dates)
        or not claim.weekdays <= _weekdays_of(claim, sources)
        or any(not (_has_time(each, sources) or _is_behind(each, claim, sources)) for each in claim.times)
    )


def has_wrong_equation(text: str) -> bool:
    """Whether a text multiplies two figures and gets another one.

    >>> has_wrong_equation("6 × 42 = 246"), has_wrong_equation("12 × 6.40 = 76.80")
    (True, False)
    """
    return any(
        not any(
            abs(max(one.plain) * max(other.plain) - value) <= _EXACT * value
            for one, other, result in [figures_of(" ; ".join(found.groups())).numbers[:3]]
            for value in result.plain
        )
        for found in _EQUATION.finditer(text)
    )


def _weekdays_of(claim: FigureSet, sources: FigureSet) -> frozenset[int]:
    """Those of the sources. A day inside of a range of theirs ("Monday to Friday") is one, unless the claim says a range itself."""
    days = sources.weekdays.union((day - 1) % 7 for day in map(_ordinal, sources.dates) if day)
    return days if claim.days_between else days | sources.days_between


def _has_unknown_number(
    claim: FigureSet, sources: FigureSet, text: str, bare: AbstractSet[float], beside: Surroundings
) -> bool:
    """Whether a number is neither stated nor worked out of those that are."""
    known = [
        each
        for each in claim.numbers
        if _states(each, sources) or (not each.dimension and each.plain & bare) or _is_rounded(each, sources.numbers)
    ]
    left = [each for each in claim.numbers if each not in known]
    while found := [
        each for each in left if is_computed(each, replace(claim, numbers=(*known,)), sources, text, beside)
    ]:
        known += found
        left = [each for each in left if each not in found]
    return bool(left)


def _states(figure: Figure, sources: FigureSet) -> bool:
    known = [each for each in (*sources.numbers, *sources.implied) if figure.agrees(each)]
    is_bare = figure.dimension and not any(each.dimension for each in known)
    is_other = is_bare and (_has_other_unit(figure, sources.numbers) or _is_of_fields(figure, known, sources))
    return bool(known) and not is_other


def _is_turned(figure: Figure, sources: FigureSet, text: str, asked: FigureSet) -> bool:
    """Whether a claim says "more than" where the sources say "less than". "At least a day before" is "up to a day before".

    A claim may say on which side a figure of the question is: 900 words are "under 1,000".
    """
    if not figure.bound_sign or (figure.dimension in SPANS and _AHEAD.search(text)):
        return False
    is_above = figure.bound_sign.startswith(">")
    if any(
        each.noun == figure.noun != "" and (max(each.values) > max(figure.values)) is is_above for each in asked.numbers
    ):
        return False
    known = [each for each in sources.numbers if figure.equals(each)]
    return bool(known) and all((figure.bound_sign, each.bound_sign) in _OPPOSITE_BOUNDS for each in known)


def _has_other_unit(figure: Figure, known: Sequence[Figure]) -> bool:
    """Whether a number without a unit cannot have that of the figure.

    Sources that speak of other money alone mean that, and the same number with another unit of its kind is the one meant.
    """
    kinds = next((kinds for kinds in (MONEY, SPANS) if figure.dimension in kinds), {figure.dimension})
    alike = [each for each in known if each.dimension in kinds]
    is_foreign = (
        bool(alike) and kinds is MONEY and not any(is_convertible(figure.dimension, each.dimension) for each in alike)
    )
    return is_foreign or any(each.plain & figure.plain for each in alike)


def _is_of_fields(figure: Figure, known: Sequence[Figure], sources: FigureSet) -> bool:
    """Whether a number is in fields without a unit alone, where a field has that of the figure."""
    fields = [each.dimension for each in sources.numbers if each.label and each.dimension]
    return all(each.label for each in known) and any(is_convertible(figure.dimension, each) for each in fields)


def is_computed(
    figure: Figure,
    claim: FigureSet,
    sources: FigureSet,
    text: str,
    beside: Surroundings = NO_SURROUNDINGS,
) -> bool:
    """Whether a figure is worked out of figures that the claim names, of one that it names or that stands `beside` it and one of
    the sources, or of those of the sources where it says so."""
    if any(figure.equals(each) and not figure.agrees(each) for each in sources.numbers):
        return False  # the same one rises in the sources and falls in the claim
    others = [each for each in claim.numbers if each is not figure]
    gaps = _gaps(claim, sources, text) if figure.dimension == "time" else ()
    if any(abs(value - wanted) < 1e-6 for value in gaps for wanted in figure.values):
        return True
    shares = [each for each in claim.implied if each.dimension == "percent" and _states(each, sources)]
    return is_result(figure, replace(claim, numbers=(*shares, *others)), sources, beside, text)


def _gaps(claim: FigureSet, sources: FigureSet, text: str) -> Iterator[float]:
    """The seconds between two times or two dates that the claim names, or between one of them and those of the sources
    where it says "later", "before" or the like."""
    is_apart = _APART.search(text) or SAYS_DIFFERENCE.search(text)
    for one, other in _pairs(claim.times, sources.times if is_apart else ()):
        yield from (60.0 * abs(minutes - others) for minutes in one for others in other)
    for first, then in _pairs(claim.dates, sources.dates if is_apart else ()):
        start, end = _ordinal(first, then[0] or _ANY_YEAR), _ordinal(then, first[0] or _ANY_YEAR)
        if start and end:
            yield float(_SECONDS_A_DAY * abs(start - end))


def _pairs(named: Sequence[_Thing], known: Sequence[_Thing]) -> Iterator[tuple[_Thing, _Thing]]:
    """Those that are named; where it is one alone, with each of the known ones."""
    yield from combinations(named, 2) if len(named) > 1 else product(named, known)


def _values_of(dimension: str, figures: Iterable[Figure]) -> list[float]:
    return [
        max(each.values)
        for each in figures
        if each.dimension == dimension or (dimension and each.dimension and is_convertible(dimension, each.dimension))
    ]


def _has_ratio(ratio: Ratio, claim: FigureSet, sources: FigureSet, text: str) -> bool:
    """Whether the sources say a multiplier, or the figures that it is said of have it."""
    known = (*sources.numbers, *sources.implied)
    is_half = ratio.value == 1 / 2 and any(each.dimension == "percent" and each.plain & {50.0} for each in known)
    is_span = ratio.value > 2 and any(
        each.dimension in SPANS and ratio.value in each.plain for each in sources.numbers
    )  # "three months' rent"
    if is_half or is_span or any(each.value == ratio.value for each in sources.ratios):
        return True
    wanted = max(ratio.value, 1 / ratio.value) if ratio.value else 0.0
    return any(_is_ratio(wanted, ratio.about, pair) for pair in _pairs_to_compare(claim, sources, text))


def _pairs_to_compare(claim: FigureSet, sources: FigureSet, text: str) -> Iterator[tuple[float, float]]:
    """Pairs of figures that a claim may compare: those it names, or the only two of a unit, of a field it names, or with a noun it names."""
    stated = [each for each in claim.numbers if _states(each, sources)]
    for dimension in dict.fromkeys(each.dimension for each in (*stated, *sources.numbers)):
        named = {*_values_of(dimension, stated)}
        known = {*_values_of(dimension, sources.numbers)}
        if len(named) > 1:
            yield from combinations(sorted(named), 2)
        elif named and dimension:
            yield from ((one, other) for one in named for other in known if one != other)
        elif not stated and dimension and len(known) == 2:
            yield min(known), max(known)
    words = frozenset(re.findall(r"\w+", text.casefold()))
    for name in dict.fromkeys(name for each in sources.numbers for name in (each.label, each.noun)):
        values = {max(each.values) for each in sources.numbers if name in (each.label, each.noun)}
        if words & {*name.split()} and len(values) == 2:
            yield min(values), max(values)


def _is_ratio(wanted: float, about: str, pair: tuple[float, float]) -> bool:
    low, high = sorted(map(abs, pair))
    found = high / low if low else inf
    if about in _OVER_WORDS:
        return wanted <= found < wanted + 1
    if about in _UNDER_WORDS:
        return 0.85 * wanted <= found < wanted
    return abs(found - wanted) <= (0.125 if about in _ABOUT_WORDS else 0.05) * wanted


def _is_rounded(figure: Figure, known: Iterable[Figure]) -> bool:
    """Whether a claim says a round figure as one ("over 2,000", "almost half an hour") and one that is near is known."""
    wanted, plain = max(figure.values), max(figure.plain)
    is_part = figure.dimension == "time" and wanted in _QUARTERS_OF_HOUR
    is_round = plain >= _LEAST_ROUND and not plain % 10 ** (len(str(int(plain))) - 2) and not plain % 10
    if not (is_part or is_round):
        return figure.about != "" and any(
            figure.dimension == each.dimension and _rounds_to(figure, each) for each in known
        )
    nearly, rounding = (_NEARLY_PART, _ROUNDING_PART) if is_part else (_NEARLY, _ROUNDING)
    near = [max(each.values) / wanted for each in known if each.dimension == figure.dimension and wanted]
    if figure.about in _OVER_WORDS:
        return any(1 <= each < nearly for each in near)
    if figure.about in _UNDER_WORDS:
        return any(1 < 1 / each < nearly for each in near if each)
    return figure.about in _ABOUT_WORDS and any(abs(each - 1) <= rounding for each in near)


def _rounds_to(figure: Figure, known: Figure) -> bool:
    """Whether a figure is one with decimals to the next whole: "about 8" of 7.8."""
    exact = max(known.plain)
    return not exact.is_integer() and round(exact) == max(figure.plain) and figure.scale == known.scale


def _is_other_span(span: Figure, sources: FigureSet) -> bool:
    """Whether a claim says "a month" where the sources give spans, and all of them in other units."""
    known = [each for each in (*sources.numbers, *sources.implied) if each.dimension in SPANS]
    is_known = any((each.dimension, each.scale) == (span.dimension, span.scale) or span.agrees(each) for each in known)
    return span.dimension in SPANS and bool(known) and not is_known


def _has_short_date(wanted: tuple[int, int], sources: FigureSet) -> bool:
    """Whether "18/04" is a day of the sources, or two of their numbers."""
    days = {(day, month) for _, month, day in sources.dates} | {*sources.short_dates}
    plain = frozenset(chain.from_iterable(each.plain for each in sources.numbers))
    return wanted in days or wanted[::-1] in days or plain.issuperset(map(float, wanted))


def _has_date(wanted: Date, sources: FigureSet) -> bool:
    year, month, day = wanted
    agrees = any(
        (year is None or each[0] in (None, year)) and month == each[1] and (day is None or each[2] == day)
        for each in sources.dates
    )
    is_short = (day, month) in sources.short_dates or (month, day) in sources.short_dates
    is_lone = day in sources.days and any(month == each[1] for each in sources.dates)
    return (
        agrees or is_short or is_lone or (year is not None and day is not None and (year, day, month) in sources.dates)
    )


def _is_days_away(wanted: Date, claim: FigureSet, sources: FigureSet, beside: Surroundings) -> bool:
    """Whether the claim or the question names another day, and the sources say how many days are between them."""
    days = {
        round(value / _SECONDS_A_DAY) for each in sources.numbers if each.dimension == "time" for value in each.values
    }
    others = [_ordinal(each, _ANY_YEAR) for each in (*claim.dates, *beside.asked.dates) if each != wanted]
    here = _ordinal(wanted, _ANY_YEAR)
    return here is not None and any(abs(here - other) in days - {0} for other in others if other)


def _ordinal(day: Date, year: int | None = None) -> int | None:
    """The number of a day; `year` is meant where it names none."""
    try:
        return date(day[0] or year, *day[1:]).toordinal()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # part of it is not said, or there is no such day
        return None


def _has_time(wanted: frozenset[int], sources: FigureSet) -> bool:
    hours, bare = _hours(wanted), (each for each in sources.numbers if not each.dimension)
    return any(wanted & each for each in sources.times) or any(each.plain & hours for each in bare)


def _is_behind(wanted: frozenset[int], claim: FigureSet, sources: FigureSet) -> bool:
    """Whether the claim names a time of the sources, too, and they say how much later or earlier this one is."""
    spans = {value / 60 for each in sources.numbers if each.dimension == "time" for value in each.values}
    beside = [each for each in claim.times if each != wanted and any(each & known for known in sources.times)]
    return any(abs(minutes - other) in spans for each in beside for minutes in wanted for other in each)


def _hours(times: Iterable[int]) -> set[float]:
    """The full hours, of the morning as well: "9 to 5" of a source that says 9:00 to 17:00."""
    hours = {float(minutes // 60) for minutes in times if minutes % 60 == 0}
    return hours | {hour % 12 for hour in hours}
