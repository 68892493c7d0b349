"""`[Source N]` in a model's answer: read, checked against the context, put in order, and given a quote."""

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter

from msgspec import Struct

from rag_app.answering.context import Context
from rag_app.domain import Citation, Hit, SupportingPassage, compile_later, read_table
from rag_app.retrieval.text import sentence_pieces, sentences

QUOTE_LENGTH = 300
"""Characters of a quote, at most."""

_NOUN = r"(?:sources?|quellen?|fuentes?|fonti|fonte|refs?|references?|docs?|documents?)"
_LOOSE = compile_later(
    rf"""\[\s*sources?[\s:#]*([0-9][^\[\]]*)\]
      | [\[【［]\s*{_NOUN}[\s:#.]*([0-9][^\[\]【】［］\n]{{0,80}})[\]】］]
      | [\[【［]\s*\^?([0-9]{{1,3}}(?:\s*[,;&–-]\s*[0-9]{{1,3}}){{0,9}})\s*(?:†[^\[\]【】\n]{{0,40}})?[\]】］]
      | \(\s*sources?[\s:#]*([0-9][^()\[\]\n]{{0,80}})\)""",
    re.IGNORECASE | re.VERBOSE,
)
_NUMBER_LIST = compile_later(r"(?:[0-9\s,;&#–-]|and\b|to\b|sources?\b)*", re.IGNORECASE)
_RANGE = compile_later(r"([0-9]{1,3})\s*(?:[-–]|\bto\b)\s*(?:sources?\s*)?([0-9]{1,3})", re.IGNORECASE)
# At the end of a text, what may still become a citation: "[Sour", "(Sources 1 and", "【3", "[Source [Source 9".
_OPEN = compile_later(
    r"""(?:[\[【［]\s*+(?:\^?+[0-9][^\[\]【】［］]*+|[a-z]{1,10}+[\s:#.]*+(?:[0-9][^\[\]【】［］]*+)?+)?+
      | \(\s*+(?:[a-z]{1,7}+[\s:#]*+(?:[0-9][^()\[\]]*+)?+)?+)++\Z""",
    re.IGNORECASE | re.VERBOSE,
)
SENTENCE_ENDS = frozenset(".!?。！？\n")
"""Where none of them has come, `pieces_begun` finds no more than before: it is not worth calling for every word."""
_DROPPED_MARKERS = compile_later(r"(?<![ \t])[ \t]*(?:\0[ \t]*)+")  # the look behind: a run of blanks is tried once
MARKER = compile_later(r"\[Source ([0-9]+)\]")
_CITATIONS = compile_later(r"(\[Source [0-9]+\](?:\s*\[Source [0-9]+\])*)")
_AROUND_CLAIMS = " \t\n.,:;!?…*-–•"
_STOP_BEFORE_CITATIONS = compile_later(
    r"""(?<![ \t])[ \t]*(?<![.!?。！？])([.!?。！？]++["'”’)]*)[ \t]*(\[Source [0-9]+\](?:[ \t]*\[Source [0-9]+\])*)([.!?]*)"""
)
# The end of a sentence, perhaps: what may stand between two, and the beginning of a word that nothing reaches over.
_END = compile_later(
    r"""[.!?。！？\n][\s.!?。！？"'”’)]*+(?:[^\s.!?。！？"'”’)]{12}|[^\s.!?。！？"'”’)]++(?=.))""", re.DOTALL
)
# What may stand between two sentences, at a length that says nothing more: what follows would be quadratic in it.
_RUN = compile_later(r"""[\s.!?。！？"'”’)]{48,}""")
# Characters. What goes on for longer without an end is cut into sentences wherever one may be.
_LONGEST_SENTENCE = 2000
STOP_WORDS = frozenset(read_table(__file__)["stop"].split())
"""English words that carry no meaning of their own."""


class CheckedAnswer(Struct, frozen=True):
    """An answer whose citations all exist: `[Source i]` is numbered from 1 in order of first mention and stands
    for block `blocks[i - 1]` of the context."""

    text: str
    blocks: tuple[int, ...]


def pieces_of(text: str, known: int, *, cut_off: bool = False) -> list[str]:
    """The sentences of a text, with the white space between them: its citations of blocks 1..`known` written as
    `[Source 1] [Source 2]`, before the full stop, and all others taken out.

    Read are `[Source 1]`, `[source 1, 2]`, `[Source 1, Source 2]`, `[Sources 1 and 2]`, `[Sources 1-3]` and the like.
    Of a text that was `cut_off` the unfinished sentence at its end is left out, unless there is no other.

    >>> pieces_of("Open daily. [3, 9] Closed on Sunday (Source 7).", known=5)
    ['Open daily [Source 3]. ', 'Closed on Sunday.']
    """
    finished, rest = _sentences(_tidy(text, known).rstrip())
    pieces = [*finished, *sentence_pieces(rest)]
    if cut_off and len(pieces) > 1 and not pieces[-1].rstrip().endswith((".", "!", "?", "]", ")", '"')):
        pieces.pop()
    return pieces


def pieces_begun(text: str, known: int) -> list[str]:
    """The sentences with which the result of `pieces_of` begins, however the text goes on.

    >>> pieces_begun("Open daily. [Source 3] Closed on Sunday. [Sour", known=5)
    ['Open daily [Source 3]. ']
    """
    return _sentences(_OPEN.sub("", _tidy(text, known)))[0]


def cite(checked: CheckedAnswer, context: Context) -> tuple[Citation, ...]:
    """A citation for each number of a checked answer: the hit of that source, and the passage, that fit best; and where
    its claims are in different passages, the passage of each."""
    claims: dict[int, list[str]] = {}
    for sentence in sentences(checked.text):
        for claim, numbers in _claims_in(sentence):
            for number in numbers:
                claims.setdefault(number, []).append(claim)
    return tuple(
        _cite_passages(number, claims.get(number, []), context.blocks[block - 1].hits)
        for number, block in enumerate(checked.blocks, 1)
    )


def _claims_in(sentence: str) -> list[tuple[str, list[int]]]:
    """What the citations of a sentence stand behind, with their numbers: if they are in several places, the words
    since the place before.

    >>> _claims_in("Shop 9 to 5 [Source 1]; studio 10 to 6 [Source 2] [Source 1].")
    [('Shop 9 to 5 ', [1]), ('; studio 10 to 6 ', [2, 1])]
    >>> _claims_in("[Source 2] says so.")
    [(' says so.', [2])]
    """
    parts = _CITATIONS.split(sentence)
    whole, several = MARKER.sub("", sentence), len(parts) > 3
    return [
        (said if several and content_words(said) else whole, [*map(int, MARKER.findall(numbers))])
        for said, numbers in zip(parts[::2], parts[1::2], strict=False)
    ]


def _cite_passages(number: int, claims: Sequence[str], hits: Sequence[Hit]) -> Citation:
    pieces = _pieces_in(hits)
    fitting = [_fit(claim, pieces) for claim in claims]
    best = _passage(max(fitting, key=attrgetter("score"), default=_NO_FIT), hits)
    passages = [_passage(each, hits) if each.score else best for each in fitting]
    places = {(each.chunk_id, each.start, each.end) for each in passages}
    return Citation(number, best.hit, best.quote, best.start, best.end, tuple(passages) if len(places) > 1 else ())


def quote(claims: Iterable[str], hits: Sequence[Hit]) -> tuple[Hit, str, int, int]:
    """The hit, and at most 300 characters of its text, that say the most of one of the claims; and where in it they
    begin and end.

    The first hit's beginning where nothing is shared. A sentence too long is cut between words, with an ellipsis.
    """
    found = _cite_passages(1, [*claims], hits)
    return found.hit, found.quote, found.start, found.end


class _Piece(Struct, frozen=True):
    """A sentence of a hit."""

    hit: Hit
    start: int
    text: str
    words: frozenset[str]


class _Fit(Struct, frozen=True):
    """How much of a claim a sentence says; `start` and `end` are where it stands there word for word."""

    score: float = 0.0
    piece: _Piece | None = None
    start: int = 0
    end: int = 0


_NO_FIT = _Fit()


def _pieces_in(hits: Sequence[Hit]) -> list[_Piece]:
    made = []
    for hit in hits:
        start = 0
        for text in sentence_pieces(hit.text):
            made.append(_Piece(hit, start, text, content_words(text)))
            start += len(text)
    return made


def _fit(claim: str, pieces: Sequence[_Piece]) -> _Fit:
    """The first of the sentences that fit best: the claim's own words come before its figures, and these before words."""
    wanted, best = content_words(claim), _NO_FIT
    figures = {word for word in wanted if word.isdecimal()}
    literal = re.compile(r"\s+".join(map(re.escape, claim.strip(_AROUND_CLAIMS).split())), re.IGNORECASE)
    for piece in pieces:
        shared = len(piece.words & wanted)
        if not shared:
            continue
        score = 2 * shared / (len(piece.words) + len(wanted))
        score += len(figures & piece.words) / (2 * len(figures)) if figures else 0
        found = literal.search(piece.text)
        start, end = found.span() if found else (0, 0)
        if (score := score + 2 * bool(found)) > best.score:
            best = _Fit(score, piece, start, end)
    return best


def _passage(fit: _Fit, hits: Sequence[Hit]) -> SupportingPassage:
    """The sentence that fits; of several lines, or of one that is too long, the part that has the claim's own words. If none
    fits, the first hit's beginning."""
    if fit.piece is None:
        hit, start = hits[0], 0
        text = _beginning(sentence_pieces(hit.text))
    else:
        hit, start, text = fit.piece.hit, fit.piece.start, fit.piece.text
        if fit.end and ("\n" in text.strip() or len(text.strip()) > QUOTE_LENGTH):
            first = text.rfind("\n", 0, fit.start) + 1
            last = text.find("\n", fit.end)
            first = first if fit.end - first <= QUOTE_LENGTH else fit.start
            start, text = start + first, text[first : last if last > 0 else len(text)]
    start += len(text) - len(text.lstrip())
    whole = text.strip()
    kept = whole if len(whole) <= QUOTE_LENGTH else whole[: QUOTE_LENGTH - 1].rsplit(maxsplit=1)[0]
    return SupportingPassage(hit, kept if kept == whole else f"{kept}…", start, start + len(kept))


def _beginning(pieces: Sequence[str]) -> str:
    """As many sentences as fit into a quote; at least one."""
    said, *following = pieces or [""]
    for piece in following:
        if len((said + piece).strip()) > QUOTE_LENGTH:
            break
        said += piece
    return said


def content_words(text: str) -> frozenset[str]:
    """The words that carry meaning, lower case, without a plural s.

    >>> sorted(content_words("What are the prices of the cuts?"))
    ['cut', 'price']
    """
    words = re.findall(r"\w+", text.casefold())
    return frozenset(word[:-1] if word.endswith("s") and len(word) > 3 else word for word in words) - STOP_WORDS


def _tidy(text: str, known: int) -> str:
    text, before = _RUN.sub(lambda run: run[0][:3], text.replace("\0", "").lstrip()), None
    while text != before:  # taking one thing out may uncover another: "[Source [Source 99]1]"
        before = text
        text = _DROPPED_MARKERS.sub(_close_gap, _LOOSE.sub(lambda found: _write_citation(found, known), text))
        text = _STOP_BEFORE_CITATIONS.sub(_swap_stop, text).lstrip()
    return text


def _sentences(text: str) -> tuple[list[str], str]:
    """The sentences that nothing behind the text can change, and the rest.

    Whether a sentence has ended is asked with no more of the text in sight than the next word: with all of it, a
    quotation mark at the end could make one sentence of two at the beginning.
    """
    finished: list[str] = []
    start = at = 0
    while end := _END.search(text, at):
        first, *others = sentence_pieces(text[start : end.end()])
        if not others and end.end() - start > _LONGEST_SENTENCE:
            first, others = text[start : end.start() + 1], [""]
        if others:
            finished.append(first)
            start += len(first)
        at = start if others else end.end()
    return finished, text[start:]


def number_citations(text: str) -> CheckedAnswer:
    """Number the citations of a text from 1, in order of first mention.

    >>> number_citations("One [Source 3]. Two [Source 1] [Source 3].")
    CheckedAnswer(text='One [Source 1]. Two [Source 2] [Source 1].', blocks=(3, 1))
    """
    text = text.strip()
    blocks = tuple(dict.fromkeys(int(number) for number in MARKER.findall(text)))
    return CheckedAnswer(MARKER.sub(lambda found: f"[Source {blocks.index(int(found[1])) + 1}]", text), blocks)


def _write_citation(found: re.Match[str], known: int) -> str:
    """A citation as it is written; a NUL where nothing of it is known."""
    listed = (_NUMBER_LIST.match(next(filter(None, found.groups()))) or found)[0]
    numbers = {int(digits) for digits in re.findall(r"[0-9]+", listed) if len(digits) < 7}
    for first, last in _RANGE.findall(listed):
        numbers.update(range(int(first), int(last)))
    return " ".join(f"[Source {number}]" for number in sorted(numbers) if 1 <= number <= known) or "\0"


def _close_gap(gap: re.Match[str]) -> str:
    """What stands where citations were taken out: nothing, or one space between words."""
    left, right = gap.string[: gap.start()][-1:], gap.string[gap.end() :][:1]
    return "" if left in ("", "\n") or right in ("", *"\n.,;:!?)") else " "


def _swap_stop(found: re.Match[str]) -> str:
    """Citations behind a full stop go before it, so that a sentence holds its own: "A. [Source 1]" -> "A [Source 1]."."""
    subject = found.string[found.end() :].lstrip(" \t")[:1].islower() and not found[3]  # "[Source 2] says ..."
    return found[0] if subject else f" {found[2]}{found[1]}"


def words_of(text: str) -> list[re.Match[str]]:
    blank = MARKER.sub(lambda found: " " * len(found[0]), text)
    return [word for word in re.finditer(r"\S+", blank) if re.search(r"\w", word[0])]


def cut_words(sentence: str, max_words: int) -> str:
    """Its first words; what it cites beyond them stays."""
    kept = sentence[: words_of(sentence)[max_words - 1].end()].rstrip(".!?。！？…")
    lost = dict.fromkeys(number for number in MARKER.findall(sentence[len(kept) :]))
    return " ".join([f"{kept}…", *(f"[Source {number}]" for number in lost if f"[Source {number}]" not in kept)])
