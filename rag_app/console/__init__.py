"""The `rag-app` command: a module for each group of commands, with what they take and what they do."""
