"""A chat-completions server that answers by script, on a real port.

    with ScriptedModel(Reply("First [Source 1]."), Reply(status=503)) as server:
        ...  # point a client at server.url
        assert len(server.requests) == 2

Replies are given in order and the last one for ever; a function of the request's body may stand for a reply.
It speaks plain JSON and, where the request says so, server-sent events, on any path below `server.url`.
"""

import asyncio
import json
import re
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@dataclass(frozen=True)
class Reply:
    """What the server does with one request. `cut`: the connection is dropped half-way through the answer.

    It waits `delay_s` before the answer, and `pace_s` before each word of a streamed one. The answer waits for `go_on`; of
    a streamed one the second half. `body`: exactly this is sent, whatever was asked for, as `content_type` and with
    `status`.
    """

    text: str = ""
    delay_s: float = 0.0
    pace_s: float = 0.0
    go_on: threading.Event | None = None
    status: int = 200
    retry_after: str | None = None
    malformed: bool = False
    empty_choices: bool = False
    cut: bool = False
    finish_reason: str = "stop"
    model: str = "scripted"
    usage: Any = field(default_factory=lambda: USAGE)
    body: str | bytes | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float

    @property
    def prompt(self) -> str:
        """All that was said to the model."""
        return "\n".join(str(message["content"]) for message in self.body["messages"])


Script = Reply | Callable[[dict[str, Any]], Reply]


class ScriptedModel:
    """`url` ends in /v1; `requests` are those received so far, `hung_up` the times at which clients left early."""

    def __init__(self, *script: Script) -> None:
        self.script = list(script) or [Reply("Scripted [Source 1].")]
        self.requests: list[Request] = []
        self.hung_up: list[float] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _next(self, request: Request) -> Reply:
        with self._lock:
            step = self.script[min(len(self.requests), len(self.script) - 1)]
            self.requests.append(request)
        return step if isinstance(step, Reply) else step(request.body)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                reply = server._next(Request(self.path, dict(self.headers), body, time.monotonic()))
                try:
                    self._wait(reply.delay_s)
                    if reply.status != 200 or not body.get("stream"):
                        self._wait_for(reply.go_on)
                    if reply.body is not None:
                        self._json(reply, reply.body)
                    elif reply.status != 200:
                        self._json(reply, json.dumps({"error": {"message": f"scripted {reply.status}"}}))
                    elif body.get("stream"):
                        self._events(reply, body)
                    else:
                        self._json(reply, '{"id": "x", "choices": [{' if reply.malformed else json.dumps(_whole(reply)))
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client gave up waiting
                    server.hung_up.append(time.monotonic())

            def _wait(self, seconds: float) -> None:
                """A client that has said all it has to say is heard only when it leaves."""
                if seconds and select.select([self.connection], [], [], seconds)[0]:
                    raise ConnectionResetError

            def _wait_for(self, go_on: threading.Event | None) -> None:
                while go_on is not None and not go_on.is_set():
                    self._wait(0.01)

            def _json(self, reply: Reply, text: str | bytes) -> None:
                content = text if isinstance(text, bytes) else text.encode()
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Content-Length", str(len(content)))
                if reply.retry_after is not None:
                    self.send_header("Retry-After", reply.retry_after)
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if reply.cut else content)
                self.close_connection = reply.cut

            def _events(self, reply: Reply, body: dict[str, Any]) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                told = [_usage_of(reply)] if body.get("stream_options", {}).get("include_usage") else []
                events = [f"data: {json.dumps(event)}\n\n" for event in [*_pieces(reply), *told]]
                if reply.malformed:
                    events = ['data: {"choices": [{\n\n']
                half = len(events) // 2
                for number, event in enumerate(events[:half] if reply.cut else [*events, "data: [DONE]\n\n"]):
                    if number == half:
                        self._wait_for(reply.go_on)
                    self._wait(reply.pace_s)
                    self._chunk(event.encode())
                if not reply.cut:
                    self._chunk(b"")
                self.close_connection = reply.cut

            def _chunk(self, content: bytes) -> None:
                self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
                self.wfile.flush()

            def log_message(self, *args: object) -> None:
                """Nothing: `requests` has it all."""

        return Handler


class Impatient:
    """`asyncio` for `rag_app.answering.models`: a timeout runs out when a server has the request and says nothing, and not
    before, however busy the machine is. `silent` stands in the script for a reply that does not come."""

    _latest: asyncio.Timeout
    _loop: asyncio.AbstractEventLoop

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        self._loop, self._latest = asyncio.get_running_loop(), asyncio.timeout(100 * seconds)
        return self._latest

    def silent(self, _: dict[str, Any]) -> Reply:
        self._loop.call_soon_threadsafe(lambda: self._latest.reschedule(self._loop.time()))
        return Reply("late", delay_s=300)


def marker_of(body: dict[str, Any], *texts: str) -> str:
    """`[Source N]` of the block in a request's prompt that holds all of these texts."""
    prompt = "\n".join(str(message["content"]) for message in body["messages"])
    blocks = re.split(r"^\[Source (\d+)\] \(Relevance", prompt, flags=re.MULTILINE)
    found = [n for n, block in zip(blocks[1::2], blocks[2::2], strict=True) if all(text in block for text in texts)]
    return f"[Source {found[0]}]"


def _whole(reply: Reply) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": reply.text},
        "finish_reason": reply.finish_reason,
    }
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": reply.model,
        "choices": [] if reply.empty_choices else [choice],
        "usage": reply.usage,
    }


def _usage_of(reply: Reply) -> dict[str, Any]:
    """The last event of a streamed reply, for who asks for it."""
    return {
        "id": "scripted",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": reply.model,
        "choices": [],
        "usage": reply.usage,
    }


def _pieces(reply: Reply) -> list[dict[str, Any]]:
    """The events of a streamed reply: a word each, then the reason it ended."""
    words = [f"{word} " for word in reply.text.split(" ")]
    words[-1] = words[-1].removesuffix(" ")
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": word}, None) for word in words]
    deltas.append(({}, reply.finish_reason))
    return [
        {
            "id": "scripted",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": reply.model,
            "choices": [] if reply.empty_choices else [{"index": 0, "delta": delta, "finish_reason": reason}],
        }
        for delta, reason in deltas
    ]
