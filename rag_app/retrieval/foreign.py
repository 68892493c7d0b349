"""Nodes that another retriever found: what our own have is filled in, as far as it can be known."""

from collections.abc import Sequence
from math import isfinite
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from rag_app.domain import Scope, uuid_in
from rag_app.retrieval.embedding import embed_query, embed_texts
from rag_app.retrieval.store import OTHER_LANGUAGE, searchable_text

NOWHERE = UUID(int=0)
"""The organization of a node that names none."""
_TEXTS = ("title", "uri", "section", "external_id", "file_name")
_OURS = {"org_id", "source_id", "source_type", "title", "lang", "position"}


def adopt(found: Sequence[NodeWithScore], scope: Scope | None = None) -> list[NodeWithScore]:
    """These nodes with the metadata that hits are read from. Those of our own stores stay as they are.

    A node that was filled in is marked: `foreign` is true in its metadata. Its source is the one that it names, else its
    document, else itself; its title is that of the document or the name of its file. With a scope, what says that it
    belongs to somebody outside of it is left out; a node that says nothing is the retriever's to answer for.

    >>> (node,) = adopt([NodeWithScore(node=TextNode(text="Open daily.", metadata={"file_name": "hours.md"}), score=0.7)])
    >>> node.node.metadata["title"], node.node.metadata["foreign"]
    ('hours.md', True)
    """
    seen = [each for each in found if scope is None or _may_be_seen(each.node.metadata, scope)]
    return [each if each.node.metadata.keys() >= _OURS else _complete_node(each) for each in seen]


async def with_cosines(
    found: Sequence[NodeWithScore], query: QueryBundle, embedder: BaseEmbedding
) -> list[NodeWithScore]:
    """The same in the same order, each with its cosine as its score: other retrievers score on scales of their own.

    A node's own embedding is used where it is as long as the question's. Raises EmbeddingFailed.
    """
    if not found:
        return []
    asked = query.embedding or await embed_query(embedder, query.query_str)
    known = {
        place: each.node.embedding for place, each in enumerate(found) if len(each.node.embedding or ()) == len(asked)
    }
    left = [place for place in range(len(found)) if place not in known]
    vectors = await embed_texts(embedder, [searchable_text(found[place].node) for place in left]) if left else []
    known |= dict(zip(left, vectors, strict=True))
    return [NodeWithScore(node=each.node, score=_cosine(asked, known[place])) for place, each in enumerate(found)]


def _cosine(one: Sequence[float], other: Sequence[float] | None) -> float:
    first, second = np.asarray(one), np.asarray(other)
    length = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / length if length else 0.0


def _may_be_seen(meta: dict[str, Any], scope: Scope) -> bool:
    org, site, reader = (uuid_in(str(meta.get(name))) for name in ("org_id", "site_id", "private_to"))
    return (
        (org is None or org in scope.organizations)
        and (site is None or scope.site is None or site == scope.site)
        and (reader is None or reader in scope.readers)
    )


def _complete_node(found: NodeWithScore) -> NodeWithScore:
    node, said = found.node, found.node.metadata
    document = str(said.get("source_id") or node.ref_doc_id or node.node_id)
    texts = {name: str(said[name]) for name in _TEXTS if said.get(name)}
    whole = (node.source_node.metadata if node.source_node is not None else None) or {}
    name = texts.get("title") or texts.get("file_name") or whole.get("title") or whole.get("file_name") or document
    meta = {
        **{key: value for key, value in said.items() if key not in _TYPED_KEYS},
        **texts,
        "org_id": str(uuid_in(str(said.get("org_id"))) or NOWHERE),
        "source_id": str(uuid_in(document) or uuid5(NAMESPACE_URL, document)),
        "source_type": str(said.get("source_type") or "document"),
        "title": str(name),
        "lang": str(said.get("lang") or OTHER_LANGUAGE),
        "position": _number(said.get("position"), int) or 0,
        "date": _number(said.get("date"), float),
        "page": _number(said.get("page"), int) or _number(said.get("page_label"), int),
        "foreign": True,
    }
    score = found.score if found.score is not None and isfinite(found.score) else 0.0
    text = TextNode(
        id_=str(uuid_in(node.node_id) or uuid5(NAMESPACE_URL, node.node_id)),
        text=node.get_content(),
        metadata={key: value for key, value in meta.items() if value is not None},
        embedding=node.embedding,
        relationships=node.relationships,
    )
    return NodeWithScore(node=text, score=max(-1.0, min(1.0, score)))


# Fields of a hit whose values are not taken over as they come.
_TYPED_KEYS = frozenset(
    {"position", "date", "page", "site_id", "owner_id", "private_to", "version", "untyped", "metadata"}
)


def _number(value: Any, kind: type[int] | type[float]) -> float | int | None:
    try:
        return kind(value) if value is not None else None
    except (TypeError, ValueError):
        return None
