"""`[Source N]` in a model's answer: read, checked against the context, put in order, and given a quote."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rag_app.answering.context import Context
from rag_app.domain.answer import Citation, Hit
from rag_app.retrieval.text import sentence_pieces, sentences

QUOTE_LENGTH = 300
"""Characters of a quote, at most."""

_LIST = r"#?[0-9]+(?:[\s,;&]*(?:\b(?:and|to)\b|[-–])?[\s]*(?:sources?\s*)?#?[0-9]+)*"
_LOOSE = re.compile(rf"([ \t]*)\[\s*sources?[\s:]*({_LIST})\s*(?:[:|–-][^\[\]]*)?\]([ \t]*)", re.IGNORECASE)
_RANGE = re.compile(r"([0-9]{1,3})\s*(?:[-–]|\bto\b)\s*(?:sources?\s*)?#?([0-9]{1,3})", re.IGNORECASE)
_MARKER = re.compile(r"\[Source ([0-9]+)\]")
_MARKERS = r"\[Source [0-9]+\](?: \[Source [0-9]+\])*"
# "Claim. [Source 1] Next" -> "Claim [Source 1]. Next", unless the next word shows that "[Source 1]" is its subject.
_BEHIND = re.compile(rf"([.!?]+)[ \t]*({_MARKERS})(?=[ \t]*(?:\n|$|[\"'“‘(*•–-]|[A-Z0-9]))")
_BEFORE_PUNCTUATION = frozenset(".,;:!?)]")
_STOP_WORDS = frozenset(
    """a about after all also an and any are as at be been but by can could did do does for from had has have he her
    his how i if in into is it its may me my no not of on or our she should so such than that the their them then
    there these they this those to up us was we were what when where which who whom why will with would you your
    """.split()
)
_ADMISSION = re.compile(
    r"\b(?:(?:do|does|did|is|are|was|were|can|could)(?: not|n['’]t)|cannot|unable to|not able to|no|not|insufficient|"
    r"lacks?|without)\b[^.!?]{0,80}?\b(?:information|context|data|details?|evidence|records?|sources?|passages?|"
    r"mention(?:s|ed)?|answer|provided|stated)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Checked:
    """An answer whose citations all exist: `[Source i]` is numbered from 1 in order of first mention and stands
    for block `blocks[i - 1]` of the context."""

    text: str
    blocks: tuple[int, ...]


def check(text: str, known: int, *, max_sentences: int | None = None, max_words: int | None = None) -> Checked:
    """Keep the citations of blocks 1..`known`, drop the others, cut the text at its limits, number what is left.

    Read are `[Source 1]`, `[source 1, 2]`, `[Source 1, Source 2]`, `[Sources 1 and 2]`, `[Sources 1-3]`; written is
    `[Source 1] [Source 2]`, before the full stop. Doing it twice changes nothing.

    >>> check("Open daily. [source 3, 9] Closed on Sunday [Source 7].", known=5)
    Checked(text='Open daily [Source 1]. Closed on Sunday.', blocks=(3,))
    """
    written, before = text.strip(), None
    while written != before:  # taking a citation out may leave another one: "[Source [Source 99]1]"
        before = written
        written = _LOOSE.sub(lambda found: _written(found, known), written).strip()
    written, before = _bounded(_in_front(written), max_sentences, max_words), None
    blocks = tuple(dict.fromkeys(int(number) for number in _MARKER.findall(written)))
    order = {block: number for number, block in enumerate(blocks, 1)}
    return Checked(_MARKER.sub(lambda found: f"[Source {order[int(found[1])]}]", written), blocks)


def cite(checked: Checked, context: Context) -> tuple[Citation, ...]:
    """A citation for each number of a checked answer: the hit of that source, and the passage, that fit best."""
    claims: dict[int, list[str]] = {}
    for sentence in sentences(checked.text):
        for number in _MARKER.findall(sentence):
            claims.setdefault(int(number), []).append(_MARKER.sub("", sentence))
    return tuple(
        Citation(number, *quote(claims.get(number, ()), context.blocks[block - 1].hits))
        for number, block in enumerate(checked.blocks, 1)
    )


def quote(claims: Iterable[str], hits: Sequence[Hit]) -> tuple[Hit, str]:
    """The hit, and at most 300 characters of its text, that share the most words with one of the claims.

    The first hit's beginning where nothing is shared. A sentence too long is cut between words, with an ellipsis.
    """
    wanted = [words for claim in claims if (words := content_words(claim))]
    best, place = 0.0, (hits[0], 0)
    for hit in hits:
        for index, sentence in enumerate(sentences(hit.text, hit.lang)):
            words = content_words(sentence)
            score = max((2 * len(words & claim) / (len(words) + len(claim)) for claim in wanted), default=0.0)
            if score > best:
                best, place = score, (hit, index)
    hit, index = place
    quoted, *following = sentences(hit.text, hit.lang)[index:] or [hit.text.strip()]
    if len(quoted) > QUOTE_LENGTH:
        return hit, quoted[: QUOTE_LENGTH - 1].rsplit(maxsplit=1)[0] + "…"
    for sentence in following if not best else ():
        if len(quoted) + len(sentence) >= QUOTE_LENGTH:
            break
        quoted += f" {sentence}"
    return hit, quoted


def content_words(text: str) -> frozenset[str]:
    """The words that carry meaning, lower case, without a plural s.

    >>> sorted(content_words("What are the prices of the cuts?"))
    ['cut', 'price']
    """
    words = re.findall(r"\w+", text.casefold())
    return frozenset(word[:-1] if word.endswith("s") and len(word) > 3 else word for word in words) - _STOP_WORDS


def admission(text: str) -> str | None:
    """The sentences in which a model says that it lacks the information, or None where it says nothing of the kind.

    >>> admission("I don't have enough information to answer this. Perhaps it was on Monday.")
    "I don't have enough information to answer this."
    """
    return " ".join(sentence for sentence in sentences(text) if _ADMISSION.search(sentence)) or None


def _written(found: re.Match[str], known: int) -> str:
    before, listed, after = found[1], found[2], found[3]
    for first, last in _RANGE.findall(listed):
        listed += "," + ",".join(map(str, range(int(first), min(int(last), known) + 1)))
    numbers = sorted({int(digits) for digits in re.findall(r"[0-9]+", listed) if len(digits) < 7})
    kept = " ".join(f"[Source {number}]" for number in numbers if 1 <= number <= known)
    if kept:
        return f"{before}{kept}{after}"
    left, right = found.string[: found.start()], found.string[found.end() :]
    if not left or left.endswith("\n") or not right or right[0] in _BEFORE_PUNCTUATION or right[0] == "\n":
        return ""
    return " "


def _in_front(text: str) -> str:
    before = None
    while text != before:
        before = text
        text = _BEHIND.sub(r" \2\1", text)
    return text


def _bounded(text: str, max_sentences: int | None, max_words: int | None) -> str:
    """The text up to the last sentence that is within both limits; a first sentence too long is cut between words."""
    kept, count, words = "", 0, 0
    for piece in sentence_pieces(text):
        count += bool(piece.strip())
        words += len(_words(piece))
        if max_words is not None and words > max_words and not kept.strip():
            return _cut(piece, max_words)
        if (max_sentences is not None and count > max_sentences) or (max_words is not None and words > max_words):
            return kept.rstrip()
        kept += piece
    return kept


def _words(text: str) -> list[re.Match[str]]:
    return list(re.finditer(r"\S+", _MARKER.sub(lambda found: " " * len(found[0]), text)))


def _cut(sentence: str, max_words: int) -> str:
    """Its first words; what it cites beyond them stays."""
    kept = sentence[: _words(sentence)[max_words - 1].end()]
    lost = [found for found in _MARKER.findall(sentence[len(kept) :]) if f"[Source {found}]" not in kept]
    return " ".join([f"{kept}…", *(f"[Source {number}]" for number in dict.fromkeys(lost))])
