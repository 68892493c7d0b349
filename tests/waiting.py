"""Waits for what has to come, however busy the machine is."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 300.0
"""Seconds of one wait, half of what pytest gives a whole test: it ends a test that hangs, and says where; it measures nothing."""


def wait_for(condition: Callable[[], T]) -> T:
    """What `condition` gives, once that is something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"nothing came in {PATIENCE:.0f} seconds"
        time.sleep(0.02)
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended; its parent may still have to ask for its status."""
    return _state_of(pid)[0] == "Z"


def children_of(pid: int) -> list[int]:
    """The processes that this one has started."""
    there = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    return [each for each in there if _state_of(each)[1] == str(pid)]


def _state_of(pid: int) -> list[str]:
    """A letter, the parent, and so on; of no process what one that has ended has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["Z", ""]
