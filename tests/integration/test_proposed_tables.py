"""Tables that nobody declared anything for: ingested with the index.toml that is proposed, and asked as people ask."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from rag_app.answering.capabilities import CAPABILITIES, capability_named, register
from rag_app.application import Application, open_readers
from rag_app.documents.metadata import Target
from rag_app.documents.proposals import propose
from rag_app.retrieval.index import load_index
from rag_app.surfaces.library.rag import Rag
from tests.conftest import NewOrganization
from tests.integration.conftest import ON_DEFAULT

MOVIES = (
    "title,studio,year,production_budget,pop\nDusk,Alder,1955,300,12\nDawn,Alder,1960,200,15\nNoon,Birch,1955,500,9\n"
)
TOLLS = """first_name,last_name,age,gender,death_date
Ada,Holm,70,Female,1992-04-30
Bo,Lind,15,Male,1992-04-30
Cy,Moor,15,Male,1992-05-02
"""


@ON_DEFAULT
@pytest.mark.parametrize(
    ("file", "asked", "said"),
    [
        ("movies", ["How many films are there?"], "There are 3 movies"),
        ("movies", ["How many films of Alder came out in 1955?"], "There is 1 movie"),
        ("movies", ["Which movie had the largest budget?"], "“Noon”"),
        ("movies", ["What was the population of Dawn?"], "15"),
        ("movies", ["Was the average budget higher in 1955 or in 1960?"], "400 against 200"),
        ("movies", ["the average budget in 1955", "and in 1960?"], "200"),
        ("tolls", ["How many people died on 30 April?"], "There are 2"),
        ("tolls", ["How many people died between 29 April and 1 May?"], "There are 2"),
        ("tolls", ["How many women died?"], "There is 1"),
        ("tolls", ["What was the age of the oldest man?"], "The 2 oldest of 2"),
        ("tolls", ["Who was the oldest?"], "“Ada Holm”"),
        (
            "tolls",
            ["Which victims were under 20?", "how old was the second one?"],
            "“Bo Lind”",
        ),  # the newest is the first
    ],
)
async def test_a_proposed_table_is_asked(
    application: Application, organization: NewOrganization, tmp_path: Path, file: str, asked: list[str], said: str
) -> None:
    table = tmp_path / f"{file}.csv"
    table.write_text({"movies": MOVIES, "tolls": TOLLS}[file])
    (folder := tmp_path / file).mkdir()
    with closing(open_readers(application.settings, 1)) as readers:
        (folder / "index.toml").write_text(next(propose(readers, [table], [])))
    spec = application.indexes[file] = load_index(folder)
    await application.build_missing()
    made = register(replace(capability_named("knowledge_answer"), name=file, index=file))
    try:
        owner = await organization()
        await (await application.ingestor(spec, Target(owner.id))).ingest([table], base=tmp_path)
        application.calendar.now = lambda: datetime(2026, 1, 14, tzinfo=UTC)
        *before, text = asked
        answer = await Rag(application).ask(text, index=file, organization=owner.slug, earlier_questions=before)
        assert said in answer.text, answer.understood
    finally:
        CAPABILITIES.remove(made)
