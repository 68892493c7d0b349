"""Days that a question is about."""

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from rag_app.domain.patterns import compile_later

Grain = Literal["day", "week", "month", "quarter", "year", "days"]

MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
FRENCH_MONTHS = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split()  # noqa: SIM905
GERMAN_MONTHS = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()  # noqa: SIM905
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_FOREIGN_WEEKDAYS = (
    "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    "lundi mardi mercredi jeudi vendredi samedi dimanche",
)
MONTH_NUMBERS = {
    name.lower(): number
    for names in (MONTHS, [name[:3] for name in MONTHS], GERMAN_MONTHS, FRENCH_MONTHS)
    for number, name in enumerate(names, 1)
} | {"sept": 9}
"""1 to 12, by name in English, German and French."""
DAY_NUMBERS = {
    name.lower(): number
    for names in (WEEKDAYS, *map(str.split, _FOREIGN_WEEKDAYS))
    for number, name in enumerate(names)
}
"""0, Monday, to 6, by name in English, German and French."""
YEAR = compile_later(r"\b(?:19|20)\d\d\b")
"""As a text says it in digits."""


class Period(Struct, frozen=True):
    """Days, from `start` to `end`, both included; one is None where there is no bound ("before 9 January").

    `said` are the words that mean it, at `span` of the text. `grain` is what was named: a day, a week (Monday to Sunday),
    a month and so on, or "days" for any others. `label` tells the days in English. `otherwise` are the days of another
    year that the words may mean as well: "14 January" has no year.
    """

    start: date | None
    end: date | None
    said: str
    span: tuple[int, int]
    grain: Grain = "days"
    otherwise: "Period | None" = None

    @property
    def label(self) -> str:
        return days_text(self.start, self.end)

    def holds(self, day: date) -> bool:
        return (self.start is None or self.start <= day) and (self.end is None or day <= self.end)

    def meets(self, start: date, end: date) -> bool:
        """Whether one of these days lies in it."""
        return (self.start is None or self.start <= end) and (self.end is None or start <= self.end)

    def move_to(self, day: date) -> "Period":
        """The period of the same kind that a day lies in: its week, its month, or as many days that end with it."""
        if self.grain != "days":
            start, end = days_around(day, self.grain)
        elif self.start is None or self.end is None:
            start = end = day
        else:
            start, end = day - (self.end - self.start), day
        return replace(self, start=start, end=end)


def day_of(seconds: float) -> date:
    """The day of a moment in epoch seconds, UTC."""
    return datetime.fromtimestamp(seconds, UTC).date()


def days_around(day: date, grain: str) -> tuple[date, date]:
    """The first and last day of the week, month, quarter or year that a day lies in.

    >>> [each.isoformat() for each in days_around(date(2024, 2, 10), "month")]
    ['2024-02-01', '2024-02-29']
    """
    if grain == "week":
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=6)
    if grain == "weekend":
        saturday = day - timedelta(days=day.weekday() - 5)
        return saturday, saturday + timedelta(days=1)
    months = {"month": 1, "quarter": 3, "year": 12}.get(grain)
    if months is None:
        return day, day
    first = date(day.year, (day.month - 1) // months * months + 1, 1)
    last = first.replace(month=first.month + months - 1)
    return first, last.replace(day=monthrange(last.year, last.month)[1])


def days_text(start: date | None, end: date | None) -> str:
    """Days as a person says them.

    >>> days_text(date(2026, 1, 12), date(2026, 1, 18)), days_text(date(2026, 1, 1), date(2026, 1, 31))
    ('12 to 18 January 2026', 'January 2026')
    >>> days_text(date(2025, 12, 29), date(2026, 1, 4)), days_text(None, date(2026, 1, 8))
    ('29 December 2025 to 4 January 2026', 'until 8 January 2026')
    """
    if start is None or end is None:
        return f"until {day_text(end)}" if end else f"since {day_text(start)}" if start else "any time"
    if start == end:
        return day_text(start)
    if (start, end) == days_around(start, "year"):
        return str(start.year)
    if (start, end) == days_around(start, "month"):
        return f"{_month(start)} {start.year}"
    if (start.year, start.month) == (end.year, end.month):
        return f"{start.day} to {day_text(end)}"
    first = f"{start.day} {_month(start)}" if start.year == end.year else day_text(start)
    return f"{first} to {day_text(end)}"


def day_text(day: date) -> str:
    """
    >>> day_text(date(2026, 11, 22))
    '22 November 2026'
    """
    return f"{day.day} {_month(day)} {day.year}"


def time_text(seconds: float) -> str:
    """A moment in epoch seconds, UTC; without the time of day at midnight, which stands for none.

    >>> time_text(1768583700.0), time_text(1768521600.0)
    ('16 January 2026 at 17:15', '16 January 2026')
    """
    moment = datetime.fromtimestamp(seconds, UTC)
    day = day_text(moment.date())
    return f"{day} at {moment:%H:%M}" if (moment.hour, moment.minute) != (0, 0) else day


def _month(day: date) -> str:
    return MONTHS[day.month - 1]
