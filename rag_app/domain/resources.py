"""Where indexes/, prompts/ and migrations/ are: beside the package in a checkout, inside it when installed."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def resource_folder(name: str) -> Path:
    """The folder `name` ("indexes", "prompts" or "migrations") that came with this copy of rag_app.

    >>> (resource_folder("indexes") / "book" / "index.toml").is_file()
    True
    """
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
