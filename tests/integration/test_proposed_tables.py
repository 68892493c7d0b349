"""Tables that nobody declared anything for: ingested with the index.toml that is proposed, and asked as people ask."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

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
# A state that is a word of the date's column.
TREES = """tree_no,Planted on,owner,state
T1,2026-01-05,Ada Holm,planted
T2,2026-01-09,Bo Lind,felled
T3,2026-02-02,Ada Holm,planted
"""
SWIMS = """heat_no,swimmer,club,dist_km,net_min,result
1,Amy Reed,Otters,1,22,finished
2,Bea Ford,Seals,1,19,finished
3,Cleo Hall,Otters,2,41,finished
4,Dan Moor,Seals,2,,DNF
"""
# Flags, a word of the file that is short in the key, cells that are empty, a date and a year.
MEMBERS = """mbr_id,name,age,sex,join_dt,yr_born,visits,trnr,is_student,churned,locker
M1,Ada Holm,30,F,2025-03-05,1995,20,Lee,1,0,A1
M2,Bo Lind,24,M,2025-03-09,2001,4,,1,1,
M3,Cy Moor,51,M,2025-06-01,1974,9,Ruiz,0,1,
M4,Di Noor,64,F,2025-07-11,1961,,Lee,0,0,B2
"""
LOADS = """Date,Customer,Driver,Loaves,Wt (kg),Arrived late,Rain cover,Complaint
05.01.2026,Cafe Nord,Emil,40,10.5,yes,no,missing rolls
06.01.2026,Hotel Post,Greta,25,,no,yes,
07.01.2026,Cafe Nord,Greta,60,20,no,no,lost a crate
"""
# A key that is called as its rows are, capitals within names, a noun of the file that no column has, flags written short.
CALLS = """TKT,DEPT,OPENED_ON,SEAT_CAP,DLY_MIN,CXL,REPRINT
T1,Sales,2026-01-02,4,5,N,Y
T2,Sales,2026-01-03,4,1,Y,N
T3,Stock,2025-03-04,6,9,N,N
"""
PLANT = """CraneId,Maker,ErectedOn,Downtime [h],RepairCost [EUR],LeadOperator
C1,Holm,2019-02-01,20,300,Ada Lind
C2,Holm,2021-02-01,90.5,120,
C3,Moor,2019-07-01,70,80,Bo Falk
"""
LOANS = """loan_id,app_date,age,annual_income,loan_amount,tenure,default
L1,2026-01-02,25,30000,500,RENT,1
L2,2026-01-03,31,40000,900,OWN,0
L3,2026-01-04,47,50000,700,RENT,0
"""
# A key that is called a reference, countries, a flag of two words, a sort of rooms.
STAYS = """stay_ref,guest_name,country,arrival_date,nights,room_type,form_signed,total_gbp
ST-101,Ana Costa,Portugal,2025-03-02,3,dorm,yes,90
ST-102,Nils Berg,Sweden,2025-03-04,2,single,no,120
ST-103,Eva Lund,Sweden,2025-04-01,5,dorm,no,150
"""
# Names without vowels, some of which only a question tells.
TANKS = """CHK_NO,CHK_DT,TNK_NO,KPR,SNL_CT,FLTR_CLND,SLDG_L,INSPECTED
K1,02.03.2025,T1,Ada Lind,12,1,4,yes
K2,03.03.2025,T2,Bo Falk,3,0,,no
K3,09.03.2025,T1,Ada Lind,20,0,2.5,no
K4,11.03.2025,T3,Bo Falk,7,1,1,yes
"""
# Numbers of what came along, of which there may be none.
HIRES = """hire_no,hire_date,guide,boat_type,adults,children,dog,price_eur
H1,2025-03-02,Mara,double,2,0,no,60
H2,2025-03-05,Jon,single,1,0,yes,35
H3,2025-03-09,Mara,family,2,3,yes,90
H4,2025-04-02,Lea,family,2,1,no,85
H5,2025-05-12,Mara,family,1,2,yes,80
"""
# What is planned has days to come, where others end with what was.
TOURS = """booking_ref,booked_on,tour_date,client,seats,payment_due
B1,2025-12-01,2026-01-20,Ann Hay,2,2026-01-06
B2,2025-12-03,2026-07-04,Cal Roy,1,2026-06-20
"""
# A result that is a verb, a rate beside a deposit, and a state that the date is called by.
LADDERS = """ladder_no,Erected on,Weekly rate (£),Deposit (£),State,result
L1,2026-01-02,12,50,erected,pass
L2,2026-01-05,30,20,returned,fail
L3,2026-01-07,18,40,returned,pass
L4,2026-01-09,15,30,erected,pass
"""
TABLES = {
    "ladders": LADDERS,
    "tour_bookings": TOURS,
    "canoe_hires": HIRES,
    "hostel_log": STAYS,
    "tank_checks": TANKS,
    "gym_members_2025": MEMBERS,
    "bakery_loads_log": LOADS,
    "loan_default_sample": LOANS,
    "desk_calls": CALLS,
    "site_plant": PLANT,
}
TABLES |= {"movies": MOVIES, "tolls": TOLLS, "visits": VISITS, "pools": POOLS, "swims": SWIMS, "trees": TREES}


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
        ("trees", ["How many trees were planted in January 2026?"], "There are 2 trees"),
        ("trees", ["How many trees are planted in all?"], "There are 2 trees with state planted"),
        ("pools", ["What do swimmers find at P3?"], "condition good"),
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
        ("visits", ["How many burglaries were there at Harbour?"], "that answers this"),
        ("pools", ["How many pools were built before 1960?"], "There are 2"),
        ("pools", ["Which is the oldest pool?"], "1931"),
        ("pools", ["How many are in poor condition?"], "There is 1 pool"),
        ("pools", ["How many pools are not heated?"], "There is 1 pool"),
        ("pools", ["Where's the deepest one?"], "P2"),
        ("pools", ["How many pools are deeper than 3 m?"], "There are 2"),
        ("tolls", ["How many people were over 20?"], "There is 1"),
        ("tolls", ["How many men were over 20?"], "None of"),
        ("visits", ["How many visits took longer than half an hour?"], "that answers this"),
        ("visits", ["Which visits took longer than 0.7 hours?"], "Tom Parr"),
        ("swims", ["Who won the 1 k?"], "Bea Ford"),
        ("swims", ["Who was fastest over 2 km?"], "Cleo Hall"),
        ("swims", ["What was the average time over the 2?"], "that answers this"),
        ("swims", ["How many people dropped out?"], "1"),
        ("ladders", ["What share of ladders failed?"], "1 of 4 ladders"),
        ("ladders", ["How many ladders are still erected?"], "There are 2 ladders"),
        ("ladders", ["What's the dearest ladder?"], "L2"),
        ("ladders", ["What percentage of the ladders failed?"], "25 percent"),
        ("gym_members_2025", ["How many members are students?"], "There are 2 members"),
        ("gym_members_2025", ["What percentage of students churned?"], "50 percent"),
        ("gym_members_2025", ["How many students did not churn?"], "There is 1 member"),
        ("gym_members_2025", ["How many members joined in March 2025?"], "There are 2 members"),
        ("gym_members_2025", ["How many members have no trainer?"], "There is 1 member"),
        ("gym_members_2025", ["For how many members is the locker empty?"], "There are 2 members"),
        ("gym_members_2025", ["How many members lack a number of visits?"], "that answers this"),
        ("gym_members_2025", ["How many members are missing?"], "that answers this"),
        ("gym_members_2025", ["How many people were born before 1980?"], "There are 2 members"),
        ("gym_members_2025", ["Who has the most visits?"], "Ada Holm"),
        ("gym_members_2025", ["How many vegetarians are members?"], "that answers this"),
        ("bakery_loads_log", ["How many loads arrived late?"], "There is 1 load"),
        ("bakery_loads_log", ["For how many loads is the weight missing?"], "There is 1 load"),
        ("bakery_loads_log", ["How many loads never got a weight?"], "There is 1 load"),
        ("bakery_loads_log", ["How many loads is the weight not missing for?"], "There are 2 loads"),
        ("bakery_loads_log", ["How many kilos did Greta take altogether?"], "20 kg"),
        ("bakery_loads_log", ["How many loaves did Greta take?"], "85"),
        ("bakery_loads_log", ["On which loads did we lose a crate?"], "Cafe Nord"),
        ("bakery_loads_log", ["How many loads went without a rain cover?"], "There are 2 loads"),
        ("desk_calls", ["How many tickets per department?"], "Sales"),
        ("desk_calls", ["What share of the tickets were cancelled?"], "33"),
        ("desk_calls", ["How many calls were opened in 2026?"], "There are 2"),
        ("desk_calls", ["Which department is the most punctual on average?"], "Sales"),
        ("desk_calls", ["Who is the captain of the sales tickets?"], "that answers this"),
        ("desk_calls", ["Which department should we give more tickets to?"], "that answers this"),
        ("site_plant", ["How many cranes were erected in 2019?"], "There are 2 cranes"),
        ("site_plant", ["List the cranes with more than 60 hours of downtime."], "C2"),
        ("site_plant", ["How many cranes have no operator listed?"], "There is 1 crane"),
        ("site_plant", ["What was the purchase price of the newest crane?"], "that answers this"),
        ("loan_default_sample", ["What share of renters defaulted?"], "50 percent"),
        ("hostel_log", ["How many Swedish stays were there?"], "There are 2 stays"),
        ("hostel_log", ["Which Swedish guests haven't signed their form?"], "Nils Berg"),
        ("hostel_log", ["ST-102: what did it come to and which room type was it?"], "120"),
        ("hostel_log", ["Which country is ST-101 from and what type of room was it?"], "room type dorm"),
        ("hostel_log", ["When did Ana Costa arrive and how many nights did she stay?"], "2 March 2025"),
        (
            "hostel_log",
            ["How many rooms are there?"],
            "The room type is recorded, but no field says how many rooms there are",
        ),
        ("hostel_log", ["average number of nights per dorm stay"], "4"),
        ("hostel_log", ["How much money did the Swedish guests bring in?"], "270"),
        ("hostel_log", ["priciest stay"], "ST-103"),
        ("hostel_log", ["How many stays were there in March 2025?", "and what were they worth in pounds?"], "210"),
        ("tank_checks", ["How many checks of tank T1 were there?", "and of T2?"], "There is 1 check"),
        ("tank_checks", ["list the checks with more than 10 snails"], "K3"),
        ("tank_checks", ["How many checks still need to be inspected?"], "There are 2 checks"),
        ("tank_checks", ["How many times was the filter not cleaned?"], "There are 2 checks"),
        ("tank_checks", ["average sludge per tank"], "3.25"),
        ("tank_checks", ["Show me every visit to tank T1"], "K3"),
        ("tank_checks", ["the worst snail count"], "that answers this"),
        (
            "canoe_hires",
            ["How many hires did Mara guide?", "how many of those brought children?"],
            "There are 2 hires with",
        ),
        ("canoe_hires", ["How many hires brought children?"], "There are 3 hires with children"),
        ("canoe_hires", ["What did hires with children bring in?"], "that answers this"),
        ("canoe_hires", ["How many hires mention the price?"], "that answers this"),
        (
            "canoe_hires",
            ["How many hires will there be next month?"],
            "The records end on 12 May 2025; they say nothing",
        ),
        (
            "canoe_hires",
            ["What will the hires bring in in December?"],
            "The records end on 12 May 2025; they say nothing",
        ),
        ("canoe_hires", ["How many children came in May?"], "(May 2025) is 2"),
        ("canoe_hires", ["children with Mara"], "5 in total"),
        ("tour_bookings", ["Which tour dates are there in July 2026?"], "Cal Roy"),
        ("canoe_hires", ["Which hires brought children?"], "H3"),
        ("loan_default_sample", ["How many people defaulted?"], "There is 1 loan"),
        ("loan_default_sample", ["How many borrowers are over 30?"], "There are 2 loans"),
        ("loan_default_sample", ["How many loans above 600 did not default?"], "There are 2 loans"),
        ("loan_default_sample", ["List the 2 largest loans by id"], "L2"),
        ("loan_default_sample", ["How many applications came in during January 2026?"], "There are 3 loans"),
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
    owner = await organization()
    await (await application.ingestor(spec, Target(owner.id))).ingest([table], base=tmp_path)
    application.calendar.now = lambda: datetime(2026, 1, 14, tzinfo=UTC)
    *before, text = asked
    answer = await Rag(application).ask(text, index=file, organization=owner.slug, earlier_questions=before)
    assert said in answer.text, answer.understood
