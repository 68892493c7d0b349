"""The command as people type it: every subcommand, what it prints where, and how it fails."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from qdrant_client import QdrantClient

from rag_app.console import cli
from tests.conftest import NewPostgres
from tests.integration.conftest import ON_DEFAULT, Forking
from tests.integration.service import SECRET, bearer
from tests.waiting import PATIENCE, children_of, is_gone, wait_for

COMMAND = Path(sys.executable).with_name("rag-app")
INDEX = "org_knowledge"
ON_QDRANT = pytest.mark.parametrize("environment", ["qdrant"], indirect=True)


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        assert self.status in (0, 2), self.err
        return json.loads(self.out)


def run(*arguments: object, folder: Path, **variables: str) -> Result:
    """One process of the real command; it takes about three seconds, nearly all of them LlamaIndex's import."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], check=False, cwd=folder, env={**os.environ, **variables}, capture_output=True,
        text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


Run = Callable[..., Result]


@pytest.fixture
def rag(forking: Forking, tmp_path: Path) -> Run:
    """The command in a folder and a process of its own; it fails the test unless it ends with `status`."""

    def rag(*arguments: object, status: int = 0, **variables: str) -> Result:
        running = forking.start(arguments, tmp_path, **variables)
        done = Result(running.wait(), running.out, running.err)
        assert done.status == status, f"{arguments}: {done}"
        return done

    return rag


@pytest.fixture
def main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command without a process of its own: for the many ways to fail."""
    monkeypatch.chdir(tmp_path)

    def main(*arguments: object, **variables: str) -> Result:
        with monkeypatch.context() as patch:
            patch.setattr("sys.argv", ["rag-app", *map(str, arguments)])
            for name, value in variables.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as left:
                cli.main()
        out, err = capsys.readouterr()
        return Result(int(left.value.code or 0), out, err)

    return main


def assert_fails(result: Result, message: str, status: int = 1) -> None:
    """One line on stderr that says what is wrong, nothing on stdout."""
    assert (result.status, result.out) == (status, "")
    assert re.fullmatch(r"error: [^\n]+\n", result.err), result.err
    assert message in result.err and "Traceback" not in result.err


@pytest.fixture
def slug() -> str:
    return f"cli-{uuid4().hex[:12]}"


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "docs with a space"
    folder.mkdir()
    (folder / "opening.md").write_text(
        "---\ndate: 2026-02-03\nauthor: Ada\nuri: https://sky.example/hours\n---\n# Opening hours\n\n"
        "The observatory opens at nine in the evening. It closes at two in the morning.\n",
        "utf-8",
    )
    (folder / "prix.txt").write_text("Une visite guidée de l'observatoire coûte douze euros par personne.\n", "utf-8")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnot much of one")
    return folder


# --- what is understood without a database


def test_help_does_not_wait_for_libraries() -> None:
    program = (
        "import sys; sys.argv = ['rag-app', '--help']\n"
        "from rag_app.console.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as left:\n"
        "    heavy = {'llama_index', 'sqlalchemy', 'litestar', 'numpy', 'pydantic', 'onnxruntime'} & set(sys.modules)\n"
        "    sys.exit(left.code or (f'imported: {heavy}' if heavy else 0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    for name in (
        "demo",
        "serve",
        "db",
        "ingest",
        "search",
        "ask",
        "sources",
        "indexes",
        "orgs",
        "users",
        "plans",
        "keys",
        "token",
        "evaluate",
        "doctor",
    ):
        assert re.search(rf"^  {name} +[A-Z].*\.$", done.stdout, re.MULTILINE), name


COMMANDS = [
    "demo", "serve", "backup", "restore", "retention", "db", "db upgrade", "ingest", "search", "ask", "sources", "sources list", "sources show",
    "sources delete", "import", "import llamaindex", "worker", "indexes", "indexes list", "indexes rebuild", "indexes switch", "indexes rollback", "indexes drop",
    "indexes move",
    "orgs", "orgs create", "orgs list", "orgs add-member", "orgs remove-member", "orgs add-site", "orgs delete", "orgs set-budget", "orgs set-limits", "orgs set-time-zone",
    "groups", "groups create", "groups list", "groups add", "groups remove", "groups delete",
    "users", "users create", "users list", "users set-plan", "users set-role", "users export", "users erase", "training", "training export", "plans", "plans list", "plans set",
    "keys", "keys create", "keys list", "keys revoke", "keys set-limits", "token", "evaluate", "doctor",
]  # fmt: skip


def test_the_version(main: Run) -> None:
    assert main("--version").out == f"{version('rag-app')}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, main: Run) -> None:
    shown = main(*command.split(), "--help")
    assert (shown.status, shown.err) == (0, "")
    usage, explanation = shown.out.strip().split("\n\n")[:2]
    assert usage.startswith(f"Usage: rag-app {command} ") and re.match(r"  [A-Z].*[.;]", explanation)
    for line in shown.out.splitlines():
        assert not re.fullmatch(r"  (-\w, )?--?[\w-]+( \S+)?( +\[required\])?", line), f"no help for {line}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("frobnicate", "No such command 'frobnicate'; see `rag-app --help`"),
        ("sources", "Missing command; see `rag-app sources --help`"),
        ("search", "Missing argument 'Q'; see `rag-app search --help`"),
        ("calibrate --org o", "Missing option '--index' / '-i'; see"),
        ("search x -i book -o o --top-k 0", "Invalid value for '--top-k' / '-k': Input should be greater than"),
        ("serve --port 65536", "Invalid value for '--port'"),
        ("ask x -i book -o o --verbose", "No such option: --verbose"),
        ("ingest x", "give --index and --org; only --rows --dry-run needs no index"),
        ("ingest x -i book --rows", "give --org; only"),
    ],
)
def test_a_command_line_that_is_not_understood(arguments: str, message: str, main: Run) -> None:
    assert_fails(main(*arguments.split()), message, status=2)


def test_usage_errors_of_a_real_process(tmp_path: Path) -> None:
    assert_fails(run("ask", "--index", folder=tmp_path), "Option '--index' requires an argument", status=2)


# --- with a database


@ON_DEFAULT
def test_a_day_with_the_command(
    environment: str, rag: Run, main: Run, slug: str, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--index", INDEX, "--org", slug)
    assert rag("db", "upgrade").out.startswith("the schema is up to date")
    created = main("orgs", "create", slug, "--name", "The Observatory").out.strip().split("\t")
    assert created[0] == slug
    assert main("orgs", "add-site", slug, "dome").out.startswith(f"{slug}/dome\t")
    assert re.fullmatch(rf"ada@{slug}\t\S+\tmember of {slug}\n", main("orgs", "add-member", slug, f"ada@{slug}").out)
    name = f"dome-{slug}"
    assert main("orgs", "add-member", slug, f"{name}@sky.example").err.endswith(f"{name}@sky.example is a new user\n")
    assert "new user" not in main("orgs", "add-member", slug, f"{name}@sky.example").err
    meant = main("orgs", "add-member", slug, name, status=1).err
    assert f"there is {name}@sky.example: name who is meant, or add --new" in meant
    assert main("orgs", "add-member", slug, name, "--new").out.startswith(f"{name}\t")
    assert main("orgs", "remove-member", slug, name).out.endswith(f"\tno longer a member of {slug}\n")
    assert main("orgs", "remove-member", slug, name, status=1).err.startswith("error: no member named")
    assert {"id": created[1], "slug": slug, "name": "The Observatory"} in main("orgs", "list", "--json").json

    ingest = ("ingest", documents, *at, "--base", documents, "--source-type", "faq", "--meta", "tags=stars,night")
    first = rag(*ingest, "--json", status=2).json
    assert (first["added"], first["unchanged"], first["chunks"]) == (2, 0, 2)
    assert [failure["path"] for failure in first["failed"]] == ["broken.pdf"]
    assert first["failed"][0]["reason"]
    (documents / "broken.pdf").unlink()
    assert main(*ingest).out == "0 added, 0 updated, 2 unchanged, 0 removed; 0 chunks written\n"

    foreseen = main("ingest", documents, *at, "--base", documents, "--exclude", "*.txt", "--dry-run").out
    assert foreseen == "would be: 0 added, 1 updated, 0 unchanged, 0 removed; 1 chunks written\n"
    mistyped = main(
        "ingest", documents, *at, "--base", documents, "--exclude", "*.txt", "--exclude", "draft", "--dry-run"
    )
    assert "--exclude draft: matches no file and no folder" in mistyped.err
    assert "*.txt" not in mistyped.err
    for name in ("stars.csv", "moons.csv"):
        (tmp_path / name).write_text("id,name,seen\n1,Vega,yes\n", "utf-8")
    tables = ("ingest", tmp_path / "stars.csv", tmp_path / "moons.csv", *at, "--rows", "--dry-run")
    proposed = main(*tables)
    assert tomllib.loads(proposed.out)["fields"]["seen"]["type"] == "boolean", "it is an index.toml, and nothing else"
    assert "would be: 2 added" in proposed.err and '# source_types = ["moon"]' in proposed.out
    assert main(*tables, "--json").json["added"] == 2
    (documents / "gone.md").write_text("# Gone\n\nThis goes.", "utf-8")
    assert main(*ingest).out.startswith("1 added")
    (documents / "gone.md").unlink()
    assert main(*ingest, "--prune").out == "0 added, 0 updated, 2 unchanged, 1 removed; 0 chunks written\n"
    assert main("sources", "list", *at, "--search", "OPENING", "--source-type", "faq").out.count("\n") == 1

    private = tmp_path / "private.txt"
    private.write_text("Ada keeps the spare key of the dome under the third flower pot.", "utf-8")
    owned = ("--owner", f"ada@{slug}", "--visibility", "user", "--site", "dome", "--lang", "en")
    assert main("ingest", private, *at, *owned).out.startswith("1 added")
    listed = ("sources", "list", *at, "--json", "--search", "private")
    main("users", "create", f"cleo@{slug}", "--org", slug)
    seen = {user: main(*listed, "--user", f"{user}@{slug}").json for user in ("ada", "cleo")}
    assert seen == {"ada": main(*listed).json, "cleo": []} and seen["ada"], "the operator sees all"
    key = ("search", "Where is the spare key?", *at, "--json")
    assert "private.txt" not in {hit["title"] for hit in main(*key).json["hits"]}
    assert [hit["title"] for hit in main(*key, "--user", f"ada@{slug}", "--site", "dome").json["hits"]] == [
        "private.txt"
    ]

    question = "When does the observatory open?"
    (tmp_path / "queries.jsonl").write_text(json.dumps({"id": "q1", "text": question}), "utf-8")
    (tmp_path / "qrels.txt").write_text("q1 0 opening.md 1\n", "utf-8")
    evaluate = ("evaluate", *at, "--queries", tmp_path / "queries.jsonl", "--qrels", tmp_path / "qrels.txt")
    calls = [("search", question, *at, "--top-k", 1, "--mode", "dense"), ("ask", question, *at), ("doctor",)]
    search, ask, doctor = [rag(*call) for call in calls]
    line = r"Opening hours \(faq, 2026-02-03\), relevance 0\.\d\d\n"
    assert re.match(rf"  1\. {line}     The observatory opens", search.out) and search.err == ""
    assert ask.out.startswith("The observatory opens at nine in the evening [Source 1].")
    assert re.search(rf"\n  \[Source 1\] {line}", ask.out)
    of_the_only_index = main("ask", question, "--org", slug)
    assert (of_the_only_index.out, of_the_only_index.err) == (ask.out, f"searches {INDEX} of {slug}\n")
    assert re.search(r"\n  \(sentences of the sources; confidence (medium|high)\)\n$", ask.out)
    assert main(*evaluate, "--mode", "text", "--json").json["MRR@10"] == 1.0
    assert re.search(r"^  hit rate@10 +1\.0000$", main(*evaluate).out, re.MULTILINE)
    unknown = tmp_path / "unknown.txt"
    unknown.write_text("q1 0 opening.md 1\nq1 0 docs/opening.md 1\nq1 0 no.md 2\nq1 0 irrelevant.md 0\n", "utf-8")
    for command in ("evaluate", "calibrate"):
        assert_fails(
            main(command, *evaluate[1:-1], unknown),
            f"unknown.txt: 2 of its documents are no source of {INDEX}: docs/opening.md, no.md\n",
        )
    assert doctor.out.endswith("all is well\n") and "!!" not in doctor.out
    asked = {
        "opens": {"text": question, "must": [["nine", "9 pm"]]},
        "wrong": {"text": question, "must": [["nine"], ["free of charge"]]},
        "parking": {"text": "Who won the chess championship of 1972?", "refuse": True},
    }
    lines = ({"id": id_, "corpus": "elsewhere", "kind": "fact", "turns": [turn]} for id_, turn in asked.items())
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    answers = ("evaluate", "--answers", tmp_path / "answers.jsonl", "--corpus", "elsewhere", *at)
    outcomes = {turn["id"]: turn["outcome"] for turn in main(*answers, "--json").json["turns"]}
    assert outcomes == {"opens": "helped", "wrong": "wrong", "parking": "refused"}
    assert re.search(r"^  fact +2 +1 +0 +1 +0$", main(*answers).out, re.MULTILINE)

    (hit,) = main("search", "observatory", *at, "--filter", "lang=fr", "-f", "tags has stars", "--json").json["hits"]
    assert (hit["title"], hit["lang"], hit["metadata"]["tags"]) == ("prix.txt", "fr", ["stars", "night"])
    answer = main("ask", question, *at, "--json").json
    assert (answer["answered"], answer["model"], answer["citations"][0]["title"]) == (
        True,
        "extractive",
        "Opening hours",
    )
    assert main("ask", question, *at, "--capability", "knowledge_answer", "--json").json["text"] == answer["text"]
    opened: list[str] = []
    with monkeypatch.context() as browser:
        browser.setattr(webbrowser, "open", opened.append)
        browser.setattr(shutil, "which", lambda name: None)  # no `xdg-open`: Python opens the browser
        assert main("ask", question, *at, "--open").out.startswith("The observatory opens at nine")
        assert main("ask", "How do I knead bread?", *at, "--open").err == ""
    assert opened == ["https://sky.example/hours"]
    refused = main("ask", "How do I knead bread?", *at).out
    assert refused.count("\n  - ") == 2 and refused.endswith("\n  (no answer given; the closest hits are listed)\n")

    listed = main("sources", "list", *at, "--json").json
    assert {source["external_id"] for source in listed} == {"opening.md", "prix.txt", "private.txt"}
    filtered = main("sources", "list", *at, "--json", "--filter", "author=Ada", "-f", "date>=2026-02-01").json
    assert [source["external_id"] for source in filtered] == ["opening.md"]
    assert main("sources", "list", *at, "--json", "--filter", "lang!=en").json == [
        source for source in listed if source["lang"] != "en"
    ]
    shown = main("sources", "show", "opening.md", *at, "--json").json
    assert (shown["date"], shown["metadata"]["author"], shown["index"]) == ("2026-02-03", "Ada", INDEX)
    assert "opens at nine" in shown["passages"][0]["text"]
    assert "\n[Opening hours]\nThe observatory opens" in main("sources", "show", shown["id"], *at).out

    assert rag("sources", "delete", "opening.md", "prix.txt", *at).out == "2 deleted\n"
    assert main("search", question, *at).out == "Nothing found.\n"


@ON_DEFAULT
def test_every_failure_is_one_clear_line(
    environment: str, main: Run, rag: Run, slug: str, documents: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    main("db", "upgrade")
    main("orgs", "create", slug)
    main("users", "create", outsider := f"ben@{slug}")
    stranger = f"'{outsider}' is not a member of {slug}"
    at = ("--index", INDEX, "--org", slug)
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{", "utf-8")
    unreachable = {"RAG_DATABASE_URL": "postgresql://rag_app:hidden@127.0.0.1:1/rag"}
    calls: list[tuple[tuple[object, ...], Mapping[str, str], str]] = [
        (("search", "x", "-i", "boook", "-o", slug), {}, "no index named 'boook'; there are: book, marketplace"),
        (("search", "x", "-i", INDEX, "-o", "nobody"), {}, "no organization named 'nobody'; there are: "),
        (("search", "x", *at, "--user", "nobody"), {}, "no user named 'nobody'; `rag-app users list` shows all users"),
        (("search", "x", *at, "--user", outsider), {}, f"user: {stranger}"),
        (("ask", "x", *at, "--user", outsider), {}, f"user: {stranger}"),
        (("sources", "list", *at, "--user", outsider), {}, f"user: {stranger}"),
        (("ingest", documents, *at, "--owner", outsider), {}, f"owner: {stranger}"),
        (("search", "x", *at, "--site", "nowhere"), {}, "no site named 'nowhere'"),
        (("search", "x", *at, "-f", "colour=red"), {}, "colour: unknown field; accepted: author, call_sid, date, lang"),
        (("search", "x", *at, "-f", "date>=yesterday"), {}, "date: must be an ISO 8601 date or time"),
        (("search", "x", *at, "-f", "lang>fr"), {}, "lang: "),
        (("search", "x", *at, "-f", "nonsense"), {}, "'nonsense' is not `field=value`"),
        (("search", "x", *at, "--mode", "fuzzy"), {}, "mode: accepted: hybrid, dense, text"),
        (("ask", " ", *at), {}, "question: is empty"),
        (("ask", "x", "-o", slug), {}, "--index: there are no sources"),
        (("ask", "x", *at, "--capability", "poet"), {}, "no capability named 'poet'; there are: alert_explanation, "),
        (("ask", "x", *at, "--capability", "owner_ask"), {}, f"owner_ask answers from salon_calls, not from {INDEX}"),
        (("ask", "nul \0", *at), {}, "question: "),
        (("ingest", "missing.md", *at), {}, "no file or folder named 'missing.md'"),
        (("ingest", documents, *at, "--meta", "author"), {}, "--meta: 'author' is not `key=value`"),
        (("ingest", documents, *at, "--meta", "colour=red"), {}, "colour: unknown field; accepted: author, call_sid"),
        (("ingest", documents, *at, "--source-type", "poem"), {}, "source_type: 'poem'; accepted: transcript, email"),
        (("ingest", documents, *at, "--meta", "date=soon"), {}, "date: must be an ISO 8601 date or time"),
        (("ingest", documents, *at, "--lang", "french"), {}, "lang: must be a language code"),
        (("ingest", documents, *at, "--owner", "nobody"), {}, "no user named 'nobody'"),
        (("ingest", documents, *at, "--site", "nowhere"), {}, "no site named 'nowhere'"),
        (("ingest", documents, *at, "--visibility", "user"), {}, "visibility: needs an owner"),
        (("ingest", documents, *at, "--visibility", "global"), {}, f"visibility: accepted for {slug}: team, user"),
        (("sources", "show", "lost.md", *at), {}, f"no source of this organization in {INDEX} named 'lost.md'"),
        (("sources", "delete", "lost.md", *at), {}, f"no source of this organization in {INDEX} named 'lost.md'"),
        (("orgs", "create", slug), {}, f"slug: '{slug}' is taken"),
        (("orgs", "create", "a/b"), {}, "slug: must be lower-case letters, digits, - and _"),
        (("backup", "nowhere/acme.ragbackup"), {}, "FILE: there is no folder nowhere: create it first"),
        (("restore", "nowhere"), {}, "nowhere: No such file or directory"),
        (("orgs", "add-member", "nobody", "ada"), {}, "no organization named 'nobody'"),
        (("orgs", "set-budget", "nobody", 5), {}, "no organization named 'nobody'; there are: "),
        (("orgs", "set-budget", slug, "much"), {}, "tokens: 'much' is neither a number nor 'none'"),
        (("orgs", "set-budget", slug, 9223372036854775808), {}, "tokens: must be a number between 0 and"),
        (("orgs", "set-limits", slug, "--requests", 0), {}, "requests_per_minute: must be a number between 1 and 10000"),
        (("orgs", "set-limits", slug), {}, "--requests: give --requests, --at-once or both"),
        (("keys", "set-limits", "rag_nothing", "--at-once", 5), {}, "no key named 'rag_nothing'"),
        (("orgs", "set-time-zone", slug, "Mars/Olympus"), {}, "time_zone: must be a name of the IANA time zone database"),
        (("orgs", "set-budget", "public", 5), {}, "organization: the public organization cannot have a budget"),
        (("users", "create", slug, "--plan", "gold"), {}, "no plan named 'gold'; there are: admin, basic, free, growth"),
        (("users", "create", slug, "--role", "root"), {}, "role: accepted: admin, user"),
        (("users", "create", slug, "--org", "nobody"), {}, "no organization named 'nobody'; there are: "),
        (("users", "create", " "), {}, "name: must be a name"),
        (("users", "set-plan", "nobody", "pro"), {}, "no user named 'nobody'"),
        (("users", "set-role", "nobody", "admin"), {}, "no user named 'nobody'"),
        (("plans", "set", "free", "--messages", "many"), {}, "messages: 'many' is neither a number nor 'unlimited'"),
        (("plans", "set", "free", "--messages", 2147483648), {}, "messages: must be between 0 and 2147483647"),
        (("plans", "set", " ", "--disabled"), {}, "plan: must be a name"),
        (("token", "--user", "nobody"), {}, "no user named 'nobody'"),
        (("evaluate", *at, "--queries", broken), {}, "--queries and --qrels must be used together"),
        (("evaluate", *at, "--queries", "no.jsonl", "--qrels", "no.txt"), {}, "no.jsonl: cannot be read"),
        (("evaluate", *at, "--queries", broken, "--qrels", broken), {}, "broken.jsonl:1: Invalid JSON"),
        (("evaluate", *at), {}, "no query has a judged document"),
        (("evaluate", "--index", INDEX), {}, "give --index and --org, or --answers"),
        (("evaluate", *at, "--corpus", "book"), {}, "--corpus and --user can only be used with --answers"),
        (("evaluate", *at, "--answers", broken), {}, "broken.jsonl:1: Invalid JSON"),
        (("orgs", "list"), {"RAG_PORT": "http"}, "RAG_PORT='http': Input should be a valid integer"),
        (("orgs", "list"), {"RAG_DATABASE_URL": "mysql://x"}, "a database URL must look like postgresql://"),
        (("db", "upgrade"), {"RAG_DATABASE_OWNER_URL": ""}, "set RAG_DATABASE_OWNER_URL"),
        (("serve", "--workers", 2), {"RAG_JWT_SECRET": "short"}, "the JWT secret has 5 bytes; it must have at least 32"),
        (("serve", "--host", "host.invalid"), {}, "cannot listen on host.invalid"),
        (("serve", "--workers", 2), {"RAG_VECTOR_STORE": "qdrant"}, "local Qdrant serves one process: use --workers 1"),
        (("orgs", "list"), unreachable, "cannot connect to PostgreSQL"),
    ]  # fmt: skip
    for arguments, variables, message in calls:
        with subtests.test(" ".join(map(str, arguments)), **variables):
            result = main(*arguments, **variables)
            assert_fails(result, message)
            assert "hidden" not in result.err  # a password

    # and where it is a process: whatever a library writes at its end would be seen here
    real: list[tuple[tuple[object, ...], Mapping[str, str], str]] = [
        (("search", "x", *at, "-f", "colour=red"), {}, "colour: unknown field"),
        (("search", "x", *at), {"RAG_VECTORSTORE": "qdrant"}, "there is no setting RAG_VECTORSTORE; did you mean RAG_VECT"),
    ]  # fmt: skip
    for arguments, variables, message in real:
        assert_fails(rag(*arguments, status=1, **variables), message)


@ON_DEFAULT
def test_a_name_that_is_not_utf8_costs_one_file(environment: str, main: Run, slug: str, tmp_path: Path) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    (folder / "a.txt").write_text("The gutters are cleaned in May.", "utf-8")
    Path(os.fsdecode(bytes(folder) + b"/x\xff.txt")).write_text("gutters", "utf-8")
    Path(os.fsdecode(bytes(folder) + b"/x\xff.csv")).write_text("id,name\n1,Ada\n", "utf-8")
    inside = Path(os.fsdecode(bytes(folder) + b"/d\xff"))
    inside.mkdir()
    (inside / "b.txt").write_text("gutters", "utf-8")
    assert main("db", "upgrade").status == 0 and main("orgs", "create", slug).status == 0
    at = ("--index", INDEX, "--org", slug, "--base", folder)
    done = main("ingest", folder, *at, "--json", "--prune")
    assert (done.status, done.json["added"]) == (2, 1)
    assert {(each["path"], each["reason"]) for each in done.json["failed"]} == {
        ("x\\xff.txt", "its name is not UTF-8: rename it"),
        ("x\\xff.csv", "its name is not UTF-8: rename it"),
        ("d\\xff/b.txt", "the name of its folder is not UTF-8: rename it"),
    }
    foreseen = main("ingest", folder, *at, "--dry-run", "--rows", "--row-key", "id")
    assert foreseen.status == 2 and "x\\xff.txt: its name is not UTF-8: rename it" in foreseen.err
    again = main("ingest", folder, inside, *at, "--prune")
    assert again.status == 2 and again.out.startswith("0 added, 0 updated, 1 unchanged, 0 removed; 0 chunks written; ")


@ON_DEFAULT
def test_a_source_is_one_line_of_a_list(environment: str, main: Run, slug: str, tmp_path: Path) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"id": "a", "title": "Two\\nlines\\tof text", "text": "One."}\n', "utf-8")
    (folder / "b\n\x1b[31m.md").write_text("# Red\n\nText.", "utf-8")
    (folder / "c\n.md").write_bytes(b"")
    assert main("db", "upgrade").status == 0 and main("orgs", "create", slug).status == 0
    at = ("--index", INDEX, "--org", slug)
    assert main("ingest", folder, *at, "--base", folder).out.splitlines()[1:] == ["  c\\n.md: empty: 0 bytes"]
    listed = main("sources", "list", *at).out.splitlines()
    assert [line.split("\t")[::4] for line in listed] == [["a", "Two\\nlines\\tof text"], ["b\\n\\x1b[31m.md", "Red"]]
    assert main("sources", "list", *at, "--json").json[0]["title"] == "Two\nlines\tof text"
    assert "title: Two\\nlines" in main("sources", "show", "a", *at).out
    assert "Two\\nlines" in main("search", "One", *at).out


@ON_DEFAULT
def test_users_and_plans_from_the_command_line(environment: str, main: Run, rag: Run, slug: str) -> None:
    main("db", "upgrade")
    main("orgs", "create", slug)
    plan, subject = f"plan-{slug}", f"auth0|{slug}"
    assert main("plans", "set", plan).out == f"{plan}\t50 messages a month\tenabled\n"
    assert main("plans", "set", plan, "--messages", 3).out == f"{plan}\t3 messages a month\tenabled\n"
    assert main("plans", "set", plan, "--disabled").out == f"{plan}\t3 messages a month\tdisabled\n"
    assert main("plans", "set", plan, "--messages", "unlimited", "--enabled").out.endswith(
        "unlimited messages a month\tenabled\n"
    )
    assert {"code": plan, "messages": -1, "enabled": True} in main("plans", "list", "--json").json
    listed = main("plans", "list").out.splitlines()
    assert listed == sorted(listed) and "free\t50 messages a month\tenabled" in listed

    name = f"ada@{slug}"
    options = ("--plan", "basic", "--role", "admin", "--org", slug, "--org", "public", "--subject", subject)
    made = main("users", "create", name, *options).out.strip().split("\t")
    assert made == [name, made[1], "basic", "admin"]
    for again, message in (
        (name, f"name: '{name}' is taken"),
        (f"bob@{slug}", f"subject: '{subject}' already belongs to another user"),
    ):
        assert_fails(main("users", "create", again, "--subject", subject), message)
    assert main("users", "set-plan", name, plan).out.strip().split("\t") == [name, made[1], plan, "admin"]
    assert main("users", "set-role", made[1], "user").out.strip().split("\t") == [name, made[1], plan, "user"]
    assert_fails(
        main("users", "set-plan", name, "gold"), "no plan named 'gold'; there are: admin, basic, free, growth, plan-"
    )
    assert_fails(main("users", "set-role", name, "root"), "role: accepted: admin, user")

    (found,) = [each for each in rag("users", "list", "--json").json if each["name"] == name]
    assert found == {
        "name": name, "id": made[1], "plan": plan, "role": "user", "organizations": sorted([slug, "public"]),
        "used": 0, "limit": -1,
    }  # fmt: skip
    everybody = main("users", "list")
    slugs = ",".join(sorted([slug, "public"]))
    assert f"{name}\t{made[1]}\t{plan}\tuser\t{slugs}\t0 of unlimited this month\n" in everybody.out
    assert everybody.err == f"{len(everybody.out.splitlines())} users\n" and f"bob@{slug}" not in everybody.out

    assert main("orgs", "set-budget", slug, 0).out == f"{slug}\t0 tokens a month\n"
    assert main("orgs", "set-budget", slug, "none").out == f"{slug}\tno budget of its own\n"

    assert main("orgs", "set-time-zone", slug, "Asia/Tokyo").out == f"{slug}\tAsia/Tokyo\n"
    assert main("orgs", "set-time-zone", slug, "none").out == f"{slug}\tUTC\n"
    said = main("orgs", "set-limits", slug, "--requests", 600, "--at-once", 20).out
    assert said == f"{slug}\t600 requests a minute\t20 at once\n"
    kept = main("orgs", "set-limits", slug, "--at-once", "none").out
    assert kept == f"{slug}\t600 requests a minute\tno number of its own at once\n"
    key = main("keys", "create", "--org", slug, "--name", "quick", "--json").json
    assert main("keys", "set-limits", key["id"], "--requests", 5).out.startswith(f"{key['beginning']}...\t5 requests")


@ON_DEFAULT
def test_a_reader_that_has_seen_enough(environment: str, main: Run, tmp_path: Path) -> None:
    main("db", "upgrade")
    reading, writing = os.pipe()
    os.close(reading)
    for arguments in (["--help"], ["orgs", "list"]):
        done = subprocess.run(
            [COMMAND, *arguments], check=False, stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, timeout=PATIENCE
        )
        assert (done.returncode, done.stderr) == (1, b"")
    os.close(writing)


def test_a_misspelt_setting_is_told_before_the_database_is_imported(environment: str) -> None:
    program = """
import sys
from rag_app.console import cli
sys.argv[1:] = ["orgs", "list"]
try:
    cli.main()
except SystemExit as end:
    assert end.code == 1
assert "sqlalchemy" not in sys.modules
"""
    misspelt = {**os.environ, "RAG_VECTOR_STOR": "postgres"}
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=PATIENCE, env=misspelt
    )
    assert done.returncode == 0, done.stderr
    assert "there is no setting RAG_VECTOR_STOR; did you mean RAG_VECTOR_STORE?" in done.stderr


def test_the_end_of_a_command_frees_nothing_but_does_what_was_registered_for_it() -> None:
    program = """
import atexit, sys
from rag_app.console import cli

class Kept:
    def __del__(self):
        print("freed")

kept = Kept()
kept.itself = kept
atexit.register(print, "at the end")
sys.argv[1:] = [{argument!r}]
cli.run()
"""
    for argument, status in (("--version", 0), ("nonesuch", 2)):
        code = program.format(argument=argument)
        done = subprocess.run(
            [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=PATIENCE
        )
        assert (done.returncode, done.stdout.splitlines()[-1]) == (status, "at the end"), done.stderr


@ON_DEFAULT
def test_an_interrupted_ingest_says_what_is_kept_and_how_to_go_on(
    environment: str, main: Run, slug: str, tmp_path: Path
) -> None:
    main("db", "upgrade")
    main("orgs", "create", slug)
    folder, files = tmp_path / "many", 500  # fifteen writes, and the second is embedded when the first is there
    folder.mkdir()
    for number in range(files):
        lines = (f"The shelf {number}-{line} holds {line} boxes." for line in range(100))
        (folder / f"{number:03}.md").write_text(" ".join(lines), "utf-8")
    ingest = ("ingest", str(folder), "--index", INDEX, "--org", slug)
    # what a shell starts in the background ignores SIGINT, and so does what that starts: these tests, perhaps
    heeding = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [sys.executable, "-c", heeding, str(COMMAND), *ingest]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: main("sources", "list", "--index", INDEX, "--org", slug).out)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    kept = re.search(r"kept: (\d+) added, .*; the same command ingests the rest\ninterrupted\n$", said)
    assert kept and 0 < int(kept[1]) < files, said
    assert main("sources", "list", "--index", INDEX, "--org", slug).out.count("\n") == int(kept[1])
    rest = main(*ingest, "--dry-run").out
    assert rest.startswith(f"would be: {files - int(kept[1])} added, 0 updated, {kept[1]} unchanged")


def test_a_shell_completes_groups_and_their_commands() -> None:
    def complete(words: str, at: int) -> list[str]:
        asked = {"_RAG_APP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        done = subprocess.run(
            [COMMAND], check=False, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **asked}
        )
        return done.stdout.split()

    assert complete("rag-app or", 1) == ["orgs"]
    assert "add-member" in complete("rag-app orgs ", 2)


@pytest.mark.parametrize("environment", ["postgres"], indirect=True)
def test_a_command_imports_nothing_that_it_does_not_need(environment: str, main: Run) -> None:
    """Each would take tenths of seconds, or seconds, to import."""
    main("db", "upgrade")
    program = """
import sys
from rag_app.console import cli
def run(command):
    sys.argv[1:] = command.split()
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, command
    return {name for name in sys.modules if unneeded.match(name)}

import re
unneeded = re.compile("llama_index|litestar|alembic|onnxruntime|numpy|httpx|cryptography")
lists = ["orgs list", "users list", "keys list", "plans list", "groups list public", "sources list -i book -o public"]
for command in [*lists, "doctor"]:
    assert not run(command), command
unneeded = re.compile("litestar|alembic|jinja2|banks|rag_app.(answering.(engine|extractive|reader)|documents.reading|pipeline)")
import onnxruntime
folds = []
class Session(onnxruntime.InferenceSession):
    def __init__(self, *args, disabled_optimizers, **more):
        folds.append("ConstantFolding" not in disabled_optimizers)
        super().__init__(*args, disabled_optimizers=disabled_optimizers, **more)
onnxruntime.InferenceSession = Session
assert not run("search door -i book -o public")
assert folds == [False], "the weights of the one model that is opened are unpacked in each run"
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "RAG_JWT_SECRET": ""},  # doctor tries one that is set
    )
    assert done.returncode == 0, done.stderr


@ON_DEFAULT
def test_doctor_names_what_is_wrong(
    environment: str, main: Run, new_bare_database: NewPostgres, subtests: pytest.Subtests
) -> None:
    main("db", "upgrade")
    empty = new_bare_database()
    superuser = empty.superuser_url
    nowhere = "postgresql://rag_app:hidden@127.0.0.1:1/rag"
    wrong: list[tuple[dict[str, str], str]] = [
        (
            {"RAG_DATABASE_URL": superuser, "RAG_DATABASE_OWNER_URL": ""},
            r"!!  PostgreSQL +RAG_DATABASE_URL connects as 'postgres', a role that row-level security does not restrict.*db upgrade",
        ),
        (
            {"RAG_DATABASE_URL": empty.app_url, "RAG_DATABASE_OWNER_URL": empty.owner_url},
            r"!!  PostgreSQL +the database is at schema revision none.*run `rag-app db upgrade`",
        ),
        ({"RAG_DATABASE_URL": nowhere}, r"!!  PostgreSQL +cannot connect to PostgreSQL: .*127\.0\.0\.1"),
        ({"RAG_DATABASE_OWNER_URL": nowhere}, r"!!  owner +cannot connect to PostgreSQL: .*127\.0\.0\.1"),
        (
            {
                "RAG_EMBEDDING": "openai",
                "RAG_EMBEDDING_API_BASE": "http://127.0.0.1:1/v1",
                "RAG_EMBEDDING_API_KEY": "k",
            },
            r"(?s)!!  embedding +text-embedding-3-small: .*!!  book +index book was built with all-MiniLM",
        ),
        (
            {"RAG_LLM": "openai_like", "RAG_LLM_API_BASE": "http://127.0.0.1:1/v1", "RAG_LLM_BACKOFF": "0"},
            r"!!  answers +google/gemini-2.5-flash: .*; asked at http://127\.0\.0\.1:1 \(set by RAG_LLM_API_BASE",
        ),
        ({"RAG_CONFIDENCE_HIGH_THRESHOLD": "0.1"}, r"!!  configuration +RAG_CONFIDENCE_HIGH_THRESHOLD is below"),
    ]
    for variables, expected in wrong:
        with subtests.test(expected):
            result = main("doctor", "--models", **variables)
            assert re.search(expected, result.out), result.out
            assert (result.status, result.err) == (1, "") and "hidden" not in result.out
            assert re.search(r"\n(1 of these needs|\d+ of these need) attention\n$", result.out)
            assert all(re.match(r"(ok|!!)  \S", line) for line in result.out.splitlines()[:-1])
    unasked = main("doctor", RAG_LLM="openai_like", RAG_LLM_API_BASE="http://127.0.0.1:1/v1", RAG_DATABASE_OWNER_URL="")
    assert "RAG_DATABASE_OWNER_URL is not set here: run `rag-app db upgrade` where it is\n" in unasked.out
    assert unasked.out.endswith("all is well; no model was asked: `rag-app doctor --models` asks them\n")
    assert "\n--  answers" in unasked.out


@ON_DEFAULT
def test_a_table_of_ones_own(environment: str, main: Run, new_bare_database: NewPostgres, tmp_path: Path) -> None:
    table, folder = tmp_path / "rents.csv", tmp_path / "indexes" / "rents"
    folder.mkdir(parents=True)
    (folder / "index.toml").touch()  # as a shell does before the command begins
    table.write_text("charge,due,rent,received\nC1,2026-10-01,£900,£900\nC2,2026-10-05,£800,£500\n", "utf-8")
    empty = new_bare_database()
    at = ("--index", "rents", "--org", "acme")
    own = {
        "RAG_INDEXES": str(folder.parent),
        "RAG_DATABASE_URL": empty.app_url,
        "RAG_DATABASE_OWNER_URL": empty.owner_url,
    }
    proposed = main("ingest", table, "--rows", "--dry-run", **own)
    assert (proposed.status, proposed.err) == (0, "") and "[records.charge]" in proposed.out
    assert_fails(main("ingest", tmp_path / "none.csv", "--rows", "--dry-run", **own), "no file or folder")
    assert "nothing to propose" in main("ingest", folder, "--rows", "--dry-run", **own).err
    assert_fails(main("db", "upgrade", **own), "index.toml: source_types: Field required; default_source_type: Field")
    missing = 'missing = { type = "integer", formula = "rent - received", words = ["missing", "last"] }'
    declared = proposed.out.replace("\n\n[[rows]]", f"\n{missing}\n\n[[rows]]")
    declared = declared.replace('"number"', '"integer"').replace('words = ["charge"]', 'words = ["rent"]')
    (folder / "index.toml").write_text(declared, "utf-8")
    main("db", "upgrade", **own)
    main("orgs", "create", "acme", **own)
    ingested = main("ingest", table, *at, **own)
    assert ingested.out.startswith("2 added") and "rents: “rent” is a word of records.charge and of" in ingested.err
    assert_fails(main("sources", "delete", "rents.csv", "lost.csv", *at, **own), "named 'lost.csv'")
    assert main("sources", "delete", "rents.csv", *at, **own).out == "2 deleted\n"
    assert main("ingest", table, *at, **own).out.startswith("2 added")
    doctor = main("doctor", **own)
    assert doctor.status == 1 and re.match(r"!!  rents +“rent” is a word of records.charge", doctor.out)
    assert re.search(r"\n--  rents +“last” is a word of missing: .* “newest”\n", doctor.out)
    (folder / "index.toml").write_text(declared.replace('words = ["rent"]', 'words = ["charge"]'), "utf-8")
    assert_fails(main("calibrate", *at, **own), "rents has no judged questions of its own; accepted instead: --queries")
    question = ("ask", "What is missing in total?", *at)
    told = "the total missing of 2 charges"
    assert main(*question, "--json", **own).json["understood"] == told
    assert f"\n  (understood as: {told})\n" in main(*question, **own).out


# --- serving


@contextmanager
def serving(folder: Path, workers: int = 1) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """`rag-app serve` on a port of its choice: the process, its URL, and the file with what it says."""
    said = folder / "serve.log"
    with said.open("w") as log:
        server = subprocess.Popen(
            [COMMAND, "serve", "--port", "0", "--workers", str(workers)], cwd=folder, stdout=log, stderr=log, text=True
        )
        try:
            url = ""
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and server.poll() is None:
                if found := re.search(r"^rag-app on (\S+) ", said.read_text(), re.MULTILINE):
                    url = found[1]
                    if said.read_text().count("Started worker-") == workers and is_ready(url):
                        break
                time.sleep(0.1)
            else:
                pytest.fail(f"not ready: {said.read_text()}")
            yield server, url, said
        finally:
            server.terminate()
            server.wait(PATIENCE)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Somebody else listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready", timeout=PATIENCE).status_code == 200
    except httpx.TransportError:
        return False


_LOADING = """
import sys, threading
from pathlib import Path
from rag_app import application
from rag_app.console.cli import main

_, loading = sys.argv
sys.argv[:] = ["rag-app", "serve", "--port", "0"]

def load():
    Path(loading).touch()
    threading.Event().wait()

application.create_app = load
main()
"""


@ON_DEFAULT
def test_a_server_ends_whose_worker_is_still_loading(environment: str, main: Run, tmp_path: Path) -> None:
    main("db", "upgrade")
    loading = tmp_path / "loading"
    server = subprocess.Popen([sys.executable, "-c", _LOADING, loading], cwd=tmp_path)
    try:
        wait_for(lambda: loading.exists() or server.poll() is not None)
        assert loading.exists()
        server.terminate()
        server.wait(PATIENCE)
    finally:
        server.kill()


@pytest.mark.parametrize("environment", ["postgres"], indirect=True)  # local Qdrant serves one process
def test_two_workers_share_a_limit_and_end_with_their_parent(
    environment: str, main: Run, slug: str, documents: Path, tmp_path: Path, taken_port: int
) -> None:
    main("db", "upgrade")
    main("orgs", "create", slug)
    main("ingest", documents, "--index", INDEX, "--org", slug)
    for user in ("ada", "grace"):
        main("orgs", "add-member", slug, f"{user}@{slug}")

    with serving(tmp_path, workers=2) as (server, url, _):
        token = main("token", "--user", f"ada@{slug}", "--hours", "0.5").out.strip()
        for port in (int(url.rsplit(":", 1)[1]), taken_port):
            refused = main("serve", "--port", port)
            assert_fails(refused, f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another")

        for each in (token, main("token", "--user", f"grace@{slug}").out.strip()):
            replies = ask_at_once(f"{url}/api/rag/search", each, 80)
            by_minute = Counter(reply.headers["X-RateLimit-Reset"] for reply in replies)
            let_in = Counter(reply.headers["X-RateLimit-Reset"] for reply in replies if reply.status_code == 200)
            assert let_in == {minute: min(60, asked) for minute, asked in by_minute.items()}
            if len(by_minute) == 1:
                break  # else a minute ended in between: the other user has not asked yet
        found = next(reply for reply in replies if reply.status_code == 200).json()["results"]
        assert "opens at nine" in found[0]["snippet"]
        if len(by_minute) == 1:
            remaining = sorted(int(reply.headers["X-RateLimit-Remaining"]) for reply in replies)
            assert remaining == [0] * 20 + list(range(60))

        link = ("token", "--link", "--user", f"ada@{slug}")
        assert main(*link).out.startswith(f"{url}/sign-in#")
        assert main(*link, RAG_PUBLIC_URL="https://rag.example").out.startswith("https://rag.example/sign-in#")
        beside = children_of(server.pid)
        assert len(beside) >= 2
        server.kill()  # -9: nobody is there to stop the workers
        wait_for(lambda: all(map(is_gone, beside)))
        assert not is_ready(url)
        assert main(*link, RAG_PORT="8123").out.startswith("http://127.0.0.1:8123/sign-in#")


def test_a_private_postgresql_that_is_killed_comes_back_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAG_DATABASE_URL", "RAG_DATABASE_OWNER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAG_VECTOR_STORE", "postgres")
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RAG_JWT_SECRET", SECRET)
    with serving(tmp_path) as (_, url, said):
        cluster = (tmp_path / "home" / "postgres" / "cluster").resolve()
        first, port = (cluster / "data" / "postmaster.pid").read_text().splitlines()[0:4:3]
        os.kill(int(first), signal.SIGKILL)
        wait_for(lambda: "serves again" in said.read_text())
        again, same = (cluster / "data" / "postmaster.pid").read_text().splitlines()[0:4:3]
        assert again != first and same == port, said.read_text()
        body = {"query_text": "When does the observatory open?"}
        replies = [
            httpx.post(f"{url}/api/rag/search", json=body, headers=bearer("anybody"), timeout=PATIENCE)
            for _ in range(3)
        ]
        assert [reply.status_code for reply in replies] == [200] * 3, "the pool connects anew"
    shutil.rmtree(cluster)  # may lie outside of the folder


def ask_at_once(url: str, token: str, requests: int) -> list[httpx.Response]:
    """Each on a connection of its own, so that both workers have some."""
    body, headers = {"query_text": "When does the observatory open?"}, {"Authorization": f"Bearer {token}"}
    with ThreadPoolExecutor(20) as pool:
        return list(pool.map(lambda _: httpx.post(url, json=body, headers=headers, timeout=PATIENCE), range(requests)))


@ON_QDRANT
def test_local_qdrant_from_the_command_line(
    environment: str, main: Run, slug: str, documents: Path, tmp_path: Path
) -> None:
    at = ("--index", INDEX, "--org", slug)
    main("db", "upgrade")
    main("orgs", "create", slug)
    main("orgs", "add-member", slug, f"ada@{slug}")
    assert main("ingest", documents, *at, "--json", "--base", documents).json["added"] == 2
    assert main("ask", "When does the observatory open?", *at, "--json").json["answered"] is True

    with serving(tmp_path) as (server, url, said):
        token = main("token", "--user", f"ada@{slug}").out.strip()  # needs no index
        headers = {"Authorization": f"Bearer {token}"}
        reply = httpx.post(
            f"{url}/api/rag/answer", json={"query_text": "When does it open?"}, headers=headers, timeout=PATIENCE
        )
        assert reply.status_code == 200 and reply.json()["citations"]
        assert_fails(
            main("search", "x", *at, status=1), "in use by another process: local Qdrant belongs to one process"
        )
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
        assert not re.search("Traceback|panic", said.read_text())

    assert main("sources", "delete", "opening.md", *at).out == "1 deleted\n"
    hits = main("search", "When does the observatory open?", *at, "--json").json["hits"]
    assert [hit["title"] for hit in hits] == ["prix.txt"]


@pytest.fixture
def qdrant_server(new_postgres: NewPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A deployment on QDRANT_URL, which is to be empty before and is afterwards: names of generations are not unique."""
    if not (url := os.environ.get("QDRANT_URL")):
        pytest.skip("needs an empty Qdrant server: set QDRANT_URL")
    postgres, qdrant = new_postgres(), QdrantClient(url=url, api_key=os.environ.get("QDRANT_API_KEY"))
    assert not qdrant.get_collections().collections, f"{url} is in use"
    for name, value in {
        "RAG_DATABASE_URL": postgres.app_url,
        "RAG_DATABASE_OWNER_URL": postgres.owner_url,
        "RAG_VECTOR_STORE": "qdrant",
        "RAG_HOME": str(tmp_path / "home"),
        "RAG_JWT_SECRET": "a secret of the tests, long enough for HS256",
    }.items():
        monkeypatch.setenv(name, value)
    yield
    for each in qdrant.get_collections().collections:
        qdrant.delete_collection(each.name)
    qdrant.close()


def test_several_processes_share_a_qdrant_server(
    qdrant_server: None, main: Run, slug: str, documents: Path, tmp_path: Path
) -> None:
    """What local Qdrant refuses: two workers, and an ingest beside them."""
    at = ("--index", INDEX, "--org", slug)
    main("db", "upgrade")
    main("orgs", "create", slug)
    main("orgs", "add-member", slug, f"ada@{slug}")
    with serving(tmp_path, workers=2) as (_, url, _):
        assert main("ingest", documents, *at, "--json", "--base", documents).json["added"] == 2
        replies = ask_at_once(f"{url}/api/rag/search", main("token", "--user", f"ada@{slug}").out.strip(), 20)
    assert {reply.status_code for reply in replies} == {200}
    assert {reply.json()["results"][0]["title"] for reply in replies} == {"Opening hours"}


def test_a_reading_command_begins_no_database(tmp_path: Path) -> None:
    home, folder = tmp_path / "project" / ".rag", tmp_path / "project" / "notebooks"
    home.mkdir(parents=True)
    folder.mkdir()
    unset = dict.fromkeys(("RAG_DATABASE_URL", "RAG_DATABASE_OWNER_URL", "RAG_HOME", "RAG_VECTOR_STORE"), "")
    reading = (
        ["orgs", "list"],
        ["search", "owls", "-i", "book", "-o", "public"],
        ["db", "url"],
        ["backup", "a.ragbackup"],
    )
    for command in reading:
        done = run(*command, folder=folder, **unset)
        assert done.status == 1 and f"there is no data in {home}: " in done.err and f"data: {home}\n" in done.err
    assert not list(home.iterdir()) and not list(folder.iterdir())


@ON_DEFAULT
def test_the_address_of_the_database_is_for_psql(rag: Run, environment: str) -> None:
    assert rag("db", "url").out.startswith("postgresql://rag_app")
    assert rag("db", "url", "--owner").out.startswith("postgresql://rag_owner")
