"""What a word may have been meant to be."""

import pytest

from rag_app.retrieval.spelling import MOST, correct_spelling, spellings, suspects


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("brydge", "bridge"),
        ("comitee", "committee"),
        ("recieved", "received"),
        ("tlak", "talk"),
        ("farmacy", "pharmacy"),
        ("teh", "the"),
        ("Kwality".lower(), "quality"),
        ("hedlamps", "headlamps"),
        ("doorbel", "doorbell"),
        ("frontdoor", "front door"),
        ("gutschien", "gutschein"),
        ("strasse", "straße"),
        ("boxs", "box"),
    ],
)
def test_a_slip_or_two(written: str, meant: str) -> None:
    assert meant in spellings(written)


def test_what_sounds_alike_is_likelier_than_any_other_letter() -> None:
    found = spellings("carpit")
    assert found["carpet"] < found["carpin"] <= 1.0 and "carpit" not in found and "market" not in found
    assert "tarpit" not in found and "carpet" in spellings("arpet"), "hardly anybody gets the first letter wrong"


def test_words_are_few_and_those_that_nobody_misspells_are_left_alone() -> None:
    assert suspects("How do I open the door in summer?", []) == [], "the embedding model knows them all"
    assert suspects("Is the Zwibbel in?", ["A Zwibbel costs 3."]) == [], "it was found"
    assert suspects("abc 123 serial X4711Z", []) == [], "no words"
    assert len(suspects("zwibbel zwabbel zwubbel zwobbel zwebbel " + "z" * 99, [])) == MOST
    assert correct_spelling("The ZWIBEL, and zwibels", {"zwibel": "zwibbel"}) == "The zwibbel, and zwibels"
