"""Where sentences and rows end."""

import pytest

from rag_app.retrieval.text import sentence_pieces, sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "(1) Quiet hours begin at ten. They end at seven. (2) Prams may stay. Shoes may not.",
            ["(1) Quiet hours begin at ten.", "They end at seven.", "(2) Prams may stay.", "Shoes may not."],
        ),
        ("It rains. (He said so. She did.) It snows.", ["It rains.", "(He said so. She did.) It snows."]),
        ("Up to max. 40 people. It is approx. 2 km.", ["Up to max. 40 people.", "It is approx. 2 km."]),
        ("It costs £5 incl. VAT. Call Max. He knows.", ["It costs £5 incl. VAT.", "Call Max.", "He knows."]),
    ],
)
def test_a_sentence_ends_where_its_reader_says_so(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_a_row_of_a_table_is_one_piece_whatever_stops_it_has() -> None:
    rows = "No.: 1; Space m2: 82.5; Done by: R. Okafor; Max. group: 6\nNo.: 2; Space m2: 34.0; Max. group: 9"
    pieces = sentence_pieces(f"The flats:\n{rows}\n\nAsk us. We know.")
    assert [piece.strip() for piece in pieces if piece.strip()] == [
        "The flats:",
        *rows.split("\n"),
        "Ask us.",
        "We know.",
    ]
    assert "".join(pieces) == f"The flats:\n{rows}\n\nAsk us. We know."


def test_rows_that_an_answer_tells_are_told_apart() -> None:
    told = "Course: Level 1; Fee: £150; Max. group: 6 [Source 1]. Course: Level 2; Fee: £285; Max. group: 8 [Source 2]."
    assert len(sentences(told)) == 2
