"""LlamaIndex' synchronous call of an engine: from a script, a thread, a loop and a notebook. The application goes on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nbclient import NotebookClient
from nbformat import v4

import rag_app
from rag_app import Rag
from rag_app.application import Application
from tests.integration.conftest import ON_DEFAULT
from tests.integration.service import prepare
from tests.integration.test_library import INDEX, stock

REFUND = "How soon is a return refunded?"
EU: dict[str, Any] = {"index": INDEX, "organization": "aurora", "site": "eu"}

# The first cell of a notebook opens the application; the last one closes it, which waits for all connections.
CELLS = (
    f"""
import asyncio, rag_app
opened = rag_app.open()
rag = await opened.__aenter__()
engine = await rag.engine(**{EU!r})
""",
    f"""
try:
    engine.query({REFUND!r})
except RuntimeError as error:
    print(error)
""",
    f"print(await asyncio.to_thread(engine.query, {REFUND!r}))",
    f"print(await engine.aquery({REFUND!r}))",
    "await opened.__aexit__(None, None, None)",
)


@pytest.fixture
def stocked(environment: str) -> str:
    prepare(stock)
    return environment


@ON_DEFAULT
def test_from_a_script(stocked: str) -> None:
    """Its loop runs now and then. After it has ended, the call says so."""
    with asyncio.Runner() as runner:
        opened = rag_app.open()
        rag = runner.run(opened.__aenter__())
        engine = runner.run(rag.engine(**EU))
        cold = str(engine.query(REFUND))
        assert "[Source 1]" in cold
        assert cold == str(runner.run(engine.aquery(REFUND))) == str(engine.query(REFUND))
        runner.run(opened.__aexit__(None, None, None))
    with pytest.raises(RuntimeError, match=r"rag_app\.open"):
        engine.query(REFUND)


@ON_DEFAULT
def test_from_a_thread(stocked: str) -> None:
    """Cold, before the loop has a connection, and warm; afterwards the application closes."""

    async def ask() -> list[str]:
        async with rag_app.open() as rag:
            engine = await rag.engine(**EU)
            cold = await asyncio.to_thread(engine.query, REFUND)
            asked = await engine.aquery(REFUND)
            warm = await asyncio.gather(*(asyncio.to_thread(engine.query, REFUND) for _ in range(4)))
            return [str(each) for each in (cold, asked, *warm)]

    answers = asyncio.run(ask())
    assert len(set(answers)) == 1 and "[Source 1]" in answers[0]


@ON_DEFAULT
async def test_inside_a_loop_it_says_what_to_await(application: Application) -> None:
    await stock(application)
    engine = await Rag(application).engine(**EU)
    with pytest.raises(RuntimeError, match=r"await engine\.aquery"):
        engine.query(REFUND)
    assert "[Source 1]" in str(await engine.aquery(REFUND))


@ON_DEFAULT
def test_from_a_notebook(stocked: str, tmp_path: Path) -> None:
    notebook = v4.new_notebook(cells=[v4.new_code_cell(each) for each in CELLS])  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    refused, in_a_thread, awaited = ("".join(each.text for each in cell.outputs) for cell in notebook.cells[1:4])
    assert "await engine.aquery" in refused
    assert "[Source 1]" in in_a_thread and in_a_thread == awaited
