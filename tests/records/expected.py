"""Computes the answers of the questions in this folder from the files they are about.

A question carries its `query`: which files, which rows, what of them. `expect` reads the files and returns what an answer has to
hold. It knows nothing of rag_app: no index, no store, no model.

    python -m tests.records.expected    # tells every line whose answer the files do not give
"""

import csv
import email.policy
import email.utils
import importlib.util
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import openpyxl
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
WEATHER = "seattle_weather"
CARS = "cars"
STOCKS = "stocks"
MOST_ROWS = 40  # more are counted, not named
COUNTED = {
    "en": ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
    "fr": ["aucun", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze"],
    "de": ["kein", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"],
}
MONTHS = {
    "en": [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ],
    "fr": [
        "janvier",
        "février",
        "mars",
        "avril",
        "mai",
        "juin",
        "juillet",
        "août",
        "septembre",
        "octobre",
        "novembre",
        "décembre",
    ],
    "de": [
        "Januar",
        "Februar",
        "März",
        "April",
        "Mai",
        "Juni",
        "Juli",
        "August",
        "September",
        "Oktober",
        "November",
        "Dezember",
    ],
}
ADJECTIVES = {"sun": "sunny", "rain": "rainy", "snow": "snowy", "fog": "foggy", "drizzle": "drizzly"}
# Other names of a record: how its own text calls it where that is not the title.
ALIASES = {
    "aurora/listing-green-ring-box": ["emerald velvet ring box", "double ring box", "double velvet ring box"],
    "aurora/listing-milgrain-ring": ["milgrain wedding ring", "milgrain ring", "vintage-style wedding ring"],
    "aurora/listing-hammered-stacker": ["hammered silver stacking ring", "hammered ring"],
    "aurora/listing-wildflower-necklace": ["wildflower necklace", "necklace listing"],
    "aurora/listing-thistle-milgrain": ["antique-look wedding band", "antique-look band"],
    "aurora/listing-littlevelvet-box": ["single velvet ring box", "Little Velvet"],
    "birch/listing-cross-back-apron": ["cross-back linen apron", "cross-back apron"],
    "birch/listing-round-tablecloth": ["round linen tablecloth", "round stonewashed tablecloth", "round tablecloth"],
    "birch/listing-family-board": ["engraved walnut board", "walnut board"],
    "aurora/alert-hammered-decline": ["hammered silver ring"],
    "aurora/alert-moissanite-saturation": ["moissanite engagement ring"],
    "aurora/alert-thistle-undercut": ["Thistle & Crown undercuts", "undercut"],
    "aurora/alert-title-trademark": ["protected name", "fairytale ring"],
    "aurora/alert-mila-ring-box": ["velvet ring box"],
    "aurora/alert-mila-sizer-price": ["ring sizer"],
    "rules/rr-01": ["RR-01"],
    "rules/rr-02": ["RR-02"],
    "rules/rr-03": ["RR-03"],
    "rules/rr-04": ["RR-04"],
    "rules/rr-05": ["RR-05"],
    "rules/rr-06": ["RR-06"],
    "aurora/eu/products/sefton": ["Sefton"],
    "aurora/eu/products/wren-junior": ["Wren Junior"],
    "birch/main/products/skerry-2": ["Skerry 2", "Skerry"],
    "birch/main/products/corrie-4": ["Corrie 4", "Corrie"],
    "birch/main/products/ennis-boot": ["Ennis"],
    "birch/main/products/brack-pack": ["Brack 45", "Brack"],
    "trends/proposal-staging": ["staged proposals", "staged-proposal"],
    "trends/plastic-free-pantry": ["plastic-free pantry"],
    "aurora/call-0109-grace-okafor": ["Grace Okafor"],
    "aurora/docs/guide-secretariat.md": ["Guide du secrétariat"],
    "aurora/calls/2026-01-13-clinique-des-tilleuls.txt": ["Clinique des Tilleuls"],
    "aurora/calls/2025-12-04-northgate-renewal.txt.gz": ["Northgate"],
    "aurora/docs/roadmap-2026.pptx": ["Roadmap"],
    "aurora/mail/2026-01-14-bureau-lyon.eml": ["bureau de Lyon"],
    "birch/calls/2026-01-09-strathearn-housing.txt": ["Strathearn"],
}

Row = dict[str, Any]


# Reading


def samples(corpus: str) -> Path:
    """The folder that a corpus' files are below."""
    return ROOT / "indexes" / corpus / "samples"


@lru_cache
def rows_of(corpus: str, path: str, sheet: str | None = None) -> tuple[Row, ...]:
    """The rows of one file, each with its `key`, and with dates as ISO text."""
    if corpus in FOREIGN:
        return tuple(FOREIGN[corpus]())
    file = samples(corpus) / path
    read = READERS.get(file.suffix, document_row)
    return tuple({name: plain(value) for name, value in row.items()} for row in read(file, path, sheet))


def csv_rows(file: Path, path: str, _: str | None) -> Iterator[Row]:
    with file.open(encoding="utf-8", newline="") as text:
        for number, row in enumerate(csv.DictReader(text), start=2):
            yield {**row, "key": f"{path}#{number}"}


def json_rows(file: Path, path: str, _: str | None) -> Iterator[Row]:
    for line in file.read_text("utf-8").splitlines():
        record = json.loads(line)
        yield {**record, "key": record["id"]}


def sheet_rows(file: Path, path: str, sheet: str | None) -> Iterator[Row]:
    book = openpyxl.load_workbook(file, data_only=True)
    page = book[sheet] if sheet else book.worksheets[0]
    header, *lines = page.iter_rows(values_only=True)
    for number, cells in enumerate(lines, start=2):
        yield {**dict(zip(map(str, header), cells, strict=True)), "key": f"{path}#{page.title}!{number}"}


def document_row(file: Path, path: str, _: str | None) -> Iterator[Row]:
    """One row: what the front matter, the header of the mail or the file beside it says."""
    yield {"key": path, "folder": path.split("/")[1], **header_of(file)}


def header_of(file: Path) -> Row:
    beside = file.with_name(file.name + ".meta.json")
    told: Row = json.loads(beside.read_text("utf-8")) if beside.exists() else {}
    if file.suffix == ".eml":
        mail = email.message_from_bytes(file.read_bytes(), policy=email.policy.default)
        sent = email.utils.parsedate_to_datetime(str(mail["Date"]))
        told = {"title": str(mail["Subject"]), "date": sent.date(), "author": str(mail["From"]).split(" <")[0], **told}
    elif file.suffix in {".md", ".txt", ".html"}:
        told = {**yaml.safe_load(file.read_text("utf-8").split("---\n")[1]), **told}
    return told


READERS: dict[str, Callable[[Path, str, str | None], Iterator[Row]]] = {
    ".csv": csv_rows,
    ".jsonl": json_rows,
    ".xlsx": sheet_rows,
}


def weather_rows() -> Iterator[Row]:
    """The table of the package vega_datasets, which is read as a file: the package itself asks for pandas."""
    file = vega_file("seattle-weather.csv")
    for row in csv_rows(file, file.name, None):
        told = {name: plain(value) for name, value in row.items()}
        yield {**told, "year": told["date"][:4]}


def vega_file(name: str) -> Path:
    package = importlib.util.find_spec("vega_datasets")
    assert package and package.origin
    return Path(package.origin).parent / "_data" / name


def car_rows() -> Iterator[Row]:
    """The cars of the same package; a model year is the date of its first day."""
    for number, row in enumerate(json.loads(vega_file("cars.json").read_text("utf-8")), start=1):
        told = {name.casefold(): value for name, value in row.items()}
        year = told.pop("year")
        yield {**told, "date": year, "year": year[:4], "key": f"cars.json#{number}"}


def stock_rows() -> Iterator[Row]:
    """The monthly prices of five stocks of the same package, from 2000 to March 2010."""
    for row in csv_rows(vega_file("stocks.csv"), "stocks.csv", None):
        day = datetime.strptime(f"{row['date']} +0000", "%b %d %Y %z").date()
        yield {**row, "date": day.isoformat(), "price": float(row["price"]), "year": str(day.year)}


FOREIGN: dict[str, Callable[[], Iterator[Row]]] = {WEATHER: weather_rows, CARS: car_rows, STOCKS: stock_rows}


def plain(value: Any) -> Any:
    """A day as ISO text, a figure as a number, anything else as it is."""
    if isinstance(value, date):
        return value.isoformat()[:10]
    if isinstance(value, str) and re.fullmatch(r"\d{4}[-/]\d\d[-/]\d\d([T ].*)?", value):
        return value[:10].replace("/", "-")
    if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value):
        return float(value)
    return value


# Choosing


def chosen(corpus: str, query: Row, today: date | None) -> list[Row]:
    """The rows that the query asks for, in its order."""
    rows = [row for row in all_rows(corpus, query) if meets(row, query.get("where", []), today)]
    if "beyond_mean" in query:
        name, operator = query["beyond_mean"]
        mean = measure(rows, "average", name)
        rows = [row for row in rows if row.get(name) is not None and OPERATORS[operator](row[name], mean)]
    if "times" in query:
        name, least = query["times"]
        counts = Counter(row[name] for row in rows)
        rows = [row for row in rows if counts[row[name]] >= least]
    if "first_of_each" in query:
        name, field, way = query["first_of_each"]
        rows = [first_of(rows, name, value, field, way) for value in unique([row[name] for row in rows])]
    for name, way in reversed(query.get("order", [])):
        rows = sorted((row for row in rows if row.get(name) is not None), key=by(name), reverse=way == "desc")
    if query.get("order") and len(rows) > query["limit"]:
        first = query["order"][0][0]
        assert rows[query["limit"] - 1][first] != rows[query["limit"]][first], f"a tie: {query}"
    return rows[query.get("skip", 0) : query.get("limit")]


def first_of(rows: list[Row], name: str, value: Any, field: str, way: str) -> Row:
    """The row of one value of `name` with the most or the least of `field`."""
    found = sorted((row for row in rows if row[name] == value), key=by(field), reverse=way == "desc")
    assert len(found) < 2 or found[0][field] != found[1][field], f"a tie of {value}"
    return found[0]


def by(name: str) -> Callable[[Row], Any]:
    return lambda row: row[name]


def all_rows(corpus: str, query: Row) -> list[Row]:
    if corpus in FOREIGN:
        return list(rows_of(corpus, ""))
    folder = samples(corpus)
    found = sorted(
        file
        for pattern in query["from"]
        for file in folder.glob(pattern)
        if file.is_file() and not file.name.endswith(".meta.json")
    )
    assert found, query["from"]
    return [row for file in found for row in rows_of(corpus, str(file.relative_to(folder)), query.get("sheet"))]


def meets(row: Row, conditions: list[list[Any]], today: date | None) -> bool:
    return all(holds(row.get(name), operator, value, today) for name, operator, value in conditions)


def holds(found: Any, operator: str, value: Any, today: date | None) -> bool:
    """Whether a value meets one condition. A missing value meets none but `missing`."""
    if operator == "missing":
        return bool((found is None) == value)
    if found is None:
        return False
    if operator in {"day", "week", "month"}:
        assert today
        first, last = period(operator, value, today)
        return first.isoformat() <= str(found) <= last.isoformat()
    return bool(OPERATORS[operator](found, value))


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda found, value: found == value,
    "ne": lambda found, value: found != value,
    "lt": lambda found, value: found < value,
    "le": lambda found, value: found <= value,
    "gt": lambda found, value: found > value,
    "ge": lambda found, value: found >= value,
    "in": lambda found, value: found in value,
    "between": lambda found, value: value[0] <= found <= value[1],
    "has": lambda found, value: value in found,
    "starts": lambda found, value: found.startswith(value),
    "weekday": lambda found, value: date.fromisoformat(found).isoweekday() == value,
}


def period(unit: str, offset: int, today: date) -> tuple[date, date]:
    """The first and the last day of a period, `offset` units from the present one; weeks begin on Monday.

    >>> period("week", -1, date(2026, 1, 14))
    (datetime.date(2026, 1, 5), datetime.date(2026, 1, 11))
    """
    if unit == "day":
        day = today + timedelta(days=offset)
        return day, day
    if unit == "week":
        monday = today + timedelta(days=7 * offset - today.weekday())
        return monday, monday + timedelta(days=6)
    months = today.year * 12 + today.month - 1 + offset
    first, following = (date(number // 12, number % 12 + 1, 1) for number in (months, months + 1))
    return first, following - timedelta(days=1)


# Telling


def wordings(row: Row, name: str, language: str = "en") -> list[str]:
    """How an answer may write one value of a row."""
    value = row[name]
    if name == "title":
        core = re.sub(r"^[A-Z][\w ]*: | \([^)]*\)$", "", str(value))
        return unique([str(value), core, *ALIASES.get(row["key"], [])])
    if name in {"customer", "stylist"}:
        return [str(value), str(value).split()[0]]
    if name == "weather":
        return [str(value), ADJECTIVES.get(str(value), str(value))]
    if name == "month":
        return month_wordings(str(value))
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return day_wordings(date.fromisoformat(value), language)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [figure(value)]
    return [str(value)]


def unique(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def figure(number: float) -> str:
    return f"{number:.10g}"


def day_wordings(day: date, language: str = "en") -> list[str]:
    name = MONTHS["en"][day.month - 1]
    told = [day.isoformat(), f"{day.day} {name}", f"{name} {day.day}", f"{day.day} {name[:3]}", f"{name[:3]} {day.day}"]
    if language == "fr":
        told.append(f"{day.day} {MONTHS['fr'][day.month - 1]}")
    if language == "de":
        told += [f"{day.day}. {MONTHS['de'][day.month - 1]}", f"{day:%d.%m.}"]
    return told


def month_wordings(value: str) -> list[str]:
    year, month = value.split("-")
    return [value, f"{MONTHS['en'][int(month) - 1]} {year}", MONTHS["en"][int(month) - 1]]


def counted(number: int, language: str = "en") -> list[str]:
    words = COUNTED[language]
    return [str(number), words[number]] if number < len(words) else [str(number)]


def rounded(number: float) -> list[str]:
    """A mean: to two places or to one, rounded; a half up or to even."""
    exact = [f"{number:.2f}", f"{number + 1e-9:.2f}", f"{number - 1e-9:.2f}", f"{number:.1f}", f"{number + 1e-9:.1f}"]
    return unique([figure(float(text)) for text in exact])


# Computing


def expect(line: Row) -> Row:
    """What the query of a question gives: `must`, `must_not`, `order`, `rows` and `records`, as tests/records/README.md says.

    A question without a query (nothing to be computed, as in a refusal) gives what the line itself says.
    """
    query = line["query"]
    if query is None:
        return {name: line[name] for name in ("must", "must_not", "order", "rows", "records")}
    today = date.fromisoformat(line["today"]) if line["today"] else None
    language = line["language"]
    rows = chosen(line["corpus"], query, today)
    if query.get("top"):
        rows = largest_group(rows, query)
    if query.get("nearest"):
        return nearest(line, rows, today)
    must = [wordings(row, name, language) for row in rows for name in query.get("show", [])]
    if "items" in query:
        must += [[item] for row in rows for item in row[query["items"]]]
    parts = [
        chosen(line["corpus"], {**query, "where": query.get("where", []) + conditions}, today)
        for conditions in query.get("compare", [])
    ]
    must += [told_together(parts, rows, query)] if "together" in query else []
    if "together" not in query:
        kind, name = query.get("aggregate", ("count", None))
        must += [aggregate(part, kind, name, language) for part in parts]
    must = [alternatives for at, alternatives in enumerate(must) if alternatives not in must[:at]]
    return {
        "must": must
        + ([] if "compare" in query or "together" in query else aggregated(rows, query, language))
        + query.get("also", []),
        "must_not": excluded(line["corpus"], query, rows, today) + query.get("never", []),
        "order": ranked(line["corpus"], query, today),
        "rows": [row["key"] for row in rows] if len(rows) <= MOST_ROWS else [],
        "records": len(rows),
    }


def aggregated(rows: list[Row], query: Row, language: str) -> list[list[str]]:
    if "aggregate" not in query:
        return []
    kind, name = query["aggregate"]
    if "by" not in query:
        return [aggregate(rows, kind, name, language)]
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[query["by"]], []).append(row)
    return [
        told
        for found in groups.values()
        for told in (wordings(found[0], query["by"], language), aggregate(found, kind, name, language))
    ]


def told_together(parts: list[list[Row]], rows: list[Row], query: Row) -> list[str]:
    """One figure of several: the `difference` of two parts, the `share` of one in all rows, the `spread` of a field, or so many `per` each."""
    way = query["together"]
    if way == "spread":
        values = [row[query["aggregate"][1]] for row in rows]
        return rounded(max(values) - min(values))
    if way == "per":
        return rounded(measure(rows, *query["aggregate"]) / query["number"])
    measured = [measure(part, *query["aggregate"]) for part in parts]
    if way == "difference":
        return rounded(abs(measured[0] - measured[1]))
    share = 100 * measured[0] / measure(rows, *query["aggregate"])
    return unique([*rounded(share), figure(round(share))])


def largest_group(rows: list[Row], query: Row) -> list[Row]:
    """The rows of the value that most rows have, or whose figure is the largest (`top` true) or the smallest (`least`)."""
    name = query["by"]
    kind, field = query.get("aggregate", ["count", None])
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[name], []).append(row)
    measured = {value: measure(found, kind, field) for value, found in groups.items()}
    first, second, *_ = sorted(measured, key=lambda value: measured[value], reverse=query["top"] != "least")
    assert measured[first] != measured[second], f"a tie of {first} and {second}"
    return groups[first]


def measure(rows: list[Row], kind: str, name: str | None) -> float:
    """One figure of rows; a missing value counts for nothing."""
    if kind == "count" or name is None:
        return len(rows)
    values = [row[name] for row in rows if row.get(name) is not None]
    if kind == "distinct":
        return len(set(values))
    return float(round(sum(values), 6) if kind == "sum" else sum(values) / len(values))


def aggregate(rows: list[Row], kind: str, name: str | None, language: str) -> list[str]:
    found = measure(rows, kind, name)
    if kind in {"count", "distinct"}:
        return counted(int(found), language)
    return [figure(found)] if kind == "sum" else rounded(found)


def excluded(corpus: str, query: Row, rows: list[Row], today: date | None) -> list[str]:
    """The names of the rows that the query leaves out, which a right list does not hold.

    Rows that meet `may` can be in it or not. A name that a chosen row has as well is left out.
    """
    if "exclude" not in query:
        return []
    name = query["exclude"]
    meant = {row["key"] for row in rows}
    everything = all_rows(corpus, query)
    allowed = [row for row in everything if row["key"] in meant or ("may" in query and meets(row, query["may"], today))]
    kept = {text for row in allowed for text in wordings(row, name)}
    return unique([text for row in everything for text in wordings(row, name)[:1] if text not in kept])


def ranked(corpus: str, query: Row, today: date | None) -> list[list[str]]:
    """The names of the first three at most, for a question that asks for the first. Behind a tie nothing is said."""
    if not query.get("order") or "rank" not in query:
        return []
    rows = chosen(corpus, {**query, "limit": 1000}, today)[:3]
    name = query["order"][0][0]
    untied = [row for at, row in enumerate(rows) if at == 0 or row[name] != rows[at - 1][name]]
    return [wordings(row, query["rank"]) for row in untied]


def nearest(line: Row, rows: list[Row], today: date | None) -> Row:
    """A period without rows: its last day, and the nearest day that has any (or the week of it)."""
    query = line["query"]
    assert not rows
    name, operator, value = query["where"][0]
    first, last = (
        map(date.fromisoformat, value) if operator == "between" else period(operator, value, today or date.min)
    )
    held = sorted(all_rows(line["corpus"], query), key=lambda row: distance(date.fromisoformat(row[name]), first, last))
    day = date.fromisoformat(held[0][name])
    monday, sunday = period("week", 0, day)
    ends = [end for end in (day, monday, sunday) if not first <= end <= last]
    week = [text for end in ends for text in day_wordings(end, line["language"])]
    return {
        "must": [period_wordings(first, last, line["language"]), unique(week)],
        "must_not": query.get("never", []),
        "order": [],
        "rows": [],
        "records": 0,
    }


def period_wordings(first: date, last: date, language: str) -> list[str]:
    """A whole year by its number, a whole month by its name as well, anything else by its last day."""
    whole_year = (first.month, first.day, last.month, last.day) == (1, 1, 12, 31)
    whole_month = first.day == 1 and (first.year, first.month) == (last.year, last.month)
    whole_month &= (last + timedelta(days=1)).day == 1
    name = [f"{MONTHS[language][last.month - 1]} {last.year}"] if whole_month else []
    return [str(last.year)] if whole_year else [*day_wordings(last, language), *name]


def distance(day: date, first: date, last: date) -> timedelta:
    return max(first - day, day - last)


def lines(*names: str) -> list[Row]:
    """The questions of the files, in their order."""
    return [json.loads(text) for name in names for text in (FOLDER / name).read_text("utf-8").splitlines()]


def main() -> None:
    for line in lines("tuning.jsonl", "held_out.jsonl", "foreign.jsonl", "aside.jsonl"):
        found = expect(line)
        wrong = [name for name, value in found.items() if value != line[name]]
        if wrong:
            print(line["id"], "differs in", ", ".join(wrong))


if __name__ == "__main__":
    main()
