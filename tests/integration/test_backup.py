"""Backup and restore of a whole deployment, on both stores: what is back is compared with what was."""

import asyncio
import json
import shutil
import zipfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg
import pytest

from rag_app.application import Application, open_application
from rag_app.console import database as commands
from rag_app.database.private import private_postgres
from rag_app.database.urls import database_urls
from rag_app.domain import InvalidInput, Misconfigured, Mode, Scope, StoreFailed
from rag_app.domain.answer import Question
from rag_app.settings import Settings
from tests import migrating
from tests.conftest import MIGRATIONS, ON_DEFAULT_STORE, NewPostgres
from tests.integration.conftest import INDEX
from tests.integration.service import Text, ingest

T = TypeVar("T")
ROWS = """
    WITH thread AS (INSERT INTO rag_threads (user_id, title) VALUES ('{user}', 'hours') RETURNING id),
    said AS (INSERT INTO rag_messages (thread_id, role, content) SELECT id, 'user', 'When?' FROM thread RETURNING id),
    asked AS (INSERT INTO lexybrain_requests (user_id, message_id, capability, prompt, context)
        SELECT '{user}', id, 'general_chat', '[]', '[]' FROM said)
    INSERT INTO ai_failures (kind, message) VALUES ('ModelFailed', 'of nobody')
"""
STATE = {
    "policies": "SELECT polrelid::regclass::text, polname, pg_get_expr(polqual, polrelid),"
    " pg_get_expr(polwithcheck, polrelid) FROM pg_policy ORDER BY 1, 2",
    "row-level security": "SELECT oid::regclass::text, relrowsecurity, relforcerowsecurity, relpersistence::text FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1",
    "functions": "SELECT oid::regprocedure::text, pg_get_functiondef(oid), has_function_privilege('rag_app', oid, 'EXECUTE'),"
    " (SELECT array_agg(grantee::text || privilege_type ORDER BY 1) FROM aclexplode(proacl) WHERE grantee = 0)"
    " FROM pg_proc WHERE proowner = 'rag_owner'::regrole ORDER BY 1",
    "tables": "SELECT c.oid::regclass::text, p, has_table_privilege('rag_app', c.oid, p) FROM pg_class c,"
    " unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) p"
    " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1, 2",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
}


def asked(url: str, *statements: str) -> list[list[tuple[Any, ...]]]:
    async def run() -> list[list[tuple[Any, ...]]]:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            return [[tuple(row) for row in await connection.fetch(each)] for each in statements]
        finally:
            await connection.close()

    return asyncio.run(run())


def state_of(home: Path) -> dict[str, Any]:
    """Everything in the database, to the letter, but for what is UNLOGGED."""
    with private_postgres(home / "postgres") as server:
        state = dict(zip(STATE, asked(server.superuser_url, *STATE.values()), strict=True))
        logged = [name for name, *_, persistence in state["row-level security"] if persistence == "p"]
        rows = asked(server.superuser_url, *(f"SELECT each::text FROM {name} each ORDER BY 1" for name in logged))
        return state | dict(zip(logged, rows, strict=True))


def opened(work: Callable[[Application], Coroutine[Any, Any, T]]) -> T:
    settings = Settings()

    async def run() -> T:
        async with open_application(settings, urls) as application:
            return await work(application)

    with database_urls(settings) as urls:
        return asyncio.run(run())


@pytest.fixture(scope="module", params=[ON_DEFAULT_STORE])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Path, UUID, UUID]]:
    """A deployment in a home of its own and a backup of it; an organization, and who has a private source in it."""
    folder = tmp_path_factory.mktemp("backup")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RAG_DATABASE_URL", "RAG_DATABASE_OWNER_URL", "QDRANT_URL", "QDRANT_PATH"):
            patch.delenv(name, raising=False)
        patch.setenv("RAG_VECTOR_STORE", request.param)
        patch.setenv("RAG_HOME", str(folder / "home"))

        async def fill(application: Application) -> tuple[UUID, UUID]:
            organization = await application.people.create_organization("acme", "Acme")
            ada = await application.people.create_user("ada")
            await application.people.add_member(organization, ada)
            await application.keys.create(organization, "walk")
            texts = [Text(f"note {n}", f"The shelf {n} holds {n + 3} boxes.", organization.id) for n in range(20)]
            await ingest(
                application, folder, [*texts, Text("own", "The drawer code is 4711.", organization.id, ada.id)]
            )
            return organization.id, ada.id

        org, ada = opened(fill)
        with private_postgres(folder / "home" / "postgres") as server:
            asked(server.superuser_url, ROWS.format(user=ada))
        Settings().jwt_secret()
        commands.backup(folder / "whole.ragbackup", secrets=True)
        yield folder / "home", folder / "whole.ragbackup", org, ada
    for cluster in folder.rglob("cluster"):
        shutil.rmtree(cluster.resolve(), ignore_errors=True)


Found = list[tuple[str, float]]


def found(org: UUID, user: UUID) -> Found:
    async def search(application: Application) -> Found:
        scope = Scope(frozenset({org}), user)
        hits = await application.pipeline.search(INDEX, Question("What is the drawer code?", mode=Mode.HYBRID), scope)
        return [(hit.text, round(hit.score, 5)) for hit in hits]

    return opened(search)


def test_what_is_in_the_database_never_runs_as_superuser(
    world: tuple[Path, Path, UUID, UUID], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, *_ = world
    monkeypatch.setenv("RAG_HOME", str(home))
    called = """CREATE FUNCTION as_told(organizations) RETURNS text LANGUAGE sql AS
        'SELECT (1 / (SELECT count(*) FROM pg_roles WHERE rolname = current_user AND NOT rolsuper))::text'"""
    with private_postgres(home / "postgres") as server:
        asked(server.owner_url, called, "CREATE CAST (organizations AS text) WITH FUNCTION as_told(organizations)")
        try:
            commands.backup(tmp_path / "another.ragbackup", secrets=False)  # a superuser would divide by zero
        finally:
            asked(server.owner_url, "DROP FUNCTION as_told(organizations) CASCADE")


def test_what_is_restored_is_what_was(
    world: tuple[Path, Path, UUID, UUID],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home, file, org, ada = world
    before, hits = state_of(home), found(org, ada)
    assert before["rag_messages"] and before["lexybrain_requests"] and before["ai_failures"] and before["sources"]
    assert any("4711" in text for text, _ in hits)
    assert file.stat().st_mode & 0o777 == 0o600
    assert not [each for each in file.parent.iterdir() if each.name.startswith(".")], "no unfinished file is left"

    monkeypatch.setenv("RAG_HOME", str(tmp_path / "new"))
    commands.restore(file)
    assert "is back" in capsys.readouterr().out
    after = state_of(tmp_path / "new")
    assert after.keys() == before.keys()
    assert {name for name in before if before[name] != after[name]} == set()
    assert found(org, ada) == hits
    assert found(org, uuid4()) != hits, "and a private source is seen by its owner alone"
    secret = tmp_path / "new" / "jwt-secret"
    assert secret.read_bytes() == (home / "jwt-secret").read_bytes() and secret.stat().st_mode & 0o777 == 0o600

    with pytest.raises(Misconfigured, match="is not empty: set RAG_HOME to a new folder"):
        commands.restore(file)
    with pytest.raises(InvalidInput, match="exists: name a new file"):
        commands.backup(file)
    shutil.rmtree((tmp_path / "new" / "postgres" / "cluster").resolve())


def changed(file: Path, to: Path, **manifest: Any) -> Path:
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "manifest.json":
                content = json.dumps({**json.loads(content), **manifest}).encode()
            new.writestr(name, content)
    return to


def test_what_is_no_backup_is_refused_and_nothing_is_made(
    world: tuple[Path, Path, UUID, UUID], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file, _, _ = world
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "new"))
    whole = file.read_bytes()
    (tmp_path / "short").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text").write_text("no backup")
    with zipfile.ZipFile(tmp_path / "zip", "w") as foreign:
        foreign.writestr("a", "b")
    with zipfile.ZipFile(file) as archive:
        start = archive.getinfo("database.dump").header_offset + 1000
    (tmp_path / "damaged").write_bytes(
        whole[:start] + bytes(255 - each for each in whole[start : start + 9]) + whole[start + 9 :]
    )
    changed(file, tmp_path / "newer", revision="9999", version="99.0")
    for name, message in {
        "short": "not a backup, or is incomplete",
        "text": "not a backup, or is incomplete",
        "zip": "not a backup of rag-app",
        "damaged": "damaged: database.dump does not match its checksum",
        "newer": r"made by rag-app 99.0 \(revision 9999\), which is newer",
    }.items():
        with pytest.raises(InvalidInput, match=message):
            commands.restore(tmp_path / name)
    assert not (tmp_path / "new").exists()


def test_a_restore_that_does_not_come_out_right_leaves_nothing(
    world: tuple[Path, Path, UUID, UUID], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file, _, _ = world
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "new"))
    with zipfile.ZipFile(file) as archive:
        tables = json.loads(archive.read("manifest.json"))["tables"]
    lost = changed(file, tmp_path / "lost", tables={**tables, "sources": [22, "0"]})
    with pytest.raises(StoreFailed, match="tables are not what they were when the backup was made: sources"):
        commands.restore(lost)
    assert not any((tmp_path / "new").iterdir())


def test_a_database_of_an_earlier_version_is_backed_up_by_that_version(
    new_database: NewPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = new_database()
    migrating.downgrade(server.owner_url, MIGRATIONS, "0026")
    monkeypatch.setenv("RAG_VECTOR_STORE", "postgres")
    monkeypatch.setenv("RAG_HOME", str(tmp_path))
    monkeypatch.setenv("RAG_DATABASE_URL", server.app_url)
    monkeypatch.setenv("RAG_DATABASE_OWNER_URL", server.owner_url)
    with pytest.raises(
        Misconfigured, match=r"at schema revision 0026, .*: make the backup with the version of rag_app"
    ):
        commands.backup(tmp_path / "early.ragbackup")
    assert not any(tmp_path.glob("*early*"))


def test_a_backup_that_fails_leaves_no_file(
    world: tuple[Path, Path, UUID, UUID], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _, _, _ = world
    with private_postgres(home / "postgres") as server:
        monkeypatch.setenv("RAG_DATABASE_URL", server.app_url)
        monkeypatch.setenv("RAG_DATABASE_OWNER_URL", server.owner_url)
        with pytest.raises(Misconfigured, match=r"row-level security hides rows.*RAG_DATABASE_BACKUP_URL.*BYPASSRLS"):
            commands.backup(tmp_path / "as-owner")
        assert not any(tmp_path.iterdir())
        asked(
            server.superuser_url,
            "CREATE ROLE rag_backup LOGIN BYPASSRLS PASSWORD 'b'",
            "GRANT pg_read_all_data TO rag_backup",
            "GRANT CONNECT ON DATABASE rag TO rag_backup",
        )
        monkeypatch.setenv("RAG_DATABASE_BACKUP_URL", f"postgresql://rag_backup:b@{server.app_url.rpartition('@')[2]}")
        commands.backup(tmp_path / "as-told")
        assert zipfile.ZipFile(tmp_path / "as-told").testzip() is None
        with pytest.raises(Misconfigured, match="the database is not empty, it has"):
            commands.restore(tmp_path / "as-told")
