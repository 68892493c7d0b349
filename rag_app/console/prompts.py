"""`rag-app prompts`: they need the database alone, not what is searched."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rag_app.console.commands import Application, Json, group, on_unchecked_application
from rag_app.console.printing import print_list, print_result, record

if TYPE_CHECKING:
    from rag_app.answering.prompt_configs import PromptConfigs
    from rag_app.answering.roles import PromptConfig

app = group("Versions of what models are told in conversations, and which are in use.")

Version = Annotated[str, typer.Argument(metavar="NAME", help="as `prompts list` shows it")]
_FIELDS = "name type is_active=active weight constraints"


@app.command("list")
@on_unchecked_application
async def list_all(application: Application, as_json: Json = False) -> None:
    """All versions: for what, whether in use, weight, and the share of new threads that get it."""
    from rag_app.answering.roles import shares

    found = await (await _prompts(application)).all()
    share = shares(found)
    records = [record(each, _FIELDS) | {"share": share[each.name]} for each in found]
    print_list(as_json, records, (_version_text(each, found) for each in found))


@app.command()
@on_unchecked_application
async def show(application: Application, name: Version, as_json: Json = False) -> None:
    """One version, as a file that `prompts add` takes."""
    from rag_app.answering.roles import as_toml

    found = await (await _prompts(application)).get(name)
    fields = f"{_FIELDS} system_instructions=instructions"
    print_result(as_json, record(found, fields), as_toml(found).removesuffix("\n"))


@app.command()
@on_unchecked_application
async def add(
    application: Application,
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="its name is the version's: ask_lexybrain_...")],
) -> None:
    """Add a version.

    A version never changes: what is better has a new name. It is in use if the file says so, or after `prompts activate`.
    """
    from rag_app.answering.roles import load_config

    config = load_config(file)
    await _change(application, lambda prompts: prompts.add(config))


@app.command()
@on_unchecked_application
async def activate(application: Application, name: Version) -> None:
    """Use a version, beside the others of its type that are in use."""
    await _change(application, lambda prompts: prompts.activate(name))


@app.command()
@on_unchecked_application
async def deactivate(application: Application, name: Version) -> None:
    """Use a version no more, not even in threads that had it."""
    await _change(application, lambda prompts: prompts.deactivate(name))


@app.command()
@on_unchecked_application
async def weigh(
    application: Application,
    name: Version,
    weight: Annotated[int, typer.Argument(metavar="W", min=0, max=1_000_000, help="0: no thread gets it")],
) -> None:
    """Set a version's share among those of its type that are in use.

    Threads keep the version they have while it is in use and weighs something.
    """
    await _change(application, lambda prompts: prompts.weigh(name, weight))


async def _prompts(application: Application) -> "PromptConfigs":
    """Those of a private database are there, though no server has prepared it."""
    if application.urls.private:
        await application.seed_prompts()
    return application.prompts


async def _change(application: Application, change: "Callable[[PromptConfigs], Awaitable[PromptConfig]]") -> None:
    """Print the changed version as `prompts list` does, and a note where nothing of its type is in use now."""
    prompts = await _prompts(application)
    changed, found = await change(prompts), await prompts.all()
    print(_version_text(changed, found))
    if not any(each.active and each.weight for each in found if each.type == changed.type):
        print(f"note: no version of {changed.type} is in use: models are told nothing of the kind", file=sys.stderr)


def _version_text(config: "PromptConfig", configs: "list[PromptConfig]") -> str:
    from rag_app.answering.roles import shares

    state = f"{shares(configs)[config.name]:.0%} of new threads" if config.active else "not in use"
    return f"{config.name}\t{config.type}\t{config.weight}\t{state}"
