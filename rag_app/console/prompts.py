"""`rag-app prompts`: they need the database alone, not what is searched."""

import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rag_app.console.commands import Json, command_on, group
from rag_app.console.printing import print_list, print_result, record
from rag_app.domain.resources import resource_folder

if TYPE_CHECKING:
    from rag_app.answering.prompt_configs import PromptConfigs
    from rag_app.answering.prompts import PromptConfig
    from rag_app.application import DatabaseUrls
    from rag_app.settings import Settings

app = group("Versions of what models are told in conversations, and which are in use.")

Version = Annotated[str, typer.Argument(metavar="NAME", help="as `prompts list` shows it")]
_FIELDS = "name type is_active=active weight constraints"


@asynccontextmanager
async def _open_prompts(settings: "Settings", urls: "DatabaseUrls") -> "AsyncIterator[PromptConfigs]":
    """Those of a private database are there, though no server has prepared it."""
    from rag_app.answering.prompt_configs import PromptConfigs
    from rag_app.answering.prompts import released
    from rag_app.database.session import Database

    database = Database(urls.app, pool_size=1)
    try:
        await database.check()
        prompts = PromptConfigs(database)
        if urls.private:
            await prompts.seed(released(resource_folder("prompts")))
        yield prompts
    finally:
        await database.close()


@app.command("list")
@command_on(_open_prompts)
async def list_all(prompts: "PromptConfigs", as_json: Json = False) -> None:
    """All versions: for what, whether in use, weight, and the share of new threads that get it."""
    from rag_app.answering.prompts import shares

    found = await prompts.all()
    share = shares(found)
    records = [record(each, _FIELDS) | {"share": share[each.name]} for each in found]
    print_list(as_json, records, (_version_text(each, found) for each in found))


@app.command()
@command_on(_open_prompts)
async def show(prompts: "PromptConfigs", name: Version, as_json: Json = False) -> None:
    """One version, as a file that `prompts add` takes."""
    from rag_app.answering.prompts import as_toml

    found = await prompts.get(name)
    fields = f"{_FIELDS} system_instructions=instructions"
    print_result(as_json, record(found, fields), as_toml(found).removesuffix("\n"))


@app.command()
@command_on(_open_prompts)
async def add(
    prompts: "PromptConfigs",
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="its name is the version's: ask_lexybrain_...")],
) -> None:
    """Add a version.

    A version never changes: what is better has a new name. It is in use if the file says so, or after `prompts activate`.
    """
    from rag_app.answering.prompts import load_config

    config = load_config(file)
    await _change(prompts, prompts.add(config))


@app.command()
@command_on(_open_prompts)
async def activate(prompts: "PromptConfigs", name: Version) -> None:
    """Use a version, beside the others of its type that are in use."""
    await _change(prompts, prompts.set(name, active=True))


@app.command()
@command_on(_open_prompts)
async def deactivate(prompts: "PromptConfigs", name: Version) -> None:
    """Use a version no more, not even in threads that had it."""
    await _change(prompts, prompts.set(name, active=False))


@app.command()
@command_on(_open_prompts)
async def weigh(
    prompts: "PromptConfigs",
    name: Version,
    weight: Annotated[int, typer.Argument(metavar="W", min=0, max=1_000_000, help="0: no thread gets it")],
) -> None:
    """Set a version's share among those of its type that are in use.

    Threads keep the version they have while it is in use and weighs something.
    """
    await _change(prompts, prompts.set(name, weight=weight))


async def _change(prompts: "PromptConfigs", change: "Awaitable[PromptConfig]") -> None:
    """Print the changed version as `prompts list` does, and a note where nothing of its type is in use now."""
    from rag_app.answering.prompts import template_types

    changed, found = await change, await prompts.all()
    print(_version_text(changed, found))
    if not any(each.active and each.weight for each in found if each.type == changed.type):
        told = "models get the file's" if changed.type in template_types() else "models are told nothing of the kind"
        print(f"note: no version of {changed.type} is in use: {told}", file=sys.stderr)


def _version_text(config: "PromptConfig", configs: "list[PromptConfig]") -> str:
    from rag_app.answering.prompts import shares

    state = f"{shares(configs)[config.name]:.0%} of new threads" if config.active else "not in use"
    return f"{config.name}\t{config.type}\t{config.weight}\t{state}"
