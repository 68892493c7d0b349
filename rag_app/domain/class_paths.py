"""Classes by their path, as an operator's file names them. Paths never come from a database or a request."""

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rag_app.domain.errors import Misconfigured, require

T = TypeVar("T")
NO_NAMES: Mapping[str, object] = MappingProxyType({})
_SECRET = re.compile(r"(?i)password|passwd|secret|token(?!i)|api_?key|credential")


def load_class(path: str, kind: type[T], folder: Path) -> type[T]:
    """The class at "package.module.Class", or at "file.py:Class" where the file is relative to `folder`.

    Raises Misconfigured where there is none, or it is no `kind`.

    >>> load_class("collections.OrderedDict", dict, Path()).__name__
    'OrderedDict'
    >>> load_class("collections.Ordered", dict, Path())
    Traceback (most recent call last):
    rag_app.domain.errors.Misconfigured: class collections.Ordered: module collections has no Ordered
    """
    file, colon, name = path.rpartition(":")
    if not colon:
        file, _, name = path.rpartition(".")
    if not file or not name.isidentifier():
        raise Misconfigured(f"class {path}: accepted are package.module.Class and file.py:Class")
    module = _from_file(path, folder / file) if colon else _import_named(path, file)
    found = require(getattr(module, name, None), Misconfigured(f"class {path}: module {module.__name__} has no {name}"))
    if not isinstance(found, type) or not issubclass(found, kind):
        raise Misconfigured(f"class {path} is not a subclass of {kind.__module__}.{kind.__name__}")
    return found


class Arguments:
    """What a file gives a class: values as they are, `{ env = "NAME" }` or `{ file = "/path" }` for a secret, and
    `{ class = "...", constructor = "...", arguments = {...} }` for an object. `secrets` are the values that were read.

    A name of `names` in a text is replaced by what it stands for. An object in which no name stands is made once, and is
    in `made`.

    >>> Arguments(Path(), lambda where, name: "s3cret").fill({"key": {"env": "KEY"}, "size": 3})
    {'key': 's3cret', 'size': 3}
    >>> Arguments(Path(), lambda where, name: "").fill(["{size}", "{size} m"], {"{size}": 3})
    [3, '3 m']
    """

    def __init__(self, folder: Path, read: Callable[[str, str], str]) -> None:
        self._folder, self._read = folder, read
        self.secrets = set[str]()
        self.made = dict[str, Any]()

    def fill(self, value: Any, names: Mapping[str, object] = NO_NAMES, place: str = "arguments") -> Any:
        """Raises Misconfigured with the `place` of a secret that is not there, and what `make` raises."""
        if isinstance(value, str):
            return _substitute(value, names)
        if isinstance(value, list):
            return [self.fill(each, names, f"{place}.{at}") for at, each in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        if is_reference(value):
            return self._secret(value, place)
        if "class" in value:
            return self._object(value, names)
        return {key: self.fill(each, names, f"{place}.{key}") for key, each in value.items()}

    def make(
        self,
        path: str,
        kind: type[T],
        arguments: Mapping[str, Any],
        constructor: str = "",
        names: Mapping[str, object] = NO_NAMES,
    ) -> T:
        """The object that a class, or a class method of it, makes of the arguments.

        Raises Misconfigured as `load_class` does and for a `constructor` that there is not, and what the class raises.
        """
        found = load_class(path, kind, self._folder)
        if constructor and not hasattr(found, constructor):
            raise Misconfigured(f"class {path}: has no constructor {constructor}")
        make: Callable[..., T] = getattr(found, constructor) if constructor else found
        return make(**self.fill(arguments, names))

    def build(self, path: str, kind: type[T], arguments: Mapping[str, Any]) -> T:
        """As `make`. An error of the class becomes Misconfigured: its kind, and its words where no secret was read."""
        try:
            return self.make(path, kind, arguments)
        except Misconfigured:
            raise
        except Exception as error:
            told = type(error).__name__ if self.secrets else f"{type(error).__name__}: {error}"
            given = ", ".join(arguments) or "nothing"
            raise Misconfigured(f"class {path}: cannot be created from {given}: {told}") from None

    def _secret(self, reference: Mapping[str, str], place: str) -> str:
        ((where, name),) = reference.items()
        try:
            found = self._read(where, name)
        except Misconfigured as error:
            raise Misconfigured(f"{place}: {error}") from None
        self.secrets |= {each for each in (found, password_in(found)) if each}
        return found

    def _object(self, said: Mapping[str, Any], names: Mapping[str, object]) -> Any:
        if unknown := said.keys() - {"class", "constructor", "arguments"}:
            raise Misconfigured(f"{', '.join(sorted(unknown))}: accepted are class, constructor, arguments")
        text = str(said)
        if text in self.made:
            return self.made[text]
        made: Any = self.make(said["class"], object, said.get("arguments", {}), said.get("constructor", ""), names)
        if not any(name in text for name in names):
            self.made[text] = made
        return made


def bare_secrets(value: Any, name: str = "arguments") -> str:
    """The name of an argument that holds a secret as it is, or empty.

    >>> bare_secrets({"client": {"api_key": "abc"}}), bare_secrets({"api_key": {"env": "KEY"}})
    ('arguments.client.api_key', '')
    >>> bare_secrets({"connection_string": "postgresql://ann:secret@db/rag"})
    'arguments.connection_string'
    """
    if isinstance(value, Mapping):
        inner = () if is_reference(value) else value.items()
        return next(filter(None, (bare_secrets(each, f"{name}.{key}") for key, each in inner)), "")
    if isinstance(value, list):
        return next(filter(None, (bare_secrets(each, name) for each in value)), "")
    if isinstance(value, str) and value and (_SECRET.search(name.rpartition(".")[2]) or password_in(value)):
        return name
    return ""


def is_reference(value: Mapping[str, Any]) -> bool:
    return value.keys() in ({"env"}, {"file"})


def password_in(text: str) -> str:
    """That of a URL; empty where the text is none, or has none.

    >>> password_in("postgresql://ann:secret@db/rag"), password_in("ann")
    ('secret', '')
    """
    try:
        return urlsplit(text).password or ""
    except ValueError:
        return ""


def _substitute(text: str, names: Mapping[str, object]) -> Any:
    if text in names:
        return names[text]
    for name, stands_for in names.items():
        text = text.replace(name, str(stands_for))
    return text


def _import_named(path: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        hint = f"pip install {_package(module)}" if module.startswith("llama_index.") else "is it on PYTHONPATH?"
        raise Misconfigured(f"class {path}: {error}; {hint}") from error


def _package(module: str) -> str:
    """
    >>> _package("llama_index.llms.ollama.base")
    'llama-index-llms-ollama'
    """
    return "-".join(module.replace("_", "-").split(".")[:3])


def _from_file(path: str, file: Path) -> Any:
    name = f"rag_app_own_{file.stem}_{abs(hash(file.resolve())):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise Misconfigured(f"class {path}: there is no Python file {file}")
    module = module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks types up in it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise Misconfigured(f"class {path}: {file} cannot be imported: {type(error).__name__}: {error}") from error
    return module
