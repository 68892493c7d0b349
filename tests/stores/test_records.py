"""Questions about records: what every store answers, against a loop over the same rows, and what it tells nobody."""

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from rag_app.domain.errors import InvalidInput, UnknownField
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.retrieval.filters import condition
from rag_app.retrieval.records import Aggregate, Grain, RecordQuery
from tests.stores.conftest import Stores, chunk, vector

Row = dict[str, Any]
AUTHORS = ["Theo Lindqvist", "Marisol Vega", "Aisha Kamara", "O'Brien; DROP TABLE"]


def some_rows(org: UUID, count: int = 60) -> list[Row]:
    chosen = random.Random(7)
    rows: list[Row] = []
    for _ in range(count):
        row: Row = {"source": uuid4(), "org": org, "date": float(chosen.randrange(40) * 86_400 + 3_600)}
        row |= {"author": chosen.choice(AUTHORS), "stylist": chosen.randrange(1, 5), "in_stock": chosen.random() < 0.5}
        if chosen.random() < 0.8:
            row["price"] = chosen.randrange(1, 40) / 2
        rows.append(row)
    return rows


async def write(stores: Stores, rows: list[Row]) -> None:
    """Every third record has two chunks: it counts once all the same."""
    for org in {row["org"] for row in rows}:
        nodes = []
        for number, row in enumerate(each for each in rows if each["org"] == org):
            meta = {key: value for key, value in row.items() if key not in ("source", "org")}
            for position in range(1 + (number % 3 == 0)):
                nodes.append(chunk(org, f"row {number}", vector(0.5), source=row["source"], position=position, **meta))
        await stores(Scope(frozenset({org}))).async_add(nodes)


async def test_lists_totals_and_groups_are_those_of_a_loop(stores: Stores, org: UUID, scope: Scope) -> None:
    rows = some_rows(org)
    await write(stores, rows)
    store = stores(scope)
    theo = RecordQuery((condition("author", "==", "Theo Lindqvist"),))
    his = [row for row in rows if row["author"] == "Theo Lindqvist"]

    counted = await store.find_records(replace(theo, aggregate=Aggregate.COUNT))
    assert (counted.value, counted.total) == (len(his), len(his))

    priced = [row["price"] for row in his if "price" in row]
    for aggregate, wanted in ((Aggregate.SUM, sum(priced)), (Aggregate.AVERAGE, sum(priced) / len(priced))):
        found = await store.find_records(replace(theo, aggregate=aggregate, of="price"))
        assert found.value == pytest.approx(wanted) and found.total == len(priced)

    for descending in (True, False):
        listed = await store.find_records(RecordQuery(order="price", descending=descending, limit=50))
        in_order = sorted((row for row in rows if "price" in row), key=lambda row: row["price"], reverse=descending)
        assert [row.value for row in listed.rows] == [row["price"] for row in in_order][:50]
        assert [row.sources[0] for row in listed.rows] == [row["source"] for row in in_order][:50], "equals as loaded"
        assert listed.total == len(in_order)

    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        if "price" in row:
            sums[row["author"]] += row["price"]
    grouped = await store.find_records(
        RecordQuery(aggregate=Aggregate.SUM, of="price", group="author", descending=True, limit=2)
    )
    best = sorted(sums.items(), key=lambda each: -each[1])[:2]
    assert [row.group for row in grouped.rows] == [name for name, _ in best]
    assert [row.value for row in grouped.rows] == pytest.approx([total for _, total in best])
    assert grouped.total == len(sums) and all(row.sources and row.size for row in grouped.rows)

    days = await store.find_records(RecordQuery(aggregate=Aggregate.COUNT, group="date", grain=Grain.MONTH, limit=50))
    assert {row.group: row.value for row in days.rows} == {
        "1970-01-01": sum(row["date"] < 31 * 86_400 for row in rows),
        "1970-02-01": sum(row["date"] >= 31 * 86_400 for row in rows),
    }
    weekdays = await store.find_records(
        RecordQuery(aggregate=Aggregate.COUNT, group="date", grain=Grain.WEEKDAY, limit=50)
    )
    assert {row.group: row.value for row in weekdays.rows} == Counter(
        str(datetime.fromtimestamp(row["date"], UTC).isoweekday()) for row in rows
    )
    mornings = await store.find_records(RecordQuery(aggregate=Aggregate.COUNT, hours=(1, 12 * 60)))
    assert mornings.value == sum(60 <= row["date"] % 86_400 < 12 * 3_600 for row in rows)


async def test_groups_name_their_newest_sources(stores: Stores, org: UUID, scope: Scope) -> None:
    """Those without a date come last: all of the first author's, some of the others'."""
    rows = some_rows(org, 90)
    for row in (row for number, row in enumerate(rows) if row["author"] == AUTHORS[0] or number % 3 == 0):
        del row["date"]
    await write(stores, rows)
    counted = RecordQuery(aggregate=Aggregate.COUNT, group="author")
    grouped = await stores(scope).find_records(counted)
    assert len(grouped.rows) == len(AUTHORS) and grouped.types == ("doc",)
    documents = replace(counted, filters=(condition("source_type", "in", ["doc"]),))
    assert await stores(scope).find_records(documents) == grouped
    for each in grouped.rows:
        of_group = [row for row in rows if row["author"] == each.group]
        of_group.sort(key=lambda row: ("date" not in row, -row.get("date", 0.0), row["source"]))
        assert each.sources == tuple(row["source"] for row in of_group[:5]) and each.size == len(of_group)


async def test_groups_of_a_size_and_the_first_of_each_are_those_of_a_loop(
    stores: Stores, org: UUID, scope: Scope
) -> None:
    rows = some_rows(org)
    await write(stores, rows)
    store = stores(scope)
    counts, best = Counter(row["author"] for row in rows), dict[str, float]()
    for row in rows:
        if "price" in row:
            best[row["author"]] = min(row["price"], best.get(row["author"], row["price"]))
    counted = RecordQuery(aggregate=Aggregate.COUNT, group="author", limit=50)
    bound = sorted(counts.values())[1]
    for query, kept in (
        (replace(counted, least=bound), {name: n for name, n in counts.items() if n >= bound}),
        (replace(counted, most=bound), {name: n for name, n in counts.items() if n <= bound}),
    ):
        found = await store.find_records(query)
        assert {row.group: row.value for row in found.rows} == kept and found.total == len(kept)

    first = await store.find_records(RecordQuery(order="price", descending=False, group="author", limit=50))
    assert {str(row.group): row.value for row in first.rows} == best and first.total == len(best)
    by_source = {row["source"]: row for row in rows}
    for told in first.rows:  # equals are told as well
        assert all(by_source[source]["price"] == best[str(told.group)] for source in told.sources)


async def test_nobody_is_told_of_records_out_of_scope(stores: Stores, org: UUID) -> None:
    """Counts, sums, groups, values and totals are those of what the scope sees, whatever else there is."""
    ann, bob, inner, other = uuid4(), uuid4(), uuid4(), uuid4()
    seen = some_rows(org, 9)
    hidden = [
        *({**row, "private_to": str(bob), "author": "Bob's own"} for row in some_rows(org, 3)),
        *({**row, "private_to": str(inner), "author": "Inner circle"} for row in some_rows(org, 3)),
        *({**row, "author": "Foreign tenant"} for row in some_rows(other, 3)),
    ]
    alone = stores(Scope(frozenset({org}), ann))
    questions = [
        RecordQuery(aggregate=Aggregate.COUNT),
        RecordQuery(aggregate=Aggregate.SUM, of="price"),
        RecordQuery(aggregate=Aggregate.AVERAGE, of="price"),
        RecordQuery(aggregate=Aggregate.COUNT, group="author", limit=50),
        RecordQuery(aggregate=Aggregate.COUNT, group="author", least=3, limit=50),
        RecordQuery(aggregate=Aggregate.COUNT, group="author", most=3, limit=50),
        RecordQuery(order="price", group="author", limit=50),
        RecordQuery(order="price", limit=50),
        RecordQuery((condition("author", "==", "Foreign tenant"),), aggregate=Aggregate.COUNT),
        RecordQuery((condition("org_id", "==", str(other)),), aggregate=Aggregate.COUNT),
    ]
    await write(stores, seen)
    before = [await alone.find_records(each) for each in questions]
    await write(stores, hidden)
    assert [await alone.find_records(each) for each in questions] == before
    words = ["bob", "own", "inner", "foreign", "tenant", "vega"]
    assert {each.value for each in await alone.named_values(words)} <= {"Marisol Vega"}
    everything = Scope(frozenset({org, other}), bob, audiences=frozenset({inner}))
    assert (await stores(everything).find_records(questions[0])).value == len(seen) + len(hidden)
    assert {each.value for each in await stores(everything).named_values(words)} >= {"Inner circle", "Foreign tenant"}


async def test_own_leaves_out_what_is_public(stores: Stores, org: UUID) -> None:
    await write(stores, [*some_rows(org, 4), *some_rows(PUBLIC_ORGANIZATION, 3)])
    store = stores(Scope(frozenset({org, PUBLIC_ORGANIZATION})))
    counts = [
        (await store.find_records(RecordQuery(aggregate=Aggregate.COUNT, own=own))).value for own in (False, True)
    ]
    assert counts == [7, 4]


@pytest.mark.parametrize(
    "wrong",
    [
        RecordQuery(order="colour"), RecordQuery(order="tags"), RecordQuery(order="author"), RecordQuery(limit=0),
        RecordQuery(aggregate=Aggregate.SUM), RecordQuery(aggregate=Aggregate.SUM, of="author"),
        RecordQuery(aggregate=Aggregate.COUNT, of="price"), RecordQuery(group="author"),
        RecordQuery(least=2), RecordQuery(order="price", group="author", least=2), RecordQuery(order="author", group="author"),
        RecordQuery(aggregate=Aggregate.COUNT, group="date"), RecordQuery(order="price); --"),
        RecordQuery((condition("price", "contains", "x"),)),
    ],
)  # fmt: skip
async def test_what_is_not_declared_is_refused(stores: Stores, scope: Scope, wrong: RecordQuery) -> None:
    with pytest.raises((InvalidInput, UnknownField)):
        await stores(scope).find_records(wrong)
