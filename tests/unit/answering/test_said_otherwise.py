"""Further ways of asking of records: what is said beside a question, and what its words restrict."""

from datetime import date
from typing import Any

import pytest
from llama_index.core.vector_stores.types import MetadataFilter

from rag_app.answering.records.asking import stand_behind_kind
from rag_app.answering.records.planning import read_question
from rag_app.answering.records.rephrasing import say_plainly
from rag_app.answering.records.wording import read_words
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import find_period
from rag_app.retrieval.records import Aggregate, NamedValue

TODAY = date(2026, 3, 20)
LESSONS = IndexSpec.model_validate(
    {
        "name": "lessons", "source_types": ("lesson",), "default_source_type": "lesson",
        "fields": {
            "pupil": {"type": "keyword", "words": ["pupil"], "asked": "who"},
            "price": {"type": "number", "words": ["price"], "unit": "dollars", "adds_up": True},
            "wait": {"type": "integer", "words": ["waiting time"], "unit": "weeks", "high": ["longest"]},
            "songs_played": {"type": "integer", "words": ["songs played"], "adds_up": True},
            "state": {"type": "keyword", "words": ["state"], "values": {"missed": ["never showed"], "done": ["done"]}},
            "book_lent": {"type": "boolean", "values": {"true": ["book"]}},
        },
        "records": {"lesson": {"words": ["lesson", "booking", "in the diary", "booked in"], "source_types": ["lesson"]}},
    }
)  # fmt: skip
VALUES = [NamedValue("state", "booked"), NamedValue("pupil", "Ada Holm"), NamedValue("state", "done")]


def read(text: str, values: list[NamedValue] = VALUES) -> Any:
    return read_question(text, LESSONS, values, find_period(text, TODAY), TODAY).plan


def conditions(text: str, values: list[NamedValue] = VALUES) -> list[tuple[str, str, object]]:
    found = read(say_plainly(text), values).query.filters
    return [
        (each.key, each.operator.value, each.value)
        for each in found
        if isinstance(each, MetadataFilter) and each.key not in ("source_type", "date")
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("everyone booked from 2 to 6 March", []),
        ("everyone booked from 23 to 27 March", [("state", "==", "booked")]),  # still to come
        ("how many dollars are booked in but not done?", [("state", "==", "booked")]),
        ("how many lessons, leaving out the lad who never showed?", [("state", "!=", "missed")]),
        ("how many lessons have a price under 80 bucks?", [("price", "<", 80.0)]),
        ("how many lessons has Ada had, never mind if she came", [("pupil", "==", "Ada Holm")]),
        ("how many lessons did Ada have? there were two I think", [("pupil", "==", "Ada Holm")]),
        ("the lessons where the book is missing", [("book_lent", "==", False)]),
    ],
)
def test_what_restricts_the_records(text: str, wanted: list[tuple[str, str, object]]) -> None:
    assert conditions(text) == wanted


def test_what_is_still_in_the_diary_is_yet_to_come() -> None:
    plan = read("what has Ada still got in the diary?")
    assert (plan.query.order, plan.period.start) == ("date", TODAY)


def test_a_name_with_other_words_in_it_is_understood() -> None:
    query = read("how many songs were played by Ada?").query
    assert (query.aggregate, query.of) == (Aggregate.SUM, "songs_played")
    assert read("which lesson has me waiting longest?").query.order == "wait"


def test_a_noun_is_none_of_the_words_that_say_nothing() -> None:
    assert read("how many readings did Ada give?") is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("less in the week of 12 May than in the one before?", "less in the week of 12 May than in the week before?"),
        ("more in May than in the one before it?", "more in May than in the month before?"),
        ("and what date is on it?", "and when is it from?"),
    ],
)
def test_turns_of_phrase_are_said_plainly(text: str, plain: str) -> None:
    assert say_plainly(text) == plain


def test_what_records_tell_of_stands_behind_their_kind() -> None:
    assert stand_behind_kind(read_words("when was the lesson about harvest festivals?", LESSONS)) == (
        "harvest",
        "festivals",
    )
    assert stand_behind_kind(read_words("when was the lesson?", LESSONS)) == ()
