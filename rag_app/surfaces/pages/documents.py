"""Pages that list, show and delete documents. Uploads use the public route from the browser."""

from collections.abc import Sequence
from uuid import UUID

from litestar.params import FromPath

from rag_app.http.surface import Caller, Injected
from rag_app.surfaces.pages.site import Html, action, page, query_value, redirect, render, uuid
from rag_app.surfaces.pages.texts import lay_out
from rag_app.surfaces.sources.service import SourceService
from rag_app.surfaces.sources.types import SourceInfo

SORTS = {
    "-updated_at": "last changed",
    "title": "title",
    "-date": "date, newest first",
    "-size": "size, largest first",
}
STATES = {"ready": "ready", "writing": "being written"}
_LONGEST = 200_000  # characters of a text that a page shows, from the end of its passage


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
