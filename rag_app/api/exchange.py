"""What one request carries along: its id, its clock and the headers of its response."""

import logging
import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast
from urllib.parse import quote
from uuid import uuid4

from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.types import Message, Scope

REQUEST_ID_HEADER = "X-Request-ID"

logger = logging.getLogger("rag_app.api")

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_request_id: ContextVar[str] = ContextVar("rag_app_request_id", default="-")


@dataclass(slots=True)
class Exchange:
    """One request and its response. `headers` are put on the response whatever it turns out to be."""

    request_id: str
    headers: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=perf_counter)

    @property
    def elapsed_ms(self) -> int:
        return round((perf_counter() - self.started) * 1000)


def begin(scope: Scope) -> None:
    """Take the caller's request id if it can stand in a log line, else make one."""
    given = Headers.from_scope(scope).get(REQUEST_ID_HEADER, "")
    request_id = given if _SANE_ID.fullmatch(given) else uuid4().hex
    _request_id.set(request_id)
    scope.setdefault("state", {})["exchange"] = Exchange(request_id, {REQUEST_ID_HEADER: request_id})


def exchange(scope: Scope) -> Exchange:
    return cast(Exchange, scope["state"]["exchange"])


async def finish(message: Message, scope: Scope) -> None:
    """Litestar's `before_send`: add the headers and write the access log as the response starts."""
    if message["type"] != "http.response.start" or scope["type"] != ScopeType.HTTP:
        return
    current = exchange(scope)
    added = ((name.lower().encode(), value.encode()) for name, value in current.headers.items())
    message["headers"] = [*message.get("headers", ()), *added]
    path = quote(scope["path"])  # a line break in it would be a line of the log
    logger.info("%s %s %d in %d ms", scope["method"], path, message["status"], current.elapsed_ms)


class RequestIds(logging.Filter):
    """Gives every log record, of whatever module, the id of the request it belongs to: `%(request_id)s`."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = _request_id.get()
        return True
