"""What people install: a wheel that carries its data and works far from the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
DATA = ("indexes", "prompts", "migrations")


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """What it prints. Nothing of the checkout or of the tests' configuration reaches it."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("RAG_", "PYTHON", "QDRANT"))
    }
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment | variables, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    # as `make wheel` does, but with the hatchling that is installed: the tests need no network
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=PATIENCE)
    (built,) = folder.glob("rag_app-*-py3-none-any.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The `bin` of an environment with the wheel and, from the tests' own environment, what it depends on."""
    uv = shutil.which("uv") or ROOT / ".tools" / "bin" / "uv"
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    run(uv, "venv", "--offline", "--quiet", "--python", sys.executable, folder, folder=folder.parent)
    python = folder / "bin" / "python"
    run(uv, "pip", "install", "--offline", "--quiet", "--no-deps", "--python", python, wheel, folder=folder.parent)
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).strip())
    # a .pth adds a folder, and does not read that folder's own .pth files: the checkout's stays out
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield folder / "bin"
    shutil.rmtree(folder)


def test_the_wheel_carries_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder in DATA:
        files = {path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        assert files and {f"rag_app/_data/{path.relative_to(ROOT).as_posix()}" for path in files} <= names
    assert not [name for name in names if name.split("/")[0] in {*DATA, "tests", "notebooks", "docs"}]
    pages = ROOT / "rag_app" / "surfaces" / "pages"
    shown = [path for folder in ("templates", "static") for path in (pages / folder).iterdir()]
    assert len(shown) > 20 and {path.relative_to(ROOT).as_posix() for path in shown} <= names
    assert {"rag_app/py.typed", "rag_app/console/cli.py"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_it_ingests_and_answers_elsewhere(installed: Path, default_store: str, tmp_path: Path) -> None:
    work, home = tmp_path / "somewhere else", tmp_path / "home"
    (work / ".rag").mkdir(parents=True)
    home.mkdir()
    imported = run(installed / "python", "-c", "import rag_app; print(rag_app.__file__)", folder=work).strip()
    assert Path(imported).is_relative_to(installed.parent) and not Path(imported).is_relative_to(ROOT)

    def rag(*arguments: str) -> str:
        at, variables = ("-i", "org_knowledge", "-o", "public"), {"HOME": str(home), "RAG_VECTOR_STORE": default_store}
        return run(installed / "rag-app", *arguments, *at, folder=work, **variables)

    (work / "owls.md").write_text("# Owls\n\nThe long-eared owl sleeps in the old pine by the river.\n", "utf-8")
    try:
        assert "1 added" in rag("ingest", "owls.md")
        answer = rag("ask", "Where does the long-eared owl sleep?")
    finally:
        shutil.rmtree((work / ".rag" / "postgres" / "cluster").resolve(), ignore_errors=True)  # may lie elsewhere
    assert answer.startswith("The long-eared owl sleeps in the old pine by the river [Source 1].")
    assert "[Source 1] Owls (" in answer
    assert sorted(path.name for path in work.iterdir()) == [".rag", "owls.md"]
    assert list(home.rglob("*")) == [], "a library keeps something, or calls home with it"
