"""Figures of all conversations in a period. docs/surfaces/lexybrain-admin.md says which rows count for which.

Messages that were deleted count (they were written and answered), those of deleted threads are gone; what answers took
(`ai_usage_events`) stays. Percentiles are PostgreSQL's `percentile_cont`: interpolated between two neighbours.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import Date, DateTime, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB

from rag_app.access.audit import EVERYBODY, Act, administering
from rag_app.database.session import Database
from rag_app.domain.scope import Principal
from rag_app.surfaces.lexybrain.figures import (
    STAGES,
    Arm,
    CapabilityUse,
    Day,
    Figures,
    Latency,
    Period,
    PlanUse,
    Totals,
    midnight,
)
from rag_app.surfaces.lexybrain.types import Rating

# Hashing is right here whatever is known of the tables, and nested loops are ruinous where nothing is yet; to plan it anew
# for each period, or to compile its expressions, takes longer than it saves.
_PLAN = text(
    "SELECT set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true),"
    " set_config('enable_sort', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"
)

_RATINGS = ", ".join(f"count(*) FILTER (WHERE rating = '{each}') AS {each}" for each in Rating)
_MESSAGES = "m.created_at >= :since AND m.created_at < :until"
_TIMED = ", ".join(f"(stages -> '{stage}')::int AS {stage}" for stage in STAGES)
_FLAGS = ", ".join(
    f"(flags ->> '{flag}' = 'true')::int AS {name}"
    for flag, name in (
        ("insufficientContext", "insufficient"), ("fallbackToGeneric", "fallback"), ("interrupted", "interrupted")
    )
)  # fmt: skip


def _cuts(values: str, name: str) -> str:
    return (
        f"count({values}) AS {name}_count, percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY {values}) AS {name}"
    )


# One statement: all figures are of the same moment. An event is recorded with its message and begun a moment before it. An
# answer that was made to its end has the stage "generation": the total of any other is how long somebody waited.
_FIGURES = (
    text(
        f"""
        WITH took AS MATERIALIZED (
            SELECT message_id, created_at, tokens_in, tokens_out, cost_cents, {_TIMED}
            FROM ai_usage_events
            WHERE type = 'rag_message' AND created_at >= :since - interval '1 hour' AND created_at < :until
        ), answered AS MATERIALIZED (
            SELECT id, capability, generation_metadata -> 'prompts' AS prompts, rating,
                jsonb_array_length(retrieved_source_ids) AS sources, {_FLAGS}
            FROM rag_messages m LEFT JOIN (SELECT message_id, rating FROM rag_feedback) f ON message_id = m.id
            WHERE role = 'assistant' AND {_MESSAGES}
        )
        SELECT 'said' AS part, to_jsonb(each) AS row FROM (
            SELECT (m.created_at AT TIME ZONE 'UTC')::date AS day, capability,
                count(*) FILTER (WHERE role = 'user') AS questions, count(*) FILTER (WHERE role = 'assistant') AS answers,
                count(deleted_at) AS deleted
            FROM rag_messages m WHERE {_MESSAGES} GROUP BY 1, capability
        ) AS each
        UNION ALL SELECT 'answered', to_jsonb(each) FROM (
            SELECT avg(sources)::float8 AS sources, avg(coalesce(insufficient, 0))::float8 AS insufficient_context,
                avg(coalesce(fallback, 0))::float8 AS fallback, avg(coalesce(interrupted, 0))::float8 AS interrupted, {_RATINGS}
            FROM answered
        ) AS each
        UNION ALL SELECT 'threads', to_jsonb(each) FROM (
            SELECT count(*) AS threads, count(DISTINCT user_id) FILTER (WHERE asked) AS active_users,
                (SELECT count(*) FROM rag_threads WHERE created_at >= :since AND created_at < :until) AS new_threads
            FROM (
                SELECT thread_id, bool_or(role = 'user') AS asked FROM rag_messages m WHERE {_MESSAGES} GROUP BY thread_id
            ) AS spoken JOIN rag_threads t ON t.id = thread_id
        ) AS each
        UNION ALL SELECT 'took', to_jsonb(each) FROM (
            SELECT (created_at AT TIME ZONE 'UTC')::date AS day, sum(tokens_in) AS input_tokens,
                sum(tokens_out) AS output_tokens, sum(cost_cents)::float8 AS cost_cents
            FROM took WHERE created_at >= :since GROUP BY 1
        ) AS each
        UNION ALL SELECT 'stages', to_jsonb(each) FROM (
            SELECT {", ".join(_cuts(stage, stage) for stage in STAGES)}
            FROM took WHERE created_at >= :since AND generation IS NOT NULL
        ) AS each
        UNION ALL SELECT 'arms', to_jsonb(each) FROM (
            SELECT arm.type COLLATE "C" AS type, prompt COLLATE "C" AS prompt, count(*) AS answers,
                avg(sources)::float8 AS sources, avg(coalesce(insufficient, 0))::float8 AS insufficient_context,
                avg(coalesce(fallback, 0))::float8 AS fallback, {_RATINGS}, {_cuts("total", "total")},
                avg(cost_cents)::float8 AS cost_cents
            FROM answered LEFT JOIN (
                SELECT message_id, cost_cents, CASE WHEN generation IS NOT NULL THEN total END AS total FROM took
            ) AS t ON message_id = id, LATERAL (
                VALUES ('global', prompts ->> 'global'), (capability, prompts ->> capability)
            ) AS arm (type, prompt)
            WHERE prompt IS NOT NULL GROUP BY 1, 2
        ) AS each
        UNION ALL SELECT 'plans', to_jsonb(each) FROM (
            SELECT plan_code AS plan, rag_messages_per_month AS messages, count(u.id) AS users,
                count(u.id) FILTER (WHERE c.used > 0) AS active, coalesce(sum(c.used), 0) AS used
            FROM plan_entitlements LEFT JOIN users u USING (plan_code)
            LEFT JOIN usage_counters c ON c.user_id = u.id AND c.key = 'rag_messages' AND c.period = :month
            GROUP BY plan_code
        ) AS each
        UNION ALL SELECT 'failures', to_jsonb(each) FROM (
            SELECT kind, count(*) AS failures FROM ai_failures WHERE created_at >= :since AND created_at < :until
            GROUP BY kind
        ) AS each
        """
    )
    .bindparams(
        bindparam("since", type_=DateTime(timezone=True)),
        bindparam("until", type_=DateTime(timezone=True)),
        bindparam("month", type_=Date()),
    )
    .columns(row=JSONB())
)


class Statistics:
    """For administrators; each reading is written down with it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, principal: Principal, since: date | None, until: date | None) -> Figures:
        """Raises Forbidden, and InvalidInput for dates that are no period."""
        period = Period.of(since, until, today=datetime.now(UTC).date())
        month = period.until.replace(day=1)
        values = {
            "since": midnight(period.since), "until": midnight(period.until) + timedelta(days=1), "month": month
        }  # fmt: skip
        act = Act("statistics.read", EVERYBODY, {"from": str(period.since), "to": str(period.until)})
        parts: dict[str, list[dict[str, Any]]] = {}
        async with administering(self._database, principal, act) as session:
            await session.execute(_PLAN)
            for part, row in await session.execute(_FIGURES, values):
                parts.setdefault(part, []).append(row)
        said, took = parts.get("said", []), parts.get("took", [])
        (threads,), (answered,), (stages,) = parts["threads"], parts["answered"], parts["stages"]
        return Figures(
            period=period,
            totals=Totals(
                **threads,
                **{name: _sum(said, name) for name in ("questions", "answers", "deleted")},
                **{name: answered[name] for name in ("sources", "insufficient_context", "fallback", "interrupted")},
                ratings=_ratings(answered),
            ),
            days=tuple(_day(day, said, took) for day in period.days),
            month=month,
            plans=tuple(sorted((PlanUse(**row) for row in parts["plans"]), key=lambda each: each.plan)),
            capabilities=tuple(sorted(_capabilities(said), key=_most_asked)),
            latency={stage: _latency(stages, stage) for stage in STAGES},
            arms=tuple(sorted(map(_arm, parts.get("arms", [])), key=lambda each: (each.type, each.prompt))),
            failures={
                row["kind"]: row["failures"]
                for row in sorted(parts.get("failures", []), key=lambda row: (-row["failures"], row["kind"]))
            },
        )


_Rows = Sequence[Mapping[str, Any]]


def _day(day: date, said: _Rows, took: _Rows) -> Day:
    written = str(day)
    said, took = ([row for row in rows if row["day"] == written] for rows in (said, took))
    return Day(
        day,
        _sum(said, "questions"),
        _sum(said, "answers"),
        _sum(took, "input_tokens"),
        _sum(took, "output_tokens"),
        float(sum(row["cost_cents"] for row in took)),
    )


def _capabilities(said: _Rows) -> Iterable[CapabilityUse]:
    for name in {row["capability"] for row in said}:
        found = [row for row in said if row["capability"] == name]
        yield CapabilityUse(name, _sum(found, "questions"), _sum(found, "answers"))


def _most_asked(capability: CapabilityUse) -> tuple[int, bool, str]:
    return -capability.questions, capability.capability is None, capability.capability or ""


def _arm(row: Mapping[str, Any]) -> Arm:
    return Arm(
        row["type"],
        row["prompt"],
        row["answers"],
        row["sources"],
        row["insufficient_context"],
        row["fallback"],
        _ratings(row),
        _latency(row, "total"),
        row["cost_cents"],
    )


def _latency(row: Mapping[str, Any], stage: str) -> Latency:
    return Latency(row[f"{stage}_count"], *(row[stage] or ()))


def _ratings(row: Mapping[str, Any]) -> dict[Rating, int]:
    return {each: row[each.value] for each in Rating}


def _sum(rows: _Rows, name: str) -> int:
    return sum(row[name] for row in rows)
