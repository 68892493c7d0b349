"""What is too old goes, and is looked for afterwards in every column of every table; what is younger stays."""

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from rag_app.access.people import People
from rag_app.console import database as commands
from rag_app.database.private import PrivatePostgres
from rag_app.database.session import Database
from rag_app.settings import RetentionSettings
from rag_app.surfaces.lexybrain.retention import enforce
from tests.conftest import NewPostgres

KINDS = ("THREADS", "JUDGMENTS", "USAGE", "FAILURES")
ROWS = """
    INSERT INTO rag_threads (id, user_id, title, last_message_at) VALUES ('{thread}', '{user}', '{word} thread', {then});
    INSERT INTO rag_messages (id, thread_id, role, content) VALUES ('{message}', '{thread}', 'assistant', '{word} said');
    INSERT INTO rag_feedback (id, message_id, user_id, rating, feedback_text)
        VALUES ('{feedback}', '{message}', '{user}', 'negative', '{word} thought');
    INSERT INTO lexybrain_requests (user_id, message_id, capability, prompt, context)
        VALUES ('{user}', '{message}', 'general_chat', '["{word} asked"]', '[]');
    INSERT INTO judgments (org_id, index_name, query, source_id, feedback_id)
        VALUES ('{org}', 'book', '{word} rated', '{source}', '{feedback}');
    INSERT INTO judgments (org_id, index_name, query, source_id, created_at)
        VALUES ('{org}', 'book', '{word} judged', '{source}', {then});
    INSERT INTO ai_usage_events (user_id, type, plan_code, model_version, latency_ms, tokens_in, tokens_out, cost_cents,
        created_at) SELECT owner, '{word} used', 'free', 'm', 1, 1, 1, 1, {then} FROM unnest(ARRAY['{user}', NULL]::uuid[]) owner;
    INSERT INTO usage_counters (user_id, key, period, used) VALUES ('{user}', '{word} counted', ({then})::date, 3);
    INSERT INTO ai_failures (user_id, kind, message, created_at)
        SELECT owner, 'ModelFailed', '{word} failed', {then} FROM unnest(ARRAY['{user}', NULL]::uuid[]) owner;
"""
LEFT_BY = {
    "THREADS": {"thread", "said", "thought", "asked", "rated"},
    "JUDGMENTS": {"judged"},
    "USAGE": {"used", "counted"},
    "FAILURES": {"failed"},
}
"""What of a word goes with each kind."""


async def execute(server: PrivatePostgres, *statements: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(server.superuser_url.replace("+asyncpg", ""))
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        rows: list[asyncpg.Record] = await connection.fetch(statements[-1])
        return rows
    finally:
        await connection.close()


async def left(server: PrivatePostgres, word: str) -> set[str]:
    """What stands after the word, in any column of any table."""
    tables = await execute(
        server, "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    each = (f"SELECT (regexp_matches(each::text, '{word} ([a-z]+)', 'g'))[1] FROM {name} each" for (name,) in tables)
    return {row[0] for row in await execute(server, " UNION ".join(each))}


@pytest.fixture(scope="module")
def server(new_database: NewPostgres) -> PrivatePostgres:
    return new_database()


@pytest.fixture
async def database(server: PrivatePostgres) -> Any:
    opened = Database(server.app_url, pool_size=2)
    yield opened
    await opened.close()


async def fill(server: PrivatePostgres, database: Database) -> tuple[str, str]:
    """Two words: of rows that are 90 days old, and of rows of today; of two users in two organizations."""
    mark = uuid4().hex[:8]
    words = f"old{mark}", f"new{mark}"
    people = People(database)
    for name in ("ada", "bob"):
        organization = await people.create_organization(f"{name}-{mark}", name)
        user = await people.create_user(f"{name}-{mark}")
        source = uuid4()
        await execute(
            server,
            "INSERT INTO sources (id, org_id, index_name, external_id, title, source_type, lang, metadata, origin, visibility,"
            f" version, content) VALUES ('{source}', '{organization.id}', 'book', '{source}', 't', 'doc', 'en', '{{}}', 'o',"
            " 'team', 'v', '[]')",
            *(
                ROWS.format(
                    word=word, then=then, user=user.id, org=organization.id, source=source,
                    thread=uuid4(), message=uuid4(), feedback=uuid4(),
                )
                for word, then in zip(words, ("now() - interval '90 days'", "now()"), strict=True)
            ),
            "SELECT 1",
        )  # fmt: skip
    return words


def days(**kept: int) -> dict[str, int | None]:
    return RetentionSettings.model_validate(
        {f"RAG_RETENTION_DAYS_{name}": each for name, each in kept.items()}
    ).model_dump()


@pytest.mark.parametrize("kind", KINDS)
async def test_of_a_kind_what_is_too_old_goes_and_nothing_else(
    kind: str, server: PrivatePostgres, database: Database
) -> None:
    old, new = await fill(server, database)
    everything = set().union(*LEFT_BY.values())
    assert await left(server, old) == await left(server, new) == everything, "or finding nothing would show nothing"
    assert await enforce(database, days()) == {}
    assert await enforce(database, days(**{kind: 91})) == {kind.lower(): 0}
    assert await left(server, old) == everything

    gone = await enforce(database, days(**{kind: 30}))
    assert gone is not None and gone[kind.lower()] >= 2
    assert await left(server, old) == everything - LEFT_BY[kind]
    assert await left(server, new) == everything
    assert await enforce(database, days(**{kind: 30})) == {kind.lower(): 0}
    assert await enforce(database, days(**dict.fromkeys(KINDS, 30))) is not None
    assert await left(server, old) == set()


async def test_one_process_at_a_time(server: PrivatePostgres, database: Database) -> None:
    old, _ = await fill(server, database)
    async with database.own_connection() as other:
        await other.exec_driver_sql("SELECT pg_advisory_lock(hashtextextended('rag_app/retention', 0))")
        assert await enforce(database, days(THREADS=30)) is None
    assert "said" in await left(server, old)
    assert await enforce(database, days(THREADS=30))


async def test_a_counter_of_this_month_stays(server: PrivatePostgres, database: Database) -> None:
    """Or a day's retention would give everybody a new quota each day."""
    user = await People(database).create_user(f"counted-{uuid4().hex[:8]}")
    await execute(
        server,
        "INSERT INTO usage_counters (user_id, key, period, used)"
        f" VALUES ('{user.id}', 'rag_messages', date_trunc('month', now()), 3)",
        "SELECT 1",
    )
    await enforce(database, days(USAGE=1))
    (row,) = await execute(server, f"SELECT used FROM usage_counters WHERE user_id = '{user.id}'")
    assert row["used"] == 3


def test_the_command(
    server: PrivatePostgres, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAG_DATABASE_URL", server.app_url)
    monkeypatch.setenv("RAG_VECTOR_STORE", "postgres")
    commands.retention()
    assert capsys.readouterr().err == "nothing to delete: no RAG_RETENTION_DAYS_... setting is set\n"
    monkeypatch.setenv("RAG_RETENTION_DAYS_FAILURES", "30")
    commands.retention()
    assert capsys.readouterr().out.startswith("failures\t")
