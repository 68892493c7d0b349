"""What the system can be asked to do. Adding one is an entry here and a prompt in `prompts/`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rag_app.domain.errors import NotFound
from rag_app.domain.filters import Condition, Filters, Operator

Rerank = Literal["opportunity", "own_then_sales", "exact_match", "alerts_first"]
"""An order of its own for what was found; retrieval/postprocessors.py has a class for each."""


@dataclass(frozen=True, slots=True)
class Capability:
    """One way to answer from one index, and the words for when it cannot.

    `refusal` is said when the hits are not good enough, `uncited` when a model's answer has no valid citation.
    A capability that is not `grounded` may answer without sources. `keeps_admission`: a model that says it
    lacks information is quoted saying so, instead of `refusal`. `prefers_owner`: what belongs to the asker comes
    before what belongs to the team, and that before what is public. `rerank` is a strategy that orders what was found
    beyond that: what it does not tell apart stays in that order.

    A conversation (answering/focus.py) asks for `source_types` alone, and for `fetch` chunks to choose from; it
    prefers those of the last `recent_days` days and those that `preferred` holds for, and takes from a message which
    of the `severities` it is about. `failure_text` is said where the model fails and something was found, with a
    {summary} of it; without one, what fails is raised.

    Limits: `top_k` chunks are asked for by default - `by_source`: as many sources, each with its best chunks; the
    context holds at most `max_sources` sources with `chunks_per_source` chunks each in `max_context_tokens` tokens of
    the bundled tokenizer; an answer is cut after `max_sentences` sentences or `max_words` words. There is one citation
    a source.
    """

    name: str
    index: str
    prompt: str
    refusal: str
    uncited: str
    grounded: bool = True
    keeps_admission: bool = False
    prefers_owner: bool = False
    rerank: Rerank | None = None
    source_types: tuple[str, ...] = ()
    fetch: int | None = None
    recent_days: int | None = None
    preferred: Filters = ()
    severities: tuple[str, ...] = ()
    failure_text: str = ""
    top_k: int = 8
    by_source: bool = False
    max_context_tokens: int = 3000
    chunks_per_source: int = 3
    max_sources: int = 5
    max_sentences: int | None = None
    max_words: int | None = None


_INSUFFICIENT = (
    "I don't have enough relevant information to answer this question confidently. "
    "Here are the most relevant sources I found:"
)

_TRACKED = "add it to a watchlist so that it is tracked"
_UNSUPPORTED = "I found related data but cannot give an answer that it supports. Try a more specific question."
_LEXYBRAIN = Capability(
    name="general_chat",
    index="marketplace",
    prompt="ask_lexybrain",
    refusal=(
        "I don't have data or help pages on this yet. Try naming a keyword, a listing or a market, "
        f"or {_TRACKED}; the help pages explain metrics, alerts and plans."
    ),
    uncited=_UNSUPPORTED,
    grounded=False,
    prefers_owner=True,
    source_types=("doc", "keyword", "watchlist"),
    fetch=30,
    failure_text=(
        "I'm having trouble generating a response right now. Your data shows: {summary}. "
        "Please try again or rephrase your question."
    ),
    top_k=10,
    by_source=True,
    max_sources=10,
    max_context_tokens=4000,
)
"""Ask LexyBrain without anything special: the other four differ from it."""

SEARCH_FAILED = "I could not look this up just now: the search did not work. Please try again in a moment."
"""Instead of a refusal that would say that there is nothing to be found."""

CAPABILITIES: tuple[Capability, ...] = (
    Capability(
        name="knowledge_answer",
        index="org_knowledge",
        prompt="knowledge_answer",
        refusal=_INSUFFICIENT,
        uncited=_INSUFFICIENT,
        max_words=500,
    ),
    Capability(
        name="store_assistant",
        index="store_catalogue",
        prompt="store_assistant",
        refusal="I could not find this in the shop's products, pages and policies.",
        uncited="I could not confirm an answer from the shop's products, pages and policies.",
        top_k=10,
        max_context_tokens=4000,
    ),
    Capability(
        name="market_chat",
        index="marketplace",
        prompt="market_chat",
        refusal=(
            "I don't have data on this yet. Try naming a keyword, a listing or a market, "
            "or add it to a watchlist so that it is tracked."
        ),
        uncited=_UNSUPPORTED,
        prefers_owner=True,
        top_k=12,
        max_sources=12,
    ),
    replace(
        _LEXYBRAIN,
        name="market_brief",
        grounded=True,
        refusal=(
            "I don't have keywords or trends of this market yet. Name a market or a niche, "
            "or add its keywords to a watchlist so that they are tracked."
        ),
        rerank="opportunity",
        source_types=("keyword", "trend"),
        fetch=40,
        recent_days=90,
        top_k=12,
        max_sources=12,
    ),
    replace(
        _LEXYBRAIN,
        name="competitor_intel",
        grounded=True,
        refusal=(
            "I don't have listings or shops for this yet. Name a listing, a shop or a niche, "
            "or track the competitor's shop so that its listings, prices and sales are collected."
        ),
        rerank="own_then_sales",
        source_types=("listing", "shop", "keyword"),
        fetch=40,
        # What is on sale now: a listing is active, a shop open, a keyword tracked; a paused listing is left out.
        preferred=(Condition("status", Operator.IN, ("active", "open", "tracked"), or_missing=True),),
        top_k=12,
        max_sources=12,
    ),
    replace(
        _LEXYBRAIN,
        name="keyword_explanation",
        grounded=True,
        refusal=(
            f"I don't have demand, competition or a history of this keyword yet. Check its spelling, or {_TRACKED}."
        ),
        rerank="exact_match",
        source_types=("keyword", "keyword_history", "alert"),
    ),
    replace(
        _LEXYBRAIN,
        name="alert_explanation",
        grounded=True,
        refusal=(
            "I don't have an alert, a risk rule or a help page on this. Name the keyword or the listing that it is "
            "about, or set an alert for it so that its triggers are recorded."
        ),
        rerank="alerts_first",
        source_types=("alert", "risk_rule", "doc"),
        fetch=20,
        severities=("low", "medium", "high", "critical"),
        top_k=8,
        max_sources=8,
    ),
    _LEXYBRAIN,
    Capability(
        name="book_tutor",
        index="book",
        prompt="book_tutor",
        refusal="The book does not seem to cover this.",
        uncited="I found passages that may be related, but cannot give an answer that they support.",
        top_k=5,
    ),
    Capability(
        name="owner_ask",
        index="salon_calls",
        prompt="owner_ask",
        refusal="No relevant data found in call transcripts or booking records for your question.",
        uncited=(
            "I found some potentially relevant information but cannot provide a reliable answer without proper "
            "source verification. Please try rephrasing your question or being more specific."
        ),
        keeps_admission=True,
        top_k=5,
        chunks_per_source=50,  # as many as may be asked for: only the tokens bound what is read
        max_sources=50,
        max_sentences=7,
    ),
)


def capability_for(index: str) -> Capability:
    """The capability that answers from an index where none is named: the first. Raises NotFound with those that have one.

    >>> capability_for("salon_calls").name
    'owner_ask'
    """
    for capability in CAPABILITIES:
        if capability.index == index:
            return capability
    raise NotFound("capability for index", index, {capability.index for capability in CAPABILITIES})


def capability_named(name: str) -> Capability:
    """Raises NotFound with the capabilities there are.

    >>> capability_named("owner_ask").index
    'salon_calls'
    """
    for capability in CAPABILITIES:
        if capability.name == name:
            return capability
    raise NotFound("capability", name, [each.name for each in CAPABILITIES])


DESCRIPTIONS: Mapping[str, str] = {
    "market_brief": "the state of a market, niche or product category: demand, trends, opportunities, whether to enter",
    "competitor_intel": "other sellers: their shops, listings, prices and sales, and how the asker compares",
    "keyword_explanation": "one or a few named keywords or search terms: their figures, history, seasons, related terms",
    "alert_explanation": "alerts, warnings, risks, policies, trademarks: why something was flagged and what to do",
    "general_chat": "anything else: help with LexyHub, the asker's own lists and notes, advice on selling, small talk",
}
"""The capabilities that a message may want, as a model is told about them."""
