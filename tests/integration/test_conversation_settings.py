"""What an operator chooses for conversations: a model that tells capabilities and rewrites questions, or no conversations."""

from pathlib import Path
from typing import Any

import pytest

from rag_app.domain.errors import StoreFailed
from rag_app.surfaces.lexybrain.conversations import Turn
from tests.integration.lexybrain import BOX, HISTORY, KEYWORD, RAG, THREADS, chatting, citing, models_file
from tests.integration.service import bearer
from tests.scripted_model import Reply, ScriptedModel


def test_a_model_tells_what_is_wanted_and_rewrites_what_refers_back(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        asked = str(body["messages"][0]["content"])
        if asked.startswith("You sort messages"):
            return Reply("keyword_explanation")
        if asked.startswith("You turn the last message"):
            return Reply("history of the keyword “velvet ring box” on Etsy")
        return citing(HISTORY if "And over the last year?" in body["messages"][-1]["content"] else KEYWORD)(body)

    settings = {"LEXYBRAIN_RAG_DETECTION": "model", "LEXYBRAIN_RAG_REWRITE": "true"}
    with chatting(database_urls, default_store, qdrant_folder, tmp_path, settings=settings) as chat:
        chat.model.script[:] = [script]
        user = chat.newcomer()
        first = chat.post(BOX, user)
        assert first["capability"] == "keyword_explanation" and len(chat.model.requests) == 2, "nothing to rewrite yet"
        second = chat.post("And over the last year?", user, threadId=first["threadId"])
        assert second["sources"][0]["label"] == HISTORY and len(chat.model.requests) == 5
        costs = chat.rows("SELECT tokens_in, cost_cents FROM ai_usage_events ORDER BY id", user)
        assert [row["tokens_in"] for row in costs] == [22, 33], "every request is paid for"
        assert 0 < costs[0]["cost_cents"] < costs[1]["cost_cents"]
        assert second["model"]["usage"] == {"inputTokens": 11, "outputTokens": 7}, "of the answer alone"


def test_what_a_model_was_paid_before_a_message_failed_counts(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    async def down(*_: Any) -> None:
        raise StoreFailed("PostgreSQL failed")

    settings = {"LEXYBRAIN_RAG_DETECTION": "model"}
    with chatting(database_urls, default_store, qdrant_folder, tmp_path, settings=settings) as chat:
        chat.model.script[:] = [Reply("keyword_explanation")]
        user = chat.newcomer()
        monkeypatch.setattr(Turn, "_choose_prompts", down)
        chat.post(BOX, user, status=503)
        events = chat.rows("SELECT tokens_in, tokens_out, cost_cents FROM ai_usage_events", user)
        assert [(each["tokens_in"], each["tokens_out"]) for each in events] == [(11, 7)] and events[0]["cost_cents"] > 0
        assert chat.used(user) == 0, "the user is not charged"


def test_switched_off(database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path) -> None:
    settings = {"LEXYBRAIN_RAG_ENABLED": "false"}
    with chatting(database_urls, default_store, qdrant_folder, tmp_path, settings=settings) as chat:
        user = chat.newcomer()
        for accept in ("application/json", "text/event-stream"):
            headers = {**bearer(user), "Accept": accept}
            refused = chat.client.post(RAG, json={"message": BOX}, headers=headers)
            assert refused.status_code == 503 and refused.json()["error"]["code"] == "feature_disabled"
        assert chat.get(THREADS, user)["threads"] == [], "what was said can still be read; nothing is added"
        assert chat.used(user) == 0 and not chat.model.requests


def test_without_a_model_a_used_up_token_budget_stops_nothing(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path
) -> None:
    """Extracting takes no tokens. The capability that a model writes for is refused, and no model helps with the others."""
    own = tmp_path / "mixed.toml"
    settings = {"RAG_MODELS_FILE": str(own), "LEXYBRAIN_RAG_DETECTION": "model", "LEXYBRAIN_RAG_REWRITE": "true"}
    with ScriptedModel() as model:
        own.write_text(
            models_file(tmp_path, model.url).read_text() + '[models.keyword_explanation]\nkind = "extractive"\n'
        )
        with chatting(database_urls, default_store, qdrant_folder, tmp_path, settings=settings) as chat:
            user = chat.newcomer()
            chat.rows("UPDATE organizations SET monthly_token_budget = 0 WHERE id = :id", id=chat.aurora)
            try:
                answered = chat.post(BOX, user, capability="keyword_explanation")
                assert answered["model"]["id"] == "extractive" and answered["sources"]
                detected = chat.post(f"Explain the keyword {KEYWORD}", user)
                assert (detected["capability"], detected["model"]["id"]) == ("keyword_explanation", "extractive")
                followed = {"threadId": answered["threadId"], "capability": "keyword_explanation"}
                assert chat.post("And over the last year?", user, **followed)["answer"]
                for said in ({"capability": "market_brief"}, {}):
                    for accept in ("application/json", "text/event-stream"):
                        headers = {**bearer(user), "Accept": accept}
                        refused = chat.client.post(
                            RAG, json={"message": "Good ideas for today?", **said}, headers=headers
                        )
                        assert refused.status_code == 403 and refused.json()["error"]["code"] == "quota_exceeded"
                assert chat.used(user) == 3, "what was refused is not charged"
                assert not model.requests
            finally:
                chat.rows("UPDATE organizations SET monthly_token_budget = NULL WHERE id = :id", id=chat.aurora)
