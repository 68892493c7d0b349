"""The dates of samples, moved to the present week."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from rag_app.console.sample_dates import move_dates, move_text, whole_weeks_between
from rag_app.documents.documents import Document, Passage

WEEK = date(2026, 1, 12)


@pytest.mark.parametrize(
    ("written", "moved"),
    [
        ("Friday 9 January 2026, 13:00", "Friday 13 November 2026, 13:00"),
        ("on the 3rd of January", "on the 7th of November"),
        ("January 27, 2026", "December 1, 2026"),
        ("date: 2026-01-12; time: 14:00", "date: 2026-01-16; time: 14:00"),
        ("le 1er mars 2026", "le 3 janvier 2027"),
        ("in January, as in every January", "in November, as in every January"),
        ("since October 2025", "since August 2026"),
        ("before 31 March of the next year", "before 31 March of the next year"),
        ("Her wedding is on 23 May.", "Her wedding is on 27 March."),
        ("May I come? They march on. A* is of 1968.", "May I come? They march on. A* is of 1968."),
        ("week-2026-01-12.csv, 31 February 2026", "week-2026-01-12.csv, 31 February 2026"),
    ],
)
def test_each_notation_stays_what_it_is(written: str, moved: str) -> None:
    expected = moved.replace("2026-01-16; time", "2026-11-16; time")
    assert move_text(written, timedelta(weeks=44), WEEK) == expected


@given(st.dates(date(2026, 1, 12), date(2035, 12, 31)))
def test_weekdays_stay_and_the_last_week_is_the_present_one(today: date) -> None:
    by = whole_weeks_between(WEEK, today)
    assert by.days % 7 == 0 and (WEEK + by).weekday() == 0 and 0 <= (today - (WEEK + by)).days < 7


def test_texts_and_metadata_move_together() -> None:
    document = Document(
        "", (Passage("On 12 January.", "Week of 12 January 2026"),), "12 January 2026",
        {"date": datetime(2026, 1, 16, 18, tzinfo=UTC), "note": ["2026-01-16"]}, {"date": date(2026, 1, 16)},
    )  # fmt: skip
    moved = move_dates(WEEK, date(2026, 11, 22))(document)
    assert moved.title == "16 November 2026" and moved.passages[0] == Passage(
        "On 16 November.", "Week of 16 November 2026"
    )
    assert moved.metadata == {"date": datetime(2026, 11, 20, 18, tzinfo=UTC), "note": ["2026-11-20"]}
    assert moved.derived == {"date": date(2026, 11, 20)}
