"""Plain types that every layer shares. They import nothing else of rag_app."""
