"""Sentences and tokens, counted the same way everywhere."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache

import sentencex
from tokenizers import Tokenizer

from rag_app.retrieval.embedders import TOKENIZER_FILE

# sentencex 1.0.32 panics on a capital letter, one of these and a full stop; a panic is no Exception.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
# "am 1. Mai", "vom 1. bis zum 3.": the library splits German dates unless it knows that the text is German
_DAY = re.compile(r"\b\d{1,2}\.\s*\Z")
_GERMAN_DATE = re.compile(r"(?:Jan|Jän|Feb|März|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez|(?:bis|und|oder|auf) )")
# Abbreviations that it takes for the end of a sentence.
_ABBREVIATION = re.compile(r"\b(?:incl|excl|approx|max|tel)\.\s*\Z", re.IGNORECASE)
_GOES_ON = re.compile(r"[\d£$€+(a-z]|[A-Z]{2}")
# It takes all that follows brackets for one sentence, and "(1) ..." begins a clause of a contract.
_BRACKETS = re.compile(r"(?:\s*\([^()]*\))+\s*")
LABEL = r"(?:[^.!?:;|\n]|\.(?=:|\s[a-z])){1,40}:"
"""What a row has before a cell: "Price:", "No.:", "Max. group:"."""
FIRST_CELL = rf"[^.!?:;|\n]{{1,60}}(?=(?:; {LABEL} [^;\n]+){{2}})"
"""The first cell of a row whose column has no name: of a table with things as its columns, and a property of them in each row."""
_ROW = re.compile(rf"^(?:{LABEL} [^;\n]*|{FIRST_CELL})(?:; {LABEL} [^;\n]*)+(?:\n++(?![a-z])|\Z)", re.MULTILINE)
_LABEL_CUT = re.compile(r"(?:\A|;\s)[^\s;:.]{1,8}\.\s*\Z")
_INNER_END = re.compile(r"(?:\w{3}|[\"'”’)\]])[.!?][\"'”’)\]]*\s+(?=[^\sa-z])")


def words_in(text: str) -> list[str]:
    """The words of a list as it is written in code: between blanks and line breaks."""
    return text.split()


SMALL_NUMBERS = words_in(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen
    """
)
TENS = words_in("twenty thirty forty fifty sixty seventy eighty ninety")
NUMBER_WORDS = {word: value for value, word in enumerate(SMALL_NUMBERS)} | {
    word: 10 * value for value, word in enumerate(TENS, 2)
}
"""English ones of one word each: "zero" to "twenty", and the tens to "ninety"."""
_NUMBER = re.compile(
    rf"(?<![\w.,:-])(?:\d{{1,2}}|{'|'.join(NUMBER_WORDS.keys() - {'one'})})(?![\w-]|[.,:]\d)", re.IGNORECASE
)


def exchange_numbers(text: str) -> str:
    """The text with small numbers as words where they stand as digits, and as digits where they stand as words.

    >>> exchange_numbers("18 of twenty tries in 2026, at 9:30, for one of us")
    'eighteen of 20 tries in 2026, at 9:30, for one of us'
    """
    words = {str(value): word for word, value in NUMBER_WORDS.items()}
    return _NUMBER.sub(lambda found: words.get(found[0]) or str(NUMBER_WORDS.get(found[0].lower(), found[0])), text)


_ENDINGS = {
    "ies": ("y", "ie", "ies"),
    "ves": ("ve", "f", "fe"),
    **dict.fromkeys(("ches", "shes", "sses", "xes"), ("", "e")),
    **dict.fromkeys(("ses", "zes", "oes"), ("e", "", "is")),
}
"""Of a plural, how its singular may end, the likeliest first: behind what is left of it without these letters."""


@lru_cache(8192)
def singular(word: str) -> str:
    """The singular of an English word in lower case: of what it may be, the first that the bundled tokenizer knows.

    >>> [singular(each) for each in "boxes classes categories dishes movies buses knives houses heroes wallabies".split()]
    ['box', 'class', 'category', 'dish', 'movie', 'bus', 'knife', 'house', 'hero', 'wallaby']
    >>> [singular(each) for each in ("status", "species", "analysis", "glass", "week")]
    ['status', 'species', 'analysis', 'glass', 'week']
    """
    for plural, endings in _ENDINGS.items():
        if word.endswith(plural) and len(word) > len(plural) + 1:
            kept = word[: -3 if plural in ("ies", "ves") else -2]
            forms = [f"{kept}{each}" for each in endings]
            return next((each for each in forms if tokenizer().token_to_id(each) is not None), forms[0])
    return word if word.endswith(("ss", "us", "is")) else word.removesuffix("s")


_HISSES = ("ch", "sh", "ss", "x")  # ends of words whose plural has "es"
_PLURALS = {"child": "children", "foot": "feet", "man": "men", "person": "people", "tooth": "teeth", "woman": "women"}
_SINGULAR_NOUNS = "equipment feedback furniture information luggage money staff traffic weather"


def plural(noun: str) -> str:
    """What several are called in English: of a noun of one or more words, or of a plural.

    >>> [plural(each) for each in ("opportunity", "class", "days", "day", "box", "weather", "people", "boat man")]
    ['opportunities', 'classes', 'days', 'days', 'boxes', 'weather', 'people', 'boat men']
    """
    lead, blank, last = noun.rpartition(" ")
    if last in _PLURALS:
        return f"{lead}{blank}{_PLURALS[last]}"
    if last in (*_PLURALS.values(), *_SINGULAR_NOUNS.split()) or (noun.endswith("s") and not noun.endswith("ss")):
        return noun
    if noun.endswith(_HISSES):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"


def sentences(text: str, lang: str = "en") -> list[str]:
    """The sentences of a text, without the white space around them.

    >>> sentences("Dr. Smith paid $3.50. She left!")
    ['Dr. Smith paid $3.50.', 'She left!']
    >>> sentences("Der Kurs beginnt am 14. September. Er dauert zwei Tage.")
    ['Der Kurs beginnt am 14. September.', 'Er dauert zwei Tage.']
    >>> sentences("Vom 3. bis zum 9. März ist zu. Danach ist offen.")
    ['Vom 3. bis zum 9. März ist zu.', 'Danach ist offen.']
    """
    return [part for raw in _segments(text, lang) if (part := raw.strip())]


def sentence_pieces(text: str) -> list[str]:
    """As `sentences`, but nothing is lost: the pieces joined are the text.

    >>> "".join(sentence_pieces("Plan A\u00a0. Plan\u2028B.\u3000C.")) == "Plan A\u00a0. Plan\u2028B.\u3000C."
    True
    """
    return list(_segments(text, "en"))


def _segments(text: str, lang: str) -> Iterator[str]:
    """A row of a table is one piece, whatever stops it has: cut in two, its second half says nothing of what it is about."""
    start = 0
    for row in _ROW.finditer(text) if "; " in text else ():
        if not _INNER_END.search(row[0]):
            yield from _sentences(text[start : row.start()], lang)
            yield row[0]
            start = row.end()
    yield from _sentences(text[start:], lang)


def _sentences(text: str, lang: str) -> Iterator[str]:
    start = end = 0
    for piece in _pieces(_WIDE_SPACE.sub(" ", text), lang):
        if end > start and not _belongs_together(text[start:end], text[end : end + 8]):
            yield text[start:end]
            start = end
        end += len(piece)
    if end > start:
        yield text[start:end]


def _pieces(text: str, lang: str) -> Iterator[str]:
    """What the library makes of a text, and of what stands behind a bracket that a piece begins with."""
    for piece in sentencex.segment(lang, text):
        bracket = _BRACKETS.match(piece)
        if bracket is None or bracket.end() == len(piece):
            yield piece
            continue
        first, *others = sentencex.segment(lang, piece[bracket.end() :])
        yield bracket[0] + first
        yield from others


def _belongs_together(before: str, after: str) -> bool:
    """Whether what the library has cut is one sentence."""
    if _DAY.search(before) and _GERMAN_DATE.match(after):
        return True
    return bool(
        (_ABBREVIATION.search(before) and _GOES_ON.match(after)) or (_LABEL_CUT.search(before) and after[:1].islower())
    )


@cache
def tokenizer() -> Tokenizer:
    """The bundled tokenizer (all-MiniLM-L6-v2), without truncation or padding."""
    loaded = Tokenizer.from_file(str(TOKENIZER_FILE))
    loaded.no_truncation()
    loaded.no_padding()
    return loaded


def tokens(text: str) -> list[int]:
    """Token ids, without the model's special tokens.

    >>> len(tokens("Where do the milliseconds go?"))
    9
    """
    return list(tokenizer().encode(text, add_special_tokens=False).ids)
