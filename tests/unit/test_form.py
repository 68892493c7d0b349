"""The form of the code: the formatter formats all of it. Lists of words are data, in the .toml file beside their module."""

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "rag_app"


def test_no_line_is_left_out_by_the_formatter() -> None:
    comments = ("# fmt: skip", "# fmt: off")
    files = sorted(PACKAGE.rglob("*.py"))
    assert files and [str(file) for file in files if any(each in file.read_text("utf-8") for each in comments)] == []
