"""Small SVG charts without scripts. The page shows the same figures in a table."""

from collections.abc import Sequence
from math import ceil, floor, log10

from markupsafe import Markup, escape

from rag_app.domain import frozen

WIDTH, HEIGHT = 400, 140
_LEFT, _RIGHT, _TOP, _BOTTOM = 36, 4, 8, 20
_GAP = 0.25  # of a bar's place


@frozen
class Series:
    """A series of figures; None is a missing figure. `tone` is a class of app.css: bar-mark, bar-mark-2, line-mark ..."""

    name: str
    values: Sequence[float | None]
    tone: str


def bars(labels: Sequence[str], *stacked: Series) -> Markup:
    """A bar for each label, the series on top of each other.

    >>> str(bars(["Mon", "Tue"], Series("asked", [1, 3], "bar-mark"))).count("<rect")
    2
    """
    totals = [sum(each.values[place] or 0 for each in stacked) for place in range(len(labels))]
    top = _round_up(max(totals, default=0))
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    marks = []
    for place in range(len(labels)):
        base = 0.0
        for each in stacked:
            value = each.values[place] or 0
            if value:
                y, height = _y(base + value, top), _y(base, top) - _y(base + value, top)
                x = _LEFT + step * (place + _GAP / 2)
                marks.append(
                    f'<rect class="{each.tone}" x="{x:.1f}" y="{y:.1f}" width="{step * (1 - _GAP):.1f}" '
                    f'height="{height:.1f}"><title>{escape(labels[place])}: {escape(each.name)} {value:g}</title></rect>'
                )
            base += value
    return _drawing(labels, stacked, top, "".join(marks))


def lines(labels: Sequence[str], *series: Series) -> Markup:
    """A line for each series. It is interrupted at missing figures; a single figure is a dot.

    >>> str(lines(["a", "b", "c"], Series("p50", [1, None, 2], "line-mark"))).count("<circle")
    2
    """
    values = [value for each in series for value in each.values if value is not None]
    top = _round_up(max(values, default=0))
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    marks = []
    for each in series:
        runs: list[list[str]] = [[]]
        for place, value in enumerate(each.values):
            if value is None:
                runs.append([])
            else:
                runs[-1].append(f"{_LEFT + step * (place + 0.5):.1f},{_y(value, top):.1f}")
        for run in runs:
            if len(run) == 1:
                x, y = run[0].split(",")
                marks.append(f'<circle class="{each.tone}" cx="{x}" cy="{y}" r="2.5"/>')
            elif run:
                marks.append(f'<polyline class="{each.tone}" points="{" ".join(run)}"/>')
    return _drawing(labels, series, top, "".join(marks))


def _drawing(labels: Sequence[str], series: Sequence[Series], top: float, marks: str) -> Markup:
    grid = "".join(
        f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{_y(value, top):.1f}" y2="{_y(value, top):.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{_y(value, top) + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        for value in (0, top / 2, top)
    )
    ends = ""
    if labels:
        ends = (
            f'<text x="{_LEFT}" y="{HEIGHT - 4}">{escape(labels[0])}</text>'
            f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(labels[-1])}</text>'
        )
    names = ", ".join(each.name for each in series)
    said = f"{names}, from {labels[0]} to {labels[-1]}" if labels else names
    return Markup(  # noqa: S704 - numbers, classes, and what is escaped
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(said)}">{grid}{marks}{ends}</svg>'
    )


def _y(value: float, top: float) -> float:
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - value / top)


def _round_up(value: float) -> float:
    """The next number of the form 1, 2, 4, 6 or 8 with zeros, at least 2. Its half, which is a label, too, is then whole.

    >>> _round_up(0), _round_up(5), _round_up(37), _round_up(1200)
    (2.0, 6.0, 40.0, 2000.0)
    """
    if value <= 2:
        return 2.0
    unit = 10.0 ** floor(log10(value))
    return next(factor * unit for factor in (1, 2, 4, 6, 8, 10) if factor * unit >= value)


def _short(value: float) -> str:
    """
    >>> _short(2500), _short(0.5), _short(40)
    ('2.5k', '0.5', '40')
    """
    if value >= 1000:
        return f"{value / 1000:g}k"
    return f"{ceil(value) if value == ceil(value) else round(value, 2):g}"
