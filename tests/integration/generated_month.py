"""A month of conversations that nobody had, and its figures counted by hand: in Python, from what was generated.

October 2026 has 10,000 messages; the months beside it have some, too, on the very borders among others. They are written as
the application writes, under row-level security, each user's rows in a transaction of that user.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from sqlalchemy import text

from rag_app.database.session import Database
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope

SINCE, UNTIL = date(2026, 10, 1), date(2026, 10, 31)
MESSAGES = 10_000
CAPABILITIES = ("market_brief", "competitor_intel", "keyword_explanation", "alert_explanation", "general_chat")
PLANS = {"free": 50, "basic": 500, "pro": 2000, "growth": -1, "admin": -1}
RATINGS = ("positive", "negative", "neutral")
STAGES = ("keeping", "preparing", "retrieval", "generation", "total")
KINDS = ("ModelTimeout", "ModelLimited", "ModelMalformed", "EmbeddingFailed", "StoreFailed")
_DAY, _INSTANT = timedelta(days=1), timedelta(microseconds=1)
_OF_EACH: dict[str, str] = {
    "rag_threads": "id, user_id, title, created_at, updated_at, last_message_at, message_count, metadata",
    "rag_messages": "id, thread_id, role, content, created_at, capability, model_id, retrieved_source_ids, "
    "generation_metadata, flags, deleted_at",
    "rag_feedback": "id, message_id, user_id, rating, feedback_text, created_at, updated_at",
    "ai_usage_events": "user_id, type, message_id, plan_code, capability, model_version, latency_ms, stages, tokens_in, "
    "tokens_out, cost_cents, created_at",
    "ai_failures": "user_id, message_id, capability, kind, message, created_at",
    "usage_counters": "user_id, key, period, used",
}


@dataclass
class User:
    """`gone`: erased in the end, what answers took stays without a name."""

    id: UUID
    plan: str
    role: str = "user"
    gone: bool = False


@dataclass
class Generated:
    """Rows by table, as they are in the end. `administrator` may read them."""

    users: list[User]
    administrator: UUID
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {table: [] for table in _OF_EACH})


class _Writer:
    def __init__(self, seed: int) -> None:
        self.random, self.in_month = Random(seed), 0
        plans = ["free", "free", "basic", "pro", "growth"]
        users = [User(self.uuid(), plan) for plan in plans]
        users += [User(self.uuid(), "admin", "admin"), User(self.uuid(), "free", gone=True)]
        self.made = Generated(users, users[5].id)

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def add(self, table: str, **row: Any) -> dict[str, Any]:
        self.made.rows[table].append(row)
        return row

    def thread(self, user: User, begun: datetime, turns: int = 1, *, kept: bool = True, how: str | None = None) -> None:
        """Its first question comes with it. `kept` False: it was deleted, with its messages; what it took stays."""
        thread = self.uuid()
        prompts = {"global": self.random.choice(["ask_lexybrain_system", "ask_lexybrain_system_v2"])}
        row = {
            "id": thread, "user_id": user.id, "title": "A thread", "created_at": begun, "updated_at": begun,
            "last_message_at": begun, "message_count": 0, "metadata": {"client": "web", "prompts": prompts},
        }  # fmt: skip
        if kept and not user.gone:
            self.made.rows["rag_threads"].append(row)
        at = begun
        for _ in range(turns):
            last = self.turn(user, thread, at, prompts, kept, how)
            row["last_message_at"], at = last, last + timedelta(seconds=self.random.randint(1, 300))

    def turn(
        self, user: User, thread: UUID, at: datetime, prompts: dict[str, str], kept: bool, how: str | None
    ) -> datetime:
        """A question, mostly with an answer; the moment of the last of them."""
        random = self.random
        how = (
            how
            or random.choices(["answered", "weak", "fallback", "left", "given up", "failed"], [70, 8, 6, 5, 3, 8])[0]
        )
        capability = random.choices(CAPABILITIES, [40, 10, 20, 5, 25])[0]
        arms = {**prompts, capability: f"ask_lexybrain_{capability}_v{random.choice([1, 1, 2])}"}
        known = how != "failed" or random.random() < 0.5
        question = self.message(user, thread, "user", at, capability if known else None, kept=kept)
        stages = {"keeping": random.randint(2, 40), "preparing": random.randint(1, 30)}
        if how in ("answered", "weak", "fallback"):
            stages |= {"retrieval": random.randint(8, 900), "generation": int(random.lognormvariate(8, 0.6))}
        stages["total"] = sum(stages.values()) + random.randint(0, 5)
        done = at + timedelta(milliseconds=stages["total"], microseconds=random.randint(0, 999))
        if how == "failed":
            self.failures(user, question, capability if known else None, done, kept)
            return done
        message = question
        if how != "given up":
            sources = {"weak": 0, "fallback": random.randint(1, 12)}.get(how, random.randint(1, 12))
            flags = {
                "usedRag": sources > 0, "fallbackToGeneric": how == "fallback", "insufficientContext": sources < 5,
                "interrupted": how == "left",
            }  # fmt: skip
            message = self.message(
                user, thread, "assistant", done, capability, kept=kept, model_id="large", flags=flags,
                retrieved_source_ids=[
                    {"id": str(self.uuid()), "type": "keyword", "label": f"Keyword {n}", "score": 0.5,
                     "cited": n if n < 3 else None, "quote": None}
                    for n in range(1, sources + 1)
                ],
                generation_metadata={"tokensIn": 1, "tokensOut": 1, "stages": stages, "prompts": arms},
            )  # fmt: skip
            if kept and message["deleted_at"] is None and random.random() < 0.3:
                self.feedback(user, message, done)
        if how == "fallback":
            self.failures(user, message, capability, done, kept)
        tokens = (random.randint(200, 4000), random.randint(20, 900)) if how != "weak" else (0, 0)
        self.add(
            "ai_usage_events", user_id=user.id, type="rag_message", message_id=message["id"], plan_code=user.plan,
            capability=capability, model_version="large", latency_ms=stages.get("generation", stages["total"]),
            stages=stages, tokens_in=tokens[0], tokens_out=tokens[1],
            cost_cents=Decimal(6 * tokens[0] + 8 * tokens[1]) / 10_000,
            created_at=done - timedelta(microseconds=random.randint(1, 400_000)),
        )  # fmt: skip
        return done

    def message(
        self, user: User, thread: UUID, role: str, at: datetime, capability: str | None, *, kept: bool, **answer: Any
    ) -> dict[str, Any]:
        deleted = at + timedelta(hours=1) if self.random.random() < 0.02 else None
        row = {
            "id": self.uuid(), "thread_id": thread, "role": role, "content": f"{role} {at:%H:%M}", "created_at": at,
            "capability": capability, "model_id": None, "retrieved_source_ids": None, "generation_metadata": None,
            "flags": {}, "deleted_at": deleted, **answer,
        }  # fmt: skip
        if kept and not user.gone:
            self.made.rows["rag_messages"].append(row)
            self.in_month += SINCE <= at.date() <= UNTIL
        return row

    def feedback(self, user: User, message: dict[str, Any], at: datetime) -> None:
        when = at + timedelta(seconds=self.random.choice([5, 60, 40 * 86_400]))
        if not user.gone:
            self.add(
                "rag_feedback", id=self.uuid(), message_id=message["id"], user_id=user.id,
                rating=self.random.choices(RATINGS, [6, 3, 1])[0], feedback_text=None, created_at=when, updated_at=when,
            )  # fmt: skip

    def failures(self, user: User, message: dict[str, Any], capability: str | None, at: datetime, kept: bool) -> None:
        if not user.gone:
            for kind in self.random.sample(KINDS, self.random.choice([1, 1, 2])):
                self.add(
                    "ai_failures", user_id=user.id, message_id=message["id"], capability=capability, kind=kind,
                    message=f"{kind}: it said no", created_at=at,
                )  # fmt: skip


def generate(seed: int = 7) -> Generated:
    """The month, and something of the months beside it."""
    writer = _Writer(seed)
    random, users = writer.random, writer.made.users
    start, end = _midnight(SINCE), _midnight(UNTIL + _DAY)
    for user in users:
        for border in (start, end, start + 14 * _DAY):
            for before in (_INSTANT, timedelta(0), timedelta(seconds=1), timedelta(seconds=3)):
                writer.thread(user, border - before)
        for first, days in ((start - 40 * _DAY, 39), (end, 20)):
            for _ in range(6):
                writer.thread(user, first + days * _DAY * random.random(), random.randint(1, 6))
        for _ in range(5):
            writer.thread(user, start + 30 * _DAY * random.random(), random.randint(1, 4), kept=False)
    while writer.in_month < MESSAGES:
        user = random.choices(users[:6], [30, 10, 20, 20, 15, 3])[0]
        day = random.choice([each for each in range(31) if each not in (9, 10)])  # on these two nobody asks anything
        at = start + day * _DAY + timedelta(seconds=random.randint(0, 82_000))
        if MESSAGES - writer.in_month > 18:
            writer.thread(user, at, random.randint(1, 9))
        else:
            writer.thread(user, at, how="failed")  # of which there is one message
    for user in users:
        for month in (date(2026, 9, 1), SINCE, date(2026, 11, 1)):
            if not user.gone and random.random() < 0.9:
                used = random.choice([0, random.randint(1, 50), random.randint(1, 400)])
                writer.add("usage_counters", user_id=user.id, key="rag_messages", period=month, used=used)
                writer.add("usage_counters", user_id=user.id, key="something_else", period=month, used=3)
    return writer.made


async def load(database: Database, generated: Generated) -> None:
    """As the application's role: each user in a transaction of their own."""
    rows = generated.rows
    thread_of = {each["id"]: each["user_id"] for each in rows["rag_threads"]}
    for number, user in enumerate(generated.users):
        async with database.session() as session:
            await session.execute(
                text("INSERT INTO users (id, name, plan_code, role) VALUES (:id, :name, :plan, :role)"),
                {"id": user.id, "name": f"generated {number} {user.id.hex}", "plan": user.plan, "role": user.role},
            )
        async with database.scoped(Scope(frozenset({PUBLIC_ORGANIZATION}), user.id)) as session:
            for table, columns in _OF_EACH.items():
                own = [
                    each for each in rows[table] if each.get("user_id", thread_of.get(each.get("thread_id"))) == user.id
                ]
                statement = f"INSERT INTO {table} ({columns}) SELECT {columns} FROM jsonb_populate_recordset(NULL::{table}, :rows)"
                await session.execute(text(statement.replace(":rows", "CAST(:rows AS jsonb)")), {"rows": _json(own)})
        if user.gone:
            async with database.session() as session:
                await session.execute(text("DELETE FROM users WHERE id = :id"), {"id": user.id})


def counted(generated: Generated, since: date, until: date) -> dict[str, Any]:
    """What `GET /api/admin/lexybrain/rag/stats` must say."""
    rows = {
        table: [each for each in found if "created_at" not in each or since <= each["created_at"].date() <= until]
        for table, found in generated.rows.items()
    }
    owner = {each["id"]: each["user_id"] for each in generated.rows["rag_threads"]}
    questions = [each for each in rows["rag_messages"] if each["role"] == "user"]
    answers = [each for each in rows["rag_messages"] if each["role"] == "assistant"]
    rating_of = {each["message_id"]: each["rating"] for each in generated.rows["rag_feedback"]}
    event_of = {each["message_id"]: each for each in generated.rows["ai_usage_events"]}
    days = [since + n * _DAY for n in range((until - since).days + 1)]
    asked, answered = (Counter(each["created_at"].date() for each in found) for found in (questions, answers))
    ratings = Counter(rating_of[each["id"]] for each in answers if each["id"] in rating_of)
    capabilities = {each["capability"] for each in rows["rag_messages"]}
    whole = [each["stages"] for each in rows["ai_usage_events"] if "generation" in each["stages"]]
    arms: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in answers:
        for arm in each["generation_metadata"]["prompts"].items():
            arms.setdefault(arm, []).append(each)
    return {
        "from": str(since),
        "to": str(until),
        "totals": {
            "messages": len(rows["rag_messages"]),
            "questions": len(questions),
            "answers": len(answers),
            "deletedMessages": sum(each["deleted_at"] is not None for each in rows["rag_messages"]),
            "threads": len({each["thread_id"] for each in rows["rag_messages"]}),
            "newThreads": len(rows["rag_threads"]),
            "activeUsers": len({owner[each["thread_id"]] for each in questions}),
            **_took(rows["ai_usage_events"]),
        },
        "days": [
            {
                "date": str(day),
                "messages": asked[day] + answered[day],
                "questions": asked[day],
                "answers": answered[day],
                **_took(each for each in rows["ai_usage_events"] if each["created_at"].date() == day),
            }
            for day in days
        ],
        "quota": {"month": f"{until:%Y-%m}", "plans": _plans(generated, until.replace(day=1))},
        "capabilities": [
            {
                "capability": name,
                "questions": (count := sum(each["capability"] == name for each in questions)),
                "answers": sum(each["capability"] == name for each in answers),
                "share": round(count / len(questions), 4) if questions else 0,
            }
            for name in sorted(
                capabilities, key=lambda name: (-sum(e["capability"] == name for e in questions), name or "~")
            )
        ],
        "latencyMs": {stage: _latency([each[stage] for each in whole]) for stage in STAGES},
        "answers": {
            "meanSources": _mean([len(each["retrieved_source_ids"]) for each in answers]),
            "insufficientContextShare": _mean([each["flags"]["insufficientContext"] for each in answers]),
            "fallbackShare": _mean([each["flags"]["fallbackToGeneric"] for each in answers]),
            "interruptedShare": _mean([each["flags"]["interrupted"] for each in answers]),
        },
        "satisfaction": {
            **{each: ratings[each] for each in RATINGS},
            "positiveShare": round(ratings["positive"] / ratings.total(), 4) if ratings else None,
            "ratedShare": round(ratings.total() / len(answers), 4) if answers else None,
        },
        "prompts": [
            {
                "type": kind,
                "prompt": name,
                "answers": len(found),
                "meanSources": _mean([len(each["retrieved_source_ids"]) for each in found]),
                "insufficientContextShare": _mean([each["flags"]["insufficientContext"] for each in found]),
                "fallbackShare": _mean([each["flags"]["fallbackToGeneric"] for each in found]),
                **{rating: sum(rating_of.get(each["id"]) == rating for each in found) for rating in RATINGS},
                "latencyMs": _latency(
                    [e["total"] for e in (event_of[each["id"]]["stages"] for each in found) if "generation" in e]
                ),
                "meanCostCents": _mean([event_of[each["id"]]["cost_cents"] for each in found]),
            }
            for (kind, name), found in sorted(arms.items())
        ],
        "failures": [
            {"kind": kind, "count": count}
            for kind, count in sorted(
                Counter(each["kind"] for each in rows["ai_failures"]).items(), key=lambda each: (-each[1], each[0])
            )
        ],
    }


def _plans(generated: Generated, month: date) -> list[dict[str, Any]]:
    used = {
        each["user_id"]: each["used"]
        for each in generated.rows["usage_counters"]
        if (each["key"], each["period"]) == ("rag_messages", month)
    }
    told = []
    for plan, messages in sorted(PLANS.items()):
        users = [each for each in generated.users if each.plan == plan and not each.gone]
        told.append(
            {
                "plan": plan,
                "users": len(users),
                "activeUsers": sum(used.get(each.id, 0) > 0 for each in users),
                "messagesUsed": sum(used.get(each.id, 0) for each in users),
                "messagesAvailable": None if messages == -1 else messages * len(users),
                "messagesPerUser": None if messages == -1 else messages,
            }
        )
    return told


def _took(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found = list(events)
    return {
        "inputTokens": sum(each["tokens_in"] for each in found),
        "outputTokens": sum(each["tokens_out"] for each in found),
        "costCents": round(float(sum((each["cost_cents"] for each in found), Decimal(0))), 4),
    }


def _latency(values: Sequence[int]) -> dict[str, Any]:
    cuts = {"p50": None, "p95": None} if not values else {"p50": _cut(values, 0.5), "p95": _cut(values, 0.95)}
    return {"answers": len(values), **cuts}


def _cut(values: Sequence[int], share: float) -> float:
    """Between the two values that stand there, as far as it is to the second."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return round(ordered[low] + (ordered[high] - ordered[low]) * (place - low), 1)


def _mean(values: Sequence[Any]) -> float | None:
    return round(float(sum(values)) / len(values), 4) if values else None


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _json(rows: list[dict[str, Any]]) -> str:
    return json.dumps(rows, default=str)
