"""What one file may cost its reader. The limits hold for a process, as those of the operating system do."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """`RAG_READ_...` in the settings, which say why; characters and passages are those of one document."""

    seconds: float = 120.0
    memory: int = 2048
    unpacked: int = 512
    characters: int = 20_000_000
    passages: int = 100_000
    pages: int = 5_000
    nesting: int = 300


CURRENT = Limits()
"""Of this process."""


class OverLimit(Exception):
    """A file costs more than it may. The message says which limit that is."""


class Tally:
    """Counts what a document takes of one limit, as it takes it: what is over is never held in memory.

    >>> pages = Tally("pages")
    >>> pages.add(5_000); pages.add(1)
    Traceback (most recent call last):
    rag_app.documents.limits.OverLimit: more than 5,000 pages (RAG_READ_PAGES)
    """

    def __init__(self, limit: str) -> None:
        self._limit, self._allowed, self._taken = limit, getattr(CURRENT, limit), 0

    def add(self, number: int = 1) -> None:
        """Raises OverLimit."""
        self._taken += number
        if self._taken > self._allowed:
            raise OverLimit(f"more than {self._allowed:,} {self._limit} (RAG_READ_{self._limit.upper()})")

    def count_texts(self, texts: Iterable[str]) -> Iterator[str]:
        """The same texts, each when its characters are counted."""
        for text in texts:
            self.add(len(text))
            yield text


def check_nesting(level: int) -> None:
    """Raises OverLimit for something that lies `level` deep in others."""
    if level > CURRENT.nesting:
        raise OverLimit(f"nested more than {CURRENT.nesting} deep (RAG_READ_NESTING)")
