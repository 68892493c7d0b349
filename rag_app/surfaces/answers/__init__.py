"""Feedback on answers outside conversations."""
