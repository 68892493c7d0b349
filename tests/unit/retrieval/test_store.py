"""Chunks as LlamaIndex has them."""

from uuid import uuid4

from llama_index.core.schema import MetadataMode, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import chunk_node, show_times


def test_a_chunk_is_the_node_that_llama_index_would_construct() -> None:
    source, metadata = str(uuid4()), {"title": "Doors", "position": 1}
    metadata |= {"source_id": source}
    for embedding in (None, [0.5, 0.25]):
        id_ = uuid4()
        made, other = chunk_node(id_, "A door.", metadata, embedding), chunk_node(uuid4(), "", metadata)
        constructed = TextNode(
            id_=str(id_),
            text="A door.",
            metadata=metadata,
            embedding=embedding,
            excluded_llm_metadata_keys=other.excluded_llm_metadata_keys,
            excluded_embed_metadata_keys=other.excluded_embed_metadata_keys,
            text_template=other.text_template,
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=source)},
        )
        assert made == constructed and made.model_fields_set == constructed.model_fields_set
        assert TextNode.from_dict(made.to_dict()) == made and made.ref_doc_id == source
        assert made.get_content(MetadataMode.ALL) == constructed.get_content(MetadataMode.ALL)
        shown = [*other.excluded_llm_metadata_keys]
        made.excluded_llm_metadata_keys.append("title")
        made.metadata["title"] = "Windows"
        assert (other.excluded_llm_metadata_keys, other.metadata) == (shown, metadata)


def test_a_model_reads_no_plumbing_of_a_chunk() -> None:
    """Neither does a reranker, which LlamaIndex shows what would be embedded; our own code reads all of it."""
    source, shown = str(uuid4()), {"title": "Doors", "section": "Doors > Keys", "page": 3, "source_type": "page"}
    plumbing = {"org_id": str(uuid4()), "source_id": source, "external_id": "doors.md", "position": 1, "version": 2}
    metadata = {**shown, **plumbing, "date": 1767225600.0, "untyped": {"shelf": "B7"}, "author": "Ada"}
    node = chunk_node(uuid4(), "A {door}.", metadata)
    header = "date: 2026-01-01\ntitle: Doors\nsection: Doors > Keys\npage: 3\nsource_type: page\nauthor: Ada"
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert node.get_content(mode) == f"{header}\n\nA {{door}}."
    assert (node.metadata, node.get_content()) == (metadata, "A {door}.")
    undated = chunk_node(uuid4(), "x", {"title": "Doors", "source_id": source})
    assert undated.get_content(MetadataMode.LLM) == "title: Doors\n\nx"


def test_a_model_reads_the_times_of_an_index_as_dates() -> None:
    spec = IndexSpec.model_validate(
        {
            "name": "tools",
            "source_types": ["tool"],
            "default_source_type": "tool",
            "fields": {"bought": "time", "price": "number"},
        }
    )
    metadata = {"source_id": str(uuid4()), "date": 1767225600.0, "bought": 1772668800.0, "price": 9.5}
    found = [NodeWithScore(node=chunk_node(uuid4(), "A drill.", metadata))]
    for _ in range(2):
        (shown,) = show_times(found, spec)
        assert (
            shown.node.get_content(MetadataMode.LLM) == "date: 2026-01-01\nbought: 2026-03-05\nprice: 9.5\n\nA drill."
        )
    assert shown.node.metadata == metadata
