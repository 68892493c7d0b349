"""The registries of models: a provider and an embedder of a module of one's own answer; names come from nowhere else."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from llama_index.core import MockEmbedding

from rag_app.answering.chosen_models import ChosenModels
from rag_app.answering.providers import EXTRACTIVE, PROVIDERS, ModelSettings, build_llm
from rag_app.domain.answer import Question
from rag_app.domain.errors import Misconfigured
from rag_app.retrieval.embedders import EMBEDDERS, build_embedder
from rag_app.settings import Settings, fields
from tests.unit.test_pipeline import SCOPE, Library

ROOT = Path(__file__).parents[3]
PROVIDER = """
from typing import Any

from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata

from rag_app.answering.providers import PROVIDERS, Provider


class Parrot(CustomLLM):
    says: str

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="parrot")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.says)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError


PROVIDERS["parrot"] = Provider(lambda settings: Parrot(says=f"Chunk 0 waits, {settings.name} [Source 1]."), "parrots", "polly")
"""
EMBEDDER = """
from llama_index.core import MockEmbedding

from rag_app.retrieval.embedders import EMBEDDERS, Embedder

EMBEDDERS["flat"] = Embedder(lambda model, api_base, api_key: MockEmbedding(embed_dim=7, model_name=model), "all alike")
"""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder without .env and with modules of ours, no variable of ours, and registries that forget."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for _, info in fields():
        monkeypatch.delenv(str(info.alias), raising=False)
    monkeypatch.delitem(PROVIDERS, "parrot", raising=False)
    monkeypatch.delitem(EMBEDDERS, "flat", raising=False)


async def test_a_module_adds_a_provider_that_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "parrots_of_ours.py").write_text(PROVIDER, "utf-8")
    monkeypatch.setenv("RAG_LLM", "parrot")
    with pytest.raises(Misconfigured, match="'extractive', 'openai', 'openai_like' or 'huggingface'"):
        Settings()
    importlib.import_module("parrots_of_ours")
    chosen = ChosenModels(Settings(), MockEmbedding(embed_dim=3))
    library = Library((0.9, 0.0), (0.8, 1.0))
    library.pipeline._synthesizer = chosen.synthesizer
    answer = await library.pipeline.answer("knowledge_answer", Question("Who waits?"), SCOPE)
    assert (answer.text, answer.model) == ("Chunk 0 waits, polly [Source 1].", "polly")


def test_a_module_adds_an_embedder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "embedders_of_ours.py").write_text(EMBEDDER, "utf-8")
    monkeypatch.setenv("RAG_EMBEDDING", "flat")
    with pytest.raises(Misconfigured, match="'builtin' or 'openai'"):
        Settings()
    importlib.import_module("embedders_of_ours")
    chosen = Settings().embedding
    model = build_embedder(chosen.kind, chosen.model, None, None)
    assert len(model.get_query_embedding("?")) == 7


def test_registries_are_read_without_a_vendor() -> None:
    code = (
        "import sys, rag_app.answering.providers, rag_app.answering.capabilities, rag_app.retrieval.embedders\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('llama_index', 'openai', 'numpy', 'huggingface_hub')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_table_of_kinds_is_that_of_the_registry() -> None:
    table = re.findall(r"(?m)^\| `(\w+)` \| .* \| (?:`(\w+)`|–) \|$", (ROOT / "docs/models.md").read_text("utf-8"))
    keys = {kind: (provider.key or "").upper() for kind, provider in PROVIDERS.items()}
    assert dict(table) == {EXTRACTIVE: "", **keys}


def test_an_unknown_name_of_openai_is_refused_without_a_list_of_names() -> None:
    with pytest.raises(Misconfigured) as refused:
        build_llm(ModelSettings(kind="openai", name="nope", api_key="k"))
    assert "openai_like" in str(refused.value) and len(str(refused.value)) < 120
