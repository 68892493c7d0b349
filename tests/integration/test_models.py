"""Answering models over HTTP: every way to fail, and exactly how often a model is asked."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage

from rag_app.answering import models, prompts
from rag_app.answering.models import ChatModel, Draft, Restart, WithFallback, estimate_usage
from rag_app.answering.providers import ModelSettings, build_llm
from rag_app.answering.synthesizers import ModelSynthesizer
from rag_app.domain.answer import Answer, Delta, Event, Question, Refusal, Usage
from rag_app.domain.errors import Misconfigured, ModelFailed, ModelLimited, ModelMalformed, ModelSilent, ModelTimeout
from tests.scripted_model import Impatient, Reply, ScriptedModel
from tests.unit.answering.test_engine import WAITED, engine

ASKED = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="When do you open?")]
ASK = "{% chat role='user' %}{{ context }} {{ question }}{% endchat %}"
FINE, SAID = Reply("At nine [Source 1]."), Reply("Customers waited for fifteen minutes [Source 1].")
OPENED: list[ChatModel] = []
KINDS = ["openai_like", "huggingface"]  # "openai" differs from the first in what it accepts as a name


def model(kind: str, server: ScriptedModel, **more: Any) -> ChatModel:
    settings = ModelSettings(
        name="gpt-4o-mini",
        kind=kind,
        api_base=server.url,
        api_key="key",
        timeout_s=60,
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


async def streamed(asked: ChatModel | WithFallback) -> str:
    *pieces, draft = [piece async for piece in asked.stream(ASKED)]
    assert isinstance(draft, Draft) and "".join(str(piece) for piece in pieces).strip() == draft.text
    return draft.text


async def drafted(asked: ChatModel | WithFallback) -> str:
    return (await asked.chat(ASKED)).text


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Impatient:
    impatient = Impatient()
    monkeypatch.setattr(models, "asyncio", impatient)
    return impatient


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
        (Reply(" "), ModelSilent, 1),
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
async def test_a_model_that_is_silent_is_asked_twice(kind: str, way: Any, impatient: Impatient) -> None:
    with ScriptedModel(impatient.silent) as server:
        with pytest.raises(ModelTimeout):
            await way(model(kind, server))
        assert len(server.requests) == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [Reply(status=500), Reply(status=503), None], ids=["500", "503", "silent"])
async def test_a_second_request_may_succeed(kind: str, way: Any, first: Reply | None, impatient: Impatient) -> None:
    with ScriptedModel(first or impatient.silent, FINE) as server:
        assert await way(model(kind, server)) == FINE.text
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
async def test_a_stream_that_is_cut_begins_anew_and_says_so(kind: str) -> None:
    with ScriptedModel(Reply("one two three four five six", cut=True), FINE) as server:
        pieces = [piece async for piece in model(kind, server).stream(ASKED)]
        (restart,) = [each for each in pieces if isinstance(each, Restart)]
        assert pieces[:2] == ["one ", "two "] and type(restart.error) is ModelMalformed
        said = pieces[pieces.index(restart) + 1 : -1]
        assert "".join(map(str, said)) == FINE.text and isinstance(pieces[-1], Draft)
        assert len(server.requests) == 2


async def events_of(*chosen: ChatModel) -> list[Event]:
    """An answer as a client gets it, from a source that has it."""
    prompt = prompts.prompt("ask", "v1", ASK, ["context", "question"])
    asked = engine(ModelSynthesizer(WithFallback(*chosen) if len(chosen) == 2 else chosen[0], prompt), WAITED)
    return [event async for event in asked.stream(Question("How long did customers wait?"))]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_is_cut_before_its_first_sentence_is_asked_for_again(kind: str) -> None:
    half = Reply("One of them waited for a very long time and then left [Source 1].", cut=True)
    with ScriptedModel(half, SAID) as server:
        _, *deltas, answer = await events_of(model(kind, server))
        assert isinstance(answer, Answer) and answer.text == SAID.text and len(server.requests) == 2
        assert "".join(each.text for each in deltas if isinstance(each, Delta)) == SAID.text


async def test_a_stream_that_is_cut_again_and_again_goes_to_the_fallback() -> None:
    half = Reply("One of them waited for a very long time and then left [Source 1].", cut=True)
    with ScriptedModel(half) as first, ScriptedModel(SAID) as second:
        *_, answer = await events_of(model("openai_like", first), model("openai_like", second, name="second"))
        assert isinstance(answer, Answer) and (answer.text, answer.model) == (SAID.text, "second")
        assert [type(each) for each in answer.failures] == [ModelMalformed]
        assert (len(first.requests), len(second.requests)) == (2, 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_of_which_a_client_has_a_sentence_is_not_asked_for_again(kind: str) -> None:
    half = Reply("One waited [Source 1]. " + "And then another one came and waited as well. " * 3, cut=True)
    with ScriptedModel(half, SAID) as server, ScriptedModel(SAID) as second:
        with pytest.raises(ModelMalformed):
            await events_of(model(kind, server), model(kind, second))
        assert (len(server.requests), len(second.requests)) == (1, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_owner_is_told_that_the_records_do_not_tell_where_a_model_says_nothing(kind: str) -> None:
    with ScriptedModel(Reply(" ")) as server:
        *_, streamed = await events_of(model(kind, server))
        asked = engine(
            ModelSynthesizer(model(kind, server), prompts.prompt("ask", "v1", ASK, ["context", "question"])), WAITED
        )
        for answer in (streamed, await asked.answer(Question("How long did customers wait?"))):
            assert isinstance(answer, Answer) and answer.refusal is Refusal.ADMITTED
            assert answer.text == "I don't have enough information from the available records to answer this question."
            assert [type(each) for each in answer.failures] == [ModelSilent]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('{"answer": "At nine [Source 1].", "confidence": 0.9}', "At nine [Source 1]."),
        ('```json\n{"response": "At nine [Source 1]."}\n```', "At nine [Source 1]."),
        ('{"content": "At nine [Source 1]. We cl', "At nine [Source 1]. We cl"),
        ('{"price": 3} is what it says [Source 1].', '{"price": 3} is what it says [Source 1].'),
        ('{"error": "no"}', '{"error": "no"}'),
        ("`nine` [Source 1].", "`nine` [Source 1]."),
    ],
)
async def test_a_text_that_is_json_is_read_for_its_answer(kind: str, said: str, text: str) -> None:
    with ScriptedModel(Reply(said)) as server:
        asked = model(kind, server)
        assert await drafted(asked) == text
        *pieces, draft = [piece async for piece in asked.stream(ASKED)]
        assert isinstance(draft, Draft) and (pieces, draft.text) == ([], text)
        assert draft.extracted == (said != text) and draft.cut_off == (text.endswith("cl"))


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
@pytest.mark.parametrize(
    "reply", [Reply("a b c d", go_on=threading.Event()), Reply("a b", delay_s=300)], ids=["speaks", "thinks"]
)
async def test_who_stops_listening_hangs_up_at_once(kind: str, reply: Reply) -> None:
    with ScriptedModel(reply) as server:
        stream = model(kind, server).stream(ASKED)
        if reply.go_on:
            assert await anext(stream) == "a "
            await stream.aclose()
        else:
            waiting = asyncio.create_task(anext(stream))
            while not server.requests:
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        while not server.hung_up:
            await asyncio.sleep(0.01)
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


@pytest.mark.parametrize("kind", [*KINDS, "openai"])
async def test_a_request_has_its_own_limits_or_those_of_the_settings(kind: str) -> None:
    with ScriptedModel(FINE) as server:
        asked = model(kind, server, temperature=0.3, max_tokens=77)
        for options in ({}, {"max_tokens": 500}, {"temperature": 0.9}, {"max_tokens": 9, "temperature": 0.7}):
            await asked.chat(ASKED, **options)
            [_ async for _ in asked.stream(ASKED, **options)]
    sent = [(each.body["max_tokens"], each.body["temperature"]) for each in server.requests]
    assert sent[::2] == sent[1::2] == [(77, 0.3), (500, 0.3), (77, 0.9), (9, 0.7)]


@pytest.mark.parametrize(("kind", "coldest"), [("openai_like", 0), ("openai", 0), ("huggingface", 0.01)])
async def test_the_coldest_that_a_model_takes(kind: str, coldest: float) -> None:
    with ScriptedModel(FINE) as server:
        await model(kind, server).chat(ASKED, temperature=0.0)
        [_ async for _ in model(kind, server).stream(ASKED, temperature=0.0)]
        await model(kind, server, temperature=0.0).chat(ASKED)
    assert [each.body["temperature"] for each in server.requests] == [coldest] * 3


@pytest.mark.parametrize("kind", ["openai", "openai_like"])
async def test_a_model_with_one_temperature_keeps_it(kind: str) -> None:
    with ScriptedModel(FINE) as server:
        await model(kind, server, name="o3-mini").chat(ASKED, max_tokens=300, temperature=0.7)
    body = server.requests[0].body
    assert (body["temperature"], body["max_completion_tokens"]) == (1.0, 300) and "max_tokens" not in body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": None, "completion_tokens": 3},
        {"prompt_tokens": -5, "completion_tokens": 3},
        {"prompt_tokens": 3, "completion_tokens": 10**30},
        {"prompt_tokens": "11", "completion_tokens": "7"},
    ],
    ids=str,
)
async def test_what_cannot_be_a_count_is_not_known(kind: str, usage: Any) -> None:
    with ScriptedModel(Reply("At nine [Source 1].", usage=usage)) as server:
        assert await model(kind, server).chat(ASKED) == Draft("At nine [Source 1].", "gpt-4o-mini")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
async def test_half_a_character_is_none(kind: str, way: Any) -> None:
    with ScriptedModel(Reply("At \ud83d nine\0 [Source 1].")) as server:
        assert await way(model(kind, server)) == "At  nine [Source 1]."


WHOLE = {
    "id": "x",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": 'We "open" at nine [Source 1]. We close at six.'},
            "finish_reason": "stop",
        }
    ],
}
TRUNCATED = json.dumps(WHOLE).split(" at six")[0]


@pytest.mark.parametrize("kind", [*KINDS, "openai"])
@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
async def test_the_text_of_a_reply_that_is_truncated_is_told(kind: str, content_type: str) -> None:
    with ScriptedModel(Reply(body=TRUNCATED, content_type=content_type)) as server:
        draft = await model(kind, server).chat(ASKED)
        assert len(server.requests) == 1
    text = 'We "open" at nine [Source 1]. We close'
    assert draft == Draft(text, "gpt-4o-mini", None, cut_off=True, extracted=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("At nine [Source 1].", "At nine [Source 1]."),
        (json.dumps(WHOLE) + "}", 'We "open" at nine [Source 1]. We close at six.'),
        ('{"generated_text": "At nine."', "At nine."),
        ("At nine [Source 1]. Ünd mehr".encode("latin-1"), "At nine [Source 1]. \ufffdnd mehr"),
    ],
    ids=["plain", "trailing", "generated_text", "latin-1"],
)
async def test_the_text_of_a_reply_that_is_no_json_is_told(
    kind: str, content_type: str, body: str | bytes, text: str
) -> None:
    if isinstance(body, bytes) and content_type == "text/plain":
        body = body.decode("latin-1").replace("Ü", "\ufffd")  # decoded by the SDK, as it thinks right
    with ScriptedModel(Reply(body=body, content_type=content_type)) as server:
        draft = await model(kind, server).chat(ASKED)
    assert draft == Draft(text, "gpt-4o-mini", None, cut_off=False, extracted=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content_type", ["application/json", "text/html"])
@pytest.mark.parametrize(
    "body", ["", "<html><body>Sign in. [Source 1]</body></html>", "no healthy upstream", '{"error": "No text."']
)
async def test_a_broken_reply_without_an_answer_is_malformed(kind: str, content_type: str, body: str) -> None:
    with ScriptedModel(Reply(body=body, content_type=content_type)) as server:
        with pytest.raises(ModelMalformed):
            await model(kind, server).chat(ASKED)
        assert len(server.requests) == 1


@pytest.mark.parametrize("kind", [*KINDS, "openai"])
@pytest.mark.parametrize("body", [TRUNCATED, json.dumps(WHOLE), "At nine [Source 1]."])
@pytest.mark.parametrize(("status", "error"), [(400, ModelFailed), (429, ModelLimited), (500, ModelFailed)])
async def test_nothing_is_taken_from_an_error(kind: str, body: str, status: int, error: type[ModelFailed]) -> None:
    with ScriptedModel(Reply(body=body, status=status)) as server, pytest.raises(ModelFailed) as raised:
        await model(kind, server).chat(ASKED)
    assert type(raised.value) is error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [TRUNCATED, "At nine [Source 1].", f"data: {TRUNCATED}\n\n"])
async def test_a_broken_stream_is_malformed(kind: str, body: str) -> None:
    with ScriptedModel(Reply(body=body, content_type="text/event-stream")) as server, pytest.raises(ModelMalformed):
        await streamed(model(kind, server))


def both(first: ScriptedModel, second: ScriptedModel, kind: str = "openai_like", **more: Any) -> WithFallback:
    """`more` is of the first."""
    return WithFallback(model(kind, first, name="first", **more), model("openai_like", second, name="second"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("reply", "requests"),
    [
        (Reply(status=429), 1),
        (Reply(status=401), 1),
        (Reply(status=503), 2),
        (Reply(malformed=True), 1),
        (Reply(" "), 1),
        (None, 2),
    ],
    ids=["429", "401", "503", "malformed", "no-text", "silent"],
)
async def test_a_fallback_is_asked_where_the_first_has_failed(
    kind: str, way: Any, reply: Reply | None, requests: int, impatient: Impatient
) -> None:
    with ScriptedModel(reply or impatient.silent) as first, ScriptedModel(FINE) as second:
        assert await way(both(first, second, kind)) == FINE.text
        assert (len(first.requests), len(second.requests)) == (requests, 1)


async def test_a_draft_says_who_wrote_it_and_with_what_limits() -> None:
    with ScriptedModel(Reply(status=500), Reply(status=500), FINE) as first, ScriptedModel(FINE) as second:
        asked = both(first, second)
        drafts = [await asked.chat(ASKED, max_tokens=9, temperature=0.7) for _ in range(2)]
        last = [piece async for piece in asked.stream(ASKED, max_tokens=9, temperature=0.7)][-1]
        assert asked.name == "first" and isinstance(last, Draft)
        assert [draft.model for draft in (*drafts, last)] == ["second", "first", "first"]
        for request in (*first.requests, *second.requests):
            assert (request.body["max_tokens"], request.body["temperature"]) == (9, 0.7)


@pytest.mark.parametrize("way", WAYS)
async def test_where_both_fail_the_first_has_the_say(way: Any) -> None:
    with ScriptedModel(Reply(status=429)) as first, ScriptedModel(Reply(malformed=True)) as second:
        with pytest.raises(ModelLimited, match=r"^first: ") as raised:
            await way(both(first, second))
        assert (len(first.requests), len(second.requests)) == (1, 1)
    (note,) = raised.value.__notes__
    assert note.startswith("and second, asked instead: ModelMalformed(")
    assert isinstance(raised.value.__context__, ModelMalformed)


async def test_two_silent_models_take_the_sum_of_their_times(impatient: Impatient) -> None:
    with ScriptedModel(impatient.silent) as first, ScriptedModel(impatient.silent) as second:
        one, other = (model("openai_like", server, name=name) for name, server in (("1", first), ("2", second)))
        with pytest.raises(ModelTimeout, match=r"^1: "):
            await WithFallback(one, other).chat(ASKED)
        assert (len(first.requests), len(second.requests)) == (2, 2), "each has its own time for each request"


@pytest.mark.parametrize("which", ["first", "second"])
async def test_who_stops_listening_hangs_up_on_either(which: str) -> None:
    slow, failing = Reply("a b c d", go_on=threading.Event()), Reply(status=429)
    with (
        ScriptedModel(slow if which == "first" else failing) as first,
        ScriptedModel(slow if which == "second" else failing) as second,
    ):
        stream = both(first, second).stream(ASKED)
        assert await anext(stream) == "a "
        await stream.aclose()
        heard = first if which == "first" else second
        while not heard.hung_up:
            await asyncio.sleep(0.01)
        assert len(second.requests) == (which == "second")


async def test_who_is_cancelled_asks_no_second_model() -> None:
    with ScriptedModel(Reply("late", delay_s=300)) as first, ScriptedModel(FINE) as second:
        waiting = asyncio.create_task(both(first, second).chat(ASKED))
        while not first.requests:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not second.requests


def test_what_was_abandoned_is_estimated() -> None:
    assert estimate_usage("", "") == Usage(0, 0)
    usage = estimate_usage("When do you open? " * 400, "We open at nine [Source 1].")
    assert usage.input_tokens == 400 * 5 and 7 <= usage.output_tokens <= 12
