"""The way of a conversation's question: what is looked for, what order its capability gives, what is kept of it."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from rag_app.answering.capabilities import capability_named
from rag_app.answering.leaning import question_before
from rag_app.domain.answer import Answer, Delta, FoundHits, Hit, Mode, Question, Refusal
from rag_app.domain.errors import EmbeddingFailed, InvalidInput, ModelFailed, StoreFailed
from rag_app.domain.resources import resource_folder
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.pipeline import Pipeline
from rag_app.retrieval.filters import condition
from rag_app.retrieval.index import ConfidenceRule, IndexSpec, load_indexes
from rag_app.retrieval.store import ScopedStore
from tests.unit.answering.hits import hit
from tests.unit.answering.test_engine import Says
from tests.unit.answering.test_stream import Speaks
from tests.unit.retrieval.shelf import Counted, Shelf
from tests.unit.test_pipeline import today_in_utc, words_alone

ANN, TEAM = uuid4(), uuid4()
SCOPE = Scope(frozenset({TEAM, PUBLIC_ORGANIZATION}), ANN)
MARKETPLACE = load_indexes(resource_folder("indexes"))["marketplace"].model_copy(
    update={"confidence": ConfidenceRule(signal="best", answer_from=0.51)}
)
FIVE = ("market_brief", "competitor_intel", "keyword_explanation", "alert_explanation", "general_chat")


class Asked(Says):
    """Remembers the questions."""

    async def write(self, question: Question, context: Any) -> Any:
        self.questions = [*getattr(self, "questions", []), question]
        return await super().write(question, context)


class Market:
    """A pipeline over these hits. `down`: the store does not open."""

    def __init__(self, *hits: Hit, says: Says | None = None, down: bool = False) -> None:
        self.backend: dict[str, Any] = {"hits": hits, "asked": []}
        self.embedder, self.says = Counted(embed_dim=3), says or Asked("So it is [Source 1].")

        async def open_store(spec: IndexSpec, scope: Scope) -> ScopedStore:
            if down:
                raise StoreFailed("PostgreSQL: gone")
            return Shelf(spec=spec, generation="g1", scope=scope, backend=self.backend)

        self.pipeline = Pipeline(
            {MARKETPLACE.name: MARKETPLACE},
            open_store,
            self.embedder,
            lambda _: self.says,
            load_fit=words_alone,
            today=today_in_utc,
        )

    async def answer(self, capability: str, text: str = "?", **asked: Any) -> Answer:
        chosen = capability_named(capability)
        plain = {"top_k": chosen.top_k, "fetch": chosen.fetch, "mode": Mode.DENSE} | asked
        return await self.pipeline.answer(capability, Question(text, **plain), SCOPE)

    async def found(self, capability: str, text: str = "?", **asked: Any) -> list[str]:
        return [each.title for each in (await self.answer(capability, text, **asked)).hits]


def thing(title: str, score: float, source_type: str = "keyword", *, org: UUID = TEAM, **more: Any) -> Hit:
    return replace(hit(title, score=score, title=title, source_type=source_type, **more), org_id=org)


async def test_what_is_looked_for_is_embedded_once_and_what_was_said_is_answered() -> None:
    market = Market(thing("a", 0.9), thing("b", 0.8))
    market.says.model = "a model"  # without one, what a message points at is answered from what it names alone
    named = (market.backend["hits"][1].source_id,)
    only_shops = (condition("source_type", "==", "shop"),)
    await market.answer("general_chat", "And it?", searched="Rings? And it?", sources=named, preferred=only_shops)
    assert market.embedder.embedded == ["Rings? And it?"] and len(market.backend["asked"]) == 8
    assert isinstance(market.says, Asked) and [each.text for each in market.says.questions] == ["And it?"]
    await market.pipeline.search("marketplace", Question("And it?", searched="Rings?"), SCOPE)
    assert market.embedder.embedded[1:] == ["Rings?"]


async def test_a_model_is_shown_sources_behind_those_that_were_found_unless_fewer_are_asked_for() -> None:
    crowd = [thing(f"Thing {number}", 0.9 - number / 100) for number in range(20)]
    market = Market(*crowd, thing("Chose", 0.2, lang="fr"), thing("Sortie", 0.6, "trend", lang="fr", date=0.0))
    most = capability_named("market_brief").top_k
    market.says.model = "a model"
    answer = await market.answer("market_brief", "What of things?")
    await market.answer("market_brief", "What of things?", top_k=most - 1)
    await market.answer("market_brief", "What of things?", at_most=(("keyword", 2),))
    market.says.model = None
    await market.answer("market_brief", "What of things?")
    shown = [[block.title for block in context.blocks] for context in market.says.shown]
    assert len(answer.hits) == most and shown[0][:most] == [each.title for each in crowd[:most]]
    assert {"Chose", "Sortie", *(each.title for each in crowd)} == {*shown[0]}
    assert len(shown[1]) == most - 1 and shown[2] == ["Thing 0", "Thing 1", "Sortie"]
    assert len(shown[3]) == most


async def test_of_a_question_about_days_a_model_is_shown_other_days_last() -> None:
    days = [datetime(2026, month, 9, tzinfo=UTC).timestamp() for month in (1, 2)]
    things = [thing("then", 0.6, date=days[0]), thing("later", 0.9, date=days[1])]
    for model, shown in (("a model", ["then", "later"]), (None, ["then"])):
        market = Market(*things)
        market.says.model = model
        answer = await market.answer("market_brief", "What was asked for in January 2026?")
        assert [each.title for each in answer.hits] == ["then"]
        assert [block.title for block in market.says.shown[0].blocks] == shown


async def test_a_model_is_asked_in_the_askers_own_words() -> None:
    market = Market(thing("a", 0.9))
    market.says.model = "a model"
    asked = {
        "searched": "Whats a lamp for oak?",
        "also": ("Whats a lamp?\nand oak?",),
        "restated": "Whats a lamp for oak?",
    }
    answer = await market.answer("market_brief", "and oak?", **asked)
    assert isinstance(market.says, Asked)
    assert [each.text for each in market.says.questions] == ["and oak?"]
    assert question_before(market.says.questions[0]) == "Whats a lamp?"
    assert answer.searched == "what's a lamp for oak?"


async def test_a_model_is_asked_in_a_language_that_the_embedder_does_not_know() -> None:
    for text, asked in (
        ("Kann man das Schloss auch ohne den Boten haben?", 1),
        ("Can a lock come without the courier?", 0),
    ):
        market = Market(thing("a", 0.1))
        market.says.model, market.embedder.languages = "a model", ("en",)
        answer = await market.answer("market_chat", text)
        assert len(market.says.shown) == asked and answer.refused is not bool(asked)


ORDERED = (
    thing("trend", 0.80, "trend"),
    thing("poor", 0.79, metadata={"demand_index": 90, "competition_score": 90, "sales": 5, "term": "oak"}),
    thing("rich", 0.78, metadata={"demand_index": 90, "competition_score": 10, "sales": 7, "term": "ash"}),
    thing("rule", 0.77, "risk_rule", org=PUBLIC_ORGANIZATION),
    thing("alert", 0.76, "alert"),
    thing("mine", 0.75, "watchlist", owner_id=ANN),
    thing("my alert", 0.74, "alert", owner_id=ANN),
    thing("far", 0.60, owner_id=ANN, metadata={"demand_index": 99, "competition_score": 0, "term": "ash"}),
)


@pytest.mark.parametrize(
    ("capability", "order"),
    [
        ("market_brief", ["rich", "poor", "mine", "my alert", "trend", "alert", "rule", "far"]),
        ("competitor_intel", ["mine", "my alert", "rich", "poor", "trend", "alert", "rule", "far"]),
        ("keyword_explanation", ["rich", "far", "trend", "poor", "rule", "alert", "mine", "my alert"]),
        ("alert_explanation", ["my alert", "alert", "rule", "mine", "trend", "poor", "rich", "far"]),
        ("general_chat", ["mine", "my alert", "trend", "poor", "rich", "alert", "rule", "far"]),
    ],
)
async def test_each_capability_has_its_order(capability: str, order: list[str]) -> None:
    assert await Market(*ORDERED).found(capability, "What of ash?") == order


async def test_a_term_of_the_turn_before_is_exact_too() -> None:
    found = await Market(*ORDERED).found("keyword_explanation", "Why is it?", searched="What of ash? Why is it?")
    assert found[0] == "rich"


@pytest.mark.parametrize("capability", FIVE)
async def test_what_is_kept_is_counted_in_sources(capability: str) -> None:
    keep = capability_named(capability).top_k
    many = [thing(f"s{n}", 0.9 - n / 1000, source=source) for n, source in enumerate([uuid4() for _ in range(20)])]
    again = [replace(each, chunk_id=uuid4(), position=n) for each in many[:3] for n in range(1, 6)]
    found = await Market(*many, *again).answer(capability, fetch=100)
    assert len({each.source_id for each in found.hits}) == keep
    assert len([each for each in found.hits if each.source_id == many[0].source_id]) == 3
    assert len({each.hit.source_id for each in found.citations}) == len(found.citations) and found.retrieved == 35


async def test_limits_of_a_type_cut_what_was_not_named_first() -> None:
    far = thing("far", -0.3)
    market = Market(*(thing(f"k{n}", 0.9 - n / 100) for n in range(5)), thing("doc", 0.5, "doc"), far)
    market.says.model = "a model"
    assert await market.found("general_chat", at_most=(("keyword", 2),)) == ["k0", "k1", "doc"]
    named = await market.found("general_chat", at_most=(("keyword", 2),), sources=(far.source_id,))
    assert named == ["far", "k0", "doc"]
    hits = await market.pipeline.search("marketplace", Question("?", sources=(far.source_id,), top_k=2), SCOPE)
    assert [each.title for each in hits] == ["far", "k0"]


async def test_what_is_named_is_found_whatever_is_filtered() -> None:
    market = Market(thing("alert", 0.9, "alert"), thing("keyword", 0.8))
    market.says.model = "a model"
    only = (condition("source_type", "in", ("keyword",)),)
    assert await market.found("market_brief", filters=only) == ["keyword"]
    alert = market.backend["hits"][0].source_id
    assert await market.found("market_brief", filters=only, sources=(alert,)) == ["alert", "keyword"]


async def test_a_filter_that_is_none_is_refused_also_where_it_is_preferred() -> None:
    with pytest.raises(InvalidInput, match="colour"):
        await Market(down=True).answer("market_brief", preferred=(condition("colour", "==", "red"),))


@pytest.mark.parametrize("capability", FIVE)
async def test_a_store_that_does_not_open_is_coped_with_in_a_conversation(capability: str) -> None:
    market = Market(thing("a", 0.9), down=True)
    answer = await market.answer(capability)
    found, *deltas, streamed = [event async for event in market.pipeline.stream(capability, Question("?"), SCOPE)]
    assert found == FoundHits(()) and isinstance(streamed, Answer)
    assert "".join(each.text for each in deltas if isinstance(each, Delta)) == streamed.text == answer.text
    for each in (answer, streamed):
        assert [type(error) for error in each.failures] == [StoreFailed]
        assert each.refusal is (Refusal.NOTHING_FOUND if capability_named(capability).grounded else None)


async def test_a_store_that_does_not_open_is_raised_elsewhere() -> None:
    market = Market(down=True)
    with pytest.raises(StoreFailed):
        await market.answer("market_chat")
    with pytest.raises(StoreFailed):
        await market.pipeline.search("marketplace", Question("?"), SCOPE)


async def test_a_store_that_stops_answering_is_coped_with_too() -> None:
    market = Market(thing("a", 0.9))
    market.backend["down"] = True
    assert (await market.answer("market_brief")).refusal is Refusal.NOTHING_FOUND
    with pytest.raises(StoreFailed):
        await market.answer("market_chat")


async def test_an_embedder_that_fails_and_a_model_that_fails() -> None:
    class Dumb(Counted):
        async def _aget_query_embedding(self, query: str) -> list[float]:
            raise RuntimeError("no")

    market = Market(thing("a", 0.9))
    market.pipeline._embedder = Dumb(embed_dim=3)
    assert [type(each) for each in (await market.answer("market_brief")).failures] == [EmbeddingFailed]
    with pytest.raises(EmbeddingFailed):
        await market.answer("market_chat")
    silent = Market(thing("a", 0.9), says=Speaks(error=ModelFailed("gone")))
    events = [event async for event in silent.pipeline.stream("market_brief", Question("?"), SCOPE)]
    assert isinstance(events[-1], Answer) and events[-1].refusal is Refusal.FAILED
    with pytest.raises(ModelFailed):
        [event async for event in silent.pipeline.stream("market_chat", Question("?"), SCOPE)]
