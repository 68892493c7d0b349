"""Every sentence against its sources: kinds, figures, words; what a liar, an honest model and false claims come to."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import TextNode

from rag_app.answering.capabilities import capability_named
from rag_app.answering.citations import number_citations, pieces_of
from rag_app.answering.context import ContextBlock
from rag_app.answering.verification.kinds import Kind, kind_of
from rag_app.answering.verification.verdict import Ground, Verification
from rag_app.surfaces.library.verifying import verify

ANSWERS = Path(__file__).parents[2] / "answers"
EVIDENCE: dict[str, Any] = json.loads((ANSWERS / "verification" / "evidence.json").read_text())


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ANSWERS / f"{name}.jsonl").read_text().splitlines()]


def aside(name: str) -> list[dict[str, Any]]:
    return [row for row in rows("verification/aside") if row["set"] == name]


def ground(capability: str, question: str | None = None) -> Ground:
    """The evidence of a capability, as blocks of a prompt."""
    blocks = []
    for number, source in enumerate(EVIDENCE[capability]["sources"], 1):
        date = f"Date: {source['date']} | " if source["date"] else ""
        blocks.append(ContextBlock(number, f" (Relevance: 77.0%)\n{date}Title: {source['title']}", source["text"]))
    description = capability_named(capability).description
    return Ground(blocks, question or EVIDENCE[capability]["question"], f"{description} LexyBrain LexyHub")


@cache
def documents(file: str, company: str, question: str) -> Ground:
    """All documents of an organization, as blocks of a prompt."""
    found = [json.loads(line) for line in (ANSWERS.parent / "reader" / f"{file}.jsonl").read_text().splitlines()]
    own = [each for each in found if each["company"] == company]
    blocks = [ContextBlock(number, f"\nTitle: {each['title']}", each["text"]) for number, each in enumerate(own, 1)]
    return Ground(blocks, question)


def verified(row: dict[str, Any]) -> Verification:
    if "company" in row:
        against, advice_is_claim = documents(row["file"], row["company"], row["question"]), False
    else:
        against = ground(row["capability"], row.get("question"))
        advice_is_claim = capability_named(row["capability"]).advice_is_claim
    verification = Verification(against, advice_is_claim=advice_is_claim)
    verification.read(pieces_of(row["text"], against.size))
    verification.end()
    return verification


def passes(row: dict[str, Any]) -> bool:
    """Whether a true answer comes back as it is; its markers may be written and numbered anew."""
    found = verified(row)
    whole = number_citations("".join(pieces_of(row["text"], 99))).text
    return number_citations(found.text).text == whole and bool(found.claims or found.admissions)


def shows_a_lie(row: dict[str, Any]) -> bool:
    found = verified(row)
    return bool(found.claims) and any(lie.casefold() in found.text.casefold() for lie in row["lies"])


def shows_a_claim(row: dict[str, Any]) -> bool:
    return bool(verified(row).text)


@pytest.mark.parametrize(("name", "least"), [("sentences", 72), ("sentences_check", 34)])
def test_the_kinds_of_labelled_sentences(name: str, least: int) -> None:
    wrong = [row for row in rows(name) if kind_of(row["text"]) != row["kind"]]
    print(f"{name}: {len(rows(name)) - len(wrong)} of {len(rows(name))}")
    assert len(rows(name)) - len(wrong) >= least, wrong


def test_an_honest_model_is_left_alone() -> None:
    sets = rows("verification/honest"), aside("honest")
    counts = [sum(map(passes, each)) for each in sets]
    print(f"honest: {counts[0]} of {len(sets[0])}, put aside: {counts[1]} of {len(sets[1])}")
    changed = [row["text"] for each in sets for row in each if not passes(row)]
    assert sum(map(len, sets)) == 60 and sum(counts) >= 57, changed


def test_a_liar_is_not_heard() -> None:
    lies = rows("verification/liar") + aside("liar")
    assert len(lies) == 40 and not [row["text"] for row in lies if shows_a_lie(row)]


def test_false_claims_with_a_valid_marker() -> None:
    """The figure is the one that README and docs/answering.md give."""
    sets = rows("verification/false"), aside("false")
    shown = [[row["text"] for row in each if verified(row).text] for each in sets]
    print(f"false claims shown: {len(shown[0])} of {len(sets[0])}, put aside: {len(shown[1])} of {len(sets[1])}")
    assert sum(map(len, sets)) == 40 and sum(map(len, shown)) <= 16, shown


@pytest.mark.parametrize(
    ("name", "fails", "most"),
    [("liar", shows_a_lie, 28), ("honest", lambda row: not passes(row), 18), ("false", shows_a_claim, 20)],
)
def test_answers_about_documents_of_organizations(
    name: str, fails: Callable[[dict[str, Any]], bool], most: int
) -> None:
    """Of true words and figures, mostly, that are of something else. The figures are those of docs/answering.md."""
    of_name = [row for row in rows("verification/organizations") if row["set"] == name]
    failed = [row for row in of_name if fails(row)]
    aside = [row for row in of_name if row.get("aside")]
    print(f"{name}: {len(failed)} of {len(of_name)}, put aside: {sum(map(fails, aside))} of {len(aside)}")
    assert len(failed) <= most, [row["text"] for row in failed]


@pytest.mark.parametrize(
    "text",
    [
        "I don't have enough information from the available records to answer this question.",
        "The context does not mention the price.",
        "I cannot answer this from the sources.",
        "There is no information about that.",
        "I’m sorry, the records don’t contain details on refunds.",
        "I don't know.",
        "I'm sorry, I can't tell.",
        "Unfortunately, the records do not cover that topic.",
        "I am unable to answer this question.",
        "We do not have enough information to say.",
        "The price is not mentioned in the sources.",
        "There isn't enough information to answer.",
        "There is no mention of parking.",
        "No information about refunds was found.",
        "The minutes don't record who voted against it.",
        "What a cabin costs isn't stated in these papers.",
        "The quote says nothing on how long the battery lasts.",
    ],
)
def test_an_admission_is_recognised(text: str) -> None:
    assert kind_of(text) is Kind.ADMISSION


@pytest.mark.parametrize(
    "text",
    [
        "A cut costs 40 dollars.",
        "We do not open on Sunday.",
        "We do not sell data to anybody.",
        "Two people complained, and no answer was given.",
        "Customers did not mention wait times.",
        "Data is not kept longer than 30 days.",
        "The plan does not include support at night.",
        "Breakfast is not included in the offer.",
        "The menu does not have fish on Mondays.",
        "",
    ],
)
def test_a_statement_is_no_admission(text: str) -> None:
    assert kind_of(text) is not Kind.ADMISSION


def test_a_random_id_in_place_of_a_title_supports_no_figure() -> None:
    node = TextNode(id_="d96931b7-9c7b-42fa-814d-4c8412d23eed", text="Returns are free for 30 days.")
    assert verify("Returns cost $9 [Source 1].", [node]).claims == 0


PRICES = "A cut costs 40 pounds and takes an hour. A root colour costs 85 pounds.\n\nDogs are welcome."
TABLE = "| Service | Price |\n| --- | --- |"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (f"{TABLE}\n| Cut | 40 pounds [Source 1] |\n| Root colour | 85 pounds [Source 1] |", None),
        (f"Here are the prices:\n\n{TABLE}\n| Cut | 40 pounds | [Source 1] |\n\nDogs are welcome [Source 1].", None),
        (
            f"{TABLE}\n| Cut | 85 pounds [Source 1] |\n| Root colour | 85 pounds [Source 1] |",
            f"{TABLE}\n| Root colour | 85 pounds [Source 1] |",
        ),
        (
            f"{TABLE}\n| Cut | 45 pounds [Source 1] |\n\nDogs are welcome [Source 1].",
            "Dogs are welcome [Source 1].",
        ),
        (f"{TABLE}\n| Cut | 40 pounds |\n| Root colour | 99 pounds |", ""),
        (
            "| The salon is bankrupt | Price |\n|---|---|\n| Cut | 40 pounds [Source 1] |",
            "| Cut | 40 pounds [Source 1] |",
        ),
        ("| Service | Price in Rome |\n|:--|--:|\n| Cut | 40 pounds [Source 1] |", "| Cut | 40 pounds [Source 1] |"),
        (
            "- A cut costs 40 pounds [Source 1].\n- A wash costs 12 pounds [Source 1].\n- Dogs are welcome [Source 1].",
            "- A cut costs 40 pounds [Source 1].\n- Dogs are welcome [Source 1].",
        ),
    ],
)
def test_each_row_of_a_table_is_compared_alone(said: str, kept: str | None) -> None:
    """Its titles are kept with a row; what is left out of a list or table leaves no gap."""
    verification = Verification(Ground([ContextBlock(1, "\nTitle: Prices", PRICES)], "What do you charge?"))
    verification.read(pieces_of(said, 1))
    verification.end()
    assert verification.text == (said if kept is None else kept)
