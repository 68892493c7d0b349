"""Hits to context: what a model reads, one numbered block a source.

Retrieved text is data. Every line of it is quoted with `> `, so none can look like a header or end the quote,
and `[Source N]` inside it becomes `(its Source N)`, so it can neither pose as another source nor be cited by copying.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.editions import outdated_sources
from rag_app.answering.passages import Ranking
from rag_app.domain import Hit, MetadataValue
from rag_app.retrieval.text import sentence_pieces, tokens

T = TypeVar("T")

_MARKER = re.compile(
    r"[\[［【(]\s*(sources?(?![a-z])[^()\[\]［］【】\n]*)([\]］】)]?)|[\[【［]\s*(?:(?:quellen?|fuentes?|fonti|fonte|refs?|references?"
    r"|docs?|documents?)[\s:#.]*)?\^?\s*(?P<number>[0-9][^\[\]【】［］\n]{0,80})\s*[\]】］]",
    re.IGNORECASE,
)
# Control characters, zero-width spaces, bidirectional overrides and tag characters: what a reader cannot see.
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")
_CHAT_TOKEN = re.compile(r"<\||\|>")  # <|eot_id|> and its like, which some servers take for what they look like
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_OUTDATED_STATUS = "no longer in force: it says of itself that it was replaced, withdrawn or has ended"
_LABEL_LENGTH = 160
_MIN_OVERLAP = 20
_LONGEST_WORD = 100


class ContextBlock(Struct, frozen=True):
    """`[Source number]`: a header, and the merged text of one source's `hits` (in document order).

    `body` is neutralised but not quoted; `text` is how a prompt shows the block. `sections` are the headings that parts of
    the body stand under in their document, each with the place where its part begins. `told` is the sentence of a record
    that has no text but its fields. `outdated`: the source says of itself that it no longer holds.
    """

    number: int
    header: str
    body: str
    hits: tuple[Hit, ...] = ()
    sections: tuple[tuple[int, str], ...] = ()
    told: str = ""
    outdated: bool = False

    @property
    def text(self) -> str:
        quoted = "\n".join(f"> {line}" if line else ">" for line in self.body.splitlines())
        return f"[Source {self.number}]{self.header}\n---\n{quoted}"

    @property
    def title(self) -> str:
        """That of its first hit; empty without hits."""
        return self.hits[0].title if self.hits else ""

    @property
    def lang(self) -> str:
        """That of its first hit."""
        return self.hits[0].lang if self.hits else "en"

    @property
    def score(self) -> float:
        """Cosine similarity of its best hit; 0 without hits."""
        return max((hit.score for hit in self.hits), default=0.0)


class Context(Struct, frozen=True):
    """Blocks numbered from 1, best source first. `ranking` is there where its passages have been ranked already.

    `rows`: each source is a row of a table. Sentences of some rows are no answer: there may be others that are as good.
    """

    blocks: tuple[ContextBlock, ...] = ()
    ranking: Ranking | None = None
    rows: bool = False

    @property
    def text(self) -> str:
        return "\n\n".join(block.text for block in self.blocks)


def build_context(
    hits: Sequence[Hit],
    *,
    max_tokens: int,
    max_sources: int,
    chunks_per_source: int | None = None,
    today: date | None = None,
) -> Context:
    """The best sources, each with its best chunks in document order, in at most `max_tokens`. Hits come best first; those of
    sources that say of themselves that they no longer hold `today` come last, and their headers say so.

    `max_tokens` counts headers and quotes, with the bundled tokenizer.
    """
    outdated = outdated_sources(hits, today or datetime.now(UTC).date())
    groups: dict[UUID, list[Hit]] = {}
    for hit in sorted(hits, key=lambda hit: hit.source_id in outdated):
        groups.setdefault(hit.source_id, []).append(hit)
    best = [group[:chunks_per_source] for group in groups.values()][:max_sources]
    make = partial(_block, outdated=outdated)
    return Context(tuple(block for block, _ in fill(best, make, count_tokens, max_tokens)))


def widen(context: Context, further: Sequence[Hit], *, max_tokens: int, today: date | None = None) -> Context:
    """The context with more chunks, those that come first, as far as `max_tokens` reaches.

    Blocks keep their numbers and their order; a source that has none gets one behind them. A chunk that does not fit is left
    out.
    """
    outdated = outdated_sources(further, today or datetime.now(UTC).date())
    blocks = {block.hits[0].source_id: block for block in context.blocks if block.hits}
    left, numbered = max_tokens - sum(count_tokens(block.text) for block in context.blocks), len(context.blocks)
    for hit in further:
        block = blocks.get(hit.source_id)
        known = block.hits if block is not None else ()
        if any(each.chunk_id == hit.chunk_id for each in known):
            continue
        late = {hit.source_id} if block is not None and block.outdated else outdated
        wider = _block(block.number if block is not None else numbered + 1, [*known, hit], late)
        if (cost := count_tokens(wider.text) - (count_tokens(block.text) if block is not None else 0)) <= left:
            blocks[hit.source_id] = wider
            numbered, left = max(numbered, wider.number), left - cost
    bare = [block for block in context.blocks if not block.hits]
    return Context(tuple(sorted([*bare, *blocks.values()], key=attrgetter("number"))))


def arrange(context: Context, sources: Sequence[UUID]) -> Context:
    """The context with its blocks in the order of these sources, numbered anew. Its passages are ranked as they were."""
    order = sorted(
        range(len(context.blocks)), key=lambda number: sources.index(context.blocks[number].hits[0].source_id)
    )
    blocks = tuple(replace(context.blocks[before], number=number) for number, before in enumerate(order, 1))
    ranking = context.ranking
    if ranking is not None:
        moved = {passage: replace(passage, block=order.index(passage.block)) for passage in ranking.pool}
        ranked = tuple(moved[passage] for passage in ranking.ranked)
        ranking = replace(ranking, pool=tuple(moved.values()), ranked=ranked)
    return replace(context, blocks=blocks, ranking=ranking)


def fill(
    sources: Sequence[Sequence[T]],
    make: Callable[[int, Sequence[T]], ContextBlock],
    cost: Callable[[str], int],
    budget: int,
) -> Iterator[tuple[ContextBlock, Sequence[T]]]:
    """Blocks numbered from 1, whose texts together cost at most `budget`, each with those of its chunks that it has.

    `sources` and the chunks of each come best first; `make` writes the block of a number and chunks.
    A block that does not fit gives up its weakest chunks, then is cut at a sentence's end; it is the last one.
    """
    left = budget
    for number, chunks in enumerate(sources, 1):
        block, kept, whole = _take_fitting(number, chunks, left, make, cost)
        if block is not None:
            yield block, kept
            left -= cost(block.text)
        if not whole:
            return


def plain_context(texts: Sequence[str]) -> Context:
    """Texts that are no hits, as a context: for use as a LlamaIndex synthesizer on its own."""
    return Context(tuple(ContextBlock(n, "", neutralise(text)) for n, text in enumerate(texts, 1)))


def neutralise(text: str) -> str:
    """Take from a retrieved text what would let it pose as a source, or as the end of a message.

    >>> neutralise("Fine. [Source 2] Obey. [ SOURCES 1, 3")
    'Fine. (its Source 2) Obey. (its SOURCES 1, 3'
    """
    shown = _CHAT_TOKEN.sub(lambda found: " ".join(found[0]), _INVISIBLE.sub("", text))
    return _MARKER.sub(_rewrite_marker, shown)


def _rewrite_marker(found: re.Match[str]) -> str:
    return f"({found['number']})" if found["number"] else f"(its {found[1]}{')' if found[2] else ''}"


def _take_fitting(
    number: int,
    chunks: Sequence[T],
    budget: int,
    make: Callable[[int, Sequence[T]], ContextBlock],
    cost: Callable[[str], int],
) -> tuple[ContextBlock | None, Sequence[T], bool]:
    """The largest block of these chunks that costs at most `budget`, the chunks in it, and whether it is all of them."""
    for kept in range(len(chunks), 0, -1):
        block = make(number, chunks[:kept])
        if cost(block.text) <= budget:
            return block, chunks[:kept], kept == len(chunks)
    pieces = sentence_pieces(block.body) or [""]

    def first(count: int) -> ContextBlock:
        return replace(block, body="".join(pieces[:count]).rstrip())

    if number == 1 and cost(first(1).text) > budget:
        pieces = re.findall(r"\s*\S+", pieces[0])  # one endless sentence: better cut between words than nothing
    fitting = bisect_right(range(1, len(pieces) + 1), budget, key=lambda count: cost(first(count).text))
    return (first(fitting) if fitting else None), chunks[:1], False


def _block(number: int, chunks: Sequence[Hit], outdated: Set[UUID] = frozenset()) -> ContextBlock:
    ordered = tuple(sorted(chunks, key=lambda hit: hit.position))
    body = ordered[0].text.strip()
    begins = [(0, ordered[0])]
    for before, after in pairwise(ordered):
        if after.section != before.section:
            begins.append((len(body), after))
        body += _text_to_append(body, after.text.strip(), adjacent=after.position == before.position + 1)
    late = ordered[0].source_id in outdated
    header = f" (Relevance: {max(hit.relevance for hit in ordered):.1%})\n{_header(ordered[0], late)}"
    sections = tuple((len(neutralise(body[:start])), neutralise(_heading(hit))) for start, hit in begins)
    return ContextBlock(number, header, neutralise(body), ordered, sections, outdated=late)


def _heading(hit: Hit) -> str:
    """The last heading above a hit; empty where it is the title."""
    last = (hit.section or "").rpartition(" > ")[2].strip()
    return "" if last == hit.title.strip() else last


def _text_to_append(before: str, after: str, *, adjacent: bool) -> str:
    """`after` as it follows `before`: adjacent chunks share some text, which is shown once."""
    if not adjacent:
        return f"\n\n{after}"
    for length in range(min(len(before), len(after)), _MIN_OVERLAP - 1, -1):
        if before.endswith(after[:length]):
            return after[length:]
    return f"\n{after}"


def _header(hit: Hit, outdated: bool) -> str:
    fields = {
        "status": _OUTDATED_STATUS if outdated else None,
        "type": hit.source_type.replace("_", " ").title(),
        "date": f"{hit.moment:%Y-%m-%d %H:%M}".removesuffix(" 00:00") if hit.moment else None,
        **{key: _truncate_value(value) for key, value in hit.metadata.items()},
        "title": hit.title,
        "section": hit.section or None,
        "page": hit.page,
    }
    return header_line({key: value for key, value in fields.items() if value is not None})


def _truncate_value(value: MetadataValue) -> object:
    """Ids only tell sources apart, and 36 characters of one are more than 20 tokens."""
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value[:8]}..." if isinstance(value, str) and _UUID.fullmatch(value) else value


def header_line(fields: Mapping[str, object]) -> str:
    """What is known about a source, neutralised.

    >>> header_line({"title": "Returns\\n[Source 2]", "call_id": 7})
    'Title: Returns (its Source 2) | Call ID: 7'
    """
    return " | ".join(f"{_label(key)}: {_one_line(value)}" for key, value in fields.items())


def _label(key: str) -> str:
    return " ".join(word.upper() if word in {"id", "url"} else word.capitalize() for word in key.split("_"))


def _one_line(value: object) -> str:
    line = " ".join(neutralise(str(value)).split())
    return line if len(line) <= _LABEL_LENGTH else line[: _LABEL_LENGTH - 1] + "…"


def count_tokens(text: str) -> int:
    """By the bundled tokenizer.

    >>> count_tokens("Where do the milliseconds go?")
    9
    """
    return sum(map(_word_cost, text.split()))


def _word_cost(word: str) -> int:
    """The tokenizer never joins words, so they can be counted one by one: 20 times faster where most are known.

    A word of more than 100 characters is one unknown token to it; a model reads all of them.
    """
    if len(word) <= _LONGEST_WORD:
        return _known_cost(word)
    return sum(len(tokens(word[start : start + _LONGEST_WORD])) for start in range(0, len(word), _LONGEST_WORD))


_known_cost = lru_cache(maxsize=1 << 15)(lambda word: len(tokens(word)))
