from pathlib import Path

import pytest

from rag_app.domain.answer import Confidence
from rag_app.domain.errors import Misconfigured, NotFound
from rag_app.domain.resources import resource_folder
from rag_app.retrieval.hits import average_relevance, judge
from rag_app.retrieval.index import ConfidenceRule, IndexSpec, find_index, load_index, load_indexes
from tests.unit.answering.hits import hit

GOOD = 'source_types = ["doc"]\ndefault_source_type = "doc"\n'


def test_the_five_indexes_load_and_have_their_aliases() -> None:
    specs = load_indexes(resource_folder("indexes"))
    assert sorted(specs) == ["book", "marketplace", "org_knowledge", "salon_calls", "store_catalogue"]
    assert find_index(specs, "rag_embedding").name == "book"
    with pytest.raises(NotFound, match="there are: book, marketplace"):
        find_index(specs, "books")


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ("colour = 1", "colour"),
        ('[fields]\nwhen = "date"', "fields.when"),
        ('[fields]\ntitle = "keyword"', "title cannot be declared"),
        ('[fields]\n"x; DROP TABLE" = "keyword"', "fields"),
        ("[confidence]\nanswer_from = 0.8", "high must not be below answer_from"),
        ("[chunking]\nsize = 1", "chunking.size"),
        ('[shown_types]\nnote = "doc"', "shown_types: note: not among source_types"),
        ('[shown_types]\ndoc = "page"', "shown_types: page: not among source_types"),
        (
            '[shown_types]\ndoc = "doc"',
            "doc cannot be a target in shown_types, because it is itself mapped to another type",
        ),
        ("nonsense", "index.toml"),
    ],
)
def test_a_declaration_that_is_wrong_is_refused_with_its_file(tmp_path: Path, added: str, problem: str) -> None:
    folder = tmp_path / "things"
    folder.mkdir()
    (folder / "index.toml").write_text(GOOD + added, "utf-8")
    with pytest.raises(Misconfigured, match=r"index\.toml") as error:
        load_index(folder)
    assert problem in str(error.value)


def test_clients_of_the_marketplace_are_told_four_types() -> None:
    specs = load_indexes(resource_folder("indexes"))
    market = specs["marketplace"]
    assert {each: market.show_type(each) for each in market.source_types} == {
        "keyword": "keyword", "keyword_history": "keyword", "trend": "keyword", "watchlist": "keyword",
        "listing": "listing", "shop": "listing", "alert": "alert", "risk_rule": "doc", "doc": "doc",
    }  # fmt: skip
    assert all(
        spec.show_type(each) == each for spec in specs.values() if spec is not market for each in spec.source_types
    )


def test_confidence_by_the_best_hit_and_by_the_mean_of_five() -> None:
    hits = [hit("x", score=score) for score in (0.7, 0.5, 0.5, 0.5, 0.3, 0.1)]
    assert average_relevance(hits) == pytest.approx(0.5)
    assert judge(hits, ConfidenceRule(answer_from=0.45, high=0.65)) is Confidence.HIGH
    assert judge(hits, ConfidenceRule(signal="mean5", answer_from=0.45, high=0.65)) is Confidence.MEDIUM
    assert judge(hits, ConfidenceRule(answer_from=0.71, high=0.8)) is Confidence.LOW
    assert judge(hits, ConfidenceRule(answer_from=0.7, high=0.7)) is Confidence.HIGH


WORDED = """
source_types = ["listing"]
default_source_type = "listing"
[fields]
market = "keyword"
price = { type = "number", words = ["price", "costs"], unit = "dollars", low = ["cheapest"], best = "low" }
[records.listing]
source_types = ["listing"]
words = ["listing", "product"]
sentence = "“{title}” costs {price} dollars."
"""


def test_a_field_may_say_how_people_speak_of_it(tmp_path: Path) -> None:
    (tmp_path / "index.toml").write_text(WORDED, "utf-8")
    spec = load_index(tmp_path)
    assert spec.fields == {"market": "keyword", "price": "number"}
    assert (spec.vocabulary["price"].unit, spec.vocabulary["price"].low) == ("dollars", ("cheapest",))
    assert spec.records["listing"].sentence == ("“{title}” costs {price} dollars.",)
    assert {words.kind for words in spec.vocabulary.values()} == {"listing"}, "the only kind there is"
    assert IndexSpec.model_validate(spec.model_dump()) == spec

    (tmp_path / "index.toml").write_text(WORDED.replace('["listing"]\ndefault', '["listing", "doc"]\ndefault'), "utf-8")
    assert load_index(tmp_path).vocabulary["price"].kind is None, "it may be of something else"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('x = { type = "number", wrods = ["x"] }', "wrods"),
        ('x = { words = ["x"] }', "x"),
        ('x = { type = "number", own = true }', "own is for a boolean field"),
        ('x = { type = "number", kind = "shop" }', "shop: not declared"),
        ('x = "number"\n[records.shop]\nwords = ["shop"]\nsource_types = ["shop"]', "shop: not declared"),
        (
            'x = "number"\n[records.doc]\nwords = ["doc"]\nsource_types = ["doc"]\nsentence = "{y} is there."',
            "y: not declared",
        ),
    ],
)
def test_words_of_what_is_not_there_are_refused(tmp_path: Path, line: str, wrong: str) -> None:
    text = f'source_types = ["doc"]\ndefault_source_type = "doc"\n[fields]\n{line}\n'
    (tmp_path / "index.toml").write_text(text, "utf-8")
    with pytest.raises(Misconfigured, match=wrong):
        load_index(tmp_path)
