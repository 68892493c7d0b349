"""From each revision with data in it to the newest: every value stays, and what was found is found, or doctor says why not.

A migration that was released does not change. So `make test` begins at the two revisions before the newest, at the oldest
and at some between, which run each migration with data in the tables; the rest is for the night.
"""

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
from rag_app.domain import Misconfigured, Mode, Principal, Scope, StoreFailed
from rag_app.domain.answer import Question
from rag_app.settings import Settings
from tests import migrating
from tests.conftest import MIGRATIONS, NewPostgres, copy_database
from tests.integration.conftest import INDEX
from tests.integration.service import Text, ingest
from tests.integration.test_retention import ROWS

T = TypeVar("T")
NEWEST, *EARLIER = [each.revision for each in ScriptDirectory.from_config(migrate.config(MIGRATIONS)).walk_revisions()]
BY_DAY = {*EARLIER[:2], *EARLIER[2::6], EARLIER[-1]}
COLUMNS = """
    SELECT table_name, string_agg(quote_ident(column_name), ', ' ORDER BY column_name) FROM information_schema.columns
    JOIN pg_class ON relname = table_name AND relkind = 'r' AND relpersistence = 'p'
    WHERE table_schema = 'public' AND table_name <> 'alembic_version' GROUP BY 1
"""


@pytest.fixture(scope="module")
def filled(new_database: NewPostgres) -> PrivatePostgres:
    return new_database()


def fetch(server: PrivatePostgres, *statements: str) -> list[list[tuple[Any, ...]]]:
    async def run() -> list[list[tuple[Any, ...]]]:
        connection = await asyncpg.connect(server.superuser_url.replace("+asyncpg", ""))
        try:
            return [[tuple(row) for row in await connection.fetch(each)] for each in statements]
        finally:
            await connection.close()

    return asyncio.run(run())


def columns_of(server: PrivatePostgres) -> dict[str, str]:
    """The names of each table's columns."""
    return dict(fetch(server, COLUMNS)[0])


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
def who(filled: PrivatePostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scope]:
    """Fills each table that users fill, at the newest revision; whoever owns the private rows."""
    folder = tmp_path_factory.mktemp("upgrade")
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

        org, user, source = opened(filled, fill)
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
        fetch(filled, *(each for each in rows.split(";\n") if each.strip()))
        tables = {table for table, rows in values(filled, columns_of(filled)).items() if rows}
        assert tables >= {
            "users", "memberships", "sites", "api_keys", "sources", "source_builds", "generations", "rag_threads",
            "rag_messages", "rag_feedback", "judgments", "lexybrain_requests", "ai_usage_events", "usage_counters", "ai_failures",
            f"g_{INDEX}_1_chunks", f"g_{INDEX}_1_vectors", f"g_{INDEX}_1_signs", f"g_{INDEX}_1_words",
        }  # fmt: skip
        yield Scope(frozenset({org}), user)


@pytest.fixture
def server(filled: PrivatePostgres, who: Scope) -> PrivatePostgres:
    """A copy of what is filled."""
    return copy_database(filled, filled.owner_url.rpartition("/")[2])


Found = list[tuple[str, float]]


@pytest.mark.parametrize(
    "revision", [each if each in BY_DAY else pytest.param(each, marks=pytest.mark.thorough) for each in EARLIER]
)
def test_an_upgrade_keeps_every_value_and_what_is_found(server: PrivatePostgres, who: Scope, revision: str) -> None:
    async def search(application: Application) -> Found:
        await application.start()
        asked = (Question("What is the drawer code?", mode=mode) for mode in (Mode.HYBRID, Mode.TEXT))
        found = [await application.pipeline.search(INDEX, each, who) for each in asked]
        return [(hit.text, round(hit.score, 5)) for hits in found for hit in hits]

    async def problem(application: Application) -> str:
        return (await application.problems())[INDEX]

    before = opened(server, search)
    assert any("4711" in text for text, _ in before)
    migrating.downgrade(server.owner_url, MIGRATIONS, revision)
    assert migrating.current(server.owner_url) == revision
    columns = columns_of(server)
    was = values(server, columns)
    assert was["sources"] and was[f"g_{INDEX}_1_chunks"]
    with pytest.raises(Misconfigured, match=f"at schema revision {revision}.*run `rag-app db upgrade`"):
        opened(server, search)

    migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS)
    assert migrating.current(server.owner_url) == NEWEST
    there = columns_of(server)
    lost = {table: set(names.split(", ")) - set(there[table].split(", ")) for table, names in columns.items()}
    assert not any(lost.values())
    now = values(server, columns)
    changed = {table for table in columns if now[table] != was[table]}
    # what `totals` counts is another thing since 0025: the chunks in the graph
    assert changed <= {f"g_{INDEX}_1_totals"}
    try:
        assert opened(server, search) == before
    except (Misconfigured, StoreFailed):
        assert f"rag-app indexes rebuild {INDEX}" in opened(server, problem)


def test_of_runs_before_0027_nobody_sees_more_than_their_users(server: PrivatePostgres, who: Scope) -> None:
    """What they found is not known, and the index has a private source."""
    migrating.downgrade(server.owner_url, MIGRATIONS, "0026")
    [org], private, plain = who.organizations, uuid4(), uuid4()
    fetch(
        server,
        *(
            "INSERT INTO validations (id, org_id, user_id, index_name, generation_id, top_k, report)"
            f" SELECT '{run}', '{org}', '{who.user}', '{index}', min(id), 5, '{{}}' FROM generations"
            for run, index in ((private, INDEX), (plain, "book"))
        ),
    )
    migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS)

    def runs_of(user: UUID | None) -> set[UUID]:
        principal = Principal("x", user, who.organizations)
        return {row.id for row in opened(server, lambda application: application.validations.newest(principal, 9))}

    assert runs_of(who.user) == {private, plain}
    assert runs_of(uuid4()) == runs_of(None) == {plain}
