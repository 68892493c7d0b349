"""The `rag-app` command: which module has which command, and how errors end it. Only the module that is called is imported."""

import atexit
import gc
import logging
import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from rag_app.console.commands import fail
from rag_app.console.lazy_packages import import_lazily

# Imports make some hundred thousand objects that stay. With Python's own 700 between two collections, looking for
# garbage among them takes a fifth of a command.
_OBJECTS_WHILE_STARTING = 1_000_000

_INTERRUPT_STATUS = 130  # what typer returns after Ctrl-C, and shells expect

# Command or group of commands -> the module that declares it, and what it is declared in there.
_COMMANDS = {
    "demo": "serving.app",
    "serve": "serving.app",
    "ingest": "ingestion.app",
    "search": "questions.app",
    "ask": "questions.app",
    "token": "users.app",
    "evaluate": "questions.app",
    "calibrate": "questions.app",
    "doctor": "doctor.app",
    "db": "database.db",
    "backup": "database.app",
    "restore": "database.app",
    "retention": "database.app",
    "sources": "ingestion.sources",
    "import": "ingestion.bring",
    "worker": "serving.app",
    "indexes": "indexes.app",
    "orgs": "orgs.orgs",
    "groups": "orgs.groups",
    "users": "users.users",
    "plans": "users.plans",
    "keys": "orgs.keys",
    "grant": "orgs.app",
    "prompts": "prompts.prompts",
    "training": "users.training",
}


class CommandLine(TyperGroup):
    """All commands, each imported when it is looked up."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        module, declared = _COMMANDS[cmd_name].split(".")
        group = get_group(getattr(import_module(f"rag_app.console.{module}"), declared))
        return group.commands.get(cmd_name, group)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version("rag-app"))
        raise typer.Exit


app = typer.Typer(cls=CommandLine, rich_markup_mode=None)


@app.callback()
def rag_app(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Answer questions with verified citations, over content that only some people may see."""


def main() -> None:
    """Every error is one line on stderr and a non-zero status: 1, or 2 for a command line that is not understood."""
    gc.set_threshold(_OBJECTS_WHILE_STARTING, *gc.get_threshold()[1:])  # until `keep_imports`
    import_lazily()
    # or pydantic looks for plugins in the metadata of each installed package
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    debug = os.environ.get("RAG_LOG_LEVEL") == "debug"
    if not debug:  # what libraries have to say of a document, say, is nothing the reader can act on
        logging.basicConfig(handlers=[logging.NullHandler()])
        warnings.simplefilter("ignore")
    try:
        status = get_command(app).main(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
        if status == _INTERRUPT_STATUS:
            print("interrupted", file=sys.stderr)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "rag-app"
        fail(f"{error.format_message().rstrip('.')}; see `{path} --help`", error.exit_code)
    except BrokenPipeError:  # `rag-app ... | head`: what is still buffered goes nowhere, and that is no news
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except Exception as error:
        from rag_app.domain.errors import NotFound, RagError

        if isinstance(error, NotFound) and error.kind == "user":
            fail(f"{error}; `rag-app users list` shows all users, `rag-app users create NAME` creates one", 1)
        if isinstance(error, RagError):
            fail(str(error), 1)
        if isinstance(error, OSError):  # without the number that Python puts in front
            fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error), 1)
        if debug:
            raise
        fail(f"{type(error).__name__}: {error} (this is a bug: please report it; RAG_LOG_LEVEL=debug shows more)", 1)
    sys.exit(status)


def run() -> NoReturn:
    """`rag-app`: `main`, then the process ends without freeing its objects, which takes a third of a short command's time.

    What was registered with `atexit` runs, as at every end. Nothing waits for threads: a command has ended its own.
    """
    status: object = None
    try:
        main()
    except SystemExit as end:
        status = end.code
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # nobody reads it any more
        sys.stdout.flush()
    os._exit(status if isinstance(status, int) else 0)
