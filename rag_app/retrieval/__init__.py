"""From a question to hits: index specs, filters, embedding, fusion, postprocessors, confidence."""
