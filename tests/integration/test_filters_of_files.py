"""Filters over the bookings of the samples, against a loop over the files that they came from."""

import random
from collections.abc import Mapping
from typing import Any

from rag_app.application import Application
from rag_app.console.demo import load_samples
from rag_app.domain import Scope
from rag_app.retrieval.filters import condition
from rag_app.retrieval.records import Aggregate, RecordQuery
from tests.records.expected import all_rows

OPERATORS = ("==", "!=", "<", "<=", ">", ">=")
FIELDS: dict[str, tuple[str, ...]] = {
    "customer": ("==", "!="),
    "stylist": ("==", "!="),
    "status": ("==", "!="),
    "service": ("==", "!="),
}
FIELDS |= dict.fromkeys(("customer_id", "stylist_id", "price_gbp"), OPERATORS)
HOLDS: Mapping[str, Any] = {
    "==": lambda found, value: found == value,
    "!=": lambda found, value: found != value,
    "<": lambda found, value: found < value,
    "<=": lambda found, value: found <= value,
    ">": lambda found, value: found > value,
    ">=": lambda found, value: found >= value,
}


async def test_a_thousand_filters_find_the_rows_that_a_loop_finds(application: Application) -> None:
    """One to three conditions each, with values of the rows and others beside them; the rows are both salons' files."""
    spec = application.indexes["salon_calls"]
    application.indexes = {spec.name: spec}
    assert await load_samples(application) == []
    chance, differing = random.Random(18), []
    for slug in ("aurora", "birch"):
        rows = all_rows(spec.name, {"from": [f"{slug}/bookings/*.csv"]})
        organization = await application.people.organization(slug)
        store = await application.backends.open(spec, Scope(frozenset({organization.id})))
        bookings = condition("booking_id", "in", [str(row["booking_id"]) for row in rows])
        for _ in range(500):
            asked = [conditions_of(rows, chance) for _ in range(chance.randint(1, 3))]
            query = RecordQuery(
                (bookings, *(condition(*each) for each in asked)), aggregate=Aggregate.COUNT, having=("status",)
            )
            wanted = sum(all(HOLDS[operator](row[name], value) for name, operator, value in asked) for row in rows)
            found = await store.find_records(query)
            if found.total != wanted:
                differing.append((slug, asked, wanted, found.total))
    assert differing == []


def conditions_of(rows: list[dict[str, Any]], chance: random.Random) -> tuple[str, str, Any]:
    name = chance.choice([*FIELDS])
    value = chance.choice(rows)[name]
    if isinstance(value, float):
        value = int(value + chance.randint(-3, 3))
    elif chance.random() < 0.1:
        value = f"{value}'; --"
    return name, chance.choice(FIELDS[name]), value
