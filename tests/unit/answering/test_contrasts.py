"""What is said of one thing says nothing of another one of its sort."""

import pytest

from rag_app.answering.contrasts import speaks_of_another
from rag_app.answering.extractive import holds
from rag_app.answering.passages import Passage


@pytest.mark.parametrize(
    ("question", "text", "another"),
    [
        ("how much is a van", "Cars: £9; lorries: £20", True),
        ("how much is a van", "Cars and vans: £9", False),
        ("how much is a van", "Parking is £9.", False),
        ("What is the fee for non-members?", "Members pay 9 euros.", True),
        ("What is the fee for visitors?", "Non-members pay 9 euros.", False),
        ("What does a company pay?", "£9 per person, for any number.", False),
        ("how many may a company have", "One person may have eight.", True),
        ("the price on a Wednesday", "Monday to Friday: £9", False),
        ("the price on a Monday", "Saturday to Tuesday: £9", False),
        ("the price on a Thursday", "Saturday to Tuesday: £9", True),
        ("what is it in April", "may to September: 98", True),
        ("what is it in May", "may to September: 98", False),
        ("the price on a Thursday", "Tue to Fri: £9", False),
        ("the price on a Thursday", "Wed: £9", True),
        ("the price of sun cream on a Thursday", "Sun cream: £9", False),
        ("Was kostet ein Hund?", "Katzen: 9 Euro", True),
        ("Was kostet das am Dienstag?", "Montag bis Mittwoch: 9 Euro", False),
        ("How much leave do part-time staff get?", "Full-time staff have 28 days of leave.", True),
        ("How much leave do part-time staff get?", "Full-time and part-time staff have 28 days.", False),
        ("how much for dogs and cats", "Dogs: £9", False),  # half of what is asked
    ],
)
def test_a_text_speaks_of_another_thing(question: str, text: str, another: bool) -> None:
    assert speaks_of_another(question, text) is another


def test_only_a_figure_has_to_be_of_the_same_thing() -> None:
    said = [Passage(0, 0, "We are open on Monday and Tuesday.", "Desk")]
    assert holds("Can I come on Friday?", said) == [True]  # which it answers
    assert holds("What is the fee for a cat?", [Passage(0, 0, "Dogs are 9 euros."), *said]) == [False, False]
