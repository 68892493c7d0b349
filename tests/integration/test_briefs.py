"""What is known of a subject, by each capability of Ask LexyBrain: told from records, and shown to a model in that order."""

import re

import pytest

from tests.evidence import context_of
from tests.integration.lexybrain import Chat, citing
from tests.scripted_model import Reply

UNCITED = Reply("Sales have doubled in June.")  # a claim without a source: the records are told instead
BRIEFS = {
    "market_brief": (
        "Market brief for Etsy",
        "8 keywords with market etsy, highest opportunity score first; 3 trends with market etsy, highest momentum first",
        ["Keyword: vintage wedding ring (Etsy)", "Keyword: velvet ring box (Etsy)", "Keyword: pressed flower necklace (Etsy)"],
        ["an opportunity score of 45.9", "an opportunity score of 41.18", "“Trend: staged proposals (Etsy)” has a momentum of 18"],
    ),
    "competitor_intel": (
        "How do our listings compare with our competitors' listings?",
        "your 4 listings, bestseller first; 3 competitor listings, bestseller first",
        [
            "Listing: double velvet ring box in emerald (Aurora Keepsakes)",
            "Listing: vintage-style milgrain wedding ring (Aurora Keepsakes)",
            "Listing: hammered silver stacking ring (Aurora Keepsakes)",
            "Listing: pressed wildflower necklace (Aurora Keepsakes)",
            "Listing: single velvet ring box (Little Velvet Co)",
            "Listing: antique-look wedding band (Thistle & Crown)",
            "Listing: moissanite solitaire (Old Harbour Jewels)",
        ],
        ["sold 611 times at 32 dollars", "sold 342 times", "sold 3,875 times", "sold 2,140 times at 105 dollars"],
    ),
    "keyword_explanation": (
        "Explain the keyword vintage wedding ring",
        "one keyword with term vintage wedding ring; 12 histories with term vintage wedding ring, newest first",
        ["Keyword: vintage wedding ring (Etsy)", "History of “vintage wedding ring”, January 2026"],
        ["a demand index of 85, a competition score of 46 and a momentum of 12", "December 2025”: a demand index of 76"],
    ),
    "alert_explanation": (
        "Explain my open alerts",
        "your 3 alerts with status open, newest first",
        ["Alert: declining demand for “hammered silver ring”", "Personal alert: velvet ring box above +20 percent"],
        ["its severity is medium", "fell to −14 percent, below the limit of −10 percent", "Suggested action: move", "15 percent"],
    ),
    "general_chat": (
        "Give me an overview of my watchlists",
        "your 2 watchlists",
        ["Watchlist: Spring proposals", "Watchlist: Bridal party gifts"],
        ["holds “velvet ring box”", "holds “bridesmaid earrings set”"],
    ),
}  # fmt: skip
"""Of each capability a message, what it is understood as, the sources first shown to a model, and what is told."""


@pytest.fixture
def chat(running: Chat) -> Chat:
    running.model.script[:] = [UNCITED]
    running.model.requests.clear()
    return running


@pytest.mark.parametrize("capability", BRIEFS)
def test_a_capability_tells_its_lists_and_shows_them_to_a_model(chat: Chat, capability: str) -> None:
    message, understood, titles, said = BRIEFS[capability]
    reply = chat.post(message)
    assert (reply["capability"], reply["flags"].get("understood", "")) == (capability, understood)
    blocks = context_of(chat.model.requests[-1].prompt)
    ordered = "first" in understood
    for title, block in zip(titles, blocks, strict=False):
        assert title in (block if ordered else "".join(blocks[: len(titles)])), blocks
    places = [reply["answer"].find(each) for each in said]
    assert -1 not in places and (not ordered or places == sorted(places)), reply["answer"]
    assert all("[Source" in line for line in re.split(r"(?<=\])[.;] ", reply["answer"])), reply["answer"]


@pytest.mark.parametrize("message", ["What are my watchlists and alerts?", "Tell me about my alerts and my watchlists"])
def test_watchlists_and_alerts_are_listed_together(chat: Chat, message: str) -> None:
    reply = chat.post(message)
    assert {*reply["flags"]["understood"].split("; ")} >= {"your 2 watchlists"} and "your 6 alerts" in str(
        reply["flags"]
    )
    assert "“Watchlist: Spring proposals” holds “velvet ring box”" in reply["answer"]
    assert "its severity is critical and it is resolved" in reply["answer"]


def test_a_model_tells_the_lists_in_its_own_words(chat: Chat) -> None:
    chat.model.script[:] = [citing("Keyword: vintage wedding ring (Etsy)", "The best opportunity is vintage rings {}.")]
    reply = chat.post("Market brief for Etsy")
    assert reply["answer"] == "The best opportunity is vintage rings [Source 1]."


def test_a_brief_holds_what_its_reader_may_see(chat: Chat) -> None:
    """Mila's own alert is not shown to a model for another member, nor aurora's to birch."""
    others = chat.newcomer("growth")
    for who, alerts in ((others, 2), (chat.jonas, 0)):
        chat.model.requests.clear()
        reply = chat.post("Explain our open alerts", who)
        prompt = "".join(request.prompt for request in chat.model.requests)
        assert "velvet ring box above" not in prompt + reply["answer"]
        assert alerts or "hammered silver" not in prompt + reply["answer"]


@pytest.mark.parametrize("message", ["Explain alerts", "Explain the demand index", "How do watchlists work?"])
def test_what_the_help_pages_explain_is_no_list(chat: Chat, message: str) -> None:
    assert not chat.post(message)["flags"].get("understood")
