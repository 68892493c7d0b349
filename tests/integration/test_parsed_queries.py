"""Questions over records that the rules do not read and the parser does, over the real route; and who sees what it is shown."""

from typing import Any

import pytest

from rag_app.answering.records.parser import parse
from tests.integration.lexybrain import Chat
from tests.scripted_model import Reply

UNCITED = Reply("Sales have doubled in June.")  # a claim without a source: the records are told instead
FEW_SALES = "How many of our listings did not reach 100 sales?"


@pytest.fixture
def chat(running: Chat) -> Chat:
    running.model.script[:] = [UNCITED]
    running.model.requests.clear()
    return running


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The values that the parser is shown, which reads as ever."""
    values = list[str]()

    def watched(question: str, period: Any, items: Any) -> Any:
        values.extend(item.value for item in items if item.sort == "value")
        return parse(question, period, items)

    monkeypatch.setattr("rag_app.answering.records.read_queries.parse", watched)
    return values


def test_a_question_that_the_rules_do_not_read_is_answered(chat: Chat, shown: list[str]) -> None:
    reply = chat.post(FEW_SALES)
    assert shown
    assert reply["flags"]["understood"] == "your only listing with sales below 100"
    assert reply["answer"].startswith("You have 1 listing with sales below 100")


def test_an_order_in_other_words_is_read(chat: Chat, shown: list[str]) -> None:
    reply = chat.post("walk me through the keywords, demand index descending")
    assert shown
    assert reply["flags"]["understood"] == "10 keywords, most wanted first"


def test_it_is_not_asked_where_no_word_names_records(chat: Chat, shown: list[str]) -> None:
    chat.post("Within how many days are returns free?")
    assert not shown
    chat.post("Within how many days are listings free?")
    assert shown


def test_no_model_is_asked_for_a_query_that_was_parsed(chat: Chat, shown: list[str]) -> None:
    chat.post(FEW_SALES)
    assert shown and not any("JSON" in request.prompt for request in chat.model.requests)


def test_the_parser_is_shown_values_of_the_askers_scope_alone(chat: Chat, shown: list[str]) -> None:
    asked = "whichever keywords resemble milgrain ring or beeswax wrap set, with their hype"
    chat.post(asked)
    assert "milgrain ring" in shown and "beeswax wrap set" not in shown
    shown.clear()
    chat.post(asked, chat.jonas)
    assert "milgrain ring" not in shown and "beeswax wrap set" in shown


def test_what_is_parsed_counts_records_of_the_askers_scope_alone(chat: Chat, shown: list[str]) -> None:
    asked = "I am curious how many keywords score beyond 60 in demand"
    everybody, jonas = (chat.post(asked, *user)["flags"]["understood"] for user in ((), (chat.jonas,)))
    assert shown
    assert everybody == "6 keywords with demand index above 60"
    assert jonas != everybody


def test_what_the_rules_read_is_not_parsed(chat: Chat, shown: list[str]) -> None:
    assert chat.post("Which of our listings is the cheapest?")["flags"]["understood"]
    assert shown == []


def test_what_no_field_holds_is_refused(chat: Chat, shown: list[str]) -> None:
    reply = chat.post("How many of our listings were praised by somebody from Lyon?")
    assert shown and "understood" not in reply["flags"]


def test_who_is_not_named_is_refused(chat: Chat, shown: list[str]) -> None:
    reply = chat.post("How many of her listings did not reach 100 sales?")
    assert shown and "understood" not in reply["flags"]
