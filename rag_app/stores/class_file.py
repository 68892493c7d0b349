"""A LlamaIndex vector store as an operator declares it: a class path, its arguments and where its secrets are.

The file is the operator's. No class path comes from the database or from a request. docs/stores.md has an example for
each store that is tested here.
"""

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag_app.domain import Misconfigured
from rag_app.domain.class_paths import bare_secrets, is_reference, password_in

GENERATION, DIMENSION = "{generation}", "{dimension}"


class ClassFile(BaseModel):
    """What the file says. Values of `arguments` may be tables: `env` or `file` names a secret, `class` builds an object.

    `{generation}` in a text becomes the name of an index's generation, `{dimension}` alone the size of its vectors.

    >>> ClassFile.model_validate(
    ...     {"class": "shop.stores.ShelfStore", "arguments": {"collection": "{generation}", "key": {"env": "SHELF_KEY"}}}
    ... ).seconds
    30.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    class_path: str = Field(alias="class", pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")
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
    """Raises Misconfigured with what is wrong and what is accepted; no value of the file is in the message."""
    if path is None:
        raise Misconfigured("set RAG_VECTOR_STORE_FILE to the TOML file that declares the vector store: docs/stores.md")
    try:
        found = ClassFile.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{path} is not TOML: {error}") from None
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise Misconfigured(f"{path}: {wrong}") from None
    if bare := bare_secrets(found.arguments):
        raise Misconfigured(f'{path}: {bare} is a secret: give it as {{ env = "NAME" }} or {{ file = "/path" }}')
    if GENERATION not in str(found.arguments):
        raise Misconfigured(
            f"{path}: no argument contains {GENERATION}: each build of an index needs a collection of its own"
        )
    return found


class Builder:
    """Makes the store of a generation. What no generation is named in, a client for instance, is made once.

    Everything here is blocking and may import anything: call it in a thread.
    """

    def __init__(self, declared: ClassFile) -> None:
        self.declared = declared
        self.secrets = set[str]()
        self.made = dict[str, Any]()

    def build(self, generation: str, dimension: int) -> BasePydanticVectorStore:
        kind = load_class(self.declared.class_path)
        if not (isinstance(kind, type) and issubclass(kind, BasePydanticVectorStore)):
            raise Misconfigured(f"{self.declared.class_path} is no LlamaIndex vector store (BasePydanticVectorStore)")
        arguments = self._fill(self.declared.arguments, "arguments", {GENERATION: generation, DIMENSION: dimension})
        store = _constructor(kind, self.declared.constructor)(**arguments)
        if not isinstance(store, BasePydanticVectorStore):
            raise Misconfigured(f"{self.declared.class_path}.{self.declared.constructor} makes no vector store")
        return store

    def _fill(self, value: Any, place: str, names: Mapping[str, object]) -> Any:
        if isinstance(value, str):
            return names[DIMENSION] if value == DIMENSION else value.replace(GENERATION, str(names[GENERATION]))
        if isinstance(value, list):
            return [self._fill(each, f"{place}.{at}", names) for at, each in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if is_reference(value):
            return self._secret(value, place)
        if "class" in value:
            return self._object(value, place, names)
        return {key: self._fill(each, f"{place}.{key}", names) for key, each in value.items()}

    def _secret(self, reference: Mapping[str, str], place: str) -> str:
        name = next(iter(reference.values()))
        try:
            found = os.environ[name] if "env" in reference else Path(name).read_text("utf-8").strip()
        except (KeyError, OSError):
            where = "is not set" if "env" in reference else "cannot be read"
            raise Misconfigured(f"{place}: {name} {where}") from None
        self.secrets |= {each for each in (found, password_in(found)) if each}
        return found

    def _object(self, said: Mapping[str, Any], place: str, names: Mapping[str, object]) -> Any:
        if unknown := said.keys() - {"class", "constructor", "arguments"}:
            raise Misconfigured(f"{place}: {', '.join(sorted(unknown))}: accepted are class, constructor, arguments")
        if place in self.made:
            return self.made[place]
        arguments = self._fill(said.get("arguments", {}), place, names)
        made = _constructor(load_class(said["class"]), said.get("constructor", ""))(**arguments)
        if not any(name in str(said) for name in names):
            self.made[place] = made
        return made

    def scrubbed(self, text: str) -> str:
        """Without the secrets that the file refers to."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def load_class(path: str) -> Any:
    """Raises Misconfigured where it cannot be imported.

    >>> load_class("pathlib.PurePath").__name__
    'PurePath'
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise Misconfigured(f"{path} cannot be imported ({error}): install the package that has it") from None


def _constructor(kind: Any, name: str) -> Any:
    if name and not hasattr(kind, name):
        raise Misconfigured(f"{kind.__name__} has no constructor {name}")
    return getattr(kind, name) if name else kind
