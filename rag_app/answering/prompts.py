"""What is said to models: files in `prompts/`, listed and checked by its manifest.

The versions of a capability's prompt seed the database, which says from then on which are in use (roles.py).

    [owner_ask]                            a name: the folder its versions are in
    active = "v1"                          the version in use: owner_ask/v1.jinja
    variables = ["context", "question"]    what every version takes, no more and no less

Templates are Jinja; `{% chat role="system" %}...{% endchat %}` is a message. Values are never parsed as Jinja
and never escaped.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jinja2 import TemplateError
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import RichPromptTemplate
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rag_app.domain.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Prompt:
    """One version of a prompt."""

    name: str
    version: str
    template: RichPromptTemplate
    variables: frozenset[str]

    def messages(self, **values: str) -> list[ChatMessage]:
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


class PromptFiles(BaseModel):
    """An entry of the manifest, and the versions there are: `texts` by name, all of which take the same `variables`."""

    model_config = ConfigDict(extra="forbid")

    active: str
    variables: frozenset[str]
    texts: dict[str, str] = {}


_MANIFEST = TypeAdapter(dict[str, PromptFiles])


def prompt(name: str, version: str, text: str, variables: Iterable[str]) -> Prompt:
    """A checked prompt. Raises Misconfigured where the text is no template or uses other variables than declared."""
    what, declared = f"prompt {name} {version}", frozenset(variables)
    try:
        template = RichPromptTemplate(text)
    except TemplateError as error:
        raise Misconfigured(f"{what}: {error}") from error
    if not template.is_chat_template:
        raise Misconfigured(f"{what}: has no chat message")
    # Jinja as LlamaIndex sets it up renders an unknown variable as nothing, so both sides are compared here.
    _same(what, declared, frozenset(template.template_vars))
    return Prompt(name, version, template, declared)


def read_files(folder: Path) -> dict[str, PromptFiles]:
    """The prompts of a folder, by name. Raises Misconfigured with the file and what is wrong in it."""
    manifest = folder / "manifest.toml"
    try:
        entries = _MANIFEST.validate_python(tomllib.loads(manifest.read_text("utf-8")))
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
    prompts = {}
    for name, files in read_files(folder).items():
        versions = {version: prompt(name, version, text, files.variables) for version, text in files.texts.items()}
        prompts[name] = versions[files.active]
    return prompts


def _same(what: str, declared: frozenset[str], given: frozenset[str]) -> None:
    if missing := declared - given:
        raise Misconfigured(f"{what}: missing {', '.join(sorted(missing))}")
    if unknown := given - declared:
        raise Misconfigured(f"{what}: does not declare {', '.join(sorted(unknown))}")
