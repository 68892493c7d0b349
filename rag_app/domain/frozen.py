"""What every plain type here is."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Makes a class an immutable value: a frozen dataclass with slots.

    >>> @frozen
    ... class Place:
    ...     page: int
    >>> Place(1) == Place(1)
    True
    """
    return dataclass(frozen=True, slots=True)(cls)
