"""Reads bodies that are too large for memory or contain files: piece by piece, within limits.

A file is written to our own folder under our own name. The client's file name is kept as text, without a path.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from litestar import Request
from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from rag_app.domain import InvalidInput, frozen
from rag_app.http.exchange import exchange

AnyRequest = Request[Any, Any, Any]

_HEADER = 4096  # bytes, of a header of a part
_HEADERS = 8  # a part
_FIELDS = 20  # parts of a form that are no files
_FIELD = 1_000_000  # bytes of a field that is no file
_LONGEST_NAME = 255  # characters of a file's name
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class BodyTooLarge(InvalidInput):
    """A body, or a part of it, is larger than allowed."""


@frozen
class BodyLimits:
    """`size` in bytes, of the whole body; `documents` or files in it; `seconds` that we wait for it.

    A body of more than `at_once` bytes becomes a job.
    """

    size: int
    documents: int
    seconds: float
    at_once: int = 1_000_000


@frozen
class ReceivedFile:
    """`name` is the client's, for people; `path` is the file's place."""

    name: str | None
    media_type: str
    path: Path


@dataclass(slots=True)
class Form:
    """`fields` by name, the last one where there are several."""

    fields: dict[str, str] = field(default_factory=dict)
    files: list[ReceivedFile] = field(default_factory=list)


async def receive_body(request: AnyRequest, allowed: BodyLimits) -> bytes:
    """The whole body. Raises BodyTooLarge."""
    return b"".join([piece async for piece in _pieces(request, allowed)])


async def receive_form(request: AnyRequest, allowed: BodyLimits, folder: Path) -> Form:
    """A `multipart/form-data` body; files are written below `folder`. Raises BodyTooLarge, InvalidInput."""
    _, options = parse_options_header(request.headers.get("content-type", ""))
    form, text = Form(), bytearray()
    segment: Any = None
    write: Callable[[bytes], object]
    try:
        parser = PushMultipartParser(
            options.get("boundary", ""),
            max_header_size=_HEADER,
            max_header_count=_HEADERS,
            max_segment_count=allowed.documents + _FIELDS,
            strict=True,
        )
        with ExitStack() as writing:
            async for piece in _pieces(request, allowed):
                for event in parser.parse(piece):
                    if isinstance(event, MultipartSegment):
                        segment, text = event, bytearray()
                        write = text.extend
                        if segment.filename is not None:
                            media_type = str(segment.header("Content-Type", "") or "")[:200]
                            form.files.append(
                                ReceivedFile(file_name(segment.filename), media_type, folder / uuid4().hex)
                            )
                            write = writing.enter_context(form.files[-1].path.open("xb")).write
                    elif event:
                        write(event)
                    elif segment.filename is None:
                        form.fields[segment.name] = text.decode()
                    else:
                        writing.close()
                    if len(form.files) > allowed.documents:
                        problem = f"The form has more than {allowed.documents} files (RAG_UPLOAD_DOCUMENTS)"
                        raise BodyTooLarge("", None, problem)
                    if len(text) > _FIELD:
                        raise BodyTooLarge(segment.name[:100], None, f"must not be longer than {_FIELD:,} bytes")
        parser.close()
    except ParserLimitReached:
        raise BodyTooLarge(
            "", None, f"The form has more than {_FIELDS} fields, or the headers of a part are too long"
        ) from None
    except MultipartError as error:
        raise InvalidInput("", None, f"The body is not valid multipart/form-data: {error}") from None
    except UnicodeDecodeError:
        raise InvalidInput(segment.name[:100], None, "is not valid UTF-8") from None
    return form


async def _pieces(request: AnyRequest, allowed: BodyLimits) -> AsyncIterator[bytes]:
    exchange(request.scope).seconds_for_body = allowed.seconds
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and len(declared) < 20 and int(declared) > allowed.size:
        raise _too_large(allowed)
    taken = 0
    async for piece in request.stream():
        taken += len(piece)
        if taken > allowed.size:
            raise _too_large(allowed)
        if piece:
            yield piece


def _too_large(allowed: BodyLimits) -> BodyTooLarge:
    return BodyTooLarge("", None, f"The body is larger than {allowed.size / 1_000_000:,.0f} MB (RAG_UPLOAD_MEGABYTES)")


def file_name(said: str) -> str | None:
    r"""The last part of a client's file name, without unprintable characters; None if nothing remains.

    >>> file_name("../../etc/passwd"), file_name("C:\\Users\\ada\\notes.md"), file_name("a\x00b\u202etxt.exe"), file_name("..")
    ('passwd', 'notes.md', 'abtxt.exe', None)
    """
    last = _UNPRINTABLE.sub("", re.split(r"[/\\]", said)[-1]).strip()
    if len(last) > _LONGEST_NAME:  # its end tells what kind of text it is
        last = last[: _LONGEST_NAME - 20] + last[-20:]
    return None if last in ("", ".", "..") else last
