"""The form of the code: the formatter formats all of it, and functions are short. Lists of words are data, in the .toml file beside their module."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "rag_app"
LONGEST = 60  # lines of a function, with its signature


def test_no_line_is_left_out_by_the_formatter() -> None:
    comments = ("# fmt: skip", "# fmt: off")
    files = sorted(PACKAGE.rglob("*.py"))
    assert files and [str(file) for file in files if any(each in file.read_text("utf-8") for each in comments)] == []


def test_no_function_is_longer_than_a_screen() -> None:
    defined = [
        (node.end_lineno - node.lineno + 1, file.name, node.name)
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
    assert defined and [each for each in defined if each[0] > LONGEST] == []
