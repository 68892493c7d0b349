"""`/api/lexybrain/consent`: what clients may send, and what they are told."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest

from rag_app.domain.errors import StoreFailed
from rag_app.domain.scope import Principal
from tests.contract.conftest import Backstage

CONSENT = "/api/lexybrain/consent"
KEY = "rag_" + "c" * 43


@pytest.fixture(autouse=True)
def ada(backstage: Backstage) -> None:
    backstage.people.known = {"ada": Principal("ada", uuid4())}


def error(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"} and body["error"].keys() == {"code", "message", "retryable"}
    assert body["error"]["code"] == code
    told: dict[str, Any] = body["error"]
    return told


def test_it_is_off_until_somebody_says_so(client: httpx.Client) -> None:
    response = client.get(CONSENT)
    assert response.status_code == 200 and response.json() == {"training": False, "since": None}
    assert response.headers["x-ratelimit-limit"] == "60"


def test_it_is_given_and_withdrawn(client: httpx.Client) -> None:
    given = client.put(CONSENT, json={"training": True})
    assert given.status_code == 200 and given.json()["training"] is True
    assert client.get(CONSENT).json() == client.put(CONSENT, json={"training": True}).json() == given.json()
    assert datetime.fromisoformat(given.json()["since"]).tzinfo == UTC
    assert client.put(CONSENT, json={"training": False}).json() == {"training": False, "since": None}


@pytest.mark.parametrize(
    "body",
    [{}, {"training": None}, {"training": "true"}, {"training": 1}, {"training": True, "user": "x"}, [], None, "x"],
)
def test_what_is_no_decision_is_refused(client: httpx.Client, backstage: Backstage, body: Any) -> None:
    content = json.dumps(body)
    refused = client.put(CONSENT, content=content, headers={"Content-Type": "application/json"})
    assert error(refused, 422, "validation_error")["retryable"] is False
    assert backstage.consents.asked == []


def test_what_goes_wrong_has_the_envelope_of_the_surface(client: httpx.Client, backstage: Backstage) -> None:
    error(client.get(f"{CONSENT}?user=1"), 422, "validation_error")
    error(client.put(CONSENT, content=b"{}", headers={"Content-Type": "text/plain"}), 415, "unsupported_media_type")
    error(client.delete(CONSENT), 405, "method_not_allowed")
    backstage.consents.error = StoreFailed("no")
    for method in ("GET", "PUT"):
        told = error(client.request(method, CONSENT, json={"training": True}), 503, "service_unavailable")
        assert told["retryable"] is True
    backstage.consents.error = None
    backstage.keys.known = {KEY: Principal("key:1", uuid4())}
    client.headers["Authorization"] = f"Bearer {KEY}"
    for method in ("GET", "PUT"):
        error(client.request(method, CONSENT, json={"training": True}), 403, "forbidden")


def test_nobody_gets_in_without_a_credential(anonymous: httpx.Client) -> None:
    for method in ("GET", "PUT"):
        error(anonymous.request(method, CONSENT, json={"training": True}), 401, "authentication_required")


def test_its_methods_are_told(client: httpx.Client) -> None:
    assert {each.strip() for each in client.options(CONSENT).headers["allow"].split(",")} == {
        "GET",
        "HEAD",
        "OPTIONS",
        "PUT",
    }
    described = client.get("/openapi.json").json()["paths"][CONSENT]
    assert described.keys() >= {"get", "put"} and "403" in described["put"]["responses"]
