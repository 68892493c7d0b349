"""Patterns that are compiled when they are first used: a process needs few of those that its modules have."""

import re
from typing import Any, cast


class _DeferredPattern:
    """Stands for a compiled pattern, and has its methods."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, value)  # found without this method from now on
        return value


def compile_later(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """`re.compile` at the first use. The functions of `re` do not take it, its own methods do the same.

    >>> digits = compile_later("([0-9]+)")
    >>> digits.sub("<\\\\1>", "7 of 12"), digits.groups
    ('<7> of <12>', 1)
    """
    return cast("re.Pattern[str]", _DeferredPattern(pattern, flags))
