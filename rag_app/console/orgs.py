"""`rag-app orgs`: organizations, their members, sites, budgets and limits."""

import sys
from typing import Annotated

from typer import Argument, Option

from rag_app.console.commands import (
    Application,
    AtOnce,
    Json,
    OrgArgument,
    Requests,
    Subject,
    UserArgument,
    group,
    number,
    on_application,
    on_new_unchecked_application,
    on_unchecked_application,
    read_limits,
)
from rag_app.console.printing import format_limits, print_list, record, report_leftovers
from rag_app.domain import InvalidInput, NotFound

orgs = group("Manage organizations, their members and sites.")

_ORGANIZATION = "{0.slug}\t{0.id}\t{0.name}"


@orgs.command("create")
@on_new_unchecked_application
async def create_organization(
    application: Application,
    slug: Annotated[str, Argument(help="short name, as in --org")],
    name: Annotated[str | None, Option(help="name for people; the slug by default")] = None,
) -> None:
    """Create an organization."""
    made = await application.people.create_organization(slug, name or slug)
    print(f"{made.slug}\t{made.id}")


@orgs.command("list")
@on_unchecked_application
async def list_organizations(application: Application, as_json: Json = False) -> None:
    """List all organizations."""
    found = await application.people.organizations()
    print_list(as_json, [record(each, "id slug name") for each in found], map(_ORGANIZATION.format, found))


@orgs.command("delete")
@on_application
async def delete_organization(
    application: Application,
    org: OrgArgument,
    said: Annotated[str, Option("--confirm", metavar="SLUG", help="the organization's slug, once more")],
) -> None:
    """Delete an organization and all its data permanently.

    Deletes its sources from every index and store, their original files, its keys, groups, sites, jobs and usage, and the
    users who belong to no other organization, with their conversations. Safe to repeat: an interrupted command
    continues. Exit status 2 if data is left in a store or folder that is not configured here.
    """
    from rag_app.surfaces.administration.personal import erase_organization

    organization = await application.people.organization(org)
    if said != organization.slug:
        raise InvalidInput("--confirm", said, f"{said!r} is not {organization.slug}: nothing is deleted")
    done, users = await erase_organization(application, organization)
    print(f"{organization.slug} ({organization.id}) is deleted, with {done.private} sources and {users} users")
    report_leftovers(done)


@orgs.command()
@on_unchecked_application
async def add_member(
    application: Application,
    org: OrgArgument,
    user: Annotated[str, Argument(help="name (such as an e-mail address) or id; an unknown name creates a new user")],
    subject: Subject = None,
    new: Annotated[
        bool, Option("--new", help="create a user of that name, even if it begins the address of another")
    ] = False,
) -> None:
    """Make a user a member of an organization."""
    organization = await application.people.organization(org)
    try:
        member = await application.people.user(user)
    except NotFound:
        if not new and (others := await application.people.addresses_of(user)):
            raise InvalidInput(
                "user",
                user,
                f"no user has that name, but there is {' and '.join(others)}: name who is meant, or add --new",
            ) from None
        member = await application.people.create_user(user)
        print(f"{user} is a new user", file=sys.stderr)
    if subject is not None:
        await application.people.know_as(member, subject)
    await application.people.add_member(organization, member)
    print(f"{member.name}\t{member.id}\tmember of {organization.slug}")


@orgs.command()
@on_unchecked_application
async def remove_member(application: Application, org: OrgArgument, user: UserArgument) -> None:
    """Remove a user from an organization.

    This applies from their next request on. The user also leaves the organization's groups. Their sources stay. To remove a user
    completely, use `users erase`.
    """
    organization, member = await application.people.organization(org), await application.people.user(user)
    await application.people.remove_member(organization, member)
    print(f"{member.name}\t{member.id}\tno longer a member of {organization.slug}")


@orgs.command()
@on_unchecked_application
async def add_site(application: Application, org: OrgArgument, site: Annotated[str, Argument()]) -> None:
    """Add a site to an organization. Sources can belong to a site."""
    organization = await application.people.organization(org)
    made = await application.people.create_site(organization.id, site)
    print(f"{organization.slug}/{made.name}\t{made.id}")


@orgs.command()
@on_unchecked_application
async def set_budget(
    application: Application,
    org: OrgArgument,
    tokens: Annotated[
        str, Argument(metavar="TOKENS|none", help="a number of tokens; none: the default of the settings")
    ],
) -> None:
    """Limit the tokens that an organization may use per month.

    When the budget is used up, models write no more answers for its members until the first of the next month (UTC).
    """
    bound = None if tokens == "none" else number("tokens", tokens, "none")
    organization = await application.people.organization(org)
    await application.people.set_budget(organization, bound)
    print(f"{organization.slug}\t{'no budget of its own' if bound is None else f'{bound} tokens a month'}")


@orgs.command("set-limits")
@on_unchecked_application
async def set_organization_limits(
    application: Application, org: OrgArgument, requests: Requests = None, at_once: AtOnce = None
) -> None:
    """Set the request limits of each member and API key.

    They replace the limits of all surfaces. If a user belongs to several organizations, the highest limit applies. A limit
    of an API key takes precedence.
    """
    organization = await application.people.organization(org)
    limited = await application.people.set_limits(organization, read_limits(requests, at_once))
    print(f"{limited.slug}\t{format_limits(limited)}")


@orgs.command("set-time-zone")
@on_unchecked_application
async def set_time_zone(
    application: Application,
    org: OrgArgument,
    name: Annotated[str, Argument(metavar="NAME|none", help="a name such as Europe/Paris; none: UTC")],
) -> None:
    """Set the time zone of an organization.

    It decides which day is "today" in questions. Running servers use it within a minute.
    """
    organization = await application.people.organization(org)
    await application.people.set_time_zone(organization, None if name == "none" else name)
    print(f"{organization.slug}\t{'UTC' if name == 'none' else name}")
