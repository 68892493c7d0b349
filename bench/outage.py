"""How long a server with a private PostgreSQL is without it, after a kill -9: `python -m bench.outage [TIMES]`.

A server of its own in a temporary folder, on this machine. Seconds from the kill to the first request that is answered.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx


def main(times: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, said = Path(folder) / "home", Path(folder) / "said"
        told = "for this measurement, and long enough for HS256"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAG_")}
        environment |= {"RAG_HOME": str(home), "RAG_JWT_SECRET": told}
        command = [str(Path(sys.executable).with_name("rag-app")), "serve", "--port", "0"]
        with said.open("w") as log:
            server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)  # noqa: S603
        try:
            while not (found := re.search(r"^rag-app on (\S+) ", said.read_text(), re.MULTILINE)):
                time.sleep(0.1)
            ready = f"{found[1]}/health/ready"
            until_ready(ready)
            for number in range(times):
                pid = int((home / "postgres/cluster/data/postmaster.pid").resolve().read_text().splitlines()[0])
                killed = time.perf_counter()
                os.kill(pid, signal.SIGKILL)
                while httpx.get(ready, timeout=60).status_code == 200:
                    pass
                until_ready(ready)
                sys.stdout.write(f"kill {number + 1}: ready again after {time.perf_counter() - killed:.2f} s\n")
        finally:
            server.terminate()
            server.wait(60)


def until_ready(url: str) -> None:
    while True:
        try:
            if httpx.get(url, timeout=60).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.02)


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["3"])[0]))
