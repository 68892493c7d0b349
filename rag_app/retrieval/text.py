"""Sentences and tokens, counted the same way everywhere."""

from functools import cache
from pathlib import Path

import sentencex
from tokenizers import Tokenizer

TOKENIZER_FILE = Path(__file__).parent / "minilm-tokenizer.json"


def sentences(text: str, lang: str = "en") -> list[str]:
    """The sentences of a text, without the white space around them.

    >>> sentences("Dr. Smith paid $3.50. She left!")
    ['Dr. Smith paid $3.50.', 'She left!']
    """
    return [part for raw in sentencex.segment(lang, text) if (part := raw.strip())]


def sentence_pieces(text: str) -> list[str]:
    """As `sentences`, but nothing is lost: the pieces joined are the text."""
    return list(sentencex.segment("en", text))


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
