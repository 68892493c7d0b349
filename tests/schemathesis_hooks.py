"""Loaded by schemathesis: who asks, and what no schema can say. The variables come from tests/contract/test_schemathesis.py."""

import os
from typing import Any

import schemathesis

PAGED = ("/api/lexybrain/", "/api/admin/lexybrain/", "/api/v1/admin/", "/api/v1/jobs")
KEYS = ("/api/v1/retrieval/", "/api/v1/sources", "/api/v1/indexes", "/api/v1/jobs")


@schemathesis.auth(refresh_interval=None)  # what is shown depends on the path
class Credentials:
    """A token, or an API key where the contract takes one for machines."""

    def get(self, case: Any, context: Any) -> str:
        return os.environ["TEST_API_KEY" if case.path.startswith(KEYS) else "TEST_TOKEN"]

    def set(self, case: Any, data: str, context: Any) -> None:
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {data}"}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """A time range ends after it begins, and statistics are of a year at most; a cursor, and the message that others are before, come from a page;
    `user` and `everybody` exclude each other; feedback is about an answer, and expects a source where it is negative;
    conditions have a grammar."""
    if case.meta is None or case.meta.generation.mode.is_negative:
        return
    if case.path.startswith("/api/v1/sources"):  # filters, cursors and orders have a grammar, and bodies two shapes
        for name in ("filter", "cursor", "sort", "confirm", "organization"):
            (case.query or {}).pop(name, None)
        if case.method == "DELETE" and case.query is not None and "source_id" not in (case.path_parameters or {}):
            case.query["filter"] = "source_type=nothing"
        if case.method in ("POST", "PUT"):
            document = {"text": "The yearly plan costs 5 euros."}
            put = document if "source_id" in (case.path_parameters or {}) else {**document, "external_id": "a"}
            case.body = {"index": "org_knowledge", **({"documents": [document]} if case.method == "POST" else put)}
            case.media_type = "application/json"
    match case.body:
        case {"context": {"timeRange": {"to": str()} as given}}:
            given["to"] = "9999-12-31T23:59:59Z"
        case {"filters": {"where": dict()} as given}:  # of fields that the index has
            given.pop("where")
        case {"where": dict()}:
            case.body.pop("where")
        case {"verdict": str()}:
            case.body.pop("expected_source", None)
        case {"configurations": [*configurations]}:
            for each in configurations:
                each.pop("filters", None)
        case {"rating": str()}:
            case.body.pop("expectedSourceId", None)
            case.path_parameters["message_id"] = os.environ["TEST_ANSWER"]
    if case.method == "DELETE" and case.path.endswith("/feedback"):
        case.path_parameters["message_id"] = os.environ["TEST_ANSWER"]
    if case.query and case.path.endswith(("/rag/stats", "/admin/trends")):  # at most 366 days, of this millennium
        case.query.clear()
    if case.query and case.path.startswith(PAGED):
        for name in ("cursor", "before"):
            case.query.pop(name, None)
        if "everybody" in case.query:
            case.query.pop("user", None)
