"""What LexyBrain says when a part of it fails: each failure with a model by script on a port, or a part taken away."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rag_app.answering import models
from rag_app.domain.errors import EmbeddingFailed, StoreFailed
from rag_app.retrieval import retriever
from rag_app.surfaces.lexybrain import conversations
from tests.integration.lexybrain import BOX, EXPLAINED, KEYWORD, THREADS, Chat, chatting, citing
from tests.liar import heard, liar
from tests.scripted_model import Impatient, Reply, ScriptedModel

GOOD = citing(KEYWORD, "The demand index is 58 {}.")
TROUBLE = "I'm having trouble generating a response right now. Your data shows: "
AGAIN = "Please try again or rephrase your question."
JUPITER = "How many moons does Jupiter have?"
SECOND = "postgres"
"""For an application beside another one: local Qdrant would be in use."""


@pytest.fixture(scope="module", params=["openai_like", pytest.param("huggingface", marks=pytest.mark.thorough)])
def running(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], default_store: str, qdrant_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Chat]:  # fmt: skip
    folder = tmp_path_factory.mktemp("degradation")
    with chatting(database_urls, default_store, qdrant_folder, folder, kind=request.param) as chat:
        yield chat


@pytest.fixture
def chat(running: Chat) -> Chat:
    running.model.script[:] = [GOOD]
    running.model.requests.clear()
    return running


SILENT = Reply("late", delay_s=300)
"""Stands for a reply that does not come."""
FAILURES: list[tuple[str, Sequence[Reply], int, str]] = [
    ("timeout, then an answer", [SILENT], 2, ""),
    ("two timeouts", [SILENT] * 2, 2, "ModelTimeout"),
    ("503, then an answer", [Reply(status=503)], 2, ""),
    ("503 twice", [Reply(status=503)] * 2, 2, "ModelFailed"),
    ("429", [Reply(status=429)], 1, "ModelLimited"),
    ("500 twice", [Reply(status=500)] * 2, 2, "ModelFailed"),
    ("401", [Reply(status=401)], 1, "ModelFailed"),
    ("no choices", [Reply(empty_choices=True)], 1, "ModelMalformed"),
    ("no text", [Reply("")], 1, "ModelSilent"),
    ("malformed, nothing to extract", [Reply(malformed=True)], 1, "ModelMalformed"),
    ("cut twice", [Reply("cut " * 50, cut=True)] * 2, 2, "ModelMalformed"),
]


WAYS = [
    pytest.param(*failure, streamed, id=f"{what}, {'streamed' if streamed else 'plain'}")
    for what, *failure in FAILURES
    for streamed in (False, True)
    if not (streamed and what == "cut twice")  # a cut stream is a test of its own
]


@pytest.mark.parametrize(("replies", "requests", "failure", "streamed"), WAYS)
def test_a_model_that_fails(
    replies: Sequence[Reply], requests: int, failure: str, streamed: bool, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = Impatient()
    monkeypatch.setattr(models, "asyncio", impatient)
    user = chat.newcomer()
    chat.model.script[:] = [*(impatient.silent if each is SILENT else each for each in replies), GOOD]
    body = said(chat, BOX, user, streamed)
    assert len(chat.model.requests) == requests
    assert body["flags"]["usedRag"] is True and body["flags"]["fallbackToGeneric"] is bool(failure)
    assert body["sources"] and body["sources"][0]["label"]
    if not failure:
        assert body["answer"] == "The demand index is 58 [Source 1]." and chat.used(user) == 1
        return
    check_fallback(body)
    assert chat.used(user) == 0, "a fallback gives the message back"
    failures = chat.rows("SELECT kind, model_id, capability FROM ai_failures", user)
    assert [row["kind"] for row in failures] == [failure]
    kept = chat.get(f"{THREADS}/{body['threadId']}", user)["messages"]
    assert kept[1]["content"] == body["answer"] and kept[1]["flags"]["fallbackToGeneric"] is True


def said(chat: Chat, message: str, user: Any, streamed: bool, **rest: Any) -> dict[str, Any]:
    if not streamed:
        return chat.post(message, user, **rest)
    events = chat.stream(message, user, **rest)
    assert events[-1][0] == "done", events
    body: dict[str, Any] = events[-1][1]
    assert "".join(data["text"] for kind, data in events if kind == "delta") == body["answer"]
    return body


def check_fallback(body: dict[str, Any]) -> None:
    answer = body["answer"]
    assert answer.startswith(TROUBLE) and answer.endswith(AGAIN) and "[Source" not in answer
    summary = answer[len(TROUBLE) : -len(AGAIN)]
    named = [source["label"] for source in body["sources"] if source["label"] in summary]
    assert len(named) == min(3, len(body["sources"])), summary


@pytest.mark.parametrize("reply", [Reply(status=503), Reply(status=429), Reply(malformed=True)])
def test_a_model_that_fails_and_nothing_was_found(reply: Reply, chat: Chat) -> None:
    user = chat.newcomer()
    chat.model.script[:] = [reply]
    error = chat.post("Hello, how are you?", user, capability="general_chat", status=500)["error"]
    assert error["code"] == "generation_failed" and error["retryable"] is True
    assert chat.used(user) == 0 and len(chat.rows("SELECT * FROM ai_failures", user)) == 1
    kept = chat.rows("SELECT role, content FROM rag_messages", user)
    assert kept == [{"role": "user", "content": "Hello, how are you?"}], "the message is not lost"


def test_a_stream_that_is_cut_keeps_what_was_said(chat: Chat) -> None:
    user = chat.newcomer()
    said_by_then = "The demand index is 58 {}. " + "And one more sentence of it {}. ".replace("{}", "") * 20
    chat.model.script[:] = [citing(KEYWORD, said_by_then, cut=True)]
    events = chat.stream(BOX, user)
    body = events[-1][1]
    assert events[-1][0] == "done" and body["answer"].startswith("The demand index is 58 [Source 1].")
    assert body["flags"]["fallbackToGeneric"] is True and len(body["answer"]) < len(said_by_then)
    kept = chat.get(f"{THREADS}/{body['threadId']}", user)["messages"][1]
    assert kept["content"] == body["answer"] and kept["flags"]["interrupted"] is True
    assert kept["sources"][0]["citation"] == 1 and chat.used(user) == 0
    assert [row["kind"] for row in chat.rows("SELECT kind FROM ai_failures", user)] == ["ModelMalformed"]


def test_retrieval_that_fails(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedder and the vector store are others' machines: what they do is done to our side of the wire."""

    async def down(*_: Any) -> Any:
        raise EmbeddingFailed("the embedding server does not answer")

    monkeypatch.setattr(retriever, "embed_query", down)
    user = chat.newcomer()
    body = chat.post(EXPLAINED, user, capability="keyword_explanation")
    assert body["flags"] == {"usedRag": False, "fallbackToGeneric": False, "insufficientContext": True}
    assert body["sources"] == [] and chat.used(user) == 0 and not chat.model.requests
    chat.model.script[:] = [Reply("I cannot look that up right now.")]
    assert chat.post("Hello!", user, capability="general_chat")["answer"] == "I cannot look that up right now."
    assert {row["kind"] for row in chat.rows("SELECT kind FROM ai_failures", user)} == {"EmbeddingFailed"}


def test_a_database_that_fails_once_the_answer_exists(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(*_: Any, **__: Any) -> bool:
        raise StoreFailed("PostgreSQL failed")

    user = chat.newcomer()
    with monkeypatch.context() as patch:
        patch.setattr(conversations, "keep_answer", down)
        for streamed in (False, True):
            assert said(chat, BOX, user, streamed)["answer"] == "The demand index is 58 [Source 1]."
    assert [row["role"] for row in chat.rows("SELECT role FROM rag_messages", user)] == ["user", "user"]
    assert chat.used(user) == 2 and len(chat.rows("SELECT * FROM usage_reservations", user)) == 2
    chat.rows("UPDATE usage_reservations SET expires_at = now() - interval '1 second'", user)
    chat.post(BOX, user)
    assert chat.used(user) == 1, "no charge without an answer that is kept"


def test_a_liar_is_not_heard_and_answers_refused_whole_are_free_five_times(chat: Chat) -> None:
    user = chat.newcomer()
    chat.model.script[:] = [partial(liar, "market_brief")]
    asked: dict[str, Any] = {"capability": "keyword_explanation"}
    plain, streamed = said(chat, EXPLAINED, user, False, **asked), said(chat, EXPLAINED, user, True, **asked)
    assert plain["answer"] == streamed["answer"] and plain["flags"]["removedSentences"] > 20
    assert plain["flags"]["grounded"] is True and chat.used(user) == 2
    assert not heard("market_brief", plain["answer"], chat.model.requests[-1].body)
    chat.model.script[:] = [Reply("The salon is going bankrupt [Source 1].")]
    for refused, used in zip(range(1, 8), (2, 2, 2, 2, 2, 3, 4), strict=True):
        body = chat.post(EXPLAINED, user, **asked)
        assert "bankrupt" not in body["answer"] and "grounded" not in body["flags"]
        assert chat.used(user) == used, refused
    tokens = chat.rows("SELECT sum(tokens_in) AS paid FROM ai_usage_events WHERE type = 'rag_message'", user)
    assert int(tokens[0]["paid"] or 0) >= 9 * 11, "tokens always count"


def test_a_model_of_ones_own_and_its_fallback(
    database_urls: tuple[str, str], qdrant_folder: Path, tmp_path: Path
) -> None:
    with (
        ScriptedModel(citing(KEYWORD, "The small one says 58 {}.")) as small,
        chatting(database_urls, SECOND, qdrant_folder, tmp_path, fallback=small.url) as chat,
    ):
        chat.model.script[:] = [Reply(status=503)]
        user = chat.newcomer()
        for streamed in (False, True):
            body = said(chat, BOX, user, streamed)
            assert body["answer"] == "The small one says 58 [Source 1]." and body["model"]["id"] == "small"
            assert body["flags"]["fallbackToGeneric"] is False
        assert chat.used(user) == 2
        small.script[:] = [Reply(status=500)]
        check_fallback(chat.post(BOX, user))
        assert chat.used(user) == 2


def test_without_a_model_everything_is_extracted(
    database_urls: tuple[str, str], qdrant_folder: Path, tmp_path: Path
) -> None:
    with chatting(
        database_urls, SECOND, qdrant_folder, tmp_path, settings={"RAG_MODELS_FILE": "", "HF_TOKEN": ""}
    ) as chat:
        user = chat.newcomer()
        for streamed in (False, True):
            body = said(chat, BOX, user, streamed)
            assert body["model"]["id"] == "extractive" and body["model"]["usage"] is None
            assert "58" in body["answer"] and re.search(r"\[Source \d\]", body["answer"])
        follow_up = said(chat, "And how did it change over the last year?", user, False, threadId=body["threadId"])
        assert "grew from 33" in follow_up["answer"], follow_up
        assert not chat.model.requests and chat.used(user) == 3


def test_the_text_of_a_malformed_reply_is_used_and_the_failure_written_down(chat: Chat) -> None:
    """Cut in the middle of a string: no JSON, but one whole sentence with its citation."""
    user = chat.newcomer()
    said_by_then = "The demand index is 58 [Source 1]. It has"
    body = '{"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "content": "' + said_by_then
    chat.model.script[:] = [Reply(body=body)]
    answer = chat.post(BOX, user)
    assert answer["answer"] == "The demand index is 58 [Source 1]." and chat.used(user) == 1
    assert answer["flags"]["fallbackToGeneric"] is False and answer["sources"][0]["id"]
    assert [row["kind"] for row in chat.rows("SELECT kind FROM ai_failures", user)] == ["ModelMalformed"]
