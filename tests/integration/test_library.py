"""The library on real data and both stores: the seed's example, its options, what is written about it, and tenants."""

import ast
import asyncio
import doctest
import gc
import inspect
import json
import os
import re
import shutil
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any
from uuid import uuid4

import pytest

import rag_app
from rag_app import Rag, retrieve_chunks, run_rag_pipeline
from rag_app.answering.capabilities import CAPABILITIES
from rag_app.application import Application
from rag_app.console.answers import ask_threads
from rag_app.domain.answer import Mode, Question
from rag_app.domain.errors import Forbidden, InvalidInput, NotFound
from rag_app.domain.resources import resource_folder
from rag_app.domain.scope import Scope
from rag_app.evaluation.answer_facts import Thread
from rag_app.retrieval.embedding import MiniLM
from rag_app.retrieval.text import tokens
from tests.integration.conftest import ON_DEFAULT
from tests.integration.service import prepare
from tests.scripted_model import Reply, ScriptedModel

INDEX = "store_catalogue"
HEADPHONES = "Do you have wireless headphones?"
ROOT = Path(__file__).parents[2]


STOCKED: set[tuple[str, str]] = set()
"""Databases and stores that have the sample shops."""


async def stock(application: Application) -> None:
    """The sample shops, as the demo loads them; once is enough."""
    here = application.urls.app, application.settings.store.kind
    if here in STOCKED:
        return
    rag, samples = Rag(application), resource_folder("indexes") / INDEX / "samples"
    for entry in tomllib.loads((samples / "manifest.toml").read_text("utf-8"))["ingest"]:
        with suppress(InvalidInput):  # is taken
            await rag.create_organization(entry["organization"])
        with suppress(InvalidInput):
            await rag.create_site(entry["organization"], entry["site"])
        where = {"organization": entry["organization"], "site": entry["site"]}
        summary = await rag.ingest(samples / entry["path"], index=INDEX, base=samples, **where)
        assert not summary.failed
    STOCKED.add(here)


@pytest.fixture
async def rag(application: Application) -> Rag:
    await stock(application)
    return Rag(application)


async def test_passages_are_remembered_for_the_organization_that_asks(rag: Rag) -> None:
    embedder = rag.application.embedder
    assert isinstance(embedder, MiniLM)
    embedder.passages.vectors.clear()
    for _ in range(2):
        await rag.ask(HEADPHONES, index=INDEX, organization="aurora", site="eu")
        known = list(embedder.passages.vectors)
    aurora = (await rag.application.people.organization("aurora")).id
    assert known and all(aurora in organizations for organizations, _ in known)
    assert len({text for _, text in known}) == len(known)


@ON_DEFAULT
async def test_whether_all_that_holds_is_known_is_asked_before_it_is_listed(rag: Rag) -> None:
    """Products and accessories of the one shop say whether they are in stock; spare parts of the other one do not."""
    text = "Everything that's out of stock, please."
    here, there = [await rag.ask(text, index=INDEX, organization="aurora", site=site) for site in ("eu", "us")]
    assert all(each in here.text for each in ("3 records", "Wren Junior", "Balanced cable", "Dusk"))
    assert "Pip" not in there.text and "record" not in there.text


async def test_the_seeds_example(rag: Rag) -> None:
    result = await run_rag_pipeline(
        tenant_id="aurora",
        site_id="eu",
        query_text=HEADPHONES,
        top_k=10,
        similarity_threshold=0.7,
        allowed_source_types=["product"],
        max_context_tokens=4000,
        max_sources=5,
        rag=rag,
    )
    assert {chunk.source_type for chunk in result.chunks} == {"product"}
    assert "Halden 2 wireless headphones" in [block.title for block in result.context_blocks]
    assert all(chunk.similarity >= 0.7 for chunk in result.chunks)
    similarities = [chunk.similarity for chunk in result.chunks]
    assert similarities == sorted(similarities, reverse=True)
    best = result.evidence[0]
    assert best.chunk_ids[0] == result.chunks[0].id and best.score == similarities[0]
    assert best.url and best.url.startswith("https://aurora.example/eu/products/")
    assert best.source_updated_at and best.source_updated_at.startswith("2026-")
    assert [each.source_id for each in result.evidence] == [block.source_id for block in result.context_blocks]
    assert result.prompts.chat[1]["content"].endswith(f"Question: {HEADPHONES}")
    assert all(block.quoted in result.prompts.single for block in result.context_blocks)


async def test_similarity_is_one_minus_half_the_distance_and_the_threshold_is_literal(rag: Rag) -> None:
    tenant = await rag.application.people.organization("aurora")
    site = await rag.application.people.site(tenant.id, "eu")
    scope = Scope(frozenset({tenant.id}), None, site.id)
    hits = await rag.application.pipeline.search(INDEX, Question(HEADPHONES, top_k=30, mode=Mode.DENSE), scope)
    everything = await retrieve_chunks(tenant.id, site.id, HEADPHONES, 30, 0, rag=rag)
    assert [chunk.id for chunk in everything] == [str(hit.chunk_id) for hit in hits]
    for chunk, hit in zip(everything, hits, strict=True):
        assert chunk.similarity == pytest.approx((1 + hit.score) / 2) and chunk.distance == pytest.approx(1 - hit.score)
    default = await retrieve_chunks("aurora", "eu", HEADPHONES, rag=rag)
    assert 1 < len(default) < 10
    assert [chunk.id for chunk in default] == [str(hit.chunk_id) for hit in hits if hit.score >= 0.4][:10]
    exact = everything[3].similarity
    assert len(await retrieve_chunks("aurora", "eu", HEADPHONES, 30, exact - 1e-9, rag=rag)) == 4
    assert len(await retrieve_chunks("aurora", "eu", HEADPHONES, 30, exact + 1e-9, rag=rag)) == 3
    assert len(await retrieve_chunks("aurora", "eu", HEADPHONES, 2, rag=rag)) == 2


@ON_DEFAULT
@pytest.mark.parametrize("mode", ["hybrid", "text"])
async def test_other_modes_order_differently_and_cut_the_same(rag: Rag, mode: str) -> None:
    found = await retrieve_chunks("aurora", "eu", HEADPHONES, 5, 0.6, mode=mode, rag=rag)
    assert 0 < len(found) <= 5 and all(chunk.similarity >= 0.6 for chunk in found)


@ON_DEFAULT
async def test_source_types_and_policies(rag: Rag) -> None:
    async def types(**options: Any) -> set[str]:
        asked: dict[str, Any] = {"query_text": "returns", "top_k": 50, "similarity_threshold": 0.0, "rag": rag}
        result = await run_rag_pipeline(tenant_id="aurora", site_id="us", **asked, **options)
        return {chunk.source_type for chunk in result.chunks}

    everything = await types()
    assert {"product", "page"} <= everything
    assert await types(allowed_source_types=["page"]) == {"page"}
    assert await types(policy=rag_app.create_strict_policy(["product"])) == {"product"}
    assert await types(policy=rag_app.create_permissive_policy()) == everything
    with pytest.raises(Forbidden, match="page"):
        await types(policy=rag_app.create_strict_policy(["product"]), allowed_source_types=["page", "product"])
    with pytest.raises(InvalidInput, match="blog; accepted: product, page, policy"):
        await types(policy=rag_app.create_permissive_policy(), allowed_source_types=["blog"])


@ON_DEFAULT
async def test_limits_reach_the_context(rag: Rag) -> None:
    asked: dict[str, Any] = {
        "tenant_id": "aurora",
        "site_id": "eu",
        "query_text": HEADPHONES,
        "similarity_threshold": 0.6,
        "rag": rag,
    }
    small = await run_rag_pipeline(**asked, max_context_tokens=300, max_sources=3)
    shown = "\n\n".join(block.quoted for block in small.context_blocks)
    assert shown in small.prompts.single and 0 < len(tokens(shown)) <= 300
    letters = await run_rag_pipeline(**asked, max_context_characters=700)
    assert 0 < len("\n\n".join(block.quoted for block in letters.context_blocks)) <= 700
    separate = await run_rag_pipeline(**asked, merge_strategy="separate", max_chunks_per_source=2, max_sources=2)
    assert all(len(block.chunk_ids) == 1 for block in separate.context_blocks) and len(separate.evidence) == 2
    pirate = await run_rag_pipeline(**asked, system_template="You are a pirate.")
    assert pirate.prompts.chat[0] == {"role": "system", "content": "You are a pirate."}


@ON_DEFAULT
async def test_every_capability_can_be_asked(rag: Rag) -> None:
    """Each refuses what nothing tells, in its own words; those of a conversation without a thread."""
    for each in CAPABILITIES:
        asked: dict[str, Any] = {"index": each.index, "organization": "aurora", "capability": each.name}
        answer = await rag.ask("zxqv wvut pqzz?", **asked)
        assert answer.refused and answer.text in (each.refusal, each.near), each.name
    shop: dict[str, Any] = {"index": INDEX, "organization": "aurora", "site": "eu"}
    named = await rag.ask(HEADPHONES, **shop, capability="store_assistant")
    assert named.citations and named.text == (await rag.ask(HEADPHONES, **shop)).text
    with pytest.raises(NotFound, match="no capability named 'poet'; there are: alert_explanation, book_tutor, "):
        await rag.ask(HEADPHONES, **shop, capability="poet")
    with pytest.raises(InvalidInput, match="capability: owner_ask answers from salon_calls, not from store_catalogue"):
        await rag.ask(HEADPHONES, **shop, capability="owner_ask")


@ON_DEFAULT
async def test_a_conversations_capability_tells_its_model_what_a_first_message_would(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = await application.prompts.draw("general_chat")
    assert role
    with ScriptedModel(Reply("Hello! What do you sell?")) as model:
        monkeypatch.setenv("RAG_LLM", "openai_like")
        monkeypatch.setenv("RAG_LLM_API_BASE", model.url)
        async with rag_app.open() as rag:
            asked: dict[str, Any] = {"index": "marketplace", "organization": "public", "capability": "general_chat"}
            answer = await rag.ask("Hello?", **asked)
    (request,) = model.requests
    system, user = (message["content"] for message in request.body["messages"])
    assert answer.text == "Hello! What do you sell?" and role.instructions in system
    assert "CONVERSATION HISTORY" not in user and 'the code "en"' in user


@ON_DEFAULT
async def test_an_index_is_searched_with_its_own_model(rag: Rag) -> None:
    own = rag.application.embedder.model_name
    assert await retrieve_chunks("aurora", "eu", HEADPHONES, model=own, rag=rag)
    with pytest.raises(InvalidInput, match="model: index store_catalogue was built with all-MiniLM"):
        await retrieve_chunks("aurora", "eu", HEADPHONES, model="text-embedding-3-small", rag=rag)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"query_text": " "}, "query_text"), ({"query_text": None}, "query_text"), ({"query_text": "a\0b"}, "query_text"),
        ({"top_k": 0}, "top_k"), ({"top_k": 1001}, "top_k"), ({"top_k": 2.5}, "top_k"),
        ({"similarity_threshold": 1.1}, "similarity_threshold"), ({"similarity_threshold": float("nan")}, "threshold"),
        ({"mode": "fuzzy"}, "mode"), ({"tenant_id": ""}, "tenant_id"), ({"site_id": None}, "site_id"),
        ({"allowed_source_types": []}, "allowed_source_types"), ({"allowed_source_types": "page"}, "allowed_source_types"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_said_before_anything_is_opened(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        await retrieve_chunks(**{"tenant_id": "t", "site_id": "s", "query_text": "x", **options})


async def test_tenant_and_site_have_no_defaults() -> None:
    for call in (
        lambda: retrieve_chunks(query_text="x"),  # type: ignore[call-arg]
        lambda: retrieve_chunks("aurora", query_text="x"),  # type: ignore[call-arg]
        lambda: run_rag_pipeline(tenant_id="aurora", query_text="x"),  # type: ignore[call-arg]
        lambda: rag_app.quick_test("aurora", query_text="x"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="site_id"):
            await call()


@dataclass(frozen=True)
class Shop:
    """A tenant of its own with two sites, a source in each and one without a site; each has a word of its own."""

    slug: str
    id: str
    sites: dict[str, str]
    words: dict[str, str]


@pytest.fixture
async def shops(application: Application, tmp_path: Path) -> tuple[Shop, Shop]:
    rag, made = Rag(application), []
    for number in range(2):
        slug = f"shop-{uuid4().hex[:12]}"
        id_ = await rag.create_organization(slug)
        sites = {name: await rag.create_site(slug, f"{name}-{slug}") for name in ("north", "south")}
        words = {name: f"zq{uuid4().hex[:12]}" for name in (*sites, "none")}
        for name, word in words.items():
            file = tmp_path / f"{number}-{name}.jsonl"
            record = {"id": f"door-{name}", "title": "Door code", "text": f"The code of the door is {word}."}
            file.write_text(json.dumps({**record, "source_type": "policy"}) + "\n", "utf-8")
            summary = await rag.ingest(file, index=INDEX, organization=slug, site=sites.get(name), base=tmp_path)
            assert summary.added == 1
        made.append(Shop(slug, id_, sites, words))
    return made[0], made[1]


async def test_a_site_gives_its_own_and_nothing_else(application: Application, shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        for name, site in shop.sites.items():
            for tenant_id, site_id in ((shop.slug, f"{name}-{shop.slug}"), (shop.id, site)):
                for mode in Mode:
                    chunks = await retrieve_chunks(
                        tenant_id, site_id, "What is the code of the door?", 1000, 0, mode=mode, rag=Rag(application)
                    )
                    assert [chunk.text for chunk in chunks] == [f"The code of the door is {shop.words[name]}."]


async def test_a_tenant_gets_nothing_of_another_by_any_argument(
    application: Application, shops: tuple[Shop, Shop]
) -> None:
    mine, other = shops
    my_site, foreign_site, rag = mine.sites["north"], other.sites["north"], Rag(application)
    foreign = set(other.words.values())
    attempts: list[dict[str, Any]] = [
        {"site_id": foreign_site},
        {"site_id": f"north-{other.slug}"},
        {"tenant_id": other.slug},
        {"tenant_id": other.id},
        {"tenant_id": f"{mine.slug}' OR '1'='1"},
        {"site_id": f"{my_site}' OR '1'='1"},
        {"site_id": "%"},
        {"site_id": "\0"},
        {"query_text": f"org_id:{other.id} {other.words['north']}"},
        {"query_text": f"'; SET rag.organizations = '{other.id}'; --"},
        {"allowed_source_types": ["policy') OR (1=1"]},
        {"allowed_source_types": [other.id]},
        {"index": "store_catalogue; --"},
        {"index": "org_knowledge"},
        {"mode": f"dense {other.id}"},
        {"model": other.id},
    ]
    for attempt in attempts:
        for mode in Mode:
            asked: dict[str, Any] = {
                "tenant_id": mine.slug,
                "site_id": my_site,
                "query_text": "the code of the door",
                "mode": mode,
            }
            try:
                result = await run_rag_pipeline(
                    **{**asked, "policy": rag_app.create_permissive_policy(), **attempt},
                    top_k=1000, similarity_threshold=0, rag=rag,
                )  # fmt: skip
                assert "query_text" in attempt or "index" in attempt, attempt
                told = f"{result.chunks} {result.evidence}"
            except (InvalidInput, NotFound) as refused:
                told = str(refused)
            assert not [word for word in foreign if word in told], attempt


@ON_DEFAULT
async def test_an_error_does_not_tell_whether_a_site_or_a_tenant_exists(
    application: Application, shops: tuple[Shop, Shop]
) -> None:
    mine, other = shops

    async def said(tenant_id: str, site_id: str) -> str:
        with pytest.raises(NotFound) as refused:
            await retrieve_chunks(tenant_id, site_id, "x", rag=Rag(application))
        return str(refused.value).replace(site_id, "SITE").replace(tenant_id, "TENANT")

    foreign = [await said(mine.slug, site) for site in (other.sites["north"], f"north-{other.slug}")]
    unknown = [await said(mine.slug, site) for site in (str(uuid4()), "nowhere")]
    assert {*foreign, *unknown} == {"no site named 'SITE'"}
    assert await said("nobody", "x") == "no organization named 'TENANT'"


def test_a_users_private_source_is_not_for_a_site(environment: str, tmp_path: Path) -> None:
    async def work(application: Application) -> list[str]:
        rag, slug = Rag(application), f"shop-{uuid4().hex[:12]}"
        await rag.create_organization(slug)
        await rag.create_site(slug, "main")
        owner = await application.people.create_user(f"{slug}@example.org")
        await application.people.add_member(await application.people.organization(slug), owner)
        (tmp_path / "secret.md").write_text("# Secret\n\nThe code of the door is 4711.", "utf-8")
        where = {"organization": slug, "site": "main", "base": tmp_path, "owner": str(owner.id), "visibility": "user"}
        await rag.ingest(tmp_path / "secret.md", index=INDEX, **where)  # type: ignore[arg-type]
        seen = await rag.search("door", index=INDEX, organization=slug, user=str(owner.id), site="main")
        assert len(seen) == 1
        return [chunk.text for chunk in await retrieve_chunks(slug, "main", "door", 10, 0, rag=rag)]

    assert prepare(work) == []


@ON_DEFAULT
@pytest.mark.parametrize(
    "call", ["search", "ask", "store", "engine", "retriever", "ingest", "owner", "http", "evaluate"]
)
async def test_nobody_but_a_member_asks_as_a_user(
    application: Application, shops: tuple[Shop, Shop], call: str
) -> None:
    """Of the public organization everybody is one. An empty name, as of somebody who has not signed in, is nobody."""
    rag, people, (mine, other) = Rag(application), application.people, shops
    user = await people.create_user(f"{uuid4().hex}@example.org")
    await people.add_member(await people.organization(other.slug), user)

    async def run(organization: str, name: str) -> Any:
        where: dict[str, Any] = {"index": INDEX, "organization": organization}
        match call:
            case "search" | "ask":
                return await getattr(rag, call)("What is the code of the door?", **where, user=name)
            case "owner":
                return await rag.ingest(**where, owner=name)
            case "http" | "evaluate":
                turns = [{"text": "What is the code of the door?"}]
                whose = {"organization": organization, "user": name, "site": None, "turns": turns}
                corpus = "org_knowledge" if call == "http" else INDEX
                thread = Thread.model_validate({"id": "1", "corpus": corpus, "kind": "one", "language": "en", **whose})
                return await ask_threads(application, [thread], None, None, None, lambda _: None)
            case "ingest":
                return await rag.ingest(**where, owner=name, visibility="user")
            case _:
                return await getattr(rag, call)(**where, user=name)

    for name in (user.name, str(user.id)):
        with pytest.raises(InvalidInput, match=f"(user|owner): '{name}' is not a member of {mine.slug}"):
            await run(mine.slug, name)
        await run(other.slug, name)
    if call != "ingest":
        await run("public", user.name)
    with pytest.raises(NotFound, match="no user named ''"):
        await run(other.slug, "")


@ON_DEFAULT
async def test_quick_test_prints_what_it_returns(rag: Rag, capsys: pytest.CaptureFixture[str]) -> None:
    report = await rag_app.quick_test("aurora", "eu", HEADPHONES, rag=rag)
    assert capsys.readouterr().out == report + "\n"
    for part in (HEADPHONES, "Chunks: ", "Context blocks: ", "Evidence: ", "Prompt, ", "[Source 1] 0.", "Halden 2"):
        assert part in report
    result = await rag_app.test_rag_pipeline(
        tenant_id="aurora", site_id="eu", query_text="zxqv", similarity_threshold=0.99, rag=rag
    )
    assert "Chunks: 0" in capsys.readouterr().out
    assert (result.chunks, result.context_blocks, result.evidence) == ([], [], [])
    assert "(nothing was found)" in result.prompts.single


def public() -> Iterator[tuple[str, Any]]:
    """What is public, by the name that stands in its example: functions, constants, classes, and what these define."""
    for name in [*rag_app.__all__, "open"]:
        member = getattr(rag_app, name)
        yield name, member
        if inspect.isclass(member):
            for each, value in vars(member).items():
                if not each.startswith("_") and isinstance(value, FunctionType | classmethod | staticmethod | property):
                    yield f"{name}.{each}", value


def shown_in_docstrings() -> list[tuple[str, str]]:
    """The examples that need data: what stands below "Example:". The others are doctests."""
    found = []
    for name, member in public():
        _, sign, example = (inspect.getdoc(member) or "").partition("Example:\n")
        if sign:
            found.append((name, textwrap.dedent(example)))
    return found


def shown_on_the_page() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "library.md").read_text("utf-8"), re.M | re.S)


def execute(code: str, names: dict[str, Any]) -> None:
    """As a notebook's cell, where `await` stands at the top level."""
    compiled = compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(compiled, names)
    if inspect.iscoroutine(running):
        asyncio.run(running)


def test_everything_public_has_an_example_that_the_tests_run() -> None:
    run_here, names = dict(shown_in_docstrings()), [name for name, _ in public()]
    assert {"Rag.ask", "Chunk.distance", "DEFAULT_POLICY", "open"} <= set(names)
    missing = []
    for name, member in public():
        written = [each.source for each in doctest.DocTestParser().get_examples(inspect.getdoc(member) or "")]
        # types of the HTTP API, whose docstrings are in its OpenAPI document, are shown by the function that returns them
        returned = run_here["ask_with_citations"] if name in ("Citation", "RAGResponse") else ""
        example = run_here.get(name, "") + returned + "".join(written)
        if not re.search(rf"\b{name.rpartition('.')[2]}\b", example):
            missing.append(name)
    assert not missing, "a public name needs an example, as a doctest or, with data, below `Example:`"


@ON_DEFAULT
def test_the_documented_examples_run(
    environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(stock)
    monkeypatch.chdir(tmp_path)
    for _, code in shown_in_docstrings():
        # the stores have one database: an organization that an example makes is made twice
        execute(code.replace("meadow", f"meadow-{uuid4().hex[:12]}"), {"rag_app": rag_app})
    page = shown_on_the_page()
    assert len(page) > 3 and "run_rag_pipeline(" in page[0]
    names: dict[str, Any] = {}
    for code in page:
        execute(code, names)
    assert "Halden 2" in capsys.readouterr().out


async def test_it_opens_a_database_of_its_own_inside_a_running_loop(
    tmp_path: Path, default_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        if name.startswith(("RAG_", "QDRANT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("RAG_VECTOR_STORE", default_store)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".rag").mkdir()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    beside = asyncio.create_task(others())
    try:
        with pytest.raises(NotFound, match="no organization named 'aurora'"):
            await retrieve_chunks("aurora", "eu", HEADPHONES)
        assert turns > 20, "the loop stood still while PostgreSQL was made"
    finally:
        beside.cancel()
        cluster = (tmp_path / ".rag" / "postgres" / "cluster").resolve()  # may lie outside of the folder
        stopped = not (cluster / "data" / "postmaster.pid").exists()
        shutil.rmtree(cluster)
    assert stopped


@ON_DEFAULT
async def test_a_closed_rag_says_so(rag: Rag) -> None:
    rag.close()
    with pytest.raises(rag_app.RagError, match="this Rag is closed"):
        await rag.search("headphones", index=INDEX, organization="aurora")


@ON_DEFAULT
async def test_a_call_that_is_cancelled_leaves_no_exception_behind(rag: Rag) -> None:
    """Wherever it is cancelled, nothing that it began fails unheard, and the next call is answered."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    cancelled = 0
    for turns in range(0, 200, 5):  # of the event loop, before it is cancelled
        asked = asyncio.create_task(rag.ask(HEADPHONES, index=INDEX, organization="aurora", site="eu"))
        for _ in range(turns):
            await asyncio.sleep(0)
        asked.cancel()
        (ended,) = await asyncio.gather(asked, return_exceptions=True)
        cancelled += isinstance(ended, asyncio.CancelledError)
    gc.collect()
    await asyncio.sleep(0)
    assert cancelled > 20 and told == []
    assert (await rag.ask(HEADPHONES, index=INDEX, organization="aurora", site="eu")).text
