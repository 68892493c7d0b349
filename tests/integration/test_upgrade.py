"""From each revision with data in it to the newest: every value stays, and what was found is found, or doctor says why not."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg
import pytest
from alembic.script import ScriptDirectory

from rag_app.application import Application
from rag_app.database import migrate
from rag_app.database.private import PrivatePostgres
from rag_app.database.urls import DatabaseUrls
from rag_app.domain import Misconfigured, Mode, Scope, StoreFailed
from rag_app.domain.answer import Question
from rag_app.settings import Settings
from tests import migrating
from tests.conftest import MIGRATIONS, NewPostgres
from tests.integration.conftest import INDEX
from tests.integration.service import Text, ingest
from tests.integration.test_retention import ROWS

T = TypeVar("T")
REVISIONS = [each.revision for each in ScriptDirectory.from_config(migrate.config(MIGRATIONS)).walk_revisions()]
COLUMNS = """
    SELECT table_name, string_agg(quote_ident(column_name), ', ' ORDER BY column_name) FROM information_schema.columns
    JOIN pg_class ON relname = table_name AND relkind = 'r' AND relpersistence = 'p'
    WHERE table_schema = 'public' AND table_name <> 'alembic_version' GROUP BY 1
"""


@pytest.fixture(scope="module")
def server(new_postgres: NewPostgres) -> PrivatePostgres:
    return new_postgres()


def fetch(server: PrivatePostgres, *statements: str) -> list[list[tuple[Any, ...]]]:
    async def run() -> list[list[tuple[Any, ...]]]:
        connection = await asyncpg.connect(server.superuser_url.replace("+asyncpg", ""))
        try:
            return [[tuple(row) for row in await connection.fetch(each)] for each in statements]
        finally:
            await connection.close()

    return asyncio.run(run())


def values(server: PrivatePostgres, columns: dict[str, str]) -> dict[str, list[tuple[Any, ...]]]:
    statements = [f"SELECT ROW({names})::text FROM {table} ORDER BY 1" for table, names in columns.items()]
    return dict(zip(columns, fetch(server, *statements), strict=True))


def opened(server: PrivatePostgres, work: Callable[[Application], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        application = Application(Settings(), DatabaseUrls(server.app_url, server.owner_url, private=True))
        try:
            return await work(application)
        finally:
            await application.close()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def who(server: PrivatePostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scope]:
    """Rows in every table that users fill, at the newest revision; whoever owns the private ones."""
    folder = tmp_path_factory.mktemp("upgrade")
    migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_VECTOR_STORE", "postgres")
        patch.setenv("RAG_HOME", str(folder))

        async def fill(application: Application) -> tuple[UUID, UUID, UUID]:
            await application.start()
            organization = await application.people.create_organization("acme", "Acme")
            ada = await application.people.create_user("ada")
            await application.people.add_member(organization, ada)
            await application.people.create_site(organization.id, "north")
            await application.keys.create(organization, "walk")
            texts = [Text(f"note {n}", f"The shelf {n} holds {n + 3} boxes.", organization.id) for n in range(12)]
            own = Text("own", "The drawer code is 4711.", organization.id, ada.id)
            await ingest(application, folder, [*texts, own])
            return organization.id, ada.id, own.id

        org, user, source = opened(server, fill)
        rows = ROWS.format(
            word="kept",
            then="now()",
            user=user,
            org=org,
            source=source,
            thread=uuid4(),
            message=uuid4(),
            feedback=uuid4(),
        )
        fetch(server, *(each for each in rows.split(";\n") if each.strip()))
        yield Scope(frozenset({org}), user)


Found = list[tuple[str, float]]


def test_an_upgrade_keeps_every_value_and_what_is_found(server: PrivatePostgres, who: Scope) -> None:
    async def search(application: Application) -> Found:
        await application.start()
        asked = (Question("What is the drawer code?", mode=mode) for mode in (Mode.HYBRID, Mode.TEXT))
        found = [await application.pipeline.search(INDEX, each, who) for each in asked]
        return [(hit.text, round(hit.score, 5)) for hits in found for hit in hits]

    async def problem(application: Application) -> str:
        return (await application.problems())[INDEX]

    before = opened(server, search)
    assert any("4711" in text for text, _ in before)
    filled = {table for table, rows in values(server, dict(fetch(server, COLUMNS)[0])).items() if rows}
    assert filled >= {
        "users", "memberships", "sites", "api_keys", "sources", "source_builds", "generations", "rag_threads",
        "rag_messages", "rag_feedback", "judgments", "lexybrain_requests", "ai_usage_events", "usage_counters", "ai_failures",
        f"g_{INDEX}_1_chunks", f"g_{INDEX}_1_vectors", f"g_{INDEX}_1_signs", f"g_{INDEX}_1_words",
    }  # fmt: skip
    for revision in REVISIONS[1:]:
        migrating.downgrade(server.owner_url, MIGRATIONS, revision)
        assert migrating.current(server.owner_url) == revision
        columns = dict(fetch(server, COLUMNS)[0])
        was = values(server, columns)
        assert was["sources"] and was[f"g_{INDEX}_1_chunks"], revision
        with pytest.raises(Misconfigured, match=f"at schema revision {revision}.*run `rag-app db upgrade`"):
            opened(server, search)

        migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS)
        there = dict(fetch(server, COLUMNS)[0])
        lost = {table: set(names.split(", ")) - set(there[table].split(", ")) for table, names in columns.items()}
        assert not any(lost.values()), f"from {revision}"
        now = values(server, columns)
        changed = {table for table in columns if now[table] != was[table]}
        # what `totals` counts is another thing since 0025: the chunks in the graph
        assert changed <= {f"g_{INDEX}_1_totals"}, f"from {revision}"
        try:
            assert opened(server, search) == before, f"from {revision}"
        except (Misconfigured, StoreFailed):
            assert f"rag-app indexes rebuild {INDEX}" in opened(server, problem), f"from {revision}"
