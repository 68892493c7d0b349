"""Conversations that are kept, over HTTP: what is shown of them, what may be changed, and whose they are."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import Insert, delete, insert

from rag_app.database import pages
from rag_app.documents.tables import sources_table
from rag_app.domain import source_id
from rag_app.domain.errors import InvalidInput, StoreFailed
from rag_app.domain.scope import Principal, Scope
from rag_app.surfaces.lexybrain.conversations import INDEX
from rag_app.surfaces.lexybrain.tables import feedback_table, messages_table, threads_table
from tests.contract.conftest import TABLES, Backstage, NewRow, Validate
from tests.contract.test_lexybrain import SHOWN, THREADS, any_of, refused

ADA, BERTA, ORG = uuid4(), uuid4(), uuid4()
THREAD = UUID(SHOWN["threadId"])
IDS = [THREAD, uuid4(), uuid4(), uuid4()]
"""Of three threads of Ada's and one of Berta's."""
AT = f"{THREADS}/{THREAD}"
BEGAN = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)
ASKED = NewRow(
    messages_table,
    {
        "id": uuid4(), "thread_id": THREAD, "role": "user", "content": "What is trending?", "created_at": BEGAN,
        "capability": "market_brief", "context_json": {"marketplaces": ["etsy"]},
    },
)  # fmt: skip
GONE = {"id": str(uuid4()), "type": "alert", "label": "Trademark", "score": 0.5, "cited": None, "quote": "Filed."}
EXPECTED = source_id(ORG, INDEX, "kw-ring-box")
CITED = {
    "id": str(EXPECTED), "type": "keyword", "label": "vintage wedding rings", "score": 0.92, "cited": 1,
    "quote": "Demand index 87",
}  # fmt: skip


def answered(**other: Any) -> NewRow:
    made = {
        "id": uuid4(), "thread_id": THREAD, "role": "assistant", "content": "Rings are [Source 1].",
        "created_at": BEGAN + timedelta(seconds=3), "capability": "market_brief",
        "model_id": "meta-llama/Llama-3.1-70B-Instruct", "retrieved_source_ids": [CITED, GONE],
        "generation_metadata": {
            "tokensIn": 1847, "tokensOut": 312, "latencyMs": 3421, "temperature": 0.7, "prompts": {"global": "v1"},
        },
        "flags": {"usedRag": True, "interrupted": True},
    }  # fmt: skip
    return NewRow(messages_table, {**made, **other})


ANSWERED = answered()
RATED = insert(feedback_table).values(
    message_id=ANSWERED.id, user_id=ADA, rating="negative", comment="Where is it?", expected_source_id=EXPECTED
)


def title(number: int) -> str:
    """What nobody else's thread is called."""
    return f"Thread {number} of {ORG.hex}"


def thread(number: int = 0, user: UUID = ADA, archived: bool = False) -> Insert:
    return insert(threads_table).values(
        id=IDS[number], user_id=user, title=title(number), created_at=BEGAN, updated_at=BEGAN,
        last_message_at=BEGAN - timedelta(hours=number), message_count=2, archived=archived,
        metadata={"client": "web", "version": "1.0", "prompts": {"global": "ask_lexybrain_system"}},
    )  # fmt: skip


@pytest.fixture(autouse=True)
def kept(backstage: Backstage) -> Iterator[None]:
    """Ada has three threads, one of them archived; Berta has one. One of the two sources is there."""
    backstage.people.known = {"ada": Principal("ada", ADA, frozenset({ORG})), "berta": Principal("berta", BERTA)}
    TABLES.change(
        Scope(frozenset({ORG}), ADA),
        insert(sources_table).values(
            id=EXPECTED, org_id=ORG, index=INDEX, external_id="kw-ring-box", title="vintage wedding rings", lang="en",
            source_type="keyword", metadata={}, untyped={}, origin="", visibility="team", version="1", content=[],
        ),
        *(thread(), thread(1), thread(2, archived=True), ASKED, ANSWERED, RATED),
    )  # fmt: skip
    TABLES.change(Scope.alone(BERTA), thread(3, BERTA))
    yield
    for user in (ADA, BERTA):
        TABLES.change(Scope.alone(user), delete(threads_table).where(threads_table.c.user_id == user))
        TABLES.administers(user, "user")
    TABLES.change(Scope(frozenset({ORG})), delete(sources_table).where(sources_table.c.id == EXPECTED))


def titles(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [each["title"].partition(" of ")[0] for each in response.json()["threads"]]


# --- the list


def test_the_list_shows_ones_own_newest_first(client: httpx.Client, validator: Validate) -> None:
    response = client.get(THREADS)
    assert titles(response) == ["Thread 0", "Thread 1", "Thread 2"]
    assert response.json()["threads"][0] == {
        "id": str(THREAD),
        "userId": str(ADA),
        "title": title(0),
        "createdAt": "2026-01-15T10:30:00Z",
        "updatedAt": "2026-01-15T10:30:00Z",
        "lastMessageAt": "2026-01-15T10:30:00Z",
        "messageCount": 2,
        "archived": False,
        "metadata": {"client": "web", "version": "1.0"},
    }
    assert response.json()["nextCursor"] is None
    validator(response)


def test_what_the_list_passes_on(client: httpx.Client, backstage: Backstage) -> None:
    TABLES.administers(ADA)
    client.get(THREADS)
    client.get(THREADS, params={"limit": 1, "archived": "false", "everybody": "false"})
    client.get(THREADS, params={"limit": 100, "archived": "true", "user": str(BERTA)})
    cursor = pages.cursor(BEGAN, THREAD)
    client.get(THREADS, params={"everybody": "true", "cursor": cursor})
    client.get(THREADS, params={"search": "Rings"})
    nothing = {"limit": 20, "after": None, "archived": None, "user": None, "everybody": False, "search": None}
    assert [how for _, how in backstage.threads.asked] == [
        nothing,
        {**nothing, "limit": 1, "archived": False},
        {**nothing, "limit": 100, "archived": True, "user": BERTA},
        {**nothing, "everybody": True, "after": cursor},
        {**nothing, "search": "Rings"},
    ]


def test_pages(client: httpx.Client, validator: Validate) -> None:
    first = client.get(THREADS, params={"limit": 2})
    assert titles(first) == ["Thread 0", "Thread 1"] and first.json()["nextCursor"]
    validator(first)
    second = client.get(THREADS, params={"limit": 2, "cursor": first.json()["nextCursor"]})
    assert titles(second) == ["Thread 2"] and second.json()["nextCursor"] is None
    assert titles(client.get(THREADS, params={"archived": "true"})) == ["Thread 2"]


def test_threads_are_searched(client: httpx.Client, validator: Validate) -> None:
    found = client.get(THREADS, params={"search": "thread 1"})
    assert titles(found) == ["Thread 1"]
    validator(found)


def test_the_threads_of_others_are_for_administrators(client: httpx.Client, backstage: Backstage) -> None:
    for params in ({"user": str(BERTA)}, {"everybody": "true"}):
        refused(client.get(THREADS, params=params), 403, "forbidden")
    TABLES.administers(ADA)
    assert titles(client.get(THREADS, params={"user": str(BERTA)})) == ["Thread 3"]
    everybody = client.get(THREADS, params={"everybody": "true", "search": ORG.hex})
    assert [each["userId"] for each in everybody.json()["threads"]] == [str(ADA)] * 3 + [str(BERTA)]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("limit=0", "limit"), ("limit=101", "limit"), ("limit=", "limit"), ("limit=many", "limit"),
        ("limit=1.5", "limit"), ("limit=-1", "limit"), (f"limit={10**30}", "limit"),
        ("archived=", "archived"), ("archived=1", "archived"), ("archived=True", "archived"),
        ("everybody=yes", "everybody"), ("everybody=", "everybody"),
        ("user=", "user"), ("user=ada", "user"), ("user=%00", "user"), ("user=*", "user"),
        ("search=", "search"), ("search=%20", "search"), ("search=%00", "search"), ("search=a%00b", "search"), (f"search={'x' * 201}", "search"),
        ("cursor=", "cursor"), ("cursor=%00", "cursor"), ("cursor=a%20b", "cursor"), (f"cursor={'x' * 501}", "cursor"),
        ("offset=1", "offset"), ("Limit=1", "Limit"), ("=1", ""), ("limit=1&user_id=1", "user_id"),
        (f"{'x' * 500}=1", "x" * 100),
    ],
)  # fmt: skip
def test_a_parameter_that_is_not_accepted_is_named(
    query: str, name: str, client: httpx.Client, backstage: Backstage
) -> None:
    message = refused(client.get(f"{THREADS}?{query}"), 422, "validation_error")
    assert message.startswith(f"{name}: ") or (name == "" and message.startswith("unknown field"))
    assert backstage.threads.asked == []


def test_a_cursor_of_nobodys_is_refused(client: httpx.Client, backstage: Backstage) -> None:
    refused(client.get(THREADS, params={"cursor": "nonsense"}), 422, "validation_error")


# --- one thread


def test_a_thread_comes_with_its_messages(client: httpx.Client, validator: Validate) -> None:
    response = client.get(AT)
    assert response.status_code == 200
    told = response.json()
    listed = client.get(THREADS).json()["threads"][0]
    assert {name: told[name] for name in listed} == listed
    assert told.keys() == listed.keys() | {"messages", "hasMore"} and told["hasMore"] is False
    assert told["messages"] == [
        {
            "id": str(ASKED.id),
            "role": "user",
            "content": "What is trending?",
            "createdAt": "2026-01-15T10:30:00Z",
            "capability": "market_brief",
            "sources": [],
            "model": None,
            "flags": None,
            "feedback": None,
        },
        {
            "id": str(ANSWERED.id),
            "role": "assistant",
            "content": "Rings are [Source 1].",
            "createdAt": "2026-01-15T10:30:03Z",
            "capability": "market_brief",
            "sources": [
                {
                    "id": CITED["id"],
                    "type": "keyword",
                    "label": "vintage wedding rings",
                    "score": 0.92,
                    "citation": 1,
                    "quote": "Demand index 87",
                    "available": True,
                },
                {
                    "id": GONE["id"],
                    "type": "alert",
                    "label": "Trademark",
                    "score": 0.5,
                    "citation": None,
                    "quote": None,
                    "available": False,
                },
            ],
            "model": {
                "id": "meta-llama/Llama-3.1-70B-Instruct",
                "usage": {"inputTokens": 1847, "outputTokens": 312},
                "latencyMs": 3421,
            },
            "flags": {
                "usedRag": True,
                "fallbackToGeneric": False,
                "insufficientContext": False,
                "interrupted": True,
                "refused": False,
            },
            "feedback": {"rating": "negative", "comment": "Where is it?", "expectedSourceId": str(EXPECTED)},
        },
    ]
    validator(response)


@pytest.mark.parametrize("generation", [{}, {"tokensIn": None, "tokensOut": None}, {"tokensIn": 5}])
def test_a_message_whose_tokens_nobody_counted(
    generation: dict[str, Any], client: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    made = answered(model_id="extractive", generation_metadata=generation, created_at=BEGAN + timedelta(minutes=1))
    TABLES.change(Scope.alone(ADA), made)
    response = client.get(AT)
    assert response.json()["messages"][-1]["model"] == {"id": "extractive", "usage": None, "latencyMs": 0}
    validator(response)


def test_earlier_messages(client: httpx.Client, backstage: Backstage) -> None:
    newest = client.get(AT, params={"limit": 1}).json()
    assert [each["role"] for each in newest["messages"]] == ["assistant"] and newest["hasMore"] is True
    earlier = client.get(AT, params={"limit": 1, "before": newest["messages"][0]["id"]}).json()
    assert [each["role"] for each in earlier["messages"]] == ["user"] and earlier["hasMore"] is False
    assert [how["limit"] for _, how in backstage.threads.asked] == [1, 1]
    refused(client.get(AT, params={"before": str(uuid4())}), 422, "validation_error")


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "before=", "before=1", "before=%00", "archived=true"])
def test_what_a_page_of_messages_cannot_be(query: str, client: httpx.Client, backstage: Backstage) -> None:
    refused(client.get(f"{AT}?{query}"), 422, "validation_error")
    assert backstage.threads.asked == []


@pytest.mark.parametrize("bad", ["1", "a%00b", "%F0%9F%A6%80", "x" * 36, "..%2F..", "null", f"{THREAD}0", "%20"])
def test_an_id_in_the_path_that_is_none(bad: str, client: httpx.Client, backstage: Backstage) -> None:
    asked = [
        client.get(f"{THREADS}/{bad}"),
        client.patch(f"{THREADS}/{bad}", json={"archived": True}),
        client.delete(f"{THREADS}/{bad}"),
        client.delete(f"{THREADS}/{bad}/messages/{uuid4()}"),
        client.delete(f"{AT}/messages/{bad}"),
    ]
    for response in asked:
        if response.status_code != 404:  # a path of other parts
            assert refused(response, 422, "validation_error").startswith(("thread_id: ", "message_id: "))
        else:
            refused(response, 404, "not_found")
    assert backstage.threads.asked == []
    assert "%2F" in bad or asked[0].status_code == 422


def test_the_threads_of_others_are_not_there(client: httpx.Client, backstage: Backstage) -> None:
    unknown = f"{THREADS}/{uuid4()}"
    for at in (f"{THREADS}/{IDS[3]}", unknown):
        told = [
            client.get(at),
            client.patch(at, json={"title": "Mine"}),
            client.patch(at, json={"archived": True}),
            client.delete(at),
            client.delete(f"{at}/messages/{ANSWERED.id}"),
        ]
        for response in told:
            message = refused(response, 404, "not_found")
            assert title(3) not in message and str(BERTA) not in message
    TABLES.administers(ADA)
    kept = client.get(f"{THREADS}/{IDS[3]}").json()
    assert (kept["title"], kept["archived"]) == (title(3), False)


def test_an_administrator_reads_them(client: httpx.Client, backstage: Backstage) -> None:
    TABLES.administers(ADA)
    assert client.get(f"{THREADS}/{IDS[3]}").json()["userId"] == str(BERTA)
    refused(client.delete(f"{THREADS}/{IDS[3]}"), 404, "not_found")


# --- changes


@pytest.mark.parametrize("to", ["x", "x" * 200, "  Rings \n", "語" * 200])
def test_a_thread_is_renamed(to: str, client: httpx.Client, backstage: Backstage, validator: Validate) -> None:
    response = client.patch(AT, json={"title": to})
    assert response.status_code == 200 and response.json()["title"] == to.strip()
    assert client.get(AT).json()["title"] == to.strip()
    validator(response)


def test_a_thread_is_put_away_and_taken_back(client: httpx.Client, backstage: Backstage) -> None:
    for archived in (True, True, False):
        assert client.patch(AT, json={"archived": archived}).json()["archived"] is archived
        assert client.get(AT).json()["archived"] is archived
    both = client.patch(AT, json={"title": "Both", "archived": True}).json()
    assert (both["title"], both["archived"]) == ("Both", True)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "`title`, `archived`"),
        *(
            ({"title": each}, "title: must be a text of 1 to 200")
            for each in any_of("", " ", "x" * 201, "a\0b", "\x1b[31mred", "\u200b\ufe0f", 5, None, [])
        ),
        *(({"archived": each}, "archived: must be true or false") for each in any_of("true", 1, None, "", [])),
        ({"title": "x", "archived": None}, "archived: must be true or false"),
        ({"title": "x", "user_id": "1"}, "user_id: unknown field; accepted: archived, title"),
        ({"metadata": {}}, "metadata: unknown field"),
        ([], "must be a JSON object"),
    ],
)
def test_a_change_that_is_none(body: Any, says: str, client: httpx.Client, backstage: Backstage) -> None:
    assert says in refused(client.patch(AT, json=body), 422, "validation_error")
    assert backstage.threads.asked == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"title": "\xff"}', b'{"title": "\\ud800"}', b"\x00"])
def test_a_change_that_cannot_be_read(content: bytes, client: httpx.Client, backstage: Backstage) -> None:
    response = client.patch(AT, content=content, headers={"Content-Type": "application/json"})
    refused(response, 422, "validation_error")
    refused(client.patch(AT, content=b" " * 10_000_000), 413, "payload_too_large")
    assert backstage.threads.asked == []


def test_a_thread_is_deleted_once_and_stays_deleted(client: httpx.Client, backstage: Backstage) -> None:
    response = client.delete(AT)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["x-ratelimit-remaining"] == "59"
    refused(client.delete(AT), 404, "not_found")
    refused(client.get(AT), 404, "not_found")
    assert titles(client.get(THREADS)) == ["Thread 1", "Thread 2"]


def test_a_message_is_deleted_once_and_stays_deleted(client: httpx.Client, backstage: Backstage) -> None:
    at = f"{AT}/messages/{ANSWERED.id}"
    response = client.delete(at)
    assert (response.status_code, response.content) == (204, b"")
    refused(client.delete(at), 404, "not_found")
    assert [each["id"] for each in client.get(AT).json()["messages"]] == [str(ASKED.id)]


def test_parameters_that_are_not_declared_change_nothing(client: httpx.Client, backstage: Backstage) -> None:
    for response in (
        client.delete(f"{AT}?dry_run=true"),
        client.delete(f"{AT}/messages/{ASKED.id}?dry_run=true"),
        client.patch(f"{AT}?title=x", json={"archived": True}),
    ):
        assert "unknown field" in refused(response, 422, "validation_error")
    assert backstage.threads.asked == []


# --- the rest


def requests(client: httpx.Client) -> list[httpx.Response]:
    return [
        client.get(THREADS),
        client.get(AT),
        client.patch(AT, json={"title": "x"}),
        client.delete(AT),
        client.delete(f"{AT}/messages/{ASKED.id}"),
    ]


def test_the_database_is_down(client: httpx.Client, backstage: Backstage) -> None:
    backstage.threads.error = StoreFailed("10.0.0.7")
    for response in requests(client):
        assert "10.0.0.7" not in refused(response, 503, "service_unavailable", retryable=True)


def test_what_nobody_expected(client: httpx.Client, backstage: Backstage) -> None:
    backstage.threads.error = RuntimeError("10.0.0.7")
    for response in requests(client):
        assert "10.0.0.7" not in refused(response, 500, "internal_error")


def test_what_the_threads_refuse(client: httpx.Client, backstage: Backstage) -> None:
    backstage.threads.error = InvalidInput("before", "x", "is no message")
    for response in requests(client):
        assert refused(response, 422, "validation_error") == "before: is no message"


def test_the_methods_of_each_path(client: httpx.Client) -> None:
    expected = {
        THREADS: {"GET", "HEAD", "OPTIONS"},
        AT: {"GET", "HEAD", "PATCH", "DELETE", "OPTIONS"},
        f"{AT}/messages/{ASKED.id}": {"DELETE", "OPTIONS"},
    }
    for path, methods in expected.items():
        told = client.options(path)
        assert told.status_code == 204 and set(told.headers["allow"].split(", ")) == methods
        put = client.put(path, json={})
        refused(put, 405, "method_not_allowed")
        assert set(put.headers["allow"].split(", ")) == methods


def test_reading_threads_is_counted_by_itself(client: httpx.Client, backstage: Backstage) -> None:
    for path in (THREADS, AT):
        assert client.get(path).status_code == 200
    client.patch(AT, json={"archived": True})
    counted = {key.partition(":")[0]: count for key, count in backstage.limiter.counts.items()}
    assert counted == {"lexybrain_threads": 2, "lexybrain": 1}


@pytest.mark.parametrize(
    ("path", "accepted"),
    [
        (f"{THREADS}?limit=101", "limit: must be a whole number from 1 to 100"),
        (f"{THREADS}?limit=many", "limit: must be a whole number from 1 to 100"),
        (f"{THREADS}?archived=maybe", "archived: must be one of true, false"),
        (f"{THREADS}?cursor=", "cursor: must be a text of 1 to 500 characters, none of them white space"),
        (f"{THREADS}?user=ada", "user: must be a UUID"),
        (f"{THREADS}/ada", "thread_id: must be a UUID"),
        ("/api/admin/lexybrain/rag/feedback?rating=good", "rating: must be one of positive, negative, neutral"),
        ("/api/admin/lexybrain/rag/stats?from=monday", "from: must be a date, YYYY-MM-DD"),
    ],
)
def test_a_refused_parameter_says_what_is_accepted(path: str, accepted: str, client: httpx.Client) -> None:
    response = client.get(path)
    refused(response, 422, "validation_error")
    assert response.json()["error"]["message"] == accepted
