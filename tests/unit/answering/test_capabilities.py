"""The registry of capabilities: what an entry says, and that a module of one's own adds one."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core import MockEmbedding
from msgspec.structs import replace

from rag_app.answering.capabilities import CAPABILITIES, DESCRIPTIONS, capability_for, capability_named, register
from rag_app.answering.chosen_models import ChosenModels
from rag_app.answering.prompts import conversation_types, load_prompts
from rag_app.domain.answer import Question
from rag_app.domain.errors import Misconfigured, NotFound
from rag_app.settings import Settings
from rag_app.surfaces.lexybrain.messages import detect
from tests.unit.test_pipeline import SCOPE, Library
from tests.waiting import PATIENCE

MODULE = """
from rag_app.answering.capabilities import LEXYBRAIN, Capability, register

register(
    Capability(
        name="waiting_times",
        description="how long something waits",
        index="org_knowledge",
        prompt="waiting_times",
        refusal="Nothing is known to wait.",
        uncited="Nothing can be said of waiting.",
        group=LEXYBRAIN,
        words=((0, "how long"),),
    )
)
"""
PROMPT = '{% chat role="user" %}{{ context }} How long: {{ question }}{% endchat %}'
ENTRY = '[waiting_times]\nactive = "v1"\nvariables = ["context", "question"]\n'


@pytest.fixture
def waiting_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module and a prompt file that add a capability: the folder of prompts."""
    (tmp_path / "waiting_times_of_ours.py").write_text(MODULE, "utf-8")
    prompts = tmp_path / "prompts"
    (prompts / "waiting_times").mkdir(parents=True)
    (prompts / "waiting_times" / "v1.jinja").write_text(PROMPT, "utf-8")
    (prompts / "manifest.toml").write_text(ENTRY, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(CAPABILITIES), dict(DESCRIPTIONS)
    importlib.import_module("waiting_times_of_ours")
    yield prompts
    CAPABILITIES[:] = before[0]
    DESCRIPTIONS.clear()
    DESCRIPTIONS.update(before[1])


async def test_a_module_and_a_prompt_file_add_a_capability(
    waiting_times: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert capability_named("waiting_times") in CAPABILITIES and "waiting_times" in DESCRIPTIONS
    assert conversation_types()[-1] == "waiting_times", "its prompt versions are listed with the others"
    assert detect("Hello, how long is it?") == "waiting_times"
    assert load_prompts(waiting_times)["waiting_times"].messages(context="[Source 1]", question="Why?")
    models = tmp_path / "models.toml"
    models.write_text('[models.waiting_times]\nkind = "extractive"\n', "utf-8")
    monkeypatch.setenv("RAG_MODELS_FILE", str(models))
    monkeypatch.setenv("RAG_VECTOR_STORE", "postgres")
    chosen = ChosenModels(Settings(), MockEmbedding(embed_dim=3))
    library = Library((0.9, 0.0), (0.8, 1.0))
    library.pipeline._synthesizer = chosen.synthesizer
    answer = await library.pipeline.answer("waiting_times", Question("Which chunk waits?"), SCOPE)
    assert answer.model == "extractive" and answer.citations and "waits" in answer.text


def test_the_capabilities_of_each_surface_come_with_the_application() -> None:
    surfaces = Path(__file__).parents[3] / "rag_app" / "surfaces"
    declared = {f"rag_app.surfaces.{file.parent.name}.capabilities" for file in surfaces.glob("*/capabilities.py")}
    code = "import sys, rag_app.application; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert declared <= set(ran.stdout.split())


def test_a_name_is_registered_once() -> None:
    with pytest.raises(Misconfigured, match="a capability named owner_ask is already registered"):
        register(capability_named("owner_ask"))
    with pytest.raises(NotFound, match=r"there are: .*market_brief.*owner_ask"):
        capability_named("waiting_times")


def test_an_index_without_a_capability_has_a_plain_one() -> None:
    plain = capability_for("tickets")
    assert (plain.name, plain.index, plain.grounded) == ("index:tickets", "tickets", True)
    assert capability_named(plain.name) == plain
    assert plain not in CAPABILITIES
    own = register(replace(plain, name="ticket_answer"))
    try:
        assert capability_for("tickets") is own, "a registered one takes its place"
    finally:
        CAPABILITIES.remove(own)
    with pytest.raises(Misconfigured, match="index:tickets"):
        register(plain)
