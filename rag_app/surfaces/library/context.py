"""Chunks to context blocks, deduplicated, one a source, within a budget; the evidence that an answer can point at; and the
prompt of such blocks and a user's message, as one text or as chat messages, without a database or a model.

The system message is the caller's or that of prompts/library_assistant. The context is never in it: it stands in the
user's message, quoted, with the rule that it is data, whatever the system message says.

LlamaIndex, which reads the prompts of capabilities, takes more than a second to import. It is not imported here.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypedDict

from jinja2 import Template
from msgspec import Struct, field

from rag_app.answering.context import ContextBlock as PromptBlock, count_tokens, fill, header_line, neutralise
from rag_app.domain import Hit, InvalidInput, JsonObject, MetadataValue, resource_folder
from rag_app.surfaces.library.arguments import checked_call

MergeStrategy = Literal["concatenate", "separate"]

SEPARATOR = "\n\n"
"""Between the chunks of a block, and between blocks."""

_MESSAGE = re.compile(r"{% chat role=.*? %}(.*?){% endchat %}", re.DOTALL)


class Chunk(Struct, frozen=True):
    """A piece of a source, with its `similarity` to the question: 0..1, which is 1 - distance / 2.

    `source_updated_at` is ISO 8601, in UTC: a date, or a date and time. `position` is the chunk's place in its source.
    `metadata` has the fields that the index declares, the language, and section and page where the source has them.

    >>> Chunk(id="c-1", source_type="product", source_id="p-1", text="Over-ear.", similarity=0.75).distance
    0.5
    """

    id: str
    source_type: str
    source_id: str
    text: str
    similarity: float
    title: str | None = None
    url: str | None = None
    source_updated_at: str | None = None
    position: int = 0
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)

    @property
    def distance(self) -> float:
        """Cosine distance of chunk and question: 0..2.

        >>> Chunk("c-1", "product", "p-1", "Over-ear.", similarity=1.0).distance
        0.0
        """
        return 2 * (1 - self.similarity)


def chunk_of(hit: Hit) -> Chunk:
    """What a search found, as the library shows it."""
    return Chunk(
        id=str(hit.chunk_id),
        source_type=hit.source_type,
        source_id=str(hit.source_id),
        text=hit.text,
        similarity=min(1.0, max(0.0, (1 + hit.score) / 2)),
        title=hit.title,
        url=hit.uri,
        source_updated_at=hit.moment.isoformat().removesuffix("T00:00:00+00:00") if hit.moment else None,
        position=hit.position,
        metadata={
            **hit.metadata,
            "lang": hit.lang,
            **({} if hit.section is None else {"section": hit.section}),
            **({} if hit.page is None else {"page": hit.page}),
            **({} if hit.external_id is None else {"external_id": hit.external_id}),
            **({} if hit.file_name is None else {"file_name": hit.file_name}),
            **({} if hit.row is None else {"row": hit.row}),
            **({} if hit.sheet is None else {"sheet": hit.sheet}),
            "link": hit.link,
        },
    )


def group_by_source(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """Each source's chunks, best first, without repetitions; the source with the best chunk comes first.

    >>> one, two = (Chunk(id, "page", source, text, 0.8) for id, source, text in [("a", "s", "Hi."), ("b", "s", "Hi.")])
    >>> group_by_source([one, two, one]) == [[one]]
    True
    """
    groups: dict[tuple[str, str], dict[str, Chunk]] = {}
    known = set[str]()
    for chunk in sorted(chunks, key=lambda chunk: -chunk.similarity):
        if chunk.id not in known and neutralise(chunk.text).strip():  # what nobody can see is no text
            known.add(chunk.id)
            groups.setdefault((chunk.source_type, chunk.source_id), {}).setdefault(chunk.text.strip(), chunk)
    return [list(group.values()) for group in groups.values()]


class ContextBlock(Struct, frozen=True):
    """What a model reads of one source: `[Source number]`.

    `text` is that of the chunks `chunk_ids`; nothing in it can pose as another block. `similarity` (0..1) is the best
    chunk's. `source_updated_at` is ISO 8601.

    >>> block = ContextBlock(1, "policy", "returns", "30 days.", 0.8, ("c-2",), title="Returns")
    >>> f"[Source {block.number}] {block.title}: {block.text}"
    '[Source 1] Returns: 30 days.'
    """

    number: int
    source_type: str
    source_id: str
    text: str
    similarity: float
    chunk_ids: tuple[str, ...]
    title: str | None = None
    url: str | None = None
    source_updated_at: str | None = None

    @property
    def quoted(self) -> str:
        """As a prompt shows it: a header, and the text with each line quoted.

        >>> print(ContextBlock(1, "policy", "returns", "30 days.", 0.8, ("c-2",), title="Returns").quoted)
        [Source 1] (Similarity: 0.80)
        Title: Returns | Type: Policy
        ---
        > 30 days.
        """
        return _prompt_block(self.number, self, self.text).text

    @property
    def tokens(self) -> int:
        """What `quoted` costs, by the bundled tokenizer.

        >>> ContextBlock(1, "policy", "returns", "30 days.", 0.8, ("c-2",), title="Returns").tokens
        25
        """
        return count_tokens(self.quoted)


@checked_call
def build_context_blocks(
    chunks: Iterable[Chunk],
    max_context_tokens: int = 4000,
    max_context_characters: int | None = None,
    max_chunks_per_source: int = 3,
    max_sources: int = 5,
    merge_strategy: MergeStrategy = "concatenate",
) -> list[ContextBlock]:
    """Blocks numbered from 1: the source of the most similar chunk first, no chunk twice.

    A source (type and id) gives its `max_chunks_per_source` most similar chunks: in one block, in the order they have
    in the source and joined by an empty line ("concatenate"), or in a block each ("separate").

    The blocks as a prompt shows them, headers and quotes included, have at most `max_context_tokens` tokens of the
    bundled tokenizer, or `max_context_characters` characters where that is given. The block that does not fit loses
    its weakest chunks, then is cut at a sentence's end, and is the last one.

    Raises InvalidInput for a limit below 1 and for another strategy.

    >>> chunks = [
    ...     Chunk("c-1", "product", "halden", "Wireless, over-ear.", 0.9, title="Halden 2", position=1),
    ...     Chunk("c-2", "policy", "returns", "30 days.", 0.8, title="Returns"),
    ...     Chunk("c-3", "product", "halden", "189 euros.", 0.7, title="Halden 2", position=0),
    ... ]
    >>> blocks = build_context_blocks(chunks, max_context_tokens=500)
    >>> [(block.source_id, block.text, block.chunk_ids) for block in blocks]
    [('halden', '189 euros.\\n\\nWireless, over-ear.', ('c-3', 'c-1')), ('returns', '30 days.', ('c-2',))]
    >>> print(blocks[1].quoted)
    [Source 2] (Similarity: 0.80)
    Title: Returns | Type: Policy
    ---
    > 30 days.
    """
    limits = {
        "max_context_tokens": max_context_tokens,
        "max_context_characters": max_context_characters,
        "max_chunks_per_source": max_chunks_per_source,
        "max_sources": max_sources,
    }
    for name, limit in limits.items():
        if limit is not None and limit < 1:
            raise InvalidInput(name, limit, "must be a whole number from 1")
    sources = [group[:max_chunks_per_source] for group in group_by_source(chunks)[:max_sources]]
    if merge_strategy == "separate":
        sources = [[chunk] for group in sources for chunk in group]
    if max_context_characters is None:
        filled = fill(sources, _draft, count_tokens, max_context_tokens)
    else:
        filled = fill(sources, _draft, lambda text: len(text) + len(SEPARATOR), max_context_characters + len(SEPARATOR))
    return [
        ContextBlock(
            number=draft.number,
            text=draft.body,
            similarity=kept[0].similarity,
            chunk_ids=tuple(chunk.id for chunk in _in_order(kept)),
            **_source(kept[0]),
        )
        for draft, kept in filled
    ]


def _source(of: Chunk | ContextBlock) -> JsonObject:
    shared = ("source_type", "source_id", "title", "url", "source_updated_at")
    return {name: getattr(of, name) for name in shared}


def _draft(number: int, chunks: Sequence[Chunk]) -> PromptBlock:
    return _prompt_block(number, chunks[0], SEPARATOR.join(chunk.text.strip() for chunk in _in_order(chunks)))


def _in_order(chunks: Sequence[Chunk]) -> list[Chunk]:
    return sorted(chunks, key=lambda chunk: chunk.position)


def _prompt_block(number: int, of: Chunk | ContextBlock, text: str) -> PromptBlock:
    fields = {
        "title": of.title,
        "type": of.source_type.replace("_", " ").title(),
        "url": of.url,
        "updated": of.source_updated_at,
    }
    known = header_line({key: value for key, value in fields.items() if value})
    return PromptBlock(number, f" (Similarity: {of.similarity:.2f})\n{known}", neutralise(text))


@dataclass(frozen=True, slots=True)
class Evidence:
    """A source, and the chunks of it that were used. `score` is the best one's similarity (0..1).

    `dataclasses.asdict` makes it JSON, to store beside a chat message.

    >>> from dataclasses import asdict
    >>> asdict(Evidence("policy", "returns", ("c-2",), 0.8, title="Returns"))["chunk_ids"]
    ('c-2',)
    """

    source_type: str
    source_id: str
    chunk_ids: tuple[str, ...]
    score: float
    title: str | None = None
    url: str | None = None
    source_updated_at: str | None = None


@checked_call
def build_evidence(context_blocks: Iterable[ContextBlock]) -> list[Evidence]:
    """Of the sources in a context, in its order.

    >>> block = ContextBlock(1, "policy", "returns", "30 days.", 0.8, ("c-2",), title="Returns")
    >>> build_evidence([block])[0]
    Evidence(source_type='policy', source_id='returns', chunk_ids=('c-2',), score=0.8, title='Returns', url=None, source_updated_at=None)
    """
    sources: dict[tuple[str, str], list[ContextBlock]] = {}
    for block in context_blocks:
        sources.setdefault((block.source_type, block.source_id), []).append(block)
    return [
        Evidence(
            chunk_ids=tuple(chunk_id for block in blocks for chunk_id in block.chunk_ids),
            score=max(block.similarity for block in blocks),
            **_source(blocks[-1]),
        )
        for blocks in sources.values()
    ]


def build_evidence_from_chunks(chunks: Iterable[Chunk]) -> list[Evidence]:
    """Of everything that was retrieved, the source of the most similar chunk first.

    >>> chunks = [Chunk("c-1", "page", "faq", "Monday.", 0.7), Chunk("c-2", "page", "faq", "Tuesday.", 0.9)]
    >>> [(evidence.source_id, evidence.chunk_ids, evidence.score) for evidence in build_evidence_from_chunks(chunks)]
    [('faq', ('c-2', 'c-1'), 0.9)]
    """
    return [
        Evidence(chunk_ids=tuple(chunk.id for chunk in group), score=group[0].similarity, **_source(group[0]))
        for group in group_by_source(chunks)
    ]


class Message(TypedDict):
    """As the chat endpoints of models take it.

    >>> Message(role="user", content="Do you sell headphones?")
    {'role': 'user', 'content': 'Do you sell headphones?'}
    """

    role: Literal["system", "user", "assistant"]
    content: str


@checked_call
def assemble_prompt(
    context_blocks: Iterable[ContextBlock], user_message: str, *, system_template: str | None = None
) -> str:
    """One text: the system message, the context, the user's message.

    Raises InvalidInput for an empty message.

    >>> block = ContextBlock(1, "policy", "returns", "30 days.", 0.8, ("c-2",), title="Returns")
    >>> prompt = assemble_prompt([block], "How long can I return it?", system_template="You help customers.")
    >>> prompt.startswith("You help customers."), "> 30 days." in prompt, prompt.endswith("How long can I return it?")
    (True, True, True)
    """
    chat = assemble_chat_prompt(context_blocks, user_message, system_template=system_template)
    return SEPARATOR.join(message["content"] for message in chat)


@checked_call
def assemble_chat_prompt(
    context_blocks: Iterable[ContextBlock], user_message: str, *, system_template: str | None = None
) -> list[Message]:
    """A system message, and a user's with the context in front of what the user says.

    >>> [message["role"] for message in assemble_chat_prompt([], "Do you sell headphones?")]
    ['system', 'user']
    """
    return assemble_conversation_prompt(context_blocks, user_message, (), system_template=system_template)


@checked_call
def assemble_conversation_prompt(
    context_blocks: Iterable[ContextBlock],
    user_message: str,
    history: Iterable[Mapping[str, object]],
    *,
    system_template: str | None = None,
) -> list[Message]:
    """As `assemble_chat_prompt`, with the earlier turns between, oldest first, as `{"role": ..., "content": ...}`.

    Only the new message has a context; `[Source 1]` in an earlier answer, which meant another one, becomes
    `(its Source 1)`. Raises InvalidInput for a turn that is neither the user's nor the assistant's.

    >>> turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello! See [Source 2]."}]
    >>> prompt = assemble_conversation_prompt([], "Do you sell headphones?", turns)
    >>> [message["role"] for message in prompt], prompt[2]["content"]
    (['system', 'user', 'assistant', 'user'], 'Hello! See (its Source 2).')
    """
    text = SEPARATOR.join(block.quoted for block in context_blocks) or "(nothing was found)"
    question = _require_text("user_message", user_message)
    system, user = (each.render(context=text, question=question) for each in _released_messages())
    instructions = system if system_template is None else _require_text("system_template", system_template)
    return [
        Message(role="system", content=instructions),
        *(_turn(each) for each in history),
        Message(role="user", content=user),
    ]


def _turn(said: Mapping[str, object]) -> Message:
    role, content = said.get("role"), said.get("content")
    if role not in ("user", "assistant") or not isinstance(content, str):
        raise InvalidInput("history", role, "each turn must be a text with the role user or assistant")
    return Message(role=role, content=neutralise(content) if role == "assistant" else content)


def _require_text(name: str, text: str) -> str:
    if not text.strip():
        raise InvalidInput(name, text, "is empty")
    return text


@cache
def _released_messages() -> list[Template]:
    """The system's and the user's message of the active version of prompts/library_assistant."""
    folder = resource_folder("prompts")
    active = tomllib.loads((folder / "manifest.toml").read_text("utf-8"))["library_assistant"]["active"]
    text = (folder / "library_assistant" / f"{active}.jinja").read_text("utf-8")
    return [Template(message.strip()) for message in _MESSAGE.findall(text)]
