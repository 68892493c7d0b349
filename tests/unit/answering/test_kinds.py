import pytest

from rag_app.answering.kinds import Calculation, Kind, find_calculation, has_kind, kind_of, share_unnamed, states


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("What does a tooth extraction cost?", Kind.MONEY),
        ("how much is charged for a late return", Kind.MONEY),
        ("Was kostet der Eintritt?", Kind.MONEY),
        ("What deposit do you take for a canoe?", Kind.MONEY),
        ("What happens to my deposit if I cancel?", None),
        ("Is there a desk for people who need help?", None),
        ("How often is the engine tested?", Kind.OFTEN),
        ("how many weeks does the rigger need?", Kind.SPAN),
        ("What percentage of the fee is kept?", Kind.SHARE),
        ("Wie viel Prozent der Gäste kommen wieder?", Kind.SHARE),
        ("How heavy is the bell?", Kind.WEIGHT),
        ("what does the trophy weigh", Kind.WEIGHT),
        ("Wie alt müssen Kinder sein?", Kind.AGE),
        ("How many of them are left?", Kind.NUMBER),
        ("and until when must it hold?", Kind.TIME),
        ("Which year was it built?", Kind.TIME),
        ("who drove the three trucks", Kind.PERSON),
        ("Where is the key?", Kind.PLACE),
        ("Pourquoi est-ce fermé ?", Kind.REASON),
        ("What happens when the steam fails?", None),
        ("The town where I live: do you deliver there?", None),
        ("Is there parking?", None),
    ],
)
def test_a_question_asks_for_a_kind_of_value(question: str, kind: Kind | None) -> None:
    assert kind_of(question) is kind


@pytest.mark.parametrize(
    ("question", "answers", "says_nothing"),
    [
        ("What does a scan cost?", "A scan is 40 pounds.", "A scan takes 40 minutes."),
        ("What does a scan cost?", "Members pay half.", "A scan takes half an hour, and two can wait."),
        ("What does a scan cost?", "The second scan costs 45 more.", "Scans are in room 45."),
        ("What does a scan cost?", "The scan is free.", "The scan needs no preparation."),
        ("How long is the course?", "It runs for twelve weeks.", "It begins in room 12."),
        ("How heavy is the bell?", "The bell weighs 640 kg.", "The bell is from 1788."),
        ("what fraction of buyers send theirs back", "Two in five send it back.", "We sold 40 aprons."),
        ("How old must a rower be?", "Sculling from 11.", "The sauna is open from 11.30."),
        ("How old is Biscuit?", "Biscuit is nine years old.", "Biscuit is a spaniel."),
        ("How many books are there on floor 2?", "There are 4,000 books.", "Floor 2 has the books."),
        ("When did the Dunlin lose its mast?", "It broke on 14 September.", "The Dunlin is a Wayfarer."),
        ("Who repaired the pump?", "Afterwards Colin repaired it.", "The pump failed twice in January."),
        ("Who is the treasurer?", "Treasurer: Matteo Ricci", "The treasurer keeps the money."),
        ("Which room are we in?", "You meet in room C14.", "You meet in the room."),
        ("Wie lange gilt die Karte?", "Sie gilt drei Jahre.", "Die Karte ist blau."),
    ],
)
def test_a_sentence_has_what_is_asked_for_or_not(question: str, answers: str, says_nothing: str) -> None:
    kind = kind_of(question)

    assert kind is not None
    assert has_kind(kind, answers, question)
    assert not has_kind(kind, says_nothing, question)


def test_names_and_figures_are_looked_for_in_the_sources() -> None:
    sources = ["Frieda's cut is with Owen on 28 February."]

    assert share_unnamed("When does Owen cut Frieda's hair?", sources) == 0
    assert share_unnamed("What did Mila ask Owen?", sources) == 0.5
    assert share_unnamed("who cuts her hair in 2027", sources) == 1
    assert share_unnamed("who cuts her hair", sources) == 0
    assert share_unnamed("What is open after 11?", ["We close at eleven."]) == 0


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("How many loaves did we sell in May?", Calculation.COUNT),
        ("Wie viele Gäste waren da?", Calculation.COUNT),
        ("Combien de chiens vivent ici ?", Calculation.COUNT),
        ("what did we spend in total", Calculation.TOTAL),
        ("How long does a repair take on average?", Calculation.AVERAGE),
        ("Which pump is the cheapest?", Calculation.EXTREME),
        ("Welche Pumpe ist am teuersten?", Calculation.EXTREME),
        ("When did Ann come last?", Calculation.EXTREME),
        ("Which members never paid?", Calculation.NEVER),
        ("How many books may I borrow?", None),
        ("How many pages do I have to read?", None),
        ("On which days is it closed altogether?", None),
        ("How many minutes does a cut take?", None),
        ("What is the best way to clean it?", None),
        ("Who is the guest of honour at the harvest fest?", None),
        ("At least how old must I be?", None),
        ("What happened last week?", None),
        ("Why not the cheapest one?", None),
        ("Warum nicht das günstigste?", None),
    ],
)
def test_a_question_wants_something_worked_out(question: str, wanted: Calculation | None) -> None:
    assert find_calculation(question) is wanted


@pytest.mark.parametrize(
    ("question", "states_it", "is_near"),
    [
        ("How many loaves did we sell in May?", "We sold 4,200 loaves.", "Loaves cost 4 euros from 1 May."),
        (
            "How many people work at night?",
            "Six people bake at night.",
            "The night shift begins at 1:30 and ends at 9:00.",
        ),
        ("what did we spend in total", "Spending was 300 euros in all.", "We spent 300 euros on flour."),
        ("How long does a repair take on average?", "A repair usually takes a day.", "The repair took a day."),
        ("Which pump is the cheapest?", "No pump costs least but the P2.", "The P2 is a pump for 90 euros."),
        ("Which members never paid?", "Ann has not paid.", "Ann paid in May."),
        ("When is it quietest?", "If you want quiet, come on Tuesday.", "We open on Tuesday."),
        ("Which tent is the lightest?", "If you want it light, take the Fox.", "Light bulbs are sold at the till."),
        ("When is it quietest?", "It is quieter on Mondays.", "A quiet room is on the first floor."),
        ("Which walk is the longest?", "No walk is the longest but this.", "The walk is two miles long."),
    ],
)
def test_a_sentence_states_what_is_to_be_worked_out_or_not(question: str, states_it: str, is_near: str) -> None:
    wanted = find_calculation(question)

    assert wanted is not None
    assert states(wanted, states_it, question)
    assert not states(wanted, is_near, question)


def test_a_question_word_before_i_is_no_name() -> None:
    assert share_unnamed("When do I get my money back?", ["Refunds take five days."]) == 0
