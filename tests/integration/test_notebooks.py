"""Notebooks run as they are, in a kernel, with nothing configured but where the database is."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from rag_app.console import database
from tests.conftest import SEVERAL
from tests.integration.conftest import ON_DEFAULT

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
AT_ONCE = {"04_llama_index.ipynb": SEVERAL}  # has two applications open


@ON_DEFAULT
@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.name, marks=AT_ONCE.get(path.name, ())) for path in NOTEBOOKS]
)
def test_notebook_runs(path: Path, environment: str, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before committing"
    database.upgrade()  # as an operator would; the kernel inherits the environment, and with it the tests' database
    client = NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
