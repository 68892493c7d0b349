"""The application without limits of requests a minute, for processes that a test starts:
`granian --interface asgi --factory tests.integration.unlimited:create_app`, or the whole command,
`python -m tests.integration.unlimited serve --workers 4`."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rag_app.application import create_app as limited
from rag_app.console.cli import main
from rag_app.surfaces import registry

if TYPE_CHECKING:
    from litestar import Litestar


def lift() -> None:
    """What counts requests is the subject of other tests; here it would hide what is counted by plans."""
    registry.SURFACES = tuple(replace(each, limit=None, concurrent=None, windows={}) for each in registry.SURFACES)


def create_app() -> "Litestar":
    lift()
    return limited()


if __name__ == "__main__":
    lift()  # for the workers, too: they are forks of this process
    main()
