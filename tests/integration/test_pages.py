"""Signing in to the pages, what their session opens, and what is refused: without a browser, so that a test can lie."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import pytest

from rag_app.access.page_sessions import Sessions, digest
from rag_app.access.people import People
from rag_app.access.roles import Role, RoleDirectory
from rag_app.application import Application
from rag_app.database.session import Database
from tests.integration.service import USUAL, configured, prepare, served
from tests.integration.test_api_end_to_end import variables
from tests.waiting import PATIENCE

T = TypeVar("T")
USAGE = "/api/lexybrain/usage"
OWN = {"Sec-Fetch-Site": "same-origin"}


class Pages:
    """A server that shows pages, and its database."""

    def __init__(self, client: httpx.Client, database_url: str) -> None:
        self.client, self.url = client, database_url

    def work(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        async def opened() -> T:
            database = Database(self.url, pool_size=2)
            try:
                return await work(database)
            finally:
                await database.close()

        return asyncio.run(opened())

    def newcomer(self) -> tuple[Any, str]:
        """A user of an organization, and a code that signs them in."""

        async def make(database: Database) -> tuple[Any, str]:
            people = People(database)
            organization = await people.create_organization(f"o-{uuid4().hex}", "Org")
            user = await people.create_user(f"u-{uuid4().hex}")
            await people.add_member(organization, user)
            return user, await Sessions(database).make_code(user.id)

        return self.work(make)

    def fetch(self, statement: str, *values: object) -> list[Any]:
        return self.work(lambda database: database.fetch(statement, *values))

    def browser(self) -> httpx.Client:
        return httpx.Client(base_url=self.client.base_url, timeout=PATIENCE)

    def sign_in(self, browser: httpx.Client, code: str, **headers: str) -> httpx.Response:
        return browser.post("/sign-in/code", data={"code": code, "next": "/"}, headers={**OWN, **headers})


@pytest.fixture(scope="module")
def pages(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("pages")
    with configured(variables(database_urls, default_store, folder, qdrant_folder)):
        prepare(Application.build_missing)
        with served() as client:
            yield Pages(client, database_urls[1])


def test_whoever_is_not_signed_in_is_sent_to_and_comes_back(pages: Pages) -> None:
    with pages.browser() as browser:
        thread = f"/threads/{uuid4()}"
        sent = browser.get(thread)
        assert (sent.status_code, sent.headers["location"]) == (303, f"/sign-in?next={thread.replace('/', '%2F')}")
        page = browser.get(sent.headers["location"])
        assert page.status_code == 200 and f'name="next" value="{thread}"' in page.text
        assert page.headers["referrer-policy"] == "no-referrer"
        assert browser.get("/sign-in/demo").status_code == 404


def test_a_code_signs_in_once_and_a_session_can_be_closed(pages: Pages) -> None:
    user, code = pages.newcomer()
    with pages.browser() as browser, pages.browser() as thief:
        welcome = pages.sign_in(browser, code)
        assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
        [cookie] = [each for each in welcome.headers.get_list("set-cookie") if each.startswith("rag_pages=")]
        assert {"HttpOnly", "SameSite=lax", "Path=/"} <= {each.strip() for each in cookie.split(";")}
        assert user.name in browser.get("/").text
        again = pages.sign_in(thief, code)
        assert again.status_code == 401 and "works once" in again.text and "rag_pages" not in thief.cookies
        kept = pages.fetch("SELECT digest FROM page_sessions WHERE user_id = $1", user.id)
        assert [each["digest"] for each in kept] == [digest(browser.cookies["rag_pages"])], "and never the cookie"
        stolen = browser.cookies["rag_pages"]
        csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.get("/").text)
        assert csrf
        out = browser.post("/sign-out", data={"csrf": csrf[1]}, headers=OWN)
        assert out.status_code == 303 and "storage" in out.headers["clear-site-data"]
        thief.cookies.set("rag_pages", stolen)
        assert thief.get("/").status_code == 303
        assert thief.get(USAGE, headers=OWN).status_code == 401


def test_who_has_documents_in_knowledge_alone_asks_there(pages: Pages) -> None:
    user, code = pages.newcomer()
    [member] = pages.fetch("SELECT org_id FROM memberships WHERE user_id = $1", user.id)
    with pages.browser() as browser:
        pages.sign_in(browser, code)
        reading = browser.get("/documents").text
        [organization] = pages.fetch("SELECT slug FROM organizations WHERE id = $1", member["org_id"])
        assert f"rag-app grant {user.name} write --org {organization['slug']}</code>" in reading
        assert 'id="upload"' not in reading and "What each index holds" in reading
        pages.work(lambda database: RoleDirectory(database).grant(member["org_id"], user.id, Role.WRITE))
        assert "There are no documents that you may see yet." in browser.get("/").text
        nothing, none_of_it = browser.get("/documents").text, browser.get("/documents?search=shop").text
        assert "There are none that you may see yet." in nothing and '<details id="upload" open>' in nothing
        assert "None matches." in none_of_it and '<details id="upload">' in none_of_it
        sent = {"index": "org_knowledge", "documents": [{"text": "The shop is closed on Mondays."}]}
        assert browser.post("/api/v1/sources", json=sent, headers=OWN).status_code == 200
        there = browser.get("/")
        assert (there.status_code, there.headers["location"]) == (303, "/knowledge?index=org_knowledge")
        chat = browser.get("/ask").text  # where the menu leads
        assert '<a href="/ask" aria-current="page">Ask</a>' in chat and "answers from org_knowledge" in chat
        knowledge, calls = browser.get("/knowledge").text, browser.get("/calls").text
        assert re.search(r'The newest: <a href="/documents/[0-9a-f-]+">', knowledge)
        assert "There are no documents in salon_calls that you may see." in calls


def test_rows_of_a_table_are_one_line_of_the_documents(pages: Pages) -> None:
    user, code = pages.newcomer()
    [member] = pages.fetch("SELECT org_id FROM memberships WHERE user_id = $1", user.id)
    pages.work(lambda database: RoleDirectory(database).grant(member["org_id"], user.id, Role.WRITE))
    table = "sku,part,for,price_usd,stock,note\n" + "".join(
        f"A-{row},Part {row},Quarry,9,in stock,\n" for row in range(4)
    )
    with pages.browser() as browser:
        pages.sign_in(browser, code)
        file, into = {"file": ("parts.csv", table.encode())}, {"index": "store_catalogue"}
        assert browser.post("/api/v1/sources", files=file, data=into, headers=OWN).status_code == 200
        shown = browser.get("/documents").text
        assert "<summary>parts.csv: 4 rows</summary>" in shown and shown.count('<th scope="row"') == 1
        assert shown.count('href="/documents/') == 4


def test_a_document_is_shown_with_its_headings_and_tables(pages: Pages) -> None:
    user, code = pages.newcomer()
    [member] = pages.fetch("SELECT org_id FROM memberships WHERE user_id = $1", user.id)
    pages.work(lambda database: RoleDirectory(database).grant(member["org_id"], user.id, Role.WRITE))
    text = "# Prices\n\nWhat we ask.\n\n## By weight\n\n| Fruit | Price |\n| --- | --- |\n| Fig & <Pear> | 2 |\n| Pear | 3 |\n"
    with pages.browser() as browser:
        pages.sign_in(browser, code)
        file, into = {"file": ("prices.md", text.encode())}, {"index": "org_knowledge"}
        [source] = browser.post("/api/v1/sources", files=file, data=into, headers=OWN).json()["ids"]
        shown = browser.get(f"/documents/{source}").text
        assert "<h2>By weight</h2>" in shown and "<p>What we ask.</p>" in shown
        assert '<th scope="col">Fruit</th><th scope="col">Price</th>' in shown
        assert "<td>Fig &amp; &lt;Pear&gt;</td><td>2</td>" in shown and "<mark" not in shown
        chunk = re.findall(r"\?chunk=([0-9a-f-]+)", shown)[-1]
        assert '<td><mark id="passage">Fig &amp;' in browser.get(f"/documents/{source}?chunk={chunk}").text


def test_signing_in_again_ends_the_session_before(pages: Pages) -> None:
    _, code = pages.newcomer()
    _, other = pages.newcomer()
    with pages.browser() as browser:
        pages.sign_in(browser, code)
        before = browser.cookies["rag_pages"]
        token = re.search(r'name="csrf" content="([0-9a-f]+)"', browser.get("/").text)
        assert token
        assert pages.sign_in(browser, other, **{"X-CSRF-Token": token[1]}).status_code == 303
        assert browser.cookies["rag_pages"] != before
        assert not pages.fetch("SELECT FROM page_sessions WHERE digest = $1", digest(before))


@pytest.mark.parametrize(
    "change", ["expires_at = now() - interval '1 second'", "seen_at = now() - interval '121 minutes'"]
)
def test_a_session_ends_by_itself(change: str, pages: Pages) -> None:
    user, code = pages.newcomer()
    with pages.browser() as browser:
        pages.sign_in(browser, code)
        assert browser.get("/").status_code == 200
        pages.fetch(f"UPDATE page_sessions SET {change} WHERE user_id = $1", user.id)
        assert browser.get("/").status_code == 303


def test_a_code_that_is_old_or_made_up_signs_nobody_in(pages: Pages) -> None:
    user, code = pages.newcomer()
    pages.fetch("UPDATE sign_in_codes SET expires_at = now() - interval '1 second' WHERE user_id = $1", user.id)
    with pages.browser() as browser:
        for each in (code, "", "x", "\0", "é" * 200, str(user.id), digest(code)):
            assert pages.sign_in(browser, each).status_code == 401, each
        assert not browser.cookies


def test_who_tries_too_often_waits(pages: Pages) -> None:
    """The limit of these pages is far away: it is reached by what the limiter keeps."""
    _, code = pages.newcomer()
    full = (
        "UPDATE rate_windows SET times = array_fill(extract(epoch FROM now())::float8, ARRAY[$1::int]) WHERE key = $2"
    )
    with pages.browser() as browser:
        assert pages.sign_in(browser, "guessed").status_code == 401
        pages.fetch(full, int(USUAL["RAG_SIGN_IN_TRIES"]), "sign_in:127.0.0.1")
        try:
            for refused in (pages.sign_in(browser, code), browser.get("/sign-in/callback?state=guessed")):
                assert refused.status_code == 429 and "Too many attempts from you or your network" in refused.text
                assert 0 < int(refused.headers["retry-after"]) <= 61
            assert browser.get("/sign-in").status_code == 200
        finally:
            pages.fetch("DELETE FROM rate_windows WHERE key = $1", "sign_in:127.0.0.1")
        assert pages.sign_in(browser, code).status_code == 303, "the code was not looked at"


FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Referer": "https://evil.example/"},
    {},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_the_session_counts_in_requests_of_these_pages_alone(headers: dict[str, str], pages: Pages) -> None:
    _, code = pages.newcomer()
    with pages.browser() as browser:
        assert browser.post("/sign-in/code", data={"code": code}, headers=headers).status_code == 403
        assert pages.sign_in(browser, code).status_code == 303
        for path in (USAGE, "/api/lexybrain/threads"):
            assert browser.get(path, headers=headers).status_code == 401
        body = {"query_text": "x"}
        assert browser.post("/api/rag/search", json=body, headers=headers).status_code == 401
        assert browser.post("/sign-out", headers=headers).status_code == 403
        assert browser.post("/sign-out", headers=OWN).status_code == 403, "a form without its token"
        own = {"Origin": str(browser.base_url).rstrip("/")}
        for accepted in (OWN, own):
            assert browser.get(USAGE, headers=accepted).status_code == 200
            assert browser.post("/api/rag/search", json=body, headers=accepted).status_code == 200
            assert browser.post("/owner/search", json={"query": "x"}, headers=accepted).status_code == 200
        assert browser.post("/api/v1/retrieval/query", json={"query": "x"}, headers=OWN).status_code == 401


def test_pages_carry_their_policy_and_files_are_kept(pages: Pages) -> None:
    _, code = pages.newcomer()
    with pages.browser() as browser:
        pages.sign_in(browser, code)
        page = browser.get("/")
        policy = page.headers["content-security-policy"]
        for part in ("default-src 'self'", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
            assert part in policy
        assert "require-trusted-types-for 'script'" in policy and "unsafe" not in policy
        assert page.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", page.text)
        [sheet] = re.findall(r'href="(/static/[0-9a-f]+/app\.css)"', page.text)
        assert "immutable" in browser.get(sheet).headers["cache-control"]
        assert browser.get("/static/0/app.css").headers["cache-control"] == "no-cache"
        assert browser.get("/static/0/..%2fsite.py").status_code == 404
        missing = browser.get("/nothing", headers={"Accept": "text/html"})
        assert missing.status_code == 404 and "This page does not exist" in missing.text
        assert browser.get("/nothing").headers["content-type"].startswith("application/json")


@pytest.mark.parametrize("after", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)"])
def test_nobody_is_sent_elsewhere(after: str, pages: Pages) -> None:
    _, code = pages.newcomer()
    with pages.browser() as browser:
        sent = browser.post("/sign-in/code", data={"code": code, "next": after}, headers=OWN)
        assert (sent.status_code, sent.headers["location"]) == (303, "/")


def test_the_demo_answers_this_machine_alone(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path
) -> None:
    settings = {**variables(database_urls, default_store, tmp_path, qdrant_folder), "RAG_PAGES": "demo"}
    with configured(settings), served() as client:
        assert client.get("/").headers["location"] == "/sign-in/demo"
        port = client.base_url.port
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1.evil.example",
            "0.0.0.0",
            "10.0.0.1",
            "localhost.",
            "",
        ):
            assert client.get("/", headers={"Host": host}).status_code in {400, 421}, host
            assert client.get("/sign-in/demo", headers={"Host": host}).status_code in {400, 421}, host
        for proxy in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
            assert client.get("/", headers={proxy: "10.0.0.1"}).status_code == 421
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            sent = client.get("/sign-in/demo", headers=headers)
            assert sent.headers["location"] == "/sign-in" and "rag_pages" not in client.cookies
        assert client.get("/", headers={"Host": f"localhost:{port}"}).status_code == 303


def test_without_pages_there_is_the_api_alone(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path
) -> None:
    settings = {**variables(database_urls, default_store, tmp_path, qdrant_folder), "RAG_PAGES": "off"}
    with configured(settings), served() as client:
        assert client.get("/").headers["location"] == "/docs"
        assert client.get("/sign-in").status_code == 404
        client.cookies.set("rag_pages", "x")
        refused = client.get(USAGE, headers=OWN)
        assert refused.status_code == 401 and "session has ended" not in refused.text
