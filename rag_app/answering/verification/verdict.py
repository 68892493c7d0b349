"""The verdict on an answer, sentence by sentence: what is kept, what is left out, and what has to wait."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from sys import maxsize
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.citations import MARKER, cut_words, words_of
from rag_app.answering.context import ContextBlock
from rag_app.answering.kinds import THOUSANDS
from rag_app.answering.verification.bars import LEAST, Doubt, least_odds
from rag_app.answering.verification.claimed import is_unsupported
from rag_app.answering.verification.entailment import LANGUAGE, Source, read_odds
from rag_app.answering.verification.figures import UNITS, figures_of
from rag_app.answering.verification.kinds import FINITE, Kind, clauses_without_admission, kind_of, leads_in, plain
from rag_app.answering.verification.places import PlaceIndex
from rag_app.answering.verification.results import TABLE_RULE, Surroundings, read_lines
from rag_app.answering.verification.words import (
    MIN_CLAUSE,
    MIN_LEANING,
    MIN_SUPPORT,
    Passage,
    contradicts,
    has_idle_aside,
    language_of,
    stem,
    support,
    telling_words,
    turns_round,
    unknown_names,
)
from rag_app.domain import compile_later, uuid_in
from rag_app.retrieval.text import tokenizer

_LINE = compile_later(
    r"(?<=[.!?:\]*)\"”])[ \t]*\n(?=\S)|\n(?=[ \t]*(?:[-*•–]\s|\d{1,3}[.)]\s|#|\*\*))"
    rf"|(?<=\|)[ \t]*\n(?=[ \t]*\|)(?!{TABLE_RULE.pattern})"
)
_TITLES = compile_later(rf"[ \t]*\|(?P<cells>[^\n]+)\n{TABLE_RULE.pattern}")
_PARAGRAPH = compile_later(r"\n[ \t]*\n")
_NUMBER_ALONE = compile_later(r"(?:\A|\n)[ \t]*(?:\d{1,3}[.)]|[-*•–])[ \t]*\Z")
_OF_ALL = compile_later(
    r"\b(?:(?:of|among|between|across|in|over|for) (?:all )?(?:the|these|those)|all|the other) (?:two|three|four|five|six|seven|eight|nine|ten|[2-9]|10)\b",
    re.I,
)
_CITATION = compile_later(rf"\s*{MARKER.pattern}")
_ROW = compile_later(r"(?m)^[ \t]*(?:\||[-*•–][ \t]|\d{1,3}[.)][ \t])")
_LIST_AFTER_COLON = compile_later(r":\s+(.+)", re.DOTALL)
_ITEM = compile_later(r",\s+(?:and |or )?|;\s+|\s(?:and|or)\s")
_GROUP = compile_later(rf"{MARKER.pattern}(?:[\s,;]*{MARKER.pattern})*")
_WORKED_OUT = compile_later(
    r"\bthan (?!\W*\d)|\b(?:difference|together|altogether|combined|in (?:total|all)|on average)\b", re.I
)
_QUOTATION = compile_later(r"“([^“”\"]+)”|„([^„“”]+)[“”]|«([^«»]+)»|(?<!\w)\"(?=\S)([^\"“”]+)\"(?!\w)")
_LEFT_OUT = compile_later(r"…|\.\.\.|\[[^\]]*\]")
_LEAST_QUOTED, _LEAST_OF_NAME = 3, 0.3
_MARKS = " \"'“”‘’*_.…!"
_MARKS_AND_BLANKS = _MARKS + "\n,;:?|>()-"
_LEAST_QUOTE = 8
_TITLE = compile_later(r"\A\s*Title: ([^|\n]*)(?:\| )?")
_MOST_BEFORE = 12
"""Sentences of a paragraph whose figures another may be worked out of: a long paragraph is not read again and again."""
_MOST_WAITING = 4
"""Sentences that may wait at once when one with an unknown figure comes, which then waits for the figures of later ones."""
_FEW_WORDS = 0.3
_LITTLE = 0.6
"""The weight of the words of a sentence that says next to nothing ("Probably yes.")."""


class Unit(Struct, frozen=True):
    """A sentence or a line: `gap` is the white space before it, `cited` the blocks it names."""

    text: str
    gap: str
    kind: Kind
    cited: tuple[int, ...]
    leaning: bool = False


class Ground:
    """The blocks of a context as claims are compared with them. What is read of a block is read once.

    `units` are those of the fields of an index, by name: a header says "Price: 105".
    """

    def __init__(
        self,
        blocks: Sequence[ContextBlock],
        question: str,
        names: str = "",
        units: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.size = len(blocks)
        self._texts = {block.number: _text_of(block, units) for block in blocks}
        self._all = tuple(self._texts)
        self._passages: dict[tuple[int, ...], PlaceIndex] = {}
        self._sources = {number: Source(*_title_and_rest(text)) for number, text in self._texts.items()}
        self._odds: dict[tuple[str, tuple[int, ...]], float] = {}
        self._question, self._figures_asked = question, figures_of(question)
        self._asked = frozenset(stem(word) for word in re.findall(r"\w+", f"{question} {names}"))
        self._in_question = frozenset(re.findall(r"\w+", question.casefold()))
        self._named = frozenset(re.findall(r"\w+", names.casefold()))

    def supports(
        self, text: str, blocks: Iterable[int], counted: Iterable[int], *, beside: str = "", leaning: bool = False
    ) -> bool:
        """Whether these blocks hold what a claim states: its figures, names, words and negation.

        Figures may be worked out of those of the question, and of the sentences `beside` it; those of the question may be
        repeated beside others.
        """
        cited = tuple(sorted(set(blocks)))
        if not cited:
            return False
        passage = self._passage(cited)
        if _is_quoted(text, passage.text):
            return True
        doubts = {*self.doubts_of(text, cited, counted, beside=beside, leaning=leaning)}
        if passage.language != LANGUAGE or not _may_be_read(text):
            return doubts <= {Doubt.NONE}  # the model cannot tell
        least = least_odds(doubts)
        return least < inf and self.read_odds(text, cited) > least

    def doubts_of(
        self, text: str, cited: tuple[int, ...], counted: Iterable[int], *, beside: str = "", leaning: bool = False
    ) -> Iterator[Doubt]:
        """What speaks against a claim that cites these blocks."""
        passage, language = self._passage(cited), language_of(text)
        yield from self._doubts_of_figures(text, passage, counted, beside)
        spelt = passage.spellings | (self._in_question & self._passage(self._all).spellings)
        if names := unknown_names(text, spelt):
            yield Doubt.FIRST_WORD if _is_common(names, text) else Doubt.NAME
        if not (language and passage.language) or language == passage.language:
            yield from self._doubts_of_words(text, passage, leaning=leaning)

    def _doubts_of_figures(self, text: str, passage: Passage, counted: Iterable[int], said: str) -> Iterator[Doubt]:
        figures, known = figures_of(text), passage.figures
        is_of_question = not is_unsupported(figures, self._figures_asked, text)
        if not is_of_question:  # "at 15 he is above the limit of 14", not "yes, it costs 50" of a question
            known = known.join(self._figures_asked)
        ends = (each for sentence in said.splitlines() for each in figures_of(sentence).numbers[-1:])
        beside = Surroundings(self._figures_asked, figures_of(said), read_lines(passage.text), (*ends,), self._asked)
        if is_unsupported(figures, known, text, (*counted, *self._counts_in(text, passage)), beside):
            yield Doubt.ASKED if is_of_question and not figures.numbers else Doubt.FIGURE

    def _counts_in(self, text: str, passage: Passage) -> Iterator[int]:
        """What a claim may count: "the cheapest of the three", of what was found; "three sizes: small, medium and large"."""
        if _OF_ALL.search(text):
            yield from range(2, max(self.size, len(_ROW.findall(passage.text))) + 1)
        if listed := _LIST_AFTER_COLON.search(text):
            yield len(_ITEM.split(listed[1]))

    def _doubts_of_words(self, text: str, passage: Passage, *, leaning: bool) -> Iterator[Doubt]:
        figures = figures_of(text)
        stated = len(figures.numbers) + len(figures.dates) + len(figures.times)
        overall, least = support(text, passage, self._asked, stated)
        has_words = overall >= (MIN_LEANING if leaning else MIN_SUPPORT) and least >= MIN_CLAUSE
        if has_words:
            yield Doubt.NONE
        elif kind_of(text) is Kind.ADVICE:
            yield Doubt.ADVICE
        else:
            yield Doubt.FEW_WORDS if leaning or overall < _FEW_WORDS else Doubt.OTHER_WORDS
        yield from (doubt for doubt, check in _CHECKS.items() if check(text, passage))

    def read_odds(self, text: str, cited: tuple[int, ...]) -> float:
        """The model's log-odds that these sources state a claim."""
        if (text, cited) not in self._odds:
            sources = [self._sources[number] for number in cited]
            self._odds[text, cited] = read_odds(text, sources)
        return self._odds[text, cited]

    def allows(self, text: str, cited: tuple[int, ...]) -> bool:
        """Whether a sentence says next to nothing by itself, and these sources do not speak against it."""
        if not cited or not _may_be_read(text) or self.invents(text):
            return False
        return sum(telling_words(text).values()) < _LITTLE and self.read_odds(text, cited) > LEAST[Doubt.LITTLE]

    def is_exchanged(self, text: str) -> bool:
        """Whether a sentence, with its markers, says of one source what another of its sources says.

        A marker is of the text before it, since the marker before. The figures of that, or its names, are not to be those
        of the other sources alone, unless it compares or adds up. Of several markers in a row one has to be of a source that has
        the figures and a name.
        """
        segments = _segments(text)
        everything = {number for _, blocks in segments for number in blocks}
        return any(
            self._is_of_others(said, blocks, everything.difference(blocks))
            or self._is_of_nobody(said, blocks)
            or any(self._passage((number,)).gives_another(said) for number in blocks)
            for said, blocks in segments
        )

    def _is_of_others(self, said: str, blocks: tuple[int, ...], others: set[int]) -> bool:
        if not others or _WORKED_OUT.search(said):
            return False
        own, other = self._passage(blocks), self._passage(tuple(sorted(others)))
        said = THOUSANDS.sub("", said)  # "2,000" is not 2.0 of another source
        figures = figures_of(said)
        if is_unsupported(figures, own.figures.join(self._figures_asked), said) and not is_unsupported(
            figures, other.figures, said
        ):
            return True
        names = frozenset(_names_in(said))
        return bool(names) and not names & own.spellings and names <= other.spellings

    def _is_of_nobody(self, said: str, blocks: tuple[int, ...]) -> bool:
        """Whether of several sources none with the claim's first name says the rest of it, or none with its figures has a name."""
        figures, passages = figures_of(said), [self._passage((number,)) for number in blocks]
        names = _names_in(said)
        if len(passages) < 2 or not names:
            return False
        words = " ".join(word for word in re.findall(r"[\w'’-]+", said) if _bare(word) not in names)
        having = [each for each in passages if names[0] in each.spellings]
        if having and max(support(words, each, self._asked)[0] for each in having) < _LEAST_OF_NAME:
            return True
        own = frozenset(names).difference(frozenset.intersection(*(each.spellings for each in passages)))
        if not own or not is_unsupported(figures, figures_of(""), said, range(len(blocks) + 1)):
            return False
        stating = [each for each in passages if not is_unsupported(figures, each.figures, said)]
        return bool(stating) and not any(own & each.spellings for each in stating)

    def invents(self, text: str) -> bool:
        """Whether a sentence holds a figure or a name that is neither in the context nor in the question."""
        everything = self._passage(self._all)
        known_figures = figures_of(f"{everything.text}\n\n{self._question}")
        if is_unsupported(figures_of(text), known_figures, text, range(self.size + 1)):
            return True
        known = everything.spellings | self._in_question | self._named
        return bool(unknown_names(text, known))

    def _passage(self, blocks: tuple[int, ...]) -> PlaceIndex:
        if blocks not in self._passages:
            self._passages[blocks] = PlaceIndex("\n\n".join(self._texts[number] for number in blocks))
        return self._passages[blocks]


class Verification:
    """Reads the sentences of an answer as they come; `text` is what may be shown, and only grows.

    `ground` is what the answer was written from; without blocks nothing is compared, and all is kept. `advice_is_claim`
    for where advice needs a source, too. `trusted`: the sentences are the sources' own, and only need to be cited, of
    however many sources. A text ends before it would cite more than `max_sources`.
    `claims` counts the claims that are kept, `removed` the sentences that were left out.
    """

    def __init__(
        self,
        ground: Ground,
        *,
        advice_is_claim: bool = False,
        trusted: bool = False,
        max_sentences: int | None = None,
        max_words: int | None = None,
        max_sources: int | None = None,
    ) -> None:
        self.text, self.claims, self.removed, self.admissions = "", 0, 0, 0
        self._ground, self._advice_is_claim = ground, advice_is_claim
        self._trusted = trusted or not ground.size
        self._max_sentences, self._max_words = max_sentences or maxsize, max_words or maxsize
        self._max_sources = maxsize if trusted else max_sources or maxsize
        self._read = self._sentences = self._words = 0
        self._full = self._led = self._listed = False
        self._gap = self._gap_left = self._begun = ""
        self._said = deque[str](maxlen=_MOST_BEFORE)
        self._waiting: list[Unit] = []
        self._cited: set[int] = set()
        self._sources: set[int] = set()

    def read(self, pieces: Sequence[str]) -> None:
        """Go on with `pieces`: all sentences that have come so far, with the white space between them."""
        for piece in pieces[self._read :]:
            begun = self._begun + piece
            number = _NUMBER_ALONE.search(begun)  # "3." looks like the end of a sentence
            begun, self._begun = (begun[: number.start()], number[0]) if number else (begun, "")
            for line in _lines(begun):
                self._take(line)
        self._read = len(pieces)

    def end(self) -> None:
        """No more comes: what still waits is decided."""
        if self._begun:
            self._take(self._begun)
        self._begun = ""
        self._close()

    def _take(self, line: str) -> None:
        text = line.strip()
        before, _, after = line.partition(text) if text else (line, "", "")
        gap = max(self._gap + before, self._gap_left, key=lambda each: each.count("\n"))
        self._gap_left = ""
        if not text:
            self._gap = gap
            return
        if _PARAGRAPH.search(gap) and not self._led and not (_ROW.match(text) and not self._listed):
            self._close()
        self._listed = _ROW.match(text) is not None
        self._gap, self._led = after, leads_in(text)
        if self._full:
            return
        unit = self._judge_sentence(text, gap)
        if unit is None:
            self.removed += 1
            self._gap_left = gap  # of the gaps around what is left out the larger one stays
            return
        self._cited.update(unit.cited)
        if not unit.leaning:
            self._said.append(plain(unit.text))
        self._waiting.append(unit)
        self._resolve(final=False)

    def _judge_sentence(self, text: str, gap: str) -> Unit | None:
        """The sentence as it is kept, perhaps after others; None where it is left out."""
        cited = tuple(dict.fromkeys(int(number) for number in MARKER.findall(text)))
        if len(cited) > self._max_sources:
            cited = cited[: self._max_sources]
            text = _CITATION.sub(lambda found: found[0] if int(found[1]) in cited else "", text)
        if self._trusted:
            return Unit(text, gap, Kind.CLAIM, cited)
        if titles := _TITLES.fullmatch(text):
            return self._judge_titles(Unit(text, gap, Kind.CONNECTION, (), leaning=True), titles["cells"])
        said, kind = plain(text), kind_of(text)
        if kind is Kind.ADMISSION:
            beside = clauses_without_admission(said)
            if not FINITE.search(beside):
                return None if self._ground.invents(said) else Unit(text, gap, kind, cited)
            said, kind = beside, kind_of(beside)
        if kind is Kind.CONNECTION or (kind is Kind.ADVICE and not self._advice_is_claim):
            return self._judge_unstated(Unit(text, gap, kind, cited, leads_in(text)), said)
        unit = Unit(text, gap, Kind.CLAIM, cited, leaning=not cited)
        if unit.leaning or self._is_supported(text, said, cited):
            return unit
        doubts = self._ground.doubts_of(said, cited, (len(cited),), beside=self._sentences_around)
        waits = len(self._waiting) < _MOST_WAITING and Doubt.FIGURE in doubts
        return replace(unit, leaning=True) if waits else None

    @property
    def _sentences_around(self) -> str:
        return "\n\n".join(self._said)

    def _judge_unstated(self, unit: Unit, said: str) -> Unit | None:
        """Advice and a connection need no source; advice that has one counts as a claim."""
        if self._ground.invents(said):
            return None
        if unit.kind is Kind.ADVICE and self._is_supported(unit.text, said, unit.cited):
            return replace(unit, kind=Kind.CLAIM, leaning=False)
        return unit

    def _judge_titles(self, unit: Unit, cells: str) -> Unit | None:
        """The titles of a table lead in its rows. One that states something is a claim without a source."""
        titles = [each.strip() for each in cells.split("|")]
        stated = any(FINITE.search(each) or self._ground.invents(f"{each[:1].lower()}{each[1:]}") for each in titles)
        return None if stated else unit

    def _is_supported(self, text: str, said: str, cited: Sequence[int]) -> bool:
        counted, ground, parts = (len(cited), len(self._cited | set(cited))), self._ground, _segments(text)
        supported = ground.supports(said, cited, counted, beside=self._sentences_around) or (
            len(parts) > 1
            and all(ground.supports(part, blocks, counted, beside=self._sentences_around) for part, blocks in parts)
        )
        return supported and not ground.is_exchanged(text)

    def _resolve(self, *, final: bool) -> None:
        """Release what waits, in order, up to the first sentence that still leans on what is to come."""
        while self._waiting:
            unit, *later = self._waiting
            if not unit.leaning or self._is_carried(unit, later):
                self._release(unit)
            elif not final:
                return
            else:
                self.removed += unit.kind is Kind.CLAIM
                if later and later[0].gap.count("\n") < unit.gap.count("\n"):  # the line break before it stays
                    later[0] = replace(later[0], gap=unit.gap)
            self._waiting = later

    def _is_carried(self, unit: Unit, later: Sequence[Unit]) -> bool:
        if unit.kind is not Kind.CLAIM:
            return any(not each.leaning for each in later)
        cited = tuple(sorted({number for each in later if not each.leaning for number in each.cited}))
        said = plain(unit.text)
        if unit.cited:
            return bool(cited) and self._is_supported(unit.text, said, unit.cited)
        is_supported = self._ground.supports(said, cited, (len(cited),), beside=self._sentences_around, leaning=True)
        return is_supported or self._ground.allows(said, cited)

    def _close(self) -> None:
        """A paragraph ends: what nothing has carried is left out."""
        self._resolve(final=True)
        self._cited.clear()
        self._said.clear()

    def _release(self, unit: Unit) -> None:
        if self._full:
            return
        words, is_row = len(words_of(unit.text)), unit.text.startswith("|") and self.text.endswith("|")
        self._sentences += bool(words and not is_row)
        self._words += words
        self._sources.update(unit.cited)
        is_long = self._words > self._max_words
        self._full = is_long or self._sentences > self._max_sentences or len(self._sources) > self._max_sources
        if self._full and (self.text or not is_long):
            return
        text = cut_words(unit.text, self._max_words) if is_long else unit.text
        self.text += f"{unit.gap}{text}" if self.text else text
        self.claims += unit.kind is Kind.CLAIM and bool(unit.cited)
        self.admissions += unit.kind is Kind.ADMISSION


def _lines(piece: str) -> list[str]:
    """A sentence, or what looks like one and is several lines; joined they are the piece."""
    cuts = [found.start() for found in _LINE.finditer(piece.rstrip())]
    return [piece[start:end] for start, end in zip([0, *cuts], [*cuts, len(piece)], strict=True)]


def _text_of(block: ContextBlock, units: Mapping[str, str]) -> str:
    """A source's header with the units of its fields, and its text; without the relevance, which is ours, and without a
    random id in place of a title.

    The digits of such an id would support any figure.
    """
    header = block.header.partition("\n")[2]
    for hit in block.hits:
        if uuid_in(hit.title):
            header = header.replace(hit.title, "")
    for name, unit in units.items():
        if unit.casefold() in UNITS:
            field = rf"(?im)((?:^|\| ){re.escape(name).replace('_', ' ')}: [-+]?[\d.,]+)(?= \||$)"
            header = re.sub(field, rf"\g<1> {unit}", header)
    return f"{header}\n\n{block.body}".strip()


def _is_common(names: Sequence[str], text: str) -> bool:
    """Whether what looks like a name is the sentence's first word alone, and a word of English."""
    name = names[0]
    begins = len(names) == 1 and name.istitle() and text.lstrip(_MARKS_AND_BLANKS).startswith(name)
    return begins and tokenizer().token_to_id(name.casefold()) is not None


def _may_be_read(text: str) -> bool:
    """Whether a claim is in the language of the model, or in none that can be told."""
    return language_of(text) in (None, LANGUAGE)


def _title_and_rest(text: str) -> tuple[str, str]:
    title = _TITLE.match(text)
    return (title[1].strip(), text[title.end() :]) if title else ("", text)


def misquotes(text: str, passage: Passage) -> bool:
    """Whether a quotation of three words or more is not in the passage as it is; what an ellipsis leaves out may be.

    >>> [misquotes(f'It says: "{said}".', Passage("We open at nine.")) for said in ("we open at nine", "we never open")]
    [False, True]
    """
    flat = _flat(passage.text)
    quoted = (part for found in _QUOTATION.findall(text) for part in _LEFT_OUT.split("".join(found)))
    return any(
        len(said.split()) >= _LEAST_QUOTED and f" {said} " not in flat for said in map(str.strip, map(_flat, quoted))
    )


def _names_in(text: str) -> list[str]:
    return [*map(_bare, unknown_names(text, ()))]


def _bare(name: str) -> str:
    return name.casefold().replace("’", "'").removesuffix("'s")


def _flat(text: str) -> str:
    return " ".join(["", *re.findall(r"[^\W_]+", text.casefold()), ""])


def _segments(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """What stands before each group of markers, with the blocks of that group."""
    groups = [*_GROUP.finditer(text)]
    starts = [0, *(group.end() for group in groups)]
    return [
        (plain(text[start : group.start()]), tuple(sorted({*map(int, MARKER.findall(group[0]))})))
        for start, group in zip(starts, groups, strict=False)
    ]


def _is_quoted(text: str, passage: str) -> bool:
    """Whether a sentence stands in the passage as it is, from one mark to the next.

    >>> _is_quoted("Dogs are welcome.", "We open at nine. Dogs are welcome."), _is_quoted("sell data", "We do not sell data.")
    (True, False)
    """
    said = r"[ \t]+".join(map(re.escape, text.casefold().strip(_MARKS).split()))
    begins = rf"(?:\A|[.!?:;|>\n])[{re.escape(_MARKS_AND_BLANKS)}]*"
    ends = r"[ \t]*(?:\Z|[.!?;|\n])"
    return len(said) >= _LEAST_QUOTE and re.search(begins + said + ends, passage.casefold()) is not None


_CHECKS = {
    Doubt.ORDER: turns_round,
    Doubt.NEGATION: contradicts,
    Doubt.ASIDE: has_idle_aside,
    Doubt.QUOTATION: misquotes,
}
