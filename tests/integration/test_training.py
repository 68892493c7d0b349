"""Consent to training, over HTTP: what is collected under it, what is not, and what goes with it."""

import asyncio
import json
import re
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from rag_app.access.people import Keys, People
from rag_app.console import users
from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal, Scope
from rag_app.surfaces.lexybrain.quotas import Entitlements
from rag_app.surfaces.lexybrain.threads import ThreadStore
from rag_app.surfaces.lexybrain.training import Lesson, Training
from tests.integration.lexybrain import BOX, EXPLAINED, HISTORY, KEYWORD, RAG, THREADS, Chat, citing
from tests.integration.service import bearer
from tests.integration.stopping import until_blocked
from tests.scripted_model import Reply
from tests.waiting import PATIENCE, wait_for

CONSENT = "/api/lexybrain/consent"
FOLLOW_UP = "And how did it change over the last year?"


@pytest.fixture
def chat(running: Chat) -> Chat:
    """The same server, with nothing scripted and nothing asked yet."""
    running.model.script[:] = [citing(KEYWORD, "The demand index is 58 {}.")]
    running.model.requests.clear()
    return running


def decide(chat: Chat, who: UUID, training: bool) -> dict[str, Any]:
    response = chat.client.put(CONSENT, json={"training": training}, headers=bearer(who))
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def consenting(chat: Chat) -> UUID:
    user = chat.newcomer("growth")
    decide(chat, user, True)
    return user


def collected(chat: Chat, who: UUID, wanted: int | None = None) -> list[dict[str, Any]]:
    """Lessons of a user; of as many as are `wanted`, some of which may still be on their way."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = chat.rows(
            "SELECT q.*, a.model_id, a.content FROM lexybrain_requests q"
            " JOIN lexybrain_responses a ON a.request_id = q.id ORDER BY q.created_at",
            who,
        )
        if wanted is None or len(found) == wanted or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def eligible(chat: Chat, who: UUID) -> list[bool]:
    kept = chat.rows("SELECT training_eligible FROM rag_messages WHERE role = 'assistant' ORDER BY created_at", who)
    return [row["training_eligible"] for row in kept]


def nothing_comes(chat: Chat, who: UUID) -> None:
    """What somebody says after them has come, and nothing of theirs."""
    later = consenting(chat)
    chat.model.script[:] = [citing(KEYWORD, "The demand index is 58 {}.")]
    chat.post(BOX, later)
    assert len(collected(chat, later, 1)) == 1
    assert collected(chat, who) == []


def test_nobody_consents_who_has_not_said_so(chat: Chat) -> None:
    user = chat.newcomer()
    assert chat.get(CONSENT, user) == {"training": False, "since": None}
    chat.post(BOX, user)
    nothing_comes(chat, user)
    assert eligible(chat, user) == [False]


def test_consent_is_given_kept_and_withdrawn(chat: Chat) -> None:
    user = chat.newcomer()
    given = decide(chat, user, True)
    assert given["training"] is True and given["since"]
    assert decide(chat, user, True) == given == chat.get(CONSENT, user), "a second time changes nothing"
    chat.post(BOX, user)
    collected(chat, user, 1)
    assert decide(chat, user, False) == {"training": False, "since": None} == chat.get(CONSENT, user)
    assert collected(chat, user) == [] and eligible(chat, user) == [False]
    assert chat.rows("SELECT count(*) AS n FROM lexybrain_responses", user) == [{"n": 0}]
    decide(chat, user, False)
    audit = "SELECT action, actor_id, details FROM audit_events WHERE subject = :user ORDER BY id"
    told = asyncio.run(as_administrator(chat, audit, user=str(user)))
    assert told == [("training.consent", user, {}), ("training.withdraw", user, {"collected": 1})]


async def as_administrator(chat: Chat, statement: str, **values: Any) -> list[tuple[Any, ...]]:
    from sqlalchemy import text

    database = Database(chat.database_url, pool_size=1)
    try:
        scope = Scope(frozenset({PUBLIC_ORGANIZATION}), chat.root)
        async with database.scoped(scope, administrator=True) as session:
            return [tuple(row) for row in await session.execute(text(statement), values)]
    finally:
        await database.close()


def test_a_key_does_not_consent_for_those_who_use_it(chat: Chat) -> None:
    async def made() -> tuple[str, str]:
        database = Database(chat.database_url, pool_size=1)
        try:
            organization = await People(database).organization(chat.aurora)
            key, secret = await Keys(database).create(organization, "training")
            (user,) = [each.id for each, _ in await People(database).users() if each.name == f"key:{key.id}"]
            return secret, str(user)
        finally:
            await database.close()

    secret, user = asyncio.run(made())
    for headers in ({"x-api-key": secret}, {"Authorization": f"Bearer {secret}"}, bearer(user)):
        for refused in (
            chat.client.get(CONSENT, headers=headers),
            chat.client.put(CONSENT, json={"training": True}, headers=headers),
        ):
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden"), refused.text
    assert (
        chat.rows("SELECT training_opt_in_at FROM users WHERE id = :id", id=UUID(user))[0]["training_opt_in_at"] is None
    )


def test_whom_nobody_knows_becomes_a_user_by_consenting(chat: Chat) -> None:
    stranger = uuid4()
    assert chat.get(CONSENT, stranger) == {"training": False, "since": None}
    assert chat.rows("SELECT 1 FROM users WHERE id = :id", id=stranger) == []
    assert decide(chat, stranger, True)["training"] is True
    assert chat.get(CONSENT, stranger)["training"] is True


def test_what_is_collected_is_what_the_model_was_told_to_the_letter(chat: Chat) -> None:
    user = consenting(chat)
    first = chat.post(BOX, user, capability="keyword_explanation")
    chat.model.script[:] = [citing(HISTORY, "It grew from 33 to 58 {}.")]
    second = chat.post(FOLLOW_UP, user, threadId=first["threadId"])
    lessons = collected(chat, user, 2)
    assert [str(each["message_id"]) for each in lessons] == [first["messageId"], second["messageId"]]
    for lesson, request in zip(lessons, chat.model.requests, strict=True):
        assert lesson["prompt"] == request.body["messages"]
        assert [each["role"] for each in lesson["prompt"]] == ["system", "user"]
        told = lesson["prompt"][1]["content"]
        for number, shown in enumerate(lesson["context"], 1):
            assert shown.keys() == {"id", "type", "label", "text", "cited"}
            assert (
                shown["text"].startswith(f"[Source {number}]")
                and shown["text"] in told
                and shown["label"] in shown["text"]
            )
        (cited,) = [(n, each) for n, each in enumerate(lesson["context"], 1) if each["cited"]]
        assert f"[Source {cited[0]}]" in lesson["content"], (
            "numbered as in the prompt, and not as the user was shown it"
        )
        assert lesson["model_id"] == "scripted" or lesson["model_id"]
    assert [each["capability"] for each in lessons] == ["keyword_explanation", second["capability"]]
    assert BOX in lessons[1]["prompt"][1]["content"], "its history is in it"
    assert {each["type"] for each in lessons[0]["context"]} <= {"keyword", "listing", "alert", "doc"}
    assert eligible(chat, user) == [True, True]


def test_a_source_keeps_the_number_it_had_in_the_prompt(chat: Chat) -> None:
    def last(body: dict[str, Any]) -> Reply:
        numbers = re.findall(r"^\[Source (\d+)\]", body["messages"][1]["content"], re.MULTILINE)
        assert len(numbers) > 2
        return Reply(f"One thing is so [Source {numbers[-1]}]. Another is so [Source {numbers[1]}].")

    chat.model.script[:] = [last]
    user = consenting(chat)
    body = chat.post(EXPLAINED, user, capability="market_brief")
    (lesson,) = collected(chat, user, 1)
    count = len(lesson["context"])
    assert body["answer"] == "One thing is so [Source 1]. Another is so [Source 2]."
    assert lesson["content"] == f"One thing is so [Source {count}]. Another is so [Source 2]."
    assert [number for number, each in enumerate(lesson["context"], 1) if each["cited"]] == [2, count]


def test_a_streamed_answer_is_collected_as_a_plain_one_is(chat: Chat) -> None:
    user = consenting(chat)
    chat.post(BOX, user, capability="keyword_explanation")
    chat.stream(BOX, user, capability="keyword_explanation")
    plain, streamed = collected(chat, user, 2)
    for column in ("capability", "prompt", "context", "content", "model_id"):
        assert plain[column] == streamed[column], column


def test_what_is_no_answer_is_not_collected(chat: Chat) -> None:
    user = consenting(chat)
    chat.model.script[:] = [Reply(status=500)]
    assert chat.post(BOX, user, capability="market_brief")["flags"]["fallbackToGeneric"] is True
    chat.model.script[:] = [Reply("It is 58, and nothing says so.")]
    chat.post(BOX, user, capability="market_brief")
    chat.model.script[:] = [Reply("I do not have that information.")]
    chat.post(BOX, user, capability="market_brief")
    chat.post("How many moons does Jupiter have?", user, capability="keyword_explanation")
    chat.model.script[:] = [citing(KEYWORD, "It is 58 {}. " + "And so on it goes, one more time. " * 40, cut=True)]
    chat.stream(BOX, user, capability="market_brief")
    nothing_comes(chat, user)
    assert eligible(chat, user) == [False] * 5


def test_consent_does_not_reach_back(chat: Chat) -> None:
    user = chat.newcomer()
    first = chat.post(BOX, user)
    answers = threading.Event()
    chat.model.script[:] = [citing(KEYWORD, "The demand index is 58 {}.", go_on=answers)]
    asking = threading.Thread(target=chat.post, args=(BOX, user))
    asking.start()
    wait_for(lambda: len(chat.model.requests) >= 2)
    decide(chat, user, True)
    answers.set()
    asking.join()
    nothing_comes(chat, user)
    assert eligible(chat, user) == [False, False], "what was under way was asked without"
    chat.model.script[:] = [citing(KEYWORD, "The demand index is 58 {}.")]
    chat.post(FOLLOW_UP, user, threadId=first["threadId"])
    nothing_comes(chat, user)  # its prompt shows what was said before
    second = chat.post(BOX, user)
    assert len(collected(chat, user, 1)) == 1
    decide(chat, user, False)
    decide(chat, user, True)
    chat.post(FOLLOW_UP, user, threadId=second["threadId"])
    nothing_comes(chat, user)


def test_a_withdrawal_in_the_middle_of_a_turn_wins(chat: Chat) -> None:
    user = consenting(chat)
    answers = threading.Event()
    chat.model.script[:] = [citing(KEYWORD, "The demand index is 58 {}.", go_on=answers)]
    asking = threading.Thread(target=chat.post, args=(BOX, user))
    asking.start()
    wait_for(lambda: len(chat.model.requests) >= 1)
    decide(chat, user, False)
    answers.set()
    asking.join()
    nothing_comes(chat, user)
    assert eligible(chat, user) == [False]


def test_a_deleted_message_takes_along_what_it_is_in(chat: Chat) -> None:
    user = consenting(chat)
    asked = chat.post(BOX, user)
    thread = asked["threadId"]
    chat.post(FOLLOW_UP, user, threadId=thread)
    chat.post(EXPLAINED, user, threadId=thread)
    other = chat.post(BOX, user)
    before = collected(chat, user, 4)
    assert len(before) == 4
    kept = chat.get(f"{THREADS}/{thread}", user)["messages"]
    response = chat.client.delete(f"{THREADS}/{thread}/messages/{kept[2]['id']}", headers=bearer(user))
    assert response.status_code == 204
    left = collected(chat, user)
    assert [str(each["message_id"]) for each in left] == [asked["messageId"], other["messageId"]]
    assert eligible(chat, user) == [True, False, False, True]
    assert FOLLOW_UP not in json.dumps([each["prompt"] for each in left])
    assert chat.client.delete(f"{THREADS}/{thread}", headers=bearer(user)).status_code == 204
    assert [str(each["message_id"]) for each in collected(chat, user)] == [other["messageId"]]
    assert chat.rows("SELECT count(*) AS n FROM lexybrain_responses", user) == [{"n": 1}]


def test_nobody_waits_for_it_and_its_failure_is_nobodys_business(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    user = consenting(chat)

    go_on, collected_late = threading.Event(), threading.Event()

    async def slow(*_: Any) -> bool:
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        collected_late.set()
        return False

    monkeypatch.setattr(Training, "collect", slow)
    chat.post(BOX, user)
    assert not collected_late.is_set()
    go_on.set()
    assert collected_late.wait(PATIENCE)

    async def failing(*_: Any) -> bool:
        raise RuntimeError(f"secret {BOX}")

    monkeypatch.setattr(Training, "collect", failing)
    assert chat.post(BOX, user)["answer"] == "The demand index is 58 [Source 1]."
    wait_for(lambda: any("not collected" in record.getMessage() for record in caplog.records))
    assert eligible(chat, user) == [True, True]
    assert not any(BOX in record.getMessage() for record in caplog.records)


def test_a_message_deleted_meanwhile_is_in_no_lesson(chat: Chat) -> None:
    user = consenting(chat)
    asked = chat.post(BOX, user)
    answers = threading.Event()
    chat.model.script[:] = [citing(HISTORY, "It grew from 33 to 58 {}.", go_on=answers)]
    asking = threading.Thread(target=chat.post, args=(FOLLOW_UP, user), kwargs={"threadId": asked["threadId"]})
    asking.start()
    wait_for(lambda: len(chat.model.requests) >= 2)
    first = chat.get(f"{THREADS}/{asked['threadId']}", user)["messages"][0]["id"]
    chat.client.delete(f"{THREADS}/{asked['threadId']}/messages/{first}", headers=bearer(user))
    answers.set()
    asking.join()
    nothing_comes(chat, user)


async def test_of_a_withdrawal_and_a_collection_at_once_nothing_is_left(chat: Chat, database: Database) -> None:
    training = Training(database, Entitlements(database))
    for _ in range(3):
        user = await asyncio.to_thread(consenting, chat)
        await asyncio.to_thread(chat.post, BOX, user)
        (kept,) = await asyncio.to_thread(collected, chat, user, 1)
        await asyncio.to_thread(chat.rows, "DELETE FROM lexybrain_requests", user)
        lesson = Lesson(kept["capability"], "scripted", kept["prompt"], kept["context"], "Yes.", kept["message_id"], ())
        principal = Principal(str(user), user)
        scope = Scope(frozenset({PUBLIC_ORGANIZATION}), user)
        await asyncio.gather(training.collect(scope, lesson), training.decide(principal, False))
        assert await asyncio.to_thread(collected, chat, user) == []
        assert await training.collect(scope, lesson) is False


async def test_who_deletes_waits_for_a_withdrawal_before_it_holds_anything(chat: Chat, database: Database) -> None:
    user = await asyncio.to_thread(consenting, chat)
    asked = await asyncio.to_thread(chat.post, BOX, user)
    threads, principal = ThreadStore(database, SourceLedger(database)), Principal(str(user), user)
    thread, message = UUID(asked["threadId"]), UUID(asked["messageId"])
    async with database.scoped(Scope(frozenset({PUBLIC_ORGANIZATION}), user)) as withdrawing:
        await withdrawing.execute(text("SELECT FROM users WHERE id = :user FOR UPDATE"), {"user": user})
        deleting = asyncio.create_task(threads.delete_message(principal, thread, message))
        await until_blocked(database)
        assert not deleting.done()
        await withdrawing.execute(text("SET LOCAL lock_timeout = '2s'"))
        await withdrawing.execute(text("UPDATE rag_messages SET training_eligible = false"))
    await deleting


def test_a_lesson_is_its_users_alone(chat: Chat) -> None:
    user = consenting(chat)
    chat.post(BOX, user)
    (lesson,) = collected(chat, user, 1)
    for other in (chat.mila, chat.newcomer(), chat.root):
        for table in ("lexybrain_requests", "lexybrain_responses"):
            assert asyncio.run(as_administrator(chat, f"SELECT 1 FROM {table}")) == []
            assert chat.rows(f"SELECT 1 FROM {table} WHERE user_id = :whose", other, whose=user) == []
            assert chat.rows(f"DELETE FROM {table} WHERE user_id = :whose RETURNING id", other, whose=user) == []
        forged = "INSERT INTO lexybrain_requests (message_id, user_id, capability, prompt, context)"
        for owner in (user, other):
            with pytest.raises(Exception, match="row-level security"):
                chat.rows(
                    f"{forged} VALUES (:id, :whose, 'x', '[]', '[]')", other, id=lesson["message_id"], whose=owner
                )
    assert len(collected(chat, user)) == 1


def exported(tmp_path: Path, capsys: pytest.CaptureFixture[str], **chosen: Any) -> tuple[list[dict[str, Any]], str]:
    file = tmp_path / f"{uuid4().hex}.jsonl"
    users.export_training_data(file, chosen.get("since"), chosen.get("capability"))
    assert file.stat().st_mode & 0o777 == 0o600
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()], capsys.readouterr().err


def test_the_export_is_what_fine_tuning_tools_read(
    chat: Chat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = consenting(chat)
    asked = chat.post(BOX, user, capability="keyword_explanation")
    rated = chat.client.post(
        f"/api/lexybrain/messages/{asked['messageId']}/feedback",
        json={"rating": "positive", "comment": "a comment of theirs"}, headers=bearer(user),
    )  # fmt: skip
    assert rated.status_code == 200, rated.text
    (lesson,) = collected(chat, user, 1)
    examples, told = exported(tmp_path, capsys)
    (mine,) = [each for each in examples if each["metadata"]["rating"] == "positive"]
    assert mine["messages"] == [*lesson["prompt"], {"role": "assistant", "content": lesson["content"]}]
    metadata = mine["metadata"]
    assert metadata["capability"] == "keyword_explanation" and metadata["cited"] == 1
    assert metadata["sources"] == len(lesson["context"]) and metadata["prompts"]["global"] == "ask_lexybrain_system"
    assert told.startswith(f"{len(examples)} examples of ")
    whole = json.dumps(examples)
    name = chat.rows("SELECT name FROM users WHERE id = :id", id=user)[0]["name"]
    assert not any(said in whole for said in (str(user), name, "a comment of theirs", asked["threadId"]))
    again, _ = exported(tmp_path, capsys, capability="keyword_explanation")
    assert mine in again, "the pseudonym is the same"
    assert {each["metadata"]["capability"] for each in again} == {"keyword_explanation"}
    assert exported(tmp_path, capsys, since="2999-01-01")[0] == []
    decide(chat, user, False)
    assert mine not in exported(tmp_path, capsys)[0]


def test_what_a_user_may_no_longer_see_is_left_out(
    chat: Chat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = consenting(chat)
    asked = f"{BOX} {uuid4().hex}"
    chat.post(asked, user, capability="keyword_explanation")
    assert len(collected(chat, user, 1)) == 1
    examples, before = exported(tmp_path, capsys)
    assert any(asked in json.dumps(each, ensure_ascii=False) for each in examples)
    chat.rows("DELETE FROM memberships WHERE user_id = :whose", whose=user)
    left, after = exported(tmp_path, capsys)
    assert len(left) == len(examples) - 1 and not any(asked in json.dumps(each, ensure_ascii=False) for each in left)
    withheld = [int(re.search(r"(\d+) left out", told)[1]) for told in (before, after)]  # type: ignore[index]
    assert withheld[1] == withheld[0] + 1


def test_the_routes_take_what_they_say(chat: Chat) -> None:
    user = chat.newcomer()
    for body in (
        {},
        {"training": None},
        {"training": "yes"},
        {"training": 1},
        {"training": True, "user": str(uuid4())},
    ):
        refused = chat.client.put(CONSENT, json=body, headers=bearer(user))
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "validation_error"), refused.text
    refused = chat.client.get(f"{CONSENT}?user={user}", headers=bearer(user))
    assert refused.status_code == 422
    assert chat.client.post(CONSENT, json={}, headers=bearer(user)).status_code == 405
    assert chat.client.get(CONSENT).status_code == 401
    assert RAG and chat.get(CONSENT, user)["training"] is False
