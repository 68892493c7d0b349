"""What a message asks of retrieval, by table; and the five capabilities, against their contract."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from rag_app.answering.capabilities import CAPABILITIES, Capability, capability_named
from rag_app.answering.prompts import PromptConfig
from rag_app.domain.answer import Instructions, Question
from rag_app.domain.filters import Filters
from rag_app.domain.resources import resource_folder
from rag_app.retrieval.filters import check_filters, condition, or_missing
from rag_app.retrieval.index import load_indexes
from rag_app.surfaces.lexybrain.messages import MAX_TERMS, question_for, quoted_phrases
from rag_app.surfaces.lexybrain.types import RagContext, RagRequest, RagTimeRange
from rag_app.surfaces.library.rag import opening_of

NOW = datetime(2026, 4, 1, tzinfo=UTC)
JANUARY, MARCH = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
PERIOD = RagTimeRange("2026-01-01", "2026-03-01T00:00:00")
INSTRUCTIONS = Instructions({"role": "analyst"}, 512, 0.7)
MARKETPLACE = load_indexes(resource_folder("indexes"))["marketplace"]
SALE = or_missing(condition("status", "in", ("active", "open", "tracked")))


def asked(capability: str, text: str = "?", context: RagContext | None = None, **more: Any) -> Question:
    return question_for(capability_named(capability), RagRequest(text, context=context), INSTRUCTIONS, NOW, **more)


def types(*names: str) -> MetadataFilter:
    return condition("source_type", "in", names) if names else condition("source_type", "is_empty")


def since(moment: datetime) -> MetadataFilters:
    return or_missing(condition("date", ">=", moment.timestamp()))


def until(moment: datetime) -> MetadataFilters:
    return or_missing(condition("date", "<=", moment.timestamp()))


def market(*names: str) -> MetadataFilters:
    return or_missing(condition("market", "in", names))


RECENT = since(NOW - timedelta(days=90))
BRIEF, RIVALS = types("keyword", "trend"), types("listing", "shop", "keyword")


@pytest.mark.parametrize(
    ("capability", "context", "filters", "preferred"),
    [
        ("market_brief", RagContext(), (BRIEF,), (RECENT,)),
        ("market_brief", RagContext(marketplaces=["etsy"]), (BRIEF, market("etsy")), (RECENT,)),
        ("market_brief", RagContext(marketplaces=["x' OR 1=1", "Etsy"]), (BRIEF, market("x' OR 1=1", "x' or 1=1", "Etsy", "etsy")), (RECENT,)),
        ("market_brief", RagContext(time_range=PERIOD), (BRIEF, since(JANUARY), until(MARCH)), ()),
        ("competitor_intel", RagContext(), (RIVALS,), (SALE,)),
        ("competitor_intel", RagContext(time_range=PERIOD), (RIVALS, since(JANUARY), until(MARCH)), (SALE,)),
        ("keyword_explanation", RagContext(), (types("keyword", "keyword_history", "alert"),), ()),
        ("alert_explanation", RagContext(), (types("alert", "risk_rule", "doc"),), ()),
        ("general_chat", RagContext(keywords=["kw"], shop_url="https://x.y"), (types("doc", "keyword", "watchlist"),), ()),
    ],
)  # fmt: skip
def test_what_a_client_names_holds_and_what_a_capability_prefers_may_not(
    capability: str, context: RagContext, filters: Filters, preferred: Filters
) -> None:
    question = asked(capability, context=context)
    assert (question.filters, question.preferred) == (filters, preferred)
    for each in (filters, preferred):
        assert check_filters(each, MARKETPLACE) == each


@pytest.mark.parametrize(
    ("retrieval_scope", "left"),
    [
        (None, ("doc", "keyword", "watchlist")),
        (("keyword", "doc"), ("doc", "keyword")),
        (("keyword", "listing", "nonsense"), ("keyword",)),
        (("listing",), ()),
        ((), ()),
    ],
)
def test_a_prompt_version_narrows_the_types_and_never_widens_them(
    retrieval_scope: tuple[str, ...] | None, left: tuple[str, ...]
) -> None:
    assert asked("general_chat", retrieval_scope=retrieval_scope).filters == (types(*left),)


def test_a_capability_of_all_types_is_narrowed_too() -> None:
    assert asked("market_chat").filters == ()
    assert asked("market_chat", retrieval_scope=("doc",)).filters == (types("doc"),)


@pytest.mark.parametrize(
    ("text", "severities"),
    [
        ("Why do I have a high severity alert?", ("high",)),
        ("Explain the CRITICAL alerts and the low-risk ones", ("low", "critical")),
        ("alerts of severity: medium", ("medium",)),
        ("Which alerts are critical?", ("critical",)),
        ("Which risk is high?", ("high",)),
        ("Why is demand so high? An alert says low stock.", ()),
        ("highalert, alerts highlight", ()),
        ("", ()),
    ],
)
def test_alerts_of_the_severity_that_a_message_speaks_of(text: str, severities: tuple[str, ...]) -> None:
    wanted = (or_missing(condition("severity", "in", severities)),) if severities else ()
    assert asked("alert_explanation", text).preferred == wanted
    assert asked("keyword_explanation", text).preferred == ()


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("no quotes, it's the seller's", ()),
        ('"boho" and “vintage ring”', ("boho", "vintage ring")),
        ("«perles» „Ringe“ „Band”", ("perles", "Ringe", "Band")),
        ('"Boho" "boho"  " "  ""', ("Boho",)),
        ('"over\ntwo lines" stays out', ()),
        ('a 12" ruler', ()),
        (f'"{"x" * 101}"', ()),
        ('"(a+)+$"', ("(a+)+$",)),
    ],
)  # fmt: skip
def test_quoted_phrases_are_terms(text: str, terms: tuple[str, ...]) -> None:
    assert quoted_phrases(text) == terms == asked("keyword_explanation", text).terms


def test_there_is_an_end_to_terms() -> None:
    assert len(quoted_phrases(" ".join(f'"term {number}"' for number in range(99)))) == MAX_TERMS
    assert quoted_phrases("“" * 4000) == quoted_phrases('"' * 3999) == ()


async def test_a_first_message_asked_of_the_library_keeps_to_the_versions_that_it_draws() -> None:
    drawn = {
        "global": PromptConfig("ask_lexybrain_g", "global", "Be brief.", {"max_tokens": 99, "temperature": 0.2}),
        "general_chat": PromptConfig(
            "ask_lexybrain_r",
            "general_chat",
            "Help.",
            {"retrieval_scope": ["docs"], "max_keywords": 3, "temperature": 0.1},
        ),
    }

    async def draw(kind: str) -> PromptConfig | None:
        return drawn.get(kind)

    application: Any = SimpleNamespace(prompts=SimpleNamespace(draw=draw))
    question = await opening_of(application, capability_named("general_chat"), Question("?", top_k=4))
    assert (question.filters, question.at_most, question.top_k) == ((types("doc"),), (("keyword", 3),), 4)
    told = question.instructions
    assert (told.max_tokens, told.temperature) == (99, 0.1)
    assert told.values == {"system": "Be brief.", "role": "Help.", "history": "", "language": "en"}


def test_all_else_is_handed_on() -> None:
    one, two = uuid4(), uuid4()
    question = asked(
        "market_brief",
        "And now?",
        searched=("Rings? And now?", "And now?"),
        named=(one, two),
        earlier=(two,),
        at_most={"keyword": 20},
    )
    assert (question.text, question.searched, question.also) == ("And now?", "Rings? And now?", ("And now?",))
    assert question.earlier == (two,)
    assert (question.sources, question.at_most) == ((one, two), (("keyword", 20),))
    assert question.instructions is INSTRUCTIONS and question.threshold is None
    assert asked("market_brief", "The same").searched is None


def test_a_second_look_drops_the_types_of_the_capability_but_not_those_of_an_administrator() -> None:
    question = asked("market_brief", context=RagContext(marketplaces=["etsy"]))
    assert question.filters == (BRIEF, market("etsy")) and question.wide == (market("etsy"),)
    assert asked("market_brief", retrieval_scope=("keyword", "trend", "doc")).wide == ()
    assert asked("market_brief", retrieval_scope=("keyword",)).wide is None


LEXYBRAIN = ("market_brief", "competitor_intel", "keyword_explanation", "alert_explanation", "general_chat")


@pytest.mark.parametrize(
    ("name", "fetch", "keep", "rerank", "grounded"),
    [
        ("market_brief", 40, 12, "opportunity", True),
        ("competitor_intel", 40, 12, "own_then_sales", True),
        ("keyword_explanation", 30, 10, "exact_match", True),
        ("alert_explanation", 20, 8, "alerts_first", True),
        ("general_chat", 30, 10, None, False),
    ],
)
def test_the_five_are_as_their_contract_says(
    name: str, fetch: int, keep: int, rerank: str | None, grounded: bool
) -> None:
    capability, question = capability_named(name), asked(name)
    assert (capability.index, capability.prompt) == ("marketplace", "ask_lexybrain")
    assert (question.fetch, question.top_k, capability.max_sources) == (fetch, keep, keep)
    assert (capability.rerank, capability.grounded, capability.prefers_owner, capability.by_source) == (
        rerank, grounded, True, True,
    )  # fmt: skip
    assert set(capability.source_types) <= set(MARKETPLACE.source_types)
    assert capability.failure_text == (
        "I'm having trouble generating a response right now. Your data shows: {summary}. "
        "Please try again or rephrase your question."
    )


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda each: each.name)
def test_only_conversations_cope_with_failures_and_count_sources(capability: Capability) -> None:
    conversation = capability.name in LEXYBRAIN
    assert bool(capability.failure_text) == capability.by_source == bool(capability.source_types) == conversation


def test_a_refusal_says_what_is_missing_and_what_would_provide_it() -> None:
    refusals = {name: capability_named(name).refusal for name in LEXYBRAIN}
    assert len(set(refusals.values())) == 5
    for name, (missing, feature) in {
        "market_brief": ("keywords or trends", "watchlist"),
        "competitor_intel": ("listings or shops", "track the competitor's shop"),
        "keyword_explanation": ("demand, competition or a history", "watchlist"),
        "alert_explanation": ("an alert, a risk rule or a help page", "set an alert"),
        "general_chat": ("data or help pages", "watchlist"),
    }.items():
        assert missing in refusals[name] and feature in refusals[name]
