"""Word, PowerPoint and Excel files (Office Open XML).

Word: paragraphs under their headings, lists, tables, text boxes, insertions; footnotes and endnotes follow at the end,
then the headers and footers, once. Dropped: comments, deletions, hidden text, the table of contents.
PowerPoint: a passage per slide, with its number as the page and its title as the section, then "Notes: ..." of the
speaker. Dropped: comments, charts, pictures, hidden slides, slide numbers and footers.
Excel: rows as lines (see `shaping`), the sheet's name as the section; formulas as the value last computed; numbers and
dates as people write them. Dropped: hidden sheets, charts, comments, error values.
Derived: author, date of the last change, language (Word). The title is the one in the document, else in its properties.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from typing import Any, BinaryIO

import docx
import openpyxl
import pptx
from docx.oxml.ns import qn
from docx.table import Table
from docx.text.paragraph import Paragraph
from lxml import etree  # type: ignore[import-untyped]
from pptx.enum.shapes import PP_PLACEHOLDER

from rag_app.documents.documents import Document, Passage
from rag_app.documents.readers.formats import LIMIT, attempt, reads
from rag_app.documents.readers.shaping import (
    ROWS_BECOME,
    Sections,
    grouped,
    iso_date,
    known,
    language,
    sensible,
    table_lines,
)
from rag_app.domain import UnreadableDocument

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_NOT_SHOWN = {qn("w:del"), qn("w:moveFrom"), qn("w:instrText"), qn("w:pPr"), _FALLBACK}
# Paragraphs and tables in order, also those in content controls and tracked insertions.
_BLOCKS = (
    ".//*[self::w:p or self::w:tbl][not(ancestor::*[not(self::w:document or self::w:body or self::w:sdt or "
    "self::w:sdtContent or self::w:ins or self::w:customXml or self::w:moveTo)])]"
)
_HIDDEN = f"{qn('w:rPr')}/{qn('w:vanish')}"
_NUMBERED = f"{qn('w:pPr')}/{qn('w:numPr')}"
_SPACES = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
_FURNITURE = {PP_PLACEHOLDER.SLIDE_NUMBER, PP_PLACEHOLDER.FOOTER, PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.HEADER}
_ERRORS = {"#N/A", "#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#NULL!", "#NUM!"}


def _properties(stream: BinaryIO, shown: str) -> tuple[str | None, dict[str, object]]:
    """Title and derived metadata of a whole zip file that unpacks to a bearable size; raises where it is none.

    Read here because each library invents what is missing, and with it a date that is new each time.
    """
    if stream.read(8) == _OLE:
        if "EncryptedPackage".encode("utf-16-le") in stream.read():
            raise UnreadableDocument(shown, "encrypted: a password is needed")
        raise UnreadableDocument(shown, "an old binary Office file; save it in today's format (docx, pptx, xlsx)")
    try:
        with zipfile.ZipFile(stream) as package:
            unpacked = sum(entry.file_size for entry in package.infolist())
            core = attempt(lambda: etree.fromstring(package.read("docProps/core.xml")).iterfind("{*}*"))
    except zipfile.BadZipFile as error:
        raise UnreadableDocument(shown, f"truncated or corrupt: {error}") from error
    if unpacked > LIMIT:
        raise UnreadableDocument(shown, f"larger than {LIMIT >> 20} MB unpacked")
    said = {etree.QName(element).localname: element.text for element in core or ()}
    return sensible(said.get("title")), known(
        author=sensible(said.get("creator")) or sensible(said.get("lastModifiedBy")),
        date=iso_date(said.get("modified")),
        lang=language(said.get("language")),
    )


@reads(".docx", becomes="sections by heading style, tables row by row")
def read_docx(stream: BinaryIO, shown: str) -> Iterator[Document]:
    named, derived = _properties(stream, shown)
    word = docx.Document(stream)
    sections = Sections()
    title = None
    for block in word.element.body.xpath(_BLOCKS):
        if block.tag == qn("w:tbl"):
            sections.table(
                [
                    [""] * row.grid_cols_before + [_text(cell._tc) for cell in row.cells]
                    for row in Table(block, word).rows
                ]
            )
            continue
        style, level = _style(Paragraph(block, word))
        text = _text(block).strip()
        if style == "title":
            title = title or " ".join(text.split())
            sections.heading(0, text)
        elif level:
            sections.heading(level, text)
        elif not style.startswith("toc"):
            listed = text and (style.startswith("list") or block.find(_NUMBERED) is not None)
            sections.text(f"- {text}" if listed else text)
    passages = [*sections.passages(), *_notes(word), *_margins(word)]
    yield Document("", tuple(passages), title or named or sections.first, derived=derived)


def _text(element: Any) -> str:
    """All that is shown of a paragraph or a cell, which python-docx leaves out where it was inserted or boxed."""
    parts: list[str] = []
    for child in element:
        if child.tag in _NOT_SHOWN or child.find(_HIDDEN) is not None:
            continue
        if child.tag == qn("w:t"):
            parts.append(child.text or "")
        elif child.tag in _SPACES:
            parts.append(_SPACES[child.tag])
        else:
            parts.append(("\n" if child.tag == qn("w:p") and parts else "") + _text(child))
            if child.tag == qn("w:tc"):
                parts.append(" ")
    return "".join(parts)


def _style(paragraph: Paragraph) -> tuple[str, int | None]:
    style = attempt(lambda: paragraph.style)
    name = (style.name or "").lower() if style is not None else ""
    for _ in range(10):  # a broken style may be based on itself
        if style is None:
            break
        if heading := re.fullmatch(r"heading (\d)", style.name or "", re.IGNORECASE):
            return name, int(heading[1])
        style = style.base_style
    return name, None


def _notes(word: Any) -> Iterator[Passage]:
    for relation in word.part.rels.values():
        if relation.reltype.endswith(("/footnotes", "/endnotes")):
            yield from grouped(
                filter(None, (" ".join(_text(note).split()) for note in etree.fromstring(relation.target_part.blob))),
                relation.reltype.rpartition("/")[2].capitalize(),
            )


def _margins(word: Any) -> Iterator[Passage]:
    kinds = [f"{page}{place}" for place in ("header", "footer") for page in ("", "first_page_", "even_page_")]
    parts = [getattr(section, kind) for kind in kinds for section in word.sections]
    lines = [
        " ".join(_text(block).split()) for part in parts if not part.is_linked_to_previous for block in part._element
    ]
    if text := "\n".join(dict.fromkeys(filter(None, lines))):
        yield Passage(text)


@reads(".pptx", becomes="slides with tables and notes; the page is the slide's number")
def read_pptx(stream: BinaryIO, shown: str) -> Iterator[Document]:
    named, derived = _properties(stream, shown)
    passages = []
    for number, slide in enumerate(pptx.Presentation(stream).slides, start=1):
        if slide._element.get("show") in ("0", "false"):
            continue
        heading = slide.shapes.title
        title = " ".join(heading.text_frame.text.split()) if heading is not None else ""
        blocks = list(_shape_texts(slide.shapes, heading))
        if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) and notes.text.strip():
            blocks.append(f"Notes: {notes.text.strip()}")
        text = "\n\n".join(block for block in blocks if block.strip())
        if text or title:
            passages.append(Passage(text or title, title or None, page=number))
    yield Document(
        "",
        tuple(passages),
        named or next((passage.section for passage in passages if passage.section), None),
        derived=derived,
    )


def _shape_texts(shapes: Iterable[Any], title: Any) -> Iterator[str]:
    for shape in shapes:
        is_title = title is not None and shape.shape_id == title.shape_id
        if is_title or (shape.is_placeholder and shape.placeholder_format.type in _FURNITURE):
            continue
        if hasattr(shape, "shapes"):  # a group
            yield from _shape_texts(shape.shapes, title)
        elif shape.has_text_frame:
            yield shape.text_frame.text
        elif getattr(shape, "has_table", False):
            yield "\n".join(table_lines([cell.text for cell in row.cells] for row in shape.table.rows))


@reads(".xlsx", becomes=ROWS_BECOME)
def read_xlsx(stream: BinaryIO, shown: str) -> Iterator[Document]:
    named, derived = _properties(stream, shown)
    passages: list[Passage] = []
    for sheet in openpyxl.load_workbook(stream, read_only=True, data_only=True).worksheets:
        if sheet.sheet_state == "visible":
            sheet.reset_dimensions()  # what the file says of its size is often wrong
            rows = ([cell_text(cell.value, cell.number_format) for cell in row] for row in sheet.iter_rows())
            passages.extend(grouped(table_lines(rows), sheet.title))
    yield Document("", tuple(passages), named, derived=derived)


def cell_text(value: object, number_format: str | None = None) -> str:  # noqa: PLR0911
    """A value as a person would write it.

    >>> cell_text(3.0), cell_text(0.25, "0%"), cell_text(datetime(2026, 1, 5)), cell_text(datetime(2026, 1, 5, 9, 30))
    ('3', '25%', '2026-01-05', '2026-01-05 09:30')
    """
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case int() | float() if "%" in (number_format or ""):
            return f"{value * 100:.10g}%"
        case float():
            return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"
        case datetime():
            moment = value.isoformat(" ", "seconds" if value.second else "minutes")
            return moment if value.time() != time() else value.date().isoformat()
        case date():
            return value.isoformat()
        case time():
            return value.isoformat("seconds" if value.second else "minutes")
        case _:
            return "" if value in _ERRORS else str(value)
