"""The SQL functions, called as PostgREST calls them: the same hits as the pipeline's, and nobody else's.

A login role takes on `authenticated` for one transaction and says whose token it has verified. What each person may
see is computed from this file alone.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from rag_app.application import Application
from rag_app.console import database
from rag_app.database.private import PrivatePostgres
from rag_app.documents.metadata import Target
from rag_app.domain.answer import Hit, Mode, Question
from rag_app.domain.scope import PUBLIC_ORGANIZATION
from rag_app.domain.source import Visibility, source_id
from rag_app.retrieval.embedding import embed_query
from rag_app.retrieval.filters import condition
from rag_app.surfaces.knowledge.routes import RetrievalFilters, _meta
from tests.conftest import NewPostgres
from tests.integration.service import configured, prepare
from tests.integration.test_db_migrate import run, superuser

PARAMETERS = {
    "rag_match": {"query_vector": "vector", "top_k": "integer", "filters": "jsonb"},
    "match_embeddings": {
        "query_embedding": "vector", "match_threshold": "float8", "match_count": "integer", "tenant_id_param": "uuid",
        "site_id_param": "uuid", "entity_types": "text[]",
    },
    "search_rag_context": {
        "p_query_embedding": "vector", "p_user_id": "uuid", "p_capability": "text", "p_market": "text",
        "p_time_range_from": "timestamptz", "p_time_range_to": "timestamptz", "p_top_k": "integer",
    },
}  # fmt: skip
SOURCE_TYPES = {
    "market_brief": {"keyword", "trend"},
    "competitor_intel": {"listing", "shop", "keyword"},
    "keyword_explanation": {"keyword", "keyword_history", "alert"},
    "alert_explanation": {"alert", "risk_rule", "doc"},
    "general_chat": {"doc", "keyword", "watchlist"},
}
QUESTION = "What is the door code of the house?"
DIMENSION = 384


@dataclass(frozen=True)
class Text:
    index: str
    name: str
    org: UUID
    text: str
    owner: UUID | None = None
    site: UUID | None = None
    private: bool = False
    audience: UUID | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> UUID:
        return source_id(self.org, self.index, self.name)


@dataclass(frozen=True)
class Person:
    """`subject` is the `sub` of a token; `id` is None where the database knows no such user."""

    subject: str
    id: UUID | None = None
    organizations: frozenset[UUID] = frozenset()
    audiences: frozenset[UUID] = frozenset()

    @property
    def claimed(self) -> str | None:
        """The user of the claims, whether the database knows them or not."""
        return None if "|" in self.subject else self.subject

    @property
    def claims(self) -> str:
        return json.dumps({"sub": self.subject, "role": "authenticated", "aud": "authenticated"})


@dataclass(frozen=True)
class World:
    server: PrivatePostgres
    a: UUID
    b: UUID
    sites: Mapping[str, UUID]
    people: Mapping[str, Person]
    texts: Sequence[Text]
    vector: list[float]

    @property
    def gateway_url(self) -> str:
        return f"postgresql://authenticator:gate@{self.server.app_url.partition('@')[2]}"

    def visible(self, person: Person, index: str) -> set[UUID]:
        mine = person.organizations | {PUBLIC_ORGANIZATION}
        return {
            each.id
            for each in self.texts
            if each.index == index
            and each.org in mine
            and (not each.private or each.owner == person.id)
            and each.audience in (None, *person.audiences)
        }

    @asynccontextmanager
    async def as_gateway(self, claims: str | None, **settings: str) -> AsyncIterator[asyncpg.Connection]:
        """A request as PostgREST begins it; `settings` are what somebody slipped in."""
        connection = await asyncpg.connect(self.gateway_url)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL ROLE authenticated")
                if claims is not None:
                    await connection.execute("SELECT set_config('request.jwt.claims', $1, true)", claims)
                for name, value in settings.items():
                    await connection.execute("SELECT set_config($1, $2, true)", name.replace("_", ".", 1), value)
                yield connection
        finally:
            await connection.close()

    async def rpc(self, claims: str | None, function: str, **arguments: Any) -> list[asyncpg.Record]:
        async with self.as_gateway(claims) as connection:
            return await call(connection, function, arguments)

    def everything(self, person: Person, function: str) -> dict[str, Any]:
        """Arguments that would find all."""
        if function == "rag_match":
            return {"query_vector": self.vector, "top_k": 1000}
        if function == "search_rag_context":
            return {"p_query_embedding": self.vector, "p_user_id": person.claimed, "p_top_k": 1000}
        return {
            "query_embedding": self.vector, "match_threshold": 3, "match_count": 1000, "tenant_id_param": str(self.a),
            "site_id_param": str(self.sites["a eu"]),
        }  # fmt: skip


async def call(connection: asyncpg.Connection, function: str, arguments: Mapping[str, Any]) -> list[asyncpg.Record]:
    """One JSON object as the only parameter, read by the declared types."""
    types = {name: PARAMETERS[function][name] for name in arguments}
    found: list[asyncpg.Record] = await connection.fetch(
        f"SELECT found.* FROM json_to_record($1::json) AS body ({', '.join(f'{n} {t}' for n, t in types.items())}), "
        f"LATERAL {function}({', '.join(f'{name} => body.{name}' for name in types)}) found",
        json.dumps(arguments),
    )
    return found


async def load(application: Application, folder: Path, texts: Iterable[Text]) -> None:
    for number, each in enumerate(texts):
        file = folder / f"{number}.jsonl"
        file.write_text(json.dumps({"id": each.name, "text": each.text, **each.fields}), "utf-8")
        visibility = Visibility.TEAM
        if each.org == PUBLIC_ORGANIZATION:
            visibility = Visibility.GLOBAL
        if each.private:
            visibility = Visibility.USER
        if each.audience:
            visibility = Visibility.GROUP
        target = Target(each.org, each.site, each.owner, visibility, each.audience)
        summary = await (await application.ingestor(application.indexes[each.index], target)).ingest(
            [file], base=folder
        )
        assert not summary.failed


async def build(application: Application, folder: Path, server: PrivatePostgres) -> World:
    people = application.people
    first, second = [await people.create_organization(name, name.title()) for name in ("first", "second")]
    a, b = first.id, second.id

    async def person(name: str, *organizations: Any) -> Person:
        user = await people.create_user(name)
        for organization in organizations:
            await people.add_member(organization, user)
        return Person(str(user.id), user.id, frozenset(each.id for each in organizations))

    ann, bob, cyd = await person("ann", first), await person("bob", first, second), await person("cyd")
    groups = application.groups
    cleaners = await groups.create(first, "cleaners")
    await groups.add_member(cleaners, await people.user(str(ann.id)))
    await groups.create(second, "cleaners")
    here, there = await groups.audience(first, ["cleaners"]), await groups.audience(second, ["cleaners"])
    ann = replace(ann, audiences=frozenset({here}))
    sites = {name: (await people.create_site(org, name)).id for name, org in (("a eu", a), ("a us", a), ("b eu", b))}
    types, dates = ["transcript", "email", "doc", "faq", "web"], ["2026-01-14T23:59:59.5Z", "2026-01-15", "2026-01-16"]
    texts = [
        Text(
            "org_knowledge", f"door {number}", org, f"The door code of house {number} is {code}.",
            fields={"title": f"Door {number}", "source_type": types[number % 5], "lang": ("en", "fr")[number % 2],
                    "author": "Ada", "tags": ["door", "code"], "uri": f"https://example.org/{number}"}
            | ({"date": dates[number % 3]} if number % 4 else {}),
        )
        for number, (org, code) in enumerate([(org, n) for n in range(4) for org in (a, b, PUBLIC_ORGANIZATION)])
    ]  # fmt: skip
    for index in ("org_knowledge", "marketplace"):
        texts += [
            Text(index, f"of {who.subject} in {org}", org, "My own door code is 99.", who.id, private=True)
            for who, org in ((ann, a), (bob, a), (bob, b), (cyd, a))
        ]
        texts += [
            Text(index, f"of cleaners in {org}", org, "The door code of cleaners is 5.", audience=audience)
            for org, audience in ((a, here), (b, there))
        ]
    long = " ".join(f"Sentence {number} tells of shipping, returns and the door of the shop." for number in range(60))
    for site, org in (("a eu", a), ("a us", a), ("b eu", b)):
        texts += [
            Text(
                "store_catalogue", f"{site} {kind}", org, long if kind == "policy" else f"A {kind} of the shop {site}.",
                site=sites[site], fields={"source_type": kind, "title": f"{kind} {site}", "date": "2026-02-02"},
            )
            for kind in ("product", "page", "policy")
        ]  # fmt: skip
    texts.append(Text("store_catalogue", "no site", a, "A page of no site.", fields={"source_type": "page"}))
    kinds = ["keyword", "keyword_history", "trend", "listing", "shop", "alert", "risk_rule", "watchlist", "doc"]
    for org in (a, b, PUBLIC_ORGANIZATION):
        texts += [
            Text(
                "marketplace", f"{kind} of {org}", org, long if kind == "doc" else f"The {kind} of door bells.",
                owner=ann.id if org == a and number % 2 else None,
                fields={"source_type": kind, "title": kind, "date": f"2026-01-{number + 10}", "demand_index": number,
                        "market": ("etsy", "amazon")[number % 2]},
            )
            for number, kind in enumerate(kinds)
        ]  # fmt: skip
    texts += [
        Text("marketplace", state, a, f"A {state} listing.", fields={"source_type": "listing", "status": state})
        for state in ("active", "paused")
    ]
    await load(application, folder, texts)
    return World(
        server, a, b, sites,
        {"ann": ann, "bob": bob, "cyd": cyd, "unknown": Person(str(uuid4())), "elsewhere": Person("auth0|stranger")},
        texts, await embed_query(application.embedder, QUESTION),
    )  # fmt: skip


@pytest.fixture(scope="module")
def world(new_database: NewPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    server, folder = new_database(), tmp_path_factory.mktemp("sql")
    asyncio.run(
        run(
            superuser(server),
            "CREATE ROLE authenticated NOLOGIN",
            "CREATE ROLE authenticator LOGIN NOINHERIT PASSWORD 'gate'",
            "GRANT authenticated TO authenticator",
            "GRANT CONNECT ON DATABASE rag TO authenticator",
        )
    )
    with configured(
        {
            "RAG_DATABASE_URL": server.app_url,
            "RAG_DATABASE_OWNER_URL": server.owner_url,
            "RAG_DATABASE_GATEWAY_ROLE": "authenticated",
            "RAG_VECTOR_STORE": "postgres",  # which is what the functions search
            "RAG_HOME": str(folder),
        }
    ):
        database.upgrade()
        yield prepare(lambda application: build(application, folder, server))


def same_scores(rows: Mapping[UUID, float], hits: Mapping[UUID, float]) -> None:
    assert set(rows) == set(hits)
    assert all(abs(rows[each] - hits[each]) < 1e-6 for each in hits)


FILTERS: list[dict[str, str | None]] = [
    {}, {"source_type": "faq"}, {"source_type": "web", "lang": "de"}, {"lang": "fr"}, {"lang": "EN-gb"}, {"org_id": "a"},
    {"org_id": "b"}, {"date_from": "2026-01-15"}, {"date_to": "2026-01-15"}, {"date_to": "2026-01-14T23:59:59.4Z"},
    {"date_from": "2026-01-14T23:59:59.5+00:00", "date_to": "2026-01-15T00:00:00"},
    {"date_from": "2026-01-15T02:00:00+02:00"}, {"lang": "en", "source_type": "doc", "org_id": "a", "date_to": None},
    {"date_from": "9999-12-31"},
]  # fmt: skip


def test_rag_match_finds_what_the_pipeline_finds(world: World) -> None:
    async def compare(application: Application) -> int:
        found = 0
        for person in world.people.values():
            principal = await application.people.principal(person.subject)
            for written in FILTERS:
                given = {**written}
                if "org_id" in given:
                    given["org_id"] = str({"a": world.a, "b": world.b}[str(given["org_id"])])
                typed: Any = {**given, "org_id": UUID(given["org_id"])} if given.get("org_id") else given
                question = Question(QUESTION, RetrievalFilters(**typed).conditions(), 5, Mode.DENSE)
                hits = await application.pipeline.search("org_knowledge", question, principal.scope())
                rows = await world.rpc(person.claims, "rag_match", query_vector=world.vector, top_k=5, filters=given)
                if len(hits) < 5:  # else equal scores may be cut
                    assert {row["chunk_id"] for row in rows} == {hit.chunk_id for hit in hits}, (person, given)
                assert [round(row["score"], 6) for row in rows] == [round(hit.score, 6) for hit in hits]
                known = {hit.chunk_id: hit for hit in hits}
                for row in rows:
                    if row["chunk_id"] in known:
                        same_row(row, known[row["chunk_id"]])
                        found += 1
        return found

    assert prepare(compare) > 100


def same_row(row: asyncpg.Record, hit: Hit) -> None:
    assert (row["source_id"], row["source_type"], row["source_title"]) == (hit.source_id, hit.source_type, hit.title)
    assert (row["source_uri"], row["text"], row["snippet"]) == (hit.uri, hit.text, hit.text[:200])
    mine, theirs = json.loads(row["meta"]), _meta(hit)
    assert theirs.pop("link") and mine.pop("untyped", {}).keys() <= {"date"}  # as it was written: HTTP shows it so
    for meta in (mine, theirs):
        if "date" in meta:
            meta["date"] = datetime.fromisoformat(str(meta["date"])).timestamp()
    assert mine == theirs


NO_TYPE = condition("source_type", "is_empty")
"""Holds of no chunk; an empty list of types does, in SQL."""


def test_match_embeddings_finds_what_the_pipeline_finds_in_one_site(world: World) -> None:
    async def compare(application: Application) -> int:
        found = 0
        for person in world.people.values():
            principal = await application.people.principal(person.subject)
            for site, site_id in world.sites.items():
                tenant = world.a if site.startswith("a") else world.b
                for types in (None, ["product", "policy"], []):
                    one_of = condition("source_type", "in", tuple(types)) if types else NO_TYPE
                    filters = () if types is None else (one_of,)
                    question = Question(QUESTION, filters, 1000, Mode.DENSE)
                    hits = await application.pipeline.search("store_catalogue", question, principal.scope(site_id))
                    for threshold in (3.0, 0.9):
                        rows = await world.rpc(
                            person.claims, "match_embeddings", query_embedding=world.vector, match_threshold=threshold,
                            match_count=1000, tenant_id_param=str(tenant), site_id_param=str(site_id),
                            entity_types=types,
                        )  # fmt: skip
                        below = {hit.chunk_id: 1 - hit.score for hit in hits if 1 - hit.score <= threshold}
                        same_scores({row["id"]: row["distance"] for row in rows}, below)
                        assert [row["distance"] for row in rows] == sorted(row["distance"] for row in rows)
                        assert all(row["tenant_id"] == tenant and row["site_id"] == site_id for row in rows)
                        found += len(rows)
        return found

    assert prepare(compare) > 50


async def test_match_embeddings_gives_the_whole_row(world: World) -> None:
    rows = await world.rpc(
        world.people["ann"].claims, "match_embeddings", query_embedding=world.vector, match_threshold=2, match_count=99,
        tenant_id_param=str(world.a), site_id_param=str(world.sites["a eu"]),
    )  # fmt: skip
    policy = [row for row in rows if row["entity_type"] == "policy"]
    assert sorted(row["chunk_index"] for row in policy) == list(range(len(policy))) and len(policy) > 1
    (page,) = [row for row in rows if row["entity_type"] == "page"]
    assert page["entity_id"] == source_id(world.a, "store_catalogue", "a eu page")
    assert page["content"] == "A page of the shop a eu." and json.loads(page["metadata"])["title"] == "page a eu"
    assert page["source_updated_at"].isoformat() == "2026-02-02T00:00:00+00:00"
    assert len(json.loads(page["embedding"])) == DIMENSION
    best = rows[0]["distance"]
    for threshold, count in ((best - 1e-9, 0), (best, 1)):
        nearer = await world.rpc(
            world.people["ann"].claims, "match_embeddings", query_embedding=world.vector, match_threshold=threshold,
            match_count=99, tenant_id_param=str(world.a), site_id_param=str(world.sites["a eu"]),
        )  # fmt: skip
        assert len(nearer) == count


@pytest.mark.parametrize("capability", SOURCE_TYPES)
def test_search_rag_context_gives_the_best_chunk_of_each_source(world: World, capability: str) -> None:
    async def compare(application: Application) -> None:
        for person in world.people.values():
            principal = await application.people.principal(person.subject)
            for market, since, until in ((None, None, None), ("etsy", "2026-01-11", "2026-01-15"), ("x'", None, None)):
                conditions = [condition("source_type", "in", tuple(SOURCE_TYPES[capability]))]
                if market:
                    conditions.append(condition("market", "==", market))
                if since and until:
                    conditions.append(condition("date", ">=", f"{since}T00:00:00Z"))
                    conditions.append(condition("date", "<=", f"{until}T00:00:00Z"))
                question = Question(QUESTION, tuple(conditions), 1000, Mode.DENSE)
                hits = await application.pipeline.search("marketplace", question, principal.scope())
                best: dict[UUID, Hit] = {}
                for hit in hits:
                    if hit.metadata.get("status") != "paused":
                        best.setdefault(hit.source_id, hit)
                rows = await world.rpc(
                    person.claims, "search_rag_context", p_query_embedding=world.vector, p_user_id=person.claimed,
                    p_capability=capability, p_market=market, p_time_range_from=since, p_time_range_to=until,
                    p_top_k=1000,
                )  # fmt: skip
                same_scores(
                    {row["source_id"]: row["similarity_score"] for row in rows},
                    {each: hit.score for each, hit in best.items()},
                )
                for row in rows:
                    hit = best[row["source_id"]]
                    meta = json.loads(row["metadata"])
                    assert (row["source_type"], row["source_label"]) == (hit.source_type, hit.title)
                    assert (meta["chunk_id"], meta["text"]) == (str(hit.chunk_id), hit.text)
                    assert {name: meta[name] for name in hit.metadata} == dict(hit.metadata)
                    assert hit.moment is None or meta["date"] == f"{hit.moment:%Y-%m-%dT%H:%M:%SZ}"
                    public = hit.org_id == PUBLIC_ORGANIZATION
                    own = person.id is not None and hit.owner_id == person.id
                    assert row["owner_scope"] == ("user" if own else "global" if public else "team")

    prepare(compare)


FUNCTIONS = {"rag_match": "org_knowledge", "match_embeddings": "store_catalogue", "search_rag_context": "marketplace"}
NO_ONE = [
    None,
    "",
    "{}",
    '{"role": "anon"}',
    '{"sub": null}',
    '{"sub": ""}',
    '{"sub": " "}',
    "[]",
    '"sub"',
    "7",
    "null",
]


async def sources(world: World, claims: str | None, function: str, arguments: Mapping[str, Any]) -> set[UUID]:
    rows = await world.rpc(claims, function, **arguments)
    return {row["entity_id" if function == "match_embeddings" else "source_id"] for row in rows}


async def test_everybody_sees_what_is_theirs_and_what_is_public(world: World) -> None:
    for person in world.people.values():
        found = await sources(world, person.claims, "rag_match", world.everything(person, "rag_match"))
        assert found == world.visible(person, "org_knowledge")
        visible = world.visible(person, "marketplace")
        for capability, types in SOURCE_TYPES.items():
            arguments = world.everything(person, "search_rag_context") | {"p_capability": capability}
            expected = {
                each.id for each in world.texts
                if each.id in visible and each.fields.get("source_type", "doc") in types
                and each.fields.get("status") != "paused"
            }  # fmt: skip
            assert await sources(world, person.claims, "search_rag_context", arguments) == expected
        for name, org in (("a eu", world.a), ("b eu", world.b), ("a us", world.b), ("b eu", world.a)):
            arguments = world.everything(person, "match_embeddings") | {
                "tenant_id_param": str(org), "site_id_param": str(world.sites[name]),
            }  # fmt: skip
            expected = {
                each.id for each in world.texts
                if each.site == world.sites[name] and each.org == org and org in person.organizations
            }  # fmt: skip
            assert await sources(world, person.claims, "match_embeddings", arguments) == expected


async def test_the_filter_holds_alone_where_row_level_security_is_off(world: World) -> None:
    """That the policies hold alone, too, shows where the gateway reads a table itself."""
    owner = await asyncpg.connect(world.server.owner_url.replace("+asyncpg", ""))
    tables = [f"g_{index}_1_{table}" for index in FUNCTIONS.values() for table in ("chunks", "vectors")]
    for table in tables:
        await owner.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    try:
        await test_everybody_sees_what_is_theirs_and_what_is_public(world)
    finally:
        for table in tables:
            await owner.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        await owner.close()


@pytest.mark.parametrize("claims", NO_ONE)
@pytest.mark.parametrize("function", FUNCTIONS)
async def test_without_a_subject_nothing_is_found(world: World, claims: str | None, function: str) -> None:
    nobody = Person("|")
    assert await sources(world, claims, function, world.everything(nobody, function)) == set()


async def test_claims_that_are_no_json_are_an_error(world: World) -> None:
    for claims in ("{", "sub", '{"sub": "\\u0000"}'):
        with pytest.raises(asyncpg.DataError):
            await world.rpc(claims, "rag_match", **world.everything(world.people["ann"], "rag_match"))


async def test_a_user_is_known_in_any_notation_and_by_no_other_text(world: World) -> None:
    bob = world.people["bob"]
    everything, all_of_bob = world.everything(bob, "rag_match"), world.visible(bob, "org_knowledge")
    for subject in (bob.subject.upper(), bob.subject.replace("-", ""), f" {bob.subject}"):
        assert await sources(world, json.dumps({"sub": subject}), "rag_match", everything) == all_of_bob
    public = world.visible(Person("|"), "org_knowledge")
    for subject in (
        f"{bob.subject}0",
        f"{bob.subject},x",
        f"{bob.subject}' OR true --",
        "*",
        "0",
        str(world.a),
        "x" * 9999,
    ):
        assert await sources(world, json.dumps({"sub": subject}), "rag_match", everything) == public
    assert await sources(world, json.dumps({"sub": [bob.subject]}), "rag_match", everything) == public


async def test_a_member_who_leaves_sees_it_at_once(world: World) -> None:
    ann, everything = world.people["ann"], world.everything(world.people["ann"], "rag_match")
    app = await asyncpg.connect(world.server.app_url.replace("+asyncpg", ""))
    await app.execute("DELETE FROM memberships WHERE user_id = $1", ann.id)
    left = await sources(world, ann.claims, "rag_match", everything)
    await app.execute("INSERT INTO memberships (user_id, org_id) VALUES ($1, $2)", ann.id, world.a)
    back = await sources(world, ann.claims, "rag_match", everything)
    await app.execute(
        "INSERT INTO group_members (group_id, user_id, org_id) SELECT id, $1, org_id FROM groups WHERE org_id = $2",
        ann.id, world.a,
    )  # fmt: skip
    await app.close()
    assert left == world.visible(Person("|"), "org_knowledge")
    assert back == world.visible(replace(ann, audiences=frozenset()), "org_knowledge"), "who leaves, leaves the groups"
    assert await sources(world, ann.claims, "rag_match", everything) == world.visible(ann, "org_knowledge")


async def test_the_gateway_cannot_pose_as_the_application(world: World) -> None:
    ann, bob = world.people["ann"], world.people["bob"]
    slipped = {
        "rag_organizations": f"{{{world.a},{world.b}}}", "rag_user": str(bob.id), "rag_operator": "on",
        "rag_audiences": f"{{{','.join(str(each.audience) for each in world.texts if each.audience)}}}",
    }  # fmt: skip
    for person, claims in ((ann, ann.claims), (Person("|"), None)):
        async with world.as_gateway(claims, **slipped) as connection:
            rows = await call(connection, "rag_match", world.everything(person, "rag_match"))
            visible = world.visible(person, "org_knowledge") if claims else set()
            assert {row["source_id"] for row in rows} == visible
            assert {row["source_id"] for row in await connection.fetch("TABLE g_org_knowledge_1_chunks")} == visible
            who = await connection.fetchrow("SELECT rag_organizations() AS o, rag_user() AS u, rag_operator() AS x")
            assert set(who["o"]) == ({world.a, PUBLIC_ORGANIZATION} if claims else set())
            assert (who["u"], who["x"]) == (person.id if claims else None, False)
    for role in ("rag_app", "rag_owner", "postgres"):
        async with world.as_gateway(ann.claims) as connection:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f"SET LOCAL ROLE {role}")


async def test_the_application_cannot_pose_as_a_user_of_the_gateway(world: World) -> None:
    bob = world.people["bob"]
    for url in (world.server.app_url, world.server.owner_url):
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        for organizations, user, expected in (
            ("", "", set()),
            (f"{{{world.a}}}", str(world.people["ann"].id), {world.a}),
        ):
            async with connection.transaction():
                for name, value in {
                    "request.jwt.claims": bob.claims, "rag.organizations": organizations, "rag.user": user,
                }.items():  # fmt: skip
                    await connection.execute("SELECT set_config($1, $2, true)", name, value)
                rows = await call(connection, "rag_match", world.everything(bob, "rag_match"))
                assert {json.loads(row["meta"])["org_id"] for row in rows} == {str(each) for each in expected}
                assert await connection.fetchval("SELECT rag_user()") == (UUID(user) if user else None)
        await connection.close()


async def test_another_role_is_whoever_its_claims_say(world: World) -> None:
    """A role of somebody's reports, which may read a table: not the settings, but claims decide, and it has none."""
    await run(
        superuser(world.server),
        "CREATE ROLE reports LOGIN PASSWORD 'r'",
        "GRANT CONNECT ON DATABASE rag TO reports",
        "GRANT USAGE ON SCHEMA public TO reports",
        "GRANT SELECT ON g_org_knowledge_1_chunks, sources TO reports",
    )
    connection = await asyncpg.connect(f"postgresql://reports:r@{world.server.app_url.partition('@')[2]}")
    await connection.execute(f"SET rag.organizations = '{{{world.a}}}'")
    for table in ("g_org_knowledge_1_chunks", "sources"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="rag_claimed_organizations"):
            await connection.fetch(f"TABLE {table}")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="rag_match"):
        await call(connection, "rag_match", world.everything(world.people["ann"], "rag_match"))
    await connection.close()


async def test_the_gateway_is_granted_what_the_functions_read_and_nothing_else(world: World) -> None:
    connection = await asyncpg.connect(superuser(world.server))
    granted = await connection.fetch(
        "SELECT relname, privilege FROM pg_class, unnest(ARRAY['SELECT','INSERT','UPDATE','DELETE','TRUNCATE',"
        "'REFERENCES','TRIGGER']) privilege WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S')"
        " AND CASE relkind WHEN 'r' THEN has_table_privilege('authenticated', oid, privilege) ELSE"
        " has_sequence_privilege('authenticated', oid, 'USAGE, SELECT, UPDATE') END"
    )
    assert {tuple(row) for row in granted} == {
        ("source_types", "SELECT"),
        *((f"g_{index}_1_{table}", "SELECT") for index in FUNCTIONS.values() for table in ("chunks", "vectors")),
    }
    columns = await connection.fetch(
        "SELECT attrelid::regclass::text || '.' || attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
        " WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped"
        " AND has_column_privilege('authenticated', attrelid, attnum, 'SELECT,INSERT,UPDATE,REFERENCES')"
        " AND NOT relname ~ '^g_|^source_types$'"
    )
    assert {row[0] for row in columns} == {
        f"generations.{name}" for name in ("index_name", "store", "number", "embedding_model", "dimension", "state")
    }
    functions = await connection.fetch(
        "SELECT proname, prosecdef, has_function_privilege('public', oid, 'EXECUTE') AS anybody FROM pg_proc"
        " WHERE pg_get_userbyid(proowner) = 'rag_owner'"
    )
    assert {row["proname"] for row in functions if row["prosecdef"]} == {
        "rag_claimed_organizations",
        "rag_claimed_readers",
        "rag_claimed_user",
    }
    closed = {row["proname"] for row in functions if not row["anybody"]}
    searches = {"rag_match", "match_embeddings", "search_rag_context", "is_org_member"}
    assert closed == {*searches, "rag_claimed_organizations", "rag_claimed_readers", "rag_claimed_user", "rag_readers"}
    definers = await connection.fetch("SELECT proconfig FROM pg_proc WHERE proname LIKE 'rag\\_claimed\\_%'")
    assert [row["proconfig"] for row in definers] == [["search_path=pg_catalog, pg_temp"]] * 3
    await connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "TABLE sources", "TABLE users", "TABLE memberships", "TABLE group_members", "TABLE api_keys", "TABLE organizations", "TABLE sites",
        "TABLE generations", "SELECT settings FROM generations", "TABLE g_org_knowledge_1_words",
        "TABLE g_book_1_chunks", "DELETE FROM g_org_knowledge_1_chunks", "UPDATE g_org_knowledge_1_vectors SET lang = 'x'",
        "INSERT INTO memberships (user_id, org_id) SELECT rag_user(), org_id FROM g_org_knowledge_1_chunks",
        "ALTER TABLE g_org_knowledge_1_chunks DISABLE ROW LEVEL SECURITY", "CREATE TABLE mine (id integer)",
        "CREATE FUNCTION rag_application() RETURNS boolean RETURN true", "TRUNCATE g_org_knowledge_1_chunks CASCADE",
        "DROP FUNCTION rag_user()", "SET row_security = off; TABLE sources",
    ],
)  # fmt: skip
async def test_the_gateway_cannot(world: World, statement: str) -> None:
    async with world.as_gateway(world.people["bob"].claims) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)


VECTOR = [1.0] + [0.0] * (DIMENSION - 1)
SPLIT = "' OR true --"
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("rag_match", {"query_vector": VECTOR[:-1]}, "384 dimensions.*not one of 383.*"),
    ("rag_match", {"query_vector": None}, "384 dimensions.*not null"),
    ("rag_match", {"query_vector": [0.0] * DIMENSION}, "not zero"),
    ("rag_match", {"query_vector": "[NaN]"}, "NaN not allowed"),
    ("rag_match", {"query_vector": SPLIT}, "invalid input syntax for type vector"),
    *(("rag_match", {"query_vector": VECTOR, "top_k": k}, "between 1 and 1000") for k in (0, -1, 1001, 2**31 - 1, None)),
    *(
        ("rag_match", {"query_vector": VECTOR, "filters": each}, "filters: must be an object")
        for each in ([], [{"lang": "en"}], "lang", 7, True)
    ),
    *(
        ("rag_match", {"query_vector": VECTOR, "filters": {key: "x"}}, "filters: unknown field .*; accepted: date_from")
        for key in ("tenant", "", "ORG_ID", "org_id ", "v.org_id", f"lang{SPLIT}", "private_to", "$or", "%I", "%s" * 99)
    ),
    *(
        ("rag_match", {"query_vector": VECTOR, "filters": {key: value}}, rf"filters\.{key}: must be a text")
        for key in ("lang", "org_id", "date_to") for value in (7, True, ["en"], {"$ne": "en"})
    ),
    *(
        ("rag_match", {"query_vector": VECTOR, "filters": {"date_from": value}}, r"filters\.date_from: must be an ISO 8601")
        for value in ("now", "infinity", "yesterday", "", "2026", "15.01.2026", "2026-01-15;", f"2026-01-15{SPLIT}", "epoch")
    ),
    ("rag_match", {"query_vector": VECTOR, "filters": {"date_to": "2026-02-30"}}, "out of range"),
    ("rag_match", {"query_vector": VECTOR, "filters": {"org_id": SPLIT}}, "invalid input syntax for type uuid"),
    *(
        ("match_embeddings", {"query_embedding": VECTOR, "match_threshold": 1, "match_count": 5,
         "tenant_id_param": str(UUID(int=1)), "site_id_param": str(UUID(int=1)), name: None}, "are needed")
        for name in ("match_threshold", "tenant_id_param", "site_id_param")
    ),
    ("match_embeddings", {"query_embedding": VECTOR, "match_threshold": "NaN", "match_count": 5,
     "tenant_id_param": str(UUID(int=1)), "site_id_param": str(UUID(int=1))}, "match_threshold: .* not NaN"),
    ("rag_match", {"query_vector": VECTOR, "filters": {"source_type": "nonesuch" * 20}},
     'filters.source_type: there is no "nonesuch.*; accepted: doc, email, faq, transcript, web'),
    *(
        ("search_rag_context", {"p_query_embedding": VECTOR, "p_user_id": None, "p_capability": each}, "there is no")
        for each in ("", "General_Chat", SPLIT, "market_brief,general_chat", "{doc}", "%", None, "x" * 9999)
    ),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "complaint"), WRONG)
async def test_what_is_not_accepted_is_refused(
    world: World, function: str, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(asyncpg.DataError, match=complaint) as refused:
        await world.rpc(world.people["elsewhere"].claims, function, **arguments)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("value", [SPLIT, "en'; DROP TABLE sources; --", "$1", "%I", "NULL", "\\", "{}", "🦄", "*"])
async def test_hostile_values_match_nothing(world: World, value: str) -> None:
    bob = world.people["bob"]
    arguments = world.everything(bob, "rag_match") | {"filters": {"lang": value}}
    assert await sources(world, bob.claims, "rag_match", arguments) == set()
    with pytest.raises(asyncpg.DataError, match="accepted: doc, email, faq, transcript, web"):
        await world.rpc(bob.claims, "rag_match", **arguments | {"filters": {"source_type": value}})
    arguments = world.everything(bob, "search_rag_context") | {"p_market": value}
    assert await sources(world, bob.claims, "search_rag_context", arguments) == set()
    arguments = world.everything(bob, "match_embeddings") | {"entity_types": [value, "page' OR true --"]}
    assert await sources(world, bob.claims, "match_embeddings", arguments) == set()


async def test_nobody_asks_in_the_name_of_another_user(world: World) -> None:
    ann, bob = world.people["ann"], world.people["bob"]
    arguments = world.everything(ann, "search_rag_context")
    for user in (bob.subject, str(uuid4()), None):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="p_user_id: must be the user who asks"):
            await world.rpc(ann.claims, "search_rag_context", **arguments | {"p_user_id": user})


async def test_who_is_a_member_of_an_organization(world: World) -> None:
    for person in world.people.values():
        async with world.as_gateway(person.claims) as connection:
            told = {
                each: await connection.fetchval("SELECT is_org_member($1)", each)
                for each in (world.a, world.b, PUBLIC_ORGANIZATION, uuid4(), None)
            }
        assert {each for each, member in told.items() if member} == person.organizations | {PUBLIC_ORGANIZATION}
        assert set(told.values()) <= {True, False}
    async with world.as_gateway(None) as connection:
        assert not await connection.fetchval("SELECT is_org_member($1)", PUBLIC_ORGANIZATION)


async def test_the_limits_are_inclusive(world: World) -> None:
    ann = world.people["ann"]
    assert len(await world.rpc(ann.claims, "rag_match", query_vector=world.vector)) == 8
    assert len(await world.rpc(ann.claims, "rag_match", query_vector=world.vector, top_k=1)) == 1
    assert len(await world.rpc(ann.claims, "rag_match", query_vector=world.vector, filters=None)) == 8
    two = await world.rpc(
        ann.claims, "search_rag_context", p_query_embedding=world.vector, p_user_id=ann.subject, p_top_k=2
    )
    assert len(two) == 2


async def test_only_the_rows_of_the_callers_organizations_are_read(world: World) -> None:
    """By PostgreSQL's own count of the rows that it fetched in this transaction."""
    chance = random.Random(5)
    others = [uuid4() for _ in range(20)]
    app = await asyncpg.connect(world.server.app_url.replace("+asyncpg", ""))
    table, bulk = "g_org_knowledge_1", [(uuid4(), org) for org in others for _ in range(200)]
    async with app.transaction():
        await app.execute("SELECT set_config('rag.organizations', $1, true)", f"{{{','.join(map(str, others))}}}")
        await app.executemany(
            f"WITH c AS (INSERT INTO {table}_chunks (id, org_id, source_id, text, metadata, length, terms)"
            " VALUES ($1, $2, $1, '', '{}', 0, '{}') RETURNING no, id, org_id)"
            f" INSERT INTO {table}_vectors (no, id, org_id, source_id, source_type, lang, embedding)"
            " SELECT no, id, org_id, id, 'doc', 'en', $3::text::vector FROM c",
            [(*each, str([chance.gauss(0, 1) for _ in range(DIMENSION)])) for each in bulk],
        )
    await app.close()
    owner = await asyncpg.connect(world.server.owner_url.replace("+asyncpg", ""))
    await owner.execute(f"ANALYZE {table}_vectors")
    await owner.execute(f"ANALYZE {table}_chunks")
    await owner.close()

    person = world.people["ann"]
    own = world.visible(
        person, "org_knowledge"
    ) | {  # the private ones of others in her organization are read, not shown
        each.id for each in world.texts if each.index == "org_knowledge" and each.org == world.a
    }
    async with world.as_gateway(person.claims) as connection:
        rows = await call(connection, "rag_match", world.everything(person, "rag_match"))
        scanned = await connection.fetchrow(
            "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = $1", f"{table}_vectors"
        )
    assert {row["source_id"] for row in rows} == world.visible(person, "org_knowledge")
    assert (scanned["seq_tup_read"], scanned["idx_tup_fetch"]) == (0, len(own))


async def test_an_index_without_an_active_generation_says_so(world: World) -> None:
    owner = await asyncpg.connect(world.server.owner_url.replace("+asyncpg", ""))
    await owner.execute("UPDATE generations SET state = 'retired' WHERE index_name = 'org_knowledge'")
    try:
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError) as refused:
            await world.rpc(world.people["ann"].claims, "rag_match", query_vector=VECTOR)
    finally:
        await owner.execute("UPDATE generations SET state = 'active' WHERE index_name = 'org_knowledge'")
        await owner.close()
    assert "index org_knowledge has no active generation in PostgreSQL" in str(refused.value)
    assert "rag-app db upgrade" in str(refused.value.hint) and "Qdrant" in str(refused.value.hint)


async def test_a_subject_of_an_identity_provider_is_the_user_it_stands_for(world: World) -> None:
    ann, subject = UUID(world.people["ann"].subject), f"auth0|{uuid4().hex}"
    connection = await asyncpg.connect(superuser(world.server))
    await connection.execute("UPDATE users SET subject = $1 WHERE id = $2", subject, ann)
    said = {"sub": subject}
    async with connection.transaction():
        await connection.execute("SET LOCAL ROLE authenticated")
        await connection.execute("SELECT set_config('request.jwt.claims', $1, true)", json.dumps(said))
        assert await connection.fetchval("SELECT rag_user()") == ann
        assert await connection.fetchval("SELECT cardinality(rag_organizations())") > 1
    await connection.execute("UPDATE users SET subject = NULL WHERE id = $1", ann)
    await connection.close()
