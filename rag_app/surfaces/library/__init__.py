"""rag_app as a library: thin functions over the pipeline and its parts. `rag_app/__init__.py` names what is public."""
