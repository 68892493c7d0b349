"""`rag-app calibrate`: a fit of an organization's own questions, which judges its hits and nobody else's."""

import json
from itertools import product
from pathlib import Path

import pytest
from sqlalchemy import select

from rag_app.application import Application
from rag_app.console.answers import calibrate_index
from rag_app.console.printing import render_text
from rag_app.domain.errors import InvalidInput
from rag_app.evaluation.judgments import JudgmentSet, Query, read_trec
from rag_app.evaluation.tables import calibrations_table
from rag_app.surfaces.library.rag import Rag, question_of, scope_of
from tests.conftest import NewOrganization
from tests.integration.conftest import ON_DEFAULT

pytestmark = ON_DEFAULT
INDEX = "book"
PLANTS = ("fern", "orchid", "cactus", "ivy", "palm", "lily", "moss", "basil")
ROOMS = ("kitchen", "hall", "attic", "cellar")
WHO = ("Ada", "Bruno", "Clara", "Dmitri", "Elif", "Farid", "Greta", "Hugo")
QUESTIONS = [
    (f"{plant}-{room}", f"Who waters the {plant} in the {room}?", f"{who} waters the {plant} in the {room}.")
    for (plant, room), who in zip(product(PLANTS, ROOMS), WHO * 4, strict=True)
]


async def write(application: Application, slug: str, folder: Path) -> JudgmentSet:
    """The organization's sources, and 32 questions that each has an answer in one of them."""
    for name, _, text in QUESTIONS:
        (folder / f"{name}.txt").write_text(text, "utf-8")
    await Rag(application).ingest(folder, index=INDEX, organization=slug, base=folder)
    queries, qrels = folder.parent / "queries.jsonl", folder.parent / "qrels.trec"
    queries.write_text("".join(f"{json.dumps({'id': name, 'text': text})}\n" for name, text, _ in QUESTIONS), "utf-8")
    qrels.write_text("".join(f"{name} 0 {name}.txt 1\n" for name, _, _ in QUESTIONS), "utf-8")
    return read_trec(queries, qrels)


async def test_an_organizations_fit_judges_its_hits_and_nobody_elses(
    application: Application, organization: NewOrganization, tmp_path: Path
) -> None:
    mine, other = await organization(), await organization()
    folder = tmp_path / "sources"
    folder.mkdir()
    judgments, spec = await write(application, mine.slug, folder), application.indexes[INDEX]
    here, there = [await scope_of(application, each.slug, None, None) for each in (mine, other)]
    assert (await application.fit_for(spec, here))[1] == "index", "nothing is kept yet"
    shown = await calibrate_index(application, spec, mine.slug, judgments, True, lambda done: None)
    assert shown["questions"] == {"answerable": 32, "unanswerable": 32}, "each again without the source that answers"
    assert shown["before"]["calibration"] == "index" and shown["fitted"]["auroc"] >= 0.5
    assert shown["fitted"]["ask"]["answerable_refused_percent"] <= 2
    assert "32 questions with an answer, 32 without" in render_text("calibration.txt", **shown)

    fit, basis = await application.fit_for(spec, here)
    assert (basis, fit.answerable, fit.embedding_model) == ("organization", 32, application.embedder.model_name)
    assert (await application.fit_for(spec, there))[1] == "index"
    question = question_of(QUESTIONS[0][1], 5, "hybrid", [])
    assert (await application.pipeline.judge("book_tutor", question, here)).basis == "organization"
    assert (await application.pipeline.judge("book_tutor", question, there)).basis == "fixed", "it has no hits"
    assert await application.database.read(there, select(calibrations_table.c.fit)) == [], "row-level security"
    assert len(await application.database.read(here, select(calibrations_table.c.fit))) == 1


async def test_no_other_organizations_question_goes_into_a_fit(
    application: Application, organization: NewOrganization
) -> None:
    mine, spec = await organization(), application.indexes[INDEX]
    asked = Query(id="theirs", text="Who?", organization="somebody-else", answerable=False)
    with pytest.raises(InvalidInput, match="belongs to another organization"):
        await calibrate_index(application, spec, mine.slug, JudgmentSet((asked,), {}), True, lambda done: None)
    own = Query(id="mine", text="Who?", answerable=False)
    with pytest.raises(InvalidInput, match="30 judged questions or more"):
        await calibrate_index(application, spec, mine.slug, JudgmentSet((own,), {}), True, lambda done: None)
