"""Questions about records that go on with what the answer before put first, over the real route."""

import re
from typing import Any

import pytest

from tests.integration.lexybrain import Chat
from tests.scripted_model import Reply

PLATFORM = "on which platform do we have the most listings?"


@pytest.fixture
def chat(running: Chat) -> Chat:
    running.model.script[:] = [Reply("Sales have doubled in June.")]  # a claim without a source: the records are told
    return running


def understood(chat: Chat, *messages: str) -> str:
    """How the last of several messages was read."""
    thread: dict[str, Any] = {}
    reply: dict[str, Any] = {}
    for message in messages:
        reply = chat.post(message, **thread)
        thread = {"threadId": reply["threadId"]}
    return str(reply["flags"]["understood"])


def test_that_one_is_what_was_put_first(chat: Chat) -> None:
    asked = PLATFORM, "and what is the average price on that one?"
    assert understood(chat, *asked) == "the average price of your 4 listings with market etsy"


def test_a_figure_of_the_record_that_was_put_first(chat: Chat) -> None:
    assert understood(chat, "what is our cheapest listing?", "what are its sales") == "your 4 listings, cheapest first"
    assert understood(chat, "what is our cheapest listing?", "and the price?") == "your 4 listings, cheapest first"


LISTINGS = "which of our listings have more than 100 sales?"


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ((LISTINGS, "what do they cost together?"), "the total price of your 3 listings with sales above 100"),
        ((LISTINGS, "how many did they sell?"), "the total sales of your 3 listings with sales above 100"),
        ((LISTINGS, "except the active ones"), "your listings with sales above 100, status not active"),
        (
            ("our 2 dearest listings", "the two together?"),
            "the total price of your 2 listings with rank 1 to 2 by price",
        ),
        ((LISTINGS, "how many of those are paused?"), "your listings with sales above 100, status paused"),
        ((LISTINGS, "which of them is cheapest?"), "your 3 listings with sales above 100, cheapest first"),
        ((LISTINGS, "only those that are active"), "your 3 listings with sales above 100, status active"),
        ((LISTINGS, "and the rest?"), "your only listing with sales at most 100"),
        (
            ("our 2 dearest listings", "how many sales is that together?"),
            "the total sales of your 2 listings with rank 1 to 2 by price",
        ),
        (
            ("how many sales do our listings have?", "without the paused one"),
            "the total sales of your 3 listings with status not paused",
        ),
        (("how many of our keywords are for etsy?", "and the rest?"), "your 2 keywords with market not etsy"),
        (
            ("how many keywords do we have on etsy?", "and on amazon?", "together?"),
            "your 10 keywords with market etsy or market amazon",
        ),
        ((LISTINGS, "what does the second one cost?"), "your only listing with sales above 100, number 2 of the list"),
        (("on which platforms do we have keywords?", "how many are they?"), "your keywords by marketplace"),
    ],
)
def test_what_is_asked_of_those(chat: Chat, asked: tuple[str, ...], wanted: str) -> None:
    assert understood(chat, *asked) == wanted


def test_the_rest_of_a_list_is_told(chat: Chat) -> None:
    asked = "our 3 keywords with the most demand", "the next three", "the next two"
    thread: dict[str, Any] = {}
    told = []
    for message in asked:
        reply = chat.post(message, **thread)
        thread = {"threadId": reply["threadId"]}
        told.append(str(reply["answer"]).split(":")[0])
    assert told[1:] == [
        "4 to 6 of your 10 keywords, most wanted first",
        "7 to 8 of your 10 keywords, most wanted first",
    ]


def test_two_figures_are_set_apart(chat: Chat) -> None:
    asked = "how many keywords do we have on etsy?", "and on amazon?"
    for text in ("what's the difference?", "and which has more?"):
        assert understood(chat, *asked, text) == "your 8 keywords with market etsy; your 2 keywords with market amazon"


def test_what_does_not_add_up_has_no_total(chat: Chat) -> None:
    reply = chat.post("what is the total demand index of our keywords?")
    assert reply["flags"].get("understood") is None


def test_how_long_ago_something_was_is_counted_in_days(chat: Chat) -> None:
    assert re.search(r"That is \d[\d,]* days ago", chat.post("How long ago was our last alert?")["answer"])


def test_the_terms_of_a_watchlist_are_asked_of_whom_it_belongs_to_alone(chat: Chat) -> None:
    asked = "What is the average demand of the terms on the Spring proposals watchlist?"
    told = chat.post(asked)["flags"]["understood"]
    assert re.fullmatch(r"the average demand index of \d keywords with a place in “.*Spring proposals.*”", told), told
    assert "understood" not in chat.post(asked, chat.jonas)["flags"]
