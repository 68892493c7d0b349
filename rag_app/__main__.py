"""`python -m rag_app` is `rag-app`."""

from rag_app.console.cli import run

if __name__ == "__main__":  # not in worker processes, which import this again where they are spawned
    run()
