"""`rag-app groups`: groups of members, who see sources that others do not."""

from typing import Annotated

from typer import Argument, Option

from rag_app.console.commands import Application, Json, OrgArgument, UserArgument, group, on_unchecked_application
from rag_app.console.printing import print_list, record

GroupArgument = Annotated[str, Argument(metavar="GROUP", help="slug or id, as shown by `groups list`")]
groups = group("Manage groups of members. A source can be visible to some groups only.")


@groups.command("create")
@on_unchecked_application
async def create_group(
    application: Application,
    org: OrgArgument,
    slug: Annotated[str, Argument(help="short name, as in --group")],
    name: Annotated[str | None, Option(help="name for people; the slug by default")] = None,
) -> None:
    """Create a group in an organization."""
    made = await application.groups.create(await application.people.organization(org), slug, name)
    print(f"{org}/{made.slug}\t{made.id}")


@groups.command("list")
@on_unchecked_application
async def list_groups(application: Application, org: OrgArgument, as_json: Json = False) -> None:
    """List the groups of an organization and their members.

    Members who belong to a group only by their token are not listed.
    """
    found = await application.groups.list(await application.people.organization(org))
    lines = (f"{each.slug}\t{each.id}\t{each.name}\t{', '.join(members) or '-'}" for each, members in found)
    print_list(as_json, [record(each, "id slug name") | {"members": [*members]} for each, members in found], lines)


@groups.command("add")
@on_unchecked_application
async def add_to_group(application: Application, org: OrgArgument, group: GroupArgument, user: UserArgument) -> None:
    """Add a member of the organization to a group.

    This applies from their next request on.
    """
    found = await application.groups.find(await application.people.organization(org), group)
    await application.groups.add_member(found, await application.people.user(user))
    print(f"{user}\tin {org}/{found.slug}")


@groups.command("remove")
@on_unchecked_application
async def remove_from_group(
    application: Application, org: OrgArgument, group: GroupArgument, user: UserArgument
) -> None:
    """Remove a user from a group.

    This applies from their next request on. If the user's token also names the group, the user stays
    in it; change that at the identity provider.
    """
    found = await application.groups.find(await application.people.organization(org), group)
    await application.groups.remove_member(found, await application.people.user(user))
    print(f"{user}\tno longer in {org}/{found.slug}")


@groups.command("delete")
@on_unchecked_application
async def delete_group(application: Application, org: OrgArgument, group: GroupArgument) -> None:
    """Delete a group.

    Its sources stay. A source without any other group is visible to nobody until it is ingested for others.
    """
    found = await application.groups.find(await application.people.organization(org), group)
    await application.groups.delete(found)
    print(f"{org}/{found.slug} is deleted")
