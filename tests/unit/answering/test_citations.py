"""Citations: read in every shape, never one that does not exist."""

import re
from itertools import pairwise
from uuid import uuid4

import pytest
from hypothesis import given, settings, strategies as st

from rag_app.answering.citations import (
    QUOTE_LENGTH,
    CheckedAnswer,
    cite,
    number_citations,
    pieces_begun,
    pieces_of,
    quote,
)
from rag_app.answering.context import build_context
from rag_app.answering.verification.verdict import Ground, Verification
from tests.fuzzing import examples
from tests.unit.answering.hits import hit

MARKER = re.compile(r"\[Source ([0-9]+)\]")


def check(
    text: str,
    known: int,
    *,
    max_sentences: int | None = None,
    max_words: int | None = None,
    max_sources: int | None = None,
    cut_off: bool = False,
) -> CheckedAnswer:
    """What is shown of a text, within the limits, where no sentence is compared with a source."""
    verification = Verification(
        Ground((), ""), max_sentences=max_sentences, max_words=max_words, max_sources=max_sources
    )
    verification.read(pieces_of(text, known, cut_off=cut_off))
    verification.end()
    return number_citations(verification.text)


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        ("A [Source 1].", (1,)),
        ("A [source 2].", (2,)),
        ("A [Source 1, Source 3].", (1, 3)),
        ("A [Source 1, 3].", (1, 3)),
        ("A [Sources 1 and 2].", (1, 2)),
        ("A [Sources 1-3].", (1, 2, 3)),
        ("A [Sources 1 to 3].", (1, 2, 3)),
        ("A [Source 3] B [Source 1].", (3, 1)),
        ("A [Source #1] [SOURCE:2].", (1, 2)),
        ("A [Source 2: Price list 2024].", (2,)),
        ("A (Source 1), 【Source 2】 and [3].", (1, 2, 3)),
        ("A [1, 3] b [^2].", (1, 3, 2)),
        ("A 【3】 b 【1†source】.", (3, 1)),
        ("A (Sources 1 and 2).", (1, 2)),
        ("A [Quelle 2], [Doc 3], [Ref. 1].", (2, 3, 1)),
        ("A [4] b (1) c [2024] (see Source 2).", ()),
        ("A [Source 4], [Source 0], [Source 99999999999999999999].", ()),
        ("A [Source two], [sources].", ()),
    ],
)
def test_every_shape_is_read(written: str, numbers: tuple[int, ...]) -> None:
    assert check(written, known=3).blocks == numbers


@pytest.mark.parametrize(
    ("written", "clean"),
    [
        ("A [Source 9].", "A."),
        ("A [Source 9] b.", "A b."),
        ("[Source 9] A b.", "A b."),
        ("A\n[Source 9] B", "A\nB"),
        ("A[Source 9]", "A"),
        ("A [Source 9] [Source 8], b [Source 9, Source 2].", "A, b [Source 1]."),
        ("A [Source 2] [Source 9] b.", "A [Source 1] b."),
        ("A [Source 3, Source 2]. B [Source 2].", "A [Source 1] [Source 2]. B [Source 1]."),
        ("A [Source [Source 99]98].", "A."),
    ],
)
def test_unknown_numbers_leave_no_trace_and_the_rest_is_renumbered(written: str, clean: str) -> None:
    assert check(written, known=3).text == clean


@pytest.mark.parametrize(
    ("written", "clean"),
    [
        ("A one. [Source 1] B two. [Source 2]", "A one [Source 1]. B two [Source 2]."),
        ("A one.[Source 1][Source 2]\nB two!", "A one [Source 1][Source 2].\nB two!"),
        ("A one. [Source 1].", "A one [Source 1]."),
        ('He said "no." [Source 1] So be it.', 'He said "no [Source 1]." So be it.'),
        ("A one. [Source 1] says so.", "A one. [Source 1] says so."),
        ("A one. [Source 1]. says so.", "A one [Source 1]. says so."),
    ],
)
def test_a_citation_behind_the_full_stop_joins_its_sentence(written: str, clean: str) -> None:
    assert check(written, known=2).text == clean


def test_a_sentence_limit_cuts_at_a_sentence_and_drops_the_citations_beyond() -> None:
    text = "One [Source 2]. Two. [Source 1] Three [Source 3]. Four."
    assert check(text, known=3, max_sentences=2).text == "One [Source 1]. Two [Source 2]."
    assert check(text, known=3, max_sentences=2).blocks == (2, 1)
    assert check("- a [Source 1]\n- b\n- c", known=1, max_sentences=2).text == "- a [Source 1]\n- b"
    assert check(text, known=3, max_sources=1).text == "One [Source 1]."
    assert check("All [Source 3] [Source 1] [Source 2].", known=3, max_sources=2).text == "All [Source 1] [Source 2]."


def test_a_word_limit_cuts_at_a_sentence_and_does_not_count_citations() -> None:
    text = "One two three [Source 1]. Four five six [Source 2]. Seven."
    assert check(text, known=2, max_words=6).text == "One two three [Source 1]. Four five six [Source 2]."
    assert check(text, known=2, max_words=5).text == "One two three [Source 1]."


def test_an_endless_first_sentence_is_cut_between_words_and_keeps_its_citation() -> None:
    assert check("one two three four five [Source 1].", known=1, max_words=3).text == "one two three… [Source 1]"


pieces = st.lists(
    st.sampled_from(
        ["[Source 1]", "[source 2, 7]", "[Source 9]", "[Sources 1 and 3]", "[Sources 2-5]", "[Source ", "[Sour", "ce ", "1", "]", "[",
         " ", "\n", ". ", ".", "? ", "Said", "so", "É", '."', "…", "Dr. ", "- ", "\0", ", ", "3.5", "source", "(Source 4)", "1111111111111111",
         "I don't know", "no mention of", "(Source 1)", "(Sour", "[1]", "[2, 3]", "【Source 2】", "【", "†", "^", "(", ")"]
    ),
    max_size=30,
).map("".join)  # fmt: skip


@settings(max_examples=examples(400), deadline=None)
@given(text=pieces | st.text(max_size=80), known=st.integers(0, 4), most=st.none() | st.integers(1, 3))
def test_whatever_is_written_only_known_sources_are_cited(text: str, known: int, most: int | None) -> None:
    checked = check(text, known, max_sentences=most, max_words=most and most * 2)
    mentioned = [int(number) for number in MARKER.findall(checked.text)]
    assert list(dict.fromkeys(mentioned)) == list(range(1, len(checked.blocks) + 1))
    assert len(set(checked.blocks)) == len(checked.blocks) and all(1 <= block <= known for block in checked.blocks)
    leftovers = re.findall(
        r"\[\s*sources?[\s:#]*[0-9][^\[\]]*\]", MARKER.sub("§", checked.text), re.IGNORECASE
    )  # "" would join what stands around it
    assert leftovers == []
    again = check(checked.text, len(checked.blocks), max_sentences=most, max_words=most and most * 2)
    assert again.text == checked.text and again.blocks == tuple(range(1, len(checked.blocks) + 1))


def check_begun(text: str, known: int, most: int | None = None) -> CheckedAnswer:
    """What a stream has released when this much of a text has come."""
    verification = Verification(Ground((), ""), max_sentences=most, max_words=most and most * 2)
    verification.read(pieces_begun(text, known))
    return number_citations(verification.text)


@settings(max_examples=examples(300), deadline=None)
@given(
    text=pieces | st.text(max_size=80),
    known=st.integers(0, 4),
    most=st.none() | st.integers(1, 3),
    cut_off=st.booleans(),
)
def test_what_is_found_in_the_beginning_of_a_text_holds_however_it_goes_on(
    text: str, known: int, most: int | None, cut_off: bool
) -> None:
    limits = {"max_sentences": most, "max_words": most and most * 2}
    whole = check(text, known, **limits, cut_off=cut_off)
    for end in range(len(text) + 1):
        begun = check_begun(text[:end], known, most)
        assert whole.text.startswith(begun.text) and whole.blocks[: len(begun.blocks)] == begun.blocks


def test_a_sentence_is_found_when_the_next_has_begun_and_its_citations_are_known() -> None:
    said = (
        "Open at 9.30 daily. [Source 3] says Dr. Smith. It's free. [Sources 1 and 3, 9] That's all [Source 1].\n"
        "- one\n- two\n- three"
    )
    found = [(end, check_begun(said[:end], known=3).text) for end in range(len(said) + 1)]
    grown = [
        (said[:end][-12:], text.removeprefix(before)) for (_, before), (end, text) in pairwise(found) if text != before
    ]
    assert grown == [
        ("[Source 3] s", "Open at 9.30 daily."),
        (". Smith. It'", " [Source 1] says Dr. Smith."),
        (" 3, 9] That'", " It's free [Source 2] [Source 1]."),
        ("ource 1].\n- ", " That's all [Source 2]."),
        ("one\n- two\n- ", "\n- one"),
    ]


@pytest.mark.parametrize(
    "cut", ["[", "[ ", "[Sou", "[Source ", "[source 1", "[Sources 1 and", "[Source 1, [Source 9]", "[Source\n"]
)
def test_a_citation_that_may_still_come_is_waited_for(cut: str) -> None:
    assert check_begun(f"A cat sat. It was so. {cut}", known=3).text == "A cat sat."
    assert check_begun(f"A cat sat. It was {cut}", known=3).text == "A cat sat."


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("It is open [Source 1]. We close at", "It is open [Source 1]."),
        ("It is open [Source 1]. We close at [Source", "It is open [Source 1]."),
        ("It is open [Source 1]. We close.", "It is open [Source 1]. We close."),
        ("It is open. [Source 1]", "It is open [Source 1]."),
        ("It is open at", "It is open at"),
    ],
)
def test_of_a_text_that_was_cut_off_the_unfinished_sentence_is_left_out(written: str, kept: str) -> None:
    assert check(written, known=1, cut_off=True).text == kept


@settings(max_examples=examples(100), deadline=None)
@given(claims=st.lists(st.text(max_size=60), max_size=3), text=st.text(min_size=1, max_size=900))
def test_a_quote_is_short_and_the_sources_own_words(claims: list[str], text: str) -> None:
    found, quoted, start, end = quote(claims, [hit(text)])
    assert found.text[start:end] == quoted.removesuffix("…") or quoted.endswith("…")
    assert len(quoted) <= QUOTE_LENGTH
    assert " ".join(quoted.removesuffix("…").split()) in " ".join(found.text.split())


def test_a_citation_quotes_the_chunk_and_the_sentence_that_say_it() -> None:
    source = uuid4()
    hits = [
        hit("We open at nine. A hair cut costs 40 dollars. Parking is free.", source, 0),
        hit("Colour takes two hours. A colour costs 90 dollars.", source, 1, score=0.7),
        hit("Dogs are welcome.", score=0.6),
    ]
    context = build_context(hits, max_tokens=500, max_sources=5)
    checked = check("Dogs may come along [Source 2]. Colour costs 90 dollars [Source 1].", len(context.blocks))
    citations = cite(checked, context)
    assert [(c.number, c.quote) for c in citations] == [(1, "Dogs are welcome."), (2, "A colour costs 90 dollars.")]
    assert citations[1].hit is hits[1]


GUIDE = hit(
    "Check that the work is dry. Put kiln wash on the shelves. Glazed pieces must never touch. The hold takes 20 minutes."
)


@pytest.mark.parametrize(
    ("text", "quotes"),
    [
        (
            "Put kiln wash on the shelves [Source 1]. Glazed pieces must never touch [Source 1].",
            ["Put kiln wash on the shelves.", "Glazed pieces must never touch."],
        ),
        ("Wash the shelves [Source 1]; hold it for 20 minutes [Source 1].", ["Put kiln wash on the shelves.", "The hold takes 20 minutes."]),
        ("Glazed pieces must never touch [Source 1]. Zebras [Source 1].", []),  # what shares nothing goes with the best
        ("Glazed pieces must never touch [Source 1].", []),
    ],
)  # fmt: skip
def test_each_citation_of_a_source_has_the_passage_of_its_own_claim(text: str, quotes: list[str]) -> None:
    (citation,) = cite(CheckedAnswer(text, (1,)), build_context([GUIDE], max_tokens=500, max_sources=5))
    assert [each.quote for each in citation.passages] == quotes
    assert citation.hit.text[citation.start : citation.end] == citation.quote
    assert all(each.hit.text[each.start : each.end] == each.quote for each in citation.passages)


def test_the_lines_that_are_told_word_for_word_are_quoted_and_a_figure_counts_for_more_than_a_word() -> None:
    hours = hit("Tuesday to Friday 9 to 17\nSaturday 10 to 16\nClosed on Mondays\n\nSaturday and Sunday 10 to 17")
    assert quote(["Saturday 10 to 16 ."], [hours])[1] == "Saturday 10 to 16"
    fees = hit("The yearly fee for members is low. It costs 32 pounds.")
    assert quote(["The fee for members is 32 pounds a year."], [fees])[1] == "It costs 32 pounds."


def test_a_told_row_of_a_table_is_quoted_by_itself() -> None:
    rows = ["Course: Level 1; Fee: £150; Max. group: 6", "Course: Level 2; Fee: £285; Max. group: 8"]
    context = build_context([hit("\n".join(rows))], max_tokens=500, max_sources=5)
    (citation,) = cite(check(f"{rows[1]} [Source 1].", 1), context)
    assert citation.quote == rows[1]


def test_without_a_shared_word_the_quote_is_the_beginning() -> None:
    assert (
        quote(["Nothing alike"], [hit("We open at nine. Parking is free.")])[1] == "We open at nine. Parking is free."
    )


def test_a_run_of_blanks_costs_no_more_than_its_length() -> None:
    """Tried at each of its characters it would take minutes, and the server with them."""
    for blanks in (" " * 100_000, "\t" * 100_000):
        assert check(f"One waited [Source 1].{blanks}Another did not.", 1).blocks == (1,)
