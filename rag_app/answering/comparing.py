"""Which of several things has the most or the least of something, where each names its figure in a sentence of its own."""

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rag_app.answering.citations import content_words
from rag_app.answering.passages import Passage
from rag_app.answering.verification.figures import MONEY, figures_of

LEAST_READ = -1.0
"""Of the reader's log-odds: a sentence that is compared says something of the question, though not which is the most."""
_NO_NAME = re.compile(r"(?:it|its|they|their|this|these|that|those|he|his|she|her)\b", re.IGNORECASE)
_LONG = frozenset(["time", "length"])
_WORDS = {
    "cheapest|least expensive|lowest (?:price|fee|cost)s?|costs? (?:the )?least": (MONEY, False),
    "dearest|priciest|(?:most|the) expensive|highest (?:price|fee|cost)s?|costs? (?:the )?most": (MONEY, True),
    "longest|slowest": (_LONG, True),
    "shortest|quickest|fastest": (_LONG, False),
    "tallest|highest|widest|deepest|largest|biggest": (frozenset(["length"]), True),
    "smallest|narrowest|lowest|thinnest": (frozenset(["length"]), False),
    "heaviest": (frozenset(["mass"]), True),
    "lightest": (frozenset(["mass"]), False),
}


class Order(Struct, frozen=True):
    """By which units things are compared, and whether the most comes first."""

    units: frozenset[str]
    falls: bool


def order_of(question: str) -> Order | None:
    """
    >>> order_of("Which plan is the cheapest?").falls, order_of("Who cuts best?")
    (False, None)
    """
    found = (
        Order(*meant) for words, meant in _WORDS.items() if re.search(rf"\b(?:{words})\b", question, re.IGNORECASE)
    )
    return next(found, None)


def compare(
    order: Order, ranked: Sequence[Passage], scores: NDArray[np.float64], read: NDArray[np.float64]
) -> list[Passage]:
    """The sentence of each source with its highest figure of one unit, or its lowest, in that order; nothing where only one
    source has one.

    >>> found = [Passage(0, 0, "A cut costs 40 euros."), Passage(1, 0, "A shave costs 22 euros."), Passage(2, 0, "We cut.")]
    >>> order = order_of("What is cheapest?")
    >>> [each.block for each in compare(order, found, np.asarray([0.9, 0.8, 0.7]), np.asarray([3.0, 4.0, 5.0]))]
    [1, 0]
    """
    best: dict[int, tuple[float, Passage]] = {}
    unit = None
    for place in np.argsort(-scores, kind="stable"):
        passage = ranked[place]
        figures = [each for each in figures_of(passage.text).numbers if each.dimension in order.units]
        if read[place] < LEAST_READ or not figures:
            continue
        unit = unit or figures[0].dimension
        for value in (max(each.values) for each in figures if each.dimension == unit):
            before = best.get(passage.block)
            if before is None or (value > before[0] if order.falls else value < before[0]):
                best[passage.block] = (value, passage)
    ordered = sorted(best.values(), key=lambda each: -each[0] if order.falls else each[0])
    return [passage for _, passage in ordered] if len(ordered) > 1 else []


def name_thing(passage: Passage, title: str) -> str:
    """A sentence about "it" with its heading, or the title of its source, before it where it has no word of it.

    >>> name_thing(Passage(0, 0, "It weighs 9 kilos."), "Arc desk"), name_thing(Passage(0, 0, "Arc weighs 9."), "Prices")
    ('Arc desk: It weighs 9 kilos.', 'Arc weighs 9.')
    """
    name = passage.lead or title
    named = not name or content_words(name) & content_words(passage.text)
    return passage.text if named or not _NO_NAME.match(passage.text) else f"{name.rstrip(':.')}: {passage.text}"
