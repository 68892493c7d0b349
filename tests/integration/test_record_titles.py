"""Records that a question names by their titles, over the real route: told in the index's sentence, and to nobody else."""

import pytest

from tests.integration.lexybrain import Chat
from tests.scripted_model import Reply

UNCITED = Reply("Sales have doubled in June.")  # a claim without a source: the records are told instead


@pytest.fixture
def chat(running: Chat) -> Chat:
    running.model.script[:] = [UNCITED]
    running.model.requests.clear()
    return running


def test_the_figures_of_a_named_record_are_told_in_its_sentence(chat: Chat) -> None:
    reply = chat.post("What does our milgrain ring cost and how many sales has it made?")
    assert reply["answer"].startswith(
        "“Listing: vintage-style milgrain wedding ring (Aurora Keepsakes)” sold 342 times at 128"
    )
    assert reply["flags"]["understood"].startswith("your only listing with title “Listing: vintage-style milgrain")


def test_a_difference_of_two_named_records_has_its_unit_and_both_sources(chat: Chat) -> None:
    reply = chat.post("By how many dollars is our milgrain ring dearer than the Thistle & Crown band?")
    assert reply["answer"].endswith("The difference is 23 dollars [Source 1] [Source 2].")


def test_a_difference_in_percent_is_one_of_the_other_figure(chat: Chat) -> None:
    reply = chat.post("How many percent dearer is our milgrain ring than the Thistle & Crown band?")
    assert reply["answer"].endswith("That is 21.9 percent more [Source 1] [Source 2].")


def test_a_share_of_a_total_is_told_with_both_figures(chat: Chat) -> None:
    answer = chat.post("What share of our sales is the milgrain ring?")["answer"]
    assert "are 342 [Source 1]. " in answer and "are 1,234 in total" in answer
    assert answer.endswith("That is 27.71 percent [Source 1].")


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        ("Is our milgrain ring dearer than the Thistle & Crown band?", "Yes: “Listing: vintage-style milgrain"),
        ("Is our milgrain ring cheaper than the Thistle & Crown band?", "No: “Listing: antique-look wedding band"),
        ("Which sold more, our milgrain ring or the Thistle & Crown band?", "“Listing: antique-look wedding band"),
        ("Do our milgrain ring and the Thistle & Crown band cost the same?", "No: “Listing: vintage-style milgrain"),
    ],
)
def test_a_comparison_begins_with_its_verdict(chat: Chat, message: str, verdict: str) -> None:
    answer = chat.post(message)["answer"]
    assert answer.startswith(verdict) and " against " in answer.split(". ")[0]


@pytest.mark.parametrize(("limit", "verdict"), [("300", "Yes"), ("400", "No")])
def test_whether_a_named_record_is_beyond_a_figure_is_told(chat: Chat, limit: str, verdict: str) -> None:
    answer = chat.post(f"Did our milgrain ring sell more than {limit} times?")["answer"]
    assert answer.startswith(f"{verdict}: “Listing: vintage-style milgrain") and "sold 342 times" in answer


@pytest.mark.parametrize(
    ("message", "figure"),
    [
        ("What does our milgrain ring cost?", "128"),
        ("How many sales does Thistle & Crown have?", "21,300"),
        ("By how many dollars is our milgrain ring dearer than the Thistle & Crown band?", "23 dollars"),
    ],
)
def test_titles_of_another_organization_name_nothing(chat: Chat, message: str, figure: str) -> None:
    assert figure in chat.post(message)["answer"]
    chat.model.requests.clear()
    reply = chat.post(message, chat.jonas)
    shown = "".join(request.prompt for request in chat.model.requests).replace(message, "")
    assert "understood" not in reply["flags"] and figure not in reply["answer"] + shown


def test_a_word_of_another_organizations_texts_is_no_condition(chat: Chat) -> None:
    message = "Which wedding keyword has the highest demand?"
    assert "“wedding” in title or text" in chat.post(message)["flags"]["understood"]
    theirs, invented = (chat.post(text, chat.jonas) for text in (message, message.replace("wedding", "zqxvtram")))
    assert "understood" not in theirs["flags"] and theirs["answer"] == invented["answer"]


@pytest.mark.parametrize("message", ["What is the cheapest wedding keyword?", "What is the cheapest keyword on Etsy?"])
def test_of_records_that_lack_the_figure_it_is_not_said_that_none_meets_the_conditions(
    chat: Chat, message: str
) -> None:
    assert "None of" not in chat.post(message)["answer"]


def test_a_sum_of_what_is_counted_agrees_with_its_name(chat: Chat) -> None:
    answer = chat.post("How many sales did our listings make in total?")["answer"]
    assert answer.startswith("The sales of your 4 listings are 1,234 in total [Source 1]")
