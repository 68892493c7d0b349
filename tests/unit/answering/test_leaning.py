"""Whether a message leans on the one before, by table: words of no corpus decide it."""

import pytest

from rag_app.answering.leaning import Leaning, leaning_of, names_something, points_back, searched_text, wordings
from rag_app.answering.restating import go_on, leaning_after, restate
from rag_app.domain import Question
from rag_app.surfaces.lexybrain.messages import cited_before, follow_up
from rag_app.surfaces.lexybrain.types import PastMessage, Role
from tests.unit.answering.test_dialogue import said


@pytest.mark.parametrize(
    ("text", "leaning"),
    [
        ("And how long does it last?", Leaning.LEANS),
        ("who repairs those?", Leaning.LEANS),
        ("Why?", Leaning.LEANS),
        ("Is there a discount?", Leaning.LEANS),
        ("What do they charge for one?", Leaning.LEANS),
        ("How long would that take us?", Leaning.LEANS),
        ("but not in winter, right?", Leaning.LEANS),
        ("Und wie lange dauert das?", Leaning.LEANS),
        ("wer repariert ihn?", Leaning.LEANS),
        ("Was kostet sein Einbau dort?", Leaning.LEANS),
        ("and on Saturday?", Leaning.LEANS),
        ("And at Miller & Sons?", Leaning.DOUBT),
        ("How do we clean the copper kettle in the small kitchen?", Leaning.DOUBT),
        (
            "Which rules hold for bicycles on the ground floor of the depot, and do these apply to guests?",
            Leaning.DOUBT,
        ),
        ("Wie viele Tage Urlaub gibt es im ersten Jahr?", Leaning.DOUBT),
        ("How often does Miller deliver?", Leaning.ALONE),
        ("What is “first light”?", Leaning.ALONE),
        ("Something else: how fast is that decided?", Leaning.ALONE),
        ("ok, new topic. When is it open?", Leaning.ALONE),
        ("Unrelated: who has the keys?", Leaning.ALONE),
        ("Now a completely different question: is it safe?", Leaning.ALONE),
        ("Etwas ganz anderes: wie kündige ich das?", Leaning.ALONE),
        ("Andere Frage: wer hat die Schlüssel?", Leaning.ALONE),
    ],
)
def test_leaning(text: str, leaning: Leaning) -> None:
    assert leaning_of(text) is leaning


@pytest.mark.parametrize(
    ("text", "before", "leaning"),
    [
        ("Was muss ich mitbringen?", "What does a bag of flour cost?", Leaning.ALONE),
        ("How do we clean the copper kettle?", "Was kostet ein Sack Mehl?", Leaning.ALONE),
        ("Was muss ich mitbringen?", "Was kostet ein Sack Mehl?", Leaning.DOUBT),
        ("Was kostet das?", "What does a bag of flour cost?", Leaning.LEANS),
        ("Und wie lange dauert die Lieferung davon?", "What does a bag of flour cost?", Leaning.LEANS),
    ],
)
def test_another_language_that_points_at_nothing_is_another_subject(text: str, before: str, leaning: Leaning) -> None:
    assert leaning_after(text, before) is leaning
    assert go_on(Question(text), [before]).also == () or leaning is not Leaning.ALONE


def test_a_month_is_no_name_and_in_german_a_noun_is_none() -> None:
    assert not names_something("how was it in January?") and names_something("how was it with Janet?")
    assert not names_something("Wie ist das mit dem Urlaub und der Kantine?")
    assert points_back("how was it?") and not points_back("New topic. How was it?")


def test_what_is_searched_follows_from_it() -> None:
    history, both = ["The copper kettle?"], "The copper kettle?\nAnd now?"
    assert wordings("And now?", history, Leaning.ALONE) == ("And now?",)
    assert wordings("And now?", history, Leaning.LEANS) == (both, "And now?")
    assert wordings("And now?", history, Leaning.DOUBT) == ("And now?", both)
    assert wordings("And now?", [], Leaning.LEANS) == ("And now?",)
    alone = Question("How often does Miller deliver?")
    assert go_on(alone, history) == alone == go_on(alone, []), "it names something itself"
    question = go_on(Question("How do we clean the spoons in the small kitchen?"), history)
    assert (question.leans, question.searched, len(question.also)) == (False, None, 1), "in doubt both are searched"


def test_the_sources_of_the_answer_before_are_those_it_cites() -> None:
    shown = [{"id": f"00000000-0000-0000-0000-00000000000{n}", "cited": n or None} for n in range(3)]
    user, first, last = said("One?", "1.", "2.")
    answered = PastMessage(last.id, Role.ASSISTANT, last.content, retrieved_source_ids=shown)
    assert [source.int for source in cited_before([user, first, answered])] == [1, 2]
    assert cited_before([user]) == () == cited_before([])


def test_the_present_message_decides_before_the_capability_of_the_one_before() -> None:
    history = [PastMessage(said("x")[0].id, Role.USER, "How is the demand?", "market_brief")]
    assert follow_up("And how did it change?", history) == "market_brief"
    assert follow_up("And is there an alert for it?", history) is None, "it says what it wants"
    assert follow_up("New topic. How did it change?", history) is None
    assert follow_up("Which copper kettle do our customers in the north prefer?", history) is None


@pytest.mark.parametrize(
    ("before", "text", "restated"),
    [
        ("When is Central Station open?", "and Old Mill?", "When is Old Mill open?"),
        ("Is Central Station open on Mondays?", "What about Old Mill?", "Is Old Mill open on Mondays?"),
        ("Who leads Central Station?", "and the Riverside branch?", "Who leads the Riverside branch?"),
        ("How much is the Bronze pass?", "And the Silver one?", "How much is the Silver pass?"),
        ("What is the deposit for the Heron?", "and for the Kite 200?", "What is the deposit for the Kite 200?"),
        ("Who runs the branch at Riverside?", "and the branch at Old Mill?", "Who runs the branch at Old Mill?"),
        ("I live nearby. When does Dr Patel work?", "And Dr Soames?", "When does Dr Soames work?"),
        ("Are dogs allowed at Riverside?", "and cats?", "Are cats allowed at Riverside?"),
        ("Is Riverside open on Mondays?", "and on Sundays?", "Is Riverside open on Sundays?"),
        ("What does membership cost for adults?", "and for children?", "What does membership cost for children?"),
        ("What does a cut cost?", "and a wash?", "What does a wash cost?"),
        ("When is Riverside open?", "and on Sundays?", "When is Riverside open on Sundays?"),
        ("When is Riverside open?", "and Christmas?", "When is Riverside open on Christmas?"),
        ("When did Anna start?", "And in Berlin?", "When did Anna start in Berlin?"),  # a place is no Anna
        ("When is Yard North open?", "and South?", "When is Yard South open?"),
        ("when is yard north open", "and south?", "when is yard south open?"),
        ("How much is the large van?", "what about the small one?", "How much is the small van?"),
        ("how much is the van", "and the small one?", "how much is the small van?"),
        (
            "how long does the pump of the Heron last",
            "and in the Swift?",
            "how long does the pump of the Heron last in the Swift?",
        ),
        (
            "what does the Heron cost for a day?",
            "and the one with a lid?",
            "what does the one with a lid cost for a day?",
        ),
        ("what does a wash cost in Mill House", "and drying?", "what does drying cost in Mill House?"),
        ("what does a kayak cost", "and a canoe for two days?", "what does a canoe cost for two days?"),
        (
            "when does the bus start in the morning",
            "and on sundays?",
            "when does the bus start in the morning on sundays?",
        ),
        ("is there a hotline", "fridays too?", "is there a hotline on fridays?"),
        (
            "how much notice do i have to give",
            "and if i move abroad?",
            "how much notice do i have to give if i move abroad?",
        ),
        ("What does a guest pay?", "And with a card?", "What does a guest pay with a card?"),
        ("When is Mill House open?", "Old Yard?", "When is Old Yard open?"),
        ("Do you come to Hull?", "which days?", "which days do you come to Hull?"),
        ("can i charge it in my room", "where then?", "where can i charge it in my room?"),
        ("where is the clinic", "when is that?", "when is the clinic?"),
        ("How much is parking at the north lot?", "and on the street?", ""),
        ("i need an appointment", "and on fridays?", ""),
        ("who repairs the pump?", "and the other one?", ""),
        ("What does a cut cost?", "and if not?", ""),
        ("Is it cheaper than a bus?", "and a train?", ""),
        ("When is Mill House open?", "Really?", ""),
        ("Who is Ebba Lind?", "When was it built?", ""),
        ("How do I book?", "when?", ""),
        ("do you sell tents?", "which ones are in stock?", ""),
        ("When is Central Station open?", "what about parking?", ""),
        ("Who teaches Yoga at Riverside?", "and Pilates?", ""),  # of two names either may be meant
        ("Who is the tutor, and what does Yoga cost?", "and Pilates?", ""),
        ("When is Riverside open?", "and you?", ""),
        ("When is Riverside open?", "and who leads Old Mill?", ""),
        ("What is the difference between Bronze and Gold?", "and Silver?", ""),
        ("Was kostet die Karte für das Museum?", "und Bronze?", ""),  # each German noun has a capital
    ],
)
def test_what_only_names_another_thing_is_said_in_full(before: str, text: str, restated: str) -> None:
    assert restate(text, before) == restated
    question = go_on(Question(text), [before])
    assert question.restated == restated
    if restated:
        assert (question.searched, question.also) == (restated, (searched_text(text, [before]),))


def test_a_thing_that_was_exchanged_is_what_the_next_message_leans_on() -> None:
    question = go_on(Question("and when is it open?"), ["Who leads Central Station?", "and Old Mill?"])
    assert question.searched == "when is Old Mill open?"
    assert go_on(Question("and Harbour?"), ["Who leads Riverside?", "and Old Mill?"]).restated == "Who leads Harbour?"


@pytest.mark.parametrize(
    ("before", "text", "in_full"),
    [
        ("How long does the battery of the Heron 2 last?", "does it float?", "does the Heron 2 float?"),
        ("Why is our blue boat house closed?", "who keeps its keys?", "who keeps our blue boat house's keys?"),
        (
            "Which lamps are being repaired?",
            "may I still use one of them?",
            "may I still use one of the lamps being repaired?",
        ),
        ("How did demand for paper lamps move?", "how crowded is it there?", "how crowded is it for paper lamps?"),
        (
            "What does the noise index measure?",
            "what is it for the old mill?",
            "what is the noise index for the old mill?",
        ),
        ("How quickly does Moor & Fell deliver?", "what do they charge?", "what do Moor & Fell charge?"),
        ("When do people look for paper lamps?", "is ours for sale?", "is our paper lamps for sale?"),
        ("What evening is the course on?", "What's the fee for it?", "What's the fee for the course?"),
        ("How often is a boat cleaned?", "what does it cost?", "what does it cost?"),  # the cleaning
        ("How much does the Heron take?", "what was it before?", "what was it before?"),
        ("Who is Ebba Lind?", "how long does it take?", "how long does it take?"),
        ("Is the pool heated?", "is it possible to book a lane?", "is it possible to book a lane?"),
        ("Is the pool heated?", "If the lamp breaks, is it replaced?", "If the lamp breaks, is it replaced?"),
        ("Is the pool heated?", "Something else: who cleans it?", "Something else: who cleans it?"),
        ("Wie warm ist das Becken?", "und wann ist es offen?", "und wann ist es offen?"),
        ("What is due after 6 weeks?", "and for 12?", "What is due after 12 weeks?"),
    ],
)
def test_a_pronoun_stands_for_the_thing_of_the_question_before(before: str, text: str, in_full: str) -> None:
    question = go_on(Question(text), [before])
    assert (question.restated or question.text) == in_full


def test_a_message_that_says_next_to_nothing_brings_along_the_one_before_it() -> None:
    asked = ["Why is our blue boat house closed?", "since when?", "who says so?"]
    assert go_on(Question("how long before?"), asked).searched == "\n".join([" ".join(asked), "how long before?"])
    assert go_on(Question("and who keeps its keys?"), asked[:2]).restated == "who keeps our blue boat house's keys?"
