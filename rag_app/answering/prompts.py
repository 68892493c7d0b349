"""What is said to models: files in `prompts/`, and the versions of them that a database has.

A manifest lists and checks the templates:

    [owner_ask]                            a name: the folder its versions are in
    active = "v1"                          the version in use: owner_ask/v1.jinja
    variables = ["context", "question"]    what every version takes, no more and no less

Templates are Jinja; `{% chat role="system" %}...{% endchat %}` is a message. Values are never parsed as Jinja
and never escaped.

The versions of a capability's prompt seed the database, which says from then on which are in use (prompt_configs.py).
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
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError as MsgspecError, convert, field
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rag_app.answering.capabilities import CAPABILITIES, DESCRIPTIONS, capability_named, groups
from rag_app.domain import InvalidInput, JsonObject, Misconfigured

if TYPE_CHECKING:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.prompts import BasePromptTemplate


class Prompt(Struct, frozen=True):
    """One version of a prompt."""

    name: str
    version: str
    template: "BasePromptTemplate"
    variables: frozenset[str]

    def messages(self, **values: str) -> "list[ChatMessage]":
        """The chat messages. Raises Misconfigured unless exactly the declared variables are given.

        >>> hello = prompt("hello", "v1", "{% chat role='user' %}Hello {{ who }}!{% endchat %}", ["who"])
        >>> hello.messages(who="<b>{{ 1 + 1 }}</b>")[0].content
        'Hello <b>{{ 1 + 1 }}</b>!'
        >>> hello.messages()
        Traceback (most recent call last):
        rag_app.domain.errors.Misconfigured: prompt hello v1: missing who
        """
        _same(f"prompt {self.name} {self.version}", self.variables, frozenset(values))
        return self.template.format_messages(None, **values)


_LLAMA_INDEX = {"context": "context_str", "question": "query_str"}  # what LlamaIndex' own prompts call these variables


def own_prompt(name: str, template: "BasePromptTemplate", variables: Iterable[str]) -> Prompt:
    """Any LlamaIndex template in the place of a prompt. It takes the same variables, under our names or LlamaIndex'.

    Raises Misconfigured where it takes others.

    >>> from llama_index.core.prompts import PromptTemplate
    >>> own = own_prompt("ask", PromptTemplate("{context_str} {query_str}"), ["context", "question"])
    >>> own.messages(context="Open daily.", question="When?")[0].content
    'Open daily. When?'
    """
    taken, declared = frozenset(template.template_vars) - template.kwargs.keys(), frozenset(variables)
    theirs = {ours: their for ours, their in _LLAMA_INDEX.items() if their in taken}
    _same(
        f"prompt {name}",
        declared,
        frozenset({each: ours for ours, each in theirs.items()}.get(each, each) for each in taken),
    )
    if theirs:
        template = template.model_copy(
            update={"template_var_mappings": {**(template.template_var_mappings or {}), **theirs}}
        )
    return Prompt(name, "own", template, declared)


class PromptFiles(BaseModel):
    """An entry of the manifest, and the versions there are: `texts` by name, all of which take the same `variables`."""

    model_config = ConfigDict(extra="forbid")

    active: str
    variables: frozenset[str]
    texts: dict[str, str] = {}


def prompt(name: str, version: str, text: str, variables: Iterable[str]) -> Prompt:
    """A checked prompt. Raises Misconfigured where the text is no template or uses other variables than declared."""
    from jinja2 import TemplateError
    from llama_index.core.prompts import RichPromptTemplate  # 150 modules: a search needs no prompt

    what, declared = f"prompt {name} {version}", frozenset(variables)
    try:
        template = RichPromptTemplate(text)
    except TemplateError as error:
        raise Misconfigured(f"{what}: {error}") from error
    if not template.is_chat_template:
        raise Misconfigured(f"{what}: has no chat message; write at least one, as the other templates in prompts/ do")
    # Jinja as LlamaIndex sets it up renders an unknown variable as nothing, so both sides are compared here.
    _same(what, declared, frozenset(template.template_vars))
    return Prompt(name, version, template, declared)


def read_prompt_files(folder: Path) -> dict[str, PromptFiles]:
    """The prompts of a folder, by name. Raises Misconfigured with the file and what is wrong in it."""
    manifest = folder / "manifest.toml"
    try:
        entries = TypeAdapter(dict[str, PromptFiles]).validate_python(tomllib.loads(manifest.read_text("utf-8")))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise Misconfigured(f"{manifest}: {error}") from error
    for name, entry in entries.items():
        entry.texts = {file.stem: file.read_text("utf-8") for file in sorted((folder / name).glob("*.jinja"))}
        if entry.active not in entry.texts:
            raise Misconfigured(f"{manifest}: {name}: no version {entry.active}; there are: {', '.join(entry.texts)}")
    return entries


def load_prompts(folder: Path) -> dict[str, Prompt]:
    """The active version of every prompt, by name; all versions are checked.

    Raises Misconfigured with the file and what is wrong in it.
    """
    return {
        name: {version: prompt(name, version, text, files.variables) for version, text in files.texts.items()}[
            files.active
        ]
        for name, files in read_prompt_files(folder).items()
    }


def _same(what: str, declared: frozenset[str], given: frozenset[str]) -> None:
    if missing := declared - given:
        raise Misconfigured(f"{what}: missing {', '.join(sorted(missing))}")
    if unknown := given - declared:
        raise Misconfigured(f"{what}: does not declare {', '.join(sorted(unknown))}")


class PromptConfig(Struct, frozen=True):
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


class PromptVersion(Struct, frozen=True):
    """A version as it is used: the `share` (0..1) of new threads that get it, and how many `threads` have it."""

    config: PromptConfig
    share: float
    threads: int
    created_at: datetime
    updated_at: datetime


GLOBAL = "global"
_cached_prompt = lru_cache(maxsize=64)(prompt)

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
"""The source types that a `retrieval_scope` names."""
if TYPE_CHECKING:
    SourceScope = str
else:
    SourceScope = Literal[tuple(SCOPES)]
Weight = Annotated[
    int,
    Meta(
        ge=0,
        le=1_000_000,
        description="a whole number from 0 to 1000000, the weight of the version: new threads are divided among active"
        " versions by weight",
    ),
]
_AT_MOST = Meta(ge=1, le=100, description="a whole number from 1 to 100: sources of this type in an answer")
_LONGEST = 20_000  # characters of instructions
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class PromptConstraints(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """As files of prompts write them: docs/prompts.md."""

    temperature: Annotated[float, Meta(ge=0, le=2, description="a number from 0 to 2")] | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=16, le=4096, description="a whole number from 16 to 4096")] | UnsetType = UNSET
    retrieval_scope: (
        Annotated[list[SourceScope], Meta(min_length=1, description=f"a non-empty list of: {', '.join(SCOPES)}")]
        | UnsetType
    ) = UNSET
    max_keywords: Annotated[int, _AT_MOST] | UnsetType = UNSET
    max_related_keywords: Annotated[int, _AT_MOST] | UnsetType = UNSET
    max_listings: Annotated[int, _AT_MOST] | UnsetType = UNSET
    max_alerts: Annotated[int, _AT_MOST] | UnsetType = UNSET


class _File(Struct, forbid_unknown_fields=True):
    """A version of a conversation's prompt, as a file has it."""

    type: str
    system_instructions: str
    constraints: JsonObject = {}
    weight: Weight = 1
    is_active: bool = False


class Constraints(Struct, frozen=True):
    """What a version demands; None: nothing.

    `temperature` (0..2) and `max_tokens` (16..4096) of the answer. `retrieval_scope` are the source types to retrieve,
    `at_most` so many sources of a type are kept (1..100).
    """

    temperature: float | None
    max_tokens: int | None
    retrieval_scope: tuple[str, ...] | None
    at_most: Mapping[str, int]


def constraints_of(config: PromptConfig, only: Sequence[str] = PromptConstraints.__struct_fields__) -> Constraints:
    """Raises InvalidInput that says what is accepted: all of docs/prompts.md, or `only` these.

    >>> demands = {"max_keywords": 20, "retrieval_scope": ["keywords", "trends"]}
    >>> constraints_of(PromptConfig("ask_lexybrain_x_v1", "market_brief", "Look.", demands))
    Constraints(temperature=None, max_tokens=None, retrieval_scope=('keyword', 'trend'), at_most={'keyword': 20})
    """
    given = config.constraints
    if unknown := sorted(set(given) - set(only)):
        raise InvalidInput(unknown[0], given[unknown[0]], f"unknown constraint; accepted: {', '.join(only)}")
    for name, value in given.items():
        check_value(name, value, get_args(PromptConstraints.__annotations__[name])[0])
    scope, at_most = given.get("retrieval_scope"), dict[str, int]()
    for source_type, names in {
        "keyword": ("max_keywords", "max_related_keywords"),
        "listing": ("max_listings",),
        "alert": ("max_alerts",),
    }.items():
        if limits := [given[name] for name in names if name in given]:
            at_most[source_type] = min(limits)
    types = None if scope is None else tuple(dict.fromkeys(SCOPES[each] for each in scope))
    return Constraints(given.get("temperature"), given.get("max_tokens"), types, at_most)


def check_value(name: str, value: object, annotation: Any) -> None:
    """Raises InvalidInput with the annotation's description where the value is not of that kind."""
    try:
        convert(value, annotation)
    except MsgspecError:
        raise InvalidInput(name, value, f"must be {annotation.__metadata__[0].description}") from None


def kept_constraints(config: PromptConfig) -> Constraints:
    """`constraints_of` a version that is in use. Raises Misconfigured: it was written past the commands."""
    try:
        return constraints_of(config)
    except InvalidInput as error:
        raise Misconfigured(f"prompt {config.name}: {error}") from error


def template_types() -> tuple[str, ...]:
    """The prompts of capabilities that are no conversation's."""
    return tuple(dict.fromkeys(each.prompt for each in CAPABILITIES if each.group is None))


def conversation_types() -> tuple[str, ...]:
    """What all capabilities of conversations are told, and what each of them is."""
    return (GLOBAL, *DESCRIPTIONS)


def template_of(config: PromptConfig) -> Prompt:
    """The template that a version is, of a type that is no conversation's. Raises Misconfigured where it is none."""
    return _cached_prompt(
        config.type, config.name.removeprefix(f"{config.type}_"), config.instructions, ("context", "question")
    )


def check(config: PromptConfig) -> None:
    """Whether a version can be used. Raises InvalidInput that says what is accepted."""
    templated = config.type in template_types()
    first = next(iter(DESCRIPTIONS))
    said = capability_named(config.type if config.type in DESCRIPTIONS else first).prompt
    prefix, example = (config.type, "v2") if templated else (said, f"{first}_v2")
    if not re.fullmatch(rf"{prefix}_[a-z0-9_]{{1,80}}", config.name):
        raise InvalidInput(
            "name", config.name, f"must be {prefix}_ and small letters, digits or _, such as ..._{example}"
        )
    types = (*conversation_types(), *template_types())
    if config.type not in types:
        raise InvalidInput("type", config.type, f"accepted: {', '.join(types)}")
    if not config.instructions.strip() or len(config.instructions) > _LONGEST:
        raise InvalidInput(
            "system_instructions", config.instructions, f"must be a text of at most {_LONGEST} characters"
        )
    if _UNPRINTABLE.search(config.instructions):
        raise InvalidInput(
            "system_instructions", config.instructions, "must be text and line breaks, without control characters"
        )
    check_value("weight", config.weight, Weight)
    constraints_of(config, PromptConstraints.__struct_fields__[: 2 if templated else None])
    if templated:
        try:
            template_of(config)
        except Misconfigured as error:
            raise InvalidInput("system_instructions", config.instructions, str(error)) from error


def load_config(file: Path) -> PromptConfig:
    """The version that a file describes. Raises Misconfigured with the file and what is wrong in it."""
    try:
        read = convert(tomllib.loads(file.read_text("utf-8")), _File)
        text = read.system_instructions.strip()
        config = PromptConfig(file.stem, read.type, text, read.constraints, read.weight, read.is_active)
        check(config)
    except MsgspecError as error:
        raise Misconfigured(f"{file}: {error}; accepted: {', '.join(_File.__struct_fields__)}") from error
    except OSError as error:
        raise Misconfigured(f"{file}: {error.strerror}") from error
    except (ValueError, InvalidInput) as error:  # ValueError: no TOML, or no UTF-8
        raise Misconfigured(f"{file}: {error}") from error
    return config


def load_configs(folder: Path) -> list[PromptConfig]:
    """All versions in a folder, by name. Raises Misconfigured with the file and what is wrong in it."""
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise Misconfigured(f"{folder}: no *.toml in it")
    return [load_config(file) for file in files]


def released_names(folder: Path) -> set[str]:
    """The names of `released_prompts`, of which nothing is read."""
    templates = {f"{name}_{file.stem}" for name in template_types() for file in (folder / name).glob("*.jinja")}
    return templates | {file.stem for group in groups() for file in (folder / group).glob("*.toml")}


def released_prompts(folder: Path) -> list[PromptConfig]:
    """The versions of all capabilities that came with this copy, of conversations first; `folder` holds the manifest.

    Raises Misconfigured with the folder, the version and what is wrong with it.
    """
    templates = [
        PromptConfig(f"{name}_{version}", name, text.strip(), active=version == files.active)
        for name, files in read_prompt_files(folder).items()
        if name in template_types()
        for version, text in files.texts.items()
    ]
    for template in templates:
        try:
            check(template)
        except InvalidInput as error:
            raise Misconfigured(f"{folder / template.type}: {template.name}: {error}") from error
    roles = [each for group in groups() if (folder / group).is_dir() for each in load_configs(folder / group)]
    return roles + templates


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
