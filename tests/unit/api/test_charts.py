"""The charts of the administration's overview."""

import re
from datetime import date, timedelta

from rag_app.surfaces.management.types import TrendDay
from rag_app.surfaces.pages import routes
from rag_app.surfaces.pages.site import TEMPLATES

CHARTS = TEMPLATES.get_template("charts.html").module
assert routes.MODULES, "their import adds the filters of templates"


def day(number: int, positive: int = 0, negative: int = 0, median: float | None = None) -> TrendDay:
    return TrendDay(date(2026, 1, 1) + timedelta(number), 0, 0, 0, positive, negative, 0.0, median, None)


def test_bars_of_a_day_stand_on_top_of_each_other_below_the_top_of_the_scale() -> None:
    series = [("positive", "positive", "bar-mark"), ("negative", "negative", "bar-mark second")]
    shown = str(CHARTS.bars("Ratings", [day(0), day(1, 21, 16), day(2, 0, 30)], series))  # type: ignore[attr-defined]
    assert re.findall(r' y="([0-9.]+)" width="[0-9.]+" height="([0-9.]+)"><title>([^<]*)', shown) == [
        ("61.2", "58.8", "02 Jan: positive 21"),
        ("16.4", "44.8", "02 Jan: negative 16"),
        ("36.0", "84.0", "03 Jan: negative 30"),
    ]
    assert re.findall(r">([0-9.k]+)</text>", shown) == ["0", "20", "40"]
    assert 'aria-label="positive, negative, from 01 Jan to 03 Jan"' in shown


def test_a_line_is_interrupted_where_a_figure_is_missing_and_a_single_figure_is_a_dot() -> None:
    days = [day(0, median=1200.0), day(1), day(2, median=600.0), day(3, median=300.0)]
    shown = str(CHARTS.lines("Time", days, [("median", "latency_p50", "line-mark")]))  # type: ignore[attr-defined]
    assert len(re.findall(r'<circle class="line-mark"', shown)) == 1
    assert re.findall(r'<line class="line-mark" x1="[0-9.]+" y1="([0-9.]+)" x2="[0-9.]+" y2="([0-9.]+)"', shown) == [
        ("86.4", "103.2")
    ]
    assert re.findall(r">([0-9.k]+)</text>", shown) == ["0", "1k", "2k"]


def test_a_scale_without_figures_has_a_top() -> None:
    shown = str(CHARTS.bars("Answers", [day(0)], [("answers", "answers", "bar-mark")]))  # type: ignore[attr-defined]
    assert re.findall(r">([0-9.k]+)</text>", shown) == ["0", "1", "2"]
