"""Reads query parameters and form fields, and scales charts."""

from collections.abc import Callable, Collection, Sequence
from datetime import date
from math import floor, log10
from uuid import UUID

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


def chart_top(days: Sequence[TrendDay], series: Sequence[tuple[str, str, str]], combine: Callable[..., float]) -> float:
    """The top of a chart's scale: the next number of the form 1, 2, 4, 6 or 8 with zeros, at least 2, so that its half, a
    label, is whole. `combine` is `sum` if the series, each with the field of a day, are on top of each other, else `max`.
    """
    highest = max(combine(getattr(day, field) or 0 for _, field, _ in series) for day in days)
    unit = 10.0 ** floor(log10(max(highest, 2)))
    return next(factor * unit for factor in (1, 2, 4, 6, 8, 10) if factor * unit >= max(highest, 2))


TEMPLATES.globals.update(chart_top=chart_top, max=max, sum=sum)
