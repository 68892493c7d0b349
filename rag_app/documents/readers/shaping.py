"""The shapes that formats share: text under headings, and tables as lines; and CSV, which is nothing but a table.

A row of a table becomes "Header: value; Header: value", without its empty cells, so that it can be understood alone; a
table without a header row keeps its cells in order: "a | b | c". Rows are gathered in passages of up to 150 words.

The delimiter of CSV is the one of comma, semicolon, tab and pipe that gives the most even rows; a leading `sep=;` line
is obeyed. Rows may be longer or shorter than the header. Nothing is dropped but empty rows, columns and cells.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import BinaryIO

from rag_app.documents.documents import Document, Passage
from rag_app.documents.limits import Tally
from rag_app.documents.readers.formats import attempt, decode, reads
from rag_app.documents.readers.rows import Records, table_records
from rag_app.domain import RowsRule, UnreadableDocument

ROWS_BECOME = "groups of rows; each row repeats the header: `Name: Ada; Age: 36`"
GROUP_WORDS = 150  # words: a group of rows that fits in one chunk
_SAMPLE_CHARS = 1_000_000  # characters that tell the delimiter

_NUMBER = re.compile(r"[-+(]?[$€£¥]?\s?\d[\d.,:/\s-]*[%€]?\)?")
_YEAR = re.compile(r"(?:19|20)\d\d")
_NO_TITLE = re.compile(
    r"\W*+(?:untitled|anonymous|unspecified|unknown|none|title|user|author|admin|administrator|(?:word )?document|slide"
    r"|(?:powerpoint[- ])?presentation|(?:work)?book|microsoft \w++|python-\w++|openpyxl|xlsxwriter)?[\W\d]*+"
    r"|.*\.(?:docx?|pptx?|xlsx?|pdf|txt|html?|tex|dvi|e?ps|indd|rtf|od[tps]|md)|microsoft \w+ - .*",
    re.IGNORECASE,
)


Row = Sequence[str] | Mapping[int, str]
"""Cells in a row, or each by the number of its column, in that order: few cells may be far apart."""


def sensible(name: object) -> str | None:
    """A title or an author out of a file's properties, unless it is a program's placeholder or a file name.

    >>> sensible("Annual report"), sensible("(anonymous)"), sensible("Microsoft Word - draft3.doc"), sensible("Untitled 1")
    ('Annual report', None, None, None)
    """
    text = " ".join(str(name or "").split())
    return None if _NO_TITLE.fullmatch(text) else text


def iso_date(text: object) -> str | None:
    """The text if it is a date in ISO 8601, else None: what is derived must be usable."""
    date = str(text).strip()
    return date if attempt(lambda: datetime.fromisoformat(date)) else None


def language(tag: object) -> str | None:
    """
    >>> language("en-US"), language("DE"), language("x-default"), language(None)
    ('en', 'de', None, None)
    """
    found = re.match(r"\s*([a-z]{2})\s*(?:[-_]|$)", str(tag or "").lower())
    return found[1] if found else None


def drop_missing(**values: object) -> dict[str, object]:
    """Only those that are there."""
    return {key: value for key, value in values.items() if value}


def table_lines(rows: Iterable[Row], header: bool | None = None) -> list[str]:
    """A table as lines; `header` says whether the first row names the columns, None lets the cells decide.

    >>> table_lines([["Fruit", "Price"], ["Apple", "1.99"], ["Pear", "", "ripe"]])
    ['Fruit: Apple; Price: 1.99', 'Fruit: Pear; column 3: ripe']
    """
    widths, full = _full_rows(rows)
    usual = max(map(len, full[:20]), default=0)
    first = 0
    while first + 1 < len(full) and header is None and len(full[first]) * 2 < usual:  # what stands above the table
        first += 1
    names: dict[int, str] = {}
    if first + 1 < len(full) and (_names_columns(full[first : first + 50]) if header is None else header):
        for place, column in enumerate(sorted(set().union(*full)), start=1):
            said = full[first].get(column, "").rstrip(": ")
            names[column] = said if column < widths[first] else f"column {place}"
    above, below = (full[:first], full[first + 1 :]) if names else (full, [])
    bare = (" | ".join(row.values()) for row in above)
    labelled = ("; ".join(f"{names[at]}: {cell}" if names[at] else cell for at, cell in row.items()) for row in below)
    return [*Tally("characters").count_texts(chain(bare, labelled))]


def _full_rows(rows: Iterable[Row]) -> tuple[list[int], list[dict[int, str]]]:
    """The rows that are not empty: how wide each is, and the cells in it that are not empty."""
    characters = Tally("characters")
    widths, full = [], []
    for row in rows:
        cells: dict[int, str] = {}
        for column, cell in row.items() if isinstance(row, Mapping) else enumerate(row):
            if text := " ".join(cell.split()):
                characters.add(len(text))
                cells[column] = text
        if cells:
            widths.append(max(row) + 1 if isinstance(row, Mapping) else len(row))
            full.append(cells)
    return widths, full


def _names_columns(rows: list[dict[int, str]]) -> bool:
    """Whether the first row is a header: not if it has a number, other than a year, above a column of numbers."""
    numbers = [at for at, name in rows[0].items() if _NUMBER.fullmatch(name) and not _YEAR.fullmatch(name)]
    columns = ([row[at] for row in rows[1:] if at in row] for at in numbers)
    return not any(below and all(map(_NUMBER.fullmatch, below)) for below in columns)


def group_lines(lines: Iterable[str], section: str | None = None) -> Iterator[Passage]:
    """Lines as atomic passages of up to `GROUP_WORDS` words; a longer line stands alone."""
    group: list[str] = []
    words = 0
    for line in lines:
        length = len(line.split())
        if group and words + length > GROUP_WORDS:
            yield Passage("\n".join(group), section, atomic=True)
            group, words = [], 0
        group.append(line)
        words += length
    if group:
        yield Passage("\n".join(group), section, atomic=True)


class Sections:
    """Gathers the blocks of a document under the headings they stand below.

    >>> book = Sections()
    >>> book.heading(1, "Returns"); book.text("Within 30 days."); book.heading(2, "Exceptions"); book.heading(1, "Hours")
    >>> [(passage.section, passage.text) for passage in book.passages()]
    [('Returns', 'Within 30 days.'), ('Returns', 'Exceptions'), (None, 'Hours')]
    """

    def __init__(self) -> None:
        self.first: str | None = None  # the first heading of the highest level
        self._path: list[tuple[int, str]] = []
        self._blocks: list[str] = []
        self._passages: list[Passage] = []
        self._count, self._characters = Tally("passages"), Tally("characters")
        self._bare = False  # nothing stands below the last heading, yet

    @property
    def _section(self) -> str | None:
        return " > ".join(title for _, title in self._path) or None

    def heading(self, level: int, title: str) -> None:
        if not (title := " ".join(title.split())):
            return
        self._close(level)
        if level == 1 and self.first is None:
            self.first = title
        self._path = [*(above for above in self._path if above[0] < level), (level, title)]
        self._bare = True

    def text(self, block: str) -> None:
        if block.strip():
            self._blocks.append(block.strip("\n"))
            self._bare = False

    def table(self, rows: Iterable[Row], header: bool | None = None) -> None:
        if lines := table_lines(rows, header):
            self._close()
            self._add(*group_lines(lines, self._section))
            self._bare = False

    def passages(self) -> tuple[Passage, ...]:
        self._close(0)
        return tuple(self._passages)

    def _close(self, level: int | None = None) -> None:
        """Ends the open passage; before a heading of `level`, a bare one that is not above it becomes text."""
        if self._blocks:
            self._add(Passage("\n\n".join(self._blocks), self._section))
            self._blocks = []
        if self._bare and level is not None and level <= self._path[-1][0]:
            *above, (_, title) = self._path
            self._add(Passage(title, " > ".join(name for _, name in above) or None))
            self._bare = False

    def _add(self, *passages: Passage) -> None:
        for passage in passages:
            self._count.add()
            self._characters.add(len(passage.text) + len(passage.section or ""))
            self._passages.append(passage)


def read_delimited_rows(stream: BinaryIO, shown: str, rules: tuple[RowsRule, ...]) -> Records:
    rows = ((number, dict(enumerate(row))) for number, row in enumerate(_parse_delimited(stream, shown), start=1))
    return table_records(rows, rules[0], shown)


@reads(".csv", ".tsv", becomes=ROWS_BECOME, rows=read_delimited_rows)
def read_delimited(stream: BinaryIO, shown: str) -> Iterator[Document]:
    yield Document("", tuple(group_lines(table_lines(_parse_delimited(stream, shown)))))


def _parse_delimited(stream: BinaryIO, shown: str) -> Iterator[list[str]]:
    text = decode(stream.read(), shown)
    first, _, rest = text.partition("\n")
    if first.lower().startswith("sep=") and len(first) == 5:
        text, delimiter = rest, first[4]
    else:
        delimiter = max(",;\t|", key=lambda candidate: _evenness(text[:_SAMPLE_CHARS], candidate))
    try:
        yield from _rows(text, delimiter)
    except csv.Error as error:
        raise UnreadableDocument(shown, f"not a table: {error}; is a quote left open?") from error


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)


def _evenness(text: str, delimiter: str) -> float:
    """The share of the first rows that have the usual number of columns, and more for more columns."""
    widths = Counter(attempt(lambda: [len(row) for row in islice(_rows(text, delimiter), 100) if row]))
    (width, count), *_ = widths.most_common(1) or [(1, 1)]
    return count / widths.total() + width / 1000 if width > 1 else 0.0
