"""CSV and TSV: rows as atomic passages of lines, with the header in each (see `shaping`).

The delimiter is the one of comma, semicolon, tab and pipe that gives the most even rows; a leading `sep=;` line is
obeyed. Rows may be longer or shorter than the header. Nothing is dropped but empty rows, columns and cells.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from rag_app.documents.documents import Document
from rag_app.documents.readers.formats import reads
from rag_app.documents.readers.shaping import ROWS_BECOME, grouped, table_lines
from rag_app.documents.readers.text import decode
from rag_app.domain.errors import UnreadableDocument


@reads(".csv", ".tsv", becomes=ROWS_BECOME)
def read_delimited(stream: BinaryIO, shown: str) -> Iterator[Document]:
    text = decode(stream.read(), shown)
    first, _, rest = text.partition("\n")
    if first.lower().startswith("sep=") and len(first) == 5:
        text, delimiter = rest, first[4]
    else:
        delimiter = max(",;\t|", key=lambda candidate: _evenness(text, candidate))
    try:
        rows = list(_rows(text, delimiter))
    except csv.Error as error:
        raise UnreadableDocument(shown, f"not a table: {error}; is a quote left open?") from error
    yield Document("", tuple(grouped(table_lines(rows))))


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)


def _evenness(text: str, delimiter: str) -> float:
    """The share of the first rows that have the usual number of columns, and more for more columns."""
    try:
        widths = Counter(len(row) for row in islice(_rows(text, delimiter), 100) if row)
    except csv.Error:
        return 0.0
    (width, count), *_ = widths.most_common(1) or [(1, 1)]
    return count / widths.total() + width / 1000 if width > 1 else 0.0
