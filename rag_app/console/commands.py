"""What the modules of commands share: a group, options that several take, and a command's work on the open application.

Each module declares its commands and says what they do. It imports what takes long inside of them, so that
`rag-app --help` does not wait for it.
"""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NoReturn, ParamSpec

import typer

from rag_app.domain.errors import InvalidInput

if TYPE_CHECKING:
    from rag_app.application import Application as Application  # noqa: PLC0414 - for the modules of commands
else:
    Application = Any  # takes seconds to import

P = ParamSpec("P")

Index = Annotated[str, typer.Option("--index", "-i", metavar="I", help="index: a folder of indexes/")]
Org = Annotated[str, typer.Option("--org", "-o", metavar="O", help="organization: slug or id")]
User = Annotated[str | None, typer.Option("--user", metavar="U", help="see what this user may see, too: name or id")]
Site = Annotated[str | None, typer.Option("--site", metavar="S", help="a site of the organization, and nothing else")]
Mode = Annotated[str, typer.Option("--mode", "-m", metavar="hybrid|dense|text", help="how to search")]
Json = Annotated[bool, typer.Option("--json", help="one JSON document on stdout, nothing else")]
OrgArgument = Annotated[str, typer.Argument(help="slug or id")]
UserArgument = Annotated[str, typer.Argument(help="name or id")]
Subject = Annotated[
    str | None, typer.Option(metavar="SUB", help="the `sub` of the user's tokens, if an identity provider issues them")
]
Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="instead of stdout; only its owner may read it")
]


def group(help_text: str | None = None) -> typer.Typer:
    """A group of commands, or a module's commands that belong to no group."""
    return typer.Typer(help=help_text, rich_markup_mode=None)


Work = Callable[Concatenate[Application, P], Coroutine[Any, Any, None]]


def on_application(work: Work[P]) -> Callable[P, None]:
    """A command that does this work on the started application. It takes the parameters of `work` but the first."""
    return _command(work, lambda application: application.start())


def on_unchecked_application(work: Work[P]) -> Callable[P, None]:
    """As `on_application`, but indexes need not fit the settings, and nothing is prepared: for what puts that right."""
    return _command(work, lambda application: application.database.check())


def on_closed_application(work: Work[P]) -> Callable[P, None]:
    """As `on_application`, but nothing has been asked of the database yet."""
    return _command(work, lambda application: asyncio.sleep(0))


def _command(work: Work[P], prepare: Callable[[Application], Awaitable[None]]) -> Callable[P, None]:
    def command(*args: P.args, **kwargs: P.kwargs) -> None:
        from rag_app.application import Application, database_urls
        from rag_app.settings import Settings

        settings = Settings()

        async def run() -> None:
            application = Application(settings, urls)
            try:
                await prepare(application)
                await work(application, *args, **kwargs)
            finally:
                await application.close()

        with database_urls(settings) as urls:
            asyncio.run(run())

    signature = inspect.signature(work)
    parameters = list(signature.parameters.values())[1:]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__name__, command.__doc__ = work.__name__, work.__doc__
    return command


def fail(problem: str, status: int) -> NoReturn:
    """End with one line on stderr."""
    print(f"error: {' '.join(problem.split())}", file=sys.stderr)
    sys.exit(status)


def number(field: str, said: str, other: str) -> int:
    """The number that was given where `other` could be, too. Raises InvalidInput for anything else."""
    if not (said.isascii() and said.isdigit() and len(said) < 20):
        raise InvalidInput(field, said, f"{said!r} is neither a number nor {other!r}")
    return int(said)
