"""Text that can be stored, and text that is an id."""

from uuid import UUID


def storable(text: str) -> str:
    """Without what JSON can say, and neither UTF-8 nor PostgreSQL can: halves of surrogate pairs, and NUL.

    >>> storable("a\\0b\\ud800c")
    'abc'
    """
    return text.encode("utf-8", "ignore").decode().replace("\0", "")


def uuid_in(text: str) -> UUID | None:
    """The id that a text is, or None.

    >>> uuid_in("6f2d0e5c-58f3-4c0e-9a53-3b1d8c6f7a10") is None, uuid_in("chunk_1")
    (False, None)
    """
    try:
        return UUID(text)
    except ValueError:
        return None
