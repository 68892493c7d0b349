"""`rag-app token`."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from rag_app.console.commands import Application, group, on_application
from rag_app.domain.errors import InvalidInput

if TYPE_CHECKING:
    from rag_app.settings import Settings

app = group()


@app.command()
@on_application
async def token(
    application: Application,
    user: Annotated[str, typer.Option(metavar="U", help="name or id")],
    hours: Annotated[float, typer.Option(min=0.01, max=8760, help="how long it is valid")] = 24.0,
    client: Annotated[
        str | None, typer.Option(metavar="extension", help="of a browser extension, which also sends x-ext-client")
    ] = None,
) -> None:
    """Print a token for a user of the HTTP API.

    It goes into a header: `Authorization: Bearer TOKEN`. Where an identity provider issues the tokens, this does not.
    """
    from rag_app.access.tokens import EXTENSION

    if client not in {None, EXTENSION}:
        raise InvalidInput("--client", client, f"accepted: {EXTENSION}")
    print(issue(application.settings, (await application.people.user(user)).id, hours, client))


def issue(settings: "Settings", user: UUID, hours: float, client: str | None = None) -> str:
    """A token that this deployment accepts."""
    from rag_app.access.tokens import issue_token

    return issue_token(
        str(user),
        settings.jwt_secret(),
        audience=settings.api.jwt_audience,
        issuer=settings.api.jwt_issuer,
        lifetime=timedelta(hours=hours),
        client=client,
    )
