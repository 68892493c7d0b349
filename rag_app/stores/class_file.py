"""The declaration of a LlamaIndex vector store: a class path, its arguments and where its secrets are.

The file is the operator's. No class path comes from the database or from a request. docs/stores.md has an example for
each store that is tested here.
"""

import os
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from rag_app.domain import Misconfigured, describe_problem, require
from rag_app.domain.class_paths import Arguments, bare_secrets

GENERATION, DIMENSION = "{generation}", "{dimension}"


class ClassFile(BaseModel):
    """The content of the file. Values of `arguments` may be tables: `env` or `file` names a secret, `class` builds an object.

    `{generation}` in a text becomes the name of an index's generation, `{dimension}` alone the size of its vectors.

    >>> ClassFile.model_validate(
    ...     {"class": "shop.stores.ShelfStore", "arguments": {"collection": "{generation}", "key": {"env": "SHELF_KEY"}}}
    ... ).seconds
    30.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    class_path: str = Field(alias="class", pattern=r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)+|[\w./-]+\.py:[A-Za-z_]\w*)$")
    """package.module.Class, or file.py:Class beside this file."""
    constructor: str = Field("", pattern=r"^([A-Za-z]\w*)?$")
    """A class method that makes the store, `from_params` for instance; the class itself where it is empty."""
    arguments: dict[str, Any]
    threads: int = Field(1, ge=1, le=64)
    """Calls at once. Many stores that run in this process allow one."""
    seconds: float = Field(30.0, gt=0, le=600)
    """What a call may take."""
    several_processes: bool = False
    """Whether the store is a server, which several processes of rag_app may use at once."""
    compared: int = Field(10_000, ge=0)
    """Up to so many chunks that a question's filter leaves, PostgreSQL compares all of them where the store finds too few."""

    _folder: Path = PrivateAttr(Path())

    @property
    def release(self) -> str:
        """The class path, and the release of an integration of LlamaIndex.

        >>> ClassFile.model_validate({"class": "no.such.Store", "arguments": {"name": "{generation}"}}).release
        'no.such.Store'
        """
        parts = self.class_path.split(".")
        with suppress(PackageNotFoundError):
            if parts[:2] == ["llama_index", "vector_stores"]:
                return f"{self.class_path} {version('-'.join(['llama-index-vector-stores', *parts[2].split('_')]))}"
        return self.class_path


def read_class_file(path: Path | None) -> ClassFile:
    """Raises Misconfigured with the problem and what is accepted. The message contains no value of the file."""
    path = require(
        path,
        Misconfigured("set RAG_VECTOR_STORE_FILE to the TOML file that declares the vector store: docs/stores.md"),
    )
    try:
        found = ClassFile.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{path} is not TOML: {error}") from None
    except ValidationError as error:
        raise Misconfigured(f"{path}: {'; '.join(map(describe_problem, error.errors()))}") from None
    if bare := bare_secrets(found.arguments):
        raise Misconfigured(f'{path}: {bare} is a secret: give it as {{ env = "NAME" }} or {{ file = "/path" }}')
    if GENERATION not in str(found.arguments):
        raise Misconfigured(
            f"{path}: no argument contains {GENERATION}: each build of an index needs a collection of its own"
        )
    found._folder = path.parent
    return found


class Builder(Arguments):
    """Creates the store of a generation. An object whose arguments do not name the generation, such as a client, is created once.

    Everything here is blocking and may import anything: call it in a thread.
    """

    def __init__(self, declared: ClassFile) -> None:
        super().__init__(declared._folder, _secret)
        self._declared = declared

    def open(self, generation: str, dimension: int) -> BasePydanticVectorStore:
        """Raises Misconfigured if the declaration is wrong, and whatever the store raises."""
        said, names = self._declared, {GENERATION: generation, DIMENSION: dimension}
        kind: type[BasePydanticVectorStore] = BasePydanticVectorStore  # type: ignore[type-abstract]
        store = self.make(said.class_path, kind, said.arguments, said.constructor, names)
        if not isinstance(store, BasePydanticVectorStore):
            raise Misconfigured(f"{said.class_path}.{said.constructor} makes no vector store")
        return store

    def scrub(self, text: str) -> str:
        """The text without the secrets that the file refers to."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def _secret(where: str, name: str) -> str:
    try:
        return os.environ[name] if where == "env" else Path(name).read_text("utf-8").strip()
    except (KeyError, OSError):
        raise Misconfigured(f"{name} {'is not set' if where == 'env' else 'cannot be read'}") from None
