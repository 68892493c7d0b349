"""`rag-app import`: what other applications have stored becomes sources of an organization."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from rag_app.console.commands import Application, Index, Json, Org, group, on_new_application
from rag_app.console.printing import print_result, stepping
from rag_app.domain import InvalidInput, source_id

if TYPE_CHECKING:
    from llama_index.core.schema import BaseNode

bring = group("Import data of another application.")


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
    with stepping(f"{spec.name}/{org}", "nodes") as step:
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
    """What reads the one store that is named."""
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
