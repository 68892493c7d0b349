"""`rag-app calibrate`: questions whose answers are known, asked as they would be, and the fit that judges hits by them."""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from rag_app.answering.capabilities import Capability, capability_for
from rag_app.application import Application
from rag_app.domain import PUBLIC_ORGANIZATION, InvalidInput, JsonObject, Scope, require, resource_folder, source_id
from rag_app.evaluation.calibration import LEAST_OF_A_KIND, AskedQuestion, auroc, fit_gate
from rag_app.evaluation.judgments import JudgmentSet, Query
from rag_app.retrieval.confidence import Basis, Fit, shipped_fit
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces.library.rag import question_of, scope_of


async def calibrate_index(
    application: Application,
    spec: IndexSpec,
    organization: str | None,
    judgments: JudgmentSet,
    keep: bool,
    progress: Callable[[int], None],
) -> JsonObject:
    """Fit an organization's questions, or those of the index where it is None; keep the fit with the active generation.

    An organization's fit is drawn towards that of the index, the index's towards what is shipped for the embedding
    model. Raises InvalidInput for a question of another organization, and where there are too few.
    """
    generation = await application.backends.active(spec)
    owner = PUBLIC_ORGANIZATION
    if organization is not None:
        owner = (await application.people.organization(organization)).id
    asked = await _ask(application, spec, organization, judgments, progress)
    prior, basis = await _prior(application, spec, organization)
    fit = fit_gate(asked, application.embedder.model_name, prior)
    if keep:
        await application.calibrations.keep(generation.id, owner, fit)
    return {
        "index": spec.name,
        "organization": organization,
        "generation": generation.number,
        "kept": keep,
        "questions": {"answerable": fit.answerable, "unanswerable": fit.unanswerable},
        "before": {"calibration": basis, **_figures(prior or fit, asked)},
        "fitted": _figures(fit, asked),
    }


async def _prior(application: Application, spec: IndexSpec, organization: str | None) -> tuple[Fit | None, Basis]:
    """What a fit is drawn towards; None where nothing was fitted to the embedding model."""
    model = application.embedder.model_name
    found, basis = shipped_fit(resource_folder("indexes"), spec.name, model)
    if organization is not None:
        found, basis = await application.fit_for(spec, Scope(frozenset({PUBLIC_ORGANIZATION})), anew=True)
    return (found if found.embedding_model == model else None), basis


async def _ask(
    application: Application,
    spec: IndexSpec,
    organization: str | None,
    judgments: JudgmentSet,
    progress: Callable[[int], None],
) -> list[AskedQuestion]:
    """The signals of each question. Where few have no answer, the others count again without their judged sources."""
    capability = capability_for(spec.name)
    known = [query for query in judgments.queries if query.id in judgments.answerable | judgments.unanswerable]
    withhold = len(judgments.unanswerable) < LEAST_OF_A_KIND
    asked = []
    for done, query in enumerate(known, 1):
        answerable = query.id in judgments.answerable
        found = await _signals(application, capability, organization, query, ())
        asked.append(replace(found, answerable=answerable))
        if answerable and withhold:
            sources = [name for name, grade in judgments.qrels[query.id].items() if grade >= 1]
            asked.append(await _signals(application, capability, organization, query, sources))
        progress(done)
    return asked


async def _signals(
    application: Application,
    capability: Capability,
    organization: str | None,
    query: Query,
    withheld: Collection[str],
) -> AskedQuestion:
    """A question without an answer, unless told otherwise: the withheld sources are those that have it."""
    whose = require(
        organization or query.organization,
        InvalidInput(query.id, None, "has no organization: give --org, or add `organization` to the question's line"),
    )
    if organization is not None and query.organization not in (None, organization):
        raise InvalidInput(query.id, query.organization, f"belongs to another organization than {organization}")
    scope = await scope_of(application, whose, query.user, query.site)
    names = {source_id(org, capability.index, name) for org in scope.organizations for name in withheld}
    question = question_of(query.text, capability.top_k, "hybrid", [])
    judgment = await application.pipeline.judge(capability.name, question, scope, without=names)
    return AskedQuestion(judgment.signals, answerable=False)


def _figures(fit: Fit, asked: list[AskedQuestion]) -> JsonObject:
    """What a fit does to the questions, in per cent, and its thresholds (0..1)."""
    good = [fit.probability(each.signals) for each in asked if each.answerable]
    bad = [fit.probability(each.signals) for each in asked if not each.answerable]

    def share(probabilities: list[float], refused: bool, threshold: float) -> float:
        return round(100 * sum((each < threshold) is refused for each in probabilities) / len(probabilities), 1)

    return {
        "auroc": round(auroc(good, bad), 4),
        **{
            name: {
                "from": threshold,
                "answerable_refused_percent": share(good, True, threshold),
                "unanswerable_accepted_percent": share(bad, False, threshold),
            }
            for name, threshold in (("ask", fit.ask_from), ("answer", fit.answer_from), ("high", fit.high))
        },
    }
