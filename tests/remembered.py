"""Vectors of chunks, computed once a run: a dozen files load the same sample corpora, and 500 chunks take half a minute.

`remember(folder)` is for tests of what is done with vectors. How they are computed is tested in tests/unit, without it.
As a program, the command with it: `python -m tests.remembered FOLDER demo --check` is `rag-app demo --check`.
"""

import sys
from contextlib import contextmanager
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
    embed = MiniLM._get_text_embeddings

    def remembered(self: MiniLM, texts: list[str]) -> list[list[float]]:
        files = [folder / sha256(text.encode()).hexdigest() for text in texts]
        new = [place for place, file in enumerate(files) if not file.exists()]
        for place, vector in zip(new, embed(self, [texts[place] for place in new]), strict=True):
            written = folder / uuid4().hex
            written.write_bytes(np.array(vector, np.float32).tobytes())
            written.replace(files[place])
        return [[float(each) for each in np.frombuffer(file.read_bytes(), np.float32)] for file in files]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MiniLM, "_get_text_embeddings", remembered)
        yield


if __name__ == "__main__":
    from rag_app.console.cli import main

    with remember(Path(sys.argv.pop(1))):
        sys.argv[0] = "rag-app"
        main()
