"""From hits to an answer: capabilities, context, prompts, models, citations, and the engine that joins them."""
