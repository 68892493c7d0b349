"""Vectors of chunks, computed once a run: a dozen files load the same sample corpora, and 500 chunks take half a minute.

`remember(folder)` is for tests of what is done with vectors. How they are computed is tested in tests/unit, without it.
As a program, the command with it: `python -m tests.remembered FOLDER demo --check` is `rag-app demo --check`.
"""

import sys
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

from rag_app.retrieval.embedding import MiniLM


@contextmanager
def remember(folder: Path) -> "Iterator[None]":
    """A file for each text, which processes and threads share: it is written under another name and renamed."""
    embed = MiniLM._get_text_embedding

    def remembered(self: MiniLM, text: str) -> list[float]:
        file = folder / sha256(text.encode()).hexdigest()
        with suppress(FileNotFoundError):
            return [float(each) for each in np.frombuffer(file.read_bytes(), np.float32)]
        vector = embed(self, text)
        new = folder / uuid4().hex
        new.write_bytes(np.array(vector, np.float32).tobytes())
        new.replace(file)
        return vector

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MiniLM, "_get_text_embedding", remembered)
        yield


if __name__ == "__main__":
    from rag_app.console.cli import main

    with remember(Path(sys.argv.pop(1))):
        sys.argv[0] = "rag-app"
        main()
