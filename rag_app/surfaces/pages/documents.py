"""Pages that list, show and delete documents. Uploads use the public route from the browser."""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from uuid import UUID

from litestar.params import FromPath
from msgspec import Struct

from rag_app.http.surface import Caller, Injected
from rag_app.surfaces.pages.site import Html, action, page, query_value, redirect, render, uuid
from rag_app.surfaces.sources.service import SourceService
from rag_app.surfaces.sources.types import PassageInfo, SourceInfo

Span = tuple[int, int]

SORTS = {
    "-updated_at": "last changed",
    "title": "title",
    "-date": "date, newest first",
    "-size": "size, largest first",
}
STATES = {"ready": "ready", "writing": "being written"}
_LONGEST = 200_000  # characters of a text that a page shows, from the end of its passage
_NAME = re.compile(r"(?:^|; )([^:;|]{1,60}): ")
_CELLS = " | "
_DEEPEST = 6  # level of an HTML heading


@page("/documents")
async def documents(request: Caller, sources: Injected[SourceService]) -> Html:
    """A page of the caller's sources, filtered by a part of the name, index and state."""
    indexes = [spec.name for spec in sources.indexes(request.user)]
    index, state = query_value(request, "index", indexes), query_value(request, "state", STATES)
    search, sort = query_value(request, "search"), query_value(request, "sort", SORTS) or "-updated_at"
    asked = {"index": index, "search": search, "state": state, "sort": sort}
    search, cursor = search and search[:200], query_value(request, "cursor")
    writable = await sources.writable(request.user)
    organizations, names = {org_id for org_id, _ in writable}, {name for _, name in writable}
    found = await sources.page(request.user, index=index, search=search, sort=sort, cursor=cursor, state=state)
    mine = await sources.organizations(request.user)
    return render(
        request,
        "documents.html",
        found=found,
        tables=_fold_rows(found.sources),
        mine=mine,
        asked=asked,
        indexes=indexes,
        specs=sources.indexes(request.user),
        into=[name for name in indexes if name in names],
        organizations=[each for each in mine if each.id in organizations],
        groups=await sources.groups(request.user),
        sorts=SORTS,
        states=STATES,
    )


def _fold_rows(found: Sequence[SourceInfo]) -> list[list[SourceInfo]]:
    """The sources of a page; rows of one table are together, where the first of them is."""
    tables: dict[object, list[SourceInfo]] = {}
    for each in found:
        table = (each.organization, each.index, each.file_name, each.sheet) if each.row else each.id
        tables.setdefault(table, []).append(each)
    return [*tables.values()]


@page("/documents/{source_id:uuid}")
async def document(request: Caller, sources: Injected[SourceService], source_id: FromPath[UUID]) -> Html:
    """One source: its text, with the passage of `chunk` marked, and its chunks."""
    said = query_value(request, "chunk")
    shown, _ = await sources.get(request.user, str(source_id), None if said is None else uuid("chunk", said))
    found, place = await sources.text(request.user, str(source_id)), shown.passage
    mark = (place.start, place.end) if place and place.start is not None and place.end is not None else (0, 0)
    text = found.text[: mark[1] + _LONGEST]
    return render(
        request,
        "document.html",
        shown=shown,
        blocks=lay_out(text, [each for each in found.passages if each.start < len(text)], shown.title, mark),
        writable=(shown.organization, shown.index) in await sources.writable(request.user),
        chunks=await sources.chunks(request.user, str(source_id), -1, limit=100),
    )


@action("/documents/{source_id:uuid}/delete")
async def delete(request: Caller, sources: Injected[SourceService], source_id: FromPath[UUID]) -> Html:
    """Delete the source."""
    title = (await sources.get(request.user, str(source_id)))[0].title
    await sources.delete(request.user, str(source_id))
    return redirect(request, "/documents", f"Deleted: {title or source_id}")


# -- the text of a document as it is shown: with the headings of its sections, and its tables as tables
#
# Files are stored as passages of text. A heading is the section of a passage; rows of a table are lines of the same names
# ("Fruit: Apple; Price: 1.99"), or lines of as many cells ("Apple | 1.99").


class Block(Struct, frozen=True):
    """A heading of a `level`; a table with `names` of its columns, if they are known; or `pieces` of text.

    Each row and each piece comes with whether it is marked.
    """

    heading: str = ""
    level: int = 0
    names: Sequence[str] = ()
    rows: Sequence[tuple[Sequence[str], bool]] = ()
    pieces: Sequence[tuple[str, bool]] = ()


def lay_out(text: str, passages: Sequence[PassageInfo], title: str, mark: Span) -> list[Block]:
    """The blocks of a text, in which the characters of `mark` are marked. A heading that is the title is left out.

    >>> whole = "We sell fruit.\\n\\nFruit: Apple; Price: 1.99\\nFruit: Pear; Price: 2.50"
    >>> passages = [PassageInfo(0, 14, "Shop", None), PassageInfo(16, 67, "Shop > Prices", None)]
    >>> text, heading, table = lay_out(whole, passages, "Shop", (8, 13))
    >>> text.pieces, heading.heading, heading.level
    ((('We sell ', False), ('fruit', True), ('.', False)), 'Prices', 2)
    >>> table.names, table.rows
    (['Fruit', 'Price'], [(['Apple', '1.99'], False), (['Pear', '2.50'], False)])
    """
    blocks: list[Block] = []
    above: list[str] = []
    for passage in passages:
        path = (passage.section or "").split(" > ") if passage.section else []
        path = path[1:] if path[:1] == [title] else path
        new = [place for place in range(len(path)) if path[: place + 1] != above[: place + 1]]
        blocks += [Block(path[place], min(place + 2, _DEEPEST)) for place in new]
        start = passage.start
        if new and text.startswith(f"{path[-1]}\n", start):  # a PDF's text has its headings
            start += len(path[-1])
        above = path
        blocks += _lay_out_lines(text, start, passage.end, mark)
    return blocks


def _lay_out_lines(text: str, start: int, end: int, mark: Span) -> Iterator[Block]:
    """The tables among the lines of a passage, and the text between them."""
    lines = text[start:end].splitlines(keepends=True)
    place, written = 0, start
    at = start
    while place < len(lines):
        names, rows = _table_of([line.strip() for line in lines[place : place + 2]], lines, place)
        if len(rows) < 2:
            at += len(lines[place])
            place += 1
            continue
        yield from _lay_out_text(text, written, at, mark)
        marked = []
        for line in lines[place : place + len(rows)]:
            marked.append(at < mark[1] and mark[0] < at + len(line.rstrip()))
            at += len(line)
        place, written = place + len(rows), at
        heads = bool(names) or re.search(r"\d", "".join(rows[0])) is not None
        shown = [*zip(rows, marked, strict=True)]
        yield Block(names=names or ([] if heads else rows[0]), rows=shown if heads else shown[1:])
    yield from _lay_out_text(text, written, end, mark)


def _table_of(two: Sequence[str], lines: Sequence[str], place: int) -> tuple[list[str], list[list[str]]]:
    """The names of the columns and the rows of the table that begins with `two` lines; no rows if none does."""
    following = (lines[each].strip() for each in range(place, len(lines)))
    width = two[0].count(_CELLS)
    if width:
        same = takewhile(lambda line: line.count(_CELLS) == width, following)
        return [], [[cell.strip() for cell in line.split(_CELLS)] for line in same]
    names = [name for name in _NAME.findall(two[0]) if len(two) > 1 and name in _NAME.findall(two[1])]
    if len(names) < 2 or not two[0].startswith(f"{names[0]}: "):
        return [], []
    named = re.compile(rf"(?:^|; )({'|'.join(map(re.escape, names))}): ")
    cells = (named.split(line)[1:] for line in takewhile(named.match, following))
    pairs = (dict(zip(each[::2], each[1::2], strict=True)) for each in cells)
    return names, [[row.get(name, "") for name in names] for row in pairs]


def _lay_out_text(text: str, start: int, end: int, mark: Span) -> Iterator[Block]:
    """The text between two places, without the white space around it."""
    said = text[start:end]
    start, end = end - len(said.lstrip()), start + len(said.rstrip())
    if start < end:
        first, last = (min(max(each, start), end) for each in mark)
        pieces = ((text[start:first], False), (text[first:last], True), (text[last:end], False))
        yield Block(pieces=tuple(each for each in pieces if each[0]))
