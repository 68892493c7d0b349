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
# Names that are written short, codes, people and places, a date and yes or no.
VISITS = """visit_dt,owner,vet,animal,sex,wt_kg,dur_min,fee_gbp,chip_seen,branch,damage
2026-01-05,Lena Brook,Dr Falk,small terrier,F,8.5,20,40,yes,Harbour,
2026-01-06,Tom Parr,Dr Amin,large terrier,M,31,45,90,no,Hill,broken claw
2026-01-07,Lena Brook,Dr Amin,cat,F,4,30,55,no,Harbour,
2026-01-09,Ira Voss,Dr Amin,rabbit,M,2,10,25,no,Harbour,
"""
POOLS = """pool_no,district,yr_built,depth_m,cond,heated
P1,North,1931,3.5,poor,no
P2,North,1958,5,good,yes
P3,South,2001,2,good,yes
"""
SWIMS = """heat_no,swimmer,club,dist_km,net_min,result
1,Amy Reed,Otters,1,22,finished
2,Bea Ford,Seals,1,19,finished
3,Cleo Hall,Otters,2,41,finished
4,Dan Moor,Seals,2,,DNF
"""
TABLES = {"movies": MOVIES, "tolls": TOLLS, "visits": VISITS, "pools": POOLS, "swims": SWIMS}


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
        ("visits", ["What did Lena bring in altogether?"], "95"),
        ("visits", ["how much have we charged Tom Parr?"], "90"),
        ("visits", ["How often did Dr Amin see somebody at the Harbour?"], "There are 2"),
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
        ("visits", ["How many appointments did Dr Amin have?"], "There are 3 visits"),
        ("visits", ["How many of the appointments were not with Dr Amin?"], "There is 1 visit"),
        ("visits", ["Who came most often?"], "Lena Brook: 2"),
        ("visits", ["What was the heaviest animal?"], "“Tom Parr"),
        ("visits", ["How heavy are the terriers on average?"], "19.75"),
        ("visits", ["What does a visit set people back on average?"], "52.5"),
        ("visits", ["How many females were there?"], "There are 2"),
        ("visits", ["Where did we see the most cats?"], "Harbour: 1"),
        ("visits", ["Compare the branches: how many visits did each have?"], "Harbour: 3"),
        ("visits", ["How often did somebody see the vets?"], "There are 4 visits"),
        ("visits", ["How many times was no chip seen?"], "There are 3 visits"),
        ("visits", ["How many animals were damaged?"], "1"),
        ("visits", ["How many burglaries were there at Harbour?"], "I don't have enough"),
        ("pools", ["How many pools were built before 1960?"], "There are 2"),
        ("pools", ["Which is the oldest pool?"], "1931"),
        ("pools", ["How many are in poor condition?"], "There is 1 pool"),
        ("pools", ["How many pools are not heated?"], "There is 1 pool"),
        ("pools", ["Where's the deepest one?"], "P2"),
        ("pools", ["How many pools are deeper than 3 m?"], "There are 2"),
        ("tolls", ["How many people were over 20?"], "There is 1"),
        ("tolls", ["How many men were over 20?"], "None of"),
        ("visits", ["How many visits took longer than half an hour?"], "I don't have enough"),
        ("visits", ["Which visits took longer than 0.7 hours?"], "Tom Parr"),
        ("swims", ["Who won the 1 k?"], "Bea Ford"),
        ("swims", ["Who was fastest over 2 km?"], "Cleo Hall"),
        ("swims", ["What was the average time over the 2?"], "I don't have enough"),
        ("swims", ["How many people dropped out?"], "1"),
    ],
)
async def test_a_proposed_table_is_asked(
    application: Application, organization: NewOrganization, tmp_path: Path, file: str, asked: list[str], said: str
) -> None:
    table = tmp_path / f"{file}.csv"
    table.write_text(TABLES[file])
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
