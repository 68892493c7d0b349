"""`rag-app orgs`."""

from typing import Annotated

import typer

from rag_app.console.commands import Application, Json, OrgArgument, Subject, group, number, on_application
from rag_app.console.printing import print_list, record
from rag_app.domain.errors import NotFound

app = group("Organizations, their members and sites.")


@app.command()
@on_application
async def create(
    application: Application,
    slug: Annotated[str, typer.Argument(help="short name, as in --org")],
    name: Annotated[str | None, typer.Option(help="name for people; the slug by default")] = None,
) -> None:
    """Make an organization."""
    made = await application.people.create_organization(slug, name or slug)
    print(f"{made.slug}\t{made.id}")


@app.command("list")
@on_application
async def list_all(application: Application, as_json: Json = False) -> None:
    """All organizations."""
    found = await application.people.organizations()
    lines = (f"{each.slug}\t{each.id}\t{each.name}" for each in found)
    print_list(as_json, [record(each, "id slug name") for each in found], lines)


@app.command()
@on_application
async def add_member(
    application: Application,
    org: OrgArgument,
    user: Annotated[str, typer.Argument(help="name (an e-mail address, say) or id; a new name makes a new user")],
    subject: Subject = None,
) -> None:
    """Let a user see an organization's content."""
    people = application.people
    organization = await people.organization(org)
    try:
        member = await people.user(user)
    except NotFound:
        member = await people.create_user(user)
    if subject is not None:
        await people.know_as(member, subject)
    await people.add_member(organization, member)
    print(f"{member.name}\t{member.id}\tmember of {organization.slug}")


@app.command()
@on_application
async def add_site(application: Application, org: OrgArgument, site: Annotated[str, typer.Argument()]) -> None:
    """Give an organization a site that sources can belong to."""
    organization = await application.people.organization(org)
    made = await application.people.create_site(organization.id, site)
    print(f"{organization.slug}/{made.name}\t{made.id}")


@app.command()
@on_application
async def set_budget(
    application: Application,
    org: OrgArgument,
    tokens: Annotated[str, typer.Argument(metavar="TOKENS|none", help="a number; none: as the settings have it")],
) -> None:
    """Bound the tokens that models may count for an organization in a month.

    When they are used, its members get no answers in conversations until the first of the next month (UTC).
    """
    bound = None if tokens == "none" else number("tokens", tokens, "none")
    organization = await application.people.organization(org)
    await application.people.set_budget(organization, bound)
    print(f"{organization.slug}\t{'no budget of its own' if bound is None else f'{bound} tokens a month'}")
