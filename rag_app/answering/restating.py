"""A follow-up that only names another thing, as a whole question: "and Old Mill?" after "When is Central Station open?".

What is named takes the place of its like in the question before: a name that of a name, a day that of a day, and what stands behind
a preposition or an article that of what stood behind it. English rules; in doubt nothing is exchanged, and the follow-up is looked for together with
the question before it.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from rag_app.answering.citations import content_words
from rag_app.answering.contrasts import exchange_thing
from rag_app.answering.kinds import find_calculation
from rag_app.answering.leaning import (
    Leaning,
    is_date,
    is_german,
    leaning_of,
    points_back,
    searched_text,
    without_opening,
    wordings,
)
from rag_app.domain import Question, compile_later

_ARTICLE = r"(?:an?|the|my|our|your)"
_PREPOSITION = r"(?:for|in|on|at|with|from|to|by|of|about)"
# A thing that is asked about in words that stand before it: "How much is a junior ticket, and a senior ticket?"
_ANOTHER = compile_later(
    rf"(?P<first>[^,?]+), (?:and|or) (?P<second>(?:(?P<article>{_ARTICLE})|(?P<preposition>for|in|on|at|with|from|to|by))"
    r"(?: [\w'’-]+){1,4})\?",
    re.IGNORECASE,
)
_OF_BOTH = compile_later(r"\b(?:between|difference|compared?|than|both|together|versus|vs)\b", re.IGNORECASE)
_IS = compile_later(r"\b(?:is|are|was|were) $", re.IGNORECASE)
_STATE = compile_later(r"(?:open|closed|allowed|available|due|included|held|needed|cleaned|collected)", re.IGNORECASE)
_RUN = r"[A-Z][\w'’&-]*(?:\s(?:(?:of|the|and|de|la|upon|on)\s){0,2}(?:[A-Z][\w'’&-]*|\d+\b))*"
_NAMED = compile_later(
    rf"(?:(?P<preposition>{_PREPOSITION})\s)?(?:(?:{_ARTICLE}\s)?[a-z]+\s(?:at|in|of|called)\s)?(?:(?P<article>{_ARTICLE})\s)?"
    rf"(?P<name>{_RUN})(?P<noun>(?:\s(?!ones?\b)[a-z]+)?)(?:\sones?)?\W*"
)
_NAME = compile_later(rf"(?<=[a-z0-9,;] )(?!I\b)(?P<name>{_RUN})")
_PHRASE = compile_later(rf"(?:{_PREPOSITION}\s)?(?:{_ARTICLE}\s)?[\w'’&-]+(?:\s[\w'’&-]+){{0,3}}\W*")
_SENTENCE = compile_later(r"(?<=[.!?])\s+")
_ASKS = compile_later(
    r"\b(?:who|whom|whose|what|when|where|why|how|which|is|are|was|were|do|does|did|can|could|may|must|should|will|would|has|have|not)\b",
    re.IGNORECASE,
)


def go_on(question: Question, earlier: Sequence[str]) -> Question:
    """The question as one that may lean on those which its asker asked before, the oldest first.

    >>> asked = go_on(Question("And how did it change?"), ["How is the demand of linen aprons?"])
    >>> asked.leans, asked.searched, asked.also
    (True, 'How is the demand of linen aprons?\\nAnd how did it change?', ('And how did it change?',))
    >>> go_on(Question("and Old Mill?"), ["When is Central Station open?"]).restated
    'When is Old Mill open?'
    """
    leaning = leaning_of(question.text) if earlier else Leaning.ALONE
    *before, text = in_full([*earlier, question.text])
    restated = text if text != question.text else ""
    looked_for = (restated, searched_text(question.text, earlier)) if restated else wordings(text, before, leaning)
    first, *others = looked_for
    return replace(
        question,
        searched=first if first != question.text else None,
        also=tuple(others),
        leans=leaning is Leaning.LEANS,
        restated=restated,
    )


def in_full(messages: Sequence[str]) -> list[str]:
    """Messages of one asker, the oldest first, each that only names another thing than the one before as a whole question.

    >>> in_full(["When is Central Station open?", "and Old Mill?", "and on Sundays?"])
    ['When is Central Station open?', 'When is Old Mill open?', 'and on Sundays?']
    """
    told: list[str] = []
    for message in messages:
        told.append((told and restate(message, told[-1])) or message)
    return told


def restate(text: str, before: str) -> str:
    """The question before of what a text names instead; empty where it says anything else, or where that is in doubt.

    >>> restate("and the Swift?", "How heavy is the Heron?"), restate("What about cats?", "Are dogs welcome at Riverside?")
    ('How heavy is the Swift?', 'Are cats welcome at Riverside?')
    >>> restate("and a wash?", "What does a cut cost?"), restate("and why?", "Is Riverside closed?")
    ('What does a wash cost?', '')
    """
    rest, asked = without_opening(text), _SENTENCE.split(before.strip())[-1]
    if rest == text or not asked.endswith("?") or "," in asked or is_german(before):
        return ""
    if _ASKS.search(rest) or _OF_BOTH.search(before) or not content_words(rest):
        return ""
    if (named := _NAMED.fullmatch(rest)) is not None and not is_date(named["name"]):
        return _exchange_name(asked, named)
    if points_back(rest) or _PHRASE.fullmatch(rest) is None:
        return ""
    rest = rest.rstrip("?!. ")
    return exchange_thing(asked, rest) or next(iter(take_apart(f"{asked.rstrip('?')}, and {rest}?")[1:]), "")


def take_apart(part: str) -> list[str]:
    """Of a question that asks the same of a second thing, what it asks of each.

    >>> take_apart("What does a cut cost, and a wash?"), take_apart("What is due for the bike, and for the lock?")
    (['What does a cut cost', 'What does a wash cost?'], ['What is due for the bike', 'What is due for the lock?'])
    >>> take_apart("When is the museum open, and the cafe?")
    ['When is the museum open', 'When is the cafe open?']
    """
    found = _ANOTHER.fullmatch(part)
    if found is None or _OF_BOTH.search(part) or find_calculation(part):
        return [part]
    first, second, article = found["first"], found["second"], found["article"]
    word = article and re.sub("(?i)^an?$", "an?", article)
    *_, place = [None, *re.finditer(rf"(?i)\b(?:{word or found['preposition']})\b", first)]
    if place is None:
        return [part]
    before, replaced = first[: place.start()], first[place.start() :].split()
    nouns = [number for number, each in enumerate(replaced) if each.casefold() == second.split()[-1].casefold()]
    if not article or _IS.search(before):  # all of it
        rest = [each for each in replaced[-1:] if _STATE.fullmatch(each)]
    else:
        rest = replaced[nouns[0] + 1 if nouns else len(second.split()) :]
    return [first, " ".join([f"{before}{second}", *rest]) + "?"]


def _exchange_name(asked: str, named: re.Match[str]) -> str:
    """The question with another name: that behind the same preposition, or else the only one that it has."""
    names = [each for each in _NAME.finditer(asked) if not is_date(each["name"])]
    if (preposition := named["preposition"]) and preposition != "of":
        behind = re.compile(rf"\b{preposition} (?:{_ARTICLE} )?\Z", re.IGNORECASE)
        names = [each for each in names if behind.search(asked[: each.start()])]
    if len(names) != 1:
        return ""
    start, end = names[0].span()
    article = named["article"] if named["article"] and not re.search(rf"\b{_ARTICLE} \Z", asked[:start]) else ""
    noun = "" if asked[end:].startswith(named["noun"]) else named["noun"]
    return f"{asked[:start]}{article and f'{article} '}{named['name']}{noun}{asked[end:]}"
