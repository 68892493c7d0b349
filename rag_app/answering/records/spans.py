"""How long ago something was, and how many days lie between two records: "how long ago was Ada last in?".

No query gives that: the records are found, and their days are told apart.
"""

import re
from collections.abc import Sequence
from datetime import date

from msgspec import Struct

from rag_app.answering.records.wording import plural_of

_AGO = re.compile(r"\bhow (?:long|many (?:days|weeks|months)) ago (?P<verb>was|is|were|did)\b(?: it that\b)?", re.I)
_DAYS_BETWEEN = re.compile(
    r"\bhow (?:long|many days|much time)\b(?: (?:are|were|lie|lay|was|is|there|passed|went|by)){1,3} between\b", re.I
)
_TIME_SINCE = re.compile(
    r"\bhow (?:long|many (?:days|weeks|months)) (?:is it|has it been|have passed|passed|went by) since\b", re.I
)


class Span(Struct, frozen=True):
    """The question for the records, and how many of them there have to be: one that was so long ago, or two."""

    text: str
    number: int


def read_span(text: str) -> Span | None:
    """
    >>> read_span("How long ago was Ada last in?"), read_span("how many days lay between Ada's two trips?")
    (Span(text='when was Ada last in?', number=1), Span(text="which were Ada's two trips?", number=2))
    >>> read_span("How long has it been since Ada's last trip?"), read_span("how long was the trip?")
    (Span(text="when was Ada's last trip?", number=1), None)
    """
    for span, asked, number in (
        (_DAYS_BETWEEN, "which were", 2),
        (_TIME_SINCE, "when was", 1),
        (_AGO, r"when \g<verb>", 1),
    ):
        if span.search(text):
            return Span(span.sub(asked, text, count=1), number)
    return None


def say_span(days: Sequence[date], today: date, cited: str) -> str:
    """
    >>> say_span([date(2026, 1, 2)], date(2026, 1, 16), "[Source 1]")
    'That is 14 days ago (2 weeks) [Source 1].'
    >>> say_span([date(2026, 1, 2), date(2026, 1, 3)], date(2026, 1, 16), "[Source 1] [Source 2]")
    'Between them lies 1 day [Source 1] [Source 2].'
    """
    number = abs((days[-1] - (days[0] if len(days) > 1 else today)).days)
    weeks = f" ({number // 7} {plural_of('week', number // 7)})" if number and number % 7 == 0 else ""
    span = f"{number} {plural_of('day', number)}"
    if len(days) > 1:
        return f"Between them {'lies' if number == 1 else 'lie'} {span}{weeks} {cited}."
    if not number:
        return f"That is today {cited}."
    return f"That is {f'{span} ago' if days[0] < today else f'in {span}'}{weeks} {cited}."
