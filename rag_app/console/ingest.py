"""`rag-app ingest`."""

import re
from pathlib import Path
from typing import Annotated

import typer

from rag_app.console.commands import Application, Index, Json, Org, group, on_application
from rag_app.console.printing import print_result, progress_bar, summary_json, summary_text
from rag_app.domain.errors import InvalidInput, NotFound

app = group()


@app.command()
@on_application
async def ingest(
    application: Application,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="files and folders")],
    index: Index,
    org: Org,
    site: Annotated[str | None, typer.Option(metavar="S", help="a site of the organization")] = None,
    source_type: Annotated[str | None, typer.Option(metavar="T", help="type of all of them")] = None,
    lang: Annotated[str | None, typer.Option(metavar="L", help="language of all of them; detected otherwise")] = None,
    meta: Annotated[list[str] | None, typer.Option(metavar="K=V", help="metadata of all of them; repeatable")] = None,
    owner: Annotated[str | None, typer.Option(metavar="U", help="the user they belong to: name or id")] = None,
    visibility: Annotated[
        str | None, typer.Option(metavar="user|team|global", help="who sees them; team by default")
    ] = None,
    base: Annotated[
        Path | None, typer.Option(metavar="DIR", help="sources are named by path from here; default: .")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read documents into an index.

    Safe to repeat: what has not changed costs nothing. Exit status 2 if some could not be read.
    """
    from rag_app.documents.documents import Document
    from rag_app.documents.metadata import to_source
    from rag_app.documents.readers import documents_below
    from rag_app.retrieval.index import find_index
    from rag_app.surfaces.library.asking import target_of

    metadata = _metadata(source_type, lang, meta or [])
    for path in paths:
        if not path.exists():
            raise NotFound("file or folder", str(path))
    spec = find_index(application.indexes, index)
    target = await target_of(application, org, site, owner, visibility, metadata)
    to_source(Document("nothing", ()), "nothing", "", spec, target)  # refuses bad metadata once, not for each file
    total = sum(1 for path in paths for _ in documents_below(path))
    ingestor = await application.ingestor(spec, target)
    with progress_bar(f"{spec.name}/{org}", total) as progress:
        summary = await ingestor.ingest(paths, base=base or Path.cwd(), progress=progress)
    print_result(as_json, summary_json(summary), summary_text(summary))
    if summary.failed:
        raise typer.Exit(2)


def _metadata(source_type: str | None, lang: str | None, pairs: list[str]) -> dict[str, object]:
    """Raises InvalidInput for what is no pair, and for what is no language."""
    given: dict[str, object] = {"source_type": source_type, "lang": lang}
    metadata = {key: value for key, value in given.items() if value is not None}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise InvalidInput("--meta", pair, f"{pair!r} is not `key=value`")
        metadata[key.strip()] = value.strip()
    if not re.fullmatch("[A-Za-z]{2,3}([-_].+)?", str(metadata.get("lang", "en"))):
        raise InvalidInput("lang", metadata["lang"], "must be the code of a language: en, fr or en-GB, say")
    return metadata
