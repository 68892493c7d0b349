"""Composes questions with their queries over any table: for the many ways in which the same parts go together."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from tests.records.parsing.schemas import NUMBERS, Asked, Field, Query, Schema

ADJECTIVES = {
    r"price|cost|fee|rate|charge|rent|fare|premium": (
        "dearest priciest costliest most_expensive",
        "cheapest least_expensive most_affordable",
        "dearer costlier pricier more_expensive",
        "cheaper less_expensive",
    ),
    r"weight|kg|kilo|load|tons": ("heaviest", "lightest", "heavier", "lighter"),
    r"hour|minute|duration|length|days|time|weeks|stay": ("longest", "shortest", "longer", "shorter"),
    r"speed|pace": ("fastest quickest", "slowest", "faster quicker", "slower"),
    r"\bage\b|years": ("oldest", "youngest", "older", "younger"),
    r"size|area|volume|capacity|amount|total|value|sum": (
        "biggest largest",
        "smallest tiniest",
        "bigger larger",
        "smaller",
    ),
    r"height|tall": ("tallest highest", "shortest lowest", "taller higher", "shorter lower"),
    r"rating|score|stars|marks?|grade|points": (
        "best_rated top_rated best highest_scoring",
        "worst_rated lowest_rated worst",
        "better",
        "worse",
    ),
    r"people|guests|visitors|attend|audience|pupils|passengers|participants|crowd": (
        "busiest best_attended fullest",
        "quietest emptiest",
        "busier",
        "quieter",
    ),
    r"distance|km|miles": ("farthest longest", "nearest shortest", "farther longer", "nearer shorter"),
    r"depth|deep": ("deepest", "shallowest", "deeper", "shallower"),
    r"temp|degrees|heat": ("hottest warmest", "coldest coolest", "hotter warmer", "colder cooler"),
    r"sales|sold|copies": ("best_selling", "worst_selling", "", ""),
    r"width|wide": ("widest", "narrowest", "wider", "narrower"),
    r"thick": ("thickest", "thinnest", "thicker", "thinner"),
    r"strength|power|watt": ("strongest most_powerful", "weakest", "stronger", "weaker"),
    r"noise|decibel|loud": ("loudest noisiest", "quietest", "louder", "quieter"),
}
MORE = ("most", "highest", "largest", "biggest", "greatest", "top", "maximum")
LESS = ("least", "lowest", "smallest", "fewest", "minimum")
OVER = (
    "over",
    "above",
    "more than",
    "higher than",
    "greater than",
    "exceeding",
    "in excess of",
    "upwards of",
    "beyond",
    "north of",
)
UNDER = ("under", "below", "less than", "lower than", "fewer than", "south of", "smaller than", "beneath")
LEAST = ("at least", "no less than", "a minimum of", "not less than", "not under")
MOST = ("at most", "no more than", "up to", "a maximum of", "not over", "not more than", "within")
SYMBOLS = {"eur": "€", "euro": "€", "euros": "€", "usd": "$", "dollars": "$", "gbp": "£", "pounds": "£"}
SMALL = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve"]
SMALL_VALUES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12)


def plural(word: str) -> str:
    if " of " in word or word.endswith("s"):
        return word
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("x", "ch", "sh")) else f"{word}s"


def adjectives(field: Field) -> tuple[Sequence[str], ...]:
    declared = [
        [each for each in some if re.search(r"est\b|most|least|best|worst|lowest", each)]
        for some in (field.high, field.low)
    ]
    if any(declared):
        return *declared, [], []
    said = " ".join((field.name.replace("_", " "), *field.words, field.unit))
    for pattern, told in ADJECTIVES.items():
        if re.search(pattern, said):
            return tuple([each.replace("_", " ") for each in some.split()] for some in told)
    return [], [], [], []


class Composer:
    def __init__(self, draw: random.Random, schema: Schema) -> None:
        self.draw, self.schema = draw, schema
        self.kind = draw.choice([*schema.kinds])
        self.noun = draw.choice(schema.kinds[self.kind])
        self.things = plural(self.noun)
        fields = [field for field in schema.fields.values() if not field.kinds or self.kind in field.kinds]
        draw.shuffle(fields)
        self.numbers = [field for field in fields if field.type in NUMBERS and not field.name.endswith(("_id", "_no"))]
        self.keys = [field for field in fields if field.type == "keyword" and field.values]
        self.flags = [field for field in fields if field.type == "boolean"]
        self.tags = [field for field in fields if field.type == "tags" and field.values]
        self.filters: list[tuple[str, str, str]] = []
        self.before, self.behind = "", ""
        self.own = False

    def pick(self, *options: str) -> str:
        return self.draw.choice(options)

    def word(self, field: Field) -> str:
        return self.draw.choice(field.words)

    # -- conditions
    def narrow(self, most: int = 2) -> None:
        """Conditions, said before or behind the noun."""
        many = self.draw.choice((0, 0, 1, 1, 1, 2, 3)[: 3 + 2 * most])
        kinds = [
            *(("key", each) for each in self.keys[:2]),
            *(("number", each) for each in self.numbers[1:3]),
            *(("flag", each) for each in self.flags[:1]),
            *(("tag", each) for each in self.tags[:1]),
        ]
        self.draw.shuffle(kinds)
        said = []
        for sort, field in kinds[:many]:
            said.append(getattr(self, f"_{sort}")(field))
        if len(said) > 1:
            self.behind = self.pick(" ", " and ", ", ").join(filter(None, said))
        else:
            self.behind = "".join(said)
        if self.draw.random() < 0.1:
            self.own = True

    def _key(self, field: Field) -> str:
        value, word = self.draw.choice(field.values), self.word(field)
        others = [each for each in field.values if each != value]
        if len(others) > 1 and self.draw.random() < 0.05:
            other = self.draw.choice(others)
            self.filters += [(field.name, "!=", value), (field.name, "!=", other)]
            return self.pick(
                f"except {value} and {other}",
                f"other than {value} or {other}",
                f"that are neither {value} nor {other}",
                f"anything but {value} and {other}",
                f"leaving out {value} and {other}",
            )
        if self.draw.random() < 0.22:
            self.filters.append((field.name, "!=", value))
            return self.pick(
                f"not {value}",
                f"except {value}",
                f"that aren't {value}",
                f"other than {value}",
                f"excluding {value}",
                f"without {value}",
                f"whose {word} is not {value}",
                f"apart from {value}",
                f"not with {value}",
                f"that are anything but {value}",
                f"which are not {value}",
                f"not in {value}",
                f"leaving out {value}",
            )
        self.filters.append((field.name, "=", value))
        if others and self.draw.random() < 0.08:
            other = self.draw.choice(others)
            self.filters.append((field.name, "=", other))
            return self.pick(
                f"{value} or {other}",
                f"by {value} or {other}",
                f"with {word} {value} or {other}",
                f"for {value} and {other}",
            )
        if not self.before and self.draw.random() < 0.35:
            self.before = value
            return ""
        return self.pick(
            f"for {value}",
            f"by {value}",
            f"from {value}",
            f"in {value}",
            f"at {value}",
            f"with {value}",
            f"with {word} {value}",
            f"whose {word} is {value}",
            f"that are {value}",
            f"where the {word} is {value}",
            f"of {value}",
            f"({value})",
            f"marked {value}",
            f"having {value} as {word}",
            f"which are {value}",
            f"under {value}",
            f"on {value}",
            f"done by {value}",
            f"of the {word} {value}",
            f"still {value}",
            f"that went to {value}",
        )

    def _flag(self, field: Field) -> str:
        word = self.word(field)
        if self.draw.random() < 0.4:
            self.filters.append((field.name, "=", "false"))
            return self.pick(
                f"not {word}",
                f"without {word}",
                f"that aren't {word}",
                f"which are not {word}",
                f"not yet {word}",
                f"that have no {word}",
                f"where {word} is no",
                f"lacking {word}",
                f"still not {word}",
            )
        self.filters.append((field.name, "=", "true"))
        return self.pick(
            f"{word}",
            f"that are {word}",
            f"with {word}",
            f"which are {word}",
            f"already {word}",
            f"where {word} is yes",
            f"that have {word}",
            f"being {word}",
            f"that were {word}",
        )

    def _tag(self, field: Field) -> str:
        value = self.draw.choice(field.values)
        self.filters.append((field.name, "=", value))
        return self.pick(
            f"with {value}",
            f"that have {value}",
            f"tagged {value}",
            f"including {value}",
            f"having {value}",
            f"with {value} among the {self.word(field)}",
            f"that come with {value}",
            f"with {value} on them",
            f"that mention {value}",
        )

    def _amount(self, field: Field, value: int | None = None) -> tuple[int, str]:
        if value is None and self.draw.random() < 0.25:
            place = self.draw.randrange(len(SMALL))
            return SMALL_VALUES[place], SMALL[place]
        value = value or self.draw.choice(
            (
                self.draw.randint(2, 30),
                self.draw.randint(10, 100),
                5 * self.draw.randint(1, 60),
                100 * self.draw.randint(1, 90),
            )
        )
        said = f"{value:,}" if value > 999 and self.draw.random() < 0.5 else str(value)
        unit = field.unit
        if unit and self.draw.random() < 0.6:
            said = f"{SYMBOLS[unit]}{said}" if unit in SYMBOLS and self.draw.random() < 0.5 else f"{said} {unit}"
        return value, said

    def _number(self, field: Field) -> str:
        value, said = self._amount(field)
        word = self.word(field)
        higher, lower = adjectives(field)[2:]
        if self.draw.random() < 0.15:
            other = value + self.draw.randint(1, 200)
            self.filters += [(field.name, ">=", str(value)), (field.name, "<=", str(other))]
            return self.pick(
                f"between {value} and {other} {field.unit}".strip(),
                f"with {word} between {value} and {other}",
                f"with {word} from {value} to {other}",
                f"from {value} to {other} {field.unit} in {word}".replace("  ", " "),
                f"whose {word} lies between {value} and {other}",
            )
        sign, words = self.draw.choice(((">", OVER), ("<", UNDER), (">=", LEAST), ("<=", MOST)))
        if self.draw.random() < 0.1:
            self.filters.append((field.name, "=", str(value)))
            return self.pick(
                f"with {word} {said}",
                f"with exactly {said} {word}",
                f"whose {word} is {said}",
                f"with a {word} of {said}",
                f"with {word} of exactly {said}",
            )
        self.filters.append((field.name, sign, str(value)))
        bound = self.draw.choice(words)
        if sign == ">" and higher and self.draw.random() < 0.4:
            return f"{self.draw.choice(higher)} than {said}"
        if sign == "<" and lower and self.draw.random() < 0.4:
            return f"{self.draw.choice(lower)} than {said}"
        if sign == ">=" and self.draw.random() < 0.4:
            return self.pick(
                f"with {word} {said} or more",
                f"with {said} or more {word}",
                f"of {said} {word} and up",
                f"with {word} of {said} or higher",
                f"{said}+ {word}",
            )
        if sign == "<=" and self.draw.random() < 0.4:
            return self.pick(
                f"with {word} {said} or less",
                f"with {said} {word} or fewer",
                f"with {word} of {said} or lower",
                f"{word} {said} max",
            )
        return self.pick(
            f"with {word} {bound} {said}",
            f"{bound} {said} {word}",
            f"with {bound} {said} {word}",
            f"whose {word} is {bound} {said}",
            f"with a {word} {bound} {said}",
            f"where {word} is {bound} {said}",
            f"that have {bound} {said} {word}",
            f"{word} {bound} {said}",
            f"{bound} {said} in {word}",
            f"having {word} {bound} {said}",
        )

    def thing(self, one: bool = False) -> str:
        noun = self.noun if one else self.things
        own = self.pick("our", "my") if self.own else ""
        return " ".join(filter(None, (own, self.before, noun, self.behind)))

    def finish(self, text: str, query: Query) -> Asked:
        text = " ".join(text.split())
        if self.draw.random() < 0.6:
            text = text[0].upper() + text[1:]
        text += self.pick("?", "?", ".", "", "")
        return Asked(text, replace(query, filters=tuple(self.filters), own=self.own), self.schema)

    # -- what is asked
    def list_some(self) -> Asked:
        self.narrow()
        if not (self.filters or self.own):
            return self.count()
        thing = self.thing()
        text = self.pick(
            f"list the {thing}",
            f"show me {thing}",
            f"which {thing} are there",
            f"which are the {thing}",
            f"{thing}",
            f"all {thing}",
            f"give me all {thing}",
            f"what {thing} do we have",
            f"are there any {thing}",
            f"any {thing}",
            f"do we have {thing}",
            f"find {thing}",
            f"name the {thing}",
            f"I need a list of {thing}",
            f"what are the {thing}",
            f"do you have any {thing}",
            f"everything in {thing}",
            f"pull up {thing}",
            f"is there a {self.thing(True)}",
            f"run me down the {thing}",
        )
        return self.finish(text, Query(self.kind, "list"))

    def list_show(self) -> Asked:
        self.narrow(1)
        field = self.draw.choice([*self.keys, *self.numbers] or [None])
        if field is None or field.name in {name for name, _, _ in self.filters} or not self.filters:
            return self.list_some()
        thing, word = self.thing(), self.word(field)
        text = self.pick(
            f"what {word} do the {thing} have",
            f"{word} of the {thing}",
            f"show {word} for {thing}",
            f"list {thing} with their {word}",
            f"what is the {word} of {thing}",
            f"{thing}, and the {word} of each",
        )
        return self.finish(text, Query(self.kind, "list", show=(field.name,)))

    def titled(self) -> Asked:
        kinds = [kind for kind, titles in self.schema.titles.items() if titles and kind in self.schema.kinds]
        fields = [*self.keys, *self.numbers, *self.flags]
        if not kinds or not fields:
            return self.list_some()
        kind, field = self.draw.choice(kinds), self.draw.choice(fields)
        title, word = self.draw.choice(self.schema.titles[kind]), self.word(field)
        if field.type == "boolean":
            text = self.pick(
                f"is {title} {word}",
                f"is the {title} {word}",
                f"{title}: {word} or not",
                f"has {title} {word}",
                f"does {title} have {word}",
                f"was {title} {word}",
            )
        else:
            text = self.pick(
                f"what is the {word} of {title}",
                f"{word} of {title}",
                f"{title} {word}",
                f"what's {title}'s {word}",
                f"which {word} does {title} have",
                f"tell me the {word} for {title}",
                f"the {word} for the {title} please",
                f"how much {word} has {title}",
                f"what {word} is the {title}",
            )
        return self.finish(text, Query(kind, "list", show=(field.name,), title=title))

    def superlative(self) -> Asked:
        if not self.numbers:
            return self.newest()
        field = self.numbers[0]
        self.narrow(1)
        down = self.draw.random() < 0.6
        word, (high, low, _, _) = self.word(field), adjectives(field)
        some = high if down else low
        extreme = self.draw.choice(MORE if down else LESS)
        several = self.draw.random() < 0.35
        place = self.draw.randrange(len(SMALL))
        number = self.pick(SMALL[place], str(SMALL_VALUES[place]))
        thing = self.thing(not several)
        limit = SMALL_VALUES[place] if several else 1
        if several:
            options = [
                f"the {number} {thing} with the {extreme} {word}",
                f"top {number} {thing} by {word}" if down else f"bottom {number} {thing} by {word}",
                f"which {number} {thing} have the {extreme} {word}",
                f"{number} {thing} with {extreme} {word}",
            ]
            options += [f"the {number} {each} {thing}" for each in some] + [
                f"list the {number} {each} {thing}" for each in some
            ]
        else:
            options = [
                f"which {thing} has the {extreme} {word}",
                f"the {thing} with the {extreme} {word}",
                f"{extreme} {word} of any {thing}",
                f"what is the {thing} with the {extreme} {word}",
                f"{thing} with {extreme} {word}",
                f"show me the {thing} that has the {extreme} {word}",
                f"the {extreme} {word} among {self.thing()}",
                f"what's the {extreme} {word} of all {self.thing()}",
                f"of all {self.thing()}, which has the {extreme} {word}",
            ]
            options += (
                [f"which {thing} is the {each}" for each in some]
                + [f"the {each} {thing}" for each in some]
                + [f"what is our {each} {thing}" for each in some if self.own]
                + [f"{each} {thing}" for each in some]
                + [f"which of the {self.thing()} is {each}" for each in some]
            )
        return self.finish(
            self.draw.choice(options), Query(self.kind, "list", order=field.name, descending=down, limit=limit)
        )

    def newest(self) -> Asked:
        self.narrow(1)
        down = self.draw.random() < 0.65
        several = self.draw.random() < 0.4
        place = self.draw.randrange(len(SMALL))
        words = ("latest", "newest", "most recent", "last") if down else ("oldest", "earliest", "first", "very first")
        thing = self.thing(not several)
        number = self.pick(SMALL[place], str(SMALL_VALUES[place]))
        each = self.draw.choice(words)
        text = (
            f"the {number} {each} {thing}"
            if several
            else self.pick(
                f"the {each} {thing}",
                f"what was the {each} {thing}",
                f"which {thing} is the {each}",
                f"{each} {thing}",
                f"when was the {each} {thing}",
            )
        )
        if several and self.draw.random() < 0.5:
            text = f"the {each} {number} {thing}"
        return self.finish(
            text, Query(self.kind, "list", order="date", descending=down, limit=SMALL_VALUES[place] if several else 1)
        )

    def sorted_list(self) -> Asked:
        if not self.numbers:
            return self.newest()
        field = self.numbers[0]
        self.narrow(1)
        thing, word, (high, low, _, _) = self.thing(), self.word(field), adjectives(field)
        down = self.draw.random() < 0.6
        ends = [
            self.pick(
                "highest first", "descending", "biggest first", "from high to low", "largest on top", "most first"
            )
            if down
            else self.pick(
                "lowest first", "ascending", "smallest first", "from low to high", "least first", "in ascending order"
            )
        ]
        ends += [f"{each} first" for each in (high if down else low)]
        text = self.pick(
            f"{thing} sorted by {word}, {self.draw.choice(ends)}",
            f"rank the {thing} by {word}" if down else f"sort {thing} by {word}, {ends[0]}",
            f"list {thing} by {word}, {self.draw.choice(ends)}",
            f"{thing} ordered by {word} {ends[0]}",
            f"{thing}, {self.draw.choice(ends[1:] or [f'{ends[0]} by {word}'])}",
        )
        return self.finish(text, Query(self.kind, "list", order=field.name, descending=down))

    def count(self) -> Asked:
        self.narrow(2)
        thing = self.thing()
        text = self.pick(
            f"how many {thing} are there",
            f"how many {thing}",
            f"number of {thing}",
            f"count the {thing}",
            f"how many {thing} do we have",
            f"what's the number of {thing}",
            f"how many {thing} were there",
            f"count of {thing}",
            f"total number of {thing}",
            f"how many {thing} have we had",
            f"tell me how many {thing} there are",
            f"{thing}: how many",
            f"how often do we have {thing}",
            f"total {thing}",
            f"how many {thing} did we get",
            f"how many of the {thing} are there",
            f"give me the count of {thing}",
        )
        return self.finish(text, Query(self.kind, "count"))

    def figure(self) -> Asked:
        if not self.numbers:
            return self.count()
        field = self.numbers[0]
        self.narrow(2)
        thing, word = self.thing(), self.word(field)
        if self.draw.random() < 0.5:
            text = self.pick(
                f"total {word} of {thing}",
                f"what is the total {word} of the {thing}",
                f"sum of {word} for {thing}",
                f"how much {word} in total for {thing}",
                f"what do {thing} add up to in {word}",
                f"{word} of all {thing} together",
                f"combined {word} of {thing}",
                f"add up the {word} of {thing}",
                f"what is the overall {word} of {thing}",
                f"{word} in all for {thing}",
                f"how much {word} do the {thing} come to",
                f"all {thing}: {word} altogether",
                f"{word} summed over {thing}",
            )
            return self.finish(text, Query(self.kind, "sum", field.name))
        text = self.pick(
            f"average {word} of {thing}",
            f"what is the average {word} of the {thing}",
            f"mean {word} for {thing}",
            f"avg {word} {thing}",
            f"on average, what {word} do {thing} have",
            f"how high is the {word} of {thing} on average",
            f"typical {word} of {thing}",
            f"what {word} do {thing} usually have",
            f"{word} per {self.noun} on average" if not self.filters and not self.own else f"average {word}, {thing}",
        )
        return self.finish(text, Query(self.kind, "average", field.name))

    def grouped(self) -> Asked:
        timed = self.draw.random() < 0.3
        if not self.keys and not timed:
            return self.count()
        grain = self.draw.choice(("day", "week", "month", "year")) if timed else None
        group = None if timed else self.keys.pop()
        self.narrow(1)
        thing = self.thing()
        by = grain or self.word(group)  # type: ignore[arg-type]
        query = Query(self.kind, "count", group="date" if timed else group.name, grain=grain)  # type: ignore[union-attr]
        what, many = self.pick(f"number of {thing}", f"how many {thing}", f"count of {thing}", f"{thing}"), True
        if self.numbers and self.draw.random() < 0.5:
            field = self.numbers[0]
            word, many = self.word(field), False
            operation = self.draw.choice(("sum", "average"))
            query = replace(query, operation=operation, of=field.name)
            what = (
                self.pick(f"total {word} of {thing}", f"{word} of {thing} in total", f"summed {word} of {thing}")
                if operation == "sum"
                else self.pick(f"average {word} of {thing}", f"mean {word} of {thing}", f"avg {word} for {thing}")
            )
        if self.draw.random() < 0.35:
            return self._top_group(query, by, thing, many)
        text = self.pick(
            f"{what} per {by}",
            f"{what} by {by}",
            f"{what} for each {by}",
            f"{what} in every {by}",
            f"{what} grouped by {by}",
            f"{what} broken down by {by}",
            f"per {by}, {what}",
            f"{what} split by {by}",
            f"break down the {what} by {by}",
            f"{what} for every {by}",
            f"for each {by}: {what}",
            f"{what} each {by}",
        )
        return self.finish(text, query)

    def _top_group(self, query: Query, by: str, thing: str, many: bool) -> Asked:
        down = self.draw.random() < 0.7
        extreme = self.draw.choice(
            ("most", "highest", "largest", "biggest") if down else ("least", "lowest", "smallest", "fewest")
        )
        several = self.draw.random() < 0.25
        place = self.draw.randrange(len(SMALL))
        lead = (
            f"which {SMALL_VALUES[place]} {plural(by)} have"
            if several
            else self.pick(
                f"which {by} has",
                f"what {by} has",
                f"the {by} with",
                f"in which {by} are there" if many else f"which {by} shows",
            )
        )
        query = replace(query, order="value", descending=down, limit=SMALL_VALUES[place] if several else 1)
        if many:
            extreme = self.pick("the most", "most") if down else self.pick("the fewest", "the least")
            text = f"{lead} {extreme} {thing}"
        else:
            word = self.word(self.numbers[0])
            told = (
                self.pick("total", "overall", "combined", "summed")
                if query.operation == "sum"
                else self.pick("average", "mean")
            )
            text = f"{lead} the {extreme} {told} {word} of {thing}"
        return self.finish(text, query)

    def nothing(self) -> Asked:
        """Words of the table, and no query."""
        self.narrow(1)
        thing, fields = self.thing(), [*self.keys, *self.numbers]
        word = self.word(self.draw.choice(fields)) if fields else "price"
        text = self.pick(
            f"why are the {thing} so few",
            f"how do I add {thing}",
            f"what is the policy on {thing}",
            f"can I change the {word} of {thing}",
            f"what share of {thing} is there",
            f"how does {word} work for {thing}",
            f"will {thing} go up next year",
            f"what percentage of {self.things} are {thing}",
            f"who decides the {word} of {thing}",
            f"what is the difference in {word} between {thing} and the rest",
            f"explain {word}",
            f"should we have more {thing}",
            f"what does {word} mean",
            f"hello, I have a question about {thing}",
            f"which {thing} have more {word} than the average",
            f"what is the median {word} of {thing}",
            f"how do we handle {thing}",
            f"forecast {word} of {thing}",
            f"which {self.noun} do you recommend",
            f"the ratio of {thing} to all",
            f"how many {thing} were refused by the manager",
            f"is {word} important for {thing}",
            f"where do I find {thing}",
            f"tell me about {thing}",
            f"what happens when {thing} are late",
            f"who is responsible for {thing}",
            f"how much more {word} did {thing} have than before",
        )
        made = self.finish(text, Query(self.kind, "count"))
        return replace(made, query=None)


WAYS = (
    "list_some",
    "list_some",
    "list_show",
    "titled",
    "superlative",
    "superlative",
    "newest",
    "sorted_list",
    "count",
    "count",
    "figure",
    "figure",
    "grouped",
    "grouped",
    "nothing",
    "nothing",
)


def mixed(draw: random.Random, schemas: Sequence[Schema]) -> Schema:
    """A table with the kinds of one and the fields of several."""
    base, made = draw.choice(schemas), Schema("mixed")
    made.kinds, made.titles = dict(base.kinds), dict(base.titles)
    pool = [field for schema in draw.sample(list(schemas), min(3, len(schemas))) for field in schema.fields.values()]
    words: set[str] = set()
    for field in draw.sample(pool, min(len(pool), draw.randint(5, 10))):
        if field.name not in made.fields and not words & {*field.words}:
            kinds = tuple(made.kinds) if draw.random() < 0.25 else (draw.choice([*made.kinds]),)
            made.fields[field.name] = replace(field, kinds=kinds)
            words |= {*field.words}
    return made


def compose(draw: random.Random, schema: Schema) -> Asked:
    return getattr(Composer(draw, schema), draw.choice(WAYS))()  # type: ignore[no-any-return]
