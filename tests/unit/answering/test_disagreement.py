"""Two sources that state different values of one fact: the answer says so, and does not where they agree."""

import json
from pathlib import Path

import pytest

from rag_app.answering.context import build_context
from rag_app.answering.disagreement import disagree
from rag_app.answering.extractive import ExtractiveSynthesizer
from rag_app.answering.rival_answers import Account, answer_differently
from rag_app.domain.answer import Question
from rag_app.retrieval.embedding import MiniLM
from tests.unit.answering.hits import hit

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "answers" / "disagreements.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize(("differ", "right"), [(True, 51), (False, 53)])
async def test_most_pairs_are_told_apart(differ: bool, right: int) -> None:
    """Floors, of 53 each; there is no false alarm."""
    synthesizer, told = ExtractiveSynthesizer(MiniLM()), 0
    pairs = [pair for pair in PAIRS if pair["disagree"] is differ]
    for pair in pairs:
        titles = pair.get("titles", ["Notes", "Handbook"])
        hits = [hit(pair[side], score=0.6, title=title) for side, title in zip(("one", "other"), titles, strict=True)]
        context = build_context([*hits, hit("It was mild.", score=0.2, title="Diary")], max_tokens=900, max_sources=5)
        text = (await synthesizer.write(Question(pair["question"]), context)).text
        told += text.startswith("Sources disagree: ") is differ
        if text.startswith("Sources disagree: "):
            assert all(pair[side].rstrip(".") in text for side in ("one", "other"))
    assert len(pairs) == 53 and told >= right


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The week had 31 calls.", "The week had 31 calls, most of them on Monday."),
        ("In 2025 it cost 40 dollars.", "In 2026 it cost 45 dollars."),
        ("It takes 90 minutes.", "It takes 1.5 hours."),
        ("", "Nothing."),
    ],
)
def test_what_is_no_disagreement(one: str, other: str) -> None:
    assert not disagree(one, other) and not disagree(other, one)


def account(text: str, title: str) -> Account:
    return Account(text, title, document=text)


@pytest.mark.parametrize(
    ("question", "one", "other", "differ"),
    [
        (
            "How long may a tool be borrowed?",
            account("A tool may be kept for ten days.", "Tool library: rules"),
            Account(
                "Return everything after two weeks.",
                "Welcome to the tool library",
                document="You can borrow tools here.",
            ),
            True,
        ),
        (
            "How often is the linen changed?",
            account("Linen is changed every three days.", "Hostel: for guests"),
            account("Once a week the beds get fresh linen.", "Hostel: housekeeping plan"),
            True,
        ),
        (
            "How often is the filter cleaned?",
            account("The filter is cleaned twice a year.", "Pump"),
            account("Every six months the filter is cleaned.", "Pump: notes"),
            False,
        ),
        (
            "Where does the choir rehearse?",
            account("We rehearse every Tuesday in the parish hall.", "Choir flyer"),
            account("The choir rehearses at the school.", "Choir: notes for new singers"),
            True,
        ),
        (
            "Where does the choir rehearse?",
            account("The choir rehearses in the parish hall.", "Choir flyer"),
            account("The choir rehearses in the afternoon.", "Choir: notes"),
            False,
        ),
        (
            "Is parking free?",
            account("Guests park free of charge.", "Hotel leaflet"),
            account("Extra: Parking; Price: 8 euros; Unit: night", "Hotel price list"),
            True,
        ),
        (
            "Can tickets be refunded?",
            account("Tickets are not refunded.", "Theatre terms"),
            account("Tickets can be refunded up to the day before.", "Theatre FAQ"),
            True,
        ),
        (
            "When was the bridge built?",
            account("Work on the bridge was begun in 1901.", "The bridge"),
            account("The bridge was opened in 1905.", "A walk"),
            False,
        ),
        (
            "When did the bakery open?",
            account("The bakery opened in 1974.", "About our bakery"),
            account("Number 4 has been a bakery since 1979.", "History of the street"),
            True,
        ),
        (
            "How much is a day ticket?",
            account("A day ticket is £6.", "Pool: prices"),
            account("A day ticket is £8.", "Ice rink: prices"),
            False,
        ),
        (
            "What is the minimum order?",
            account("The minimum order is £150.", "Terms"),
            account("New customers order for at least £300.", "Notes"),
            False,
        ),
        (
            "When is the library open on Saturday?",
            account("On Saturday the library is open from 10:00 to 14:00.", "Library"),
            account("On Saturday the cafe in the library serves cake from 11:00 to 13:00.", "Library: cafe"),
            False,
        ),
        (
            "How old must a member be?",
            account("Members must be at least 16 years old.", "Rifle club statutes"),
            account("Everybody aged 18 or over can become a member.", "Rifle club leaflet"),
            True,
        ),
        (
            "How long does the battery of the lamp last?",
            account("The battery of the lamp lasts 12 hours.", "Lamp L3"),
            account("In our test the lamp shone for 9 hours before the battery was empty.", "Lamp L3: review"),
            True,
        ),
        (
            "How long are eggs cooked?",
            account("Eggs are cooked for six minutes.", "Kitchen"),
            account("Hard eggs for the buffet are cooked for ten minutes.", "Kitchen: notes"),
            False,
        ),
        (
            "How long is the lunch break?",
            account("The lunch break is 45 minutes.", "Works agreement"),
            account("Apprentices have a lunch break of 60 minutes.", "Works agreement: details"),
            False,
        ),
        (
            "How many pupils are in a class?",
            account("A class has at most 25 pupils.", "School in figures"),
            account("Classes have up to 28 pupils.", "School: enrolment"),
            True,
        ),
        (
            "How many pupils are in a class?",
            account("A class has at most 25 pupils.", "School"),
            account("In class 7b there are 21 pupils.", "School: report"),
            False,
        ),
        (
            "How much is a guest pass?",
            account("A guest pass is 12 euros.", "Gym: passes"),
            account("Ten guest passes are 95 euros.", "Gym: ten passes"),
            False,
        ),
        (
            "first and last day the elevator is off at harbour square",  # neither says anything of it
            account("Harbour Square 7, second floor", "Branches"),
            account("Place: Harbour Square, room 5", "Minutes"),
            False,
        ),
        (
            "Where are the keys?",
            account("The spare key is kept in the office.", "Notes"),
            account("The car key is kept in the garage.", "Handbook"),
            False,
        ),
        (
            "What does a kayak cost for a day?",
            account("Item: Kayak, day; Price: £34", "Boathouse prices"),
            account("A kayak for the day is £29.", "Welcome to the lake"),
            True,
        ),
        (
            "What does a kayak cost for a day?",
            account("Item: Kayak, day; Price: £34", "Boat hire: prices"),
            account("A kayak for the day is £29.", "Camping hire: prices"),
            False,
        ),
        (
            "How long is the notice period?",
            account("The notice period is four weeks.", "Contract"),
            account("Clause: Notice in the first year; Content: one week", "Contract summary"),
            False,
        ),
        (
            "What is the reminder fee?",
            account("The reminder fee is 5% of the sum.", "Terms"),
            account("Reminder fee: eight per cent of the sum", "Office"),
            True,
        ),
        (
            "Until what time can parcels be handed in?",
            account("Parcels can be handed in until two in the afternoon.", "Post room"),
            account("Hand in parcels by 15:30.", "Porter"),
            True,
        ),
        (
            "When does the sauna close?",
            account("The sauna opens at 10:00 and closes at 21:00.", "Pool"),
            account("Switch on the sauna before it opens, at nine o'clock.", "Morning round"),
            False,
        ),
        (
            "Which email address do I send a complaint to?",
            account("Complaints are sent to care@alder.example.", "Terms"),
            account("Write to complaints@alder.example with a complaint.", "FAQ"),
            True,
        ),
        (
            "What percentage deposit do I pay on booking?",
            account("A deposit of 20% is paid on booking.", "Cottage: terms"),
            account("On booking, you pay a deposit of a quarter, 25 per cent.", "Cottage: questions"),
            True,
        ),
        (
            "Are strollers allowed in the galleries?",
            account("Strollers are allowed in the galleries.", "Museum"),
            account("Thing: Strollers; In the galleries: no, lockers", "Cloakroom"),
            True,
        ),
        (
            "Which colour of tag is for hall B?",
            account("Use white tags for hall A, pink tags for hall B.", "Fair"),
            account("Thing: Tags for hall B; Colour: orange", "Store"),
            True,
        ),
        (
            "How many days' leave may I take into next year?",
            account("Up to six days of leave can be carried over into the following year.", "Borel Dairies: leave"),
            account("Topic: Leave carried over to next year; Rule: max. 4 days", "Wages sheet: leave"),
            True,
        ),
        (
            "Can I bring a guest to the gym?",
            Account("No, guests train elsewhere.", "Questions", "May I bring a guest to the gym?"),
            account("You can bring a guest to the gym.", "Gym: welcome"),
            True,
        ),
    ],
)
def test_answers_in_other_words(question: str, one: Account, other: Account, differ: bool) -> None:
    assert answer_differently(question, one, other) is differ
    assert answer_differently(question, other, one) is differ


@pytest.mark.parametrize(
    ("question", "one", "other", "differ"),
    [
        (
            "What is the maximum weight for hand luggage?",
            "Hand luggage may weigh up to 10 kg.",
            "Your hand luggage must not be heavier than 8 kg.",
            True,
        ),
        ("Who is responsible for first aid?", "Responsible for first aid: Nadia Berg.", "First aid is in the hands of Peter Ruiz.", True),
        ("How long does the battery of the Orion last?", "The Orion's battery lasts 38 hours.", "The battery lasts 20 hours.", False),
        ("What does cleaning a coat cost?", "Cleaning a coat costs $18.", "Cleaning a shirt costs $4.", False),
    ],
)  # fmt: skip
def test_who_surely_answers_may_say_one_thing_in_another_word(
    question: str, one: str, other: str, differ: bool
) -> None:
    accounts = account(one, "Notes"), account(other, "Handbook")
    assert answer_differently(question, *accounts, certain=True) is differ
