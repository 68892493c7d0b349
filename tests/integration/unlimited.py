"""The application without limits of requests a minute, for processes that a test starts:
`granian --interface asgi --factory tests.integration.unlimited:create_app`."""

from dataclasses import replace
from typing import TYPE_CHECKING

from rag_app.api import server
from rag_app.api.surfaces import SURFACES
from rag_app.app import create_app as limited

if TYPE_CHECKING:
    from litestar import Litestar


def create_app() -> "Litestar":
    """What counts requests is the subject of other tests; here it would hide what is counted by plans."""
    server.SURFACES = tuple(replace(each, limit=10**9, concurrent=None) for each in SURFACES)
    return limited()
