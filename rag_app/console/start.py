"""`rag-app serve` and `rag-app demo`: what starts the server."""

from typing import Annotated

import typer

from rag_app.console.commands import group

app = group()


@app.command()
def demo(
    check: Annotated[bool, typer.Option("--check", help="do it all, then exit; non-zero if amiss")] = False,
) -> None:
    """Load the sample corpora, ask them questions, then serve the API."""
    from rag_app.console.demo import run_demo

    raise typer.Exit(run_demo(check=check))


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on (RAG_HOST)")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="port to listen on; 0: any (RAG_PORT)")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="processes (RAG_WORKERS)")] = None,
) -> None:
    """Serve the HTTP API."""
    from rag_app.console.serving import claim_port, serve_at
    from rag_app.settings import Settings

    api = Settings().api
    with claim_port(host or api.host, api.port if port is None else port) as claim:
        serve_at(claim, workers or api.workers)
