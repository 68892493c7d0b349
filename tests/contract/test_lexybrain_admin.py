"""The contract of `/api/admin/lexybrain`: who may, what is shown, what is refused and how."""

import json
import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import httpx
import msgspec
import pytest
from litestar.routes import HTTPRoute
from msgspec.structs import asdict
from sqlalchemy import delete, insert

from rag_app.access.tokens import TokenReader, issue_token
from rag_app.answering import prompts
from rag_app.answering.prompts import PromptConfig
from rag_app.answering.tables import prompt_configs_table
from rag_app.domain.errors import InvalidInput, StoreFailed
from rag_app.domain.scope import Principal, Scope
from rag_app.http.entrance import Entrance
from rag_app.http.server import api
from rag_app.http.surface import Credential, surface_of
from rag_app.surfaces.lexybrain import types as wire
from rag_app.surfaces.lexybrain.statistics import LexyBrainStats, StageLatencies, round_figures
from rag_app.surfaces.lexybrain.tables import feedback_table
from rag_app.surfaces.registry import SURFACES
from tests.contract.conftest import AUDIENCE, BEGAN, ISSUER, SECRET, TABLES, Backstage, Validate
from tests.contract.test_lexybrain import refused
from tests.contract.test_lexybrain_threads import ADA, EXPECTED, ORG, THREAD, answered, kept

__all__ = ["kept"]

STATS, FEEDBACK, CONFIGS = (f"/api/admin/lexybrain/{each}" for each in ("rag/stats", "rag/feedback", "configs"))
EVERY = [
    ("GET", STATS),
    ("GET", FEEDBACK),
    ("GET", CONFIGS),
    ("POST", CONFIGS),
    ("PATCH", f"{CONFIGS}/ask_lexybrain_{ORG.hex}"),
]
DOCUMENT = Path(__file__).parents[2] / "docs/surfaces/lexybrain-admin.md"
RATINGS = {"positive": 6, "negative": 3, "neutral": 1}
STAGES = StageLatencies.__struct_fields__
COUNTS = {
    "questions": 30,
    "answers": 25,
    "messages": 55,
    "inputTokens": 1000,
    "outputTokens": 200,
    "costCents": 12.345678,
}
PARTS: dict[str, Any] = {
    "totals": {**COUNTS, "deletedMessages": 2, "threads": 9, "newThreads": 7, "activeUsers": 4},
    "days": [{"date": "2026-01-30", **COUNTS}, {"date": "2026-01-31", **dict.fromkeys(COUNTS, 0)}],
    "quota": {
        "month": "2026-01",
        "plans": [
            {"plan": "free", "users": 3, "activeUsers": 2, "messagesUsed": 61, "messagesAvailable": 150, "messagesPerUser": 50},
            {
                "plan": "growth", "users": 1, "activeUsers": 1, "messagesUsed": 700, "messagesAvailable": None,
                "messagesPerUser": None,
            },
        ],
    },
    "capabilities": [
        {"capability": "market_brief", "questions": 20, "answers": 20, "share": 20 / 30},
        {"capability": None, "questions": 10, "answers": 5, "share": 10 / 30},
    ],
    "latencyMs": {stage: {"answers": 25, "p50": 12.34, "p95": 99.99} for stage in STAGES}
    | {"generation": {"answers": 0, "p50": None, "p95": None}},
    "answers": {
        "meanSources": 6.54321, "insufficientContextShare": 0.25, "fallbackShare": 0.1, "interruptedShare": 0.0,
    },
    "satisfaction": {**RATINGS, "positiveShare": 6 / 10, "ratedShare": 10 / 25},
    "prompts": [
        {
            "type": "global", "prompt": "ask_lexybrain_system", "answers": 25, "meanSources": 6.5,
            "insufficientContextShare": 0.2, "fallbackShare": 0.1, **RATINGS,
            "latencyMs": {"answers": 20, "p50": 1.0, "p95": 2.0}, "meanCostCents": 0.5,
        }
    ],
    "failures": [{"kind": "ModelTimeout", "count": 3}],
}  # fmt: skip
SHOWN = {"from": date(2026, 1, 30), "to": date(2026, 1, 31), **round_figures(PARTS)}
NAME = f"ask_lexybrain_{ORG.hex}"
VERSION = PromptConfig(NAME, "market_brief", "Look.", {"max_keywords": 20}, 3, False)
NEW: dict[str, Any] = {"name": f"{NAME}_new", "type": "global", "instructions": "Be brief."}


@pytest.fixture(autouse=True)
def prepared(kept: None) -> Iterator[None]:
    """Ada is an administrator, and rated three answers that were written with a version which is not in use now."""
    TABLES.administers(ADA)
    answers = [
        answered(created_at=BEGAN + timedelta(minutes=number), generation_metadata={"prompts": {"global": NAME}})
        for number in range(1, 4)
    ]
    rated = [
        insert(feedback_table).values(
            message_id=each.id, user_id=ADA, rating="negative", comment="It is missing", expected_source_id=EXPECTED
        )
        for each in answers
    ]
    everything = insert(prompt_configs_table).values(asdict(VERSION))
    TABLES.change(Scope.alone(ADA), everything, *answers, *rated)
    yield
    TABLES.change(Scope.alone(ADA), delete(prompt_configs_table).where(prompt_configs_table.c.name.startswith(NAME)))


def test_figures(client: httpx.Client, backstage: Backstage, validator: Validate) -> None:
    response = client.get(STATS, params={"from": "2026-01-15", "to": "2026-01-16"})
    assert response.status_code == 200, response.text
    validator(response)
    told = response.json()
    assert list(told) == [
        "from", "to", "totals", "days", "quota", "capabilities", "latencyMs", "answers", "satisfaction", "prompts",
        "failures",
    ]  # fmt: skip
    assert (told["from"], told["to"], told["quota"]["month"]) == ("2026-01-15", "2026-01-16", "2026-01")
    assert [each["date"] for each in told["days"]] == ["2026-01-15", "2026-01-16"]
    assert list(told["latencyMs"]) == list(STAGES)
    arm = next(each for each in told["prompts"] if each["prompt"] == NAME)
    assert (arm["type"], arm["answers"], arm["negative"], arm["meanSources"]) == ("global", 3, 3, 2)
    client.get(STATS)
    assert [how for _, how in backstage.statistics.asked] == [
        {"since": date(2026, 1, 15), "until": date(2026, 1, 16)}, {"since": None, "until": None}
    ]  # fmt: skip


def test_a_period_in_which_nothing_was(client: httpx.Client, validator: Validate) -> None:
    response = client.get(STATS, params={"from": "2001-01-30", "to": "2001-01-31"})
    validator(response)
    told = response.json()
    assert set(told["totals"].values()) == {0} and {*told["days"][1].values()} == {"2001-01-31", 0}
    assert set(told["answers"].values()) == {None} and told["prompts"] == told["failures"] == []
    assert told["satisfaction"]["positiveShare"] is told["satisfaction"]["ratedShare"] is None


def test_figures_are_rounded() -> None:
    told = msgspec.to_builtins(msgspec.convert(SHOWN, LexyBrainStats))
    assert told["totals"]["costCents"] == 12.3457 and told["capabilities"][1]["share"] == 0.3333
    assert told["latencyMs"]["retrieval"] == {"answers": 25, "p50": 12.3, "p95": 100.0}
    assert told["latencyMs"]["generation"] == {"answers": 0, "p50": None, "p95": None}
    assert told["answers"]["meanSources"] == 6.5432 and told["satisfaction"]["positiveShare"] == 0.6


def test_feedback(client: httpx.Client, backstage: Backstage, validator: Validate) -> None:
    response = client.get(FEEDBACK, params={"limit": 2, "prompt": NAME})
    validator(response)
    first = response.json()["feedback"][0]
    assert first == {
        "id": first["id"], "userId": str(ADA), "threadId": str(THREAD), "messageId": first["messageId"],
        "rating": "negative", "comment": "It is missing", "expectedSourceId": str(EXPECTED),
        "createdAt": first["createdAt"], "updatedAt": first["createdAt"], "question": "What is trending?",
        "answer": "Rings are [Source 1].", "answeredAt": first["answeredAt"], "capability": "market_brief",
        "model": "meta-llama/Llama-3.1-70B-Instruct", "prompts": {"global": NAME},
        "sources": [{"label": "vintage wedding rings", "cited": True}, {"label": "Trademark", "cited": False}],
    }  # fmt: skip
    page = {"limit": 2, "prompt": NAME, "cursor": response.json()["nextCursor"]}
    rest = client.get(FEEDBACK, params=page).json()
    assert len(rest["feedback"]) == 1 and rest["nextCursor"] is None
    wanted = {
        "rating": "positive",
        "capability": "general_chat",
        "prompt": NAME,
        "from": "2026-01-01",
        "to": "2026-01-31",
    }
    assert client.get(FEEDBACK, params=wanted).json() == {"feedback": [], "nextCursor": None}
    names = ("rating", "capability", "prompt", "since", "until")
    assert [tuple(how[name] for name in names) for _, how in backstage.feedback.asked][1:] == [
        (None, None, NAME, None, None),
        ("positive", "general_chat", NAME, date(2026, 1, 1), date(2026, 1, 31)),
    ]


def test_versions_are_listed_added_and_changed(client: httpx.Client, backstage: Backstage, validator: Validate) -> None:
    listed = client.get(CONFIGS)
    validator(listed)
    shown = next(each for each in listed.json()["configs"] if each["name"] == NAME)
    assert shown == {
        "name": NAME, "type": "market_brief", "instructions": "Look.", "constraints": {"max_keywords": 20},
        "active": False, "weight": 3, "share": 0, "threads": 0, "createdAt": shown["createdAt"],
        "updatedAt": shown["createdAt"],
    }  # fmt: skip
    demands = {"temperature": 1, "max_tokens": 300, "retrieval_scope": ["keywords", "trends"], "max_alerts": 3}
    made = client.post(CONFIGS, json={**NEW, "instructions": " Be brief.\n", "constraints": demands})
    assert made.status_code == 201
    validator(made)
    assert made.json() | {"createdAt": "", "updatedAt": ""} == {
        **NEW, "constraints": demands, "active": False, "weight": 1, "share": 0, "threads": 0, "createdAt": "",
        "updatedAt": "",
    }  # fmt: skip
    assert "already exists" in refused(client.post(CONFIGS, json=NEW), 422, "validation_error")
    for change, state in (
        ({"active": True}, (True, 3)), ({"weight": 0}, (True, 0)), ({"active": False, "weight": 7}, (False, 7))
    ):  # fmt: skip
        changed = client.patch(f"{CONFIGS}/{NAME}", json=change)
        assert changed.status_code == 200 and (changed.json()["active"], changed.json()["weight"]) == state
    asked = [how for what, how in backstage.prompts.asked if what == "change"]
    assert asked[0] == {"name": NAME, "active": True, "weight": None}
    assert NAME in refused(client.patch(f"{CONFIGS}/nowhere", json={"weight": 1}), 404, "not_found")


@pytest.mark.parametrize(("method", "path"), EVERY, ids=["stats", "feedback", "configs", "new", "change"])
def test_who_may(method: str, path: str, client: httpx.Client, anonymous: httpx.Client, backstage: Backstage) -> None:
    body = NEW if method == "POST" else {"weight": 1} if method == "PATCH" else None
    TABLES.administers(ADA, "user")
    message = refused(client.request(method, path, json=body), 403, "forbidden")
    assert "administrator" in message
    backstage.keys.known = {"rag_" + "k" * 43: Principal("key:1", uuid4())}
    refused(
        client.request(method, path, json=body, headers={"Authorization": f"Bearer rag_{'k' * 43}"}), 403, "forbidden"
    )
    extension = issue_token("ada", SECRET, audience=AUDIENCE, issuer=ISSUER, client="extension")
    headers = {"Authorization": f"Bearer {extension}", "x-ext-client": "1"}
    refused(client.request(method, path, json=body, headers=headers), 401, "authentication_required")
    del client.headers["Authorization"]
    refused(client.request(method, path, json=body), 401, "authentication_required")
    there = TABLES.fetch("SELECT name, weight FROM lexybrain_prompt_configs WHERE starts_with(name, $1)", NAME)
    assert [tuple(each) for each in there] == [(NAME, 3)]


@pytest.mark.parametrize(
    ("path", "query", "name"),
    [
        *((path, f"{name}={value}", name) for path in (STATS, FEEDBACK) for name in ("from", "to")
          for value in ("", "today", "2026-13-01", "2026-01-32", "1767225600", "2026-01-01T00:00:00Z", "%00")),
        (STATS, "from=2026-02-01&to=2026-01-31", "from"), (STATS, "from=2025-01-01&to=2026-01-02", "from"),
        (STATS, "from=1999-12-31", "from"), (STATS, "to=9999-12-31", "to"), (STATS, "since=2026-01-01", "since"),
        (STATS, "until=2026-01-01", "until"), (FEEDBACK, "since=2026-01-01", "since"),
        *((FEEDBACK, each, each.partition("=")[0])
          for each in ("rating=", "rating=good", "capability=chat", "prompt=", "prompt=a%20b", "prompt=%00", "limit=0",
                       "limit=101", "cursor=", "cursor=nonsense", "user=1")),
        (CONFIGS, "active=true", "active"),
    ],
)  # fmt: skip
def test_a_parameter_that_is_not_accepted_is_named(path: str, query: str, name: str, client: httpx.Client) -> None:
    assert refused(client.get(f"{path}?{query}"), 422, "validation_error").startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"name": "market_v1"}, "name"), ({"name": "ask_lexybrain_\0"}, "name"), ({"name": "ask_lexybrain_A"}, "name"),
        ({"name": "ask_lexybrain_x\n"}, "name"), ({"name": None}, "name"), ({"type": "gossip"}, "type"),
        *(({"instructions": each}, "instructions") for each in ("", " \n", "a\0b", "a\x07", "x" * 20_001, 5, None)),
        ({"constraints": {"max_words": 3}}, "constraints.max_words"), ({"constraints": []}, "constraints"),
        ({"constraints": {"temperature": 3}}, "constraints.temperature"),
        ({"constraints": {"max_tokens": 15}}, "constraints.max_tokens"),
        ({"constraints": {"retrieval_scope": []}}, "constraints.retrieval_scope"),
        ({"constraints": {"retrieval_scope": ["gossip"]}}, "constraints.retrieval_scope[0]"),
        *(({"weight": each}, "weight") for each in (-1, 1_000_001, "1", 1.5, None, True)),
        *(({"active": each}, "active") for each in (1, "true", None)), ({"colour": "red"}, "colour"),
    ],
)  # fmt: skip
def test_a_version_that_cannot_be_used_is_refused(
    changed: dict[str, Any], name: str, client: httpx.Client, backstage: Backstage
) -> None:
    message = refused(client.post(CONFIGS, json={**NEW, **changed}), 422, "validation_error")
    assert message.startswith(f"{name}: "), message
    assert backstage.prompts.asked == []


def test_what_is_no_change_is_refused(client: httpx.Client) -> None:
    at = f"{CONFIGS}/{NAME}"
    for body, name in (
        ({"weight": -1}, "weight"), ({"active": None}, "active"), ({"instructions": "Other."}, "instructions"),
        ({"name": "ask_lexybrain_z"}, "name"),
    ):  # fmt: skip
        assert refused(client.patch(at, json=body), 422, "validation_error").startswith(f"{name}: ")
    message = refused(client.patch(at, json={}), 422, "validation_error")
    assert message == "The body must have `active`, `weight` or both"


def test_what_a_caller_can_get_wrong(client: httpx.Client) -> None:
    at, said = {"POST": CONFIGS, "PATCH": f"{CONFIGS}/ask_lexybrain_x"}, {"Content-Type": "application/json"}
    for method, path in at.items():
        for unreadable in (b"", b"{", b"[]", b"null", b'{"a": "\xff"}', b"[" * 100_000):
            refused(client.request(method, path, content=unreadable, headers=said), 422, "validation_error")
        refused(client.request(method, path, content=b" " * 2_000_000, headers=said), 413, "payload_too_large")
        plain = {"Content-Type": "text/plain"}
        refused(client.request(method, path, content=b"{}", headers=plain), 415, "unsupported_media_type")
    refused(client.put(CONFIGS, json={}), 405, "method_not_allowed")
    refused(client.get("/api/admin/lexybrain/nothing"), 404, "not_found")
    assert client.options(CONFIGS).headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_a_database_that_is_down(client: httpx.Client, backstage: Backstage) -> None:
    backstage.statistics.error = StoreFailed("no route to host 10.0.0.1")
    message = refused(client.get(STATS), 503, "service_unavailable", retryable=True)
    assert "10.0.0.1" not in message


def test_the_limit_is_one_of_its_own(client: httpx.Client, backstage: Backstage) -> None:
    for _ in range(2):
        assert client.get(STATS).headers["x-ratelimit-limit"] == "60"
    assert [key.partition(":")[0] for key in backstage.limiter.counts] == ["lexybrain_admin"]


def test_what_is_accepted_is_what_prompts_add_accepts() -> None:
    assert get_args(wire.Kind) == prompts.conversation_types()
    for weight in (0, 1_000_000):
        prompts.check(PromptConfig("ask_lexybrain_x", "global", "x" * 20_000, {}, weight))
    with pytest.raises(InvalidInput):
        prompts.check(PromptConfig("ask_lexybrain_x", "global", "x" * 20_001))


# --- the list of all routes


def table() -> list[str]:
    """Of every route there is: its method and path, what is shown to enter, who may."""
    names = {
        Credential.JWT: "token", Credential.COOKIE: "cookie", Credential.EXTENSION: "extension",
        Credential.API_KEY: "API key", Credential.NONE: "or nothing if a default organization is set",
    }  # fmt: skip
    entrance, backstage = Entrance(TokenReader(SECRET, AUDIENCE, ISSUER)), Backstage()
    app = api(backstage.services(), backstage.access(), entrance, SURFACES, version="0")
    lines = set()
    for route in app.routes:
        if not isinstance(route, HTTPRoute) or route.path_format.startswith("/docs/"):
            continue
        surface = surface_of(route.path, SURFACES)
        shown = ", ".join(names[each] for each in names if surface and each in surface.credentials)
        for method in route.methods - {"OPTIONS", "HEAD"}:
            may = _may(method, route.path_format) if surface else "anybody"
            lines.add(f"| `{method} {route.path_format}` | {shown or 'nothing'} | {may} |")
    return sorted(lines, key=lambda line: re.sub(r"`(\w+) (\S+)`", r"\2 \1", line))


def _may(method: str, path: str) -> str:
    if path.startswith("/api/admin/"):
        return "administrators; API keys get 403"
    if path.startswith(("/api/v1/admin/", "/api/v1/playground")):
        return "administrators"
    if path.endswith("/consent"):
        return "each user for themselves; API keys get 403"
    if method == "GET" and "/threads" in path and not path.endswith("/answer"):
        return "each user their own; administrators all, audited"
    if path.startswith(("/api/lexybrain/", "/api/v1/answers/")):
        return "each user their own"
    if path.startswith("/api/v1/jobs"):
        return "each user their own; with the role admin in every index, all of their organizations"
    if path.startswith("/api/v1/sources") and method != "GET":
        return "callers with the role write"
    return "everybody, within what they may see"


def test_the_list_of_routes_is_complete() -> None:
    _, _, listed = DOCUMENT.read_text("utf-8").partition("## All routes")
    assert [line for line in listed.splitlines() if line.startswith("| `")] == table(), "\n".join(table())


def test_the_documents_figures_are_those_of_the_response() -> None:
    documented = re.search(r"```json\n(\{\n  \"from\".*?)\n```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert documented
    shown, told = json.loads(documented[1]), msgspec.to_builtins(msgspec.convert(SHOWN, LexyBrainStats))
    assert list(shown) == list(told)
    for part in told:
        one, other = (each[part][0] if isinstance(each[part], list) else each[part] for each in (shown, told))
        assert not isinstance(one, dict) or list(one) == list(other), part
