"""Answers that models may be trained with: of users who consent, as long as they do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Consent:
    """Whether a user lets their answers be collected to train models with, and since when."""

    training: bool
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """One answer to learn from. `message` is its id, `told` are the ids of the messages that its prompt was made from.

    `prompt` is what a model was told, a list of {role, content}; `text` is what it should say to that: the answer, with
    sources numbered as in the prompt. `context` are the passages in the prompt, in the order of their numbers: {id, type,
    label, text, cited}.
    """

    message: UUID
    told: tuple[UUID, ...]
    capability: str
    model: str
    prompt: Sequence[Mapping[str, Any]]
    context: Sequence[Mapping[str, Any]]
    text: str
