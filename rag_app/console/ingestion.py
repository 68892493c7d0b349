"""`rag-app ingest`, `import` and `sources`: an operator sees all of one organization, private sources included."""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial, wraps
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, TextIO, cast
from uuid import UUID

from msgspec.structs import asdict, replace
from typer import Argument, BadParameter, Exit, Option

from rag_app.console.commands import (
    Application,
    Filter,
    Index,
    Json,
    Org,
    P,
    group,
    on_application,
    on_new_application,
    on_unchecked_application,
    read_settings,
)
from rag_app.console.printing import (
    day,
    escape_controls,
    print_list,
    print_result,
    progress_bar,
    progress_lines,
    render_text,
    source_json,
    summary_json,
    summary_text,
)
from rag_app.domain import InvalidInput, NotFound, RowsRule, Scope, Source, source_id, uuid_in

if TYPE_CHECKING:
    from llama_index.core.schema import BaseNode

    from rag_app.documents.reading import ReaderPool
    from rag_app.retrieval.index import IndexSpec

app = group()
sources = group("Manage ingested sources.")
bring = group("Import data of another application.")

OptionalIndex = Annotated[str | None, Option("--index", "-i", metavar="I", help="index: its name or an alias")]
OptionalOrg = Annotated[str | None, Option("--org", "-o", metavar="O", help="organization: slug or id")]
Lang = Annotated[
    str | None,
    Option(metavar="L", help="language of all documents of this call, as en or de; by default it is detected for each"),
]
SeenBy = Annotated[
    str | None, Option(metavar="V", help="who may see the documents: user, group, team or global; team by default")
]
SeenByGroups = Annotated[
    list[str] | None, Option("--group", metavar="G", help="a group that may see the documents; repeatable")
]
ExcludePatterns = Annotated[
    list[str] | None,
    Option(metavar="PATTERN", help="skip files and folders with this name or path: '*.tmp', drafts; repeatable"),
]
Rows = Annotated[
    bool, Option("--rows", help="make each row of a table a source, by the index's rule or the following options")
]
RowKey = Annotated[
    list[str] | None, Option(metavar="COL", help="a column of the key that identifies a row; repeatable")
]
RowDate = Annotated[
    list[str] | None, Option(metavar="COL", help="the column of a row's date; give it twice for date and time")
]
RowTitle = Annotated[str | None, Option(metavar="T", help="template of a row's title: 'Booking of {customer}'")]
RowText = Annotated[
    str | None,
    Option(
        metavar="T",
        help="template of a row's text, for example '{customer} on {date:%d %B}[, {note}]'; what is in brackets is left out where its column is empty",
    ),
]
Base = Annotated[Path | None, Option(metavar="DIR", help="external ids are paths relative to this folder; default: .")]
Prune = Annotated[bool, Option("--prune", help="delete the sources of files that are no longer in the folders")]


def propose_without_index(ingest: Callable[P, None]) -> Callable[P, None]:
    """`--rows --dry-run` without an index needs no database, and reads no index.toml: the one that it is redirected into is empty."""

    @wraps(ingest)
    def command(*args: P.args, **kwargs: P.kwargs) -> None:
        if kwargs["index"] is None and kwargs["rows"] and kwargs["dry_run"]:
            from rag_app.application import open_readers

            paths = cast("list[Path]", kwargs["paths"])
            _folders(paths, prune=False)
            with closing(open_readers(read_settings(), 1)) as readers:
                _print_proposals(readers, paths, cast("list[str]", kwargs["exclude"] or []), None, sys.stdout)
        elif missing := [f"--{name}" for name in ("index", "org") if kwargs[name] is None]:
            raise BadParameter(f"give {' and '.join(missing)}; only --rows --dry-run needs no index")
        else:
            ingest(*args, **kwargs)

    return command


@app.command()
@propose_without_index
@on_new_application
async def ingest(
    application: Application,
    paths: Annotated[list[Path], Argument(metavar="PATH...", help="files and folders")],
    index: OptionalIndex = None,
    org: OptionalOrg = None,
    site: Annotated[str | None, Option(metavar="S", help="a site of the organization")] = None,
    source_type: Annotated[str | None, Option(metavar="T", help="source type of all documents")] = None,
    lang: Lang = None,
    meta: Annotated[list[str] | None, Option(metavar="K=V", help="metadata of all documents; repeatable")] = None,
    owner: Annotated[str | None, Option(metavar="U", help="the user who owns the documents: name or id")] = None,
    visibility: SeenBy = None,
    groups: SeenByGroups = None,
    base: Base = None,
    exclude: ExcludePatterns = None,
    rows: Rows = False,
    row_key: RowKey = None,
    row_date: RowDate = None,
    row_title: RowTitle = None,
    row_text: RowText = None,
    prune: Prune = False,
    dry_run: Annotated[bool, Option("--dry-run", help="write nothing, only show what would be done")] = False,
    as_json: Json = False,
) -> None:
    """Ingest documents into an index.

    Safe to repeat: unchanged documents are skipped. Exit status 2 if some documents could not be read. With --rows
    --dry-run, prints an index.toml for the table; this needs no --index and no --org.
    """
    from rag_app.documents.documents import Document
    from rag_app.documents.ingest import Summary
    from rag_app.documents.metadata import to_source
    from rag_app.surfaces.library.rag import target_of

    metadata, folders = _metadata(source_type, lang, meta or []), _folders(paths, prune)
    spec, passed_over = application.index(str(index)), exclude or []
    target = await target_of(application, str(org), site, owner, visibility, metadata, groups or [])
    to_source(Document("nothing", ()), "nothing", "", spec, target)  # refuses bad metadata once, not for each file
    asked = RowsRule(key=tuple(row_key or ()), date=tuple(row_date or ()), title=row_title or "", text=row_text or "")
    rule = asked if rows or asked != RowsRule() else None
    ingestor, summary = await application.ingestor(spec, target), Summary()
    write = partial(ingestor.ingest, paths, base=base or Path.cwd(), exclude=passed_over, rows=rule, dry_run=dry_run)
    try:
        with progress_bar(f"{spec.name}/{org}", _count_files(paths, passed_over, spec)) as progress:
            await write(progress=progress, summary=summary)
    except asyncio.CancelledError:  # Ctrl-C
        if not dry_run:
            print(f"kept: {summary_text(summary)}; the same command ingests the rest", file=sys.stderr)
        raise
    if prune:
        for gone in await ingestor.prune(folders, summary=summary, dry_run=dry_run):
            print(f"gone: {escape_controls(gone)}", file=sys.stderr)
    told = f"would be: {summary_text(summary)}" if dry_run else summary_text(summary)
    if rows and dry_run and not as_json:  # stdout is an index.toml
        print(told, file=sys.stderr)
    else:
        print_result(as_json, summary_json(summary), told)
    if rows and dry_run:
        _print_proposals(application.readers, paths, passed_over, spec, sys.stderr if as_json else sys.stdout)
    if summary.failed:
        raise Exit(2)


def _count_files(paths: list[Path], exclude: list[str], spec: "IndexSpec") -> int:
    """How many files there are to ingest; warns of words of the index that clash, and of patterns that exclude nothing."""
    from rag_app.answering.records.clashes import find_clashes
    from rag_app.documents.ingest import find_unused_patterns, offered_files

    for clash in find_clashes(spec):
        print(f"{spec.name}: {clash.text}", file=sys.stderr)
    for pattern in find_unused_patterns(paths, exclude):
        print(f"--exclude {pattern}: matches no file and no folder, so it excludes nothing", file=sys.stderr)
    return sum(1 for _ in offered_files(paths, exclude))


def _print_proposals(
    readers: "ReaderPool", paths: list[Path], exclude: list[str], spec: "IndexSpec | None", file: TextIO
) -> None:
    """An index.toml for the first table, those of others as comments."""
    from rag_app.documents.proposals import propose

    proposals = [*propose(readers, paths, exclude, spec)]
    for place, proposal in enumerate(proposals):
        print(indent(f"\nAnother index.toml:\n{proposal}", "# ", bool) if place else proposal, file=file)
    if not proposals:
        print("nothing to propose: there is no table with rows that has no rule", file=sys.stderr)


def _folders(paths: list[Path], prune: bool) -> list[Path]:
    """Those of the paths that are folders. Raises NotFound for a path there is not, InvalidInput for a file to prune."""
    for path in paths:
        if not path.exists():
            raise NotFound("file or folder", str(path))
    folders = [path for path in paths if path.is_dir()]
    if prune and len(folders) < len(paths):
        raise InvalidInput("--prune", None, "can only be used with folders, not with single files")
    return folders


def _metadata(source_type: str | None, lang: str | None, pairs: list[str]) -> dict[str, object]:
    given: dict[str, object] = {"source_type": source_type, "lang": lang}
    metadata = {key: value for key, value in given.items() if value is not None}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise InvalidInput("--meta", pair, f"{pair!r} is not `key=value`")
        metadata[key.strip()] = value.strip()
    if not re.fullmatch("[A-Za-z]{2,3}([-_].+)?", str(metadata.get("lang", "en"))):
        raise InvalidInput("lang", metadata["lang"], "must be a language code, such as en, fr or en-GB")
    return metadata


@sources.command("list")
@on_unchecked_application
async def list_all(
    application: Application,
    index: Index,
    org: Org,
    search: Annotated[
        str | None, Option(metavar="TEXT", help="text to find in titles, external ids and file names")
    ] = None,
    source_type: Annotated[str | None, Option(metavar="T", help="only sources of this type")] = None,
    lang: Annotated[str | None, Option(metavar="L", help="only sources in this language")] = None,
    filters: Filter = None,
    user: Annotated[str | None, Option(metavar="U", help="only what this user may see: name or id")] = None,
    as_json: Json = False,
) -> None:
    """List the sources of an organization in an index."""
    spec, scope = await _index_and_scope(application, index, org)
    if user is not None:
        from rag_app.surfaces.library.rag import scope_of

        scope = replace(await scope_of(application, org, user), organizations=scope.organizations)
    if source_type is not None and source_type not in spec.source_types:
        raise InvalidInput("source_type", source_type, f"{source_type!r}; accepted: {', '.join(spec.source_types)}")
    wanted = await _ids_matching(application, scope, spec, filters) if filters else None
    found = [
        source
        async for source in application.ledger.list(scope, spec.name, operator=user is None)
        if source_type in (None, source.source_type)
        and lang in (None, source.lang)
        and _mentions(source, search)
        and (wanted is None or source.id in wanted)
    ]
    lines = (
        "\t".join(
            cell.replace("\t", "\\t")
            for cell in (each.external_id, each.source_type, each.lang, day(each.date) or "-", each.title)
        )
        for each in found
    )
    print_list(as_json, [source_json(each) for each in found], lines, "sources")


async def _ids_matching(
    application: Application, scope: Scope, spec: "IndexSpec", written: Sequence[str]
) -> Collection[UUID]:
    from rag_app.documents.catalogue import Catalogue, SourceSelection
    from rag_app.retrieval.filters import check_filters, parse_condition

    filters = check_filters(tuple(map(parse_condition, written)), spec)
    asked = SourceSelection((spec.name,), filters, organizations=scope.organizations)
    return {*await Catalogue(application.database).list_matching(scope, asked, operator=True)}


def _mentions(source: Source, text: str | None) -> bool:
    names = source.title, source.external_id, source.file_name or ""
    return text is None or any(text.casefold() in each.casefold() for each in names)


@sources.command()
@on_unchecked_application
async def show(
    application: Application,
    source: Annotated[str, Argument(help="id or external id")],
    index: Index,
    org: Org,
    as_json: Json = False,
) -> None:
    """Show the metadata and the text of a source."""
    spec, scope = await _index_and_scope(application, index, org)
    found = await _find_source(application, source, spec, scope)
    passages = await application.ledger.content(scope, found.id, operator=True)
    shown = {**source_json(found), "passages": passages}
    print_result(as_json, shown, render_text("source.txt", source=shown))


@sources.command()
@on_application
async def delete(
    application: Application,
    names: Annotated[
        list[str], Argument(metavar="SOURCE...", help="ids, external ids, or names of tables: all their rows")
    ],
    index: Index,
    org: Org,
) -> None:
    """Delete sources. Searches no longer find them."""
    from rag_app.documents.catalogue import Catalogue, SourceSelection
    from rag_app.documents.metadata import Target

    spec, scope = await _index_and_scope(application, index, org)
    asked = SourceSelection((spec.name,), organizations=scope.organizations)
    tables = await Catalogue(application.database).tables(scope, asked, names, operator=True)
    # all of them exist, or nothing is deleted
    wanted: set[UUID] = set()
    for name in names:
        if name in tables:
            wanted |= tables[name].rows
        with suppress(*[NotFound] if name in tables else []):
            wanted.add((await _find_source(application, name, spec, scope)).id)
    (org_id,) = scope.organizations
    await (await application.ingestor(spec, Target(org_id))).delete(wanted)
    print(f"{len(wanted)} deleted")


async def _index_and_scope(application: Application, index: str, org: str) -> tuple["IndexSpec", Scope]:
    return application.index(index), Scope(frozenset({(await application.people.organization(org)).id}))


async def _find_source(application: Application, name: str, spec: "IndexSpec", scope: Scope) -> Source:
    """By id or external id. Raises NotFound with the name as it was given."""
    (org_id,) = scope.organizations
    wanted = uuid_in(name) or source_id(org_id, spec.name, name)
    with suppress(NotFound):
        found = await application.ledger.get(scope, wanted, operator=True)
        if found.index == spec.name:
            return found
    raise NotFound(f"source of this organization in {spec.name}", name)


# -- what other applications have stored


@bring.command("llamaindex")
@on_new_application
async def from_llamaindex(
    application: Application,
    index: Index,
    org: Org,
    folder: Annotated[
        Path | None, Option(metavar="DIR", help="folder of a persisted storage context (docstore.json)")
    ] = None,
    table: Annotated[str | None, Option(metavar="T", help="table of a PGVectorStore (data_name)")] = None,
    collection: Annotated[str | None, Option(metavar="C", help="collection of a QdrantVectorStore")] = None,
    url_env: Annotated[
        str | None, Option("--url-env", metavar="NAME", help="the environment variable that holds the store's URL")
    ] = None,
    path: Annotated[Path | None, Option(metavar="DIR", help="folder of a local Qdrant, instead of a URL")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="write nothing, only show what would be done")] = False,
    as_json: Json = False,
) -> None:
    """Import the nodes of a LlamaIndex store.

    Each document becomes a source. Its vectors are kept if they were made with the index's embedding model, which is
    checked with samples; otherwise the texts are embedded again. Safe to repeat: unchanged documents are skipped. Exit
    status 2 if some documents could not be imported.
    """
    from rag_app.stores.bring import Bringing
    from rag_app.surfaces.library.rag import target_of

    spec = application.index(index)
    read = _reader(folder, table, collection, url_env, path)
    target = await target_of(application, org, None, None, None, {}, [])
    within = source_id(target.org_id, spec.name, "")
    bringing = Bringing(await application.node_writer(spec, target), application.embedder, within)
    with progress_lines(f"{spec.name}/{org}", "nodes") as step:
        await bringing.run(read, lambda brought: step(brought.nodes), dry_run=dry_run)
    said = "are" if bringing.same_model else "are not"
    text = f"{bringing.brought.summary()}\nthe store's vectors {said} those of {application.embedder.model_name}"
    told = {**asdict(bringing.brought), "same_model": bringing.same_model}
    print_result(as_json, told, f"would be:\n{text}" if dry_run else text)
    if bringing.brought.failed:
        raise Exit(2)


def _reader(
    folder: Path | None, table: str | None, collection: str | None, url_env: str | None, path: Path | None
) -> "Callable[[], Iterator[BaseNode]]":
    from rag_app.stores.bring import read_collection, read_folder, read_table

    if sum(each is not None for each in (folder, table, collection)) != 1:
        raise InvalidInput("import", None, "name one of --folder, --table and --collection")
    if folder is not None:
        return lambda: read_folder(folder)
    url = os.environ.get(url_env or "") if path is None or table is not None else None
    if url is None and (table is not None or path is None):
        raise InvalidInput("--url-env", url_env, "name the environment variable that holds the URL of the store")
    if table is not None:
        return lambda: read_table(str(url), table)
    from qdrant_client import QdrantClient

    client = QdrantClient(url=url) if url else QdrantClient(path=str(path), force_disable_check_same_thread=True)
    return lambda: read_collection(client, str(collection))
