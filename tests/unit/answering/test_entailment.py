"""What the model that reads claims is shown of sources, and what its verdict does to an answer."""

import threading

import pytest
from llama_index.core.schema import TextNode

from rag_app.answering.verification import verdict
from rag_app.answering.verification.entailment import MOST_TEXT, Source, read_odds, windows_of
from rag_app.surfaces.library.verifying import verify
from tests.unit.answering.test_claimed_words import kept
from tests.unit.answering.test_engine import WAITED, engine
from tests.unit.answering.test_stream import Speaks, streamed

HOUSE = (
    "Whoever loses a key pays for a new lock, unless the loss is reported on the same day. Bicycles are kept in the "
    "cellar and never on the stairs. The reading room closes an hour before the shop."
)


@pytest.mark.parametrize(
    "claim",
    [
        "There is no charge for the lock if you say at once that your key is gone.",
        "You may not leave your bike on the steps.",
    ],
)
def test_a_paraphrase_in_other_words_is_kept(claim: str) -> None:
    assert kept(f"{claim} [Source 1].", HOUSE)


@pytest.mark.parametrize(
    "claim", ["The lock is paid for by the insurance of the house.", "The shop has parking spaces."]
)
def test_what_the_source_does_not_state_is_cut(claim: str) -> None:
    assert not kept(f"{claim} [Source 1].", HOUSE)


def test_advice_in_words_of_its_own_has_no_source() -> None:
    assert not verify("Read a long poem aloud [Source 1].", [TextNode(text=HOUSE)]).grounded


def test_a_list_may_be_introduced_without_a_colon() -> None:
    answer = "There is one place for bicycles.\n\n- Bicycles are kept in the cellar [Source 1]."
    assert kept(answer, HOUSE) == answer


def test_an_answer_may_begin_with_a_word_that_says_nothing() -> None:
    answer = "Probably yes. The reading room closes an hour before the shop [Source 1]."
    assert kept(answer, HOUSE) == answer
    assert "bankrupt" not in kept(f"The shop is bankrupt. {answer}", HOUSE)


def test_long_sources_are_read_in_parts_that_fit() -> None:
    long = [
        Source("Rules", " ".join(f"Rule {number} is about gardens and fences." for number in range(90)) + f" {HOUSE}"),
        Source("House", HOUSE),
    ]
    windows = windows_of("Bicycles are kept in the cellar.", long)
    assert len(windows) == 3 and all(0 < len(window.ids) <= MOST_TEXT for window in windows)
    bicycles = Source("", "Bicycles are kept in the cellar and never on the stairs.").pieces[0].ids
    assert all(" ".join(map(str, bicycles)) in " ".join(map(str, window.ids)) for window in windows)
    assert [window.title for window in windows_of("Bicycles are kept there.", long[1:])] == ["House"]


async def test_claims_are_read_once_and_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence that was verified while it came is not read again when the answer is complete."""
    read, threads = [], set()

    def note(claim: str, sources: list[Source]) -> float:
        read.append(claim)
        threads.add(threading.current_thread())
        return read_odds(claim, sources)

    monkeypatch.setattr(verdict, "read_odds", note)
    said = "One customer waited almost 15 minutes, but she liked the service [Source 1]."
    _, _, answer = await streamed(engine(Speaks(said, " She had to wait [Source 1]."), WAITED))
    assert answer.text.startswith(said) and read and len(read) == len(set(read)), read
    assert threading.main_thread() not in threads
