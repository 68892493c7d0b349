"""`/owner` with everything real behind it, over the sample calls and bookings of two salons, on both vector stores."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from msgspec.json import encode

from rag_app import Citation, RAGResponse, ask_with_citations, search_chunks_with_filters
from rag_app.application import Application
from rag_app.console.demo import load_samples
from rag_app.documents.metadata import Target
from rag_app.domain.errors import InvalidInput, NotFound
from rag_app.domain.source import JsonObject, Visibility, source_id
from rag_app.retrieval.text import tokens
from rag_app.surfaces.library.rag import Rag
from rag_app.surfaces.owner.routes import OwnerSearchResult
from tests.conftest import ON_DEFAULT_STORE
from tests.contract.test_errors import problem
from tests.contract.test_owner_qa import ASK, NOTHING, SEARCH, SEARCH_EXAMPLE, UNCITED, commands, events, sent
from tests.integration.service import bearer, configured, prepare, served
from tests.integration.test_api_end_to_end import variables
from tests.liar import heard, liar
from tests.scripted_model import Reply, Script, ScriptedModel, marker_of

INDEX = "salon_calls"
PRIVATE = "The owner's private note: the salon in Fenwick Lane is to be sold in the summer for 410,000 pounds."
PRICE_CALL, ON_TIME_CALL = "123e4567-e89b-12d3-a456-426614174000", "234e4567-e89b-12d3-a456-426614174001"
ADMITTED = "I don't have enough information from the available records to answer this question."
WAITING = {"question": "What did customers say about wait times?"}


@dataclass(frozen=True)
class Salon:
    """A running application whose default organization is aurora; `leonie` is a member of it, `rory` of birch."""

    client: httpx.Client
    aurora: UUID
    leonie: UUID
    rory: UUID

    def post(self, path: str, body: object, who: object = None) -> dict[str, Any]:
        """The body of a success; asked without a token where nobody is named."""
        response = self.client.post(path, json=body, headers=bearer(who) if who else {})
        assert response.status_code == 200, response.text
        given: dict[str, Any] = response.json()
        return given

    def search(self, query: str, who: object = None, **filters: object) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = self.post(
            SEARCH, {"query": query, "limit": 50, "min_similarity": 0, **filters}, who
        )["results"]
        return results


async def load(application: Application, folder: Path) -> tuple[UUID, UUID, UUID]:
    people, spec = application.people, application.indexes[INDEX]
    application.indexes = {INDEX: spec}
    assert await load_samples(application) == []
    aurora, birch = await people.organization("aurora"), await people.organization("birch")
    leonie, rory = [await people.create_user(f"{name}-{uuid4().hex}") for name in ("leonie", "rory")]
    await people.add_member(aurora, leonie)
    await people.add_member(birch, rory)
    (folder / "note.txt").write_text(PRIVATE, "utf-8")
    ingestor = await application.ingestor(spec, Target(aurora.id, None, leonie.id, Visibility.USER))
    assert (await ingestor.ingest([folder / "note.txt"], base=folder)).added == 1
    return aurora.id, leonie.id, rory.id


async def unload(application: Application) -> None:
    """The private note goes; the samples stay as they are."""
    aurora = await application.people.organization("aurora")
    ingestor = await application.ingestor(application.indexes[INDEX], Target(aurora.id))
    await ingestor.delete([source_id(aurora.id, INDEX, "note.txt")])


@pytest.fixture(scope="module", params=[ON_DEFAULT_STORE])
def salon(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], qdrant_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Salon]:  # fmt: skip
    folder = tmp_path_factory.mktemp("salon")
    environment = variables(database_urls, request.param, folder, qdrant_folder)
    with configured({**environment, "RAG_DEFAULT_ORGANIZATION": "aurora"}):
        ids = prepare(lambda application: load(application, folder))
        with served() as client:
            yield Salon(client, *ids)
        prepare(unload)


only_postgres = pytest.mark.parametrize("salon", ["postgres"], indirect=True)
"""For what does not depend on the store, or runs a second application: local Qdrant would be in use."""


@only_postgres
def test_each_group_of_many_has_a_source(salon: Salon) -> None:
    """More than the tokens of a model's context: no model reads them."""
    told = salon.client.post("/owner/ask", json={"question": "How many bookings by customer?"}).json()
    groups = told["answer"].split("; ")
    assert len(groups) == 12 and all(re.search(r"\[Source \d+\]\.?$", group) for group in groups), groups
    assert {int(number) for number in re.findall(r"\[Source (\d+)\]", told["answer"])} == {
        *range(1, len(told["sources"]) + 1)
    }


def test_the_contracts_curl_commands(salon: Salon) -> None:
    replies = [sent(command, str(salon.client.base_url).rstrip("/")) for command in commands()]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 200]
    services, haircut, customer, weather = [reply.json() for reply in replies]

    assert services["has_sufficient_evidence"] and "Nothing is recorded of bookings for" in services["answer"]
    assert re.search(r"\[Source 1\]", services["answer"]) and services["sources"][0]["source_type"] == "booking_note"
    assert services["chunks_above_threshold"] >= 1

    results = haircut["results"]
    assert haircut["total"] == len(results) >= 3 and haircut["query"] == "haircut booking"
    assert {result["source_type"] for result in results} == {"call_transcript"}
    assert all("2026-01-10" <= result["created_at"][:10] <= "2026-01-15" for result in results)
    shown = [result["similarity"] for result in results]
    assert shown == sorted(shown, reverse=True) and shown[-1] >= 0.4
    assert {"Lena Fischer", "Samir Haddad"} <= {
        name
        for name in ("Lena Fischer", "Samir Haddad", "Tom Ashby")
        if any(name in each["content"] for each in results)
    }

    assert customer["has_sufficient_evidence"] and "cooler tone without gold" in customer["answer"]
    of_42 = {result["source_id"] for result in salon.search("appointment", customer_id=42)}
    assert customer["sources"] and {source["source_id"] for source in customer["sources"]} <= of_42

    assert weather == {
        "answer": NOTHING,
        "sources": [],
        "has_sufficient_evidence": False,
        "query": "What is the weather like?",
        "chunks_retrieved": 20,
        "chunks_above_threshold": 0,
    }


def test_a_word_that_no_record_has_is_looked_for_in_texts(salon: Salon) -> None:
    answer = salon.post(ASK, {"question": "Who made a haircut booking with Theo?"}, salon.leonie)["answer"]
    assert answer.startswith("Samir Haddad made a haircut booking with Theo") and "None of the" not in answer


@only_postgres
def test_two_totals_are_told_with_their_difference(salon: Salon) -> None:
    asked = "Who earned more from 5 to 11 January 2026, Theo or Marisol, and what's the difference?"
    assert "216 against 96 pounds, a difference of 120 [Source" in salon.post(ASK, {"question": asked})["answer"]


def test_a_result_is_the_chunk_as_it_is_stored(salon: Salon) -> None:
    body = salon.post(SEARCH, SEARCH_EXAMPLE, salon.leonie)
    assert body["query"] == SEARCH_EXAMPLE["query"] and body["total"] == len(body["results"])
    results = [
        each for each in body["results"] if (each["call_id"], each["source_type"]) == (PRICE_CALL, "call_transcript")
    ]
    assert [each["chunk_index"] for each in sorted(results, key=lambda each: each["chunk_index"])] == [0, 1]
    first = next(each for each in results if each["chunk_index"] == 0)
    assert UUID(first.pop("id")) and first.pop("content").startswith("Agent: Aurora Hair Studio, Hollis speaking.")
    assert 0.35 <= first.pop("similarity") <= 1
    assert first.pop("link").startswith(f"/api/v1/sources/{first['source_id']}?chunk=")
    assert first == {
        "source_type": "call_transcript",
        "source_id": str(source_id(salon.aurora, INDEX, "aurora/calls/2026-01-10-price-surprise.txt")),
        "external_id": "aurora/calls/2026-01-10-price-surprise.txt",
        "file_name": "2026-01-10-price-surprise.txt",
        "row": None,
        "sheet": None,
        "section": None,
        "page": None,
        "booking_id": "771c41ae-3218-4492-a2a3-f5b7aae8ec3d",
        "call_id": PRICE_CALL,
        "chunk_index": 0,
        "customer_id": 42,
        "stylist_id": 5,
        "created_at": "2026-01-10T14:30:00Z",
    }


def test_the_answer_cites_the_calls_of_the_contracts_example(salon: Salon) -> None:
    asked = {**WAITING, "limit": 10, "source_types": ["call_transcript", "call_summary"]}
    body = salon.post(ASK, asked, salon.leonie)
    assert body["has_sufficient_evidence"] and body["query"] == WAITING["question"]
    cited = {int(number) for number in re.findall(r"\[Source (\d+)\]", body["answer"])}
    assert cited == set(range(1, len(body["sources"]) + 1))
    assert body["chunks_retrieved"] == 20 >= body["chunks_above_threshold"] >= 5
    for source in body["sources"]:
        assert source["similarity"] >= 0.35 and source["excerpt"] and source["source_type"] != "booking_note"


@pytest.fixture(scope="module")
def everything(salon: Salon) -> dict[str, dict[str, Any]]:
    """All chunks that Leonie sees, by id; of each kind there are fewer than one request may ask for."""
    kinds = [
        salon.search("the salon", salon.leonie, source_types=[kind])
        for kind in ("call_transcript", "call_summary", "booking_note")
    ]
    assert all(0 < len(kind) < 50 for kind in kinds)
    return {each["id"]: each for kind in kinds for each in kind}


FILTERS: list[tuple[dict[str, Any], Any]] = [
    ({"source_types": ["booking_note"]}, lambda each: each["source_type"] == "booking_note"),
    ({"source_types": ["call_summary", "booking_note"]}, lambda each: each["source_type"] != "call_transcript"),
    ({"stylist_id": 3}, lambda each: each["stylist_id"] == 3),
    ({"customer_id": 42}, lambda each: each["customer_id"] == 42),
    ({"customer_id": 42, "stylist_id": 3}, lambda each: each["customer_id"] == 42 and each["stylist_id"] == 3),
    ({"customer_id": 999}, lambda each: False),
    ({"date_from": "2026-01-14"}, lambda each: (each["created_at"] or "") >= "2026-01-14"),
    ({"date_to": "2026-01-08"}, lambda each: "2026" < (each["created_at"] or "") < "2026-01-09"),
    (
        {"date_from": "2026-01-10", "date_to": "2026-01-10"},
        lambda each: (each["created_at"] or "")[:10] == "2026-01-10",
    ),
    ({"date_from": "2027-01-01"}, lambda each: False),
]


@pytest.mark.parametrize(("filters", "holds"), FILTERS, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_filters(filters: dict[str, Any], holds: Any, salon: Salon, everything: dict[str, dict[str, Any]]) -> None:
    """What is found with a filter is what is found without it, of each kind, where it holds."""
    found = {each["id"] for each in salon.search("the salon", salon.leonie, **filters)}
    assert found == {key for key, each in everything.items() if holds(each)}


def test_the_threshold_cuts_before_the_limit(salon: Salon) -> None:
    query = "customer complaints about pricing"
    every = salon.search(query, salon.leonie)
    least = every[5]["similarity"]
    above = [each["id"] for each in every if each["similarity"] >= least]
    cut = salon.post(SEARCH, {"query": query, "limit": 50, "min_similarity": least - 0.00005}, salon.leonie)["results"]
    assert [each["id"] for each in cut] == above
    few = salon.post(SEARCH, {"query": query, "limit": 3, "min_similarity": 0.3}, salon.leonie)
    assert few["total"] == len(few["results"]) == 3


def test_nobody_sees_another_organization_or_what_is_private(salon: Salon) -> None:
    assert "Hugh Pemberton" not in str(salon.search("Hugh Pemberton's hearing aids"))
    assert {each["stylist_id"] for each in salon.search("scissor cut", customer_id=42)} == {5}
    hughs = salon.search("Hugh Pemberton's hearing aids", salon.rory, customer_id=42)
    assert "Hugh Pemberton" in str(hughs) and "Dana" not in str(hughs)
    assert salon.search("Hugh Pemberton", "auth0|somebody") == []
    sale = "At what price is the salon in Fenwick Lane to be sold?"
    for who, sees in ((None, False), (salon.rory, False), (salon.leonie, True)):
        assert ("410,000" in str(salon.search(sale, who))) is sees
        assert ("410,000" in str(salon.post(ASK, {"question": sale}, who))) is sees


def test_no_token_is_needed_and_a_bad_one_is_refused(salon: Salon) -> None:
    assert salon.post(SEARCH, {"query": "pricing"})["total"] > 0
    refused = salon.client.post(SEARCH, json={"query": "pricing"}, headers={"Authorization": "Bearer nonsense"})
    problem(refused, 401, "unauthenticated")
    problem(salon.client.post("/api/rag/search", json={"query_text": "pricing"}), 401, "unauthenticated")


def test_an_answer_streams(salon: Salon) -> None:
    plain = salon.post(ASK, WAITING, salon.leonie)
    headers = {"Accept": "text/event-stream", **bearer(salon.leonie)}
    told = events(salon.client.post(ASK, json=WAITING, headers=headers))
    names = [name for name, _ in told]
    assert names[:2] == ["meta", "sources"] and names[-2:] == ["citations", "done"] and set(names[2:-2]) == {"delta"}
    assert "".join(data["text"] for name, data in told if name == "delta") == plain["answer"]
    assert told[-2][1] == plain["sources"] and told[-1][1] == plain
    assert len(told[1][1]) >= len(plain["sources"])


LONG = "The customer had to wait [Source 1]. " * 12


def two_waits(body: dict[str, Any]) -> Reply:
    """A reply that cites two of the blocks in its prompt, and one that is not there."""
    peter = marker_of(body, "Peter Hallam", "wait 25 minutes")
    dana = marker_of(body, "Dana", "wait almost 15 minutes").replace("]", ", Source 99]")
    return Reply(f"Peter Hallam waited 25 minutes {peter}. Dana waited almost 15 {dana}.")


@only_postgres
def test_a_model_writes(salon: Salon) -> None:
    """What it is sent is the contract's prompt, and each way in which it fails is the contract's."""
    script: list[Script] = [
        two_waits,
        Reply(LONG),
        Reply("Customers are usually content."),
        Reply(ADMITTED),
        Reply(status=429),
        Reply(status=401),
        Reply(malformed=True),
        Reply(LONG),
        partial(liar, "owner_ask"),
        partial(liar, "owner_ask"),
    ]
    with ScriptedModel(*script) as model:
        gateway = {"RAG_LLM": "openai_like", "RAG_LLM_API_BASE": model.url, "RAG_LLM_API_KEY": "key"}
        with configured({**gateway, "RAG_LLM_BACKOFF": "0"}), served() as client:
            asked = {**WAITING, "limit": 10, "min_similarity": 0.1, "source_types": ["call_transcript"]}
            written, long, uncited, admitted, limited, forbidden, malformed = [
                client.post(ASK, json=asked) for _ in range(7)
            ]
            streamed = events(client.post(ASK, json=asked, headers={"Accept": "text/event-stream"}))
            lied = client.post(ASK, json=asked).json()
            lied_in_a_stream = events(client.post(ASK, json=asked, headers={"Accept": "text/event-stream"}))
            unasked = client.post(ASK, json={"question": "What is the weather like?", "min_similarity": 0.9}).json()

    body = written.json()
    assert body["answer"] == "Peter Hallam waited 25 minutes [Source 1]. Dana waited almost 15 [Source 2]."
    assert body["has_sufficient_evidence"] and len(body["sources"]) == 2

    request, *_ = model.requests
    assert request.body["temperature"] == 0.1
    system, user = (str(message["content"]) for message in request.body["messages"])
    assert system.startswith(
        "You are a helpful assistant that answers questions about salon operations\nbased ONLY on the provided context."
    )
    assert "4. ALWAYS cite your sources using [Source N] notation.\n5. Keep answers concise: 5-7 sentences" in system
    assert "Type: Call Transcript | Date: 2026-01-10 14:30 | Call ID: 123e4567... | " in user
    headers = re.findall(r"^\[Source (\d+)\] \(Relevance: \d+\.\d%\)\nType: [A-Z]\w+ [A-Z]\w+ \| ", user, re.MULTILINE)
    assert headers == [str(number) for number in range(1, len(headers) + 1)] and len(headers) > 2
    assert len(tokens(user[user.index("[Source 1]") : user.rindex("\n---\n")])) <= 3000
    assert "Remember: No citations = No answer." in user and user.endswith(f"Question: {WAITING['question']}")
    assert "410,000" not in user and "Hugh Pemberton" not in user

    assert long.json()["answer"] == (LONG[: len(LONG) // 12] * 7).strip()
    assert uncited.json()["answer"] == UNCITED and not uncited.json()["has_sufficient_evidence"]
    shown = [source["similarity"] for source in uncited.json()["sources"]]
    assert len(shown) > 2 and shown == sorted(shown, reverse=True)
    assert (admitted.json()["answer"], admitted.json()["sources"]) == (ADMITTED, [])
    assert not admitted.json()["has_sufficient_evidence"]
    problem(limited, 500, "model_rate_limited")
    problem(forbidden, 500, "model_failed")
    problem(malformed, 500, "model_failed")
    assert streamed[-1] == ("done", long.json())
    delta = next(data["text"] for name, data in streamed if name == "delta")
    assert delta.strip() == "The customer had to wait [Source 1]."
    assert lied_in_a_stream[-1] == ("done", lied) and lied["removed_sentences"] > 20
    assert not heard("owner_ask", lied["answer"], model.requests[-1].body)
    assert (unasked["answer"], unasked["sources"]) == (NOTHING, [])
    assert all(WAITING["question"] in each.prompt for each in model.requests), "no tokens for what was not found"


NO_SHOWS = {
    "kind": "booking",
    "filters": [{"field": "status", "operator": "==", "value": "not come"}],
    "aggregate": "count",
}
DEAREST = {"kind": "booking", "order": "price_gbp", "descending": True, "limit": 1, "filters": [{"field": "stylist", "operator": "==", "value": "Theo Lindqvist"}]}  # fmt: skip
BAD_QUERIES = [
    "SELECT count(*) FROM sources",
    '{"kind": "booking", "aggregate": "count"',
    json.dumps({**NO_SHOWS, "sql": "DROP TABLE sources"}),
    json.dumps({**NO_SHOWS, "kind": "invoice"}),
    json.dumps({**NO_SHOWS, "aggregate": "median"}),
    json.dumps({**NO_SHOWS, "filters": [{"field": "org_id", "operator": "==", "value": "x"}]}),
    json.dumps({**NO_SHOWS, "filters": [{"field": "status", "operator": "<", "value": "not come"}]}),
    json.dumps(
        {**NO_SHOWS, "filters": [{"field": "stylist", "operator": "==", "value": "Rory McBain"}]}
    ),  # of another salon
    json.dumps(
        {**NO_SHOWS, "filters": [{"field": "price_gbp", "operator": ">", "value": 30}]}
    ),  # no figure of the question
    json.dumps({**NO_SHOWS, "aggregate": "sum", "of": "status"}),
    json.dumps({"kind": "booking", "order": "price_gbp", "limit": 5000}),
    json.dumps({"kind": None}),
]


@only_postgres
def test_a_model_reads_a_question_about_records(salon: Salon) -> None:
    """Where the rules find no query, it writes one; what does not fit the declared fields is no query."""
    ghosts = {"question": "How many ghosted bookings were there?"}
    spent = {
        "question": "By price, which of Theo Lindqvist's bookings was splurge number one, if you had to rank them all?"
    }
    good = [json.dumps(NO_SHOWS), f"```json\n{json.dumps(NO_SHOWS)}\n```", json.dumps(DEAREST)]
    queries = iter([*good, *BAD_QUERIES])

    def reply(body: dict[str, Any]) -> Reply:
        system = str(body["messages"][0]["content"])
        return Reply(next(queries) if system.startswith("You turn a question") else "It is in the book [Source 1].")

    with ScriptedModel(reply) as model:
        gateway = {"RAG_LLM": "openai_like", "RAG_LLM_API_BASE": model.url, "RAG_LLM_API_KEY": "key"}
        with configured({**gateway, "RAG_LLM_BACKOFF": "0"}), served() as client:
            counted, fenced, listed = [client.post(ASK, json=each).json() for each in (ghosts, ghosts, spent)]
            bad = [client.post(ASK, json=ghosts).json() for _ in BAD_QUERIES]

    assert counted["answer"] == fenced["answer"] == "There is 1 booking with status not come [Source 1]."
    assert counted["understood"] == "one booking with status not come" and counted["has_sufficient_evidence"]
    assert listed["understood"] == "7 bookings with stylist Theo Lindqvist, dearest first"
    first = model.requests[0]
    assert (
        '- kind "booking": booking, appointment' in first.prompt and "- price_gbp (number): price, cost" in first.prompt
    )
    assert ghosts["question"] in first.prompt and "Rory McBain" not in first.prompt and first.body["temperature"] == 0
    assert next(queries, None) is None and all("understood" not in each for each in bad)


@only_postgres
def test_the_parser_says_whether_a_list_or_its_total_is_meant(salon: Salon) -> None:
    total, each = (salon.post(ASK, {"question": f"{what} root colours"}) for what in ("money from", "prices of"))
    assert total["understood"] == "the total price of one booking with service root colour"
    assert "total" not in each["understood"]


@only_postgres
def test_a_day_of_one_side_is_none_of_the_others_only_record(salon: Salon) -> None:
    carly, peter = (
        salon.post(ASK, {"question": f"By how much was Dana's booking on 9 January 2026 dearer than {other}?"})
        for other in ("Carly's", "Peter's")
    )
    assert "The difference is 61 pounds" in carly["answer"]
    assert "difference" not in peter["answer"], "he has two"


@only_postgres
def test_all_of_somebodys_and_those_who_never_had_one(salon: Salon) -> None:
    never, none = (
        salon.post(ASK, {"question": text})
        for text in ("Who never had one that was cancelled?", "Was Carly ever cancelled?")
    )
    assert never["understood"] == "bookings with status never cancelled, by customer"
    more = salon.post(ASK, {"question": "Who has more than one booking in February?"})
    assert more["answer"].startswith("No customer has 2 or more bookings"), "and not that nothing is recorded then"
    assert none["answer"].startswith("No: none of the 22 bookings has customer Carly Nguyen and status cancelled")
    often = salon.post(ASK, {"question": "Which customers cancelled more than twice?"})
    one = salon.post(ASK, {"question": "How much is a short cut?"})
    assert one["understood"] == "3 bookings with service short cut", "and not what all of them come to"
    assert often["answer"].startswith("No customer has 3 or more bookings with status cancelled [Source 1]"), (
        "one has one"
    )


@only_postgres
def test_the_library_gives_what_the_api_gives(salon: Salon) -> None:
    asked: JsonObject = {"question": "What did this customer request in their calls?", "customer_id": 42, "limit": 10}
    sought: JsonObject = {key: value for key, value in SEARCH_EXAMPLE.items() if value is not None}

    async def use(application: Application) -> tuple[RAGResponse, list[OwnerSearchResult]]:
        rag = Rag(application)
        for wrong, what in (
            ({"limit": 51}, "limit: must be a whole number from 1 to 50"),
            ({"source_types": ["call"]}, r"source_types\[0\]: must be one of"),
            ({"source_types": {1j}}, "source_types: must be a list"),
        ):
            with pytest.raises(InvalidInput, match=what):
                await ask_with_citations("aurora", "?", rag=rag, **wrong)
        for shop, error in (("", InvalidInput), ("nobodys", NotFound)):
            with pytest.raises(error):
                await search_chunks_with_filters(shop, "haircut", rag=rag)
        assert not {each.id for each in await search_chunks_with_filters("birch", "haircut", rag=rag)} & {
            each.id for each in await search_chunks_with_filters("aurora", "haircut", rag=rag)
        }
        response = await ask_with_citations("aurora", rag=rag, **asked)
        return response, await search_chunks_with_filters("aurora", rag=rag, **sought)

    response, results = prepare(use)
    assert isinstance(response, RAGResponse) and isinstance(response.sources[0], Citation)
    assert json.loads(encode(response)) == salon.post(ASK, asked)
    assert json.loads(encode(results)) == salon.post(SEARCH, sought)["results"]
