"""`rag-app sources`: an operator's commands see all of one organization, private sources included."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from rag_app.console.commands import Application, Index, Json, Org, group, on_application
from rag_app.console.printing import day, print_list, print_result, source_json
from rag_app.domain.errors import NotFound
from rag_app.domain.scope import Scope
from rag_app.domain.source import Source, source_id

if TYPE_CHECKING:
    from rag_app.retrieval.index import IndexSpec

app = group("What has been ingested.")


@app.command("list")
@on_application
async def list_all(application: Application, index: Index, org: Org, as_json: Json = False) -> None:
    """Every source an organization has in an index."""
    spec, scope = await _index_and_scope(application, index, org)
    found = [source async for source in application.ledger.list(scope, spec.name, operator=True)]
    lines = (
        f"{each.external_id}\t{each.source_type}\t{each.lang}\t{day(each.date) or '-'}\t{each.title}" for each in found
    )
    print_list(as_json, [source_json(each) for each in found], lines, "sources")


@app.command()
@on_application
async def show(
    application: Application,
    source: Annotated[str, typer.Argument(help="id or external id")],
    index: Index,
    org: Org,
    as_json: Json = False,
) -> None:
    """One source: what is known about it, and its text."""
    spec, scope = await _index_and_scope(application, index, org)
    found = await _find_source(application, source, spec, scope)
    passages = await application.ledger.content(scope, found.id, operator=True)
    known = source_json(found)
    lines = [f"{key}: {value}" for key, value in known.items() if value not in (None, "", {})]
    for passage in passages:
        where = ", ".join(str(part) for part in (passage["section"], passage["page"]) if part)
        lines += [f"\n[{where}]" if where else "", str(passage["text"])]
    print_result(as_json, {**known, "passages": passages}, "\n".join(lines))


@app.command()
@on_application
async def delete(
    application: Application,
    names: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="ids or external ids")],
    index: Index,
    org: Org,
) -> None:
    """Delete sources: they never answer again."""
    from rag_app.documents.metadata import Target

    spec, scope = await _index_and_scope(application, index, org)
    # all of them exist, or nothing is deleted
    wanted = {(await _find_source(application, name, spec, scope)).id for name in names}
    (org_id,) = scope.organizations
    await (await application.ingestor(spec, Target(org_id))).delete(wanted)
    print(f"{len(wanted)} deleted")


async def _index_and_scope(application: Application, index: str, org: str) -> tuple["IndexSpec", Scope]:
    from rag_app.retrieval.index import find_index

    spec = find_index(application.indexes, index)
    return spec, Scope(frozenset({(await application.people.organization(org)).id}))


async def _find_source(application: Application, name: str, spec: "IndexSpec", scope: Scope) -> Source:
    """By id or external id. Raises NotFound with the name as it was given."""
    (org_id,) = scope.organizations
    try:
        wanted = UUID(name)
    except ValueError:
        wanted = source_id(org_id, spec.name, name)
    try:
        found = await application.ledger.get(scope, wanted, operator=True)
    except NotFound:
        found = None
    if found is None or found.index != spec.name:
        raise NotFound(f"source of this organization in {spec.name}", name)
    return found
