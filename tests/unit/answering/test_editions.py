"""Sources that say of themselves that they no longer hold: others answer in their place, and of the last one it is said."""

from datetime import date

import pytest

from rag_app.answering.context import Context, build_context
from rag_app.answering.editions import outdated_sources, says_outdated
from rag_app.answering.extractive import ExtractiveSynthesizer
from rag_app.domain import Question
from rag_app.retrieval.embedding import MiniLM
from tests.unit.answering.hits import hit

TODAY = date(2026, 3, 1)
OLD = """# Cellar rules 2021 (withdrawn)

A barrel is stored for £7 a month. The key to the cellar is handed back within 3 days. Dogs may sleep in the cellar on cold nights."""
NEW = """# Cellar rules 2026

A barrel is stored for £9 a month, the first one free. Whoever leaves hands back the key to the cellar within 10 days."""


@pytest.fixture(scope="module")
def synthesizer() -> ExtractiveSynthesizer:
    return ExtractiveSynthesizer(MiniLM())


def context(*texts: str, titled: bool = True) -> Context:
    hits = [hit(text, title=text.splitlines()[0].lstrip("# ") if titled else "Notes") for text in texts]
    return build_context(hits, max_tokens=3000, max_sources=9, today=TODAY)


async def test_what_holds_now_answers_alone(synthesizer: ExtractiveSynthesizer) -> None:
    for question in ("What does it cost to store a barrel?", "When do I have to hand back the key?"):
        text = (await synthesizer.write(Question(question), context(OLD, NEW))).text
        assert ("£9" in text or "10 days" in text) and "Sources disagree" not in text, text
        assert not any(said in text for said in ("£7", "3 days", "no longer")), text


async def test_an_answer_says_that_its_only_source_no_longer_holds(synthesizer: ExtractiveSynthesizer) -> None:
    text = (await synthesizer.write(Question("May dogs sleep in the cellar?"), context(OLD, NEW))).text
    told = "From a source that says of itself that it no longer holds: Dogs may sleep in the cellar on cold nights ["
    assert text.startswith(told), text


async def test_who_names_the_old_edition_is_told_of_it(synthesizer: ExtractiveSynthesizer) -> None:
    text = (await synthesizer.write(Question("What did it cost to store a barrel in 2021?"), context(OLD, NEW))).text
    assert "£7" in text and "no longer holds" not in text, text


def test_a_model_is_shown_it_last_and_told_so() -> None:
    found = context(OLD, NEW)
    assert [block.outdated for block in found.blocks] == [False, True]
    assert ["Status: no longer in force" in block.text for block in found.blocks] == [False, True]


@pytest.mark.parametrize(
    ("title", "file", "opening", "outdated"),
    [
        ("Boat hire rates (old)", "", "", True),
        ("Boat hire rates", "rates-2022-OLD.md", "", True),
        ("Boat hire", "boat-hire-superseded.pdf", "", True),
        ("Rates", "", "*** WITHDRAWN 3 May 2025 - see issue 4 ***\n\nA punt is £6.", True),
        ("Rates", "", "# Rates\n\n> This price list was replaced by issue 4 in May.", True),
        ("Rates", "", "Valid from 1 April 2024 to 31 March 2025. A punt is £6.", True),
        ("Rates", "", "These prices are valid until 31 December 2026.", False),
        ("Rates", "", "This list replaces issue 3, which is withdrawn. A punt is £6.", False),
        ("Rates, issue 4", "", "In force from 1 May 2025. Issue 3 is withdrawn; throw it away.", False),
        ("Replaced windows: warranty", "", "A pane that was replaced is under warranty until 31 May 2025.", False),
        ("The old mill", "old-mill.md", "The lock was replaced in 2024. Archived maps hang in the hall.", False),
        ("Obsolete boats for sale", "", "Withdrawn boats are sold in May.", False),
        ("Archive opening hours", "archive.md", "The archive is open on Fridays.", False),
    ],
)
def test_only_what_a_document_says_of_itself_counts(title: str, file: str, opening: str, outdated: bool) -> None:
    assert says_outdated(title, file, opening, TODAY) is outdated


@pytest.mark.parametrize(
    ("one", "other", "outdated"),
    [
        ("Price list 2024", "Price list 2026", True),
        ("Ferry terms, version 2", "Ferry terms (version 3)", True),
        ("Price list 2026", "Price list 2027", False),
        ("Price list 2024", "Price list of the annexe 2026", False),
        ("Minutes of the council 2024", "Minutes of the council 2026", False),
        ("Annual report 2024", "Annual report 2025", False),
        ("Price list 2024", "Price list", False),
        ("Rules of level 1", "Rules of level 2", False),
        ("Rules of level 1, 2024", "Rules of level 2, 2026", False),
        ("Rates from 1 April 2024", "Rates from 15 May 2025", True),
    ],
)
def test_a_later_edition_takes_the_place_of_what_holds_for_a_time(one: str, other: str, outdated: bool) -> None:
    hits = [hit("A punt is £6.", title=one), hit("A punt is £7.", title=other)]
    assert outdated_sources(hits, TODAY) == ({hits[0].source_id} if outdated else set())
