"""Runs `rag-app` in processes whose imports are done: `python -m tests.integration.forking FOLDER`.

Importing LlamaIndex takes the command three seconds. Here one process imports, and forks itself for each command: a
JSON line on stdin has its arguments, folder, environment and the files for its output. Its process id is printed and,
when it has ended, its exit status. Vectors of chunks are remembered in FOLDER.
"""

import json
import os
import sys
from pathlib import Path

import rag_app.application  # noqa: F401  what most commands need
from rag_app.console import cli
from rag_app.documents import worker
from tests.remembered import remember

IMPATIENT = {"_HEARTBEAT": 0.3, "_SILENT": 2.0, "_POLL": 0.2, "_PAUSE": 0}
"""How soon a worker takes another one to be gone: the next one need not wait as long as in production."""


def become(arguments: list[str], folder: str, environment: dict[str, str], out: str, err: str) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        os.dup2(os.open(path, flags), number)
    sys.argv = ["rag-app", *arguments]
    cli.main()


def main() -> None:
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            become(**json.loads(line))
            return
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    vars(worker).update(IMPATIENT)
    with remember(Path(sys.argv[1])):
        main()
