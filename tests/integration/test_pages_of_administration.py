"""Pages of administration, of documents and the playground: their forms without a browser, then each of them in one."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from rag_app.access.page_sessions import Sessions
from rag_app.access.roles import Role
from rag_app.application import Application
from tests.conftest import NewPostgres
from tests.integration.service import Text, bearer, configured, ingest, prepare, served, without_limits
from tests.waiting import PATIENCE

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = "<img src=x onerror=alert(1)>\"'&<script>alert(2)</script>"
QUESTION = "When does the gardener bring the blue wheelbarrow?"
PAGES = (
    "/admin",
    "/admin/feedback",
    "/admin/prompts",
    "/admin/prompts/ask_lexybrain_system",
    "/admin/evaluation",
    "/admin/usage",
    "/admin/people",
    "/admin/audit",
    "/playground",
)


@dataclass(frozen=True)
class Site:
    """A server with pages, an administrator's session and members'; `both` is a member of two organizations, with a group in
    each."""

    client: httpx.Client
    root: dict[str, str]
    ann: dict[str, str]
    stranger: dict[str, str]
    both: dict[str, str]
    ann_id: UUID
    slug: str
    source: UUID

    def get(self, path: str, cookies: dict[str, str] | None = None) -> httpx.Response:
        return self.client.get(path, cookies=cookies or self.root)

    def send(self, path: str, page: str, who: dict[str, str] | None = None, /, **fields: str) -> httpx.Response:
        """A form of that page."""
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', self.get(page, who).text)
        fields["csrf"] = found[1] if found else ""
        return self.client.post(path, data=fields, cookies=who or self.root, headers={"Sec-Fetch-Site": "same-origin"})


@pytest.fixture(scope="module")
def site(new_database: NewPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    server, folder = new_database(), tmp_path_factory.mktemp("site")

    async def build(application: Application) -> tuple[str, UUID, list[str], UUID]:
        people = application.people
        own = await people.create_organization(f"own-{uuid4().hex[:8]}", f"Own {HOSTILE}")
        root, ann = await people.create_user("root", role="admin"), await people.create_user("ann")
        for user in (root, ann):
            await people.add_member(own, user)
        other = await people.create_organization(f"other-{uuid4().hex[:8]}", "Other")
        stranger = await people.create_user("stranger")
        await people.add_member(other, stranger)
        both = await people.create_user("both")
        for organization in (own, other):
            await people.add_member(organization, both)
            await application.roles.grant(organization.id, both.id, Role.WRITE)
            group = await application.groups.create(organization, "board", f"Board of {organization.slug[:3]}")
            await application.groups.add_member(group, both)
        text = Text("tools", f"The gardener brings the blue wheelbarrow every Monday at nine. {HOSTILE}", own.id)
        await ingest(application, folder, [Text(text.name, text.text, own.id, None, {"title": HOSTILE})])
        sessions = Sessions(application.database)
        return own.slug, ann.id, [await sessions.open(each.id) for each in (root, ann, stranger, both)], text.id

    variables = {
        "RAG_DATABASE_URL": server.app_url,
        "RAG_DATABASE_OWNER_URL": server.owner_url,
        "RAG_VECTOR_STORE": "postgres",
        "RAG_HOME": str(folder),
    }
    with configured(variables) as patch:
        without_limits(patch)
        slug, ann, cookies, source = prepare(build)
        with served() as client:
            said = client.post("/api/lexybrain/rag", json={"message": HOSTILE}, headers=bearer(ann)).json()
            path = f"/api/lexybrain/messages/{said['messageId']}/feedback"
            client.post(path, json={"rating": "negative", "comment": HOSTILE}, headers=bearer(ann))
            root, member, stranger, both = ({"rag_pages": each} for each in cookies)
            yield Site(client, root, member, stranger, both, ann, slug, source)


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_there_for_administrators_alone(site: Site, path: str) -> None:
    shown = site.get(path)
    assert shown.status_code == 200, shown.text
    assert "<script>alert" not in shown.text and "<img src=x" not in shown.text
    assert " style=" not in shown.text and not re.search(r"\son[a-z]+=", re.sub(r"&[^;]+;.*?&[^;]+;", "", shown.text))
    assert site.get(path, site.ann).status_code == 403
    assert site.client.get(path).status_code == 303, "whoever is not signed in signs in first"


def test_a_form_of_another_page_changes_nothing(site: Site) -> None:
    form = {"organization": site.slug, "act": "make", "name": "stolen"}
    same = {"Sec-Fetch-Site": "same-origin"}
    assert site.client.post("/admin/people", data=form, cookies=site.root, headers=same).status_code == 403
    other = {"Sec-Fetch-Site": "cross-site"}
    assert site.client.post("/admin/people", data=form, cookies=site.root, headers=other).status_code == 403
    assert site.send("/admin/people", "/documents", site.ann, **form).status_code == 403
    assert "stolen" not in site.get("/admin/people").text


def test_feedback_is_settled_on_its_page(site: Site) -> None:
    page = site.get("/admin/feedback").text
    [given] = set(re.findall(r'name="feedback" value="([0-9a-f-]+)"', page))
    form = {"feedback": given, "resolution": "fixed", "note": HOSTILE, "state": "open"}
    settled = site.send("/admin/feedback", "/admin/feedback", **form)
    assert settled.status_code == 303
    assert given not in site.get("/admin/feedback").text
    shown = site.get("/admin/feedback?state=settled").text
    assert given in shown and "<script>alert" not in shown
    assert site.send("/admin/feedback", "/admin/feedback?state=settled", feedback=given).status_code == 303
    assert given in site.get("/admin/feedback").text
    assert site.get("/admin/feedback?rating=wonderful").status_code == 400


def test_prompts_are_added_compared_activated_and_weighed(site: Site) -> None:
    name, at = "ask_lexybrain_system_v2", "/admin/prompts"
    old = re.search(r"<pre[^>]*>(.*?)</pre>", site.get(f"{at}/ask_lexybrain_system").text, re.DOTALL)
    assert old is not None
    form = {"act": "add", "name": name, "type": "global", "instructions": f"Be brief. {HOSTILE}"}
    assert site.send(at, at, **form).status_code == 303
    compared = site.get(f"{at}/{name}?against=ask_lexybrain_system").text
    assert "<ins>Be brief. &lt;img" in compared and "<del>" in compared
    assert site.send(at, at, act="weigh", name=name, weight="3").status_code == 303
    assert site.send(at, at, act="on", name=name).status_code == 303
    assert "75 %" in site.get(at).text, "three of four threads"
    assert site.send(at, at, act="off", name=name).status_code == 303
    assert site.send(at, at, act="weigh", name=name, weight="many").status_code == 400
    assert site.get(f"{at}/nothing").status_code == 404
    for act in ("prompts.add", "prompts.weigh", "prompts.activate", "prompts.deactivate"):
        assert act in site.get("/admin/audit").text


def test_who_is_no_user_is_not_added_and_the_form_says_what_to_do(site: Site) -> None:
    form = {"organization": site.slug, "act": "add", "user": f"new {HOSTILE}"}
    shown = site.send("/admin/people", "/admin/people", **form)
    assert shown.status_code == 404 and "<script>alert" not in shown.text
    assert re.search(r'id="new-member"[^>]* value="new &lt;img', shown.text), "what was typed is still there"
    assert f"--org {site.slug}</code>" in shown.text and "rag-app token --link --user &#39;new " in shown.text
    assert site.send("/admin/people", "/admin/people", **{**form, "organization": "none"}).status_code == 404


def test_the_overview_counts_once_what_had_too_little_to_go_on(site: Site) -> None:
    assert site.client.post("/api/lexybrain/rag", json={"message": "hello"}, headers=bearer(site.ann_id)).is_success
    shown = site.get("/admin").text
    tile = re.search(r"Too little to go on</dt>\s*<dd>(\d+) %", shown)
    row = r'<th scope="row">[\d-]+</th><td class="number">\d+</td><td class="number">(\d+)</td><td class="number">(\d+)'
    answers, refused = map(int, re.findall(row, shown)[0])
    assert tile is not None and int(tile[1]) == round(100 * refused / answers) < 100


def test_a_key_is_shown_once(site: Site) -> None:
    form = {"act": "make", "organization": site.slug, "name": "site", "index": "org_knowledge"}
    made = site.send("/admin/people", "/admin/people", **form)
    [secret] = re.findall(r"rag_[A-Za-z0-9_-]{43}", made.text)
    listed = site.get("/admin/people").text
    assert secret not in listed and secret[:12] in listed
    [key] = re.findall(r'name="key" value="([0-9a-f-]+)"', listed)
    form = {"act": "revoke", "organization": site.slug, "key": key}
    assert site.send("/admin/people", "/admin/people", **form).status_code == 303
    assert "revoked" in site.get("/admin/people").text
    form = {"act": "add", "organization": site.slug, "user": "nobody"}
    assert site.send("/admin/people", "/admin/people", **form).status_code == 404


def test_a_plan_is_given_on_the_page_of_usage(site: Site) -> None:
    assert site.send("/admin/usage", "/admin/usage", user=str(site.ann_id), plan="pro").status_code == 303
    assert "of 2000 messages used by ann" in site.get("/admin/usage").text
    assert site.get("/admin/usage?month=May").status_code == 400


def test_the_playground_asks_twice_and_keeps_what_is_right(site: Site) -> None:
    form = {"question": QUESTION, "a_answer": "1", "two": "1", "b_mode": "text", "b_filters": "lang=en"}
    shown = site.send("/playground", "/playground", **form).text
    assert shown.count('<ol class="hits">') == 2 and "<script>alert" not in shown
    assert "The prompt as it would be sent: knowledge_answer_v1" in shown
    judged = re.findall(r'name="judge" value="(a:right:[0-9a-f-]+)"', shown)[0]
    assert (
        "Kept: this passage answers the question." in site.send("/playground", "/playground", **form, judge=judged).text
    )
    assert site.send("/playground", "/playground", **{**form, "b_filters": "colour=red"}).status_code == 400
    assert site.send("/playground", "/playground", **{**form, "a_top_k": "many"}).status_code == 400


def test_documents_are_listed_read_and_deleted(site: Site) -> None:
    listed = site.get("/documents", site.ann).text
    assert f"/documents/{site.source}" in listed and "<script>alert" not in listed
    assert "No documents" in site.get("/documents?search=nothing+like+this", site.ann).text
    shown = site.get(f"/documents/{site.source}", site.ann).text
    assert "blue wheelbarrow" in shown and "<script>alert" not in shown and "<img src=x" not in shown
    [chunk, *_] = re.findall(r"\?chunk=([0-9a-f-]+)", shown)
    assert '<mark id="passage">The gardener' in site.get(f"/documents/{site.source}?chunk={chunk}", site.ann).text
    assert site.get(f"/documents/{uuid4()}", site.ann).status_code == 404
    assert site.get(f"/documents/{site.source}", site.stranger).status_code == 404
    assert str(site.source) not in site.get("/documents", site.stranger).text
    assert site.send(f"/documents/{site.source}/delete", "/documents", site.stranger).status_code in (403, 404)
    assert site.get(f"/documents/{site.source}", site.ann).status_code == 200
    for path in ("/knowledge", "/calls"):
        assert site.get(path, site.ann).status_code == 200


def test_a_member_asks_any_index_by_a_form(site: Site) -> None:
    """The browser's script asks the route instead: tests/browser/test_answers.py."""
    page = site.get("/knowledge?index=book", site.ann).text
    for index in ("org_knowledge", "book", "salon_calls"):
        assert f">{index}</option>" in page
    assert "<option selected>book</option>" in page
    answered = site.send("/knowledge", "/knowledge", site.ann, text=QUESTION, index="org_knowledge").text
    assert "every Monday at nine" in answered and f"/documents/{site.source}?chunk=" in answered
    assert "<option selected>org_knowledge</option>" in answered and "<script>alert" not in answered
    assert f'name="earlier" value="{QUESTION}"' in answered, "what follows is read with it"
    followed = {"text": "And who does that?", "earlier": QUESTION, "index": "org_knowledge"}
    assert "The gardener" in site.send("/knowledge", "/knowledge", site.ann, **followed).text
    refused = site.send("/knowledge", "/knowledge", site.ann, text=QUESTION, index="book").text
    assert "The book does not seem to cover this." in refused and str(site.source) not in refused
    theirs = site.send("/knowledge", "/knowledge", site.stranger, text=QUESTION, index="org_knowledge").text
    assert str(site.source) not in theirs and "Monday at nine" not in theirs
    for wrong, status in (({"index": "nothing"}, 404), ({"text": " "}, 400), ({"text": "a" * 501}, 400)):
        sent = {"text": QUESTION, "index": "book", **wrong}
        assert site.send("/knowledge", "/knowledge", site.ann, **sent).status_code == status, wrong
    long = site.send("/knowledge", "/knowledge", site.ann, text="b" * 501, index="book").text
    assert f">{'b' * 501}</textarea>" in long and "this one has 501" in long
    assert site.get("/knowledge?index=nothing", site.ann).status_code == 404
    forged = {"text": QUESTION, "csrf": "0"}
    same = {"Sec-Fetch-Site": "same-origin"}
    assert site.client.post("/knowledge", data=forged, cookies=site.ann, headers=same).status_code == 403


# -- in a browser


@pytest.fixture(scope="module")
def engine(site: Site) -> Iterator[Any]:
    # after `site`, and so gone before it: while Playwright runs, this thread can begin no other event loop
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield made
        made.close()


@contextmanager
def browsing(engine: Any, site: Site, who: dict[str, str], **options: Any) -> Iterator[Any]:
    """A browser of somebody who is signed in. Nothing leaves this machine, no script fails, no policy refuses anything."""
    wrong: list[str] = []
    url = str(site.client.base_url).rstrip("/")
    context = engine.new_context(base_url=url, **options)
    context.set_default_timeout(1000 * PATIENCE)
    context.add_cookies([{"name": name, "value": value, "url": url} for name, value in who.items()])
    context.on("request", lambda request: None if request.url.startswith(url) else wrong.append(request.url))
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    page.on("console", lambda message: wrong.append(message.text) if "Content Security" in message.text else None)
    yield page
    context.close()
    assert not wrong, wrong


def serious(page: Any) -> list[str]:
    """What axe finds that is serious or worse."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe
    found = axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in {"serious", "critical"}]


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
def test_axe_finds_nothing_serious_on_any_page(engine: Any, site: Site, theme: str) -> None:
    with browsing(engine, site, site.root, color_scheme=theme) as page:
        for path in (*PAGES, "/documents"):
            page.goto(path)
            for summary in page.locator("main summary").all():
                summary.click()
            assert not serious(page), path


def test_without_javascript_the_playground_answers(engine: Any, site: Site) -> None:
    with browsing(engine, site, site.root, java_script_enabled=False) as page:
        page.goto("/playground")
        page.get_by_role("textbox", name="Question").fill(QUESTION)
        page.get_by_role("button", name="Ask", exact=True).click()
        page.get_by_role("button", name="Hit 1 is right").click()
        assert "Kept: this passage answers the question." in page.locator("main").inner_text()


def test_without_javascript_a_member_asks_an_index(engine: Any, site: Site) -> None:
    with browsing(engine, site, site.ann, java_script_enabled=False) as page:
        page.goto("/")
        page.get_by_role("link", name="Knowledge").first.click()
        page.get_by_role("textbox", name="Your question").fill(QUESTION)
        page.get_by_role("combobox", name="Index").select_option("org_knowledge")
        page.get_by_role("button", name="Ask", exact=True).click()
        assert "every Monday at nine" in page.get_by_role("region", name="Answer").inner_text()
        page.get_by_label("Cited sources").get_by_role("link").first.click()
        assert "blue wheelbarrow" in page.locator("#passage").inner_text()


def test_files_go_to_a_group_of_the_organization_that_they_are_for(engine: Any, site: Site) -> None:
    with browsing(engine, site, site.both) as page:
        page.goto("/documents")
        page.get_by_text("Add documents").click()
        seen_by = page.get_by_label("seen by")
        for name, there in (("Other", "Board of oth"), (f"Own {HOSTILE}", "Board of own")):
            page.get_by_label("of", exact=True).select_option(name)
            offered = seen_by.locator("option:not([disabled])").all_inner_texts()
            assert offered == ["the whole organization", there, "only me"]
            assert seen_by.input_value() == "", "what was chosen before is of the other organization"
            seen_by.select_option(there)
        file = {"name": "minutes.md", "mimeType": "text/markdown", "buffer": b"# Minutes\n\nThe board met at six."}
        page.locator("#files").set_input_files([file])
        page.locator("#status", has_text="1 of 1 files done").wait_for(state="attached")
        assert "added" in page.locator("#uploads li").first.inner_text()


def test_files_are_put_in_with_the_reason_where_one_is_refused(engine: Any, site: Site) -> None:
    files = [
        {"name": f"{HOSTILE[:24]}.md", "mimeType": "text/markdown", "buffer": b"# Hours\n\nThe shed is open at six."},
        {"name": "broken.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4 nonsense"},
    ]
    with browsing(engine, site, site.root) as page:
        page.goto("/documents")
        page.get_by_text("Add documents").click()
        page.locator("#files").set_input_files(files)
        page.locator("#status", has_text="1 of 2 files done, 1 refused").wait_for(state="attached")
        assert "added" in page.locator("#uploads li").nth(0).inner_text()
        assert "PDF" in page.locator("#uploads li").nth(1).inner_text()
        page.get_by_role("link", name="Show them in the list").click()
        page.get_by_role("link", name="Hours").first.click()
        page.get_by_text("The shed is open at six.").first.wait_for()
