"""Sections that are each of one thing of a sort: the branches of a firm, the models of a maker.

What stands in one of them is so of that thing alone, though its sentences do not name it.
"""

import re
from collections.abc import Iterable, Sequence, Set

from msgspec.structs import replace

from rag_app.answering.citations import content_words
from rag_app.answering.passages import Passage, cells_of
from rag_app.domain import Question

_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_MOST_WORDS = 4
_SMALL = frozenset(["of", "the", "and", "on", "in", "at", "de", "la", "upon"])


def is_name(heading: str) -> bool:
    """Whether a heading is a name of two to four words, each with a capital letter.

    >>> is_name("Old Mill"), is_name("Opening hours"), is_name("Prices")
    (True, False, False)
    """
    words = [word for word in _WORD.findall(heading) if word not in _SMALL]
    return 1 < len(words) <= _MOST_WORDS and all(word[0].isupper() and not word.isupper() for word in words)


def name_in(heading: str) -> str:
    """The heading where it is a name, else nothing."""
    return heading if is_name(heading) else ""


def of_named_sections(pool: Sequence[Passage], question: Question) -> list[Passage]:
    """The passages without those of other things than the question names, or than the message before it does.

    >>> told = [Passage(0, 0, "Open daily.", section="Old Mill"), Passage(0, 1, "Open on Mondays.", section="Pine Lake")]
    >>> [each.text for each in of_named_sections(told, Question("When is pine lake open?"))]
    ['Open on Mondays.']
    """
    names = {(each.block, each.section): content_words(each.section) for each in pool if is_name(each.section)}
    asked = content_words(question.text)
    if not _names_one(names.values(), asked):
        asked = content_words(question.searched or "")
    named = {place for place, words in names.items() if words <= asked}
    blocks = {block for block, _ in named}
    said = [names[place] for place in named]
    return [
        each
        for each in pool
        if each.block not in blocks
        or (each.block, each.section) in named
        or (each.block, each.section) not in names
        or _names_one(said, content_words(each.text))
    ]


def name_sections(said: Sequence[Passage], pool: Sequence[Passage], question: str) -> list[Passage]:
    """What is said, the first sentence of each section with its name, where `pool` has such a section beside it.

    >>> told = [Passage(0, 0, "Open daily.", section="Old Mill"), Passage(0, 1, "Closed.", section="Pine Lake")]
    >>> [each.text for each in name_sections(told[:1], told, "When are you open?")]
    ['Old Mill – Open daily.']
    """
    sections = {(each.block, each.section) for each in pool if is_name(each.section)}
    told: list[Passage] = []
    for each in said:
        place, before = (each.block, each.section), told[-1] if told else None
        beside = place in sections and any(block == each.block and name != each.section for block, name in sections)
        goes_on = before is not None and (before.block, before.section) == place
        there = content_words(each.section) <= content_words(f"{question} {each.text}")
        named = beside and not goes_on and not there and not cells_of(each.text)
        told.append(replace(each, text=f"{each.section} – {each.text}") if named else each)
    return told


def _names_one(names: Iterable[Set[str]], words: Set[str]) -> bool:
    return any(name <= words for name in names)
