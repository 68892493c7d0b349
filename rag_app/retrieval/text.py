"""Sentences and tokens, counted the same way everywhere."""

import re
from collections.abc import Iterator
from functools import cache

import sentencex
from tokenizers import Tokenizer

from rag_app.retrieval.embedders import TOKENIZER_FILE

# sentencex 1.0.32 panics on a capital letter, one of these and a full stop; a panic is no Exception.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
# "am 1. Mai": the library splits German dates unless it knows that the text is German
_DAY = re.compile(r"\b\d{1,2}\.\s*\Z")
_GERMAN_MONTH = re.compile(r"(?:Jan|Jän|Feb|März|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)")


def words_in(text: str) -> list[str]:
    """The words of a list as it is written in code: between blanks and line breaks."""
    return text.split()


def sentences(text: str, lang: str = "en") -> list[str]:
    """The sentences of a text, without the white space around them.

    >>> sentences("Dr. Smith paid $3.50. She left!")
    ['Dr. Smith paid $3.50.', 'She left!']
    >>> sentences("Der Kurs beginnt am 14. September. Er dauert zwei Tage.")
    ['Der Kurs beginnt am 14. September.', 'Er dauert zwei Tage.']
    """
    return [part for raw in _segments(text, lang) if (part := raw.strip())]


def sentence_pieces(text: str) -> list[str]:
    """As `sentences`, but nothing is lost: the pieces joined are the text.

    >>> "".join(sentence_pieces("Plan A\u00a0. Plan\u2028B.\u3000C.")) == "Plan A\u00a0. Plan\u2028B.\u3000C."
    True
    """
    return list(_segments(text, "en"))


def _segments(text: str, lang: str) -> Iterator[str]:
    start = end = 0
    for piece in sentencex.segment(lang, _WIDE_SPACE.sub(" ", text)):
        if end > start and not (_DAY.search(text, start, end) and _GERMAN_MONTH.match(text, end)):
            yield text[start:end]
            start = end
        end += len(piece)
    if end > start:
        yield text[start:end]


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
