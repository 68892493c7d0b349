"""`rag-app token`: tokens and sign-in links for users of the HTTP API."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from typer import Option

from rag_app.console.commands import Application, group, on_unchecked_application
from rag_app.domain import InvalidInput, require

if TYPE_CHECKING:
    from rag_app.settings import Settings

app = group()


@app.command()
@on_unchecked_application
async def token(
    application: Application,
    user: Annotated[str, Option(metavar="U", help="name or id")],
    hours: Annotated[float, Option(min=0.01, max=8760, help="hours until the token expires")] = 24.0,
    client: Annotated[
        str | None,
        Option(metavar="extension", help="a token for a browser extension, which must also send x-ext-client"),
    ] = None,
    link: Annotated[
        bool, Option("--link", help="print a link that signs a browser in once, within five minutes")
    ] = False,
) -> None:
    """Print a token for a user of the HTTP API.

    Send it in a header: `Authorization: Bearer TOKEN`. Not available if an identity provider issues the tokens.
    """
    who = (await application.people.user(user)).id
    if link:
        from rag_app.console.serving import served_url

        off = InvalidInput("--link", None, "requires the pages, but RAG_PAGES is off")
        code = await require(application.sessions, off).make_code(who)
        # browsers send what stands behind the # to nobody: no log has it
        print(f"{served_url(application.settings)}/sign-in#{code}")
    else:
        print(issue(application.settings, who, hours, client))


def issue(settings: "Settings", user: UUID, hours: float, client: str | None = None) -> str:
    """A token that this deployment accepts."""
    from rag_app.access.tokens import EXTENSION, issue_token

    if client not in {None, EXTENSION}:
        raise InvalidInput("--client", client, f"accepted: {EXTENSION}")
    return issue_token(
        str(user),
        settings.jwt_secret(),
        audience=settings.api.jwt_audience,
        issuer=settings.api.jwt_issuer,
        lifetime=timedelta(hours=hours),
        client=client,
    )
