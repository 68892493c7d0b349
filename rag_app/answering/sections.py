"""Sections that are each of one thing of a sort: the branches of a firm, the models of a maker.

What stands in one of them is so of that thing alone, though its sentences do not name it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec.structs import replace

from rag_app.answering.citations import content_words
from rag_app.answering.leaning import is_german
from rag_app.answering.passages import Passage, cells_of
from rag_app.domain import WEEKDAYS, Question
from rag_app.retrieval.confidence import stem

Place = tuple[int, str]
"""The number of a block and the heading of a section in it."""
_CAPITAL = re.compile(r"(?<=\w\W)[A-Z][\w'’-]*")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_MOST_WORDS = 4
_ALIKE = 2  # words that two sections have in common, neither of which has a name of more than one word
_SHARE = 0.2  # of the words of the shorter one
_TOPIC = re.compile(r"(?:(?<!s)s|ing|tion|ment|ity|ance|ence)$")  # "Prices", "Parking": no name of one thing
# What the hours of two things have in common, whatever their days are.
_SIGNS = {
    "(day)": re.compile(rf"\b(?:{'|'.join(WEEKDAYS)})s?\b"),
    "(span)": re.compile(r"\b\d{1,2}(?:[.:]\d\d)?\s?(?:(?:to|until|bis)\b|-|–)\s?\d"),
}
_SMALL = frozenset(["of", "the", "and", "on", "in", "at", "de", "la", "upon"])


def is_name(heading: str) -> bool:
    """Whether a heading is a name of two to four words, each with a capital letter.

    >>> is_name("Old Mill"), is_name("Opening hours"), is_name("Prices")
    (True, False, False)
    """
    words = [word for word in _WORD.findall(heading) if word not in _SMALL]
    return 1 < len(words) <= _MOST_WORDS and all(word[0].isupper() and not word.isupper() for word in words)


def names_of(pool: Iterable[Passage], question: str, *, loosely: bool = False) -> dict[Place, frozenset[str]]:
    """The sections whose heading is a name, with its words. One word is a name where its section says the like of another thing's:
    "Riverside" beside "Old Mill", "Silver" beside "Gold"; `loosely`, several words are, too, "Boiler house" beside "Old
    stables", and the hours of two things are alike whatever their days. Not for a question in German, where each noun has a capital.

    >>> told = [("Costs £9 a month", "Gold"), ("Costs £5 a month", "Silver"), ("Renewal costs £2", "Renewals"), ("It is free", "Parking")]
    >>> [name for _, name in names_of([Passage(0, n, *each[:1], section=each[1]) for n, each in enumerate(told)], "")]
    ['Gold', 'Silver']
    """
    said: dict[Place, set[str]] = {}
    for each in pool:
        words = said.setdefault((each.block, each.section), set())
        words |= {stem(word) for word in content_words(each.text) if word.isalpha()}
        words |= {kind for kind, sign in _SIGNS.items() if loosely and sign.search(each.text)}
    may_be_name = _may_name_several if loosely else _may_be_name
    single = [place for place in said if may_be_name(place[1])] if not is_german(question) else []
    whole = [place for place in said if is_name(place[1])]

    def has_like(place: Place) -> bool:
        others = (other for other in (*single, *whole) if other[0] == place[0] and other != place)
        return any(
            len(common := said[place] & said[other]) >= (1 if other in whole else _ALIKE)
            and len(common) >= _SHARE * min(len(said[place]), len(said[other]))
            for other in others
        )

    names = {*whole, *(place for place in single if has_like(place))}
    return {place: content_words(place[1]) for place in said if place in names}


def keep_named_sections(pool: Sequence[Passage], question: Question) -> list[Passage]:
    """The passages without those of other things than the question names, or than the message before it does; what stands
    under a name has it as its name.

    >>> told = [Passage(0, 0, "Open daily.", section="Old Mill"), Passage(0, 1, "Open on Mondays.", section="Pine Lake")]
    >>> [each.text_with_lead for each in keep_named_sections(told, Question("When is pine lake open?"))]
    ['Pine Lake Open on Mondays.']
    """
    names = names_of(pool, question.text, loosely=True)
    certain = names_of(pool, question.text)
    named = _places_named(names, question.text) or _places_named(names, question.searched or "")
    blocks = {block for block, _ in named}
    said = [names[place] for place in named]
    kept = (
        each
        for each in pool
        if each.block not in blocks
        or (each.block, each.section) in named
        or (each.block, each.section) not in names
        or any(name <= content_words(each.text) for name in said)
    )
    places = certain.keys() | {place for place in names if place[0] in blocks}
    return [replace(each, name=each.section) if (each.block, each.section) in places else each for each in kept]


def name_sections(said: Sequence[Passage], pool: Sequence[Passage], question: str) -> list[Passage]:
    """What is said, the first sentence of each section with its name, where `pool` has such a section beside it.

    >>> told = [Passage(0, 0, "Open daily.", section="Old Mill"), Passage(0, 1, "Closed.", section="Pine Lake")]
    >>> [each.text for each in name_sections(told[:1], told, "When are you open?")]
    ['Old Mill – Open daily.']
    """
    sections = names_of(pool, question, loosely=True)
    told: list[Passage] = []
    for each in said:
        place, before = (each.block, each.section), told[-1] if told else None
        beside = place in sections and any(block == each.block and name != each.section for block, name in sections)
        goes_on = before is not None and (before.block, before.section) == place
        there = content_words(each.section) <= content_words(f"{question} {each.text}")
        named = beside and not goes_on and not there and not cells_of(each.text)
        told.append(replace(each, text=f"{each.section} – {each.text}") if named else each)
    return told


def _may_be_name(heading: str) -> bool:
    """
    >>> _may_be_name("Riverside"), _may_be_name("The Swift"), _may_be_name("Parking"), _may_be_name("FAQ")
    (True, True, False, False)
    """
    words = [word for word in _WORD.findall(heading) if word.casefold() not in _SMALL]
    return len(words) == 1 and words[0].istitle() and _TOPIC.search(words[0]) is None


def _may_name_several(heading: str) -> bool:
    """
    >>> [_may_name_several(each) for each in ("Riverside", "Boiler house", "Parking", "how it works")]
    [True, True, False, False]
    """
    words = [word for word in _WORD.findall(heading) if word.casefold() not in _SMALL]
    return _may_be_name(heading) or (1 < len(words) <= _MOST_WORDS and heading[:1].isupper())


def _places_named(names: Mapping[Place, Set[str]], text: str) -> set[Place]:
    """The sections that a text names: by one word only where that has a capital, or nothing has."""
    asked = content_words(text)
    capitals = content_words(" ".join(_CAPITAL.findall(text))) if text[:1].isupper() else asked
    return {
        place for place, words in names.items() if words <= (asked if is_name(place[1]) or len(words) > 1 else capitals)
    }
