"""Small files that are made to stop a reader: each is built here, so that none lies in the repository."""

import gzip
import re
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from io import BytesIO

import docx
import openpyxl
import pptx
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from pypdf import PdfWriter


def saved(thing: object) -> bytes:
    out = BytesIO()
    thing.save(out) if hasattr(thing, "save") else thing.write(out)  # type: ignore[attr-defined]
    return out.getvalue()


def rezipped(data: bytes, change: Callable[[str, bytes], bytes]) -> bytes:
    """An Office file with its parts changed."""
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as whole, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, change(name, whole.read(name)))
    return out.getvalue()


def workbook(*rows: list[object]) -> bytes:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    return saved(book)


def sheet(xml: str, *, data: bytes = b"") -> bytes:
    """A workbook whose one sheet has these rows."""

    def change(name: str, part: bytes) -> bytes:
        rows = f"<sheetData>{xml}</sheetData>".encode()
        return re.sub(rb"<sheetData>.*</sheetData>", rows, part) if name.endswith("sheet1.xml") else part

    return rezipped(data or workbook(["a", 1]), change)


def table_with(cell: dict[str, int], row: dict[str, int]) -> bytes:
    """A Word file whose table has one cell and one row with these properties."""
    word = docx.Document()
    table = word.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "before", "after"
    for name, value in cell.items():
        element = OxmlElement(f"w:{name}")
        element.set(qn("w:val"), str(value))
        table.cell(0, 0)._tc.get_or_add_tcPr().append(element)
    for name, value in row.items():
        element = OxmlElement(f"w:{name}")
        element.set(qn("w:val"), str(value))
        table.rows[0]._tr.get_or_add_trPr().append(element)
    return saved(word)


def pages(count: int) -> bytes:
    """A PDF whose tree of pages names one page so many times."""
    parts = [
        b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n",
        b"2 0 obj<</Type/Pages/Count %d/Kids[%s]>>endobj\n" % (count, b"3 0 R " * count),
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj\n",
        b"4 0 obj<</Length 31>>stream\nBT /F 1 Tf 1 1 Td (word) Tj ET  \nendstream endobj\n",
        b"5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Courier>>endobj\n",
    ]
    body, places = b"%PDF-1.4\n", []
    for part in parts:
        places.append(len(body))
        body += part
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return body + b"xref\n0 6\n0000000000 65535 f \n%strailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        table,
        len(body),
    )


def mail(headers: str = "", body: str = "Hello!") -> bytes:
    return f"Subject: x\n{headers}\n\n{body}".encode()


def attached(data: bytes, name: str, times: int) -> bytes:
    message = EmailMessage()
    message["Subject"] = "x"
    message.set_content("Hello!")
    for _ in range(times):
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return message.as_bytes()


def packed(piece: bytes, times: int) -> bytes:
    """A gzip file of so many members: it takes no memory to make, and a reader has to unpack all of them."""
    return gzip.compress(piece, 9) * times


def oversized(data: bytes, part: str, megabytes: int) -> bytes:
    """An Office file with a part that unpacks to so much white space."""
    return rezipped(data, lambda name, old: old + b" " * (megabytes << 20) if name.endswith(part) else old)


ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
LAUGHS = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "ha">{ENTITIES}]>'


def laughing(data: bytes, part: str, place: bytes) -> bytes:
    """An Office file with a part whose entities unfold to gigabytes, from `place` on."""

    def change(name: str, old: bytes) -> bytes:
        if not name.endswith(part):
            return old
        return LAUGHS.encode() + re.sub(rb"<\?xml[^>]*>", b"", old).replace(place, b"&e9;" + place, 1)

    return rezipped(data, change)


def document(*texts: str) -> bytes:
    word = docx.Document()
    for text in texts:
        word.add_paragraph(text)
    return saved(word)


def slides(text: str = "text") -> bytes:
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = text
    return saved(deck)


def encrypted_pages() -> bytes:
    writer = PdfWriter()
    writer.add_blank_page(9, 9)
    return saved(writer)


BOMBS: dict[str, tuple[str, Callable[[], bytes | str]]] = {
    "xlsx row number": ("a.xlsx", lambda: sheet('<row r="99999999999"><c t="str"><v>word</v></c></row>')),
    "xlsx wide rows": (
        "a.xlsx",
        lambda: sheet("".join(f'<row r="{n}"><c r="XFD{n}" t="str"><v>w</v></c></row>' for n in range(1, 20_000))),
    ),
    "docx gridSpan": ("a.docx", lambda: table_with({"gridSpan": 10**6}, {})),
    "docx gridBefore": ("a.docx", lambda: table_with({}, {"gridBefore": 10**8})),
    "html title": ("a.html", lambda: f"<title>{'!' * 50_000}a</title><p>word"),
    "html alt": ("a.html", lambda: f"<p>word<img alt='{' ' * 100_000}x'>"),
    "html spaces between tags": ("a.html", lambda: f"<p>word{'<b> </b>' * 50_000}x"),
    "html nested colspan": (
        "a.html",
        lambda: f"<table>{('<tr>' + '<td rowspan=100 colspan=100>' + 'word ' * 500) * 100}</table>",
    ),
    "html wide cells": ("a.html", lambda: f"<table>{'<tr>' + '<td rowspan=100 colspan=100>w' * 5_000}{'<tr>' * 99}"),
    "html nesting": ("a.html", lambda: "<div>" * 100_000 + "word"),
    "html nested tables": ("a.html", lambda: "<table><tr><td>" * 5_000 + "word"),
    "markdown tag": ("a.md", lambda: "word\n\n<!-- <" + "b" * 100_000 + " -->"),
    "markdown quotes": ("a.md", lambda: "> " * 50_000 + "word"),
    "json nesting": ("a.json", lambda: '{"a":' * 900 + "[" + "1," * 100_000 + "1]" + "}" * 900),
    "jsonl nesting": ("a.jsonl", lambda: '{"text": "word", "a": ' + "[" * 900 + "]" * 900 + "}"),
    "yaml aliases": (
        "a.md",
        lambda: (
            "---\na0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 10}]\n" for n in range(1, 10)) + "---\nword"
        ),
    ),
    "csv rows above the table": ("a.csv", lambda: "a,b,c,d\n" * 5 + "x,,,\n" * 200_000),
    "csv long header": ("a.csv", lambda: "h" * 100_000 + ",b\n" + "1,2\n" * 20_000),
    "mail From": ("a.eml", lambda: mail(f"From: {', '.join(f'a{n}@x.example' for n in range(30_000))}")),
    "mail quotes": ("a.eml", lambda: mail(f"From: {chr(34) * 380_000}")),
    "mail parameters": (
        "a.eml",
        lambda: mail("Content-Type: text/plain" + "".join(f"; a{n}=b" for n in range(30_000))),
    ),
    "mail nesting": (
        "a.eml",
        lambda: (
            mail().replace(b"\n\n", b"", 1).split(b"Hello!")[0]
            + b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(3_000))
        ),
    ),
    "pdf pages": ("a.pdf", lambda: pages(20_000)),
    "gz of blank lines": ("a.jsonl.gz", lambda: packed(b"\n" * (16 << 20), 32)),
    "gz of blank text": ("a.txt.gz", lambda: packed(b"\n" * (16 << 20), 32)),
    "docx zip": ("a.docx", lambda: oversized(document("word"), "document.xml", 100)),
    "xlsx zip": ("a.xlsx", lambda: oversized(workbook(["a"]), "sheet1.xml", 100)),
    "pptx zip": ("a.pptx", lambda: oversized(slides(), "slide1.xml", 100)),
    "docx entities": ("a.docx", lambda: laughing(document("word"), "document.xml", b"word")),
    "xlsx entities": (
        "a.xlsx",
        lambda: laughing(sheet('<row><c t="str"><v>word</v></c></row>'), "sheet1.xml", b"word"),
    ),
    "pptx entities": ("a.pptx", lambda: laughing(slides("word"), "slide1.xml", b"word")),
    "core entities": ("a.docx", lambda: laughing(document("word"), "core.xml", b"python-docx")),
    "mail of bombs": (
        "a.eml",
        lambda: attached(sheet('<row r="99999999999"><c t="str"><v>word</v></c></row>'), "a.xlsx", 3),
    ),
}
"""What each is called, the name of its file, and what makes it."""
