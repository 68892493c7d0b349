"""How likely passages state a claim: a small model that reads both together (docs/adr/0064-a-model-reads-claims.md)."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path

from msgspec import Struct

from rag_app.answering.verification.words import telling_words
from rag_app.retrieval.text import sentences, tokens

MODEL_FILE = Path(__file__).with_name("entailment.onnx")
LANGUAGE = "en"
MOST_CLAIM, MOST_TEXT, MOST_TITLE = 64, 176, 24
"""Tokens that the model reads of a claim, a passage and a title, the first of each."""
_WINDOWS = 2
"""Parts of long sources that are read with a claim, beside the sentences of all of them that have most of its words."""
_CLS, _SEP = 101, 102


class Piece(Struct, frozen=True):
    """A sentence of a source, or a line: its tokens, and the stems of what it is about with their weights."""

    ids: list[int]
    words: dict[str, float]


class Source:
    """A source as claims are read with it. Its text is split and tokenized once, when it is read first."""

    def __init__(self, title: str, text: str) -> None:
        self.title, self._text = title, text

    @cached_property
    def pieces(self) -> list[Piece]:
        parts = (part for line in self._text.splitlines() for part in sentences(line))
        return [Piece(tokens(part)[:MOST_TEXT], telling_words(part)) for part in parts]


class Window(Struct, frozen=True):
    """What the model reads at once with a claim: as many tokens as MOST_TEXT, of a source with this title."""

    title: str
    ids: tuple[int, ...]


def encode_claim(claim: str) -> list[int]:
    """The tokens of a claim as the model reads them before those of a window."""
    return [_CLS, *tokens(claim)[:MOST_CLAIM], _SEP]


def encode_window(window: Window) -> list[int]:
    """The tokens of a window and of its title."""
    return [*window.ids[:MOST_TEXT], _SEP, *tokens(window.title)[:MOST_TITLE], _SEP]


def windows_of(claim: str, sources: Sequence[Source]) -> list[Window]:
    """What of these sources is read with a claim: all of them at once where they are short.

    Of longer ones the parts with most of its words, and the sentences with most of its words, wherever they stand.

    >>> [window.title for window in windows_of("Dogs may come.", [Source("Rules", "Dogs are welcome."), Source("", "We open at nine.")])]
    ['Rules']
    """
    pieces = [piece for source in sources for piece in source.pieces]
    title = next((source.title for source in sources if source.title), "")
    if sum(len(piece.ids) for piece in pieces) <= MOST_TEXT:
        return [Window(title, _join(pieces))]
    words = telling_words(claim)
    parts = [(source.title, part) for source in sources for part in _parts(source.pieces)]
    parts.sort(key=lambda part: -_weigh(words, part[1]))
    best = sorted(range(len(pieces)), key=lambda place: -_weigh(words, pieces[place : place + 1]))
    gathered = [pieces[place] for place in sorted(_fill(best, pieces))]
    return [Window(title, _join(gathered)), *(Window(of, _join(part)) for of, part in parts[:_WINDOWS])]


def _join(pieces: Iterable[Piece]) -> tuple[int, ...]:
    return tuple(chain.from_iterable(piece.ids for piece in pieces))


def _weigh(words: dict[str, float], pieces: Sequence[Piece]) -> float:
    """The weight of the words that pieces have of these."""
    return sum(weight for word, weight in words.items() if any(word in piece.words for piece in pieces))


def _fill(order: Iterable[int], pieces: Sequence[Piece]) -> list[int]:
    """The first of these places whose pieces fit into a window."""
    places = [*order]
    lengths = accumulate(len(pieces[place].ids) for place in places)
    return [place for place, length in zip(places, lengths, strict=True) if length <= MOST_TEXT]


def _parts(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    """Neighbours that fit into a window; each begins in the middle of the one before."""
    start = end = 0
    while end < len(pieces):
        end = start + max(1, len(_fill(range(start, len(pieces)), pieces)))
        yield pieces[start:end]
        start = max(start + 1, (start + end + 1) // 2)


def read_odds(claim: str, sources: Sequence[Source]) -> float:
    """Log-odds that these sources state the claim, about -6 to 6: of what says most for it.

    The model is all-MiniLM-L6-v2, trained with `tests/entailment` to tell what a passage states; in int8, on the CPU, offline.

    >>> rules = [Source("Rules", "Dogs are welcome on the terrace. Cats stay outside.")]
    >>> read_odds("You may bring your dog to the terrace.", rules) > read_odds("Cats may come in.", rules)
    True
    """
    from rag_app.answering.reader import as_arrays
    from rag_app.retrieval.embedding import shared_session

    session = shared_session(MODEL_FILE)
    asked = encode_claim(claim)
    pairs = (as_arrays(asked, encode_window(window)) for window in windows_of(claim, sources))
    return max(float(session.run(None, pair)[0][0]) for pair in pairs)
