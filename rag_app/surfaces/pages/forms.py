"""Reads query parameters and form fields, and formats figures."""

from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime
from math import floor, log10
from uuid import UUID

from markupsafe import Markup

from rag_app.domain import InvalidInput
from rag_app.http.problems import AnyRequest
from rag_app.surfaces.management.types import TrendDay
from rag_app.surfaces.pages.site import TEMPLATES


def query_value(request: AnyRequest, name: str, accepted: Collection[str] | None = None) -> str | None:
    """A query parameter; None if it is empty or missing. Raises InvalidInput for a value that is not accepted."""
    return form_value(name, str(request.query_params.get(name, "")), accepted)


def form_value(name: str, said: object, accepted: Collection[str] | None = None) -> str | None:
    """The value of a form field, like `query_value`.

    >>> form_value("state", " open ", ["open", "settled"]), form_value("state", "")
    ('open', None)
    """
    value = str(said or "").strip()
    if not value:
        return None
    if "\0" in value or (accepted is not None and value not in accepted):
        raise InvalidInput(name, value[:100], f"must be one of {', '.join(accepted or ())}")
    return value


def day(request: AnyRequest, name: str) -> date | None:
    """A date in the query. Raises InvalidInput."""
    value = query_value(request, name)
    try:
        return None if value is None else date.fromisoformat(value)
    except ValueError:
        raise InvalidInput(name, str(value)[:100], "must be a date, YYYY-MM-DD") from None


def uuid(name: str, said: object) -> UUID:
    """An id in a form. Raises InvalidInput."""
    try:
        return UUID(str(said))
    except ValueError:
        raise InvalidInput(name, str(said)[:100], "must be an id") from None


def moment(at: datetime | None) -> str:
    """
    >>> moment(datetime(2026, 1, 15, 10, 30)), moment(None)
    ('2026-01-15 10:30', '–')
    """
    return "–" if at is None else f"{at:%Y-%m-%d %H:%M}"


def percent(share: float | None) -> str:
    """
    >>> percent(0.256), percent(None)
    ('26 %', '–')
    """
    return "–" if share is None else f"{100 * share:.0f} %"


def seconds(milliseconds: float | None) -> str:
    """
    >>> seconds(340), seconds(2345.6), seconds(None)
    ('340 ms', '2.3 s', '–')
    """
    if milliseconds is None:
        return "–"
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def money(cents: float | None) -> str:
    """
    >>> money(1234.5), money(0.25), money(0)
    ('$12.35', '0.25 ¢', '$0.00')
    """
    if cents is None:
        return "–"
    return f"{cents:.2g} ¢" if 0 < cents < 1 else f"${cents / 100:.2f}"


def count(number: float | None) -> str:
    """
    >>> count(12345), count(None)
    ('12,345', 'unlimited')
    """
    return "unlimited" if number is None else f"{number:,.0f}"


def size(number: int) -> str:
    """Bytes.

    >>> size(112), size(20_480), size(3_500_000)
    ('112 B', '20 kB', '3.5 MB')
    """
    if number < 1000:
        return f"{number} B"
    return f"{number / 1000:.0f} kB" if number < 1_000_000 else f"{number / 1_000_000:.1f} MB"


def chart_top(days: Sequence[TrendDay], series: Sequence[tuple[str, str, str]], combine: Callable[..., float]) -> float:
    """The top of a chart's scale: the next number of the form 1, 2, 4, 6 or 8 with zeros, at least 2, so that its half, a
    label, is whole. `combine` is `sum` if the series, each with the field of a day, are on top of each other, else `max`.
    """
    highest = max(combine(getattr(day, field) or 0 for _, field, _ in series) for day in days)
    unit = 10.0 ** floor(log10(max(highest, 2)))
    return next(factor * unit for factor in (1, 2, 4, 6, 8, 10) if factor * unit >= max(highest, 2))


def breakable(name: str) -> Markup:
    """A name that may be broken after each `_`.

    >>> str(breakable("a_<b>"))
    'a_<wbr>&lt;b&gt;'
    """
    return Markup("_<wbr>").join(name.split("_"))


TEMPLATES.filters.update(
    breakable=breakable, size=size, moment=moment, percent=percent, seconds=seconds, money=money, count=count
)
TEMPLATES.globals.update(chart_top=chart_top, max=max, sum=sum)
