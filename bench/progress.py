"""Bars for what takes long; on stderr, so that the report can be piped."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track as rich_track

T = TypeVar("T")

_console = Console(stderr=True)


def track(items: Sequence[T], what: str) -> Iterable[T]:
    return rich_track(items, f"{what:<48}", console=_console, disable=not items)


def say(text: str) -> None:
    _console.print(text, highlight=False, soft_wrap=True)
