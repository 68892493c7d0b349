"""One index: its fields, search in it, and answers from it."""
