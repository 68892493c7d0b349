"""Imports from packages of LlamaIndex and SQLAlchemy only what is used.

`llama_index.core` and the packages in it import every index, chat engine, evaluator and agent in their `__init__`: 600
modules and half of the CPU time in which a command starts, of which `rag-app` uses 70. SQLAlchemy's connections import
its ORM. After `import_lazily`, each name that such an `__init__` imports is imported when it is first used. A few modules
that LlamaIndex imports for what `rag-app` never does run when their first name is used. Names and objects stay the same
(ADR 41).
"""

import __future__

import ast
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

_ROOT = "llama_index.core"
_PACKAGES = (_ROOT, "sqlalchemy.ext.asyncio")
# What LlamaIndex imports and uses for images and audio only. They run when one of their names is first used.
_MODULES = ("requests", "PIL.Image", "filetype")
_DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def import_lazily() -> None:
    """From now on in this process. Does nothing if LlamaIndex is imported already."""
    if _ROOT not in sys.modules:
        sys.meta_path.insert(0, _Finder())


def build_schemas_later() -> None:
    """From now on pydantic makes the schema of a class when the class is first used: LlamaIndex has a hundred, a question uses
    a few."""
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True


def import_frozen(name: str) -> ModuleType:
    """A module of ours that needs LlamaIndex, for a program that imports `rag_app` as a library.

    Imports make some hundred thousand objects that stay. Garbage is collected before; then it is not looked for until all
    is imported, and never among what is there by then. A third of the CPU time of a short program goes into that.
    """
    if name in sys.modules:
        return sys.modules[name]
    import_lazily()
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        if collects:
            gc.enable()


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        deferred = fullname in _MODULES
        if not deferred and not f"{fullname}.".startswith(tuple(f"{package}." for package in _PACKAGES)):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and deferred:
            spec.loader = _ModuleLoader(spec.loader)
        elif spec is not None and spec.origin is not None and spec.origin.endswith(f"{os.sep}__init__.py"):
            spec.loader = _PackageLoader(fullname, spec.origin)
        return spec


class _ModuleLoader(Loader):
    """Runs a module when a name is first looked up in it. Another thread that looks one up meanwhile waits."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        running, pending = RLock(), True

        def find(name: str) -> Any:
            nonlocal pending
            with running:
                if pending:
                    pending = False
                    self._loader.exec_module(module)
            if name not in vars(module):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return vars(module)[name]

        module.__getattr__ = find  # type: ignore[method-assign]


class _PackageLoader(SourceFileLoader):
    """Runs a package's `__init__` without its imports of LlamaIndex, if it does little else than import."""

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse(self.get_data(self.path))
        later, now = _split(tree, module.__name__)
        beside = {each.stem for each in Path(self.path).parent.iterdir()}
        if any(isinstance(each, _DEFINITION) for each in tree.body) or later.keys() & beside:
            super().exec_module(module)
            return

        def find(name: str) -> Any:
            if name in beside and not name.startswith("_"):  # a submodule that the whole `__init__` would have imported
                return import_module(f"{module.__name__}.{name}")
            if name not in later:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            source, attribute = later[name]
            found = import_module(source)
            value = getattr(found, attribute) if hasattr(found, attribute) else import_module(f"{source}.{attribute}")
            setattr(module, name, value)
            return value

        module.__getattr__ = find  # type: ignore[method-assign]
        read = (each.value if isinstance(each, ast.AnnAssign) else each for each in now)
        used = {each.id for part in read if part for each in ast.walk(part) if isinstance(each, ast.Name)}
        for name in sorted(used & later.keys()):
            find(name)
        flags = __future__.annotations.compiler_flag  # or annotations would read names that are not there yet
        exec(compile(ast.Module(now, []), self.path, "exec", flags), module.__dict__)  # noqa: S102 - the package's own


def _split(tree: ast.Module, package: str) -> tuple[dict[str, tuple[str, str]], list[ast.stmt]]:
    """The imported names of LlamaIndex, each with its module and its name there; and the other statements."""
    later, now = dict[str, tuple[str, str]](), list[ast.stmt]()
    for statement in tree.body:
        match statement:
            case ast.ImportFrom(module=str(source), names=names, level=level) if level or source.startswith(
                "llama_index."
            ):
                source = resolve_name(f"{'.' * level}{source}", package)
                later |= {each.asname or each.name: (source, each.name) for each in names}
            case ast.Assign(targets=[ast.Name(id=alias)], value=ast.Name(id=name)) if name in later:
                later[alias] = later[name]
            case _:
                now.append(statement)
    return later, now
