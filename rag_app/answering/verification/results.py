"""Figures that a claim works out of others: sums, differences, products, shares, averages, the totals of a column.

Nearly every small number is a result of something by chance. So a figure that is worked out of more than its claim names passes
only if few of its neighbours are results of the same kind: 246 for three nights of two people, not 7 of forty figures.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, combinations, islice, pairwise, product

from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.verification.figures import (
    MONEY,
    NO_FIGURES,
    UNITS,
    Figure,
    FigureSet,
    figures_of,
    is_convertible,
)
from rag_app.answering.verification.words import stem
from rag_app.domain import compile_later

_MOST_NAMED, _MOST_OF_LINE, _MOST_KNOWN, _MOST_TOTALS = 12, 8, 40, 2_000
"""The figures of a claim, of what stands around it and of a line, the last ones, and those of the sources, the first ones, that
others are worked out of."""
_MOST_NEAR_NAMED, _MOST_NEAR_ASKED, _MOST_NEAR, _MOST_NEAR_BILL, _NEIGHBOURS = 0.25, 0.1, 0.05, 0.03, 20
"""The share of a figure's neighbours on both sides that may be results as well: of figures that the claim or the question names, of
these and the sources' near to the claim, of others, and of two rows together."""
_SAYS_RESULT = compile_later(
    r"[=×]|\d:\s|\b(?:so|hence|thus|therefore|mak(?:es?|ing)|means|work(?:s|ed|ing)? out|com(?:es?|ing) to|adds?|adding|altogether|total\w*|together|in all"
    r"|across|namely|surplus|deficit|profit|loss"
    r"|left|leav(?:es?|ing)|remain\w*|more|less|fewer|cheaper|dearer|each|every|apiece|average\w*|would|will|worth|equals?|amount\w*|sum"
    r"|short|sav(?:es?|ed|ing)|pays?|paid|costs?|owes?|owed|under|over|above|below|twice|half|times)\b",
    re.I,
)
_SAYS_RATE = compile_later(
    rf"\b(?:per|each|every|apiece|average\w*|works? out|divided?|split|shared?|an? (?:{'|'.join(filter(str.isalpha, UNITS))}|night|head|piece))\b",
    re.I,
)
_LEAST_PART = 0.02
_LEAST_LARGE = 13
_MOST_ALIKE, _SHARE_ALIKE = 3, 0.25
_STEPS = (1.0, 0.5, 0.1, 0.05, 0.01)
_LEAST_CENT, _ROUNDING = 0.005, 0.03
MONTHS_A_YEAR = 12.0
_STRICT = frozenset(["percent", "time"])
_RATES = MONEY | {"percent"}
_RULE = re.compile(r"[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|?)+[ \t]*")
_PART_END = re.compile(r"[;,](?=\s)|(?<=[.!?])\s|\s(?:and|or|but|und|oder|et|ou)\s")
_WORD = re.compile(r"[^\W\d_]{3,}")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s")

Result = tuple[str, float, float]
"""What a result is measured in, how much it is in the smallest unit of that, and how many of these its unit has."""
Step = tuple[float, Iterable[Result]]
"""Results, and the share of a figure's neighbours that may be among them."""


class Segment(Struct, frozen=True):
    """A row of a table, or a part of a sentence: its words (stems) and its figures."""

    words: frozenset[str]
    figures: tuple[Figure, ...]


class Layout(Struct, frozen=True):
    """What the figures of each line and sentence of the sources give, and one divided by another, the totals of neighbours in the columns of their tables and
    in their text, and their parts."""

    results: tuple[Result, ...] = ()
    rates: tuple[Result, ...] = ()
    totals: tuple[Result, ...] = ()
    columns: tuple[Result, ...] = ()
    parts: tuple[Segment, ...] = ()


NO_LAYOUT = Layout()


class Surroundings(Struct, frozen=True):
    """What a claim may reckon with beside its sources: what is `asked`, what other sentences have `said`, the sources' lines.

    `ends` are the last figures of those sentences, `words` (stems) those of the question.
    """

    asked: FigureSet = NO_FIGURES
    said: FigureSet = NO_FIGURES
    lines: Layout = NO_LAYOUT
    ends: tuple[Figure, ...] = ()
    words: frozenset[str] = frozenset()


NO_SURROUNDINGS = Surroundings()


@lru_cache(maxsize=64)
def read_lines(text: str) -> Layout:
    """
    >>> lines = read_lines("| Item | Price |\\n|---|---|\\n| Tea | 3 |\\n| Bun | 4 |\\n\\nWe are open.")
    >>> [value for _, value, _ in lines.totals], [sorted(part.words) for part in lines.parts]
    ([7.0], [['tea'], ['bun']])
    """
    said = [_SENTENCE_END.split(line) for line in text.splitlines()]
    figures = [figures_of(part).numbers for parts in said for part in parts]
    columns = [
        [each for cell in column for each in cell[:1]]
        for table in _read_tables(text)
        for column in zip(*table, strict=False)
    ]
    prose = [each for parts in said if "|" not in parts[0] for part in parts for each in figures_of(part).numbers]
    totals = chain(
        chain.from_iterable(map(find_totals, columns)), chain.from_iterable(map(find_totals, pairwise(prose)))
    )
    lines = [each[:_MOST_OF_LINE] for each in figures if len(each) > 1][:_MOST_KNOWN]
    results = chain.from_iterable(_combine(product(each, each)) for each in lines)
    return Layout(
        (*dict.fromkeys(results),),
        (*dict.fromkeys(chain.from_iterable(_divide_each(product(each, each)) for each in lines)),),
        (*islice(dict.fromkeys(totals), _MOST_TOTALS),),
        (*chain.from_iterable(_add_up([*map(_as_result, column)]) for column in columns),),
        (*_read_parts(text),),
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


def _read_parts(text: str) -> Iterator[Segment]:
    for line in text.splitlines():
        for part in [line] if "|" in line else _PART_END.split(line):
            if figures := figures_of(part).numbers[:_MOST_OF_LINE]:
                yield Segment(frozenset(map(stem, _WORD.findall(part))), figures)


def is_result(figure: Figure, claim: FigureSet, sources: FigureSet, beside: Surroundings, text: str) -> bool:
    """Whether a figure is worked out of figures that its claim names, or of these, what stands beside it, and the sources.

    `claim` has what is known of the claim already. Figures that it does not name are used only where it says that it reckons.
    """
    wanted, exact = max(figure.plain), _exactness_of(figure)
    for most, results in _steps_for(
        figure, replace(claim, numbers=claim.numbers[-_MOST_NAMED:]), sources, beside, text
    ):
        values = [*_values_for(figure, results)]
        if any(abs(value - wanted) <= exact for value in values) and _share_of_neighbours(figure, values) <= most:
            return True
    return False


def _steps_for(figure: Figure, claim: FigureSet, sources: FigureSet, beside: Surroundings, text: str) -> Iterator[Step]:
    """What may be worked out for a figure, by the words of its claim: the nearest first."""
    if _SAYS_RESULT.search(text) or figure.dimension == "percent":
        yield from _results_of_named(claim, sources)
    else:
        shares = [each for each in claim.numbers if each.dimension == "percent"]
        yield _MOST_NEAR_NAMED, chain(_add_named(claim.numbers), _products_of(product(shares, claim.numbers)))
    is_rate = _SAYS_RATE.search(text) is not None
    if is_rate:
        yield _MOST_NEAR_NAMED, _divide_each(product(claim.numbers, claim.numbers))
    if beside is NO_SURROUNDINGS or not _SAYS_RESULT.search(text):
        return
    near = _parts_near(beside.lines.parts, beside.words.union(map(stem, _WORD.findall(text))))
    if is_rate:
        pairs = chain.from_iterable(product(part.figures, part.figures) for part in near)
        yield _MOST_NEAR_ASKED, _divide_each(pairs)
        yield _MOST_NEAR, beside.lines.rates
    if not _is_small(figure):
        yield from _results_near(claim, sources, beside, near)
    yield from _results_of_all(claim, sources, beside)


def _results_of_named(claim: FigureSet, sources: FigureSet) -> Iterator[Step]:
    """What may be worked out of what the claim names."""
    named = claim.numbers
    known = (*sources.numbers[:_MOST_KNOWN], *sources.implied[:_MOST_KNOWN])
    products = [*_products_of(product(named, named))]
    times = (_multiply(_as_result(one), ratio.value) for one in known for ratio in claim.ratios)
    yield _MOST_NEAR_NAMED, chain(_combine(product(named, named)), find_totals(named), times)
    yield _MOST_NEAR_NAMED, _add_each(products, [*products, *map(_as_result, named)])
    yield _MOST_NEAR_NAMED, _add_up([*_products_of([*pairwise(named)][::2])])  # "two at 6.50 and three at 3.00"


def _results_near(
    claim: FigureSet, sources: FigureSet, beside: Surroundings, near: Sequence[Segment]
) -> Iterator[Step]:
    """What may be worked out of the rows and the parts of sentences that are near to the claim."""
    asked, figures = beside.asked.numbers[-_MOST_NAMED:], [each for part in near for each in part.figures]
    shares = [each for each in sources.implied if each.dimension == "percent"]
    yield _MOST_NEAR_ASKED, chain.from_iterable(_products_of(product(part.figures, part.figures)) for part in near)
    yield _MOST_NEAR_ASKED, _add_alike(near)
    yield _MOST_NEAR_ASKED, _products_of(product([*asked, *claim.numbers, *shares], figures))
    yield _MOST_NEAR_BILL, _read_bills(asked, near[:_MOST_OF_LINE])


def _read_bills(asked: Sequence[Figure], near: Sequence[Segment]) -> Iterator[Result]:
    """What two of these rows come to, each as often as the question says, or once."""
    prices = [[each for each in part.figures if each.dimension in MONEY or not each.dimension] for part in near]
    amounts = [[*map(_as_result, each), *_products_of(product(asked, each))] for each in prices]
    for one, other in combinations(amounts, 2):
        yield from chain.from_iterable(map(_add_up, product(one, other)))


def _results_of_all(claim: FigureSet, sources: FigureSet, beside: Surroundings) -> Iterator[Step]:
    """What may be worked out of what the claim names, of what stands beside it and in the sources."""
    named, asked, said = claim.numbers, beside.asked.numbers[-_MOST_NAMED:], beside.said.numbers[-_MOST_NAMED:]
    known = (*sources.numbers[:_MOST_KNOWN], *sources.implied[:_MOST_KNOWN])
    parts = _products_of(product([*asked, *named], known))
    yield _MOST_NEAR_ASKED, chain(_combine(product(named, (*asked, *said))), find_totals(said))
    yield _MOST_NEAR_NAMED, find_totals(beside.ends)
    yield _MOST_NEAR_NAMED, beside.lines.columns
    yield _MOST_NEAR, beside.lines.totals
    yield _MOST_NEAR, _combine(product(named, known))
    yield _MOST_NEAR_NAMED, _products_of(product(asked, asked))
    yield _MOST_NEAR_ASKED, _products_of(product(asked, known))
    yield _MOST_NEAR, chain(beside.lines.results, (_multiply(_as_result(one), 1 / MONTHS_A_YEAR) for one in known))
    yield _MOST_NEAR, _add_each([*parts], [*map(_as_result, (*asked, *named, *said))])


def _is_small(figure: Figure) -> bool:
    """Whether it is a small number of no unit, which nearly everything gives."""
    return not figure.dimension and all(each < _LEAST_LARGE and each.is_integer() for each in figure.plain)


def _parts_near(parts: Sequence[Segment], words: frozenset[str]) -> list[Segment]:
    """The parts that have a word which few others have."""
    counts = Counter(word for part in parts for word in part.words & words)
    telling = {word for word, count in counts.items() if count <= max(_MOST_ALIKE, len(parts) * _SHARE_ALIKE)}
    return [part for part in parts if part.words & telling]


def _add_alike(parts: Sequence[Segment]) -> Iterator[Result]:
    """The totals of the parts that have a word in common, of the last figure of each."""
    for word in sorted(frozenset[str]().union(*(part.words for part in parts))):
        yield from _add_up([_as_result(part.figures[-1]) for part in parts if word in part.words])


def _add_up(results: Sequence[Result]) -> Iterator[Result]:
    if len(results) > 1 and len({dimension for dimension, _, _ in results}) == 1:
        yield results[0][0], sum(value for _, value, _ in results), results[0][2]


def _as_result(figure: Figure) -> Result:
    return figure.dimension, max(figure.values), figure.scale


def _multiply(result: Result, factor: float) -> Result:
    return result[0], result[1] * factor, result[2]


def _combine(pairs: Iterable[tuple[Figure, Figure]]) -> Iterator[Result]:
    """The sum, the difference, the product and the share of two figures."""
    kept = [(one, other) for one, other in pairs if one is not other]
    for one, other in kept:
        yield from _add(_as_result(one), _as_result(other))
        yield from _share_of(one, other)
    yield from _products_of(kept)


def _divide_each(pairs: Iterable[tuple[Figure, Figure]]) -> Iterator[Result]:
    """So much of one for each of another."""
    for one, other in pairs:
        if one is not other and any(other.plain):
            if is_convertible(one.dimension, other.dimension):
                yield "", max(one.values) / max(other.values), 1.0
            else:
                yield one.dimension, max(one.values) / max(other.plain), one.scale


def _add_named(figures: Sequence[Figure]) -> Iterator[Result]:
    """The sums and the differences of figures, and their totals."""
    for one, other in combinations(figures, 2):
        yield from _add(_as_result(one), _as_result(other))
    yield from find_totals(figures)


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


def _share_of(one: Figure, other: Figure) -> Iterator[Result]:
    if any(other.plain) and is_convertible(one.dimension, other.dimension):
        scaled = (one.values, other.values) if one.dimension else (one.plain, other.plain)
        yield "percent", 100 * max(scaled[0]) / max(scaled[1]), 1.0


def _products_of(pairs: Iterable[tuple[Figure, Figure]]) -> Iterator[Result]:
    """So many times a figure, and so many percent of one, or what is left then; no money times money."""
    for one, other in pairs:
        if one is other:
            continue
        first, second = (other, one) if other.dimension in _RATES or not one.dimension else (one, other)
        share, whole = (one, other) if one.dimension == "percent" else (other, one)
        if share.dimension == "percent" != whole.dimension:
            part = max(share.plain) / 100
            yield from (_multiply(_as_result(whole), each) for each in (part, 1 - part))
        if not second.dimension or (first.dimension in _RATES and second.dimension not in _RATES):
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
    """The results in the unit of a figure; as they are where one of them has none, but for shares and spans."""
    own = figure.scale
    for dimension, value, scale in results:
        if (not dimension and figure.dimension not in _STRICT) or (not figure.dimension and dimension != "percent"):
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
