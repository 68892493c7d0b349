"""The recipes of docs/own_models.md, each against a scripted server that speaks its protocol."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage

from rag_app.answering import models
from rag_app.answering.capabilities import capability_named
from rag_app.answering.chosen_models import ChosenModels
from rag_app.answering.models import AnsweringModel, Draft
from rag_app.answering.models_file import ModelsFile, read_models
from rag_app.answering.parts import NO_PARTS
from rag_app.answering.rerankers import RerankerRegistry
from rag_app.application import _embedder
from rag_app.domain.answer import Usage
from rag_app.domain.errors import EmbeddingFailed, ModelFailed, ModelLimited, ModelTimeout
from rag_app.retrieval.embedding import MiniLM, OwnEmbedder, embed_query, embed_texts
from rag_app.settings import Settings
from tests.scripted_model import USAGE, Impatient, Reply, ScriptedModel

PAGE = Path(__file__).parents[3] / "docs" / "own_models.md"
SAID = "Open daily [Source 1]."
KEYS = {"AZURE_OPENAI_API_KEY": "azure-s3cret", "VLLM_KEY": "vllm-s3cret"}


@pytest.fixture(autouse=True)
def _stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_VECTOR_STORE", "postgres")


def recipes(heading: str) -> list[str]:
    section = PAGE.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```toml\n(.*?)```", section, re.S)


def ollama(body: dict[str, Any]) -> Reply:
    if "input" in body:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        return Reply(body=json.dumps({"model": body["model"], "embeddings": [[0.5] * 768 for _ in texts]}))
    message = {"model": body["model"], "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant"}}
    counts = {"prompt_eval_count": USAGE["prompt_tokens"], "eval_count": USAGE["completion_tokens"]}
    pieces = SAID.partition(" ") if body["stream"] else (SAID,)
    lines = [message | {"message": {"role": "assistant", "content": each}, "done": False} for each in pieces]
    lines[-1] |= {"done": True, "done_reason": "stop", **counts}
    return Reply(body="".join(f"{json.dumps(each)}\n" for each in lines), content_type="application/x-ndjson")


def openai(body: dict[str, Any]) -> Reply:
    if "messages" in body:
        return Reply(SAID)
    if "documents" in body:
        rows = [{"index": place, "relevance_score": float(place)} for place in range(len(body["documents"]))]
        return Reply(body=json.dumps({"results": rows}))
    vectors: list[dict[str, Any]] = [
        {"object": "embedding", "index": place, "embedding": [0.5] * 1024} for place in range(len(body["input"]))
    ]
    return Reply(body=json.dumps({"object": "list", "data": vectors, "model": body["model"], "usage": USAGE}))


def configured(
    text: str, server: ScriptedModel, folder: Path, patch: pytest.MonkeyPatch
) -> tuple[Settings, ModelsFile]:
    for name, key in KEYS.items():
        patch.setenv(name, key)
    file = folder / "models.toml"
    root = server.url.removesuffix("/v1")
    file.write_text(re.sub(r"https?://[a-z0-9.]+(:\d+)?", root, text), "utf-8")
    patch.setenv("RAG_MODELS_FILE", str(file))
    return Settings(), read_models(file)


async def written(model: AnsweringModel, *, streamed: bool) -> list[Any]:
    messages = [ChatMessage(role="user", content="When?")]
    return [each async for each in model.pieces(messages, {"temperature": 0.2}, streamed=streamed)]


@pytest.mark.parametrize(
    ("heading", "number", "script", "path", "key"),
    [
        ("Ollama", 0, ollama, "/api/chat", None),
        ("vLLM", 0, openai, "/v1/chat/completions", None),
        ("Azure OpenAI", 0, openai, "/openai/v1/chat/completions", ("Authorization", "Bearer azure-s3cret")),
        ("Azure OpenAI", 1, openai, "/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21", ("api-key", "azure-s3cret")),
    ],
)  # fmt: skip
async def test_a_model_answers_at_once_and_in_pieces(
    heading: str, number: int, script: Any, path: str, key: tuple[str, str] | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with ScriptedModel(script) as server:
        settings, file = configured(recipes(heading)[number], server, tmp_path, monkeypatch)
        chosen = ChosenModels(settings, MiniLM(), file=file)
        model = chosen.model("knowledge_answer")
        assert model is not None
        (draft,) = await written(model, streamed=False)
        assert (draft.text, draft.cut_off) == (SAID, False)
        assert draft.usage == Usage(USAGE["prompt_tokens"], USAGE["completion_tokens"])
        *pieces, whole = await written(model, streamed=True)
        assert "".join(pieces) == SAID and isinstance(whole, Draft) and whole.text == SAID
        assert [each.path for each in server.requests] == [path, path]
        headers = {name.lower(): value for name, value in server.requests[0].headers.items()}
        assert key is None or headers[key[0].lower()] == key[1]
        await chosen.aclose()


@pytest.mark.parametrize(
    ("reply", "raised", "requests"),
    [
        (Reply(status=503), ModelFailed, 2),
        (Reply(status=429), ModelLimited, 1),
        (None, ModelTimeout, 2),  # it says nothing
    ],
)
@pytest.mark.parametrize(("heading", "number"), [("Ollama", 0), ("Azure OpenAI", 1)])
async def test_limits_and_repetitions_are_ours(
    heading: str, number: int, reply: Reply | None, raised: type[Exception], requests: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setenv("RAG_LLM_BACKOFF", "0")
    monkeypatch.setenv("RAG_LLM_UNAVAILABLE_WAIT", "0")
    impatient = Impatient()
    monkeypatch.setattr(models, "asyncio", impatient)
    with ScriptedModel(reply or impatient.silent) as server:
        settings, file = configured(recipes(heading)[number], server, tmp_path, monkeypatch)
        model = ChosenModels(settings, MiniLM(), file=file).model("knowledge_answer")
        assert model is not None
        with pytest.raises(raised) as failed:
            await written(model, streamed=False)
        assert type(failed.value) is raised and len(server.requests) == requests
    assert "s3cret" not in f"{failed.value}{caplog.text}"


@pytest.mark.parametrize(
    ("heading", "script", "name", "dimension", "path"),
    [
        ("Ollama", ollama, "nomic-embed-text", 768, "/api/embed"),
        ("vLLM", openai, "BAAI/bge-m3", 1024, "/v1/embeddings"),
    ],
)
async def test_an_embedder_embeds(
    heading: str, script: Any, name: str, dimension: int, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedModel(script) as server:
        settings, file = configured(recipes(heading)[0], server, tmp_path, monkeypatch)
        embedder = _embedder(settings, file, NO_PARTS)
        assert isinstance(embedder, OwnEmbedder) and (embedder.model_name, embedder.dimension) == (name, dimension)
        assert len(await embed_query(embedder, "When?", dimension)) == dimension
        assert [len(each) for each in await embed_texts(embedder, ["One.", "Two."])] == [dimension] * 2
        assert {each.path for each in server.requests} == {path}
        with pytest.raises(EmbeddingFailed, match=f"answered with {dimension} dimensions, not 384"):
            await embed_query(embedder, "When?", 384)
    with ScriptedModel(Reply(status=500)) as server:
        settings, file = configured(recipes(heading)[0], server, tmp_path, monkeypatch)
        embedder = _embedder(settings, file, NO_PARTS)
        with pytest.raises(EmbeddingFailed):
            await embed_query(embedder, "When?", dimension)
        assert len(server.requests) == 2, "once, and once again"


async def test_vllms_reranker_is_one_of_jinas_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedModel(openai) as server:
        _, file = configured(recipes("vLLM")[0], server, tmp_path, monkeypatch)
        rerankers = RerankerRegistry(file, "models.toml")
        parts = rerankers.parts(capability_named("market_brief"))
        assert parts.candidates == 30 and len(parts.postprocessors) == 1
        await rerankers.aclose()


def test_every_example_of_the_page_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COHERE_API_KEY", "x")
    for heading in ("Naming a class", "Embedders", "Rerankers", "Ollama", "vLLM", "Azure OpenAI"):
        for text in recipes(heading):
            (tmp_path / "models.toml").write_text(text, "utf-8")
            file = read_models(tmp_path / "models.toml")
            RerankerRegistry(file, "models.toml")
    assert len(recipes("Azure OpenAI")) == 2


def test_the_model_of_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    (tmp_path / "oracle.py").write_text(code, "utf-8")
    (tmp_path / "models.toml").write_text(
        '[models.default]\nclass = "oracle.py:Oracle"\narguments = { greeting = "Hi" }\n', "utf-8"
    )
    chosen = ChosenModels(Settings(), MiniLM(), file=read_models(tmp_path / "models.toml"))
    model = chosen.model("knowledge_answer")
    assert model is not None and model.name == "oracle"
