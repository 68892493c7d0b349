"""How likely a claim has to be, by what speaks against it. All bars on the model's log-odds are here.

`python -m tests.entailment --bars` prints the odds of true and false sentences by doubt. Set the bars again when the model changes.
"""

from collections.abc import Iterable
from enum import StrEnum
from math import inf


class Doubt(StrEnum):
    """What speaks against a claim."""

    NONE = "its sources have its words"
    OTHER_WORDS = "its sources have less than half of its words"
    FEW_WORDS = "its sources have next to none of its words, or too few for one without a citation of its own"
    LITTLE = "it has no citation of its own, and says next to nothing"
    ASIDE = "a part in parentheses or behind a semicolon has other words"
    FIRST_WORD = "its first word looks like a name"
    NEGATION = "a sentence of the sources denies it, or it denies one"
    ASKED = "its days and times are those of the question, and the sources have them not"
    FIGURE = "a figure is not in its sources and not worked out"
    NAME = "a name is not in its sources"
    QUOTATION = "a quotation is not in its sources as it is"
    ORDER = "it says of Y and X what the sources say of X and Y"
    ADVICE = "it is advice in other words"


LEAST = {
    Doubt.NONE: -3.0,
    Doubt.OTHER_WORDS: -1.5,
    Doubt.FEW_WORDS: 0.0,
    Doubt.LITTLE: -2.0,
    Doubt.ASIDE: 1.0,
    Doubt.FIRST_WORD: 1.0,
    Doubt.ASKED: -0.5,
}
"""The log-odds above which a claim with a doubt is kept; one with another doubt is never kept."""


def least_odds(doubts: Iterable[Doubt]) -> float:
    """
    >>> least_odds([Doubt.OTHER_WORDS, Doubt.ASIDE]), least_odds([Doubt.NONE, Doubt.NAME])
    (1.0, inf)
    """
    return max(LEAST.get(doubt, inf) for doubt in doubts)
