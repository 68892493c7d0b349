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
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import httpx

from rag_app.application import Application, open_application
from rag_app.console.printing import answer_text, progress_bar, render_text, summary_text
from rag_app.console.sample_dates import move_dates, move_value, whole_weeks_between
from rag_app.console.serving import claim_port, http_url, serve_at
from rag_app.console.users import issue
from rag_app.database.urls import database_urls
from rag_app.documents.documents import Document
from rag_app.documents.ingest import Progress, Summary
from rag_app.documents.reading import documents_below
from rag_app.domain import (
    PUBLIC_ORGANIZATION,
    Answer,
    InvalidInput,
    JsonObject,
    Misconfigured,
    Scope,
    resource_folder,
    source_id,
)
from rag_app.retrieval.index import IndexSpec
from rag_app.settings import Settings
from rag_app.surfaces.library.rag import Rag, target_of
from rag_app.surfaces.pages.signing_in import DEMO_ADMINISTRATOR, DEMO_MEMBER, DEMO_ORGANIZATION, DEMO_OTHER

NAMES = {"aurora": DEMO_ORGANIZATION, "birch": "Birch"}
MEMBER = DEMO_MEMBER
USERS = {MEMBER: "aurora", DEMO_OTHER: "birch", DEMO_ADMINISTRATOR: "aurora"}
ANYBODYS = "aurora"
"""The organization of whoever asks without a token, on the paths that let them in."""
_PLAN = "pro"  # of every sample user: the 50 messages of plan free are used up in an afternoon
_SECONDS_TO_SERVE = 60


def run_demo(*, check: bool, fixed: bool = False) -> int:
    """With `fixed` dates the samples are loaded as they are written: January 2026.

    The exit status: 0, or 1 if `check` found something that is not as it should be."""
    settings = Settings()
    api, database = settings.api, settings.database
    _say(
        "Connecting to PostgreSQL ..." if database.url else f"Starting PostgreSQL, with its data in {database.home} ..."
    )
    with database_urls(settings) as urls:

        async def load_and_ask() -> tuple[list[str], UUID, date | None]:
            async with open_application(settings, urls) as application:
                today = None if fixed else await application.calendar.today(Scope(frozenset({PUBLIC_ORGANIZATION})))
                amiss = await load_samples(application, today)
                amiss += await ask_samples(application)
                return amiss, (await application.people.user(MEMBER)).id, today

        amiss, user, today = asyncio.run(load_and_ask())
        try:
            claimed = claim_port(api.host, api.port)
        except Misconfigured:  # the wanted port is taken; any other one will do
            claimed = claim_port(api.host, 0)
        with claimed as claim:
            url, token = http_url(*claim.getsockname()[:2]), issue(settings, user, hours=24)
            os.environ["RAG_DEFAULT_ORGANIZATION"] = ANYBODYS  # for the server, which reads the settings again
            if settings.pages.shown == "on":
                os.environ["RAG_PAGES"] = "demo"
            names = {"member": MEMBER, "anybodys": ANYBODYS, "requests": _REQUESTS, "dumps": json.dumps}
            _say(render_text("invitation.txt", url=url, token=token, **names) + "\n")
            if check:
                amiss += _serve_and_check(claim, url, token, today)
            for problem in amiss:
                print(f"FAILED: {problem}", file=sys.stderr)
            if not check:
                _say("Ctrl-C stops it.\n")
                serve_at(Settings(), claim, api.workers)
                return 0
    _say("demo check: " + (f"{len(amiss)} problems" if amiss else "all as it should be"))
    return 1 if amiss else 0


def _say(text: str) -> None:
    print(text, flush=True)  # at once, also into a pipe


async def load_samples(application: Application, today: date | None = None) -> list[str]:
    """Ingest every index's samples; what could not be read.

    With `today`, dates that a manifest marks are moved to its week; without, they are loaded as they are written.
    """
    people = application.people
    _say(f"Loading the sample corpora of two organizations, {' and '.join(NAMES)}:")
    for slug, title in NAMES.items():
        with suppress(InvalidInput):  # it is there already
            await people.create_organization(slug, title)
    for name, slug in USERS.items():
        with suppress(InvalidInput):
            await people.create_user(name, _PLAN, role="admin" if name == DEMO_ADMINISTRATOR else "user")
        await people.add_member(await people.organization(slug), await people.user(name))
    amiss = []
    for spec in application.indexes.values():
        samples = resource_folder("indexes") / spec.name / "samples"
        if not samples.is_dir():  # an index of the operator's own
            continue
        manifest = tomllib.loads((samples / "manifest.toml").read_text("utf-8"))
        entries, dates = manifest["ingest"], manifest.get("dates")
        change = move_dates(dates["week"], today) if dates and today else None
        files = sum(1 for entry in entries for _ in documents_below(samples / entry["path"]))
        total = Summary()
        with progress_bar(f"{spec.name:<16}", files) as progress:
            for entry in entries:
                await _ingest(application, spec, samples, entry, progress, total, change)
        _say(f"  {spec.name:<16} {summary_text(total)}")
        amiss += [f"{spec.name}: {failure}" for failure in total.failed]
    return amiss


async def _ingest(
    application: Application,
    spec: IndexSpec,
    samples: Path,
    entry: dict[str, str],
    progress: Progress,
    total: Summary,
    change: Callable[[Document], Document] | None,
) -> None:
    """An entry of a samples/manifest.toml: what is loaded, and as whose."""
    org, site = entry["organization"], entry.get("site")
    if site:
        with suppress(InvalidInput):  # it is there already
            await application.people.create_site((await application.people.organization(org)).id, site)
    metadata = {key: value for key, value in entry.items() if key in ("source_type", "lang")}
    target = await target_of(application, org, site, entry.get("owner"), entry.get("visibility"), metadata)
    ingestor = await application.ingestor(spec, target)
    if change is not None:
        ingestor.change = change
    await ingestor.ingest([samples / entry["path"]], base=samples, progress=progress, summary=total)


async def ask_samples(application: Application) -> list[str]:
    """Ask each index its demo questions, print the answers, and say what is wrong with them."""
    amiss = []
    for spec in application.indexes.values():
        if not (resource_folder("indexes") / spec.name).is_dir():
            continue
        _say(f"\n=== {spec.name}: {spec.description}")
        judged = (resource_folder("indexes") / spec.name / "judgments.jsonl").read_text("utf-8").splitlines()
        for question in (each for each in map(json.loads, judged) if each.get("demo")):
            text: str = question["text"]
            whose: JsonObject = {key: question.get(key) for key in ("organization", "user", "site")}
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


# Path and body; `shows`: the list of the reply that has something in it, or `nothing`; `anonymous`: without a token.
# Those that the reader is invited to send are `invited`. There is something in the present week for those that are
# `recorded`.
_REQUESTS: list[JsonObject] = json.loads(Path(__file__).with_name("demo_requests.json").read_text("utf-8"))
_WEEK = date(2026, 1, 12)  # that of the dates in requests, as of the files


def _serve_and_check(claim: socket.socket, url: str, token: str, today: date | None) -> list[str]:
    amiss: list[str] = []

    def check() -> None:
        while not multiprocessing.active_children():
            time.sleep(0.1)  # forking a worker is safer while the other threads do nothing
        amiss.extend(_check_replies(url, token, today))
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=check, name="check", daemon=True).start()
    os.environ["RAG_LOG_LEVEL"] = "warning"
    serve_at(Settings(), claim, workers=1)
    return amiss


def _check_replies(url: str, token: str, today: date | None) -> list[str]:
    with httpx.Client(base_url=url, timeout=30) as client:
        deadline = time.monotonic() + _SECONDS_TO_SERVE
        while (ready := _send(client, "GET", "/health/ready")).status_code != 200:
            if time.monotonic() > deadline:
                return [f"the server is not ready: {ready.text}"]
            time.sleep(0.2)
        amiss = []
        for each in _REQUESTS:
            path, shows = each["path"], each["shows"]
            headers = {} if each["anonymous"] else {"Authorization": f"Bearer {token}"}
            body = each["body"] if today is None else move_value(each["body"], whole_weeks_between(_WEEK, today), _WEEK)
            reply = _send(client, "POST", path, json=body, headers=headers)
            shown = reply.json().get(shows) if reply.is_success else None
            _say(f"POST {path}: {reply.status_code}, {len(shown or ())} {shows}")
            if shown is None or bool(shown) is each.get("nothing", False):
                amiss.append(f"{path}: {reply.status_code} {reply.text}")
            elif today and each.get("recorded") and reply.json()["answer"].startswith("Nothing is recorded"):
                amiss.append(f"{path}: {reply.json()['answer']}")
        for method, path, status in ("POST", "/api/rag/search", 401), ("GET", "/docs", 200):
            if (got := _send(client, method, path).status_code) != status:
                amiss.append(f"{method} {path} without a token got {got} instead of {status}")
    return amiss


def _send(client: httpx.Client, method: str, path: str, **content: Any) -> httpx.Response:
    """The response; with status 503 where nobody answers."""
    try:
        return client.request(method, path, **content)
    except httpx.HTTPError as error:
        return httpx.Response(503, text=str(error))
