"""Cursors of lists that are ordered newest first: a page ends with the cursor of the next one."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, DateTime, SQLColumnExpression, literal, tuple_

from rag_app.domain import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile("[A-Za-z0-9_-]{32}")


def cursor(moment: datetime, row: UUID) -> str:
    """A row's place: 8 bytes of microseconds since 1970 and its id, in base64url."""
    since = (moment - EPOCH) // timedelta(microseconds=1)
    return urlsafe_b64encode(since.to_bytes(8, "big", signed=True) + row.bytes).decode()


def is_after_cursor(
    cursor: str, moment: SQLColumnExpression[datetime], row: SQLColumnExpression[UUID]
) -> ColumnElement[bool]:
    """The rows after the cursor in a list ordered by these two columns, newest first. Raises InvalidInput."""
    then, last = place(cursor)
    return tuple_(moment, row) < tuple_(literal(then, DateTime(timezone=True)), literal(last))


def place(cursor: str) -> tuple[datetime, UUID]:
    """The creation time and the id of the row that a cursor names. Raises InvalidInput."""
    try:
        if not _CURSOR.fullmatch(cursor):
            raise ValueError
        written = urlsafe_b64decode(cursor)
        then = EPOCH + timedelta(microseconds=int.from_bytes(written[:8], "big", signed=True))
    except (ValueError, OverflowError):
        raise InvalidInput("cursor", cursor[:50], "must be a cursor from an earlier page") from None
    return then, UUID(bytes=written[8:])
