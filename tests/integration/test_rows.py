"""Rows of tables as sources, on both stores: what filters reach, what a second ingest does, what a hit says."""

import csv
import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rag_app.application import Application
from rag_app.documents.ingest import Summary
from rag_app.documents.metadata import Target
from rag_app.documents.uploads import Upload
from rag_app.domain import Mode, RowsRule, Scope, source_id
from rag_app.domain.resources import resource_folder
from rag_app.retrieval.store import Search
from rag_app.surfaces.owner.routes import RecordFilters
from tests.conftest import NewOrganization
from tests.integration.conftest import ON_DEFAULT, Ingest, Search as SearchFor

SALON = "salon_calls"
SAMPLES = resource_folder("indexes") / SALON / "samples"


async def found(application: Application, org: UUID, narrowed: RecordFilters) -> set[str]:
    """All sources that a filter of /owner leaves, whatever was asked."""
    store = await application.backends.open(application.indexes[SALON], Scope(frozenset({org})))
    vector = [1.0] + [0.0] * (application.dimension - 1)
    nodes = await store.search(Search(vector, "", narrowed.conditions(), Mode.DENSE, 100))
    return {node.node.metadata["external_id"] for node in nodes}


async def test_a_hundred_filters_find_what_the_files_say(
    ingest: Ingest, application: Application, org: UUID, organization: NewOrganization, tmp_path: Path
) -> None:
    tables = sorted(SAMPLES.glob("*/bookings/*.csv"))
    for table in tables:
        (tmp_path / table.name).write_bytes(table.read_bytes())
    other = (await organization()).id
    assert not (await ingest(tmp_path, index=SALON)).failed
    await ingest(tmp_path, index=SALON, org_id=other)
    rows = [{**row, "file": table.name} for table in tables for row in csv.DictReader(table.open(encoding="utf-8"))]
    assert len(rows) == 30
    chance = random.Random(18)
    some = 0
    for _ in range(100):
        begin = date(2026, 1, 1) + timedelta(days=chance.randrange(-5, 115))
        asked: dict[str, Any] = {
            "stylist_id": chance.choice([None, None, 2, 3, 4, 5, 7, 9, 11]),
            "customer_id": chance.choice([None, None, None, *(int(row["customer_id"]) for row in rows)]),
            "date_from": chance.choice([None, begin]),
            "date_to": chance.choice([None, begin + timedelta(days=chance.choice([-1, 0, 1, 7, 40]))]),
            "source_types": chance.choice([None, ["booking_note"], ["call_summary"], ["call_summary", "booking_note"]]),
        }
        expected = {
            f"{row['file']}#{row['booking_id']}"
            for row in rows
            if all(asked[name] in (None, int(row[name])) for name in ("stylist_id", "customer_id"))
            and (asked["date_from"] is None or row["date"] >= asked["date_from"].isoformat())
            and (asked["date_to"] is None or row["date"] <= asked["date_to"].isoformat())
            and asked["source_types"] != ["call_summary"]
        }
        assert await found(application, org, RecordFilters(**asked)) == expected, asked
        some += bool(expected)
    assert some > 15


TABLE = ["no,name,born", "1,Ada,1815-12-10", "2,Bo,1900-01-01", "3,Cy,1950-05-05"]
RULE = RowsRule(key=("no",), date=("born",), text="{name} was born on {born:%-d %B %Y}.")


async def taken_in(application: Application, org: UUID, table: Path, *lines: str) -> Summary:
    table.write_text("\n".join(lines), "utf-8")
    ingestor = await application.ingestor(application.indexes["org_knowledge"], Target(org))
    return await ingestor.ingest([table], base=table.parent, rows=RULE)


@ON_DEFAULT
async def test_again_is_by_the_key(application: Application, org: UUID, search: SearchFor, tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    head, ada, bo, cy = TABLE
    first = await taken_in(application, org, table, *TABLE)
    assert (first.added, first.chunks, first.failed) == (3, 3, [])
    above = await taken_in(application, org, table, head, "0,Zoe,2000-02-02", cy, ada, bo)
    assert (above.added, above.updated, above.unchanged, above.removed, above.chunks) == (1, 0, 3, 0, 1)
    hits = {hit.external_id: hit for hit in await search("When was Ada born?", mode=Mode.DENSE)}
    assert {name: hit.row for name, hit in hits.items()} == {
        "people.csv#0": 2, "people.csv#3": 3, "people.csv#1": 4, "people.csv#2": 5
    }  # fmt: skip
    assert hits["people.csv#1"].text == "Ada was born on 10 December 1815."
    assert hits["people.csv#1"].file_name == "people.csv"
    scope = Scope(frozenset({org}))
    assert (await application.ledger.get(scope, source_id(org, "org_knowledge", "people.csv#1"))).row == 4
    changed = await taken_in(application, org, table, head, "1,Ada,1815-12-11", cy)
    assert (changed.added, changed.updated, changed.unchanged, changed.removed) == (0, 1, 1, 2)
    broken = await taken_in(application, org, table, head, "1,Ada,long ago", ",Nobody,1900-01-01")
    assert (broken.updated, broken.removed) == (1, 0), "whose row had no key, nobody knows"
    assert [str(each) for each in broken.failed] == [
        "people.csv: row 2: column born: must be a date in ISO 8601, not 'long ago': left out",
        "people.csv: row 3: the key column no is empty: the row is skipped",
    ]
    whole = await taken_in(application, org, table, head, "1,Ada,long ago")
    assert (whole.unchanged, whole.removed) == (1, 1), "a cell that does not fit is no reason to keep what is gone"
    empty = await taken_in(application, org, table, head)
    assert [str(each) for each in empty.failed] == ["people.csv: it has no rows"]
    assert empty.removed == 0, "an export that went wrong"
    twice = await taken_in(application, org, table, head, ada, bo, "1,Eve,1999-09-09")
    assert [str(each) for each in twice.failed] == ["people.csv#1: row 4: id: 'people.csv#1' occurs more than once"]
    table.unlink()
    (tmp_path / "stays.txt").write_text("Something else.")
    ingestor = await application.ingestor(application.indexes["org_knowledge"], Target(org))
    assert await ingestor.prune([tmp_path]) == [str(table.resolve())]
    assert await application.ledger.find_by_origins(org, "org_knowledge", [str(table.resolve())]) == {}


@ON_DEFAULT
@pytest.mark.parametrize("asked", [None, RULE])
async def test_an_uploaded_table_goes_the_same_way(
    application: Application, org: UUID, tmp_path: Path, asked: RowsRule | None
) -> None:
    spec = application.indexes[SALON]
    file = tmp_path / "received"
    lines = TABLE if asked else (SAMPLES / "birch/bookings/bookings-2026-01.csv").read_text("utf-8").splitlines()
    name = "people.csv" if asked else "bookings-2026-02.csv"
    upload = Upload(file=file, file_name=name, rows=asked, metadata={"status": "sent"})
    sender = Scope(frozenset({org}))

    async def send(*rows: str) -> Any:
        file.write_text("\n".join(rows), "utf-8")
        (received,) = await application.uploads.ingest(spec, Target(org), [upload], sender)
        return received

    first = await send(*lines)
    assert (first.status, 1 + len(first.further), first.problems) == ("added", len(lines) - 1, [])
    sources = [await application.ledger.get(sender, each) for each in (first.id, *first.further)]
    assert [source.row for source in sources] == [*range(2, len(lines) + 1)]
    assert {source.metadata["status"] for source in sources} == ({"sent"} if asked else {"done", "booked", "not come"})
    assert (await send(*lines)).status == "unchanged"
    fewer = await send(lines[0], *lines[2:])
    assert (fewer.status, 1 + len(fewer.further)) == ("unchanged", len(lines) - 2)
    left = await application.ledger.find_by_origins(org, SALON, [f"upload:{name}"])
    assert len(left) == len(lines) - 2
