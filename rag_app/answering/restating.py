"""A follow-up that only names another thing, as a whole question: "and Old Mill?" after "When is Central Station open?".

What is named takes the place of its like in the question before: a name that of a name, a day that of a day, and what stands behind
a preposition or an article that of what stood behind it. English rules; in doubt nothing is exchanged, and the follow-up is looked for together with
the question before it.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from rag_app.answering.antecedents import fill_in
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
from rag_app.answering.refusals import language_of
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
_NAMED_THING = compile_later(
    rf"(?:(?P<preposition>{_PREPOSITION})\s)?(?:(?:{_ARTICLE}\s)?[a-z]+\s(?:at|in|of|called)\s)?(?:(?P<article>{_ARTICLE})\s)?"
    rf"(?P<name>{_RUN})(?P<noun>(?:\s(?!ones?\b)[a-z]+)?)(?:\sones?)?\W*"
)
_NAME = compile_later(rf"(?<=[a-z0-9,;] )(?!I\b)(?P<name>{_RUN})")
_PHRASE = compile_later(rf"(?:{_PREPOSITION}\s)?(?:{_ARTICLE}\s)?[\w'’&-]+(?:\s[\w'’&-]+){{0,3}}\W*")
# Without "and" or "what about": two words or more that end as a question does.
_BARE = compile_later(r"\s*[\w'’&-]+(?:\s[\w'’&-]+)+\s*\?\s*")
# What is asked of the whole question before, or of the thing that it is about.
_OF_WHAT = compile_later(
    r"(?:(?:at|from|until|till|by|for|in|to|on|since) )?(?:when|where|how|(?:what|which) (?:days?|times?|dates?|hours?|weeks?|months?|years?|days of the week|seasons?|rooms?|floors?|places?|conditions?|ways?)"
    r"|how (?:long|often|soon|far|early|late|quickly|quick))(?: exactly)?",
    re.IGNORECASE,
)
_YES_OR_NO = compile_later(
    r"(?:is|are|was|were|do|does|did|can|could|may|must|should|will|would|has|have) ", re.IGNORECASE
)
_OF_IT = compile_later(
    r"(?P<asks>(?:who|what|when|where|why|how)(?: \w+){0,2}? (?:is|are|was|were)) (?:it|that|this|they|those|these)(?P<rest>(?: \w+){0,3})",
    re.IGNORECASE,
)
_WHAT_IS = compile_later(
    r"(?:what|when|where|how)(?: \w+)? (?:is|are|was|were) (?!there\b|it\b|that\b|this\b|they\b|those\b)(?P<thing>(?:\w[\w'’-]*)(?: \w[\w'’-]*){0,5})\?",
    re.IGNORECASE,
)
_CONDITION = compile_later(r"(?:if|unless) (?!so\b|not\b)[\w'’-]+(?: [\w'’-]+){1,7}", re.IGNORECASE)
# "the small one" is what is small; "the one with a lid" is told by that alone.
_SUCH_ONE = compile_later(
    rf"^(?:{_ARTICLE} )?(?P<which>(?-i:(?!other|same|next|last|first|second|third)[a-z]+)) ones?$", re.IGNORECASE
)
_THAT_ONE = compile_later(r"(?:the|that) ones? (?:with|without|in|at|for|of|from) .{2,60}", re.IGNORECASE)
# Prepositions of which one phrase is the like of another: who is asked about a place at one is not asked about it in another.
_PREPOSITION_GROUPS = [
    frozenset(each.split())
    for each in ("in on at near by", "for with without", "from to", "after before", "under over", "if unless when")
]
_LEADING_PREPOSITION = compile_later(
    r"(?:in|on|at|near|by|for|with|without|from|to|after|before|under|over|if|unless)\b(?= )", re.IGNORECASE
)
# The article before a thing that is told by one word: "a box costs".
_PLAIN_THING = compile_later(
    rf"\b{_ARTICLE} (?=[a-z-]+(?: (?:costs?|is|are|take|last|weigh|have|has|need|work|run|open|close|hold|fit|in|on|at|for|with|from|to)\b|\?))"
)
_ONE_THING = compile_later(r"\ban? [a-z][\w-]*", re.IGNORECASE)
_TAIL = compile_later(r"(?<=\w) (?:in|on|at|for|with|without|from|to|after|before|if)\b.+", re.IGNORECASE)
_DIGITS = r"(?<![\w.,])\d+(?:[.,]\d+)*(?![\w.,]*\d)"
_NUMBER = compile_later(rf"(?:(?:for|in|over|after|at|with|of) )?({_DIGITS})")
_SENTENCE = compile_later(r"(?<=[.!?])\s+")
_ASKS = compile_later(
    r"\b(?:who|whom|whose|what|when|where|why|how|which|is|are|was|were|do|does|did|can|could|may|must|should|will|would|has|have|not)\b",
    re.IGNORECASE,
)


def leaning_after(text: str, before: str) -> Leaning:
    """Whether a message leans on the one before: in another language, and pointing at nothing, it is about something else.

    >>> leaning_after("Wie hoch ist die Anzahlung für einen Kurs?", "What does a desk cost?").value
    'alone'
    """
    leaning = leaning_of(text)
    if leaning is Leaning.DOUBT and not points_back(text) and language_of(before) != language_of(text):
        return Leaning.ALONE
    return leaning


def go_on(question: Question, earlier: Sequence[str], *, pronouns: bool = True) -> Question:
    """The question as one that may lean on those which its asker asked before, the oldest first. Without `pronouns` these stay.

    >>> asked = go_on(Question("And what does that mean?"), ["How is the demand of linen aprons?"])
    >>> asked.leans, asked.searched, asked.also
    (True, 'How is the demand of linen aprons?\\nAnd what does that mean?', ('And what does that mean?',))
    >>> go_on(Question("and Old Mill?"), ["When is Central Station open?"]).restated
    'When is Old Mill open?'
    """
    leaning = leaning_after(question.text, earlier[-1]) if earlier else Leaning.ALONE
    *before, text = in_full([*earlier, question.text], pronouns=pronouns)
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


def in_full(messages: Sequence[str], *, pronouns: bool = True) -> list[str]:
    """Messages of one asker, the oldest first, each that only names another thing than the one before as a whole question, and
    with the thing that a pronoun stands for.

    >>> in_full(["When is Central Station open?", "and Old Mill?", "and on Sundays?", "and why?"])
    ['When is Central Station open?', 'When is Old Mill open?', 'When is Old Mill open on Sundays?', 'and why?']
    """
    told: list[str] = []
    for message in messages:
        told.append((told and (restate(message, told[-1]) or (pronouns and _say_thing(message, told)))) or message)
    return told


def _say_thing(message: str, before: Sequence[str]) -> str:
    """A message with what its pronoun stands for, where it does not stand alone."""
    return "" if leaning_after(message, before[-1]) is Leaning.ALONE else fill_in(message, before)


def restate(text: str, before: str) -> str:
    """The question before of what a text names instead, or under which condition; empty where it says anything else, or where
    that is in doubt.

    >>> restate("and the Swift?", "How heavy is the Heron?"), restate("What about cats?", "Are dogs welcome at Riverside?")
    ('How heavy is the Swift?', 'Are cats welcome at Riverside?')
    >>> restate("and a wash?", "What does a cut cost?"), restate("and why?", "Is Riverside closed?")
    ('What does a wash cost?', '')
    >>> restate("and if i join?", "what do lessons cost"), restate("fridays too?", "is the office open")
    ('what do lessons cost if i join?', 'is the office open on fridays?')
    """
    rest, asked = without_opening(text), _last_question(before)
    asks, goes_on = _ASKS.search(rest), rest != text or _BARE.fullmatch(text) is not None
    if not (goes_on or asks) or not asked or "," in asked or is_german(before) or _OF_BOTH.search(before):
        return ""
    rest = rest.strip().rstrip("?!. ")
    if _CONDITION.fullmatch(rest) is not None:
        return _add(asked, rest)
    if (number := _NUMBER.fullmatch(rest)) is not None:
        return _exchange_number(asked, number[1])
    if asks:
        return _ask_more(asked, rest)
    return _exchange(asked, rest) if content_words(rest) else ""


def _ask_more(asked: str, rest: str) -> str:
    """The question before with what is asked of it further: "when?" of what was asked by yes or no, "when is that?" of what
    something is.

    >>> _ask_more("do you come to Hull?", "which days"), _ask_more("where is the clinic?", "when is that")
    ('which days do you come to Hull?', 'when is the clinic?')
    """
    if _OF_WHAT.fullmatch(rest) is not None and _YES_OR_NO.match(asked):
        return f"{rest} {asked[:1].lower()}{asked[1:]}"
    of_it, thing = _OF_IT.fullmatch(rest), _WHAT_IS.fullmatch(asked)
    if of_it is None or thing is None:
        return ""
    return f"{of_it['asks']} {thing['thing']}{of_it['rest'] or ''}?"


def _exchange(asked: str, rest: str) -> str:
    """The question about something else, or with it behind it; empty where that is in doubt."""
    if (such := _SUCH_ONE.fullmatch(rest)) is not None:
        return _exchange_sort(asked, such["which"])
    if (named := _NAMED_THING.fullmatch(rest)) is not None and not is_date(named["name"]):
        return exchange_thing(asked, named["name"]) or _exchange_name(asked, named) or _add(asked, rest)
    if _THAT_ONE.fullmatch(rest) is not None:
        return _exchange_only_name(asked, rest)
    return "" if points_back(rest) or _PHRASE.fullmatch(rest) is None else _exchange_phrase(asked, rest)


def _exchange_number(asked: str, number: str) -> str:
    """The question about another number, if it has just one.

    >>> _exchange_number("What is due after 6 weeks?", "12"), _exchange_number("Are 2 of 3 enough?", "4")
    ('What is due after 12 weeks?', '')
    """
    return re.sub(_DIGITS, number, asked) if len(re.findall(_DIGITS, asked)) == 1 else ""


def _last_question(before: str) -> str:
    """The last sentence of a message, if it asks something; with its question mark.

    >>> _last_question("I am new here. what does it cost"), _last_question("I need a ticket")
    ('what does it cost?', '')
    """
    asked = _SENTENCE.split(before.strip())[-1]
    return f"{asked.rstrip('?!. ')}?" if asked.endswith("?") or _ASKS.match(asked) else ""


def _exchange_sort(asked: str, which: str) -> str:
    """The question about another one of a sort: "and the small one?".

    >>> _exchange_sort("What does a large box cost?", "small"), _exchange_sort("what does a box cost?", "small")
    ('What does a small box cost?', 'what does a small box cost?')
    """
    things = [*_PLAIN_THING.finditer(asked)]
    if exchanged := exchange_thing(asked, which):
        return exchanged
    return f"{asked[: things[0].end()]}{which} {asked[things[0].end() :]}" if len(things) == 1 else ""


def _exchange_phrase(asked: str, rest: str) -> str:
    """The question with a phrase that names no one by a name: a day or a size for another, what stands behind the same
    preposition or article; else what says when, where or for whom behind it."""
    if (tail := _TAIL.search(rest)) is not None and (first := _exchange_phrase(asked, rest[: tail.start()])):
        return _add(first, tail[0].strip())
    exchanged = exchange_thing(asked, rest) or next(iter(take_apart(f"{asked.rstrip('?')}, and {rest}?")[1:]), "")
    if not exchanged and is_date(rest):
        return _add(asked, f"on {rest}")
    things = [*_ONE_THING.finditer(asked)]
    if not exchanged and len(things) == 1 and rest.isalpha():
        return f"{asked[: things[0].start()]}{rest}{asked[things[0].end() :]}"
    return exchanged or _add(asked, rest)


def _add(asked: str, rest: str) -> str:
    """The question with a phrase behind it; empty where that begins with no preposition, or the question has the like."""
    found, (_, *said) = _LEADING_PREPOSITION.match(rest), re.findall(r"[^\W_]+", asked)
    if found is None:
        return ""
    like = next(each for each in _PREPOSITION_GROUPS if found[0].casefold() in each)
    timed = is_date(rest.rsplit(maxsplit=1)[-1])
    if any(is_date(word) if timed else word.casefold() in like for word in said):
        return ""
    return f"{asked.rstrip('?')} {rest[:1].lower()}{rest[1:]}?"


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
    names = _names_in(asked)
    if (preposition := named["preposition"]) and preposition != "of":
        behind = re.compile(rf"\b{preposition} (?:{_ARTICLE} )?\Z", re.IGNORECASE)
        names = [each for each in names if behind.search(asked[: each.start()])]
    if len(names) != 1:
        return ""
    start, end = names[0].span()
    article = named["article"] if named["article"] and not re.search(rf"\b{_ARTICLE} \Z", asked[:start]) else ""
    noun = "" if asked[end:].startswith(named["noun"]) else named["noun"]
    return f"{asked[:start]}{article and f'{article} '}{named['name']}{noun}{asked[end:]}"


def _exchange_only_name(asked: str, thing: str) -> str:
    """The question with a thing in the place of its name, if it has just one: "the one with a lid" for "the Heron"."""
    names = _names_in(asked)
    if len(names) != 1:
        return ""
    before = re.sub(rf"\b{_ARTICLE} \Z", "", asked[: names[0].start()])
    return f"{before}{thing}{asked[names[0].end() :]}"


def _names_in(asked: str) -> list[re.Match[str]]:
    return [each for each in _NAME.finditer(asked) if not is_date(each["name"])]
