"""A question asked step by step, for whoever tunes retrieval and prompts."""
