import pytest

from rag_app.answering.kinds import Kind, has_kind, kind_of, share_unnamed


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("What does a tooth extraction cost?", Kind.MONEY),
        ("how much is charged for a late return", Kind.MONEY),
        ("Was kostet der Eintritt?", Kind.MONEY),
        ("How often is the engine tested?", Kind.OFTEN),
        ("how many weeks does the rigger need?", Kind.SPAN),
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
        ("What does a scan cost?", "The scan is free.", "The scan needs no preparation."),
        ("How long is the course?", "It runs for twelve weeks.", "It begins in room 12."),
        ("How heavy is the bell?", "The bell weighs 640 kg.", "The bell is from 1788."),
        ("How old is Biscuit?", "Biscuit is nine years old.", "Biscuit is a spaniel."),
        ("How many books are there on floor 2?", "There are 4,000 books.", "Floor 2 has the books."),
        ("When did the Dunlin lose its mast?", "It broke on 14 September.", "The Dunlin is a Wayfarer."),
        ("Who repaired the pump?", "Afterwards Colin repaired it.", "The pump failed twice in January."),
        ("Who is the treasurer?", "Treasurer: Matteo Ricci", "The treasurer keeps the money."),
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
