"""Plain text: one document, with sections where short lines stand alone between empty lines."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import BinaryIO

from rag_app.documents.documents import Document, Passage
from rag_app.documents.readers.formats import build_document, decode, front_matter, reads
from rag_app.documents.readers.shaping import Sections

_LONGEST = 60  # characters of a heading
_MOST_ABOVE = 2  # lines
_FEWEST = 2  # headings: a single short line may be anything
_HEADING = re.compile(rf"(?=.{{1,{_LONGEST}}}\Z)(?:\d{{1,3}}(?:\.\d+)*[.)]?[ \t]+)?[^\W\d_][^:|\t\n]*[^\W_.:;,?!…]\)?")


@reads(".txt", becomes="sections where short lines stand alone between empty lines; the encoding is detected")
def read_plain(stream: BinaryIO, shown: str) -> Iterator[Document]:
    """One or two short lines above all others are the title of a text that has sections."""
    metadata, text = front_matter(decode(stream.read(), shown), shown)
    paragraphs = [each for each in re.split(r"\n(?:[ \t]*\n)+", text.strip("\n")) if each.strip()]
    headings = _headings(paragraphs)
    if not headings:
        yield build_document(metadata, (Passage(text),), shown)
        return
    sections = Sections()
    for place, paragraph in enumerate(paragraphs):
        if place in headings:
            sections.heading(1, paragraph)
        else:
            sections.text(paragraph)
    above = [line.strip() for line in paragraphs[0].split("\n")] if 0 not in headings else []
    title = ": ".join(above) if len(above) <= _MOST_ABOVE and all(map(_HEADING.fullmatch, above)) else None
    yield build_document(metadata, sections.passages(), shown, title=title)


def _headings(paragraphs: list[str]) -> set[int]:
    """The places of short lines with a longer paragraph of another form below; none where they are few or nearly all.

    >>> _headings(["House rules", "Kitchen", "Wash your cup, please.", "1. Bicycles", "They stay in the yard at night."])
    {1, 3}
    >>> _headings(["Roses are red", "Violets are blue"]), _headings(["Dear Ada", "I am well.", "Yours, Ben"])
    (set(), set())
    """
    short = [
        "\n" not in each.strip()
        and each[:1].strip() != ""
        and each.strip()[0] == each.strip()[0].upper()
        and _HEADING.fullmatch(each.strip()) is not None
        for each in paragraphs
    ]
    found = {
        place
        for place, (one, below) in enumerate(pairwise(short))
        if one and not below and len(paragraphs[place + 1]) > len(paragraphs[place])
    }
    return found if len(found) >= _FEWEST and 3 * len(found) <= 2 * len(paragraphs) else set()
