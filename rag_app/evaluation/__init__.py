"""How good retrieval is, against judgments; and from which cosine an index should answer."""
