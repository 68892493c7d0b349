"""`rag-app indexes`."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from typer import Argument, Exit, Option

from rag_app.console.commands import Application, Json, group, on_unchecked_application
from rag_app.console.printing import moment, print_list, print_result, progress_counter, record, render_text
from rag_app.domain import JsonObject
from rag_app.stores.registry import STORES

if TYPE_CHECKING:
    from rag_app.documents.generations import Generation
    from rag_app.documents.rebuild import RebuildResult
    from rag_app.surfaces.administration.indexing import Indexing, Outcome

app = group("Manage the generations of an index. A generation is one build of an index with one embedding model.")

OneIndex = Annotated[str, Argument(metavar="INDEX", help="the name of an index")]
_GENERATION = "index=generation.index store=generation.store generation=generation.number state=generation.state"
_HOLDING_LINE = (
    "{index}\t{store}\t{generation}\t{state}\t{embedding_model} ({dimension})\t{chunking[size]}/{chunking[overlap]} tokens"
    "\t{sources} sources\t{chunks} chunks\tcreated {created:.10}"
)


@app.command("list")
@on_unchecked_application
async def list_all(application: Application, as_json: Json = False) -> None:
    """List all generations with their embedding model and contents."""
    found = [
        {
            **record(each, _GENERATION),
            **record(each.generation, "embedding_model dimension"),
            "chunking": each.generation.settings.get("chunking"),
            **record(each, "sources chunks"),
            "created": moment(each.generation.created_at),
        }
        for each in await _indexing_of(application).read_contents()
    ]
    unknown = {"size": "?", "overlap": "?"}
    shown = ({**each, "chunking": unknown | (each["chunking"] or {})} for each in found)
    print_list(as_json, found, map(_HOLDING_LINE.format_map, shown))


@app.command()
@on_unchecked_application
async def rebuild(
    application: Application,
    index: OneIndex,
    switch: Annotated[bool, Option("--switch", help="switch to the new generation as soon as it is complete")] = False,
    as_json: Json = False,
) -> None:
    """Build a new generation of an index. The active one stays in use.

    Uses the current settings and index.toml, and the stored texts; the original files are not needed. Safe to repeat: an
    interrupted rebuild continues. Exit status 2 if a source could not be built.
    """
    with ExitStack() as bars:
        outcome = await _indexing_of(application).rebuild(index, switch=switch, begin=partial(_open_bar, bars))
    await _print_outcome(application, outcome, as_json)


@app.command()
@on_unchecked_application
async def switch(
    application: Application,
    index: OneIndex,
    number: Annotated[
        int | None, Argument(metavar="NUMBER", min=1, help="number shown by `indexes list`; the newest by default")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make another generation the active one, at once.

    The generation must contain the current version of every source. Without a number, switches to the newest generation
    that has not been active yet.
    """
    await _print_outcome(application, await _indexing_of(application).switch(index, number), as_json)


@app.command()
@on_unchecked_application
async def rollback(
    application: Application,
    index: OneIndex,
    force: Annotated[
        bool, Option("--force", help="switch at once, without the sources that were added or changed since")
    ] = False,
    as_json: Json = False,
) -> None:
    """Switch back to the previous generation.

    Sources that were added or changed since then are built in it first. Exit status 2 if a source could not be built.
    """
    with ExitStack() as bars:
        outcome = await _indexing_of(application).roll_back(index, force=force, begin=partial(_open_bar, bars))
    await _print_outcome(application, outcome, as_json)


@app.command()
@on_unchecked_application
async def drop(
    application: Application,
    index: OneIndex,
    number: Annotated[int, Argument(metavar="NUMBER", min=1, help="number shown by `indexes list`")],
) -> None:
    """Delete an inactive generation and its chunks."""
    dropped = await _indexing_of(application).drop(index, number)
    print(f"generation {dropped.number} of {dropped.index} in {dropped.store} is dropped")


@app.command()
@on_unchecked_application
async def move(
    application: Application,
    index: OneIndex,
    to: Annotated[str, Option("--to", metavar="STORE", help=f"the target vector store: {', '.join(STORES)}")],
    as_json: Json = False,
) -> None:
    """Copy an index to another vector store. Nothing is embedded again.

    The copy is compared with the original before it can be used. To use it, set RAG_VECTOR_STORE. Safe to repeat: an
    interrupted copy continues, and later changes are copied. Exit status 2 if a source could not be copied or differs.
    """
    indexing = _indexing_of(application)
    with ExitStack() as bars:
        moved = await indexing.move(index, to, begin=partial(_open_bar, bars))
    slugs = await indexing.organizations()
    sides = {moved.origin.store: "original", moved.generation.store: "copy"}
    compared = [
        {
            "organization": slugs.get(each.org_id),
            **record(each, "sources differing"),
            "chunks": {store: getattr(each, side).chunks for store, side in sides.items()},
            "checksums": {store: f"{getattr(each, side).checksum:032x}" for store, side in sides.items()},
            "embeddings_deviate_by": each.deviation,
        }
        for each in moved.compared
        if each.sources
    ]
    shown = {
        **_outcome_json(moved, slugs),
        "moved_from": record(moved.origin, "store generation=number"),
        "differing": moved.differing_sources,
        "compared": compared,
        **record(moved, "setting others"),
    }
    print_result(as_json, shown, render_text("moved.txt", **shown))
    if moved.built.failed or moved.differing_sources:
        raise Exit(2)


def _indexing_of(application: Application) -> "Indexing":
    from rag_app.surfaces.administration.indexing import Indexing

    return Indexing(application)


def _open_bar(bars: ExitStack, generation: "Generation", sources: int) -> "Callable[[RebuildResult], None]":
    count = bars.enter_context(progress_counter(f"{generation.index}, generation {generation.number}", sources))
    return lambda built: count(built.sources + built.compared)


async def _print_outcome(application: Application, outcome: "Outcome", as_json: bool) -> None:
    """Exit status 2 if a source could not be built."""
    slugs = await _indexing_of(application).organizations()
    lost = sorted(slugs[each] for each in await application.calibrations.list_lost(outcome.generation, slugs))
    shown = {**_outcome_json(outcome, slugs), "calibrations_lost": lost}
    print_result(as_json, shown, render_text("outcome.txt", **shown, misfit=outcome.misfit))
    if outcome.built.failed:
        raise Exit(2)


def _outcome_json(outcome: "Outcome", slugs: Mapping[UUID, str]) -> JsonObject:
    failed = [
        {"organization": slugs.get(each.source.org_id), "source": each.source.external_id, "reason": each.reason}
        for each in outcome.built.failed
    ]
    return {**record(outcome, f"{_GENERATION} built=built.sources chunks=built.chunks lacking"), "failed": failed}
