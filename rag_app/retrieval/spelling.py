"""Words of a question that may be misspelt, and what they may have been meant to be: the store says which of it there is.

Spellings one edit away (Damerau, CACM 1964), and two where both are what people get wrong by ear: a letter doubled or
not, two letters changed over, one vowel for another, letters that sound alike. No dictionary but the embedding model's:
a word that it knows whole is misspelt at most by one such slip, "meat" for "meet".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache

from rag_app.domain import read_table
from rag_app.retrieval.text import tokenizer, tokens

SHORTEST, MOST = 4, 3
"""Letters of a word that may be misspelt; and how many such words of a question are looked up, its longest."""
_LONGEST = 20
_TWICE = 6  # letters from which two slips by ear are looked for
_AT_MOST = 1.3  # of a word's slips together
_SLIP, _OMISSION, _EXTRA, _OTHER, _FIRST = 0.5, 0.8, 0.8, 1.0, 0.5
_LETTERS, _VOWELS = "abcdefghijklmnopqrstuvwxyz", "aeiouy"
_SPELLINGS = read_table(__file__)
_COMMON = frozenset(_SPELLINGS["common"].split())
_ENDINGS = ("est", "er", "ed", "ing", "ly")
_WORD = re.compile(r"[^\W\d_]+")


def suspects(text: str, known: Iterable[str], *, whole: bool = False) -> list[str]:
    """The words of a text, lower case, that the embedding model does not know whole and that none of the `known` texts has;
    behind them, with `whole`, those that it knows.

    >>> suspects("How do I resett my hedphones and the Halden?", ["The Halden speaker"])
    ['hedphones', 'resett']
    >>> suspects("When is the lunch meat?", ["A lunch"], whole=True)
    ['meat', 'when']
    """
    seen = {word for each in known for word in _WORD.findall(each.lower())}
    words = {word for word in _WORD.findall(text.lower()) if SHORTEST <= len(word) <= _LONGEST} - seen
    pieces = {word: len(tokens(word)) for word in words}
    doubtful = [word for word in words if pieces[word] > 1 or whole]
    return sorted(doubtful, key=lambda word: (pieces[word] == 1, -len(word), word))[:MOST]


def is_inflected(word: str) -> bool:
    """Whether a word is one that the embedding model knows whole, with an ending: it is written as it is meant.

    >>> is_inflected("coldest"), is_inflected("tidiest"), is_inflected("bookd")
    (True, True, False)
    """
    bases = [word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending)]
    forms = [
        form for base in bases for form in (base, f"{base}e", re.sub("i$", "y", base)) if len(base) >= SHORTEST - 1
    ]
    return any(len(form) >= SHORTEST and len(tokens(form)) == 1 for form in forms)


def spellings(word: str) -> dict[str, float]:
    """What a word may have been meant to be, and how unlikely each is. Two words where a space may be missing.

    >>> spellings("hedphones")["headphones"], spellings("paradocks")["paradox"], "low dry" in spellings("lowdry")
    (0.8, 0.5, True)
    """
    found: dict[str, float] = {}
    known = _known_triples() | _triples(word)
    by_ear = dict.fromkeys(_slips(word), _SLIP)
    twice = {other: 2 * _SLIP for each in by_ear for other in _slips(each)} if len(word) >= _TWICE else {}
    for options in (by_ear, _edits(word), twice) if len(tokens(word)) > 1 else (by_ear,):
        for spelling, cost in options.items():
            unlikely = cost + (_FIRST if spelling[:1] != word[:1] else 0.0)
            # three letters in a row that are new in it are in words, but for the two across a seam: of most spellings they are not
            if unlikely <= _AT_MOST and len(spelling) >= SHORTEST - 1 and len(_triples(spelling) - known) <= 2:
                found[spelling] = min(unlikely, found.get(spelling, unlikely))
    found.pop(word, None)
    return found


def common_spellings(words: Iterable[str]) -> dict[str, str]:
    """Those of the words that are misspelt words of many questions, which no chunk need have.

    >>> common_spellings(["mnany", "hedphones"])
    {'mnany': 'many'}
    """
    found = {word: spellings(word).keys() & _COMMON for word in words if len(tokens(word)) > 1}
    return {word: meant.pop() for word, meant in found.items() if len(meant) == 1}


def other_english(word: str) -> set[str]:
    """How a word may be written on the other side of the Atlantic.

    >>> sorted(other_english("neighbourhood")), sorted(other_english("gray")), sorted(other_english("pan"))
    (['neighborhood'], ['grey'], [])
    """
    pairs = (way for pair in _SPELLINGS["atlantic"] for way in (pair, pair[::-1]))
    return {word.replace(one, other) for one, other in pairs} - {word}


def likelihood(found: tuple[str, str, float, int]) -> tuple[float, int, int, str]:
    """The order of spellings, the likeliest first: few slips, in many chunks, whole to the embedding model.

    `found` is a word, a spelling of it, how unlikely that is, and in how many chunks it is.

    >>> sorted([("duplicat", "duplicant", 0.8, 2), ("duplicat", "duplicate", 0.8, 2)], key=likelihood)[0][1]
    'duplicate'
    """
    _, spelling, cost, chunks = found
    return cost, -chunks, len(tokens(spelling)), spelling


def correct_spelling(text: str, meant: Mapping[str, str]) -> str:
    """The text with these words, lower case, replaced.

    >>> correct_spelling("The Hedphones?", {"hedphones": "headphones"})
    'The headphones?'
    """
    return _WORD.sub(lambda found: meant.get(found[0].lower(), found[0]), text)


def as_written(word: str, text: str) -> str:
    """The word of the text that a word, which may have been put right, stands for.

    >>> as_written("hallam", "Who is Petra Hallan?"), as_written("petra", "Who is Petra Hallan?")
    ('Hallan', 'Petra')
    """
    there = {each.lower(): each for each in _WORD.findall(text)}
    nearest = [word] if word in there else get_close_matches(word, there, 1)
    return there[nearest[0]] if nearest else word


def _triples(text: str) -> set[str]:
    return {text[place : place + 3] for place in range(len(text) - 2) if " " not in text[place : place + 3]}


@cache
def _known_triples() -> frozenset[str]:
    words = (word.removeprefix("##") for word in tokenizer().get_vocab())
    return frozenset(triple for word in words if word.isalpha() for triple in _triples(word))


def _edits(word: str) -> dict[str, float]:
    """One letter more, less or another; or a space."""
    found: dict[str, float] = {}
    for place in range(len(word) + 1):
        before, after = word[:place], word[place:]
        found |= {before + letter + after: _OMISSION for letter in _LETTERS}
        if after:
            found |= {before + letter + after[1:]: _OTHER for letter in _LETTERS}
            found[before + after[1:]] = _EXTRA
        if min(len(before), len(after)) >= SHORTEST - 1:
            found[f"{before} {after}"] = _OMISSION
    return found


def _slips(word: str) -> Iterator[str]:
    """What one gets wrong by ear, or in haste."""
    for place, letter in enumerate(word):
        before, after = word[:place], word[place + 1 :]
        yield before + letter + letter + after
        if after[:1] == letter:
            yield before + after
        elif after:
            yield before + after[0] + letter + after[1:]
        if letter in _VOWELS:
            yield from (before + other + after for other in _VOWELS if other != letter)
    for one, other in _SPELLINGS["alike"]:
        for written, meant in ((one, other), (other, one)):
            for found in re.finditer(written, word):
                yield word[: found.start()] + meant + word[found.end() :]
