"""`rag-app orgs`, `groups`, `keys` and `grant`: organizations, their members, sites, budgets and limits; groups of members, who
see sources that others do not; API keys; and roles of members and keys for sources."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from rag_app.console.commands import (
    Application,
    AtOnce,
    Json,
    Org,
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
from rag_app.console.printing import format_limits, moment, print_list, print_result, record, report_leftovers
from rag_app.domain import InvalidInput, JsonObject, NotFound

if TYPE_CHECKING:
    from rag_app.access.people import ApiKey

orgs = group("Manage organizations, their members and sites.")

_ORGANIZATION = "{0.slug}\t{0.id}\t{0.name}"


@orgs.command("create")
@on_new_unchecked_application
async def create_organization(
    application: Application,
    slug: Annotated[str, Argument(help="short name, as in --org: lower-case letters, digits, - and _")],
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


KeyArgument = Annotated[str, Argument(help="the key's id or first characters, as shown by `keys list`")]
keys = group("Manage API keys. Each key belongs to an organization.")
_KEY = (
    "{beginning}...\t{name}\t{organization}\t{indexes}\tcreated {created:.10}\tlast used {last_used:.10}\t{state}\t{id}"
)


@keys.command("create")
@on_unchecked_application
async def create_key(
    application: Application,
    org: Org,
    name: Annotated[str, Option("--name", "-n", metavar="N", help="the purpose of the key")],
    indexes: Annotated[
        list[str] | None,
        Option("--index", "-i", metavar="I", help="an index it may search; repeatable; all by default"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create an API key and print it. It is shown only once.

    Send it in a header: `Authorization: Bearer KEY`. It sees what all members of the organization see.

    API keys are accepted by `/api/v1/indexes`, `/api/v1/sources`, `/api/v1/jobs`, `/api/v1/retrieval` and `/api/lexybrain`.
    The other interfaces need a user's token (`rag-app token`).
    """
    bound = [application.index(index).name for index in indexes] if indexes else None
    made, secret = await application.keys.create(await application.people.organization(org), name, bound)
    print_result(as_json, {**_key_json(made), "key": secret}, secret)
    print("store this key now: it is not shown again, because only its hash is kept", file=sys.stderr)


@keys.command("list")
@on_unchecked_application
async def list_keys(
    application: Application,
    org: Annotated[
        str | None, Option("--org", "-o", metavar="O", help="only keys of this organization: slug or id")
    ] = None,
    as_json: Json = False,
) -> None:
    """List all API keys with their first characters."""
    of = await application.people.organization(org) if org else None
    found = [_key_json(each) for each in await application.keys.list(of)]
    print_list(as_json, found, map(_key_text, found), "keys")


@keys.command()
@on_unchecked_application
async def revoke(
    application: Application,
    key: KeyArgument,
) -> None:
    """Revoke an API key.

    Every process refuses the key at once. Requests that are already running are completed.
    """
    print(_key_text(_key_json(await application.keys.revoke(key))))


@keys.command("set-limits")
@on_unchecked_application
async def set_key_limits(
    application: Application, key: KeyArgument, requests: Requests = None, at_once: AtOnce = None
) -> None:
    """Set the request limits of an API key.

    The limits apply from its next request on. They replace those of its organization and of all surfaces.
    """
    limited = await application.keys.set_limits(key, read_limits(requests, at_once))
    print(f"{limited.beginning}...\t{format_limits(limited)}")


def _key_json(key: "ApiKey") -> JsonObject:
    moments = {"created": key.created_at, "last_used": key.last_used_at, "revoked": key.revoked_at}
    return record(key, "id beginning name organization=organization.slug indexes") | {
        name: at and moment(at) for name, at in moments.items()
    }


def _key_text(key: Mapping[str, Any]) -> str:
    indexes = "all indexes" if key["indexes"] is None else ",".join(key["indexes"])
    state = f"revoked {key['revoked']:.10}" if key["revoked"] else "valid"
    return _KEY.format_map({**key, "indexes": indexes, "last_used": key["last_used"] or "never", "state": state})


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
