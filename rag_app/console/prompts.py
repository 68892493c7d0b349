"""`rag-app prompts`: the versions of prompts, and which of them are used."""

import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from rag_app.console.commands import Application, Json, command_after, group
from rag_app.console.printing import print_list, print_result, record

if TYPE_CHECKING:
    from rag_app.answering.prompts import PromptConfig, PromptVersion

prompts = group("Manage prompt versions.")
Version = Annotated[str, Argument(metavar="NAME", help="the name of a version, as shown by `prompts list`")]
_FIELDS = "name type is_active=active weight constraints"


async def _check_and_seed(application: Application) -> None:
    """Prompts of a private database are there, though no server has prepared it."""
    await application.database.check()
    if application.urls.private:
        await application.seed_prompts()


_on_prompts = command_after(_check_and_seed)


@prompts.command("list")
@_on_prompts
async def list_all(application: Application, as_json: Json = False) -> None:
    """List all versions with their state and weight."""
    from rag_app.answering.prompts import shares

    found = await application.prompts.all()
    share = shares(found)
    records = [record(each, _FIELDS) | {"share": share[each.name]} for each in found]
    print_list(as_json, records, (_version_text(each, found) for each in found))


@prompts.command()
@_on_prompts
async def show(application: Application, name: Version, as_json: Json = False) -> None:
    """Print a version in the format that `prompts add` reads."""
    from rag_app.answering.prompts import as_toml

    found = await application.prompts.get(name)
    known = {**record(found, _FIELDS), "system_instructions": found.instructions}
    print_result(as_json, known, as_toml(found).removesuffix("\n"))


@prompts.command()
@_on_prompts
async def add(
    application: Application,
    file: Annotated[
        Path, Argument(metavar="FILE.toml", help="a file with the name of the version: ask_lexybrain_...toml")
    ],
) -> None:
    """Add a version.

    The text of a version never changes; to change a prompt, add a version with a new name. A version is used if its file
    says so, or after `prompts activate`.
    """
    from rag_app.answering.prompts import load_config

    await _change(application, application.prompts.publish(None, load_config(file)))


@prompts.command()
@_on_prompts
async def activate(application: Application, name: Version) -> None:
    """Activate a version. Other active versions of its type stay active."""
    await _change(application, application.prompts.change(None, name, active=True))


@prompts.command()
@_on_prompts
async def deactivate(application: Application, name: Version) -> None:
    """Deactivate a version, also for threads that use it."""
    await _change(application, application.prompts.change(None, name, active=False))


@prompts.command()
@_on_prompts
async def weigh(
    application: Application,
    name: Version,
    weight: Annotated[
        int, Argument(metavar="W", min=0, max=1_000_000, help="the weight; 0: no new thread gets this version")
    ],
) -> None:
    """Set the weight of a version.

    A thread keeps its version while that version is active and its weight is not 0.
    """
    await _change(application, application.prompts.change(None, name, weight=weight))


async def _change(application: Application, change: "Awaitable[PromptVersion]") -> None:
    from rag_app.answering.prompts import template_types

    changed, found = (await change).config, await application.prompts.all()
    print(_version_text(changed, found))
    if not any(each.active and each.weight for each in found if each.type == changed.type):
        told = "models get the file's" if changed.type in template_types() else "models are told nothing of the kind"
        print(f"note: no version of {changed.type} is in use: {told}", file=sys.stderr)


def _version_text(config: "PromptConfig", configs: "list[PromptConfig]") -> str:
    from rag_app.answering.prompts import shares

    state = f"{shares(configs)[config.name]:.0%} of new threads" if config.active else "not in use"
    return f"{config.name}\t{config.type}\t{config.weight}\t{state}"
