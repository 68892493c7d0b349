"""Changes of one source at the same time, and what becomes of its file. The order is made by holding the first change where
it has read and not yet written."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from rag_app.access.roles import Role
from rag_app.application import Application, _sources
from rag_app.documents.metadata import Target
from rag_app.documents.originals import Originals
from rag_app.documents.uploads import Upload, UploadService
from rag_app.domain import Filters, Forbidden, InvalidInput, NotFound, Principal, RowsRule, Scope, source_id
from rag_app.retrieval.filters import parse_condition
from rag_app.surfaces.administration.personal import erase_organization
from rag_app.surfaces.jobs.routes import JobService
from rag_app.surfaces.sources.service import PreconditionFailed, Sending, SourceService
from rag_app.surfaces.sources.types import ChangeBody, PutBody
from tests.conftest import NewOrganization
from tests.integration.conftest import INDEX, ON_DEFAULT

T = TypeVar("T")
pytestmark = ON_DEFAULT


@dataclass
class Desk:
    application: Application
    sources: SourceService
    writer: Principal
    org: UUID
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    async def put(self, text: str, if_match: str | None = None, if_none_match: str | None = None) -> None:
        sent = Sending(PutBody(index=INDEX, text=text), [Upload(external_id="a", text=text)])
        conditions = {"if_match": if_match, "if_none_match": if_none_match}
        await self.sources.upload(self.writer, sent, self.folder, None, later=False, **conditions)

    async def change(self, name: str, if_match: str | None = None) -> None:
        await self.sources.change(self.writer, "a", ChangeBody(metadata={name: name}), if_match)

    async def delete(self, names: Sequence[str], if_match: str, filters: Filters = ()) -> int:
        return (await self.sources.delete_many(self.writer, INDEX, filters, names, None, None, if_match)).deleted

    async def tag(self) -> str:
        return (await self.sources.get(self.writer, "a"))[1]

    async def hold(self, first: Awaitable[T], then: Awaitable[object]) -> T:
        """Do `then` while `first` has read what it changes and not yet written."""
        reached, free = asyncio.Event(), asyncio.Event()
        opened = self.application.uploads._ingestor

        async def held(*arguments: Any) -> Any:
            self.application.uploads._ingestor = opened
            reached.set()
            await free.wait()
            return await opened(*arguments)

        self.application.uploads._ingestor = held
        going = asyncio.ensure_future(first)
        await reached.wait()
        await then
        free.set()
        return await going


@pytest.fixture
async def desk(
    application: Application, organization: NewOrganization, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    house = await organization()
    application.originals._keeps = True
    _, key = await application.keys.create(house, "writes", None)
    writer = await application.keys.principal(key)
    assert writer.user is not None
    await application.roles.grant(house.id, writer.user, Role.WRITE, INDEX)
    return Desk(application, _sources(application), writer, house.id, tmp_path, monkeypatch)


async def test_a_source_that_is_deleted_during_a_change_stays_deleted(desk: Desk) -> None:
    await desk.put("Old text.")
    with pytest.raises(NotFound):
        await desk.hold(desk.change("x"), desk.sources.delete(desk.writer, "a"))
    with pytest.raises(NotFound):
        await desk.sources.get(desk.writer, "a")
    await desk.put("Old text.")
    with pytest.raises(NotFound):
        await desk.hold(desk.sources.delete(desk.writer, "a"), desk.sources.delete(desk.writer, "a"))


async def test_what_is_deleted_by_its_external_id_may_have_to_be_as_it_was_read(desk: Desk) -> None:
    await desk.put("Old text.")
    stale = await desk.tag()
    await desk.change("x")
    for refused in (
        desk.delete(["a"], stale),
        desk.delete(["b"], "*"),
        desk.hold(desk.delete(["a"], await desk.tag()), desk.change("y")),
    ):
        with pytest.raises(PreconditionFailed):
            await refused
    author = parse_condition("author=Ada")
    for names, filters in ((["a", "b"], ()), ([], (author,)), (["a"], (author,))):
        with pytest.raises(InvalidInput, match="single `external_id`"):
            await desk.delete(names, "*", filters)
    assert (await desk.sources.get(desk.writer, "a"))[0].metadata == {"x": "x", "y": "y"}
    assert await desk.delete(["a"], await desk.tag()) == 1
    await desk.put("New text.")
    assert await desk.delete(["a"], "*") == 1


async def test_a_source_may_have_to_be_new(desk: Desk) -> None:
    with pytest.raises(PreconditionFailed, match="has been added"):
        await desk.hold(desk.put("Late.", if_none_match="*"), desk.put("First.", if_none_match="*"))
    for tags in ("*", f'"0", W/{await desk.tag()}'):
        with pytest.raises(PreconditionFailed, match="a exists"):
            await desk.put("Second.", if_none_match=tags)
    assert (await desk.sources.text(desk.writer, "a")).text == "First."
    await desk.put("Second.", if_none_match='"0"')
    await desk.sources.delete(desk.writer, "a")
    await desk.put("Third.", if_none_match="*")
    assert (await desk.sources.text(desk.writer, "a")).text == "Third."
    await desk.sources.delete(desk.writer, "a")
    (desk.folder / "table").write_text("no\n1\n")
    table = Upload(external_id="a", file=desk.folder / "table", file_name="a.csv", rows=RowsRule(key=("no",)))
    sent = Sending(PutBody(index=INDEX), [table])
    await desk.sources.upload(desk.writer, sent, desk.folder, None, later=False)
    with pytest.raises(PreconditionFailed, match="name of a table"):
        await desk.put("Fourth.", if_none_match="*")


async def test_changes_at_the_same_time_are_all_kept(desk: Desk) -> None:
    await desk.put("Old text.")
    await desk.hold(desk.change("first"), desk.change("second"))
    assert (await desk.sources.get(desk.writer, "a"))[0].metadata == {"first": "first", "second": "second"}
    await desk.hold(desk.change("third"), desk.put("New text."))
    assert (await desk.sources.get(desk.writer, "a"))[0].metadata == {"third": "third"}
    assert (await desk.sources.text(desk.writer, "a")).text == "New text."


async def test_a_source_that_was_changed_since_it_was_read_is_left_as_it_is(desk: Desk) -> None:
    with pytest.raises(PreconditionFailed):
        await desk.put("New text.", if_match='"1"')
    await desk.put("Old text.")
    tag = await desk.tag()
    with pytest.raises(PreconditionFailed):
        await desk.hold(desk.put("New text.", tag), desk.change("x", tag))
    for refused in (
        desk.put("New text.", tag),
        desk.change("y", tag),
        desk.sources.delete(desk.writer, "a", tag),
        desk.hold(desk.sources.delete(desk.writer, "a", await desk.tag()), desk.change("z")),
    ):
        with pytest.raises(PreconditionFailed):
            await refused
    assert (await desk.sources.get(desk.writer, "a"))[0].metadata == {"x": "x", "z": "z"}
    assert (await desk.sources.text(desk.writer, "a")).text == "Old text."
    await desk.put("New text.", f'"0", {await desk.tag()}')
    await desk.sources.delete(desk.writer, "a", "*")


async def _upload_file(
    uploads: UploadService, application: Application, org: UUID, folder: Path, text: str = "The door code is 4711."
) -> UUID:
    file = folder / f"sent-{len(text)}"
    file.write_text(text, "utf-8")
    upload = Upload(external_id="a", file=file, file_name="a.txt")
    (received,) = await uploads.ingest(application.indexes[INDEX], Target(org), [upload], Scope(frozenset({org})))
    assert received.id is not None, received
    return received.id


def _files(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]


async def test_a_file_stays_that_of_a_source_whose_metadata_change_twice_at_once(desk: Desk) -> None:
    source = await _upload_file(desk.application.uploads, desk.application, desk.org, desk.folder)
    await desk.hold(desk.change("first"), desk.change("second"))
    path, name = await desk.application.originals.path(Scope(frozenset({desk.org})), source)
    assert path.is_file() and name == "a.txt"


async def test_files_go_where_new_ones_are_no_longer_kept(desk: Desk, organization: NewOrganization) -> None:
    originals, house = desk.application.originals, await organization()
    source = await _upload_file(desk.application.uploads, desk.application, desk.org, desk.folder)
    await _upload_file(desk.application.uploads, desk.application, house.id, desk.folder)
    assert len(_files(originals._folder)) == 2
    originals._keeps = False
    await desk.sources.delete(desk.writer, str(source))
    assert [each.parents[1].name for each in _files(originals._folder)] == [str(house.id)]
    done, _ = await erase_organization(desk.application, house)
    assert done.files == [] and not _files(originals._folder)


async def test_a_file_that_is_in_another_folder_is_named(desk: Desk, organization: NewOrganization) -> None:
    house, originals = await organization(), desk.application.originals
    await _upload_file(desk.application.uploads, desk.application, house.id, desk.folder)
    (file,) = _files(originals._folder)
    desk.monkeypatch.setattr(originals, "_folder", desk.folder / "elsewhere")
    done, _ = await erase_organization(desk.application, house)
    assert [each.name for each in done.files] == [file.name]


async def test_no_file_is_kept_of_a_source_that_is_being_deleted(desk: Desk) -> None:
    kept = Originals.keep

    async def late(self: Originals, *arguments: Any) -> None:
        await desk.application.ledger.mark_deleting(desk.org, [source_id(desk.org, INDEX, "a")])
        await kept(self, *arguments)

    desk.monkeypatch.setattr(Originals, "keep", late)
    await _upload_file(desk.application.uploads, desk.application, desk.org, desk.folder)
    assert _files(desk.application.originals._folder) == []


async def test_only_members_of_a_group_and_administrators_add_sources_for_it(desk: Desk) -> None:
    application, writer = desk.application, desk.writer
    house = next(each for each in await application.people.organizations() if each.id == desk.org)
    finance, _ = [await application.groups.create(house, each) for each in ("finance", "board")]
    service = await application.people.user(str(writer.user))

    async def add(principal: Principal, *groups: str) -> None:
        body = PutBody(index=INDEX, text="Budget.", groups=[*groups])
        sent = Sending(body, [Upload(external_id="+".join(groups), text="Budget.")])
        await desk.sources.upload(principal, sent, desk.folder, None, later=False)

    with pytest.raises(Forbidden, match="not in the group finance"):
        await add(writer, "finance")
    await application.groups.add_member(finance, service)
    member = await application.people.principal(str(writer.user))
    assert member.groups == {finance.id}
    with pytest.raises(Forbidden, match="not in the group board"):
        await add(member, "finance", "board")
    await add(member, "finance")
    assert writer.user is not None
    await application.roles.grant(desk.org, writer.user, Role.ADMIN, INDEX)
    await add(writer, "board")


async def test_metadata_that_the_index_refuses_are_named(desk: Desk) -> None:
    sent = Sending(PutBody(index=INDEX, text="a"), [Upload(external_id="a", text="a", metadata={"date": "no date"})])
    with pytest.raises(InvalidInput) as refused:
        await desk.sources.upload(desk.writer, sent, desk.folder, None, later=False)
    assert refused.value.field == "metadata.date"


async def test_who_belongs_to_no_organization_has_no_jobs(application: Application) -> None:
    alone = await application.people.create_user(f"alone-{id(application)}")
    jobs = JobService(application.jobs, application.roles)
    assert await jobs.page(Principal("alone", alone.id), 10, None) == ([], None)


async def test_of_two_files_sent_at_once_the_one_written_last_stays(desk: Desk) -> None:
    application, kept = desk.application, Originals.keep

    async def late(self: Originals, *arguments: Any) -> None:
        desk.monkeypatch.setattr(Originals, "keep", kept)
        await _upload_file(application.uploads, application, desk.org, desk.folder, "The door has no code.")
        await self.keep(*arguments)

    desk.monkeypatch.setattr(Originals, "keep", late)
    source = await _upload_file(application.uploads, application, desk.org, desk.folder)
    path, _ = await application.originals.path(Scope(frozenset({desk.org})), source)
    assert path.read_text("utf-8") == "The door has no code."
    assert _files(application.originals._folder) == [path]
