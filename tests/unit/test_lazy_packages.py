"""What is imported later is what would be imported at once."""

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE

_APPLICATION = """
import sys
from rag_app.console.lazy_packages import import_lazily
import_lazily()
import rag_app.application, rag_app.pipeline
print(*sys.modules)
"""
_NAMES = """
import ast, importlib, pathlib, sys, warnings
warnings.simplefilter("ignore")
from rag_app.console import lazy_packages
lazily = sys.argv[1] == "lazily"
if lazily:
    lazy_packages.import_lazily()
import llama_index.core
[root] = map(pathlib.Path, llama_index.core.__path__)
files = sorted(root.rglob("__init__.py"), reverse=lazily)
said = []
for file in files:
    package = ".".join(("llama_index.core", *file.relative_to(root).parent.parts))
    later, _ = lazy_packages._split(ast.parse(file.read_text("utf-8")), package)
    module = importlib.import_module(package)
    for name in sorted(later, reverse=lazily):
        value = getattr(module, name)
        said.append(f"{package} {name} {getattr(value, '__module__', '')} {getattr(value, '__qualname__', type(value))}")
print(*sorted(said), sep="\\n")
"""
_SUBMODULES = """
from rag_app.console.lazy_packages import import_lazily
import_lazily()
import llama_index.core
print(llama_index.core.retrievers.VectorIndexRetriever.__name__, llama_index.core.indices.vector_store.retrievers.__name__)
print(hasattr(llama_index.core, "nothing_of_this_name"))
"""
_MODULES = """
import sys
from threading import Thread
from rag_app.console.lazy_packages import import_lazily
import_lazily()
import llama_index.core.schema, requests
from PIL import Image
from sqlalchemy.ext import asyncio
before = "urllib3" in sys.modules
threads = [Thread(target=lambda: looked_up.append(requests.Session)) for _ in range(8)]
looked_up = []
for thread in threads: thread.start()
for thread in threads: thread.join()
from requests.sessions import Session
from sqlalchemy.ext.asyncio.session import AsyncSession
print(before, len(looked_up), {*looked_up} == {Session}, requests is sys.modules["requests"], hasattr(requests, "nothing"))
print(Image.new("L", (2, 3)).size, asyncio.AsyncSession is AsyncSession)
"""
_SCHEMAS = """
from rag_app.console.lazy_packages import build_schemas_later, import_lazily
import_lazily()
build_schemas_later()
import rag_app.pipeline
from llama_index.core.schema import NodeWithScore, TextNode
print(NodeWithScore.__pydantic_complete__)
node = NodeWithScore(node=TextNode(text="a"), score=0.5)
print(NodeWithScore.__pydantic_complete__, TextNode.model_validate(node.node.model_dump()) == node.node)
"""
_PLUGINS = """
import sys
from rag_app.console.cli import main
sys.argv = ["rag-app", "ingest", "nowhere", "--batch", "many"]
try:
    main()
except SystemExit:
    pass
from pydantic import BaseModel
from pydantic.plugin import _loader
class Model(BaseModel):
    number: int
print(_loader._plugins)
"""
_DEFERRED = """
import sys
import rag_app.pipeline
from rag_app.domain.patterns import _DeferredPattern
modules = [module for name, module in sys.modules.items() if name.startswith("rag_app.")]
deferred = [each for module in modules for each in vars(module).values() if isinstance(each, _DeferredPattern)]
print(len(deferred) > 80, sum(len(vars(each)) > 2 for each in deferred) < 5)
for each in deferred:
    each.search("")
"""
_PATTERNS = """
import rag_app.pipeline
from rag_app.answering import kinds
from rag_app.answering.verification import kinds as kinds_of_sentences
def count_used(patterns):
    return sum("search" in vars(each) or "match" in vars(each) for each in patterns)

print(count_used([kinds_of_sentences._ADMISSION, kinds_of_sentences._LEAD_IN, *kinds._QUESTION_WORDS.values()]))
kinds.kind_of("What share of the cuts are for children?")
print(0 < count_used(kinds._QUESTION_WORDS.values()) < len(kinds._QUESTION_WORDS))
"""


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_application_starts_without_what_it_does_not_use() -> None:
    imported = set(run(_APPLICATION).split())
    assert {"llama_index.core.schema", "llama_index.core.base.base_retriever"} <= imported
    unused = [
        "agent",
        "chat_engine",
        "evaluation",
        "indices.base",
        "ingestion",
        "memory",
        "query_engine",
        "readers",
        "workflow",
    ]
    assert not {f"llama_index.core.{each}" for each in unused} & imported
    assert not {"griffe", "httpx", "nltk", "tiktoken", "workflows", "rich"} & imported
    assert "sqlalchemy.ext.asyncio" in imported
    assert (
        not {"sqlalchemy.orm", "urllib3", "PIL._imaging"} & imported
    )  # the last two: what requests and PIL.Image need


def test_submodules_can_be_reached_as_attributes() -> None:
    name, module, nothing = run(_SUBMODULES).split()
    assert (name, module, nothing) == (
        "VectorIndexRetriever",
        "llama_index.core.indices.vector_store.retrievers",
        "False",
    )


def test_a_module_of_others_runs_once_when_a_name_is_looked_up_in_it() -> None:
    requests, others = run(_MODULES).splitlines()
    assert requests == "False 8 True True False"
    assert others == "(2, 3) True"


def test_a_pattern_of_a_kind_is_compiled_when_it_is_first_used() -> None:
    assert run(_PATTERNS).split() == ["0", "True"], "and none of the kinds behind the one that is asked for"


def test_patterns_of_a_module_are_compiled_when_they_are_first_used_and_all_can_be() -> None:
    assert run(_DEFERRED).strip() == "True True"


def test_the_command_line_looks_for_no_plugins_of_pydantic() -> None:
    assert run(_PLUGINS).strip() == "None"


def test_a_schema_is_built_when_its_class_is_first_used() -> None:
    assert run(_SCHEMAS).splitlines() == ["False", "True True"]


@pytest.mark.timeout(480)
def test_each_name_of_each_package_is_the_same_object_in_whatever_order_it_is_used() -> None:
    at_once, later = run(_NAMES, "at once"), run(_NAMES, "lazily")
    assert len(at_once.splitlines()) > 300
    assert later == at_once
