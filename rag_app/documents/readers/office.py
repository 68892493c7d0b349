"""Word, PowerPoint and Excel files (Office Open XML).

Word: paragraphs under their headings, lists, tables, text boxes, insertions; footnotes and endnotes follow at the end,
then the headers and footers, once. Dropped: comments, deletions, hidden text, the table of contents.
PowerPoint: a passage per slide, with its number as the page and its title as the section, then "Notes: ..." of the
speaker. Dropped: comments, charts, pictures, hidden slides and shapes, slide numbers and footers.
Excel: rows as lines (see `shaping`), the sheet's name as the section; formulas as the value last computed; numbers and
dates as people write them. Dropped: hidden sheets, rows and columns, charts, comments, error values.
Derived: author, date of the last change, language (Word). The title is the one in the document, else in its properties.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from typing import Any, BinaryIO, NamedTuple, cast

import docx
import openpyxl
import pptx
from docx.oxml.ns import qn
from lxml import etree  # type: ignore[import-untyped]
from openpyxl.cell.read_only import ReadOnlyCell
from openpyxl.worksheet._reader import WorkSheetParser
from pptx.enum.shapes import PP_PLACEHOLDER

from rag_app.documents.documents import Document, Documents, Passage
from rag_app.documents.limits import Tally
from rag_app.documents.readers.formats import attempt, check_output, check_unpacked, reads
from rag_app.documents.readers.rows import Records, table_records
from rag_app.documents.readers.shaping import (
    ROWS_BECOME,
    Sections,
    drop_missing,
    group_lines,
    iso_date,
    language,
    sensible,
    table_lines,
)
from rag_app.domain import RowsRule, UnreadableDocument

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_NOT_SHOWN = {qn("w:del"), qn("w:moveFrom"), qn("w:instrText"), qn("w:pPr"), _FALLBACK}
# Paragraphs and tables in order, also those in content controls and tracked insertions.
_BLOCKS = (
    ".//*[self::w:p or self::w:tbl][not(ancestor::*[not(self::w:document or self::w:body or self::w:sdt or "
    "self::w:sdtContent or self::w:ins or self::w:customXml or self::w:moveTo)])]"
)
_HIDDEN_MARK = f"{qn('w:rPr')}/{qn('w:vanish')}"
_NUMBER_MARK = f"{qn('w:pPr')}/{qn('w:numPr')}"
_STYLE_MARK = f"{qn('w:pPr')}/{qn('w:pStyle')}"
_RUN_STYLED = f"{qn('w:rPr')}/{qn('w:rStyle')}"
_HIDDEN_ROW = f"{qn('w:trPr')}/{qn('w:hidden')}"
_HEADING = re.compile(r"heading (\d)", re.IGNORECASE)
_COLUMNS = 63  # that Word allows in a table
_MOST_COLUMNS = 16_384  # that Excel allows
_SPACES = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
_FURNITURE = {PP_PLACEHOLDER.SLIDE_NUMBER, PP_PLACEHOLDER.FOOTER, PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.HEADER}
_PARSER = etree.XMLParser(resolve_entities=False, no_network=True)
_CELLS = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_YES = {"1", "true"}
_ERRORS = {"#N/A", "#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#NULL!", "#NUM!"}


class _Style(NamedTuple):
    name: str
    level: int | None
    vanishes: bool


# Of the empty documents in which python-docx and python-pptx begin: they say nothing of what is written into them.
_DATES_OF_TEMPLATES = frozenset(["2013-12-23T23:15:00Z", "2013-01-27T09:15:58Z"])


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
            check_unpacked(sum(entry.file_size for entry in package.infolist()))
            core = attempt(lambda: etree.fromstring(package.read("docProps/core.xml"), _PARSER).iterfind("{*}*"))
    except zipfile.BadZipFile as error:
        raise UnreadableDocument(shown, f"truncated or corrupt: {error}") from error
    said = {etree.QName(element).localname: element.text for element in core or ()}
    return sensible(said.get("title")), drop_missing(
        author=sensible(said.get("creator")) or sensible(said.get("lastModifiedBy")),
        date=None if said.get("modified") in _DATES_OF_TEMPLATES else iso_date(said.get("modified")),
        lang=language(said.get("language")),
    )


@reads(".docx", becomes="sections by heading style; tables row by row")
def read_docx(stream: BinaryIO, shown: str) -> Iterator[Document]:
    named, derived = _properties(stream, shown)
    word = docx.Document(stream)
    styles = _styles(word)
    vanishing = {key for key, style in styles.items() if style.vanishes}
    sections = Sections()
    title = None
    for block in word.element.body.xpath(_BLOCKS):
        if block.tag == qn("w:tbl"):
            sections.table(_table_rows(block, vanishing))
            continue
        own = block.find(_STYLE_MARK)
        style = styles.get(None if own is None else own.get(qn("w:val"))) or styles[None]
        text = _text(block, vanishing).strip()
        if style.name == "title":
            title = title or " ".join(text.split())
            sections.heading(0, text)
        elif style.level:
            sections.heading(style.level, text)
        elif not style.name.startswith("toc"):
            listed = text and (style.name.startswith("list") or block.find(_NUMBER_MARK) is not None)
            sections.text(f"- {text}" if listed else text)
    passages = (*sections.passages(), *_notes(word, vanishing), *_margins(word, vanishing))
    yield Document("", passages, title or named or sections.first, derived=derived)


def _table_rows(table: Any, vanishing: set[str | None]) -> Iterator[dict[int, str]]:
    """A cell that spans several rows or columns is in each of them; no column that it does not reach costs anything."""
    above: dict[int, str] = {}
    for row in table.tr_lst:
        if row.find(_HIDDEN_ROW) is not None:
            continue
        column, cells = row.grid_before, {}
        for cell in row.tc_lst:
            text = above.get(column, "") if cell.vMerge == "continue" else _text(cell, vanishing)
            cells.update(dict.fromkeys(range(column, column + min(cell.grid_span, _COLUMNS)), text))
            column += cell.grid_span
        yield cells
        above = cells


def _text(element: Any, vanishing: set[str | None]) -> str:
    """All that is shown of a paragraph or a cell, which python-docx leaves out where it was inserted or boxed."""
    if _vanishes(element, vanishing):
        return ""
    parts: list[str] = []
    for child in element:
        if child.tag in _NOT_SHOWN:
            continue
        if child.tag == qn("w:t"):
            parts.append(child.text or "")
        elif child.tag in _SPACES:
            parts.append(_SPACES[child.tag])
        else:
            parts.append(("\n" if child.tag == qn("w:p") and parts else "") + _text(child, vanishing))
            if child.tag == qn("w:tc"):
                parts.append(" ")
    return "".join(parts)


def _vanishes(element: Any, vanishing: set[str | None]) -> bool:
    """Whether a run or a style is hidden: what it says itself, or else what its style, or that of its paragraph, says."""
    if (own := element.find(_HIDDEN_MARK)) is not None:
        return own.get(qn("w:val")) not in ("0", "false", "off")
    style = element.find(_RUN_STYLED) if element.tag == qn("w:r") else element.find(_STYLE_MARK)
    return style is not None and style.get(qn("w:val")) in vanishing


def _styles(word: Any) -> dict[str | None, _Style]:
    """By id; None: of a paragraph that names none."""
    elements = {each.get(qn("w:styleId")): each for each in word.styles.element.findall(qn("w:style"))}
    found: dict[str | None, _Style] = {None: _Style("", None, vanishes=False)}
    for key, element in elements.items():
        bases, level = [element], None
        while len(bases) < 10 and (base := bases[-1].find(qn("w:basedOn"))) is not None:  # it may be based on itself
            if (element := elements.get(base.get(qn("w:val")))) is None:
                break
            bases.append(element)
        names = [str(attempt(lambda: each.find(qn("w:name")).get(qn("w:val"))) or "") for each in bases]  # noqa: B023
        level = next((int(heading[1]) for heading in map(_HEADING.fullmatch, names) if heading), None)
        said = (each.find(_HIDDEN_MARK) is not None for each in bases)
        found[key] = _Style(names[0].lower(), level, any(said))
        if bases[0].get(qn("w:default")) and bases[0].get(qn("w:type")) == "paragraph":
            found[None] = found[key]
    return found


def _notes(word: Any, vanishing: set[str | None]) -> Iterator[Passage]:
    for relation in word.part.rels.values():
        if relation.reltype.endswith(("/footnotes", "/endnotes")):
            notes = etree.fromstring(relation.target_part.blob, _PARSER)
            yield from group_lines(
                filter(None, (" ".join(_text(note, vanishing).split()) for note in notes)),
                relation.reltype.rpartition("/")[2].capitalize(),
            )


def _margins(word: Any, vanishing: set[str | None]) -> Iterator[Passage]:
    kinds = [f"{page}{place}" for place in ("header", "footer") for page in ("", "first_page_", "even_page_")]
    found = list(word.sections)
    parts = [getattr(section, kind) for kind in kinds for section in found]
    elements = dict.fromkeys(part._element for part in parts if not part.is_linked_to_previous)
    lines = [" ".join(_text(block, vanishing).split()) for element in elements for block in element]
    if text := "\n".join(dict.fromkeys(filter(None, lines))):
        yield Passage(text)


@reads(".pptx", becomes="slides with tables and notes; the page is the slide's number")
def read_pptx(stream: BinaryIO, shown: str) -> Iterator[Document]:
    named, derived = _properties(stream, shown)
    pages, passages = Tally("pages"), []
    for number, slide in enumerate(pptx.Presentation(stream).slides, start=1):
        pages.add()
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
        hidden = shape._element.xpath("./*/p:cNvPr/@hidden")
        if (
            is_title
            or _YES.intersection(hidden)
            or (shape.is_placeholder and shape.placeholder_format.type in _FURNITURE)
        ):
            continue
        if hasattr(shape, "shapes"):  # a group
            yield from _shape_texts(shape.shapes, title)
        elif shape.has_text_frame:
            yield shape.text_frame.text
        elif getattr(shape, "has_table", False):
            yield "\n".join(table_lines([cell.text for cell in row.cells] for row in shape.table.rows))


def read_xlsx_rows(stream: BinaryIO, shown: str, rules: tuple[RowsRule, ...]) -> Records:
    """Sheets that no rule is for are a document together."""
    named, derived = _properties(stream, shown)
    sheets = openpyxl.load_workbook(stream, read_only=True, data_only=True).worksheets
    others: list[Any] = []
    for sheet in (sheet for sheet in sheets if sheet.sheet_state == "visible"):
        rule = next((rule for rule in rules if rule.reads_sheet(sheet.title)), None)
        if rule is None:
            others.append(sheet)
        else:
            yield from table_records(_sheet_rows(sheet), rule, f"{shown}, sheet {sheet.title!r}", sheet.title)
    lines = ((sheet.title, table_lines(cells for _, cells in _sheet_rows(sheet))) for sheet in others)
    passages = tuple(check_output(passage for title, rows in lines for passage in group_lines(rows, title)))
    if passages or not rules:
        yield Document("", passages, named, derived=derived)


@reads(".xlsx", becomes=ROWS_BECOME, rows=read_xlsx_rows)
def read_xlsx(stream: BinaryIO, shown: str) -> Documents:
    return cast("Documents", read_xlsx_rows(stream, shown, ()))


def _sheet_rows(sheet: Any) -> Iterator[tuple[int, dict[int, str]]]:
    """The rows there are, with the cells there are: openpyxl's own adds all that lie between them.

    It also parses what is no cell, in times that grow with the square of its length.
    """
    book, hidden, number = sheet.parent, 0, 0  # hidden: a bit for each column
    with sheet._get_source() as source:
        formats = (book.data_only, book.epoch, book._date_formats, book._timedelta_formats)
        parser = WorkSheetParser(source, sheet._shared_strings, *formats)
        wanted = (f"{_CELLS}col", f"{_CELLS}row")
        for _, element in etree.iterparse(source, tag=wanted, resolve_entities=False, remove_comments=True):
            if element.tag == f"{_CELLS}col":
                first, last = int(element.get("min")), min(int(element.get("max")), _MOST_COLUMNS)
                if element.get("hidden") in _YES and first <= last:
                    hidden |= (1 << last + 1) - (1 << first)
            elif element.get("hidden") not in _YES:
                number = int(element.get("r") or number + 1)
                cells = [ReadOnlyCell(sheet, **cell) for cell in parser.parse_row(element)[1]]
                cells.sort(key=lambda cell: cell.column)
                shown_cells = (cell for cell in cells if not hidden >> cell.column & 1)
                yield number, {cell.column: cell_text(cell.value, cell.number_format) for cell in shown_cells}
            element.clear()
            while element.getprevious() is not None:
                del element.getparent()[0]


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
