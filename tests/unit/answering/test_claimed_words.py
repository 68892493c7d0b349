"""What a claim says in words against its sources: negation, opposites, whose figure it is, quotations, kinds of sentence."""

import pytest
from llama_index.core.schema import TextNode

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
LIBRARY = (
    "Borrowed films are not renewed. Members who return a book late pay nothing for the first week. The reading room is "
    "easy to heat, and its windows are never opened in winter. Visitors were happy with the new opening hours."
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
        (LIBRARY, "A late book costs a member nothing in the first week"),
        (LIBRARY, "Films that were borrowed cannot be renewed"),
        (LIBRARY, "In winter the windows of the easily heated reading room stay unopened"),
        (LIBRARY, "Heating the reading room is not hard"),
    ],
)
def test_a_negation_that_the_source_has_in_other_words_stays(source: str, claim: str) -> None:
    assert kept(f"{claim} [Source 1].", source)


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        (HANDBOOK, "Unused leave cannot be carried over to the next year"),
        (HANDBOOK, "The budget carries over"),
        (REMINDERS, "Some of the reminders were lost"),
        (REMINDERS, "The provider never asked for it to be renewed"),
        (REMINDERS, "The monitoring did not see that the queue was growing"),
        (MANAGERS, "Account managers should offer a refund to anybody who objects"),
        (MANAGERS, "Account managers may offer a frozen price"),
        (SHOP, "Thistle & Crown never lowers its prices"),
        (LIBRARY, "Borrowed films are renewed"),
        (LIBRARY, "The reading room is hard to heat"),
        (LIBRARY, "Visitors were unhappy with the new opening hours"),
        (LIBRARY, "The windows of the reading room are opened in winter"),
        (LIBRARY, "Visitors were not happy with the new opening hours"),
    ],
)
def test_a_negation_or_an_opposite_that_the_source_denies_is_cut(source: str, claim: str) -> None:
    assert not kept(f"{claim} [Source 1].", source)
