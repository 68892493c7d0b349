"""Whether sources state the figures of a claim, or figures that it may be computed from."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import chain, combinations

from rag_app.answering.verification.figures import (
    MONEY,
    Date,
    Figure,
    Figures,
    Ratio,
    is_convertible,
)
from rag_app.domain import compile_later

_TOTAL = compile_later(
    r"\b(?:together|total\w*|in all|altogether|combined|sum\w*|overall|that makes|comes? to|adds? up|amounts? to"
    r"|insgesamt|zusammen|au total|ensemble|plus)\b",
    re.I,
)
_DIFFERENCE = compile_later(
    r"\b(?:difference|more|less|fewer|ahead|behind|higher|lower|longer|shorter|between|apart|gap|below|above|cheaper|dearer|pricier"
    r"|mehr|weniger|günstiger|billiger|teurer|plus|moins)\b",
    re.I,
)
_BOUND = compile_later(r"\b(?:more|less|fewer|longer|higher|lower) than (?=\W*\d)", re.I)
_OVER = frozenset(["more than", "over", "at least"])
_UNDER = frozenset(["almost", "nearly", "close to", "just under", "less than"])
_NEAR = frozenset(["about", "around", "roughly", "approximately", "some"])
_NEARLY, _ROUNDING, _LEAST_ROUND = 1.1, 0.03, 50
_LARGEST_COUNT = 50
_MOST_TO_ADD = 40
_SPANS = frozenset(["time", "months"])
_DAYS_A_MONTH = (28, 31)
_SECONDS_A_DAY = 86400


def is_unsupported(claim: Figures, sources: Figures, text: str, counted: Iterable[int] = ()) -> bool:
    """Whether the claim `text` states a figure, date or time that the sources do not.

    `counted` are numbers that a count may give: how many sources are cited. A sum or a difference of two figures of the
    sources, or the sum of all of one unit, passes where the claim says that it is one ("together", "more than"); where the
    claim names figures of that unit itself, it is of those.

    >>> from rag_app.answering.verification.figures import figures_of
    >>> source = figures_of("Starter has three seats, Team ten.")
    >>> [is_unsupported(figures_of(text), source, text) for text in ("Together 13 seats.", "There are 13 seats.")]
    [False, True]
    """
    counts = {value for value in counted if value <= _LARGEST_COUNT}
    bare = counts | _hours(chain.from_iterable(sources.times)) | {year for year, _, _ in sources.dates if year}
    return (
        any(
            not (_states(each, sources) or (not each.dimension and each.plain & bare))
            and not _is_computed(each, claim, sources, text)
            and not _is_rounded(each, sources.numbers)
            for each in claim.numbers
        )
        or any(not _has_ratio(each, claim, sources, text) for each in claim.ratios)
        or any(_is_other_span(each, sources) for each in claim.spans)
        or any(not _has_short_date(each, sources) for each in claim.short_dates)
        or any(not _has_date(each, sources) for each in claim.dates)
        or not claim.weekdays <= sources.weekdays | {*map(_weekday, sources.dates)}
        or any(not _has_time(each, sources) for each in claim.times)
    )


def is_worked_out(text: str) -> bool:
    """Whether a text says that a figure of it is a sum or a difference.

    >>> is_worked_out("2 dollars below the median"), is_worked_out("2 dollars")
    (True, False)
    """
    return bool(_TOTAL.search(text) or _DIFFERENCE.search(_BOUND.sub("", text)))


def _states(figure: Figure, sources: Figures) -> bool:
    known = [each for each in (*sources.numbers, *sources.implied) if figure.agrees(each)]
    if any(each.dimension for each in known) or not figure.dimension:
        return bool(known)
    return bool(known) and not (_has_other_unit(figure, sources.numbers) or _is_of_fields(figure, known, sources))


def _has_other_unit(figure: Figure, known: Sequence[Figure]) -> bool:
    """Whether a number without a unit cannot have that of the figure.

    Sources that speak of other money alone mean that, and the same number with another unit of its kind is the one meant.
    """
    if figure.dimension in MONEY:
        money = [each.dimension for each in known if each.dimension in MONEY]
        if money and not any(is_convertible(figure.dimension, each) for each in money):
            return True
    kinds = next((kinds for kinds in (MONEY, _SPANS) if figure.dimension in kinds), {figure.dimension})
    return any(each.dimension in kinds and each.plain & figure.plain for each in known)


def _is_of_fields(figure: Figure, known: Sequence[Figure], sources: Figures) -> bool:
    """Whether a number is in fields without a unit alone, where a field has that of the figure."""
    fields = [each.dimension for each in sources.numbers if each.label and each.dimension]
    return all(each.label for each in known) and any(is_convertible(figure.dimension, each) for each in fields)


def _is_computed(figure: Figure, claim: Figures, sources: Figures, text: str) -> bool:
    """Whether the claim says that a figure is a sum or a difference, and figures of its unit have that."""
    if any(figure.equals(each) and not figure.agrees(each) for each in sources.numbers):
        return False  # the same one rises in the sources and falls in the claim
    named = {*_values_of(figure.dimension, [each for each in claim.numbers if each is not figure])}
    added, compared = _TOTAL.search(text), _DIFFERENCE.search(text) or (figure.sign and not figure.written)
    computed: list[float] = []
    for known in _alike(figure.dimension, sources):
        if added:
            parts = sorted(named if len(named) > 1 else known | named)
            computed += [sum(parts), *map(sum, combinations(parts, 2))]
        if compared:
            pairs = combinations(known | named, 2)
            computed += [abs(one - other) for one, other in pairs if not named or {one, other} & named]
    return any(abs(value - wanted) < 1e-6 for value in computed for wanted in figure.values)


def _alike(dimension: str, sources: Figures) -> list[set[float]]:
    """The figures of a unit; those without one by the field whose values they are."""
    known = sources.numbers[:_MOST_TO_ADD]
    if dimension:
        return [{*_values_of(dimension, known)}]
    labels = dict.fromkeys(each.label for each in known)
    return [{*_values_of("", (each for each in known if each.label == label))} for label in labels]


def _values_of(dimension: str, figures: Iterable[Figure]) -> list[float]:
    return [
        max(each.values)
        for each in figures
        if each.dimension == dimension or (dimension and each.dimension and is_convertible(dimension, each.dimension))
    ]


def _has_ratio(ratio: Ratio, claim: Figures, sources: Figures, text: str) -> bool:
    """Whether the sources say a multiplier, or the figures that it is said of have it."""
    if any(each.value == ratio.value for each in sources.ratios):
        return True
    wanted = max(ratio.value, 1 / ratio.value) if ratio.value else 0.0
    return any(_is_ratio(wanted, ratio.about, pair) for pair in _pairs_to_compare(claim, sources, text))


def _pairs_to_compare(claim: Figures, sources: Figures, text: str) -> Iterator[tuple[float, float]]:
    """Pairs of figures that a claim may compare: those it names, or the only two of a unit, or of a field it names."""
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
    for label in dict.fromkeys(each.label for each in sources.numbers):
        values = {max(each.values) for each in sources.numbers if each.label == label}
        if label and words & {*label.split()} and len(values) == 2:
            yield min(values), max(values)


def _is_ratio(wanted: float, about: str, pair: tuple[float, float]) -> bool:
    low, high = sorted(map(abs, pair))
    if not low:
        return False
    found = high / low
    if about in _OVER:
        return wanted <= found < wanted + 1
    if about in _UNDER:
        return 0.85 * wanted <= found < wanted
    return abs(found - wanted) <= (0.125 if about in _NEAR else 0.05) * wanted


def _is_rounded(figure: Figure, known: Iterable[Figure]) -> bool:
    """Whether a claim says a round figure as one ("over 2,000", "about 350") and one that is near is known."""
    wanted = max(figure.values)
    plain = max(figure.plain)
    if not figure.about or plain < _LEAST_ROUND or plain % 10 ** (len(str(int(plain))) - 2) or plain % 10:
        return False
    near = [max(each.values) / wanted for each in known if each.dimension == figure.dimension and wanted]
    if figure.about in _OVER:
        return any(1 <= each < _NEARLY for each in near)
    if figure.about in _UNDER:
        return any(1 < 1 / each < _NEARLY for each in near if each)
    return figure.about in _NEAR and any(abs(each - 1) <= _ROUNDING for each in near)


def _is_other_span(span: Figure, sources: Figures) -> bool:
    """Whether a claim says "a month" where the sources give spans, and all of them in other units."""
    known = [each for each in (*sources.numbers, *sources.implied) if each.dimension in _SPANS]
    if span.dimension not in _SPANS or not known:
        return False
    same_unit = any(each.dimension == span.dimension and each.scale == span.scale for each in known)
    return not same_unit and not any(span.agrees(each) or _is_about(span, each) for each in known)


def _is_about(one: Figure, other: Figure) -> bool:
    """Whether one says in months what the other says in days or weeks."""
    if one.dimension == other.dimension:
        return False
    months, time = (one, other) if one.dimension == "months" else (other, one)
    least, most = _DAYS_A_MONTH
    return any(
        least * month <= seconds / _SECONDS_A_DAY <= most * month for month in months.values for seconds in time.values
    )


def _has_short_date(wanted: tuple[int, int], sources: Figures) -> bool:
    """Whether "18/04" is a day of the sources, or two of their numbers."""
    days = {(day, month) for _, month, day in sources.dates} | {*sources.short_dates}
    if wanted in days or wanted[::-1] in days:
        return True
    plain = frozenset(chain.from_iterable(each.plain for each in sources.numbers))
    return plain.issuperset(map(float, wanted))


def _has_date(wanted: Date, sources: Figures) -> bool:
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
