"""The `rag-app` command: what it takes, what it does, and how that looks on a terminal."""
