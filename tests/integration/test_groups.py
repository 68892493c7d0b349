"""Groups from the administrator's side: what changes, and what is refused. What members see: test_isolation."""

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from rag_app.access.people import People
from rag_app.access.roles import GroupDirectory
from rag_app.application import Application
from rag_app.database.session import Database
from rag_app.domain import PUBLIC_ORGANIZATION, InvalidInput, NotFound
from rag_app.surfaces.library.rag import Rag
from tests.conftest import NewOrganization


async def test_members_and_audiences(database: Database, organization: NewOrganization) -> None:
    people, groups = People(database), GroupDirectory(database)
    org, other = await organization(), await organization()
    ada, bob = [await people.create_user(f"{name}-{uuid4().hex}") for name in ("ada", "bob")]
    await people.add_member(org, ada)
    finance, legal = await groups.create(org, "finance", "Finance"), await groups.create(org, "legal")
    assert await groups.find(org, str(finance.id)) == finance == await groups.find(org, "finance")
    await groups.add_member(finance, ada)
    await groups.add_member(finance, ada)
    assert await groups.list(org) == [(finance, (ada.name,)), (legal, ())]

    either = await groups.audience(org, ["legal", "finance", "legal"])
    assert either == await groups.audience(org, ["finance", "legal"])
    alone = await groups.audience(org, ["legal"])
    assert (await people.principal(str(ada.id))).audiences == {either} == await groups.audiences(org, ada)
    assert (await people.principal(str(ada.id), ["legal"])).audiences == {either, alone}
    assert (await people.principal(str(ada.id), [f"{org.slug}/legal"])).audiences == {either, alone}
    await people.add_member(other, ada)
    assert (await people.principal(str(ada.id), ["legal"])).audiences == {either}, "legal of which organization?"

    for refused in (
        groups.add_member(finance, bob),
        groups.create(org, "finance"),
        groups.create(org, "a/b"),
        groups.create(org, ""),
        groups.create(await people.organization(PUBLIC_ORGANIZATION), "all"),
        groups.audience(org, []),
    ):
        with pytest.raises(InvalidInput):
            await refused
    with pytest.raises(NotFound, match="there are: finance, legal"):
        await groups.audience(org, ["finance", "sales"])
    with pytest.raises(NotFound):
        await groups.find(other, "finance")

    await groups.delete(legal)
    assert (await people.principal(str(ada.id), [f"{org.slug}/legal"])).audiences == {either}
    again = await groups.create(org, "legal")
    assert await groups.audience(org, ["legal"]) != alone, "a group of the same name is another group"
    await groups.add_member(again, ada)
    await groups.remove_member(finance, ada)
    assert (await people.principal(str(ada.id))).audiences == {await groups.audience(org, ["legal"])}


async def test_a_source_moves_between_a_group_and_all(application: Application, tmp_path: Path) -> None:
    """Who sees it follows the last ingest."""
    rag, slug = Rag(application), f"org-{uuid4().hex}"
    (tmp_path / "budget.md").write_text("The travel budget is 4,000 euros.", "utf-8")
    await rag.create_organization(slug)
    org = await application.people.organization(slug)
    names = [f"{name}@{slug}" for name in ("ada", "bob")]
    for name in names:
        await application.people.add_member(org, await application.people.create_user(name))
    finance = await application.groups.create(org, "finance")
    await application.groups.add_member(finance, await application.people.user(names[0]))

    async def ingest(groups: Sequence[str] = (), visibility: str | None = None) -> None:
        where = {"index": "org_knowledge", "organization": slug, "base": tmp_path}
        await rag.ingest(tmp_path / "budget.md", groups=groups, visibility=visibility, **where)  # type: ignore[arg-type]

    async def found_by() -> list[int]:
        asking = {"index": "org_knowledge", "organization": slug, "filters": [f"org_id={org.id}"]}
        return [len(await rag.search("What is the travel budget?", user=user, **asking)) for user in (*names, None)]  # type: ignore[arg-type]

    for groups, expected in ((["finance"], [1, 0, 0]), ([], [1, 1, 1]), (["finance"], [1, 0, 0])):
        await ingest(groups)
        assert await found_by() == expected
    await application.groups.delete(finance)
    assert await found_by() == [0, 0, 0]
    for refused in (ingest(visibility="group"), ingest(["finance"], "team")):
        with pytest.raises(InvalidInput, match="groups"):
            await refused
