"""Rows of tables and records as sources of their own: keys, types, dates, templates, and what is no good table."""

import gzip
import io
import json
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from rag_app.answering.records.wording import noun_of
from rag_app.documents.documents import Document
from rag_app.documents.limits import Limits
from rag_app.documents.proposals import propose
from rag_app.documents.readers import read
from rag_app.documents.reading import ReaderPool
from rag_app.domain import FieldType, Misconfigured, RowMapping, RowsRule, UnreadableDocument, row_mapping
from rag_app.retrieval.index import IndexSpec, load_index

FIELDS = {
    "no": FieldType.INTEGER,
    "price": FieldType.NUMBER,
    "paid": FieldType.BOOLEAN,
    "seen": FieldType.TIME,
    "name": FieldType.KEYWORD,
    "tags": FieldType.TAGS,
    "ref": FieldType.UUID,
}


def rows_of(folder: Path, name: str, data: str | bytes, *rules: RowsRule) -> list[Document | UnreadableDocument]:
    path = folder / name
    path.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    return [*read(path, name, folder, RowMapping(rules or (RowsRule(),), FIELDS))]


def documents(found: list[Document | UnreadableDocument]) -> list[Document]:
    assert all(isinstance(each, Document) for each in found), found
    return [each for each in found if isinstance(each, Document)]


def workbook(sheets: Mapping[str, list[list[Any]]]) -> bytes:
    book = openpyxl.Workbook()
    del book["Sheet"]
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def test_a_row_has_its_key_its_fields_its_date_and_its_place(tmp_path: Path) -> None:
    rule = RowsRule(
        key=("no",),
        date=("day", "time"),
        columns={"Price (GBP)": "price"},
        title="Visit of {name}",
        text="{name} came on {day:%-d %B %Y}[ and paid {price_gbp}][: {note}].",
    )
    table = "No;Name;Day;Time;Price (GBP);Note\n7;Ada;2026-01-05;11:00;£1,250.50;was early\n\n8;Bo;2026-01-06;;;\n"
    first, second = documents(rows_of(tmp_path, "visits.csv", table, rule))
    assert (first.name, first.row, first.title) == ("7", 2, "Visit of Ada")
    assert first.passages[0].text == "Ada came on 5 January 2026 and paid £1,250.50: was early."
    assert first.metadata == {
        "no": 7,
        "name": "Ada",
        "price": 1250.5,
        "date": "2026-01-05T11:00:00",
        "Day": "2026-01-05",
        "Time": "11:00",
        "Note": "was early",
    }
    assert (second.row, second.passages[0].text) == (4, "Bo came on 6 January 2026.")
    assert second.metadata["date"] == "2026-01-06T00:00:00" and "price" not in second.metadata


def test_without_anything_said_a_row_is_its_cells_under_its_number(tmp_path: Path) -> None:
    (row,) = documents(rows_of(tmp_path, "a.tsv", "name\tcolour\nAda\tred\n"))
    assert (row.name, row.title, row.passages[0].text) == ("row 2", "a", "name: Ada; colour: red")
    packed = gzip.compress(b"name,colour\nAda,red\n")
    assert documents(rows_of(tmp_path, "a.csv.gz", packed))[0].passages == row.passages


@pytest.mark.parametrize(
    ("cells", "fields"),
    [
        ({"no": "48.0", "price": "25%", "paid": "Yes"}, {"no": 48, "price": 25.0, "paid": True}),
        ({"price": "−3.5 €", "paid": "0", "seen": "2025-02"}, {"price": -3.5, "paid": False, "seen": "2025-02-01T00:00:00"}),
        ({"price": "1.5e-3", "tags": "a, b"}, {"price": 0.0015, "tags": "a, b"}),
    ],
)  # fmt: skip
def test_cells_as_people_write_them(tmp_path: Path, cells: dict[str, str], fields: dict[str, object]) -> None:
    table = ";".join(cells) + "\n" + ";".join(cells.values()) + "\n"
    (row,) = documents(rows_of(tmp_path, "a.csv", table))
    assert row.metadata == fields and row.problems == ()


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        *[("no", cell) for cell in ("4.5", "nan", "1_000", "9223372036854775808", "=1+1", "12 May")],
        *[("price", cell) for cell in ("inf", "1,25", "1.2.3", "1e999", "abc")],
        *[("paid", "maybe"), ("ref", "42"), ("seen", "05/01/2026"), ("seen", "yesterday"), ("name", "x" * 501)],
        *[("date", "2026-13-01"), ("date", "5 January")],
    ],
)
def test_a_value_that_does_not_fit_is_named_and_left_out(tmp_path: Path, column: str, cell: str) -> None:
    (row,) = documents(rows_of(tmp_path, "a.csv", f"{column};other\n{cell};kept\n"))
    assert row.metadata == {"other": "kept"}
    (problem,) = row.problems
    assert problem.startswith(f"row 2: column {column}: must ") and problem.endswith(": left out")
    assert cell[:100] in row.passages[0].text


def test_dates_and_numbers_in_a_notation_that_the_rule_names(tmp_path: Path) -> None:
    rule = RowsRule(date=("day",), date_formats=("%d.%m.%Y", "%d %b %Y"), decimal=",", text="{day:%B}")
    table = "day;price\n5.1.2026;1.250,50\n7 Mar 2026;2\n"
    first, second = documents(rows_of(tmp_path, "a.csv", table, rule))
    assert first.metadata == {"date": "2026-01-05T00:00:00", "price": 1250.5, "day": "5.1.2026"}
    assert [row.passages[0].text for row in (first, second)] == ["January", "March"]


def test_a_row_without_its_key_is_refused_and_the_others_stand(tmp_path: Path) -> None:
    found = rows_of(tmp_path, "a.csv", "no,name\n1,Ada\n,Bo\n3,Cy\n", RowsRule(key=("no",)))
    assert [each.name for each in found if isinstance(each, Document)] == ["1", "3"]
    assert [str(each) for each in found if isinstance(each, UnreadableDocument)] == [
        "a.csv: row 3: the key column no is empty: the row is skipped"
    ]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("name,colour\nAda,red\n", "no header with no, the key of its rows: name, colour"),
        ("no,no\n1,2\n", "column 'no' is there twice"),
    ],
)
def test_a_table_without_the_columns_of_its_key_is_refused(tmp_path: Path, table: str, problem: str) -> None:
    with pytest.raises(UnreadableDocument, match=problem):
        rows_of(tmp_path, "a.csv", table, RowsRule(key=("no",)))


def test_a_column_that_the_rule_names_and_is_not_there_is_told_once(tmp_path: Path) -> None:
    rule = RowsRule(key=("no",), date=("day",), text="{name}[ ({colour})]")
    rows = documents(rows_of(tmp_path, "a.csv", "no,name\n1,Ada\n2,Bo\n", rule))
    assert [row.problems for row in rows] == [("row 2: no column colour, day, which [rows] names",), ()]


def test_headers_below_a_title_repeated_doubled_and_missing(tmp_path: Path) -> None:
    table = "Our visits,,\n,,\nno,note,note,\n1,a,b,c\nno,note,note,\n2,d,,\n"
    first, second = documents(rows_of(tmp_path, "a.csv", table, RowsRule(key=("no",))))
    assert (first.row, first.passages[0].text) == (4, "no: 1; note: a; note (2): b; column 4: c")
    assert (second.row, second.passages[0].text) == (6, "no: 2; note: d")


def test_long_cells_and_wide_rows_are_text_and_bounded_metadata(tmp_path: Path) -> None:
    (row,) = documents(rows_of(tmp_path, "a.csv", f'no,note\n1,"{"word " * 20_000}"\n'))
    assert len(row.passages[0].text) > 99_000 and row.metadata == {"no": 1}
    names = [f"column_{number}" for number in range(100)]
    (wide,) = documents(rows_of(tmp_path, "b.csv", ",".join(names) + "\n" + ",".join(["x" * 400] * 100) + "\n"))
    assert 20 < len(wide.metadata) < 35 and wide.passages[0].text.count("column_") == 100


def test_hostile_cells_are_text(tmp_path: Path) -> None:
    table = 'no,name\n1,"=HYPERLINK(""http://x"")"\n2,"{no}[{name}]"\n3,"a\nb\u200b"\n4,"\u200b"\n'
    rows = documents(rows_of(tmp_path, "a.csv", table, RowsRule(key=("no",), text="{no}: {name}")))
    assert [row.passages[0].text for row in rows] == ['1: =HYPERLINK("http://x")', "2: {no}[{name}]", "3: a b", "4:"]
    with pytest.raises(UnreadableDocument, match="binary content"):
        rows_of(tmp_path, "nul.csv", "no,name\n1,a\0b\n")
    record = '{"no": 1, "name": "a\\ud800\\u0000b"}\n'
    assert documents(rows_of(tmp_path, "a.jsonl", record))[0].metadata == {"no": 1, "name": "ab"}


def test_sheets_have_rules_of_their_own_and_the_others_are_a_document(tmp_path: Path) -> None:
    data = workbook(
        {
            "Visits": [["no", "name", "share"], [1, "Ada", 0.25], [None, None, None], [2, "Bo", True]],
            "Prices": [["no", "price"], [1, 9.5]],
            "Notes": [["what", "why"], ["closed", "rain"]],
        }
    )
    rules = RowsRule(sheets=("Visits",), key=("no",)), RowsRule(sheets=("Pri*",), key=("no",), text="{price}")
    first, second, price, rest = documents(rows_of(tmp_path, "a.xlsx", data, *rules))
    assert (first.name, first.sheet, first.row, first.passages[0].section) == ("Visits/1", "Visits", 2, "Visits")
    assert (second.name, second.row, second.metadata) == ("Visits/2", 4, {"no": 2, "name": "Bo", "share": "TRUE"})
    assert (price.name, price.metadata["price"], price.passages[0].text) == ("Prices/1", 9.5, "9.5")
    assert (rest.name, rest.row, rest.passages[0].text) == ("", None, "what: closed; why: rain")


def test_records_of_json(tmp_path: Path) -> None:
    records = [{"id": "x-1", "no": 5, "tags": ["a", "b"], "more": {"k": [1]}, "text": "One.\nTwo."}, {"no": None}, 3]
    for name, data in (
        ("a.jsonl", "\n".join(map(json.dumps, records))),
        ("a.json", json.dumps(records)),
    ):
        first, empty, none = rows_of(tmp_path, name, data)
        assert isinstance(first, Document) and first.external_id == "x-1" and first.row == 1
        assert first.passages[0].text == "One.\nTwo."
        assert first.metadata == {"id": "x-1", "no": 5, "tags": ["a", "b"], "more": {"k": [1]}}
        assert isinstance(empty, UnreadableDocument) and "no text" in str(empty)
        assert isinstance(none, UnreadableDocument) and "not an object" in str(none)
    (named,) = documents(rows_of(tmp_path, "b.json", json.dumps(records[0]), RowsRule(id="visit/{no}")))
    assert named.external_id == "visit/5"


def test_a_sidecar_says_what_the_rows_do_not(tmp_path: Path) -> None:
    (tmp_path / "a.csv.meta.json").write_text('{"title": "All", "date": "2020-01-01", "tags": "x"}')
    first, second = documents(rows_of(tmp_path, "a.csv", "no,date\n1,2026-01-05\n2,\n"))
    assert first.metadata["date"] == "2026-01-05T00:00:00" and second.metadata["date"] == "2020-01-01"
    assert first.title == "a" and first.metadata["tags"] == "x"


def test_which_rule_is_for_a_file() -> None:
    own = RowsRule(files=("*.csv",), key=("no",))
    asked = RowsRule(key=("name",))
    assert row_mapping([own], {}, "x/a.csv") == RowMapping((own,), {})
    assert row_mapping([own], {}, "x/a.tsv") is None
    assert row_mapping([own], {}, "x/a.csv", RowsRule()) == RowMapping((own,), {})
    assert row_mapping([own], {}, "x/a.tsv", RowsRule()) == RowMapping((RowsRule(),), {})
    assert row_mapping([own], {}, "x/a.csv", asked) == RowMapping((asked,), {})


@pytest.mark.parametrize(
    "section",
    ['[rows]\nfiles="a"\nkei="no"', '[rows]\ncolumns={no="nr"}', '[rows]\nsource_type="x"', '[rows]\ndecimal=";"', "rows=3"],
)  # fmt: skip
def test_rules_that_cannot_be_are_refused(tmp_path: Path, section: str) -> None:
    head = 'source_types = ["row"]\ndefault_source_type = "row"\n'
    body = f"{section}\n{head}" if section == "rows=3" else f"{head}{section}\n"
    (tmp_path / "index.toml").write_text(body)
    with pytest.raises(Misconfigured, match="rows"):
        load_index(tmp_path)


def proposed(path: Path) -> str:
    spec = IndexSpec(name="notes", source_types=("row",), default_source_type="row")
    readers = ReaderPool(Limits(), 1)
    try:
        (text,) = propose(readers, [path], (), spec)
        return text
    finally:
        readers.close()


def test_a_table_that_nobody_here_wrote_is_proposed_and_read(tmp_path: Path) -> None:
    package = find_spec("vega_datasets")
    assert package and package.origin
    table = Path(package.origin).parent / "_data" / "seattle-weather.csv"
    text = proposed(table)
    assert text.startswith("# seattle-weather.csv: 1,461 rows")
    (tmp_path / "index.toml").write_text(text)
    spec = load_index(tmp_path)
    measured = dict.fromkeys(("precipitation", "temp_max", "temp_min", "wind"), FieldType.NUMBER)
    assert spec.fields == {**measured, "weather": FieldType.KEYWORD}
    mapping = row_mapping(spec.rows, spec.fields, table.name)
    rows = documents([*read(table, table.name, table.parent, mapping)])
    assert len({row.name for row in rows}) == 1461 and not any(row.problems for row in rows)
    assert rows[4].metadata == {
        "date": "2012-01-05T00:00:00",
        "precipitation": 1.3,
        "temp_max": 8.9,
        "temp_min": 2.8,
        "wind": 6.1,
        "weather": "rain",
        "source_type": "weather",
    }


def test_a_time_may_have_an_hour_of_one_digit(tmp_path: Path) -> None:
    table = tmp_path / "visits.csv"
    table.write_text("visit_no,date,time,guest\n1,2026-11-02,9:00,Ada\n2,2026-11-02,10:30,Bo\n3,2026-11-03,9:05,Ada\n")
    (rule,) = tomllib.loads(proposed(table))["rows"]
    assert (rule["date"], rule["title"]) == (["date", "time"], "{guest}, {date}, {visit_no}")
    mapping = RowMapping((RowsRule(date=("date", "time")),), {})
    rows = documents([*read(table, table.name, table.parent, mapping)])
    assert [row.metadata["date"] for row in rows] == [
        "2026-11-02T09:00:00",
        "2026-11-02T10:30:00",
        "2026-11-03T09:05:00",
    ]


def test_what_a_table_says_of_its_columns(tmp_path: Path) -> None:
    lines = ["Order no.;Title;Row;Paid;Day;Remark"]
    lines += [f"{7 * number};T{number % 3};{number};{'yes' if number % 2 else 'no'};0{1 + number % 9}/02/2026;{'x' * 99} {number}" for number in range(30)]  # fmt: skip
    (tmp_path / "orders.csv").write_text("\n".join(lines))
    text = proposed(tmp_path / "orders.csv")
    assert tomllib.loads(text) == {
        "source_types": ["order"],
        "default_source_type": "order",
        "fields": {
            "order_no": "keyword",
            "record_title": "keyword",
            "record_row": {"type": "integer"},
            "paid": {
                "type": "boolean",
                "values": {
                    "true": ["paid", "settled", "paid up"],
                    "false": ["unpaid", "unsettled", "outstanding", "owe", "owes", "owed", "owing"],
                },
            },
        },
        "rows": [
            {
                "files": "orders.csv",
                "key": "Order no.",
                "source_type": "order",
                "date": "Day",
                "date_formats": ["%d/%m/%Y"],
                "columns": {"Title": "record_title", "Row": "record_row"},
                "title": "{Title}, {Day}, {Order no.}",
                "text": "Order no.: {Order no.}[; Title: {Title}][; Row: {Row}][; Paid: {Paid}][; Day: {Day}][; Remark: {Remark}].",
            }
        ],
        "records": {"order": {"source_types": ["order"], "words": ["order", "purchase"]}},
    }
    assert "# Day: could be %d/%m/%Y or %m/%d/%Y: say which" in text


@pytest.mark.parametrize(
    ("file", "header", "kind"),
    [
        ("export.csv", "Booking ID", "booking"),
        ("orders-2026.csv", "id", "order"),
        ("glass.csv", "serial", "glass"),
        ("2026.csv", "id", "row"),
        ("prices.csv", "id", "row"),  # a column of figures is called price
        ("prices.csv", "Year", "row"),  # a number itself
        ("accessories.csv", "sku", "accessory"),
    ],
)
def test_rows_are_proposed_as_records_of_a_kind(tmp_path: Path, file: str, header: str, kind: str) -> None:
    (tmp_path / file).write_text(f"{header},Price (EUR),Note (old)\n1,2.5,a\n2,3.5,b\n")
    text = proposed(tmp_path / file)
    (tmp_path / "index.toml").write_text(text)
    spec = load_index(tmp_path)
    assert tomllib.loads(text)["fields"]["price_eur"] == {
        "type": "number", "words": ["price"], "unit": "euros",
        "high": ["dearest", "most expensive"], "low": ["cheapest", "least expensive"],
    }  # fmt: skip
    assert spec.source_types == (kind,) == spec.records[kind].source_types == spec.records[kind].words[:1]
    rows = documents([*read(tmp_path / file, file, tmp_path, row_mapping(spec.rows, spec.fields, file))])
    assert [row.metadata["source_type"] for row in rows] == [kind, kind]


def loaded(table: Path) -> IndexSpec:
    """The index that is proposed for the table, which is read by it as it is."""
    (table.parent / "index.toml").write_text(proposed(table))
    spec = load_index(table.parent)
    rows = documents([*read(table, table.name, table.parent, row_mapping(spec.rows, spec.fields, table.name))])
    assert not any(row.problems for row in rows)
    return spec


def test_a_german_table_has_decimal_commas_its_own_yes_and_no_and_its_own_plural(tmp_path: Path) -> None:
    table = tmp_path / "rechnungen.csv"
    lines = ["Rechnungsnr;Datum;Kunde;Rechnungsbetrag;Stückpreis (€);Bezahlt;Größe"]
    lines += [
        f"RE-{number};31.03.2025;Gärtnerei Moos und Söhne;{number}.033,56;{number},5;{'ja' if number % 2 else 'nein'};3"
        for number in range(1, 9)
    ]
    table.write_text("\n".join(lines))
    spec = loaded(table)
    assert spec.rows[0].decimal == "," and spec.rows[0].key == ("Rechnungsnr",)
    assert spec.fields == {
        "rechnungsnr": FieldType.KEYWORD,
        "kunde": FieldType.KEYWORD,
        "rechnungsbetrag": FieldType.NUMBER,
        "stuckpreis": FieldType.NUMBER,
        "bezahlt": FieldType.BOOLEAN,
        "grosse": FieldType.INTEGER,
    }
    assert spec.vocabulary["rechnungsbetrag"].adds_up and not spec.vocabulary["stuckpreis"].adds_up
    assert spec.vocabulary["stuckpreis"].unit == "euros" and spec.vocabulary["stuckpreis"].words == ("stückpreis",)
    kind = spec.records["rechnung"]
    assert (kind.words, noun_of(kind, 1), noun_of(kind, 90)) == (("rechnung",), "rechnung", "rechnungen")


@pytest.mark.parametrize(
    ("cells", "decimal", "kind", "said"),
    [
        (("1,5", "2"), ",", FieldType.NUMBER, False),
        (("1.5", "2"), ".", FieldType.NUMBER, False),
        (("1.5", "2,5"), ".", FieldType.KEYWORD, False),  # two notations in one column
        (("1,250", "2"), ".", FieldType.INTEGER, True),  # one thousand or one
        (("1.250", "2"), ".", FieldType.NUMBER, True),
        (("1.250.000", "2"), ".", FieldType.KEYWORD, False),  # may be no number at all
        (("1,2,3", "2"), ".", FieldType.KEYWORD, False),
    ],
)
def test_a_decimal_comma_is_proposed_where_a_value_can_be_nothing_else(
    tmp_path: Path, cells: tuple[str, ...], decimal: str, kind: FieldType, said: bool
) -> None:
    table = tmp_path / "sizes.csv"
    table.write_text("name;size\n" + "".join(f"n{place};{cell}\n" for place, cell in enumerate(cells)))
    spec = loaded(table)
    assert (spec.rows[0].decimal, spec.fields["size"]) == (decimal, kind)
    assert ("# decimal = " in proposed(table)) is said


@pytest.mark.parametrize("words", ["yes no", "Y N", "Ja NEIN", "oui non", "wahr falsch", "vrai faux", "True FALSE"])
def test_yes_and_no_in_the_languages_that_are_read(tmp_path: Path, words: str) -> None:
    yes, no = words.split()
    table = tmp_path / "a.csv"
    table.write_text(f"name;paid;other\nAda;{yes};{yes}\nBo;{no};maybe\n")
    spec = loaded(table)
    assert (spec.fields["paid"], spec.fields["other"]) == (FieldType.BOOLEAN, FieldType.KEYWORD)
    first, second = documents(rows_of(tmp_path, "b.csv", table.read_text()))
    assert (first.metadata["paid"], second.metadata["paid"]) == (True, False)


def test_what_the_name_of_a_column_tells_of_its_figures(tmp_path: Path) -> None:
    told: dict[tuple[str, str], dict[str, object]] = {
        ("invoice_total", "9"): {"adds_up": True},
        ("labour_hours", "9"): {"adds_up": True, "unit": "hours", "words": ("labour", "time")},
        ("qty", "9"): {"adds_up": True, "words": ("quantity", "units")},
        ("Montant (€)", "9"): {"adds_up": True, "unit": "euros", "words": ("montant",)},
        ("amount", "£9"): {"adds_up": True, "unit": "pounds"},
        ("discount", "9%"): {"unit": "percent", "words": ("discount", "reduction")},
        ("fee_eur", "9"): {"unit": "euros", "words": ("fee", "charge")},
        ("weight_kg", "9"): {"unit": "kg", "words": ("weight",)},
        ("registration_year", "9"): {"words": ("registration year", "year")},
        ("hourly rate", "9"): {"words": ("hourly rate", "rate")},
        ("refund_sum_eur", "$9"): {"adds_up": True, "words": ("refund sum",)},  # two units: none
    }
    told |= {
        (name, "9"): {}
        for name in (
            *("unit_price", "age", "reorder_level", "running_total", "hour"),
            *("average hours per week", "co2_g_km", "euro_norm", "customer_id", "total_cholesterol", "Mindestmenge"),
        )
    }
    table = tmp_path / "things.csv"
    row = ",".join(cell for _, cell in told)
    table.write_text(f"name,{','.join(name for name, _ in told)}\nAda,{row}\nBo,{row}\n")
    spec = loaded(table)
    figures = [name for name in spec.fields if name != "name"]
    said = [
        spec.vocabulary[name].model_dump(exclude_defaults=True, exclude={"kind", "high", "low"}) for name in figures
    ]
    assert dict(zip(told, said, strict=True)) == told


def test_money_is_a_number_though_it_has_no_pence_and_a_second_date_is_told(tmp_path: Path) -> None:
    table = tmp_path / "rents.csv"
    head = "visit,day,follow_up,Rechnungsbetrag,fee_gbp,rent,received,cost (EUR),price_rank,minutes"
    table.write_text(f"{head}\nV1,2026-01-05,2026-02-05,9,9,9,£9,9,9,9\nV2,2026-01-06,2026-02-06,8,9,9,£9,9,9,9\n")
    spec = loaded(table)
    whole = {name for name, kind in spec.fields.items() if kind is FieldType.INTEGER}
    assert whole == {"price_rank", "minutes"} and spec.fields["follow_up"] is FieldType.TIME
    assert [*spec.records] == ["visit"] and '# not "rent"' in proposed(table)
    assert "# follow_up is a second date" in proposed(table) and "# day is" not in proposed(table)


def test_what_is_not_sure_is_a_comment_to_fill_in(tmp_path: Path) -> None:
    table = tmp_path / "stock.csv"
    table.write_text(
        "sku,quantity,unit_price,price_eur,price_usd,Größe,Grosse,ok\nS1,4,2.5,1.5,2,a,b,yes\nS2,4,9.5,1,2,a,c,no\n"
    )
    text = proposed(table)
    lines = {line.split(" = ")[0]: line for line in text.splitlines() if " = " in line}
    for key in ("words", "unit", "totals", "adds_up", "high", "low"):
        assert f"{key} = " in lines["unit_price"].partition("  # can also have: ")[2]
    assert "adds_up" not in lines["quantity"].partition("#")[2] and "values.false" in lines["ok"].partition("#")[2]
    assert lines["# plural"].startswith('# plural = "stocks"') and lines["# by"].startswith('# by = "quantity"')
    spec = loaded(table)
    assert [spec.vocabulary[name].words for name in ("price_eur", "price_usd")] == [(), ()]  # both are prices
    assert {"grosse", "grosse_2"} <= {*spec.fields}


def test_no_total_is_offered_of_ages_and_scores(tmp_path: Path) -> None:
    table = tmp_path / "class.csv"
    table.write_text("class_no,pupils,mean_age,test_score,air_temp,fuel\nC1,20,14.5,61,20.5,3.5\nC2,18,13,70,21,4\n")
    text = proposed(table)
    lines = {line.split(" = ")[0]: line for line in text.splitlines() if " = " in line}
    for name in ("mean_age", "test_score", "air_temp"):
        assert "can also have" in lines[name] and "adds_up" not in lines[name] and "totals" not in lines[name]
    assert "adds_up" in lines["fuel"]
    assert lines["# plural"].startswith('# plural = "classes"')


def test_marks_of_nothing_are_no_values(tmp_path: Path) -> None:
    table = tmp_path / "birds.csv"
    table.write_text(
        "weight,island,seen,ringed,note\n3.5,Dream,2026-01-05,yes,NA\nNA,Biscoe,n/a,-,NA\n4.5,Biscoe,2026-01-07,no,-\n"
    )
    spec = loaded(table)
    named = {name: str(kind) for name, kind in spec.fields.items()}
    assert named == {"weight": "number", "island": "keyword", "ringed": "boolean", "note": "keyword"}
    assert spec.rows[0].key == ()  # a weight that no two have tells no row apart
    rows = documents([*read(table, table.name, table.parent, row_mapping(spec.rows, spec.fields, table.name))])
    assert not any(row.problems for row in rows) and "NA" not in rows[1].passages[0].text.partition("note")[0]
    assert rows[1].metadata.keys() & {"weight", "date", "ringed"} == set() and rows[1].metadata["note"] == "NA"


def test_a_measure_is_no_key(tmp_path: Path) -> None:
    table = tmp_path / "sales.csv"
    table.write_text("revenue_eur,town\n12.5,A\n13.5,A\n")
    assert loaded(table).rows[0].key == () and 'totals = ["revenue", "takings"' in proposed(table)


def test_what_came_to_nothing_is_left_out_of_totals(tmp_path: Path) -> None:
    table = tmp_path / "hires.csv"
    rows = "".join(
        f"H{number},2026-05-0{number},12.50,{'refunded' if number == 4 else 'paid'}\n" for number in range(1, 6)
    )
    table.write_text(f"hire_no,hired_on,fee_eur,status\n{rows}")
    words = loaded(table).vocabulary
    assert words["status"].void == ("refunded",) and words["fee_eur"].earned and not words["fee_eur"].totals
    assert words["fee_eur"].decimals == 2
    table.write_text(f"hire_no,hired_on,fee_eur,status\n{rows.replace('paid', 'returned')}")
    assert loaded(table).vocabulary["status"].void == (), "most are: they were lent"


@pytest.mark.parametrize(
    ("header", "state", "date"),
    [
        ("status", "erected", "Erected on"),
        ("state", "Delivered", "delivered_on"),
        ("sort", "purchase", "Purchase date"),
    ],
)
def test_a_state_of_some_rows_calls_no_row(tmp_path: Path, header: str, state: str, date: str) -> None:
    table = tmp_path / "jobs.csv"
    table.write_text(f"job_no,{date},{header}\nJ1,2026-03-02,{state}\nJ2,2026-03-09,other\nJ3,2026-04-01,{state}\n")
    assert state.lower() not in loaded(table).records["job"].words
    table.write_text(table.read_text().replace(state, "new"))
    assert state.lower() in loaded(table).records["job"].words


def test_what_is_sure_of_dates_money_and_titles_is_proposed(tmp_path: Path) -> None:
    table = tmp_path / "visits.csv"
    table.write_text(
        "code,day,time,name,fee_eur,price,cost,temp\n"
        "V1,2026/01/05 00:00:00,09:30,Ada Holm,40,3,2,7.5\n"
        "V2,2026/01/06 00:00:00,14:00,Bo Lind,55,4,2,8.1\n"
    )
    text = proposed(table)
    assert 'date = ["day", "time"]' in text and "%Y/%m/%d %H:%M:%S" in text
    assert 'title = "{name}, {day}, {code}"' in text and "\ntime = " not in text
    fee, price, temp = (line for line in text.splitlines() if line.startswith(("fee", "price", "temp")))
    assert 'adds_up = true, totals = ["revenue"' in fee
    assert "adds_up" not in price.split("#")[0]
    assert "dearest" not in text.replace("# ", "")  # fee, price and cost may be meant
    assert 'low = ["coldest", "coolest"]' in temp and '"highest"' not in text


def test_money_without_dates_makes_no_total(tmp_path: Path) -> None:
    table = tmp_path / "lessons.csv"
    table.write_text("lesson,fee\nviolin,40\npiano,55\n")
    assert "adds_up = true, totals" not in proposed(table).split("#")[0]
    assert "\nfee = {" in proposed(table)


def test_a_table_of_years_has_no_dates(tmp_path: Path) -> None:
    table = tmp_path / "movies.csv"
    table.write_text("year,studio,rating\n1950,A,1.5\n1955,A,2.5\n1955,B,2.5\n")
    spec = loaded(table)
    assert spec.dated_types == () and [*spec.records] == ["movie"]
    assert (spec.records["movie"].by, spec.vocabulary["rating"].best) == ("rating", "high")


@pytest.mark.parametrize(
    ("file", "header", "kind"),
    [
        ("dive_log_2025.csv", "serial", "dive"),  # what it is a log of
        ("employees_berlin.csv", "serial", "employee"),
        ("house_prices.csv", "serial", "house"),
        ("shelter_cats.csv", "cat_id", "cat"),  # no category
        ("rentals-export.csv", "rntl_id", "rental"),
        ("data.csv", "cust_no", "customer"),
    ],
)
def test_the_noun_of_a_row(tmp_path: Path, file: str, header: str, kind: str) -> None:
    (tmp_path / file).write_text(f"{header},Price (EUR),Note (old)\n1,2.5,a\n2,3.5,b\n")
    assert [*loaded(tmp_path / file).records] == [kind]


def test_the_words_of_a_file_and_of_its_date_are_words_of_its_rows(tmp_path: Path) -> None:
    table = tmp_path / "harbour_boats_log.csv"
    table.write_text("bt_id,insp_dt,len_m\nB1,2026-01-05,7.5\nB2,2026-01-06,8\n")
    kind = loaded(table).records["boat"]
    assert kind.words == (
        "boat",
        "inspection",
        "inspected",
        "checked",
        "harbour boat",
        "log",
        "check",
        "visit",
        "examination",
    )


def test_zero_and_one_are_no_and_yes_where_nothing_is_counted(tmp_path: Path) -> None:
    table = tmp_path / "customers.csv"
    table.write_text("name,churned,is_member,children,stops_count,tier\nAda,0,1,1,0,1\nBo,1,0,0,1,2\n")
    spec = loaded(table)
    flags = {name for name, kind in spec.fields.items() if kind is FieldType.BOOLEAN}
    assert flags == {"churned", "is_member"} and spec.fields["children"] is FieldType.INTEGER
    assert spec.vocabulary["churned"].values["true"] == ("churned", "churn")
    assert spec.vocabulary["is_member"].values["true"] == ("member", "members")


def test_rows_of_people_are_called_so_and_by_what_happened_to_them(tmp_path: Path) -> None:
    table = tmp_path / "wards.csv"
    table.write_text("first_name,last_name,age,death_date\nAda,Holm,70,2026-01-05\nBo,Holm,81,2026-01-06\n")
    spec = loaded(table)
    assert spec.records["ward"].words[:4] == ("ward", "person", "people", "death")
    assert spec.rows[0].title == "{first_name} {last_name}" and spec.dated_types is None
    (tmp_path / "oats.csv").write_text("site,year,yield\nA,1931,27\nB,1931,31.5\n")
    assert loaded(tmp_path / "oats.csv").records["oat"].words == ("oat", "harvest", "crop")
    assert (spec.vocabulary["age"].high, spec.vocabulary["age"].low) == (("oldest",), ("youngest",))
