"""Answering models over HTTP: every way to fail, and exactly how often a model is asked."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage

from rag_app.answering.models import ChatModel, Draft, ModelSettings, build_llm
from rag_app.domain.answer import Usage
from rag_app.domain.errors import Misconfigured, ModelFailed, ModelLimited, ModelMalformed, ModelTimeout
from tests.scripted_model import Reply, ScriptedModel

ASKED = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="When do you open?")]
FINE = Reply("At nine [Source 1].")
OPENED: list[ChatModel] = []
KINDS = ["openai_like", "huggingface"]  # "openai" differs from the first in what it accepts as a name


def model(kind: str, server: ScriptedModel, **more: Any) -> ChatModel:
    settings = ModelSettings(
        name="gpt-4o-mini",
        kind=kind,  # type: ignore[arg-type]
        api_base=server.url,
        api_key="key",
        timeout_s=5,
        backoff_s=0.01,
        unavailable_wait_s=0.05,
    )
    settings = replace(settings, **more)
    OPENED.append(ChatModel(build_llm(settings), settings))
    return OPENED[-1]


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    while OPENED:
        await OPENED.pop().aclose()


async def streamed(asked: ChatModel) -> str:
    *pieces, draft = [piece async for piece in asked.stream(ASKED)]
    assert isinstance(draft, Draft) and "".join(str(piece) for piece in pieces).strip() == draft.text
    return draft.text


async def drafted(asked: ChatModel) -> str:
    return (await asked.chat(ASKED)).text


WAYS = [pytest.param(drafted, id="whole"), pytest.param(streamed, id="stream")]


@pytest.mark.parametrize("kind", [*KINDS, "openai"])
async def test_an_answer_takes_one_request_and_says_what_it_cost(kind: str) -> None:
    with ScriptedModel(FINE) as server:
        draft = await model(kind, server, temperature=0.3, max_tokens=77).chat(ASKED)
    assert (draft.text, draft.model, draft.usage) == ("At nine [Source 1].", "gpt-4o-mini", Usage(11, 7))
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert {key.lower(): value for key, value in request.headers.items()}["authorization"] == "Bearer key"
    assert request.body["model"] == "gpt-4o-mini"
    assert (request.body["temperature"], request.body["max_tokens"]) == (0.3, 77)
    assert [(m["role"], m["content"]) for m in request.body["messages"]] == [
        ("system", "Be brief."),
        ("user", "When do you open?"),
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_brings_all_of_the_text_and_leaves_the_client_usable(kind: str) -> None:
    with ScriptedModel(FINE) as server:
        asked = model(kind, server)
        assert [await streamed(asked), await drafted(asked), await streamed(asked)] == ["At nine [Source 1]."] * 3
    assert [request.body.get("stream", False) for request in server.requests] == [True, False, True]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("reply", "error", "requests"),
    [
        (Reply(status=429, retry_after="30"), ModelLimited, 1),
        (Reply(status=503), ModelFailed, 2),
        (Reply(status=500), ModelFailed, 2),
        (Reply(status=401), ModelFailed, 1),
        (Reply(malformed=True), ModelMalformed, 1),
        (Reply(empty_choices=True), ModelMalformed, 1),
        (Reply(" "), ModelMalformed, 1),
    ],
    ids=["429", "503", "500", "401", "malformed", "no-choices", "no-text"],
)
async def test_a_failure_has_its_error_and_its_number_of_requests(
    kind: str, way: Any, reply: Reply, error: type[ModelFailed], requests: int
) -> None:
    with ScriptedModel(reply) as server:
        with pytest.raises(ModelFailed) as raised:
            await way(model(kind, server))
        assert type(raised.value) is error
        assert len(server.requests) == requests


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_model_that_is_silent_is_asked_twice(kind: str, way: Any) -> None:
    with ScriptedModel(Reply("late", delay_s=0.7)) as server:
        begun = time.monotonic()
        with pytest.raises(ModelTimeout):
            await way(model(kind, server, timeout_s=0.2))
        assert 0.4 <= time.monotonic() - begun < 1.2
        assert len(server.requests) == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [Reply(status=500), Reply(status=503), Reply("late", delay_s=0.7)])
async def test_a_second_request_may_succeed(kind: str, way: Any, first: Reply) -> None:
    with ScriptedModel(first, FINE) as server:
        assert await way(model(kind, server, timeout_s=0.4)) == FINE.text
        assert len(server.requests) == 2


async def test_an_overloaded_model_is_given_its_time() -> None:
    with ScriptedModel(Reply(status=503), FINE) as server:
        await model("openai_like", server, unavailable_wait_s=0.4).chat(ASKED)
        assert server.requests[1].at - server.requests[0].at >= 0.4


async def test_retries_are_a_setting() -> None:
    with ScriptedModel(Reply(status=500)) as server:
        with pytest.raises(ModelFailed):
            await model("openai_like", server, retries=0).chat(ASKED)
        assert len(server.requests) == 1
        with pytest.raises(ModelFailed):
            await model("openai_like", server, retries=3).chat(ASKED)
        assert len(server.requests) == 1 + 4


@pytest.mark.parametrize("kind", KINDS)
async def test_a_connection_cut_in_mid_answer_is_no_answer(kind: str) -> None:
    with ScriptedModel(Reply("one two three four five six", cut=True)) as server:
        with pytest.raises(ModelMalformed):
            await model(kind, server).chat(ASKED)
        assert len(server.requests) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_has_begun_is_not_asked_for_again(kind: str) -> None:
    with ScriptedModel(Reply("one two three four five six", cut=True)) as server:
        stream = model(kind, server).stream(ASKED)
        assert [await anext(stream), await anext(stream)] == ["one ", "two "]
        with pytest.raises(ModelMalformed):
            [piece async for piece in stream]
        assert len(server.requests) == 1


async def test_nobody_there() -> None:
    with ScriptedModel() as server:
        asked = model("openai_like", server)
    with pytest.raises(ModelFailed):
        await asked.chat(ASKED)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("reason", "cut_off"), [("stop", False), ("length", True), ("content_filter", True)])
async def test_both_ways_tell_the_same_of_an_answer(kind: str, reason: str, cut_off: bool) -> None:
    with ScriptedModel(Reply("We open at nine [Source 1]. We close at", finish_reason=reason)) as server:
        asked = model(kind, server)
        draft = await asked.chat(ASKED)
        assert draft == Draft("We open at nine [Source 1]. We close at", "gpt-4o-mini", Usage(11, 7), cut_off)
        assert [piece async for piece in asked.stream(ASKED)][-1] == draft


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reply", [Reply("a b c d", pace_s=0.2), Reply("a b", delay_s=5)], ids=["speaks", "thinks"])
async def test_who_stops_listening_hangs_up_at_once(kind: str, reply: Reply) -> None:
    with ScriptedModel(reply) as server:
        stream = model(kind, server).stream(ASKED)
        if reply.pace_s:
            assert await anext(stream) == "a "
            await stream.aclose()
        else:
            waiting = asyncio.create_task(anext(stream))
            while not server.requests:
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        left = time.monotonic()
        while not server.hung_up and time.monotonic() < left + 2:
            await asyncio.sleep(0.01)
        assert server.hung_up
        assert len(server.requests) == 1


async def test_the_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    with ScriptedModel(FINE) as server:
        for kind in [*KINDS, "openai"]:
            await model(kind, server, api_key=None).chat(ASKED)
        assert not any("secret" in str(request.headers) for request in server.requests)
    monkeypatch.setenv("OPENAI_API_BASE", server.url)
    assert build_llm(ModelSettings("gpt-4o-mini", "openai")).api_base == "https://api.openai.com/v1"  # type: ignore[attr-defined]


def test_a_model_that_openai_does_not_have_is_refused_when_settings_are_read() -> None:
    with pytest.raises(Misconfigured, match="gemini"):
        build_llm(ModelSettings("google/gemini-2.5-flash", "openai"))
    assert build_llm(ModelSettings("google/gemini-2.5-flash", "openai_like")).metadata.is_chat_model


def test_a_backend_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llama_index.llms.openai_like", None)
    with pytest.raises(Misconfigured, match="pip install llama-index-llms-openai-like"):
        build_llm(ModelSettings("x", "openai_like"))


def test_settings_do_not_show_their_key() -> None:
    assert "sk-1" not in repr(ModelSettings("x", api_key="sk-1"))
