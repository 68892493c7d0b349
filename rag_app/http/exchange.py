"""The state of one request: its id, its clock, response headers, and the actions at its end."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, cast
from urllib.parse import quote
from uuid import uuid4

from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.types import HTTPReceiveMessage, HTTPScope, Message, Receive, Scope, Send

from rag_app.telemetry import observing

REQUEST_ID_HEADER = "X-Request-ID"

logger = logging.getLogger("rag_app.http")

SECONDS_FOR_BODY = 30.0
"""Waited for the body of a request: 1 MB at the speed of a slow line. What we do meanwhile, as letting a caller in on a
busy server, does not count."""

_SECONDS_UNWATCHED = 0.1  # a watch costs as much as a short request does
_LARGEST_REST = 1_000_000  # bytes
_SECONDS_FOR_REST = 1.0

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(slots=True)
class Exchange:
    """One request and its response. `headers` are added to any response, also to an error.

    `closing` run in reverse order just before the response's last bytes are sent, so they are done for a client that has
    read the whole response. They always run, also if the client has left.
    `count` takes further places of the caller's rate limit, where the request costs more than one. `seconds_for_body`
    is how long we wait for its body.
    """

    request_id: str
    headers: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=perf_counter)
    closing: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    count: Callable[[int], Awaitable[None]] = field(default=lambda _: asyncio.sleep(0))
    seconds_for_body: float = field(default_factory=lambda: SECONDS_FOR_BODY)
    status: int | None = None
    _closed: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def elapsed_ms(self) -> int:
        return round((perf_counter() - self.started) * 1000)

    async def close(self) -> None:
        """Run `closing`, once. Cancelling a waiting caller does not stop it."""
        if self.closing and self._closed is None:
            self._closed = asyncio.create_task(self._run_closing())
        if self._closed is not None:
            await asyncio.shield(self._closed)

    async def _run_closing(self) -> None:
        for callback in reversed(self.closing):
            try:
                await callback()
            except Exception:
                logger.exception("a task at the end of the request failed")


def begin(scope: Scope) -> Exchange:
    """Use the caller's request id if it is safe in a log line, else create one."""
    given = Headers.from_scope(scope).get(REQUEST_ID_HEADER, "")
    request_id = given if _SANE_ID.fullmatch(given) else uuid4().hex
    observing.begin(request_id)
    begun = scope.setdefault("state", {})["exchange"] = Exchange(request_id, {REQUEST_ID_HEADER: request_id})
    return begun


def exchange(scope: Scope) -> Exchange:
    return cast(Exchange, scope["state"]["exchange"])


async def finish(message: Message, scope: Scope) -> None:
    """Litestar's `before_send`: add the headers, allow HEAD with GET, and write the access log as the response starts."""
    if message["type"] != "http.response.start" or scope["type"] != ScopeType.HTTP:
        return
    current = exchange(scope)
    current.status = message["status"]
    message["headers"] = [
        *((name, _with_head(value) if name == b"allow" else value) for name, value in message.get("headers", ())),
        *((name.lower().encode(), value.encode()) for name, value in current.headers.items()),
    ]
    path = quote(scope["path"])  # a line break in it would be a line of the log
    logger.info("%s %s %d in %d ms", scope["method"], path, message["status"], current.elapsed_ms)


def _with_head(allowed: bytes) -> bytes:
    """The methods of an `Allow` header, with HEAD where there is GET.

    >>> _with_head(b"OPTIONS, GET"), _with_head(b"POST")
    (b'GET, HEAD, OPTIONS', b'POST')
    """
    methods = {each.strip() for each in allowed.split(b",")}
    return b", ".join(sorted(methods | {b"HEAD"} if b"GET" in methods else methods))


class Client:
    """The client of a request. If it leaves before the response has started, the work is cancelled.

    Watching starts when the work takes unusually long and the request has been read completely (a GET or HEAD without a
    body is). It cannot start before: while a body is due, Granian answers a second concurrent `receive` with a disconnect
    that has not happened. A streamed response that later waits for a disconnect shares the watch.
    """

    def __init__(self, scope: HTTPScope, receive: Receive, send: Send, current: Exchange) -> None:
        self._scope, self._receive, self._send, self._exchange = scope, receive, send, current
        announced = Headers.from_scope(scope)  # which few do with a GET
        has_body = announced.get("content-length", "0") != "0" or "transfer-encoding" in announced
        self._has_no_body = self._is_read = scope["method"] in {"GET", "HEAD"} and not has_body
        self._takes_long = self._response_started = self._has_gone = False
        self._waited = 0.0  # seconds, for the body
        self._worker: asyncio.Task[Any] | None = None
        self._leaving: asyncio.Task[HTTPReceiveMessage] | None = None

    async def attend(self, work: Awaitable[None]) -> None:
        """Wait until the work has ended or the client has left."""
        self._worker = asyncio.current_task()
        patience = asyncio.get_running_loop().call_later(_SECONDS_UNWATCHED, self._watch)
        try:
            await work
        except asyncio.CancelledError:
            if not self._has_gone or self._worker is None or self._worker.uncancel() > 0:
                raise  # the server stops
            method, path = self._scope["method"], quote(self._scope["path"])
            logger.info("%s %s given up after %d ms: the client has gone", method, path, self._exchange.elapsed_ms)
        finally:
            patience.cancel()
            if self._leaving is not None:
                self._leaving.cancel()

    async def receive(self) -> HTTPReceiveMessage:
        """`receive` for the application."""
        if self._has_no_body:
            self._has_no_body = False
            return {"type": "http.request", "body": b"", "more_body": False}
        if self._is_read:
            return await asyncio.shield(self._disconnect())
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._exchange.seconds_for_body - self._waited):
                message = cast(HTTPReceiveMessage, await self._receive())
        except TimeoutError:
            raise HTTPException(status_code=408) from None
        self._waited += clock() - began
        if message["type"] == "http.disconnect":  # in the middle of its request
            self._give_up()
            await asyncio.sleep(0)  # where that takes effect: half a body is nothing to go on with
        elif not message.get("more_body"):
            self._is_read = True
            if self._takes_long:
                self._disconnect()
        return message

    async def send(self, message: Message) -> None:
        """`send` for the application."""
        if message["type"] == "http.response.start":
            self._response_started = True
            if not self._is_read and not await self._read_rest():
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        elif message["type"] == "http.response.body":
            if not message.get("more_body"):
                await self._exchange.close()
            if self._scope["method"] == "HEAD":
                message = {**message, "body": b""}
        await self._send(message)

    async def _read_rest(self) -> bool:
        """Read the rest of a refused body, if it is small.

        Granian closes a connection with unread data, and a client with keep-alive would notice only at its next request.
        """
        left = _LARGEST_REST
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS_FOR_REST):
                while left > 0 and not self._is_read:
                    message = cast(HTTPReceiveMessage, await self._receive())
                    if message["type"] == "http.disconnect":
                        break
                    left -= len(message.get("body", b""))
                    self._is_read = not message.get("more_body")
        return self._is_read

    def _watch(self) -> None:
        self._takes_long = True
        if self._is_read:
            self._disconnect()

    def _disconnect(self) -> asyncio.Task[HTTPReceiveMessage]:
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._receive_disconnect())
            self._leaving.add_done_callback(lambda task: task.cancelled() or task.exception())  # asyncio would log it
        return self._leaving

    async def _receive_disconnect(self) -> HTTPReceiveMessage:
        while (message := cast(HTTPReceiveMessage, await self._receive()))["type"] != "http.disconnect":
            pass  # a body that nobody asked for
        self._give_up()
        return message

    def _give_up(self) -> None:
        if not self._response_started and self._worker is not None:
            self._has_gone = True
            self._worker.cancel()
