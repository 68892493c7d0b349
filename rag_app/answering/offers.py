"""Whether the thing that a question asks to be offered is named at all: "do you rent tents?" where nothing is said of tents.

Rules for English and German. What is near in meaning - another thing that is rented - is not its answer.
"""

import re
from itertools import takewhile

from rag_app.answering.citations import content_words
from rag_app.domain import read_table

_ASKS = re.compile(
    r"^\W*(?:(?:and|but|or|so|also|hi|hello|ok|please|und|oder)\W+)*(?:(?:do|can|could|will|would|have) (?:you|we)|(?:can|could|may) i|(?:is|are) there|gibt es"
    r"|haben sie|habt ihr|kann (?:man|ich)|können (?:wir|sie|man)|(?:bieten|verkaufen|verleihen|vermieten|reparieren) sie"
    r"|(?:bietet|verkauft|verleiht|vermietet) ihr)\b",
    re.IGNORECASE,
)
_LISTS: dict[str, str] = read_table(__file__)
_SAID_OTHERWISE, _ANY_SORT, _ENDS_THING, _PRICES, _AUXILIARIES = (
    frozenset(_LISTS[key].split()) for key in ("said_otherwise", "any_sort", "ends_thing", "prices", "auxiliaries")
)
_LETTERS, _SHORTEST = 6, 2


def share_unoffered(question: str, text: str) -> float:
    """Of what a question asks to be offered, the share of words that a text does not have; 0 of any other question.

    What the asker has to do is no offer: "Do I need my passport?" may be answered by "bring an identity card".

    >>> [share_unoffered("Do you rent out tents?", text) for text in ("We lend bicycles.", "Tent: £5", "Camping in a tent")]
    [1.0, 0.0, 0.0]
    """
    if _ASKS.match(question) is None:
        return 0.0
    words = {word for word in content_words(question) - _SAID_OTHERWISE if word.isalpha() and len(word) > 2}
    return sum(not _names(text.casefold(), word) for word in words) / max(1, len(words))


def _names(text: str, word: str) -> bool:
    """In any form, or as a part of a longer word."""
    begins = _beginning(word)
    return re.search(rf"{'' if len(begins) > 4 else chr(92) + 'b'}{re.escape(begins)}", text) is not None


def _beginning(word: str) -> str:
    return re.sub(r"(?:ing|ed|ies?|y|e|s|en|n)$", "", word)[:_LETTERS]


_SORT = re.compile(
    r"^\W*(?:(?:and|but|or|so|also|hi|hello|ok|please|at|in|on|for|with|to|by|from|of|und|oder)\W+)*(?P<asks>what|which)\s+(?P<sort>[^?.,;]+)",
    re.IGNORECASE,
)
_MOST_OF_SORT = 2  # words


def lacks_asked_sort(question: str, text: str) -> bool:
    """Whether a question asks which of a sort of things, and a text has no word for that sort.

    >>> [lacks_asked_sort(each, "We sell oak benches.") for each in ("Which mattress sizes are there?", "Which bench is it?", "What lies there?")]
    [True, False, False]
    >>> lacks_asked_sort("At which thickness are pads replaced?", "Pads are replaced at 1.5 mm.")  # the figure tells it
    False
    """
    found = _SORT.match(question)
    if found is None:
        return False
    words = re.findall(r"[^\W\d_]+", found["sort"].casefold())
    sort = [*takewhile(lambda word: word not in _ENDS_THING, words)]
    if found["asks"].casefold() == "what" and not _AUXILIARIES & {*words[len(sort) : len(sort) + 1]}:
        return False  # "what lies there": a verb
    named = [word for word in sort[:_MOST_OF_SORT] if len(word) > _SHORTEST and word not in _SAID_OTHERWISE | _ANY_SORT]
    return any(not _names(text.casefold(), word) for word in named)


_ARTICLES = r"(?:(?:a|an|the|your|my|our|some|any|one|this|that|new|another|its|their|ein|eine|einen|der|die|das)\s+)*"
_PRICE_PATTERNS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\bhow (?:much|expensive) (?:is|are|for|does|do|would|will|was|did)\s+{_ARTICLES}(?P<thing>.+)",
        rf"\b(?:price|cost|fee|charge|deposit|fare|rent)s? (?:of|for|on)\s+{_ARTICLES}(?P<thing>.+)",
        rf"\bwhat (?:do|does|would|will|did)\s+{_ARTICLES}(?P<thing>.+?)\s+cost",
        rf"\b(?:was|wie ?viel) kostet\s+{_ARTICLES}(?P<thing>.+)",
    )
]


def thing_priced(question: str) -> str:
    """How the word begins for the thing whose price is asked for; empty where that is no noun that can be told.

    >>> [thing_priced(each) for each in ("How much is an oak chair with arms?", "What do the day tickets cost?", "How much is a new one?")]
    ['chair', 'ticket', '']
    """
    for pattern in _PRICE_PATTERNS:
        found = pattern.search(question)
        words = re.findall(r"[^\W\d_]+", found["thing"]) if found is not None else []
        named = [word.casefold() for word in takewhile(lambda word: word.casefold() not in _ENDS_THING, words)]
        if named and named[-1] not in _PRICES:  # "the fee for a room": a room
            return _beginning(named[-1]) if len(named[-1]) > _SHORTEST and named[-1] not in ("one", "ones") else ""
    return ""


def names_thing(text: str, begins: str) -> bool:
    """
    >>> names_thing("Hats and armchairs: £9", "chair"), names_thing("Stools: £9", "chair")
    (True, False)
    """
    return begins in text.casefold()
