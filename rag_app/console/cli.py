"""The `rag-app` command: which module has which command, and how errors end it. Only the module that is called is imported."""

import logging
import os
import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from rag_app.console.commands import fail

_COMMANDS = {
    "demo": "serving.app",
    "serve": "serving.app",
    "ingest": "sources.app",
    "search": "questions.app",
    "ask": "questions.app",
    "token": "access.app",
    "evaluate": "questions.app",
    "calibrate": "questions.app",
    "doctor": "database.app",
    "db": "database.db",
    "backup": "backup.app",
    "restore": "backup.app",
    "retention": "database.app",
    "sources": "sources.sources",
    "import": "bring.bring",
    "worker": "jobs.app",
    "indexes": "indexes.app",
    "orgs": "access.orgs",
    "groups": "groups.app",
    "users": "access.users",
    "plans": "access.plans",
    "keys": "access.keys",
    "grant": "access.app",
    "prompts": "database.prompts",
    "training": "access.training",
}
"""Command or group of commands -> the module that declares it, and what it is declared in there."""


class CommandLine(TyperGroup):
    """All commands, each imported when it is looked up."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        module, declared = _COMMANDS[cmd_name].split(".")
        group = get_group(getattr(import_module(f"rag_app.console.{module}"), declared))
        return group.commands.get(cmd_name, group)


def main() -> None:
    """Every error is one line on stderr and a non-zero status: 1, or 2 for a command line that is not understood."""
    debug = os.environ.get("RAG_LOG_LEVEL") == "debug"
    if not debug:  # what libraries have to say of a document, say, is nothing the reader can act on
        logging.basicConfig(handlers=[logging.NullHandler()])
        warnings.simplefilter("ignore")
    commands = CommandLine(
        commands=dict.fromkeys(_COMMANDS),  # type: ignore[arg-type]  # names alone
        help="Answer questions with verified citations, over content that only some people may see.",
        rich_markup_mode=None,
    )
    try:
        if sys.argv[1:] == ["--version"]:
            print(version("rag-app"))
            sys.exit(0)
        status = commands.main(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "rag-app"
        fail(f"{error.format_message().rstrip('.')}; see `{path} --help`", error.exit_code)
    except BrokenPipeError:  # `rag-app ... | head`: what is still buffered goes nowhere, and that is no news
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except Exception as error:
        from rag_app.domain.errors import RagError

        if isinstance(error, RagError | OSError):
            fail(str(error), 1)
        if debug:
            raise
        fail(f"{type(error).__name__}: {error} (this is a bug: please report it; RAG_LOG_LEVEL=debug shows more)", 1)
    sys.exit(status)
