"""Figures of a claim at their place in the source: in its sentence, line or row, and not in that of something else."""

import pytest

from rag_app.answering.verification.places import PlaceIndex

SOURCES = {
    "sentence": "Storing a boat costs £130 on the high racks and £165 on the low ones. A boiler has been quoted at £7,150 by Frith "
    "and £6,300 by Kettleby.",
    "lines": "# Fees\n\n- Student (with a card): £190\n- Junior, aged 11 to 17: £215, kit not included\n\nSmall, £13, feeds one or "
    "two. Medium is £18.50. Large, £25, feeds a family.",
    "table": "| Service | Price | Days |\n| --- | --- | --- |\n| Bronze | £49 | 2 |\n| Silver, with cables | £89 | 4 |\n"
    "| Gold | £165 | 8 |",
    "columns": "| Property | Solo | Duo |\n|---|---|---|\n| Weight empty | 6.4 kg | 10.8 kg |\n| Noise while grinding | 69 dB | 64 dB |",
    "header": "Demand Index: 58 | Competition Score: 29 | Term: box",
    "letters": "In all, 3,412 letters to customers of 161 firms were late. Is it 20 minutes? The delay was 90 minutes at worst.",
    "dates": "| Class | Day | Time |\n|---|---|---|\n| Scarf | Mon 15 Sept | 18:30 |\n| Socks | Thu 18 Sept | 10:00 |\n\nThe valve is "
    "fitted by a plumber; our partner does it for 140 euros. Diesel: the tank holds 70 litres. She burns 2.2 an hour. The valve itself "
    "costs 189 euros.",
    "units": "Up to five unused days can be carried over. Engineers are on call for one week. A repair is finished within three working "
    "days. The fleet has 14 bicycles, nine in Perth and five in Dundee; from ten bicycles on we come to you. The letters were late, by an "
    "hour and a half at worst. The trial is on 18 April. The wedding of Marisol is on 23 May, the last fitting on 20 May.",
    "wrapped": "- Letters from the suppliers of the bakery go to a shared mailbox, which\n  Camille reads. Camille, by 21 November.\n- The "
    "status page gets its own entry for letters. Mila, by 12 December.\n\nThe term “velvet box” has a demand of 58, a competition of 29 and a "
    "growth of 41. The score of the velvet box is 46.",
    "english": "A battery that was dropped is left outdoors for 48 hours before it is tested. A repair is done in three days, with a loan "
    "bicycle from the first day on.",
    "list": "40 m of chain, marked red at 10, yellow at 20, blue at 30. Rooms cost from 90 to 120 euros.",
}


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("sentence", "A boat costs £165 on the high racks."),
        ("sentence", "The boiler of Kettleby costs £7,150."),
        ("lines", "A junior pays £190, and a student £215."),
        ("lines", "The small one costs £18.50 and feeds one or two."),
        ("table", "Gold costs £165 and takes 4 days."),
        ("table", "Silver is £49."),
        ("columns", "The Solo weighs 10.8 kg."),
        ("columns", "Grinding, the Duo makes 69 dB."),
        ("header", "The competition score is 58."),
        ("letters", "161 letters to customers of 3,412 firms were late."),
        ("units", "Up to seven unused days can be carried over."),
        ("units", "A repair is finished within ten working days."),
        ("units", "The fleet has 14 bicycles (nine in Dundee and five in Perth)."),
        ("english", "Une batterie qui est tombée est mise dehors pendant 72 heures."),
        ("english", "Eine Batterie wird nach dem Fallen 72 Stunden im Freien gelagert und nicht getestet."),
        ("sentence", "Frith is cheaper than Kettleby."),
        ("table", "Gold is cheaper than Silver."),
        ("columns", "The Solo is heavier than the Duo."),
        ("dates", "The socks class is on Monday."),
        ("dates", "Scarf is on 18 September at 10:00."),
    ],
)
def test_a_figure_of_something_else(source: str, claim: str) -> None:
    assert PlaceIndex(SOURCES[source]).gives_another(claim)


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("sentence", "On the low racks, storing a boat costs £165."),
        ("sentence", "Kettleby was cheaper (£6,300 against £7,150), but Frith can come earlier."),
        ("lines", "Juniors aged 11 to 17 pay £215 without kit; students pay £190."),
        ("lines", "Boxes cost £13, £18.50 or £25."),
        ("table", "A Silver service costs £89 and takes four days; unlike Bronze (£49, two days) it includes cables."),
        ("table", "Gold is £76 dearer than Silver."),
        ("columns", "The Solo weighs 6.4 kg, whereas the Duo weighs 10.8 kg."),
        ("header", "The demand of the box is 58, its competition 29."),
        ("letters", "161 firms were concerned, with 3,412 letters in total."),
        ("letters", "They waited 90 minutes."),
        ("units", "Up to five unused days can be carried over, and a repair is finished within three working days."),
        ("units", "There are nine bicycles in Perth and five in Dundee."),
        ("units", "The letters were 90 minutes late at worst."),
        ("units", "Marisol has the trial on 18 April, five weeks before the wedding."),
        ("wrapped", "Camille sets up a shared mailbox for letters of suppliers by 21 November."),
        ("wrapped", "| velvet box | 58 | 29 | 41 |"),
        ("english", "Eine Batterie wird nach dem Fallen 48 Stunden im Freien gelagert und nicht getestet."),
        ("sentence", "The low racks are dearer than the high ones."),
        ("sentence", "Kettleby is cheaper than Frith, but comes later."),
        ("table", "Gold is dearer than Silver."),
        ("columns", "The Duo is heavier than the Solo."),
        ("dates", "The socks class is on Thursday 18 September at 10 am."),
        ("dates", "Fitting the valve costs 140 euros, the valve 189 euros."),
        ("dates", "She uses 2.2 litres of diesel an hour, and the tank takes 70 litres."),
        ("list", "The chain of 40 metres has red, yellow and blue marks at 10, 20 and 30 metres."),
        ("list", "Rooms are 90 to 120 euros."),
    ],
)
def test_a_figure_at_its_place(source: str, claim: str) -> None:
    assert not PlaceIndex(SOURCES[source]).gives_another(claim)


@pytest.mark.parametrize(("claim", "is_another"), [("Solo costs 19 euros.", True), ("Plus costs 19 euros.", False)])
def test_a_table_needs_no_rule_below_its_titles(claim: str, *, is_another: bool) -> None:
    table = "| plan | euros a month | users |\n| Solo | 9 | 1 |\n| Plus | 19 | 3 |"
    assert PlaceIndex(table).gives_another(claim) is is_another
