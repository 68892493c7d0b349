"""Feedback on answers, over HTTP: what is accepted, whose answers they are, and what is told of it."""

from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import delete

from rag_app.domain.errors import InvalidInput, StoreFailed
from rag_app.domain.scope import Scope
from rag_app.surfaces.lexybrain.tables import feedback_table
from tests.contract.conftest import TABLES, Backstage, Validate
from tests.contract.test_lexybrain import THREADS, any_of, refused
from tests.contract.test_lexybrain_threads import ADA, ANSWERED, ASKED, BERTA, EXPECTED, IDS, THREAD, answered, kept

__all__ = ["kept"]

AT = f"/api/lexybrain/messages/{ANSWERED.id}/feedback"
NEGATIVE = {"rating": "negative", "comment": "Where is the box?", "expectedSourceId": "kw-ring-box"}


@pytest.fixture(autouse=True)
def unrated(kept: None) -> None:
    TABLES.change(Scope.alone(ADA), delete(feedback_table).where(feedback_table.c.user_id == ADA))


def given(rating: str, comment: str | None, expected: str | None) -> tuple[str, dict[str, Any]]:
    return "give", {"message": ANSWERED.id, "rating": rating, "comment": comment, "expected": expected}


def rated(client: httpx.Client) -> list[Any]:
    return [each["feedback"] for each in client.get(f"{THREADS}/{THREAD}").json()["messages"] if each["feedback"]]


def test_feedback_is_given_and_told_as_it_is_kept(
    client: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    response = client.post(AT, json=NEGATIVE)
    assert response.status_code == 200
    now = response.json()["createdAt"]
    assert response.json() == {
        "rating": "negative",
        "comment": "Where is the box?",
        "expectedSourceId": str(EXPECTED),
        "messageId": str(ANSWERED.id),
        "createdAt": now,
        "updatedAt": now,
    }
    validator(response)
    assert backstage.feedback.asked == [given("negative", "Where is the box?", "kw-ring-box")]
    assert response.headers["x-ratelimit-remaining"] == "59"


def test_a_second_one_takes_the_place_of_the_first(client: httpx.Client) -> None:
    first = client.post(AT, json=NEGATIVE).json()
    told = client.post(AT, json={"rating": "positive"}).json()
    assert (told["rating"], told["comment"], told["expectedSourceId"]) == ("positive", None, None)
    assert told["createdAt"] == first["createdAt"] and told["updatedAt"] > first["updatedAt"]
    assert rated(client) == [{"rating": "positive", "comment": None, "expectedSourceId": None}]


@pytest.mark.parametrize(
    ("body", "comment", "expected"),
    [
        *(({"rating": each}, None, None) for each in ("positive", "negative", "neutral")),
        ({"rating": "neutral", "comment": None, "expectedSourceId": None}, None, None),
        *(
            ({"rating": "neutral", "comment": each}, each.strip(), None)
            for each in (
                "x",
                "x" * 2000,
                "語" * 2000,
                "  Two\n\tlines \r\n",
                "👍🏽",
                "<b>'); DROP TABLE rag_feedback;--",
            )
        ),
        pytest.param({"rating": "negative", "expectedSourceId": str(EXPECTED)}, None, str(EXPECTED), id="expected"),
    ],
)
def test_what_is_accepted(
    body: dict[str, Any], comment: str | None, expected: str | None, client: httpx.Client, backstage: Backstage,
    validator: Validate,
) -> None:  # fmt: skip
    response = client.post(AT, json=body)
    assert response.status_code == 200, response.text
    assert backstage.feedback.asked == [given(body["rating"], comment, expected)]
    assert response.json()["comment"] == comment
    validator(response)


RATINGS = "rating: must be one of positive, negative, neutral"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, RATINGS),
        ({"comment": "x"}, RATINGS),
        *(({"rating": each}, RATINGS) for each in any_of("", "good", "Positive", "negative\0", None, 1, True, [], {})),
        *(
            ({"rating": "neutral", "comment": each}, "comment: must be a text of 1 to 2000")
            for each in any_of(
                "", " \n\t", "x" * 2001, "a\0b", "\x1b[31mred", "\u200b\ufe0f", "x" * 1999 + "\0", 5, True, [], {}
            )
        ),
        *(
            ({"rating": "negative", "expectedSourceId": each}, "expectedSourceId: must be a text of 1 to 200")
            for each in any_of("", " ", "x" * 201, "a\0b", 5, [], {})
        ),
        ({"rating": "negative", "expected_source_id": "x"}, "expected_source_id: unknown field; accepted: comment"),
        ({"rating": "neutral", "userId": str(BERTA)}, "userId: unknown field"),
        ([], "must be a JSON object"),
        ("positive", "must be a JSON object"),
    ],
)
def test_what_is_refused_is_named(body: Any, says: str, client: httpx.Client, backstage: Backstage) -> None:
    assert says in refused(client.post(AT, json=body), 422, "validation_error")
    assert backstage.feedback.asked == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\x00", b'{"rating": "\xff"}', b'{"rating":"neutral","comment":"\\ud800"}', b"[" * 100_000],
)
def test_what_cannot_be_read(content: bytes, client: httpx.Client, backstage: Backstage) -> None:
    refused(client.post(AT, content=content, headers={"Content-Type": "application/json"}), 422, "validation_error")
    assert backstage.feedback.asked == []


def test_a_body_that_is_too_large_or_of_another_type(client: httpx.Client, backstage: Backstage) -> None:
    refused(client.post(AT, content=b" " * 10_000_000), 413, "payload_too_large")
    text = {"Content-Type": "text/plain"}
    refused(client.post(AT, content=b'{"rating": "neutral"}', headers=text), 415, "unsupported_media_type")
    assert backstage.feedback.asked == []


@pytest.mark.parametrize("rating", ["positive", "neutral"])
def test_a_source_is_expected_where_the_answer_was_not_good(rating: str, client: httpx.Client) -> None:
    message = refused(client.post(AT, json={**NEGATIVE, "rating": rating}), 422, "validation_error")
    assert message.startswith("expectedSourceId: ")


def test_a_source_that_is_not_there(client: httpx.Client) -> None:
    message = refused(client.post(AT, json={**NEGATIVE, "expectedSourceId": "theirs"}), 422, "validation_error")
    assert message.startswith("expectedSourceId: ") and rated(client) == []


def test_feedback_is_withdrawn_once(client: httpx.Client) -> None:
    client.post(AT, json=NEGATIVE)
    response = client.delete(AT)
    assert (response.status_code, response.content) == (204, b"") and rated(client) == []
    refused(client.delete(AT), 404, "not_found")


def test_only_answers_in_threads_of_ones_own_are_rated(client: httpx.Client) -> None:
    foreign = answered(thread_id=IDS[3])
    TABLES.change(Scope.alone(BERTA), foreign)
    TABLES.administers(ADA)  # who reads that thread, and rates nothing in it
    for message in (foreign.id, uuid4(), THREAD):
        at = f"/api/lexybrain/messages/{message}/feedback"
        told = [client.post(at, json={"rating": "neutral"}), client.delete(at)]
        assert {refused(each, 404, "not_found") for each in told} == {f"no message named '{message}'"}
    at = f"/api/lexybrain/messages/{ASKED.id}/feedback"
    for response in (client.post(at, json={"rating": "neutral"}), client.delete(at)):
        assert refused(response, 422, "validation_error").startswith("message_id: ")
    assert rated(client) == []


@pytest.mark.parametrize("bad", ["1", "a%00b", "%F0%9F%A6%80", "x" * 36, "null", f"{THREAD}0", "%20"])
def test_an_id_in_the_path_that_is_none(bad: str, client: httpx.Client, backstage: Backstage) -> None:
    at = f"/api/lexybrain/messages/{bad}/feedback"
    for response in (client.post(at, json={"rating": "neutral"}), client.delete(at)):
        assert refused(response, 422, "validation_error").startswith("message_id: ")
    assert backstage.feedback.asked == []


def test_parameters_that_are_not_declared_change_nothing(client: httpx.Client, backstage: Backstage) -> None:
    for response in (client.post(f"{AT}?user={BERTA}", json={"rating": "neutral"}), client.delete(f"{AT}?dry=true")):
        assert "unknown field" in refused(response, 422, "validation_error")
    assert backstage.feedback.asked == []


def test_the_methods_of_the_path(client: httpx.Client) -> None:
    told = client.options(AT)
    assert told.status_code == 204 and set(told.headers["allow"].split(", ")) == {"POST", "DELETE", "OPTIONS"}
    for response in (client.get(AT), client.put(AT, json={}), client.patch(AT, json={})):
        refused(response, 405, "method_not_allowed")
        assert set(response.headers["allow"].split(", ")) == {"POST", "DELETE", "OPTIONS"}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreFailed("10.0.0.7"), 503, "service_unavailable"),
        (RuntimeError("10.0.0.7"), 500, "internal_error"),
        (InvalidInput("comment", "x", "is refused"), 422, "validation_error"),
    ],
)
def test_every_error_has_its_code(
    error: Exception, status: int, code: str, client: httpx.Client, backstage: Backstage
) -> None:
    backstage.feedback.error = error
    for response in (client.post(AT, json={"rating": "neutral"}), client.delete(AT)):
        assert "10.0.0.7" not in refused(response, status, code, retryable=status == 503)


def test_nobody_rates_without_a_credential(anonymous: httpx.Client, backstage: Backstage) -> None:
    for response in (anonymous.post(AT, json={"rating": "neutral"}), anonymous.delete(AT)):
        refused(response, 401, "authentication_required")
    assert backstage.feedback.asked == []


def test_it_counts_with_the_other_paths_of_the_surface(client: httpx.Client, backstage: Backstage) -> None:
    left = [client.post(AT, json={"rating": "neutral"}).headers["x-ratelimit-remaining"] for _ in range(2)]
    left.append(client.get("/api/lexybrain/consent").headers["x-ratelimit-remaining"])
    assert left == ["59", "58", "57"]
