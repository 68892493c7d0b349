"""PDF: a passage per page, with the page's number, and per bookmark whose title stands on the page.

The text is read as it lies on the page, so that the cells of a table stay in their row: "a | b | c". A page in columns
of running text is read column by column instead. Wrapped lines are joined, hyphenated words too; blank lines and short
lines stay. Bookmarks are the sections. Derived: author, creation date, language; the title unless it is a placeholder.
Pages without text are left out: pictures are not read. A file that opens without a password is not encrypted to its
reader, whatever its owner forbids.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import PurePath
from statistics import median
from typing import Any, BinaryIO

from pypdf import PageObject, PdfReader
from pypdf.errors import PdfReadError

from rag_app.documents.documents import Document, Documents, Passage
from rag_app.documents.limits import Tally
from rag_app.documents.readers.formats import attempt, check_output, reads
from rag_app.documents.readers.shaping import drop_missing, language, sensible
from rag_app.domain import UnreadableDocument

_GAP = re.compile(r"(?<=\S) {3,}(?=\S)")
_MARK = r"(?:[-•◦▪●○*–]|\(?(?:\d{1,3}|[a-zA-Z])[.)])"
_BULLET = re.compile(rf"{_MARK}\s")
_BULLET_GAP = re.compile(rf"^([^\S\n]*{_MARK}) +", re.MULTILINE)
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"})
_TITLE_CHARS = 200  # characters of a bookmark's title, and
_HEADINGS = 100  # bookmarks of a page, that are looked for on it: what the search costs has a bound
_COLUMN_CHARS = 25  # characters: cells as long as this on both sides of a gap are columns of prose, not a table


@reads(".pdf", becomes="pages with their numbers; a scan without a text layer is refused")
def read_pdf(stream: BinaryIO, shown: str) -> Documents:
    try:
        reader = PdfReader(stream)
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableDocument(shown, "encrypted: a password is needed")
        pages = reader.pages
        Tally("pages").add(len(pages))
    except NotImplementedError as error:  # by a certificate, for one
        raise UnreadableDocument(shown, f"encrypted: {error}") from error
    except PdfReadError as error:
        raise UnreadableDocument(shown, f"truncated or corrupt PDF: {error}") from error
    texts, characters = [], Tally("characters")
    for page in pages:
        texts.append(attempt(partial(page_text, page)))
        characters.add(len(texts[-1] or ""))
    if broken := [number for number, text in enumerate(texts, start=1) if text is None]:
        problem = UnreadableDocument(shown, f"corrupt: pages that cannot be read: {', '.join(map(str, broken))}")
        if not any(texts):
            raise problem
        yield problem
    if not any(texts):
        raise UnreadableDocument(shown, f"no text layer: {len(pages)} pages of pictures; run OCR on it first")
    bookmarks = attempt(lambda: sorted(_bookmarks(reader, reader.outline), key=itemgetter(0)))
    said: Any = attempt(lambda: reader.metadata)
    title = sensible(attempt(lambda: said.title))
    yield Document(
        "",
        tuple(check_output(_in_sections(texts, bookmarks or []))),
        None if title == PurePath(shown).stem else title,
        derived=drop_missing(
            author=sensible(attempt(lambda: said.author)),
            date=attempt(lambda: str(said.creation_date.isoformat())),
            lang=language(attempt(lambda: reader.root_object.get("/Lang"))),
        ),
    )


def page_text(page: PageObject) -> str:
    plain = str(page.extract_text())
    laid_out = attempt(lambda: str(page.extract_text(extraction_mode="layout", layout_mode_strip_rotated=False)))
    laid_out = _BULLET_GAP.sub(r"\1 ", laid_out or "")
    rows = [_GAP.split(line.strip()) for line in laid_out.splitlines()]
    shortest = [min(map(len, row)) for row in rows if len(row) > 1]
    in_columns = bool(shortest) and median(shortest) > _COLUMN_CHARS
    lost = len(laid_out.split()) < 0.9 * len(plain.split())  # words that run together, or rotated away
    return _unwrap_lines(plain if in_columns or lost else laid_out)


def _unwrap_lines(text: str) -> str:
    """Lines as sentences and records: a line goes on in the next if it is as long as the page's lines are.

    Behind the end of a sentence a short line without one is a heading, not the end of a paragraph.
    """
    lines = [" ".join(_GAP.sub(" | ", line.strip()).split()) for line in text.translate(_LIGATURES).splitlines()]
    lengths = sorted(len(line) for line in lines if line and " | " not in line)
    full = max(0.75 * lengths[int(0.9 * (len(lengths) - 1))], 40) if lengths else 0
    pieces: list[str] = []
    wraps = in_table = False
    blank = 0
    for line in lines:
        if not line:
            blank += 1
            wraps = False
            continue
        row = " | " in line
        if wraps and not row and not _BULLET.match(line) and not (len(line) < full and _heads(line, pieces[-1])):
            if re.fullmatch(r"[^\W\d_]-", pieces[-1][-2:]) and line[0].islower():
                pieces[-1] = pieces[-1][:-1]
            else:
                pieces.append(" ")
        else:
            pieces.append("\n" if in_table and row else "\n" * min(blank + 1, 2))  # no blank lines within a table
        pieces.append(line)
        wraps, in_table, blank = len(line) >= full and not row, row, 0
    return "".join(pieces).strip()


def _heads(line: str, before: str) -> bool:
    ended, ends = (text.rstrip("\"'”’)]").endswith((".", "!", "?", "…")) for text in (before, line))
    return ended and not ends and not line[0].islower() and ". " not in line


def _bookmarks(
    reader: PdfReader, entries: Sequence[Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Where they point: page number and heading path."""
    path = above
    for entry in entries:
        if isinstance(entry, list):
            yield from _bookmarks(reader, entry, path)
            continue
        path = (*above, " ".join(str(entry.title).split()))
        page = attempt(partial(reader.get_destination_page_number, entry))
        if page is not None and page >= 0:
            yield page + 1, path


def _in_sections(texts: Sequence[str | None], bookmarks: list[tuple[int, tuple[str, ...]]]) -> Iterator[Passage]:
    """The pages, cut where a bookmark's title stands in a line of its own; one that is not found begins with the page."""
    section = None
    on_page = {number: [path for _, path in paths] for number, paths in groupby(bookmarks, itemgetter(0))}
    for number, text in enumerate(texts, start=1):
        rest = text or ""
        for place, path in enumerate(on_page.get(number, [])):
            title = r"\s+".join(map(re.escape, path[-1][:_TITLE_CHARS].split()))
            sought = title and place < _HEADINGS
            if sought and (heading := re.search(rf"^{title}\s*$", rest, re.MULTILINE | re.IGNORECASE)):
                yield Passage(rest[: heading.start()], section, page=number)
                rest = rest[heading.start() :]
            section = " > ".join(path)
        yield Passage(rest, section, page=number)
