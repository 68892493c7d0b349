"""HTML and Markdown: passages by heading, tables as lines, code as it stands.

Dropped from HTML: scripts, styles, navigation, footers, form controls, comments, and whatever is hidden from a reader
(such text could only speak to the model). Links keep their text, images their alternative text. Derived: language,
author, date and canonical address. Markdown (CommonMark with tables) goes the same way, as HTML: emphasis, link targets
and the like vanish, `<placeholders>` that are no HTML stay, lines of labels and values stay
lines. Both may begin with front matter.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import BinaryIO

from bs4 import BeautifulSoup, Tag
from bs4.dammit import EncodingDetector
from bs4.element import NavigableString, PageElement
from markdown_it import MarkdownIt
from markdown_it.common.html_blocks import block_names
from markdown_it.token import Token

from rag_app.documents.documents import Document
from rag_app.documents.limits import Tally, check_nesting
from rag_app.documents.readers.formats import build_document, decode, front_matter, reads
from rag_app.documents.readers.shaping import Sections, drop_missing, iso_date, language, sensible
from rag_app.documents.readers.unseen import find_unseen
from rag_app.domain import UnreadableDocument

_DROPPED_TAGS = {
    *("head", "script", "style", "nav", "footer", "template", "noscript", "svg", "iframe", "object"),
    *("button", "select", "textarea", "dialog", "rt", "rp"),
}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LINES = {"dt", "dd", "tr", "summary", "figcaption"}
_BLOCKS = {*block_names, "pre"} - _LINES - {"li"}
_INLINE = {
    *("a", "abbr", "b", "bdi", "bdo", "br", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img", "ins"),
    *("kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt"),
    *("li", "u", "var", "wbr", "picture", "video", "audio", "input", *_DROPPED_TAGS),
}
_TAG = re.compile(r"<(/?([a-zA-Z][\w-]*+)[^<>]*+)>")
_LABELLED_LINE = re.compile(r"[^.!?:|]{1,40}:\s+\S")
_ITEM = re.compile(r"\n(-|\d+\.)\t")  # the tab is ours: all other white space has become a space
_COLUMNS = 1_000  # of a row, beyond which a cell is in one column, whatever it says
_DECLARATION_BYTES = 4096  # of a page, among which its encoding is looked for


@reads(
    ".html",
    ".htm",
    becomes="sections by heading, without navigation, scripts and hidden text; the `canonical` link becomes the URI",
)
def read_html(stream: BinaryIO, shown: str) -> Iterator[Document]:
    data = stream.read()
    metadata, html = front_matter(
        decode(data, shown, EncodingDetector.find_declared_encoding(data[:_DECLARATION_BYTES], is_html=True)), shown
    )
    yield html_document(html, shown, metadata)


@reads(".md", ".markdown", becomes="sections by heading; tables and code are kept")
def read_markdown(stream: BinaryIO, shown: str) -> Iterator[Document]:
    metadata, source = front_matter(decode(stream.read(), shown), shown)
    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"])
    for rule in ("html_inline", "html_block"):
        parser.add_render_rule(rule, lambda _, tokens, index, *__: _TAG.sub(_only_html, tokens[index].content))
    parser.add_render_rule("softbreak", lambda _, tokens, index, *__: _line_end(tokens, index))
    yield html_document(parser.render(source), shown, metadata)


def _line_end(inline: Sequence[Token], place: int) -> str:
    """What the end of a line becomes: two lines that are labels with values, such as "Adults: £9", stay two lines."""
    before = [*takewhile(_goes_on, (inline[at] for at in range(place - 1, -1, -1)))][::-1]
    after = takewhile(_goes_on, (inline[at] for at in range(place + 1, len(inline))))
    pair = ("".join(each.content for each in line) for line in (before, after))
    return "<br />\n" if all(map(_LABELLED_LINE.match, pair)) else "\n"


def _goes_on(token: Token) -> bool:
    return token.type not in ("softbreak", "hardbreak")


def _only_html(tag: re.Match[str]) -> str:
    return tag[0] if tag[2].lower() in _BLOCKS | _LINES | _INLINE else f"&lt;{tag[1]}&gt;"


def html_document(html: str, shown: str, metadata: dict[str, object] | None = None) -> Document:
    # Without the XML declaration, and not beginning like a file name, bs4 has nothing to warn about.
    soup = BeautifulSoup("\n" + re.sub(r"^\s*<\?xml[^>]*>", "", html), "lxml")
    properties = {
        str(meta.get("name") or meta.get("property")).lower(): meta.get("content") for meta in soup.find_all("meta")
    }
    dates = (iso_date(properties.get(name)) for name in ("date", "article:published_time", "dcterms.date"))
    canonical = soup.select_one("link[rel~=canonical][href^=http]")
    title = soup.find("title")
    page = soup.find("html")
    derived = drop_missing(
        lang=language(page.get("lang")) if page else None,
        author=sensible(properties.get("author")),
        date=next(filter(None, dates), None),
        uri=canonical.get("href") if canonical else None,
    )
    named = sensible(title.get_text()) if title else None
    reading = _Reading(find_unseen(soup, _DROPPED_TAGS))
    reading.walk(soup)
    reading.end_block()
    passages = reading.sections.passages()
    if not passages:
        raise UnreadableDocument(shown, "no text that a reader would see")
    return build_document(metadata or {}, passages, shown, title=named or reading.sections.first, derived=derived)


class _Reading:
    """One walk over a page: text gathers in `line` until a heading, a table or code ends the block."""

    def __init__(self, unseen: set[int]) -> None:
        self.sections = Sections()
        self.line: list[str] = []
        self._unseen = unseen

    def end_block(self) -> None:
        """White space within a line is one space already."""
        before, *items = _ITEM.split("".join(self.line))
        listed = [f"\n{mark} {text.strip()}" for mark, text in zip(items[::2], items[1::2], strict=True)]
        lines = "".join([before.rstrip() if items else before, *listed]).split("\n")
        self.sections.text(re.sub(r"\n{3,}", "\n\n", "\n".join(line.strip(" ") for line in lines)).strip())
        self.line = []

    def walk(self, node: PageElement, level: int = 1) -> None:
        check_nesting(level)
        if id(node) in self._unseen:
            return
        if not isinstance(node, Tag):
            if type(node) is NavigableString:  # not a comment, nor a doctype
                self.line.append(re.sub(r"\s+", " ", node))
        elif node.name in _HEADINGS:
            self.end_block()
            self.sections.heading(_HEADINGS[node.name], self.text(node, " "))
        elif node.name == "pre":
            self.end_block()
            self.sections.text(self.text(node))
        elif node.name == "table" and node.find("table") is None:  # one around others is layout
            self.end_block()
            self.table(node)
        elif node.name == "br":
            self.line.append("\n")
        elif node.name == "img":
            self.line.append(" ".join(str(node.get("alt") or "").split()))
        else:
            edge = "\n\n" if node.name in _BLOCKS else ""
            self.line.append(self._beginning(node) if node.name in _LINES else edge)
            item = 0
            for child in node.children:
                if isinstance(child, Tag) and child.name == "li" and id(child) not in self._unseen:
                    item += 1
                    self.line.append(f"\n{item}.\t" if node.name == "ol" else "\n-\t")
                self.walk(child, level + 1)
            self.line.append(edge)

    def _beginning(self, node: Tag) -> str:
        """A new line, but what a definition list says stands behind its term: "Smoke alarms: ours". A question is no term."""
        term = node.find_previous_sibling() if node.name == "dd" else None
        if term is None or term.name != "dt" or not re.search(r"[^\s.?!]\s*$", self.text(term)):
            return "\n"
        while self.line and not self.line[-1].strip():
            self.line.pop()
        if not self.line:  # the term is a heading
            return ""
        self.line[-1] = self.line[-1].rstrip().removesuffix(":")
        return ": "

    def text(self, node: Tag, separator: str = "") -> str:
        """All of it that is seen."""
        return separator.join(
            each for each in node.descendants if type(each) is NavigableString and id(each) not in self._unseen
        )

    def table(self, node: Tag) -> None:
        if caption := node.find("caption"):
            self.sections.text(" ".join(self.text(caption, " ").split()))
        rows = [row for row in node.find_all("tr") if id(row) not in self._unseen]
        named = bool(rows) and rows[0].find("th") is not None and rows[0].find("td") is None
        grid = list(self._grid(rows))
        self.sections.table(grid, any(grid[0].values()) if named else None)

    def _grid(self, rows: list[Tag]) -> Iterator[dict[int, str]]:
        """The cells of a table in their columns: a cell that spans several rows or columns is in each of them."""
        taken = Tally("characters")
        above: dict[int, tuple[int, str]] = {}  # column: for how many more rows which text stands there
        for row in rows:
            line: dict[int, str] = {}
            cells = [cell for cell in row.find_all(["td", "th"]) if id(cell) not in self._unseen]
            for cell in [*cells, None]:
                while held := above.pop(len(line), None):
                    left, text = held
                    if left > 1:
                        above[len(line)] = (left - 1, text)
                    taken.add(len(text) + 1)
                    line[len(line)] = text
                if cell is not None:
                    text, rows_below = self.text(cell, " "), _span(cell, "rowspan") - 1
                    for _ in range(_span(cell, "colspan") if len(line) < _COLUMNS else 1):
                        above.pop(len(line), None)
                        if rows_below:
                            above[len(line)] = (rows_below, text)
                        taken.add(len(text) + 1)
                        line[len(line)] = text
            yield line


def _span(cell: Tag, kind: str) -> int:
    count = str(cell.get(kind) or "1")
    return min(int(count), 100) if re.fullmatch(r"[1-9]\d{0,4}", count) else 1
