"""`rag-app evaluate`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rag_app.console.commands import Application, Index, Json, Mode, Org, group, on_application
from rag_app.console.printing import counting, print_result
from rag_app.domain.answer import Hit
from rag_app.domain.errors import InvalidInput
from rag_app.domain.resources import resource_folder

if TYPE_CHECKING:
    from rag_app.evaluation.judgments import Judgments, Query

app = group()


@app.command()
@on_application
async def evaluate(
    application: Application,
    index: Index,
    org: Org,
    queries: Annotated[
        Path | None, typer.Option(metavar="F", help="JSONL with `id` and `text`; the index's own judgments otherwise")
    ] = None,
    qrels: Annotated[Path | None, typer.Option(metavar="F", help="TREC judgments: query 0 external-id grade")] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="what the organization judged: by /validate, and by feedback")
    ] = False,
    mode: Mode = "hybrid",
    as_json: Json = False,
) -> None:
    """Measure retrieval: nDCG@10, P@k, R@k, MRR, hit rate."""
    from rag_app.evaluation.report import make_report, report_json, report_text, run_retrieval, source_names
    from rag_app.retrieval.index import find_index
    from rag_app.surfaces.library.asking import question_of, scope_of

    if (queries is None) != (qrels is None):
        raise InvalidInput("", queries, "--queries and --qrels go together: give both, or none of them")
    if recorded and queries is not None:
        raise InvalidInput("", queries, "--recorded asks what was judged: give no --queries with it")
    spec = find_index(application.indexes, index)
    chosen = question_of("any", 1, mode, [])
    organization = await application.people.organization(org)
    judgments = await _judgments(application, org, spec.name, queries, qrels, recorded)

    async def search(query: "Query", depth: int) -> tuple[Hit, ...]:
        """As the user and on the site that the question is judged for."""
        scope = await scope_of(application, org, query.user, query.site)
        return await application.pipeline.search(spec.name, question_of(query.text, depth, mode, []), scope)

    names = source_names(judgments.qrels, spec.name, [organization.id])
    with counting("questions", len(judgments.queries)) as count:
        done = await run_retrieval(judgments.queries, search, names, rule=spec.confidence, progress=count)
    report = make_report(spec.name, chosen.mode, done, judgments, spec.confidence)
    print_result(as_json, report_json(report), report_text(report))


async def _judgments(
    application: Application, org: str, index: str, queries: Path | None, qrels: Path | None, recorded: bool
) -> "Judgments":
    """Those of the files, those that the organization recorded, or the index's own that are this organization's."""
    from rag_app.evaluation.judgments import judgments_of, read_judgments, read_trec

    if queries is not None and qrels is not None:
        return read_trec(queries, qrels)
    if recorded:
        member = await application.people.member_of(org)
        return judgments_of(await application.validations.recorded(member, index))
    slug = (await application.people.organization(org)).slug
    judgments = read_judgments(resource_folder("indexes") / index / "judgments.jsonl")
    asked = tuple(query for query in judgments.queries if query.organization == slug)
    ids = {query.id for query in asked}
    return replace(judgments, queries=asked, qrels={q: grades for q, grades in judgments.qrels.items() if q in ids})
