"""Figures that a claim works out of others: sums, differences, products, shares, averages, the totals of a column.

Nearly every small number is a result of something by chance. So a figure that is worked out of more than its claim names passes
only if few of its neighbours are results of the same kind: 246 for three nights of two people, not 7 of forty figures.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, product

from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.verification.figures import MONEY, NO_FIGURES, Figure, FigureSet, figures_of, is_convertible
from rag_app.domain import compile_later

_MOST_NAMED, _MOST_OF_LINE, _MOST_KNOWN, _MOST_TOTALS = 12, 8, 40, 2_000
"""The figures of a claim, of what stands around it and of a line, the last ones, and those of the sources, the first ones, that
others are worked out of."""
_MOST_NEAR_NAMED, _MOST_NEAR_ASKED, _MOST_NEAR, _NEIGHBOURS = 0.25, 0.1, 0.05, 20
"""The share of a figure's neighbours on both sides that may be results as well: of figures that the claim or the question names, of
these and the sources', and of others."""
_SAYS_RESULT = compile_later(
    r"[=×]|\b(?:so|hence|thus|therefore|mak(?:es?|ing)|means|work(?:s|ed|ing)? out|com(?:es?|ing) to|adds?|adding|altogether|total\w*|together|in all"
    r"|left|leav(?:es?|ing)|remain\w*|more|less|fewer|cheaper|dearer|each|every|apiece|average\w*|would|will|worth|equals?|amount\w*|sum"
    r"|short|sav(?:es?|ed|ing)|pays?|paid|costs?|owes?|owed|under|over|above|below|twice|half|times)\b",
    re.I,
)
_LEAST_PART = 0.01
_STEPS = (1.0, 0.5, 0.1, 0.05, 0.01)
_LEAST_CENT, _ROUNDING = 0.005, 0.03
MONTHS_A_YEAR = 12.0
_RULE = re.compile(r"[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|?)+[ \t]*")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s")

Result = tuple[str, float, float]
"""What a result is measured in, how much it is in the smallest unit of that, and how many of these its unit has."""


class Layout(Struct, frozen=True):
    """What the figures of each line and sentence of the sources give, the totals of neighbours in the columns of their tables and
    in their text, and how many rows the tables have."""

    results: tuple[Result, ...] = ()
    totals: tuple[Result, ...] = ()
    rows: frozenset[int] = frozenset()


NO_LAYOUT = Layout()


class Surroundings(Struct, frozen=True):
    """What a claim may reckon with beside its sources: what is `asked`, what other sentences have `said`, the sources' lines."""

    asked: FigureSet = NO_FIGURES
    said: FigureSet = NO_FIGURES
    lines: Layout = NO_LAYOUT


NO_SURROUNDINGS = Surroundings()


def read_lines(text: str) -> Layout:
    """
    >>> lines = read_lines("| Item | Price |\\n|---|---|\\n| Tea | 3 |\\n| Bun | 4 |\\n\\nWe open at nine.")
    >>> [value for _, value, _ in lines.totals], lines.rows
    ([7.0], frozenset({2}))
    """
    said = [_SENTENCE_END.split(line) for line in text.splitlines()]
    figures = [figures_of(part).numbers for parts in said for part in parts]
    tables = [*_read_tables(text)]
    columns = [
        [each for cell in column for each in cell[:1]] for table in tables for column in zip(*table, strict=False)
    ]
    prose = [each for parts in said if "|" not in parts[0] for part in parts for each in figures_of(part).numbers]
    totals = chain(
        chain.from_iterable(map(find_totals, columns)), chain.from_iterable(map(find_totals, pairwise(prose)))
    )
    lines = [each[:_MOST_OF_LINE] for each in figures if len(each) > 1][:_MOST_KNOWN]
    results = chain.from_iterable(_combine(product(each, each)) for each in lines)
    return Layout(
        (*dict.fromkeys(results),), (*islice(dict.fromkeys(totals), _MOST_TOTALS),), frozenset(map(len, tables))
    )


def _read_tables(text: str) -> Iterator[list[list[tuple[Figure, ...]]]]:
    """The figures of the cells of each row, without titles."""
    rows: list[list[tuple[Figure, ...]]] = []
    for line in [*text.splitlines(), ""]:
        if _RULE.fullmatch(line) and "|" in line:
            rows = []
        elif "|" in line:
            rows.append([figures_of(cell).numbers for cell in line.strip().strip("|").split("|")])
        elif rows:
            yield rows
            rows = []


def is_result(figure: Figure, claim: FigureSet, sources: FigureSet, beside: Surroundings, text: str) -> bool:
    """Whether a figure is worked out of figures that its claim names, or of these, what stands beside it, and the sources.

    `claim` has what is known of the claim already. Figures that it does not name are used only where it says that it reckons.
    """
    named = claim.numbers[-_MOST_NAMED:]
    wanted, exact = max(figure.plain), _exactness_of(figure)
    steps = [_MOST_NEAR_NAMED, _MOST_NEAR_NAMED]
    if beside is not NO_SURROUNDINGS and _SAYS_RESULT.search(text):
        steps += [_MOST_NEAR, _MOST_NEAR, _MOST_NEAR, _MOST_NEAR_NAMED, _MOST_NEAR_ASKED, _MOST_NEAR, _MOST_NEAR]
    for most, results in zip(steps, _results_of(replace(claim, numbers=named), sources, beside), strict=False):
        values = [*_values_for(figure, results)]
        if any(abs(value - wanted) <= exact for value in values):
            return _share_of_neighbours(figure, values) <= most
    return False


def _results_of(claim: FigureSet, sources: FigureSet, beside: Surroundings) -> Iterator[Iterable[Result]]:
    """What may be worked out, the nearest first: of what the claim names, then of what stands beside it and in the sources."""
    named, asked, said = claim.numbers, beside.asked.numbers[-_MOST_NAMED:], beside.said.numbers[-_MOST_NAMED:]
    known = (*sources.numbers[:_MOST_KNOWN], *sources.implied[:_MOST_KNOWN])
    products = [*_products_of(product(named, named))]
    yield chain(
        _combine(product(named, named)),
        find_totals(named),
        (_multiply(_as_result(one), ratio.value) for one in known for ratio in claim.ratios),
    )
    yield _add_each(products, [*products, *map(_as_result, named)])
    yield chain(_combine(product(named, (*asked, *said))), find_totals(said))
    yield beside.lines.totals
    yield _combine(product(named, known))
    yield _products_of(product(asked, asked))
    yield _products_of(product(asked, known))
    yield chain(
        beside.lines.results,
        (_multiply(_as_result(one), 1 / MONTHS_A_YEAR) for one in known),
    )
    yield _add_each([*_products_of(product([*asked, *named], known))], [*map(_as_result, (*asked, *named, *said))])


def _as_result(figure: Figure) -> Result:
    return figure.dimension, max(figure.values), figure.scale


def _multiply(result: Result, factor: float) -> Result:
    return result[0], result[1] * factor, result[2]


def _combine(pairs: Iterable[tuple[Figure, Figure]]) -> Iterator[Result]:
    """The sum, the difference, the product, the quotient and the share of two figures."""
    kept = [(one, other) for one, other in pairs if one is not other]
    for one, other in kept:
        yield from _add(_as_result(one), _as_result(other))
        yield from _divide(one, other)
    yield from _products_of(kept)


def _add(one: Result, other: Result) -> Iterator[Result]:
    """Of two in the same unit, or of which one has none. Nobody adds 2 to 1,350."""
    sizes = sorted((one[1] / one[2], other[1] / other[2]))
    if sizes[0] < _LEAST_PART * sizes[1]:
        return
    if one[0] and other[0]:
        if is_convertible(one[0], other[0]):
            yield one[0], one[1] + other[1], one[2]
            yield one[0], abs(one[1] - other[1]), one[2]
        return
    unit, scale = (one[0], one[2]) if one[0] else (other[0], other[2])
    yield unit, (one[1] / one[2] + other[1] / other[2]) * scale, scale
    yield unit, abs(one[1] / one[2] - other[1] / other[2]) * scale, scale


def _add_each(results: Sequence[Result], others: Sequence[Result]) -> Iterator[Result]:
    for one, other in product(results, others):
        if one is not other:
            yield from _add(one, other)


def _divide(one: Figure, other: Figure) -> Iterator[Result]:
    whole, part = max(one.plain), max(other.plain)
    if not part:
        return
    if one.dimension and is_convertible(one.dimension, other.dimension):
        whole, part = max(one.values), max(other.values)
        yield "", whole / part, 1.0
    else:
        yield one.dimension, max(one.values) / part, one.scale
    if is_convertible(one.dimension, other.dimension):
        yield "percent", 100 * whole / part, 1.0


def _products_of(pairs: Iterable[tuple[Figure, Figure]]) -> Iterator[Result]:
    """So many times a figure, and so many percent of one, or what is left then; no money times money."""
    for one, other in pairs:
        if one is other:
            continue
        first, second = (other, one) if other.dimension in MONEY or not one.dimension else (one, other)
        if second.dimension == "percent" and first.dimension != "percent":
            share = max(second.plain) / 100
            yield from (_multiply(_as_result(first), each) for each in (share, 1 - share))
        if not second.dimension or (first.dimension in MONEY and second.dimension not in MONEY):
            yield _multiply(_as_result(first), max(second.plain))


def find_totals(figures: Sequence[Figure]) -> Iterator[Result]:
    """The sums of figures of one unit that stand one after another."""
    for dimension in dict.fromkeys(each.dimension for each in figures):
        alike = [each for each in figures if each.dimension == dimension][-_MOST_KNOWN:]
        for start in range(len(alike)):
            total = max(alike[start].values)
            for each in alike[start + 1 :]:
                total += max(each.values)
                yield dimension, total, each.scale


def _values_for(figure: Figure, results: Iterable[Result]) -> Iterator[float]:
    """The results in the unit of a figure; as they are where one of them has none."""
    own = figure.scale
    for dimension, value, scale in results:
        if not dimension or not figure.dimension:
            yield value / scale
        elif is_convertible(dimension, figure.dimension):
            yield value / own


def _exactness_of(figure: Figure) -> float:
    """How far a value may be from a figure that is as exact as it is written."""
    wanted, places = max(figure.plain), len(f"{max(figure.plain):g}".partition(".")[2])
    exact = 0.5 * 10**-places if places or figure.dimension == "percent" else _LEAST_CENT
    return max(exact, _ROUNDING * wanted) if figure.about else exact


def _share_of_neighbours(figure: Figure, values: Iterable[float]) -> float:
    """How many of the figures near this one, and as round, are among the values (0..1)."""
    wanted = max(figure.plain)
    step = 10.0 ** len(re.findall(r"0*\Z", f"{wanted:.0f}")[0]) if wanted >= 100 and wanted.is_integer() else None
    step = step or next((each for each in _STEPS if abs(wanted / each - round(wanted / each)) < 1e-6), _STEPS[-1])
    at = round(wanted / step)
    near = {place for value in values if abs(value - (place := round(value / step)) * step) < _LEAST_CENT}
    window = [place for place in range(max(1, at - _NEIGHBOURS), at + _NEIGHBOURS + 1) if place != at]
    return len(near.intersection(window)) / len(window)
