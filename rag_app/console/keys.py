"""`rag-app keys`: API keys of organizations."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from rag_app.console.commands import (
    Application,
    AtOnce,
    Json,
    Org,
    Requests,
    group,
    on_unchecked_application,
    read_limits,
)
from rag_app.console.printing import format_limits, moment, print_list, print_result, record
from rag_app.domain import JsonObject

if TYPE_CHECKING:
    from rag_app.access.people import ApiKey

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
