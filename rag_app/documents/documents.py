"""What a reader hands on: documents of titled passages, before they belong to an organization."""

from collections.abc import Mapping
from dataclasses import field

from rag_app.domain import frozen

SIDECAR = ".meta.json"
"""Behind the name of a file: what people wrote about it."""


@frozen
class Passage:
    """A piece of a document with its place in it.

    The splitter never joins two passages, and splits one that is too long. A heading is in `section`, not in `text`,
    unless it has nothing below it (a page of a PDF keeps its own): what is embedded should carry both.
    """

    text: str
    section: str | None = None  # the headings above it: "Returns > Exceptions"
    page: int | None = None  # 1-based: a page of a PDF, a slide
    atomic: bool = False  # rows of a table: text that should stay together if it fits


@frozen
class Document:
    """What one source is made from.

    `metadata` is what a person wrote (front matter, a JSON record, a sidecar file), raw and unvalidated: an index
    keeps a key of it that is not declared, without a type, and refuses it where it is one of `strict`: those that stand
    in a sidecar. `derived` is what the format says by itself (author, date, lang, uri, source_type): an index takes the
    keys it declares and leaves the others, as it does with a type it has not; a key of `metadata` wins.
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
