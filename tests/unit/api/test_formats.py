"""How pages write figures."""

from datetime import UTC, datetime

import pytest

from rag_app.surfaces.pages.site import TEMPLATES

PARTS = TEMPLATES.get_template("parts.html").module


@pytest.mark.parametrize(
    ("form", "value", "written"),
    [
        ("moment", datetime(2026, 1, 15, 10, 30, tzinfo=UTC), "2026-01-15 10:30"),
        ("moment", None, "–"),
        ("percent", 0.256, "26 %"),
        ("percent", None, "–"),
        ("seconds", 340, "340 ms"),
        ("seconds", 2345.6, "2.3 s"),
        ("seconds", None, "–"),
        ("money", 1234.5, "$12.35"),
        ("money", 0.25, "0.25 ¢"),
        ("money", 0, "$0.00"),
        ("money", None, "–"),
        ("count", 12345, "12,345"),
        ("count", None, "unlimited"),
        ("size", 112, "112 B"),
        ("size", 20_480, "20 kB"),
        ("size", 3_500_000, "3.5 MB"),
        ("breakable", "a_<b>", "a_<wbr>&lt;b&gt;"),
    ],
)
def test_a_figure_is_written(form: str, value: object, written: str) -> None:
    assert str(getattr(PARTS, form)(value)) == written
