"""Text that can be kept."""


def storable(text: str) -> str:
    """Without what JSON can say, and neither UTF-8 nor PostgreSQL can: halves of surrogate pairs, and NUL.

    >>> storable("a\\0b\\ud800c")
    'abc'
    """
    return text.encode("utf-8", "ignore").decode().replace("\0", "")
