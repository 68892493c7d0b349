"""Temporary folders for files being read. They are removed even if their process is killed.

A process locks the folder it uses (flock(2), which a kill frees); the next process removes folders without a lock.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

_PREFIX = "rag-files-"
_YOUNG = 60.0  # seconds of a folder's life in which it may not be locked yet


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder, removed at exit."""
    with TemporaryDirectory(prefix=_PREFIX) as name:
        lock = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(lock)


def remove_abandoned_folders(now: float | None = None) -> None:
    """Remove those of processes that were killed. `now` is the time since the epoch."""
    oldest = (time.time() if now is None else now) - _YOUNG
    for folder in Path(gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is another user's, or has gone
            if folder.stat().st_uid == os.geteuid() and folder.stat().st_mtime < oldest:
                _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)
