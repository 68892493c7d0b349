"""Streamed answers with everything real behind them but the model, which is a server that answers by script."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.contract.test_rag_retrieval import ANSWER, INSUFFICIENT
from tests.contract.test_streaming import STREAM, Told, events, parsed
from tests.integration.service import bearer, configured, forget_public, prepare, served
from tests.integration.test_api_end_to_end import NOT_THERE, PLANS, load, variables
from tests.liar import heard, liar
from tests.scripted_model import Reply, Script, ScriptedModel, marker_of
from tests.waiting import wait_for

COSTS = "It costs 480 euros a year. {plans} Ada likes the yearly plan {ada}. Let me know if you need more."
SAID = "It costs 480 euros a year [Source 1]. Ada likes the yearly plan [Source 2]. Let me know if you need more."


def costs(body: dict[str, Any], then: str = "", **more: Any) -> Reply:
    """What it costs, with the numbers that the two sources have in the prompt."""
    plans, ada = marker_of(body, "480 euros"), marker_of(body, "Ada said").replace("]", ", 99]")
    return Reply(COSTS.format(plans=plans, ada=ada) + then, **more)


class Asked:
    """The application, answering with the model that the test scripts."""

    def __init__(self, client: httpx.Client, model: ScriptedModel, ada: UUID) -> None:
        self.client, self.model, self.ada = client, model, ada

    def script(self, *replies: Script) -> None:
        self.model.requests.clear()
        self.model.hung_up.clear()
        self.model.script = list(replies)

    def request(self, text: str = PLANS, path: str = ANSWER[0]) -> dict[str, Any]:
        headers = {**STREAM, **bearer(self.ada)}
        return {"method": "POST", "url": path, "json": {"query_text": text}, "headers": headers}

    def plain(self, text: str = PLANS) -> dict[str, Any]:
        response = self.client.post(ANSWER[0], json={"query_text": text}, headers=bearer(self.ada))
        assert response.status_code == 200
        body: dict[str, Any] = response.json()
        return body

    def told(self, text: str = PLANS, path: str = ANSWER[0]) -> Told:
        return events(self.client.request(**self.request(text, path)))


@pytest.fixture(scope="module")
def asked(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("streaming")
    with ScriptedModel() as model, configured(variables(database_urls, default_store, folder, qdrant_folder)) as patch:
        _, _, ada = prepare(lambda application: load(application, folder))
        model_settings = {"RAG_LLM": "openai_like", "RAG_LLM_API_BASE": model.url, "RAG_LLM_API_KEY": "key"}
        for name, value in {**model_settings, "RAG_LLM_BACKOFF": "0", "RAG_LLM_TIMEOUT": "300"}.items():
            patch.setenv(name, value)
        with served() as client:
            yield Asked(client, model, ada)
        prepare(forget_public)


def comparable(body: dict[str, Any]) -> dict[str, Any]:
    """Without what no two answers have in common."""
    answer = {name: value for name, value in body["answer"].items() if name != "generated_at"}
    return {**body, "answer": answer, "processing_time_ms": None}


@pytest.mark.parametrize("path", ANSWER)
def test_a_model_is_heard_sentence_by_sentence(path: str, asked: Asked) -> None:
    asked.script(costs)
    told = asked.told(path=path)
    assert [name for name, _ in told] == ["meta", "sources", "delta", "delta", "delta", "citations", "done"]
    texts = [data["text"] for name, data in told if name == "delta"]
    assert "".join(texts) == SAID and texts[0] == "It costs 480 euros a year [Source 1]."
    plain = asked.plain()
    assert comparable(told[-1][1]) == comparable(plain) and plain["answer"]["text"] == SAID
    assert told[-2][1] == plain["citations"] and len(plain["citations"]) == 2
    cited = {each["source_id"] for each in plain["citations"]}
    assert cited <= {each["source_id"] for each in told[1][1]}
    assert [request.body.get("stream", False) for request in asked.model.requests] == [True, False]


def test_a_liar_is_not_heard(asked: Asked) -> None:
    asked.script(partial(liar, "knowledge_answer"))
    told, plain = asked.told(), asked.plain()
    assert told[-1][1]["answer"]["text"] == plain["answer"]["text"] and plain["removed_sentences"] > 20
    assert not heard("knowledge_answer", plain["answer"]["text"], asked.model.requests[-1].body)


def test_the_first_sentence_is_there_while_the_model_still_writes(asked: Asked) -> None:
    go_on = threading.Event()
    asked.script(partial(costs, go_on=go_on))
    text = ""
    with asked.client.stream(**asked.request()) as response:
        for piece in response.iter_text():
            text += piece
            if "event: delta" in text:
                go_on.set()
    assert text.count("event: delta") == 3
    assert parsed(text)[-1][0] == "done"


@pytest.mark.parametrize(
    ("reply", "until"),
    [(partial(costs, go_on=threading.Event()), "event: delta"), (partial(costs, delay_s=300), "event: sources")],
    ids=["while it writes", "while it thinks"],
)
def test_who_leaves_takes_the_models_request_along(reply: Script, until: str, asked: Asked) -> None:
    asked.script(reply)
    with asked.client.stream(**asked.request()) as response:
        pieces, text = response.iter_text(), ""  # by its name kept open, also when it is left
        while until not in text:
            text += next(pieces)
        assert wait_for(lambda: len(asked.model.requests) == 1) and not asked.model.hung_up
    assert wait_for(lambda: len(asked.model.hung_up) == 1)


@pytest.mark.parametrize(
    ("reply", "code", "deltas"),
    [
        (Reply(status=429), "model_rate_limited", 0),
        (Reply(status=401), "model_failed", 0),
        (Reply(malformed=True), "model_failed", 0),
        (partial(costs, then=" And so on." * 20, cut=True), "model_failed", 1),
    ],
    ids=["limited", "forbidden", "malformed", "cut"],
)
def test_a_model_that_fails_ends_the_stream_with_an_error(reply: Script, code: str, deltas: int, asked: Asked) -> None:
    asked.script(reply)
    response = asked.client.request(**asked.request())
    told = events(response)
    names = [name for name, _ in told]
    assert names[:2] == ["meta", "sources"] and names[-1] == "error" and "done" not in names
    assert bool(deltas) == ("delta" in names)
    error = told[-1][1]
    assert error["error"]["code"] == code and error["request_id"] == response.headers["x-request-id"]


def test_what_is_refused_is_never_seen(asked: Asked) -> None:
    asked.script(Reply("It is very cheap. Really cheap. So they say."))
    told = asked.told()
    assert [data["text"] for name, data in told if name == "delta"] == [INSUFFICIENT]
    assert comparable(told[-1][1]) == comparable(asked.plain())
    asked.script(costs)
    told = asked.told(NOT_THERE)
    assert [data["text"] for name, data in told if name == "delta"] == [INSUFFICIENT]
    assert not asked.model.requests
