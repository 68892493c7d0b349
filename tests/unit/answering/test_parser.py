"""The parser that is shipped, over tables that it was not taught, and how its odds become a query."""

import numpy as np
import pytest

from rag_app.answering.records.parser import (
    FIELD_ROLES,
    GRAINS,
    NUMBER_ROLES,
    OPERATIONS,
    WAYS,
    Item,
    Reading,
    ReadQuery,
    parse,
    show,
)
from rag_app.answering.records.read_queries import CERTAIN
from rag_app.answering.records.written_queries import WrittenFilter, WrittenQuery
from tests.records.parsing.items import as_read, items_of, period_in, same
from tests.records.parsing.schemas import FOLDER, Asked, is_aside, questions

ITEMS = (
    Item("kind", "rental", "rental, hire"),
    Item("kind", "boat", "boat, craft"),
    Item("date", "date", "date, day"),
    Item("number", "price", "price, most: dearest (eur)", kind="rental"),
    Item("keyword", "status", "status, state", kind="rental"),
    Item("value", "status", "overdue : status", "overdue", "rental"),
    Item("value", "status", "returned : status", "returned", "rental"),
)
SURE = 12.0


@pytest.fixture(scope="module")
def aside() -> list[Asked]:
    asked = [as_read(each) for each in questions(FOLDER.glob("*.txt"))]
    return [each for each in asked if is_aside(each.schema.name)][::12]


def parsed(question: str) -> WrittenQuery | None:
    found = parse(question, None, ITEMS)
    return found.query if found.certainty >= CERTAIN else None


def test_a_question_is_read() -> None:
    overdue = WrittenFilter("status", "==", "overdue")
    found = parsed("how many rentals are overdue?")
    assert found and (found.kind, found.aggregate, found.filters) == ("rental", "count", [overdue])


def test_a_figure_bounds_the_field_that_is_named() -> None:
    found = parsed("list rentals with a price over 30")
    assert found and (found.kind, found.aggregate) == ("rental", None)
    assert found.filters == [WrittenFilter("price", ">", 30.0)]


def test_a_declared_superlative_orders_by_its_field() -> None:
    found = parsed("which rental is the dearest?")
    assert found and (found.order, found.descending, found.limit) == ("price", True, 1)


def test_what_no_record_says_is_no_query() -> None:
    assert parsed("how do I fold the sail of a dinghy?") is None


def test_of_unknown_tables_most_certain_queries_are_right(aside: list[Asked]) -> None:
    certain, asks = list[bool](), 0
    for asked in aside:
        found = parse(asked.text, period_in(asked.text), items_of(asked, None))
        asks += asked.query is not None
        if found.query is not None and found.certainty >= CERTAIN:
            certain.append(same(found, asked.query, asked.schema.fields))
    assert sum(certain) >= asks / 4
    assert sum(certain) / len(certain) >= 0.8


class Odds:
    """Odds that say one thing of each place, and nothing else."""

    def __init__(self, question: str) -> None:
        self.question, self.shown = question, show(question, None, ITEMS)
        self.about = np.full(len(OPERATIONS) + len(GRAINS) + len(WAYS) + 2, -SURE)
        self.about[[0, len(OPERATIONS), len(OPERATIONS) + len(GRAINS)]] = 0.0
        self.roles = np.full((self.shown.places.stop, 20), -SURE)
        self.roles[:, [8, 11]] = SURE
        self.links = np.zeros((self.shown.places.stop, self.shown.places.stop))

    def place(self, name: str, value: str = "") -> int:
        places = zip(self.shown.places, self.shown.items, strict=True)
        return next(place for place, item in places if (item.name, item.value) == (name, value))

    def ask(self, operation: str) -> None:
        self.about[OPERATIONS.index(operation)] = SURE
        self.roles[self.place("rental"), 0] = SURE

    def read(self) -> ReadQuery:
        return Reading(self.question, self.shown, self.about, self.roles, self.links).read()


def test_a_value_of_another_field_of_the_same_kind_stays_certain() -> None:
    odds = Odds("overdue rentals")
    odds.ask("list")
    odds.roles[odds.place("status", "overdue"), 9] = 2 * SURE
    found = odds.read()
    assert found.query and found.query.kind == "rental"
    assert found.query.filters == [WrittenFilter("status", "==", "overdue")]
    assert found.certainty > CERTAIN


def test_a_value_that_is_said_and_not_meant_is_doubted() -> None:
    odds = Odds("overdue rentals")
    odds.ask("list")
    found = odds.read()
    assert found.query and found.query.filters == [] and found.certainty < CERTAIN


def test_a_figure_that_bounds_nothing_is_doubted() -> None:
    odds = Odds("rentals over 30")
    odds.ask("list")
    assert odds.read().certainty < CERTAIN
    (place, _), *_ = odds.shown.figures
    odds.roles[place, 11 + NUMBER_ROLES.index(">")] = 2 * SURE
    found = odds.read()
    assert found.query and found.query.filters == [WrittenFilter("price", ">", 30.0)] and found.certainty > CERTAIN


def test_two_orders_are_no_query() -> None:
    odds = Odds("rentals by price and date")
    odds.ask("list")
    for name in ("price", "date"):
        odds.roles[odds.place(name), 1 + FIELD_ROLES.index("down")] = SURE
    assert odds.read().query is None


def test_a_kind_that_nothing_says_is_doubted() -> None:
    unsaid, said = Odds("how many of them are there"), Odds("how many rentals are there")
    unsaid.ask("count")
    said.ask("count")
    assert unsaid.read().certainty < said.read().certainty - 0.02
