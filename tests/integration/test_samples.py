"""The sample corpora: what is judged is found, what cannot be answered is refused, tenants stay apart."""

from collections.abc import AsyncIterator, Sequence

import pytest

from rag_app.answering.capabilities import capability_for
from rag_app.application import Application, open_application
from rag_app.console.demo import ask_samples, load_samples
from rag_app.database.urls import DatabaseUrls
from rag_app.domain.answer import Hit
from rag_app.domain.resources import resource_folder
from rag_app.evaluation.judgments import Query, read_judgments
from rag_app.evaluation.report import make_report, names_of_judged_sources, run_retrieval
from rag_app.settings import Settings
from rag_app.surfaces.library.rag import question_of, scope_of
from tests.integration.conftest import ON_DEFAULT

pytestmark = ON_DEFAULT


@pytest.fixture
async def loaded(environment: str, database_urls: tuple[str, str]) -> AsyncIterator[Application]:
    urls = DatabaseUrls(database_urls[1], database_urls[0], private=True)
    async with open_application(Settings(), urls) as application:
        assert await load_samples(application) == []
        yield application


async def test_the_samples_answer_what_is_judged(loaded: Application, capsys: pytest.CaptureFixture[str]) -> None:
    assert await ask_samples(loaded) == []
    for spec in loaded.indexes.values():
        judgments = read_judgments(resource_folder("indexes") / spec.name / "judgments.jsonl")
        organizations = [await loaded.people.organization(slug) for slug in ("aurora", "birch")]
        names = names_of_judged_sources(judgments.qrels, spec.name, [each.id for each in organizations])

        async def search(query: Query, depth: int, index: str = spec.name) -> Sequence[Hit]:
            assert query.organization
            scope = await scope_of(loaded, query.organization, query.user, query.site)
            hits = await loaded.pipeline.search(index, question_of(query.text, depth, "hybrid", []), scope)
            assert {hit.org_id for hit in hits} <= scope.organizations
            return hits

        run = await run_retrieval(judgments.queries, search, names, rule=spec.confidence)
        report = make_report(spec.name, question_of("?", 1, "hybrid", []).mode, run, judgments, spec.confidence)
        assert report.configured is not None
        figures = spec.name, report.scores.ndcg[10], report.configured
        assert len(judgments.queries) >= 15 and len(judgments.unanswerable) >= 0.3 * len(judgments.queries), figures
        assert report.scores.ndcg[10] > 0.85, figures
        assert report.configured.answerable_refused <= 20, figures
        assert report.configured.unanswerable_accepted <= 35, figures
    capsys.readouterr()


async def test_a_second_load_writes_nothing(loaded: Application, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert await load_samples(loaded) == []
    said = [line for line in capsys.readouterr().out.splitlines() if " added, " in line]
    assert len(said) == 5
    assert all(" 0 added, 0 updated," in line and line.endswith("0 chunks written") for line in said)


async def test_private_sources_and_sites_of_the_samples(loaded: Application) -> None:
    async def titles(index: str, text: str, org: str, user: str | None = None, site: str | None = None) -> set[str]:
        scope = await scope_of(loaded, org, user, site)
        question = question_of(text, capability_for(index).top_k * 4, "hybrid", [])
        return {hit.title for hit in await loaded.pipeline.search(index, question, scope)}

    notes = "Mila's notes, January 2026"
    assert notes in await titles("org_knowledge", "Mila's notes January", "aurora", "mila@aurora.example")
    assert notes not in await titles("org_knowledge", "Mila's notes January", "aurora")
    assert notes not in await titles("org_knowledge", "Mila's notes January", "birch", "jonas@birch.example")
    returns = "How many days do I have to return an order?"
    assert "Returns and refunds (EU)" in await titles("store_catalogue", returns, "aurora", site="eu")
    assert "Returns and refunds (EU)" not in await titles("store_catalogue", returns, "aurora", site="us")
