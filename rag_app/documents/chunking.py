"""Passages to chunks: cut between sentences, never across a page or a section."""

from collections.abc import Iterator, Sequence

from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import TextNode
from msgspec import to_builtins

from rag_app.documents.documents import Passage
from rag_app.domain import Source, chunk_id
from rag_app.retrieval.index import Chunking
from rag_app.retrieval.store import chunk_node, heading
from rag_app.retrieval.text import sentence_pieces, tokens

_HEADING_SHARE = 3  # of a chunk's tokens, at most one in three goes to title and section


class Chunker:
    """LlamaIndex's SentenceSplitter, counting with the embedding model's tokens, title and section included.

    >>> from uuid import UUID
    >>> notes = Source(UUID(int=1), "notes", "a.md", "Opening hours", "doc", "1")
    >>> [node.get_content() for node in Chunker(Chunking()).split(notes, [Passage("We open at nine.")])]
    ['We open at nine.']
    """

    def __init__(self, chunking: Chunking) -> None:
        self._size = chunking.size
        self._splitter = SentenceSplitter(
            chunk_size=chunking.size,
            chunk_overlap=min(chunking.overlap, chunking.size // 4),
            tokenizer=tokens,
            chunking_tokenizer_fn=sentence_pieces,
        )

    def split(self, source: Source, passages: Sequence[Passage]) -> list[TextNode]:
        """Nodes in document order, with the metadata that stores and citations read; no embeddings yet."""
        return [
            chunk_node(chunk_id(source.id, source.version, position), text, chunk_metadata(source, passage, position))
            for position, (text, passage) in enumerate(self._pieces(source, passages))
        ]

    def _pieces(self, source: Source, passages: Sequence[Passage]) -> Iterator[tuple[str, Passage]]:
        for passage in passages:
            above = heading(TextNode(metadata={"title": source.title, "section": passage.section}))
            while len(tokens(above)) > self._size // _HEADING_SHARE:
                above = above[: len(above) * 3 // 4]
            for text in self._splitter.split_text_metadata_aware(passage.text, above):
                if text.strip():
                    yield text.strip(), passage


def chunk_metadata(source: Source, passage: Passage, position: int) -> dict[str, object]:
    """Only what has a value: a missing key is what "the chunk does not have the field" means to a filter."""
    everything = to_builtins(
        {
            **source.metadata,
            "org_id": source.org_id,
            "source_id": source.id,
            "title": source.title,
            "source_type": source.source_type,
            "lang": source.lang,
            "uri": source.uri,
            "date": source.date,
            "section": passage.section,
            "page": passage.page,
            "position": position,
            "site_id": source.site_id,
            "owner_id": source.owner_id,
            "private_to": source.private_to,
            "version": source.version,
            "external_id": source.external_id,
            "file_name": source.file_name,
            "untyped": source.untyped or None,
            "row": source.row,
            "sheet": source.sheet,
        }
    )
    return {key: value for key, value in everything.items() if value is not None}
