"""Versions of what a model is told about its role: read from files, checked, and chosen for a thread.

A file is a version, and its name is the version's: `prompts/lexybrain/ask_lexybrain_market_brief_v1.toml`

    type = "market_brief"            a capability, or "global" for what all of them are told
    weight = 1                       its share among the active versions of its type; 1 by default
    is_active = true                 false by default
    system_instructions = "..."

    [constraints]                    docs/prompts.md lists them
    max_keywords = 20
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.domain.errors import InvalidInput, Misconfigured


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """One version of what a model is told about its role. `type` is a capability, or "global" for all.

    Of the active versions of a type, each new thread gets one, by `weight` (0: none). `constraints` are checked:
    `temperature`, `max_tokens`, `retrieval_scope`, `max_keywords`, `max_listings`, `max_related_keywords`,
    `max_alerts`.
    """

    name: str
    type: str
    instructions: str
    constraints: Mapping[str, Any] = field(default_factory=dict)
    weight: int = 1
    active: bool = True


@dataclass(frozen=True, slots=True)
class PromptVersion:
    """A version as it is used: the `share` (0..1) of new threads that get it, and how many `threads` have it."""

    config: PromptConfig
    share: float
    threads: int
    created_at: datetime
    updated_at: datetime


GLOBAL = "global"
TYPES = (GLOBAL, *DESCRIPTIONS)

SCOPES: Mapping[str, str] = {
    "keywords": "keyword",
    "keyword_history": "keyword_history",
    "trends": "trend",
    "listings": "listing",
    "shops": "shop",
    "alerts": "alert",
    "risk_rules": "risk_rule",
    "docs": "doc",
    "user_keywords": "keyword",
    "user_watchlists": "watchlist",
    "watchlists": "watchlist",
}
_AT_MOST: Mapping[str, str] = {
    "max_keywords": "keyword",
    "max_related_keywords": "keyword",
    "max_listings": "listing",
    "max_alerts": "alert",
}
_KEYS = ("temperature", "max_tokens", "retrieval_scope", *_AT_MOST)
_NAME = re.compile(r"ask_lexybrain_[a-z0-9_]{1,80}")
_LONGEST = 20_000  # characters of instructions
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FILE: Mapping[str, type] = {
    "type": str,
    "system_instructions": str,
    "constraints": dict,
    "weight": int,
    "is_active": bool,
}
_BIGGEST_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a version demands; None: nothing.

    `temperature` (0..2) and `max_tokens` (16..4096) of the answer. `retrieval_scope` are the source types to retrieve,
    `at_most` so many sources of a type are kept (1..100).
    """

    temperature: float | None
    max_tokens: int | None
    retrieval_scope: tuple[str, ...] | None
    at_most: Mapping[str, int]


def constraints_of(config: PromptConfig) -> Constraints:
    """Raises InvalidInput that says what is accepted.

    >>> demands = {"max_keywords": 20, "retrieval_scope": ["keywords", "trends"]}
    >>> constraints_of(PromptConfig("ask_lexybrain_x_v1", "market_brief", "Look.", demands))
    Constraints(temperature=None, max_tokens=None, retrieval_scope=('keyword', 'trend'), at_most={'keyword': 20})
    """
    given = config.constraints
    if unknown := sorted(set(given) - set(_KEYS)):
        _refuse(unknown[0], given[unknown[0]], f"unknown constraint; accepted: {', '.join(_KEYS)}")
    at_most: dict[str, int] = {}
    for key, source_type in _AT_MOST.items():
        if key in given:
            limit = _whole(key, given[key], 1, 100)
            at_most[source_type] = min(limit, at_most.get(source_type, limit))
    return Constraints(
        _temperature(given["temperature"]) if "temperature" in given else None,
        _whole("max_tokens", given["max_tokens"], 16, 4096) if "max_tokens" in given else None,
        _scope(given["retrieval_scope"]) if "retrieval_scope" in given else None,
        at_most,
    )


def check(config: PromptConfig) -> None:
    """Whether a version can be used. Raises InvalidInput that says what is accepted."""
    if not _NAME.fullmatch(config.name):
        _refuse(
            "name", config.name, "must be ask_lexybrain_ and small letters, digits or _, such as ..._market_brief_v2"
        )
    if config.type not in TYPES:
        _refuse("type", config.type, f"accepted: {', '.join(TYPES)}")
    if not config.instructions.strip() or len(config.instructions) > _LONGEST:
        _refuse("system_instructions", config.instructions, f"must be a text of at most {_LONGEST} characters")
    if _UNPRINTABLE.search(config.instructions):
        _refuse("system_instructions", config.instructions, "must be text and line breaks, without control characters")
    _whole("weight", config.weight, 0, _BIGGEST_WEIGHT)
    constraints_of(config)


def load_config(file: Path) -> PromptConfig:
    """The version that a file describes. Raises Misconfigured with the file and what is wrong in it."""
    try:
        said = tomllib.loads(file.read_text("utf-8"))
        if unknown := sorted(set(said) - set(_FILE)):
            _refuse(unknown[0], said[unknown[0]], f"unknown key; accepted: {', '.join(_FILE)}")
        for key in ("type", "system_instructions"):
            if key not in said:
                _refuse(key, None, "is missing")
        for key, value in said.items():
            if type(value) is not _FILE[key]:  # True is an int to isinstance
                _refuse(key, value, f"must be {_IN_TOML[_FILE[key]]}")
        config = PromptConfig(
            file.stem,
            said["type"],
            said["system_instructions"].strip(),
            said.get("constraints", {}),
            said.get("weight", 1),
            said.get("is_active", False),
        )
        check(config)
    except (OSError, ValueError, InvalidInput) as error:  # ValueError: no TOML, or no UTF-8
        raise Misconfigured(f"{file}: {error}") from error
    return config


def load_configs(folder: Path) -> list[PromptConfig]:
    """All versions in a folder, by name. Raises Misconfigured with the file and what is wrong in it."""
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise Misconfigured(f"{folder}: no *.toml in it")
    return [load_config(file) for file in files]


def as_toml(config: PromptConfig) -> str:
    """The file that `load_config` reads as this version."""
    text = config.instructions.replace("\\", "\\\\")
    if '"""' in text or text.endswith('"'):
        text = text.replace('"', '\\"')
    # of these values JSON is TOML, if it does not escape what TOML can do without
    demands = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in config.constraints.items()]
    return "\n".join(
        [
            f'type = "{config.type}"',
            f"weight = {config.weight}",
            f"is_active = {'true' if config.active else 'false'}",
            f'system_instructions = """\n{text}"""',
            *(["", "[constraints]", *demands] if demands else []),
            "",
        ]
    )


def choose(configs: Sequence[PromptConfig], type: str, thread: UUID, kept: str | None) -> PromptConfig | None:  # noqa: A002
    """The version of a type for a thread: the one it had (`kept`) while that is active and has weight, else by weight.

    A thread gets the same one in every process, in whatever order they come. None where none is active with weight.
    """
    active = sorted(
        (each for each in configs if each.active and each.type == type and each.weight > 0), key=lambda each: each.name
    )
    for each in active:
        if each.name == kept:
            return each
    if not active:
        return None
    # the type is hashed with it: which system prompt a thread gets must not decide which role goes with it
    drawn = int.from_bytes(sha256(f"{type}/{thread}".encode()).digest()) % sum(each.weight for each in active)
    for each in active:
        drawn -= each.weight
        if drawn < 0:
            return each
    raise AssertionError("unreachable")


def shares(configs: Sequence[PromptConfig]) -> dict[str, float]:
    """By name, the share (0..1) of new threads that get a version."""
    total = {kind: sum(each.weight for each in configs if each.active and each.type == kind) for kind in TYPES}
    return {
        each.name: each.weight / total[each.type] if each.active and total.get(each.type) else 0.0 for each in configs
    }


_IN_TOML = {str: "a text", dict: "a table", int: "a whole number", bool: "true or false"}


def _temperature(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not 0 <= value <= 2:
        _refuse("temperature", value, "must be a number between 0 and 2")
    return float(value)


def _whole(key: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        _refuse(key, value, f"must be a whole number between {least} and {most}")
    return value


def _scope(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(each, str) for each in value):
        _refuse("retrieval_scope", value, f"must be a list, not empty, of: {', '.join(SCOPES)}")
    if unknown := [each for each in value if each not in SCOPES]:
        _refuse("retrieval_scope", value, f"{unknown[0][:80]!r} is not known; accepted: {', '.join(SCOPES)}")
    return tuple(dict.fromkeys(SCOPES[each] for each in value))


def _refuse(field: str, value: Any, problem: str) -> NoReturn:
    raise InvalidInput(field, value, problem)
