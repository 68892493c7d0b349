"""Files in, hits out, whatever happens in between; on both stores."""

import asyncio
import gzip
import json
import os
import random
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from llama_index.core import MockEmbedding
from sqlalchemy import text

from rag_app.access.people import People
from rag_app.application import Application, open_application
from rag_app.database.session import Database
from rag_app.database.urls import DatabaseUrls
from rag_app.documents.ingest import Summary
from rag_app.documents.metadata import Target
from rag_app.documents.reading import File, _Child
from rag_app.documents.uploads import Upload
from rag_app.domain.errors import EmbeddingFailed, InvalidInput
from rag_app.domain.scope import Scope
from rag_app.domain.source import Visibility, source_id
from rag_app.retrieval import store as stores
from rag_app.retrieval.embedding import MiniLM
from rag_app.settings import Settings
from tests.conftest import NewOrganization
from tests.integration.conftest import INDEX, ON_DEFAULT, Forking, Ingest, Search
from tests.integration.stopping import stopped
from tests.unit.ingestion.bombs import pages

TOPICS = ["lighthouse", "bakery", "orchard", "violin", "glacier", "harbour", "printing press", "beehive"]


def write_corpus(folder: Path, documents: int, paragraphs: int = 1, sentences: int = 6) -> None:
    chance = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(documents):
        body = "\n\n".join(
            " ".join(
                f"The {chance.choice(TOPICS)} number {chance.randrange(1000)} stands near the {chance.choice(TOPICS)}."
                for _ in range(sentences)
            )
            for _ in range(paragraphs)
        )
        (folder / f"doc-{number:03}.md").write_text(f"# Document {number}\n\n{body}\n", "utf-8")


async def contents(application: Application, org: UUID, index: str = INDEX) -> dict[str, list[str]]:
    """Every chunk that answers for an organization, by source: what the store holds, seen through search."""
    scope = Scope(frozenset({org}))
    store = await application.backends.open(application.indexes[index], scope)
    vector = [1.0] + [0.0] * (application.dimension - 1)
    found = await store.fetch([c.id for c in await store.candidates(stores.Search(vector, "", (), "dense", 10_000))])  # type: ignore[arg-type]
    names = {s.id: s.external_id async for s in application.ledger.list(scope, index, operator=True)}
    held: dict[str, list[tuple[int, str]]] = {name: [] for name in names.values()}
    for node in found.values():
        held[names[UUID(node.metadata["source_id"])]].append((node.metadata["position"], node.get_content()))
    return {name: [text for _, text in sorted(chunks)] for name, chunks in held.items()}


async def test_an_embedder_of_another_dimension_is_named_with_both(
    ingest: Ingest, application: Application, org: UUID, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "hours.md").write_text("# Opening hours\n\nThe museum opens at nine.", "utf-8")
    name = application.embedder.model_name
    monkeypatch.setattr(application, "embedder", MockEmbedding(embed_dim=3, model_name=name))
    with pytest.raises(EmbeddingFailed, match=f"{name} answered with 3 dimensions, not {application.dimension}"):
        await ingest(folder)
    monkeypatch.undo()
    assert (await ingest(folder)).added == 1 and len(await contents(application, org)) == 1


async def test_ingest_is_idempotent_and_follows_changes(
    ingest: Ingest, search: Search, application: Application, org: UUID, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "hours.md").write_text("# Opening hours\n\nThe museum opens at nine.", "utf-8")
    (folder / "lines.jsonl").write_text(
        '{"id": "a", "title": "Otters", "text": "Otters hold hands while they sleep."}\n'
        '{"id": "b", "title": "Badgers", "text": "Badgers dig setts in woodland."}\n',
        "utf-8",
    )
    first = await ingest(folder)
    assert (first.added, first.updated, first.unchanged, first.removed, first.chunks) == (3, 0, 0, 0, 3)
    again = await ingest(folder)
    assert (again.added, again.updated, again.unchanged, again.chunks) == (0, 0, 3, 0)

    (folder / "hours.md").write_text("# Opening hours\n\nThe museum opens at ten.", "utf-8")
    (folder / "lines.jsonl").write_text(
        '{"id": "a", "title": "Otters", "text": "Otters hold hands while they sleep."}\n', "utf-8"
    )
    changed = await ingest(folder)
    assert (changed.added, changed.updated, changed.unchanged, changed.removed) == (0, 1, 1, 1)
    texts = [hit.text for hit in await search("museum badgers otters")]
    assert sorted(texts) == ["Otters hold hands while they sleep.", "The museum opens at ten."]

    ingestor = await application.ingestor(application.indexes[INDEX], Target(org))
    await ingestor.delete([source_id(org, INDEX, "hours.md")])
    assert [hit.text for hit in await search("When does the museum open?")] == ["Otters hold hands while they sleep."]


@ON_DEFAULT
async def test_metadata_comes_from_where_people_put_it(
    ingest: Ingest, search: Search, application: Application, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text(
        "---\ntitle: Front matter\ndate: 2026-01-05\nsource_type: faq\ntags: [red, blue]\n---\n# Other\n\nA question about parking spaces.",
        "utf-8",
    )
    (folder / "b.txt.gz").write_bytes(gzip.compress("Une réponse sur les places de stationnement du parking.".encode()))
    (folder / "b.txt.gz.meta.json").write_text(json.dumps({"title": "Sidecar", "author": "Zoé"}), "utf-8")
    summary = await ingest(folder)
    assert not summary.failed
    hits = {hit.title: hit for hit in await search("parking")}
    assert hits["Front matter"].source_type == "faq"
    assert hits["Front matter"].date == 1767571200.0
    assert hits["Front matter"].metadata["tags"] == ["red", "blue"]
    assert hits["Sidecar"].lang == "fr"
    assert hits["Sidecar"].metadata["author"] == "Zoé"
    assert hits["Front matter"].section == "Other"


@ON_DEFAULT
async def test_what_cannot_be_read_is_named_and_the_rest_goes_on(
    ingest: Ingest, search: Search, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "good.txt").write_text("A perfectly good document about lighthouses.", "utf-8")
    (folder / "empty.txt").write_bytes(b"")
    (folder / "noise.bin").write_bytes(os.urandom(100))
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    (folder / "pages.pdf").write_bytes(pages(5_001))
    (folder / "device.txt").write_text("Said by a device.", "utf-8")
    (folder / "device.txt.meta.json").symlink_to("/dev/zero")
    (folder / "undeclared.md").write_text("---\ncolour: red\n---\nText.", "utf-8")
    (folder / "mistyped.md").write_text("---\ndate: someday\n---\nText.", "utf-8")
    (folder / "lines.jsonl").write_text(
        '{"id": "x", "text": "Beehives."}\n{"id": "x", "text": "Twice."}\nnot json\n', "utf-8"
    )
    summary = await ingest(folder)
    reasons = {failure.path: failure.reason for failure in summary.failed}
    assert set(reasons) == {
        "empty.txt", "noise.bin", "broken.pdf", "mistyped.md", "lines.jsonl#x", "lines.jsonl",
        "pages.pdf", "device.txt.meta.json",
    }  # fmt: skip
    assert reasons["pages.pdf"] == "more than 5,000 pages (RAG_READ_PAGES)"
    assert "not a regular file" in reasons["device.txt.meta.json"]
    assert "ISO 8601" in reasons["mistyped.md"]
    assert "more than once" in reasons["lines.jsonl#x"]
    assert "line 3" in reasons["lines.jsonl"]
    assert summary.added == 3, "what no field is declared for is kept: nothing filters by it"
    assert {hit.text for hit in await search("lighthouses beehives")} == {
        "A perfectly good document about lighthouses.", "Beehives.", "Text.",
    }  # fmt: skip


@ON_DEFAULT
async def test_owner_visibility_and_public_content(
    ingest: Ingest, search: Search, organization: NewOrganization, application: Application, tmp_path: Path
) -> None:
    ann = (await People(application.database).create_user(f"ann-{uuid4()}")).id
    folder, mine = tmp_path / "docs", tmp_path / "mine"
    for each, said in ((folder, "The team eats lunch at noon."), (mine, "Ann keeps her lunch in the attic.")):
        each.mkdir()
        (each / "note.txt").write_text(said, "utf-8")
    (mine / "note.txt").rename(mine / "private.txt")
    await ingest(folder)
    await ingest(mine, owner_id=ann, visibility=Visibility.USER)
    assert {hit.text for hit in await search("lunch")} == {"The team eats lunch at noon."}
    assert len(await search("lunch", user=ann)) == 2
    assert await search("lunch", org_id=(await organization()).id, user=ann) == ()


@pytest.mark.parametrize("environment", ["postgres"], indirect=True)  # local Qdrant belongs to one process
async def test_two_ingests_at_once_do_not_duplicate(
    application: Application, database_urls: tuple[str, str], org: UUID, organization: NewOrganization, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "docs", 40)
    urls = DatabaseUrls(database_urls[1], database_urls[0], private=True)
    async with open_application(Settings(), urls) as other:
        both = [await each.ingestor(each.indexes[INDEX], Target(org)) for each in (application, other)]
        done = await asyncio.gather(*(each.ingest([tmp_path / "docs"], base=tmp_path / "docs") for each in both))
    assert sum(each.added for each in done) == 40
    assert sum(each.unchanged for each in done) == 40
    alone = (await organization()).id
    ingestor = await application.ingestor(application.indexes[INDEX], Target(alone))
    await ingestor.ingest([tmp_path / "docs"], base=tmp_path / "docs")
    assert await contents(application, org) == await contents(application, alone)


@pytest.mark.parametrize("environment", ["postgres", pytest.param("qdrant", marks=pytest.mark.thorough)], indirect=True)
async def test_killed_anywhere_the_same_command_ends_the_same(
    environment: str, database_urls: tuple[str, str], database: Database, organization: NewOrganization,
    forking: Forking, tmp_path: Path,
) -> None:  # fmt: skip
    killed, undisturbed = await organization(), await organization()
    docs = tmp_path / "docs"
    write_corpus(docs, 300, sentences=1)  # 128 are written together
    urls = DatabaseUrls(database_urls[1], database_urls[0], private=True)
    async with open_application(Settings(), urls):
        pass  # the indexes are built

    def command(slug: str) -> list[object]:
        return ["ingest", docs, "--index", INDEX, "--org", slug, "--base", docs]

    async def written() -> dict[str, int]:
        """How many sources are in which state."""
        async with database.scoped(Scope(frozenset({killed.id})), operator=True) as session:
            counted = await session.execute(text("SELECT state, count(*) FROM source_builds GROUP BY state"))
            return {str(state): number for state, number in counted.tuples()}

    for state, ready, left in (
        ("ready", 0, {"writing": 128}),  # the first batch is in the store, and not known to be
        ("writing", 128, {"ready": 128}),  # it is, and the next one is not begun
        # 127 files are passed over: nobody knew yet whether the last one had ended
        ("ready", 255, {"ready": 255, "writing": 45}),
    ):
        process = forking.start(command(killed.slug), tmp_path)
        async with stopped(database_urls[0], killed.id, state, ready, process.kill):
            pass
        process.wait()
        assert await written() == left
    for slug in (killed.slug, undisturbed.slug):
        process = forking.start(command(slug), tmp_path)
        assert await asyncio.to_thread(process.wait) == 0, process.err
    async with open_application(Settings(), urls) as application:
        found = await contents(application, killed.id)
        assert found == await contents(application, undisturbed.id)
    assert len(found) == 300 and all(found.values())


@ON_DEFAULT
async def test_batches_go_over_files_and_a_file_over_batches(
    ingest: Ingest, application: Application, org: UUID, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    write_corpus(folder, 5)

    def write_lines(numbers: range) -> None:
        lines = [{"id": f"n{n}", "title": f"Note {n}", "text": f"The {TOPICS[n % 8]} has {n} doors."} for n in numbers]
        (folder / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")

    write_lines(range(150))
    assert (await ingest(folder)).added == 155
    write_lines(range(20, 150))
    (folder / "doc-000.md").write_text("", "utf-8")  # cannot be read: what it held goes on answering
    (folder / "doc-001.md").rename(folder / "moved.jsonl")
    (folder / "moved.jsonl").write_text(
        '{"id": "n30", "title": "Note 30", "text": "The glacier has 30 doors."}\n', "utf-8"
    )
    changed = await ingest(folder)
    assert (changed.added, changed.updated, changed.unchanged, changed.removed) == (0, 0, 3 + 130, 20)
    assert sorted(failure.path for failure in changed.failed) == ["doc-000.md", "moved.jsonl#n30"]
    left = await contents(application, org)
    assert len(left) == 155 - 20 and "doc-000.md" in left and "n19" not in left


@ON_DEFAULT
async def test_a_file_that_is_as_it_was_is_not_read_again(
    ingest: Ingest, search: Search, application: Application, org: UUID, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    sent = _Child.send

    def told(self: _Child, file: File) -> None:
        read.append(file.path.name)
        sent(self, file)

    async def ingested(*unchanged: str, **options: Any) -> Summary:
        read.clear()
        summary = await ingest(folder, **options)
        assert not {*read} & {*unchanged} and len(read) == len(names) - len(unchanged)
        return summary

    monkeypatch.setattr(_Child, "send", told)
    folder = tmp_path / "docs"
    folder.mkdir()
    names = ["a.jsonl", "b.md", "c.md", "d.md"]
    (folder / "a.jsonl").write_text("".join(f'{{"id": "{n}", "text": "Otter {n}."}}\n' for n in range(3)), "utf-8")
    for name in names[1:]:
        (folder / name).write_text(f"# {name}\n\nThe {name} of badgers.", "utf-8")
    assert (await ingested()).added == 6
    again = await ingested(*names)
    assert (again.added, again.unchanged, again.removed, again.failed) == (0, 6, 0, [])

    stat = (folder / "b.md").stat()
    (folder / "b.md").write_text("# b.md\n\nThe b.md of beavers.", "utf-8")  # as long as before, and as old
    (folder / "b.md").write_text((folder / "b.md").read_text()[: stat.st_size], "utf-8")
    os.utime(folder / "b.md", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (folder / "c.md.meta.json").write_text('{"author": "Zoé"}', "utf-8")
    changed = await ingested("a.jsonl", "d.md")
    assert (changed.updated, changed.unchanged) == (2, 4)
    ingestor = await application.ingestor(application.indexes[INDEX], Target(org))
    await ingestor.delete([source_id(org, INDEX, "1"), source_id(org, INDEX, "d.md")])
    back = await ingested("b.md", "c.md")
    assert (back.added, back.unchanged) == (2, 4)
    assert {hit.text for hit in await search("beavers")} >= {"The b.md of beavers.", "Otter 1.", "The d.md of badgers."}


@ON_DEFAULT
async def test_a_text_that_stands_is_not_embedded_again(
    ingest: Ingest, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    embed = MiniLM._get_text_embeddings

    def told(self: MiniLM, texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        return embed(self, texts)

    def write(author: str, animal: str) -> None:
        lines = [
            {"id": "a", "title": "Otters", "text": "They hold hands while they sleep.", "author": author},
            {"id": "b", "title": "Setts", "text": f"They are dug by {animal}s."},
        ]
        (tmp_path / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")

    monkeypatch.setattr(MiniLM, "_get_text_embeddings", told)
    write("Ann", "fox")
    await ingest(tmp_path / "lines.jsonl")
    (before,) = [hit.score for hit in await search("Who holds hands?") if hit.title == "Otters"]
    asked.clear()
    write("Bob", "badger")
    assert (await ingest(tmp_path / "lines.jsonl")).updated == 2
    assert asked == ["Setts\n\nThey are dug by badgers."]
    (hit,) = [hit for hit in await search("Who holds hands?") if hit.title == "Otters"]
    assert hit.metadata["author"] == "Bob" and hit.score == pytest.approx(before)


@ON_DEFAULT
async def test_what_would_be_done_what_is_passed_over_and_what_is_gone(
    application: Application, org: UUID, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    write_corpus(folder, 3)
    (folder / "drafts").mkdir()
    (folder / "drafts" / "draft.md").write_text("# A draft\n\nNot yet.", "utf-8")
    ingestor = await application.ingestor(application.indexes[INDEX], Target(org))
    told: list[str] = []

    async def run(**options: Any) -> tuple[int, int, int, int]:
        told.clear()
        done = await ingestor.ingest(
            [folder], base=folder, progress=lambda paths, summary: told.extend(path.name for path in paths), **options
        )
        return done.added, done.updated, done.unchanged, done.removed

    assert await run(dry_run=True) == (4, 0, 0, 0)
    assert await contents(application, org) == {}
    assert await run(exclude=["drafts/*", "doc-002*"]) == (2, 0, 0, 0)
    assert told == ["doc-000.md", "doc-001.md"]
    assert await run(exclude=["drafts", "doc-002*"]) == (0, 0, 2, 0)
    assert await run() == (2, 0, 2, 0)
    (folder / "doc-000.md").unlink()
    (folder / "doc-001.md").write_text("# Another\n\nText.", "utf-8")
    assert await run(dry_run=True) == (0, 1, 2, 0)
    assert len(await ingestor.prune([folder], dry_run=True)) == 1
    assert set(await contents(application, org)) == {"doc-000.md", "doc-001.md", "doc-002.md", "drafts/draft.md"}
    summary = Summary()
    assert await ingestor.prune([folder], summary=summary) == [(folder / "doc-000.md").as_posix()]
    assert summary.removed == 1
    assert set(await contents(application, org)) == {"doc-001.md", "doc-002.md", "drafts/draft.md"}
    for path in (folder / "doc-001.md", folder / "doc-002.md", folder / "drafts" / "draft.md"):
        path.unlink()
    with pytest.raises(InvalidInput, match="is it mounted"):
        await ingestor.prune([folder])
    assert len(await contents(application, org)) == 3


@ON_DEFAULT
async def test_a_link_is_passed_over_on_every_run(ingest: Ingest, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    write_corpus(folder, 2)
    (folder / "a.txt").symlink_to("doc-000.md")
    (folder / ".data").mkdir()
    (folder / ".data" / "held.md").write_text("# Held\n\nOnly a link leads here.", "utf-8")
    (folder / "held.md").symlink_to(".data/held.md")
    first, second = await ingest(folder), await ingest(folder)
    assert (first.added, first.unchanged, first.failed) == (3, 0, [])
    assert (second.added, second.unchanged, second.failed) == (0, 3, [])
    (folder / "share.md").symlink_to(tmp_path / "unmounted" / "share.md")
    for name in ("mine.md", "yours.md"):
        (folder / name).write_text("---\nid: prices\n---\nA price.", "utf-8")
    for added in (1, 0):
        summary = await ingest(folder)
        assert (summary.added, summary.unchanged) == (added, 4 - added)
        assert [str(each) for each in summary.failed] == [
            f"share.md: a link to {tmp_path}/unmounted/share.md, which is not there: is it mounted?",
            "yours.md#prices: id: 'prices' occurs more than once, also in mine.md",
        ]


async def test_a_file_below_two_paths_is_read_once(application: Application, org: UUID, tmp_path: Path) -> None:
    write_corpus(tmp_path / "docs" / "inner", 2)
    paths = [tmp_path / "docs", tmp_path / "docs" / "inner", tmp_path / "docs" / "inner" / "doc-000.md"]
    ingestor = await application.ingestor(application.indexes[INDEX], Target(org))
    for counts in ((2, 0), (0, 2)):
        summary = await ingestor.ingest(paths, base=tmp_path)
        assert (summary.added, summary.unchanged, summary.failed) == (*counts, [])


@ON_DEFAULT
async def test_what_is_uploaded_unchanged_still_goes_with_its_file(
    application: Application, org: UUID, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    write_corpus(folder, 2)
    target, spec = Target(org), application.indexes[INDEX]
    ingestor = await application.ingestor(spec, target)
    await ingestor.ingest([folder], base=folder)
    sent = Upload(file=folder / "doc-001.md", file_name="doc-001.md")
    (told,) = await application.uploads.ingest(spec, target, [sent], Scope(frozenset({org})))
    assert told.status == "unchanged"
    (folder / "doc-001.md").unlink()
    assert await ingestor.prune([folder]) == [(folder / "doc-001.md").as_posix()]
    assert set(await contents(application, org)) == {"doc-000.md"}
