"""The answer without a model: the sentences of the sources that answer the question, in their own words, cited.

Sentences are ranked by cosine with the question, a little word overlap, and the relevance of their source. A question
that asks several things is taken apart, and each part gets the sentence that answers it best.
Against the sentences that people selected for the 300 answerable questions of CLAP-NQ (dev), F1 is .607 from the
right passage; the first three sentences of the right passage have .509.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from numpy.typing import NDArray

from rag_app.answering.citations import content_words
from rag_app.answering.context import Context, header_line, neutralise
from rag_app.answering.models import Draft
from rag_app.answering.providers import EXTRACTIVE
from rag_app.answering.synthesizers import Synthesizer
from rag_app.domain import Hit, Question, frozen
from rag_app.retrieval.embedding import embed_query, embed_texts
from rag_app.retrieval.text import sentences

MAX_RANKED = 40
"""Sentences that are embedded for one answer; of more, those with the most words of the question."""
MAX_CHOSEN = 3
"""Sentences of an answer to one question; each further part of the question may have one more."""
MAX_PARTS = 3
SUMMARY_LENGTH = 300
"""Characters of a summary, at most."""
GAP = 0.4
"""How far below the best score a second and third sentence may lie."""
_OVERLAP_WEIGHT, _SOURCE_WEIGHT = 0.1, 0.3
_PART_WEIGHT = 0.7
"""Of a part of the question; the rest is the whole question's."""
_NEXT_WEIGHT = 0.1
"""For a sentence that follows a chosen one: an answer often goes on where the question's words are no longer repeated."""
_SAME = 0.8
_LONG, _LONGEST = 40, 80

_OWN_LINE = re.compile(r"\s*(?:[-*•–]\s|\d{1,3}[.)]\s|#|\||[^.!?:|]{1,40}:\s+\S)")
_BULLET = re.compile(r"^(?:[-*•–]|\d{1,3}[.)])\s+")
_KEY_VALUE = re.compile(r"^[^.!?:|]{1,40}:\s+\S")
_NUMBERED = re.compile(r"^(?:(?:chapter|section|part|appendix)\s+\w{1,5}\b|\d+(?:\.\d+)+\s)", re.IGNORECASE)
_RULER = re.compile(r"^[\s|:=_*–-]*$")
_ENDED = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
_ASKS = r"(?:at |from |by |until |for |in |to )?(?:who|whom|whose|what|when|where|why|how|which|until)\b"
_ASKS_YES_OR_NO = r"(?:do|does|did|is|are|was|were|can|may|must|should|will)\b"
_PART = re.compile(
    rf"(?<=[?.!;,])\s+(?=(?:(?:and|but|or|so)\s+)?(?:{_ASKS}|{_ASKS_YES_OR_NO}))|\s+(?=(?:and|but|or)\s+(?:{_ASKS}|{_ASKS_YES_OR_NO}))",
    re.IGNORECASE,
)
_INNER_END = re.compile(r"(?<=[.!?])\s+(?=[\"'“‘(]*[A-Z])")
_POINTS_BACK = re.compile(r"(?:it|its|they|their|he|his|she|her|this|these|those|such)\b", re.IGNORECASE)
# Sentences that speak to whoever answers, not to the reader: quoting them would only pass an attack on.
_TO_THE_ANSWERER = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|prompt|rule|context|above|previous|question)s?\b"
    r"|\byour (?:answer|response|reply|output|final answer)\b|\bsystem prompt\b",
    re.IGNORECASE,
)


@frozen
class Passage:
    """A sentence of block `block`, at `place` in it. `lead` is the question or heading it stands under."""

    block: int
    place: int
    text: str
    lead: str = ""


class ExtractiveSynthesizer(Synthesizer):
    """Picks one to three sentences; nothing is made up, and the model is called "extractive"."""

    def __init__(self, embedder: BaseEmbedding) -> None:
        super().__init__()
        self.model, self._embedder = EXTRACTIVE, embedder

    async def write(self, question: Question, context: Context) -> Draft:
        pool = [passage for number, block in enumerate(context.blocks) for passage in passages(block.body, number)]
        relevance = [_SOURCE_WEIGHT * block.score for block in context.blocks]
        looked_for = question.searched or question.text
        wanted = content_words(looked_for)
        prior = [
            _OVERLAP_WEIGHT * len(wanted & content_words(passage.text)) / max(1, len(wanted)) + relevance[passage.block]
            for passage in pool
        ]
        ranked = sorted(range(len(pool)), key=lambda i: -prior[i])[:MAX_RANKED]
        if not ranked:
            return Draft("", EXTRACTIVE)
        asked = [await embed_query(self._embedder, text) for text in (looked_for, *parts(question.text))]
        vectors = await embed_texts(self._embedder, [f"{pool[i].lead} {pool[i].text}".strip() for i in ranked])
        cosines = np.asarray(asked) @ np.asarray(vectors).T
        scores = _PART_WEIGHT * cosines[1:] + (1 - _PART_WEIGHT) * cosines[0] + np.asarray(prior)[ranked]
        return Draft(_written(_choose(scores, [pool[i] for i in ranked], pool)), EXTRACTIVE)


def parts(question: str) -> list[str]:
    """What a question asks, one thing after the other: at most three, the last with all that remains.

    >>> parts("Who cuts the hair of children, and how long does it take?")
    ['Who cuts the hair of children,', 'and how long does it take?']
    """
    found = [part for part in _PART.split(question, MAX_PARTS - 1) if len(part.split()) > 2]
    return found if len(found) > 1 else [question]


def passages(text: str, block: int = 0) -> list[Passage]:
    """The sentences, list items, table rows and `key: value` lines of a text that can answer something.

    Headings and questions are not among them, unless a text has only headings; what follows one carries it as its lead.

    >>> [(each.lead, each.text) for each in passages("# Prices\\n\\nA cut is $40. Do you park? Yes, free of charge.")]
    [('Prices', 'A cut is $40.'), ('Do you park?', 'Yes, free of charge.')]
    """
    units = [unit for unit in _units(text) if re.search(r"\w", unit) and not _TO_THE_ANSWERER.search(unit)]
    found: list[Passage] = []
    lead = ""
    for place, unit in enumerate(units):
        if unit.endswith("?") or _is_heading(unit):
            lead = _BULLET.sub("", unit.lstrip("# "))
            continue
        words = unit.split()
        shown = " ".join(words[:_LONGEST]) + ("…" if len(words) > _LONGEST else "")
        found.append(Passage(block, place, _BULLET.sub("", shown), lead))
        lead = ""
    return found or [Passage(block, place, unit) for place, unit in enumerate(units) if not unit.endswith("?")]


def summary(hits: Sequence[Hit], sources: int = 3) -> str:
    """One line of at most 300 characters on the first `sources` sources: their titles, with figures or a sentence.

    It is retrieved text, so what speaks to whoever answers is left out, and no marker of a source is in it.
    """
    best = {hit.source_id: hit for hit in reversed(hits)}
    chosen = [best[source] for source in dict.fromkeys(hit.source_id for hit in hits)][:sources]
    most = (SUMMARY_LENGTH - 2 * (sources - 1)) // sources
    return "; ".join(_line(hit, most) for hit in chosen)


def _line(hit: Hit, most: int) -> str:
    title = " ".join(neutralise(hit.title).split())
    if not title or _TO_THE_ANSWERER.search(title):
        title = hit.source_type.replace("_", " ")
    title = _cut(title, most * 2 // 3)
    room = most - len(title) - 3
    known = hit.metadata.items()
    figures = [header_line({name: value}).lower() for name, value in known if type(value) in (int, float)]
    while figures and len(", ".join(figures)) > room:
        figures.pop()  # a figure is told whole, or not at all
    said = next((" ".join(each.text.split()) for each in passages(neutralise(hit.text))), "")
    said = ", ".join(figures) or _cut(said, room)
    return f"{title} ({said})" if said else title


def _cut(text: str, most: int) -> str:
    if len(text) > most:
        text = text[: most - 1].rsplit(maxsplit=1)[0] + "…"
    return _ENDED.sub("", text) if not text.endswith("…") else text


def _units(text: str) -> Iterator[str]:
    for line in _lines(text):
        for sentence in sentences(line):
            # Two apostrophes look like quotes, and what is between them like one sentence.
            yield from _INNER_END.split(sentence) if len(sentence.split()) > _LONG else [sentence]


def _lines(text: str) -> Iterator[str]:
    """Paragraphs, each in one line; list items, table rows and `key: value` lines are not joined with neighbours."""
    lines = text.splitlines()
    paragraph: list[str] = []
    columns: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        row = _cells(line)
        columns = columns if row else []
        if _OWN_LINE.match(line) or row or not line.strip():
            yield " ".join(paragraph)
            paragraph = []
            if row and _RULER.match(following) and following.strip():
                columns = row
            elif not _RULER.match(line):
                yield _row(row, columns) if row else line
        else:
            paragraph.append(line.strip())
            if not _ENDED.search(line.strip()) and len(line) < 40 and following[:1].isupper():
                yield " ".join(paragraph)  # a short line of its own, not a wrapped one
                paragraph = []
    yield " ".join(paragraph)


def _cells(line: str) -> list[str]:
    if line.strip().startswith("|") or " | " in line:
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    return [cell.strip() for cell in line.split("\t")] if "\t" in line.strip() else []


def _row(cells: Sequence[str], columns: Sequence[str]) -> str:
    names = [f"{name}: " if name else "" for name in columns] if len(columns) == len(cells) else [""] * len(cells)
    return ", ".join(f"{name}{cell}" for name, cell in zip(names, cells, strict=True) if cell)


def _is_heading(unit: str) -> bool:
    """A title, or too little to say anything."""
    if unit.startswith("#") or (_NUMBERED.match(unit) and not _ENDED.search(unit)):
        return True
    if _ENDED.search(unit) or _BULLET.match(unit) or _KEY_VALUE.match(unit) or ", " in unit or re.search(r"\d", unit):
        return False
    return len(unit.split()) <= 8


def _choose(scores: NDArray[np.float64], ranked: Sequence[Passage], pool: Sequence[Passage]) -> list[Passage]:
    """The best of `ranked` for each part, then the next best for any, without near-duplicates; `scores` are (parts, ranked).

    "It ..." brings the sentence before it along. One that is far behind the best is left out.
    """
    before = {(passage.block, passage.place + 1): passage for passage in pool}
    most = MAX_CHOSEN + len(scores) - 1
    chosen: list[Passage] = []
    overall = scores.max(axis=0)
    follows = np.zeros(len(ranked))
    for place in range(most):
        current = (scores[place] if place < len(scores) else overall) + follows
        best = next((i for i in np.argsort(-current) if not _is_said(ranked[i], chosen)), None)
        if best is None or len(chosen) >= most or current[best] < overall.max() - GAP:
            break
        chosen.append(passage := ranked[best])
        previous = before.get((passage.block, passage.place))
        if previous and _POINTS_BACK.match(passage.text) and previous not in chosen and len(chosen) < most:
            chosen.append(previous)
        follows += [_NEXT_WEIGHT * (before.get((each.block, each.place)) is passage) for each in ranked]
    return chosen


def _is_said(passage: Passage, chosen: Sequence[Passage]) -> bool:
    return any(_alike(passage.text, other.text) for other in chosen)


def _alike(one: str, other: str) -> bool:
    left, right = content_words(one), content_words(other)
    if re.findall(r"\d+", one) != re.findall(r"\d+", other):
        return False
    return len(left & right) >= _SAME * max(1, len(left | right))


def _written(chosen: Sequence[Passage]) -> str:
    """Best source first, each in reading order, each sentence with its citation before the full stop."""
    sources = [passage.block for passage in chosen]
    ordered = sorted(chosen, key=lambda each: (sources.index(each.block), each.place))
    return " ".join(_cited(passage.text, passage.block + 1) for passage in ordered)


def _cited(text: str, number: int) -> str:
    """
    >>> _cited("A cut is $40.", 2), _cited("Parking: free", 1)
    ('A cut is $40 [Source 2].', 'Parking: free [Source 1].')
    """
    end = found[0] if (found := _ENDED.search(text)) else "."
    return f"{text.removesuffix(end).rstrip()} [Source {number}]{end}"
