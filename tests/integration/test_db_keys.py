"""API keys: as the database keeps them, and as an operator makes and revokes them."""

import asyncio
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Row, delete, func, select, text, update

from rag_app.access.people import ApiKey, Keys, People
from rag_app.access.tables import api_keys_table, memberships_table
from rag_app.console import cli
from rag_app.database.session import Database
from rag_app.domain.errors import InvalidInput, NotFound, StoreFailed, Unauthenticated
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal
from tests.conftest import NewOrganization
from tests.integration.conftest import ON_DEFAULT
from tests.integration.test_cli import Result, assert_fails
from tests.waiting import PATIENCE


@pytest.fixture
def keys(database: Database) -> Keys:
    return Keys(database)


async def row(database: Database, key: ApiKey) -> Row[Any]:
    async with database.session() as session:
        return (await session.execute(select(api_keys_table).where(api_keys_table.c.id == key.id))).one()


async def set_last_use(database: Database, key: ApiKey, ago: timedelta | None) -> None:
    async with database.session() as session:
        moment = None if ago is None else func.now() - ago
        await session.execute(update(api_keys_table).where(api_keys_table.c.id == key.id).values(last_used_at=moment))


async def test_a_key_acts_as_a_user_of_its_own_in_one_organization(
    keys: Keys, database: Database, organization: NewOrganization
) -> None:
    org, people = await organization(), People(database)
    bound, secret = await keys.create(org, "search box", ["book", "salon_calls", "book"])
    free, other_secret = await keys.create(org, "search box")

    principal = await keys.principal(secret)
    user = await people.user(f"key:{bound.id}")
    assert principal == Principal(
        f"key:{bound.id}", user.id, frozenset({org.id}), frozenset({"book", "salon_calls"})
    )  # fmt: skip
    assert principal.scope().organizations == {org.id, PUBLIC_ORGANIZATION}
    assert (await people.principal(str(user.id))).organizations == {org.id}, "a service user is a user"
    other = await keys.principal(other_secret)
    assert other.indexes is None and other.user not in {None, user.id}
    assert bound.indexes == ("book", "salon_calls") and free.indexes is None


async def test_only_the_hash_of_a_key_is_kept(keys: Keys, database: Database, organization: NewOrganization) -> None:
    made, secret = await keys.create(await organization(), "n")
    assert re.fullmatch("rag_[A-Za-z0-9_-]{43}", secret)
    assert made.beginning == secret[:12]
    async with database.session() as session:
        stored = await session.scalar(
            text("SELECT row_to_json(k)::text FROM api_keys k WHERE id = :id").bindparams(id=made.id)
        )
    assert stored and secret[12:] not in stored
    assert sha256(secret.encode()).hexdigest() in stored
    assert len({(await keys.create(made.organization, "n"))[1][4:8] for _ in range(20)}) == 20


@pytest.mark.parametrize("name", ["", " ", "a\0b", "two\nlines"])
async def test_what_is_no_name_of_a_key(name: str, keys: Keys, organization: NewOrganization) -> None:
    with pytest.raises(InvalidInput, match="name: must be printable text"):
        await keys.create(await organization(), name)


async def test_unknown_and_revoked_keys_are_refused_alike(keys: Keys, organization: NewOrganization) -> None:
    made, secret = await keys.create(await organization(), "n")
    await keys.principal(secret)
    await keys.revoke(made.beginning)
    refusals = set()
    for key in (secret, "rag_" + "x" * 43, "rag_", "", secret + "x", secret[:-1], "é" * 47, "\0", secret.upper()):
        with pytest.raises(Unauthenticated) as refused:
            await keys.principal(key)
        refusals.add(str(refused.value))
    assert refusals == {"The API key is not valid"}


async def test_a_key_is_revoked_for_all_processes_at_once(
    keys: Keys, database_urls: tuple[str, str], organization: NewOrganization
) -> None:
    elsewhere = Database(database_urls[1])
    other = Keys(elsewhere)
    made, secret = await keys.create(await organization(), "n")
    await other.principal(secret)
    revoked = await keys.revoke(str(made.id))
    with pytest.raises(Unauthenticated):
        await other.principal(secret)
    assert revoked.revoked_at and (await other.revoke(secret)).revoked_at == revoked.revoked_at, "the first time counts"
    await elsewhere.close()


async def test_what_key_is_meant(keys: Keys, database: Database, organization: NewOrganization) -> None:
    org = await organization()
    (one, secret), (other, _) = await keys.create(org, "one"), await keys.create(org, "other")
    async with database.session() as session:  # two that begin alike are rare
        alike = f"rag_{uuid4().hex[:8]}"
        for each, beginning in ((one, alike), (other, alike[:11] + "!")):
            await session.execute(
                update(api_keys_table).where(api_keys_table.c.id == each.id).values(beginning=beginning)
            )
    with pytest.raises(InvalidInput, match=f"2 keys begin with '{alike[:10]}'; name one of them by its id"):
        await keys.revoke(alike[:10])
    assert (await keys.revoke(alike)).id == one.id
    for unknown in (str(uuid4()), "rag_", "", "rag_%", "rag_________", "nonsense"):
        with pytest.raises(NotFound):
            await keys.revoke(unknown)
    with pytest.raises(NotFound) as failed:
        await keys.revoke("rag_" + "secret-" * 6 + "x")
    assert "rag_secret-s" in str(failed.value) and "secret-secret" not in str(failed.value)
    assert (await row(database, other)).revoked_at is None
    assert (await keys.revoke(secret)).id == one.id


async def test_keys_are_listed_by_organization(keys: Keys, organization: NewOrganization) -> None:
    ours, theirs = await organization(), await organization()
    made = [(await keys.create(ours, f"key {n}", indexes))[0] for n, indexes in enumerate((None, ["book"]))]
    foreign, _ = await keys.create(theirs, "foreign")
    assert await keys.list(ours) == made
    assert {key.id for key in (*made, foreign)} <= {key.id for key in await keys.list()}
    revoked = await keys.revoke(str(made[0].id))
    assert await keys.list(ours) == [revoked, made[1]]


async def test_the_last_use_is_written_down_once_a_minute(
    keys: Keys, database: Database, organization: NewOrganization
) -> None:
    made, secret = await keys.create(await organization(), "n")
    assert made.last_used_at is None
    await keys.principal(secret)
    first = (await row(database, made)).last_used_at
    await asyncio.gather(*[keys.principal(secret) for _ in range(30)])
    assert first and (await row(database, made)).last_used_at == first
    for ago, is_written in ((timedelta(seconds=55), False), (timedelta(seconds=65), True)):
        await set_last_use(database, made, ago)
        before = (await row(database, made)).last_used_at
        await keys.principal(secret)
        assert ((await row(database, made)).last_used_at != before) == is_written
    await set_last_use(database, made, timedelta(hours=1))
    await keys.revoke(made.beginning)
    before = (await row(database, made)).last_used_at
    with pytest.raises(Unauthenticated):
        await keys.principal(secret)
    assert (await row(database, made)).last_used_at == before, "a refusal is no use"


async def test_nobody_waits_for_whoever_writes_the_last_use_down(
    keys: Keys, database: Database, organization: NewOrganization
) -> None:
    made, secret = await keys.create(await organization(), "n")
    async with database.session() as session:
        await session.execute(select(api_keys_table.c.id).where(api_keys_table.c.id == made.id).with_for_update())
        async with asyncio.timeout(PATIENCE):
            assert (await keys.principal(secret)).subject == f"key:{made.id}"
    assert (await row(database, made)).last_used_at is None


async def test_a_key_asks_the_database_once(
    keys: Keys, database: Database, organization: NewOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret = await keys.create(await organization(), "n")
    asked = 0

    def one_more(*given: str) -> object:
        nonlocal asked
        asked += 1
        return fetch(*given)

    fetch = database.fetch
    monkeypatch.setattr(database, "fetch", one_more)
    monkeypatch.setattr(database, "autocommit", None)
    monkeypatch.setattr(database, "session", None)
    await keys.principal(secret)
    with pytest.raises(Unauthenticated):
        await keys.principal("rag_ and nothing that could be a key")
    assert asked == 1


async def test_whose_membership_ends_has_no_key(keys: Keys, database: Database, organization: NewOrganization) -> None:
    made, secret = await keys.create(await organization(), "n")
    principal = await keys.principal(secret)
    async with database.session() as session:
        await session.execute(delete(memberships_table).where(memberships_table.c.user_id == principal.user))
    with pytest.raises(Unauthenticated):
        await keys.principal(secret)
    assert await keys.list(made.organization) == []


async def test_no_database() -> None:
    nowhere = Database("postgresql://rag_app:secret@127.0.0.1:1/rag")
    with pytest.raises(StoreFailed):
        await Keys(nowhere).principal("rag_" + "x" * 43)
    await nowhere.close()


# --- the command

Main = Callable[..., Result]


@pytest.fixture
def main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Main:
    monkeypatch.chdir(tmp_path)

    def main(*arguments: str) -> Result:
        with monkeypatch.context() as patch:
            patch.setattr("sys.argv", ["rag-app", *arguments])
            with pytest.raises(SystemExit) as left:
                cli.main()
        out, err = capsys.readouterr()
        return Result(int(left.value.code or 0), out, err)

    return main


def principal(url: str, secret: str) -> Principal:
    async def found() -> Principal:
        database = Database(url)
        try:
            return await Keys(database).principal(secret)
        finally:
            await database.close()

    return asyncio.run(found())


@ON_DEFAULT
def test_keys_from_the_command_line(environment: str, main: Main, database_urls: tuple[str, str]) -> None:
    slug, other = f"keys-{uuid4().hex[:12]}", f"keys-{uuid4().hex[:12]}"
    main("db", "upgrade")
    org_id = main("orgs", "create", slug).out.split("\t")[1].strip()
    main("orgs", "create", other)

    created = main("keys", "create", "--org", slug, "--name", "search box", "-i", "rag_embedding", "-i", "book")
    assert created.status == 0 and re.fullmatch("rag_[A-Za-z0-9_-]{43}\n", created.out)
    assert created.err == "store this key now: it is not shown again, because only its hash is kept\n"
    secret = created.out.strip()
    found = principal(database_urls[1], secret)
    assert found.organizations == {UUID(org_id)} and found.indexes == frozenset({"book"}), (
        "an alias is the index it names"
    )

    said = main("keys", "create", "-o", slug, "-n", "everything", "--json")
    made: dict[str, Any] = said.json
    assert set(made) == {
        "id", "key", "beginning", "name", "organization", "indexes", "created", "last_used", "revoked"
    }  # fmt: skip
    assert (made["key"][:12], made["indexes"], said.err) == (made["beginning"], None, created.err)
    main("keys", "create", "-o", other, "-n", "theirs")

    listed = main("keys", "list", "--org", slug, "--json").json
    assert [each["name"] for each in listed] == ["search box", "everything"]
    assert listed[0]["indexes"] == ["book"] and listed[1]["indexes"] is None
    assert datetime.fromisoformat(listed[0]["last_used"]).tzinfo and listed[1]["last_used"] is None
    assert {each["organization"] for each in main("keys", "list", "--json").json} >= {slug, other}
    shown = main("keys", "list", "-o", slug)
    first, second = shown.out.splitlines()
    assert re.fullmatch(
        rf"{secret[:12]}\.\.\.\tsearch box\t{slug}\tbook\tcreated \S+\tlast used 20\S+\tvalid\t\S+", first
    )
    assert "\tall indexes\t" in second and "\tlast used never\t" in second and shown.err == "2 keys\n"
    assert secret not in shown.out and made["key"] not in shown.out

    for name in (secret[:12], made["id"]):
        assert re.search(r"\trevoked 20\S+\t", main("keys", "revoke", name).out)
    assert all(each["revoked"] for each in main("keys", "list", "--org", slug, "--json").json)
    with pytest.raises(Unauthenticated):
        principal(database_urls[1], secret)

    for arguments, problem in (
        (("create", "-o", "nobody", "-n", "x"), "no organization named 'nobody'"),
        (("create", "-o", slug, "-n", "x", "-i", "boook"), "no index named 'boook'; there are: book, "),
        (("create", "-o", slug, "-n", " "), "name: must be printable text and not empty"),
        (("list", "-o", "nobody"), "no organization named 'nobody'"),
        (("revoke", "rag_nothing"), "no key named 'rag_nothing'"),
        (("set-limits", secret[:12], "--requests", 5), f"key {secret[:12]}... is revoked"),
    ):
        assert_fails(main("keys", *arguments), problem)
    for name in (secret, made["id"]):
        assert_fails(
            main("grant", name, "write", "-o", slug),
            f"key {(secret if name == secret else made['key'])[:12]}... is revoked",
        )
    assert_fails(main("keys", "create", "-o", slug), "Missing option '--name'", status=2)
    assert_fails(main("keys"), "Missing command; see `rag-app keys --help`", status=2)
    assert len(main("keys", "list", "-o", slug, "--json").json) == 2, "what fails makes no key"
