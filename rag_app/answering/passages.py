"""A text taken apart into what can answer something: sentences, list items, table rows, `key: value` lines."""

import re
from collections.abc import Iterator, Sequence, Set
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from rag_app.domain import compile_later, read_table
from rag_app.retrieval.text import FIRST_CELL, LABEL, sentences

_LONG, _LONGEST = 40, 80  # words
_FEWEST = 2  # words of what is quoted alone: no number of a list
_LEAST_WRAPPED = 40  # characters: a shorter line is not one that goes on in the next

_TIME_OF_DAY = (
    r"(?:[\[(]?\d{1,2}:\d\d(?::\d\d)?(?:\s?[ap]m)?[\])]?[\s,–-]*)?"  # the time of day before who speaks, in a chat
)
_OWN_LINE = compile_later(rf"\s*(?:[-*•–]\s|\d{{1,3}}[.)]\s|#|\||{_TIME_OF_DAY}{LABEL}\s+\S)")
_EMPHASIS = compile_later(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
# What a paragraph begins with, set off from it: "**Parking.** Free after eight."
_LABEL = compile_later(r"\s*(?:[-*•–]\s+)?(\*\*|__)(?=\S)([^*_.:?!]{1,60})(?:\.\1|\1\.)\s+(?=\S)")
# The same of an item in a list: "4. Staff leave. Two people are away in May."
_NUMBERED_LABEL = compile_later(r"\s*\d{1,3}[.)]\s+((?!\d)\w+(?:\s\w+)?)\.\s+(?=\S)")
_NUMBER = compile_later(r"\W*\d{1,3}[.)]?\W*")
_BULLET = compile_later(r"^(?:[-*•–]|\d{1,3}[.)])\s+")
_STEP = compile_later(r"^(\d{1,3})[.)]\s+")
_KEY_VALUE = compile_later(rf"^{_TIME_OF_DAY}{LABEL}\s+\S")
_NUMBERED_HEADING = compile_later(r"^(?:(?:chapter|section|part|appendix)\s+\w{1,5}\b|\d+(?:\.\d+)+\s)", re.IGNORECASE)
_CELL = compile_later(rf"({LABEL[:-1]}|):\s+(\S.*)")
_FIRST_CELL = compile_later(FIRST_CELL)
_NAME_LABEL = compile_later(r"[\d]|\w\W*[A-Z]")
_RECORD = compile_later(rf"^(?:(?:{LABEL}\s[^;]*;\s){{2}}|{FIRST_CELL})")
_GREETING = compile_later(
    r"^(?:[^.!?:|]{1,40}:\s+)?(?!\S+@)(?:(?:hi|hello|hey|dear|good (?:morning|afternoon|evening|day)|bonjour|bonsoir|salut|hallo"
    r"|guten (?:tag|morgen)|hola|buenos días)\b(?:\W*\w+){0,3}|(?:welcome|thanks?|thank you|cheers|goodbye|bye"
    r"|(?:best|kind|warm) (?:regards|wishes)|regards|sincerely|yours|merci|cordialement"
    r"|liebe grüße|mit freundlichen grüßen|gracias|saludos)\b(?:\W*\w+){0,5})\W*$",
    re.IGNORECASE,
)
_LISTS: dict[str, list[str]] = read_table(__file__)
_SALUTATION = compile_later(rf"(?:{'|'.join(_LISTS['salutations'])})\b(?:\W*\w+){{0,5}},", re.IGNORECASE)
_SIGNS_OFF = compile_later(rf"(?:(?:with|all the) )?(?:{'|'.join(_LISTS['farewells'])})[,.!]?", re.IGNORECASE)
_MOST_OF_NAME = 4  # words
_DIVIDER = compile_later(r"\s[»›>·•/]\s")
_RULER = compile_later(r"^[\s|:=_*–-]*$")
SENTENCE_END = compile_later(r"[.!?…。！？][\"'”’)\]]*$")
_INNER_END = compile_later(r"(?<=[.!?])\s+(?=[\"'“‘(]*[A-Z])")
_POLITELY = r"^[\W_]*(?:(?:please|kindly|now|then|also|instead|finally|first|next|and|in your \w+,?|(?:can|could|would|will) you)\s+)*"
# Sentences that speak to whoever answers, not to the reader: quoting them would only pass an attack on.
TO_THE_ANSWERER = compile_later(
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:instruction|prompt|rule|context|above|previous|question|guideline)s?\b"
    r"|(?<!\bhave )(?<!\bawait )(?<!\breceive )(?<!\bthank you for )(?<!\bwaiting for )(?<!\bforward to )\byour (?:final |next |whole )?(?:answer|response|reply|output|completion)s?\b|\b(?:system|developer) prompt\b"
    r"|\b(?:you are|you're|as|act as|pretend to be)(?: now)? (?:an? |the )?(?:AI|assistant|language model|chatbot|LLM)\b"
    r"|\b(?:reply|respond|answer|encode|decode|write)\b.{0,30}\b(?:base ?\d\d|rot ?13|hexadecimal|morse|emojis?|json|pig latin)\b"
    + rf"|{_POLITELY}(?:(?:show|tell|teach|give|help|read|sing) me\b(?! (?:by|before|if|when|whether)\b)|(?:recommend|suggest|translate|paraphrase|summari[sz]e|rewrite|compose"
    r"|classify|analy[sz]e|determine|brainstorm)\b|(?:write|provide|generate|create|draft|make up|invent) (?:me )?(?:an? |some )?(?:\w+ ){0,2}"
    r"(?:scripts?|commands?|code|functions?|programs?|poems?|stor(?:y|ies)|songs?|essays?|jokes?|haikus?|recipes?|summar(?:y|ies)"
    r"|translations?|tweets?|blogs?|articles?|speech(?:es)?)\b)",
    re.IGNORECASE,
)
_BASE_FORM = (
    "add|allow|append|apply|ask|assume|augment|be|begin|build|buy|call|change|check|choose|click|compare|compute|conclude|confirm|consider|"
    "convert|copy|count|create|cut|define|delete|describe|design|detail|develop|discuss|display|do|don't|download|draft|draw|edit|embed|"
    "emphasi[sz]e|encode|end|enhance|ensure|enter|enumerate|estimate|evaluate|explain|explore|express|extend|extract|fill|find|finish|"
    "follow|format|generate|get|give|go|help|hide|highlight|identify|illustrate|imagine|implement|imply|include|incorporate|inform|insert|"
    "instruct|integrate|interpret|introduce|invent|join|keep|label|leave|let|limit|list|look|make|mention|modify|name|never|note|offer|"
    "omit|open|outline|output|pass|plan|post|predict|prepare|present|press|print|produce|promote|propose|prove|provide|publish|put|rank|"
    "rate|read|refer|remember|remind|remove|rename|repeat|rephrase|replace|reply|report|respond|return|reveal|review|run|say|search|select|"
    "send|set|share|show|sign|simplify|solve|speak|spread|start|state|stop|substitute|support|swap|take|talk|tell|test|think|transform|try|"
    "turn|type|update|use|verify|visit|weave|write"
)
_ORDER = compile_later(rf"{_POLITELY}(?:{_BASE_FORM})\b(?!\s*[:,])", re.IGNORECASE)


class Passage(Struct, frozen=True):
    """A sentence of block `block`, at `place` in it. `lead` is the question or heading it stands under; it `goes_on` where
    the sentence before it is of the same paragraph. `section` is the heading above it, however far, and `name` the same where
    it names what all of the section is about. `step` is the number that it has in a list."""

    block: int
    place: int
    text: str
    lead: str = ""
    goes_on: bool = False
    section: str = ""
    name: str = ""
    step: int = 0

    @property
    def text_with_lead(self) -> str:
        """The sentence, behind the heading or the question that it stands under."""
        return f"{self.lead or self.name} {self.text}".strip()


class Ranking(Struct, frozen=True):
    """The passages of a context that come into question, and how near each is to what is asked.

    `cosines` has a row for each of `asked` (what is looked for first, then the parts of the question) and a column for
    each of `ranked`, which are some of `pool`: all passages of the context, in its order. `windows` are those of each
    passage together with the one before it, `priors` what speaks for it before its meaning is looked at. `read` are log-odds that a passage answers, by the reader, -8..8; of those
    that it has not read, the least of the others. They are 0 in a language that it does not know. `outdated` are the blocks of
    sources that no longer hold.
    """

    asked: tuple[str, ...]
    pool: tuple[Passage, ...]
    ranked: tuple[Passage, ...]
    cosines: NDArray[np.float64]
    windows: NDArray[np.float64]
    priors: NDArray[np.float64]
    read: NDArray[np.float64]
    outdated: frozenset[int] = frozenset()

    @property
    def likeliest(self) -> Passage:
        """The passage with the best odds of an answer; of equals the nearest. Raises ValueError where none is ranked."""
        odds = zip(self.read.max(axis=0), self.cosines[0], strict=True)
        return max(zip(odds, self.ranked, strict=True), key=lambda each: each[0])[1]


def passages(text: str, block: int = 0) -> list[Passage]:
    """The sentences, list items, table rows and `key: value` lines of a text that can answer something.

    Headings, questions, greetings and menus are not among them, unless a text has only headings. What follows a
    heading or a question carries it as its lead; so do all items of a list that a line with a colon, or one that goes on in them, introduces.

    >>> [(each.lead, each.text) for each in passages("# Prices\\n\\nA cut is $40. Do you park? Yes, free of charge.")]
    [('Prices', 'A cut is $40.'), ('Do you park?', 'Yes, free of charge.')]
    >>> [(each.lead, each.text) for each in passages("Ring us if your dog\\n\\n- limps\\n- will not eat")]
    [('Ring us if your dog', 'limps'), ('Ring us if your dog', 'will not eat')]
    >>> [(each.lead, each.text) for each in passages("Dear Ada,\\nthe van is old.\\n\\nBest wishes\\nBen Hill\\n\\nThe bus is new.")]
    [('', 'the van is old.'), ('', 'The bus is new.')]
    """
    units = [each for each in _units(text) if re.search(r"\w", each[0]) and not TO_THE_ANSWERER.search(each[0])]
    found: list[Passage] = []
    lead, introduced, section, signs_off = "", False, "", False
    for place, ((unit, alone, goes_on), (following, *_)) in enumerate(
        zip(units, [*units[1:], ("", True, False)], strict=False)
    ):
        signed, signs_off = signs_off and _is_name(unit), _SIGNS_OFF.fullmatch(unit) is not None
        if signed or signs_off or _SALUTATION.fullmatch(unit):
            continue
        opens = _BULLET.match(following) is not None and not (_BULLET.match(unit) or SENTENCE_END.search(unit))
        if unit.endswith(("?", ":")) or opens or (alone and _is_heading(unit, following)):
            lead, introduced = _BULLET.sub("", unit.lstrip("# ")), unit.endswith(":") or opens
            section = section if introduced or unit.endswith("?") else lead
            continue
        if _GREETING.match(unit) or _is_furniture(unit):
            continue
        words = unit.split()
        shown = " ".join(words[:_LONGEST]) + ("…" if len(words) > _LONGEST else "")
        step = int(number[1]) if (number := _STEP.match(unit)) else 0
        found.append(Passage(block, place, _BULLET.sub("", shown), lead, goes_on, section, step=step))
        lead = lead if introduced and _BULLET.match(unit) else ""
    return found or [Passage(block, place, unit) for place, (unit, *_) in enumerate(units) if not unit.endswith("?")]


def passages_in_sections(text: str, block: int, sections: Sequence[tuple[int, str]]) -> list[Passage]:
    """`passages` of a text whose `sections` begin at these places, as if their headings stood there; none follows one of
    another section.

    >>> told = "A cut is $40. It takes an hour. We open at nine."
    >>> [(each.place, each.lead) for each in passages_in_sections(told, 0, [(0, "Prices"), (32, "Hours")])]
    [(0, 'Prices'), (1, ''), (3, 'Hours')]
    """
    found: list[Passage] = []
    for (start, heading), (end, _) in pairwise([*(sections or [(0, "")]), (len(text), "")]):
        place = found[-1].place + 2 if found else 0
        for number, each in enumerate(passages(text[start:end], block)):
            found.append(
                replace(
                    each,
                    place=place + each.place,
                    lead=each.lead or ("" if number else heading),
                    section=each.section or heading,
                )
            )
    return found


def cells_of(text: str, fewest: int = 3) -> dict[str, str]:
    """The cells of a table's row of `fewest` or more columns, by the column's name; of any other text none.

    >>> cells_of("Role: Cook; Pay: £12; Notice: 2 weeks")
    {'Role': 'Cook', 'Pay': '£12', 'Notice': '2 weeks'}
    >>> cells_of("Contract: 32 hours; Days: 23", 2), cells_of("Note: we open at 9; come early.", 2)
    ({'Contract': '32 hours', 'Days': '23'}, {})
    >>> cells_of("Weight; T4: 7 kg; T5: 9 kg")  # the first column has no name
    {'': 'Weight', 'T4': '7 kg', 'T5': '9 kg'}
    """
    first, *others = text.split("; ")
    cells = [f": {first}" if _FIRST_CELL.match(text) else first, *others]
    found = [_CELL.fullmatch(cell) for cell in cells]
    return {each[1]: each[2] for each in found if each} if len(found) >= fewest and all(found[:2]) else {}


def name_label(label: str, lang: str = "en") -> str:
    """What a column is called within a sentence: "price", but "Weir House" and "E9".

    >>> [name_label(each) for each in ("Price", "Weir House", "E9", "Wi-Fi", "")]
    ['price', 'Weir House', 'E9', 'Wi-Fi', '']
    """
    return label if lang == "de" or _NAME_LABEL.search(label) else label[:1].lower() + label[1:]


def tell_row(text: str, lang: str = "en", asked: Set[str] = frozenset()) -> str:
    """A row of a table as a person would say it, by what its first cell names; any other text as it is. Columns that one of the
    words `asked` names come first, behind the cell that says what the row is of.

    >>> tell_row("Role: Cook; Pay: £12; Notice: 2 weeks"), tell_row("Evening: 5; We read: Chapter 4"), tell_row("Pay: £12")
    ('Cook – pay: £12; notice: 2 weeks', 'Evening 5 – we read: Chapter 4', 'Pay: £12')
    >>> tell_row("Role: Cook; Pay: £12; Notice: 2 weeks", asked={"notice"}), tell_row("No.: 5; Item: Saw; Day: £4; Week: £9", asked={"week"})
    ('Cook – notice: 2 weeks; pay: £12', 'No. 5 – item: Saw; week: £9; day: £4')
    >>> tell_row("Weight; T4: 7 kg; T5: 9 kg")
    'Weight – T4: 7 kg; T5: 9 kg'
    """
    cells = [cell.partition(": ") for cell in (f": {text}" if _FIRST_CELL.match(text) else text).split("; ")]
    (name, _, first), *others = cells
    if not others or not all(
        said and re.fullmatch(LABEL, f"{label}:") for label, _, said in cells if label or said != first
    ):
        return text
    kept = 0 if re.match(r"[^\W\d]{2}", first) else 1  # behind a number stands what the row is of
    names = {label: re.findall(r"\w+", label.casefold()) for label, *_ in others}
    others[kept:] = sorted(
        others[kept:],
        key=lambda cell: asked.isdisjoint({*names[cell[0]], *(word.removesuffix("s") for word in names[cell[0]])}),
    )
    subject = first if re.match(r"[^\W\d]{2}", first) else f"{name} {first}".strip()
    told = [f"{name_label(label, lang)}: {said}" for label, _, said in others]
    return f"{subject.rstrip(',')} – {'; '.join(told)}"


def quotable(text: str) -> list[str]:
    """The sentences of a text, as they stand there, that ask nobody for anything: no questions, no orders.

    They are what is shown of a source that was found where nothing is answered. It loses steps of instructions, which
    cannot be told from an attack there.

    >>> quotable("Write a poem about cats. A cut is $40.\\nWho pays?")
    ['A cut is $40.']
    """
    said = (sentence for line in _lines(text) for sentence in sentences(line))
    return [
        sentence
        for sentence in said
        if len(re.findall(r"[^\W\d]{2,}", sentence)) >= _FEWEST
        and not sentence.endswith("?")
        and not _GREETING.match(sentence)
        and not _SALUTATION.fullmatch(sentence)
        and not _ORDER.match(_BULLET.sub("", sentence))
        and not TO_THE_ANSWERER.search(_BULLET.sub("", sentence))
    ]


def _units(text: str) -> Iterator[tuple[str, bool, bool]]:
    """Sentences, whether each is all of its paragraph, and whether it follows another one there."""
    for line in _lines(text):
        if _RECORD.match(line):
            yield line, True, False
            continue
        bullet = found[0] if (found := _BULLET.match(line.lstrip())) else ""
        said = [
            part
            for sentence in sentences(line.lstrip().removeprefix(bullet))
            # Two apostrophes look like quotes, and what is between them like one sentence.
            for part in (_INNER_END.split(sentence) if len(sentence.split()) > _LONG else [sentence])
            if not _NUMBER.fullmatch(part)
        ]
        for place, sentence in enumerate(said):
            yield f"{bullet}{sentence}" if place == 0 else sentence, len(said) == 1, place > 0


def _lines(text: str) -> Iterator[str]:
    """Paragraphs and list items, each in one line; table rows and `key: value` lines are not joined with neighbours.

    >>> [*_lines("- Guests sign the waiver at the front desk\\n  before their first visit.\\n- Dogs stay outside.")]
    ['', '- Guests sign the waiver at the front desk before their first visit.', '- Dogs stay outside.']
    >>> [*_lines("The messages that are included in the plans do\\nnot change: 150 a month.")]
    ['The messages that are included in the plans do not change: 150 a month.']
    """
    lines = [*_plain(text)]
    paragraph: list[str] = []
    columns: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        row = _cells(line)
        columns = columns if row else []
        wraps = bool(paragraph) and len(paragraph[-1]) >= _LEAST_WRAPPED
        own = _OWN_LINE.match(line) is not None and not (wraps and line.lstrip()[:1].islower())
        own = own or _RECORD.match(line) is not None
        of_item = bool(paragraph) and _BULLET.match(paragraph[0].lstrip()) is not None
        goes_on = not of_item or (wraps and (line[:1].isspace() or line[:1].islower()))
        if own or row or not goes_on or not line.strip() or TO_THE_ANSWERER.search(line):
            yield " ".join(paragraph)
            paragraph = []
        if row and not columns and _heads(row, _cells(following), following):
            columns = row
        elif row or TO_THE_ANSWERER.search(line) or (own and not _BULLET.match(line.lstrip())):
            if not _RULER.match(line):
                yield _row(row, columns) if row else line
        elif line.strip():
            paragraph.append(line.strip())
            short = not SENTENCE_END.search(line.strip()) and len(line) < _LEAST_WRAPPED and following[:1].isupper()
            if short or _SALUTATION.fullmatch(line.strip()) or _SIGNS_OFF.fullmatch(line.strip()):
                yield " ".join(paragraph)  # a short line of its own, not a wrapped one
                paragraph = []
    yield " ".join(paragraph)


def _plain(text: str) -> Iterator[str]:
    """The lines of a text without Markdown's emphasis; a label before a sentence is a heading above it.

    >>> [*_plain("**Parking.** It is **free** after eight.")]
    ['# Parking', 'It is free after eight.']
    >>> [*_plain("4. Staff leave. Two people are away in May.")]
    ['# Staff leave', 'Two people are away in May.']
    """
    for line in _head_entries(text.splitlines()):
        if label := _LABEL.match(line) or _NUMBERED_LABEL.match(line):
            yield f"# {label[label.lastindex or 0]}"
        yield _EMPHASIS.sub(r"\2", line[label.end() :] if label else line)


def _head_entries(lines: Sequence[str]) -> Iterator[str]:
    """The lines of a list of questions and answers, with those as headings that are what an answer is about, and ask nothing.

    >>> [*_head_entries(["Is it dear?", "No.", "", "It shows E3.", "Turn the feet.", "", "Bye.", ""])]
    ['Is it dear?', 'No.', '', '# It shows E3', 'Turn the feet.', '', 'Bye.', '']
    >>> [*_head_entries(["**Is it dear?**", "No.", "", "**It leaks.**", "Turn it off."])][3]
    '# It leaks'
    """
    entries = [*zip(["", *lines], lines, [*lines[1:], ""], strict=False)]
    opens = [
        line.strip() != "" and not before.strip() and following.strip() != "" for before, line, following in entries
    ]
    plain = [line.strip().strip("*_") for line in lines]
    asks = any(first and line.endswith("?") for first, line in zip(opens, plain, strict=True))
    for first, line, bare in zip(opens, lines, plain, strict=True):
        stated = first and asks and len(bare) < _LEAST_WRAPPED and bare.endswith(".") and not _OWN_LINE.match(line)
        yield f"# {bare.rstrip('.')}" if stated else line


def _heads(row: Sequence[str], below: Sequence[str], following: str) -> bool:
    """Whether a row names the columns of the next: a ruler is between them, or only the next has figures."""
    if _RULER.match(following) and following.strip():
        return True
    return (
        len(row) == len(below) > 1
        and not re.search(r"\d", "".join(row))
        and re.search(r"\d", "".join(below)) is not None
    )


def _cells(line: str) -> list[str]:
    if line.strip().startswith("|") or " | " in line:
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    return [cell.strip() for cell in line.split("\t")] if "\t" in line.strip() else []


def _row(cells: Sequence[str], columns: Sequence[str]) -> str:
    names = [f"{name}: " if name else "" for name in columns] if len(columns) == len(cells) else [""] * len(cells)
    return ("; " if any(names) else ", ").join(f"{name}{cell}" for name, cell in zip(names, cells, strict=True) if cell)


def _is_heading(unit: str, following: str) -> bool:
    """A title, or too little to say anything. With a figure in it, what stands before a sentence: "Revenue 2020"."""
    if unit.startswith("#") or (_NUMBERED_HEADING.match(unit) and not SENTENCE_END.search(unit)):
        return True
    if (
        SENTENCE_END.search(unit)
        or _BULLET.match(unit)
        or _KEY_VALUE.match(unit)
        or _RECORD.match(unit)
        or ", " in unit
        or len(unit.split()) > 8
    ):
        return False
    return not re.search(r"\d", unit) or (len(following.split()) > 8 and SENTENCE_END.search(following) is not None)


def _is_name(unit: str) -> bool:
    """Who signs a letter: a few words that are no sentence."""
    return len(unit.split()) <= _MOST_OF_NAME and SENTENCE_END.search(unit) is None and unit[:1].isupper()


def _is_furniture(unit: str) -> bool:
    """A menu or a ruled line: more signs than letters, or short names between dividers, which are no figures."""
    letters = sum(sign.isalnum() for sign in unit)
    menu = len(_DIVIDER.findall(unit)) > 1 and not re.search(r"\d", unit)
    return menu or letters * 2 < len(unit.replace(" ", ""))
