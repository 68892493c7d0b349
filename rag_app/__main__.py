"""`python -m rag_app` is `rag-app`."""

from rag_app.cli import main

main()
