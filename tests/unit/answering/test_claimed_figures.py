"""Figures of claims against those of sources: units of money, signs, halves, multipliers, sums, short dates."""

import pytest

from rag_app.answering.context import ContextBlock
from rag_app.answering.verification.claimed import has_wrong_equation, is_unsupported
from rag_app.answering.verification.figures import figures_of
from rag_app.answering.verification.results import Surroundings, read_lines
from rag_app.answering.verification.verdict import Ground

SOURCES = {
    "bill": "You paid 131 pounds. The e-mail says 95 on Monday: half-head highlights, 95 pounds, a toner at 22 and a bond "
    "treatment at 14. 14 pounds go back to your card. I had to wait almost 15 minutes before it started.",
    "sms": "From 1 March 2026 an additional text message costs 8 cents instead of 7. About one customer in five buys "
    "additional messages. The median is 340 messages a month, so the change comes to 3.40 euros a month. The second "
    "reminder, two hours before the visit, accounts for almost half of all messages. Roughly a third choose e-mail.",
    "late": "Yesterday, between 13:04 and 14:34, no reminder left. 3,412 reminders to patients of 161 clinics were late, by "
    "an hour and a half at worst. The engineer on call is told 30 days before. Two more clinics called.",
    "leave": "Every employee gets 27 days of annual leave a year. Up to five unused days can be carried over. Ask for leave of "
    "more than two days at least three weeks ahead. You may work abroad for up to 20 working days a year. The journey lasts less than five hours. Claims within 30 days.",
    "wait": "I had to wait 25 minutes past my appointment. I had taken an hour off work, and it became an hour and a half. The "
    "test took longer than the ten minutes planned. I take ten pounds off your next cut.",
    "band": "Own: false | Price: 105.0 | Sales: 2140 | Market: Etsy\nThe shop sells a band for 105 dollars; until 24 January "
    "2026 the same band cost 129 dollars. It has sold 2,140 times.",
    "field": "Own: false | Price: 105.0 | Sales: 2140",
    "rings": "Price: 105.0 | Sales: 2140\nA band for 105 dollars.\n\nPrice: 128.0 | Sales: 342\nThe ring costs 128 dollars.",
    "trend": "Demand Index: 58 | Competition Score: 29 | Trend Momentum: 21\nIt has a demand index of 58, a competition score "
    "of 29 and a trend momentum of +21 percent, as of 31 January 2026.",
    "trends": "Demand Index: 58 | Competition Score: 29 | Trend Momentum: 21\n\n"
    "Demand Index: 91 | Competition Score: 78 | Trend Momentum: 3",
    "falling": "Demand Index: 40 | Trend Momentum: -12",
    "itch": "In October I had my hair coloured elsewhere, and my scalp itched for a week. The test is made 48 hours before.",
    "trial": "There is a trial, which is 70 pounds and takes an hour and a half. Saturday the 18th of April at two is free.",
    "numbers": "Call 18 of 40 was answered; 4 were lost. The price rose by 24 dollars, from 105 to 129 dollars.",
    "growth": "Orders doubled in May. The old machine makes 40 pieces, the new one weighs 80 kilos. A ticket costs 3.50 dollars.",
    "open": "It is open from a quarter to nine to 17:30. A dozen cakes cost 12 dollars. Fridays | Discount: 20%",
    "record": "Sales: 342 | Price: 128 dollars\n\nSales: 2140 | Price: 105 dollars",
    "revenue": "Revenue rose from 2 to 3 million dollars.",
    "rate": "The room costs $45 an hour. The deposit is 27 US dollars.",
    "days": "Thu 22 January; if there is ice, we come on the 29th. Not for those under fifteen. Of which 40 may be taken. In March, 76 "
    "books were read. The tank of 70 l costs 120 euros, the pump 60 euros.",
    "gaps": "At 13:04 it stopped, a clinic called at 14:02. Offers by 14 January; the board meets on 29 January. The trial is on 18 "
    "April, the wedding on 23 May. A box costs 11.40 dollars and sells for 32 dollars. He was booked for half past three, sat down at "
    "five to four and waited 25 minutes. Of 40 boats, 14 are hired. The price rose from 80 to 100 dollars.",
    "bounds": "Take the train when the journey lasts less than five hours. The pilot ends if fewer than 20 per cent use it. Up to 10 "
    "bicycles are returned free; racks need at least 25 bicycles. Cancel up to 48 hours before. It weighs 3 kg, with at most 9 kg of load.",
    "week": "Open Monday to Friday. The drawer of the small press holds 250 sheets, that of the large one 500 sheets.",
    "weights": "The small box weighs 2 kg, the large box 6 kg. It keeps for three months. Two thirds of the buyers return.",
}


def unsupported(source: str, claim: str) -> bool:
    return is_unsupported(
        figures_of(claim), figures_of(SOURCES[source]), claim, (), Surroundings(lines=read_lines(SOURCES[source]))
    )


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("bill", "Dana Whitfield paid 131 dollars for her highlights."),
        ("bill", "The toner cost 22 euros."),
        ("bill", "The bond treatment cost 14 pence."),
        ("bill", "Together the toner (22 pounds) and the treatment (14 pounds) came to 37 pounds."),
        ("bill", "She waited 146 minutes in total."),
        ("sms", "An additional text message costs 8 euros instead of 7."),
        ("sms", "An additional text message costs 8 dollars."),
        ("sms", "The change comes to 3.40 cents a month."),
        ("sms", "Two customers in five buy additional messages."),
        ("sms", "About 30 percent of customers buy additional messages."),
        ("sms", "A message costs two cents more than before, 8 cents."),
        ("late", "The reminders were late by two and a half hours at worst."),
        ("late", "The reminders were late by half an hour."),
        ("late", "The reminders were late by 2.5 hours."),
        ("late", "Over 4,000 reminders were late."),
        ("late", "Almost 3,400 reminders were late."),
        ("late", "About 3,410 reminders were late."),
        ("late", "The engineers called 2,000 clinics."),
        ("late", "The reminders were late by an hour and three quarters."),
        ("leave", "Aurora gives more than twice the leave that the law demands."),
        ("leave", "27 days and five days carried over make 35 days in total."),
        ("leave", "Leave was doubled to 27 days."),
        ("wait", "Peter Hallam waited more than twice as long as anybody else this year."),
        ("wait", "Peter Hallam waited five times as long, 25 minutes."),
        ("band", "Their band costs 105 euros."),
        ("band", "The shop lowered the price by 34 dollars, from 129 to 105 dollars."),
        ("band", "The price went from 129 to 105 euros."),
        ("field", "The price fell by 105 dollars."),
        ("field", "The shop has -2,140 sales."),
        ("rings", "Their band costs $33 less than our ring."),
        ("rings", "Their band is twice as dear as our ring."),
        ("rings", "Their band has sold more than seven times as often: 2,140 against 342 times."),
        ("trend", "The trend momentum is -21 percent."),
        ("trend", "The trend momentum is minus 21 percent."),
        ("trend", "Demand fell by 21 percent."),
        ("trend", "Demand has doubled."),
        ("trends", "The one is searched for more than three times as often as the other."),
        ("trends", "Their demand index is three times as high."),
        ("falling", "The momentum is 12 percent."),
        ("falling", "Demand rose by 12 percent."),
        ("itch", "Her scalp itched for a month after the colour in October."),
        ("itch", "It was made a day before."),
        ("trial", "A trial was booked for 19/04 at 2 pm."),
        ("trial", "A trial was booked for 18 May."),
        ("trial", "The trial takes 60 minutes."),
        ("open", "It closes at half past six."),
        ("open", "It closes at a quarter past five."),
        ("open", "It closes at 5:30 in the summer, and opens at a quarter past nine."),
        ("open", "A dozen cakes cost 13 dollars."),
        ("open", "The discount is 30 percent."),
        ("numbers", "Call 19/40 was answered."),
        ("growth", "A ticket costs minus 3.50 dollars."),
        ("numbers", "The price rose by 129 dollars."),
        ("numbers", "The price rose to 24 dollars."),
        ("record", "The ring has sold 128 times and costs 342 dollars."),
        ("numbers", "The price fell by 24 dollars."),
        ("growth", "Orders tripled in May."),
        ("growth", "The new machine makes three times as many pieces."),
        ("growth", "A ticket costs 3.50 euros."),
        ("gaps", "It stopped at 13:04, and a clinic called at 14:02, 48 minutes later."),
        ("gaps", "It lasted 58 minutes."),
        ("gaps", "The offers go out 16 days before the meeting on 29 January."),
        ("gaps", "The trial on 18 April is six weeks before the wedding."),
        ("gaps", "A box sells for 32 dollars and costs 11.40 dollars, which leaves 21.60 dollars."),
        ("gaps", "He was booked for 3:30 pm and sat down at 3:50 pm."),
        ("gaps", "He sat down at 4:20 pm."),
        ("gaps", "He waited a little over half an hour (25 minutes)."),
        ("gaps", "He waited almost an hour (25 minutes)."),
        ("gaps", "Of 40 boats, 14 are hired, so the other 16 are free."),
        ("gaps", "The price rose by 20 percent, from 80 to 100 dollars."),
        ("gaps", "Of 40 boats, 14 are hired, or 45 percent."),
        ("bounds", "Take the train when the journey lasts more than five hours."),
        ("bounds", "The pilot ends if more than 20 percent use it."),
        ("bounds", "Racks need at most 25 bicycles."),
        ("bounds", "At least 10 bicycles are returned free."),
        ("bounds", "Der Pilot endet, wenn mehr als 20 Prozent ihn nutzen."),
        ("weights", "The large box weighs four times as much as the small one."),
        ("weights", "It keeps for a year."),
        ("weights", "A third of the buyers return."),
        ("days", "The tank of 70 l costs 120 euros, so about 1.50 euros a litre."),
        ("days", "The tank costs 120 euros and the pump 60, so the pair comes to 190."),
        ("week", "It is open on Sunday."),
        ("week", "It is open Monday to Wednesday."),
        ("week", "The large press holds three times as many sheets."),
    ],
)
def test_what_the_sources_do_not_state(source: str, claim: str) -> None:
    assert unsupported(source, claim)


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("bill", "Dana Whitfield was quoted £95 but paid £131, a difference of £36."),
        ("bill", "The toner (22 pounds) and the bond treatment (14 pounds) together added 36 pounds to the bill."),
        ("bill", "The fourteen pounds for the treatment were refunded."),
        ("bill", "The bond treatment cost 14 pounds, which is 1,400 pence."),
        ("bill", "She waited almost a quarter of an hour."),
        ("sms", "From 1 March 2026, an extra SMS costs 8 cents, one cent more than before."),
        ("sms", "From 1 March 2026, an extra SMS costs 0.08 euros instead of 0.07."),
        ("sms", "Only about 20 percent of customers buy additional messages."),
        ("sms", "One in five customers buys additional messages."),
        (
            "sms",
            "Almost 50 percent of all messages are second reminders, and about 33 percent of patients choose e-mail.",
        ),
        ("sms", "Half of the messages are second reminders."),
        ("late", "About 3,400 reminders were late, of over 160 clinics."),
        ("late", "For 90 minutes, from 13:04 to 14:34, no reminder was sent."),
        ("late", "3412 reminders were delayed, at worst by 1.5 hours."),
        ("late", "Die Erinnerungen kamen bis zu anderthalb Stunden zu spät."),
        ("leave", "With the full carry-over, an employee could have 32 days in total, i.e. 27 plus 5."),
        ("leave", "Up to five days a year can be carried over."),
        ("leave", "As many as five days, of 27 days a year, can be carried over."),
        ("wait", "Peter Hallam waited 25 minutes, 2.5 times as long as the ten minutes planned."),
        ("wait", "It took him 1½ hours instead of one hour."),
        ("band", "The shop lowered the price of its band by 24 dollars, from 129 to 105 dollars, on 24 January."),
        ("band", "The band is 24 dollars cheaper than before."),
        ("field", "The band costs 105 dollars and has sold 2,140 times."),
        ("rings", "Their band is $23 cheaper than our ring: $105 against $128."),
        ("rings", "Our ring is 23 dollars dearer."),
        ("rings", "Their band has sold more than six times as often: 2,140 against 342 times."),
        ("rings", "Their sales are more than six times the sales of our ring."),
        ("trend", "Momentum: +21%"),
        ("trend", "Demand rose by 21 percent."),
        ("trend", "Demand has a momentum of 21 percent."),
        ("falling", "Demand fell by 12 percent."),
        ("falling", "The momentum is -12 percent."),
        ("falling", "Its momentum is minus 12 percent."),
        ("itch", "Her scalp itched for seven days."),
        ("itch", "Her scalp itched for a week, and the test is made two days before."),
        ("trial", "A trial was booked for 18/04 at 2 pm."),
        ("rate", "It costs 45 dollars an hour, and a deposit of 27 dollars."),
        ("trial", "A trial was booked for 18 April. It costs £70 and lasts 90 minutes."),
        ("numbers", "Call 18/40 was answered."),
        ("numbers", "The price rose to 129 dollars, up 24 dollars."),
        ("revenue", "Revenue rose by 1 million dollars, from 2,000,000 to 3,000,000 dollars."),
        ("record", "The ring costs 128 dollars, 23 dollars more than the 105 dollars of the other."),
        ("open", "It opens at a quarter to nine and closes at half past five."),
        ("open", "It opens at 8:45 am and closes at 17:30."),
        ("open", "12 cakes cost 12 dollars; the price is reduced by 20 percent on Fridays."),
        ("numbers", "The price was raised by 24 dollars."),
        ("growth", "In May there were twice as many orders."),
        ("growth", "A ticket costs 350 cents."),
        ("gaps", "It stopped at 13:04, and a clinic called at 14:02, a difference of 58 minutes."),
        ("gaps", "There are 15 days between 14 January and the meeting on 29 January."),
        ("gaps", "The trial is on 18 April, which is five weeks before the wedding."),
        ("gaps", "At a price of 32 dollars and a cost of 11.40 dollars, 20.60 dollars are left."),
        ("gaps", "He was booked for 3:30 pm and sat down at 3:55 pm."),
        ("gaps", "He waited a little under half an hour (25 minutes)."),
        ("gaps", "Of 40 boats, 14 are hired, so the remaining 26 are free."),
        ("gaps", "The price rose by 25 percent, from 80 to 100 dollars."),
        ("gaps", "At 80 dollars it was 20 percent cheaper than at 100 dollars."),
        ("gaps", "Of 40 boats, 14 are hired, or 35 percent."),
        ("bounds", "The pilot goes on if at least 20 percent use it."),
        ("bounds", "Take the train for journeys of under five hours; it takes no more than 9 kg."),
        ("bounds", "Cancel at least 48 hours before."),
        ("bounds", "More than 10 bicycles are not returned free."),
        ("weights", "The large box weighs three times as much as the small one."),
        ("weights", "It keeps for 3 months. Two in three buyers return."),
        ("days", "On Thursday 22 January, or else on 29 January."),
        ("days", "Children under 15 may not come. 40 may be taken."),
        ("days", "In March 76 books were read."),
        ("days", "A tank of 70 litres costs 120 euros; with the pump (60 euros) that makes 180 euros."),
        ("days", "The tank of 70 l costs 120 euros, so about 1.70 euros a litre."),
        ("days", "The tank costs 120 euros and the pump 60, so the tank is 60 more and the pair comes to 180."),
        ("gaps", "40 boats and 14 boats: 26 lie here."),
        ("week", "It is open on Wednesday."),
        ("week", "The large press holds twice as many sheets."),
    ],
)
def test_what_the_sources_state(source: str, claim: str) -> None:
    assert not unsupported(source, claim)


@pytest.mark.parametrize(
    ("claim", "kept"),
    [
        ("The band costs 105 dollars.", True),
        ("The band costs $105.", True),
        ("The band costs 105 euros.", False),
        ("The band costs £105.", False),
        ("The band has sold 2,140 times.", True),
        ("The momentum of the band is -21 percent.", False),
        ("The momentum of the band is 21 percent.", True),
        ("The momentum of the band is 21 dollars.", False),
    ],
)
def test_a_field_has_the_unit_that_its_index_declares(claim: str, kept: bool) -> None:
    block = ContextBlock(
        1, "\nPrice: 105.0 | Sales: 2140 | Trend Momentum: 21 | Title: The band", "The band has sold well."
    )
    ground = Ground([block], "", units={"price": "dollars", "sales": "times", "trend_momentum": "percent"})
    assert ground.supports(claim, [1], [1]) is kept


@pytest.mark.parametrize(
    ("claim", "kept"),
    [
        ("The fee is 170 euros.", False),
        ("At five days before the start half of the fee is kept.", True),
        ("As you paid 180 euros, you would get 90 euros back.", True),
        ("For the 12 of you that comes to 2,160 euros.", True),
        ("For the 12 of you that comes to 2,260 euros.", False),
        ("At six days before the start half of the fee is kept.", False),
        ("The fee is 190 euros.", False),
    ],
)
def test_figures_of_the_question_may_be_repeated_and_reckoned_with(claim: str, kept: bool) -> None:
    text = "From 13 to 4 days before the start half of the fee is kept. The fee of the course is 180 euros."
    question = "We are 12 people and cancel five days before the start. Is the fee 170 euros? What do we get back?"
    ground = Ground([ContextBlock(1, "\nTitle: Terms of the course", text)], question)
    assert ground.supports(claim, [1], [1]) is kept


def test_a_bound_is_of_a_figure_of_the_question() -> None:
    asked = Surroundings(asked=figures_of("My text has 900 words. What of my other text of 2,400 words?"))
    text = "It has under 2,000 words."
    source = figures_of("Texts of over 2,000 words are read twice.")
    assert not is_unsupported(figures_of(text), source, text, beside=asked)
    assert is_unsupported(figures_of(text), source, text)
    asked = Surroundings(asked=figures_of("My text has 2,400 words."))
    assert is_unsupported(figures_of(text), source, text, beside=asked)


@pytest.mark.parametrize(("text", "wrong"), [("6 × 42 = 252", False), ("6 × 42 = 246", True), ("2 x 4 m", False)])
def test_an_equation_holds(text: str, wrong: bool) -> None:
    assert has_wrong_equation(text) is wrong
