"""Chunks to context blocks: deduplicated, one a source, within a budget."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rag_app.answering import context
from rag_app.domain.errors import InvalidInput
from rag_app.surfaces.library.chunks import Chunk, by_source

MergeStrategy = Literal["concatenate", "separate"]

SEPARATOR = "\n\n"
"""Between the chunks of a block, and between blocks."""


@dataclass(frozen=True, slots=True)
class ContextBlock:
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
        return _shown(self.number, self, self.text).text

    @property
    def tokens(self) -> int:
        """What `quoted` costs, by the bundled tokenizer.

        >>> ContextBlock(1, "policy", "returns", "30 days.", 0.8, ("c-2",), title="Returns").tokens
        25
        """
        return context.count_tokens(self.quoted)


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
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise InvalidInput(name, limit, "must be a whole number from 1")
    if merge_strategy not in get_args(MergeStrategy):
        raise InvalidInput("merge_strategy", merge_strategy, f"accepted: {', '.join(get_args(MergeStrategy))}")
    with_text = (chunk for chunk in chunks if chunk.text.strip())
    sources = [group[:max_chunks_per_source] for group in by_source(with_text)[:max_sources]]
    if merge_strategy == "separate":
        sources = [[chunk] for group in sources for chunk in group]
    if max_context_characters is None:
        filled = context.fill(sources, _draft, context.count_tokens, max_context_tokens)
    else:
        filled = context.fill(sources, _draft, _characters, max_context_characters + len(SEPARATOR))
    return [_block(draft, kept) for draft, kept in filled]


def _characters(text: str) -> int:
    return len(text) + len(SEPARATOR)


def _draft(number: int, chunks: Sequence[Chunk]) -> context.ContextBlock:
    return _shown(number, chunks[0], SEPARATOR.join(chunk.text.strip() for chunk in _in_order(chunks)))


def _block(draft: context.ContextBlock, chunks: Sequence[Chunk]) -> ContextBlock:
    best = chunks[0]
    return ContextBlock(
        number=draft.number,
        source_type=best.source_type,
        source_id=best.source_id,
        text=draft.body,
        similarity=best.similarity,
        chunk_ids=tuple(chunk.id for chunk in _in_order(chunks)),
        title=best.title,
        url=best.url,
        source_updated_at=best.source_updated_at,
    )


def _in_order(chunks: Sequence[Chunk]) -> list[Chunk]:
    return sorted(chunks, key=lambda chunk: chunk.position)


def _shown(number: int, of: Chunk | ContextBlock, text: str) -> context.ContextBlock:
    fields = {
        "title": of.title,
        "type": of.source_type.replace("_", " ").title(),
        "url": of.url,
        "updated": of.source_updated_at,
    }
    known = context.header_line({key: value for key, value in fields.items() if value})
    header = f" (Similarity: {of.similarity:.2f})\n{known}"
    return context.ContextBlock(number, header, context.neutralise(text))
