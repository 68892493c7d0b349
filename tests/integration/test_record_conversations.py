"""Questions about records that go on with what the answer before put first, over the real route."""

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
