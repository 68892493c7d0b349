"""The kind of value that a question asks for, whether a sentence has one, what of it takes more than one sentence to
work out, and which of its names no source has.

Rules for questions in English, German and French. What a sentence has must be news: a figure or a name that the question
has is not its answer. Where no rule knows a question, any sentence may answer it.
"""

import re
from collections.abc import Collection, Iterable
from enum import StrEnum

from rag_app.answering.verification.figures import OTHER_NUMBERS
from rag_app.domain import DAY_NUMBERS, MONTH_NUMBERS, compile_later
from rag_app.retrieval.confidence import stem
from rag_app.retrieval.text import NUMBER_WORDS


class Kind(StrEnum):
    """`EMAIL` and `PHONE`: where somebody is reached. `NUMBER`: any figure; `SHARE`: how much of something; `TIME`: a date, a day or an hour; `SPAN`: how long; `OFTEN`: how often."""

    EMAIL = "email"
    PHONE = "phone"
    SHARE = "share"
    MONEY = "money"
    OFTEN = "often"
    SPAN = "span"
    LENGTH = "length"
    WEIGHT = "weight"
    AGE = "age"
    WARMTH = "warmth"
    LOUDNESS = "loudness"
    NUMBER = "number"
    TIME = "time"
    PERSON = "person"
    PLACE = "place"
    REASON = "reason"


# The first that fits says the kind.
_WHAT = r"(?:\b(?:(?:what|which)(?:['’]?s| is| are)?|do you have|have you got|is there|give me|wie lautet|wie ist) {}|^\W*(?:the )?)"
_WHAT_THE, _WHAT_WORDS = _WHAT.format("(?:the |your |our |die |ihre )?"), _WHAT.format(r"(?:[\w'’]+ ){0,4}?")
_NAME_END = r"(?=\W*$| (?:of|for|to|do|should|at|von|vom|für|der|des)\b)"
_QUESTION_WORDS = {
    each: compile_later(words, re.IGNORECASE)
    for each, words in {
        Kind.EMAIL: rf"{_WHAT_WORDS}e-?mail(?:[ -]ad+ress\w*)?{_NAME_END}",
        Kind.PHONE: (
            rf"{_WHAT_WORDS}(?:(?:tele)?phone|mobile|contact|fax)[ -]?numbers?{_NAME_END}|{_WHAT_WORDS}(?:telefon|handy|fax)nummer{_NAME_END}"
            r"|\b(?:what|which) number (?:do|should|can|must|shall|may) (?:i|we|you) (?:ring|call|phone|dial|text|reach|get)\b"
            rf"|{_WHAT_THE}numbers? (?:of|for) (?:the |your |our )?(?:[\w'’]+ ){{0,3}}"
            r"(?:line|helpline|hotline|desk|reception|office|surgery|emergency|emergencies|switchboard)\b"
        ),
        Kind.SHARE: (
            r"\b(?:what|which|how (?:big|large|high) an?) (?:percentage|per ?cent|proportion|share|fraction) of\b|\bwie ?viel prozent\b"
            r"|\binterest rates?\b|\b(?:welcher|welchen) (?:anteil|prozentsatz)\b|\bquel(?:le)? (?:pourcentage|part|proportion) d"
        ),
        Kind.MONEY: (
            r"\b(?:what|how much)\b.{0,60}\b(?:costs?|prices?|charged?|fees?|salary|wages?|pay|paid|earns?)\b|\bwie teuer\b"
            r"|\bwhat(?:['’]?s| is| are| was| were)? (?:(?:the|your|our|an?) )?(?:[\w'’-]+ ){0,2}?(?:deposits?|rents?|subs?|subscriptions?|fares?)\b"
            r"|\bhow (?:big|high|large|much) an? (?:deposit|rent|subscription|fare)\b"
            r"|^(?!.*\b(?:who|when|where|why|which|is|are|am|do|does|did|can|could|may|must|if)\b)[^?.,;]{3,60}\b(?:price|cost|fee|charge)s?\W*$"
            r"|\bhow much for\b|^\W*(?:the )?(?:[a-z]+ )?(?:price|cost|fee|charge)s? (?:of|for|per)\b|\bset (?:me|us) back\b"
            r"|\bwas (?:kostet|kosten|zahlt|zahlen)\b|\bcombien (?:coûte|coûtent)\b"
        ),
        Kind.OFTEN: r"\bhow (?:often|frequently)\b|\bhow many times\b|\bwie oft\b",
        Kind.SPAN: (
            r"\bhow (?:long|soon|quickly)\b|\bhow many (?:minutes|hours|days|weeks|months|years)\b"
            r"|\bhow much (?:time|notice)\b|\bwie lange\b|\bcombien de temps\b"
        ),
        Kind.LENGTH: r"\b(?:what|which) (?:width|depth|height)\b|\bhow (?:tall|deep|wide|thick|far (?:is|away|from))\b|\bwie (?:tief|breit|weit)\b",
        Kind.WEIGHT: r"\bhow heavy\b|\b(?:what|how much) .{0,40}\bweighs?\b|\bwie schwer\b|\bhow many kilo",
        Kind.AGE: r"\bhow old\b|\bwhat age\b|\bwie alt\b|\bquel âge\b",
        Kind.WARMTH: r"\bhow (?:warm|hot|cold)\b|\bwhat temperature\b|\bwie (?:warm|heiß|kalt)\b",
        Kind.LOUDNESS: r"\bhow (?:loud|noisy|quiet) (?:is|are|was|were|does|do)\b|\bwie (?:laut|leise) (?:ist|sind|war|waren)\b",
        Kind.NUMBER: (
            r"\bhow (?:many|much|high|big|large|fast)\b|\b(?:what|which) (?:percentage|proportion|number|size|speed)\b"
            r"|\bwie (?:viele?|hoch|groß|schnell)\b|\bcombien\b"
        ),
        Kind.TIME: (
            r"^(?:(?:and|so|but|until|till|since|by|from|ok),? )*when\b|\b(?:until|since|by|from|and) when\b|\bum wie viel uhr\b"
            r"|\b(?:what|which) (?:time|date|day|year|month|week|century|decade)s?\b|\bwann\b|\ban welchem tag\b|\bquand\b"
        ),
        # "people who need help" names whom it is about
        Kind.PERSON: r"(?<!\bpeople )(?<!\bperson )(?<!\bthose )(?<!one )(?<!body )(?<!\w\ws )\b(?:who|whom)\b|\b(?:whose|wer|wem|wen)\b",
        Kind.PLACE: (
            r"^(?:(?:and|so|but|from) )*where\b|\b(?:what|which) (?:city|town|country|room|street|address)\b"
            r"|^wo(?:hin)?\b|^où\b"
        ),
        Kind.REASON: r"\bwhy\b|\bhow come\b|\bwarum\b|\bweshalb\b|\bpourquoi\b",
    }.items()
}

_NUMBER = (
    "|".join([*NUMBER_WORDS, *OTHER_NUMBERS])
    + "|half|quarter|third|fifth|once|none|single|both|hundred|thousand|million|eine?|einen|halbe"
)
_MONTHS = "|".join([*MONTH_NUMBERS, "okt", "dez"])
_DAYS = (
    f"(?:{'|'.join(DAY_NUMBERS)})s?|weekdays?|weekends?|today|tomorrow|yesterday|tonight|noon|midnight|morning|afternoon"
    "|evening|christmas|easter|spring|summer|autumn|winter"
)
_UNITS_OF_TIME = (
    "seconds?|minutes?|mins?|hours?|days?|nights?|weeks?|fortnights?|months?|years?|decades?|centur(?:y|ies)|seasons?|overnight"
    "|sekunden?|minuten?|stunden?|tagen?|tage|wochen?|monate?n?|jahre?n?|secondes?|heures?|jours?|semaines?|mois|ans?"
)
_FIGURE = compile_later(rf"\d[\d.,:'’]*\d|\d|\b(?:{_NUMBER})\b", re.IGNORECASE)
_PLACE = (
    r"\b(?:in|at|on|near|behind|beside|between|under|above|outside|inside|opposite|from|to|into|through|across|along|via|around"
    r"|im|am|auf|hinter|neben|bei|unter|vor|dans|sur|chez)\s+(?:(?:the|an?|our|their|his|her|its|your|my|de[rnm]|die|das)\s+)?"
    r"(?P<news>[\w’'-]+(?: (?-i:[A-Z]*\d[\w-]*))?)"
)
_NAME = re.compile(
    r"(?<!^)(?<![.!?:;]\s)\b[A-Z][\w’'-]+|^[A-Z][\w’'-]+(?=:|\s(?:[a-z]{1,3}\s)?[A-Z])|(?<=[:;]\s)[A-Z][\w’'-]+"
)
_NO_NAME = compile_later(
    rf"{_MONTHS}|{_DAYS}|the|it|this|that|i|i['’]\w+|an?|in|at|on|for|we|they|he|she|our|your|hi|dear|what|who"
    r"|when|where|why|how|which|whose|whom|do|does|did|is|are|was|were|can|could|may|must|should|will|would|if|have|has|had",
    re.IGNORECASE,
)
_VALUES = {
    each: compile_later(words, re.IGNORECASE)
    for each, words in {
        Kind.SHARE: (
            r"%|\bper ?cent\b|\bprozent\b|\bpour ?cent\b|\b(?:half|quarter|two thirds|tenth|all|none|most|hälfte|viertel|drittel|moitié|tiers|quart)\b"
            rf"|\b(?:a|one|two|a full) (?:third|fifth|sixth)s?\b|\b(?:\d+|{_NUMBER}) (?:in|out of|of(?: the| every)?|von) (?:\d+|{_NUMBER})\b"
        ),
        Kind.EMAIL: r"\S+@\S+\.\w+",
        Kind.PHONE: r"(?:\+\d|\b0\d)[\d\s()/.-]{4,}\d|\b\d{3,}[ -]\d{3,}\b|\b(?:call|ring|dial|phone|tel(?:ephone)?)\b[^.;\d]{0,25}\d{3,}",
        Kind.MONEY: (
            r"[$€£¥%]|\b(?:dollars?|euros?|eur|usd|gbp|chf|pounds?|pence|cents?|francs?|crowns?|krona|kroner|yen|per ?cent|free|nothing|half(?! (?:an?|past|hour|day))|double|kostenlos)\b"
            r"|(?<![\w.:])\d+[.,]\d\d(?![\d:])|\b(?:costs?|fees?|prices?|pays?|paid|charged?)\b[^\d.;]{0,30}\d"
        ),
        Kind.OFTEN: (
            r"\b(?:every|each|per|once|twice|times?|daily|weekly|monthly|yearly|annually|hourly|quarterly|regularly|always|never"
            r"|an? (?:day|week|month|year)|jede[nrs]?|täglich|wöchentlich|monatlich|jährlich)\b"
        ),
        Kind.SPAN: (
            rf"\b(?:\d[\d.,]*|{_NUMBER}|an?|few|several|many|per|all)[\s-]+(?:\w+[\s-]+)?(?:{_UNITS_OF_TIME})\b"
            r"|\b\d+\s?(?:h|min|s|m|cm|km|metres?|meters?|miles?|feet)\b|\b(?:until|till|by|bis|forever)\b|\d\s?[-–]\s?\d"
        ),
        Kind.LENGTH: (
            r"(?<![a-z])(?:m|cm|mm|km|(?:centi|milli)?met(?:re|er)s?|metern?|kilomet(?:re|er)s?|miles?|feet|foot|ft|inch(?:es)?|yards?|minutes?|hours?)\b"
        ),
        Kind.WEIGHT: r"(?<![a-z])(?:kg|g|kilo(?:gram)?s?|grams?|tons?|tonnes?|lbs?|ounces?)\b|\bweigh\w*\b.{0,30}\bpounds?\b",
        Kind.AGE: (
            r"\b(?:years?|old|aged?|ages|born|months?|jahren?|jahre|alt|under|over|built|since)\b"
            r"|\b(?:from|until|before|after|ab|bis)\s\d{1,2}\b(?!\s?(?:[:.,]\d|[ap]\.?m\b|uhr\b|o['’]clock))"
        ),
        Kind.WARMTH: r"degrees?|°|\b\d+\s?[CF]\b|\bgrad\b",
        Kind.LOUDNESS: r"\bdB\b|\bdecibels?\b|\bdezibel\b|\b(?:loud|quiet|silent|nois)\w*|\b(?:laut|leise)\w*",
        Kind.TIME: (
            rf"\b(?:{_DAYS}|{_MONTHS})\b|\bthe \d{{1,2}}(?:st|nd|rd|th)\b|\b\d{{1,2}}[:.]\d\d\b|\b1\d\d\d\b|\b20\d\d\b|\d\s?(?:[ap]\.?m\b|uhr)|o['’]clock"
            rf"|\b(?:at|from|by|until|till|to|after|before|um|ab|bis)\s(?:\d{{1,2}}|{_NUMBER})\b|\b(?:\d+|{_NUMBER})\s(?:{_UNITS_OF_TIME})\b"
            r"|\b(?:after|before|once|as soon as|when|while|during|within|every|next|last)\b"
        ),
        Kind.PLACE: _PLACE,
        Kind.REASON: (
            r"\b(?:because|since|as|so|therefore|thus|hence|due|reason|caused?|owing|thanks|otherwise|to|for|result(?:ed|s)?|lead|led"
            r"|if|weil|denn|da|damit|grund|ursache|wegen|deshalb|car|parce)\b"
        ),
    }.items()
}
FIGURES = frozenset(
    [
        Kind.EMAIL,
        Kind.PHONE,
        Kind.SHARE,
        Kind.MONEY,
        Kind.LENGTH,
        Kind.WEIGHT,
        Kind.AGE,
        Kind.WARMTH,
        Kind.LOUDNESS,
        Kind.NUMBER,
    ]
)
"""Kinds that no sentence has without a figure or an address, so that one without it is no answer. The others may be said in any words."""
_ASKS_DATE = compile_later(r"\b(?:what|which) (?:date|day|month|year)s?\b", re.IGNORECASE)
_NEEDS_FIGURE = frozenset([Kind.LENGTH, Kind.WEIGHT, Kind.AGE, Kind.WARMTH])
_NO_FIGURES = frozenset([Kind.TIME, Kind.PERSON, Kind.PLACE, Kind.REASON])
_NEEDS_NEWS = frozenset([Kind.TIME, Kind.PLACE])
_SIGN = r"(?:\d{1,4}(?![\d.,:’']*\d)|(?-i:[B-HJ-Z])\b)"
_NUMBERED_THING = compile_later(
    r"(?<!after )(?<!before )(?<!above )(?<!below )(?<!beyond )(?<!than )(?<!from )"
    r"\b(?!(?:at|by|for|from|in|of|on|over|than|the|to|under|until|with|about|after|before|and|or|not)\b)([^\W\d_]{2,})(?:[ -]| (?:no|nr|number)\b\W{0,2})"
    rf"({_SIGN}(?:\s*(?:,|and|or|to|&|[-–])\s*{_SIGN})*)(?! (?:and|or) (?:above|up|higher|over|more|later|below|under|lower|less|earlier)\b)",
    re.IGNORECASE,
)
_CODE = re.compile(r"(?<![\w-])([a-z]{1,4})-?(\d{1,4})(?![\d,.:]*\d)")
_BESIDE_NUMBERS = re.compile(r"\b(?:and|or|to)\b")
THOUSANDS = re.compile(r"(?<=\d)[,’'](?=\d{3}(?!\d))")
_MOST_NUMBERS = 100
_LETTERS = 5  # of a name that are looked for, so that "Frieda's" is found in "Frieda"
_CHARACTERS_BESIDE = 40  # characters beside a figure, among which is what it counts
_NUMBER_OF_ONE = compile_later(r"([^\W\d_]+)\W{0,2}(?:\b(?:no|nr|number)\b\W{0,2})?$")
_RULE = compile_later(
    r"\b(?:must|(?-i:may)|can|could|should|shall|allowed|do (?:i|you|we) get|(?:i|you|we) need|ha(?:ve|s|d) to|darf|dürfen|muss|müssen|kann|können|soll|sollen|peut|peuvent|doit)\b",
    re.IGNORECASE,
)
_PLURAL = re.compile(r"\w+s|[A-ZÄÖÜ]\w+|people|children|men|women", re.UNICODE)
_MEASUREMENT = compile_later(
    rf"\s?-?(?:{_UNITS_OF_TIME}|{_MONTHS}|[ap]\.?m\b|o['’]clock|uhr\b|[%$€£°]|per ?cent|prozent|euros?\b|dollars?\b|pounds?\b"
    r"|k?g\b|[ckm]?m\b|kilo|metres?\b|meters?\b|degrees?\b|grad\b|:\d)",
    re.IGNORECASE,
)


class Calculation(StrEnum):
    """What is worked out over several records: a sentence answers it only where it states the result itself."""

    COUNT = "count"
    TOTAL = "total"
    AVERAGE = "average"
    EXTREME = "extreme"
    NEVER = "never"


_TOTAL = r"totals?|altogether|all told|in all|combined|overall|sum of|insgesamt|zusammen|gesamt\w*|summe|au total|en tout|somme"
_AVERAGE = r"average|averages|on average|mean of|median|durchschnitt\w*|im schnitt|mittelwert|en moyenne|moyennes?"
# Words in -est that compare nothing.
_NO_EXTREME = (
    "interest|request|test|rest|west|guest|forest|honest|harvest|protest|suggest|invest|contest|digest|chest|quest|modest|arrest"
    "|priest|breast|pest|vest|nest|manifest|conquest|southwest|northwest|midwest|everest|budapest|earnest|ingest|attest|[a-zäöü]*fest"
)
_EXTREME = (
    rf"(?!(?:{_NO_EXTREME})\b)[a-z]{{3,}}est|(?<!at )most(?! of\b| likely\b)|(?<!at )least(?! of\b)|fewest|worst|best(?! way\b| to\b)"
    r"|last time|(?:am )?(?:meisten|wenigsten|besten|schlechtesten)|(?:höchst|niedrigst|größt|kleinst|teuerst|billigst|günstigst"
    r"|längst|kürzest|ältest|neuest|stärkst|schwächst)e[nrs]?|zuletzt|zum letzten mal|(?:le|la|les) (?:plus|moins|meilleure?s?|pires?)"
    r"|dernière fois"
)
_CALCULATION_WORDS = {
    each: compile_later(words, re.IGNORECASE)
    for each, words in {
        Calculation.AVERAGE: rf"\b(?:{_AVERAGE})\b",
        Calculation.TOTAL: rf"\b(?:{_TOTAL})\b",
        Calculation.EXTREME: rf"\b(?:{_EXTREME})\b|\bwhen (?:did|was|were|has|have)\b.{{1,60}}\blast\W*$|\bwann .{{1,60}}\bzuletzt\b",
        Calculation.NEVER: r"\b(?:who|which|what|wer|welche[rsn]?|qui|quels?|quelles?)\b.{0,60}\b(?:never|niemals|nie|jamais)\b",
        Calculation.COUNT: (
            r"\b(?:how many(?: of)?(?: the| our| my| your| their)?|wie ?viele|combien d(?:e |es |['’])|anzahl (?:der|von)"
            r"|nombre de)\s*(?!(?:in|of|from|per|do|does|did|is|are|was|were|can|may|must|have|has|will|there|times)\b)(?P<counted>[^?.,;]+)"
        ),
    }.items()
}
_RESULT_WORDS = {
    each: compile_later(words, re.IGNORECASE)
    for each, words in {
        Calculation.AVERAGE: rf"\b(?:{_AVERAGE}|mean|typical(?:ly)?|usual(?:ly)?|normal(?:ly)?|meist(?:ens)?|habituellement)\b",
        Calculation.TOTAL: rf"\b(?:{_TOTAL}|total\w*|all)\b",
        Calculation.EXTREME: (
            rf"\b(?:{_EXTREME}|mostly|mainly|majority|half|two[- ]thirds|more (?:\w+ )?than (?:any|all|every)|mehrheit|hälfte|moitié)\b"
        ),
        Calculation.NEVER: r"\b(?:never|no|not|none|nobody|without|nie|niemals|kein\w*|nicht|jamais|aucun\w*|pas)\b|n['’]t\b",
    }.items()
}


# How a list of those who were there begins, and what asks for it.
_ATTENDANCE = compile_later(
    r"^\W*(?:(?:also |members |staff )?(?:present|in attendance|attend(?:ees|ing|ance)|absent|apologies(?: received)?(?: from)?|participants|excused|anwesend\w*"
    r"|abwesend\w*|entschuldigt|teilnehm\w+|présents?|absents?|excusés?))\W*:",
    re.IGNORECASE,
)
_ASKS_ATTENDANCE = compile_later(
    r"\b(?:present|attend\w*|absent|absence|apolog\w+|participa\w+|took part|take part|miss(?:ed|ing)|there|came|come|joined|excused|turned up|showed up"
    r"|anwesend|abwesend|fehlt\w*|gefehlt|entschuldigt|teil|teilgenommen|teilnehm\w*|dabei|da|gekommen|kam\w*)\b"
    r"|\b(?:who|wer) (?:else )?(?:was|were|is|sat|war|waren|nahm\w*) (?:not |nicht )?(?:at|in|on|bei|an|auf)\b",
    re.IGNORECASE,
)
# Words that go on behind an adjective that belongs to no noun: "quiet on Mondays".
_FUNCTION_WORD = (
    r"(?:on|in|at|by|before|after|from|until|between|during|when|if|than|and|or|but|with|for|to|of|as|then)\b"
)


def kind_of(question: str) -> Kind | None:
    """What a question asks for; None where any sentence may answer it.

    >>> kind_of("How many seats are there?").value, kind_of("who cuts Frieda's hair").value, kind_of("Is it open?")
    ('number', 'person', None)
    >>> [kind_of(each) for each in ("ladder hire price?", "Is there a charge?")]
    [<Kind.MONEY: 'money'>, None]
    >>> [kind_of(each) for each in ("whats the number of the late line?", "What is your e-mail address?", "Can I change my email address?")]
    [<Kind.PHONE: 'phone'>, <Kind.EMAIL: 'email'>, None]
    """
    return next((kind for kind, pattern in _QUESTION_WORDS.items() if pattern.search(question)), None)


def find_calculation(question: str) -> Calculation | None:
    """What a question wants worked out over several things: None where one sentence can be expected to say it.

    >>> find_calculation("How many dogs live here?"), find_calculation("Which cut is the cheapest?"), find_calculation("Who cuts?")
    (<Calculation.COUNT: 'count'>, <Calculation.EXTREME: 'extreme'>, None)
    """
    found = next((each for each, pattern in _CALCULATION_WORDS.items() if pattern.search(question)), None)
    if kind_of(question) is Kind.REASON:
        return None  # "why not the cheapest one" has a sentence that says why
    if found is Calculation.TOTAL and kind_of(question) in _NO_FIGURES:
        return None  # "when is it closed altogether"
    if found is Calculation.COUNT and (kind_of(question) is not Kind.NUMBER or _RULE.search(question)):
        return None  # "how many may I bring" asks for a rule, which one sentence gives in words of its own
    return found


def states(reckoning: Calculation, text: str, question: str) -> bool:
    """Whether a text itself states what a question wants worked out.

    >>> states(Calculation.COUNT, "Two dogs and a cat live in house B.", "How many dogs live here?")
    True
    >>> states(Calculation.COUNT, "Dogs are kept on a lead until 8 o'clock.", "How many dogs live here?")
    False
    >>> states(Calculation.COUNT, "Dog: 17; Name: Bello", "How many dogs live here?")  # its number
    False
    >>> states(Calculation.EXTREME, "A cut costs 40 euros.", "Which cut is the cheapest?")
    False
    """
    if reckoning is not Calculation.COUNT:
        # "if you want quiet" says when it is quietest; of short words, "two metres long" says nothing of what is longest,
        # and neither does the word before a noun, "light bulbs", nor one that only begins like it, "lighting"
        plain = [
            rf"\b{re.sub('i$', '(?:y|i)', word)}(?:e?r)?\b(?!\s+(?!{_FUNCTION_WORD})[a-z])"
            for word in re.findall(r"\b([a-z]{5,})est\b", question.casefold())
        ]
        return _RESULT_WORDS[reckoning].search(text) is not None or any(re.search(each, text, re.I) for each in plain)
    thing, asked = _counted_word(question), _words(question)
    figures = [(part, each) for part in text.split(";") for each in _FIGURE.finditer(part)]
    beside = [
        (part[max(0, each.start() - _CHARACTERS_BESIDE) : each.start()], part[each.end() :][:_CHARACTERS_BESIDE])
        for part, each in figures
        if not _words(each[0]) <= asked and not _MEASUREMENT.match(part, each.end())
    ]
    return any(
        stem(word)[:_LETTERS] == thing
        for before, behind in beside
        if not _is_number_of_one(before, thing, asked)
        for word in _words(f"{before} {behind}")
    )


def _is_number_of_one(before: str, thing: str, asked: Collection[str]) -> bool:
    """Whether a figure behind these words is the number of one thing, where several are asked for: "Job: 17" of jobs."""
    named = _NUMBER_OF_ONE.search(before.casefold())
    return named is not None and stem(named[1])[:_LETTERS] == thing and named[1] not in asked


def _counted_word(question: str) -> str:
    """How the stem of the word for what is counted begins: of "how many spare bicycles have a motor", "bicyc"."""
    found = _CALCULATION_WORDS[Calculation.COUNT].search(question)
    words: list[str] = re.findall(r"[^\W\d_]+", found["counted"] if found else "")
    nouns = [word for word in words if _PLURAL.fullmatch(word)]
    return stem((nouns or words or [""])[0].casefold())[:_LETTERS]


def has_kind(kind: Kind, text: str, question: str) -> bool:
    """Whether a text has a value of that kind which the question has not.

    >>> has_kind(Kind.PERSON, "The pump failed twice.", "Who repaired the pump?")
    False
    >>> has_kind(Kind.NUMBER, "Week 7 was quiet.", "How many calls came in week 7?")
    False
    >>> has_kind(Kind.MONEY, "A cut costs 40 euros.", "What does a cut cost?")
    True
    >>> has_kind(Kind.WEIGHT, "It costs 40 pounds.", "How heavy is it?")
    False
    >>> has_kind(Kind.TIME, "Send it on the 12th.", "By which day of the month do I send it?")
    True
    >>> has_kind(Kind.SHARE, "We sold 40 aprons.", "What fraction of buyers send theirs back?")
    False
    """
    asked = _words(question)
    if kind is Kind.PERSON:
        return bool(names_in(text) - asked)
    figures = any(not _words(found[0]) <= asked for found in _FIGURE.finditer(text))
    if kind is Kind.NUMBER or (kind in _NEEDS_FIGURE and not figures):
        return figures
    found = _VALUES[kind].finditer(text)
    if kind is Kind.MONEY:
        return any(figures or each[0].isalpha() for each in found)
    return any(
        kind not in _NEEDS_NEWS or not _words(each.groupdict().get("news") or each[0]) <= asked for each in found
    )


def needs_value(question: str) -> bool:
    """Whether only a text with a value of the kind that a question asks for may answer it: a figure or a date.

    >>> [needs_value(each) for each in ("What does it cost?", "On which day is it?", "When is it?", "Who is it?")]
    [True, True, False, False]
    """
    kind = kind_of(question)
    return kind in FIGURES or (kind is Kind.TIME and _ASKS_DATE.search(question) is not None)


def only_lists_names(text: str, question: str) -> bool:
    """Whether a text lists who was there, where a question asks who did something else.

    >>> [only_lists_names("Present: Ines Calloway, Lech Baran.", each) for each in ("Who chaired the meeting?", "Who was present?")]
    [True, False]
    """
    if _ATTENDANCE.match(text) is None or kind_of(question) is not Kind.PERSON:
        return False
    return _ASKS_ATTENDANCE.search(question) is None


def numbers_in(text: str) -> dict[tuple[str, bool], frozenset[str]]:
    """What is numbered in a text, by the word before the number and whether that is a year: "Level 1" is another than "Level 2".

    Left out is what only leads to others, as in "after level 1" or "level 1 or higher".

    >>> numbers_in("Levels 1 and 2, in January 2026")[("level", False)] == {"1", "2"}, numbers_in("all above Level 3")
    (True, {})
    >>> sorted(numbers_in("rooms B, 2-4")[("room", False)]), numbers_in("Flight no: 31")
    (['2', '3', '4', 'b'], {('flight', False): frozenset({'31'})})
    """
    found: dict[tuple[str, bool], frozenset[str]] = {}
    for each in _NUMBERED_THING.finditer(text):
        signs = re.findall(r"\w+", _BESIDE_NUMBERS.sub(" ", each[2]))
        for first, last in re.findall(r"(\d+)\s*(?:to|[-–])\s*(\d+)", each[2]):
            signs += map(str, range(int(first), min(int(last), int(first) + _MOST_NUMBERS)))
        for sign in signs:
            key = re.sub("(?<=...)s$", "", each[1].casefold()), len(sign) == len("2026")
            found[key] = found.get(key, frozenset()) | {sign.lstrip("0").casefold()}
    return found


def codes_in(text: str) -> dict[str, frozenset[str]]:
    """The numbers behind letters in a text, by those letters: "E3" is another than "E7".

    >>> sorted(codes_in("the Q120-S or e-7, not E3, at 9 am")["e"])
    ['3', '7']
    """
    found: dict[str, frozenset[str]] = {}
    for letters, number in _CODE.findall(text.casefold()):
        found[letters] = found.get(letters, frozenset()) | {number}
    return found


def share_unnamed(question: str, sources: Iterable[str]) -> float:
    """Which share of the names and figures of a question is in none of the sources; 0 where it has none.

    >>> share_unnamed("What does Owen charge for 2 cuts?", ["2 cuts with Theo are $70."]), share_unnamed("over 8000?", ["8,000 and more"])
    (0.5, 0.0)
    """
    question, text = (THOUSANDS.sub("", each) for each in (question, " ".join(sources).casefold()))
    wanted = names_in(question) | {found[0] for found in re.finditer(r"\d[\d.,]*\d|\d", question)}
    text += " ".join(str(NUMBER_WORDS[word]) for word in re.findall(r"[a-z]+", text) if word in NUMBER_WORDS)
    return sum(name[:_LETTERS] not in text for name in wanted) / max(1, len(wanted))  # "Frieda's" is in "frieda"


def names_in(text: str) -> set[str]:
    """Words with a capital letter, but for the first of a sentence, days and months; in lower case."""
    words = {word for found in _NAME.finditer(text) for word in re.findall(r"[^\W_]+", found[0]) if len(word) > 1}
    return {word.casefold() for word in words if word[:1].isupper() and not _NO_NAME.fullmatch(word)}


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.casefold()))
