"""`rag-app search`, `rag-app ask` and `rag-app evaluate`."""

import inspect
import sys
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace
from typer import Argument, Option, launch

from rag_app.console.commands import (
    Application,
    Filter,
    Index,
    Json,
    Mode,
    Site,
    User,
    command_after,
    group,
    on_application,
)
from rag_app.console.lazy_packages import build_schemas_later
from rag_app.console.printing import (
    answer_json,
    answer_text,
    hit_json,
    hits_text,
    print_result,
    progress_counter,
    render_text,
)
from rag_app.domain import PUBLIC_ORGANIZATION, Hit, InvalidInput, Scope, source_id

if TYPE_CHECKING:
    from rag_app.evaluation.judgments import JudgmentSet, Query
    from rag_app.surfaces.library.rag import Rag

app = group()

_MOST_NAMED = 10  # unknown sources in a message

AnyIndex = Annotated[
    str | None,
    Option(
        "--index",
        "-i",
        metavar="I",
        help="index: its name or an alias; by default the only one with sources of the organization",
    ),
]
AnyOrg = Annotated[
    str | None,
    Option("--org", "-o", metavar="O", help="organization: slug or id; by default the only one with sources"),
]
Question = Annotated[str, Argument(metavar="Q")]
TopK = Annotated[
    int | None,
    Option(
        "--top-k", "-k", min=1, max=1000, help="maximum number of chunks; search: 8, ask: as the capability declares"
    ),
]
Queries = Annotated[
    Path | None, Option(metavar="F", help="JSONL file with `id` and `text`; the index's own judgments by default")
]
Qrels = Annotated[Path | None, Option(metavar="F", help="file of TREC judgments: query 0 external-id grade")]
RecordedJudgments = Annotated[
    bool, Option("--recorded", help="use the judgments of the organization, from /validate and from feedback")
]


def _open_once(application: Application) -> "Rag":
    """The library for one question: nothing is prepared for a second one."""
    build_schemas_later()
    from rag_app.retrieval.embedding import asks_once
    from rag_app.surfaces.library.rag import Rag

    asks_once.set(True)
    return Rag(application)


def _declare(
    question: Question,
    index: AnyIndex = None,
    organization: AnyOrg = None,
    user: User = None,
    site: Site = None,
    top_k: TopK = None,
    mode: Mode = "hybrid",
    filters: Filter = None,
) -> None:
    """The parameters that `search` and `ask` share. Their names are those of `Rag.search` and `Rag.ask`."""


def on_question(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Decorates work on the arguments for `Rag`. The command takes the shared parameters, then those of `work`."""
    shared = inspect.signature(_declare).parameters
    first, _, *others = inspect.signature(work).parameters.values()

    @wraps(work)
    async def command(application: Application, **given: Any) -> None:
        asked = {name: value for name in shared if (value := given.pop(name)) is not None}
        place = await _choose(application, asked.get("index"), asked.get("organization"))
        await application.check_index(application.index(place[0]))  # another index may not fit, or be empty
        await work(application, asked | dict(zip(("index", "organization"), place, strict=True)), **given)

    command.__signature__ = inspect.Signature([first, *shared.values(), *others])  # type: ignore[attr-defined]
    return command_after(lambda application: application.start(()))(command)


@app.command()
@on_question
async def search(application: Application, asked: dict[str, Any], as_json: Json = False) -> None:
    """Search for chunks. No answering model is called."""
    hits = await _open_once(application).search(**asked)
    found = {"question": asked["question"], "hits": [hit_json(hit) for hit in hits]}
    print_result(as_json, found, hits_text(hits))
    if not hits:
        await _tell_of_other_store(application, asked["index"])


@app.command()
@on_question
async def ask(
    application: Application,
    asked: dict[str, Any],
    capability: Annotated[
        str | None, Option(metavar="NAME", help="the capability that answers; the index's own by default")
    ] = None,
    open_source: Annotated[
        bool, Option("--open", help="open the first cited source that has a web address in the browser")
    ] = False,
    as_json: Json = False,
) -> None:
    """Answer a question with citations, or refuse.

    Only the best hits are used for an answer. If they are not good enough, the question is refused.
    """
    answer = await _open_once(application).ask(**asked, capability=capability)
    print_result(as_json, {"question": asked["question"], **answer_json(answer)}, answer_text(answer))
    if answer.refused and not answer.citations:
        await _tell_of_other_store(application, asked["index"])
    if open_source and not answer.refused:
        addresses = [
            uri for each in answer.citations if (uri := each.hit.uri) and uri.startswith(("https://", "http://"))
        ]
        if addresses:
            launch(addresses[0])
        else:
            print("no cited source has a web address", file=sys.stderr)


@app.command()
@on_application
async def evaluate(
    application: Application,
    index: Annotated[str | None, Option("--index", "-i", metavar="I", help="index: its name or an alias")] = None,
    org: Annotated[str | None, Option("--org", "-o", metavar="O", help="organization: slug or id")] = None,
    answers: Annotated[
        Path | None,
        Option(metavar="F", help="ask these questions over HTTP and check the answers (tests/answers/README.md)"),
    ] = None,
    user: Annotated[
        str | None, Option(metavar="U", help="with --answers: the user who asks if a question names none")
    ] = None,
    corpus: Annotated[
        str | None, Option(metavar="NAME", help="with --answers: only ask the questions of this corpus")
    ] = None,
    queries: Queries = None,
    qrels: Qrels = None,
    recorded: RecordedJudgments = False,
    mode: Mode = "hybrid",
    as_json: Json = False,
) -> None:
    """Measure retrieval: nDCG@10, P@k, R@k, MRR, hit rate. With --answers, measure answers.

    With --answers, each question is asked in the index and organization that it names. To ask the questions of another
    corpus, give --corpus, --index and --org.
    """
    if answers is not None:
        await _evaluate_answers(application, answers, corpus, index, org, user, as_json)
        return
    if index is None or org is None:
        raise InvalidInput("", None, "give --index and --org, or --answers")
    if corpus is not None or user is not None:
        raise InvalidInput("", corpus or user, "--corpus and --user can only be used with --answers")
    from rag_app.evaluation.report import make_report, names_of_judged_sources, report_to_json, run_retrieval
    from rag_app.surfaces.library.rag import question_of, scope_of

    spec = application.index(index)
    chosen = question_of("any", 1, mode, [])
    organization = await application.people.organization(org)
    judgments = await _judgments(application, org, spec.name, queries, qrels, recorded)

    async def search(query: "Query", depth: int) -> tuple[Hit, ...]:
        """As the user and on the site that the question is judged for."""
        scope = await scope_of(application, org, query.user, query.site)
        return await application.searcher.search(spec.name, question_of(query.text, depth, mode, []), scope)

    names = names_of_judged_sources(judgments.qrels, spec.name, [organization.id])
    with progress_counter("questions", len(judgments.queries)) as count:
        done = await run_retrieval(judgments.queries, search, names, rule=spec.confidence, progress=count)
    report = make_report(spec.name, chosen.mode, done, judgments, spec.confidence)
    print_result(as_json, report_to_json(report), render_text("report.txt", report=report))


@app.command()
@on_application
async def calibrate(
    application: Application,
    index: Index,
    org: Annotated[
        str | None, Option("--org", "-o", metavar="O", help="calibrate for this organization; by default for the index")
    ] = None,
    queries: Queries = None,
    qrels: Qrels = None,
    recorded: RecordedJudgments = False,
    try_only: Annotated[bool, Option("--try", help="show the result without storing it")] = False,
    as_json: Json = False,
) -> None:
    """Calibrate confidence on judged questions.

    Requires at least 30 judged questions. Questions with `"answerable": false` have no answer. If there are fewer than
    eight of them, the other questions are also asked without the sources that answer them. The calibration is stored
    with the active generation. A calibration for an organization uses only its own questions and applies only to its
    members.
    """
    from rag_app.console.answers import calibrate_index

    spec = application.index(index)
    judgments = await _judgments(application, org, spec.name, queries, qrels, recorded)
    slug = None if org is None else (await application.people.organization(org)).slug
    with progress_counter("questions", len(judgments.queries)) as count:
        shown = await calibrate_index(application, spec, slug, judgments, not try_only, count)
    print_result(as_json, shown, render_text("calibration.txt", **shown))


async def _choose(application: Application, index: str | None, org: str | None) -> tuple[str, str]:
    """The index and the organization to ask. One that is not given is the only one there is, and is told on stderr.

    Raises InvalidInput with the names there are, if there are none or several.
    """
    if index is not None and org is not None:
        return index, org
    from rag_app.documents.catalogue import Catalogue

    people = application.people
    slugs = {each.id: each.slug for each in await people.organizations()}
    asked = slugs if org is None else [(await people.organization(org)).id]
    places = await Catalogue(application.database).indexes(asked)
    organization = org or _only("--org", {slugs[org_id] for org_id, _ in places})
    chosen = index or _only("--index", {name for _, name in places})
    print(f"searches {chosen} of {organization}", file=sys.stderr)
    return chosen, organization


async def _tell_of_other_store(application: Application, index: str) -> None:
    """Where nothing is found because `RAG_VECTOR_STORE` was changed and the index was not copied."""
    from rag_app.console.doctor import describe_other_store
    from rag_app.retrieval.index import find_index

    name = find_index(application.indexes, index).name
    if said := await describe_other_store(application, name):
        print(f"{name}: {said}", file=sys.stderr)


def _only(option: str, names: Collection[str]) -> str:
    if len(names) != 1:
        raise InvalidInput(option, None, f"give one of {', '.join(sorted(names))}" if names else "there are no sources")
    return next(iter(names))


async def _evaluate_answers(
    application: Application,
    path: Path,
    corpus: str | None,
    index: str | None,
    org: str | None,
    user: str | None,
    as_json: bool,
) -> None:
    from rag_app.console.answers import ask_threads
    from rag_app.evaluation.answer_facts import Outcome, Thread, answers_json, count_outcomes
    from rag_app.evaluation.judgments import read_jsonl

    asked = {corpus} if corpus else application.indexes.keys()
    threads = [each for each in read_jsonl(path, Thread) if each.corpus in asked]
    if not threads:
        raise InvalidInput("--corpus", corpus, f"{path} has no question of {', '.join(sorted(asked))}")
    with progress_counter("turns", sum(len(each.turns) for each in threads)) as count:
        scored = await ask_threads(application, threads, index, org, user, count)
    text = render_text("answers.txt", counts=count_outcomes(scored), outcomes=[*Outcome])
    print_result(as_json, answers_json(scored), text)


async def _missing_sources(
    application: Application, org: str | None, index: str, judgments: "JudgmentSet"
) -> Sequence[str]:
    """The relevant sources that neither the organization that a question is asked in nor the public one has: each would count
    as not found."""
    from rag_app.documents.catalogue import Catalogue, SourceSelection

    slugs = {query.id: org or query.organization for query in judgments.queries}
    own = {slug: (await application.people.organization(slug)).id for slug in {*slugs.values()} if slug}
    wanted = {
        (own[slug], name)
        for query, grades in judgments.qrels.items()
        if (slug := slugs.get(query))
        for name, grade in grades.items()
        if grade >= 1
    }
    organizations = frozenset({*own.values(), PUBLIC_ORGANIZATION})
    names = tuple({name for _, name in wanted})
    asked = SourceSelection((index,), external_ids=names, organizations=organizations)
    there = {*await Catalogue(application.database).list_matching(Scope(organizations), asked, operator=True)}
    return sorted(
        {
            name
            for org_id, name in wanted
            if there.isdisjoint(source_id(each, index, name) for each in (org_id, PUBLIC_ORGANIZATION))
        }
    )


async def _judgments(
    application: Application, org: str | None, index: str, queries: Path | None, qrels: Path | None, recorded: bool
) -> "JudgmentSet":
    """From the files that are named, or from what an organization judged, or else the index's own.

    With `org`, of the index's own those of this organization alone.
    """
    from rag_app.evaluation.judgments import judgments_of, read_judgments, read_trec

    if (queries is None) != (qrels is None):
        raise InvalidInput("", queries, "--queries and --qrels must be used together")
    if recorded and queries is not None:
        raise InvalidInput("", queries, "--recorded and --queries cannot be used together")
    if recorded and org is None:
        raise InvalidInput("", None, "--recorded requires --org")
    if queries is not None and qrels is not None:
        given = read_trec(queries, qrels)
        if missing := await _missing_sources(application, org, index, given):
            named = ", ".join(missing[:_MOST_NAMED]) + (", ..." if len(missing) > _MOST_NAMED else "")
            raise InvalidInput(str(qrels), None, f"{len(missing)} of its documents are no source of {index}: {named}")
        return given
    if recorded and org is not None:
        return judgments_of(
            await application.validations.recorded_judgments(await application.people.member_of(org), index)
        )
    file = application.settings.indexes.file(index, "judgments.jsonl")
    if not file.is_file():
        instead = "accepted instead: --queries with --qrels, or --recorded with --org"
        raise InvalidInput(str(file), None, f"does not exist: {index} has no judged questions of its own; {instead}")
    judgments = read_judgments(file)
    if org is None:
        return judgments
    slug = (await application.people.organization(org)).slug
    asked = tuple(query for query in judgments.queries if query.organization == slug)
    ids = {query.id for query in asked}
    return replace(judgments, queries=asked, qrels={q: grades for q, grades in judgments.qrels.items() if q in ids})
