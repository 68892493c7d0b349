"""Administration over HTTP with everything real: what an administrator sees and does, and that it is written down."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest

from rag_app.application import Application
from tests.conftest import NewPostgres
from tests.integration.service import Text, bearer, configured, ingest, prepare, served, without_limits

ADMIN = "/api/v1/admin"
QUESTION = "When does the gardener bring the blue wheelbarrow?"


@dataclass(frozen=True)
class Office:
    """An administrator and a member of one organization, somebody of another one."""

    client: httpx.Client
    superuser: str
    slug: str
    other: str
    admin: UUID
    ann: UUID
    stranger: UUID

    def ask(self, method: str, path: str, body: object = None, user: UUID | None = None) -> httpx.Response:
        return self.client.request(method, f"{ADMIN}/{path}", json=body, headers=bearer(user or self.admin))

    def tell(self, method: str, path: str, body: object = None) -> Any:
        response = self.ask(method, path, body)
        assert response.status_code < 300, response.text
        return response.json() if response.content else None

    def acts(self) -> list[str]:
        """What is written down of the administrator, the last first."""

        async def fetch() -> list[str]:
            connection = await asyncpg.connect(self.superuser)
            try:
                sql = "SELECT action FROM audit_events WHERE actor_id = $1 ORDER BY id DESC"
                return [row["action"] for row in await connection.fetch(sql, self.admin)]
            finally:
                await connection.close()

        return asyncio.run(fetch())

    def answered(self, verdict: str) -> None:
        """The member asks, and says what they think of the answer, in both ways there are."""
        headers = bearer(self.ann)
        asked = self.client.post("/api/rag/answer", json={"query_text": QUESTION}, headers=headers)
        path = f"/api/v1/answers/{asked.headers['X-Request-ID']}/feedback"
        said = self.client.post(path, json={"verdict": verdict, "comment": f"{verdict}!"}, headers=headers)
        assert said.status_code == 200, said.text


@pytest.fixture(scope="module")
def office(new_database: NewPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    server, folder = new_database(), tmp_path_factory.mktemp("office")

    async def build(application: Application) -> tuple[list[str], list[UUID]]:
        people = application.people
        own, other = [await people.create_organization(f"{each}-{uuid4().hex[:8]}", each) for each in ("own", "other")]
        admin = await people.create_user("root", role="admin")
        ann, stranger = await people.create_user("ann"), await people.create_user("stranger")
        for user, organization in ((admin, own), (ann, own), (stranger, other)):
            await people.add_member(organization, user)
        await ingest(
            application,
            folder,
            [Text("tools", "The gardener brings the blue wheelbarrow every Monday at nine.", own.id)],
        )
        return [own.slug, other.slug], [admin.id, ann.id, stranger.id]

    variables = {
        "RAG_DATABASE_URL": server.app_url,
        "RAG_DATABASE_OWNER_URL": server.owner_url,
        "RAG_VECTOR_STORE": "postgres",
        "RAG_HOME": str(folder),
    }
    with configured(variables) as patch:
        without_limits(patch)
        slugs, users = prepare(build)
        with served() as client:
            made = Office(client, server.superuser_url.replace("+asyncpg", ""), slugs[0], slugs[1], *users)
            for _ in range(2):
                body = {"message": QUESTION, "capability": "general_chat"}
                said = client.post("/api/lexybrain/rag", json=body, headers=bearer(made.ann)).json()
                path = f"/api/lexybrain/messages/{said['messageId']}/feedback"
                client.post(path, json={"rating": "negative", "comment": "no!"}, headers=bearer(made.ann))
            yield made


def test_feedback_of_all_surfaces_is_one_queue(office: Office) -> None:
    office.answered("wrong")
    office.answered("right")
    queue = office.tell("GET", "feedback")
    assert [each["kind"] for each in queue["feedback"]] == ["answer", "answer", "message", "message"]
    assert [each["rating"] for each in queue["feedback"]] == ["positive", "negative", "negative", "negative"]
    assert queue["open"] == 4 and queue["next_cursor"] is None
    for each in queue["feedback"]:
        assert each["question"] == QUESTION and each["user"] == "ann" and each["settlement"] is None
        assert "wheelbarrow" in each["answer"] or each["kind"] == "message"
    assert queue["feedback"][0]["sources"][0]["cited"] is True
    assert "global" in queue["feedback"][2]["prompts"]

    first, then = office.tell("GET", "feedback?limit=3"), None
    then = office.tell("GET", f"feedback?limit=3&cursor={first['next_cursor']}")
    assert first["feedback"] + then["feedback"] == queue["feedback"] and then["open"] == 4
    assert len(office.tell("GET", "feedback?kind=answer&rating=negative")["feedback"]) == 1
    version = queue["feedback"][2]["prompts"]["global"]
    assert len(office.tell("GET", f"feedback?prompt={version}")["feedback"]) == 2
    assert office.ask("GET", "feedback?cursor=nonsense").status_code == 400


def test_feedback_is_settled_and_opened_again(office: Office) -> None:
    office.answered("wrong")
    wrong, *_ = office.tell("GET", "feedback?kind=answer")["feedback"]
    *_, message = office.tell("GET", "feedback?kind=message")["feedback"]
    before = office.tell("GET", "feedback")["open"]
    for given in (wrong, message):
        for note in ("looked at", "it is in now"):
            office.tell("PUT", f"feedback/{given['id']}/settlement", {"resolution": "fixed", "note": note})
    settled = office.tell("GET", "feedback?state=settled")
    assert {each["id"] for each in settled["feedback"]} == {wrong["id"], message["id"]}
    assert {each["settlement"]["note"] for each in settled["feedback"]} == {"it is in now"}
    assert {each["settlement"]["settled_by"] for each in settled["feedback"]} == {"root"}
    assert settled["open"] == before - 2
    assert office.acts()[:2] == ["feedback.read", "feedback.settle"]
    office.tell("DELETE", f"feedback/{message['id']}/settlement")
    assert office.ask("DELETE", f"feedback/{message['id']}/settlement").status_code == 404
    assert office.ask("PUT", f"feedback/{uuid4()}/settlement", {"resolution": "noted"}).status_code == 404
    assert office.ask("PUT", f"feedback/{wrong['id']}/settlement", {"resolution": "done"}).status_code == 400
    assert office.tell("GET", "feedback")["open"] == before - 1


def test_usage_and_trends_count_what_was_done(office: Office) -> None:
    usage = office.tell("GET", "usage")
    by_name = {each["name"]: each for each in usage["users"]}
    assert by_name["ann"]["messages_used"] == by_name["ann"]["answers"] == 2
    assert by_name["ann"]["messages_per_month"] == 50 and by_name["stranger"]["messages_used"] == 0
    assert [each["slug"] for each in usage["organizations"]] == [office.slug], "an administrator's own"
    assert office.tell("GET", "usage?month=2020-01")["users"][0]["messages_used"] == 0
    assert office.ask("GET", "usage?month=May").status_code == 400

    days = office.tell("GET", "trends")["days"]
    assert len(days) == 30
    assert (days[-1]["users"], days[-1]["answers"], days[-1]["negative"]) == (1, 2, 2)
    stats = office.client.get("/api/admin/lexybrain/rag/stats", headers=bearer(office.admin)).json()
    assert days[-1]["latency_p50"] == stats["latencyMs"]["total"]["p50"] and days[0]["latency_p50"] is None
    assert office.ask("GET", "trends?from=2026-02-01&to=2026-01-01").status_code == 400
    for unknown in ("nothing", "dialogue", "index:a%00"):
        assert office.ask("GET", f"trends?capability={unknown}").status_code == 400, unknown

    office.tell("PUT", f"users/{office.ann}/plan", {"plan": "pro"})
    assert {each["name"]: each for each in office.tell("GET", "usage")["users"]}["ann"]["messages_per_month"] == 2000
    assert office.ask("PUT", f"users/{office.ann}/plan", {"plan": "gold"}).status_code == 404


def test_a_greeting_that_is_returned_is_no_refusal(office: Office) -> None:
    for path, field, trends in (
        ("/api/lexybrain/rag", "message", "trends"),
        ("/api/rag/answer", "query_text", "trends?capability=knowledge_answer"),
        ("/api/v1/indexes/book/answer", "query_text", "trends?capability=book_tutor"),
    ):
        before = office.tell("GET", trends)["days"][-1]
        said = office.client.post(path, json={field: "Thanks!"}, headers=bearer(office.stranger))
        assert said.status_code == 200 and "You are welcome." in said.text and '"courtesy":true' in said.text
        after = office.tell("GET", trends)["days"][-1]
        assert (after["answers"], after["refused"]) == (before["answers"] + 1, before["refused"]), path
    assert "users.plan" in office.acts()


def test_keys_and_members_are_those_of_own_organizations(office: Office) -> None:
    assert [each["slug"] for each in office.tell("GET", "organizations")["organizations"]] == [office.slug]
    own, other = f"organizations/{office.slug}", f"organizations/{office.other}"
    for path in ("members", "keys", "validations"):
        assert office.ask("GET", f"{other}/{path}").status_code == 404, "as one that nobody has"
        assert office.ask("GET", f"{own}/{path}", user=office.ann).status_code == 403
    assert office.ask("POST", f"{other}/keys", {"name": "mine"}).status_code == 404
    assert office.ask("POST", f"{other}/members", {"user": "root"}).status_code == 404

    assert [each["name"] for each in office.tell("GET", f"{own}/members")["members"]] == ["ann", "root"]
    added = office.tell("POST", f"{own}/members", {"user": "stranger"})
    assert [each["name"] for each in added["members"]] == ["ann", "root", "stranger"]
    office.tell("DELETE", f"{own}/members/{office.stranger}")
    assert office.ask("DELETE", f"{own}/members/{office.stranger}").status_code == 404
    assert office.ask("DELETE", f"{own}/members/{office.admin}").status_code == 400
    assert office.ask("POST", f"{own}/members", {"user": "nobody"}).status_code == 404

    made = office.tell("POST", f"{own}/keys", {"name": "site", "indexes": ["org_knowledge"]})
    query, body = "/api/v1/retrieval/query", {"query": QUESTION, "collection_name": "org_knowledge"}
    by_key = {"Authorization": f"Bearer {made['secret']}"}
    assert office.client.post(query, json=body, headers=by_key).status_code == 200
    assert office.client.get(f"{ADMIN}/usage", headers=by_key).status_code == 401
    [listed] = office.tell("GET", f"{own}/keys")["keys"]
    assert listed["id"] == made["key"]["id"] and made["secret"] not in str(listed)
    assert office.ask("POST", f"{own}/keys", {"name": "x", "indexes": ["boook"]}).status_code == 400
    assert office.ask("DELETE", f"keys/{listed['id']}", user=office.ann).status_code == 403
    assert office.tell("DELETE", f"keys/{listed['id']}")["revoked_at"]
    assert office.client.post(query, json=body, headers=by_key).status_code == 401
    assert {"members.add", "members.remove", "keys.create", "keys.revoke"} <= {*office.acts()}


def test_names_that_postgresql_cannot_store_are_not_found(office: Office) -> None:
    for method, path, body in (
        ("GET", "organizations/a%00b/members", None),
        ("GET", "organizations/a%00b/keys", None),
        ("GET", "organizations/a%00b/validations", None),
        ("GET", "organizations/a%00b/validations/c%00d", None),
        ("POST", "organizations/a%00b/members", {"user": "ann"}),
        ("POST", "organizations/a%00b/keys", {"name": "a"}),
        ("POST", f"organizations/{office.slug}/members", {"user": "a\0b"}),
        ("GET", f"organizations/{office.slug}/validations/a%00b", None),
    ):
        refused = office.ask(method, path, body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found"), (path, refused.text)
    for query in ("prompt=a%00b", "cursor=a%00b"):
        assert office.ask("GET", f"feedback?{query}").status_code in (200, 400), query


def test_a_key_of_another_organization_is_not_revoked(office: Office) -> None:
    async def other(application: Application) -> tuple[UUID, str]:
        made, secret = await application.keys.create(await application.people.organization(office.other), "theirs")
        return made.id, secret

    key, secret = prepare(other)
    before = office.acts().count("keys.revoke")
    assert office.ask("DELETE", f"keys/{key}").status_code == 404
    body, by_key = {"query": QUESTION}, {"Authorization": f"Bearer {secret}"}
    assert office.client.post("/api/v1/retrieval/query", json=body, headers=by_key).status_code == 200
    assert office.acts().count("keys.revoke") == before, "what was refused is not written down as done"


def test_validation_runs_are_shown_side_by_side(office: Office) -> None:
    made = office.tell("POST", f"organizations/{office.slug}/keys", {"name": "runs"})
    by_key = {"Authorization": f"Bearer {made['secret']}"}
    body = {"queries": [{"query": QUESTION, "expected_chunks": [str(uuid4())]}], "collection_name": "org_knowledge"}
    runs = [office.client.post("/api/v1/retrieval/validate", json=body, headers=by_key).json() for _ in range(2)]
    one, two = (each["validation_id"] for each in runs)
    path = f"organizations/{office.slug}/validations"
    assert [each["validation_id"] for each in office.tell("GET", path)["validations"]] == [two, one]
    compared = office.tell("GET", f"{path}/{two}?against={one}")
    assert compared["comparison"]["against"] == one
    assert office.ask("GET", f"{path}/{two}?against=validation_{uuid4().hex}").status_code == 404


def test_the_audit_names_who_did_what(office: Office) -> None:
    office.tell("GET", "usage")
    first = office.tell("GET", "audit?limit=2")
    assert [each["action"] for each in first["entries"]] == ["audit.read", "usage.read"]
    assert {each["actor"] for each in first["entries"]} == {"root"}
    older = office.tell("GET", f"audit?limit=1&before={first['next']}")
    assert older["entries"][0]["id"] < first["entries"][-1]["id"]
    only = office.tell("GET", "audit?action=usage.read")["entries"]
    assert {each["action"] for each in only} == {"usage.read"}
    assert office.ask("GET", "audit", user=office.ann).status_code == 403
