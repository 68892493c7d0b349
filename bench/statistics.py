"""`python -m bench.statistics [file.json]`: how long the figures of a month of 10,000 messages take over HTTP.

One worker of the real server, one client after the other request, on a PostgreSQL of its own. `cpu` is what PostgreSQL used
for a request; how long that takes depends on who else wants the processor. The file gets the body.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from bench.figures import Timing, number
from bench.progress import say
from bench.serving import SECRET
from rag_app.access.tokens import issue_token
from rag_app.application import open_application
from rag_app.database.migrate import upgrade
from rag_app.database.private import PrivatePostgres, private_postgres
from rag_app.database.urls import DatabaseUrls
from rag_app.domain.resources import resource_folder
from rag_app.settings import Settings
from tests.integration.generated_month import SINCE, UNTIL, counted, generate, load

REQUESTS = 50  # fewer than an administrator may send in a minute
LIMIT_MS = 300.0


def main() -> int:
    home = Path(tempfile.mkdtemp(prefix="rag-bench-"))
    try:
        home.chmod(0o755)
        with private_postgres(home / "postgres") as server:
            upgrade(server.owner_url, server.app_url, resource_folder("migrations"))
            os.environ |= {
                "RAG_DATABASE_URL": server.app_url, "RAG_DATABASE_OWNER_URL": server.owner_url,
                "RAG_HOME": str(home), "RAG_JWT_SECRET": SECRET, "RAG_LOG_LEVEL": "warning",
            }  # fmt: skip
            asyncio.run(_fill(server))
            return _measure(home)
    finally:
        shutil.rmtree((home / "postgres" / "cluster").resolve(), ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)


async def _fill(server: PrivatePostgres) -> None:
    urls = DatabaseUrls(server.app_url, server.owner_url, private=True)
    async with open_application(Settings(), urls) as application:  # builds indexes, adds versions of prompts
        await load(application.database, generate())


def _measure(home: Path) -> int:
    generated = generate()
    token = issue_token(str(generated.administrator), SECRET, audience="authenticated")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "rag_app", "serve", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command)  # noqa: S603
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}) as client:
            _wait(client, process)
            at = f"/api/admin/lexybrain/rag/stats?from={SINCE}&to={UNTIL}"
            body = client.get(at, timeout=60).raise_for_status()
            for _ in range(5):
                client.get(at).raise_for_status()
            before, times = cpu_ms(home), []
            for _ in range(REQUESTS):
                started = time.perf_counter()
                client.get(at).raise_for_status()
                times.append(1000 * (time.perf_counter() - started))
            cpu = (cpu_ms(home) - before) / REQUESTS
    finally:
        process.terminate()
        process.wait(20)
    if body.json() != counted(generated, SINCE, UNTIL):
        say("the figures do not agree with a count by hand")
        return 1
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(body.content)
    timing, load_average = Timing(tuple(times)), os.getloadavg()[0]
    say(
        f"{REQUESTS} requests, p50 / p95 {timing} ms; PostgreSQL's cpu {number(cpu)} ms each;"
        f" {os.cpu_count()} processors, load average {load_average:.1f}"
    )
    return 0 if timing.p95 <= LIMIT_MS else 1


def _wait(client: httpx.Client, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            client.get("/health/live")
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError("the server does not start")


def cpu_ms(home: Path) -> float:
    """Of PostgreSQL's processes, ended ones included."""
    (file,) = (home / "postgres" / "cluster").resolve().rglob("postmaster.pid")
    parent, used = file.read_text().split()[0], 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == parent:
            used += int(fields[11]) + int(fields[12])
        elif stat.parent.name == parent:
            used += int(fields[13]) + int(fields[14])
    return 1000 * used / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
