"""The dates of the sample files, as if they had been written this week.

The samples tell of January 2026. A manifest that has `[dates] week = 2026-01-12` marks them: the dates in its files are
placeholders, counted from that Monday, and move by whole weeks to the present one when they are loaded. So weekdays stay
right, and within a week nothing changes. A month that stands alone becomes the one that its middle moves to.

What stays as written: names of files, bare years, months that come back ("every April", "Christmas"), and days of a rule ("before
31 March of the next year").
"""

import re
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

from msgspec.structs import replace

from rag_app.documents.documents import Document
from rag_app.domain import FRENCH_MONTHS, MONTHS

_YEAR = r"20\d\d"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_ENGLISH_MONTH, _FRENCH_MONTH = "|".join(MONTHS), "|".join(FRENCH_MONTHS)
_LEADS = r"in|since|of|from|to|until|by|for|during|and|early|mid|late|last|before|after|en|de|depuis|fin|début"
_DATES = re.compile(
    rf"(?<![\w.-])(?P<iso>{_YEAR}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))(?=T\d|(?![\w-]))"
    rf"|(?<![\w.-])(?P<iso_month>{_YEAR}-(?:0[1-9]|1[0-2]))(?![\w-])"
    rf"|(?<!\w)(?P<d1>{_DAY})(?P<th1>st|nd|rd|th|er)?(?P<of>\s+(?:of\s+)?)(?P<m1>{_ENGLISH_MONTH}|{_FRENCH_MONTH})\b(?:(?P<c1>,?\s+)(?P<y1>{_YEAR}))?"
    rf"|\b(?P<m2>{_ENGLISH_MONTH})(?P<s2>\s+)(?P<d2>{_DAY})(?P<th2>st|nd|rd|th)?\b(?:(?P<c2>,?\s+)(?P<y2>{_YEAR}))?"
    rf"|\b(?P<m3>{_ENGLISH_MONTH}|{_FRENCH_MONTH})(?P<c3>,?\s+)(?P<y3>{_YEAR})"
    rf"|\b(?P<m4>{_ENGLISH_MONTH}|{_FRENCH_MONTH})\b"
)
_OF_A_RULE = re.compile(r"\s+of (?:the next|each|every) year\b")
_LEADING_WORD = re.compile(rf"\b(?:{_LEADS})\s+$", re.IGNORECASE)


def whole_weeks_between(week: date, today: date) -> timedelta:
    """How far dates move that were written in the week of `week`, for a reader of `today`: whole weeks.

    >>> whole_weeks_between(date(2026, 1, 12), date(2026, 11, 22)).days
    308
    """
    return timedelta(days=(today - timedelta(days=today.weekday()) - (week - timedelta(days=week.weekday()))).days)


def move_dates(week: date, today: date) -> Callable[[Document], Document]:
    """What makes of a document the one that would have been written this week."""
    by = whole_weeks_between(week, today)

    def move(document: Document) -> Document:
        return replace(
            document,
            title=move_value(document.title, by, week),
            passages=tuple(
                replace(each, text=move_text(each.text, by, week), section=move_value(each.section, by, week))
                for each in document.passages
            ),
            metadata=move_value({**document.metadata}, by, week),
            derived=move_value({**document.derived}, by, week),
        )

    return move


def move_value(value: Any, by: timedelta, week: date) -> Any:
    """A value of metadata: dates, texts with dates, and lists and objects of them."""
    match value:
        case str():
            return move_text(value, by, week)
        case date():  # a moment, too
            return value + by
        case list() | tuple():
            return [move_value(each, by, week) for each in value]
        case dict():
            return {key: move_value(each, by, week) for key, each in value.items()}
    return value


def move_text(text: str, by: timedelta, week: date) -> str:
    """A text with its dates moved, each in the notation it has. A day without a year is the one nearest to `week`.

    >>> week = date(2026, 1, 12)
    >>> move_text("On Friday 9 January 2026, or 2026-01-12: see January, as every January.", timedelta(weeks=44), week)
    'On Friday 13 November 2026, or 2026-11-16: see January, as every January.'
    >>> move_text("Fermé le 3 février, comme en janvier.", timedelta(weeks=44), week)
    'Fermé le 8 décembre, comme en novembre.'
    """
    if not by:
        return text
    return _DATES.sub(lambda found: _move_date(found, by, week), text)


def _move_date(found: re.Match[str], by: timedelta, week: date) -> str:
    said = found.groupdict()
    try:
        if said["iso"]:
            return (date.fromisoformat(said["iso"]) + by).isoformat()
        if said["iso_month"]:
            return f"{_middle(*map(int, said['iso_month'].split('-'))) + by:%Y-%m}"
        name = said["m1"] or said["m2"] or said["m3"] or said["m4"]
        names = MONTHS if name in MONTHS else FRENCH_MONTHS
        month, year = names.index(name) + 1, said["y1"] or said["y2"] or said["y3"]
        if _OF_A_RULE.match(found.string, found.end()):
            return found[0]
        if said["d1"] or said["d2"]:
            day = int(said["d1"] or said["d2"])
            moved = (date(int(year), month, day) if year else _nearest_date(month, day, week)) + by
        elif said["m3"] or _LEADING_WORD.search(found.string[: found.start()]):
            moved = _middle(int(year or week.year), month) + by
        else:
            return found[0]
    except ValueError:  # no such day
        return found[0]
    return _format_date(said, moved, names)


def _format_date(said: dict[str, str | None], day: date, names: list[str]) -> str:
    month = names[day.month - 1]
    if said["d1"]:
        ordinal = _ordinal(day.day, said["th1"])
        return f"{day.day}{ordinal}{said['of']}{month}" + (f"{said['c1']}{day.year}" if said["y1"] else "")
    if said["d2"]:
        ordinal = _ordinal(day.day, said["th2"])
        return f"{month}{said['s2']}{day.day}{ordinal}" + (f"{said['c2']}{day.year}" if said["y2"] else "")
    return f"{month}{said['c3']}{day.year}" if said["y3"] else month


def _ordinal(day: int, was: str | None) -> str:
    if was is None or was == "er":
        return "er" if was and day == 1 else ""
    return "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def _nearest_date(month: int, day: int, week: date) -> date:
    years = (week.year - 1, week.year, week.year + 1)
    return min((date(year, month, day) for year in years), key=lambda each: abs((each - week).days))


def _middle(year: int, month: int) -> date:
    return date(year, month, 15)
