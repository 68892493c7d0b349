"""`rag-app keys`."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rag_app.console.commands import Application, Json, Org, group, on_application
from rag_app.console.printing import date_text, moment, print_list, print_result, record

if TYPE_CHECKING:
    from rag_app.access.people import ApiKey

app = group("API keys: each belongs to an organization.")


@app.command()
@on_application
async def create(
    application: Application,
    org: Org,
    name: Annotated[str, typer.Option("--name", "-n", metavar="N", help="what it is for")],
    indexes: Annotated[
        list[str] | None,
        typer.Option("--index", "-i", metavar="I", help="an index it may search; repeatable; all by default"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an API key, and print it: this once.

    It goes into a header: `Authorization: Bearer KEY`. It sees what all members of the organization see.
    """
    from rag_app.retrieval.index import find_index

    # by their own names: an alias may point elsewhere one day
    bound = [find_index(application.indexes, index).name for index in indexes] if indexes else None
    made, secret = await application.keys.create(await application.people.organization(org), name, bound)
    print_result(as_json, {**_key_json(made), "key": secret}, secret)
    print("keep it: it is not shown again, and only its hash is stored", file=sys.stderr)


@app.command("list")
@on_application
async def list_all(
    application: Application,
    org: Annotated[
        str | None, typer.Option("--org", "-o", metavar="O", help="of this organization: slug or id")
    ] = None,
    as_json: Json = False,
) -> None:
    """All API keys, as far as anybody can show them."""
    found = await application.keys.list(await application.people.organization(org) if org else None)
    print_list(as_json, [_key_json(each) for each in found], map(_key_text, found), "keys")


@app.command()
@on_application
async def revoke(
    application: Application,
    key: Annotated[str, typer.Argument(help="id, or how it begins, as `keys list` shows them")],
) -> None:
    """Refuse an API key from now on.

    Every process does so at once. What is under way is answered.
    """
    print(_key_text(await application.keys.revoke(key)))


def _key_json(key: "ApiKey") -> dict[str, Any]:
    moments = {"created": key.created_at, "last_used": key.last_used_at, "revoked": key.revoked_at}
    return record(key, "id beginning name organization=organization.slug indexes") | {
        name: at and moment(at) for name, at in moments.items()
    }


def _key_text(key: "ApiKey") -> str:
    """One line: how it begins, name, organization, indexes, and the days of its life."""
    indexes = "all indexes" if key.indexes is None else ",".join(key.indexes)
    used = date_text(key.last_used_at) if key.last_used_at else "never"
    state = f"revoked {date_text(key.revoked_at)}" if key.revoked_at else "valid"
    return (
        f"{key.beginning}...\t{key.name}\t{key.organization.slug}\t{indexes}\tcreated {date_text(key.created_at)}"
        f"\tlast used {used}\t{state}\t{key.id}"
    )
