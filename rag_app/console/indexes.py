"""`rag-app indexes`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from rag_app.console.commands import Application, Json, group, on_unchecked_application
from rag_app.console.printing import counting, date_text, moment, print_list, print_result, record
from rag_app.stores.registry import STORES

if TYPE_CHECKING:
    from rag_app.documents.generations import Generation
    from rag_app.documents.rebuild import Built
    from rag_app.surfaces.administration.indexing import Begin, Holding, Indexing, Moved, Outcome

app = group("Generations of an index: each is one build, with one embedding model; one of them answers.")

OneIndex = Annotated[str, typer.Argument(metavar="INDEX", help="a folder of indexes/")]
_GENERATION = "index=generation.index store=generation.store generation=generation.number state=generation.state"


@app.command("list")
@on_unchecked_application
async def list_all(application: Application, as_json: Json = False) -> None:
    """Every generation of every index: what it was built with, and what is in it."""
    found = await _indexing(application).holdings()
    print_list(as_json, [_holding_json(each) for each in found], map(_holding_text, found))


@app.command()
@on_unchecked_application
async def rebuild(
    application: Application,
    index: OneIndex,
    switch: Annotated[bool, typer.Option("--switch", help="let it answer as soon as it is complete")] = False,
    as_json: Json = False,
) -> None:
    """Build an index anew, beside the generation that answers.

    With the settings and index.toml as they are now, from what is stored: the files are not needed. Safe to repeat:
    the same command goes on where it was. Exit status 2 if a source could not be built.
    """
    with _building() as begin:
        outcome = await _indexing(application).rebuild(index, switch=switch, begin=begin)
    await _print_outcome(application, outcome, as_json)


@app.command()
@on_unchecked_application
async def switch(
    application: Application,
    index: OneIndex,
    number: Annotated[
        int | None, typer.Argument(metavar="NUMBER", min=1, help="as `indexes list` shows it; the newest by default")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let another generation answer, at once.

    Only one that holds every source as it is now. Without a number, the newest that has not answered yet.
    """
    await _print_outcome(application, await _indexing(application).switch(index, number), as_json)


@app.command()
@on_unchecked_application
async def rollback(
    application: Application,
    index: OneIndex,
    force: Annotated[
        bool, typer.Option("--force", help="at once, without the sources that came or changed since")
    ] = False,
    as_json: Json = False,
) -> None:
    """Let the generation before the present one answer again.

    What came or changed since is built in it first. Exit status 2 if a source could not be built.
    """
    with _building() as begin:
        outcome = await _indexing(application).roll_back(index, force=force, begin=begin)
    await _print_outcome(application, outcome, as_json)


@app.command()
@on_unchecked_application
async def drop(
    application: Application,
    index: OneIndex,
    number: Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="as `indexes list` shows it")],
) -> None:
    """Delete a generation that does not answer, with its chunks."""
    print(f"{_name(await _indexing(application).drop(index, number))} is dropped")


@app.command()
@on_unchecked_application
async def move(
    application: Application,
    index: OneIndex,
    to: Annotated[str, typer.Option("--to", metavar="|".join(STORES), help="the vector store to copy it to")],
    as_json: Json = False,
) -> None:
    """Copy an index to the other vector store; nothing is embedded again.

    Both sides are compared before the copy may answer, and RAG_VECTOR_STORE says whether it is asked. Safe to repeat:
    the same command goes on where it was, and brings over what has changed since. Exit status 2 if a source could not
    be copied, or differs.
    """
    indexing = _indexing(application)
    with _building() as begin:
        moved = await indexing.move(index, to, begin=begin)
    slugs = await indexing.organizations()
    print_result(as_json, _moved_json(moved, slugs), _moved_text(moved, slugs))
    if moved.built.failed or moved.differing:
        raise typer.Exit(2)


def _indexing(application: Application) -> "Indexing":
    from rag_app.surfaces.administration.indexing import Indexing

    return Indexing(application)


@contextmanager
def _building() -> "Iterator[Begin]":
    """A progress bar as soon as it is known of what."""
    with ExitStack() as bars:

        def begin(generation: "Generation", sources: int) -> "Callable[[Built], None]":
            count = bars.enter_context(counting(f"{generation.index}, generation {generation.number}", sources))
            return lambda built: count(built.sources + built.compared)

        yield begin


async def _print_outcome(application: Application, outcome: "Outcome", as_json: bool) -> None:
    """Exit status 2 if a source could not be built."""
    slugs = {each.id: each.slug for each in await application.people.organizations()}
    print_result(as_json, _outcome_json(outcome, slugs), _outcome_text(outcome, slugs))
    if outcome.built.failed:
        raise typer.Exit(2)


def _name(generation: "Generation") -> str:
    return f"generation {generation.number} of {generation.index} in {generation.store}"


def _holding_json(holding: "Holding") -> dict[str, Any]:
    built_with = "embedding_model=generation.embedding_model dimension=generation.dimension"
    generation = holding.generation
    return {
        **record(holding, f"{_GENERATION} {built_with}"),
        "chunking": generation.settings.get("chunking"),
        **record(holding, "sources chunks"),
        "created": moment(generation.created_at),
    }


def _holding_text(holding: "Holding") -> str:
    """One line: index, store, number, state, embedding model, chunking, what stands in it, and its day."""
    each = holding.generation
    cut = each.settings.get("chunking", {})
    return (
        f"{each.index}\t{each.store}\t{each.number}\t{each.state}\t{each.embedding_model} ({each.dimension})"
        f"\t{cut.get('size', '?')}/{cut.get('overlap', '?')} tokens\t{holding.sources} sources"
        f"\t{holding.chunks} chunks\tcreated {date_text(each.created_at)}"
    )


def _outcome_json(outcome: "Outcome | Moved", slugs: Mapping[UUID, str]) -> dict[str, Any]:
    failed = [
        {"organization": slugs.get(each.source.org_id), "source": each.source.external_id, "reason": each.reason}
        for each in outcome.built.failed
    ]
    return {**record(outcome, f"{_GENERATION} built=built.sources chunks=built.chunks lacking"), "failed": failed}


def _moved_json(moved: "Moved", slugs: Mapping[UUID, str]) -> dict[str, Any]:
    """As `_outcome_json`, with both sides of each organization that has sources; checksums are 32 hexadecimal digits."""
    sides = {moved.origin.store: "original", moved.generation.store: "copy"}
    compared = [
        {
            "organization": slugs.get(each.org_id),
            "sources": each.sources,
            "differing": each.differing,
            "chunks": {store: getattr(each, side).chunks for store, side in sides.items()},
            "checksums": {store: f"{getattr(each, side).checksum:032x}" for store, side in sides.items()},
            "embeddings_deviate_by": each.deviation,
        }
        for each in moved.compared
        if each.sources
    ]
    return {
        **_outcome_json(moved, slugs),
        "moved_from": {"store": moved.origin.store, "generation": moved.origin.number},
        "differing": moved.differing,
        "compared": compared,
        **record(moved, "setting others"),
    }


def _failed_lines(built: "Built", slugs: Mapping[UUID, str]) -> list[str]:
    return [f"  {slugs.get(each.source.org_id)}/{each.source.external_id}: {each.reason}" for each in built.failed]


def _outcome_text(outcome: "Outcome", slugs: Mapping[UUID, str]) -> str:
    """What was built, and what answers, in one line; then each failure with its reason, and what is still to be done."""
    each, built = outcome.generation, outcome.built
    done = f"{_name(each)} answers" if each.state == "active" else f"{_name(each)} is {each.state}"
    if built.sources or built.failed:
        done += f"; {built.sources} sources built, {built.chunks} chunks written"
    if outcome.lacking:
        done += f"; {outcome.lacking} sources are not in it"
    lines = [done]
    if built.failed:
        lines = [f"{done}; {len(built.failed)} could not be built:", *_failed_lines(built, slugs)]
    elif each.state == "building":
        lines.append(f"let it answer: `rag-app indexes switch {each.index}`")
    if outcome.misfit:
        lines.append(f"a server with these settings does not start on it: it {outcome.misfit}")
    return "\n".join(lines)


def _moved_text(moved: "Moved", slugs: Mapping[UUID, str]) -> str:
    """What was copied and compared, in one line; then what could not be copied or differs; what to set, in the last one."""
    copy, origin, built = moved.generation, moved.origin, moved.built
    name, original = _name(copy), f"generation {origin.number} in {origin.store}"
    copied = f"{built.sources} sources copied, {built.chunks} chunks written"
    again = f"`rag-app indexes move {copy.index} --to {copy.store}`"
    if built.failed:
        lines = [f"{name} is {copy.state}; {copied}; {len(built.failed)} could not be copied:"]
        lines += [*_failed_lines(built, slugs), f"nothing is switched; then again: {again}"]
        return "\n".join(lines)
    if moved.differing:
        lines = [f"{name} is not the same as {original}; {copied}; {moved.differing} sources differ:"]
        lines += [
            f"  {slugs.get(each.org_id)}: {each.differing} of {each.sources} sources; chunks: "
            f"{each.original.chunks} in {origin.store}, {each.copy.chunks} in {copy.store}"
            for each in moved.compared
            if each.differing
        ]
        return "\n".join([*lines, f"nothing is switched; {again} copies them anew"])
    chunks = sum(each.copy.chunks for each in moved.compared)
    lines = [f"{name} is the same as {original}: {chunks} chunks compared; {copied}"]
    if moved.setting is None:
        return "\n".join([*lines, f"the settings ask {copy.store} already"])
    if moved.others:
        others = ", ".join(moved.others)
        lines.append(f"{moved.setting} is for every index; not in {copy.store} as they are now: {others}")
    return "\n".join([*lines, f"let it answer: set {moved.setting}; what is ingested until then, {again} brings over"])
