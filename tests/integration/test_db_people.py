from uuid import uuid4

import pytest
from sqlalchemy import insert

from rag_app.access.people import Organization, People, User
from rag_app.access.tables import organizations_table
from rag_app.database.session import Database
from rag_app.domain.errors import InvalidInput, NotFound
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal
from tests.conftest import NewOrganization


@pytest.fixture
def people(database: Database) -> People:
    return People(database)


def fresh() -> str:
    return f"name-{uuid4().hex}"


async def test_organizations_are_found_by_slug_and_by_id(people: People) -> None:
    slug = fresh()
    made = await people.create_organization(slug, "Grand Café")
    assert made == Organization(made.id, slug, "Grand Café")
    assert await people.organization(slug) == await people.organization(made.id) == made
    assert await people.organization(str(made.id)) == made
    assert made in await people.organizations()


async def test_the_public_organization_is_there_from_the_start(people: People) -> None:
    assert (await people.organization("public")).id == PUBLIC_ORGANIZATION


async def test_an_unknown_organization_names_the_known_ones(people: People) -> None:
    slug = (await people.create_organization(fresh(), "")).slug
    with pytest.raises(NotFound, match=f"no organization named 'nowhere'; there are: .*{slug}.*public"):
        await people.organization("nowhere")
    with pytest.raises(NotFound):
        await people.organization(uuid4())


async def test_a_name_is_taken_once(people: People) -> None:
    name = fresh()
    organization = await people.create_organization(name, "")
    await people.create_user(name)
    await people.create_site(organization.id, name)
    for again in (
        people.create_organization(name, "other"),
        people.create_user(name),
        people.create_site(organization.id, name),
    ):
        with pytest.raises(InvalidInput, match="is taken"):
            await again


@pytest.mark.parametrize("name", ["", "  ", " padded", "5d3f0c1e-6a54-4d0c-9a53-3b1d8c6f7a10"])
async def test_what_is_no_name(people: People, name: str) -> None:
    with pytest.raises(InvalidInput, match="slug: must be a name"):
        await people.create_organization(name, "")
    with pytest.raises(InvalidInput, match="name: must be a name"):
        await people.create_user(name)


@pytest.mark.parametrize("slug", ["Bad Slug!", "a/b", "a,b", "Acme", "café", "-a", "_a", "a\n", "a.b"])
async def test_what_is_no_slug_of_an_organization(people: People, slug: str) -> None:
    with pytest.raises(InvalidInput, match=r"^slug: must be "):
        await people.create_organization(slug, "")


async def test_a_slug_that_an_organization_has_stays(people: People, database: Database) -> None:
    slug = f"Old {fresh()}"
    row = {"id": uuid4(), "slug": slug, "name": slug}
    async with database.session() as session:
        await session.execute(insert(organizations_table).values(row))
    assert (await people.organization(slug)).id == row["id"]


async def test_users_are_found_by_name_and_by_id(people: People) -> None:
    made = await people.create_user(fresh())
    assert await people.user(made.name) == await people.user(made.id) == await people.user(str(made.id)) == made
    for unknown in fresh(), uuid4():
        with pytest.raises(NotFound, match="no user named"):
            await people.user(unknown)


async def test_a_site_is_found_in_its_organization_only(people: People, organization: NewOrganization) -> None:
    ours, theirs = await organization(), await organization()
    site = await people.create_site(ours.id, "annexe")
    same_name = await people.create_site(theirs.id, "annexe")
    assert await people.site(ours.id, "annexe") == await people.site(ours.id, str(site.id)) == site
    assert await people.site(theirs.id, "annexe") == same_name
    for foreign in site.id, "attic":
        with pytest.raises(NotFound, match="no site named"):
            await people.site(theirs.id, foreign)


async def test_a_principal_is_what_the_database_says(people: People, organization: NewOrganization) -> None:
    first, second = await organization(), await organization()
    user = await people.create_user(fresh())
    assert await people.principal(str(user.id)) == Principal(str(user.id), user.id, frozenset())
    for member_of in first, second, first:
        await people.add_member(member_of, user)
    principal = await people.principal(str(user.id))
    assert principal == Principal(str(user.id), user.id, frozenset({first.id, second.id}))
    assert principal.scope().organizations == {first.id, second.id, PUBLIC_ORGANIZATION}


@pytest.mark.parametrize("subject", ["", "auth0|1234", "5d3f0c1e-6a54-4d0c-9a53-3b1d8c6f7a10", "' OR '1'='1", "a\x00b"])
async def test_an_unknown_subject_sees_what_is_public(people: People, subject: str) -> None:
    principal = await people.principal(subject)
    assert principal == Principal(subject)
    assert principal.scope().organizations == {PUBLIC_ORGANIZATION}


async def test_a_subject_of_an_identity_provider_stands_for_one_user(
    database: Database, organization: NewOrganization
) -> None:
    people, org = People(database), await organization()
    ada, bob = [await people.create_user(f"{name}-{uuid4().hex}") for name in ("ada", "bob")]
    await people.add_member(org, ada)
    subject = f"auth0|{uuid4().hex}"
    assert (await people.principal(subject)).user is None
    await people.know_as(ada, subject)
    for said in (subject, str(ada.id), str(ada.id).upper()):
        assert await people.principal(said) == Principal(said, ada.id, frozenset({org.id}))
    assert (await people.principal(ada.name)).user is None  # a name proves nothing
    for taken in (subject, str(ada.id)):
        with pytest.raises(InvalidInput, match="another user"):
            await people.know_as(bob, taken)
    for none in ("", " ", "a\0b"):
        with pytest.raises(InvalidInput, match="must be the `sub`"):
            await people.know_as(bob, none)


# --- plans, roles and budgets


async def test_a_user_has_the_free_plan_and_no_rights_unless_it_is_said(people: People) -> None:
    made = await people.create_user(fresh())
    assert made == User(made.id, made.name, "free", "user") == await people.user(made.name)
    other = await people.create_user(fresh(), plan="pro", role="admin", subject=f"auth0|{uuid4().hex}")
    assert (other.plan, other.role) == ("pro", "admin") and await people.user(other.id) == other


async def test_plans_and_roles_change(people: People) -> None:
    made = await people.create_user(fresh())
    changed = await people.set_plan(made, "basic")
    assert changed == User(made.id, made.name, "basic", "user")
    assert await people.set_role(made, "admin") == User(made.id, made.name, "basic", "admin")
    assert await people.set_role(made, "user") == changed == await people.user(made.id)


async def test_plans_and_roles_that_there_are_not(people: People) -> None:
    made = await people.create_user(fresh())
    for plan in "gold", "", "FREE", "a\0b":
        with pytest.raises(NotFound, match=r"no plan named .*; there are: admin, basic, .*free, .*pro"):
            await people.set_plan(made, plan)
    for role in "root", "", "Admin", "a\0b":
        with pytest.raises(InvalidInput, match="role: accepted: admin, user"):
            await people.set_role(made, role)
    gone = User(uuid4(), fresh())
    for work in people.set_plan(gone, "pro"), people.set_role(gone, "admin"):
        with pytest.raises(NotFound, match=gone.name):
            await work
    assert await people.user(made.id) == made


async def test_a_user_is_made_with_all_that_was_said_or_not_at_all(people: People) -> None:
    taken, name = f"auth0|{uuid4().hex}", fresh()
    await people.know_as(await people.create_user(fresh()), taken)
    for plan, role, subject in (
        ("gold", "user", None),
        ("free", "root", None),
        ("free", "user", taken),
        ("free", "user", " "),
    ):
        with pytest.raises((NotFound, InvalidInput)):
            await people.create_user(name, plan, role, subject)
    with pytest.raises(NotFound):
        await people.user(name)
    subject = f"auth0|{uuid4().hex}"
    made = await people.create_user(name, subject=subject)
    assert (await people.principal(subject)).user == made.id


async def test_users_are_listed_with_their_organizations(people: People, organization: NewOrganization) -> None:
    first, second = sorted([await organization(), await organization()], key=lambda each: each.slug)
    names = sorted(fresh() for _ in range(2))
    alone, member = [await people.create_user(name) for name in names]
    for each in second, first:
        await people.add_member(each, member)
    listed = await people.users()
    assert [pair for pair in listed if pair[0] in (alone, member)] == [
        (alone, ()), (member, (first.slug, second.slug)),
    ]  # fmt: skip


async def test_a_budget_is_a_number_or_none_and_never_the_public_ones(
    people: People, organization: NewOrganization
) -> None:
    org = await organization()
    for tokens in 0, 2**63 - 1, None:
        await people.set_budget(org, tokens)
    for tokens in -1, 2**63:
        with pytest.raises(InvalidInput, match="tokens: must be a number between 0 and 9223372036854775807"):
            await people.set_budget(org, tokens)
    with pytest.raises(InvalidInput, match="the public organization cannot have a budget"):
        await people.set_budget(await people.organization("public"), 5)
