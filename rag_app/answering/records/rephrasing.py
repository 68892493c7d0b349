"""Turns of phrase that are said in other words before a question is read, and what is only said beside it."""

import re
from difflib import get_close_matches
from functools import cache

from rag_app.answering.records.wording import table_of
from rag_app.domain.days import FRENCH_MONTHS, GERMAN_MONTHS, MONTHS
from rag_app.retrieval.spelling import correct_spelling, spellings, suspects

_FIELD = r"[^,;:.?!]{1,40}?"
_VERSUS = r"(?:vs\.?|versus|against|compared (?:to|with))"
_ASKS = "is|are|was|were|do|does|did|has|have|can|could|will|would|what|which|who|how|when|where|why"
_MEASURES = re.compile(
    r"\bhow (?:many|much|often)\b|\b(?:totals?|averages?|sum|adds? up|comes? to|share|percent\w*|most|least|\w{2,}est)\b",
    re.I,
)
_ASKED_AGAIN = re.compile(
    r",?\s+(and|or)\s+((?:how (?:much|many|often)|what|which)\b[^,?]*?)(?=\s+(?:in|on|during|for|last|this)\b)", re.I
)
_PLAINLY = [
    (re.compile(pattern, re.I), plain)
    for pattern, plain in (
        # days that stand before a colon: "January at a glance: how many ..."
        (
            rf"^((?:{'|'.join(MONTHS)})(?: \d{{4}})?)(?: (?:at a glance|in (?:brief|short|numbers|figures)))?:\s+",
            r"in \1, ",
        ),
        # how the answer is wished for: "Give both figures.", "The names will do."
        (
            r"(?<=[.?!])\s+(?:please\s+)?(?:give|show|state|name|tell|list|quote|say)\b[^.?!]*\b(?:both|two|figures?|numbers?|values?|rates?|prices?)\b[^.?!]*[.!?]?\s*$",
            "",
        ),
        (
            rf"(?<=[.?!;–-])\s+(?:just\s+|only\s+)?(?:the|a|an|their|its)\s+{_FIELD}\s(?:will do|would do|is enough|are enough|is fine|are fine|suffices?)\W*$",
            "",
        ),
        # what leaves nothing out: "whether they came or not", "regardless of status"
        (
            rf"(?:,\s*|\s+(?:no matter|regardless of)\s+)(?:(?:no matter|regardless of)\s+)?whether\s+{_FIELD}\s+or not\b\s*(?=[,?.!]|$)",
            "",
        ),
        (
            r",?\s*\b(?:no matter (?:the|what|which)|regardless of(?: the)?|irrespective of(?: the)?|whatever the) \w+(?: (?:is|was|it is|they are))?\s*(?=[,?.!]|$)",
            "",
        ),
        # which way a figure goes: "more or fewer bookings than last week"
        (r"\b(more|fewer|less) or (?:more|fewer|less)\b(?=\s+\w)(?=.*\bthan\b)", r"\1"),
        # what a figure is compared with, said before it
        (rf"^compared (?:with|to|against)\s+({_FIELD}),\s*([^?.!]+?)\s*(?=[?.!]*$)", r"\2 compared with \1"),
        # a day that is asked for
        (r"^(?:on )?(?:what|which) date (?=(?:did|was|were|is|are|does|do|will|has|have)\b)", "when "),
        # a day that stands first: "on which date did most people come"
        (r"\b(which|what) date\b(?=.*\b(?:most|least|fewest|busiest|quietest)\b)", r"\1 day"),
        # a day that something bears: "what date is on it?"
        (
            r"\b(?:what|which) date (?:(?:is|was|stands) (?:on|given on|put on) (?:it|that|this)|does (?:it|that|this) (?:have|carry|bear|show))\b|\bwhat(?:['’]?s| is| was) its date\b",
            "when is it from",
        ),
        # "than in the one before", of weeks
        (
            r"\b(day|weekend|week|month|quarter|year)\b(.{1,80}?\b)the one (before|earlier)(?: (?:it|that))?\b",
            r"\1\2the \1 \3",
        ),
        (rf"\b({'|'.join(MONTHS)})\b(.{{1,80}}?\b)the one (before|earlier)(?: (?:it|that))?\b", r"\1\2the month \3"),
        # what the asker only believes, said behind it: "there were two I think"
        (
            r"[,.?!;–-]\s*(?:and\s+)?there (?:were|was|are|is|should be|must be|must have been|might be)\b[^,.?!;]*?,?\s*(?:i (?:think|believe|guess|reckon|suppose)|if i(?: remember| recall|['’]m not| am not)\b[^,.?!;]*)\W*$",
            "",
        ),
        # what one costs more than another
        (
            rf"^({_FIELD})\s+{_VERSUS}\s+({_FIELD})[,;:?]?\s+(?:and\s+)?what(?:['’]?s| is)\s+the\s+(?:extra|surcharge)\W*$",
            r"how much more is \1 than \2?",
        ),
        (
            rf"^what(?:['’]?s| is)\s+the\s+(?:extra|surcharge)\s+for\s+({_FIELD})\s+(?:{_VERSUS}|over)\s+({_FIELD})\W*$",
            r"how much more is \1 than \2?",
        ),
        # a share, whose sort is said behind it
        (
            rf"\b((?:percentage|share|proportion|fraction)\s+of\s+{_FIELD})\s+(?:went (?:on|to)|was (?:lost|down) to)\b",
            r"\1 was",
        ),
        (
            rf"\bhow (?:much|many) of\s+({_FIELD})[?,;:]?\s+(?:(?:in|as an?)\s+)?(?:per ?cent(?:age)?|%)(?=\W*$)",
            r"what percentage of \1",
        ),
        (
            rf"^of\s+({_FIELD}),\s*(what|which)\s+(share|percentage|proportion|fraction)\s+(?=(?:is|are|was|were|came|comes?|did|do|does)\b)",
            r"\2 \3 of \1 ",
        ),
        # what is left out, said at the end
        (
            rf",\s*(?:please\s+)?(?:leave|leaving|take|taking|strip|stripping)\s+out\s+({_FIELD})(?=[,?.]|$)",
            r" without \1",
        ),
        # by how much one is below another one
        (
            r"(?<!by )\bhow (many \w+|much) (is|are|was|were) (?!not\b)([^,;:.?!]{1,80}?) (below|under|beneath|above|over) (?=(?:the|our|my|that|an?)?\s*[^\W\d])",
            r"by how \1 \2 \3 \4 ",
        ),
        (
            r"\bby how (?:much|many points) (?:does|do|did) ([^,;:.?!]{1,80}?) (?:exceed|surpass|top|outstrip) (?=(?:the|our|my|that|an?)?\s*[^\W\d])",
            r"by how much is \1 above ",
        ),
        (r"\bhow many (?:percentage )?points (?=(?:\w{2,}er|more|less)\b)", "how much "),
        # "who called it off"
        (r"\b(\w{3,}) (?:it|them) (off|back|down|away)\b", r"\1 \2"),
        # what a list of things costs: "she wants A and B, what does that come to?"
        (
            r"^(?:(?:for|to)\s+(?-i:[a-z ]{1,40}?),?\s+)?(?:(?:the|a|my|our)\s+)?(?:customer|client|somebody|someone|i|we|he|she|they)\s+(?:want|need|buy|take|order|would like)s?\s+([^;:.?!]{1,120}?)[,;.]\s*(?:and\s+)?(?:what|how much)(?:['’]?s| is| does| do| will| would)?\s+(?:that|it|they|those|(?:the|all)\s+(?:two|three|four|five|lot))(?: all)?(?:\s+(?:come|comes|amount|amounts) to|\s+cost)?(?=\W*$)",
            r"what do \1 come to",
        ),
        (rf"^(?!(?:{_ASKS})\b)[\w ]{{1,40}}\s(?:included|inclusive)\s*[,:]\s*", ""),
    )
]
_EXCLUSIONS = [
    (re.compile(pattern, re.I), plain)
    for pattern, plain in (
        # "if I leave Ada out", "taking the late ones out"
        (
            rf",?\s*\bif (?:i|we|you)\s+(?:leave|take|strip)\s+(?:out\s+({_FIELD})|({_FIELD})\s+out)(?=[,?])",
            r" without \1\2",
        ),
        (
            rf",?\s*\bif (?:i|we|you)\s+(?:(?:don['’]?t|do not)\s+(?:count|include)|ignore|exclude|skip|disregard|leave aside|forget(?: about)?)\s+({_FIELD})(?=[,?]|$)",
            r" without \1",
        ),
        (rf"(?:^|(?<=,))\s*(?:leave|leaving|taking|stripping)\s+({_FIELD})\s+out(?=[,?:])", r" without \1"),
    )
]


_OFFERS = re.compile(
    r"^\W*(?:do|don['’]?t|have) (?:you|we|they) (?:also )?(?:sell|carry|offer|stock|have|got|do)\b(?: (?:any|an?|some|the)\b)?\s+",
    re.I,
)
_AND = re.compile(rf"^an(?=\s(?:in|on|for|at|from|to|with|the|my|our|{_ASKS})\b)", re.I)
_WORD = re.compile(r"(?<![^\W\d])[^\W\d_]+(?![^\W\d])")  # and no part of `yr_built`
_LEAST_SIMILARITY = 0.7  # like a word of time: spelling one word in all ways takes milliseconds


def write_out(text: str) -> str:
    """A message with what people write short or by ear as it is spelt, and its misspelt months and days of the week.

    >>> write_out("an how mny in febuary"), write_out("Wat came on wensday, 3 mths ago?"), write_out("the order of Agusta Marsh")
    ('and how many in february', 'what came on wednesday, 3 months ago?', 'the order of Agusta Marsh')
    """
    text = _replace_words(_AND.sub("and", text), "written")
    small = (word for word in suspects(text, ()) if word in text)  # and no name
    doubtful = [word for word in small if get_close_matches(word, _times(), 1, _LEAST_SIMILARITY)]
    times = {
        word: sorted((cost, each) for each, cost in spellings(word).items() if each in _times()) for word in doubtful
    }
    return correct_spelling(text, {word: found[0][1] for word, found in times.items() if found})


def write_out_english(text: str) -> str:
    """The same of a message in English, with its apostrophes.

    >>> write_out_english("whats on at xmas, i dont know")
    "what's on at christmas, i don't know"
    """
    return _replace_words(write_out(text), "written_in_english")


def _replace_words(text: str, table: str) -> str:
    """The text with each word of a table said otherwise, but for names: "is Wen in?"."""
    short = table_of(table)

    def put_right(found: re.Match[str]) -> str:
        is_name = found.start() > 0 and found[0][:1].isupper()
        return found[0] if is_name else short.get(found[0].lower(), found[0])

    return _WORD.sub(put_right, text)


@cache
def _times() -> frozenset[str]:
    days = (day for names in table_of("weekdays").values() for day in names.split(" | "))
    months = (month.lower() for names in (MONTHS, FRENCH_MONTHS, GERMAN_MONTHS) for month in names)
    return frozenset((*days, *months, "yesterday", "tomorrow"))


def say_plainly(text: str) -> str:
    """The question without what is said beside it, and with plain words for some turns of phrase.

    >>> say_plainly("If I leave Ada out, how many trips are there?")
    'without Ada, how many trips are there?'
    >>> say_plainly("What was paid in May, whether it was due or not?")
    'What was paid in May?'
    >>> say_plainly("Compared with May, what did June bring in?")
    'what did June bring in compared with May?'

    What is to happen "if I leave my coat out" is no figure without it.
    """
    for pattern, plain in (*_PLAINLY, *(_EXCLUSIONS if _MEASURES.search(text) else ())):
        text = pattern.sub(plain, text)
    return text.strip()


def say_offer(text: str, noun: str) -> str:
    """A question whether something is sold as one for such records.

    >>> say_offer("Do you sell lanterns?", "products"), say_offer("Do you sell well?", "")
    ('which products are lanterns?', 'Do you sell well?')
    """
    return _OFFERS.sub(f"which {noun} are ", text) if noun else text


def ask_once(text: str) -> str:
    """The question with what it asks of two periods said once, where the second time no other word asks.

    >>> ask_once("How many orders were there in May, and how many in June?")
    'How many orders were there in May and in June?'
    >>> ask_once("How much did we take in May, and how much did we spend in June?")
    'How much did we take in May, and how much did we spend in June?'
    """
    found = _ASKED_AGAIN.search(text)
    if found is None or not {*_WORD.findall(found[2].lower())} <= {*_WORD.findall(text[: found.start()].lower())}:
        return text
    return f"{text[: found.start()]} {found[1]}{text[found.end() :]}"
