"""Figures that a claim works out of others: sums, differences, products, shares, averages, totals.

The operands are the figures that the claim, the question and the sentences beside it name, and those of the rows and the parts of
sentences of the sources that are near to the claim. Nearly every small number is a result of something by chance. So what one
operation gives of one group of operands counts only if few of a figure's neighbours are among it: 246 for three nights of two
people, not 7 of forty figures.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, combinations, islice, pairwise, product
from typing import NamedTuple

from msgspec import Struct

from rag_app.answering.verification.figures import (
    MONEY,
    UNITS,
    Figure,
    FigureSet,
    figures_of,
    is_convertible,
)
from rag_app.answering.verification.words import stem
from rag_app.domain import compile_later, read_table

_MOST_BY_CHANCE, _NEIGHBOURS = 0.2, 20
"""The share of a figure's neighbours on both sides that may be results as well, of figures that the claim names; half of that for
each operand that is taken from elsewhere."""
_MOST_NAMED, _MOST_OF_LINE, _MOST_KNOWN, _MOST_TOTALS = 12, 8, 40, 2_000
"""The figures that a claim, the question and what stands around it name, the last ones; those of a line, and the figures and rows of
the sources, the first ones; totals."""
_LISTS: dict[str, list[str]] = read_table(__file__)
_SAYS_RESULT = compile_later(rf"[=×]|\d:\s|\b(?:{'|'.join((*_LISTS['result'], *_LISTS['difference']))})\b", re.I)
SAYS_DIFFERENCE = compile_later(rf"\b(?:{'|'.join(_LISTS['difference'])})\b", re.I)
_SAYS_RATE = compile_later(rf"\b(?:{'|'.join(_LISTS['rate'])}|an? (?:{'|'.join(filter(str.isalpha, UNITS))}))\b", re.I)
YEARLY = compile_later(
    r"\b(?:years?|yearly|annual\w*|months?|monthly|jahr\w*|monat\w*|ans?|année\w*|mois|mensuel\w*)\b", re.I
)
MONTHS_A_YEAR = 12.0
_LEAST_PART = 0.02
_MOST_ALIKE, _SHARE_ALIKE = 3, 0.25
_STEPS = (1.0, 0.5, 0.1, 0.05, 0.01)
_LEAST_CENT, _ROUNDING = 0.005, 0.03
_STRICT = frozenset(["percent", "time"])
_RATES = MONEY | {"percent"}
TABLE_RULE = compile_later(r"[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|?)+[ \t]*(?=\n|\Z)")
_PART_END = re.compile(r"[;,](?=\s)|(?<=[.!?])\s|\s(?:and|or|but|und|oder|et|ou)\s")
_WORD = re.compile(r"[^\W\d_]{3,}")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s")


class Operand(NamedTuple):
    """What is reckoned with: `value` is in the smallest unit of its dimension, of which its own unit has `scale`."""

    dimension: str
    value: float
    scale: float = 1.0

    @property
    def plain(self) -> float:
        """The value in its own unit."""
        return self.value / self.scale


Pair = tuple[Operand, Operand]
Operation = Callable[[Operand, Operand], Iterator[Operand]]
Results = tuple[int, Iterable[Operand]]
"""How many of the operands are taken from elsewhere than the claim, and what comes out."""


class Segment(Struct, frozen=True):
    """A row of a table, or a part of a sentence: its words (stems) and its figures."""

    words: frozenset[str]
    operands: tuple[Operand, ...]


class Layout(Struct, frozen=True):
    """The sources' lines: the figures of each sentence and row, the totals of the columns of their tables, those of
    neighbours in a column or in the text, and their parts."""

    lines: tuple[tuple[Operand, ...], ...] = ()
    columns: tuple[Operand, ...] = ()
    totals: tuple[Operand, ...] = ()
    parts: tuple[Segment, ...] = ()


class Surroundings(Struct, frozen=True):
    """What a claim may reckon with beside its sources: what is `asked`, what other sentences have `said`, the sources' lines.

    `ends` are the last figures of those sentences, `words` (stems) those of the question.
    """

    asked: FigureSet = FigureSet()
    said: FigureSet = FigureSet()
    lines: Layout = Layout()
    ends: tuple[Figure, ...] = ()
    words: frozenset[str] = frozenset()


NO_SURROUNDINGS = Surroundings()


@lru_cache(maxsize=64)
def read_lines(text: str) -> Layout:
    """
    >>> lines = read_lines("| Item | Price |\\n|---|---|\\n| Tea | 3 |\\n| Bun | 4 |\\n\\nWe are open.")
    >>> [each.value for each in lines.totals], [sorted(part.words) for part in lines.parts]
    ([7.0], [['tea'], ['bun']])
    """
    columns = [
        [each for cell in column for each in cell[:1]]
        for table in _read_tables(text)
        for column in zip(*table, strict=False)
    ]
    said = [(line, figures_of(part).numbers) for line in text.splitlines() for part in _SENTENCE_END.split(line)]
    prose = [each for line, figures in said if "|" not in line for each in _operands_of(figures)]
    totals = chain.from_iterable(map(_add_up, chain(columns, pairwise(prose))))
    lines = [_operands_of(each for each in figures if not each.label)[:_MOST_OF_LINE] for _, figures in said]
    return Layout(
        (*(tuple(each) for each in lines if len(each) > 1),)[:_MOST_KNOWN],
        (*chain.from_iterable(map(_add_alike, columns)),),
        (*islice(dict.fromkeys(totals), _MOST_TOTALS),),
        (*_read_parts(text),),
    )


def _read_tables(text: str) -> Iterator[list[list[list[Operand]]]]:
    """The figures of the cells of each row, without titles."""
    rows: list[list[list[Operand]]] = []
    for line in [*text.splitlines(), ""]:
        if TABLE_RULE.match(line) and "|" in line:
            rows = []
        elif "|" in line:
            rows.append([_operands_of(figures_of(cell).numbers) for cell in line.strip().strip("|").split("|")])
        elif rows:
            yield rows
            rows = []


def _read_parts(text: str) -> Iterator[Segment]:
    for line in text.splitlines():
        for part in [line] if "|" in line else _PART_END.split(line):
            if operands := _operands_of(figures_of(part).numbers[:_MOST_OF_LINE]):
                yield Segment(frozenset(map(stem, _WORD.findall(part))), (*operands,))


def is_result(figure: Figure, claim: FigureSet, sources: FigureSet, beside: Surroundings, text: str) -> bool:
    """Whether a figure is worked out of figures that its claim names, or of these, what stands beside it, and the sources.

    `claim` has what is known of the claim already. Figures that it does not name are used only where it says that it reckons.
    """
    wanted, exact = max(figure.plain), _exactness_of(figure)
    named = _operands_of(claim.numbers[-_MOST_NAMED:])
    plainly = chain(_apply(0, _OPERATIONS, combinations(named, 2)), [(0, _add_up(named))])
    reckons = _SAYS_RESULT.search(text) or (figure.sign and not figure.written)
    for taken, results in chain(plainly, _reckon(named, claim, sources, beside, text) if reckons else ()):
        values = [*_values_for(figure, results)]
        is_found = any(abs(value - wanted) <= exact for value in values)
        if is_found and _share_of_neighbours(figure, values) <= _MOST_BY_CHANCE / 2**taken:
            return True
    return False


def _reckon(
    named: Sequence[Operand], claim: FigureSet, sources: FigureSet, beside: Surroundings, text: str
) -> Iterator[Results]:
    """What each operation gives of each group of operands, where the claim says that it reckons; the nearest first."""
    asked, said = (_operands_of(each.numbers[-_MOST_NAMED:]) for each in (beside.asked, beside.said))
    known = _operands_of((*sources.numbers[:_MOST_KNOWN], *sources.implied[:_MOST_KNOWN]))
    rows = _rows_near(beside, text)
    near = [each for row in rows for each in row.operands][:_MOST_KNOWN]
    factors = [*named, *asked, *(each for each in _operands_of(sources.implied) if each.dimension == "percent")]
    year = [Operand("", MONTHS_A_YEAR)] if YEARLY.search(text) else []
    rate: list[Operation] = [_divide] if _SAYS_RATE.search(text) else []
    products = _multiply_each(combinations(named, 2))
    yield from _apply(0, rate, combinations(named, 2))
    yield from _apply(0, (_add, _multiply), [*combinations(products, 2), *product(products, named)])
    yield 0, _add_up(_multiply_each([*pairwise(named)][::2]))  # "two at 6.50 and three at 3.00"
    yield 0, _add_up(_operands_of(beside.ends))
    yield 1, _add_up(said)
    yield 1, (each._replace(value=each.value * ratio.value) for each in known for ratio in claim.ratios)
    yield from _apply(1, (*_OPERATIONS, *rate), product(named, [*asked, *said]))
    yield from _apply(1, (_multiply,), combinations(asked, 2))
    yield from _apply(1, (_subtract,), product(factors, near))
    bought = [each for each in _multiply_each(product(factors, near)) if each.dimension]  # not three walks of 17 people
    yield from _apply(2, (_add,), product(bought, [*named, *asked, *said]))
    for row in rows:
        yield from _apply(1, (_multiply,), product([*factors, *year], row.operands))
        yield from _apply(1, (_subtract, *rate, _multiply), combinations(row.operands, 2))
    for word in sorted(frozenset[str]().union(*(row.words for row in rows))):
        yield 1, _add_alike([row.operands[-1] for row in rows if word in row.words])
    yield 0, beside.lines.columns
    yield 2, beside.lines.totals
    yield from _apply(
        2, (_subtract, *rate, _take_share), chain.from_iterable(combinations(line, 2) for line in beside.lines.lines)
    )
    if SAYS_DIFFERENCE.search(text):
        yield from _apply(2, (_subtract,), _pairs_of_rows([row.operands for row in rows]))
    bills = [[*row.operands, *_multiply_each(product(asked, row.operands))] for row in rows]
    yield from _apply(3, (_add,), _pairs_of_rows(bills))


def _rows_near(beside: Surroundings, text: str) -> list[Segment]:
    """The rows and parts of sentences with a word of the claim or the question that few others have."""
    parts, words = beside.lines.parts, beside.words.union(map(stem, _WORD.findall(text)))
    counts = Counter(word for part in parts for word in part.words & words)
    telling = {word for word, count in counts.items() if count <= max(_MOST_ALIKE, len(parts) * _SHARE_ALIKE)}
    return [part for part in parts if part.words & telling][:_MOST_KNOWN]


def _add_alike(operands: Sequence[Operand]) -> Iterator[Operand]:
    """Their total, where they are in one unit."""
    if len(operands) > 1 and len({each.dimension for each in operands}) == 1:
        yield operands[0]._replace(value=sum(each.value for each in operands))


def _pairs_of_rows(rows: Sequence[Sequence[Operand]]) -> list[Pair]:
    """The figures of two rows that are in the same unit."""
    pairs = chain.from_iterable(product(*two) for two in combinations(rows[:_MOST_OF_LINE], 2))
    return [(one, other) for one, other in pairs if one.dimension == other.dimension]


def _operands_of(figures: Iterable[Figure]) -> list[Operand]:
    return [Operand(each.dimension, max(each.values), each.scale) for each in figures]


def _apply(taken: int, operations: Iterable[Operation], pairs: Iterable[Pair]) -> Iterator[Results]:
    """What each operation gives."""
    pairs = [*pairs]
    for operation in operations:
        yield taken, chain.from_iterable(operation(*pair) for pair in pairs)


def _multiply_each(pairs: Iterable[Pair]) -> list[Operand]:
    return [each for pair in pairs for each in _multiply(*pair)]


def _in_one_unit(one: Operand, other: Operand) -> Iterator[Pair]:
    """Two that may be added: in the same unit, or one of them has none. Nobody adds 2 to 1,350."""
    small, large = sorted((one.plain, other.plain))
    unit = one if one.dimension else other
    if small >= _LEAST_PART * large and not (one.dimension and other.dimension):
        yield unit._replace(value=one.plain * unit.scale), unit._replace(value=other.plain * unit.scale)
    elif small >= _LEAST_PART * large and is_convertible(one.dimension, other.dimension):
        yield one, other


def _add(one: Operand, other: Operand) -> Iterator[Operand]:
    yield from (low._replace(value=low.value + high.value) for low, high in _in_one_unit(one, other))


def _subtract(one: Operand, other: Operand) -> Iterator[Operand]:
    yield from (low._replace(value=abs(low.value - high.value)) for low, high in _in_one_unit(one, other))


def _multiply(one: Operand, other: Operand) -> Iterator[Operand]:
    """So many times a figure, and so many percent of one, or what is left then; no money times money."""
    share, whole = (one, other) if one.dimension == "percent" else (other, one)
    if share.dimension == "percent" != whole.dimension:
        part = share.plain / 100
        yield from (whole._replace(value=whole.value * each) for each in (part, 1 - part))
    times, each = (one, other) if other.dimension in _RATES or not one.dimension else (other, one)
    if times.plain != 1 and (not times.dimension or (each.dimension in _RATES and times.dimension not in _RATES)):
        yield each._replace(value=each.value * times.plain)


def _take_share(one: Operand, other: Operand) -> Iterator[Operand]:
    """How many percent one is of the other."""
    for part, whole in ((one, other), (other, one)):
        if whole.value and is_convertible(part.dimension, whole.dimension):
            yield Operand("percent", 100 * part.value / whole.value)


def _take_change(one: Operand, other: Operand) -> Iterator[Operand]:
    """By how many percent one is above the other, or below it."""
    return (share._replace(value=share.value - 100) for share in _take_share(one, other))


def _divide(one: Operand, other: Operand) -> Iterator[Operand]:
    """So much of one for each of the other."""
    for part, whole in ((one, other), (other, one)):
        if whole.value and is_convertible(part.dimension, whole.dimension):
            yield Operand("", part.value / whole.value)
        elif whole.value:
            yield part._replace(value=part.value / whole.plain)


def _add_up(operands: Sequence[Operand]) -> Iterator[Operand]:
    """The sums of those of one unit that stand one after another."""
    for dimension in dict.fromkeys(each.dimension for each in operands):
        alike = [each for each in operands if each.dimension == dimension][-_MOST_KNOWN:]
        for start, first in enumerate(alike):
            sums = accumulate(each.value for each in alike[start:])
            yield from (first._replace(value=total) for total in islice(sums, 1, None))


def _values_for(figure: Figure, results: Iterable[Operand]) -> Iterator[float]:
    """The results in the unit of a figure; as they are where one of them has none, but for shares and spans."""
    for each in results:
        has_none = not each.dimension and figure.dimension not in _STRICT
        if has_none or (not figure.dimension and each.dimension != "percent"):
            yield abs(each.plain)
        elif is_convertible(each.dimension, figure.dimension) and (
            each.dimension != "percent" or each.value * figure.sign >= 0
        ):
            yield abs(each.value / figure.scale)


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


_OPERATIONS: tuple[Operation, ...] = (_add, _subtract, _multiply, _take_share, _take_change)
"""What a claim may work out of its own figures without a word that says so."""
