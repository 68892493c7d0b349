"""What goes with a user or an organization that is erased; on both stores."""

import json
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from rag_app.access.people import Organization, User
from rag_app.application import Application
from rag_app.documents.metadata import Target
from rag_app.documents.originals import Originals
from rag_app.documents.uploads import Upload
from rag_app.domain.scope import Scope
from rag_app.domain.source import Visibility
from rag_app.surfaces.administration.personal import erase
from tests.conftest import NewOrganization
from tests.integration.conftest import INDEX


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
