"""Retrieval finds the hits of a question: index specs, filters, embedding, fusion, postprocessors, confidence."""
