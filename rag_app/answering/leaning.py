"""Whether a message leans on what was said before it: by rules on its words, in English and German, and on no topic's.

A message that announces something else, or that names something itself and points at nothing, stands alone. One that
points back, or says too little to be looked up, leans. In between is doubt: then both are searched, the message by
itself and with what was said before.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

from rag_app.answering.citations import content_words
from rag_app.answering.context import neutralise
from rag_app.domain import MONTHS, WEEKDAYS, Question, compile_later


class Leaning(StrEnum):
    ALONE = "alone"
    DOUBT = "doubt"
    LEANS = "leans"


_OPENING_WORDS = (
    r"(?:(?:ok(?:ay)?|now|so|and|but|well|right|thanks?|thank you|great|next|nun|jetzt|und|gut|danke)\b[\s,.!:;–-]*)*"
)
_CHANGES = compile_later(
    rf"\W*{_OPENING_WORDS}(?:(?:some|any)thing (?:\w+ )?(?:else|different|new)\b"
    r"|(?:an?|the )?\s*(?:\w+ )?(?:new|other|another|different|separate|unrelated) (?:topic|question|subject|matter|thing|issue)\b"
    r"|unrelated\b|(?:a )?chang(?:e|ing) (?:of |the |my )*(?:topic|subject)|on (?:an? |another )(?:different |other )?(?:note|topic|subject|matter)"
    r"|moving on|(?:et)?was (?:ganz |völlig )?anderes|(?:ein[e]? )?(?:ganz )?(?:andere|neue|weitere)s? (?:frage|thema|sache)|themenwechsel)",
    re.IGNORECASE,
)
_BEGINNING = compile_later(
    r"\W*(?:(?:ok(?:ay)?|and|but|now|then|so|well|right|what about|how about|what of|(?:the )?same(?: thing| question)? (?:for|with|of)|und|was ist mit|et)\b[\s,.!:;–-]*)+",
    re.IGNORECASE,
)
_CLOSING_WORD = compile_later(r"[\s,]+(?:then|too|as well|instead|please)(?=\W*$)", re.IGNORECASE)
_STOP = compile_later(r"[^,:;.!?]*[,:;.!]\s+(?=\w)")  # the rest of what announces another subject
_GOES_ON = compile_later(
    r"\W*(?:(?:ok(?:ay)?|well|so|right|gut)[\s,.!]+)*(?:and|but|or|also|then|why (?:not|so)|what about|how about|same|und|aber|oder|auch|dann|was ist mit|wieso|warum nicht)\b"
    r"|\W*(?:without|except|excluding|apart from|not counting|ohne|außer|sans|sauf)\b(?:\W+[\w’']+){1,4}\W*$",
    re.IGNORECASE,
)
_POINTS_BACK = compile_later(
    r"\b(?:it|its|itself|they|them|their|theirs|these|those|he|him|his|she|her|hers|instead|former|latter|such|ours"
    r"|(?:this|that)(?! (?:week|month|year|quarter|season|summer|winter|spring|autumn|morning|evening|time)\b)"
    r"|(?<!which )(?<!the )ones?(?! (?:of|day|time|week|month|year)\b)|the (?:same|others?|ones?|first|second|third|last|rest|remainder)(?= ones?\b|\W*$)|which one"
    r"|the (?:next|following) (?:\d+|ones?|two|three|four|five|six|seven|eight|nine|ten|few)(?=\W*$)"
    r"|there(?! (?:is|are|was|were|any|be|been|a|an|some|no)\b)"
    r"|er|ihn|ihm|ihre?[mnrs]?|seine?[mnrs]?|diese?[mnrs]?|jene[mnrs]?|davon|dafür|damit|dazu|darüber|daran|darin|dabei|dagegen|dort|dessen|deren"
    r"|solche[mnrs]?|beide[mnrs]?|d(?:er|ie|as)selben?|stattdessen)\b",
    re.IGNORECASE,
)
_QUOTATION = compile_later(r"[\"“„«](?=\w)[^\"“”„«»\n]{2,100}[\"”“»]")
_NAME = compile_later(r"(?<=[a-z0-9,;] )(?!I\b)[A-Z][\w’'&-]*[a-z0-9][\w-]*|\b[A-Z]{2,}-?\d+\w*\b")
_DATE = compile_later(rf"{'|'.join(MONTHS)}|(?:{'|'.join(WEEKDAYS)})s?|christmas|easter", re.IGNORECASE)
_GERMAN = compile_later(
    r"\b(?:der|die|das|den|dem|und|ist|sind|wie|wir|ich|eine?n?|für|mit|nicht|wann|wo|wer|bei|im|zum?|von|kann|hat|er|sie|es|gibt|kostet|seine?|ihre?|dort|davon|dafür|diese[mnrs]?)\b",
    re.IGNORECASE,
)
_SETS_BESIDE = compile_later(
    r"\b(?:or|than|versus|vs|against|besides?|compar\w+|similar|like|instead|oder|als|gegen|vergl\w+|statt)\b",
    re.IGNORECASE,
)
_LITTLE = 2  # words that carry meaning: a message of no more cannot be looked up by itself
_ENOUGH_OF_ITS_OWN = 3  # after so many of them a pronoun rather points to the message's own words
_PREVIOUS = 400  # characters
_FOLLOW_UPS = 3


def leaning_of(text: str) -> Leaning:
    """Of a message that has others before it.

    >>> [leaning_of(text).value for text in ("And how did it change?", "New topic. How do I add a member?", "without Ada's")]
    ['leans', 'alone', 'doubt']
    >>> [leaning_of(text).value for text in ("What does the Arc desk weigh?", "How long is the warranty on desks?")]
    ['alone', 'doubt']
    """
    if _CHANGES.match(text):
        return Leaning.ALONE
    names = names_something(text)
    pointing = _POINTS_BACK.search(text)
    if pointing or _GOES_ON.match(text):
        before = len(content_words(text[: pointing.start()])) if pointing and not _GOES_ON.match(text) else 0
        return Leaning.DOUBT if names or before > _ENOUGH_OF_ITS_OWN else Leaning.LEANS
    if names:
        return Leaning.ALONE
    return Leaning.LEANS if len(content_words(text)) <= _LITTLE else Leaning.DOUBT


def announcement_in(text: str) -> str:
    """The words before a question that announce another subject.

    >>> announcement_in("OK, other topic. How many members are there?"), announcement_in("How many members are there?")
    ('OK, other topic. ', '')
    """
    found = _CHANGES.match(text)
    stop = _STOP.match(text, found.end()) if found else None
    return text[: stop.end()] if stop else ""


def points_back(text: str) -> bool:
    """Whether a text has a word that stands for another, or goes on with one.

    >>> points_back("And how did it change?"), points_back("Which ring sells best?")
    (True, False)
    """
    return bool(_POINTS_BACK.search(text) or _GOES_ON.match(text)) and not _CHANGES.match(text)


def speaks_of_named(text: str) -> bool:
    """Whether a message is about nothing but the things that its request names beside it: it points at them, or says little.

    >>> [speaks_of_named(each) for each in ("Tell me about this keyword", "Is it better than “linen apron”?", "What sells best on Etsy?")]
    [True, False, False]
    """
    return (leaning_of(text) is Leaning.LEANS or points_back(text)) and not _SETS_BESIDE.search(text)


def without_opening(text: str) -> str:
    """
    >>> without_opening("OK, and what about Mia?")
    'Mia?'
    """
    found, text = _BEGINNING.match(text), _CLOSING_WORD.sub("", text)
    return text[found.end() :] if found else text


def names_something(text: str) -> bool:
    """Whether it has a quoted phrase, a code, or a name. In German every noun has a capital, so there a name is none.

    >>> names_something("And on Amazon?"), names_something("And in June?"), names_something("And “linen apron”?")
    (True, False, True)
    """
    if _QUOTATION.search(text):
        return True
    return not is_german(text) and any(not is_date(found[0]) for found in _NAME.finditer(text))


def is_german(text: str) -> bool:
    """Whether a text has two of the words that make a German sentence.

    >>> is_german("Wann ist der Laden offen?"), is_german("When is the shop open?")
    (True, False)
    """
    return len(_GERMAN.findall(text)) > 1


def is_date(name: str) -> bool:
    """Whether a name is that of a day or a month.

    >>> is_date("Monday"), is_date("Monday Club")
    (True, False)
    """
    return _DATE.fullmatch(name) is not None


def searched_text(text: str, earlier: Sequence[str]) -> str:
    """What to search for: the asker's message before, the last of the `earlier` ones, and the present one whole. A follow-up
    by itself names nothing.

    Where the one before is a follow-up, too, or says next to nothing, the one before it comes along, and so on.

    >>> searched_text("And in June?", ["Who has the keys?", "How warm is the pool in May?"])
    'How warm is the pool in May?\\nAnd in June?'
    """
    said: list[str] = []
    for message in reversed(earlier):
        if len(said) < _FOLLOW_UPS and (not said or points_back(said[0]) or len(content_words(said[0])) < _LITTLE):
            ends = not said or message.rstrip().endswith((".", "?", "!"))  # each stays a sentence
            said.insert(0, message if ends else f"{message.rstrip()}.")
    previous = beginning_of(" ".join(neutralise(" ".join(said)).split()), _PREVIOUS)
    return f"{previous}\n{text}" if previous and previous != text.strip() else text


def wordings(text: str, earlier: Sequence[str], leaning: Leaning) -> tuple[str, ...]:
    """What to search for, the most promising first: the message by itself, with what was said before it, or both."""
    together = searched_text(text, earlier)
    if leaning is Leaning.ALONE or together == text:
        return (text,)
    return (together, text) if leaning is Leaning.LEANS else (text, together)


def question_before(question: Question) -> str:
    """What was asked before a question that may lean on it; else empty.

    >>> question_before(Question("And how?", searched="Who has the keys?\\nAnd how?"))
    'Who has the keys?'
    """
    ending = f"\n{question.text}"
    wordings = (question.searched or "", *question.also)
    return next((each.removesuffix(ending) for each in wordings if each.endswith(ending)), "")


def beginning_of(text: str, length: int) -> str:
    """At most so many characters, without half a word unless there is nothing else."""
    if len(text) <= length:
        return text
    kept = text[:length]
    if text[length].isspace():
        return kept.rstrip()
    words = kept.rsplit(maxsplit=1)
    return words[0] if len(words) == 2 and len(words[1]) < 40 else kept
