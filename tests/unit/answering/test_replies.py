"""What a client is told of an answer."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from msgspec.structs import replace

from rag_app.domain.answer import Answer, Citation, Confidence, Hit, Refusal
from rag_app.domain.errors import ModelFailed
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces.lexybrain.messages import flags_of, mentioned_sources, retrieved_sources, sources_of
from rag_app.surfaces.lexybrain.types import Flags
from tests.unit.answering.hits import hit

SPEC = IndexSpec(
    name="marketplace",
    source_types=("keyword", "trend", "shop", "listing", "alert", "doc"),
    default_source_type="doc",
    shown_types={"trend": "keyword", "shop": "listing"},
)
RING = hit("Rings sell.", score=0.7, title="Ring", source_type="keyword", metadata={"term": "gold ring"})
TREND = hit("Heirlooms grow.", score=0.6, title="Heirloom", source_type="trend")
SHOP = hit("A shop.", score=1.2, title="Shop: Thistle", source_type="shop")
AGAIN = replace(RING, chunk_id=uuid4(), position=1, score=0.75)


def answer(*hits: Hit, cited: tuple[Hit, ...] = (), **rest: object) -> Answer:
    citations = tuple(Citation(number, each, "quoted") for number, each in enumerate(cited, 1))
    values: dict[str, object] = {"confidence": Confidence.HIGH, "model": "m", **rest}
    return Answer("Text.", generated_at=datetime.now(UTC), hits=hits, citations=citations, **values)  # type: ignore[arg-type]


def test_cited_sources_come_first_by_number_and_each_once() -> None:
    given = answer(RING, TREND, SHOP, AGAIN, cited=(SHOP, RING))
    shown = sources_of(given, SPEC)
    assert [(each.label, each.type, each.score, each.cited, each.quote) for each in shown] == [
        ("Shop: Thistle", "listing", 1.0, 1, "quoted"),
        ("Ring", "keyword", 0.75, 2, "quoted"),
        ("Heirloom", "keyword", 0.6, None, None),
    ]
    assert [each.label for each in retrieved_sources((TREND, RING), (), SPEC)] == ["Heirloom", "Ring"]


def test_fewer_than_five_sources_are_insufficient() -> None:
    many = [hit(f"Number {n}", score=0.7, title=f"Number {n}", source_type="doc") for n in range(5)]
    for hits, insufficient in ((many, False), (many[:4], True)):
        given = answer(*hits)
        assert flags_of(given, sources_of(given, SPEC)) == Flags(used_rag=True, insufficient_context=insufficient)


@pytest.mark.parametrize(
    ("refusal", "shown", "flags"),
    [
        (Refusal.NOTHING_FOUND, 0, Flags(insufficient_context=True, refused=True)),
        (Refusal.WEAK, 2, Flags(insufficient_context=True, refused=True)),
        (Refusal.UNCITED, 2, Flags(used_rag=True, insufficient_context=True, refused=True)),
        (Refusal.FAILED, 2, Flags(used_rag=True, fallback_to_generic=True, insufficient_context=True)),
    ],
)
def test_refusals_show_what_was_found_and_cite_nothing(refusal: Refusal, shown: int, flags: Flags) -> None:
    hits = () if refusal is Refusal.NOTHING_FOUND else (RING, TREND)
    given = answer(*hits, cited=hits, refusal=refusal, confidence=Confidence.LOW, model=None)
    sources = sources_of(given, SPEC)
    assert len(sources) == shown and all(each.cited is None for each in sources)
    assert flags_of(given, sources) == flags


def test_an_answer_that_makes_no_use_of_weak_hits_has_no_sources() -> None:
    given = answer(RING, TREND, confidence=Confidence.LOW)
    assert sources_of(given, SPEC) == ()
    assert flags_of(given, ()) == Flags(insufficient_context=True)


def test_a_text_that_ends_too_early_says_so() -> None:
    given = answer(RING, cited=(RING,), complete=False, failures=(ModelFailed("cut"),))
    flags = flags_of(given, sources_of(given, SPEC))
    assert flags.interrupted and flags.fallback_to_generic and flags.used_rag


def test_only_what_the_text_mentions_is_referred_to() -> None:
    given = answer(RING, TREND, SHOP, cited=(SHOP,))
    sources = sources_of(given, SPEC)
    by_number = mentioned_sources("It undercuts you [Source 1].", sources, given.hits)
    assert by_number == {"keyword": (), "listing": (SHOP.source_id,), "alert": (), "doc": ()}
    by_term = mentioned_sources("A Gold Ring sells; heirlooms do too.", sources, given.hits)
    assert by_term["keyword"] == (RING.source_id,), "its term; and no part of a word"
