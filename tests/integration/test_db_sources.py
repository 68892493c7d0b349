"""The ledger of sources: what is written, seen, deleted, and found again after a kill."""

import asyncio
import signal
import subprocess
import sys
import textwrap
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from rag_app.access.people import People
from rag_app.database.session import Database
from rag_app.documents.generations import GenerationRegistry
from rag_app.documents.ledger import Build, SourceLedger
from rag_app.domain.errors import InvalidInput, NotFound, StoreFailed
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.domain.source import Source, Visibility
from tests.conftest import MIGRATIONS, NewOrganization
from tests.waiting import PATIENCE

INDEX = "book"
PASSAGES: list[dict[str, Any]] = [
    {"text": "It was a dark and stormy night.", "page": 1},
    {"text": "œuvre 🐈", "section": "II"},
]


@pytest.fixture
def ledger(database: Database) -> SourceLedger:
    return SourceLedger(database)


@pytest.fixture
async def org(organization: NewOrganization) -> UUID:
    return (await organization()).id


@pytest.fixture
async def generation(database: Database) -> int:
    return (await GenerationRegistry(database).create(f"i{uuid4().hex[:20]}", "postgres", "minilm", 384, {})).id


def source(org_id: UUID, external_id: str = "ch1.md", version: str = "v1", **values: object) -> Source:
    made = Source(org_id, INDEX, external_id, f"Title of {external_id}", "book", version, origin="book.zip")
    return replace(made, **values)


def of(*organizations: UUID, user: UUID | None = None, site: UUID | None = None) -> Scope:
    return Scope(frozenset(organizations), user, site)


async def write(ledger: SourceLedger, generation: int, *sources: Source) -> None:
    await ledger.begin([(each, PASSAGES) for each in sources], generation)
    await ledger.finish([(each, 3) for each in sources], generation)


async def listed(ledger: SourceLedger, scope: Scope, operator: bool = False) -> list[str]:
    return [each.external_id async for each in ledger.list(scope, INDEX, operator)]


async def test_a_source_comes_back_as_it_was_given(ledger: SourceLedger, database: Database, org: UUID) -> None:
    generation = (await GenerationRegistry(database).create("round", "qdrant", "m", 8, {})).id
    people = People(database)
    owner, site = await people.create_user(f"user-{uuid4().hex}"), await people.create_site(org, "annexe")
    full = source(
        org, lang="fr", uri="https://example.org/1", date=1_700_000_000.25,
        metadata={"tags": ["a", "b"], "price": 1.5, "in_stock": True}, site_id=site.id, owner_id=owner.id,
        visibility=Visibility.USER,
    )  # fmt: skip
    bare = Source(org, INDEX, "bare", "", "book", "v1")
    await ledger.begin([(full, PASSAGES)], generation)
    await ledger.begin([(bare, [])], generation)
    scope = of(org, user=owner.id)
    assert await ledger.get(scope, full.id) == full
    assert await ledger.get(scope, bare.id) == bare
    assert await ledger.content(scope, full.id) == PASSAGES
    assert await ledger.content(scope, bare.id) == []


async def test_odd_metadata_of_one_source_does_not_hide_the_others(
    ledger: SourceLedger, org: UUID, generation: int
) -> None:
    """What another version stored, or somebody in SQL."""
    odd: dict[str, Any] = {"nothing": None, "deep": {"er": [1, None]}, "mixed": ["a", 1]}
    await write(ledger, generation, source(org, "a"), source(org, "b", metadata=odd))
    assert await listed(ledger, of(org)) == ["a", "b"]
    assert [each.metadata async for each in ledger.list(of(org), INDEX)] == [{}, odd]


async def test_sources_are_found_by_id_name_and_address(
    ledger: SourceLedger, organization: NewOrganization, org: UUID, generation: int
) -> None:
    other = (await organization()).id
    shop = source(org, "shop", uri="https://shop.example/Rings")
    asked = source(org, "asked", uri="https://shop.example/page?id=7")
    theirs = source(other, "shop", uri="https://shop.example/Rings")
    await write(ledger, generation, shop, asked)
    await write(ledger, generation, theirs)

    async def found(*names: str, uri: str | None = None, index: str = INDEX) -> set[UUID]:
        return set(await ledger.find_named(of(org), index, names, uri))

    assert await found("shop", str(asked.id), "nothing", str(uuid4())) == {shop.id, asked.id}
    assert await found(str(theirs.id)) == set(), "of another organization"
    assert await found("shop", uri="https://shop.example/Rings", index="another") == set()
    for uri in "https://shop.example/Rings/", "http://SHOP.example/Rings?ref=1#top", "HTTPS://shop.example/Rings":
        assert await found(uri=uri) == {shop.id}, uri
    assert await found(uri="https://shop.example/page?id=7") == {asked.id}
    for uri in "https://shop.example/rings", "https://shop.example/Rings/box", "https://example/Rings":
        assert await found(uri=uri) == set(), uri


async def test_a_build_is_writing_then_ready(ledger: SourceLedger, org: UUID, generation: int) -> None:
    first, second = source(org), source(org, "ch2.md")
    ids = [first.id, second.id]
    await ledger.begin([(first, PASSAGES), (second, [])], generation)
    writing = Build("v1", "writing", 0)
    assert await ledger.builds(org, generation, [*ids, uuid4()]) == dict.fromkeys(ids, writing)

    await ledger.finish([(first, 3)], generation)
    ready = Build("v1", "ready", 3)
    assert await ledger.builds(org, generation, ids) == {first.id: ready, second.id: writing}


async def test_a_new_version_begins_again_and_an_old_one_cannot_finish_it(
    ledger: SourceLedger, org: UUID, generation: int
) -> None:
    old, new = source(org), source(org, version="v2", title="Second edition")
    await write(ledger, generation, old)
    await ledger.begin([(new, [])], generation)
    await ledger.finish([(old, 99)], generation)
    assert await ledger.builds(org, generation, [new.id]) == {new.id: Build("v2", "writing", 3)}
    assert await ledger.visible(of(org), generation, [new.id]) == {new.id: "v2"}
    assert await ledger.get(of(org), new.id) == new
    await ledger.finish([(new, 1)], generation)
    assert await ledger.builds(org, generation, [new.id]) == {new.id: Build("v2", "ready", 1)}


async def test_generations_are_built_apart(
    ledger: SourceLedger, database: Database, org: UUID, generation: int
) -> None:
    other = (await GenerationRegistry(database).create("other", "qdrant", "m", 8, {})).id
    await write(ledger, generation, source(org))
    await ledger.begin([(source(org, version="v2"), [])], other)
    same = source(org).id
    assert await ledger.visible(of(org), generation, [same]) == {same: "v1"}
    assert await ledger.visible(of(org), other, [same]) == {same: "v2"}
    assert await ledger.builds(org, generation, [same]) == {same: Build("v1", "ready", 3)}


async def test_only_what_the_scope_sees_is_visible(
    ledger: SourceLedger, database: Database, organization: NewOrganization, generation: int
) -> None:
    ours, theirs = (await organization()).id, (await organization()).id
    people = People(database)
    owner = (await people.create_user(f"user-{uuid4().hex}")).id
    site = (await people.create_site(ours, "annexe")).id
    team, private = source(ours), source(ours, "diary", visibility=Visibility.USER, owner_id=owner)
    on_site, foreign = source(ours, "menu", site_id=site), source(theirs)
    everybody = source(PUBLIC_ORGANIZATION, uuid4().hex, visibility=Visibility.GLOBAL)
    every = [team, private, on_site, foreign, everybody]
    await write(ledger, generation, *every)

    async def visible(scope: Scope) -> list[Source]:
        found = await ledger.visible(scope, generation, [each.id for each in every])
        assert set(found.values()) <= {"v1"}
        return [each for each in every if each.id in found]

    assert await visible(of(ours)) == [team, on_site]
    assert await visible(of(ours, user=owner)) == [team, private, on_site]
    assert await visible(of(ours, user=owner, site=site)) == [on_site]
    assert await visible(of(theirs, user=owner)) == [foreign]
    assert await visible(of(theirs, site=site)) == []
    assert await visible(of(theirs, PUBLIC_ORGANIZATION)) == [foreign, everybody]

    assert await listed(ledger, of(ours)) == ["ch1.md", "menu"]
    assert await listed(ledger, of(ours), operator=True) == ["ch1.md", "diary", "menu"]
    assert await listed(ledger, of(theirs), operator=True) == ["ch1.md"]
    assert (await ledger.get(of(ours), private.id, operator=True)) == private
    for unseen in ledger.get(of(ours), private.id), ledger.content(of(ours), private.id):
        with pytest.raises(NotFound, match="no source named"):
            await unseen
    for unseen in ledger.get(of(theirs), team.id, operator=True), ledger.content(of(theirs), team.id, operator=True):
        with pytest.raises(NotFound):
            await unseen


async def test_writing_reaches_private_sources_and_no_other_organization(
    ledger: SourceLedger, database: Database, organization: NewOrganization, generation: int
) -> None:
    ours, theirs = (await organization()).id, (await organization()).id
    owner = (await People(database).create_user(f"user-{uuid4().hex}")).id
    private = source(ours, visibility=Visibility.USER, owner_id=owner)
    await write(ledger, generation, private)
    await write(ledger, generation, replace(private, version="v2", visibility=Visibility.TEAM))
    assert await ledger.visible(of(ours), generation, [private.id]) == {private.id: "v2"}
    await write(ledger, generation, private)
    assert await ledger.visible(of(ours), generation, [private.id]) == {}
    assert [*await ledger.find_by_origins(ours, INDEX, ["book.zip"])] == [private.id]

    await ledger.mark_deleting(theirs, [private.id])
    await ledger.forget(theirs, [private.id])
    assert await ledger.builds(theirs, generation, [private.id]) == {}
    assert await ledger.builds(ours, generation, [private.id]) == {private.id: Build("v1", "ready", 3)}
    await ledger.mark_deleting(ours, [private.id])
    await ledger.forget(ours, [private.id])
    assert await listed(ledger, of(ours), operator=True) == []


async def test_of_origin_names_the_sources_of_a_file(ledger: SourceLedger, org: UUID, generation: int) -> None:
    first, second, other = source(org), source(org, "ch2.md"), source(org, "x", origin="x.md")
    await write(ledger, generation, first, second, other)
    assert await ledger.find_by_origins(org, INDEX, ["book.zip"]) == {first.id: "book.zip", second.id: "book.zip"}
    assert await ledger.find_by_origins(org, INDEX, ["x.md", "none"]) == {other.id: "x.md"}
    assert await ledger.find_by_origins(org, "another", ["x.md"]) == {}
    await ledger.move(org, [replace(second, origin="folder/ch_2.md"), replace(other, origin="folder/sub/x.md", row=3)])
    assert (await ledger.get(of(org), other.id)).row == 3
    assert await ledger.find_by_origins(org, INDEX, ["book.zip"]) == {first.id: "book.zip"}
    assert await ledger.origins_below(org, INDEX, "folder") == ["folder/ch_2.md", "folder/sub/x.md"]
    assert await ledger.origins_below(org, INDEX, "folder/sub/") == ["folder/sub/x.md"]
    assert await ledger.origins_below(org, INDEX, "f_lder") == []


async def test_a_deletion_that_was_killed_is_never_seen_and_found_again(
    ledger: SourceLedger, database: Database, org: UUID, generation: int
) -> None:
    gone, stays = source(org), source(org, "ch2.md")
    ids = [gone.id, stays.id]
    await write(ledger, generation, gone, stays)
    await ledger.mark_deleting(org, [gone.id])
    # killed here: the store still holds its chunks

    later = SourceLedger(database)
    assert await later.visible(of(org), generation, ids) == {stays.id: "v1"}
    assert await listed(later, of(org)) == ["ch2.md"]
    assert await later.find_by_origins(org, INDEX, ["book.zip"]) == {stays.id: "book.zip"}
    assert set(await later.builds(org, generation, ids)) == {stays.id}
    with pytest.raises(NotFound):
        await later.get(of(org), gone.id)
    with pytest.raises(NotFound):
        await later.content(of(org), gone.id)
    assert await later.list_deleting(org, INDEX) == [gone.id]

    await later.forget(org, ids)  # what was not marked stays
    assert await later.list_deleting(org, INDEX) == []
    assert await later.visible(of(org), generation, ids) == {stays.id: "v1"}
    await later.begin([(gone, PASSAGES)], generation)  # nothing is left in its way
    assert await later.builds(org, generation, [gone.id]) == {gone.id: Build("v1", "writing", 0)}


async def test_a_source_that_returns_while_it_is_deleted_is_written_again_everywhere(
    ledger: SourceLedger, database: Database, org: UUID, generation: int
) -> None:
    other = (await GenerationRegistry(database).create("other", "qdrant", "m", 8, {})).id
    back = source(org)
    await write(ledger, generation, back)
    await write(ledger, other, back)
    await ledger.mark_deleting(org, [back.id])
    await write(ledger, generation, back)
    assert await ledger.builds(org, generation, [back.id]) == {back.id: Build("v1", "ready", 3)}
    left = Build("v1", "writing", 3)  # who knows which of its chunks are left there
    assert await ledger.builds(org, other, [back.id]) == {back.id: left}
    await ledger.forget(org, [back.id])
    assert await ledger.visible(of(org), generation, [back.id]) == {back.id: "v1"}


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("site", {"site_id": uuid4()}),
        ("owner", {"owner_id": uuid4()}),
        ("organization", {"org_id": uuid4()}),
        ("visibility", {"visibility": Visibility.USER}),
        ("visibility", {"visibility": Visibility.GLOBAL}),
        ("visibility", {"org_id": PUBLIC_ORGANIZATION}),
        ("source", {"title": "a\x00b"}),
        ("source", {"metadata": {"tag": "a\x00b"}}),
    ],
)
async def test_a_batch_is_written_whole_or_not_at_all(
    ledger: SourceLedger, org: UUID, generation: int, field: str, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        await ledger.begin([(source(org), []), (replace(source(org, "ch2.md"), **wrong), [])], generation)
    assert refusal.value.field == field
    assert await listed(ledger, of(org)) == []


async def test_a_generation_that_is_not_there(ledger: SourceLedger, org: UUID) -> None:
    with pytest.raises(InvalidInput, match="generation: there is none"):
        await ledger.begin([(source(org), [])], 2**31 - 1)


async def test_an_empty_batch_is_nothing(ledger: SourceLedger, org: UUID, generation: int) -> None:
    await ledger.begin([], generation)
    await ledger.finish([], generation)
    await ledger.mark_deleting(org, [])
    await ledger.forget(org, [])
    assert await ledger.visible(of(org), generation, []) == {}


async def test_a_long_list_is_read_page_by_page(
    ledger: SourceLedger, organization: NewOrganization, generation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_app.documents.ledger._PAGE", 3)
    first, second = sorted([(await organization()).id, (await organization()).id])
    sources = [source(org, f"{number:02}") for org in (first, second) for number in range(6)]
    await write(ledger, generation, *sources)
    assert [each async for each in ledger.list(of(first, second), INDEX)] == sources
    seen = []
    async for each in ledger.list(of(first, second), INDEX):
        seen.append(each)
        await ledger.mark_deleting(each.org_id, [each.id])
        await ledger.forget(each.org_id, [each.id])
    assert seen == sources


async def test_an_unreachable_database_has_failed() -> None:
    database = Database("postgresql://rag_app:x@127.0.0.1:1/rag")
    with pytest.raises(StoreFailed):
        await SourceLedger(database).visible(of(uuid4()), 1, [uuid4()])
    with pytest.raises(StoreFailed):
        async with SourceLedger(database).lock_for_writing(uuid4(), INDEX):
            pass
    await database.close()


# -- the lock


async def test_writers_of_one_organization_and_index_take_turns(
    database_urls: tuple[str, str], organization: NewOrganization
) -> None:
    ours, theirs = (await organization()).id, (await organization()).id
    ledgers = [SourceLedger(Database(database_urls[1], pool_size=1)) for _ in range(3)]
    inside = 0

    async def write_once(ledger: SourceLedger) -> None:
        nonlocal inside
        async with ledger.lock_for_writing(ours, INDEX):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.02)
            await ledger.find_by_origins(ours, INDEX, ["x"])  # the lock takes no connection from the pool
            inside -= 1

    async with ledgers[0].lock_for_writing(theirs, INDEX), ledgers[0].lock_for_writing(ours, "another"):
        await asyncio.wait_for(asyncio.gather(*map(write_once, ledgers)), PATIENCE)

    async with ledgers[0].lock_for_writing(ours, INDEX):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(write_once(ledgers[1]), 0.3)
    await asyncio.wait_for(write_once(ledgers[1]), PATIENCE)
    with pytest.raises(ZeroDivisionError):
        async with ledgers[0].lock_for_writing(ours, INDEX):
            raise ZeroDivisionError
    await asyncio.wait_for(write_once(ledgers[1]), PATIENCE)


HOLDER = """
import asyncio, sys
from uuid import UUID
from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger

async def hold():
    async with SourceLedger(Database(sys.argv[1])).lock_for_writing(UUID(sys.argv[2]), "book"):
        print("held", flush=True)
        await asyncio.sleep(60)

asyncio.run(hold())
"""


async def test_a_killed_writer_leaves_no_lock(ledger: SourceLedger, database_urls: tuple[str, str], org: UUID) -> None:
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), database_urls[1], str(org)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=MIGRATIONS.parent)
    try:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == "held\n"

        async def take() -> None:
            async with ledger.lock_for_writing(org, INDEX):
                pass

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(take(), 0.3)
        holder.send_signal(signal.SIGKILL)
        await asyncio.wait_for(take(), PATIENCE)
    finally:
        holder.kill()
        holder.communicate()
