"""Whether a figure stands in its source beside what a claim says of it, and not beside something else.

A source is cut into places: around each figure of a kind (money, time, a date...) the part of its sentence, line or row that
is about it. A claim takes a figure from the wrong place if another place of that kind shares more of the claim's words.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, product

from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.verification.claimed import SPANS, is_computed, is_unsupported
from rag_app.answering.verification.figures import MONEY, Figure, FigureSet, figures_of, write_parts
from rag_app.answering.verification.results import TABLE_RULE
from rag_app.answering.verification.words import NEGATION, Passage, language_of, telling_words
from rag_app.domain import compile_later
from rag_app.retrieval.text import sentences

_AND = r"\s(?:and|or|und|oder|et|ou)\s"
_CUT = compile_later(rf"[,;:|()–—](?=\s|\Z)|(?<=\s)\(|(?<!\d){_AND}|{_AND}(?!\W*\d)", re.IGNORECASE)
_HALF = compile_later(r";\s|\b(?:but|while|whereas|although|aber|während|mais)\b", re.IGNORECASE)
_LABEL = compile_later(r"[\s*_>-]*([^:.!?|]{1,40}):\W")
_BEFORE_DIGIT = compile_later(r"\s(?=[€$£]?\d)")
_HEADING = compile_later(r"\s*#{1,6}\s")
_WRAPPED_LINE = compile_later(r"(?m)^([^\n|#]{50,}[^\n|.!?:>])\n[ \t]*(?=[^\W\d_])(?![^\n]*\|)")
"""The break of a long line in the middle of a sentence."""
_COMPARISON = compile_later(
    r"""(?P<one>[^,;:()]{1,200}?)\b(?:(?P<dearer>dearer|pricier|more\ expensive|costs?\ more|teurer|plus\ ch[eè]re?s?)
      |(?P<cheaper>cheaper|less\ expensive|costs?\ less|billiger|günstiger|moins\ ch[eè]re?s?)
      |(?P<longer>(?:takes?|lasts?)\ longer|dauert\ länger)|(?P<shorter>(?:takes?|lasts?)\ less\ time|is\ shorter)
      |(?P<heavier>heavier|weighs?\ more|schwerer|plus\ lourde?s?)|(?P<lighter>lighter|weighs?\ less|leichter|plus\ légère?s?))
      \ (?:than|als|que)\ (?P<other>[^,;:()]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_COMPARISONS = {
    "dearer": ("money", True),
    "cheaper": ("money", False),
    "longer": ("span", True),
    "shorter": ("span", False),
    "heavier": ("mass", True),
    "lighter": ("mass", False),
}
_LEAST_GAIN, _LEAST_COUNT, _YEARS = 0.5, 13, range(1900, 2100)


class Place(Struct, frozen=True):
    """A part of a text around figures of one kind: its words (stems) by weight, and those `around` it, that may be of it, too.
    `table` tells the tables of a source apart."""

    kind: str
    figures: tuple[FigureSet, ...]
    words: dict[str, float]
    around: frozenset[str] = frozenset()
    sentence: frozenset[str] = frozenset()
    table: int = 0

    def has(self, figure: FigureSet) -> bool:
        return any(not is_unsupported(figure, each, "") for each in self.figures)


Statement = tuple[Place, FigureSet]


class PlaceIndex(Passage):
    """A passage with its places; they are looked for when a claim has a figure."""

    @cached_property
    def _places(self) -> list[Place]:
        return [*_places_of(write_parts(self.text))]

    def gives_another(self, claim: str) -> bool:
        """Whether a figure of the claim is in places of something else alone, and what it is said of has another one.

        >>> PlaceIndex("A cut costs 40 dollars and a colour 90 dollars.").gives_another("A cut costs 90 dollars.")
        True
        """
        claim = write_parts(claim)
        return self._translates_another(claim) or any(
            self._gives_another(each) or self._compares_wrongly(each) for each in sentences(claim)
        )

    def _compares_wrongly(self, sentence: str) -> bool:
        """Whether one is said to be "cheaper than" another, and each figure of the one is above each of the other."""
        found = _COMPARISON.search(sentence)
        if not found or NEGATION.search(found["one"]):
            return False
        one, other = telling_words(found["one"]), telling_words(found["other"])
        kind, is_more = next(each for name, each in _COMPARISONS.items() if found[name])
        pairs = [*product(self._values_of(kind, one, other), self._values_of(kind, other, one))]
        return bool(pairs) and all(value < rival if is_more else value > rival for value, rival in pairs)

    def _values_of(self, kind: str, words: dict[str, float], others: dict[str, float]) -> list[float]:
        """The figures in the places that have the most of what is said of one alone, and nothing of the other."""
        own, foreign = words.keys() - others.keys(), others.keys() - words.keys()
        shares = [
            (sum(words[word] for word in own & place.words.keys()), place)
            for place in self._places
            if place.kind == kind and not foreign & place.words.keys()
        ]
        most = max((share for share, _ in shares), default=0.0)
        best = [place for share, place in shares if share == most > 0]
        return [max(each.values) for place in best for figure in place.figures for each in figure.numbers]

    def _translates_another(self, claim: str) -> bool:
        """Whether a claim in another language has a span that the source, which has some in that unit, gives in other units
        alone: "72 Stunden" of a source with 48 hours for this and three days for that."""
        language, said = language_of(claim), figures_of(claim)
        if not language or not self.language or language == self.language:
            return False
        spans = [each for each in said.numbers if each.dimension in SPANS and max(each.plain).is_integer()]
        return any(self._is_in_other_units(each, said, claim) for each in spans)

    def _is_in_other_units(self, span: Figure, claim: FigureSet, text: str) -> bool:
        alike = [each for each in self.figures.numbers if (each.dimension, each.scale) == (span.dimension, span.scale)]
        return (
            bool(alike)
            and not any(map(span.agrees, alike))
            and not is_computed(span, claim, self.figures, text)
            and any(map(span.agrees, self.figures.numbers))
        )

    def _gives_another(self, sentence: str) -> bool:
        stated, figures = [*_places_in(sentence)], figures_of(sentence)
        worked_out = {
            place.kind for place in stated for each in place.figures if self._is_worked_out(each, figures, sentence)
        }
        if "span" in worked_out:  # between two times or dates
            worked_out |= {"clock", "date"}
        said = [(place, figure) for place in stated if place.kind not in worked_out for figure in place.figures]
        others = [(place, figure) for place, figure in said if self._is_of_other(figure, place, said)]
        if sum(_is_small(figure) for _, figure in others) == 1:  # "the new eight"; two are exchanged
            others = [each for each in others if not _is_small(each[1])]
        right = [each for each in said if each not in others]
        return any(self._is_of_other(figure, place, said, right) for place, figure in others)

    def _is_worked_out(self, figure: FigureSet, claim: FigureSet, sentence: str) -> bool:
        rest = [each for each in claim.numbers if not any(map(each.equals, figure.numbers))]
        return any(
            (each.dimension or not any(map(each.agrees, self.figures.numbers)))
            and is_computed(each, replace(claim, numbers=(*rest, each)), self.figures, sentence)
            for each in figure.numbers
        )

    def _is_of_other(
        self, figure: FigureSet, stated: Place, said: Sequence[Statement], right: Sequence[Statement] = ()
    ) -> bool:
        """No place of a figure that stands right in the claim is a rival."""
        alike, having = self._places_with(figure, stated.kind)
        is_whole = stated.kind == "weekday" or not any(place.kind == stated.kind for place in alike)
        here = [each for place, each in (said if is_whole else right) if is_whole or place.kind == stated.kind]
        rivals = [place for place in alike if not any(map(place.has, (*here, *stated.figures)))]
        return bool(having) and all(any(_is_nearer(stated, rival, place) for rival in rivals) for place in having)

    def _places_with(self, figure: FigureSet, kind: str) -> tuple[list[Place], list[Place]]:
        """The places that a figure may be in, and those it is in."""
        alike = [place for place in self._places if place.kind == kind]
        having = [place for place in alike if place.has(figure)]
        if having:
            return alike, having
        bare = [place for place in self._places if not place.kind and (place.table or kind != "span")]
        having = [place for place in bare if place.has(figure)]
        if not having and kind == "span" and not is_unsupported(figure, self.figures, ""):
            return alike, [Place(kind, (), {})]  # "a week" of something else, or "10 bicycles"
        return bare, having  # a heading or the title of a column says its unit


def _is_nearer(stated: Place, rival: Place, place: Place) -> bool:
    """Whether of what is said of a figure, the rival has clearly more that the place has not than the other way round."""
    if place.table and place.table != rival.table and stated.words.keys() & place.words.keys():
        return False  # a cell that is meant is to be told from others of its table
    own = frozenset(place.words) | place.around
    if len(stated.figures) > 1:  # of one thing, as the cells of a row are
        own |= place.sentence
    gained = stated.words.keys() & rival.words.keys() - own
    kept = stated.words.keys() & own - rival.words.keys() - rival.around
    return bool(gained) and _total(stated, gained) >= _total(stated, kept) + _LEAST_GAIN


def _total(stated: Place, words: frozenset[str] | set[str]) -> float:
    return sum((1 + stated.words[word]) / 2 for word in words)


def _places_in(sentence: str) -> Iterator[Place]:
    for half in _HALF.split(sentence):
        pieces = _pieces_of(half)
        for kind in dict.fromkeys(kind for _, found in pieces for kind, _ in found):
            yield from _cut_by_kind(pieces, kind)


def _places_of(text: str) -> Iterator[Place]:
    heading, titles, table, lines = frozenset[str](), [""], 0, _WRAPPED_LINE.sub(r"\1 ", text).splitlines()
    for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True), 1):
        if _HEADING.match(line):
            heading, titles = frozenset(telling_words(line)), [""]
        elif "|" in line and (TABLE_RULE.match(following) or _begins_table(line, following, titles)):
            titles, table = _cells_of(line), number
        elif "|" in line and not TABLE_RULE.match(line):
            places = _places_of_row(_cells_of(line), titles)
            yield from (replace(place, around=heading, table=table) for place in places)
        else:
            titles, table = (titles, table) if "|" in line else ([""], 0)
            label = _LABEL.match(line)
            yield from _places_of_line(line, heading.union(telling_words(label[1]) if label else ()))


def _begins_table(line: str, following: str, titles: Sequence[str]) -> bool:
    """Whether a line of cells without figures and without labels stands above one with as many cells and a figure."""
    cells, below = _cells_of(line), _cells_of(following)
    is_new = len(cells) > 2 and len(cells) == len(below) != len(titles)
    return is_new and not re.search(r"[\d:]", line) and re.search(r"\d", following) is not None


def _places_of_line(line: str, heading: frozenset[str]) -> Iterator[Place]:
    """What is said beside a part with figures, and has none itself, may be of it, too. A question states nothing."""
    said = [sentence for sentence in sentences(line) if not sentence.endswith("?")]
    halves = [(half, number) for number, sentence in enumerate(said) for half in _HALF.split(sentence)]
    places = [[*_places_in(half)] for half, _ in halves]
    for at, found in enumerate(places):
        beside = [other for other in (at - 1, at + 1) if 0 <= other < len(halves)]
        beside = [other for other in beside if other < at or halves[other][1] == halves[at][1]]
        for place in found:
            near = [halves[other][0] for other in beside if all(place.kind != each.kind for each in places[other])]
            sentence = frozenset(telling_words(said[halves[at][1]]))
            yield replace(place, around=heading.union(*map(telling_words, near)), sentence=sentence)


def _places_of_row(cells: Sequence[str], titles: Sequence[str]) -> Iterator[Place]:
    """Each cell with figures, under the title of its column and with the cells of its row that have none; a header has no
    titles, and its fields are not of each other."""
    read = [[found for _, each in _pieces_of(cell) for found in each] for cell in cells]
    in_table = len(titles) == len(cells)
    shared = [cell for at, (cell, found) in enumerate(zip(cells, read, strict=True)) if in_table and not (at and found)]
    for cell, found, title in zip(cells, read, titles if in_table else [""] * len(cells), strict=True):
        words = telling_words(" ".join((title, cell, *shared)))
        for kind in dict.fromkeys(kind for kind, _ in found):
            yield Place(kind, tuple(figure for each, figure in found if each == kind), words)


def _cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


Piece = tuple[str, list[tuple[str, FigureSet]]]


def _pieces_of(sentence: str) -> list[Piece]:
    """The parts of a sentence between commas, "and" and the like, with their figures by kind."""
    parts = chain.from_iterable(map(_cut_by_figure, _CUT.split(sentence)))
    return [(part, [*_split_by_kind(figures_of(part))]) for part in parts if part.strip()]


def _cut_by_figure(part: str) -> Iterator[str]:
    """ "3,412 letters to | 161 firms": what is between two figures tells of the first."""
    start = 0
    for found in _BEFORE_DIGIT.finditer(part):
        said = part[start : found.start()]
        digit = re.search(r"\d", said)
        if digit and telling_words(said[digit.start() :]):
            yield said
            start = found.start()
    yield part[start:]


def _split_by_kind(figures: FigureSet) -> Iterator[tuple[str, FigureSet]]:
    for number in figures.numbers:
        dimension, value = number.dimension, max(number.plain)
        if dimension and value == 1:  # "in one year"
            continue
        kind = "money" if dimension in MONEY else "span" if dimension in SPANS else dimension
        yield "date" if not dimension and value in _YEARS else kind, FigureSet(numbers=(number,))
    yield from (("clock", FigureSet(times=(each,))) for each in figures.times)
    yield from (("date", FigureSet(dates=(each,))) for each in figures.dates)
    yield from (("date", FigureSet(short_dates=(each,))) for each in figures.short_dates)
    yield from (("weekday", FigureSet(weekdays=frozenset([each]))) for each in figures.weekdays)


def _cut_by_kind(pieces: Sequence[Piece], kind: str) -> Iterator[Place]:
    """A place for each piece that has figures of a kind, with the pieces around it that have none.

    A piece that begins with its figure is of what stands before the first figure, too: "a berth costs 130 on the high racks, 165
    on the low ones". One that is only a figure belongs to the piece before: "marks at 10, 20 and 30 metres".
    """
    figures = [tuple(figure for each, figure in found if each == kind) for _, found in pieces]
    at = [number for number, having in enumerate(figures) if having]
    at = [number for number in at if number == at[0] or number - 1 not in at or telling_words(pieces[number][0])]
    begun = " ".join([*(text for text, _ in pieces[: at[0]]), _text_before_figure(pieces[at[0]][0])])
    is_behind = bool(telling_words(begun))  # "the table, 40 euros, the chair, 20": a figure is behind what it is of
    for before, here, then in zip([-1, *at], at, [*at[1:], len(pieces)], strict=False):
        said = [
            text
            for text, _ in pieces[
                before + 1 if is_behind or before < 0 else here : here + 1 if is_behind and then < len(pieces) else then
            ]
        ]
        if before == here - 1 and not telling_words(_text_before_figure(pieces[here][0])):
            said.append(begun)
        found = (*chain.from_iterable(figures[here:then]),)
        yield Place(kind, found, telling_words(" ".join(said)))


def _is_small(figure: FigureSet) -> bool:
    """Whether it is a small number of no unit."""
    values = [value for each in figure.numbers if not each.dimension for value in each.plain]
    return bool(values) and all(value < _LEAST_COUNT and value.is_integer() for value in values)


def _text_before_figure(text: str) -> str:
    return re.split(r"\d", text, maxsplit=1)[0]
