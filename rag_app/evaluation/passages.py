"""Passages of a source that answer a query: judged once, found again after the source is cut into other chunks.

A span is `start <= character < end` in a source's content: its passages' texts, joined by a blank line.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from rag_app.domain.answer import Hit

Span = tuple[int, int]
Passages = Sequence[Mapping[str, Any]]
"""A source's content, as the ledger of sources keeps it."""
Judged = tuple[UUID, Span | None]
"""A source, and what of it answers; None: all of it."""

_BETWEEN = len("\n\n")


def locate(chunk: Hit, content: Passages) -> Span | None:
    """Where the chunk stands in its source's content; None where it does not (any more).

    Chunks are cut out of one passage each, white space at their ends aside. Of equal texts in one section the first
    is taken.

    >>> chunk = Hit(UUID(int=1), UUID(int=2), UUID(int=3), "We open at nine.", 0.5, "Hours", "doc", "en", 0)
    >>> locate(chunk, [{"text": "Hours."}, {"text": "Hello. We open at nine."}])
    (15, 31)
    """
    start = 0
    for passage in content:
        text = str(passage["text"])
        if (passage.get("section"), passage.get("page")) == (chunk.section, chunk.page):
            at = text.find(chunk.text)
            if at >= 0:
                return start + at, start + at + len(chunk.text)
        start += len(text) + _BETWEEN
    return None


def overlap(one: Span, other: Span) -> bool:
    """Whether they share at least half of the shorter one.

    >>> overlap((0, 100), (90, 110)), overlap((0, 100), (91, 111))
    (True, False)
    """
    shared = min(one[1], other[1]) - max(one[0], other[0])
    return 2 * shared >= min(one[1] - one[0], other[1] - other[0])
