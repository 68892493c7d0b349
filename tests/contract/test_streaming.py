"""Answers as server-sent events, over real HTTP: what comes, in which order, and what becomes of it when somebody leaves."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from litestar import Litestar
from msgspec.structs import replace

from rag_app.access.tokens import TokenReader, issue_token
from rag_app.domain.answer import Citation, Delta, Event, FoundHits, Question, Refusal
from rag_app.domain.errors import EmbeddingFailed, ModelFailed, ModelLimited
from rag_app.domain.scope import Scope
from rag_app.http import streaming
from rag_app.http.entrance import Entrance
from rag_app.http.server import api
from rag_app.surfaces.registry import SURFACES
from tests.contract.conftest import AUDIENCE, ISSUER, SECRET, Backstage, ScriptedPipeline, serve
from tests.contract.test_errors import problem
from tests.contract.test_rag_retrieval import ANSWER, ASK, INSUFFICIENT, answered, hit
from tests.waiting import PATIENCE, wait_for

STREAM = {"Accept": "text/event-stream"}

Told = list[tuple[str, Any]]


def events(response: httpx.Response) -> Told:
    """Name and data of each, after a look at the response."""
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache" and response.headers["x-accel-buffering"] == "no"
    assert set(response.headers) >= {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-request-id"}
    assert "content-length" not in response.headers
    return parsed(response.content.decode())


def parsed(text: str) -> Told:
    assert text.endswith("\n\n")
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        if lines:
            name, data = lines
            assert name.startswith("event: ") and data.startswith("data: ")
            found.append((name[7:], json.loads(data[6:])))
    return found


@pytest.mark.parametrize("path", ANSWER)
def test_an_answer_comes_in_pieces_and_then_whole(path: str, client: httpx.Client, backstage: Backstage) -> None:
    first, second = hit(0.87), hit(0.91)
    text = "It is „too dear“ [Source 1].\nSo they said.\r\n\r\nevent: done"
    backstage.pipeline.given = answered(first, second, cited=(Citation(1, first, "more than we can spend"),), text=text)
    backstage.pipeline.pieces = [text[:28], text[28:]]
    plain = client.post(path, json=ASK).json()

    response = client.post(path, json=ASK, headers=STREAM)

    told = events(response)
    assert [name for name, _ in told] == ["meta", "sources", "delta", "delta", "citations", "done"]
    [meta, sources, *deltas, citations, done] = [data for _, data in told]
    assert meta == {"request_id": response.headers["x-request-id"], "query_text": ASK["query_text"]}
    assert [each["source_id"] for each in sources] == [str(second.source_id), str(first.source_id)]
    assert [set(each) for each in sources] == [set(each) for each in plain["citations"]] * 2
    assert [set(delta) for delta in deltas] == [{"text"}] * 2
    assert "".join(delta["text"] for delta in deltas) == text
    assert citations == plain["citations"]
    assert isinstance(done.pop("processing_time_ms"), int) and plain.pop("processing_time_ms") is not None
    assert done == plain


def test_a_refusal_comes_whole(client: httpx.Client, backstage: Backstage) -> None:
    hits = [hit(score / 10) for score in range(8)]
    backstage.pipeline.given = answered(*hits, text=INSUFFICIENT, model=None, refusal=Refusal.WEAK)
    told = events(client.post(ANSWER[0], json=ASK, headers=STREAM))
    assert [name for name, _ in told] == ["meta", "sources", "delta", "citations", "done"]
    assert told[1][1] == told[3][1] and len(told[1][1]) == 5
    assert told[2][1] == {"text": INSUFFICIENT} and told[4][1]["status"] == "insufficient_context"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(EmbeddingFailed("10.0.0.7"), 500, "embedding_failed"), (ModelLimited("10.0.0.7"), 503, "model_rate_limited")],
)
def test_what_fails_before_anything_is_found_is_an_error_like_any_other(
    error: Exception, status: int, code: str, client: httpx.Client, backstage: Backstage
) -> None:
    backstage.pipeline.error = error
    response = client.post(ANSWER[0], json=ASK, headers=STREAM)
    problem(response, status, code)
    assert "10.0.0.7" not in response.text


def test_what_is_refused_before_the_question_is_asked_is_too(client: httpx.Client, anonymous: httpx.Client) -> None:
    problem(client.post(ANSWER[0], json={"query_text": ""}, headers=STREAM), 400, "invalid_request")
    problem(client.post(ANSWER[0], json=ASK, headers={**STREAM, "Authorization": ""}), 401, "unauthenticated")


@pytest.mark.parametrize("breaks_after", [0, 1])
def test_what_fails_in_the_middle_is_the_last_event(
    breaks_after: int, client: httpx.Client, backstage: Backstage, caplog: pytest.LogCaptureFixture
) -> None:
    backstage.pipeline.given, backstage.pipeline.pieces = answered(hit(0.8)), ["One. ", "Two."]
    backstage.pipeline.breaks_after = breaks_after
    response = client.post(ANSWER[0], json=ASK, headers=STREAM)
    told = events(response)
    assert [name for name, _ in told] == ["meta", "sources", *["delta"] * breaks_after, "error"]
    backstage.pipeline.error = ModelFailed("it broke")
    plain = client.post(ANSWER[0], json=ASK, headers={"X-Request-ID": response.headers["x-request-id"]})
    assert told[-1][1] == plain.json()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == ["model_failed"] * 2


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        ("text/event-stream", True),
        ("TEXT/Event-Stream; charset=utf-8", True),
        ("text/event-stream, */*", True),
        ("text/*", True),
        ("application/json;q=0.5, text/event-stream", True),
        ("text/event-stream;q=0.9, application/json;q=0.8, */*;q=0.1", True),
        ("application/json;q=0, */*", True),
        ("*/*", False),
        ("", False),
        ("application/json", False),
        ("text/html, */*;q=0.8", False),
        ("application/json, text/event-stream", False),
        ("text/event-stream;q=0.5, application/json", False),
        ("text/event-stream;q=0.5, */*", False),
        ("text/event-stream;q=0", False),
        ("text/event-stream;q=much", False),
        ("text/event-stream;q=nan", False),
        ("text/*, text/event-stream;q=0", False),
        (";;,,q=1", False),
    ],
)
def test_who_prefers_events_gets_events(accept: str, streams: bool, client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.given = answered()
    response = client.post(ANSWER[0], json=ASK, headers={"Accept": accept})
    assert response.headers["content-type"].partition(";")[0] == (
        "text/event-stream" if streams else "application/json"
    )


def test_search_has_no_events(client: httpx.Client) -> None:
    assert client.post("/api/rag/search", json=ASK, headers=STREAM).json()["results"] == []


@pytest.mark.parametrize("path", ANSWER)
def test_the_document_tells_of_the_events(path: str, client: httpx.Client) -> None:
    content = client.get("/openapi.json").json()["paths"][path]["post"]["responses"]["200"]["content"]
    assert set(content) == {"application/json", "text/event-stream"}
    told = content["text/event-stream"]
    assert told["schema"]["type"] == "string"
    [example] = told["examples"].values()
    for name in ("meta", "sources", "delta", "citations", "done"):
        assert f"`{name}`" in told["schema"]["description"] and f"event: {name}\n" in example["value"]


@dataclass
class Thinking(ScriptedPipeline):
    """Finds, says one sentence, and then thinks until it may `go_on`."""

    go_on: threading.Event = field(default_factory=threading.Event)
    closed: int = 0
    loop: asyncio.AbstractEventLoop | None = None

    async def stream(self, capability: str, question: Question, scope: Scope) -> AsyncGenerator[Event, None]:
        self.loop = asyncio.get_running_loop()
        try:
            yield FoundHits(())
            yield Delta("One [Source 1].")
            while not self.go_on.is_set():
                await asyncio.sleep(0.005)
            yield Delta(" Two.")
            yield replace(answered(), text="One [Source 1]. Two.")
        finally:
            await asyncio.sleep(0.01)  # closing takes a while
            self.closed += 1


@dataclass
class Talkative(Thinking):
    """Says more than any buffer holds, and never thinks."""

    async def stream(self, capability: str, question: Question, scope: Scope) -> AsyncGenerator[Event, None]:
        self.loop = asyncio.get_running_loop()
        try:
            yield FoundHits(())
            while True:
                await asyncio.sleep(0)
                yield Delta("word " * 10_000)
        finally:
            self.closed += 1


@dataclass
class Indirect(ScriptedPipeline):
    """Another pipeline for each test, behind one server."""

    to: Thinking = field(default_factory=Thinking)

    def stream(self, capability: str, question: Question, scope: Scope) -> AsyncGenerator[Event, None]:
        return self.to.stream(capability, question, scope)


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[Backstage, str]]:
    backstage = Backstage()
    backstage.pipeline = Indirect()
    app: Litestar = api(
        backstage.services(),
        backstage.access(),
        Entrance(TokenReader(SECRET, AUDIENCE, ISSUER)),
        SURFACES,
        version="0.0.test",
    )
    with serve(app) as url:
        yield backstage, url


def token() -> dict[str, str]:
    return {"Authorization": f"Bearer {issue_token('ada', SECRET, audience=AUDIENCE, issuer=ISSUER)}"}


def tasks(pipeline: Thinking) -> set[str]:
    """Names of the coroutines of rag_app, and of generators being closed, that run in the server's loop."""
    assert pipeline.loop is not None
    found: list[set[str]] = []
    done = threading.Event()

    def look() -> None:
        running = [task.get_coro() for task in asyncio.all_tasks(pipeline.loop)]
        names = {f"{getattr(getattr(each, 'cr_code', None), 'co_filename', 'generator')}:{each}" for each in running}
        found.append({name for name in names if "/rag_app/" in name or name.startswith("generator")})
        done.set()

    pipeline.loop.call_soon_threadsafe(look)
    assert done.wait(PATIENCE)
    return found[0]


@pytest.mark.parametrize("kind", [Thinking, Talkative])
def test_when_the_client_leaves_the_work_stops_at_once(
    kind: type[Thinking], stage: tuple[Backstage, str], caplog: pytest.LogCaptureFixture
) -> None:
    backstage, url = stage
    pipeline = backstage.pipeline.to = kind()  # type: ignore[attr-defined]
    backstage.limiter.counts.clear()
    with httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client:
        for _ in range(3):
            pipeline.closed = 0
            with client.stream("POST", ANSWER[0], json=ASK, headers={**STREAM, **token()}) as response:
                pieces, text = response.iter_text(), ""  # by its name kept open, also when it is left
                while "event: delta" not in text:
                    text += next(pieces)
                assert any("_write" in name for name in tasks(pipeline))
                assert [name for name, _ in parsed(text[: text.rindex("\n\n") + 2])][:2] == ["meta", "sources"]
            assert wait_for(lambda: pipeline.closed == 1)
    assert wait_for(lambda: not tasks(pipeline))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_while_the_model_thinks_the_connection_is_kept(
    stage: tuple[Backstage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE", 0.05)
    backstage, url = stage
    pipeline = backstage.pipeline.to = Thinking()  # type: ignore[attr-defined]
    text = ""
    with (
        httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client,
        client.stream("POST", ANSWER[0], json=ASK, headers={**STREAM, **token()}) as response,
    ):
        for piece in response.iter_text():
            text += piece
            if text.count("\n\n: keep-alive\n\n") >= 2:
                pipeline.go_on.set()
    assert [name for name, _ in parsed(text)] == ["meta", "sources", "delta", "delta", "citations", "done"]


def test_sentences_arrive_while_the_model_goes_on(stage: tuple[Backstage, str]) -> None:
    backstage, url = stage
    pipeline = backstage.pipeline.to = Thinking()  # type: ignore[attr-defined]
    with (
        httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client,
        client.stream("POST", ANSWER[0], json=ASK, headers={**STREAM, **token()}) as response,
    ):
        text = ""
        for piece in response.iter_text():
            text += piece
            if "One" in text:
                pipeline.go_on.set()
    assert "Two" in text
