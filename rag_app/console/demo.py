"""What `rag-app demo` runs: the sample corpora, questions to them, and the API, with nothing to configure."""

import asyncio
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
import tomllib
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import fields
from threading import Thread
from typing import Any
from uuid import UUID

from rag_app.application import Application, database_urls, open_application
from rag_app.console.access import issue
from rag_app.console.printing import answer_text, progress_bar, summary_text
from rag_app.console.serving import claim_port, http_url, serve_at
from rag_app.documents.ingest import Summary
from rag_app.documents.readers import documents_below
from rag_app.domain import PUBLIC_ORGANIZATION, Answer, InvalidInput, Misconfigured, resource_folder, source_id
from rag_app.retrieval.index import IndexSpec
from rag_app.settings import Settings
from rag_app.surfaces.library.rag import Rag, target_of

NAMES = {"aurora": "Aurora", "birch": "Birch"}
MEMBER = "mila@aurora.example"
USERS = {MEMBER: "aurora", "jonas@birch.example": "birch"}
ANYBODYS = "aurora"
"""The organization of whoever asks without a token, on the paths that let them in."""
_SECONDS_TO_SERVE = 60


def run_demo(*, check: bool) -> int:
    """The exit status: 0, or 1 if `check` found something that is not as it should be."""
    settings = Settings()
    api, database = settings.api, settings.database
    _say(
        "Connecting to PostgreSQL ..." if database.url else f"Starting PostgreSQL, with its data in {database.home} ..."
    )
    with database_urls(settings) as urls:

        async def load_and_ask() -> tuple[list[str], UUID]:
            async with open_application(settings, urls) as application:
                amiss = await load_samples(application)
                amiss += await ask_samples(application)
                return amiss, (await application.people.user(MEMBER)).id

        amiss, user = asyncio.run(load_and_ask())
        try:
            claimed = claim_port(api.host, api.port)
        except Misconfigured:  # the wanted port is taken; any other one will do
            claimed = claim_port(api.host, 0)
        with claimed as claim:
            url, token = http_url(*claim.getsockname()[:2]), issue(settings, user, hours=24)
            os.environ["RAG_DEFAULT_ORGANIZATION"] = ANYBODYS  # for the server, which reads the settings again
            _say(_invitation(url, token))
            if check:
                amiss += _serve_and_check(claim, url, token)
            for problem in amiss:
                print(f"AMISS: {problem}", file=sys.stderr)
            if not check:
                _say("Ctrl-C stops it.\n")
                serve_at(Settings(), claim, api.workers)
                return 0
    _say("demo check: " + (f"{len(amiss)} problems" if amiss else "all as it should be"))
    return 1 if amiss else 0


def _say(text: str) -> None:
    print(text, flush=True)  # at once, also into a pipe


async def load_samples(application: Application) -> list[str]:
    """Ingest every index's samples; what could not be read."""
    people = application.people
    _say(f"Loading the sample corpora of two organizations, {' and '.join(NAMES)}:")
    for slug, title in NAMES.items():
        with suppress(InvalidInput):  # it is there already
            await people.create_organization(slug, title)
    for name, slug in USERS.items():
        with suppress(InvalidInput):
            await people.create_user(name)
        await people.add_member(await people.organization(slug), await people.user(name))
    amiss = []
    for spec in application.indexes.values():
        samples = resource_folder("indexes") / spec.name / "samples"
        entries = tomllib.loads((samples / "manifest.toml").read_text("utf-8"))["ingest"]
        files = sum(1 for entry in entries for _ in documents_below(samples / entry["path"]))
        total = Summary()
        with progress_bar(f"{spec.name:<16}", files) as progress:
            for entry in entries:
                total = _added(
                    total,
                    await _ingest(
                        application, spec, entry, lambda path, now, before=total: progress(path, _added(before, now))
                    ),
                )
        _say(f"  {spec.name:<16} {summary_text(total)}")
        amiss += [f"{spec.name}: {failure}" for failure in total.failed]
    return amiss


async def _ingest(application: Application, spec: IndexSpec, entry: dict[str, str], progress: Any) -> Summary:
    """An entry of a samples/manifest.toml: what is loaded, and as whose."""
    org, site = entry["organization"], entry.get("site")
    if site:
        with suppress(InvalidInput):  # it is there already
            await application.people.create_site((await application.people.organization(org)).id, site)
    metadata = {key: value for key, value in entry.items() if key in ("source_type", "lang")}
    target = await target_of(application, org, site, entry.get("owner"), entry.get("visibility"), metadata)
    samples = resource_folder("indexes") / spec.name / "samples"
    ingestor = await application.ingestor(spec, target)
    return await ingestor.ingest([samples / entry["path"]], base=samples, progress=progress)


def _added(one: Summary, other: Summary) -> Summary:
    return Summary(*(getattr(one, each.name) + getattr(other, each.name) for each in fields(Summary)))


async def ask_samples(application: Application) -> list[str]:
    """Ask each index its demo questions, print the answers, and say what is wrong with them."""
    amiss = []
    for spec in application.indexes.values():
        _say(f"\n=== {spec.name}: {spec.description}")
        judged = (resource_folder("indexes") / spec.name / "judgments.jsonl").read_text("utf-8").splitlines()
        for question in (each for each in map(json.loads, judged) if each.get("demo")):
            text: str = question["text"]
            whose: dict[str, Any] = {key: question.get(key) for key in ("organization", "user", "site")}
            answer = await Rag(application).ask(text, index=spec.name, **whose)
            _say(f"\nQ ({whose['organization']}): {text}\nA: {answer_text(answer)}")
            owners = (await application.people.organization(whose["organization"])).id, PUBLIC_ORGANIZATION
            expected = {source_id(org, spec.name, name) for org in owners for name in question["sources"]}
            if problem := _problem(answer, expected):
                amiss.append(f"{spec.name}: {text}: {problem}")
    return amiss


def _problem(answer: Answer, expected: set[UUID]) -> str | None:
    """What is wrong with an answer to a question that the `expected` sources answer, or none."""
    if answer.refused:
        return "was not answered" if expected else None
    if not expected:
        return "was answered, though the corpus does not say"
    cited = {citation.hit.source_id for citation in answer.citations}
    return None if cited & expected else "does not cite the source that answers it"


def _invitation(url: str, token: str) -> str:
    return f"""
The API is on {url}, its documentation on {url}/docs. As {MEMBER}, a member of aurora:

curl -s {url}/api/rag/search -H 'Content-Type: application/json' -H 'Authorization: Bearer {token}' \\
  -d '{json.dumps(SEARCH)}'

curl -s {url}/api/rag/answer -H 'Content-Type: application/json' -H 'Authorization: Bearer {token}' \\
  -d '{json.dumps(ANSWER)}'

curl -s {url}/api/lexybrain/rag -H 'Content-Type: application/json' -H 'Authorization: Bearer {token}' \\
  -d '{json.dumps(MESSAGE)}'

For trying out, whoever sends no token is a member of {ANYBODYS} in /owner (RAG_DEFAULT_ORGANIZATION):

curl -s {url}/owner/ask -H 'Content-Type: application/json' \\
  -d '{json.dumps(OWNER_ASK)}'
"""


SEARCH = {
    "query_text": "What did the customer say about pricing?",
    "top_k": 3,
    "filters": {"source_type": "transcript"},
}
ANSWER = {"query_text": "What did the customer say about pricing?"}
MESSAGE = {"message": "Why does the keyword velvet ring box grow?"}
OWNER_ASK: dict[str, Any] = {"question": "What services did customers book this week?", "limit": 5}


_CHECKS: tuple[tuple[str, dict[str, Any], str, bool], ...] = (
    ("/api/rag/search", SEARCH, "results", True),
    ("/api/rag/answer", ANSWER, "citations", True),
    ("/api/lexybrain/rag", MESSAGE, "sources", True),
    ("/owner/ask", OWNER_ASK, "sources", True),
    (
        "/owner/search",
        {
            "query": "haircut booking",
            "date_from": "2026-01-10",
            "date_to": "2026-01-15",
            "source_types": ["call_transcript"],
            "min_similarity": 0.4,
        },
        "results",
        True,
    ),
    (
        "/owner/ask",
        {"question": "What did this customer request in their calls?", "customer_id": 42, "limit": 10},
        "sources",
        True,
    ),
    ("/owner/ask", {"question": "What is the weather like?", "min_similarity": 0.9}, "sources", False),
)
"""Path and body of a request, and which list of the reply is to have something in it, or nothing."""


def _serve_and_check(claim: socket.socket, url: str, token: str) -> list[str]:
    amiss: list[str] = []

    def check() -> None:
        while not multiprocessing.active_children():
            time.sleep(0.1)  # forking a worker is safer while the other threads do nothing
        amiss.extend(_check_replies(url, token))
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=check, name="check", daemon=True).start()
    os.environ["RAG_LOG_LEVEL"] = "warning"
    serve_at(Settings(), claim, workers=1)
    return amiss


def _check_replies(url: str, token: str) -> list[str]:
    deadline = time.monotonic() + _SECONDS_TO_SERVE
    while (ready := _request(f"{url}/health/ready"))[0] != 200:
        if time.monotonic() > deadline:
            return [f"the server is not ready: {ready}"]
        time.sleep(0.2)
    amiss = []
    for path, body, shows, full in _CHECKS:
        status, reply = _request(url + path, body, None if path.startswith("/owner/") else token)
        shown = reply.get(shows)
        _say(f"POST {path}: {status}, {len(shown or ())} {shows}")
        if status != 200 or shown is None or bool(shown) != full:
            amiss.append(f"{path}: {status} {reply}")
    status, _ = _request(url + "/api/rag/search", SEARCH)
    if status != 401:
        amiss.append(f"a request without a token got {status} instead of 401")
    if _request(f"{url}/docs")[0] != 200:
        amiss.append("no docs page")
    return amiss


def _request(url: str, body: dict[str, Any] | None = None, token: str | None = None) -> tuple[int, dict[str, Any]]:
    """Status and JSON body; status 0 where nobody answers."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            text = response.read()
            return response.status, json.loads(text) if text.startswith(b"{") else {}
    except urllib.error.HTTPError as error:
        return error.code, {}
    except OSError as error:
        return 0, {"error": str(error)}
