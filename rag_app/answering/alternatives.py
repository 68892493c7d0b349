"""Rows of a table and items of a list of which a question means one: that of its figure, or of the sort that it names.

A reader of sentences compares no figures. What it says of the likeliest row of a table, it says of the one that is meant.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import chain, product

from msgspec.structs import replace

from rag_app.answering.citations import content_words
from rag_app.answering.contrasts import speaks_of_another, speaks_of_asked
from rag_app.answering.kinds import has_kind, kind_of
from rag_app.answering.leaning import is_german
from rag_app.answering.passages import Passage, Ranking, cells_of, tell_row
from rag_app.answering.ranges import fits

# In the name of a column that is of one thing: a figure, or a capital letter behind its first word.
_CODE = re.compile(r"\d")
_THING = re.compile(r"\d|\s[A-Z]")
_NAMES = re.compile(r"[^\W\d_]{3,}")
_STEM = 4  # letters
_HEAD = re.compile(r"([^:.;!?]{1,50}?)(?::| [–—-]| =)\s")


def settle_rows(ranking: Ranking, question: str) -> Ranking:
    """The ranking without the rows and items beside those that the question means, which are as likely as the likeliest of them.

    >>> import numpy as np
    >>> told = [Passage(0, n, f"Distance: {each} miles; Price: {n}0") for n, each in enumerate(("up to 5", "5 to 12", "12 to 25"))]
    >>> rows = Ranking(("",), tuple(told), tuple(told), *(np.array([[0.0, 1.0, 2.0]]),) * 2, np.zeros(3), np.array([[4.0, 1.0, 2.0]]))
    >>> settled = settle_rows(rows, "What is it for 8 miles?")
    >>> [each.text for each in settled.ranked], settled.read.tolist()
    (['Distance: 5 to 12 miles; Price: 10'], [[4.0]])
    """
    groups: dict[tuple[int, str, str], list[Passage]] = {}  # by block, section and first column of a table
    for each in ranking.pool:
        groups.setdefault((each.block, each.section, next(iter(cells_of(each.text, 2)), "")), []).append(each)
    beside: dict[Passage, list[Passage]] = {}
    left_out: set[Passage] = set()
    for rows in groups.values():
        for means in (fits_stated_range, _names_sort):
            meant, others = _separate(rows, question, means)
            left_out |= {*others}
            for each in (each for each in meant if head_of(each)):
                beside.setdefault(each, []).extend(other for other in others if head_of(other))
        for each, others in _find_unnamed(rows, question).items():
            left_out |= {*others}
            beside.setdefault(each, []).extend(others)
    return _leave_out(ranking, left_out, beside) if left_out else ranking


def _separate(
    rows: Sequence[Passage], question: str, means: Callable[[str, Passage], bool | None]
) -> tuple[list[Passage], list[Passage]]:
    """The rows that a question means, and those that it does not: also those of a table that say nothing of it, nor have a word of
    the question. Where no row is of its figure, and several are of others, it means nothing that is there.
    """
    said = [(each, means(question, each)) for each in rows]
    meant, others = ([each for each, found in said if found is wanted] for wanted in (True, False))
    wanted = content_words(question)
    silent = [each for each, found in said if found is None and others and cells_of(each.text, 2)]
    silent = [each for each in silent if not wanted & content_words(head_of(each))]
    if not meant:
        return [], [*others, *silent] if means is fits_stated_range and len(others) > 1 else []
    return meant, [*others, *silent]


def _find_unnamed(rows: Sequence[Passage], question: str) -> dict[Passage, list[Passage]]:
    """For each row with a cell of which the question has all words: those that have more words there, none of them asked for,
    and those that have nothing of the question.

    >>> told = [Passage(0, n, f"Room: {each}; Price: £{n}") for n, each in enumerate(("Double", "Double with a view", "Single"))]
    >>> [[each.text for each in found] for found in _find_unnamed(told, "What is a double room?").values()]
    [['Room: Double with a view; Price: £1', 'Room: Single; Price: £2']]
    >>> [[each.text for each in found] for found in _find_unnamed(told, "What is the double room with a view?").values()]
    [['Room: Single; Price: £2'], ['Room: Single; Price: £2']]
    """
    asked = content_words(question)
    cells = {row: {label: content_words(said) for label, said in cells_of(row.text, 2).items()} for row in rows}
    labels = content_words(" ".join(label for named in cells.values() for label in named))
    found: dict[Passage, list[Passage]] = {}
    for row, named in cells.items():
        whole = {label: words for label, words in named.items() if words <= asked and any(map(_NAMES.fullmatch, words))}
        unnamed = [
            other
            for other, there in cells.items()
            if any(
                words < there.get(label, words) and asked.isdisjoint(there[label] - words)
                for label, words in whole.items()
            )
            or (whole and there and (asked - labels).isdisjoint(chain.from_iterable(there.values())))
        ]
        if unnamed:
            found[row] = unnamed
    return found


def fits_stated_range(question: str, row: Passage) -> bool | None:
    """Whether a figure of the question is in a range that a row or what an item begins with states, or is all that a row begins with.

    >>> fits_stated_range("For 30 h?", Passage(0, 0, "Contract: 30 hours; Leave: 20")), fits_stated_range("For 9 kg?", Passage(0, 0, "up to 5 kg: £4"))
    (True, False)
    >>> [fits_stated_range("The 6.2 tower?", Passage(0, 0, f"No.: 5; Item: Tower, {size} m")) for size in ("6.2", "4.2")]
    [True, False]
    """
    cells = [*cells_of(row.text, 2).items()]
    if not cells:
        head = head_of(row)
        return fits(question, head, f"{row.lead} {row.section}") if head else None
    name = next((place for place, (_, said) in enumerate(cells) if re.search(r"[^\W\d]{2}", said)), 0)
    found = [fits(question, said, label, exact=place in (0, name)) for place, (label, said) in enumerate(cells)]
    compared = [each for each in found if each is not None]
    columns = [fits(question, label, exact=True) for label, _ in cells]
    if columns.count(False) > 1 and True not in columns:
        return False
    return any(compared) if compared else None


def are_beside(one: Passage, other: Passage) -> bool:
    """Whether both are rows of a table or items of a list in one section."""
    in_one = (one.block, one.section) == (other.block, other.section)
    return in_one and head_of(one) != "" and head_of(other) != ""


def narrow_row(row: Passage, question: str) -> Passage:
    """A row of a table whose columns are things - models, places, years -, without those that the question does not name, if it
    names one of them; any other passage as it is.

    >>> narrow_row(Passage(0, 0, "Weight; T4: 7 kg; T5: 9 kg"), "How heavy is the T5?").text
    'Weight – T5: 9 kg'
    >>> row = Passage(0, 0, "Job: Porter; Weir House: Tom; Mill Row: Ann; Hours: 30")
    >>> [narrow_row(row, each).text for each in ("Who is the porter of Mill Row?", "Who is a porter?")]
    ['Job: Porter; Mill Row: Ann; Hours: 30', 'Job: Porter; Weir House: Tom; Mill Row: Ann; Hours: 30']
    """
    cells = cells_of(row.text)
    (name, first), *others = cells.items() if cells else [("", "")]
    sign = _CODE if is_german(question) else _THING
    things = {label: content_words(label) for label, _ in others if not name or sign.search(label)}
    shared = {word for word, times in Counter(chain.from_iterable(things.values())).items() if times > 1}
    asked = content_words(question) - shared
    left_out = {label for label, words in things.items() if words.isdisjoint(asked)}
    if not len(left_out) < len(things) > 1 or not left_out:
        return row
    kept = "; ".join(f"{label}: {said}" for label, said in others if label not in left_out)
    return replace(row, text=f"{name}: {first}; {kept}" if name else f"{first} – {kept}")


def retell_row(row: Passage, question: str, pool: Iterable[Passage]) -> list[str]:
    """A row of a table of three or more columns as it is told; nothing of any other text. Where the question names the row among
    those of `pool`, and asks for a column, by its name or by the kind of its values, also with no more than the first cell, those
    that the question names and that column; and with what it names before the first cell.

    >>> told = ("Day: 3 May; Where: Isle of Wick; Base: barn; Leader: Jo Lund", "Day: 9 June; Where: Holm; Base: hut; Leader: Al Orr")
    >>> rows = [Passage(0, place, text) for place, text in enumerate(told)]
    >>> retell_row(rows[0], "Who leads the Wick meet?", rows)
    ['Day 3 May – where: Isle of Wick; base: barn; leader: Jo Lund', 'Day 3 May – where: Isle of Wick; leader: Jo Lund', 'Isle of Wick – day: 3 May; leader: Jo Lund']
    >>> retell_row(rows[0], "Is Wick nice?", rows)
    ['Day 3 May – where: Isle of Wick; base: barn; leader: Jo Lund']
    """
    cells, asked, kind = cells_of(row.text), content_words(question), kind_of(question)
    if not cells:
        return []
    others = [cells_of(each.text) for each in pool if each.block == row.block and each != row]

    def is_rare(word: str, label: str) -> bool:
        beside = [each[label] for each in others if label in each]
        return sum(word in content_words(said) for said in beside) * 2 < len(beside)

    naming = {
        label for label, said in cells.items() if any(is_rare(each, label) for each in asked & content_words(said))
    }
    columns = {label: f"{label}: {said}" for label, said in cells.items() if label not in naming}
    titled = {label for label in columns if _shares_stem(content_words(label), asked)}
    fitting = {label for label, said in columns.items() if kind is not None and has_kind(kind, said, question)}
    wanted = titled & fitting or fitting or titled
    kept = naming | wanted | {*[*cells][:1]} if naming and wanted else cells.keys()
    narrow = [f"{label}: {said}" for label, said in cells.items() if label in kept]
    turned = sorted(narrow, key=lambda cell: bool(wanted) and cell.partition(": ")[0] not in naming)
    return [*dict.fromkeys(map(tell_row, (row.text, "; ".join(narrow), "; ".join(turned))))]


def _shares_stem(one: Set[str], other: Set[str]) -> bool:
    """Whether a word of one begins with a word of the other, or is it: "leads" and "leader"."""
    return not one.isdisjoint(other) or any(
        min(len(word), len(another)) >= _STEM and (word.startswith(another) or another.startswith(word))
        for word, another in product(one, other)
    )


def head_of(row: Passage) -> str:
    """The first cell of a row, or what an item has before a colon or a dash; empty of a sentence.

    >>> [head_of(Passage(0, 0, text)) for text in ("Role: Cook; Pay: £12", "By post: to Mill Lane 4", "We open at 9.")]
    ['Cook', 'By post', '']
    """
    cells = [*cells_of(row.text, 2).values()]
    head = _HEAD.match(row.text)
    return cells[0] if cells else head[1] if head else ""


def _names_sort(question: str, row: Passage) -> bool | None:
    """Whether the row is of the thing of a sort that the question names; False where it is of another one."""
    text = " ; ".join(cells_of(row.text, 2).values()) or row.text_with_lead
    if speaks_of_another(question, text):
        return False
    return True if speaks_of_asked(question, text) else None


def _leave_out(ranking: Ranking, left_out: set[Passage], beside: Mapping[Passage, Iterable[Passage]]) -> Ranking:
    places = {each: place for place, each in enumerate(ranking.ranked)}
    read = ranking.read.copy()
    for each, others in beside.items():
        if each in places:
            of_table = [places[each], *(places[other] for other in others if other in places)]
            read[:, places[each]] = ranking.read[:, of_table].max(axis=1)
    kept = [place for place, each in enumerate(ranking.ranked) if each not in left_out]
    return replace(
        ranking,
        pool=tuple(each for each in ranking.pool if each not in left_out),
        ranked=tuple(ranking.ranked[place] for place in kept),
        cosines=ranking.cosines[:, kept],
        windows=ranking.windows[:, kept],
        priors=ranking.priors[kept],
        read=read[:, kept],
    )
