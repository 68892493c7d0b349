"""The capabilities that a conversation chooses from. They are registered with the import of the surface."""

from msgspec.structs import replace

from rag_app.answering.capabilities import LEXYBRAIN, RecordList, capability_named, register

_HOW_TO = r"(?:how (?:do|can|should|could) (?:i|we)|how does (?:the|your)|where (?:do|can) (?:i|we)|(?:can|could) (?:i|you)|do you)\b"
_QUOTED_NAME = r"[\"“'‘](?=\w)[^\"“”'‘’]{2,60}[\"”'’](?!\w)"  # "linen apron", and no apostrophe
_WATCHLIST_ADVICE = "add it to a watchlist so that it is tracked"
_NEAR_MISS_TEXT = "I found data, but none of it answers this."
_OF_KEYWORDS = (RecordList("keyword"), RecordList("history", "date", of="keyword"))
# Ask LexyBrain without anything special: the other four differ from it, and it from what answers outside of conversations.
_GENERAL = replace(
    capability_named("market_chat"),
    name="general_chat",
    description="anything else: help with LexyHub, the asker's own lists and notes, advice on selling, small talk",
    words=(
        (
            2,
            r"lexyhub|lexybrain|watch ?lists?|saved|my (?:list|notes?)|note about|export|csv|subscription|account|password"
            r"|invoices?\b|billing|extension|free (?:plan|version|trial)|(?:my|which|what|your) plan|thanks?\b|hello|hi\b|good morning"
            r"|(?:what|how) (?:do|does|is|are) (?:the |your )?(?:\w+ )?(?:score|index|momentum)s? (?:mean|tell|calculated|measured|work)",
        ),
        (4, rf"(?<![\w,] ){_HOW_TO}(?!.*(?:{_QUOTED_NAME}))|best way to|(?:any )?tips\b|in general"),
    ),
    prompt="ask_lexybrain",
    refusal=(
        "I don't have data or help pages on this yet. Try naming a keyword, a listing or a market, "
        f"or {_WATCHLIST_ADVICE}; the help pages explain metrics, alerts and plans."
    ),
    near=f"{_NEAR_MISS_TEXT} Try naming a keyword, a listing or a market; the help pages explain metrics, alerts and plans.",
    group=LEXYBRAIN,
    grounded=False,
    always_asks=True,
    source_types=("doc", "keyword", "watchlist"),
    fetch=30,
    failure_text=(
        "I'm having trouble generating a response right now. Your data shows: {summary}. "
        "Please try again or rephrase your question."
    ),
    top_k=10,
    by_source=True,
    max_sources=10,
    max_context_tokens=4000,
    lists=(*_OF_KEYWORDS, RecordList("watchlist"), RecordList("alert")),
)

for _each in (
    replace(
        _GENERAL,
        name="market_brief",
        description="the state of a market, niche or product category: demand, trends, opportunities, whether to enter",
        words=(
            (
                6,
                r"trend(?!\W+momentum)|opportunit|demand (?:for|in)\b|interest in|saturat|crowded|categor|popular|worth (?:selling|getting|entering)"
                r"|should (?:i|we) (?:start|sell|enter|expand)|expand|grow(?:ing|s|n)?\b|underserved|low.competition|overview|outlook|summar"
                r"|sells? (?:best|well|more)|room for|gap\b|ideas?\b|season|hot (?:right|this|in)|business|lately|(?:shoppers|customers|people) (?:are )?"
                r"|(?:still|be) (?:buying|big|higher|lower)|are people|buyers|this (?:spring|summer|autumn|fall|winter|year|month|quarter)"
                r"|last year|next year|christmas|halloween|brief(?:ing)?\b|what(?:['’]s| is) (?:going on|happening|new) (?:on|in|at)\b",
            ),
        ),
        grounded=True,
        refusal=(
            "I don't have keywords or trends of this market yet. Name a market or a niche, "
            "or add its keywords to a watchlist so that they are tracked."
        ),
        near=f"{_NEAR_MISS_TEXT} Name a market or a niche.",
        rerank="opportunity",
        source_types=("keyword", "trend"),
        fetch=40,
        recent_days=90,
        top_k=12,
        max_sources=12,
        lists=(RecordList("keyword", "opportunity"), RecordList("trend", "trend_momentum")),
    ),
    replace(
        _GENERAL,
        name="competitor_intel",
        description="other sellers: their shops, listings, prices and sales, and how the asker compares",
        words=(
            (
                3,
                r"rivals?\b|undercut|dominat|outsell|(?:than|as|like) (?:theirs|them|me|i|mine)\b|(?:are|do) others\b|(?:anyone|who) else"
                r"|who sells|(?:charge|charging)\b|(?:too|more|less) (?:expensive|cheap)|cheaper|compare (?:\w+ )?(?:to|with|against)|rank above"
                r"|(?<!my )(?<!my own )(?<!our )(?<!another )(?<!new )(?:shops?|stores?|sellers?)\b(?! (?:polic|name|banner))"
                r"|best.?sell(?:er|ing)|pric(?:es?|ing) (?:of|do|against|hold)|my prices",
            ),
        ),
        grounded=True,
        refusal=(
            "I don't have listings or shops for this yet. Name a listing, a shop or a niche, "
            "or track the competitor's shop so that its listings, prices and sales are collected."
        ),
        near=f"{_NEAR_MISS_TEXT} Name a listing, a shop or a niche.",
        rerank="own_then_sales",
        source_types=("listing", "shop", "keyword"),
        fetch=40,
        # What is on sale now: a listing is active, a shop open, a keyword tracked; a paused listing is left out.
        preferred_status=("active", "open", "tracked"),
        top_k=12,
        max_sources=12,
        lists=(
            RecordList("listing", "sales", own=True),
            RecordList("listing", "sales", own=False),
            RecordList("shop", "sales", own=True),
            RecordList("shop", "sales", own=False),
        ),
    ),
    replace(
        _GENERAL,
        name="keyword_explanation",
        description="one or a few named keywords or search terms: their figures, history, seasons, related terms",
        words=(
            (
                5,
                r"(?:terms?|keywords?|tags?|tag my|phrases?|synonyms?|search(?:es|ed)?|search volume|long.?tail|queries)\b"
                rf"|typ(?:e|ing) (?:in|when|to)|scores? of|(?:going|gone|went|go) (?:up|down)|dropp|(?:so|how) (?:competitive|popular)|{_QUOTED_NAME}",
            ),
        ),
        grounded=True,
        refusal=(
            f"I don't have demand, competition or a history of this keyword yet. Check its spelling, or {_WATCHLIST_ADVICE}."
        ),
        near=f"{_NEAR_MISS_TEXT} Check the keyword's spelling, or {_WATCHLIST_ADVICE}.",
        rerank="exact_match",
        source_types=("keyword", "keyword_history", "alert"),
        lists=_OF_KEYWORDS,
    ),
    replace(
        _GENERAL,
        name="alert_explanation",
        description="alerts, warnings, risks, policies, trademarks: why something was flagged and what to do",
        words=(
            (
                1,
                r"violat|trade ?mark|copyright|patent|infring|lawsuit|legal|illegal|lawyer|sued?\b|come after|flagged|warn(?:ed|ing)"
                r"|polic(?:y|ies)\b(?<!shop policies)(?<!return policy)|complian|complain|take ?down|t(?:ook|aken) (?:it )?down|removed"
                r"|deactivat|suspen|banned|prohibited|forbidden|penalt|strike\b|notice\b|notif|severe|severity|danger|safety|appeal\b"
                r"|(?:is|am|are) (?:it|i|we) allowed|allowed to|against the|rules?\b|into trouble|reported|red (?:flag|triangle)",
            ),
        ),
        grounded=True,
        refusal=(
            "I don't have an alert, a risk rule or a help page on this. Name the keyword or the listing that it is "
            "about, or set an alert for it so that its triggers are recorded."
        ),
        near=f"{_NEAR_MISS_TEXT} Name the keyword or the listing that it is about.",
        rerank="alerts_first",
        source_types=("alert", "risk_rule", "doc"),
        fetch=20,
        severities=("low", "medium", "high", "critical"),
        top_k=8,
        max_sources=8,
        lists=(RecordList("alert", "date", texts=True), RecordList("rule", texts=True), RecordList("watchlist")),
    ),
    _GENERAL,
):
    register(_each)
