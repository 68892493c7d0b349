"""A walk over every route there is: a member of one organization gets nothing of another, whatever is typed.

A route that is not in WALKS or OPEN makes this fail, so that nobody adds one and forgets.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from litestar.routes import HTTPRoute

from rag_app.access.roles import Role
from rag_app.application import Application, create_app
from rag_app.documents.metadata import Target
from rag_app.documents.uploads import Upload
from rag_app.domain.answer import Question
from rag_app.domain.scope import Scope
from rag_app.domain.source import Visibility
from tests.conftest import ON_DEFAULT_STORE
from tests.integration.service import bearer, configured, prepare, served, without_limits

INDEXES = ("org_knowledge", "book", "salon_calls", "marketplace")
OPEN = {
    "/", "/health/live", "/health/ready", "/openapi.json", "/docs", "/docs/openapi.json", "/docs/oauth2-redirect.html",
    "/docs/{path}", "/docs/assets/{file_path}",
}  # fmt: skip
"""They show nothing that belongs to an organization."""
SOURCES = "/api/v1/sources"
INDEX = "/api/v1/indexes/{index}"
INDEX_LIST = "/api/v1/indexes"
FIELDS = f"{INDEX}/fields"
SOURCE = f"{SOURCES}/{{source_id}}"
KEYS_ALONE = "/api/v1/retrieval/"
ASKED = "What is the door code of the house?"


@dataclass(frozen=True)
class Tenant:
    """An organization with a member, a key, and in each index a source whose text has `word` in it.

    The member has a thread, with the answer `message` in it.
    """

    org: UUID
    user: UUID
    key: str
    word: str
    chunks: Mapping[str, str]
    sources: Mapping[str, str]
    thread: str = ""
    message: str = ""
    job: str = ""

    @property
    def ids(self) -> list[str]:
        return [str(self.org), str(self.user), *self.chunks.values(), *self.sources.values()]

    @property
    def credentials(self) -> list[dict[str, str]]:
        """Of its member, and its key."""
        return [bearer(self.user), {"Authorization": f"Bearer {self.key}"}]


@dataclass(frozen=True)
class World:
    client: httpx.Client
    ours: Tenant
    theirs: Tenant
    their_validation: str

    def token(self, tenant: Tenant, path: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {tenant.key}"} if path.startswith(KEYS_ALONE) else bearer(tenant.user)

    def as_us(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        return self.client.request(method, path, json=body, headers={**self.token(self.ours, path), **headers})

    @property
    def swapped(self) -> "World":
        """As they see it."""
        return replace(self, ours=self.theirs, theirs=self.ours)


Walk = Callable[[World, str], Iterable[httpx.Response]]
"""Requests to a path as one of us, first some that find what is ours, then ones that ask for what is theirs. Who takes the
first response of an iterator sends no other request."""


def knowledge(world: World, path: str) -> Iterator[httpx.Response]:
    filters: list[dict[str, Any]] = [{}, *({"org_id": each} for each in world.theirs.ids)]
    filters += [{name: each} for name in ("source_id", "chunk_id", "user") for each in world.theirs.ids]
    bodies = [{"query_text": ASKED, "top_k": 50, "filters": each} for each in filters]
    for body in bodies:
        yield world.as_us("POST", path, body)
    if path.endswith("answer"):
        yield world.as_us("POST", path, bodies[0], Accept="text/event-stream")


def any_index(world: World, path: str) -> Iterator[httpx.Response]:
    for index in world.ours.sources:
        yield from knowledge(world, path.format(index=index))
    ours = {"Authorization": f"Bearer {world.ours.key}"}
    yield world.client.post(path.format(index="book"), json={"query_text": ASKED, "top_k": 50}, headers=ours)
    foreign = [world.as_us("POST", path.format(index=each), {"query_text": ASKED}) for each in world.theirs.ids]
    assert {each.status_code for each in foreign} == {404}
    yield from foreign


def owner(world: World, path: str) -> Iterator[httpx.Response]:
    text = "question" if path.endswith("ask") else "query"
    bodies: list[dict[str, Any]] = [
        {text: ASKED, "limit": 50, "min_similarity": 0.0},
        {text: ASKED, "limit": 50, "min_similarity": 0.0, "source_types": ["call_transcript"]},
        *({text: f"{ASKED} {each}", "shop_id": each} for each in world.theirs.ids),
        *({text: f"{ASKED} {each}"} for each in world.theirs.ids),
        {text: world.theirs.word, "min_similarity": 0.0},
    ]
    for body in bodies:
        yield world.as_us("POST", path, body)
    if path.endswith("ask"):
        yield world.as_us("POST", path, bodies[0], Accept="text/event-stream")


def query(world: World, path: str) -> Iterator[httpx.Response]:
    bodies: list[dict[str, Any]] = [
        {"query": ASKED, "top_k": 20, "validate": True},
        {"query": world.theirs.word, "top_k": 20},
        *({"query": ASKED, "collection_name": name} for name in [*INDEXES, *world.theirs.ids, "g_book_1", "*"]),
        *({"query": ASKED, "org_id": each} for each in world.theirs.ids),
    ]
    return (world.as_us("POST", path, body) for body in bodies)


def validate(world: World, path: str) -> list[httpx.Response]:
    expected = [world.theirs.chunks["book"], *world.theirs.ids]
    return [
        world.as_us("POST", path, {"queries": [{"query": ASKED, "expected_chunks": [world.ours.chunks["book"]]}]}),
        world.as_us("POST", path, {"queries": [{"query": ASKED, "expected_chunks": expected}], "top_k": 100}),
        world.as_us("POST", "/api/v1/retrieval/query", {"query": ASKED, "top_k": 20, "validate": True}),
    ]


def validations(world: World, path: str) -> list[httpx.Response]:
    return [
        world.as_us("GET", path),
        world.as_us("GET", f"{path}?before={world.their_validation}"),
        world.as_us("GET", f"{path}?limit=100&org_id={world.theirs.org}"),
    ]


def validation(world: World, path: str) -> list[httpx.Response]:
    at = path.partition("{")[0]
    own = world.as_us("GET", at.rstrip("/")).json()["validations"]
    own = own or [validate(world, "/api/v1/retrieval/validate")[0].json()]
    ours = own[0]["validation_id"]
    foreign = [world.as_us("GET", at + each) for each in [world.their_validation, *world.theirs.ids, "validation_0"]]
    compared = world.as_us("GET", f"{at}{ours}?against={world.their_validation}")
    assert {each.status_code for each in [*foreign, compared]} == {404}
    return [world.as_us("GET", at + ours), *foreign, compared]


def collections(world: World, path: str) -> list[httpx.Response]:
    response = world.as_us("GET", path)
    counted = {each["name"]: each["point_count"] for each in response.json()["collections"]}
    assert counted["book"] == 1, "they have one there, too"
    return [response]


def judged_answer(world: World, path: str) -> list[httpx.Response]:
    """Under one id both of us have an answer; each says something of their own."""
    ours, theirs = uuid4().hex, uuid4().hex
    for each, request in ((world, ours), (world, "shared"), (world.swapped, "shared"), (world.swapped, theirs)):
        body = {"question": ASKED, "min_similarity": 0.0}
        each.as_us("POST", "/owner/ask", body, **{"X-Request-ID": request})
    said = {"verdict": "wrong", "comment": f"The code is {world.ours.word}."}
    at = path.replace("{request_id}", "{}")
    kept = world.as_us("POST", at.format("shared"), {**said, "expected_source": world.ours.sources["salon_calls"]})
    named = [*world.theirs.ids, str(uuid4())]
    expected = [world.as_us("POST", at.format(ours), {**said, "expected_source": each}) for each in named]
    assert {each.status_code for each in expected} == {400}
    foreign = [world.as_us(method, at.format(theirs), said) for method in ("POST", "DELETE")]
    assert {each.status_code for each in foreign} == {404}
    assert world.as_us("DELETE", at.format("shared")).status_code == 204
    again = world.swapped.as_us("POST", at.format("shared"), {"verdict": "right"})
    assert again.status_code == 200, "theirs is still there"
    return [kept, *expected, *foreign]


def listed(world: World, path: str) -> list[httpx.Response]:
    queries = ["", "?limit=200", "?index=book", f"?search={world.theirs.word}", "?search=door", "?external_id=door"]
    queries += [f"?organization={each}" for each in world.theirs.ids]
    queries += [
        f"?index=org_knowledge&filter={name}={each}" for name in ("org_id", "source_id") for each in world.theirs.ids
    ]
    found = [world.as_us("GET", path + each) for each in queries]
    assert all(str(world.theirs.org) not in each.text for each in found[:6])
    return [*found, world.as_us("GET", f"{SOURCES}/{world.ours.sources['book']}/text")]


def one_source(world: World, path: str) -> list[httpx.Response]:
    ours = world.ours.sources["book"]
    at = path.replace("{source_id}", ours)
    foreign = [world.as_us("GET", path.replace("{source_id}", each)) for each in world.theirs.ids]
    assert {each.status_code for each in foreign} == {404}
    theirs = [world.as_us("GET", f"{SOURCES}/{ours}?chunk={each}") for each in world.theirs.chunks.values()]
    assert all(each.json()["passage"] is None for each in theirs)
    return [world.as_us("GET", at), world.as_us("GET", f"{SOURCES}/{ours}/text"), *foreign, *theirs]


def put_in(world: World, path: str) -> list[httpx.Response]:
    """Under the name that they have, too: it becomes ours, and theirs stays."""
    method = "POST" if path == SOURCES else "PUT"
    document = {"external_id": "put", "text": f"The window code is {world.ours.word}."}
    body = {"index": "book", **(document if method == "PUT" else {"documents": [document]})}
    at = path.replace("{source_id}", "put")
    others = [world.swapped.as_us(method, at, {**body, **({"text": "Theirs."} if method == "PUT" else {})})]
    mine = [world.as_us(method, at, body)]
    (source,) = mine[0].json()["ids"]
    foreign = [world.as_us(method, at, {**body, "organization": each}) for each in world.theirs.ids]
    assert {each.status_code for each in foreign} == {400}
    foreign += [world.as_us(method, at, {**body, "site": each}) for each in world.theirs.ids]
    assert others[0].json()["ids"] != [source]
    return [*mine, *foreign, world.as_us("GET", f"{SOURCES}/{source}/text")]


def original(world: World, path: str) -> list[httpx.Response]:
    def sent(by: World) -> str:
        file = ("file", ("door.txt", f"The window code is {by.ours.word}.".encode()))
        headers = by.token(by.ours, SOURCES)
        made = world.client.post(SOURCES, files=[file], data={"index": "book"}, headers=headers)
        assert made.status_code == 200, made.text
        return str(made.json()["ids"][0])

    ours, theirs = sent(world), sent(world.swapped)
    foreign = [world.as_us("GET", path.replace("{source_id}", each)) for each in [theirs, *world.theirs.ids]]
    assert {each.status_code for each in foreign} == {404}
    return [world.as_us("GET", path.replace("{source_id}", ours)), *foreign]


def changed_source(world: World, path: str) -> list[httpx.Response]:
    body = {"title": f"Codes {world.ours.word}"}
    foreign = [world.as_us("PATCH", path.replace("{source_id}", each), body) for each in world.theirs.ids]
    assert {each.status_code for each in foreign} == {404}
    return [world.as_us("PATCH", path.replace("{source_id}", world.ours.sources["marketplace"]), body), *foreign]


def still_there(world: World) -> None:
    for source in world.theirs.sources.values():
        assert world.swapped.as_us("GET", f"{SOURCES}/{source}/text").text.count(world.theirs.word)


def deleted_source(world: World, path: str) -> list[httpx.Response]:
    put_in(world, SOURCES)
    listed_one = world.as_us("GET", f"{SOURCES}?external_id=put").json()["sources"][0]["id"]
    text = world.as_us("GET", f"{SOURCES}/{listed_one}/text")
    foreign = [world.as_us("DELETE", path.replace("{source_id}", each)) for each in world.theirs.ids]
    assert {each.status_code for each in foreign} == {404}
    still_there(world)
    return [text, world.as_us("DELETE", path.replace("{source_id}", listed_one)), *foreign]


def fields(world: World, path: str) -> list[httpx.Response]:
    """Examples of values are of what one sees."""
    return [world.as_us("GET", path.format(index=index)) for index in world.ours.sources]


def index_list(world: World, path: str) -> list[httpx.Response]:
    """It names what is declared, whoever's sources are in it."""
    return [world.as_us("GET", path)]


def deleted_sources(world: World, path: str) -> list[httpx.Response]:
    put_in(world, SOURCES)
    text = world.as_us("GET", f"{SOURCES}/{world.ours.sources['book']}/text")
    queries = [f"index=book&filter={name}={each}" for name in ("org_id", "source_id") for each in world.theirs.ids]
    foreign = [world.as_us("DELETE", f"{path}?{each}") for each in queries]
    assert all(each.status_code == 400 or each.json() == {"deleted": 0} for each in foreign)
    named = [f"index=book&confirm=book&organization={each}" for each in world.theirs.ids]
    foreign += [world.as_us("DELETE", f"{path}?{each}") for each in named]
    assert {each.status_code for each in foreign[len(queries) :]} == {400}
    put = [each["id"] for each in world.as_us("GET", f"{path}?external_id=put").json()["sources"]]
    gone = [world.as_us("DELETE", f"{path}?index=book&filter=source_id={each}") for each in put]
    still_there(world)
    return [text, *gone, *foreign]


JOBS = "/api/v1/jobs"
JOB = f"{JOBS}/{{job_id}}"


def all_jobs(world: World, path: str) -> list[httpx.Response]:
    listed = [world.as_us("GET", path), world.as_us("GET", f"{path}?limit=100")]
    assert all(world.ours.job in each.text for each in listed)
    return listed


def one_job(world: World, path: str) -> list[httpx.Response]:
    """Cancelled at first, so that its events end; tried again, so that it can be cancelled."""

    def ask(way: str, job: str) -> httpx.Response:
        return world.as_us("POST" if way in ("cancel", "retry") else "GET", f"{JOBS}/{job}{way and '/'}{way}")

    wanted = path.removeprefix(JOB).lstrip("/")
    before = ["retry", "cancel"] if wanted != "retry" else ["cancel"]
    told = [ask(way, world.ours.job) for way in [*before, wanted]]
    theirs = [ask(wanted, world.theirs.job), *(ask(wanted, each) for each in world.theirs.ids)]
    assert {each.status_code for each in theirs} == {404}
    return [*told, *theirs]


RAG = "/api/lexybrain/rag"
THREADS = "/api/lexybrain/threads"
FEEDBACK = "/api/lexybrain/messages/{message_id}/feedback"
ANSWER_FEEDBACK = "/api/v1/answers/{request_id}/feedback"
CONSENT = "/api/lexybrain/consent"
ADMINISTRATION = "/api/admin/lexybrain"
MANAGED = ({"resolution": "fixed"}, {"user": "somebody"}, {"name": "a key"}, {"plan": "pro"}, {"question": ASKED, "configurations": [{}]},
    {"question": ASKED, "index": "book", "chunk_id": str(UUID(int=0)), "relevant": True},
)  # fmt: skip
_ADMIN = "/api/v1/admin"
_ORGANIZATION = f"{_ADMIN}/organizations/{{organization}}"
MANAGEMENT = [
    *(("GET", f"{_ADMIN}/{each}") for each in ("feedback", "trends", "usage", "audit", "organizations")),
    *((method, f"{_ADMIN}/feedback/{{feedback_id}}/settlement") for method in ("PUT", "DELETE")),
    ("PUT", f"{_ADMIN}/users/{{user_id}}/plan"),
    ("DELETE", f"{_ADMIN}/keys/{{key_id}}"),
    *((method, f"{_ORGANIZATION}/{each}") for each in ("members", "keys") for method in ("GET", "POST")),
    ("DELETE", f"{_ORGANIZATION}/members/{{user_id}}"),
    *(("GET", f"{_ORGANIZATION}/{each}") for each in ("validations", "validations/{validation_id}")),
]
PLAYGROUND = [("GET", "/api/v1/playground"), *(("POST", f"/api/v1/playground{each}") for each in ("", "/judgments"))]
CAPABILITIES = ("general_chat", "market_brief", "competitor_intel", "keyword_explanation", "alert_explanation")


def conversation(world: World, path: str) -> Iterator[httpx.Response]:
    named = ("keywordIds", "watchlistIds", "listingIds", "alertIds")
    bodies: list[dict[str, Any]] = [
        {"message": ASKED, "capability": "general_chat"},
        *({"message": ASKED, "capability": each} for each in CAPABILITIES),
        *({"message": ASKED, "context": {each: world.theirs.ids}} for each in named),
        *({"message": ASKED, "context": {each: ["door", f"{world.theirs.word}.jsonl"]}} for each in named),
        {"message": ASKED, "context": {"shopUrl": f"https://shop.example/{world.theirs.word}"}},
        {"message": ASKED, "threadId": world.theirs.thread},
        {"message": ASKED, "threadId": world.theirs.message},
        {"message": ASKED, "threadId": world.ours.thread},
        {"message": "And what did I ask before?", "threadId": world.ours.thread},
        {"message": ASKED, "options": {"planCode": "admin"}},
    ]
    statuses = []
    for body in bodies:
        told = world.as_us("POST", path, body)
        statuses.append(told.status_code)
        yield told
    assert statuses[-5:] == [404, 404, 200, 200, 403]
    streams = [world.as_us("POST", path, body, Accept="text/event-stream") for body in (bodies[0], bodies[-5])]
    named_theirs = world.as_us("POST", path, {"message": world.theirs.word})
    assert world.as_us("DELETE", f"{THREADS}/{named_theirs.json()['threadId']}").status_code == 204, "its title is ours"
    key = {"Authorization": f"Bearer {world.ours.key}"}
    by_key = [world.client.request("POST", path, json=body, headers=key) for body in (bodies[0], bodies[-3])]
    assert by_key[1].status_code == 404, "a key has a user of its own, and not our threads"
    yield from (named_theirs, *streams, *by_key)


def threads(world: World, path: str) -> list[httpx.Response]:
    listed = [world.as_us("GET", path), world.as_us("GET", f"{path}?limit=100&archived=false")]
    others = [world.as_us("GET", f"{path}?{each}") for each in (f"user={world.theirs.user}", "everybody=true")]
    assert {each.status_code for each in others} == {403}
    paged = [world.as_us("GET", f"{path}?cursor={each}") for each in (world.theirs.thread, world.theirs.word)]
    assert world.ours.thread in listed[1].text and world.theirs.thread not in listed[1].text
    return [*listed, *others, *paged]


def thread(world: World, path: str) -> list[httpx.Response]:
    ours, theirs = (path.replace("{thread_id}", each.thread) for each in (world.ours, world.theirs))
    foreign = [world.as_us("GET", theirs), world.as_us("GET", f"{theirs}?limit=1&before={world.theirs.message}")]
    assert {each.status_code for each in foreign} == {404}
    foreign += [world.as_us("GET", f"{ours}?before={each}") for each in (world.theirs.message, uuid4())]
    assert foreign[-2].status_code == foreign[-1].status_code != 200, "as one that nobody has"
    return [world.as_us("GET", ours), *foreign]


def unchanged(world: World) -> None:
    """Their thread is there for them as it was."""
    kept = world.swapped.as_us("GET", f"{THREADS}/{world.theirs.thread}")
    assert kept.status_code == 200 and world.theirs.message in kept.text
    assert kept.json()["archived"] is False and world.theirs.word in kept.json()["title"]


def changed_thread(world: World, path: str) -> list[httpx.Response]:
    ours, theirs = (path.replace("{thread_id}", each.thread) for each in (world.ours, world.theirs))
    bodies: list[dict[str, Any]] = [{"title": "Mine"}, {"archived": True}, {"title": "Mine", "archived": True}]
    foreign = [world.as_us("PATCH", theirs, body) for body in bodies]
    assert {each.status_code for each in foreign} == {404}
    unchanged(world)
    return [world.as_us("PATCH", ours, {"title": f"Door code, {world.ours.word}"}), *foreign]


def branch(world: World, path: str) -> list[httpx.Response]:
    ours, theirs = (path.replace("{thread_id}", each.thread) for each in (world.ours, world.theirs))
    pairs = [(theirs, world.theirs), (ours, world.theirs), (theirs, world.ours)]
    foreign = [world.as_us("POST", at, {"before": whose.message}) for at, whose in pairs]
    assert {each.status_code for each in foreign} == {404}
    unchanged(world)
    made = world.as_us("POST", ours, {"before": world.ours.message})
    read = world.as_us("GET", f"{THREADS}/{made.json()['id']}")
    assert [each["role"] for each in read.json()["messages"]] == ["user"] and made.json()["messageCount"] == 1
    return [made, read, world.as_us("DELETE", f"{THREADS}/{made.json()['id']}"), *foreign]


def running(world: World, path: str) -> list[httpx.Response]:
    """Nothing is being answered: theirs looks like ours, and like one that nobody has."""
    at = [path.replace("{thread_id}", each) for each in (world.ours.thread, world.theirs.thread, str(uuid4()))]
    found = [world.as_us("POST" if path.endswith("stop") else "GET", each) for each in at]
    assert {each.status_code for each in found} == {404}
    return [world.as_us("GET", f"{THREADS}/{world.ours.thread}"), *found]


def usage(world: World, path: str) -> list[httpx.Response]:
    before = world.swapped.as_us("GET", path).json()
    world.as_us("POST", RAG, {"message": f"{ASKED} {world.ours.word}"})
    assert world.swapped.as_us("GET", path).json() == before
    return [world.as_us("GET", path), world.as_us("GET", f"{path}?user={world.theirs.user}")]


def deleted_thread(world: World, path: str) -> list[httpx.Response]:
    made = world.as_us("POST", RAG, {"message": f"{ASKED} {world.ours.word}"})
    ours, theirs = (path.replace("{thread_id}", each) for each in (made.json()["threadId"], world.theirs.thread))
    assert world.as_us("DELETE", ours).status_code == 204
    foreign = [world.as_us("DELETE", theirs), world.as_us("DELETE", ours), world.as_us("GET", ours)]
    assert {each.status_code for each in foreign} == {404}
    unchanged(world)
    return [world.as_us("GET", THREADS), *foreign]


def deleted_message(world: World, path: str) -> list[httpx.Response]:
    made = world.as_us("POST", RAG, {"message": f"{ASKED} {world.ours.word}"}).json()
    pairs = [
        (world.theirs.thread, world.theirs.message),
        (made["threadId"], world.theirs.message),
        (world.theirs.thread, made["messageId"]),
    ]
    at = path.replace("{thread_id}", "{}").replace("{message_id}", "{}")
    foreign = [world.as_us("DELETE", at.format(*pair)) for pair in pairs]
    assert {each.status_code for each in foreign} == {404}
    unchanged(world)
    assert world.as_us("DELETE", at.format(made["threadId"], made["messageId"])).status_code == 204
    left = world.as_us("GET", f"{THREADS}/{made['threadId']}")
    assert made["messageId"] not in left.text
    return [left, *foreign]


def rating(world: World, path: str) -> list[httpx.Response]:
    ours, theirs = (path.replace("{message_id}", each.message) for each in (world.ours, world.theirs))
    named = [*world.theirs.ids, world.theirs.thread, world.theirs.message, str(uuid4())]
    given = {"rating": "negative", "comment": f"The code is {world.ours.word}"}
    own = world.as_us("POST", ours, {**given, "expectedSourceId": world.ours.sources["marketplace"]})
    foreign = [world.as_us("POST", theirs, body) for body in (given, {**given, "expectedSourceId": "door"})]
    assert {each.status_code for each in foreign} == {404}
    expected = [world.as_us("POST", ours, {**given, "expectedSourceId": each}) for each in named]
    assert {(each.status_code, each.text) for each in expected} == {(422, expected[-1].text)}, "as one that nobody has"
    unchanged(world)
    return [own, *foreign, *expected]


def withdrawal(world: World, path: str) -> list[httpx.Response]:
    rating(world, path), rating(world.swapped, path)
    ours, theirs = (path.replace("{message_id}", each.message) for each in (world.ours, world.theirs))
    foreign = world.as_us("DELETE", theirs)
    assert foreign.status_code == 404
    kept = world.swapped.as_us("GET", f"{THREADS}/{world.theirs.thread}").json()
    assert kept["messages"][1]["feedback"]["comment"] == f"The code is {world.theirs.word}"
    assert world.as_us("DELETE", ours).status_code == 204
    return [world.as_us("GET", f"{THREADS}/{world.ours.thread}"), foreign]


def consenting(world: World, path: str) -> list[httpx.Response]:
    before = world.swapped.as_us("GET", path).json()
    given = [world.as_us("PUT", path, {"training": each}) for each in (True, False, True)]
    named = [{"training": True, "user": str(world.theirs.user)}, {"training": True, "userId": str(world.theirs.user)}]
    foreign = [world.as_us("PUT", path, body) for body in named]
    foreign += [world.as_us("GET", f"{path}?user={world.theirs.user}")]
    assert {each.status_code for each in foreign} == {422}
    assert world.swapped.as_us("GET", path).json() == before, "each decides for themselves"
    key = {"Authorization": f"Bearer {world.ours.key}"}
    by_key = [world.client.request(method, path, json={"training": True}, headers=key) for method in ("GET", "PUT")]
    assert {each.status_code for each in by_key} == {403}
    return [*given, world.as_us("GET", path), *foreign, *by_key]


def administration(world: World, path: str) -> list[httpx.Response]:
    """It is for administrators; neither of us is one."""
    at = path.replace("{name}", "ask_lexybrain_system")
    asked = [
        ("GET", at, None),
        ("POST", at, {}),
        ("PATCH", at, {"weight": 1}),
        ("GET", f"{at}?user={world.ours.user}", None),
    ]
    key = {"Authorization": f"Bearer {world.ours.key}"}
    told = [world.as_us(method, each, body) for method, each, body in asked]
    told += [world.client.request(method, each, json=body, headers=key) for method, each, body in asked]
    told = [each for each in told if each.status_code != 405]
    assert {each.status_code for each in told} <= {403, 422} and 403 in {each.status_code for each in told}
    return [*told, world.as_us("GET", THREADS)]


def management(world: World, path: str) -> list[httpx.Response]:
    """It is for administrators; neither of us is one. tests/integration/test_management.py is about those who are."""
    at = path.replace("{organization}", str(world.theirs.org)).replace("{validation_id}", world.their_validation)
    at = re.sub(r"\{[^}]*\}", world.theirs.chunks["book"], at)
    told = [world.as_us(method, at, body) for method in ("GET", "POST", "PUT", "DELETE") for body in MANAGED]
    told = [each for each in told if each.status_code != 405]
    assert {each.status_code for each in told} <= {400, 403, 404} and 403 in {each.status_code for each in told}, path
    return [*told, world.as_us("GET", THREADS)]


WALKS: dict[tuple[str, str], Walk] = {
    ("POST", "/api/rag/search"): knowledge,
    ("POST", "/api/rag/answer"): knowledge,
    ("POST", "/functions/v1/rag-search"): knowledge,
    ("POST", "/functions/v1/rag-answer"): knowledge,
    ("POST", "/owner/search"): owner,
    ("POST", "/owner/ask"): owner,
    ("POST", ANSWER_FEEDBACK): judged_answer,
    ("DELETE", ANSWER_FEEDBACK): judged_answer,
    ("POST", "/api/v1/retrieval/query"): query,
    ("POST", "/api/v1/retrieval/validate"): validate,
    ("GET", "/api/v1/retrieval/validations"): validations,
    ("GET", "/api/v1/retrieval/validations/{validation_id}"): validation,
    ("GET", "/api/v1/retrieval/collections"): collections,
    ("GET", SOURCES): listed,
    ("GET", SOURCE): one_source,
    ("GET", f"{SOURCE}/chunks"): one_source,
    ("GET", f"{SOURCE}/text"): one_source,
    ("GET", f"{SOURCE}/original"): original,
    ("GET", INDEX_LIST): index_list,
    ("GET", FIELDS): fields,
    ("POST", f"{INDEX}/search"): any_index,
    ("POST", f"{INDEX}/answer"): any_index,
    ("POST", SOURCES): put_in,
    ("PUT", SOURCES): put_in,
    ("PUT", SOURCE): put_in,
    ("PATCH", SOURCE): changed_source,
    ("DELETE", SOURCE): deleted_source,
    ("DELETE", SOURCES): deleted_sources,
    ("GET", JOBS): all_jobs,
    ("GET", JOB): one_job,
    ("GET", f"{JOB}/files"): one_job,
    ("GET", f"{JOB}/events"): one_job,
    ("POST", f"{JOB}/cancel"): one_job,
    ("POST", f"{JOB}/retry"): one_job,
    ("POST", RAG): conversation,
    ("GET", THREADS): threads,
    ("GET", f"{THREADS}/{{thread_id}}"): thread,
    ("PATCH", f"{THREADS}/{{thread_id}}"): changed_thread,
    ("DELETE", f"{THREADS}/{{thread_id}}"): deleted_thread,
    ("POST", f"{THREADS}/{{thread_id}}/branch"): branch,
    ("GET", f"{THREADS}/{{thread_id}}/answer"): running,
    ("POST", f"{THREADS}/{{thread_id}}/stop"): running,
    ("GET", "/api/lexybrain/usage"): usage,
    ("DELETE", f"{THREADS}/{{thread_id}}/messages/{{message_id}}"): deleted_message,
    ("POST", FEEDBACK): rating,
    ("DELETE", FEEDBACK): withdrawal,
    ("GET", CONSENT): consenting,
    ("PUT", CONSENT): consenting,
    **dict.fromkeys((*MANAGEMENT, *PLAYGROUND), management),
    ("GET", f"{ADMINISTRATION}/rag/stats"): administration,
    ("GET", f"{ADMINISTRATION}/rag/feedback"): administration,
    ("GET", f"{ADMINISTRATION}/configs"): administration,
    ("POST", f"{ADMINISTRATION}/configs"): administration,
    ("PATCH", f"{ADMINISTRATION}/configs/{{name}}"): administration,
}
SHOWS_NO_TEXT = {
    path for _, path in WALKS if "valid" in path or "collections" in path or "admin" in path or "playground" in path
} | {INDEX_LIST, FIELDS, CONSENT, "/api/lexybrain/usage", JOBS, JOB, f"{JOB}/events", f"{JOB}/cancel", f"{JOB}/retry"}


async def tenant(application: Application, folder: Path) -> Tenant:
    people, word = application.people, f"zq{uuid4().hex[:12]}"
    organization = await people.create_organization(f"t-{uuid4().hex}", "Tenant")
    user = await people.create_user(f"u-{uuid4().hex}", plan="growth")
    await people.add_member(organization, user)
    await application.roles.grant(organization.id, user.id, Role.ADMIN)
    _, key = await application.keys.create(organization, "walk", None)
    file = folder / f"{organization.slug}.jsonl"
    file.write_text(json.dumps({"id": "door", "title": "Door code", "text": f"The door code of the house is {word}."}))
    scope, chunks, sources = Scope(frozenset({organization.id})), {}, {}
    for index in INDEXES:
        ingestor = await application.ingestor(
            application.indexes[index], Target(organization.id, None, None, Visibility.TEAM)
        )
        assert not (await ingestor.ingest([file], base=folder)).failed
        (hit,) = await application.pipeline.search(index, Question(ASKED), scope)
        chunks[index], sources[index] = str(hit.chunk_id), str(hit.source_id)
    upload = Upload(external_id=word, text=f"The door code of the shed is {word}.")
    job = await application.jobs.begin(
        Scope(frozenset({organization.id}), user.id), "org_knowledge", Target(organization.id), [upload]
    )
    return Tenant(organization.id, user.id, key, word, chunks, sources, job=str(job.id))


@pytest.fixture(scope="module", params=[ON_DEFAULT_STORE])
def world(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], qdrant_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:  # fmt: skip
    folder = tmp_path_factory.mktemp("walk")
    variables = {
        "RAG_DATABASE_URL": database_urls[1],
        "RAG_DATABASE_OWNER_URL": database_urls[0],
        "RAG_VECTOR_STORE": request.param,
        "QDRANT_PATH": str(qdrant_folder),
        "RAG_HOME": str(folder),
        "RAG_ORIGINALS": "files",
    }
    with configured(variables) as patch:
        without_limits(patch)

        async def two(application: Application) -> tuple[Tenant, Tenant]:
            return await tenant(application, folder), await tenant(application, folder)

        ours, theirs = prepare(two)
        with served() as client:
            body = {"queries": [{"query": ASKED, "expected_chunks": [theirs.chunks["book"]]}]}
            made = client.post(
                "/api/v1/retrieval/validate", json=body, headers={"Authorization": f"Bearer {theirs.key}"}
            )
            yield World(client, talked(client, ours), talked(client, theirs), made.json()["validation_id"])


def talked(client: httpx.Client, tenant: Tenant) -> Tenant:
    """With a thread whose title has the tenant's word in it."""
    body = {"message": f"{ASKED} {tenant.word}", "capability": "general_chat"}
    made = client.post(RAG, json=body, headers=bearer(tenant.user)).json()
    return replace(tenant, thread=made["threadId"], message=made["messageId"])


def routes() -> set[tuple[str, str]]:
    """Every method and path of the application, shown in its documentation or not."""
    return {
        (method, route.path_format)
        for route in create_app().routes
        if isinstance(route, HTTPRoute) and not _is_page(route)
        for method in route.methods
        if method not in ("OPTIONS", "HEAD")
    }


def _is_page(route: HTTPRoute) -> bool:
    """Pages call the services of these routes as whoever has the session: test_pages_of_administration.py signs in."""
    return any(each.fn.__module__.startswith("rag_app.surfaces.pages.") for each in route.route_handlers)


def test_every_route_is_walked(world: World) -> None:
    unknown = {(method, path) for method, path in routes() if path not in OPEN} - WALKS.keys()
    assert not unknown, f"say in WALKS how these could show what belongs to another organization: {unknown}"
    assert not WALKS.keys() - routes(), "there is no such route any more"


def private(text: str, tenants: Sequence[Tenant]) -> list[str]:
    return [
        each
        for tenant in tenants
        for each in [
            tenant.word,
            *tenant.chunks.values(),
            *tenant.sources.values(),
            tenant.thread,
            tenant.message,
            tenant.job,
        ]
        if each in text
    ]


@pytest.mark.parametrize("route", WALKS, ids=" ".join)
def test_nothing_of_theirs_is_shown_to_us(world: World, route: tuple[str, str]) -> None:
    responses = [*WALKS[route](world, route[1])]
    for response in responses:
        assert response.status_code in (200, 204, 400, 403, 404, 422), response.text
        sent = response.request.content.decode() + str(response.request.url)
        shown = response.text
        for each in private(sent, [world.theirs]):  # what we typed ourselves may be echoed
            shown = shown.replace(each, "")
        assert not private(shown, [world.theirs]), response.request.content
    found = [response for response in responses if response.status_code == 200]
    assert found, "nothing was accepted, so nothing was tried"
    if route[1] not in SHOWS_NO_TEXT:
        assert any(world.ours.word in response.text for response in found), "not even what is ours was found"


@pytest.mark.parametrize(
    "route", [(method, path) for method, path in WALKS if method == "POST" and path not in SHOWS_NO_TEXT], ids=" ".join
)
def test_their_words_are_there_for_them(world: World, route: tuple[str, str]) -> None:
    """Otherwise the test above would pass with an empty database."""
    first = next(iter(WALKS[route](world.swapped, route[1])))
    assert world.theirs.word in first.text


@pytest.mark.parametrize("route", WALKS, ids=" ".join)
def test_nobody_gets_in_without_a_credential_or_with_one_of_another_kind(world: World, route: tuple[str, str]) -> None:
    method, path = route
    at = re.sub(r"\{[^}]*_id\}", world.theirs.chunks["book"], path) if path.startswith(_ADMIN) else path
    at = re.sub(r"\{[^}]*\}", world.their_validation, at)
    person, key = world.ours.credentials
    wrong = {KEYS_ALONE: [person], SOURCES: [], INDEX_LIST: [], JOBS: [], "/api/lexybrain/": [], "/api/admin/": []}
    others = next((each for start, each in wrong.items() if path.startswith(start)), [key])
    for headers in (
        {},
        *others,
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Bearer rag_" + "A" * 43},
        {"x-api-key": "nonsense"},
    ):
        response = world.client.request(method, at, json={}, headers=headers)
        assert response.status_code == 401, (headers, response.text)
