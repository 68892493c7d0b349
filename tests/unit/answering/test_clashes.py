"""Words that an index declares and that questions do not read as declared."""

import re

import pytest

from rag_app.answering.records.clashes import find_clashes
from rag_app.domain.resources import resource_folder
from rag_app.retrieval.index import IndexSpec, load_indexes


def words_of(field: str, **words: object) -> dict[str, object]:
    return {field: {"type": "number", **words}}


@pytest.mark.parametrize(
    ("fields", "kind", "told"),
    [
        (words_of("rent"), ["rent"], "!! “rent” is a word of records.charge and of the figure rent"),
        (words_of("fee", totals=["visits"]), ["visit"], "!! “visit” is a word of records.charge and of the figure fee"),
        ({"rent": "keyword"}, ["rent"], ""),  # what the records are called
        (words_of("rent_id", words=["rent"]), ["rent"], ""),  # their number
        (words_of("a", words=["cost"]) | words_of("b", words=["costs"]), ["visit"], "“cost” is a word of a and of b"),
        (words_of("fee") | words_of("b", high=["fee"]), ["visit"], "“fee” is a word of fee and of b"),
        (words_of("a", words=["price"], totals=["price"]), ["visit"], ""),
        (words_of("minutes", words=["last"]), ["visit"], "“last” is a word of minutes: .* “newest”"),
        (words_of("minutes", words=["took"]), ["visit"], "“took” is a word of minutes: .* “taken in”"),
        (words_of("fee", totals=["took"]), ["visit"], ""),
        (words_of("vintage", low=["oldest"], words=["year"]), ["visit"], ""),
        (words_of("total"), ["visit"], ""),  # a column may be called so
        (words_of("fee", values={"==0": ["without"]}), ["visit"], "“without” is a word of fee: .* “not”"),
    ],
)
def test_a_word_that_hides_another(fields: dict[str, object], kind: list[str], told: str) -> None:
    spec = IndexSpec.model_validate(
        {
            "name": "own",
            "source_types": ["charge"],
            "default_source_type": "charge",
            "fields": fields,
            "records": {"charge": {"words": kind, "source_types": ["charge"]}},
        }
    )
    found = [f"{'!! ' if each.counts else ''}{each.text}" for each in find_clashes(spec)]
    assert len(found) == bool(told) and re.match(told, "".join(found)), found


def test_the_indexes_that_come_along_hide_nothing() -> None:
    assert not [clash for spec in load_indexes(resource_folder("indexes")).values() for clash in find_clashes(spec)]
