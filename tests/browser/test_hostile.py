"""What is shown was written by others: in answers, questions, titles and sources. None of it runs, loads or leads astray."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Browser, sync_api
from tests.integration.lexybrain import KEYWORD, Chat, citing
from tests.waiting import PATIENCE

expect: Any = sync_api.expect

HTML = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg onload=alert(1)>", "<svg><script>alert(1)</script></svg>",
    "<iframe src=javascript:alert(1)></iframe>", "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<body onload=alert(1)>", "<details open ontoggle=alert(1)>x</details>", "<video><source onerror=alert(1)></video>",
    "<audio src=x onerror=alert(1)>", "<object data=javascript:alert(1)></object>", "<embed src=javascript:alert(1)>",
    "<math><mtext></mtext><mglyph><style><img src=x onerror=alert(1)></style></mglyph></math>", "<base href=https://evil.example/>",
    "<link rel=stylesheet href=https://evil.example/x.css>", "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<form action=https://evil.example><input name=q autofocus onfocus=alert(1)></form>", "<a href=javascript:alert(1)>x</a>",
    "<style>*{background:url(https://evil.example)}</style>", "<style>@import 'https://evil.example/x.css';</style>",
    "<button popovertarget=account onclick=alert(1)>x</button>", "<input type=image src=https://evil.example/x.png>",
    "</textarea><script>alert(1)</script>", "</script><script>alert(1)</script>", "<!--><img src=x onerror=alert(1)>-->",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>", "<template><script>alert(1)</script></template>",
    "<x-y onclick=alert(1)>x</x-y>", "<img src=`x` onerror=alert(1)>", "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "&lt;script&gt;alert(1)&lt;/script&gt;", "&#60;img src=x onerror=alert(1)&#62;", "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "{{constructor.constructor('alert(1)')()}}", "${alert(1)}", "{% print(1) %}", "{{ 7*7 }}", "<%= alert(1) %>", "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
]  # fmt: skip
MARKDOWN = [
    "![x](https://evil.example/x.png)", "![x](https://evil.example/?q=secret \"t\")", "![](//evil.example/x.png)", "![x][i]\n\n[i]: https://evil.example/x.png",
    "[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))", "[x](java\tscript:alert(1))", "[x](&#106;avascript:alert(1))", "[x](javascript&colon;alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)", "[x](vbscript:msgbox(1))", "[x](file:///etc/passwd)", "[x](blob:https://evil.example/1)",
    "[x]( javascript:alert(1) )", "[x](<javascript:alert(1)>)", "[x](https://a.example\" onmouseover=\"alert(1))", "[x](https://a.example 'onclick=alert(1)')",
    "[![x](https://evil.example/x.png)](javascript:alert(1))", "[a]: javascript:alert(1)\n\n[a]", "<javascript:alert(1)>", "<https://evil.example/\" onclick=alert(1)>",
    "`<img src=x onerror=alert(1)>`", "```\n<script>alert(1)</script>\n```", "```html\" onclick=alert(1)\n<img src=x onerror=alert(1)>\n```", "    <script>alert(1)</script>",
    "> <img src=x onerror=alert(1)>", "- <img src=x onerror=alert(1)>", "1. <svg onload=alert(1)>", "# <script>alert(1)</script>", "| a |\n|---|\n| <img src=x onerror=alert(1)> |",
    "| <script>alert(1)</script> |\n|:-:|\n| [x](javascript:alert(1)) |", "**<img src=x onerror=alert(1)>**", "*[x](javascript:alert(1))*", "~~![x](https://evil.example/x.png)~~",
    "\\![x](https://evil.example/x.png)", "!\\[x](https://evil.example/x.png)", "[x](https://evil.example/[y](javascript:alert(1)))", "[[x](javascript:alert(1))](https://a.example)",
    "x\u202ejavascript:alert(1)", "\x1b]8;;https://evil.example\x07x", "[x](\x01javascript:alert(1))", "[Source 1](javascript:alert(1))", "[Source 1]<img src=x onerror=alert(1)>",
    "[Source 99999999999999999999]", "[Source -1]", "[Source 1, <script>alert(1)</script>]",
    "*" * 5000, "_" * 5000, "[" * 3000, "](" * 2000, "`" * 3000, "> " * 2000 + "x", "- " * 1500 + "x", "|" * 3000 + "\n" + "|-" * 1500, "#" * 3000, "![" * 2000,
    "**a " * 1500, "[x](https://a.example/" + "(" * 2000, "~~" * 2500, "<" * 5000,
]  # fmt: skip
CORPUS = [*HTML, *MARKDOWN]

HARM = """(root) => {
  const found = [];
  for (const each of root.querySelectorAll("*")) {
    if (["IMG", "SCRIPT", "IFRAME", "OBJECT", "EMBED", "STYLE", "LINK", "FORM", "VIDEO", "AUDIO", "BASE", "META", "SVG", "MATH"].includes(each.tagName.toUpperCase())) found.push(each.outerHTML.slice(0, 200));
    for (const { name, value } of each.attributes) {
      if (name.startsWith("on") || name === "style" || (name === "href" && !/^https?:/.test(value))) found.push(`${each.tagName} ${name}=${value}`.slice(0, 200));
    }
  }
  return found;
}"""
RENDER = """async ([path, texts]) => {
  const { render } = await import(path);
  const harm = HARM, found = [], slow = [];
  for (const text of texts) {
    const into = document.createElement("div");
    document.body.append(into);
    const before = performance.now();
    into.append(render(text));
    if (performance.now() - before > 30000) slow.push(text.slice(0, 40));
    found.push(...harm(into).map((each) => `${text.slice(0, 80)} -> ${each}`));
  }
  await new Promise((done) => setTimeout(done, 200));
  return [found, slow, window.hit ?? null];
}""".replace("HARM", f"({HARM})")


def test_hostile_markdown_becomes_text(browser: Browser) -> None:
    assert len(CORPUS) == len(set(CORPUS)) >= 100
    page = browser.open(script="window.alert = (said) => { window.hit = said; };")
    path = page.locator("script[type=module]").get_attribute("src").replace("chat.js", "markdown.js")
    found, slow, hit = page.evaluate(RENDER, [path, CORPUS])
    assert (found, slow, hit) == ([], [], None)


def test_a_browser_refuses_html_that_a_script_would_write(browser: Browser) -> None:
    page = browser.open()
    write = (
        "() => { try { document.body.innerHTML = '<b>x</b>'; return 'written'; } catch (error) { return error.name; } }"
    )
    assert page.evaluate(write) == "TypeError"
    browser.wrong.clear()  # the browser reports what was tried


def test_hostile_answers_questions_and_titles_are_shown_as_text(
    browser: Browser, chat: Chat, scripted: Callable[..., None]
) -> None:
    hostile = [each for each in CORPUS if len(each) < 200 and "\x01" not in each and "\x1b" not in each][:60]
    said = "\n\n".join(f"{{0}} {each.replace('{', '{{').replace('}', '}}')}" for each in hostile)
    scripted(citing(KEYWORD, said))
    page = browser.open(script="window.alert = (said) => { window.hit = said; };")
    page.get_by_role("textbox", name="Your question").fill(
        "<img src=x onerror=alert(1)> ![x](https://evil.example/x.png)"
    )
    page.keyboard.press("Enter")
    last = page.locator("article.answer").last
    expect(last.get_by_role("button", name="Copy with citations")).to_be_visible(timeout=1000 * PATIENCE)
    page.get_by_role("button", name="What to do with this thread").click()
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill("</title><script>alert(1)</script>")
    page.get_by_role("button", name="Rename").last.click()
    expect(page.locator("#title")).to_have_text("</title><script>alert(1)</script>")
    page.reload()
    expect(page.locator("article.answer")).to_have_count(1)
    for part in ("#turns", "#threads", "#title"):
        harm = [each for each in page.locator(part).evaluate(HARM) if "/threads/" not in each]
        assert not harm
    assert page.evaluate("window.hit ?? null") is None


@pytest.mark.points
def test_a_hostile_source_is_shown_as_text(browser: Browser, scripted: Callable[..., None]) -> None:
    scripted(citing(KEYWORD, "It is so {}."))
    page = browser.open(script="window.alert = (said) => { window.hit = said; };")
    hostile = {
        "title": HTML[1],
        "source_type": HTML[2],
        "file_name": HTML[0],
        "uri": "javascript:alert(1)",
        "text": "\n".join(HTML),
    }
    page.route("**/api/v1/sources/**", lambda route: route.fulfill(json=hostile))
    page.get_by_role("textbox", name="Your question").fill("What is the demand index of “velvet ring box” on Etsy?")
    page.keyboard.press("Enter")
    page.locator("article.answer .prose button.chip").first.click()
    expect(page.locator("#viewer-text")).to_contain_text("<script>alert(1)</script>")
    assert page.locator("#viewer-text").evaluate(HARM) == []
    assert page.evaluate("window.hit ?? null") is None
