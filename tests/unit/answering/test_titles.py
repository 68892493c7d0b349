"""Records that a question names by their titles, over an index that the rules know nothing of but its declared words."""

from typing import Any
from uuid import UUID

import pytest
from llama_index.core.vector_stores.types import MetadataFilter

from rag_app.answering.leaning import without_opening
from rag_app.answering.records.following import exchange
from rag_app.answering.records.planning import read_question
from rag_app.answering.records.steps import read_steps
from rag_app.answering.records.those import name_another
from rag_app.answering.records.titles import words_of_titles
from rag_app.answering.records.wording import stems
from rag_app.domain import Question
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.records import NamedValue

LAMPS = IndexSpec.model_validate(
    {
        "name": "lamps",
        "source_types": ("lamp", "maker", "guide"),
        "default_source_type": "lamp",
        "fields": {
            "price": {"type": "number", "words": ["price", "cost", "costs"], "kind": "lamp", "high": ["dearest"], "low": ["cheapest"]},
            "sales": {"type": "integer", "words": ["sales", "sold"], "unit": "times", "adds_up": True, "kind": "lamp"},
            "in_stock": {"type": "boolean", "values": {"true": ["in stock"]}},
            "fits": {"type": "keyword", "words": ["fits"]},
        },
        "records": {
            "lamp": {"words": ["lamp"], "source_types": ["lamp"], "having": ["price"], "lacks": ["fits"]},
            "shade": {"words": ["shade"], "source_types": ["lamp"], "having": ["fits"]},
            "maker": {"words": ["maker"], "source_types": ["maker"]},
        },
    }
)  # fmt: skip


def id_of(source: str) -> str:
    return str(UUID(bytes=source.encode().ljust(16)))


def titled(source: str, title: str, *fields: str, source_type: str = "lamp") -> NamedValue:
    return NamedValue("source_id", id_of(source), title, source_type, frozenset(fields), frozenset(stems(title)))


TITLES = [
    titled("fen", "Lamp: Fen 2 reading lamp (Ash & Oak)", "price", "sales", "in_stock"),
    titled("moor", "Lamp: tall Moor lamp (Ash & Oak)", "price", "sales", "in_stock"),
    titled("tarn", "Tarn lamp for children", "price", "in_stock"),
    titled("cone", "Paper cone", "price", "fits"),
    titled("ash", "Maker: Ash & Oak", "sales", source_type="maker"),
    titled("guide", "How to clean the Fen and the Moor", source_type="guide"),
]
VALUES = [NamedValue("fits", "Fen 2"), *TITLES]


def read(text: str) -> Any:
    return read_question(text, LAMPS, VALUES, None).plan


def sources(plan: Any) -> list[str]:
    filters = [each for each in plan.query.filters if isinstance(each, MetadataFilter) and each.key == "source_id"]
    return [
        UUID(str(source)).bytes.decode().strip()
        for each in filters
        for source in (each.value if isinstance(each.value, list) else [each.value])
    ]


@pytest.mark.parametrize(
    ("text", "named", "figures"),
    [
        ("What does the Moor lamp cost?", ["moor"], ("price",)),
        ("How much is the Tarn?", ["tarn"], ("price",)),
        ("How much is the Fen 2?", ["fen"], ("price",)),  # and not what fits it
        ("How many sales does Ash & Oak have?", ["ash"], ("sales",)),  # its whole name, and only a part of others
        ("How often was Ash & Oak's tall Moor sold, and what does it cost?", ["moor"], ("price",)),
        ("Is the Moor in stock?", ["moor"], ("in_stock",)),
        ("What do the Moor and the Tarn cost?", ["moor", "tarn"], ("price",)),
    ],
)
def test_a_record_is_known_by_its_title(text: str, named: list[str], figures: tuple[str, ...]) -> None:
    plan = read(text)
    assert sources(plan) == named and {*figures} <= {*plan.figures} and plan.query.aggregate is None


@pytest.mark.parametrize(
    "text",
    [
        "How many lamps are called Moor?",  # no number of records
        "What does the Ash cost?",  # two of that maker
        "What does the Marsh lamp cost?",  # none
        "What does the Moor weigh?",
        "What is the Moor?",  # more than its figures
        "How many sales does the Tarn have?",  # it has none recorded
    ],
)
def test_nothing_else_is_asked_of_a_record(text: str) -> None:
    assert read(text) is None


def test_a_value_that_something_fits_is_no_record_behind_for() -> None:
    plan = read("Which shades are there for the Fen 2?")
    assert plan.kind == "shade" and not sources(plan)
    assert "fen" not in words_of_titles("What do shades for the Fen 2 cost?", LAMPS, VALUES[:1])


@pytest.mark.parametrize(
    "text",
    [
        "What is the difference in price between the Moor and the Tarn?",
        "How much cheaper is the Tarn than the Moor?",
        "Moor vs Tarn: what do I save with the Tarn?",
        "By how much is the Moor dearer than the Tarn?",
    ],
)
def test_two_records_have_a_difference(text: str) -> None:
    steps = read_steps(text, LAMPS, VALUES, None, None)
    assert steps is not None and len(steps.plans) == 2
    assert {*sources(steps.plans[0]), *sources(steps.plans[1])} == {"moor", "tarn"} and steps.plans[
        0
    ].query.of == "price"


@pytest.mark.parametrize(
    ("text", "descending"),
    [
        ("Which is cheaper, the Moor or the Tarn?", False),
        ("Is the Moor dearer than the Tarn?", True),
    ],
)
def test_two_records_are_compared(text: str, descending: bool) -> None:
    plan = read(text)
    assert (plan.query.order, plan.query.descending, sorted(sources(plan))) == ("price", descending, ["moor", "tarn"])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Which of the Fen 2, the Moor and the Tarn is dearest?", ["fen", "moor", "tarn"]),
        ("What do the Fen, the Moor and the Tarn cost together?", ["fen", "moor", "tarn"]),
        ("Which is cheapest, the Moor, the Fen 2 or the Tarn?", ["moor", "fen", "tarn"]),
        ("What do the Moor and the Fen 2 cost together?", ["moor", "fen"]),
    ],
)
def test_three_records_in_a_row_are_named(text: str, wanted: list[str]) -> None:
    assert sources(read(text)) == wanted


def test_a_record_is_left_out() -> None:
    plan = read("cheapest lamp apart from the Tarn")
    assert sources(plan) == ["tarn"]
    assert plan.conditions == ("title not “Tarn lamp for children”",)
    assert not plan.names_record
    assert read("cheapest lamp apart from Tarns") is None


def test_a_value_beside_a_record_is_one_of_its_own() -> None:
    """ "The Fen 2" is what a shade fits, and in a list with a lamp it is a lamp; what is no record has no query with one."""
    values = [*VALUES, NamedValue("fits", "old quay")]
    assert sources(read("Is our Moor or our Fen 2 dearer?")) == ["moor", "fen"]
    assert sources(read("the lamp Fen 2: what does it cost?")) == ["fen"]
    assert read_question("What do the Moor and the old quay cost together?", LAMPS, values, None).plan is None


@pytest.mark.parametrize(
    "text",
    [
        "How much more would I pay for the Moor than for the Fen 2?",
        "What would I save with the Moor instead of the Fen 2?",
        "How much do we save by taking the Moor rather than the Fen 2?",
    ],
)
def test_what_is_paid_more_is_a_difference_of_prices(text: str) -> None:
    steps = read_steps(text, LAMPS, VALUES, None, None)
    assert steps is not None and len(steps.plans) == 2
    assert [(sources(each), each.query.of) for each in steps.plans] == [
        (["moor"], "price"),
        (["fen"], "price"),
    ]


@pytest.mark.parametrize(("dated", "found"), [(None, True), (("lamp",), True), (("guide",), False), ((), False)])
def test_when_asks_for_the_day_of_what_has_one(dated: tuple[str, ...] | None, found: bool) -> None:
    spec = LAMPS.model_copy(update={"dated_types": dated})
    assert (read_question("when was the Moor lamp?", spec, VALUES, None).plan is not None) is found


def exchanged(before: str, text: str) -> list[str]:
    """What a follow-up may mean: the question before it with another thing, where that asks the same."""
    asked = exchange(Question(before), Question(without_opening(text)), LAMPS, VALUES)
    return [each.text for each in asked if (plan := read(each.text)) and name_another(read(before), plan)]


@pytest.mark.parametrize(
    ("before", "text", "alone"),
    [
        ("How much is the Fen?", "and the Moor?", "How much is Moor"),
        ("What does the tall Moor lamp cost?", "what about the paper cone?", "What does paper cone cost"),
        ("Is the Tarn in stock?", "And the Moor one?", "Is Moor in stock"),
        ("What does the Moor cost?", "and the Fen lamp?", "What does Fen lamp cost"),
        ("What are the sales of the Fen?", "and of the Moor?", "What are sales of Moor"),
    ],
)
def test_a_follow_up_may_name_another_record(before: str, text: str, alone: str) -> None:
    assert exchanged(before, text) == [alone]


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("How much is the Fen?", "and why?"),
        ("How much is the Fen?", "and the dearest?"),
        ("How much is the Fen?", "and the crane?"),  # no record is called so
        ("How much is the Fen?", "and its sales?"),
        ("Is the Fen cheaper than the Moor?", "and the Tarn?"),  # than which of them?
        ("How many lamps are in stock?", "and the Moor?"),
        ("What are the sales of the Fen?", "and for the Moor?"),
    ],
)
def test_what_is_no_other_record_is_exchanged_for_none(before: str, text: str) -> None:
    assert len(exchanged(before, text)) != 1
