"""Chunks as LlamaIndex has them."""

from uuid import uuid4

from llama_index.core.schema import MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode

from rag_app.retrieval.store import chunk_node


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
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=source)},
        )
        assert made == constructed and made.model_fields_set == constructed.model_fields_set
        assert TextNode.from_dict(made.to_dict()) == made and made.ref_doc_id == source
        assert made.get_content(MetadataMode.ALL) == constructed.get_content(MetadataMode.ALL)
        made.excluded_llm_metadata_keys.append("title")
        made.metadata["title"] = "Windows"
        assert (other.excluded_llm_metadata_keys, other.metadata) == ([], metadata)
