"""`rag-app search` and `rag-app ask`."""

from typing import Annotated

import typer

from rag_app.console.commands import Application, Index, Json, Mode, Org, Site, User, group, on_application
from rag_app.console.printing import answer_json, answer_text, hit_json, hits_text, print_result

app = group()

Question = Annotated[str, typer.Argument(metavar="Q")]
TopK = Annotated[int | None, typer.Option("--top-k", "-k", min=1, max=1000, help="chunks to find")]
Filter = Annotated[
    list[str] | None,
    typer.Option("--filter", "-f", metavar="F", help="e.g. lang=fr, 'date>=2026-01-01', 'source_type in faq,doc'"),
]


@app.command()
@on_application
async def search(
    application: Application,
    question: Question,
    index: Index,
    org: Org,
    user: User = None,
    site: Site = None,
    top_k: TopK = 8,
    mode: Mode = "hybrid",
    filters: Filter = None,
    as_json: Json = False,
) -> None:
    """Find what fits a question; no model is called."""
    from rag_app.surfaces.library.rag import Rag

    hits = await Rag(application).search(
        question,
        index=index,
        organization=org,
        user=user,
        site=site,
        filters=filters or (),
        top_k=top_k or 8,
        mode=mode,
    )
    print_result(as_json, {"question": question, "hits": [hit_json(hit) for hit in hits]}, hits_text(hits))


@app.command()
@on_application
async def ask(
    application: Application,
    question: Question,
    index: Index,
    org: Org,
    user: User = None,
    site: Site = None,
    top_k: TopK = None,
    mode: Mode = "hybrid",
    capability: Annotated[
        str | None, typer.Option(metavar="NAME", help="how to answer; by default as the index does")
    ] = None,
    filters: Filter = None,
    as_json: Json = False,
) -> None:
    """Answer a question with citations, or refuse.

    An answer is made from the best hits alone; where they are not good enough, none is given.
    """
    from rag_app.surfaces.library.rag import Rag

    answer = await Rag(application).ask(
        question,
        index=index,
        organization=org,
        user=user,
        site=site,
        filters=filters or (),
        top_k=top_k,
        mode=mode,
        capability=capability,
    )
    print_result(as_json, {"question": question, **answer_json(answer)}, answer_text(answer))
