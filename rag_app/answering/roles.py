"""Versions of what a model is told: read from files, checked, and chosen.

A version belongs to a type. Of a conversation that is a capability, or "global" for what all of them are told: a file
is a version, and its name is the version's, `prompts/lexybrain/ask_lexybrain_market_brief_v1.toml`

    type = "market_brief"
    weight = 1                       its share among the active versions of its type; 1 by default
    is_active = true                 false by default
    system_instructions = "..."

    [constraints]                    docs/prompts.md lists them
    max_keywords = 20

Of every other capability the type is the name of its prompt, and a version's instructions are the whole template:
`prompts/owner_ask/v1.jinja` is `owner_ask_v1`, active where the manifest says so.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any
from uuid import UUID

from rag_app.answering.capabilities import CAPABILITIES, DESCRIPTIONS
from rag_app.answering.prompts import Prompt, prompt, read_files
from rag_app.domain.errors import InvalidInput, Misconfigured


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """One version of what a model is told. `type` is a capability of conversations, "global" for all, or a prompt.

    Of the active versions of a type, each new thread (each question, of a prompt) gets one, by `weight` (0: none). `constraints` are checked:
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
"""Of conversations; `all_types` has the others, too."""
_OF_TEMPLATES = ("temperature", "max_tokens")
_GIVEN = ("context", "question")
"""What a capability's template takes."""
_parsed = lru_cache(maxsize=64)(prompt)

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
_LONGEST = 20_000  # characters of instructions
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FILE: Mapping[str, type] = {
    "type": str,
    "system_instructions": str,
    "constraints": dict,
    "weight": int,
    "is_active": bool,
}
BIGGEST_WEIGHT = 1_000_000


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


def constraints_of(config: PromptConfig, accepted: Sequence[str] = _KEYS) -> Constraints:
    """Raises InvalidInput that says what is accepted.

    >>> demands = {"max_keywords": 20, "retrieval_scope": ["keywords", "trends"]}
    >>> constraints_of(PromptConfig("ask_lexybrain_x_v1", "market_brief", "Look.", demands))
    Constraints(temperature=None, max_tokens=None, retrieval_scope=('keyword', 'trend'), at_most={'keyword': 20})
    """
    given = config.constraints
    if unknown := sorted(set(given) - set(accepted)):
        raise InvalidInput(unknown[0], given[unknown[0]], f"unknown constraint; accepted: {', '.join(accepted)}")
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


def kept_constraints(config: PromptConfig) -> Constraints:
    """`constraints_of` a version that is in use. Raises Misconfigured: it was written past the commands."""
    try:
        return constraints_of(config)
    except InvalidInput as error:
        raise Misconfigured(f"prompt {config.name}: {error}") from error


def template_types() -> tuple[str, ...]:
    """The prompts of capabilities that are no conversation's."""
    return tuple(dict.fromkeys(each.prompt for each in CAPABILITIES if each.group is None))


def all_types() -> tuple[str, ...]:
    """Those of conversations, then the templates."""
    return (GLOBAL, *DESCRIPTIONS, *template_types())


def template_of(config: PromptConfig) -> Prompt:
    """The template that a version is, of a type that is no conversation's. Raises Misconfigured where it is none."""
    return _parsed(config.type, config.name.removeprefix(f"{config.type}_"), config.instructions, _GIVEN)


def check(config: PromptConfig) -> None:
    """Whether a version can be used. Raises InvalidInput that says what is accepted."""
    templated = config.type in template_types()
    prefix, example = (config.type, "v2") if templated else ("ask_lexybrain", "market_brief_v2")
    if not re.fullmatch(rf"{prefix}_[a-z0-9_]{{1,80}}", config.name):
        raise InvalidInput(
            "name", config.name, f"must be {prefix}_ and small letters, digits or _, such as ..._{example}"
        )
    if config.type not in all_types():
        raise InvalidInput("type", config.type, f"accepted: {', '.join(all_types())}")
    if not config.instructions.strip() or len(config.instructions) > _LONGEST:
        raise InvalidInput(
            "system_instructions", config.instructions, f"must be a text of at most {_LONGEST} characters"
        )
    if _UNPRINTABLE.search(config.instructions):
        raise InvalidInput(
            "system_instructions", config.instructions, "must be text and line breaks, without control characters"
        )
    _whole("weight", config.weight, 0, BIGGEST_WEIGHT)
    constraints_of(config, _OF_TEMPLATES if templated else _KEYS)
    if templated:
        try:
            template_of(config)
        except Misconfigured as error:
            raise InvalidInput("system_instructions", config.instructions, str(error)) from error


def load_config(file: Path) -> PromptConfig:
    """The version that a file describes. Raises Misconfigured with the file and what is wrong in it."""
    try:
        said = tomllib.loads(file.read_text("utf-8"))
        if unknown := sorted(set(said) - set(_FILE)):
            raise InvalidInput(unknown[0], said[unknown[0]], f"unknown key; accepted: {', '.join(_FILE)}")
        for key in ("type", "system_instructions"):
            if key not in said:
                raise InvalidInput(key, None, "is missing")
        for key, value in said.items():
            if type(value) is not _FILE[key]:  # True is an int to isinstance
                raise InvalidInput(key, value, f"must be {_IN_TOML[_FILE[key]]}")
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


def released(folder: Path) -> list[PromptConfig]:
    """The versions of all capabilities that came with this copy, of conversations first; `folder` holds the manifest.

    Raises Misconfigured with the folder, the version and what is wrong with it.
    """
    templates = [
        PromptConfig(f"{name}_{version}", name, text.strip(), active=version == files.active)
        for name, files in read_files(folder).items()
        if name in template_types()
        for version, text in files.texts.items()
    ]
    for template in templates:
        try:
            check(template)
        except InvalidInput as error:
            raise Misconfigured(f"{folder / template.type}: {template.name}: {error}") from error
    return load_configs(folder / "lexybrain") + templates


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
    if not active:
        return None
    reached = list(accumulate(each.weight for each in active))
    # the type is hashed with it: which system prompt a thread gets must not decide which role goes with it
    drawn = int.from_bytes(sha256(f"{type}/{thread}".encode()).digest()) % reached[-1]
    by_weight = next(each for each, end in zip(active, reached, strict=True) if drawn < end)
    return next((each for each in active if each.name == kept), by_weight)


def shares(configs: Sequence[PromptConfig]) -> dict[str, float]:
    """By name, the share (0..1) of new threads that get a version."""
    total = Counter[str]()
    for each in configs:
        total[each.type] += each.weight if each.active else 0
    return {each.name: each.weight / total[each.type] if each.active and total[each.type] else 0.0 for each in configs}


_IN_TOML = {str: "a text", dict: "a table", int: "a whole number", bool: "true or false"}


def _temperature(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not 0 <= value <= 2:
        raise InvalidInput("temperature", value, "must be a number between 0 and 2")
    return float(value)


def _whole(key: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(key, value, f"must be a whole number between {least} and {most}")
    return value


def _scope(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(each, str) for each in value):
        raise InvalidInput("retrieval_scope", value, f"must be a list, not empty, of: {', '.join(SCOPES)}")
    if unknown := [each for each in value if each not in SCOPES]:
        raise InvalidInput("retrieval_scope", value, f"{unknown[0][:80]!r} is not known; accepted: {', '.join(SCOPES)}")
    return tuple(dict.fromkeys(SCOPES[each] for each in value))
