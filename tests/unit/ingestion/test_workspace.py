"""Folders of processes that were killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from rag_app.documents.uploads import remove_abandoned_folders, temporary_folder

KILLED = """
import os, signal
from rag_app.documents.uploads import temporary_folder
with temporary_folder() as folder:
    (folder / "0").write_text("A file.")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_goes_with_its_process_however_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert killed.returncode == -signal.SIGKILL
    (abandoned,) = tmp_path.iterdir()
    with temporary_folder() as used:
        remove_abandoned_folders()
        assert {*tmp_path.iterdir()} == {abandoned, used}, "it may be about to be locked"
        remove_abandoned_folders(time.time() + 100)
        assert {*tmp_path.iterdir()} == {used}
    assert not [*tmp_path.iterdir()]
