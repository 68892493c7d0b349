"""Streams answers as server-sent events. docs/streaming.md describes them for clients.

meta       {"request_id": ..., what the surface adds}
sources    the sources for the answer, in the surface's own shape
delta      {"text": ...}: whole sentences, their citations checked; joined they are the answer's text
citations  as in the plain response
done       the plain response
error      the plain error's body; nothing follows it
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from litestar import Response
from litestar.openapi.spec import Example, OpenAPIMediaType, Operation, Parameter, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.serialization import encode_json
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Struct

from rag_app.domain import Answer, Delta, Event, FoundHits, Hit, InvalidInput, JsonObject
from rag_app.http.exchange import exchange
from rag_app.http.problems import AnyRequest

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE = 15.0
"""Seconds between two comments: proxies close connections on which nothing is said for a minute."""

RESUMABLE = "resumable"
"""In the header `Prefer`: the stream goes on without its client, who may come back to it."""

PREFER_RESUMABLE = Parameter(
    "Prefer",
    "header",
    Schema(type=OpenAPIType.STRING),
    f"`{RESUMABLE}`: a stream goes on after the client has disconnected, and its events have an `id`",
    required=False,
)
LAST_EVENT_ID = Parameter(
    "Last-Event-ID",
    "header",
    Schema(type=OpenAPIType.STRING),
    "the `id` of the last event that was received; without it, all events are sent",
    required=False,
)

_HEADERS = {
    "Content-Type": f"{MEDIA_TYPE}; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # for nginx, which collects a response
}
_QUALITY = re.compile(r";\s*q\b(?:\s*=\s*(\d*\.?\d+|\d+\.)\s*(?:;|$))?")  # empty where it is no number: not wanted
_SAMPLE = """\
event: meta
data: {"request_id":"5b1f0c9e"}

event: sources
data: [...]

event: delta
data: {"text":"They find the yearly plan too expensive [Source 1]."}

event: citations
data: [...]

event: done
data: {...}
"""


def wants_stream(request: AnyRequest) -> bool:
    """Whether the caller prefers events to JSON. Without a preference the answer is JSON."""
    accepted = ",".join(request.headers.getall("accept", []))
    wanted = _preference(accepted, MEDIA_TYPE)
    return wanted[0] > 0 and wanted > _preference(accepted, "application/json")


async def event_stream(
    request: AnyRequest,
    events: AsyncGenerator[Event, None],
    *,
    meta: JsonObject,
    sources: Callable[[tuple[Hit, ...]], Any],
    citations: Callable[[Answer], Any],
    body: Callable[[Answer], Struct],
    keep: "Callable[[Resumable], None] | None" = None,
) -> Response[Any]:
    """A streamed answer in the shapes of a surface: `body` makes the plain response.

    An error before the first event is raised here and becomes an ordinary error response. When the client leaves,
    `events` is closed at once, unless `keep` lets the stream continue.
    """
    first = await anext(events)

    async def name_events() -> AsyncGenerator[tuple[str, Any], None]:
        yield "meta", {"request_id": exchange(request.scope).request_id, **meta}
        event = first
        while not isinstance(event, Answer):
            match event:
                case FoundHits(hits):
                    yield "sources", sources(hits)
                case Delta(text):
                    yield "delta", {"text": text}
            event = await anext(events)
        yield "citations", citations(event)
        yield "done", body(event)

    frames = _frames(request, name_events())
    if keep is None:
        return _EventStream(frames, events)
    resumable = Resumable(frames, events)
    keep(resumable)
    return resumable.response()


class Resumable:
    """A stream that is written with or without a reader, until it ends or is stopped. Its events have an `id`: 1, 2, ...
    A client that lost it resumes after its last event."""

    def __init__(self, frames: AsyncGenerator[bytes, None], events: AsyncGenerator[Event, None]) -> None:
        self._kept: list[bytes] = []
        self._news = asyncio.Event()
        self.writing = asyncio.create_task(self._write(frames, events))

    def resume(self, after: str) -> Response[Any]:
        """`response` after the event with this id; empty: all events. Raises InvalidInput if no event has the id."""
        known = after.isascii() and after.isdigit() and len(after) < 9
        if after and not (known and int(after) <= len(self._kept)):
            raise InvalidInput(
                "Last-Event-ID", after, f"must be the id of an event of this answer: 1 to {len(self._kept)}"
            )
        return self.response(int(after or 0))

    def response(self, after: int = 0) -> Response[Any]:
        """The events after this one, and those to come; at the end of a stream its last event once more."""
        reading = self.read(after)
        return _EventStream(reading, reading)

    async def read(self, after: int = 0) -> AsyncGenerator[bytes, None]:
        at = after
        while True:
            news = self._news
            while at < len(self._kept):
                yield self._kept[at]
                at += 1
            if self.writing.done():
                if at == after and not self.writing.cancelled():
                    yield self._kept[-1]  # or a stream that is whole would seem incomplete
                return
            if news is self._news:
                await news.wait()

    async def stop(self) -> None:
        """Stop writing. Returns after the text so far is stored."""
        self.writing.cancel()
        await asyncio.wait({self.writing})

    async def _write(self, frames: AsyncGenerator[bytes, None], events: AsyncGenerator[Event, None]) -> None:
        try:
            async with aclosing(events), aclosing(frames):
                async for frame in frames:
                    self._kept.append(b"id: %d\n%b" % (len(self._kept) + 1, frame))
                    self._tell()
        finally:
            asyncio.get_running_loop().call_soon(self._tell)  # when this task is done

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def prefers(request: AnyRequest, preference: str) -> bool:
    """Whether the caller states this preference (RFC 7240)."""
    said = ",".join(request.headers.getall("prefer", []))
    return preference in (each.partition(";")[0].strip().lower() for each in said.split(","))


def progress_stream(request: AnyRequest, events: AsyncGenerator[tuple[str, Struct], None]) -> Response[Any]:
    """A response of events by name."""
    return _EventStream(_frames(request, events), events)


async def _frames(request: AnyRequest, events: AsyncGenerator[tuple[str, Any], None]) -> AsyncGenerator[bytes, None]:
    """An error becomes the event `error`, the last one."""
    try:
        async with aclosing(events):
            async for name, data in events:
                yield _frame(name, data)
    except Exception as error:
        handle: Any = request.app.exception_handlers[Exception]  # the one of plain errors, which also logs
        yield _frame("error", handle(request, error).content)


@dataclass
class StreamedOperation(Operation):
    """The OpenAPI operation of a handler that also streams: `@post(..., operation_class=StreamedOperation)`."""

    def __post_init__(self) -> None:
        succeeded: Any = (self.responses or {})["200"]
        succeeded.content[MEDIA_TYPE] = OpenAPIMediaType(
            schema=Schema(
                type=OpenAPIType.STRING,
                description=(
                    f"With `Accept: {MEDIA_TYPE}`: the events `meta`, `sources`, `delta` (any number), `citations` and "
                    "`done`, whose data is the JSON response; or `error`, whose data is that of an error response."
                ),
            ),
            examples={"answer": Example(value=_SAMPLE)},
        )


class _EventStream(Response[Any]):
    """Litestar's own streaming response leaves its generator to the garbage collector when the client leaves."""

    def __init__(self, frames: AsyncGenerator[bytes, None], events: AsyncGenerator[Any, None]) -> None:
        super().__init__(None, headers=_HEADERS)
        self._frames, self._events = frames, events

    def to_asgi_response(  # type: ignore[override]
        self, app: None, request: AnyRequest, *, headers: dict[str, str] | None = None, **_: Any
    ) -> ASGIApp:
        self.headers = {**(headers or {}), **self.headers}
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        async with aclosing(self._events), aclosing(self._frames):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send_body(send, receive)

    async def _send_body(self, send: Send, receive: Receive) -> None:
        writing, leaving = asyncio.create_task(self._write(send)), asyncio.create_task(_wait_for_disconnect(receive))
        tasks = {writing, leaving}
        try:
            while not (await asyncio.wait(tasks, timeout=KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED))[0]:
                await _send(send, b": keep-alive\n\n")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if leaving.cancelled():  # what goes wrong in writing to somebody who has left is nobody's concern
            writing.result()

    async def _write(self, send: Send) -> None:
        async for frame in self._frames:
            await _send(send, frame)
        await _send(send, b"", more=False)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, content: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": more})


def _frame(event: str, data: Any) -> bytes:
    """
    >>> _frame("delta", {"text": "one line\\nanother"})
    b'event: delta\\ndata: {"text":"one line\\\\nanother"}\\n\\n'
    """
    return b"event: %b\ndata: %b\n\n" % (event.encode(), encode_json(data))


def _preference(accepted: str, media_type: str) -> tuple[float, int]:
    """The quality (0 to 1) that an Accept header gives a type by its most specific matching range, and that specificity.

    >>> _preference("text/*;q=0.5, */*", "text/event-stream"), _preference("", "application/json")
    ((0.5, 1), (0.0, 0))
    """
    best = (0.0, 0)
    ranges = ["*/*", media_type.partition("/")[0] + "/*", media_type]
    for each in accepted.lower().split(","):
        name = each.partition(";")[0].strip()
        if name in ranges and ranges.index(name) >= best[1]:
            given = _QUALITY.search(each)
            best = (1.0 if given is None else min(1.0, float(given[1] or 0)), ranges.index(name))
    return best
