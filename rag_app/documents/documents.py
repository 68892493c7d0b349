"""A reader's output: documents of titled passages, which do not belong to an organization yet."""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from rag_app.domain import UnreadableDocument

SIDECAR = ".meta.json"
"""Behind the name of a file: what people wrote about it."""


class Passage(Struct, frozen=True):
    """A piece of a document with its place in it.

    The splitter never joins two passages, and splits one that is too long. A heading is in `section`, not in `text`,
    unless it has nothing below it (a page of a PDF keeps its own): the embedded text should contain both.
    """

    text: str
    section: str | None = None  # the headings above it: "Returns > Exceptions"
    page: int | None = None  # 1-based: a page of a PDF, a slide
    atomic: bool = False  # rows of a table: text that should stay together if it fits


class Document(Struct, frozen=True):
    """The material of one source.

    `metadata` was written by a person (front matter, a JSON record, a sidecar file), raw and unvalidated. An index keeps
    undeclared keys of it without a type, but refuses those in `strict`, which come from a sidecar. `derived` comes from
    the format itself (author, date, lang, uri, source_type): an index takes only the keys and source types it declares,
    and `metadata` takes precedence.
    """

    name: str  # "" for the file itself; else what tells it from others in the same file: an id, "attachment.txt"
    passages: tuple[Passage, ...]
    title: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    derived: Mapping[str, object] = field(default_factory=dict)
    external_id: str | None = None  # where the document says its own id
    strict: tuple[str, ...] = ()  # keys of `metadata`
    row: int | None = None  # of a table, as a spreadsheet counts; of records, from 1
    sheet: str | None = None
    problems: tuple[str, ...] = ()  # what of a row could not be taken; the row is here


Documents = Iterator[Document | UnreadableDocument]
"""What a file gives, in its order; errors stand for the parts of it that cannot be read."""
