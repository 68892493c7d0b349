"""Where indexes/, prompts/ and migrations/ are: beside the package in a checkout, inside it when installed; tables beside a module."""

import tomllib
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]


def resource_folder(name: str) -> Path:
    """The folder `name` ("indexes", "prompts" or "migrations") that came with this copy of rag_app.

    >>> (resource_folder("indexes") / "book" / "index.toml").is_file()
    True
    """
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def read_table(module: str) -> dict[str, Any]:
    """The table beside a module, of the same name: `read_table(__file__)`."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text("utf-8"))
