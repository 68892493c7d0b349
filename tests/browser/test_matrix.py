"""Every page on desktop and phone, light and dark, and by keyboard alone: `make nightly`, or `pytest -m thorough tests/browser`."""

from collections.abc import Callable
from typing import Any

import pytest

from rag_app.access.page_sessions import Sessions
from tests.browser.conftest import Browser, sync_api
from tests.browser.test_chat import SAID, answer, ask, serious
from tests.integration.lexybrain import BOX, KEYWORD, Chat, citing
from tests.integration.service import prepare
from tests.scripted_model import Reply

pytestmark = pytest.mark.thorough
expect: Any = sync_api.expect
OPEN = ("/", "/knowledge", "/calls", "/documents", "/threads", "/sign-in", "/nowhere")
ADMINISTRATION = (
    "/admin",
    "/admin?product=knowledge_answer",
    "/admin/feedback?state=all",
    "/admin/prompts",
    "/admin/prompts/ask_lexybrain_system",
    "/admin/evaluation",
    "/admin/usage",
    "/admin/people",
    "/admin/audit",
    "/playground",
)
MATRIX = pytest.mark.parametrize(
    ("phone", "theme"), [(phone, theme) for phone in (False, True) for theme in ("light", "dark")]
)
TABBED = """() => {
  const reached = (each) => each.checkVisibility({ visibilityProperty: true }) && !each.disabled && each.tabIndex >= 0;
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary")].filter(reached);
  const radios = new Set();
  const wanted = all.filter((each) => {
    if (each.type !== "radio") return true;
    const first = !radios.has(each.name);
    radios.add(each.name);
    return first && !document.querySelector(`input[name="${each.name}"]:checked`) || each.checked;
  });
  wanted.forEach((each, place) => each.setAttribute("data-tabbed", String(place)));
  return wanted.length;
}"""
"""Marks what the Tab key should reach; of radio buttons one of a name."""
FOCUSED = """() => {
  const here = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(here);
  const around = here.closest(".ask"); // its edge is the outline of the box in it
  const seen = (outlineStyle !== "none" && parseFloat(outlineWidth) > 0) || (around && getComputedStyle(around).outlineStyle !== "none");
  return [here.getAttribute("data-tabbed"), Boolean(seen), here.outerHTML.slice(0, 120)];
}"""


@pytest.fixture(scope="module", autouse=True)
def administrator(chat: Chat) -> dict[str, str]:
    """A session of an administrator: begun before a browser has the event loop of this thread."""
    return {"rag_pages": prepare(lambda application: Sessions(application.database).open(chat.root))}


def open_as(browser: Browser, path: str, cookies: dict[str, str], **options: Any) -> Any:
    page = browser.open("/sign-in", **options)
    page.context.clear_cookies()
    page.context.add_cookies([{"name": name, "value": value, "url": browser.url} for name, value in cookies.items()])
    page.goto(path)
    return page


def amiss(page: Any) -> list[str]:
    """What axe finds, and whether the page is wider than its window."""
    for summary in page.locator("main summary").all():
        summary.click()
    wide = page.evaluate("document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth")
    return serious(page) + ([f"{wide} pixels wider than the window"] if wide > 0 else [])


@MATRIX
def test_each_page_fits_and_is_accessible(
    phone: bool, theme: str, browser: Browser, administrator: dict[str, str]
) -> None:
    page = browser.open(phone=phone, theme=theme)
    for path in OPEN:
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert not amiss(page), path
    page.goto("/documents")
    page.locator("tbody a").first.click()
    page.locator(".document").wait_for()
    assert not amiss(page)
    page = open_as(browser, "/admin", administrator, phone=phone, theme=theme)
    for path in ADMINISTRATION:
        page.goto(path)
        assert not amiss(page), path
    page.get_by_role("textbox", name="Question").fill(BOX)
    page.get_by_label("Index").first.select_option("marketplace")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator(".hits").first.wait_for()
    assert not amiss(page)


@MATRIX
def test_a_conversation_fits_and_is_accessible(
    phone: bool, theme: str, browser: Browser, scripted: Callable[..., None]
) -> None:
    table = "| Keyword | Index |\n|---|---|\n| velvet ring box | 58 |"
    said_so = f"The demand index is 58 {{0}}.\n\n{table}\n\n**So** it is {{0}}."
    scripted(citing(KEYWORD, said_so), Reply("Nothing of this is in the sources."))
    page = browser.open(phone=phone, theme=theme)
    ask(page)
    said = answer(page)
    assert not amiss(page)
    said.get_by_role("button", name="This answer is wrong").click()
    assert not serious(page)
    said.locator(".prose button.chip").first.click()
    expect(page.locator("#viewer mark")).to_be_visible()
    assert not serious(page)
    page.keyboard.press("Escape")
    page.get_by_label("Kind of answer").select_option("keyword_explanation")
    ask(page, "How many moons does Jupiter have?")
    expect(page.locator("article.answer")).to_have_count(2)
    expect(answer(page)).to_contain_text("Not answered")
    assert not serious(page)
    if phone:
        page.get_by_role("button", name="Threads").click()
        expect(page.locator("#side")).to_be_in_viewport()
        assert not serious(page)
        page.keyboard.press("Escape")
    page.get_by_role("button", name="What to do with this thread").click()
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert not serious(page)


@MATRIX
def test_a_conversation_by_keyboard_alone(
    phone: bool, theme: str, browser: Browser, scripted: Callable[..., None]
) -> None:
    scripted(citing(KEYWORD, SAID))
    page = browser.open(phone=phone, theme=theme)
    go_to(page, page.get_by_role("textbox", name="Your question"))
    page.keyboard.type(BOX)
    page.keyboard.press("Enter")
    chip = answer(page).locator(".prose button.chip")
    page.evaluate("document.activeElement.blur()")
    go_to(page, chip)
    expect(page.locator("#preview")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#viewer-title")).to_be_focused()
    page.keyboard.press("Escape")
    expect(chip).to_be_focused()
    go_to(page, page.get_by_role("button", name="This answer is right"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="This answer is right")).to_have_attribute("aria-pressed", "true")
    page.evaluate("document.activeElement.blur()")
    go_to(page, page.get_by_role("button", name="What to do with this thread"))
    page.keyboard.press("Enter")
    go_to(page, page.get_by_role("button", name="Rename"))
    page.keyboard.press("Enter")
    page.keyboard.press("Control+A")
    page.keyboard.type("By keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("By keyboard")


def go_to(page: Any, wanted: Any) -> None:
    """By the Tab key."""
    for _ in range(80):
        if wanted.evaluate("it => it === document.activeElement"):
            return
        page.keyboard.press("Tab")
    expect(wanted).to_be_focused()


@MATRIX
def test_the_tab_key_reaches_everything_and_shows_where_it_is(
    phone: bool, theme: str, browser: Browser, administrator: dict[str, str]
) -> None:
    page = open_as(browser, "/", administrator, phone=phone, theme=theme)
    for path in (*OPEN, *ADMINISTRATION):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        wanted, reached = page.evaluate(TABBED), set[str]()
        page.evaluate("document.activeElement.blur()")
        for _ in range(3 * wanted + 60):  # regions that scroll, and the parts of fields for dates, take a press, too
            page.keyboard.press("Tab")
            place, seen, what = page.evaluate(FOCUSED)
            assert seen or what.startswith("<body"), f"{path}: no outline at {what}"
            reached |= {place} - {None}
            if len(reached) == wanted:
                break
        missing = [each for each in range(wanted) if str(each) not in reached]
        names = [
            page.locator(f'[data-tabbed="{each}"]').evaluate("it => it.outerHTML.slice(0, 120)") for each in missing
        ]
        assert not names, path
