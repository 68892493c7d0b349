"""Knowledge: the same answers as the chat's without threads, kept in the browser alone."""

import re
from typing import Any

from tests.browser.conftest import POINT, Browser, sync_api
from tests.browser.test_chat import serious
from tests.integration.lexybrain import BOX

expect: Any = sync_api.expect
QUESTION = "Who won the chess championship of 1921?"


def test_a_greeting_is_returned_alone(browser: Browser) -> None:
    page = browser.open("/knowledge")
    page.get_by_role("textbox", name="Your question").fill("hello")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("The answer is complete.")
    said = page.locator("article.answer").first
    expect(said.locator(".answer-main > p")).to_have_count(0)  # no remark beside what is said
    expect(said.locator(".prose")).to_have_text(re.compile("^Hello. Ask a question"))
    assert "refused" not in said.get_attribute("class")


def test_a_question_about_what_an_organization_knows(browser: Browser) -> None:
    page = browser.open("/knowledge")
    assert not serious(page)
    page.get_by_role("textbox", name="Your question").fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("The answer is complete.")
    said = page.locator("article.answer").first
    expect(said).to_contain_text(re.compile("Not answered"))
    expect(said.locator(".prose")).to_have_css("border-top-style", "dashed")
    said.get_by_role("button", name="This answer is wrong").click()
    page.get_by_label("What is wrong with it?").fill("It was Capablanca.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#status")).to_have_text("Thank you. Your rating is kept.")
    pressed = page.get_by_role("button", name="This answer is wrong")
    expect(pressed).to_have_attribute("aria-pressed", "true")
    assert not serious(page)
    page.reload()
    expect(page.locator("article.answer")).to_have_count(1)
    page.get_by_role("button", name="Forget them").click()
    expect(page.locator("article.answer")).to_have_count(0)
    assert (
        page.evaluate("() => localStorage.getItem(Object.keys(localStorage).find(k => k.startsWith('answers:')))")
        == "[]"
    )


def test_a_link_that_is_pasted_into_the_open_page_is_followed(browser: Browser) -> None:
    page = browser.open("/sign-in")
    page.goto("/sign-in#made-up")  # only the fragment changes: nothing is loaded
    expect(page.get_by_role("alert")).to_contain_text("works once")
    assert "made-up" not in page.url


def test_records_and_refusals_say_what_they_are_about(browser: Browser) -> None:
    page = browser.open("/knowledge?index=marketplace")
    for question in (BOX, QUESTION):
        page.get_by_role("textbox", name="Your question").fill(question)
        page.keyboard.press("Enter")
        expect(page.locator("#status")).to_have_text("The answer is complete.")
        expect(page.locator("p.asked").first).to_contain_text(question)
    refused, computed = page.locator("article.answer").all()
    expect(computed).to_contain_text("Understood as: ")
    expect(refused.locator(".prose + .notes h3")).to_have_text("Closest hits")  # right below what leads to them


def test_a_long_question_is_not_cut_but_refused(browser: Browser) -> None:
    page = browser.open("/knowledge")
    box = page.get_by_role("textbox", name="Your question")
    box.fill("a" * 501)
    page.keyboard.press("Enter")
    expect(page.locator("#count")).to_have_text("501 of at most 500 characters")
    expect(page.get_by_role("alert")).to_contain_text("at most 500 characters; this one has 501")
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(box).to_have_value("a" * 501)
    box.fill("hello")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("The answer is complete.")


@POINT
def test_an_error_is_told_by_its_kind_and_the_question_is_kept(browser: Browser) -> None:
    page = browser.open("/knowledge")
    error = {"status": "error", "error": {"code": "rate_limited", "message": "As the server says it."}}
    page.route(
        "**/api/v1/indexes/org_knowledge/answer",
        lambda route: route.fulfill(status=429, json=error, headers={"Retry-After": "7"}),
    )
    page.get_by_role("button", name="How do I feed a sourdough starter?").click()
    expect(page.get_by_role("alert")).to_contain_text("Too many questions at once")
    expect(page.get_by_role("alert")).to_contain_text(" s.")
    expect(page.get_by_role("alert").get_by_role("button", name="Try again")).to_be_visible()
    page.reload()
    expect(page.get_by_role("textbox", name="Your question")).to_have_value("How do I feed a sourdough starter?")
    expect(page.get_by_role("button", name="How do I feed a sourdough starter?")).to_be_visible()


@POINT
def test_two_tabs_keep_the_answers_of_both(browser: Browser) -> None:
    first = browser.open("/knowledge")
    second = first.context.new_page()
    second.goto("/knowledge")
    for page, question in ((second, "hello"), (first, QUESTION)):
        page.get_by_role("textbox", name="Your question").fill(question)
        page.keyboard.press("Enter")
        expect(page.locator("#status")).to_have_text("The answer is complete.")
    second.reload()
    expect(second.locator("p.asked")).to_have_text([re.compile(QUESTION[:20]), re.compile("hello")])
    expect(first.locator("p.asked")).to_have_count(1)


GERMAN = """async (path) => {
  const { answerOf } = await import(path);
  const flags = { refused: true, language: "de" };
  const made = answerOf({ id: "a", role: "assistant", content: "Keine Antwort.", sources: [], flags, feedback: null });
  return [made.querySelector(".prose").lang, made.textContent.includes("Not answered")];
}"""


@POINT
def test_a_german_answer_is_marked_as_german(browser: Browser) -> None:
    page = browser.open("/knowledge")
    path = page.locator("script[type=module]").get_attribute("src").replace("answers.js", "message.js")
    assert page.evaluate(GERMAN, path) == ["de", False]


@POINT
def test_examples_are_those_of_the_index_and_the_organization(browser: Browser) -> None:
    example = "How do I feed a sourdough starter?"
    page = browser.open("/knowledge")
    expect(page.get_by_role("button", name=example)).to_be_visible()
    page.get_by_role("combobox", name="Index").select_option("salon_calls")
    expect(page.get_by_role("button", name=example)).to_be_hidden()
    page.goto("/knowledge?index=salon_calls")
    expect(page.get_by_role("region", name="What can be asked")).to_contain_text("salon_calls")
    expect(page.get_by_role("button", name=example)).to_have_count(0)


def test_any_index_is_asked_and_stays_chosen(browser: Browser) -> None:
    page = browser.open("/knowledge")
    page.get_by_role("combobox", name="Index").select_option("salon_calls")
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request) if request.method == "POST" else None)
    page.get_by_role("textbox", name="Your question").fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("The answer is complete.")
    assert [each.url.partition("/api/")[2] for each in asked] == ["v1/indexes/salon_calls/answer"]
    expect(page.locator("article.answer .prose")).to_contain_text("No relevant data found in call transcripts")
    expect(page.locator("p.asked")).to_have_text(f"{QUESTION} in salon_calls")
    page.reload()
    expect(page.locator("p.asked")).to_have_text(f"{QUESTION} in salon_calls")
    expect(page.get_by_role("combobox", name="Index")).to_have_value("salon_calls")
    page.get_by_role("textbox", name="Your question").fill("And in 1927?")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("The answer is complete.")
    assert asked[1].post_data_json == {"query_text": "And in 1927?", "earlier_questions": [QUESTION]}
