"""Administration over HTTP, with everything real: a month of 10,000 messages, and its figures counted by hand."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from rag_app.application import Application
from rag_app.database.session import Database
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from tests.conftest import NewPostgres
from tests.integration.generated_month import MESSAGES, SINCE, UNTIL, Generated, counted, generate, load
from tests.integration.service import bearer, configured, prepare, served, without_limits

STATS, FEEDBACK, CONFIGS = (f"/api/admin/lexybrain/{each}" for each in ("rag/stats", "rag/feedback", "configs"))
PERIODS = [
    (SINCE, UNTIL), (date(2026, 9, 1), date(2026, 11, 30)), (date(2026, 1, 1), date(2026, 12, 31)),
    (date(2026, 10, 10), date(2026, 10, 11)), (date(2026, 9, 30), date(2026, 9, 30)),
    (date(2026, 11, 1), date(2026, 11, 1)), (date(2024, 2, 1), date(2024, 2, 29)),
]  # fmt: skip


@dataclass(frozen=True)
class Office:
    client: httpx.Client
    generated: Generated
    database_url: str
    key: str

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        response = self.client.get(path, params=params, headers=bearer(self.generated.administrator))
        assert response.status_code == 200, response.text
        told: dict[str, Any] = response.json()
        return told


@pytest.fixture(scope="module")
def office(new_database: NewPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """A database of its own: figures are of all there is."""
    server, generated = new_database(), generate()

    async def fill(application: Application) -> str:
        await load(application.database, generated)
        organization = await application.people.create_organization("office", "Office")
        made, key = await application.keys.create(organization, "office", None)
        await application.people.set_role(await application.people.user(f"key:{made.id}"), "admin")
        return key

    variables = {
        "RAG_DATABASE_URL": server.app_url,
        "RAG_DATABASE_OWNER_URL": server.owner_url,
        "RAG_VECTOR_STORE": "postgres",
        "RAG_HOME": str(tmp_path_factory.mktemp("office")),
    }
    with configured(variables) as patch:
        without_limits(patch)
        key = prepare(fill)
        with served() as client:
            yield Office(client, generated, server.app_url, key)


def test_the_month_is_as_large_as_it_should_be() -> None:
    generated = generate()
    said = [each for each in generated.rows["rag_messages"] if SINCE <= each["created_at"].date() <= UNTIL]
    assert len(said) == MESSAGES and len(generated.rows["rag_messages"]) > MESSAGES + 300
    assert json.dumps(generated.rows, default=str) == json.dumps(generate().rows, default=str), "each time the same"


@pytest.mark.parametrize(("since", "until"), PERIODS)
def test_figures_agree_with_a_count_by_hand(since: date, until: date, office: Office) -> None:
    told = office.get(STATS, **{"from": str(since), "to": str(until)})
    by_hand = counted(office.generated, since, until)
    # the service user of a key, who has the plan free, is not among the generated
    [free] = [each for each in by_hand["quota"]["plans"] if each["plan"] == "free"]
    free |= {"users": free["users"] + 1, "messagesAvailable": free["messagesAvailable"] + 50}
    assert list(told) == list(by_hand)
    for part in by_hand:
        assert told[part] == by_hand[part], part


def test_the_last_thirty_days_where_nothing_is_said(office: Office) -> None:
    told = office.get(STATS)
    assert len(told["days"]) == 30 and told["days"][-1]["date"] == told["to"]


def test_all_feedback_comes_in_pages(office: Office) -> None:
    given, cursor = list[str](), None
    while True:
        page = office.get(FEEDBACK, limit=100, rating="negative", **({"cursor": cursor} if cursor else {}))
        given += [each["id"] for each in page["feedback"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    negative = [each for each in office.generated.rows["rag_feedback"] if each["rating"] == "negative"]
    negative.sort(key=lambda each: (each["created_at"], each["id"]), reverse=True)
    assert given == [str(each["id"]) for each in negative]


def test_versions_are_used_by_threads_and_changed(office: Office) -> None:
    threads = office.generated.rows["rag_threads"]
    name = "ask_lexybrain_system"
    shown = {each["name"]: each for each in office.get(CONFIGS)["configs"]}
    assert shown[name]["threads"] == sum(each["metadata"]["prompts"]["global"] == name for each in threads)
    body = {"name": "ask_lexybrain_office", "type": "global", "instructions": "Be brief.", "weight": 3}
    headers = bearer(office.generated.administrator)
    assert office.client.post(CONFIGS, json=body, headers=headers).json()["share"] == 0
    changed = office.client.patch(f"{CONFIGS}/ask_lexybrain_office", json={"active": True}, headers=headers)
    assert changed.status_code == 200 and changed.json()["share"] == 0.75
    written = asyncio.run(audit(office.database_url, office.generated.administrator))
    assert written[-2:] == [("prompts.add", "ask_lexybrain_office"), ("prompts.activate", "ask_lexybrain_office")]


def test_others_are_refused(office: Office) -> None:
    somebody = bearer(office.generated.users[0].id)
    for headers, status in ((somebody, 403), ({"x-api-key": office.key}, 403), ({}, 401)):
        for path in (STATS, FEEDBACK, CONFIGS):
            assert office.client.get(path, headers=headers).status_code == status
        assert office.client.post(CONFIGS, json={}, headers=headers).status_code in {401, 422}
        assert office.client.patch(f"{CONFIGS}/x", json={"weight": 1}, headers=headers).status_code == status


async def audit(url: str, administrator: UUID) -> list[tuple[str, str]]:
    database = Database(url, pool_size=1)
    try:
        scope = Scope(frozenset({PUBLIC_ORGANIZATION}), administrator)
        async with database.scoped(scope, administrator=True) as session:
            found = await session.execute(text("SELECT action, subject FROM audit_events ORDER BY id"))
            return [(action, subject) for action, subject in found]
    finally:
        await database.close()
