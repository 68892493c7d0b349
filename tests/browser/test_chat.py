"""The chat, as people use it."""

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import POINT, Browser, Wire, sync_api
from tests.integration.lexybrain import BOX, EXPLAINED, HISTORY, KEYWORD, Chat, citing
from tests.scripted_model import Reply
from tests.waiting import PATIENCE

expect: Any = sync_api.expect
expect.set_options(timeout=1000 * PATIENCE)
SAID = "The demand index is 58 {}."


def ask(page: Any, text: str = BOX) -> None:
    page.get_by_role("textbox", name="Your question").fill(text)
    page.keyboard.press("Enter")


def answer(page: Any) -> Any:
    """The last answer, when it is complete."""
    last = page.locator("article.answer").last
    expect(last.get_by_role("button", name="Copy with citations")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    return last


def serious(page: Any) -> list[str]:
    """What axe finds that is serious or worse."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in {"serious", "critical"}]


def test_a_question_its_answer_and_the_source(browser: Browser, scripted: Callable[..., None]) -> None:
    scripted(citing(KEYWORD, SAID))
    page = browser.open()
    expect(page.get_by_role("heading", name="Ask your documents")).to_be_visible()
    assert not serious(page)
    ask(page, EXPLAINED)
    said = answer(page)
    chip = said.locator(".prose button.chip")
    expect(chip).to_have_text("1")
    expect(said).to_contain_text("The demand index is 58")
    assert "[Source" not in said.inner_text()
    expect(page.locator("#status")).to_have_text("The answer is complete.")
    chip.focus()
    expect(page.locator("#preview")).to_be_visible()
    expect(page.locator("#preview")).to_contain_text(KEYWORD)
    chip.click()
    expect(page.locator("#viewer mark")).to_contain_text("velvet ring box")
    expect(said.get_by_text("Cited")).to_be_visible()
    expect(said.locator("summary")).to_contain_text("Also found")
    assert not serious(page)
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    page.reload()  # the deep link
    expect(page.get_by_role("heading", name=EXPLAINED)).to_be_visible()
    expect(answer(page).locator(".prose button.chip")).to_have_text("1")
    expect(page.locator("#threads a[aria-current]")).to_contain_text("Why is the demand index")


@POINT
def test_each_chip_opens_the_passage_of_its_own_claim(browser: Browser, scripted: Callable[..., None]) -> None:
    said = "The term had no summer dip {0}. The competition score grew from 21 to 29 {0}."
    scripted(citing(HISTORY, said))
    page = browser.open()
    ask(page, EXPLAINED)
    marked = page.locator("#viewer mark")
    for _ in range(2):  # as it was written, and as it was stored
        first, *_, last = answer(page).locator(".prose button.chip").all()
        last.focus()
        expect(page.locator("#preview")).to_contain_text("from 21 to 29")
        last.click()
        expect(marked).to_contain_text("from 21 to 29")
        first.click()
        expect(marked).to_contain_text("had no summer dip")
        page.reload()


MENTIONS = """async (path) => {
  const { prose, sourceBehind } = await import(path);
  const passages = ["one", "two", "in code", "four"].map((quote) => ({ quote, chunkId: quote, start: 0, end: 1 }));
  const source = { id: "s", type: "doc", label: "A", score: 1, citation: 1, quote: "best", passage: null };
  const content = "A [Source 1]. [1] **B** [Source 1] `[Source 1]`\\n\\n| a |\\n| - |\\n| [Source 1] |";
  const quotes = (source) => {
    const message = { content, sources: [source] };
    return [...prose(message).querySelectorAll("button.chip")].map((chip) => sourceBehind(message, chip).quote);
  };
  return [quotes({ ...source, passages }), quotes(source), quotes({ ...source, passages, available: false, quote: null })];
}"""


@POINT
def test_chips_count_what_the_text_cites(browser: Browser) -> None:
    page = browser.open()
    path = page.locator("script[type=module]").get_attribute("src").replace("chat.js", "message.js")
    told, stored_before, gone = page.evaluate(MENTIONS, path)
    assert [told[0], told[2], told[3]] == ["one", "two", "four"]
    assert stored_before == ["best"] * 4 and gone == [None] * 4


@POINT
def test_a_source_is_shown_with_its_headings(browser: Browser, scripted: Callable[..., None]) -> None:
    scripted(citing(KEYWORD, SAID))
    page = browser.open()
    text = "Four of \U0001f600.\n\nThe teacher is Ada.\n\nPrices\nIt costs 5.\n\nThe demand index is 58."
    sections = [None, "Courses > Throwing", "Courses > Throwing > Prices", "Courses > Raku"]
    places = [(0, 10), (12, 31), (33, 51), (53, 76)]
    passages = [
        {"start": start, "end": end, "section": section, "page": None}
        for (start, end), section in zip(places, sections, strict=True)
    ]
    page.route(
        "**/api/v1/sources/*/text",
        lambda route: route.fulfill(json={"title": "Courses", "text": text, "passages": passages}),
    )
    ask(page, EXPLAINED)
    answer(page).locator(".prose button.chip").click()
    shown = page.locator("#viewer .source-text")
    expect(shown.get_by_role("heading")).to_have_text(["Throwing", "Raku"])  # and one that its text has
    assert re.sub(r"\s+", " ", shown.inner_text()) == (
        "Four of \U0001f600. Throwing The teacher is Ada. Prices It costs 5. Raku The demand index is 58."
    )


@POINT
def test_a_stream_is_shown_as_it_comes_and_can_be_stopped(
    browser: Browser, chat: Chat, scripted: Callable[..., None]
) -> None:
    go_on = threading.Event()
    scripted(citing(KEYWORD, " ".join(["The demand index is 58 {0}."] * 40), go_on=go_on))
    page = browser.open()
    ask(page)
    expect(page.locator("article[aria-busy]")).to_contain_text("The demand index is 58")
    page.get_by_role("button", name="Stop").click()
    said = answer(page)
    expect(said).to_contain_text("The demand index is 58")
    expect(said).to_contain_text("The text written so far is kept")
    assert chat.model.hung_up, "the model's connection is closed"
    page.reload()
    expect(answer(page)).to_contain_text("The text written so far is kept")


@POINT
def test_a_reload_in_the_middle_goes_on_where_it_was(browser: Browser, scripted: Callable[..., None]) -> None:
    go_on = threading.Event()
    scripted(citing(KEYWORD, "The demand index is 58 {0}. The competition score is 29 {0}.", go_on=go_on))
    page = browser.open()
    ask(page)
    expect(page.locator("article[aria-busy]")).to_contain_text("The demand index is 58")
    page.reload()
    expect(page.locator("article[aria-busy]")).to_contain_text("The demand index is 58")
    go_on.set()
    said = answer(page)
    expect(said).to_contain_text("The competition score is 29")
    expect(said).not_to_contain_text("The text written so far is kept")


@POINT
def test_a_broken_connection_is_taken_up_again(browser: Browser, scripted: Callable[..., None]) -> None:
    go_on = threading.Event()
    scripted(citing(KEYWORD, "The demand index is 58 {0}. The competition score is 29 {0}.", go_on=go_on))
    with Wire(browser.url) as wire:
        page = browser.open(base_url=wire.url)
        ask(page)
        expect(page.locator("article[aria-busy]")).to_contain_text("The demand index is 58")
        wire.cut()
        expect(page.locator("article[aria-busy]")).to_contain_text("The connection broke off; trying again")
        wire.mend()
        go_on.set()
        said = answer(page)
        expect(said).to_contain_text("The competition score is 29")
        expect(page.locator("article.question")).to_have_count(1)
        expect(page.get_by_role("textbox", name="Your question")).to_have_value("")


LOCATE = """async ([path, cases]) => {
  const { locate } = await import(path);
  return cases.map(([text, source, chunk]) => {
    const found = locate(text, source, chunk);
    return found && [found[0], text.slice(...found)];
  });
}"""


@POINT
def test_a_passage_is_marked_where_it_stands_and_nothing_else(browser: Browser) -> None:
    text = "\U0001f600 It is so. Then \U0001f600 it is so. It is so."
    chunk = {"start": 2, "end": 29}  # the first two sentences, as the server counts
    cases = [
        [text, {"quote": "It is so.", "passage": {"chunkId": "c", "start": 0, "end": 9}}, chunk],
        [text, {"quote": "it  is so.", "passage": {"chunkId": "c", "start": 17, "end": 26}}, chunk],
        [text, {"quote": "It is so.", "passage": {"chunkId": "c", "start": 5, "end": 14}}, chunk],  # once in its chunk
        [text, {"quote": "It is so.", "passage": {"chunkId": "c", "start": 0, "end": 9}}, None],  # twice in the text
        [text, {"quote": "It was so."}, chunk],
        [text, {"quote": "Then \U0001f600"}, None],
        [text, {}, chunk],
    ]
    page = browser.open()
    path = page.locator("script[type=module]").get_attribute("src").replace("chat.js", "sources.js")
    assert page.evaluate(LOCATE, [path, cases]) == [
        [3, "It is so."],
        [21, "it is so."],
        [3, "It is so."],
        None,
        None,
        [13, "Then \U0001f600"],
        None,
    ]


@POINT
def test_threads_are_found_renamed_archived_exported_deleted(browser: Browser, scripted: Callable[..., None]) -> None:
    scripted(citing(KEYWORD, SAID))
    page = browser.open()
    ask(page, f"{BOX} And zanzibar?")
    answer(page)
    menu = page.get_by_role("button", name="What to do with this thread")
    menu.click()
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill("Ring boxes")
    page.get_by_role("button", name="Rename").last.click()
    expect(page.get_by_role("heading", name="Ring boxes")).to_be_visible()
    page.get_by_label("Search your threads").fill("ZANZIBAR")
    expect(page.locator("#threads a")).to_have_count(1)
    expect(page.locator("#threads a")).to_contain_text("Ring boxes")
    page.get_by_label("Search your threads").fill("")
    for kind, holds in (("Markdown", "Sources:\n\n1. "), ("JSON", '"role": "assistant"')):
        menu.click()
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Export as {kind}").click()
        assert holds in download.value.path().read_text("utf-8")
        assert download.value.suggested_filename.startswith("ring-boxes.")
        page.keyboard.press("Escape")
    menu.click()
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(page.locator("#threads").get_by_text("Ring boxes")).to_have_count(0)
    page.get_by_role("button", name="Archived").click()
    expect(page.locator("#threads").get_by_text("Ring boxes")).to_be_visible()
    menu.click()
    page.get_by_role("button", name="Delete").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Ask your documents")).to_be_visible()
    expect(page.locator("#threads").get_by_text("Ring boxes")).to_have_count(0)


@POINT
def test_a_question_is_changed_in_a_new_thread_and_asked_again(browser: Browser, scripted: Callable[..., None]) -> None:
    scripted(citing(KEYWORD, SAID))
    page = browser.open()
    ask(page)
    answer(page)
    ask(page, "And its competition score?")
    expect(page.locator("article.answer")).to_have_count(2)
    answer(page)
    first = page.url
    page.locator("article.question").last.get_by_role("button", name="Edit").click()
    box = page.get_by_role("textbox", name="Your question")
    expect(box).to_have_value("And its competition score?")
    box.fill("And its trend?")
    box.press("Enter")
    expect(page.locator("article.question").last).to_contain_text("And its trend?")
    expect(page.locator("article.answer")).to_have_count(2)
    answer(page)
    expect(page).not_to_have_url(first)
    expect(page.get_by_text("And its competition score?")).to_have_count(0)
    page.locator("article.answer").first.get_by_role("button", name="Ask again").click()
    expect(page.locator("article.question")).to_have_count(1)
    answer(page)
    page.goto(first)
    expect(page.locator("article.question").last).to_contain_text("And its competition score?")


@POINT
def test_an_answer_is_copied_and_rated(browser: Browser, chat: Chat, scripted: Callable[..., None]) -> None:
    scripted(citing(KEYWORD, SAID))
    page = browser.open()
    ask(page)
    said = answer(page)
    said.get_by_role("button", name="Copy with citations").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "The demand index is 58 [1]" in copied and f"[1] {KEYWORD}" in copied
    said.get_by_role("button", name="This answer is right").click()
    expect(said.get_by_role("button", name="This answer is right")).to_have_attribute("aria-pressed", "true")
    said.get_by_role("button", name="This answer is wrong").click()
    said.get_by_label("What is wrong with it?").fill("It is 79.")
    said.get_by_label("Which source should have been used?").fill("aurora/kw-velvet-ring-box")
    said.get_by_role("button", name="Send").click()
    expect(said.get_by_text("What you wrote is kept")).to_be_visible()
    kept = chat.get(f"/api/lexybrain/threads/{page.url.rpartition('/')[2]}")["messages"][1]["feedback"]
    assert (kept["rating"], kept["comment"]) == ("negative", "It is 79.") and kept["expectedSourceId"]


@POINT
@pytest.mark.parametrize(
    ("status", "code", "after", "says"),
    [
        (429, "rate_limit_exceeded", "7", "Too many questions at once"),
        (403, "quota_exceeded", "86400", "You have used all messages of this month"),
        (503, "cost_cap_reached", "3600", "Today's budget for answers is used up"),
        (500, "generation_failed", None, "The model did not answer"),
        (401, "authentication_required", None, "You are not signed in any more"),
        (None, "offline", None, "You or the server are offline"),
    ],
)
def test_errors_are_told_apart_and_the_draft_is_kept(
    status: int | None, code: str, after: str | None, says: str, browser: Browser
) -> None:
    page = browser.open()
    body = {"error": {"code": code, "message": "As the server says it.", "retryable": True}}
    headers = {"Retry-After": after} if after else {}

    def refuse(route: Any) -> None:
        if status is None:
            route.abort()
        else:
            route.fulfill(status=status, json=body, headers=headers)

    page.route("**/api/lexybrain/rag", refuse)
    ask(page)
    trouble = page.get_by_role("alert")
    expect(trouble).to_contain_text(says)
    if after:
        expect(trouble).to_contain_text(" s." if after == "7" else "hours" if after == "86400" else "minutes")
    expect(page.get_by_role("textbox", name="Your question")).to_have_value(BOX)
    retries = {"rate_limit_exceeded", "generation_failed", "offline"}
    expect(trouble.get_by_role("button", name="Try again")).to_have_count(1 if code in retries else 0)
    page.reload()
    expect(page.get_by_role("textbox", name="Your question")).to_have_value(BOX)


@POINT
def test_a_refusal_looks_like_one_and_shows_what_came_nearest(browser: Browser, scripted: Callable[..., None]) -> None:
    scripted(Reply("Nothing of this is in the sources."))
    page = browser.open()
    page.get_by_label("Kind of answer").select_option("keyword_explanation")
    ask(page, "How many moons does Jupiter have?")
    said = answer(page)
    expect(said).to_contain_text("Not answered")
    expect(said.locator(".notes h3")).to_have_text("Closest hits")
    expect(said.locator(".notes > ul > li .quote")).to_have_count(3)  # with words of each
    assert "refused" in said.get_attribute("class")


@POINT
def test_thanks_are_returned_alone(browser: Browser) -> None:
    page = browser.open()
    page.get_by_label("Kind of answer").select_option("keyword_explanation")
    ask(page, "Thanks!")
    for _ in ("as it came", "as it is kept"):
        said = answer(page)
        expect(said.locator(".prose")).to_have_text(re.compile("^You are welcome. Ask a question"))
        expect(said.locator(".answer-main > p")).to_have_count(0)
        assert "refused" not in said.get_attribute("class")
        page.reload()


@POINT
def test_nothing_is_sent_while_an_input_method_composes(browser: Browser) -> None:
    page = browser.open()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.url.endswith("/rag") else None)
    box = page.get_by_role("textbox", name="Your question")
    box.fill("日本")
    box.evaluate(
        """(it) => {
          it.dispatchEvent(new CompositionEvent("compositionstart"));
          it.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", isComposing: true, bubbles: true, cancelable: true}));
          it.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", keyCode: 229, bubbles: true, cancelable: true}));
        }"""
    )
    box.press("Shift+Enter")
    expect(box).to_have_value("日本\n")
    assert sent == []


SCROLL_UP_AS_TEXT_COMES = """it => {
  const seen = new MutationObserver(() => {
    if (it.scrollHeight < it.clientHeight + 300) return;  // there is nothing to scroll yet
    it.scrollTop = 0;
    seen.disconnect();
  });
  seen.observe(it, { childList: true, subtree: true });
}"""


@POINT
def test_it_scrolls_along_only_at_the_end(browser: Browser, scripted: Callable[..., None]) -> None:
    go_on = threading.Event()
    long = " ".join(["The demand index is 58 {0}."] * 60)
    scripted(citing(KEYWORD, SAID), citing(KEYWORD, long, go_on=go_on))
    page = browser.open(phone=True)
    ask(page)
    answer(page)
    ask(page, f"{BOX} At length.")
    messages = page.locator("#messages")
    expect(page.locator("article[aria-busy]")).to_contain_text("The demand index is 58")
    messages.evaluate(SCROLL_UP_AS_TEXT_COMES)
    go_on.set()
    answer(page)
    expect(page.get_by_role("button", name="Jump to latest")).to_be_visible()
    assert messages.evaluate("it => it.scrollTop") == 0
    assert page.locator("#turns").evaluate("it => it.getBoundingClientRect().right <= innerWidth"), "it fits a phone"
    page.get_by_role("button", name="Jump to latest").click()
    expect(page.get_by_role("button", name="Jump to latest")).to_be_hidden()
    chip = page.locator("article.answer").last.locator(".prose button.chip").first
    chip.focus()  # which scrolls up to it
    expect(page.locator("#preview")).to_be_visible()
    expect(page.locator("#preview")).to_contain_text(KEYWORD)


@POINT
def test_an_answer_begins_in_view_however_long_its_sources_are(browser: Browser, scripted: Callable[..., None]) -> None:
    scripted(citing(KEYWORD, SAID))
    page = browser.open(phone=True)
    ask(page)
    answer(page)
    for _ in ("as it came", "as it is kept"):
        fits = """() => {
          const [room, asked] = ["#messages", ".asked"].map((each) => document.querySelector(each).getBoundingClientRect());
          return asked.top >= room.top && document.querySelector("#latest").hidden;
        }"""
        assert page.evaluate(fits)
        page.reload()
        answer(page)


@POINT
def test_by_keyboard_alone(browser: Browser, scripted: Callable[..., None]) -> None:
    scripted(citing(KEYWORD, SAID))
    page = browser.open()
    expect(page.get_by_role("textbox", name="Your question")).to_be_focused()
    page.keyboard.type(BOX)
    page.keyboard.press("Enter")
    chip = answer(page).locator(".prose button.chip")
    page.locator("#messages").focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if chip.evaluate("it => it === document.activeElement"):
            break
    expect(chip).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#viewer-title")).to_be_focused()
    page.keyboard.press("Escape")
    expect(chip).to_be_focused()


@POINT
def test_two_organizations_see_nothing_of_each_other(browser: Browser, scripted: Callable[..., None]) -> None:
    scripted(citing(KEYWORD, SAID))
    ours = browser.open()
    ask(ours, f"{BOX} Mila's word is quagga.")
    answer(ours)
    source = ours.locator("article.answer .prose button.chip").get_attribute("data-source")
    theirs = browser.open("/sign-in")
    theirs.get_by_role("button", name="jonas@birch.example").click()
    expect(theirs.get_by_text("as a member of Birch")).to_be_visible()
    expect(theirs.locator("#threads")).not_to_contain_text("demand index")
    theirs.get_by_label("Search your threads").fill("quagga")
    expect(theirs.locator("#threads")).to_contain_text("No thread has these words.")
    for path in (ours.url, f"{ours.url}/export"):
        theirs.goto(path)
        expect(theirs.locator("body")).not_to_contain_text("quagga")
    read = "path => fetch(path).then(async (said) => [said.status, await said.text()])"
    for path in (f"/api/v1/sources/{source}", f"/api/v1/sources/{source}/text"):
        status, _ = ours.evaluate(read, path)
        assert status == 200
        status, body = theirs.evaluate(read, path)
        assert status == 404 and "velvet" not in body


@POINT
def test_the_first_view_is_small(browser: Browser, chat: Chat) -> None:
    page = browser.open()
    page.wait_for_load_state("networkidle")
    loaded = page.evaluate(
        "performance.getEntries().filter((each) => each.transferSize).map((each) => [each.name, each.transferSize])"
    )
    assert 0 < sum(size for _, size in loaded) <= 150_000, loaded
