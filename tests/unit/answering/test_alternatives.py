"""Rows of which a question means one: by a figure of its own, or by the sort that it names."""

import pytest

from rag_app.answering.context import Context, build_context
from rag_app.answering.extractive import ExtractiveSynthesizer, rank_passages
from rag_app.answering.ranges import fits
from rag_app.answering.reader import reading_of, the_reader
from rag_app.domain import Question
from rag_app.retrieval.embedding import MiniLM
from tests.unit.answering.hits import hit

FREIGHT = """# Freight of the cooperative

## Parcels by bicycle

| Band | Weight | Inside the walls | Outside the walls |
|---|---|---|---|
| A | up to 2 kg | £3.10 | £4.60 |
| B | 2 to 8 kg | £5.20 | £7.70 |
| C | 8 to 20 kg | £9.40 | £13.30 |

## Choir

| Singers aged | Fee a term |
|---|---|
| 6 to 9 | £21 |
| 10 to 15 | £34 |
| 16 and over | £55 |

## Leave

| Contract | Days off a year |
|---|---|
| 40 hours | 28 |
| 25 hours | 17 |

## Mooring

| Boat | Per night |
|---|---|
| Tender, second of one owner | £6 |
| Tender | £9 |
| Barge | £22 |

## Paying

- By post: a cheque to the harbour office, Quay 4
- By card: at the desk, 9 to 5

## Watches

| Day | Watch | Ropes |
|---|---|---|
| Tue | Dawn | 14 |
| Tue | Dusk | 31 |
| Wed | Dawn | 17 |
| Wed | Dusk | 12 |

## Shearing

| Animal | Price |
|---|---|
| Alpaca, male | £24 |
| Alpaca, female | £31 |
"""


@pytest.fixture(scope="module")
def synthesizer() -> ExtractiveSynthesizer:
    return ExtractiveSynthesizer(MiniLM())


def context(text: str = FREIGHT) -> Context:
    return build_context([hit(text)], max_tokens=3000, max_sources=9)


@pytest.mark.parametrize(
    ("question", "told", "others"),
    [
        ("what does a parcel of 5 kilos cost inside the walls", "£5.20", ["£3.10", "£9.40"]),
        ("What is the choir fee for my 12 year old?", "£34", ["£21", "£55"]),
        ("How many days off do I have with a 25h contract?", "17", ["28"]),
        ("What does it cost to shear a girl alpaca?", "£31", ["£24"]),
        ("What is a night's mooring for a tender?", "£9", ["£6", "£22"]),
        ("How do I pay by post?", "cheque", ["card"]),
        ("How many ropes did the dusk watch count on Tuesday?", "31", ["14", "17", "12"]),
    ],
)
async def test_only_the_row_that_is_meant_is_quoted(
    question: str, told: str, others: list[str], synthesizer: ExtractiveSynthesizer
) -> None:
    text = (await synthesizer.write(Question(question), context())).text
    assert told in text and not any(other in text for other in others), text


async def test_no_row_stands_in_for_a_figure_that_is_in_none(synthesizer: ExtractiveSynthesizer) -> None:
    text = (await synthesizer.write(Question("What does a parcel of 31 kg cost?"), context())).text
    assert not any(price in text for price in ("£3.10", "£5.20", "£9.40")), text


async def test_a_limit_is_told_to_who_is_beyond_it(synthesizer: ExtractiveSynthesizer) -> None:
    """A sentence with a bound is no row: that nine are too many is its answer."""
    said = "Up to six people may share a boat. The boats are behind the mill."
    text = (await synthesizer.write(Question("Can 9 people share a boat?"), context(said))).text
    assert "Up to six people may share a boat" in text


@pytest.mark.parametrize(
    ("question", "text", "found"),
    [
        ("I am 67", "from 65", True),
        ("a group of 8", "up to 10 people", True),
        ("8 people", "up to 10 kg", None),
        ("3 weeks before", "14 to 30 days", True),
        ("3 weeks before", "30 to 14 days", True),
        ("my 7 year old", "under 7", False),
        ("my 18 month old", "1 to 2 years", True),
        ("at 5 pm", "5 to 12 miles", None),
        ("zone 2", "1 to 3", None),
        ("8 miles", "5 to 12 May", None),
        ("12 kg", "£5 to £20", None),
        ("12 kilos", "10-25kg", True),
        ("25 kg", "beyond 20", None),
        ("5 hours", "08:00–18:00", None),
    ],
)
def test_a_figure_is_compared_with_ranges_of_its_unit(question: str, text: str, found: bool | None) -> None:
    assert fits(question, text) is found


async def test_a_row_that_is_named_is_read_by_the_column_that_is_asked_about() -> None:
    rows = (
        "Course: Weaving for beginners; Starts: 14 October; Evenings: 6; Tutor: Lena Hask; Room: Loft; Fee: £85",
        "Course: Pottery; Starts: 3 November; Evenings: 8; Tutor: Ivo Marr; Room: Kiln; Fee: £120",
    )
    asked, found = "Which room is weaving in?", context("# Courses in autumn\n\n" + "\n".join(rows))
    ranking = await rank_passages(MiniLM(), Question(asked), found)
    readings = [
        reading_of(each, found.blocks[0].title, "Courses in autumn", "")
        for each in (rows[0], "Weaving for beginners – room: Loft")
    ]
    whole, narrow = the_reader().scores(asked, readings)
    odds = dict(zip((each.text for each in ranking.ranked), ranking.read[1], strict=True))
    assert max(odds, key=odds.__getitem__) == rows[0]
    assert odds[rows[0]] == narrow > whole


async def test_a_row_as_it_is_told_is_not_read_behind_another() -> None:
    rows = [
        f"Day: {day}; Watch: {watch}; Wind: {n}; Ropes: {n}4"
        for day in ("Tue", "Wed")
        for n, watch in enumerate(("Dawn", "Dusk"))
    ]
    asked, found = "How many ropes did the dusk watch count on Tuesday?", context("\n".join(rows))
    ranking = await rank_passages(MiniLM(), Question(asked), found)
    told = [
        reading_of(each, found.blocks[0].title, "", "")
        for each in ("Tuesday – watch: Dusk; ropes: 14", "Dusk – day: Tuesday; ropes: 14")
    ]
    odds = dict(zip((each.text for each in ranking.ranked), ranking.read[1], strict=True))
    assert odds[rows[1]] >= the_reader().scores(asked, told).max()


async def test_an_address_is_asked_for_and_not_what_else_is_said_of_it(synthesizer: ExtractiveSynthesizer) -> None:
    told = context(
        "The night line took 40 calls. The harbour office opens at nine.\n\nContact: Ruth, ruth@quay.example, 0155 20 77 31"
    )
    for question, answer in {"What is the number of the night line?": "", "What is Ruth's email?": "ruth@quay"}.items():
        text = (await synthesizer.write(Question(question), told)).text
        assert answer in text and "40 calls" not in text, text
