"""Sources over HTTP, with the whole application behind it."""

import gzip
import json
import socket
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import httpx
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from rag_app.access.people import User
from rag_app.access.roles import Role
from rag_app.application import Application
from rag_app.documents.readers.formats import name_problem, tell_suffix
from rag_app.surfaces.sources.routes import FORM_FIELDS
from tests.conftest import ON_DEFAULT_STORE, SEVERAL
from tests.integration.service import bearer, configured, prepare, served, without_limits

PATH = "/api/v1/sources"
INDEX = "org_knowledge"


@dataclass(frozen=True)
class Writer:
    """A key that may write in an organization of its own, and a member of it who may read.

    `everywhere` may write in all organizations of a module's tests.
    """

    client: httpx.Client
    org: UUID
    slug: str
    key: str
    reader: UUID
    admin: UUID
    everywhere: UUID | None = None

    def call(self, method: str, path: str = "", status: int | None = 200, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        response = self.client.request(method, PATH + path, headers=headers, **options)
        assert status is None or response.status_code == status, response.text
        return response if status is None else response.json()

    def put_in(self, *documents: dict[str, Any], **options: Any) -> Any:
        return self.call("POST", json={"index": INDEX, "documents": documents, **options})

    def search(self, text: str, **filters: Any) -> list[Any]:
        asked = {"query_text": text, "top_k": 50, "filters": filters}
        found = self.client.post("/api/rag/search", json=asked, headers=bearer(self.reader))
        assert found.status_code == 200, found.text
        return [each for each in found.json()["results"] if each["meta"]["org_id"] == str(self.org)]


async def an_organization(application: Application, everywhere: User | None = None) -> dict[str, Any]:
    people = application.people
    organization = await people.create_organization(f"o-{uuid4().hex}", "Sources")
    reader, admin = [await people.create_user(f"u-{uuid4().hex}") for _ in range(2)]
    for member in (reader, admin):
        await people.add_member(organization, member)
    await application.groups.create(organization, "finance")
    made, key = await application.keys.create(organization, "writes", None)
    principal = await application.keys.principal(key)
    assert principal.user is not None and made.name == "writes"
    await application.roles.grant(organization.id, principal.user, Role.WRITE, INDEX)
    await application.roles.grant(organization.id, admin.id, Role.ADMIN)
    about = {"org": organization.id, "slug": organization.slug, "key": key, "reader": reader.id, "admin": admin.id}
    if everywhere is None:
        return about
    await people.add_member(organization, everywhere)
    await application.roles.grant(organization.id, everywhere.id, Role.WRITE, INDEX)
    return {**about, "everywhere": everywhere.id}


@pytest.fixture(scope="module", params=[ON_DEFAULT_STORE])
def running(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], qdrant_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[httpx.Client, list[dict[str, Any]]]]:  # fmt: skip
    """With organizations for the tests to take, each empty."""
    folder = tmp_path_factory.mktemp("sources")
    variables = {
        "RAG_DATABASE_URL": database_urls[1],
        "RAG_DATABASE_OWNER_URL": database_urls[0],
        "RAG_VECTOR_STORE": request.param,
        "QDRANT_PATH": str(qdrant_folder),
        "RAG_HOME": str(folder),
        "RAG_ORIGINALS": "files",
        "RAG_UPLOAD_MEGABYTES": "2",
        "RAG_URL_NETWORKS": "127.0.0.1/32",
    }
    with configured(variables) as patch:
        without_limits(patch)

        async def many(application: Application) -> list[dict[str, Any]]:
            everywhere = await application.people.create_user(f"u-{uuid4().hex}")
            return [await an_organization(application, everywhere) for _ in range(40)]

        organizations = prepare(many)
        with served() as client:
            yield client, organizations


@pytest.fixture
def writer(running: tuple[httpx.Client, list[dict[str, Any]]]) -> Writer:
    return Writer(running[0], **running[1].pop())


@pytest.fixture
def other(running: tuple[httpx.Client, list[dict[str, Any]]]) -> Writer:
    return Writer(running[0], **running[1].pop())


def test_an_empty_organization_has_no_sources(writer: Writer) -> None:
    assert writer.call("GET") == {"sources": [], "next": None}
    assert writer.search("What is the door code?") == []
    assert writer.call("GET", f"/{uuid4()}", 404)["error"]["code"] == "not_found"
    assert writer.call("GET", "/nothing", 404)["error"]["code"] == "not_found"


def test_ids_come_in_the_order_sent_and_a_source_is_replaced_by_its_external_id(writer: Writer) -> None:
    long = " ".join(f"Sentence {number} of the long text tells nothing new." for number in range(120))
    sent = writer.put_in(
        {"external_id": "b", "text": f"The door code is 4711. {long}"},
        {"external_id": "a", "text": "The yearly plan costs 90 euros."},
        {"text": "A text without a name."},
    )
    assert [each["external_id"] for each in sent["documents"][:2]] == ["b", "a"]
    assert sent["ids"] == [each["id"] for each in sent["documents"]]
    assert {each["status"] for each in sent["documents"]} == {"added"}
    before = writer.call("GET", f"/{sent['ids'][0]}")["chunks"]
    again = writer.put_in({"external_id": "b", "text": "The door code is 1234."})
    assert again["ids"] == sent["ids"][:1] and again["documents"][0]["status"] == "updated"
    assert before > 1 == writer.call("GET", f"/{sent['ids'][0]}")["chunks"]
    found = [each for each in writer.search("What is the door code?") if "door code" in each["snippet"]]
    assert [each["snippet"] for each in found] == ["The door code is 1234."]
    assert (
        writer.put_in({"external_id": "b", "text": "The door code is 1234."})["documents"][0]["status"] == "unchanged"
    )
    put = writer.call("PUT", "/b", json={"index": INDEX, "text": "The door code is 99."})
    assert put["ids"] == again["ids"]
    assert writer.call("PUT", "", json={"index": INDEX, "external_id": "x/y.md", "text": "Slash."})["ids"][0]
    assert (
        writer.call("PUT", "", 400, json={"index": INDEX, "text": "No name."})["error"]["details"]["field"]
        == "external_id"
    )
    assert writer.call("PUT", "/b", 400, json={"index": INDEX, "external_id": "c", "text": "Two names."})


def test_metadata_come_back_in_the_hit_as_they_were_sent(writer: Writer) -> None:
    date = "2021-01-21T10:00:00-02:00"
    metadata = {"author": "A% _'\" OR 1=1", "date": date, "tags": ["x", "y"], "layout": {"draft": True}, "lang": "en"}
    sent = writer.put_in({"external_id": "id 1/é", "text": "The door code is 4711.", "metadata": metadata})
    assert sent["documents"][0]["undeclared"] == ["layout"]
    (hit,) = writer.search("What is the door code?")
    assert {key: hit["meta"][key] for key in ("author", "date", "tags", "layout")} == {
        key: metadata[key] for key in ("author", "date", "tags", "layout")
    }
    assert hit["meta"]["external_id"] == "id 1/é"
    found = writer.call("GET", f"/{sent['ids'][0]}")
    assert (found["date"], found["undeclared"], found["metadata"]["layout"]) == (date, ["layout"], {"draft": True})
    opened = writer.client.get(hit["meta"]["link"], headers=bearer(writer.reader)).json()
    assert opened["passage"]["text"] == "The door code is 4711." and opened["external_id"] == "id 1/é"
    text = writer.call("GET", f"/{sent['ids'][0]}/text")["text"]
    assert text[opened["passage"]["start"] : opened["passage"]["end"]] == opened["passage"]["text"]


def test_a_list_is_filtered_searched_sorted_and_paged(writer: Writer) -> None:
    writer.put_in(
        *(
            {
                "external_id": f"d{n}", "title": f"Title {n} 100%", "text": f"Text number {n}.",
                "metadata": {"date": f"2026-01-{n:02}", "author": "Ada" if n % 2 else "A' OR '1'='1", "tags": [f"t{n % 3}"]},
            }
            for n in range(1, 8)
        )
    )  # fmt: skip

    def names(query: str) -> list[str]:
        return [
            each["external_id"] for each in writer.call("GET", f"?index={INDEX}&sort=external_id&{query}")["sources"]
        ]

    assert names("filter=author=Ada") == ["d1", "d3", "d5", "d7"]
    assert writer.call("GET", params={"index": INDEX, "filter": "author=A' OR '1'='1", "limit": 1})["next"]
    assert names("filter=date>=2026-01-03&filter=date<=2026-01-05") == ["d3", "d4", "d5"], "both days are whole"
    assert names("filter=tags has t0") == ["d3", "d6"]
    assert names("filter=author in Ada,nobody&filter=tags has t1") == ["d1", "d7"]
    other = ["d2", "d4", "d6"]
    for written, expected in (
        ("author!=Ada", other), ("author not in Ada,nobody", other), ("author is empty", []),
        ("tags any t1,t2", ["d1", "d2", "d4", "d5", "d7"]), ("tags all t1,t2", []), ("date!=2026-01-03", None),
        ('{"filters": [{"key": "author", "value": "Ada"}], "condition": "not"}', other),
        ('{"filters": [{"key": "author", "operator": "!=", "value": "Ada"}, {"key": "tags", "operator": "contains", '
         '"value": "t1"}], "condition": "or"}', ["d1", *other, "d7"]),
    ):  # fmt: skip
        wanted = expected if expected is not None else [f"d{n}" for n in range(1, 8) if n != 3]
        assert names(urlencode({"filter": written})) == sorted(wanted), written
    assert len(names("state=ready")) == 7 and names("state=writing") == []
    assert names("search=TITLE 2") == ["d2"] and names("search=_itle 2") == [] and len(names("search=100%25")) == 7
    for sort in ("title", "-title", "date", "-date", "created_at", "-updated_at", "size", "external_id"):
        seen, cursor = [], ""
        while cursor is not None:
            page = writer.call("GET", params={"sort": sort, "limit": 3, **({"cursor": cursor} if cursor else {})})
            seen += [each["external_id"] for each in page["sources"]]
            cursor = page["next"]
        assert sorted(seen) == [f"d{n}" for n in range(1, 8)], sort
        if "date" in sort and "_" not in sort:
            assert seen == sorted(seen, reverse=sort[0] == "-")
    for bad in (
        "sort=colour",
        "state=lost",
        "filter=colour=red",
        "cursor=abc",
        "limit=0",
        "colour=red",
        "filter=author>3",
        "index=none",
    ):
        refused = writer.call("GET", f"?index={INDEX}&{bad}" if "index" not in bad else f"?{bad}", None)
        assert refused.status_code in (400, 404), bad
    assert writer.call("GET", "?filter=author=Ada", 400)["error"]["details"]["field"] == "index"


def test_the_fields_of_an_index_come_with_examples_of_what_one_sees(writer: Writer) -> None:
    secret = {"external_id": "b", "text": "Not yours.", "metadata": {"author": "Eve"}}
    writer.put_in(
        {"external_id": "a", "text": "Text.", "metadata": {"author": "Ada", "tags": ["x"], "date": "2026-01-03"}}
    )
    writer.call(
        "POST", json={"index": INDEX, "documents": [secret], "visibility": "user"}, headers=bearer(writer.admin)
    )

    def fields(**options: Any) -> dict[str, Any]:
        answer = writer.client.get(f"/api/v1/indexes/{INDEX}/fields", **options)
        assert answer.status_code == 200 and answer.json()["index"] == INDEX, answer.text
        return {each["name"]: each for each in answer.json()["fields"]}

    seen = fields(headers=bearer(writer.reader))
    assert seen["author"] == {
        "name": "author", "type": "keyword", "operators": ["==", "!=", "in", "nin", "is_empty"], "examples": ["Ada"],
    }  # fmt: skip
    assert seen["tags"]["examples"] == ["x"] and "contains" in seen["tags"]["operators"]
    assert seen["date"]["examples"][0] == "2026-01-03T00:00:00+00:00"
    assert fields(headers=bearer(writer.admin))["author"]["examples"] == ["Eve", "Ada"]
    assert "Ada" not in fields(headers=bearer(uuid4()))["author"]["examples"]
    for path, status in (("none/fields", 404), (f"{INDEX}/fields?colour=red", 400)):
        assert writer.client.get(f"/api/v1/indexes/{path}", headers=bearer(writer.reader)).status_code == status


def test_a_filter_finds_whatever_of_its_operators(writer: Writer) -> None:
    writer.put_in(
        {"external_id": "a", "text": "The door code.", "metadata": {"author": "Ada"}},
        {"external_id": "b", "text": "The door code.", "metadata": {"author": "Bob", "date": "2026-01-03"}},
        {"external_id": "c", "text": "The door code."},
    )

    def found(*filters: dict[str, Any], condition: str = "and") -> int:
        own = {"key": "org_id", "operator": "==", "value": str(writer.org)}
        return len(writer.search("door code", where={"filters": [own, {"filters": filters, "condition": condition}]}))

    ada, empty = {"key": "author", "value": "Ada"}, {"key": "author", "operator": "is_empty"}
    assert [found(ada), found(empty), found(ada, empty, condition="or"), found(ada, condition="not")] == [1, 1, 2, 2]
    assert found({"key": "date", "operator": "in", "value": ["2026-01-03"]}) == 1
    refused = writer.client.post(
        "/api/rag/search", headers=bearer(writer.reader),
        json={"query_text": "door", "filters": {"where": {"filters": [{"key": "colour", "value": "red"}]}}},
    )  # fmt: skip
    assert refused.status_code == 400 and "colour: unknown field" in refused.text


def test_sources_are_deleted_by_id_by_filter_and_all(writer: Writer) -> None:
    ids = writer.put_in(
        *(
            {"external_id": f"d{n}", "text": f"The door code {n}.", "metadata": {"author": f"a{n % 2}"}}
            for n in range(6)
        )
    )["ids"]
    assert writer.call("DELETE", f"/{ids[0]}") == {"deleted": 1}
    assert writer.call("DELETE", f"/{ids[0]}", 404)
    for refused in ("", f"?index={INDEX}&filter=colour=red", f"?index={INDEX}", f"?index={INDEX}&fitler=author=a1"):
        assert writer.call("DELETE", refused, None).status_code == 400, refused
    nobody = {"key": "author", "value": "nobody"}
    for everything in (
        {"filters": [nobody], "condition": "not"},
        {"filters": [nobody, {"key": "date", "operator": "is_empty"}], "condition": "or"},
        {"filters": [{"key": "author", "operator": "!=", "value": "nobody"}], "condition": "and"},
        {"filters": [{"key": "org_id", "value": str(writer.org)}], "condition": "and"},
    ):
        refused = writer.call("DELETE", "", 400, params={"index": INDEX, "filter": json.dumps(everything)})
        assert "matches all 5 sources" in refused["error"]["message"], everything
        assert f"confirm={INDEX}" in refused["error"]["message"]
    rest = {"filters": [{"key": "author", "value": "a0"}], "condition": "not"}
    assert writer.call("DELETE", params={"index": INDEX, "filter": json.dumps(rest)}) == {"deleted": 3}
    assert len(writer.search("door code")) == 2
    assert writer.call("GET", "/d2")["id"] == ids[2], "the path that PUT takes"
    assert writer.call("DELETE", "/d2") == {"deleted": 1} and writer.call("DELETE", "/d2", 404)
    named: dict[str, Any] = {"params": {"index": INDEX, "external_id": ["d4", "d2", "nothing"]}}
    assert writer.call("DELETE", **named, headers=bearer(writer.reader), status=403)
    assert writer.call("DELETE", **named) == {"deleted": 1} and writer.search("door code") == []
    writer.put_in(*({"external_id": each, "text": "The door code."} for each in "ab"))
    assert writer.call("DELETE", f"?index={INDEX}&confirm={INDEX}", 403), "a writer does not empty an index"
    admin: dict[str, Any] = {"headers": bearer(writer.admin)}
    assert writer.call("DELETE", f"?index={INDEX}&confirm=book", 400, **admin)
    assert writer.call("DELETE", f"?index={INDEX}&confirm={INDEX}&filter=author=a0", 400, **admin)
    assert writer.call("DELETE", f"?index={INDEX}&confirm={INDEX}", **admin) == {"deleted": 2}
    assert writer.call("GET")["sources"] == [] and writer.search("door code") == []


def test_roles(writer: Writer) -> None:
    (source,) = writer.put_in({"external_id": "a", "text": "The door code."})["ids"]
    reader: dict[str, Any] = {"headers": bearer(writer.reader)}
    assert writer.call("GET", f"/{source}", **reader)["id"] == source
    document = {"index": INDEX, "external_id": "a", "text": "Changed."}
    for method, path, body in (
        ("PUT", "", document),
        ("PUT", "/a", document),
        ("POST", "", {"index": INDEX, "documents": [{"text": "New."}]}),
        ("PATCH", f"/{source}", {"title": "Mine"}),
        ("DELETE", f"/{source}", None),
        ("DELETE", f"?index={INDEX}&filter=lang=en", None),
    ):
        refused = writer.call(method, path, 403, json=body, **reader)
        assert refused["error"]["code"] == "forbidden", (method, path)
    assert writer.call("PUT", "/a", 403, json={**document, "index": "book"}), "granted for one index"
    assert writer.call("PUT", "/a", json={**document, "index": "book"}, headers=bearer(writer.admin))


def test_title_and_metadata_are_changed(writer: Writer) -> None:
    metadata = {"author": "Ada", "colour": "red", "date": "2026-01-05"}
    (source,) = writer.put_in({"external_id": "a", "text": "The door code is 1.", "metadata": metadata})["ids"]
    read = writer.client.get(f"{PATH}/{source}", headers=bearer(writer.reader)).headers["etag"]
    changed = writer.call("PATCH", f"/{source}", json={"title": "Doors", "metadata": {"author": None, "size": 3}})
    assert (changed["title"], changed["metadata"], changed["date"]) == (
        "Doors",
        {"colour": "red", "size": 3},
        "2026-01-05",
    )
    assert changed["id"] == source and changed["state"] == "ready"
    tag = writer.client.get(f"{PATH}/{source}", headers=bearer(writer.reader)).headers["etag"]
    for method, tags, status in (
        ("GET", tag, 304),
        ("GET", "*", 304),
        ("HEAD", f'"0", W/{tag}', 304),
        ("GET", read, 200),
    ):
        asked = {**bearer(writer.reader), "If-None-Match": tags}
        held = writer.client.request(method, f"{PATH}/a", headers=asked)
        assert (held.status_code, held.headers["etag"], bool(held.content)) == (status, tag, status == 200), tags
    stale = {"If-Match": read}
    late = writer.call("PATCH", f"/{source}", 412, json={"title": "Late"}, headers=stale)
    assert late["error"]["code"] == "precondition_failed"
    assert writer.call("PUT", "/a", 412, json={"index": INDEX, "text": "Late."}, headers=stale)
    new = {"If-None-Match": "*"}
    assert writer.call("PUT", "/a", 412, json={"index": INDEX, "text": "New."}, headers=new)
    assert writer.call("PUT", "", 412, json={"index": INDEX, "external_id": "a", "text": "New."}, headers=new)
    form: dict[str, Any] = {"files": [("file", ("a.txt", b"New.", ""))], "data": {"index": INDEX, "external_id": "a"}}
    assert writer.call("PUT", "", 412, headers=new, **form)
    assert writer.call("DELETE", f"/{source}", 412, headers=stale)
    assert writer.call("DELETE", f"?index={INDEX}&external_id=a", 412, headers=stale)
    missing = writer.call("DELETE", "?filter=author=Ada", 400)["error"]
    assert (missing["message"], missing["details"]["field"]) == ("index: is required", "index")
    (hit,) = writer.search("door code")
    assert hit["source_title"] == "Doors" and "author" not in hit["meta"]
    assert writer.call("PATCH", f"/{source}", 400, json={"metadata": {"source_type": "letter"}})
    assert writer.call("PATCH", f"/{source}", 400, json={"text": "no"})["error"]["details"]["accepted"] == [
        "metadata",
        "title",
    ]


def test_files_are_uploaded_told_by_their_content_and_given_back_as_downloads(writer: Writer) -> None:
    files = [
        ("file", ("../../notes.md", b"# Doors\n\nThe door code is 4711.", "application/pdf")),
        ("file", ("page.txt", b"<!doctype html><title>Hours</title><p>We open at nine.", "text/plain")),
        ("file", ("broken.docx", b"PK\x03\x04 nothing", "text/plain")),
        ("file", ("photo.png", b"We open at ten.", "image/png")),
    ]
    sent = writer.call("POST", files=files, data={"index": INDEX, "metadata": '{"author": "Ada"}'})
    assert [each["status"] for each in sent["documents"]] == ["added", "added", "failed", "failed"]
    assert sent["documents"][3]["problems"][0].startswith("its name ends in .png, but its content is not")
    assert sent["ids"][2] is None and sent["documents"][2]["problems"]
    page = writer.call("GET", f"/{sent['ids'][1]}")
    assert (page["title"], page["file_name"], page["metadata"]) == ("Hours", "page.txt", {"author": "Ada"})
    notes = writer.call("GET", f"/{sent['ids'][0]}")
    assert (notes["file_name"], notes["external_id"]) == ("notes.md", "notes.md")
    given = writer.client.get(notes["original"], headers=bearer(writer.reader))
    assert given.content == b"# Doors\n\nThe door code is 4711."
    assert given.headers["content-disposition"] == 'attachment; filename="notes.md"'
    assert given.headers["content-type"].startswith("application/octet-stream")
    assert given.headers["x-content-type-options"] == "nosniff"
    assert given.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert given.headers["cache-control"] == "private, no-store"
    for condition in (
        {"If-None-Match": given.headers["etag"]},
        {"If-None-Match": f'"0", W/{given.headers["etag"]}'},
        {"If-Modified-Since": given.headers["last-modified"]},
    ):
        held = writer.client.get(notes["original"], headers={**bearer(writer.reader), **condition})
        assert (held.status_code, held.content) == (304, b"") and held.headers["etag"] == given.headers["etag"]
    for condition in (
        {"If-None-Match": '"0"'},
        {"If-Modified-Since": "Mon, 05 Jan 2015 09:00:00 GMT"},
        {"If-Modified-Since": "x"},
    ):
        assert writer.client.get(notes["original"], headers={**bearer(writer.reader), **condition}).status_code == 200
    single = writer.call("POST", "", 422, files=files[2:3], data={"index": INDEX})
    assert single["error"]["code"] == "unreadable_document"
    changed = writer.call("PATCH", f"/{sent['ids'][0]}", json={"title": "Codes"})
    assert changed["original"] == notes["original"], "the file is the same"
    put = writer.call("PUT", "/notes.md", files=[("file", ("b.txt", b"Another text.", ""))], data={"index": INDEX})
    assert put["ids"] == sent["ids"][:1]
    assert writer.client.get(notes["original"], headers=bearer(writer.reader)).content == b"Another text."
    assert writer.call("DELETE", f"/{sent['ids'][0]}")
    assert writer.client.get(notes["original"], headers=bearer(writer.reader)).status_code == 404


def test_bodies_are_described_and_their_examples_work(writer: Writer) -> None:
    document = writer.client.get("/openapi.json").json()
    described, components = document["paths"], document["components"]
    for method, path, wanted in (
        ("post", PATH, {"index", "documents"}),
        ("put", PATH, {"index", "external_id"}),
        ("put", f"{PATH}/{{source_id}}", {"index"}),
    ):
        content = described[path][method]["requestBody"]["content"]
        plain, form = content["application/json"], content["multipart/form-data"]
        sent = components["schemas"][plain["schema"]["$ref"].rpartition("/")[2]]
        assert {*sent["required"]} == wanted
        assert {*form["schema"]["properties"]} == {*FORM_FIELDS, "file"}
        assert {*form["schema"]["required"]} == (wanted - {"documents"}) | {"file"}
        [body], [fields] = ([each["value"] for each in of["examples"].values()] for of in (plain, form))
        Draft202012Validator({**sent, "components": components}).validate(body)
        Draft202012Validator(form["schema"]).validate(fields)
        at = path.removeprefix(PATH).replace("{source_id}", "hours")
        sent = writer.call(method.upper(), at, json=body)
        assert [each["status"] for each in sent["documents"]] == ["added"] * len(body.get("documents", "1")), path
        contents = fields.pop("file")
        files = [("file", ("hours.md", each)) for each in ([contents] if isinstance(contents, str) else contents)]
        assert writer.call(method.upper(), at, files=files, data=fields)["documents"][0]["problems"] == []
        writer.call("DELETE", params={"index": INDEX, "filter": "lang=en"})
    assert "202" in described[PATH]["post"]["responses"]


def test_limits_hold_while_a_body_is_read(writer: Writer) -> None:
    for sent in (
        {"files": [("file", ("a.txt", b"x" * 2_000_001))], "data": {"index": INDEX}},
        {"content": b"x" * 2_000_001},
    ):
        large = writer.call("POST", "", 413, **sent)["error"]
        assert (large["code"], large["message"]) == (
            "payload_too_large",
            "The body is larger than 2 MB (RAG_UPLOAD_MEGABYTES)",
        )
    below = [("file", ("a.txt", b"The door code is 4711." + b" " * 1_900_000))]
    handed = writer.call("POST", "", 202, files=below, data={"index": INDEX})
    assert handed["documents"] == 1, "more than RAG_UPLOAD_AT_ONCE_MEGABYTES is a job"
    for path, data in (("", {"index": INDEX, "external_id": "a.txt"}), ("/a.txt", {"index": INDEX})):
        assert writer.call("PUT", path, files=below, data=data)["documents"][0]["external_id"] == "a.txt"
    assert writer.call("DELETE", "/a.txt") == {"deleted": 1}
    many = [("file", (f"{n}.txt", b"x")) for n in range(101)]
    refused = writer.call("POST", "", 413, files=many, data={"index": INDEX})
    assert refused["error"]["message"] == "The form has more than 100 files (RAG_UPLOAD_DOCUMENTS)"
    fields = {"index": INDEX, "organization": writer.slug, "visibility": "team", "metadata": "{}"}
    accepted = writer.call("POST", files=many[:100], data=fields)
    assert len(accepted["ids"]) == 100, "fields are no files"
    names = urlencode([("index", INDEX), *(("external_id", f"{n}.txt") for n in range(100))])
    assert writer.call("DELETE", f"?{names}") == {"deleted": 100}
    documents = [{"text": str(n)} for n in range(200)]
    assert (
        "RAG_UPLOAD_DOCUMENTS"
        in writer.call("POST", "", 400, json={"index": INDEX, "documents": documents})["error"]["message"]
    )
    for data in (
        {"index": INDEX, "path": "/etc"},
        {},
        {"index": INDEX, "metadata": "[]"},
        {"index": INDEX, "visibility": "all"},
    ):
        assert writer.call("POST", "", None, files=many[:1], data=data).status_code == 400, data
    for field, written, problem in (("metadata", "{bad", "is not valid JSON"), ("rows", "[1]", "must be an object")):
        broken = writer.call("POST", "", 400, files=many[:1], data={"index": INDEX, field: written})
        assert broken["error"]["details"] == {"field": field, "problem": problem}
    broken = {"Content-Type": "multipart/form-data; boundary=x"}
    assert writer.call("POST", "", 400, content=b"--x\r\nnothing", headers=broken)
    assert writer.call("POST", "", 415, content=b"hello", headers={"Content-Type": "text/plain"})
    assert writer.call("POST", "", 400, json={"index": INDEX, "documents": [{"text": "a", "url": "http://b.example"}]})
    assert writer.call("POST", "", 400, json={"index": INDEX, "documents": [{"text": "a", "path": "/etc/passwd"}]})
    assert writer.call("GET")["sources"] == []


def test_a_repeated_request_is_done_once(writer: Writer) -> None:
    body = {"index": INDEX, "documents": [{"text": "The door code is 1."}]}
    first, again = [writer.call("POST", "", None, json=body, headers={"Idempotency-Key": "k1"}) for _ in range(2)]
    assert first.json() == again.json() and first.json()["documents"][0]["status"] == "added"
    assert (first.headers.get("idempotency-replayed"), again.headers["idempotency-replayed"]) == (None, "true")
    another = {"index": INDEX, "documents": [{"text": "The door code is 2."}]}
    for other in ({**body, "visibility": "team"}, another):
        refused = writer.call("POST", "", 409, json=other, headers={"Idempotency-Key": "k1"})
        assert refused["error"]["code"] == "idempotency_key_in_use"
    assert len(writer.call("GET")["sources"]) == 1
    assert writer.call("POST", "", 400, json=body, headers={"Idempotency-Key": "a" * 300})
    failed = {"index": INDEX, "documents": [{"text": " "}]}
    for _ in range(2):
        assert writer.call("POST", "", 422, json=failed, headers={"Idempotency-Key": "k2"})


def test_a_key_of_a_request_answers_nobody_else_and_no_other_request(writer: Writer, other: Writer) -> None:
    """The same key and body of another organization, of another user, by one user in two organizations, another route."""
    document = {"external_id": "plan", "text": "The travel plan of Zyx is secret."}
    body = {"index": INDEX, "documents": [document]}
    once = {"Idempotency-Key": "the same"}

    def send(by: Writer, who: Mapping[str, str], method: str = "POST", path: str = "", **said: Any) -> httpx.Response:
        sent: httpx.Response = by.call(method, path, None, headers={**once, **who}, json={**body, **said})
        return sent

    first = send(writer, {})
    (mine,) = first.json()["ids"]
    assert writer.everywhere == other.everywhere is not None
    both = bearer(writer.everywhere)
    for answered in (
        send(other, {}),
        send(other, bearer(other.admin)),
        send(other, both, organization=other.slug),
        send(writer, bearer(writer.admin)),
        send(writer, both, organization=writer.slug),
    ):
        assert answered.status_code == 200 and "idempotency-replayed" not in answered.headers, answered.text
    assert mine not in send(other, {}).text + send(other, both, organization=other.slug).text
    assert mine not in send(other, {}, organization=writer.slug).text, "a key of one organization names another"
    assert send(writer, {}).headers["idempotency-replayed"] == "true"
    for another in (
        send(writer, {}, visibility="team"),
        send(writer, {"Prefer": "respond-async"}),
        writer.call("PUT", "/other", None, headers=once, json={"index": INDEX, "text": document["text"]}),
    ):
        assert another.status_code == 409 and mine not in another.text, another.text
    for changed in (
        writer.call("PATCH", f"/{mine}", None, headers=once, json={"title": "Plan"}),
        writer.call("DELETE", f"/{mine}", None, headers=once),
    ):
        assert changed.status_code == 200 and "idempotency-replayed" not in changed.headers


def test_a_private_source_is_nobody_elses_to_read_or_write_over(writer: Writer) -> None:
    body = {
        "index": INDEX,
        "visibility": "user",
        "documents": [{"external_id": "diary", "text": "The door code is 7."}],
    }
    (source,) = writer.call("POST", json=body, headers=bearer(writer.admin))["ids"]
    assert writer.call("GET", f"/{source}", 404) and writer.search("door code") == []
    for path in ("/text", "/chunks", "/original"):
        assert writer.call("GET", f"/{source}{path}", 404)
    taken = writer.call("PUT", "/diary", 422, json={"index": INDEX, "text": "Mine now."})
    assert "may not see" in taken["error"]["message"]
    assert writer.call("GET", f"/{source}/text", headers=bearer(writer.admin))["text"] == "The door code is 7."
    assert writer.call("DELETE", f"?index={INDEX}&filter=lang=en") == {"deleted": 0}


def test_what_is_for_a_group_is_nobody_elses(writer: Writer) -> None:
    """The reader's token names the group; the key that writes, and the member who administers, are not in it."""
    inside = bearer(writer.reader, ["finance"])
    document = {
        "external_id": "budget",
        "text": "The travel budget of Zyx is 4,000 euros.",
        "metadata": {"author": "Cfo"},
    }
    body = {"index": INDEX, "documents": [document], "groups": ["finance"]}
    assert writer.call("POST", "", 404, json={**body, "groups": ["sales"]}), "no such group"
    assert writer.call("POST", "", 400, json={**body, "visibility": "team"})
    refused = writer.call("POST", "", 403, json=body)
    assert "not in the group finance" in refused["error"]["message"]
    admin = bearer(writer.admin)
    (source,) = writer.call("POST", json=body, headers=admin)["ids"]
    form = {"index": INDEX, "groups": "finance", "external_id": "plan"}
    plan_file = [("file", ("plan.md", b"The travel plan of Zyx is secret."))]
    (plan,) = writer.call("POST", files=plan_file, data=form, headers=admin)["ids"]

    def ask(headers: dict[str, str]) -> tuple[set[str], set[str], dict[str, Any]]:
        question = {"query_text": "What is the travel budget of Zyx?"}
        found = writer.client.post("/api/rag/search", json={**question, "top_k": 50}, headers=headers).json()
        answer = writer.client.post("/api/rag/answer", json=question, headers=headers).json()
        listed = writer.call("GET", headers=headers)["sources"]
        return {each["source_id"] for each in found["results"]}, {each["id"] for each in listed}, answer

    found, listed, answer = ask(inside)
    assert {source, plan} <= found and listed == {source, plan}
    assert [each["source_id"] for each in answer["citations"]] == [source]
    assert writer.call("GET", f"/{source}/text", headers=inside)["text"] == document["text"]
    chunk = writer.call("GET", f"/{source}/chunks", headers=inside)["chunks"][0]["id"]
    for outside in (bearer(writer.admin), bearer(writer.reader)):
        found, listed, answer = ask(outside)
        assert not {source, plan} & found and listed == set() and "4,000" not in json.dumps(answer)
    for outside in (bearer(writer.admin), {}):
        for path in ("", f"?chunk={chunk}", "/chunks", "/text", "/original"):
            assert writer.call("GET", f"/{source}{path}", 404, headers=outside), path
        assert writer.call("GET", "/budget", 404, headers=outside)
        assert writer.call("GET", "?external_id=budget", headers=outside)["sources"] == []
        for method, path in (("PATCH", f"/{source}"), ("DELETE", f"/{source}"), ("DELETE", "/budget")):
            assert writer.call(method, path, 404, json={} if method == "PATCH" else None, headers=outside)
        assert writer.call("DELETE", f"?index={INDEX}&external_id=budget", headers=outside) == {"deleted": 0}
        fields = writer.client.get(
            f"/api/v1/indexes/{INDEX}/fields", headers={"Authorization": f"Bearer {writer.key}", **outside}
        )
        assert "Cfo" not in fields.text
    taken = writer.call("PUT", "/budget", 422, json={"index": INDEX, "text": "Mine now."})
    assert "may not see" in taken["error"]["message"]
    assert ask(inside)[1] == {source, plan}


class Web(BaseHTTPRequestHandler):
    """A page, ways that lead to it or elsewhere, and what is no document."""

    protocol_version = "HTTP/1.1"
    second_asked = threading.Event()

    def do_GET(self) -> None:
        port = self.server.server_port  # type: ignore[attr-defined]
        elsewhere = {
            "/moved": "/page",
            "/inside": f"http://127.0.0.2:{port}/page",
            "/loop": "/loop",
            "/file": "file:///etc/passwd",
        }
        path, _, asked = self.path.partition("?")
        if asked == "second":
            self.second_asked.set()
        elif asked == "first" and not self.second_asked.wait(20):
            path = "/none"
        body = b"<!doctype html><title>Hours</title><p>We open at nine." if path == "/page" else b"x" * 2_100_000
        if path in elsewhere:
            body = b""
            self.send_response(302)
            self.send_header("Location", elsewhere[path])
        else:
            self.send_response(200 if path in ("/page", "/large") else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def web() -> Iterator[int]:
    """On all addresses of this machine; 127.0.0.1 alone is allowed to be read from."""
    with ThreadingHTTPServer(("0.0.0.0", 0), Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_document_is_read_from_an_address_and_never_from_a_private_one(
    writer: Writer, web: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(url: str, status: int = 200) -> Any:
        return writer.call("POST", "", status, json={"index": INDEX, "documents": [{"url": url}]})

    url = f"http://127.0.0.1:{web}/page"
    sent = put(url)["documents"][0]
    assert (sent["external_id"], sent["title"], sent["status"]) == (url, "Hours", "added")
    source = writer.call("GET", f"/{sent['id']}")
    assert (source["uri"], source["source_type"]) == (url, "web")
    assert put(f"http://127.0.0.1:{web}/moved")["documents"][0]["title"] == "Hours"
    for inside in (
        f"http://127.0.0.2:{web}/page", f"http://127.0.0.1:{web}/inside", f"http://0x7f.0.0.2:{web}/page",
        f"http://2130706434:{web}/page", f"http://0177.0.0.2:{web}/page", f"http://[::ffff:127.0.0.2]:{web}/page",
        f"http://[::1]:{web}/page", f"http://0.0.0.0:{web}/page", f"http://[::]:{web}/", f"http://10.0.0.1:{web}/",
        "http://169.254.169.254/latest/meta-data/", f"http://[64:ff9b::7f00:2]:{web}/", "http://[fe80::1]/",
    ):  # fmt: skip
        message = put(inside, 422)["error"]["message"]
        assert "not public" in message, message
        assert "127.0.0.2" not in message.replace(inside, ""), message
    for bad in ("/loop", "/file", "/none", "/large"):
        assert put(f"http://127.0.0.1:{web}{bad}", 422)["error"]["code"] == "unreadable_document"
    assert put("ftp://127.0.0.1/page", 400)

    answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1", "127.0.0.2"], ["127.0.0.2"]]
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: Any, *rest: Any, **named: Any) -> Any:
        if host != "rebinds.example":
            return real(host, *rest, **named)
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, web)) for each in answers.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    assert put(f"http://rebinds.example:{web}/page")["documents"][0]["title"] == "Hours"
    assert len(asked) == 1, "what was checked is what was connected to"
    for _ in range(2):
        assert "not public" in put(f"http://rebinds.example:{web}/page", 422)["error"]["message"]


def test_an_address_that_is_slow_to_answer_does_not_keep_the_others_waiting(writer: Writer, web: int) -> None:
    urls = [f"http://127.0.0.1:{web}/page?{each}" for each in ("first", "second")]
    sent = writer.call("POST", "", 200, json={"index": INDEX, "documents": [{"url": each} for each in urls]})
    assert [(each["external_id"], each["status"]) for each in sent["documents"]] == [(each, "added") for each in urls]


def test_kinds_of_files_by_their_content(tmp_path: Path) -> None:
    office = tmp_path / "office"
    with zipfile.ZipFile(office, "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    cases = {
        (b"%PDF-1.7 ...", "a.txt"): ".pdf",
        (office.read_bytes(), "a.docx"): ".xlsx",
        (b"Hello", "a.pdf"): ".txt",
        (b"\r\n\r\n%PDF-1.4 ...", "a.pdf"): ".pdf",
        (b"A file begins with %PDF-1.4", "a.txt"): ".txt",
        (b"# Hello", "a.md"): ".md",
        (b"a,b\n1,2", "table.csv"): ".csv",
        (gzip.compress(b"%PDF-1.7"), "a.md.gz"): ".pdf.gz",
        (gzip.compress(b"# Hello"), "a.md.gz"): ".md.gz",
        (b"From: a@b.example\nTo: c@d.example\nSubject: e\n\nHello", ""): ".eml",
        (b'[{"text": "a"}]', ""): ".json",
        (b"Hello", "../../etc/passwd"): ".txt",
        (b"Hello", "run.exe"): ".txt",
    }
    file = tmp_path / "sent"
    for (content, name), suffix in cases.items():
        file.write_bytes(content)
        assert tell_suffix(file, name) == suffix, (content[:20], name)


def test_a_name_may_not_claim_a_binary_format_that_the_content_is_not_in(tmp_path: Path) -> None:
    office = tmp_path / "office"
    with zipfile.ZipFile(office, "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    refused = [
        *((b"We open at nine.", f"photo.{each}") for each in ("png", "JPG", "gif", "pdf", "docx", "zip", "mp4", "exe")),
        (b"We open at nine.", "notes.txt.gz"),
        (b"%PDF-1.7", "photo.png"),
    ]
    taken = [
        (b"We open at nine.", "notes.txt"),
        (b"We open at nine.", "table.xls"),  # as many a program names its tables of text
        (b"We open at nine.", ""),
        (b"%PDF-1.7", "a.docx"),
        (b"\r\n\r\n%PDF-1.4", "a.pdf"),
        (office.read_bytes(), "a.docx"),
        (b"\x89PNG\r\n", "photo.png"),  # its reader says that it is no text
        (gzip.compress(b"Hello"), "notes.txt.gz"),
    ]
    file = tmp_path / "sent"
    for content, name in refused + taken:
        file.write_bytes(content)
        why = name_problem(file, name)
        assert bool(why) == ((content, name) in refused), (content[:20], name, why)


@SEVERAL
def test_what_an_organization_may_have_is_limited(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path
) -> None:
    variables = {
        "RAG_DATABASE_URL": database_urls[1],
        "RAG_DATABASE_OWNER_URL": database_urls[0],
        "RAG_VECTOR_STORE": default_store,
        "QDRANT_PATH": str(qdrant_folder),
        "RAG_HOME": str(tmp_path),
        "RAG_UPLOAD_MEGABYTES": "50",
        "RAG_ORGANIZATION_SOURCES": "2",
        "RAG_ORGANIZATION_MEGABYTES": "1",
    }
    with configured(variables) as patch:
        without_limits(patch)
        about = prepare(an_organization)
        with served() as client:
            writer = Writer(client, **about)
            writer.put_in({"external_id": "a", "text": "One."}, {"external_id": "b", "text": "Two."})
            writer.put_in({"external_id": "b", "text": "Two again.\n" + "word " * 150_000})
            for documents in ([{"text": "Three."}], [{"external_id": "a", "text": "word " * 100_000}]):
                full = writer.call("POST", "", 403, json={"index": INDEX, "documents": documents})
                assert full["error"]["code"] == "organization_full"
                assert full["error"]["message"] in (
                    "The organization may have at most 2 sources (RAG_ORGANIZATION_SOURCES). Delete some first",
                    "The organization's sources may take at most 1 MB (RAG_ORGANIZATION_MEGABYTES). Delete some first",
                )
            assert [each["title"] for each in writer.call("GET", "?sort=external_id")["sources"]] == [
                "One.",
                "Two again.",
            ]


def test_what_takes_longer_is_a_job(writer: Writer) -> None:
    """Nobody works here: tests/integration/test_jobs.py says what a worker makes of it."""

    def jobs(method: str, path: str, status: int = 200) -> Any:
        headers = {"Authorization": f"Bearer {writer.key}"}
        response = writer.client.request(method, path, headers=headers)
        assert response.status_code == status, response.text
        return response.json()

    body = {"index": INDEX, "documents": [{"external_id": each, "text": f"Text {each}."} for each in "abc"]}
    asked = {"Prefer": "respond-async, wait=10", "Idempotency-Key": "once"}
    handed, again = (writer.call("POST", status=None, json=body, headers=asked) for _ in range(2))
    assert (handed.status_code, again.status_code) == (202, 202) and handed.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    another = {"index": INDEX, "documents": [{"external_id": "d", "text": "Text d."}]}
    for other, headers in ((another, asked), (body, {"Idempotency-Key": "once"})):
        refused = writer.call("POST", "", 409, json=other, headers=headers)
        assert refused["error"]["code"] == "idempotency_key_in_use", "its documents would be dropped without a word"
    link = handed.headers["Location"]
    assert handed.json() == {"job": link.rpartition("/")[2], "link": link, "documents": 3}
    job = jobs("GET", link)
    assert (job["state"], job["files"], job["waiting"], job["done"], job["link"]) == ("waiting", 3, 3, 0, link)
    assert [each["id"] for each in jobs("GET", "/api/v1/jobs")["jobs"]] == [job["id"]]
    page = jobs("GET", f"{link}/files?limit=2&state=waiting")
    assert ([each["name"] for each in page["files"]], page["next"]) == (["a", "b"], 1)
    assert [each["name"] for each in jobs("GET", f"{link}/files?after=1")["files"]] == ["c"]
    assert jobs("POST", f"{link}/cancel")["state"] == "cancelled"
    assert jobs("POST", f"{link}/cancel", 400)["error"]["code"] == "invalid_request"
    events = writer.client.get(f"{link}/events", headers={"Authorization": f"Bearer {writer.key}"}).text
    assert events.startswith("event: done\ndata: {") and '"state":"cancelled"' in events
    assert jobs("POST", f"{link}/retry")["state"] == "waiting"
    assert jobs("POST", f"{link}/cancel")["state"] == "cancelled"
    assert writer.call("GET")["sources"] == []
    reader = writer.client.get(link, headers=bearer(writer.reader))
    assert reader.status_code == 404, "a member's view is of their own jobs"
    assert writer.client.get(link, headers=bearer(writer.admin)).status_code == 200


def test_rows_of_a_table_are_sources_where_the_request_says_so(writer: Writer) -> None:
    rule = (
        '{"key": ["no"], "date": ["born"], "columns": {"who": "author"}, "text": "{who} was born on {born:%-d %B %Y}."}'
    )
    table = "no,who,born\n1,Ada,1815-12-10\n2,Bo,long ago\n,Cy,1950-05-05\n"

    def send(content: str, status: int | None = 200, said: str = rule) -> Any:
        files = [("file", ("people.csv", content.encode(), "text/csv"))]
        return writer.call("POST", "", status, files=files, data={"index": INDEX, "rows": said})

    (sent,) = send(table)["documents"]
    assert (sent["external_id"], sent["status"], len(sent["further"])) == ("people.csv#1", "added", 1)
    assert sent["problems"] == [
        "row 4: the key column no is empty: the row is skipped",
        "row 3: column born: must be a date in ISO 8601, not 'long ago': left out",
    ]
    ada = writer.call("GET", f"/{sent['id']}")
    assert (ada["row"], ada["sheet"], ada["file_name"], ada["date"]) == (2, None, "people.csv", "1815-12-10T00:00:00")
    assert ada["metadata"] == {"author": "Ada", "no": "1", "born": "1815-12-10"}
    hits = {hit["meta"]["author"]: hit["meta"]["row"] for hit in writer.search("When was Ada born?")}
    assert hits == {"Ada": 2, "Bo": 3}
    (again,) = send("no,who,born\n2,Bo,1900-01-01\n")["documents"]
    assert (again["status"], again["further"], again["problems"]) == ("updated", [], [])
    assert [each["external_id"] for each in writer.call("GET")["sources"]] == ["people.csv#2"]
    empty = send("no,who,born\n", 422)
    assert empty["error"]["message"] == "people.csv: it has no rows"
    for wrong in ('{"columns": {"who": "nobody"}}', '{"keys": ["no"]}', '"no"', '{"decimal": ";"}'):
        assert send(table, None, wrong).status_code == 400, wrong
    text = {"index": INDEX, "documents": [{"text": table, "rows": {"key": ["no"]}}]}
    assert writer.call("POST", "", 400, json=text)["error"]["message"].startswith("documents[0].rows: ")


def test_a_table_is_deleted_by_its_name(writer: Writer, other: Writer) -> None:
    """All its rows that one may see and write, and nothing else."""
    rows = {"key": ["no"]}

    def send(to: Writer, name: str, *keys: int, **options: Any) -> list[str]:
        table = {"file_name": name, "text": "no,what\n" + "".join(f"{key},brakes\n" for key in keys), "rows": rows}
        (sent,) = to.put_in({**table, **options})["documents"]
        return [sent["id"], *sent["further"]]

    def names() -> set[str]:
        return {each["external_id"] for each in writer.call("GET", params={"limit": 200})["sources"]}

    send(other, "repairs.csv", 1, 2)
    send(writer, "repairs.csv", 1, 2)
    send(writer, "repairs.csv", 7, external_id="2025")
    send(writer, "more-repairs.csv", 1)
    writer.put_in({"external_id": "repairs.csv#note", "text": "A note."})
    assert writer.call("DELETE", "/repairs.csv", 403, headers=bearer(writer.reader))
    french = {"index": INDEX, "external_id": "repairs.csv", "filter": "lang=fr"}
    assert writer.call("DELETE", params=french) == {"deleted": 0}
    assert writer.call("DELETE", "/repairs.csv") == {"deleted": 2}
    assert names() == {"2025#7", "more-repairs.csv#1", "repairs.csv#note"}
    assert writer.call("DELETE", params={"index": INDEX, "external_id": ["2025", "more-repairs.csv"]}) == {"deleted": 2}
    assert writer.call("DELETE", "/repairs.csv", 404)
    send(writer, "repairs.csv", 8, external_id="2026")
    send(writer, "repairs.csv", 7, external_id="2025")
    refused = writer.call("DELETE", "/repairs.csv", 400)
    assert "is the name of 2 tables" in refused["error"]["message"]
    assert writer.call("DELETE", "/2025") == {"deleted": 1}
    assert writer.call("DELETE", "/repairs.csv") == {"deleted": 1}, "the name of its file"
    # a private row is nobody else's to delete
    mine: dict[str, Any] = {"headers": bearer(writer.everywhere)}
    table = {"file_name": "repairs.csv", "external_id": "mine", "text": "no,what\n1,brakes\n", "rows": rows}
    body = {"index": INDEX, "organization": writer.slug, "documents": [table], "visibility": "user"}
    private = writer.call("POST", json=body, **mine)["ids"][0]
    assert writer.call("DELETE", "/mine", 404) and writer.call("DELETE", "/repairs.csv", 404)
    assert writer.call("DELETE", params={"index": INDEX, "external_id": "mine"}) == {"deleted": 0}
    send(writer, "repairs.csv", 2, external_id="mine")
    assert writer.call("GET", f"/{private}", **mine), "nor to replace by a table of the same name"
    assert len(other.call("GET")["sources"]) == 2


def test_a_text_with_the_name_of_a_file_is_read_as_that_file(writer: Writer) -> None:
    """The same as the same bytes in a form, and then unchanged."""
    contents = {
        "towing.md": "---\nauthor: Ada\n---\n# Towing\n\nWe tow cars.\n\n## Prices\n\nTowing costs 80 euros.",
        "repairs.csv": "no,what\n1,brakes\n2,lights\n",
        "notes": "What a member said.",
        "photo.png": "What is on it.",
    }
    rows = {"key": ["no"], "text": "Repair {no}: {what}."}
    texts = [
        {"file_name": f"kept/{name}", "text": text, **({"rows": rows} if name.endswith("csv") else {})}
        for name, text in contents.items()
    ]
    towing, repairs, notes, photo = writer.put_in(*texts)["documents"]
    assert [each["external_id"] for each in (towing, repairs, notes)] == ["towing.md", "repairs.csv#1", "notes"]
    assert photo["problems"][0].startswith("its name ends in .png, but its content is not")
    text = writer.call("GET", f"/{towing['id']}/text")
    assert (text["title"], [each["section"] for each in text["passages"]]) == ("Towing", ["Towing", "Towing > Prices"])
    assert writer.call("GET", f"/{towing['id']}")["metadata"] == {"author": "Ada"}
    assert writer.call("GET", f"/{repairs['further'][0]}/text")["text"] == "Repair 2: lights."
    for name, options in (("towing.md", {}), ("repairs.csv", {"rows": json.dumps(rows)})):
        files = [("file", (name, contents[name].encode()))]
        (again,) = writer.call("POST", files=files, data={"index": INDEX, **options})["documents"]
        assert again["status"] == "unchanged", name
    one = {"index": INDEX, "external_id": "towing.md", "file_name": "towing.md", "text": contents["towing.md"]}
    assert writer.call("PUT", json=one)["documents"][0]["status"] == "unchanged"


def test_a_job_is_retried_by_those_who_may_still_write(writer: Writer) -> None:
    assert writer.everywhere is not None
    user = writer.everywhere
    body = {"index": INDEX, "organization": writer.slug, "documents": [{"external_id": "a", "text": "Text a."}]}
    sent = writer.client.post(PATH, json=body, headers={**bearer(user), "Prefer": "respond-async"})
    link = sent.json()["link"]
    assert writer.client.post(f"{link}/cancel", headers=bearer(user)).json()["state"] == "cancelled"

    async def revoke(application: Application) -> None:
        await application.roles.grant(writer.org, user, None, INDEX)

    prepare(revoke)
    refused = writer.client.post(f"{link}/retry", headers=bearer(user))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden"), refused.text
    assert writer.client.get(link, headers=bearer(user)).json()["state"] == "cancelled"
    assert writer.client.post(f"{link}/retry", headers=bearer(writer.admin)).json()["state"] == "waiting"
    assert writer.client.post(f"{link}/cancel", headers=bearer(writer.admin)).json()["state"] == "cancelled"
