"""`rag-app grant`: roles of members and API keys for the sources of an organization."""

from typing import Annotated

from typer import Argument, Option

from rag_app.console.commands import Application, Org, group, on_unchecked_application
from rag_app.domain import InvalidInput

app = group()


@app.command()
@on_unchecked_application
async def grant(
    application: Application,
    who: Annotated[str, Argument(help="a member's name or id, or a key's id or first characters")],
    role: Annotated[str, Argument(metavar="read|write|admin|none")],
    org: Org,
    index: Annotated[str | None, Option("--index", "-i", metavar="I", help="the index; all indexes by default")] = None,
) -> None:
    """Give a member or an API key a role for sources.

    read: search and read (the default). write: also add, change and delete sources. admin: also empty an index. A new
    role replaces the earlier one; none removes it.
    """
    from rag_app.access.people import beginning_of
    from rag_app.access.roles import EVERY_INDEX, Role

    if role not in [*Role, "none"]:
        raise InvalidInput("role", role, f"accepted: {', '.join([*Role, 'none'])}")
    organization = await application.people.organization(org)
    name = application.index(index).name if index else EVERY_INDEX
    user, shown = await application.keys.user_of(organization, who), beginning_of(who)
    if user is None:
        user = (await application.people.user(shown)).id
    await application.roles.grant(organization.id, user, None if role == "none" else Role(role), name)
    print(f"{shown}\t{role}\t{'every index' if name == EVERY_INDEX else name} of {organization.slug}")
