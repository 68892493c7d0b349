"""Logs, metrics and traces: code calls `observing`; `setup` configures where they go."""
