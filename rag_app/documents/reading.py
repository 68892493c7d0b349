"""Reads files in separate processes with limits, so that no file can stop, fill or break an ingest.

A child imports the readers and nothing else of the product, and gets no secret from its environment. It is a program
of its own, not one of `multiprocessing`, which forks beside threads or imports the caller's script once more. It ends
with its parent, however that ends: the kernel sends it SIGIO when the other end of a pipe is gone.

Files are read ahead of those that are asked for, by all children in turn, as far as the sockets' buffers hold it.
"""

import fcntl
import hashlib
import json
import logging
import os
import pickle
import resource
import signal
import stat
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from io import BufferedReader
from itertools import chain
from pathlib import Path
from socket import socket, socketpair
from subprocess import DEVNULL, Popen
from typing import NamedTuple

from rag_app.documents import limits
from rag_app.documents.documents import SIDECAR, Document, Documents
from rag_app.documents.limits import Limits
from rag_app.domain import RowMapping, UnreadableDocument

_AHEAD = 16  # files sent to each child before the first is asked for
_GRACE = 30.0  # seconds beyond its own limit after which a child counts as stopped: it may still be starting
_NO_MEMORY = 3  # exit status
_PASSED_ON = {"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR"}  # of the environment
_ACCEPTED_CLASSES = {
    ("rag_app.documents.documents", "Document"),
    ("rag_app.documents.documents", "Passage"),
    *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
}


class File(NamedTuple):
    """`shown` is its name in errors; its sidecar must not be a link out of `root`.

    With `rows`, each row of a table in it is a document. `digest` was that of the file before it was read.
    """

    path: Path
    shown: str
    origin: str
    root: Path
    rows: RowMapping | None = None
    digest: str | None = None


def digest_of(file: File, said: bytes) -> str | None:
    """The digest of the file, its sidecar and `said`; None if there is no such file or it cannot be read."""
    digest, beside = hashlib.sha256(said), file.path.with_name(f"{file.path.name}{SIDECAR}")
    try:
        for path in (file.path, beside) if os.path.lexists(beside) else (file.path,):
            with open_file(path) as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    except OSError:
        return None
    return digest.hexdigest()


def open_file(path: Path) -> BufferedReader:
    """Raises OSError also for what is no file: a device or a pipe may never end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise OSError("not a regular file")


def is_utf8(path: str) -> bool:
    """Whether the bytes of this path are UTF-8. The database stores no other.

    >>> is_utf8("é.txt"), is_utf8(os.fsdecode(b"\\xe9.txt"))
    (True, False)
    """
    return not any("\ud800" <= character <= "\udfff" for character in path)


def documents_below(path: Path) -> Iterator[Path]:
    """The files that `path`, a folder or a file, offers for reading, in sorted order.

    Left out: hidden files and folders, sidecars, `manifest.toml`, pipes and devices, links that lead out of the folder,
    and links to files that are offered as well. Kept are files of an unsupported type, folders that cannot be listed, and
    links to what is not there: reading says what is wrong with them.
    """
    if not path.is_dir():
        yield path
        return
    root = path.resolve()
    found: list[Path] = []
    links: list[Path] = []
    for folder, folders, files in os.walk(path, onerror=lambda error: found.append(Path(error.filename))):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in (Path(folder, name) for name in files):
            if file.name.startswith(".") or file.name.lower().endswith(SIDECAR) or file.name == "manifest.toml":
                continue
            try:
                regular = stat.S_ISREG(file.stat().st_mode)
            except OSError:  # reading says why
                found.append(file)
                continue
            if regular:
                (links if file.is_symlink() else found).append(file)
    targets = {Path(os.path.realpath(file)) for file in found} if links else set()
    for link in sorted(links):
        target = link.resolve()
        if target.is_relative_to(root) and target not in targets:
            targets.add(target)
            found.append(link)
    yield from sorted(found)


class ReaderPool:
    """A pool of reading processes, started on first use and kept for the next ingest."""

    def __init__(self, allowed: Limits, processes: int) -> None:
        self._limits, self._processes = allowed, processes
        self._idle: list[_Child] = []

    def read_all(self, files: Iterable[File]) -> Generator[tuple[File, Documents]]:
        """Each file with its documents, in order; what cannot be read, in whole or in part, is among them as an error.

        The documents of a file are there until the next file is asked for; closing the iterator ends the reading.
        Several threads may read at once, each with an iterator of its own.
        """
        children: list[_Child] = []
        waiting: deque[_Child] = deque()
        try:
            for turn, file in enumerate(files):
                if turn < self._processes:
                    children.append(self._take_child())
                children[turn % self._processes].send(file)
                waiting.append(children[turn % self._processes])
                if len(waiting) == self._processes * _AHEAD:
                    yield from waiting.popleft().next_file()
            while waiting:
                yield from waiting.popleft().next_file()
        finally:
            for child in children:
                if child.unread:
                    child.close()
                else:
                    self._idle.append(child)

    def _take_child(self) -> "_Child":
        with suppress(IndexError):  # none is idle
            while True:
                if (child := self._idle.pop()).lives():
                    return child
        return _Child(self._limits)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class _Child:
    """A process that reads the files it is sent, one after another, and is replaced when it dies."""

    def __init__(self, allowed: Limits) -> None:
        self._limits, self._closed = allowed, False
        self.unread: deque[File] = deque()
        self._start()

    def _start(self) -> None:
        self._requests, theirs = socketpair()
        self._life, lives = socketpair()
        self._requests.settimeout(self._limits.seconds + _GRACE)
        self._answers = self._requests.makefile("rb")
        command = f"from {__name__} import serve; serve()"
        environment = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
        with theirs, lives:
            ends = (theirs.fileno(), lives.fileno())
            self._process = Popen(  # noqa: S603 - this module, by this Python
                [sys.executable, "-P", "-c", command, *map(str, ends), json.dumps(asdict(self._limits))],
                stdin=DEVNULL,
                env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=ends,
                start_new_session=True,  # Ctrl-C is for the parent
            )
        for file in self.unread:
            self._request(file)

    def _request(self, file: File) -> None:
        with suppress(OSError):  # it is dead: who asks for the file finds that out, and sends it to the next
            self._requests.sendall(pickle.dumps((str(file.path), file.shown, str(file.root), file.rows)))

    def lives(self) -> bool:
        return self._process.poll() is None

    def send(self, file: File) -> None:
        self.unread.append(file)
        self._request(file)

    def next_file(self) -> Iterator[tuple[File, Documents]]:
        documents = self._documents()
        yield self.unread[0], documents
        deque(documents, maxlen=0)

    def _documents(self) -> Documents:
        shown = self.unread[0].shown
        try:
            while found := _Unpickler(self._answers).load():
                yield found if isinstance(found, Document) else UnreadableDocument(str(found[0]), str(found[1]))
            self.unread.popleft()
        except Exception as error:  # a child that a file has taken over may say anything
            reason = self._end(stopped=isinstance(error, TimeoutError))
            self.unread.popleft()
            if not self._closed:
                self._start()
            yield UnreadableDocument(shown, reason)

    def _end(self, *, stopped: bool = False) -> str:
        """The reason why the process has ended, by itself or ended here."""
        self._process.kill()
        status = self._process.wait()
        for end in (self._answers, self._requests, self._life):
            end.close()
        if stopped or status == -signal.SIGALRM:
            return f"takes longer than {self._limits.seconds:g} seconds to read (RAG_READ_SECONDS)"
        if status == _NO_MEMORY:
            return f"takes more than {self._limits.memory:,} MB of memory to read (RAG_READ_MEMORY)"
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"the process that read it ended with {how}; it may take {self._limits.memory:,} MB (RAG_READ_MEMORY)"

    def close(self) -> None:
        """A thread that waits for a document gets an error in its place."""
        self._closed = True
        self._end()


class _Unpickler(pickle.Unpickler):
    """Unpickles documents only, so that a child taken over by a file cannot run code here."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ACCEPTED_CLASSES:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a document")
        return super().find_class(module, name)


def serve() -> None:
    """The life of a child: files in, documents out, None behind the last of each file."""
    connection, life, allowed = socket(fileno=int(sys.argv[1])), int(sys.argv[2]), Limits(**json.loads(sys.argv[3]))
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC)  # SIGIO, which ends the process, once the parent is gone
    from rag_app.documents.readers import format_of, read

    logging.disable()  # what parsers say of broken files
    limits.CURRENT = allowed
    for what, most in ((resource.RLIMIT_AS, allowed.memory << 20), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # where the system has no such limit, or a lower one
            resource.setrlimit(what, (most, most))
    requests, answers = connection.makefile("rb"), connection.makefile("wb")
    with suppress(EOFError, OSError):
        while True:
            path, shown, root, rows = pickle.load(requests)  # noqa: S301 - of the parent
            known = format_of(path)
            streamed = known is not None and known.streamed
            documents = _limit_time(read(Path(path), shown, Path(root), rows), allowed.seconds, renewed=streamed)
            for found in chain(documents, (None,)):
                pickle.dump((found.path, found.reason) if isinstance(found, UnreadableDocument) else found, answers)
                answers.flush()


def _limit_time(documents: Documents, seconds: float, *, renewed: bool) -> Documents:
    """The same documents. SIGALRM ends the process if all of them, or each if `renewed`, take longer than `seconds`."""
    left = seconds
    while True:
        signal.setitimer(signal.ITIMER_REAL, left)
        try:
            found = next(documents)
        except StopIteration:
            break
        except UnreadableDocument as error:
            found = error
        except MemoryError:
            os._exit(_NO_MEMORY)
        rest, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        left = seconds if renewed else rest
        yield found
    signal.setitimer(signal.ITIMER_REAL, 0)
