"""`rag-app orgs delete`: nothing of an organization is left, wherever it is killed, and of the others all; on both stores."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from rag_app.access.people import Organization, User
from rag_app.application import Application
from rag_app.documents.ledger import SourceLedger
from rag_app.documents.metadata import Target
from rag_app.documents.originals import Originals
from rag_app.documents.uploads import Upload
from rag_app.domain.errors import InvalidInput, NotFound
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.domain.source import Visibility
from rag_app.stores.postgres import PostgresStore
from rag_app.stores.qdrant import QdrantStore
from rag_app.surfaces.administration.personal import Personal, erase, erase_organization
from tests.conftest import NewOrganization
from tests.integration.conftest import INDEX
from tests.integration.test_ingestion import contents

STEPS: dict[str, tuple[list[Any], str]] = {
    "never": ([], ""),
    "marked": ([SourceLedger], "mark_deleting"),
    "files": ([Originals], "forget"),
    "chunks": ([PostgresStore, QdrantStore], "write"),
    "forgotten": ([SourceLedger], "forget"),
    "a user": ([Personal], "_erase"),
}
"""What a process dies after, in the middle of it."""


class PowerCut(BaseException):
    pass


@dataclass(frozen=True)
class House:
    """`alone` belongs to nothing else, `both` to another organization, too; `key` acts by a user of its own."""

    organization: Organization
    alone: User
    key: UUID


async def furnish(application: Application, organization: Organization, both: User, folder: Path) -> House:
    people = application.people
    alone = await people.create_user(f"alone@{organization.slug}")
    for member in (alone, both):
        await people.add_member(organization, member)
    await people.create_site(organization.id, "attic")
    await application.groups.create(organization, "keepers")
    _, secret = await application.keys.create(organization, "writes", None)
    service = (await application.keys.principal(secret)).user
    assert service is not None
    spec, scope = application.indexes[INDEX], Scope(frozenset({organization.id}))
    for name, target in (
        ("team", Target(organization.id)),
        ("shared", Target(organization.id, None, both.id)),
        ("private", Target(organization.id, None, alone.id, Visibility.USER)),
    ):
        file = folder / f"{organization.slug}-{name}"
        file.write_text(f"The {name} door code of {organization.slug} is 4711.", "utf-8")
        (received,) = await application.uploads.ingest(
            spec, target, [Upload(file=file, file_name=f"{name}.txt")], scope
        )
        assert received.status == "added", received
    return House(organization, alone, service)


def dying_after(done: Callable[..., Any]) -> Callable[..., Any]:
    async def then_die(*arguments: Any, **options: Any) -> Any:
        await done(*arguments, **options)
        raise PowerCut

    return then_die


async def rows_with(url: str, org: UUID, needle: str) -> set[str]:
    """The tables that have it in any column of any row, as far as the operator sees them for the organization."""
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        told = "set_config('rag.organizations', $1, false), set_config('rag.operator', 'on', false)"
        await connection.execute(f"SELECT {told}", f"{{{org}}}")
        names = await connection.fetch(
            "SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
        )
        found = set()
        for name in [row["name"] for row in names]:
            statement = f"SELECT EXISTS (SELECT FROM {name} each WHERE position($1 IN each::text) > 0)"
            if await connection.fetchval(statement, needle):
                found.add(str(name))
        return found
    finally:
        await connection.close()


@pytest.mark.parametrize("step", STEPS)
async def test_nothing_of_it_is_left_wherever_it_is_killed_and_of_others_all(
    step: str, application: Application, organization: NewOrganization, database_urls: tuple[str, str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = tmp_path / "originals"
    monkeypatch.setattr(application, "originals", Originals(application.database, folder))
    monkeypatch.setattr(application.uploads, "_originals", application.originals)
    both = await application.people.create_user(f"both-{tmp_path.name}-{id(application)}")
    going, staying = [await furnish(application, await organization(), both, tmp_path) for _ in range(2)]
    gone, kept = going.organization, staying.organization
    before = await contents(application, kept.id)
    assert len(before) == 3 and len(await contents(application, gone.id)) == 3
    there = await rows_with(database_urls[0], gone.id, str(gone.id))
    assert there >= {"organizations", "sites", "groups", "memberships", "api_keys", "sources", "originals"}

    holders, name = STEPS[step]
    if holders:
        with monkeypatch.context() as patch:
            for holder in holders:
                patch.setattr(holder, name, dying_after(getattr(holder, name)))
            with pytest.raises(PowerCut):
                await erase_organization(application, gone)
        assert await application.people.organization(gone.slug) == gone, "its row goes last"
    done_with, users = await erase_organization(application, gone)
    assert done_with.left == {} and (step != "never" or (done_with.private, users) == (3, 2))

    for needle in (str(gone.id), gone.slug, str(going.alone.id), str(going.key)):
        assert await rows_with(database_urls[0], gone.id, needle) == set(), needle
    assert await contents(application, gone.id) == {}
    assert not (folder / str(gone.id)).exists() and (folder / str(kept.id)).exists()
    with pytest.raises(NotFound):
        await application.people.organization(gone.slug)
    assert await contents(application, kept.id) == before
    assert {each.id for each in await application.people.members(kept)} == {staying.alone.id, both.id}


async def test_the_public_organization_stays(application: Application) -> None:
    with pytest.raises(InvalidInput, match="cannot be deleted"):
        await erase_organization(application, await application.people.organization(PUBLIC_ORGANIZATION))


async def test_the_files_of_an_erased_user_are_gone(
    application: Application, organization: NewOrganization, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that their own sources were uploaded as; those of shared sources stay with them."""
    folder = tmp_path / "originals"
    monkeypatch.setattr(application, "originals", Originals(application.database, folder))
    monkeypatch.setattr(application.uploads, "_originals", application.originals)
    both = await application.people.create_user(f"both-{tmp_path.name}-{id(application)}")
    house = await furnish(application, await organization(), both, tmp_path)
    await erase(application, house.alone)
    texts = sorted(each.read_text("utf-8") for each in folder.rglob("*") if each.is_file())
    assert [text.split()[1] for text in texts] == ["shared", "team"], json.dumps(texts)
