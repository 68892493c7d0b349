"""What a claim says in words against its sources: negation, opposites, whose figure it is, quotations, kinds of sentence."""

import pytest
from llama_index.core.schema import TextNode

from rag_app.answering.citations import pieces_of
from rag_app.answering.context import ContextBlock
from rag_app.answering.verification.kinds import Kind, kind_of
from rag_app.answering.verification.verdict import Ground, Verification
from rag_app.answering.verification.words import unknown_names
from rag_app.surfaces.library.verifying import verify

WAITING = (
    "Customer: Peter Hallam. I had to wait 25 minutes past my appointment time. Nobody told me why, and nobody offered me a glass of "
    "water. If I know that it will be late I can sit in the café. It's the not knowing."
)
PRICE = (
    "Marisol said she would put a toner on. She didn't say that it cost extra. And nobody mentioned any treatment at all. "
    "A cooler tone nearly always needs a toner, and I should have told you so when you booked. The toner was worth it."
)
BILL = "The bill included a toner for 22 pounds and a bond treatment for 14 pounds that nobody had announced."
HANDBOOK = (
    "Up to five unused days of leave can be carried over, and they must be taken before 31 March of the next year. Ruth "
    "Adeyemi keeps the handbook up to date.\n\nEach employee has a learning budget of 1,200 euros a year. The budget does "
    "not carry over."
)
REMINDERS = (
    "Between 13:04 and 14:34, no text-message reminder left Aurora. No reminder was lost. The cause was an expired "
    "certificate. Our monitoring saw that the queue was growing, but the alert was set to 5,000 waiting messages, and we "
    "stopped short of that number. The provider had asked us to renew it, in a letter to a mailbox that nobody has read."
)
MANAGERS = (
    "Dear account managers,\n\nE-mail reminders are free. The second reminder can be switched off and accounts for almost "
    "half of all messages.\n\nWhat I would rather you did not offer is a refund or a frozen price."
)
SHOP = "Thistle & Crown is our closest competitor. It lowers prices for about ten days at the end of every January."
ALERT = (
    "Type: Alert | Title: Alert: the shop cut the price of its band | Status: open\n\nThe shop cut the price of its band to "
    "105 dollars. Suggested action: do not follow at once. Should we lower our price? The price of the ring stays at 128."
)
LIBRARY = (
    "Borrowed films are not renewed. Members who return a book late pay nothing for the first week. The reading room is "
    "easy to heat, and its windows are never opened in winter. Visitors were happy with the new opening hours. Members pay "
    "less for everything apart from films. Nobody may name a book as lost. Never mix old "
    "and new films. A guest may stay as long as it isn't for more than 2 hours. Ms Boll welcomed Ben Ott, who takes over the "
    "reading room from Ida Lund. Few strong readers came. Adults' cards are free, films are not included."
)


def kept(text: str, *sources: str) -> str:
    """What is shown of an answer."""
    return verify(text, [TextNode(text=source) for source in sources]).text


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        (WAITING, "Not knowing how long it would take bothered Peter Hallam most"),
        (PRICE, "She was not told that the toner and the bond treatment would cost extra"),
        (BILL, "The toner and the bond treatment together added 36 pounds to the bill"),
        (
            HANDBOOK,
            "As many as five days that were not used may be carried over, but they have to be taken by 31 March",
        ),
        (HANDBOOK, "Carry-over: up to 5 unused days, to be taken before 31 March"),
        (REMINDERS, "The text messages were stuck because the certificate had expired"),
        (
            REMINDERS,
            "The alert did not fire because it was set to 5,000 waiting messages, a number that was never reached",
        ),
        (MANAGERS, "Account managers should mention that reminders by e-mail cost nothing"),
        (MANAGERS, "They should not offer refunds or a frozen price"),
        (ALERT, "The price of the ring is not lowered"),
        (ALERT, "It is suggested not to follow the price cut at once"),
        (ALERT, "The suggestion is not to follow at once, as the shop cut the price of its band"),
        (MANAGERS, "The number of accounts is not given, but the second reminder can be switched off"),
        (HANDBOOK, "The learning budget cannot be carried over, although leave can"),
        (LIBRARY, "The number of visitors was not counted, and they were happy with the new opening hours"),
        (LIBRARY, "A late book costs a member nothing in the first week"),
        (LIBRARY, "Films that were borrowed cannot be renewed"),
        (LIBRARY, "In winter the windows of the easily heated reading room stay unopened"),
        (LIBRARY, "Heating the reading room is not hard"),
        (LIBRARY, "A guest may stay for no more than 2 hours"),
        (LIBRARY, "Adults get a free card without films"),
        (LIBRARY, "Unlike borrowed films, the reading room is easy to heat"),
        (LIBRARY, "Members pay less for everything except films"),
    ],
)
def test_a_negation_that_the_source_has_in_other_words_stays(source: str, claim: str) -> None:
    assert kept(f"{claim} [Source 1].", source)


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        (HANDBOOK, "Unused leave cannot be carried over to the next year"),
        (HANDBOOK, "The budget carries over"),
        (HANDBOOK, "The learning budget can be carried over to the next year"),
        (REMINDERS, "Some of the reminders were lost"),
        (REMINDERS, "The provider never asked for it to be renewed"),
        (REMINDERS, "The monitoring did not see that the queue was growing"),
        (MANAGERS, "Account managers should offer a refund to anybody who objects"),
        (MANAGERS, "Account managers may offer a frozen price"),
        (SHOP, "Thistle & Crown never lowers its prices"),
        (ALERT, "The suggested action is to follow the price cut at once"),
        (ALERT, "The price of the ring is lowered"),
        (LIBRARY, "Borrowed films are renewed"),
        (LIBRARY, "The reading room is hard to heat"),
        (LIBRARY, "Visitors were unhappy with the new opening hours"),
        (LIBRARY, "The windows of the reading room are opened in winter"),
        (LIBRARY, "Visitors were not happy with the new opening hours"),
        (WAITING, "Peter Hallam was told why he had to wait"),
        (LIBRARY, "Members pay less for films"),
        (LIBRARY, "Members may name a book as lost"),
        (LIBRARY, "Old films may be mixed with new ones"),
        (LIBRARY, "Many strong readers came"),
    ],
)
def test_a_negation_or_an_opposite_that_the_source_denies_is_cut(source: str, claim: str) -> None:
    assert not kept(f"{claim} [Source 1].", source)


@pytest.mark.parametrize(
    ("claim", "stays"),
    [
        ("Ida Lund takes over the reading room from Ben Ott", False),
        ("Ben Ott takes over the reading room from Ida Lund", True),
        ("The reading room was taken over from Ida Lund by Ben Ott", True),
        ("Green and rust sell ahead of red", True),
        ("Ahead of red, green sells", True),
        ("Red sells ahead of green and rust", False),
        ("The police welcomed Ben Ott", False),
        ("Payment terms are welcomed by Ben Ott", True),
    ],
)
def test_who_does_it_to_whom(claim: str, stays: bool) -> None:
    assert bool(kept(f"{claim} [Source 1].", f"{LIBRARY} Green and rust sell ahead of red.")) is stays


def test_each_source_may_contradict_alone() -> None:
    sources = ("The café is closed on Mondays in winter.", "The café is not closed on Mondays in winter.")
    assert not kept("The café is closed on Mondays in winter, they say [Source 1] [Source 2].", *sources)
    assert kept("The café is closed on Mondays in winter, they say [Source 1].", *sources)


DANA = "Customer: Dana Whitfield. I had to wait almost 15 minutes before Marisol could start."
PETER = "Customer: Peter Hallam. I had to wait 25 minutes for Aisha. The patch test took longer than ten minutes."
OURS = "Our ring with milgrain edge costs 128 dollars and has sold 342 times since 2 May. Boxes of 6 and of 12 inches."
THEIRS = "Thistle & Crown sells a band with milgrain for 105 dollars; it has sold 2,140 times. It has two colours."


@pytest.mark.parametrize(
    "claim",
    [
        "Dana Whitfield waited 25 minutes [Source 1] and Peter Hallam waited almost 15 minutes [Source 2].",
        "Peter Hallam waited 25 minutes [Source 1], Dana Whitfield less [Source 2].",
        "Our ring costs 105 dollars [Source 3] and theirs costs 128 dollars [Source 4].",
        "Our ring has sold 342 times [Source 3], and theirs has sold 342 times [Source 4].",
        "Dana Whitfield waited 25 minutes [Source 1] [Source 2].",
        "The wait of Marisol was 25 minutes [Source 1, Source 2].",
        "Peter Hallam sells a band with milgrain [Source 2] [Source 4].",
        "Marisol planned the patch test [Source 1] [Source 2].",
    ],
)
def test_a_marker_is_of_the_text_before_it(claim: str) -> None:
    assert not kept(claim, DANA, PETER, OURS, THEIRS)


@pytest.mark.parametrize(
    "claim",
    [
        "Dana Whitfield waited almost 15 minutes [Source 1] and Peter Hallam waited 25 minutes [Source 2].",
        "Dana and Peter waited 15 and 25 minutes [Source 1] [Source 2].",
        "Peter Hallam waited 25 minutes [Source 2], 10 minutes longer than Dana Whitfield [Source 1].",
        "Together, Dana and Peter waited 40 minutes [Source 1] [Source 2].",
        "Two customers had to wait [Source 1] [Source 2].",
        "Peter Hallam and Dana Whitfield had to wait [Source 1] [Source 2].",
        "Aisha let Peter Hallam wait [Source 2], and Marisol let Dana Whitfield wait [Source 1].",
        "Dana waited for Marisol [Source 1] and Peter for Aisha [Source 2].",
        "Thistle & Crown sells its band for 105 dollars [Source 4], our ring costs 128 dollars [Source 3].",
        "Our ring has sold 342 times [Source 3], against 2,140 times [Source 4].",
    ],
)
def test_a_true_sentence_about_two_sources_stays(claim: str) -> None:
    assert kept(claim, DANA, PETER, OURS, THEIRS)


@pytest.mark.parametrize(
    ("source", "answer", "cut"),
    [
        (LIBRARY, "### Visitors fell by half\n\nBorrowed films are not renewed [Source 1].", "fell"),
        (LIBRARY, "**Members left in anger and won**\n\nBorrowed films are not renewed [Source 1].", "anger"),
        (WAITING, "Peter Hallam had to wait 25 minutes (he was charged extra for it) [Source 1].", "charged"),
        (WAITING, "Peter Hallam had to wait 25 minutes; Aisha shouted at him [Source 1].", "shouted"),
        (HANDBOOK, "Five unused days can be carried over; the rest is donated to a charity [Source 1].", "donated"),
        (WAITING, "Peter Hallam said: “I can sit in the café until it will be late” [Source 1].", "until"),
        (HANDBOOK, 'It says: "The budget does always carry over to the next year" [Source 1].', "always"),
    ],
)
def test_a_claim_is_one_in_any_form(source: str, answer: str, cut: str) -> None:
    assert cut not in kept(answer, source)


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        (LIBRARY, "### Opening hours and visitors\n\nBorrowed films are not renewed [Source 1]."),
        (LIBRARY, "### Borrowed films are not renewed\n\nBorrowed films are not renewed [Source 1]."),
        (LIBRARY, "A late book costs nothing (in the first week); the reading room is easy to heat [Source 1]."),
        (WAITING, "Peter Hallam said: “Nobody told me why, and nobody offered me … water” [Source 1]."),
        (HANDBOOK, 'The handbook says that the "budget does not carry over" [Source 1].'),
        (OURS, 'It has sold 342 times, also in 6" and 12" boxes since 2 May [Source 1].'),
        (HANDBOOK, 'The "carry over" of leave is up to five unused days (until 31 March) [Source 1].'),
    ],
)
def test_a_true_claim_in_any_form_stays(source: str, answer: str) -> None:
    assert kept(answer, source) == answer


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Les sources n'indiquent pas le prix.", Kind.ADMISSION),
        ("The handbook does not say whether unused leave is paid out.", Kind.ADMISSION),
        ("The e-mail doesn't mention when it was sent.", Kind.ADMISSION),
        ("I don't know if there is any information on parking.", Kind.ADMISSION),
        ("The policy does not cover theft.", Kind.CLAIM),
        ("Letters do not say goodbye.", Kind.CLAIM),
        ("The customer did not say why.", Kind.CLAIM),
        ("If there is no answer, the next patient is offered it.", Kind.CLAIM),
        ("When the records do not contain a number, the clinic rings.", Kind.CLAIM),
        ("**Next step:** Test green and rust before burgundy.", Kind.ADVICE),
        ("Recommendation: Compare the two prices.", Kind.ADVICE),
        ("**Status:** open since Monday.", Kind.CLAIM),
        ("**Next step:** The price was doubled.", Kind.CLAIM),
        ("The following changes were made:", Kind.CONNECTION),
        ("The following rules apply:", Kind.CONNECTION),
        ("The following customers were sued:", Kind.CLAIM),
        ("### Demand fell by half", Kind.CLAIM),
        ("### Demand", Kind.CONNECTION),
    ],
)
def test_the_kind_of_a_sentence(text: str, kind: Kind) -> None:
    assert kind_of(text) is kind


def test_cited_advice_is_an_answer() -> None:
    checked = verify(
        "Next steps:\n1. Offer the second reminder [Source 1].\n2. Write a poem.", [TextNode(text=MANAGERS)]
    )
    assert checked.grounded and "poem" in checked.text
    assert not verify("1. Read a long poem aloud [Source 1].", [TextNode(text=MANAGERS)]).grounded


def test_a_name_of_the_instructions_is_none_of_the_sources() -> None:
    ground = Ground([ContextBlock(1, "", LIBRARY)], "What about films?", "You answer for Etsy and Amazon")
    shown = Verification(ground)
    shown.read(pieces_of("Borrowed films are not renewed by Amazon [Source 1]. Search on Etsy.", 1))
    shown.end()
    assert shown.text == "Search on Etsy."


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Der Preis bleibt bis Ende April 2026 bei 32 Dollar.", []),
        ("Er muss mindestens 48 Stunden vor dem Färben gemacht werden.", []),
        ("Neue Beschäftigte erhalten 400 Euro für die Einrichtung.", []),
        ("Laut Vertrag werden zwei Wochen Urlaub nicht bezahlt.", []),
        ("Lena Fischer hat den Termin nicht abgesagt.", ["Lena"]),
        ("Der Termin ist von Lena Fischer und nicht verschoben.", ["Lena"]),
        ("**Key Insights:**", []),
        ("**What Ann Lee said was wrong:**", ["Ann", "Lee"]),
    ],
)
def test_capitals_that_are_no_names(text: str, names: list[str]) -> None:
    assert unknown_names(text, ()) == names
