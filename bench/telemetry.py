"""`python -m bench.telemetry`: what telemetry costs. Two servers over one database, one with all of it on, take turns.

Requests a second of rounds that alternate, and the processor time that a worker takes for a request, which says the same
with less noise. A model by script and a collector of traces answer from a process of their own.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from bench.figures import median
from bench.serving import SECRET, Connection, Service, _Serving
from rag_app.access.tokens import issue_token
from rag_app.application import open_application
from rag_app.console.demo import load_samples
from rag_app.database.migrate import upgrade
from rag_app.database.private import private_postgres
from rag_app.database.urls import DatabaseUrls
from rag_app.domain.resources import resource_folder
from rag_app.settings import Settings

ROUNDS = int(os.environ.get("BENCH_ROUNDS") or 15)
CLIENTS = 8
USERS = 400
LIMIT = 0.05
"""Of throughput, at most."""
_OFF = {"RAG_LOG_FORMAT": "text", "RAG_METRICS": "false", "RAG_TRACES": "none"}
_ON = {"RAG_LOG_FORMAT": "json", "RAG_METRICS": "true", "RAG_TRACES": "otlp"}
_ANSWER = {
    "id": "scripted", "object": "chat.completion", "created": 0, "model": "scripted",
    "choices": [{
        "index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "It is in demand [Source 1]. Others are not [Source 2]."},
    }],
    "usage": {"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920},
}  # fmt: skip
_KINDS = {
    "POST /api/rag/search": ("/api/rag/search", "query_text", 160),
    "POST /api/lexybrain/rag": ("/api/lexybrain/rag", "message", 64),
}
"""The path, where the text goes, requests a round."""


@dataclass(slots=True)
class Contestant:
    service: Service
    worker: int
    rates: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, list[float]] = field(default_factory=dict)

    def seconds(self) -> float:
        """Of processor time that the worker has taken."""
        fields = Path(f"/proc/{self.worker}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def round(self, kind: str, texts: Sequence[str]) -> None:
        path, name, requests = _KINDS[kind]
        waiting = iter([texts[number % len(texts)] for number in range(requests)])
        used, started = self.seconds(), perf_counter()

        async def client() -> None:
            async with Connection.to(self.service.port) as connection:
                for text in waiting:
                    body = json.dumps({name: text}).encode()
                    status, said = await connection.post(path, next(self.service.users), body)
                    if status != 200:
                        raise RuntimeError(f"{self.service.name}: {status} {said[:500]!r}")

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        self.rates.setdefault(kind, []).append(requests / (perf_counter() - started))
        self.processor.setdefault(kind, []).append(1000 * (self.seconds() - used) / requests)


async def measure() -> bool:
    """Whether the limit held."""
    texts = [f"What is the demand for {each} rings on Etsy?" for each in ("gold", "velvet", "silver", "boho", "old")]
    headers = await _users()
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(_beside())
        os.environ |= {
            "RAG_LLM": "openai_like", "RAG_LLM_API_BASE": f"http://127.0.0.1:{port}/v1", "RAG_LLM_MODEL": "scripted",
            "RAG_LLM_INPUT_PRICE": "0", "RAG_LLM_OUTPUT_PRICE": "0",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        }  # fmt: skip
        command = [sys.executable, "-m", "rag_app", "serve", "--workers", "1"]
        contestants = []
        for name, chosen in (("off", _OFF), ("on", _ON)):
            service = await stack.enter_async_context(_Serving(name, "", command, chosen, headers))
            contestants.append(Contestant(service, _child(service.process.pid)))
        for kind in _KINDS:
            for number in range(ROUNDS + 1):
                for each in contestants if number % 2 else reversed(contestants):
                    await each.round(kind, texts)
                    if not number:  # to warm up
                        each.rates[kind].clear()
                        each.processor[kind].clear()
    return _shown(*contestants)


def _shown(off: Contestant, on: Contestant) -> bool:
    held = True
    sys.stdout.write(f"{ROUNDS} rounds each, {CLIENTS} clients. On: JSON log, metrics, traces by default to OTLP.\n")
    for kind in _KINDS:
        rates = [median(each.rates[kind]) for each in (off, on)]
        pairs = median([after / before for before, after in zip(off.rates[kind], on.rates[kind], strict=True)])
        used = [median(each.processor[kind]) for each in (off, on)]
        held = held and pairs > 1 - LIMIT
        sys.stdout.write(
            f"{kind}: {rates[0]:.0f} -> {rates[1]:.0f} requests/s (median of pairs {pairs:.3f}); "
            f"worker {used[0]:.2f} -> {used[1]:.2f} ms of processor a request ({used[1] / used[0]:.3f})\n"
        )
    return held


async def _users() -> list[str]:
    """Of the sample marketplace, as headers with their tokens."""
    settings = Settings()
    assert settings.database.url and settings.database.owner_url  # noqa: S101 - set below
    urls = DatabaseUrls(settings.database.url.get_secret_value(), settings.database.owner_url.get_secret_value(), True)
    async with open_application(settings, urls) as application:
        application.indexes = {name: application.indexes[name] for name in ("org_knowledge", "marketplace")}
        await load_samples(application)
        aurora, headers = await application.people.organization("aurora"), []
        for number in range(USERS):
            user = await application.people.create_user(f"bench {number}", plan="growth")
            await application.people.add_member(aurora, user)
            headers.append(f"Authorization: Bearer {issue_token(str(user.id), SECRET, audience='authenticated')}\r\n")
    return headers


def _child(parent: int) -> int:
    """The worker of a server."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return max(map(int, children))


@asynccontextmanager
async def _beside() -> AsyncIterator[int]:
    """The port of the process that plays the model and the collector."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.telemetry", "beside", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout  # noqa: S101 - a pipe
    try:
        yield int(await process.stdout.readline())
    finally:
        process.terminate()
        await process.wait()


async def _play() -> None:
    answer = json.dumps(_ANSWER).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                body = answer if b"completions" in head else b""
                kind = b"application/json" if body else b"application/x-protobuf"
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(body), body)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> int:
    home = Path(tempfile.mkdtemp(prefix="rag-bench-"))
    try:
        home.chmod(0o755)
        with private_postgres(home / "postgres") as server:
            upgrade(server.owner_url, server.app_url, resource_folder("migrations"))
            os.environ |= {
                "RAG_HOME": str(home), "RAG_DATABASE_URL": server.app_url, "RAG_DATABASE_OWNER_URL": server.owner_url,
                "RAG_VECTOR_STORE": "postgres", "RAG_JWT_SECRET": SECRET,
            }  # fmt: skip
            return 0 if asyncio.run(measure()) else 1
    finally:
        shutil.rmtree((home / "postgres" / "cluster").resolve(), ignore_errors=True)  # may lie outside of the folder
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["beside"]:
        asyncio.run(_play())
    else:
        sys.exit(main())
