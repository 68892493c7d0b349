"""Which model writes for which capability: every rule of it, what it costs, and files that are refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import ChatMessage

from rag_app.answering import chosen_models
from rag_app.answering.capabilities import CAPABILITIES, capability_named
from rag_app.answering.chosen_models import ChosenModels
from rag_app.answering.extractive import ExtractiveSynthesizer
from rag_app.answering.models import AnsweringModel, ChatModel, WithFallback
from rag_app.answering.synthesizers import ModelSynthesizer
from rag_app.domain.answer import Usage
from rag_app.domain.errors import Misconfigured
from rag_app.settings import Settings, fields
from tests.scripted_model import Reply, ScriptedModel
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
FIVE = ("market_brief", "competitor_intel", "keyword_explanation", "alert_explanation", "general_chat")
LLAMA = "meta-llama/Llama-3.1-70B-Instruct"
EMBEDDER = MockEmbedding(embed_dim=4)
ASKED = [ChatMessage("When do you open?")]

Choose = Callable[..., ChosenModels]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder without .env, and no variable of ours."""
    monkeypatch.chdir(tmp_path)
    for _, info in fields():
        monkeypatch.delenv(str(info.alias), raising=False)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Choose:
    """The models of a file (its text) and of variables."""

    def chosen(file: str | None = None, **variables: str) -> ChosenModels:
        if file is not None:
            (tmp_path / "models.toml").write_text(file, "utf-8")
            monkeypatch.setenv("RAG_MODELS_FILE", "models.toml")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return ChosenModels(Settings(), EMBEDDER)

    return chosen


def names(chosen: ChosenModels) -> dict[str, str | None]:
    """The models of the five, and of one that is none of them."""
    return {each: model.name if (model := chosen.model(each)) else None for each in (*FIVE, "owner_ask")}


def all_of(five: str | None, other: str | None) -> dict[str, str | None]:
    return {**dict.fromkeys(FIVE, five), "owner_ask": other}


def private(model: AnsweringModel | None) -> Any:
    """The settings that a model was made with."""
    assert isinstance(model, ChatModel)
    return model._settings


@pytest.mark.parametrize(
    ("variables", "missing"),
    [
        ({"RAG_LLM": "openai"}, {"OPENAI_API_KEY"}),
        ({"RAG_LLM": "openai_like"}, {"OPENAI_API_KEY"}),
        ({"RAG_LLM": "huggingface"}, {"HF_TOKEN"}),
        ({"RAG_LLM": "huggingface", "HF_TOKEN": "t"}, {None}),
        ({"RAG_LLM": "openai", "OPENAI_API_KEY": "k"}, {None}),
        ({"RAG_LLM": "openai", "RAG_LLM_API_KEY": "k"}, {None}),
        ({"RAG_LLM": "openai_like", "RAG_LLM_API_BASE": "http://127.0.0.1:1/v1"}, {None}),
    ],
)
def test_a_provider_without_a_key_names_its_variable(
    variables: dict[str, str], missing: set[str | None], choose: Choose
) -> None:
    assert {model.missing_key for model in choose(**variables).all} == missing


def test_without_anything_all_is_extracted(choose: Choose) -> None:
    chosen = choose()
    assert names(chosen) == all_of(None, None) and chosen.all == ()
    assert all(isinstance(chosen.synthesizer(each), ExtractiveSynthesizer) for each in CAPABILITIES)
    with pytest.raises(Misconfigured, match="no prompt named owner_ask; there are: none, as no model is configured"):
        chosen.prompt("owner_ask")


@pytest.mark.parametrize(
    ("variables", "five", "other"),
    [
        ({"HF_TOKEN": "t"}, LLAMA, None),
        ({"HF_TOKEN": ""}, None, None),
        ({"LEXYBRAIN_RAG_MODEL_ID": "org/other"}, None, None),
        ({"HF_TOKEN": "t", "LEXYBRAIN_RAG_MODEL_ID": "org/other"}, "org/other", None),
        ({"HF_TOKEN": "t", "RAG_LLM": "extractive"}, None, None),
        ({"RAG_LLM": "openai"}, "gpt-4o-mini", "gpt-4o-mini"),
        ({"HF_TOKEN": "t", "RAG_LLM": "openai", "LEXYBRAIN_RAG_MODEL_ID": "org/other"}, "gpt-4o-mini", "gpt-4o-mini"),
        ({"HF_TOKEN": "t", "RAG_LLM": "huggingface", "RAG_LLM_MODEL": "org/mine"}, "org/mine", "org/mine"),
        (
            {
                "HF_TOKEN": "t",
                "RAG_LLM": "huggingface",
                "RAG_LLM_MODEL": "org/mine",
                "LEXYBRAIN_RAG_MODEL_ID": "org/other",
            },
            "org/other",
            "org/mine",
        ),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else str(value),
)
def test_what_is_said_nowhere_but_in_the_environment(
    variables: dict[str, str], five: str | None, other: str | None, choose: Choose
) -> None:
    assert names(choose(**variables)) == all_of(five, other)


def table(name: str, model: str, **more: str) -> str:
    lines = {"kind": "openai_like", "model": model, **more}
    return f"[models.{name}]\n" + "".join(f'{key} = "{value}"\n' for key, value in lines.items())


DEFAULT, LEXYBRAIN, BRIEF = table("default", "d"), table("lexybrain", "l"), table("market_brief", "b")


@pytest.mark.parametrize(
    ("file", "brief", "five", "other"),
    [
        (DEFAULT, "d", "d", "d"),
        (LEXYBRAIN, "l", "l", "gpt-4o-mini"),
        (BRIEF, "b", "gpt-4o-mini", "gpt-4o-mini"),
        (DEFAULT + BRIEF, "b", "d", "d"),
        (DEFAULT + LEXYBRAIN, "l", "l", "d"),
        (BRIEF + LEXYBRAIN + DEFAULT, "b", "l", "d"),
        ('[models.market_brief]\nkind = "extractive"\n' + LEXYBRAIN, None, "l", "gpt-4o-mini"),
        ('[models.default]\nkind = "extractive"\n' + LEXYBRAIN, "l", "l", None),
        ('[models.default]\nkind = "extractive"\n', None, None, None),
        ("", "gpt-4o-mini", "gpt-4o-mini", "gpt-4o-mini"),
    ],
)
def test_the_nearest_entry_of_the_file_wins(
    file: str, brief: str | None, five: str | None, other: str | None, choose: Choose
) -> None:
    chosen = choose(file, RAG_LLM="openai")
    assert names(chosen) == {**all_of(five, other), "market_brief": brief}


def test_a_default_of_the_file_comes_before_hugging_face(choose: Choose) -> None:
    assert names(choose(DEFAULT, HF_TOKEN="t")) == all_of("d", "d")
    assert names(choose(BRIEF, HF_TOKEN="t")) == {**all_of(LLAMA, None), "market_brief": "b"}


def test_a_model_is_made_once_for_all_that_it_writes_for(choose: Choose) -> None:
    chosen = choose(
        DEFAULT + LEXYBRAIN.replace('"l"', '"d"') + BRIEF + "[models.market_brief.fallback]\n" + "".join(
            DEFAULT.splitlines(keepends=True)[1:]
        )
    )  # fmt: skip
    brief = chosen.model("market_brief")
    assert isinstance(brief, WithFallback) and brief.name == "b"
    assert chosen.model("general_chat") is chosen.model("owner_ask") is brief._second
    assert len(chosen.all) == 2


def test_a_file_says_all_that_the_environment_can_and_inherits_limits(choose: Choose) -> None:
    own = "temperature = 0\nmax_tokens = 300\ntimeout = 5\nbackoff = 0\nunavailable_wait = 0.5\n"
    chosen = choose(DEFAULT + own + LEXYBRAIN, RAG_LLM_TIMEOUT="7", RAG_LLM_MAX_TOKENS="99", RAG_LLM_API_KEY="k")
    first = private(chosen.model("owner_ask"))
    assert (first.temperature, first.max_tokens, first.timeout_s) == (0, 300, 5)
    assert (first.backoff_s, first.unavailable_wait_s) == (0, 0.5)
    second = private(chosen.model("general_chat"))
    assert (second.temperature, second.max_tokens, second.timeout_s) == (0.1, 99, 7)
    assert first.api_key is second.api_key is None  # RAG_LLM_API_KEY is for where RAG_LLM is


@pytest.mark.parametrize(
    ("variables", "key"),
    [
        ({"RAG_LLM_API_BASE": "https://gateway.example/v1"}, "lovable-s"),
        ({"RAG_LLM_API_BASE": "https://gateway.example/v1", "RAG_LLM_API_KEY": "named"}, "named"),
        ({}, "openai-s"),  # to OpenAI itself
        ({"RAG_LLM": "openai", "RAG_LLM_MODEL": "gpt-4o-mini"}, "openai-s"),
    ],
)
def test_a_gateway_gets_its_own_key_and_nobody_else_does(choose: Choose, variables: dict[str, str], key: str) -> None:
    set_keys = {"LOVABLE_API_KEY": "lovable-s", "OPENAI_API_KEY": "openai-s"}
    chosen = choose(**{"RAG_LLM": "openai_like", "RAG_LLM_MODEL": "m", **set_keys, **variables})
    assert private(chosen.model("knowledge_answer")).api_key == key


def test_keys_go_to_those_they_are_of(choose: Choose, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MINE=of-the-env-file\n", "utf-8")
    chosen = choose(
        DEFAULT
        + table("lexybrain", "l", api_base="https://gateway.example/v1")
        + table("market_brief", "b", api_base="https://gateway.example/v1", api_key_env="MINE")
        + table("owner_ask", "org/x").replace("openai_like", "huggingface")
        + table("book_tutor", "org/x", api_base="https://mine.example").replace("openai_like", "huggingface")
        + table("market_chat", "org/x", api_base="https://mine.example", api_key_env="HF_TOKEN"),
        OPENAI_API_KEY="openai-s",
        HF_TOKEN="hugging-face-s",
    )
    keys = {
        "knowledge_answer": "openai-s",
        "general_chat": None,
        "market_brief": "of-the-env-file",
        "owner_ask": "hugging-face-s",
        "book_tutor": None,
        "market_chat": "hugging-face-s",
    }
    assert {name: private(chosen.model(name)).api_key for name in keys} == keys


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("[models.default\n", "RAG_MODELS_FILE: models.toml: Expected"),
        (DEFAULT + DEFAULT, "RAG_MODELS_FILE: models.toml: "),
        ("[model.default]\n", "models.toml: model: there is no such key; accepted: prices, models"),
        ("models = 3\n", "models.toml: models: Input should be a valid dictionary"),
        ("[models]\ndefault = 3\n", "models.toml: models.default: it: Input should be"),
        (
            table("marketbrief", "b"),
            "models.toml: models.marketbrief: there is no capability of this name; accepted: default, lexybrain, knowledge_answer, ",
        ),
        (
            DEFAULT + "temprature = 1\n",
            "models.toml: models.default: temprature: there is no such key; accepted: kind, model, api_base, api_key_env, ",
        ),
        (
            DEFAULT + "[models.default.fallback]\nkind = 'openai'\nmodel = 'gpt-4o'\nfallback = 1\n",
            "models.toml: models.default: fallback.fallback: there is no such key; accepted: kind, model, api_base",
        ),
        (DEFAULT + "api_key = 'sk-secret'\n", "models.toml: models.default: api_key: there is no such key; accepted: "),
        (DEFAULT + "api_key_env = 'sk-secret'\n", "models.toml: models.default: api_key_env: String should match"),
        (
            DEFAULT + "api_key_env = 'hf_secret'\n",
            "models.toml: models.default: the variable that api_key_env names is not set",
        ),
        (
            DEFAULT + "[models.default.fallback]\nkind = 'openai'\nmodel = 'gpt-4o'\napi_key_env = 'hf_secret'\n",
            "models.toml: models.default.fallback: the variable that api_key_env names is not set",
        ),
        (DEFAULT + "api_base = 'gateway.example'\n", "models.toml: models.default: api_base: String should match"),
        (DEFAULT + "timeout = 0\n", "models.toml: models.default: timeout: Input should be greater than 0"),
        (DEFAULT + "temperature = nan\n", "models.toml: models.default: temperature: Input should be"),
        ("[models.default]\nkind = 'openai_like'\n", "models.toml: models.default: model: Field required"),
        ("[models.default]\nmodel = 'x'\n", "models.toml: models.default: give either kind or class"),
        (DEFAULT.replace("openai_like", "ollama"), "models.toml: models.default: kind: Input should be 'openai', "),
        (
            "[models.default]\nkind = 'extractive'\nmodel = 'x'\n",
            "models.toml: models.default: model: there is no such key; accepted: kind",
        ),
        (
            DEFAULT + "[models.default.fallback]\nkind = 'extractive'\n",
            "models.toml: models.default: fallback.kind: Input should be 'openai', ",
        ),
        (table("default", "extractive"), "a model cannot be named extractive"),
        (table("default", "no-such").replace("openai_like", "openai"), "model no-such: "),
        ("[prices.x]\ninput = 1\n", "models.toml: prices.x: output: Field required"),
        ("[prices.x]\ninput = -1\noutput = 1\n", "models.toml: prices.x: input: Input should be greater than or equal"),
        ("[prices.x]\ninput = inf\noutput = 1\n", "models.toml: prices.x: input: Input should be a finite number"),
        ("[prices.x]\ninput = 1\noutput = 1\ncurrency = 'EUR'\n", "models.toml: prices.x: currency: there is no such"),
    ],
)
def test_a_file_that_is_not_right_is_refused_with_what_is(file: str, problem: str, choose: Choose) -> None:
    with pytest.raises(Misconfigured) as refused:
        choose(file)
    assert str(refused.value).startswith(problem)
    assert "secret" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(choose: Choose, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"^RAG_MODELS_FILE: nowhere\.toml: "):
        choose(RAG_MODELS_FILE="nowhere.toml")
    (tmp_path / "latin.toml").write_bytes("# é".encode("latin-1"))
    with pytest.raises(Misconfigured, match=r"^RAG_MODELS_FILE: latin\.toml: "):
        choose(RAG_MODELS_FILE="latin.toml")


def test_costs_are_those_of_who_wrote(choose: Choose) -> None:
    chosen = choose(
        f'[prices."{LLAMA}"]\ninput = 60\noutput = 80\n[prices.free]\ninput = 0\noutput = 0\n[prices.odd]\n'
        "input = 0.1\noutput = 0.2\n",
        RAG_LLM_INPUT_PRICE="100",
        RAG_LLM_OUTPUT_PRICE="300.5",
    )
    assert chosen.cost_cents(LLAMA, Usage(1847, 312)) == Decimal("0.13578")
    assert chosen.cost_cents("odd", Usage(1, 1)) == Decimal("0.0000003")
    assert chosen.cost_cents("free", Usage(10**8, 10**8)) == 0
    assert chosen.cost_cents("never heard of", Usage(1_000_000, 2_000_000)) == Decimal(701)
    assert chosen.cost_cents("extractive", Usage(1_000_000, 1)) == 0
    assert chosen.cost_cents("never heard of", None) == 0


def test_an_unknown_model_is_never_free(choose: Choose) -> None:
    assert choose().cost_cents("never heard of", Usage(1, 0)) > 0


def test_prompts_are_there_where_a_model_is(choose: Choose) -> None:
    chosen = choose(table("owner_ask", "x"))
    assert chosen.prompt("owner_ask").name == "owner_ask"
    assert isinstance(chosen.synthesizer(capability_named("owner_ask")), ModelSynthesizer)
    assert isinstance(chosen.synthesizer(capability_named("book_tutor")), ExtractiveSynthesizer)
    with pytest.raises(Misconfigured, match="no prompt named nonsense; there are: knowledge_answer, "):
        chosen.prompt("nonsense")


async def test_what_is_chosen_answers_and_is_closed(choose: Choose) -> None:
    with ScriptedModel(Reply("First."), Reply(status=429), Reply("Second.")) as server:
        chosen = choose(
            table("lexybrain", "one", api_base=server.url, api_key_env="GATEWAY_KEY")
            + "[models.lexybrain.fallback]\n"
            + "".join(table("x", "two", api_base=server.url).splitlines(keepends=True)[1:]),
            GATEWAY_KEY="gate",
            OPENAI_API_KEY="openai-s",
        )
        model = chosen.model("general_chat")
        assert model is not None
        drafts = [await model.chat(ASKED), await model.chat(ASKED)]
        assert [(draft.text, draft.model) for draft in drafts] == [("First.", "one"), ("Second.", "two")]
        sent = [{key.lower(): value for key, value in each.headers.items()} for each in server.requests]
        assert [each["authorization"] for each in sent] == ["Bearer gate", "Bearer gate", "Bearer none"]
        await chosen.aclose()
    assert all(each._llm._aclient.is_closed() for each in chosen.all)  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", ["docs/models.md", "the module"])
def test_examples_are_accepted(where: str, choose: Choose) -> None:
    if where == "the module":
        lines = (chosen_models.__doc__ or "").splitlines()
        example = "\n".join(line.strip() for line in lines if line.startswith("    "))
    else:
        example = (ROOT / where).read_text("utf-8").split("```toml\n")[1].split("```")[0]
    chosen = choose(example, GATEWAY_KEY="g")
    five = chosen.model("market_brief")
    assert isinstance(five, WithFallback)
    assert (five._first.name, five._second.name) == (LLAMA, "gpt-4o-mini")
    assert 60 in {chosen.cost_cents(LLAMA, Usage(10**6, 0)), chosen.cost_cents("gpt-4o-mini", Usage(0, 10**6))}
    assert private(chosen.model("knowledge_answer")).api_key == "g"


ONLY_CHOSEN = """
import os, sys
import rag_app.surfaces.lexybrain
from llama_index.core.embeddings import MockEmbedding
from rag_app.answering.chosen_models import ChosenModels
from rag_app.settings import Settings

for variables in ({}, {"HF_TOKEN": "t"}, {"HF_TOKEN": "t", "RAG_MODELS_FILE": "models.toml"}):
    child = os.fork()
    if child == 0:
        os.environ.update(variables)
        ChosenModels(Settings(), MockEmbedding(embed_dim=4))
        llms = ("openai", "openai_like", "huggingface_api")
        print(*(name for name in llms if f"llama_index.llms.{name}.base" in sys.modules), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, variables
"""
"""Each in a process of its own, which begins with LlamaIndex imported: that takes seconds."""


def test_only_what_is_chosen_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text('[models.default]\nkind = "openai"\nmodel = "gpt-4o"\n')
    printed = subprocess.run(
        [sys.executable, "-c", ONLY_CHOSEN],
        capture_output=True,
        check=False,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE,
    )
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.splitlines() == ["", "huggingface_api", "openai"]
