"""Whether an answer outside of conversations is right, said over HTTP by whoever asked: what is kept, judged, forgotten."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest

from rag_app.application import Application
from rag_app.domain.scope import PUBLIC_ORGANIZATION
from rag_app.surfaces.administration.personal import Personal
from rag_app.surfaces.management.service import Usage
from rag_app.surfaces.management.types import TrendDay
from tests.conftest import NewPostgres
from tests.integration.service import Text, bearer, configured, ingest, prepare, served, without_limits

QUESTION = "When does the gardener bring the blue wheelbarrow?"


@dataclass(frozen=True)
class World:
    client: httpx.Client
    superuser: str
    org: UUID
    ann: UUID
    bob: UUID
    source: Text
    other: Text

    def ask(self, user: UUID, question: str = QUESTION, **headers: str) -> str:
        """The request's id, of an answer that cites the source."""
        said = self.client.post("/api/rag/answer", json={"query_text": question}, headers={**bearer(user), **headers})
        assert said.status_code == 200, said.text
        return said.headers["X-Request-ID"]

    def say(self, user: UUID, request: str, verdict: str, **more: str) -> httpx.Response:
        body = {"verdict": verdict, **more}
        return self.client.post(f"/api/v1/answers/{request}/feedback", json=body, headers=bearer(user))

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """As a superuser sees them."""

        async def fetch() -> list[dict[str, Any]]:
            connection = await asyncpg.connect(self.superuser)
            try:
                return [dict(row) for row in await connection.fetch(sql, *values)]
            finally:
                await connection.close()

        return asyncio.run(fetch())

    def judged(self, question: str = QUESTION) -> list[UUID]:
        sql = "SELECT source_id FROM judgments WHERE org_id = $1 AND query = $2 ORDER BY id"
        return [row["source_id"] for row in self.rows(sql, self.org, question.casefold())]


@pytest.fixture(scope="module")
def world(new_database: NewPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    server = new_database()
    folder = tmp_path_factory.mktemp("feedback")

    async def build(application: Application) -> tuple[UUID, list[UUID], list[Text]]:
        organization = await application.people.create_organization(f"f-{uuid4().hex}", "Garden")
        users = [await application.people.create_user(f"u-{uuid4().hex}") for _ in range(2)]
        for user in users:
            await application.people.add_member(organization, user)
        texts = [
            Text(
                f"tools {uuid4().hex}",
                "The gardener brings the blue wheelbarrow every Monday at nine.",
                organization.id,
            ),
            Text(f"plants {uuid4().hex}", "Tomatoes get water each evening.", organization.id),
        ]
        await ingest(application, folder, texts)
        return organization.id, [user.id for user in users], texts

    variables = {
        "RAG_DATABASE_URL": server.app_url,
        "RAG_DATABASE_OWNER_URL": server.owner_url,
        "RAG_VECTOR_STORE": "postgres",
        "RAG_HOME": str(folder),
    }
    with configured(variables) as patch:
        without_limits(patch)
        org, (ann, bob), (source, other) = prepare(build)
        with served() as client:
            yield World(client, server.superuser_url.replace("+asyncpg", ""), org, ann, bob, source, other)


def test_what_is_right_judges_what_is_cited_and_is_said_once(world: World) -> None:
    request = world.ask(world.ann)
    assert world.judged() == [], "nothing is judged before somebody says so"
    for _ in range(2):
        said = world.say(world.ann, request, "right", comment="Blue, yes.")
        assert (said.status_code, said.json()["verdict"], said.json()["comment"]) == (200, "right", "Blue, yes.")
        assert world.judged() == [world.source.id]
    said = world.say(world.ann, request, "wrong", expected_source=world.other.name)
    assert said.json()["expected_source_id"] == str(world.other.id)
    assert world.judged() == [world.other.id], "what was thought before is gone, with its judgment"
    assert world.say(world.ann, request, "wrong").status_code == 200
    assert world.judged() == []
    assert world.say(world.ann, request, "right", expected_source=world.other.name).status_code == 400


def test_an_answer_is_counted_without_its_words(world: World) -> None:
    """Administrators see how many there were, how long they took, and what was thought of them."""
    seen = "SELECT type, latency_ms, model_version, message_id FROM ai_usage_events WHERE user_id = $1 ORDER BY id"
    before = len(world.rows(seen, world.bob))
    request = world.ask(world.bob)
    assert world.say(world.bob, request, "right").status_code == 200
    world.ask(world.bob, "Who won the chess championship of 1921?")
    found = world.rows(seen, world.bob)[before:]
    assert [each["type"] for each in found] == ["answer", "refusal"] and all(each["latency_ms"] >= 0 for each in found)
    assert found[0]["model_version"] == "extractive" and found[0]["message_id"] is None

    async def trends(application: Application) -> list[TrendDay]:
        await application.people.set_role(await application.people.user(str(world.bob)), "admin")
        principal = await application.people.principal(str(world.bob))
        today = datetime.now(UTC).date()
        shown = await Usage(application.database).trends(principal, today, today, "knowledge_answer")
        none = await Usage(application.database).trends(principal, today, today, "owner_ask")
        return [*shown.days, *none.days]

    day, calls = prepare(trends)
    assert day.answers >= 2 and day.refused >= 1 and day.positive >= 1 and day.users >= 1 and calls.answers == 0
    assert day.latency_p50 is not None


def test_nobody_else_knows_it(world: World) -> None:
    request = world.ask(world.ann, QUESTION)
    unknown = world.say(world.bob, uuid4().hex, "right")
    refused = world.say(world.bob, request, "right")
    assert refused.status_code == unknown.status_code == 404
    path = f"/api/v1/answers/{request}/feedback"
    assert world.client.delete(path, headers=bearer(world.bob)).status_code == 404
    assert world.client.delete(path, headers=bearer(world.ann)).status_code == 204
    assert world.client.delete(path, headers=bearer(world.ann)).status_code == 404
    assert world.rows("SELECT 1 FROM kept_answers WHERE request_id = $1", request) == []


def test_a_stream_is_kept_as_an_answer_is_and_a_refusal_judges_nothing(world: World) -> None:
    request = world.ask(world.ann, Accept="text/event-stream")
    assert world.say(world.ann, request, "right").status_code == 200
    [row] = world.rows("SELECT question, answer, sources FROM kept_answers WHERE request_id = $1", request)
    assert row["question"] == QUESTION and "wheelbarrow" in row["answer"] and str(world.source.id) in row["sources"]
    refused = world.ask(world.ann, "Who won the chess championship of 1921?")
    assert world.say(world.ann, refused, "right").status_code == 200
    assert world.judged("Who won the chess championship of 1921?") == []


def test_what_nobody_judges_goes_after_a_day(world: World) -> None:
    judged, forgotten, young = (world.ask(world.bob, f"{QUESTION} {each}") for each in ("Once", "Twice", "Again"))
    assert world.say(world.bob, judged, "right").status_code == 200
    old = "UPDATE kept_answers SET asked_at = now() - interval '25 hours' WHERE request_id = ANY($1)"
    world.rows(old, [judged, forgotten])
    assert world.say(world.bob, forgotten, "right").status_code == 404, "a day is a day, whenever rows are deleted"
    assert world.say(world.bob, judged, "wrong").status_code == 200, "what was judged may be judged anew"
    prepare(lambda application: application.kept_answers.forget())
    left = world.rows("SELECT request_id FROM kept_answers WHERE user_id = $1", world.bob)
    assert {row["request_id"] for row in left} >= {judged, young}
    assert forgotten not in {row["request_id"] for row in left}


def test_a_person_is_told_and_erased(world: World) -> None:
    async def told(application: Application) -> tuple[UUID, Any, bool]:
        personal = Personal(application.database)
        user = await application.people.create_user(f"u-{uuid4().hex}")
        organization = next(each for each in await application.people.organizations() if each.id == world.org)
        await application.people.add_member(organization, user)
        request = await asyncio.to_thread(
            world.ask, user.id, "On which day does the gardener bring the blue wheelbarrow?"
        )
        assert (await asyncio.to_thread(world.say, user.id, request, "right")).status_code == 200
        everything = await personal.everything([PUBLIC_ORGANIZATION, world.org], user.id)
        return user.id, everything, await personal.erase(user.id)

    user, everything, erased = prepare(told)
    assert erased
    assert everything["answers"][0]["question"] == "On which day does the gardener bring the blue wheelbarrow?"
    assert everything["judgments"][0]["source_id"] == world.source.id
    assert world.rows("SELECT 1 FROM kept_answers WHERE user_id = $1", user) == []
    assert world.judged("On which day does the gardener bring the blue wheelbarrow?") == []
