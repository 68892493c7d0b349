"""What the modules of commands share: a group, options that several take, and a command's work on the open application.

Each module declares its commands and says what they do. It imports what takes long inside of them, so that
`rag-app --help` does not wait for it.
"""

import asyncio
import gc
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NoReturn, ParamSpec

from typer import Argument, Option, Typer

from rag_app.domain import InvalidInput

if TYPE_CHECKING:
    from rag_app.application import Application as Application  # noqa: PLC0414 - for the modules of commands
    from rag_app.database.urls import DatabaseUrls
    from rag_app.settings import Settings
else:
    Application = Any  # takes tenths of a second to import

P = ParamSpec("P")

Index = Annotated[str, Option("--index", "-i", metavar="I", help="index: its name or an alias")]
Org = Annotated[str, Option("--org", "-o", metavar="O", help="organization: slug or id")]
User = Annotated[str | None, Option("--user", metavar="U", help="also find what this user may see: name or id")]
Site = Annotated[str | None, Option("--site", metavar="S", help="only this site of the organization")]
Mode = Annotated[str, Option("--mode", "-m", metavar="hybrid|dense|text", help="search mode")]
Json = Annotated[bool, Option("--json", help="print one JSON document on stdout")]
Filter = Annotated[
    list[str] | None,
    Option(
        "--filter",
        "-f",
        metavar="F",
        help="e.g. lang=fr, 'date>=2026-01-01', 'source_type not in faq,doc', or MetadataFilters as JSON",
    ),
]
OrgArgument = Annotated[str, Argument(help="slug or id")]
UserArgument = Annotated[str, Argument(help="name or id")]
Subject = Annotated[
    str | None, Option(metavar="SUB", help="the `sub` claim of the user's tokens, if an identity provider issues them")
]
Output = Annotated[
    Path | None,
    Option("--output", metavar="FILE", help="write to this file instead of stdout; only its owner may read it"),
]
Requests = Annotated[
    str | None, Option("--requests", metavar="N|none", help="requests in any minute; none: the default limit applies")
]
AtOnce = Annotated[
    str | None, Option("--at-once", metavar="N|none", help="requests at the same time; none: the default limit applies")
]


def group(help_text: str | None = None) -> Typer:
    """A group of commands, or a module's commands that belong to no group."""
    return Typer(help=help_text, rich_markup_mode=None)


Prepare = Callable[[Application], Awaitable[None]]
Work = Callable[Concatenate[Application, P], Coroutine[Any, Any, None]]


def prepare_nothing(application: Application) -> Awaitable[None]:
    return asyncio.sleep(0)


def open_application(
    settings: "Settings", urls: "DatabaseUrls", prepare: Prepare = prepare_nothing
) -> AbstractAsyncContextManager[Application]:
    """The application, after `prepare`, by default as it is: nothing has been asked of the database yet."""
    from rag_app.application import open_application

    return open_application(settings, urls, prepare)


def read_settings() -> "Settings":
    """Those of this process. Raises Misconfigured where they cannot work."""
    from rag_app.settings import Settings

    return Settings()


def command_after(prepare: Prepare, creates: bool = False) -> Callable[[Work[P]], Callable[P, None]]:
    """Decorates what a command does with the application after `prepare`. The command takes its parameters but the first.

    Where there is no database yet, a command that `creates` begins one; others say where they looked.
    """

    def decorate(work: Work[P]) -> Callable[P, None]:
        def command(*args: P.args, **kwargs: P.kwargs) -> None:
            settings = read_settings()
            say_home(settings)
            from rag_app.database.urls import database_urls  # SQLAlchemy: a misspelt setting is told without it

            async def run() -> None:
                async with open_application(settings, urls, prepare) as application:
                    keep_imports()
                    await work(application, *args, **kwargs)

            with database_urls(settings, create=creates) as urls:
                asyncio.run(run())

        signature = inspect.signature(work)
        parameters = list(signature.parameters.values())[1:]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        command.__name__, command.__doc__ = work.__name__, work.__doc__
        return command

    return decorate


_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def keep_imports() -> None:
    """From here on garbage is looked for among new objects only, and at the usual pace: what is there now stays."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])


def say_home(settings: "Settings", say: Callable[[str], None] = lambda line: print(line, file=sys.stderr)) -> None:
    """On stderr, where the private PostgreSQL is, if nobody set it and it is not in this folder."""
    chosen = settings.database
    if chosen.url is None and "home" not in chosen.model_fields_set and chosen.home.parent != Path.cwd().resolve():
        say(f"data: {chosen.home}")


on_application = command_after(lambda application: application.start())
"""A command's work on the started application."""
on_new_application = command_after(lambda application: application.start(), creates=True)
"""As `on_application`, for what one may begin with."""

on_unchecked_application = command_after(lambda application: application.database.check())
"""As `on_application`, but only the database is checked: for what needs no index, and for what puts one right."""


async def _prepare_new(application: Application) -> None:
    await application.database.check()
    if application.urls.private:
        await application.build_missing()


on_new_unchecked_application = command_after(_prepare_new, creates=True)
"""As `on_unchecked_application`, for what one may begin with; a private database gets its indexes."""

on_closed_application = command_after(prepare_nothing)
"""As `on_application`, but nothing has been asked of the database yet."""


def fail(problem: str, status: int) -> NoReturn:
    """End with one line on stderr."""
    print(f"error: {' '.join(problem.split())}", file=sys.stderr)
    sys.exit(status)


def number(field: str, said: str, other: str) -> int:
    """The number that was given where `other` could be, too. Raises InvalidInput for anything else."""
    if not (said.isascii() and said.isdigit() and len(said) < 20):
        raise InvalidInput(field, said, f"{said!r} is neither a number nor {other!r}")
    return int(said)


def read_limits(requests: str | None, at_once: str | None) -> dict[str, int | None]:
    """The limits that were given. Raises InvalidInput if there are none."""
    given = {"requests_per_minute": requests, "concurrent_requests": at_once}
    if requests is None and at_once is None:
        raise InvalidInput("--requests", None, "give --requests, --at-once or both")
    return {
        name: None if said == "none" else number(name, said, "none") for name, said in given.items() if said is not None
    }
