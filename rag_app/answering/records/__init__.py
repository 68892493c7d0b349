"""Answers from records: a question becomes a query over declared fields, and what it finds is told."""
